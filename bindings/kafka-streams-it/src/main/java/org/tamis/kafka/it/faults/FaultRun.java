package org.tamis.kafka.it.faults;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;

import org.apache.kafka.common.config.TopicConfig;
import org.tamis.kafka.it.process.Broker;
import org.tamis.kafka.it.process.Directories;

/**
 * Runs the application on three instances against a broker, kills them while input arrives, and compares everything it put out,
 * and what its stores hold, with what it must be.
 *
 * <p>The input is determined by the seed. When instances die is drawn from it, too, but what they do at that moment is the
 * machine's affair: two runs of one seed are not the same run.
 */
public final class FaultRun {
    private static final Duration LONGEST_START = Duration.ofMinutes(2);
    private static final Duration LONGEST_CATCH_UP = Duration.ofMinutes(4);
    private static final Duration POLL = Duration.ofMillis(100);
    /** How long ago the input's event time begins. It runs twenty times as fast as the clock, and should not overtake it. */
    private static final Duration BEFORE = Duration.ofHours(12);
    private static final int INSTANCES = 3;

    /** What to run. */
    public static final class Settings {
        /** A name that {@link org.tamis.kafka.it.Stores} knows, or a class. */
        public String stores = "tamis";
        /** For how long input arrives and instances die. */
        public int seconds = 60;
        /** Determines input and the moments of kills. */
        public long seed = 1;
        /** Records for each of the three input topics in a batch; there are up to twenty batches a second. */
        public int perBatch = 15;
        /** Where the instances' logs go if something is wrong, or null. */
        public Path logs;
    }

    private final Settings settings;
    private final Random random;
    private final Path work;
    private final List<String> failures = new ArrayList<>();
    private final long started = System.nanoTime();
    private int kills;
    /** What instances that were killed have restored, once they ran again, of what they had. */
    private final Fleet.Resumed resumed = new Fleet.Resumed();

    private FaultRun(Settings settings, Path work) {
        this.settings = settings;
        this.random = new Random(settings.seed);
        this.work = work;
    }

    /**
     * Runs, and returns what was wrong: nothing, if all is well. Says on standard output what it does.
     *
     * @throws IOException if processes cannot be started, or their files not be read
     */
    public static List<String> run(Settings settings) throws IOException, InterruptedException {
        String suppliers = org.tamis.kafka.it.Stores.suppliers(settings.stores);
        Path work = Files.createTempDirectory("tamis-kafka-");
        Thread hook = new Thread(() -> Directories.delete(work));
        Runtime.getRuntime().addShutdownHook(hook);
        try {
            FaultRun run = new FaultRun(settings, work);
            run.execute(suppliers);
            return run.failures;
        } finally {
            Directories.delete(work);
        }
    }

    private void execute(String suppliers) throws IOException, InterruptedException {
        try (Broker broker = Broker.start(work)) {
            say("broker at " + broker.address());
            List<String> topics = new ArrayList<>(Topics.INPUTS);
            topics.addAll(Topics.OUTPUTS);
            broker.createTopics(topics, Topics.PARTITIONS, Map.of(TopicConfig.RETENTION_MS_CONFIG, "-1"));
            Input input = new Input(settings.seed, settings.perBatch, System.currentTimeMillis() - BEFORE.toMillis());
            try (Fleet fleet = new Fleet(work, broker.address(), suppliers, INSTANCES);
                    Sender sender = new Sender(broker.address(), input);
                    OutputReader reader = new OutputReader(broker.address())) {
                for (int i = 0; i < INSTANCES; i++) {
                    fleet.start(i);
                }
                await(fleet, reader, LONGEST_START, "the start", fleet::isSettled);
                say(INSTANCES + " instances run, with stores of " + settings.stores);
                disturb(fleet, sender, reader);
                finish(fleet, sender, reader);
                failures.addAll(fleet.errors);
                if (!failures.isEmpty() && settings.logs != null) {
                    fleet.saveLogs(settings.logs);
                }
            }
        }
    }

