package org.tamis.kafka.newer;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyConfig;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.AggregationWithHeaders;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.HeadersBytesStore;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionStoreWithHeaders;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.ValueTimestampHeaders;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.test.TestRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.tamis.kafka.TamisDslStoreSuppliers;
import org.tamis.kafka.TamisStores;

/** Stores with the headers of records, since Kafka Streams 4.3: what they hold is what Kafka's own hold. */
class HeadersTest {
    private static final Duration SIZE = Duration.ofSeconds(10);

    @TempDir
    Path directory;

    private static Topology topology(Properties properties) {
        StreamsBuilder builder = new StreamsBuilder(new TopologyConfig(new StreamsConfig(properties)));
        builder.table("table", Materialized.as("table"));
        builder.<String, String>stream("input")
                .groupByKey()
                .windowedBy(TimeWindows.ofSizeWithNoGrace(SIZE))
                .reduce((a, b) -> a + b, Materialized.as("windows"));
        builder.<String, String>stream("closed")
                .groupByKey()
                .windowedBy(TimeWindows.ofSizeWithNoGrace(SIZE))
                .emitStrategy(EmitStrategy.onWindowClose())
                .reduce((a, b) -> a + b, Materialized.as("closed-windows"));
        builder.<String, String>stream("visits")
                .groupByKey()
                .windowedBy(SessionWindows.ofInactivityGapWithNoGrace(SIZE))
                .reduce((a, b) -> a + b, Materialized.as("sessions"));
        return builder.build(properties);
    }

    /** A processor that keeps each record with its headers in three stores. The DSL of 4.4 leaves headers empty. */
    private static Topology keeping(
            KeyValueBytesStoreSupplier entries, WindowBytesStoreSupplier windows, SessionBytesStoreSupplier sessions) {
        Serde<String> text = Serdes.String();
        return new Topology()
                .addSource("source", "table", "input", "closed", "visits")
                .addProcessor("keeper", Keeper::new, "source")
                .addStateStore(Stores.timestampedKeyValueStoreWithHeadersBuilder(entries, text, text), "keeper")
                .addStateStore(Stores.timestampedWindowStoreWithHeadersBuilder(windows, text, text), "keeper")
                .addStateStore(Stores.sessionStoreWithHeadersBuilder(sessions, text, text), "keeper");
    }

    private static final class Keeper extends ContextualProcessor<String, String, Void, Void> {
        @Override
        public void process(Record<String, String> record) {
            KeyValueStore<String, ValueTimestampHeaders<String>> entries = context().getStateStore("table");
            WindowStore<String, ValueTimestampHeaders<String>> windows = context().getStateStore("windows");
            SessionStoreWithHeaders<String, String> sessions = context().getStateStore("sessions");
            var kept = ValueTimestampHeaders.make(record.value(), record.timestamp(), record.headers());
            entries.put(record.key(), kept);
            windows.put(record.key(), kept, record.timestamp() / 1_000 * 1_000);
            Windowed<String> session =
                    new Windowed<>(record.key(), new SessionWindow(record.timestamp() / 5_000, record.timestamp()));
            sessions.put(session, record.value() == null ? null : AggregationWithHeaders.make(record.value(), record.headers()));
        }
    }

    private List<String> held(Class<?> suppliers, String guarantee) {
        Properties properties = properties(suppliers, guarantee);
        // Kafka's store of windows that are emitted when they close orders all of them by time.
        List<String> held = held(topology(properties), properties, List.of("windows", "closed-windows"));
        Collections.sort(held);
        return held;
    }

