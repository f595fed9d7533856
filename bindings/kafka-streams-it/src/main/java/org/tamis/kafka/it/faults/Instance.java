package org.tamis.kafka.it.faults;

import java.io.IOException;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.Properties;

import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreType;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.ReadOnlySessionStore;
import org.apache.kafka.streams.state.ReadOnlyWindowStore;
import org.tamis.kafka.it.process.Directories;
import org.tamis.kafka.it.process.ParentWatch;

/**
 * One instance of the application.
 *
 * <p>Arguments: the broker's address, the state directory, the class of the store suppliers. Lines on standard output:
 * {@code STATE name}; {@code RESTORING store from to}; {@code RESTORED store records}; {@code ERROR text}; {@code DUMPED}. Commands: {@code dump FROM TO FILE},
 * which writes what its active tasks' stores hold (windows that begin between these times only: a cached store takes time for
 * the time between them, not for what it has); {@code stop}.
 */
public final class Instance {
    /** The application's id. */
    static final String APPLICATION = "count-and-join";

    private Instance() {}

    public static void main(String[] arguments) {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        Path state = Path.of(arguments[1]);
        StreamsBuilder builder = new StreamsBuilder();
        CountAndJoin.build(builder);
        Properties properties = properties(arguments[0], state, arguments[2]);
        KafkaStreams streams = new KafkaStreams(builder.build(properties), properties);
        streams.setStateListener((now, before) -> out.println("STATE " + now));
        streams.setGlobalStateRestoreListener(new Restored(out));
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            out.println("ERROR " + rootOf(error));
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        ParentWatch.start(
                command -> obey(command, streams, out),
                () -> {
                    Directories.delete(state);
                    Runtime.getRuntime().halt(0);
                });
        streams.start();
    }

    private static Properties properties(String broker, Path state, String suppliers) {
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, APPLICATION);
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, broker);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, state.toString());
        properties.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, suppliers);
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        properties.put(StreamsConfig.TRANSACTIONAL_STATE_STORES_CONFIG, true);
        // Longer than a run: what has moved may come back.
        properties.put(StreamsConfig.STATE_CLEANUP_DELAY_MS_CONFIG, 3_600_000L);
        properties.put(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG, 1);
        properties.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
        properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        // The dead are noticed, and their transactions aborted, within seconds.
        properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 4_000);
        properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG), 1_000);
        properties.put(StreamsConfig.producerPrefix(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG), 10_000);
        return properties;
    }

    private static String rootOf(Throwable error) {
        Throwable root = error;
        while (root.getCause() != null) {
            root = root.getCause();
        }
        return (root == error ? error.toString() : error + ": " + root).replace('\n', ' ');
    }

    private static void obey(String command, KafkaStreams streams, PrintStream out) {
        if (command.startsWith("dump ")) {
            try {
                String[] parts = command.split(" ", 4);
                dump(streams, ofMs(parts[1]), ofMs(parts[2]), Path.of(parts[3]));
                out.println("DUMPED");
            } catch (IOException | RuntimeException failure) {
                out.println("ERROR dump: " + rootOf(failure));
            }
        } else if (command.equals("stop")) {
            // Not on this thread: it is a daemon, and watches the parent.
            new Thread(() -> {
                streams.close(Duration.ofSeconds(30));
                System.exit(0);
            }).start();
        } else {
            out.println("ERROR unknown command: " + command);
        }
    }

    private static Instant ofMs(String text) {
        return Instant.ofEpochMilli(Long.parseLong(text));
    }

    private static void dump(KafkaStreams streams, Instant from, Instant to, Path file) throws IOException {
        try (PrintWriter writer = new PrintWriter(Files.newBufferedWriter(file))) {
            whereActive(() -> {
                ReadOnlyKeyValueStore<String, Long> counts =
                        store(streams, CountAndJoin.COUNTS_STORE, QueryableStoreTypes.keyValueStore());
                try (KeyValueIterator<String, Long> all = counts.all()) {
                    all.forEachRemaining(entry -> writer.println("counts\t" + entry.key + "\t" + entry.value));
                }
            });
            whereActive(() -> {
                ReadOnlyWindowStore<String, Long> windows =
                        store(streams, CountAndJoin.WINDOWS_STORE, QueryableStoreTypes.windowStore());
                try (KeyValueIterator<Windowed<String>, Long> all = windows.fetchAll(from, to)) {
                    all.forEachRemaining(entry -> writer.println(
                            "windows\t" + entry.key.key() + "@" + entry.key.window().start() + "\t" + entry.value));
                }
            });
            whereActive(() -> {
                ReadOnlySessionStore<String, Long> sessions =
                        store(streams, CountAndJoin.SESSIONS_STORE, QueryableStoreTypes.sessionStore());
                for (String key : Input.keys()) {
                    try (KeyValueIterator<Windowed<String>, Long> all = sessions.fetch(key)) {
                        all.forEachRemaining(entry ->
                                writer.println("sessions\t" + CountAndJoin.session(entry.key) + "\t" + entry.value));
                    }
                }
            });
            if (writer.checkError()) {
                throw new IOException("could not write " + file);
            }
        }
    }

    private static <T> T store(KafkaStreams streams, String name, QueryableStoreType<T> type) {
        return streams.store(StoreQueryParameters.fromNameAndType(name, type));
    }

    /** Does without a store that no active task of this instance has, or no longer. */
    private static void whereActive(Runnable query) {
        try {
            query.run();
        } catch (InvalidStateStoreException elsewhere) {
            // The parent misses what is nowhere.
        }
    }

    /** Reports what was restored. */
    private static final class Restored implements StateRestoreListener {
        private final PrintStream out;

        Restored(PrintStream out) {
            this.out = out;
        }

        @Override
        public void onRestoreStart(TopicPartition partition, String store, long from, long to) {
            out.println("RESTORING " + store + "-" + partition.partition() + " " + from + " " + to);
        }

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long to, long records) {}

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long records) {
            out.println("RESTORED " + store + "-" + partition.partition() + " " + records);
        }
    }
}
