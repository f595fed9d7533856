package org.tamis.kafka;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.MissingNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.function.ToDoubleFunction;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.Gauge;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Sensor.RecordingLevel;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.internals.metrics.StreamsMetricsImpl;
import org.tamis.TamisException;

/**
 * The metrics of a store, in the group {@code stream-state-metrics} under the names that Kafka Streams documents for RocksDB, as far
 * as tamis has what they mean. As there, what counts operations is at the recording level DEBUG, and what describes a state at INFO.
 *
 * <p>They are added to the registry itself: the method of Kafka Streams for it has changed between versions that one build has to run with.
 */
final class StoreMetrics {
    private static final String GROUP = "stream-state-metrics";
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long LEAST_AGE_NANOS = TimeUnit.SECONDS.toNanos(1);
    private static final double NANOS_PER_MILLI = 1e6;

    private final TamisStore store;
    private final Metrics registry;
    private final Map<String, String> tags;
    private final List<MetricName> registered = new ArrayList<>();

    /** The statistics that were read last, and those before. */
    private Reading last = new Reading(MissingNode.getInstance(), System.nanoTime());
    private Reading before = last;

    private static final class Reading {
        final JsonNode stats;
        final long at;

        Reading(JsonNode stats, long at) {
            this.stats = stats;
            this.at = at;
        }
    }

    private StoreMetrics(TamisStore store, StateStoreContext context) {
        this.store = store;
        StreamsMetricsImpl metrics = (StreamsMetricsImpl) context.metrics();
        registry = metrics.metricsRegistry();
        tags = metrics.storeLevelTagMap(context.taskId().toString(), TamisStores.SCOPE, store.name());
    }

    /** Registers the metrics of a store, until they are {@linkplain #remove removed}. */
    static StoreMetrics register(TamisStore store, StateStoreContext context) {
        StoreMetrics metrics = new StoreMetrics(store, context);
        metrics.register();
        return metrics;
    }

    void remove() {
        registered.forEach(registry::removeMetric);
        registered.clear();
    }

    private void register() {
        counter("bytes-written", "bytes of keys and values written to the store", stats -> write(stats, "user_bytes"));
        counter("bytes-read", "bytes of the blocks that reads of the store touched", stats -> read(stats, "bytes_read"));
        counter("memtable-bytes-flushed", "bytes that flushes wrote to tables", stats -> write(stats, "flush_bytes"));
        rate("bytes-read-compaction", "bytes that compactions read", stats -> write(stats, "compaction_read_bytes"));
        rate("bytes-written-compaction", "bytes that compactions wrote", stats -> write(stats, "compaction_write_bytes"));
        gauge("write-stall-duration-total", "Time in ms that writes waited for flushes and compactions",
                RecordingLevel.DEBUG, stats -> write(stats, "stall_nanos") / NANOS_PER_MILLI);
        gauge("block-cache-data-hit-ratio", "Share of the lookups of data blocks that the block cache answered",
                RecordingLevel.DEBUG, StoreMetrics::cacheHits);
        gauge("number-open-files", "Number of open table files; mapped ones need none",
                RecordingLevel.DEBUG, stats -> stats.path("open_table_files").asDouble());

        state("num-immutable-mem-table", "Number of memtables that wait for a flush", stats -> sum(stats, "memtables") - keyspaces(stats));
        state("cur-size-all-mem-tables", "Bytes of all memtables", stats -> stats.path("memtable_bytes").asDouble());
        state("size-all-mem-tables", "Bytes of all memtables, those kept for transactions included",
                stats -> stats.path("memtable_bytes").asDouble() + stats.path("transaction_history_bytes").asDouble());
        state("num-running-compactions", "Number of running compactions", stats -> stats.path("jobs").size());
        state("total-sst-files-size", "Bytes of all table files", stats -> sum(stats, "table_bytes"));
        state("live-sst-files-size", "Bytes of the table files of the newest state", stats -> sum(stats, "table_bytes"));
        state("block-cache-capacity", "Bytes of the block cache, which all stores of the process share",
                stats -> stats.path("cache_capacity_bytes").asDouble());
        state("block-cache-usage", "Bytes in the block cache", stats -> stats.path("cache_used_bytes").asDouble());
        state("estimate-num-keys", "Estimated number of keys in tables and memtables",
                StoreMetrics::keys);
        state("estimate-table-readers-mem", "Bytes of filters and indexes in memory",
                stats -> stats.path("filter_bytes").asDouble() + stats.path("index_bytes").asDouble());
        state("background-errors", "Number of flushes and compactions that failed",
                stats -> write(stats, "failed_flushes") + write(stats, "set_aside"));
    }

