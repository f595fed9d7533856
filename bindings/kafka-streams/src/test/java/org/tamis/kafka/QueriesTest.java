package org.tamis.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.query.FailureReason;
import org.apache.kafka.streams.query.KeyQuery;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.query.RangeQuery;
import org.apache.kafka.streams.query.TimestampedKeyQuery;
import org.apache.kafka.streams.query.TimestampedRangeQuery;
import org.apache.kafka.streams.query.WindowKeyQuery;
import org.apache.kafka.streams.query.WindowRangeQuery;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Interactive queries of the stores of a topology. */
class QueriesTest {
    @TempDir(factory = MemoryDirectory.class)
    Path directory;

    private TopologyTestDriver driver;
    private TestInputTopic<String, String> input;

    @BeforeEach
    void start() {
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "queries");
        config.put(StreamsConfig.STATE_DIR_CONFIG, directory.toString());
        config.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, TamisDslStoreSuppliers.class.getName());
        config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        StreamsBuilder builder = new StreamsBuilder();
        KGroupedStream<String, String> grouped = builder.<String, String>stream(
                        "input", Consumed.with(Serdes.String(), Serdes.String()))
                .groupByKey(Grouped.with(Serdes.String(), Serdes.String()));
        grouped.count(Materialized.as("counts"));
        grouped.windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMillis(10)))
                .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("windows").withRetention(Duration.ofMinutes(1)));
        grouped.windowedBy(SessionWindows.ofInactivityGapWithNoGrace(Duration.ofMillis(5)))
                .count(Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("sessions").withRetention(Duration.ofMinutes(1)));
        builder.addStateStore(Stores.keyValueStoreBuilder(TamisStores.keyValueStore("plain"), Serdes.String(), Serdes.String()));
        builder.<String, String>stream("plain", Consumed.with(Serdes.String(), Serdes.String()))
                .process(ToStore::new, "plain");
        driver = new TopologyTestDriver(builder.build(config), config, Instant.EPOCH);
        input = driver.createInputTopic("input", new StringSerializer(), new StringSerializer());
        for (int i = 0; i < 30; i++) {
            input.pipeInput("k" + i % 3, "v", i);
        }
        driver.createInputTopic("plain", new StringSerializer(), new StringSerializer()).pipeInput("key", "value", 5);
    }

    @AfterEach
    void stop() {
        driver.close();
    }

    /** Puts what comes into the store {@code plain}. */
    private static final class ToStore implements Processor<String, String, Void, Void> {
        private KeyValueStore<String, String> store;

        @Override
        public void init(ProcessorContext<Void, Void> context) {
            store = context.getStateStore("plain");
        }

        @Override
        public void process(Record<String, String> record) {
            store.put(record.key(), record.value());
        }
    }

    private <R> QueryResult<R> ask(String store, Query<R> query, PositionBound bound) {
        StateStore asked = driver.getAllStateStores().get(store);
        return asked.query(query, bound, new QueryConfig(true));
    }

    private <R> R answer(String store, Query<R> query) {
        QueryResult<R> result = ask(store, query, PositionBound.unbounded());
        assertTrue(result.isSuccess(), () -> result.getFailureMessage());
        assertFalse(result.getExecutionInfo().isEmpty());
        return result.getResult();
    }

    private static <K, V> List<KeyValue<K, V>> all(KeyValueIterator<K, V> iterator) {
        List<KeyValue<K, V>> all = new ArrayList<>();
        try (iterator) {
            iterator.forEachRemaining(all::add);
        }
        return all;
    }

    @Test
    void byKey() {
        assertEquals("value", answer("plain", KeyQuery.<String, String>withKey("key")));
        assertNull(answer("plain", KeyQuery.<String, String>withKey("none")));
        assertEquals(ValueAndTimestamp.make(10L, 28L), answer("counts", TimestampedKeyQuery.<String, Long>withKey("k1")));
        assertEquals(10L, answer("counts", KeyQuery.<String, Long>withKey("k1")));
    }

    @Test
    void byRange() {
        List<KeyValue<String, ValueAndTimestamp<Long>>> expected = List.of(
                KeyValue.pair("k0", ValueAndTimestamp.make(10L, 27L)),
                KeyValue.pair("k1", ValueAndTimestamp.make(10L, 28L)),
                KeyValue.pair("k2", ValueAndTimestamp.make(10L, 29L)));
        assertEquals(expected, all(answer("counts", TimestampedRangeQuery.<String, Long>withNoBounds())));
        assertEquals(expected.subList(1, 3), all(answer("counts", TimestampedRangeQuery.<String, Long>withLowerBound("k1"))));
        assertEquals(
                List.of(expected.get(1), expected.get(0)),
                all(answer("counts", TimestampedRangeQuery.<String, Long>withUpperBound("k1").withDescendingKeys())));
        assertEquals(
                List.of(KeyValue.pair("key", "value")), all(answer("plain", RangeQuery.<String, String>withRange("a", "z"))));
    }

    @Test
    void byWindow() {
        WindowStoreIterator<ValueAndTimestamp<Long>> windows = answer(
                "windows",
                WindowKeyQuery.<String, ValueAndTimestamp<Long>>withKeyAndWindowStartRange(
                        "k0", Instant.ofEpochMilli(0), Instant.ofEpochMilli(19)));
        assertEquals(
                List.of(
                        KeyValue.pair(0L, ValueAndTimestamp.make(4L, 9L)),
                        KeyValue.pair(10L, ValueAndTimestamp.make(3L, 18L))),
                all(windows));
        KeyValueIterator<Windowed<String>, ValueAndTimestamp<Long>> all = answer(
                "windows",
                WindowRangeQuery.<String, ValueAndTimestamp<Long>>withWindowStartRange(
                        Instant.ofEpochMilli(20), Instant.ofEpochMilli(20)));
        assertEquals(3, all(all).size());
        KeyValueIterator<Windowed<String>, Long> sessions = answer("sessions", WindowRangeQuery.<String, Long>withKey("k2"));
        List<KeyValue<Windowed<String>, Long>> found = all(sessions);
        assertEquals(1, found.size());
        assertEquals(10L, found.get(0).value);
        assertEquals(2, found.get(0).key.window().start());
        assertEquals(29, found.get(0).key.window().end());
    }

    @Test
    void withinABound() {
        Position position = driver.getAllStateStores().get("counts").getPosition();
        assertEquals(Position.emptyPosition().withComponent("input", 0, 29), position);
        KeyQuery<String, Long> query = KeyQuery.withKey("k1");
        assertTrue(ask("counts", query, PositionBound.at(position)).isSuccess());
        QueryResult<Long> ahead = ask("counts", query, PositionBound.at(position.copy().withComponent("input", 0, 30)));
        assertTrue(ahead.isFailure());
        assertEquals(FailureReason.NOT_UP_TO_BOUND, ahead.getFailureReason());
    }

    @Test
    void whatAStoreDoesNotHaveIsUnknown() {
        QueryResult<?> result = ask(
                "sessions",
                WindowKeyQuery.<String, Long>withKeyAndWindowStartRange("k0", Instant.EPOCH, Instant.EPOCH),
                PositionBound.unbounded());
        assertTrue(result.isFailure());
        assertEquals(FailureReason.UNKNOWN_QUERY_TYPE, result.getFailureReason());
    }
}
