package org.tamis.kafka.it.faults;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.file.Path;
import java.util.List;

import org.junit.jupiter.api.Test;

/** The short form of {@link FaultRun}. */
class FaultRunTest {
    @Test
    void nothingIsLostAndNothingDoneTwice() throws Exception {
        FaultRun.Settings settings = new FaultRun.Settings();
        settings.stores = System.getProperty("stores", settings.stores);
        settings.seconds = Integer.getInteger("seconds", 30);
        settings.seed = Long.getLong("seed", 1L);
        settings.logs = Path.of("target", "fault-run");
        assertEquals(List.of(), FaultRun.run(settings));
    }
}
