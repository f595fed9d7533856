package org.tamis.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Before Kafka Streams 4.3. Under exactly-once, a task that dies must not leave a checkpoint file beside writes that were not committed. Instances that
 * were killed after their standby tasks had become active counted records twice.
 */
class TaskCheckpointTest {
    private static final Bytes KEY = Bytes.wrap(new byte[] {1});
    private static final byte[] VALUE = {7};

    @TempDir
    Path directory;

    private Path checkpoint;
    private Contexts.Context context;

    @BeforeEach
    void checkpointIsThere() throws IOException {
        assumeFalse(StoreOffsets.areManaged(), "there is no such file since 4.3");
        checkpoint = directory.resolve(TaskCheckpoint.FILE_NAME);
        Files.createFile(checkpoint);
    }

    private <S extends TamisStore> S opened(S store, String guarantee) {
        context = Contexts.of(directory.toFile(), Map.of(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, guarantee));
        store.init((StateStoreContext) context, store);
        return store;
    }

    private static void restore(TamisStore store, Bytes key) {
        store.restoreBatch(List.of(new ConsumerRecord<>("changelog", 0, 0, key.get(), VALUE)));
    }

    @Test
    void firstWriteRemovesIt() throws IOException {
        TamisKeyValueStore store = opened(new TamisKeyValueStore("store"), StreamsConfig.EXACTLY_ONCE_V2);
        restore(store, KEY);
        store.get(KEY);
        store.flush();
        assertTrue(Files.exists(checkpoint), "restored records are committed");
        store.put(KEY, VALUE);
        assertFalse(Files.exists(checkpoint));
        // A suspended task is committed, and goes on later.
        context.commitStore();
        Files.createFile(checkpoint);
        restore(store, KEY);
        assertTrue(Files.exists(checkpoint));
        store.putAll(List.of(KeyValue.pair(KEY, VALUE)));
        assertFalse(Files.exists(checkpoint));
        context.commitStore();
        Files.createFile(checkpoint);
        store.close();
        assertTrue(Files.exists(checkpoint), "closing in order keeps it");
    }

    @Test
    void everyWriteDoes() throws IOException {
        TamisKeyValueStore entries = opened(new TamisKeyValueStore("entries"), StreamsConfig.EXACTLY_ONCE_V2);
        everyWriteDoes(List.of(
                () -> entries.delete(KEY),
                () -> entries.putIfAbsent(KEY, VALUE),
                () -> entries.putAll(List.of(KeyValue.pair(KEY, VALUE)))));
        entries.close();
        TamisWindowStore windows = opened(
                (TamisWindowStore) TamisStores.windowStore("windows", Duration.ofMinutes(2), Duration.ofSeconds(1), false).get(),
                StreamsConfig.EXACTLY_ONCE_V2);
        everyWriteDoes(List.of(() -> windows.put(KEY, VALUE, 1), () -> windows.put(KEY, null, 1)));
        windows.close();
        TamisSessionStore sessions = opened(
                (TamisSessionStore) TamisStores.sessionStore("sessions", Duration.ofMinutes(2)).get(), StreamsConfig.EXACTLY_ONCE_V2);
        Windowed<Bytes> session = new Windowed<>(KEY, new SessionWindow(1, 2));
        everyWriteDoes(List.of(() -> sessions.put(session, VALUE), () -> sessions.remove(session)));
        sessions.close();
    }

    private void everyWriteDoes(List<Runnable> writes) throws IOException {
        for (Runnable write : writes) {
            context.commitStore();
            Files.write(checkpoint, VALUE);
            write.run();
            assertFalse(Files.exists(checkpoint));
        }
    }

    @Test
    void atLeastOnceKeepsIt() {
        TamisKeyValueStore store = opened(new TamisKeyValueStore("store"), StreamsConfig.AT_LEAST_ONCE);
        store.put(KEY, VALUE);
        assertTrue(Files.exists(checkpoint));
        assertEquals(VALUE[0], store.get(KEY)[0]);
        store.close();
    }
}