    private void counter(String name, String what, ToDoubleFunction<JsonNode> value) {
        gauge(name + "-total", "Number of " + what, RecordingLevel.DEBUG, value);
        rate(name, what, value);
    }

    private void rate(String name, String what, ToDoubleFunction<JsonNode> value) {
        add(name + "-rate", "Number per second of " + what, RecordingLevel.DEBUG, () -> perSecond(value));
    }

    private void state(String name, String what, ToDoubleFunction<JsonNode> value) {
        gauge(name, what, RecordingLevel.INFO, value);
    }

    private void gauge(String name, String what, RecordingLevel level, ToDoubleFunction<JsonNode> value) {
        add(name, what, level, () -> value.applyAsDouble(refreshed().stats));
    }

    private void add(String name, String what, RecordingLevel level, Supplier<Double> value) {
        MetricName metric = registry.metricName(name, GROUP, what, tags);
        Gauge<Double> gauge = (config, now) -> value.get();
        registry.addMetricIfAbsent(metric, new MetricConfig().recordLevel(level), gauge);
        registered.add(metric);
    }

    private synchronized double perSecond(ToDoubleFunction<JsonNode> value) {
        Reading now = refreshed();
        double nanos = now.at - before.at;
        return nanos <= 0 ? 0 : (value.applyAsDouble(now.stats) - value.applyAsDouble(before.stats)) * 1e9 / nanos;
    }

    /** Returns the statistics as of a moment ago; of a closed store the last there were. All metrics share one reading. */
    private synchronized Reading refreshed() {
        long now = System.nanoTime();
        if (last.stats.isMissingNode() || now - last.at >= LEAST_AGE_NANOS) {
            try {
                Reading read = new Reading(JSON.readTree(store.database().stats()), now);
                before = last;
                last = read;
            } catch (InvalidStateStoreException | TamisException closed) {
                // What there was stays.
            } catch (JsonProcessingException error) {
                throw new IllegalStateException("statistics that are no JSON", error);
            }
        }
        return last;
    }

    private static double write(JsonNode stats, String field) {
        return stats.path("write").path(field).asDouble();
    }

    private static double read(JsonNode stats, String field) {
        return stats.path("read").path(field).asDouble();
    }

    private static double cacheHits(JsonNode stats) {
        double hits = read(stats, "cache_hits");
        double all = hits + read(stats, "cache_misses");
        return all == 0 ? 0 : hits / all;
    }

    private static int keyspaces(JsonNode stats) {
        return stats.path("keyspaces").size();
    }

    /** Those of the store: its offsets are none. */
    private static double keys(JsonNode stats) {
        double keys = 0;
        for (JsonNode keyspace : stats.path("keyspaces")) {
            if (!keyspace.path("name").asText().equals(StoreOffsets.KEYSPACE)) {
                keys += keyspace.path("entries").asDouble() - keyspace.path("deletes").asDouble()
                        + keyspace.path("memtable_entries").asDouble();
            }
        }
        return keys;
    }

    private static double sum(JsonNode stats, String field) {
        double sum = 0;
        for (JsonNode keyspace : stats.path("keyspaces")) {
            sum += keyspace.path(field).asDouble();
        }
        return sum;
    }
}
