package org.tamis.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.File;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.apache.kafka.common.serialization.BytesSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Random operations on stores of tamis and on Kafka's own: all answers have to be equal, in content and order. */
class RandomHistoriesTest {
    private static final long MINUTE = 60_000;

    @TempDir
    Path directory;

    /** Makes flushes and compactions out of a few thousand operations. */
    private static final Map<String, String> SMALL = Map.of("tamis.memtable_bytes", "4 KiB", "tamis.table_bytes", "4 KiB");

    private <S extends StateStore> S opened(String name, Supplier<S> supplier) {
        return opened(name, supplier, SMALL);
    }

    private <S extends StateStore> S opened(String name, Supplier<S> supplier, Map<String, String> configs) {
        S store = supplier.get();
        return Contexts.opened(store, new File(directory.toFile(), name), configs);
    }

    /** Every other history is that of a store that stages its writes until it is committed, where Kafka Streams lets it. */
    private static Map<String, String> configs(long seed) {
        Map<String, String> configs = new HashMap<>(SMALL);
        if (seed % 2 == 0) {
            configs.putAll(Contexts.TRANSACTIONAL);
        }
        return configs;
    }

    /** Commits from time to time: between two commits are a few writes, or hundreds. */
    private static void maybeCommit(Random random, StateStore store) {
        if (random.nextInt(random.nextInt(20) == 0 ? 10 : 300) == 0) {
            ((TamisStore) store).commit(Map.of());
        }
    }

    /** Keys of a few bytes among which zeros are frequent: many are the beginning of another. */
    private static Bytes binaryKey(Random random) {
        byte[] key = new byte[random.nextInt(4)];
        for (int i = 0; i < key.length; i++) {
            key[i] = (byte) (random.nextInt(3) * random.nextInt(2));
        }
        return Bytes.wrap(key);
    }

    /** Keys of one length. */
    private static Bytes numberKey(Random random) {
        return Bytes.wrap(new byte[] {0, 0, 0, (byte) random.nextInt(40)});
    }

