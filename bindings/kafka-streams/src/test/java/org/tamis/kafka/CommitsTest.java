package org.tamis.kafka;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.query.KeyQuery;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Transactional stores (KIP-892): after a crash a store is as it was at its last commit, and knows the offset of it. A crash is
 * a copy of the directory of a store that is open.
 */
class CommitsTest {
    private static final Map<String, String> TRANSACTIONAL = Contexts.TRANSACTIONAL;
    private static final TopicPartition CHANGELOG = new TopicPartition("app-store-changelog", 3);
    private static final long MINUTE = 60_000;

    @TempDir
    Path directory;

    private final List<TamisStore> open = new ArrayList<>();
    private Contexts.Context context;

    @BeforeEach
    void storesAreTransactional() {
        assumeTrue(StoreOffsets.areTransactional(), "since Kafka Streams 4.4");
    }

    @AfterEach
    void close() {
        open.forEach(TamisStore::close);
    }

    private <S extends TamisStore> S opened(S store, Map<String, ?> configs) {
        context = Contexts.of(directory.toFile(), configs);
        open.add(store);
        store.init((StateStoreContext) context, store);
        return store;
    }

    /** Goes on with what is on disk now. The store that was open stays so, elsewhere. */
    private void crash() throws IOException {
        directory = Crashes.of(directory);
    }

    private static Bytes key(int number) {
        return Bytes.wrap(new byte[] {(byte) (number >> 8), (byte) number});
    }

    private static byte[] value(int number) {
        return new byte[] {(byte) number};
    }

    /** Each kind of store: what writes number {@code i}, and what reads it. */
    private abstract static class Kind<S extends TamisStore> {
        abstract S make();

        abstract void put(S store, int i);

        abstract byte[] get(S store, int i);

        @Override
        public String toString() {
            return make().getClass().getSimpleName();
        }
    }

    private static final class KeyValueKind extends Kind<TamisKeyValueStore> {
        @Override
        TamisKeyValueStore make() {
            return new TamisKeyValueStore("store");
        }

        @Override
        void put(TamisKeyValueStore store, int i) {
            store.put(key(i), value(i));
        }

        @Override
        byte[] get(TamisKeyValueStore store, int i) {
            return store.get(key(i));
        }
    }

    private static final class WindowKind extends Kind<TamisWindowStore> {
        private final boolean indexed;

        WindowKind(boolean indexed) {
            this.indexed = indexed;
        }

        @Override
        TamisWindowStore make() {
            return new TamisWindowStore("windows", 100 * MINUTE, 10 * MINUTE, 10, false, indexed);
        }

        @Override
        void put(TamisWindowStore store, int i) {
            store.put(key(i), value(i), i * MINUTE / 10);
        }

        @Override
        byte[] get(TamisWindowStore store, int i) {
            List<KeyValue<Windowed<Bytes>, Bytes>> all = Answers.of(store.fetchAll(i * MINUTE / 10, i * MINUTE / 10));
            byte[] got = store.fetch(key(i), i * MINUTE / 10);
            assertEquals(got == null ? 0 : 1, all.size());
            return got;
        }
    }

    private static final class SessionKind extends Kind<TamisSessionStore> {
        @Override
        TamisSessionStore make() {
            return new TamisSessionStore("sessions", 100 * MINUTE, 10 * MINUTE, false);
        }

        @Override
        void put(TamisSessionStore store, int i) {
            store.put(new Windowed<>(key(i), new SessionWindow(i, i + 1)), value(i));
        }

        @Override
        byte[] get(TamisSessionStore store, int i) {
            return store.fetchSession(key(i), i, i + 1);
        }
    }

    private static final class VersionedKind extends Kind<TamisVersionedStore> {
        @Override
        TamisVersionedStore make() {
            return new TamisVersionedStore("versions", 100 * MINUTE, 10 * MINUTE);
        }

        @Override
        void put(TamisVersionedStore store, int i) {
            store.put(key(0), value(i), 10 * i);
        }

        @Override
        byte[] get(TamisVersionedStore store, int i) {
            var found = store.get(key(0), 10 * i);
            return found == null || found.timestamp() != 10 * i ? null : found.value();
        }
    }