    private Properties properties(Class<?> suppliers, String guarantee) {
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "headers-test");
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "127.0.0.1:9");
        properties.put(StreamsConfig.STATE_DIR_CONFIG, directory.resolve("state-" + System.nanoTime()).toString());
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, suppliers);
        properties.put(StreamsConfig.DSL_STORE_FORMAT_CONFIG, StreamsConfig.DSL_STORE_FORMAT_HEADERS);
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, guarantee);
        return properties;
    }

    private static List<String> held(Topology topology, Properties properties, List<String> windowStores) {
        List<String> held = new ArrayList<>();
        try (TopologyTestDriver driver = new TopologyTestDriver(topology, properties)) {
            for (String topic : List.of("table", "input", "closed", "visits")) {
                TestInputTopic<String, String> input =
                        driver.createInputTopic(topic, new StringSerializer(), new StringSerializer());
                for (int i = 0; i < 40; i++) {
                    Headers headers = new RecordHeaders().add("from", (topic + i).getBytes(StandardCharsets.UTF_8));
                    String value = i % 11 == 10 && topic.equals("table") ? null : "v" + i;
                    input.pipeInput(new TestRecord<>("key" + i % 5, value, headers, Instant.ofEpochMilli(700L * i)));
                }
            }
            KeyValueStore<String, ValueTimestampHeaders<String>> table = driver.getTimestampedKeyValueStoreWithHeaders("table");
            table.all().forEachRemaining(entry -> held.add(entry.key + " " + entry.value));
            for (String name : windowStores) {
                WindowStore<String, ValueTimestampHeaders<String>> windows = driver.getTimestampedWindowStoreWithHeaders(name);
                windows.all().forEachRemaining(entry -> held.add(entry.key + " " + entry.value));
            }
            SessionStoreWithHeaders<String, String> sessions = driver.getSessionStoreWithHeaders("sessions");
            for (int key = 0; key < 5; key++) {
                sessions.fetch("key" + key).forEachRemaining(entry -> held.add(entry.key + " " + entry.value));
            }
        }
        return held;
    }

    @Test
    void whatTheDslHolds() {
        List<String> theirs = held(BuiltInDslStoreSuppliers.RocksDBDslStoreSuppliers.class, StreamsConfig.AT_LEAST_ONCE);
        assertEquals(theirs, held(TamisDslStoreSuppliers.class, StreamsConfig.AT_LEAST_ONCE));
        assertEquals(theirs, held(TamisDslStoreSuppliers.class, StreamsConfig.EXACTLY_ONCE_V2));
    }

    @Test
    void whatAProcessorKeeps() {
        Duration hour = Duration.ofHours(1);
        Topology theirs = keeping(
                Stores.persistentTimestampedKeyValueStoreWithHeaders("table"),
                Stores.persistentTimestampedWindowStoreWithHeaders("windows", hour, SIZE, false),
                Stores.persistentSessionStoreWithHeaders("sessions", hour));
        Class<?> any = TamisDslStoreSuppliers.class;
        List<String> expected = held(theirs, properties(any, StreamsConfig.AT_LEAST_ONCE), List.of("windows"));
        assertTrue(expected.stream().anyMatch(entry -> entry.contains("key = from")), expected.toString());
        for (String guarantee : List.of(StreamsConfig.AT_LEAST_ONCE, StreamsConfig.EXACTLY_ONCE_V2)) {
            Topology ours = keeping(
                    TamisStores.timestampedKeyValueStoreWithHeaders("table"),
                    TamisStores.timestampedWindowStoreWithHeaders("windows", hour, SIZE, false),
                    TamisStores.sessionStoreWithHeaders("sessions", hour));
            assertEquals(expected, held(ours, properties(any, guarantee), List.of("windows")));
        }
    }

    @Test
    void suppliersOfSingleStores() {
        assertInstanceOf(HeadersBytesStore.class, TamisStores.timestampedKeyValueStoreWithHeaders("store").get());
        assertInstanceOf(HeadersBytesStore.class, TamisStores.timestampedWindowStoreWithHeaders("store", SIZE, SIZE, false).get());
        assertInstanceOf(HeadersBytesStore.class, TamisStores.sessionStoreWithHeaders("store", SIZE).get());
    }
}
