package org.tamis.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyConfig;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.test.TestRecord;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Whole topologies, once with the default stores and once with those of tamis: what they emit has to be equal, record by record. */
class TopologiesTest {
    private static final Duration SIZE = Duration.ofSeconds(10);
    private static final Duration GRACE = Duration.ofSeconds(5);
    private static final int RECORDS = 600;

    @TempDir(factory = MemoryDirectory.class)
    Path directory;

    /** Input {@code left} and {@code right}, output {@code out}, all of text. */
    enum Example {
        COUNT(builder -> text(grouped(builder).count().toStream())),
        REDUCE(builder -> text(grouped(builder).reduce((a, b) -> a + b).toStream())),
        TUMBLING_WINDOWS(builder -> windowed(
                grouped(builder).windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE)).count().toStream())),
        HOPPING_WINDOWS(builder -> windowed(grouped(builder)
                .windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE).advanceBy(Duration.ofSeconds(3)))
                .reduce((a, b) -> a + b)
                .toStream())),
        SLIDING_WINDOWS(builder -> windowed(grouped(builder)
                .windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(SIZE, GRACE))
                .count()
                .toStream())),
        SESSIONS(builder -> windowed(grouped(builder)
                .windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(2), GRACE))
                .count()
                .toStream())),
        SUPPRESSED(builder -> windowed(grouped(builder)
                .windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE))
                .count(Materialized.with(Serdes.String(), Serdes.Long()))
                .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))
                .toStream())),
        CLOSED_WINDOWS(builder -> windowed(grouped(builder)
                .windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE))
                .emitStrategy(EmitStrategy.onWindowClose())
                .count()
                .toStream())),
        CLOSED_SESSIONS(builder -> windowed(grouped(builder)
                .windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(2), GRACE))
                .emitStrategy(EmitStrategy.onWindowClose())
                .count()
                .toStream())),
        CLOSED_SLIDING_WINDOWS(builder -> windowed(grouped(builder)
                .windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(SIZE, GRACE))
                .emitStrategy(EmitStrategy.onWindowClose())
                .count()
                .toStream())),
        STREAM_JOIN(builder -> left(builder).join(right(builder), (a, b) -> a + "+" + b, JoinWindows.ofTimeDifferenceAndGrace(SIZE, GRACE))),
        STREAM_LEFT_JOIN(builder ->
                left(builder).leftJoin(right(builder), (a, b) -> a + "+" + b, JoinWindows.ofTimeDifferenceAndGrace(SIZE, GRACE))),
        STREAM_OUTER_JOIN(builder ->
                left(builder).outerJoin(right(builder), (a, b) -> a + "+" + b, JoinWindows.ofTimeDifferenceAndGrace(SIZE, GRACE))),
        STREAM_TABLE_JOIN(builder -> left(builder).leftJoin(builder.<String, String>table("right"), (a, b) -> a + "+" + b)),
        TABLE_JOIN(builder -> builder.<String, String>table("left")
                .outerJoin(builder.<String, String>table("right"), (a, b) -> a + "+" + b)
                .toStream()),
        FOREIGN_KEY_JOIN(builder -> builder.<String, String>table("left")
                .leftJoin(builder.<String, String>table("right"), value -> value.substring(0, 2), (a, b) -> a + "+" + b)
                .toStream()),
        TABLE_AGGREGATE(builder -> text(builder.<String, String>table("left")
                .groupBy((key, value) -> KeyValue.pair(value.substring(0, 1), value), Grouped.with(Serdes.String(), Serdes.String()))
                .count()
                .toStream())),
        COGROUP(builder -> grouped(builder)
                .<String>cogroup((key, value, sum) -> sum + value)
                .cogroup(right(builder).groupByKey(), (key, value, sum) -> sum + "/" + value)
                .aggregate(() -> "", Materialized.with(Serdes.String(), Serdes.String()))
                .toStream());

        private final Consumer<StreamsBuilder> define;

        Example(Function<StreamsBuilder, KStream<String, String>> define) {
            this.define = builder -> define.apply(builder).to("out");
        }

        /** What is emitted when windows close has no order among what closes at once. */
        boolean isOrdered() {
            return !name().startsWith("CLOSED_");
        }

        private static KStream<String, String> left(StreamsBuilder builder) {
            return builder.stream("left");
        }

        private static KStream<String, String> right(StreamsBuilder builder) {
            return builder.stream("right");
        }

        private static KGroupedStream<String, String> grouped(StreamsBuilder builder) {
            return left(builder).groupByKey();
        }

        private static <V> KStream<String, String> text(KStream<String, V> stream) {
            return stream.mapValues(String::valueOf);
        }

        private static <V> KStream<String, String> windowed(KStream<Windowed<String>, V> stream) {
            return stream.map((key, value) -> KeyValue.pair(
                    key.key() + "@" + key.window().start() + "-" + key.window().end(), String.valueOf(value)));
        }
    }

    private List<TestRecord<String, String>> run(Example example, String name, Properties stores) throws Exception {
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "topologies");
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:1");
        config.put(StreamsConfig.STATE_DIR_CONFIG, directory.resolve(name).toString());
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class.getName());
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class.getName());
        config.putAll(stores);
        StreamsBuilder builder = new StreamsBuilder(new TopologyConfig(new StreamsConfig(config)));
        example.define.accept(builder);
        Topology topology = builder.build(config);
        Random random = new Random(example.ordinal());
        List<TestRecord<String, String>> emitted = new ArrayList<>();
        try (TopologyTestDriver driver = new TopologyTestDriver(topology, config, Instant.EPOCH)) {
            TestInputTopic<String, String> left = driver.createInputTopic("left", new StringSerializer(), new StringSerializer());
            boolean hasRight = builderReads(topology, "right");
            TestInputTopic<String, String> right =
                    hasRight ? driver.createInputTopic("right", new StringSerializer(), new StringSerializer()) : left;
            var out = driver.createOutputTopic("out", new StringDeserializer(), new StringDeserializer());
            long now = 0;
            for (int i = 0; i < RECORDS; i++) {
                now += random.nextInt(500);
                long time = Math.max(0, now - (random.nextInt(10) == 0 ? random.nextInt(30_000) : 0));
                TestInputTopic<String, String> topic = random.nextBoolean() ? left : right;
                String key = "k" + random.nextInt(10);
                String value = "k" + random.nextInt(10) + "-" + i;
                topic.pipeInput(key, value, time);
                if (random.nextInt(20) == 0) {
                    driver.advanceWallClockTime(Duration.ofSeconds(1));
                }
                emitted.addAll(out.readRecordsToList());
            }
            boolean isTamis = !stores.isEmpty();
            assertEquals(isTamis, holds(directory.resolve(name), StoreDatabase.DIRECTORY));
            if (isTamis) {
                assertFalse(holds(directory.resolve(name), "rocksdb"), "a store of the topology is not kept by tamis");
            }
        }
        return emitted;
    }

    private static boolean builderReads(Topology topology, String topic) {
        return topology.describe().toString().contains("topics: [" + topic + "]");
    }

    /** Looks for the directory of a kind of stores, which is in that of a task in that of the application. */
    private static boolean holds(Path directory, String name) throws Exception {
        try (Stream<Path> files = Files.walk(directory, 3)) {
            return files.anyMatch(file -> file.getFileName().toString().equals(name));
        }
    }

    @ParameterizedTest
    @EnumSource
    void emitTheSame(Example example) throws Exception {
        List<TestRecord<String, String>> expected = run(example, "default", new Properties());
        Properties tamis = new Properties();
        tamis.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, TamisDslStoreSuppliers.class.getName());
        List<TestRecord<String, String>> actual = run(example, "tamis", tamis);
        assertTrue(expected.size() > 20, "too little is emitted: " + expected.size());
        if (example.isOrdered()) {
            assertEquals(expected, actual);
        } else {
            Comparator<TestRecord<String, String>> order = Comparator.comparing(TestRecord::toString);
            assertEquals(
                    expected.stream().sorted(order).collect(Collectors.toList()),
                    actual.stream().sorted(order).collect(Collectors.toList()));
        }
    }
}