    private <S extends TamisStore> void aCrashLeavesTheLastCommit(Kind<S> kind) throws IOException {
        S store = opened(kind.make(), TRANSACTIONAL);
        assertTrue(store.managesOffsets());
        assertNull(store.committedOffset(CHANGELOG));
        int next = 1;
        for (int round = 1; round <= 3; round++) {
            for (int i = 0; i < 50; i++, next++) {
                Contexts.at(context, next);
                kind.put(store, next);
                assertArrayEquals(value(next), kind.get(store, next), kind + " reads its own writes");
            }
            assertTrue(store.approximateNumUncommittedBytes() > 50);
            store.commit(Map.of(CHANGELOG, 1000L + round));
            assertEquals(0, store.approximateNumUncommittedBytes());
            int committed = next;
            for (int i = 0; i < 50; i++) {
                Contexts.at(context, next + i);
                kind.put(store, next + i);
            }
            crash();
            store = opened(kind.make(), TRANSACTIONAL);
            assertEquals(1000L + round, store.committedOffset(CHANGELOG));
            assertEquals(Position.emptyPosition().withComponent("input", 0, committed - 1), store.getPosition());
            for (int i = 1; i < committed + 50; i++) {
                assertArrayEquals(i < committed ? value(i) : null, kind.get(store, i), kind + ", number " + i);
            }
        }
    }

    @Test
    void keyValueStores() throws IOException {
        aCrashLeavesTheLastCommit(new KeyValueKind());
    }

    @Test
    void windowStores() throws IOException {
        aCrashLeavesTheLastCommit(new WindowKind(false));
    }

    @Test
    void windowStoresWithAnIndex() throws IOException {
        aCrashLeavesTheLastCommit(new WindowKind(true));
    }

    @Test
    void sessionStores() throws IOException {
        aCrashLeavesTheLastCommit(new SessionKind());
    }

    @Test
    void versionedStores() throws IOException {
        aCrashLeavesTheLastCommit(new VersionedKind());
    }

    /** Kafka Streams commits a task before it closes it in order; otherwise the transaction was aborted. */
    @Test
    void closingForgetsWhatWasNotCommitted() {
        TamisKeyValueStore store = opened(new TamisKeyValueStore("store"), TRANSACTIONAL);
        store.put(key(1), value(1));
        store.commit(Map.of(CHANGELOG, 7L));
        store.put(key(1), null);
        store.put(key(2), value(2));
        assertNull(store.get(key(1)));
        store.close();
        store = opened(new TamisKeyValueStore("store"), TRANSACTIONAL);
        assertArrayEquals(value(1), store.get(key(1)));
        assertNull(store.get(key(2)));
        assertEquals(7L, store.committedOffset(CHANGELOG));
        assertNull(store.committedOffset(new TopicPartition(CHANGELOG.topic(), 4)));
    }

    /** Restored records are others' commits: they are not staged. The offset that comes after them is committed with the next commit. */
    @Test
    void restoredRecordsNeedNoCommit() throws IOException {
        TamisKeyValueStore store = opened(new TamisKeyValueStore("store"), TRANSACTIONAL);
        store.restoreBatch(List.of(new ConsumerRecord<>("changelog", 0, 0, key(1).get(), value(1))));
        assertEquals(0, store.approximateNumUncommittedBytes());
        crash();
        store = opened(new TamisKeyValueStore("store"), TRANSACTIONAL);
        assertArrayEquals(value(1), store.get(key(1)));
        assertNull(store.committedOffset(CHANGELOG));
    }

    /** What is staged shares no array with who has put it, or has got it. */
    @Test
    void arraysAreCopied() {
        TamisKeyValueStore store = opened(new TamisKeyValueStore("store"), TRANSACTIONAL);
        byte[] key = {1};
        byte[] value = {1};
        for (byte number = 1; number <= 3; number++) {
            key[0] = number;
            value[0] = number;
            store.put(Bytes.wrap(key), value);
            store.get(Bytes.wrap(key))[0] = 99;
        }
        store.all().forEachRemaining(entry -> entry.value[0] = 99);
        store.commit(Map.of(CHANGELOG, 1L));
        for (byte number = 1; number <= 3; number++) {
            assertArrayEquals(new byte[] {number}, store.get(Bytes.wrap(new byte[] {number})));
        }
    }

