package org.tamis.kafka.it.bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.LongFunction;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.tamis.kafka.it.Stores;
import org.tamis.kafka.it.process.Broker;
import org.tamis.kafka.it.process.ChildJvm;
import org.tamis.kafka.it.process.Directories;

/**
 * Measures state stores in the same topologies, by turns, each run in a process of its own, and prints the medians.
 *
 * <p>{@code --sides rocksdb,tamis} names store suppliers; a side may be followed by properties: {@code tamis:NAME=VALUE:…}.
 * {@code --parts store,lookup,update,restart} what is measured; {@code --rounds}, {@code --records}, {@code --operations},
 * {@code --updated-keys}, {@code --absent-percent}, {@code --value-bytes}; {@code --heap 1g} of a child; {@code --logs DIR} for
 * the children's logs.
 */
public final class Bench {
    private static final int PARTITIONS = 4;
    private static final long LONGEST_RUN_SECONDS = 3_600;
    private static final String LOOKUP = "bench-lookup";
    private static final String RESTART = "bench-restart";

    private final Plan plan = new Plan();
    private final List<Side> sides = new ArrayList<>();
    private List<String> parts = List.of("store", "lookup", "update", "restart");
    private int rounds = 3;
    private String heap = "1g";
    private Path logs;
    private int runs;

    /** One kind of stores, and what it measured: from the name of a figure to one value for each round. */
    private static final class Side {
        final String name;
        final String suppliers;
        final String properties;
        final Map<String, List<Double>> figures = new LinkedHashMap<>();

        Side(String text) {
            String[] words = text.split(":", 2);
            name = text;
            suppliers = Stores.suppliers(words[0]);
            properties = words.length == 1 ? "-" : words[1].replace(':', ',');
        }
    }

    public static void main(String[] arguments) throws Exception {
        Bench bench = new Bench();
        bench.parse(arguments);
        Path work = Files.createTempDirectory("tamis-kafka-bench-");
        Runtime.getRuntime().addShutdownHook(new Thread(() -> Directories.delete(work)));
        bench.run(work);
        bench.print(arguments);
        System.exit(0);
    }

    private void parse(String[] arguments) {
        List<String> names = List.of("rocksdb", "tamis");
        for (int i = 0; i < arguments.length; i += 2) {
            if (i + 1 == arguments.length) {
                throw new IllegalArgumentException(arguments[i] + " needs a value");
            }
            String value = arguments[i + 1];
            switch (arguments[i]) {
                case "--sides":
                    names = Arrays.asList(value.split(","));
                    break;
                case "--parts":
                    parts = Arrays.asList(value.split(","));
                    break;
                case "--rounds":
                    rounds = Integer.parseInt(value);
                    break;
                case "--records":
                    plan.records = (long) Double.parseDouble(value);
                    break;
                case "--operations":
                    plan.operations = (long) Double.parseDouble(value);
                    break;
                case "--updated-keys":
                    plan.updatedKeys = (long) Double.parseDouble(value);
                    break;
                case "--absent-percent":
                    plan.absentPercent = Integer.parseInt(value);
                    break;
                case "--value-bytes":
                    plan.valueBytes = Integer.parseInt(value);
                    break;
                case "--heap":
                    heap = value;
                    break;
                case "--logs":
                    logs = Path.of(value);
                    break;
                default:
                    throw new IllegalArgumentException("unknown flag " + arguments[i]);
            }
        }
        if (!List.of("store", "lookup", "update", "restart").containsAll(parts)) {
            throw new IllegalArgumentException("parts are store, lookup, update and restart");
        }
        // The count of updates takes eight bytes of a value.
        if (plan.valueBytes < Long.BYTES || plan.records < 1 || plan.operations < 2 || plan.updatedKeys < 1 || rounds < 1) {
            throw new IllegalArgumentException("values of at least 8 bytes, two operations, and one of everything else");
        }
        names.forEach(name -> sides.add(new Side(name)));
    }

    private void run(Path work) throws IOException, InterruptedException {
        if (parts.contains("store")) {
            byTurns((side, round) -> {
                Path state = work.resolve("state");
                List<String> arguments = new ArrayList<>(List.of(state.toString(), side.suppliers, side.properties));
                arguments.addAll(plan.arguments());
                child(StoreRun.class, work, side, arguments, false);
                Directories.delete(state);
            });
        }
        if (parts.equals(List.of("store"))) {
            return;
        }
        try (Broker broker = Broker.start(work)) {
            prepare(broker);
            byTurns((side, round) -> {
                for (String part : parts) {
                    if (part.equals("restart")) {
                        restart(broker, work, side);
                    } else if (!part.equals("store")) {
                        topology(part, round, broker, work, side);
                    }
                }
            });
        }
    }

