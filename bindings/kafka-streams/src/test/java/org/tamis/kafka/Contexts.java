package org.tamis.kafka;

import java.io.File;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.processor.internals.ProcessorRecordContext;
import org.apache.kafka.test.InternalMockProcessorContext;
import org.apache.kafka.test.MockRecordCollector;
import org.apache.kafka.test.StreamsTestUtils;

/** What stores are initialised with. */
final class Contexts {
    private Contexts() {}

    static InternalMockProcessorContext<?, ?> of(File directory, Map<String, ?> configs) {
        Properties properties = StreamsTestUtils.getStreamsConfig("tamis-test");
        properties.putAll(configs);
        InternalMockProcessorContext<?, ?> context =
                new InternalMockProcessorContext<>(directory, new StreamsConfig(properties), new MockRecordCollector());
        context.setTime(1);
        return context;
    }

    static InternalMockProcessorContext<?, ?> of(File directory) {
        return of(directory, Map.of());
    }

    /** Lets the next writes come from a record of the topic {@code input}. */
    static void at(InternalMockProcessorContext<?, ?> context, long offset) {
        context.setRecordContext(new ProcessorRecordContext(0, offset, 0, "input", new RecordHeaders()));
    }
}