    /** Lets input arrive while instances die and come back; one leaves for good. */
    private void disturb(Fleet fleet, Sender sender, OutputReader reader) throws IOException, InterruptedException {
        long begin = System.nanoTime();
        long end = begin + Duration.ofSeconds(settings.seconds).toNanos();
        long retirement = begin + Duration.ofSeconds(settings.seconds).toNanos() * 11 / 20;
        int retired = INSTANCES - 1;
        boolean isRetired = false;
        long nextKill = begin + seconds(2, 6);
        Map<Integer, Long> returns = new HashMap<>();
        sender.start();
        while (System.nanoTime() < end) {
            reader.poll(POLL);
            fleet.checkAlive();
            long now = System.nanoTime();
            returns.entrySet().removeIf(entry -> {
                if (now < entry.getValue()) {
                    return false;
                }
                restart(fleet, entry.getKey());
                return true;
            });
            if (!isRetired && now > retirement && fleet.isUp(retired)) {
                fleet.retire(retired);
                isRetired = true;
                say("instance " + retired + " left for good");
            }
            if (now > nextKill) {
                int victim = random.nextInt(isRetired ? INSTANCES - 1 : INSTANCES);
                if (fleet.isUp(victim)) {
                    fleet.resumed(victim).addTo(resumed);
                    fleet.kill(victim);
                    kills++;
                    returns.put(victim, System.nanoTime() + seconds(0, 4));
                    say("instance " + victim + " killed; it had restored " + fleet.resumed(victim));
                }
                nextKill = System.nanoTime() + seconds(4, 12);
            }
        }
        sender.stop();
        returns.keySet().forEach(i -> restart(fleet, i));
        if (!isRetired && fleet.isUp(retired)) {
            fleet.retire(retired);
            say("instance " + retired + " left for good");
        }
    }

    private void restart(Fleet fleet, int i) {
        try {
            fleet.start(i);
        } catch (IOException failure) {
            throw new java.io.UncheckedIOException(failure);
        }
        say("instance " + i + " started again");
    }

    /** Waits until all input is processed, and compares. */
    private void finish(Fleet fleet, Sender sender, OutputReader reader) throws IOException, InterruptedException {
        Expected expected = new Expected(sender.sent());
        say(String.format(Locale.ROOT, "%,d records sent; %d kills; waiting for the rest", sender.sent().size(), kills));
        boolean done = await(fleet, reader, LONGEST_CATCH_UP, "the output", () -> reader.outputs.isComplete(expected, false));
        if (done) {
            // Only later records tell that those without partner stay without. At most once a second the join looks for them.
            for (int hour = 1; hour <= 3; hour++) {
                sender.moveClocks(hour);
                long until = System.nanoTime() + Duration.ofMillis(1_500).toNanos();
                while (System.nanoTime() < until) {
                    reader.poll(POLL);
                }
            }
            await(fleet, reader, LONGEST_CATCH_UP, "records without partner", () -> reader.outputs.isComplete(expected, true));
            // What is too much may come late.
            long until = System.nanoTime() + Duration.ofSeconds(3).toNanos();
            while (System.nanoTime() < until) {
                reader.poll(POLL);
            }
        }
        failures.addAll(reader.outputs.differences(expected));
        say(String.format(Locale.ROOT,
                "%,d words in all, %,d different; %,d pairs, of which %,d without partner; %,d windows; %,d sessions",
                expected.counts.values().stream().mapToLong(Long::longValue).sum(), expected.counts.size(),
                expected.pairs.size(), expected.pairs.size() - expected.matched, expected.windows.size(),
                expected.sessions.size()));
        if (failures.isEmpty() && await(fleet, reader, LONGEST_START, "rest", fleet::isSettled)) {
            compareStores(fleet, expected, sender);
        }
        say(String.format(Locale.ROOT, "%d kills, %d stores' partitions restored with %,d records",
                kills, fleet.restorations.get(), fleet.restoredRecords.get()));
        for (int i = 0; i < INSTANCES; i++) {
            if (fleet.isUp(i)) {
                fleet.resumed(i).addTo(resumed);
            }
        }
        say("after kills: " + resumed);
        // Others may restore all of it.
        if (settings.stores.equals("tamis") && resumed.records > resumed.changelogs / 2) {
            failures.add("state on disk was of little use");
        }
        if (kills == 0) {
            failures.add("nothing was killed: the run was too short");
        }
    }

