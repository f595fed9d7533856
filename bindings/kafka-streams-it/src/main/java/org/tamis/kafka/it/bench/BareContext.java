package org.tamis.kafka.it.bench;

import java.io.File;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;

import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.StreamsMetrics;
import org.apache.kafka.streams.processor.CommitCallback;
import org.apache.kafka.streams.processor.StateRestoreCallback;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.api.RecordMetadata;
import org.apache.kafka.streams.processor.internals.RecordBatchingStateRestoreCallback;
import org.apache.kafka.streams.processor.internals.StateRestoreCallbackAdapter;
import org.apache.kafka.streams.processor.internals.metrics.StreamsMetricsImpl;

/** What a store needs to open, and the callback by which it is restored: a task without a topology, a thread or a broker. */
final class BareContext implements StateStoreContext {
    private final StreamsConfig config;
    private final File directory;
    private final StreamsMetricsImpl metrics =
            new StreamsMetricsImpl(new Metrics(), "bench", Time.SYSTEM);
    private RecordBatchingStateRestoreCallback restore;

    BareContext(Map<String, Object> configs, File directory) {
        this.config = new StreamsConfig(configs);
        this.directory = directory;
    }

    /** The callback of the store that was opened last. */
    RecordBatchingStateRestoreCallback restore() {
        return restore;
    }

    @Override
    public void register(StateStore store, StateRestoreCallback callback) {
        restore = StateRestoreCallbackAdapter.adapt(callback);
    }

    @Override
    public void register(StateStore store, StateRestoreCallback callback, CommitCallback commit) {
        register(store, callback);
    }

    @Override
    public String applicationId() {
        return "bench";
    }

    @Override
    public TaskId taskId() {
        return new TaskId(0, 0);
    }

    @Override
    public Optional<RecordMetadata> recordMetadata() {
        return Optional.empty();
    }

    @Override
    public Serde<?> keySerde() {
        return Serdes.ByteArray();
    }

    @Override
    public Serde<?> valueSerde() {
        return Serdes.ByteArray();
    }

    @Override
    public File stateDir() {
        return directory;
    }

    @Override
    public StreamsMetrics metrics() {
        return metrics;
    }

    @Override
    public Map<String, Object> appConfigs() {
        Map<String, Object> all = new HashMap<>(config.originals());
        all.putAll(config.values());
        return all;
    }

    @Override
    public Map<String, Object> appConfigsWithPrefix(String prefix) {
        return config.originalsWithPrefix(prefix);
    }
}
