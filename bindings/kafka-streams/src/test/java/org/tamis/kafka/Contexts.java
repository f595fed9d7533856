package org.tamis.kafka;

import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.withSettings;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.processor.CommitCallback;
import org.apache.kafka.streams.processor.StateRestoreCallback;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.api.MockProcessorContext;
import org.apache.kafka.streams.processor.api.RecordMetadata;
import org.apache.kafka.streams.processor.internals.InternalProcessorContext;
import org.apache.kafka.streams.processor.internals.RecordBatchingStateRestoreCallback;
import org.apache.kafka.streams.processor.internals.StateRestoreCallbackAdapter;
import org.apache.kafka.streams.processor.internals.metrics.StreamsMetricsImpl;
import org.mockito.Mockito;

/** What stores are initialised with. Kafka's own is in a file that not every release publishes. */
final class Contexts {
    /** Stores that stage their writes, since Kafka Streams 4.4. */
    static final Map<String, String> TRANSACTIONAL = Map.of(
            StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2,
            "enable.transactional.statestores", "true");

    private Contexts() {}

    /** That of an active task, with one store. */
    static final class Context implements StateStoreContext {
        private final File directory;
        private final StreamsConfig config;
        private final StreamsMetricsImpl metrics;
        private StateStore store;
        private RecordBatchingStateRestoreCallback restore;
        private CommitCallback commit;
        private RecordMetadata record;
        private String changelog;
        private TaskId task = new TaskId(0, 0);

        private Context(File directory, StreamsConfig config) {
            this.directory = directory;
            this.config = config;
            // As Kafka Streams does.
            directory.mkdirs();
            Properties properties = new Properties();
            properties.putAll(config.originals());
            // Their constructor differs between releases.
            metrics = (StreamsMetricsImpl) new MockProcessorContext<>(properties, taskId(), directory).metrics();
        }

        /** The same as Kafka's own stores want it: what they ask for is answered by this object, as far as it has that. */
        StateStoreContext internal() {
            return mock(InternalProcessorContext.class, withSettings().stubOnly().defaultAnswer(call -> {
                Method asked = call.getMethod();
                Method own;
                try {
                    own = Context.class.getMethod(asked.getName(), asked.getParameterTypes());
                } catch (NoSuchMethodException none) {
                    return Mockito.RETURNS_DEFAULTS.answer(call);
                }
                try {
                    return own.invoke(this, call.getArguments());
                } catch (InvocationTargetException failure) {
                    throw failure.getCause();
                }
            }));
        }

        void task(TaskId task) {
            this.task = task;
        }

        /** Gives the store a changelog, for those that ask {@link #internal()} for it. */
        void changelog(String topic) {
            changelog = topic;
        }

        /** As of an internal context. */
        public String changelogFor(String store) {
            return changelog;
        }

        /** The store that was registered. */
        StateStore store() {
            return store;
        }

        void restore(Collection<ConsumerRecord<byte[], byte[]>> records) {
            restore.restoreBatch(records);
        }

        void commitStore() {
            try {
                commit.onCommit();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        @Override
        public void register(StateStore store, StateRestoreCallback callback) {
            register(store, callback, () -> {});
        }

        @Override
        public void register(StateStore store, StateRestoreCallback callback, CommitCallback commit) {
            this.store = store;
            this.restore = StateRestoreCallbackAdapter.adapt(callback);
            this.commit = commit;
        }

        @Override
        public String applicationId() {
            return "tamis-test";
        }

        @Override
        public TaskId taskId() {
            return task;
        }

        @Override
        public Optional<RecordMetadata> recordMetadata() {
            return Optional.ofNullable(record);
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
        public StreamsMetricsImpl metrics() {
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

    static Context of(File directory, Map<String, ?> configs) {
        Map<String, Object> all = new HashMap<>(configs);
        all.put(StreamsConfig.APPLICATION_ID_CONFIG, "tamis-test");
        all.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "127.0.0.1:9");
        return new Context(directory, new StreamsConfig(all));
    }

    /** Initialises a store, and returns it. */
    static <S extends StateStore> S opened(S store, File directory, Map<String, ?> configs) {
        store.init(of(directory, configs).internal(), store);
        return store;
    }

    /** Lets the next writes come from a record of the topic {@code input}. */
    static void at(Context context, long offset) {
        context.record = new RecordMetadata() {
            @Override
            public String topic() {
                return "input";
            }

            @Override
            public int partition() {
                return 0;
            }

            @Override
            public long offset() {
                return offset;
            }
        };
    }
}