    private interface Measurement {
        void run(Side side, int round) throws IOException, InterruptedException;
    }

    /** Each round measures all sides, every other round in reverse. */
    private void byTurns(Measurement measurement) throws IOException, InterruptedException {
        for (int round = 0; round < rounds; round++) {
            List<Side> order = new ArrayList<>(sides);
            if (round % 2 == 1) {
                Collections.reverse(order);
            }
            for (Side side : order) {
                measurement.run(side, round);
            }
        }
    }

    private void topology(String part, int round, Broker broker, Path work, Side side) throws IOException, InterruptedException {
        Path state = work.resolve("state");
        // Lookups restore a changelog that is there, and do not change it; updates write one of their own.
        String application = part.equals("lookup") ? LOOKUP : "bench-update-" + sides.indexOf(side) + "-" + round;
        List<String> arguments =
                new ArrayList<>(List.of(part, broker.address(), application, state.toString(), side.suppliers, side.properties));
        arguments.addAll(plan.arguments());
        child(TopologyRun.class, work, side, arguments, false);
        Directories.delete(state);
        try (Admin admin = broker.admin()) {
            admin.deleteConsumerGroups(List.of(application)).all().get();
            if (part.equals("update")) {
                admin.deleteTopics(List.of(application + "-" + TopologyRun.TOTALS + "-changelog")).all().get();
            }
        } catch (ExecutionException failure) {
            throw new IOException("could not remove what a run left in the broker", failure.getCause());
        }
    }

    /** Restores a table, kills its process while it is updated, and starts it again. */
    private void restart(Broker broker, Path work, Side side) throws IOException, InterruptedException {
        Path state = work.resolve("state");
        List<String> arguments =
                new ArrayList<>(List.of("first", broker.address(), RESTART, state.toString(), side.suppliers, side.properties));
        arguments.addAll(plan.arguments());
        int number = runs;
        arguments.add(String.valueOf(number));
        try (KafkaProducer<byte[], byte[]> producer = producer(broker)) {
            fill(producer, TopologyRun.TABLE, RestartRun.UPDATES,
                    i -> Entries.key(RestartRun.updated(i, plan)), i -> RestartRun.value(i, plan, number));
        }
        child(RestartRun.class, work, side, arguments, true);
        arguments.set(0, "again");
        child(RestartRun.class, work, side, arguments, false);
        Directories.delete(state);
    }

