package org.tamis.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Metrics of stores, under Kafka's names. */
class MetricsTest {
    @TempDir
    Path directory;

    private static Map<String, Metric> of(Contexts.Context context, String store) {
        Map<String, Metric> found = new TreeMap<>();
        context.metrics().metrics().forEach((name, metric) -> {
            if (name.group().equals("stream-state-metrics") && store.equals(name.tags().get("tamis-state-id"))) {
                assertEquals("0_0", name.tags().get("task-id"));
                found.put(name.name(), metric);
            }
        });
        return found;
    }

    private static double value(Map<String, Metric> metrics, String name) {
        Metric metric = metrics.get(name);
        assertTrue(metric instanceof KafkaMetric, name + " of " + metrics.keySet());
        return ((Number) metric.metricValue()).doubleValue();
    }

    @Test
    void countWhatTheStoreDoes() throws Exception {
        Contexts.Context context = Contexts.of(directory.toFile(), Map.of("tamis.read.memory.bytes", 1 << 20));
        KeyValueStore<Bytes, byte[]> store =
                Stores.keyValueStoreBuilder(TamisStores.keyValueStore("store"), Serdes.Bytes(), Serdes.ByteArray())
                        .withLoggingDisabled()
                        .build();
        store.init(context.internal(), store);
        Map<String, Metric> metrics = of(context, "store");
        // What the store notes of itself.
        assertTrue(value(metrics, "bytes-written-total") < 100);
        for (int i = 0; i < 1_000; i++) {
            store.put(Bytes.wrap(new byte[] {(byte) i, (byte) (i >> 8)}), new byte[98]);
        }
        // One reading serves all metrics for a second.
        Thread.sleep(1_100);
        assertTrue(value(metrics, "bytes-written-total") >= 100_000);
        assertTrue(value(metrics, "bytes-written-rate") > 0);
        assertEquals(1_000, value(metrics, "estimate-num-keys"));
        assertTrue(value(metrics, "cur-size-all-mem-tables") >= 100_000);
        assertTrue(value(metrics, "block-cache-capacity") > 0);
        assertEquals(0, value(metrics, "background-errors"));
        for (String name : new String[] {
            "bytes-read-total", "bytes-read-rate", "memtable-bytes-flushed-total", "memtable-bytes-flushed-rate",
            "bytes-read-compaction-rate", "bytes-written-compaction-rate", "write-stall-duration-total",
            "block-cache-data-hit-ratio", "number-open-files", "num-immutable-mem-table", "size-all-mem-tables",
            "num-running-compactions", "total-sst-files-size", "live-sst-files-size", "block-cache-usage",
            "estimate-table-readers-mem"
        }) {
            assertTrue(value(metrics, name) >= 0, name);
        }
        store.close();
        assertEquals(Map.of(), of(context, "store"));
    }

    /** Late records are counted where Kafka Streams counts all that are dropped. */
    @Test
    void lateRecordsAreCounted() {
        Contexts.Context context = Contexts.of(directory.toFile(), Map.of());
        WindowStore<Bytes, byte[]> store =
                TamisStores.windowStore("windows", Duration.ofMinutes(2), Duration.ofSeconds(1), false).get();
        store.init(context.internal(), store);
        store.put(Bytes.wrap(new byte[1]), new byte[1], 1_000_000);
        store.put(Bytes.wrap(new byte[1]), new byte[1], 0);
        double dropped = context.metrics().metrics().entrySet().stream()
                .filter(metric -> metric.getKey().name().equals("dropped-records-total"))
                .mapToDouble(metric -> ((Number) metric.getValue().metricValue()).doubleValue())
                .sum();
        assertEquals(1, dropped);
        assertTrue(of(context, "windows").containsKey("bytes-written-total"));
        store.close();
    }
}
