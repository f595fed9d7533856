package org.tamis.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.File;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.function.Supplier;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Arguments at the edge of what there is, compared with Kafka's own stores. */
class EdgesTest {
    @TempDir
    Path directory;

    private final List<StateStore> stores = new ArrayList<>();

    private <S extends StateStore> S opened(String name, Supplier<S> supplier) {
        S store = Contexts.opened(supplier.get(), new File(directory.toFile(), name), Map.of());
        stores.add(store);
        return store;
    }

    @AfterEach
    void close() {
        stores.forEach(StateStore::close);
    }

    /** The number of entries, or the kind of the exception. */
    private static String answer(Supplier<KeyValueIterator<?, ?>> find) {
        int count = 0;
        try (KeyValueIterator<?, ?> found = find.get()) {
            while (found.hasNext()) {
                found.next();
                count++;
            }
        } catch (RuntimeException refused) {
            return refused.getClass().getSimpleName();
        }
        return count + " entries";
    }

    @Test
    void sessionsAtNegativeTimesAreRefusedWhereKafkaRefusesThem() {
        Duration retention = Duration.ofHours(1);
        SessionStore<Bytes, byte[]> ours = opened("ours", () -> TamisStores.sessionStore("store", retention).get());
        SessionStore<Bytes, byte[]> theirs = opened("theirs", () -> Stores.persistentSessionStore("store", retention).get());
        Bytes key = Bytes.wrap(new byte[] {1});
        Bytes last = Bytes.wrap(new byte[] {2});
        for (SessionStore<Bytes, byte[]> store : List.of(ours, theirs)) {
            store.put(new Windowed<>(key, new SessionWindow(0, 10)), new byte[] {1});
        }
        long[] times = {Long.MIN_VALUE, -1, 0, 10, 11, Long.MAX_VALUE};
        List<String> differences = new ArrayList<>();
        for (long end : times) {
            for (long start : times) {
                Map<String, Function<SessionStore<Bytes, byte[]>, KeyValueIterator<?, ?>>> finds = Map.of(
                        "findSessions of a key", store -> store.findSessions(key, end, start),
                        "backwardFindSessions of a key", store -> store.backwardFindSessions(key, end, start),
                        "findSessions of keys", store -> store.findSessions(key, last, end, start),
                        "backwardFindSessions of keys", store -> store.backwardFindSessions(key, last, end, start));
                finds.forEach((name, find) -> {
                    String mine = answer(() -> find.apply(ours));
                    String kafkas = answer(() -> find.apply(theirs));
                    if (!mine.equals(kafkas)) {
                        differences.add(name + '(' + end + ", " + start + "): " + mine + ", Kafka's " + kafkas);
                    }
                });
            }
        }
        assertEquals(List.of(), differences);
    }

    @Test
    void aPrefixScanFindsWhatBeginsWithThePrefix() {
        KeyValueStore<Bytes, byte[]> ours = opened("ours", () -> TamisStores.keyValueStore("store").get());
        KeyValueStore<Bytes, byte[]> rocksdb = opened("rocksdb", () -> Stores.persistentKeyValueStore("store").get());
        KeyValueStore<Bytes, byte[]> memory = opened("memory", () -> Stores.inMemoryKeyValueStore("store").get());
        List<byte[]> keys = List.of(
                new byte[] {'a'}, new byte[] {'a', -1}, new byte[] {'a', -1, 5}, new byte[] {'b'}, new byte[] {-1}, new byte[] {-1, -1});
        List<String> counts = new ArrayList<>();
        for (KeyValueStore<Bytes, byte[]> store : List.of(ours, rocksdb, memory)) {
            keys.forEach(key -> store.put(Bytes.wrap(key), new byte[] {1}));
            counts.add(answer(() -> store.prefixScan(new byte[] {'a', -1}, new ByteArraySerializer())) + ", "
                    + answer(() -> store.prefixScan(new byte[] {-1}, new ByteArraySerializer())));
        }
        // Kafka's count on the prefix as a number: behind "a\u00ff" comes "b\0" for them, so that "b" is among what they find.
        assertEquals(
                List.of("2 entries, 2 entries", "3 entries, 2 entries", "3 entries, IndexOutOfBoundsException"), counts);
    }
}