    /** @param isKilled whether it is killed once it is {@link RestartRun#READY}, and has no status */
    private void child(Class<?> main, Path work, Side side, List<String> arguments, boolean isKilled)
            throws IOException, InterruptedException {
        Path log = work.resolve("run-" + runs++ + ".log");
        List<String> flags = List.of("-Xmx" + heap, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn");
        CountDownLatch ready = new CountDownLatch(1);
        try (ChildJvm child = ChildJvm.start(main, flags, arguments, log, line -> {
            if (line.equals(RestartRun.READY)) {
                ready.countDown();
            } else if (line.startsWith(Report.MARK)) {
                int space = line.lastIndexOf(' ');
                String name = line.substring(Report.MARK.length(), space);
                side.figures.computeIfAbsent(name, any -> new ArrayList<>()).add(Double.valueOf(line.substring(space + 1)));
                System.err.println(side.name + ": " + line.substring(Report.MARK.length()));
            }
        })) {
            while (isKilled && child.isAlive() && !ready.await(100, TimeUnit.MILLISECONDS)) {
                // Until it is ready, or has failed.
            }
            if (isKilled && ready.getCount() == 0) {
                return;
            }
            int status = child.await(LONGEST_RUN_SECONDS);
            if (logs != null) {
                Files.createDirectories(logs);
                Files.copy(log, logs.resolve(log.getFileName()), StandardCopyOption.REPLACE_EXISTING);
            }
            if (status != 0) {
                throw new IOException(side.name + " failed with status " + status + ":\n" + Files.readString(log));
            }
        }
    }

    /** Fills the topics that are read in each run. Their logs are not compacted meanwhile: keys of a changelog are there once. */
    private void prepare(Broker broker) throws IOException, InterruptedException {
        Map<String, String> kept = Map.of(TopicConfig.RETENTION_MS_CONFIG, "-1", TopicConfig.CLEANUP_POLICY_CONFIG, "delete");
        String changelog = LOOKUP + "-" + TopologyRun.TABLE + "-changelog";
        broker.createTopics(
                List.of(TopologyRun.TABLE, TopologyRun.PROBES, TopologyRun.UPDATES, changelog,
                        RESTART + "-" + TopologyRun.TABLE + "-changelog"),
                PARTITIONS, kept);
        try (KafkaProducer<byte[], byte[]> producer = producer(broker)) {
            if (parts.contains("lookup")) {
                fill(producer, changelog, plan.records, Entries::key, i -> Entries.value(i, plan.valueBytes));
                fill(producer, TopologyRun.PROBES, plan.operations, plan::probe, i -> new byte[] {1});
            }
            if (parts.contains("restart")) {
                fill(producer, RESTART + "-" + TopologyRun.TABLE + "-changelog", plan.records, Entries::key,
                        i -> Entries.value(i, plan.valueBytes));
            }
            if (parts.contains("update")) {
                fill(producer, TopologyRun.UPDATES, plan.operations,
                        i -> Entries.key(Entries.drawn(i, plan.updatedKeys)), i -> Entries.value(i, plan.valueBytes));
            }
        }
    }

    private static KafkaProducer<byte[], byte[]> producer(Broker broker) {
        Map<String, Object> configs = Broker.producerConfigs(broker.address());
        configs.put(ProducerConfig.LINGER_MS_CONFIG, 20);
        configs.put(ProducerConfig.BATCH_SIZE_CONFIG, 256 << 10);
        return new KafkaProducer<>(configs, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static void fill(
            KafkaProducer<byte[], byte[]> producer, String topic, long count, LongFunction<byte[]> key, LongFunction<byte[]> value)
            throws IOException {
        IOException[] failure = new IOException[1];
        for (long i = 0; i < count; i++) {
            producer.send(new ProducerRecord<>(topic, key.apply(i), value.apply(i)), (metadata, error) -> {
                if (error != null) {
                    failure[0] = new IOException("could not fill " + topic, error);
                }
            });
        }
        producer.flush();
        if (failure[0] != null) {
            throw failure[0];
        }
    }

    private void print(String[] arguments) {
        System.out.println("bench " + String.join(" ", arguments));
        System.out.printf(Locale.ROOT,
                "%,d records of %d + %d bytes; %,d operations, %d %% of lookups of absent keys; %,d updated keys; %d partitions,"
                        + " one stream thread, heap %s; medians of %d rounds, sides by turns (least to most)%n%n",
                plan.records, Entries.KEY_BYTES, plan.valueBytes, plan.operations, plan.absentPercent, plan.updatedKeys, PARTITIONS,
                heap, rounds);
        StringBuilder header = new StringBuilder("| |");
        StringBuilder rule = new StringBuilder("| --- |");
        for (Side side : sides) {
            header.append(' ').append(side.name).append(" |");
            rule.append(" ---: |");
        }
        System.out.println(header + " ratio |");
        System.out.println(rule + " ---: |");
        Map<String, Integer> names = new LinkedHashMap<>();
        sides.forEach(side -> side.figures.keySet().forEach(name -> names.put(name, 0)));
        for (String name : names.keySet()) {
            StringBuilder row = new StringBuilder("| " + name + " |");
            for (Side side : sides) {
                row.append(' ').append(spread(side.figures.get(name))).append(" |");
            }
            System.out.println(row + " " + ratio(name) + " |");
        }
    }

    private static String spread(List<Double> values) {
        if (values == null) {
            return "";
        }
        String text = number(median(values));
        return values.size() == 1
                ? text
                : text + " (" + number(Collections.min(values)) + " to " + number(Collections.max(values)) + ")";
    }

    /** How many times better the last side is than the first, or what part of it: more is better for rates, less for the rest. */
    private String ratio(String name) {
        List<Double> first = sides.get(0).figures.get(name);
        List<Double> last = sides.get(sides.size() - 1).figures.get(name);
        if (sides.size() < 2 || first == null || last == null) {
            return "";
        }
        if (median(first) == 0 || median(last) == 0) {
            return "";
        }
        double quotient = median(last) / median(first);
        return String.format(Locale.ROOT, "%.2f ×", name.endsWith("/s") ? quotient : 1 / quotient);
    }

    private static String number(double value) {
        return String.format(Locale.ROOT, value >= 100 ? "%,.0f" : value >= 10 ? "%.1f" : "%.2f", value);
    }

    private static double median(List<Double> values) {
        List<Double> sorted = new ArrayList<>(values);
        Collections.sort(sorted);
        int middle = sorted.size() / 2;
        return sorted.size() % 2 == 1 ? sorted.get(middle) : (sorted.get(middle - 1) + sorted.get(middle)) / 2;
    }
}
