package org.tamis.kafka.it.faults;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicLong;

import org.tamis.kafka.it.process.ChildJvm;
import org.tamis.kafka.it.process.Directories;

/** The application's instances, as processes that can be killed and started again with the state directory they had. */
final class Fleet implements AutoCloseable {
    private static final long LONGEST_DUMP_MS = 60_000;

    private final Path work;
    private final String broker;
    private final String suppliers;
    private final Member[] members;
    /** What instances reported as errors. */
    final List<String> errors = new CopyOnWriteArrayList<>();
    /** Restorations of a store's partition that were completed, and their records. */
    final AtomicLong restorations = new AtomicLong();
    final AtomicLong restoredRecords = new AtomicLong();

    /** One instance: its process, if it runs, and what it said last. */
    private static final class Member {
        ChildJvm process;
        volatile String state = "";
        volatile boolean dumped;
        /** The partitions of stores that it has restored, in all its lives. */
        final Set<String> known = ConcurrentHashMap.newKeySet();
        /** What it has restored, since its start, of what it had. */
        volatile Resumed resumed = new Resumed();
    }

    /** Restorations of partitions of stores that an instance had restored before it was killed. */
    static final class Resumed {
        int partitions;
        /** Those whose state on disk was of no use. */
        int fromNothing;
        long records;
        /** What their changelogs hold. */
        long changelogs;

        synchronized void add(long from, long to) {
            partitions++;
            fromNothing += from == 0 && to > 0 ? 1 : 0;
            records += Math.max(0, to - from);
            changelogs += to;
        }

        synchronized void addTo(Resumed all) {
            all.partitions += partitions;
            all.fromNothing += fromNothing;
            all.records += records;
            all.changelogs += changelogs;
        }

        @Override
        public synchronized String toString() {
            return String.format(Locale.ROOT, "%,d of %,d records of %d partitions that it had, %d of them from nothing",
                    records, changelogs, partitions, fromNothing);
        }
    }

    Fleet(Path work, String broker, String suppliers, int size) {
        this.work = work;
        this.broker = broker;
        this.suppliers = suppliers;
        this.members = new Member[size];
        for (int i = 0; i < size; i++) {
            members[i] = new Member();
        }
    }

    int size() {
        return members.length;
    }

    boolean isUp(int i) {
        return members[i].process != null;
    }

    /** Starts instance {@code i}. */
    void start(int i) throws IOException {
        Member member = members[i];
        member.state = "";
        member.resumed = new Resumed();
        List<String> flags = List.of("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true",
                "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS");
        List<String> arguments = List.of(broker, stateDirectory(i).toString(), suppliers);
        member.process = ChildJvm.start(Instance.class, flags, arguments, log(i), line -> hear(i, line));
    }

    private Path stateDirectory(int i) {
        return work.resolve("state-" + i);
    }

    private Path log(int i) {
        return work.resolve("instance-" + i + ".log");
    }

    private void hear(int i, String line) {
        Member member = members[i];
        String[] parts = line.split(" ", 2);
        switch (parts[0]) {
            case "STATE":
                member.state = parts[1];
                break;
            case "RESTORING":
                String[] words = parts[1].split(" ");
                if (member.known.contains(words[0])) {
                    member.resumed.add(Long.parseLong(words[1]), Long.parseLong(words[2]));
                }
                break;
            case "RESTORED":
                member.known.add(parts[1].substring(0, parts[1].indexOf(' ')));
                restorations.incrementAndGet();
                restoredRecords.addAndGet(Long.parseLong(parts[1].substring(parts[1].indexOf(' ') + 1)));
                break;
            case "DUMPED":
                member.dumped = true;
                break;
            case "ERROR":
                errors.add("instance " + i + ": " + parts[1]);
                break;
            default:
                // Libraries print as they please.
        }
    }

    /** How much of what it had instance {@code i} has restored since its start. */
    Resumed resumed(int i) {
        return members[i].resumed;
    }

    /** {@code kill -9}. */
    void kill(int i) {
        members[i].process.kill();
        members[i].process = null;
    }

    /** Asks it to leave in order, and waits for that. It is not meant to come back. */
    void retire(int i) throws IOException, InterruptedException {
        members[i].process.command("stop");
        int status = members[i].process.await(60);
        members[i].process = null;
        if (status != 0) {
            errors.add("instance " + i + " left with status " + status);
        }
    }

    /** Notes instances that ended without having been told to. */
    void checkAlive() {
        for (int i = 0; i < members.length; i++) {
            if (isUp(i) && !members[i].process.isAlive()) {
                errors.add("instance " + i + " is gone");
                members[i].process = null;
            }
        }
    }

    /** Whether all that are up run, and do not rebalance. */
    boolean isSettled() {
        for (Member member : members) {
            if (member.process != null && !member.state.equals("RUNNING")) {
                return false;
            }
        }
        return true;
    }

    /**
     * Returns what the active tasks' stores hold: for each store, from key to value; of windows those that begin between two
     * times. A key that two instances have has the value -1.
     */
    Map<String, Map<String, Long>> dump(long fromMs, long toMs) throws IOException, InterruptedException {
        Map<String, Map<String, Long>> stores = new HashMap<>();
        for (int i = 0; i < members.length; i++) {
            Member member = members[i];
            if (member.process == null) {
                continue;
            }
            Path file = work.resolve("dump-" + i);
            member.dumped = false;
            member.process.command("dump " + fromMs + " " + toMs + " " + file);
            long deadline = System.currentTimeMillis() + LONGEST_DUMP_MS;
            while (!member.dumped) {
                if (System.currentTimeMillis() > deadline || !errors.isEmpty()) {
                    throw new IOException("instance " + i + " did not say what its stores hold: " + errors);
                }
                Thread.sleep(50);
            }
            for (String line : Files.readAllLines(file)) {
                String[] parts = line.split("\t");
                Map<String, Long> store = stores.computeIfAbsent(parts[0], name -> new HashMap<>());
                store.merge(parts[1], Long.valueOf(parts[2]), (one, two) -> -1L);
            }
        }
        return stores;
    }

    /** Copies the logs of all instances into a directory. */
    void saveLogs(Path directory) throws IOException {
        Files.createDirectories(directory);
        for (int i = 0; i < members.length; i++) {
            if (Files.exists(log(i))) {
                Files.copy(log(i), directory.resolve(log(i).getFileName()), StandardCopyOption.REPLACE_EXISTING);
            }
        }
    }

    @Override
    public void close() {
        for (int i = 0; i < members.length; i++) {
            if (isUp(i)) {
                kill(i);
            }
            Directories.delete(stateDirectory(i));
        }
    }
}