    /**
     * Stores must hold what was put out; of windows and sessions at least those younger than half of the retention. Tasks may
     * still move from one instance to another, so there may be several tries.
     */
    private void compareStores(Fleet fleet, Expected expected, Sender sender) throws IOException, InterruptedException {
        long margin = CountAndJoin.WINDOW.toMillis();
        long kept = sender.lastTimeMs() - CountAndJoin.GRACE.toMillis() / 2;
        long deadline = System.nanoTime() + LONGEST_START.toNanos();
        List<String> wrong;
        do {
            Map<String, Map<String, Long>> stores = fleet.dump(sender.beginMs() - margin, sender.lastTimeMs() + margin);
            Map<String, Long> none = Map.of();
            wrong = Outputs.differences("stored word", expected.counts, stores.getOrDefault("counts", none));
            wrong.addAll(recent("stored window", expected.windows, stores.getOrDefault("windows", none), kept));
            wrong.addAll(recent("stored session", expected.sessions, stores.getOrDefault("sessions", none), kept));
        } while (!wrong.isEmpty() && System.nanoTime() < deadline);
        failures.addAll(wrong);
    }

    /** Older ones may be gone; if they are not, they must be right. */
    private List<String> recent(String what, Map<String, Long> expected, Map<String, Long> stored, long kept) {
        Map<String, Long> due = new HashMap<>(expected);
        due.keySet().removeIf(key -> startOf(key) < kept && !stored.containsKey(key));
        say(String.format(Locale.ROOT, "%ss: %,d compared, %,d expired", what, due.size(), expected.size() - due.size()));
        return Outputs.differences(what, due, stored);
    }

    private static long startOf(String key) {
        String times = key.substring(key.indexOf('@') + 1);
        int dash = times.indexOf('-');
        return Long.parseLong(dash < 0 ? times : times.substring(0, dash));
    }

    private interface Condition {
        boolean holds();
    }

    /** Polls until a condition holds; notes a failure, and returns false, if it does not in time or an instance reports an error. */
    private boolean await(Fleet fleet, OutputReader reader, Duration longest, String what, Condition condition) {
        long deadline = System.nanoTime() + longest.toNanos();
        while (!condition.holds()) {
            reader.poll(POLL);
            fleet.checkAlive();
            if (!fleet.errors.isEmpty()) {
                failures.add("an error while waiting for " + what);
                return false;
            }
            if (System.nanoTime() > deadline) {
                failures.add("waited in vain for " + what + ", for " + longest.toSeconds() + " s");
                return false;
            }
        }
        return true;
    }

    private long seconds(int from, int to) {
        return (long) ((from + random.nextDouble() * (to - from)) * 1e9);
    }

    private void say(String text) {
        System.out.printf(Locale.ROOT, "%6.1f s  %s%n", (System.nanoTime() - started) / 1e9, text);
    }

    /**
     * {@code --stores NAME --seconds N --seed N --per-batch N --logs DIR}. Exit status 1 if anything was lost, done twice or went wrong.
     */
    public static void main(String[] arguments) throws IOException, InterruptedException {
        Settings settings = new Settings();
        if (arguments.length % 2 == 1) {
            System.out.println("flags: --stores NAME --seconds N --seed N --per-batch N --logs DIR");
            System.exit(arguments[0].equals("--help") ? 0 : 2);
        }
        for (int i = 0; i + 1 < arguments.length; i += 2) {
            String value = arguments[i + 1];
            switch (arguments[i]) {
                case "--stores":
                    settings.stores = value;
                    break;
                case "--seconds":
                    settings.seconds = Integer.parseInt(value);
                    break;
                case "--seed":
                    settings.seed = Long.parseLong(value);
                    break;
                case "--per-batch":
                    settings.perBatch = Integer.parseInt(value);
                    break;
                case "--logs":
                    settings.logs = Path.of(value);
                    break;
                default:
                    throw new IllegalArgumentException("unknown flag " + arguments[i]);
            }
        }
        List<String> failures = run(settings);
        failures.forEach(failure -> System.out.println("WRONG: " + failure));
        System.out.println(failures.isEmpty() ? "nothing lost, nothing twice" : failures.size() + " things are wrong");
        System.exit(failures.isEmpty() ? 0 : 1);
    }
}
