package org.tamis.kafka.it.bench;

import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.tamis.kafka.it.process.Directories;
import org.tamis.kafka.it.process.ParentWatch;

/**
 * One topology on one stream thread, from the first record restored to the last one processed.
 *
 * <p>Arguments: {@code lookup} or {@code update}, the broker's address, the application's id, the state directory, the class of
 * the store suppliers, the properties that change the default ones ({@code name=value,…} or {@code -}), the {@link Plan}.
 *
 * <p>{@code lookup} joins a stream with a table, which is restored first; {@code update} aggregates a stream by key.
 */
public final class TopologyRun {
    static final String TABLE = "table";
    static final String TOTALS = "totals";
    static final String PROBES = "probes";
    static final String UPDATES = "updates";

    static final Serde<byte[]> BYTES = Serdes.ByteArray();

    private final Plan plan;
    private final boolean isLookup;
    private final AtomicLong processed = new AtomicLong();
    private final AtomicLong found = new AtomicLong();
    private final AtomicLong firstNs = new AtomicLong();
    private final AtomicLong lastNs = new AtomicLong();
    private final AtomicLong firstCpuNs = new AtomicLong();
    private final AtomicLong lastCpuNs = new AtomicLong();
    private final CountDownLatch done = new CountDownLatch(1);
    private volatile Throwable failure;

    private TopologyRun(Plan plan, boolean isLookup) {
        this.plan = plan;
        this.isLookup = isLookup;
    }

    public static void main(String[] arguments) throws Exception {
        Path state = Path.of(arguments[3]);
        ParentWatch.start(command -> {}, () -> {
            Directories.delete(state);
            Runtime.getRuntime().halt(0);
        });
        new TopologyRun(Plan.of(arguments, 6), arguments[0].equals("lookup")).run(properties(arguments), state);
        System.exit(0);
    }

    /** Those of an application with one stream thread. */
    static Properties properties(String[] arguments) {
        Properties properties = new Properties();
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[1]);
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[2]);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, arguments[3]);
        properties.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, arguments[4]);
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        properties.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        // So that it can leave the group, and the next run need not wait until it is missed.
        properties.put(StreamsConfig.mainConsumerPrefix(ConsumerConfig.GROUP_INSTANCE_ID_CONFIG), "bench");
        if (!arguments[5].equals("-")) {
            for (String assignment : arguments[5].split(",")) {
                String[] parts = assignment.split("=", 2);
                properties.put(parts[0], parts[1]);
            }
        }
        return properties;
    }

    private void run(Properties properties, Path state) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        if (isLookup) {
            lookups(builder);
        } else {
            updates(builder);
        }
        KafkaStreams streams = new KafkaStreams(builder.build(properties), properties);
        Restored restored = new Restored();
        streams.setGlobalStateRestoreListener(restored);
        streams.setUncaughtExceptionHandler(error -> {
            failure = error;
            done.countDown();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        done.await();
        if (failure != null) {
            throw new IllegalStateException("the topology failed", failure);
        }
        String name = isLookup ? "lookup" : "update";
        if (isLookup) {
            check("records restored", restored.records.get(), plan.records);
            check("keys found", found.get(), plan.found());
            double seconds = (restored.lastNs.get() - restored.firstNs.get()) / 1e9;
            Report.tell("restore s", seconds);
            Report.tell("restore k/s", plan.records / seconds / 1e3);
            Report.tell("restore CPU s", (restored.lastCpuNs.get() - restored.firstCpuNs.get()) / 1e9);
        } else {
            check("updates counted", counted(streams), plan.operations);
        }
        Report.tell(name + " k/s", plan.operations * 1e6 / (lastNs.get() - firstNs.get()));
        Report.tell(name + " CPU ns", (lastCpuNs.get() - firstCpuNs.get()) / (double) plan.operations);
        Report.tellSizes(name, state);
        streams.close(CloseOptions.timeout(Duration.ofMinutes(2))
                .withGroupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP));
    }

    private static void check(String what, long actual, long expected) {
        if (actual != expected) {
            throw new IllegalStateException(what + ": " + actual + ", not " + expected);
        }
    }

    private void lookups(StreamsBuilder builder) {
        Consumed<byte[], byte[]> consumed = Consumed.with(BYTES, BYTES);
        var table = builder.table(TABLE, consumed, Materialized.<byte[], byte[], KeyValueStore<Bytes, byte[]>>as(TABLE));
        builder.stream(PROBES, consumed)
                .leftJoin(table, (probe, row) -> row == null ? 0 : row.length, Joined.with(BYTES, BYTES, BYTES))
                .foreach((key, bytes) -> {
                    found.addAndGet(bytes == plan.valueBytes ? 1 : 0);
                    count();
                });
    }

    private void updates(StreamsBuilder builder) {
        builder.stream(UPDATES, Consumed.with(BYTES, BYTES))
                .groupByKey(Grouped.with(BYTES, BYTES))
                .aggregate(
                        () -> null,
                        this::counted,
                        Materialized.<byte[], byte[], KeyValueStore<Bytes, byte[]>>as(TOTALS))
                .toStream()
                .foreach((key, value) -> count());
    }

    /** The new value, with the number of updates of its key in front. */
    private byte[] counted(byte[] key, byte[] update, byte[] before) {
        byte[] value = update.clone();
        long count = before == null ? 0 : ByteBuffer.wrap(before).getLong();
        ByteBuffer.wrap(value).putLong(count + 1);
        return value;
    }

    /** All updates that the store knows of. */
    private static long counted(KafkaStreams streams) {
        var store = streams.store(StoreQueryParameters.fromNameAndType(
                TOTALS, QueryableStoreTypes.<byte[], byte[]>keyValueStore()));
        long sum = 0;
        try (KeyValueIterator<byte[], byte[]> all = store.all()) {
            while (all.hasNext()) {
                sum += ByteBuffer.wrap(all.next().value).getLong();
            }
        }
        return sum;
    }

    private void count() {
        long now = processed.incrementAndGet();
        if (now == 1) {
            firstNs.set(System.nanoTime());
            firstCpuNs.set(Report.cpuNs());
        } else if (now == plan.operations) {
            lastNs.set(System.nanoTime());
            lastCpuNs.set(Report.cpuNs());
            done.countDown();
        }
    }

    /** The time from the first partition's begin to the last one's end. */
    private static final class Restored implements StateRestoreListener {
        final AtomicLong firstNs = new AtomicLong(Long.MAX_VALUE);
        final AtomicLong lastNs = new AtomicLong();
        final AtomicLong firstCpuNs = new AtomicLong(Long.MAX_VALUE);
        final AtomicLong lastCpuNs = new AtomicLong();
        final AtomicLong records = new AtomicLong();

        @Override
        public void onRestoreStart(TopicPartition partition, String store, long from, long to) {
            firstNs.accumulateAndGet(System.nanoTime(), Math::min);
            firstCpuNs.accumulateAndGet(Report.cpuNs(), Math::min);
        }

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long to, long count) {}

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long total) {
            records.addAndGet(total);
            lastNs.accumulateAndGet(System.nanoTime(), Math::max);
            lastCpuNs.accumulateAndGet(Report.cpuNs(), Math::max);
        }
    }
}
