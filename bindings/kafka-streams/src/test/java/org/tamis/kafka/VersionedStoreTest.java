package org.tamis.kafka;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.query.FailureReason;
import org.apache.kafka.streams.query.MultiVersionedKeyQuery;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.query.VersionedKeyQuery;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.VersionedBytesStore;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.VersionedRecordIterator;
import org.apache.kafka.streams.state.internals.VersionedKeyValueToBytesStoreAdapter;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class VersionedStoreTest {
    private static final Duration HISTORY = Duration.ofMinutes(1);
    private static final long UNDEFINED = VersionedKeyValueStore.PUT_RETURN_CODE_VALID_TO_UNDEFINED;
    private static final long NOT_PUT = VersionedKeyValueStore.PUT_RETURN_CODE_NOT_PUT;
    private static final Bytes KEY = Bytes.wrap(new byte[] {1, 0});

    @TempDir
    Path directory;

    private VersionedBytesStore opened(String name, Object store, boolean transactional) {
        Map<String, String> configs = new HashMap<>(transactional ? Contexts.TRANSACTIONAL : Map.of());
        configs.put("tamis.memtable_bytes", "4 KiB");
        return Contexts.opened((VersionedBytesStore) store, new File(directory.toFile(), name), configs);
    }

    private TamisVersionedStore opened() {
        return Contexts.opened(new TamisVersionedStore("store", HISTORY.toMillis(), 5_000), directory.toFile(), Map.of());
    }

    /** Versions as text: of two records with the same content, {@code equals} does not say so. */
    private static List<String> versions(
            VersionedBytesStore store, Bytes key, long from, long to, long latest, boolean ascending) {
        MultiVersionedKeyQuery<Bytes, byte[]> query = MultiVersionedKeyQuery.<Bytes, byte[]>withKey(key)
                .fromTime(Instant.ofEpochMilli(from))
                .toTime(Instant.ofEpochMilli(to));
        query = ascending ? query.withAscendingTimestamps() : query.withDescendingTimestamps();
        List<String> found = new ArrayList<>();
        try (VersionedRecordIterator<byte[]> versions =
                store.query(query, PositionBound.unbounded(), new QueryConfig(false)).getResult()) {
            versions.forEachRemaining(version -> {
                if (version.timestamp() <= latest) {
                    found.add(text(version));
                }
            });
        }
        return found;
    }

    /** All answers are those of Kafka's own store. */
    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3, 4, 5, 6})
    void randomHistories(long seed) {
        Random random = new Random(seed);
        TamisVersionedStore inner = new TamisVersionedStore("store", HISTORY.toMillis(), 5_000);
        VersionedBytesStore tamis = opened(
                "tamis",
                new VersionedKeyValueToBytesStoreAdapter(inner),
                seed % 2 == 0);
        VersionedBytesStore rocksdb =
                opened(
                "rocksdb",
                Stores.persistentVersionedKeyValueStore("store", HISTORY, Duration.ofSeconds(5)).get(),
                false);
        long now = 0;
        Map<Bytes, Set<Long>> written = new HashMap<>();
        for (int i = 0; i < 6_000; i++) {
            if (random.nextInt(200) == 0) {
                inner.commit(Map.of());
            }
            now += random.nextInt(20);
            Bytes key = Bytes.wrap(new byte[] {(byte) random.nextInt(20), 0, 1});
            long time = Math.max(0, now - random.nextInt(random.nextInt(20) == 0 ? 70_000 : 3_000));
            int operation = random.nextInt(10);
            if (operation < 5) {
                boolean isNew = written.computeIfAbsent(key, none -> new HashSet<>()).add(time);
                // A second write at the same time is left to the tests below, if one of them is a delete.
                byte[] value = isNew && random.nextInt(4) == 0 ? null : Answers.value(random.nextInt(1000));
                if (isNew) {
                    assertEquals(rocksdb.put(key, value, time), tamis.put(key, value, time));
                }
            } else if (operation < 6) {
                if (written.computeIfAbsent(key, none -> new HashSet<>()).add(time)) {
                    assertEquals(Answers.of(rocksdb.delete(key, time)), Answers.of(tamis.delete(key, time)));
                }
            } else if (operation < 8) {
                assertEquals(Answers.of(rocksdb.get(key)), Answers.of(tamis.get(key)));
            } else if (operation < 9) {
                assertEquals(Answers.of(rocksdb.get(key, time)), Answers.of(tamis.get(key, time)));
            } else {
                // What has expired is there until its segment is dropped, which differs.
                long from = Math.max(time, now - 50_000);
                long to = from + random.nextInt(10_000);
                boolean ascending = random.nextBoolean();
                // Kafka's store misses versions that end in a later segment than the range.
                assertEquals(
                        versions(rocksdb, key, from, Long.MAX_VALUE, to, ascending), versions(tamis, key, from, to, to, ascending));
            }
        }
        tamis.close();
        rocksdb.close();
    }

    @Test
    void lateVersionsEndWhereTheNextBegins() {
        TamisVersionedStore store = opened();
        assertNull(store.get(KEY));
        assertEquals(UNDEFINED, store.put(KEY, new byte[] {1}, 10_000));
        assertEquals(10_000, store.put(KEY, new byte[] {2}, 5_000));
        assertEquals(UNDEFINED, store.put(KEY, null, 20_000));
        assertEquals(20_000, store.put(KEY, new byte[] {3}, 15_000));
        assertEquals(10_000, store.put(KEY, null, 7_000));
        assertEquals(UNDEFINED, store.put(KEY, new byte[] {4}, 30_000));
        assertEquals(30_000, store.put(KEY, new byte[] {5}, 25_000));
        // At the same time: the later write replaces the earlier one.
        assertEquals(30_000, store.put(KEY, new byte[] {6}, 25_000));
        assertEquals(25_000, store.put(KEY, new byte[] {7}, 20_001));
        String at = "";
        for (long time = 0; time <= 35_000; time += 2_500) {
            VersionedRecord<byte[]> record = store.get(KEY, time);
            at += record == null ? "-" : String.valueOf(record.value()[0]);
        }
        assertEquals("--2-1133-766444", at);
        store.close();
    }

    /** A delete of a key that has nothing is remembered: what is written before it ends there. */
    @Test
    void deletesOfWhatIsNotThereYet() {
        TamisVersionedStore store = opened();
        assertEquals(UNDEFINED, store.put(KEY, null, 10_000));
        assertEquals(10_000, store.put(KEY, new byte[] {1}, 5_000));
        assertNull(store.get(KEY));
        assertNull(store.get(KEY, 10_000));
        assertArrayEquals(new byte[] {1}, store.get(KEY, 9_999).value());
        assertEquals(Optional.of(10_000L), store.get(KEY, 9_999).validTo());
        assertNull(store.get(KEY, 4_999));
        assertEquals(UNDEFINED, store.put(KEY, new byte[] {2}, 12_000));
        assertEquals(UNDEFINED, store.put(KEY, null, 12_000));
        assertNull(store.get(KEY));
        assertEquals(12_000, store.put(KEY, new byte[] {3}, 11_000));
        assertArrayEquals(new byte[] {3}, store.delete(KEY, 11_500).value());
        assertNull(store.get(KEY, 11_600));
        store.close();
    }

    @Test
    void theHistoryIsDropped() {
        TamisVersionedStore store = opened();
        for (int i = 0; i < 1_000; i++) {
            assertEquals(UNDEFINED, store.put(KEY, new byte[] {(byte) i}, i * 1_000L));
        }
        assertEquals(NOT_PUT, store.put(KEY, new byte[1], 900_000));
        assertNull(store.delete(KEY, 900_000));
        assertNull(store.get(KEY, 900_000));
        assertArrayEquals(new byte[] {(byte) 950}, store.get(KEY, 950_500).value());
        assertTrue(store.database().keyspaces().size() < 17, store.database().keyspaces().toString());
        store.close();
        TamisVersionedStore again = opened();
        assertArrayEquals(new byte[] {(byte) 999}, again.get(KEY).value());
        assertArrayEquals(new byte[] {(byte) 950}, again.get(KEY, 950_500).value());
        again.close();
        assertThrows(InvalidStateStoreException.class, () -> again.get(KEY));
        assertThrows(InvalidStateStoreException.class, () -> again.put(KEY, null, 1));
        assertThrows(InvalidStateStoreException.class, () -> again.delete(KEY, 1_000_000));
    }

    @Test
    void restored() {
        Contexts.Context context = Contexts.of(directory.toFile(), Map.of());
        TamisVersionedStore store = new TamisVersionedStore("store", HISTORY.toMillis(), 5_000);
        store.init((StateStoreContext) context, store);
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (long time : new long[] {10_000, 5_000, 20_000, 15_000, 7_000}) {
            byte[] value = time == 7_000 ? null : new byte[] {(byte) (time / 1_000)};
            records.add(new ConsumerRecord<>(
                    "changelog", 0, 0, time, TimestampType.CREATE_TIME, 0, 0, KEY.get(), value, new RecordHeaders(), Optional.empty()));
        }
        context.restore(records);
        assertArrayEquals(new byte[] {20}, store.get(KEY).value());
        assertArrayEquals(new byte[] {15}, store.get(KEY, 19_999).value());
        assertArrayEquals(new byte[] {10}, store.get(KEY, 14_999).value());
        assertNull(store.get(KEY, 8_000));
        assertArrayEquals(new byte[] {5}, store.get(KEY, 6_999).value());
        store.close();
    }

    private static String text(VersionedRecord<byte[]> record) {
        return record == null ? "none" : Bytes.wrap(record.value()) + " from " + record.timestamp() + " to " + record.validTo();
    }

    /** Restored in batches, a store holds what it held when its records were put one by one, while history expires. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void restoredInBatches(boolean transactional) {
        Map<String, String> configs = transactional ? Contexts.TRANSACTIONAL : Map.of();
        Random random = new Random(7);
        TamisVersionedStore put = new TamisVersionedStore("put", HISTORY.toMillis(), 5_000);
        put.init((StateStoreContext) Contexts.of(directory.toFile(), Map.of()), put);
        Contexts.Context context = Contexts.of(directory.toFile(), configs);
        TamisVersionedStore restored = new TamisVersionedStore("restored", HISTORY.toMillis(), 5_000);
        restored.init((StateStoreContext) context, restored);
        long now = 0;
        for (int batch = 0; batch < 40; batch++) {
            List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
            for (int i = 0; i < 100; i++) {
                now += random.nextInt(100);
                byte[] key = {(byte) random.nextInt(10)};
                long time = Math.max(0, now - random.nextInt(5_000));
                byte[] value = random.nextInt(5) == 0 ? null : Answers.value(random.nextInt(1_000));
                put.put(Bytes.wrap(key), value, time);
                records.add(new ConsumerRecord<>(
                        "changelog", 0, 0, time, TimestampType.CREATE_TIME, 0, 0, key, value, new RecordHeaders(), Optional.empty()));
            }
            context.restore(records);
            assertEquals(0, restored.approximateNumUncommittedBytes());
        }
        restored.commit(Map.of(new TopicPartition("changelog", 0), 4_000L));
        for (byte key = 0; key < 10; key++) {
            Bytes of = Bytes.wrap(new byte[] {key});
            assertEquals(text(put.get(of)), text(restored.get(of)));
            for (long time = now - 40_000; time <= now; time += 500) {
                assertEquals(text(put.get(of, time)), text(restored.get(of, time)));
            }
        }
        put.close();
        restored.close();
    }

    @Test
    void queried() {
        TamisVersionedStore store = opened();
        store.put(KEY, new byte[] {1}, 1_000);
        store.put(KEY, new byte[] {2}, 2_000);
        QueryConfig config = new QueryConfig(true);
        QueryResult<VersionedRecord<byte[]>> one = store.query(
                VersionedKeyQuery.<Bytes, byte[]>withKey(KEY).asOf(Instant.ofEpochMilli(1_500)), PositionBound.unbounded(), config);
        assertArrayEquals(new byte[] {1}, one.getResult().value());
        QueryResult<VersionedRecordIterator<byte[]>> all =
                store.query(MultiVersionedKeyQuery.<Bytes, byte[]>withKey(KEY), PositionBound.unbounded(), config);
        assertEquals(2_000, all.getResult().next().timestamp());
        assertEquals(1_000, all.getResult().next().timestamp());
        assertFalse(all.getResult().hasNext());
        assertFalse(all.getExecutionInfo().isEmpty());
        QueryResult<VersionedRecordIterator<byte[]>> ahead = store.query(
                MultiVersionedKeyQuery.<Bytes, byte[]>withKey(KEY),
                PositionBound.at(Position.emptyPosition().withComponent("input", 0, 7)),
                config);
        assertEquals(FailureReason.NOT_UP_TO_BOUND, ahead.getFailureReason());
        store.close();
    }
}