    @Test
    void memoryIsThatOfTheEntries() {
        TamisKeyValueStore store = opened(new TamisKeyValueStore("store"), TRANSACTIONAL);
        for (int i = 0; i < 1_000; i++) {
            store.put(key(1), new byte[100]);
        }
        assertTrue(store.approximateNumUncommittedBytes() < 1_000);
        store.put(key(2), new byte[10_000]);
        assertTrue(store.approximateNumUncommittedBytes() > 10_000);
    }

    /** A global store holds what others have committed. */
    @Test
    void globalStoresStageNothing() {
        context = Contexts.of(directory.toFile(), TRANSACTIONAL);
        context.task(new TaskId(-1, -1));
        TamisKeyValueStore store = new TamisKeyValueStore("store");
        open.add(store);
        store.init((StateStoreContext) context, store);
        store.put(key(1), value(1));
        assertEquals(0, store.approximateNumUncommittedBytes());
    }

    /** A store that holds what may have been aborted is emptied: Kafka Streams then finds no offset, and restores all of it. */
    @Test
    void whatRanWithoutTransactionsIsRestored() throws IOException {
        Map<String, String> plain = Map.of(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        TamisKeyValueStore store = opened(new TamisKeyValueStore("store"), plain);
        store.put(key(1), value(1));
        store.commit(Map.of(CHANGELOG, 1L));
        store.put(key(2), value(2));
        crash();
        store = opened(new TamisKeyValueStore("store"), TRANSACTIONAL);
        assertNull(store.committedOffset(CHANGELOG));
        assertNull(store.get(key(1)));
        try (Stream<Path> left = Files.list(directory.resolve("tamis"))) {
            assertEquals(List.of("store"), left.map(path -> path.getFileName().toString()).collect(Collectors.toList()));
        }
    }

    /** No offsets for a store with a changelog: it is corrupted, and to be restored. What is staged must not be written. */
    @Test
    void aCommitWithoutOffsetsGivesUp() {
        TamisKeyValueStore store = new TamisKeyValueStore("store");
        context = Contexts.of(directory.toFile(), TRANSACTIONAL);
        open.add(store);
        store.init(context.internal(), store);
        context.changelog(CHANGELOG.topic());
        store.put(key(1), value(1));
        store.commit(Map.of(CHANGELOG, 1L));
        store.put(key(2), value(2));
        store.commit(Map.of());
        assertNull(store.committedOffset(CHANGELOG));
        assertNull(store.get(key(2)));
    }

    /** What a record has made expire is dropped with the record's commit. */
    @Test
    void segmentsAreDroppedByCommits() throws IOException {
        TamisWindowStore store = opened(new TamisWindowStore("windows", 10 * MINUTE, MINUTE, 10, false, true), TRANSACTIONAL);
        store.put(key(1), value(1), 0);
        store.commit(Map.of(CHANGELOG, 1L));
        store.put(key(1), value(2), 1);
        store.put(key(1), value(3), 30 * MINUTE);
        assertNull(store.fetch(key(1), 0));
        assertEquals(List.of(30 * MINUTE), store.segmentStarts());
        Path whole = directory;
        crash();
        TamisWindowStore crashed = opened(new TamisWindowStore("windows", 10 * MINUTE, MINUTE, 10, false, true), TRANSACTIONAL);
        assertArrayEquals(value(1), crashed.fetch(key(1), 0));
        assertNull(crashed.fetch(key(1), 1));
        directory = whole;
        store.commit(Map.of(CHANGELOG, 2L));
        crash();
        crashed = opened(new TamisWindowStore("windows", 10 * MINUTE, MINUTE, 10, false, true), TRANSACTIONAL);
        assertEquals(List.of(30 * MINUTE), crashed.segmentStarts());
        assertArrayEquals(value(3), crashed.fetch(key(1), 30 * MINUTE));
    }

    @Test
    void readersOfWhatIsCommitted() {
        TamisKeyValueStore store = opened(new TamisKeyValueStore("store"), TRANSACTIONAL);
        Contexts.at(context, 1);
        store.put(key(1), value(1));
        store.put(key(2), value(2));
        store.commit(Map.of(CHANGELOG, 1L));
        Contexts.at(context, 2);
        store.put(key(2), null);
        store.put(key(3), value(3));
        ReadOnlyKeyValueStore<Bytes, byte[]> committed = store.readOnly(IsolationLevel.READ_COMMITTED);
        ReadOnlyKeyValueStore<Bytes, byte[]> all = store.readOnly(IsolationLevel.READ_UNCOMMITTED);
        assertEquals(List.of(key(1), key(2)), keys(committed.all()));
        assertEquals(List.of(key(1), key(3)), keys(all.all()));
        assertEquals(List.of(key(3), key(1)), keys(all.reverseAll()));
        assertEquals(List.of(key(2)), keys(committed.range(key(2), null)));
        assertArrayEquals(value(2), committed.get(key(2)));
        assertNull(all.get(key(2)));
        assertEquals(Position.emptyPosition().withComponent("input", 0, 1), ((TamisStore) committed).getPosition());
        KeyQuery<Bytes, byte[]> asked = KeyQuery.withKey(key(2));
        PositionBound newest = PositionBound.at(store.getPosition());
        assertTrue(store.query(asked, newest, uncommitted()).isSuccess());
        assertFalse(store.query(asked, newest, committed()).isSuccess(), "its position is not committed");
        assertArrayEquals(value(2), store.query(asked, PositionBound.unbounded(), committed()).getResult());
        assertThrows(UnsupportedOperationException.class, () -> ((TamisKeyValueStore) committed).put(key(1), value(1)));
        store.commit(Map.of(CHANGELOG, 2L));
        assertNull(committed.get(key(2)));

        TamisWindowStore windows = opened(new TamisWindowStore("windows", 10 * MINUTE, MINUTE, 10, false, false), TRANSACTIONAL);
        windows.put(key(1), value(1), 5);
        windows.commit(Map.of());
        windows.put(key(1), value(2), 5);
        var before = windows.readOnly(IsolationLevel.READ_COMMITTED);
        assertArrayEquals(value(1), before.fetch(key(1), 5));
        assertEquals(1, Answers.of(before.all()).size());
        assertArrayEquals(value(2), windows.fetch(key(1), 5));
        // The view goes on with the store.
        windows.put(key(1), value(3), 30 * MINUTE);
        windows.commit(Map.of());
        assertNull(before.fetch(key(1), 5));
        assertArrayEquals(value(3), before.fetch(key(1), 30 * MINUTE));

        TamisVersionedStore versions = opened(new TamisVersionedStore("versions", 10 * MINUTE, MINUTE), TRANSACTIONAL);
        versions.put(key(1), value(1), 5);
        versions.commit(Map.of());
        versions.put(key(1), value(2), 9);
        assertArrayEquals(value(1), versions.readOnly(IsolationLevel.READ_COMMITTED).get(key(1)).value());
        assertArrayEquals(value(2), versions.get(key(1)).value());
    }

    private static QueryConfig uncommitted() {
        return new QueryConfig(false);
    }

    /** With an isolation level, which older releases have no constructor for. */
    private static QueryConfig committed() {
        try {
            return QueryConfig.class
                    .getConstructor(boolean.class, IsolationLevel.class)
                    .newInstance(false, IsolationLevel.READ_COMMITTED);
        } catch (ReflectiveOperationException error) {
            throw new AssertionError(error);
        }
    }

    private static List<Bytes> keys(KeyValueIterator<Bytes, byte[]> entries) {
        List<Bytes> keys = new ArrayList<>();
        Answers.of(entries).forEach(entry -> keys.add(entry.key));
        return keys;
    }

    /** While one thread moves a token from key to key and commits, others find exactly one, whatever they read. */
    @Test
    void readersSeeNoHalfOfACommit() throws InterruptedException {
        TamisKeyValueStore store = opened(new TamisKeyValueStore("store"), TRANSACTIONAL);
        store.put(key(0), value(1));
        AtomicBoolean done = new AtomicBoolean();
        List<String> wrong = new ArrayList<>();
        Thread reader = new Thread(() -> {
            while (!done.get() && wrong.isEmpty()) {
                int found = Answers.of(store.all()).size();
                if (found != 1) {
                    wrong.add(found + " tokens");
                }
            }
        });
        reader.start();
        for (int i = 1; i <= 20_000 && wrong.isEmpty(); i++) {
            store.putAll(List.of(KeyValue.pair(key(i % 50), value(1)), KeyValue.pair(key((i - 1) % 50), null)));
            if (i % 7 == 0) {
                store.commit(Map.of());
            }
        }
        done.set(true);
        reader.join();
        assertEquals(List.of(), wrong);
        assertFalse(reader.isAlive());
    }
}
