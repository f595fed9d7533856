package org.tamis.kafka;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.processor.CommitCallback;
import org.apache.kafka.streams.processor.StateRestoreCallback;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.internals.ProcessorRecordContext;
import org.apache.kafka.test.InternalMockProcessorContext;
import org.apache.kafka.test.MockRecordCollector;
import org.apache.kafka.test.StreamsTestUtils;

/** What stores are initialised with. */
final class Contexts {
    private Contexts() {}

    /** One that lets its store be committed. */
    static final class Context extends InternalMockProcessorContext<Object, Object> {
        private CommitCallback commit;

        private Context(File directory, StreamsConfig config) {
            super(directory, config, new MockRecordCollector());
            setTime(1);
        }

        @Override
        public void register(StateStore store, StateRestoreCallback restore, CommitCallback commit) {
            super.register(store, restore, commit);
            this.commit = commit;
        }

        void commitStore() {
            try {
                commit.onCommit();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }

    static Context of(File directory, Map<String, ?> configs) {
        Properties properties = StreamsTestUtils.getStreamsConfig("tamis-test");
        properties.putAll(configs);
        return new Context(directory, new StreamsConfig(properties));
    }

    /** Initialises a store, and returns it. */
    static <S extends StateStore> S opened(S store, File directory, Map<String, ?> configs) {
        store.init((StateStoreContext) of(directory, configs), store);
        return store;
    }

    /** Lets the next writes come from a record of the topic {@code input}. */
    static void at(Context context, long offset) {
        context.setRecordContext(new ProcessorRecordContext(0, offset, 0, "input", new RecordHeaders()));
    }
}
