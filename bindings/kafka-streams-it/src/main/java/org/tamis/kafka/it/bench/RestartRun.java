package org.tamis.kafka.it.bench;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.tamis.kafka.it.process.Directories;
import org.tamis.kafka.it.process.ParentWatch;

/**
 * A table under exactly-once whose process is killed while it is updated, and starts again with the state it left.
 *
 * <p>Arguments: {@code first} or {@code again}, those of {@link TopologyRun}, and a number from which the updates' values come. The
 * first one says {@link #READY} in the middle of the updates, and waits to be killed. The one that comes after it tells how long it
 * took to run, and how many records it restored; it goes on with the updates, and compares the table with what it must be.
 */
public final class RestartRun {
    /** A line that says: kill me. */
    static final String READY = "READY";

    /** How many updates the table gets in a run. */
    static final long UPDATES = 200_000;

    private static final long KILLED_AFTER = UPDATES / 4;
    private static final Duration LONGEST_REST = Duration.ofMinutes(2);

    private RestartRun() {}

    /** The number of the key that update {@code i} changes. */
    static long updated(long i, Plan plan) {
        return Entries.drawn(i, plan.records);
    }

    /** The value that update {@code i} gives it, which no other update does. */
    static byte[] value(long i, Plan plan, int run) {
        return Entries.value(-(run + 1) * UPDATES - i, plan.valueBytes);
    }

    public static void main(String[] arguments) throws Exception {
        Path state = Path.of(arguments[3]);
        ParentWatch.start(command -> {}, () -> {
            Directories.delete(state);
            Runtime.getRuntime().halt(0);
        });
        Properties properties = TopologyRun.properties(arguments);
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        properties.put(StreamsConfig.TRANSACTIONAL_STATE_STORES_CONFIG, true);
        Plan plan = Plan.of(arguments, 6);
        run(properties, arguments[0].equals("again"), plan, Integer.parseInt(arguments[6 + plan.arguments().size()]));
        System.exit(0);
    }

    private static void run(Properties properties, boolean again, Plan plan, int number) throws Exception {
        AtomicLong updates = new AtomicLong();
        CountDownLatch amid = new CountDownLatch(1);
        CountDownLatch running = new CountDownLatch(1);
        AtomicLong restored = new AtomicLong();
        StreamsBuilder builder = new StreamsBuilder();
        builder.table(
                        TopologyRun.TABLE,
                        Consumed.with(TopologyRun.BYTES, TopologyRun.BYTES),
                        Materialized.<byte[], byte[], KeyValueStore<Bytes, byte[]>>as(TopologyRun.TABLE))
                .toStream()
                .foreach((key, value) -> {
                    if (updates.incrementAndGet() == KILLED_AFTER) {
                        amid.countDown();
                    }
                });
        KafkaStreams streams = new KafkaStreams(builder.build(properties), properties);
        streams.setGlobalStateRestoreListener(new Counter(restored));
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                running.countDown();
            }
        });
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        long begin = System.nanoTime();
        streams.start();
        running.await();
        if (!again) {
            if (restored.get() < plan.records) {
                throw new IllegalStateException("only " + restored.get() + " records were restored at first");
            }
            amid.await();
            System.out.println(READY);
            Thread.sleep(Duration.ofHours(1).toMillis());
        }
        Report.tell("restart s", (System.nanoTime() - begin) / 1e9);
        Report.tell("restart records", restored.get());
        compare(streams, plan, number);
        streams.close(Duration.ofMinutes(1));
    }

    /** Waits until the table has the last update of each key. */
    private static void compare(KafkaStreams streams, Plan plan, int number) throws InterruptedException {
        Map<Long, Long> last = new HashMap<>();
        for (long i = 0; i < UPDATES; i++) {
            last.put(updated(i, plan), i);
        }
        ReadOnlyKeyValueStore<byte[], byte[]> table = streams.store(StoreQueryParameters.fromNameAndType(
                TopologyRun.TABLE, QueryableStoreTypes.<byte[], byte[]>keyValueStore()));
        long deadline = System.nanoTime() + LONGEST_REST.toNanos();
        for (Map.Entry<Long, Long> expected : last.entrySet()) {
            byte[] key = Entries.key(expected.getKey());
            byte[] value = value(expected.getValue(), plan, number);
            while (!Arrays.equals(value, table.get(key))) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("key " + expected.getKey() + " has not its last value");
                }
                Thread.sleep(10);
            }
        }
    }

    private static final class Counter implements StateRestoreListener {
        private final AtomicLong records;

        Counter(AtomicLong records) {
            this.records = records;
        }

        @Override
        public void onRestoreStart(TopicPartition partition, String store, long from, long to) {}

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long to, long count) {
            records.addAndGet(count);
        }

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long total) {}
    }
}