    private static Supplier<Bytes> keys(Random random) {
        return random.nextBoolean() ? () -> binaryKey(random) : () -> numberKey(random);
    }

    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3, 4})
    void keyValueStores(long seed) {
        Random random = new Random(seed);
        Supplier<Bytes> keys = keys(random);
        KeyValueStore<Bytes, byte[]> tamis = opened("tamis", () -> TamisStores.keyValueStore("store").get(), configs(seed));
        List<KeyValueStore<Bytes, byte[]>> others = List.of(
                opened("rocksdb", () -> Stores.persistentKeyValueStore("store").get()),
                opened("memory", () -> Stores.inMemoryKeyValueStore("store").get()));
        for (int i = 0; i < 5_000; i++) {
            Bytes key = keys.get();
            Bytes to = keys.get();
            byte[] value = random.nextInt(4) == 0 ? null : Answers.value(random.nextInt(1000));
            List<KeyValue<Bytes, byte[]>> batch = List.of(KeyValue.pair(key, value), KeyValue.pair(to, new byte[] {1}));
            int operation = random.nextInt(100);
            maybeCommit(random, tamis);
            for (KeyValueStore<Bytes, byte[]> other : others) {
                if (operation < 60) {
                    assertEquals(Answers.of(other.get(key)), Answers.of(tamis.get(key)));
                } else if (operation < 65) {
                    assertEquals(Answers.of(other.range(key, to)), Answers.of(tamis.range(key, to)));
                } else if (operation < 70) {
                    assertEquals(Answers.of(other.reverseRange(key, to)), Answers.of(tamis.reverseRange(key, to)));
                } else if (operation < 72) {
                    assertEquals(Answers.of(other.range(null, to)), Answers.of(tamis.range(null, to)));
                    assertEquals(Answers.of(other.reverseRange(key, null)), Answers.of(tamis.reverseRange(key, null)));
                } else if (operation < 75 && key.get().length > 0) {
                    BytesSerializer serializer = new BytesSerializer();
                    assertEquals(Answers.of(other.prefixScan(key, serializer)), Answers.of(tamis.prefixScan(key, serializer)));
                }
            }
            if (operation == 99) {
                assertEquals(Answers.of(others.get(0).all()), Answers.of(tamis.all()));
                assertEquals(Answers.of(others.get(1).reverseAll()), Answers.of(tamis.reverseAll()));
            } else if (operation >= 97) {
                tamis.putAll(batch);
                others.forEach(other -> other.putAll(batch));
            } else if (operation >= 95) {
                Bytes before = Answers.of(tamis.delete(key));
                others.forEach(other -> assertEquals(before, Answers.of(other.delete(key))));
            } else if (operation >= 93 && value != null) {
                Bytes before = Answers.of(tamis.putIfAbsent(key, value));
                others.forEach(other -> assertEquals(before, Answers.of(other.putIfAbsent(key, value))));
            } else if (operation >= 75) {
                tamis.put(key, value);
                others.forEach(other -> other.put(key, value));
            }
        }
        others.forEach(StateStore::close);
        tamis.close();
    }

    /** What Kafka's store has within a range of keys. Its own reads of such ranges miss keys that are the beginning of the last one. */
    private static List<KeyValue<Windowed<Bytes>, Bytes>> within(
            Bytes from, Bytes to, List<KeyValue<Windowed<Bytes>, Bytes>> all) {
        return all.stream()
                .filter(entry -> (from == null || entry.key.key().compareTo(from) >= 0) && entry.key.key().compareTo(to) <= 0)
                .collect(Collectors.toList());
    }

    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3, 4, 5, 6})
    void windowStores(long seed) {
        Random random = new Random(seed);
        Supplier<Bytes> keys = keys(random);
        boolean retainDuplicates = seed % 3 == 0;
        Duration retention = Duration.ofMillis(3 * MINUTE);
        Duration size = Duration.ofMillis(10);
        Supplier<WindowStore<Bytes, byte[]>> ofTamis =
                () -> TamisStores.windowStore("store", retention, size, retainDuplicates).get();
        WindowStore<Bytes, byte[]> tamis = opened("tamis", ofTamis, configs(seed));
        WindowStore<Bytes, byte[]> rocksdb = opened(
                "rocksdb", () -> Stores.persistentWindowStore("store", retention, size, retainDuplicates).get());
        Supplier<WindowStore<Bytes, byte[]>> withIndex =
                () -> new TamisStores.Window("store", retention, size, retainDuplicates, false, true).get();
        WindowStore<Bytes, byte[]> indexed = opened("indexed", withIndex, configs(seed));
        // Times go on, with late ones among them, and some that have expired.
        long now = 0;
        long latest = 0;
        for (int i = 0; i < 5_000; i++) {
            now += random.nextInt(100);
            long time = Math.max(0, now - random.nextInt(random.nextInt(50) == 0 ? 400_000 : 1_000));
            long from = time - random.nextInt(200_000);
            long to = from + random.nextInt(300_000);
            Bytes key = keys.get();
            Bytes keyTo = keys.get();
            byte[] value = random.nextInt(5) == 0 ? null : Answers.value(random.nextInt(1000));
            int operation = random.nextInt(100);
            if (operation < 70) {
                tamis.put(key, value, time);
                rocksdb.put(key, value, time);
                indexed.put(key, value, time);
                latest = Math.max(latest, time);
            } else if (operation < 80) {
                assertEquals(Answers.of(rocksdb.fetch(key, time)), Answers.of(tamis.fetch(key, time)));
            } else if (operation < 88) {
                assertEquals(Answers.of(rocksdb.fetch(key, from, to)), Answers.of(tamis.fetch(key, from, to)));
            } else if (operation < 94) {
                assertEquals(Answers.of(rocksdb.backwardFetch(key, from, to)), Answers.of(tamis.backwardFetch(key, from, to)));
            } else if (operation < 96) {
                assertEquals(
                        within(key, keyTo, Answers.of(rocksdb.fetchAll(from, to))), Answers.of(tamis.fetch(key, keyTo, from, to)));
            } else if (operation < 98) {
                assertEquals(
                        within(key, keyTo, Answers.of(rocksdb.backwardFetchAll(from, to))),
                        Answers.of(tamis.backwardFetch(key, keyTo, from, to)));
                assertEquals(
                        within(null, keyTo, Answers.of(rocksdb.fetchAll(from, to))),
                        Answers.of(tamis.fetch(null, keyTo, from, to)));
            } else if (random.nextInt(5) == 0) {
                assertEquals(Answers.of(rocksdb.all()), Answers.of(tamis.all()));
                assertEquals(Answers.of(rocksdb.backwardAll()), Answers.of(tamis.backwardAll()));
                assertEquals(Answers.of(rocksdb.fetchAll(from, to)), Answers.of(tamis.fetchAll(from, to)));
                assertEquals(Answers.of(rocksdb.backwardFetchAll(from, to)), Answers.of(tamis.backwardFetchAll(from, to)));
                // With an index, what is as old as the retention has not expired yet.
                long live = Math.max(from, latest - retention.toMillis() + 1);
                assertEquals(Answers.of(rocksdb.fetchAll(live, to)), Answers.of(indexed.fetchAll(live, to)));
                assertEquals(Answers.of(rocksdb.backwardFetchAll(live, to)), Answers.of(indexed.backwardFetchAll(live, to)));
            }
            maybeCommit(random, tamis);
            maybeCommit(random, indexed);
            if (i % 1_500 == 1_499) {
                ((TamisStore) tamis).commit(Map.of());
                tamis.close();
                tamis = opened("tamis", ofTamis, configs(seed));
                ((TamisStore) indexed).commit(Map.of());
                indexed.close();
                indexed = opened("indexed", withIndex, configs(seed));
                rocksdb.close();
                rocksdb = opened(
                        "rocksdb", () -> Stores.persistentWindowStore("store", retention, size, retainDuplicates).get());
            }
        }
        tamis.close();
        indexed.close();
        rocksdb.close();
    }

    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3, 4})
    void sessionStores(long seed) {
        Random random = new Random(seed);
        Supplier<Bytes> keys = keys(random);
        Duration retention = Duration.ofMillis(3 * MINUTE);
        SessionStore<Bytes, byte[]> tamis = opened("tamis", () -> TamisStores.sessionStore("store", retention).get(), configs(seed));
        SessionStore<Bytes, byte[]> rocksdb = opened("rocksdb", () -> Stores.persistentSessionStore("store", retention).get());
        long now = 0;
        List<Windowed<Bytes>> written = new ArrayList<>();
        for (int i = 0; i < 5_000; i++) {
            now += random.nextInt(100);
            long end = Math.max(0, now - random.nextInt(random.nextInt(50) == 0 ? 400_000 : 1_000));
            Bytes key = keys.get();
            Bytes keyTo = keys.get();
            Windowed<Bytes> session = new Windowed<>(key, new SessionWindow(Math.max(0, end - random.nextInt(5_000)), end));
            long earliest = Math.max(0, end - random.nextInt(100_000));
            long latest = Math.max(0, end + random.nextInt(10_000) - 5_000);
            int operation = random.nextInt(100);
            maybeCommit(random, tamis);
            if (operation < 55) {
                byte[] value = random.nextInt(8) == 0 ? null : Answers.value(random.nextInt(1000));
                tamis.put(session, value);
                rocksdb.put(session, value);
                written.add(session);
            } else if (operation < 65 && !written.isEmpty()) {
                Windowed<Bytes> old = written.remove(random.nextInt(written.size()));
                tamis.remove(old);
                rocksdb.remove(old);
            } else if (operation < 75 && !written.isEmpty()) {
                Windowed<Bytes> old = written.get(random.nextInt(written.size()));
                assertEquals(
                        Answers.of(tamis.fetchSession(old.key(), old.window().start(), old.window().end())),
                        Answers.of(rocksdb.fetchSession(old.key(), old.window().start(), old.window().end())));
            } else if (operation < 85) {
                assertEquals(
                        Answers.of(tamis.findSessions(key, earliest, latest)),
                        Answers.of(rocksdb.findSessions(key, earliest, latest)));
                assertEquals(
                        Answers.of(tamis.backwardFindSessions(key, earliest, latest)),
                        Answers.of(rocksdb.backwardFindSessions(key, earliest, latest)));
            } else if (operation < 90) {
                assertEquals(Answers.of(rocksdb.fetch(key)), Answers.of(tamis.fetch(key)));
                assertEquals(Answers.of(rocksdb.backwardFetch(key)), Answers.of(tamis.backwardFetch(key)));
            } else if (operation < 93) {
                assertEquals(
                        Answers.of(tamis.findSessions(key, keyTo, earliest, latest)),
                        Answers.of(rocksdb.findSessions(key, keyTo, earliest, latest)));
                assertEquals(
                        Answers.of(tamis.backwardFindSessions(key, null, earliest, latest)),
                        Answers.of(rocksdb.backwardFindSessions(key, null, earliest, latest)));
            } else if (operation == 99) {
                assertEquals(Answers.of(rocksdb.fetch(null, keyTo)), Answers.of(tamis.fetch(null, keyTo)));
                assertEquals(Answers.of(rocksdb.backwardFetch(null, null)), Answers.of(tamis.backwardFetch(null, null)));
            }
        }
        tamis.close();
        rocksdb.close();
    }

    /** Sessions by the time of their end are what Kafka's RocksDB store does not have; a map is compared with. */
    @ParameterizedTest
    @ValueSource(longs = {1, 2})
    void sessionsByTime(long seed) {
        Random random = new Random(seed);
        Supplier<Bytes> keys = keys(random);
        boolean indexed = seed % 2 == 0;
        SessionStore<Bytes, byte[]> tamis =
                opened("tamis", () -> new TamisStores.Session("store", Duration.ofMillis(100 * MINUTE), indexed).get(), configs(seed));
        TreeMap<Long, List<Windowed<Bytes>>> model = new TreeMap<>();
        for (int i = 0; i < 3_000; i++) {
            long end = random.nextInt(500_000);
            Windowed<Bytes> session = new Windowed<>(keys.get(), new SessionWindow(end - random.nextInt((int) end + 1), end));
            tamis.put(session, new byte[] {1});
            List<Windowed<Bytes>> sessions = model.computeIfAbsent(end, none -> new ArrayList<>());
            if (!sessions.contains(session)) {
                sessions.add(session);
            }
        }
        for (int i = 0; i < 100; i++) {
            long from = random.nextInt(500_000);
            long to = from + random.nextInt(100_000);
            List<Windowed<Bytes>> expected = new ArrayList<>();
            model.subMap(from, true, to, true).values().forEach(expected::addAll);
            List<Windowed<Bytes>> actual = new ArrayList<>();
            Answers.of(tamis.findSessions(from, to)).forEach(entry -> actual.add(entry.key));
            List<Long> ends = new ArrayList<>();
            actual.forEach(session -> ends.add(session.window().end()));
            assertEquals(expected.size(), actual.size());
            assertEquals(Set.copyOf(expected), Set.copyOf(actual));
            List<Long> sorted = new ArrayList<>(ends);
            sorted.sort(null);
            assertEquals(sorted, ends);
        }
        tamis.close();
    }
}
