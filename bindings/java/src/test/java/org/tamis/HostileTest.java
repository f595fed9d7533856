package org.tamis;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.tamis.Testing.assertCode;
import static org.tamis.Testing.b;
import static org.tamis.Testing.s;

import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** Arguments that no program should pass, and threads where only one is allowed. */
final class HostileTest {
    @TempDir
    private Path directory;

    private Database db;

    @BeforeEach
    void open() {
        db = Database.open(directory.resolve("data"));
    }

    @AfterEach
    void close() {
        db.close();
    }

    @Test
    void nullIsRefusedEverywhere() {
        byte[] k = b("k");
        ByteBuffer direct = ByteBuffer.allocateDirect(1);
        Keyspace none = null;
        try (Transaction transaction = db.transaction();
                LockTransaction locks = db.lockTransaction();
                Snapshot snapshot = db.snapshot();
                WriteBatch batch = new WriteBatch();
                Cursor cursor = db.items(Range.all());
                TableBuilder table = new TableBuilder(directory.resolve("table"))) {
            List<Executable> calls = List.of(
                    () -> Database.open(null),
                    () -> Database.open(directory, null),
                    () -> Database.openReadOnly(null, new Options()),
                    () -> Database.verify(null, new Options()),
                    () -> Database.salvage(directory, null, true),
                    () -> db.get(null),
                    () -> db.get(null, direct),
                    () -> db.get(direct, null),
                    () -> db.containsKey(null),
                    () -> db.multiGet((byte[][]) null),
                    () -> db.multiGet(k, null),
                    () -> db.put((byte[]) null, k),
                    () -> db.put(k, (byte[]) null),
                    () -> db.put((ByteBuffer) null, direct),
                    () -> db.put(direct, (ByteBuffer) null),
                    () -> db.delete(null),
                    () -> db.deletePrefix(null),
                    () -> db.deleteRange(null),
                    () -> db.merge(null, k),
                    () -> db.merge(k, null),
                    () -> db.increment(null, 1),
                    () -> db.compareAndSwap(null, k, k),
                    () -> db.insertIfAbsent(k, null),
                    () -> db.insertIfAbsent(null, k),
                    () -> db.take(null),
                    () -> db.update(null, value -> value),
                    () -> db.update(k, null),
                    () -> db.items(null),
                    () -> db.keys(null),
                    () -> db.approximateCount(null),
                    () -> db.approximateSize(null),
                    () -> db.compact(null),
                    () -> db.ingest(null),
                    () -> db.ingest(Arrays.asList((Path) null)),
                    () -> db.explainGet(null),
                    () -> db.setOptions(null),
                    () -> db.keyspace(null),
                    () -> db.createKeyspace(null, new Options()),
                    () -> db.createKeyspace("more", null),
                    () -> db.dropKeyspace(null),
                    () -> db.renameKeyspace("default", null),
                    () -> db.write(null),
                    () -> db.checkpoint(null),
                    () -> db.commitPrepared(null),
                    () -> db.abortPrepared(null),
                    () -> db.transaction(null, null),
                    () -> db.lockTransaction(null, null),
                    () -> snapshot.keyspace(null),
                    () -> transaction.keyspace(null),
                    () -> transaction.put(k, null),
                    () -> transaction.delete(null),
                    () -> transaction.merge(null, k),
                    () -> transaction.rollbackTo(null),
                    () -> locks.getForUpdate(null),
                    () -> locks.getForUpdate(none, k),
                    () -> locks.prepare(null),
                    () -> batch.put(null, k),
                    () -> batch.put(none, k, k),
                    () -> batch.delete(null),
                    () -> batch.delete(db, null),
                    () -> batch.merge(k, null),
                    () -> batch.deleteRange(none, k, k),
                    () -> batch.deleteRange((Range) null),
                    () -> cursor.seek(null),
                    () -> table.put(null, k),
                    () -> table.put(k, null),
                    () -> table.delete(null),
                    () -> table.deleteRange(null),
                    () -> Range.all().from(null),
                    () -> Range.all().after(null),
                    () -> Range.all().to(null),
                    () -> Range.all().through(null),
                    () -> Range.all().prefix(null),
                    () -> new Options().set(null, "1"),
                    () -> new Options().set("filter", null),
                    () -> new Options().durability(null),
                    () -> Durability.of(null),
                    () -> Durability.every(null),
                    () -> Isolation.of(null));
            for (int i = 0; i < calls.size(); i++) {
                assertThrows(NullPointerException.class, calls.get(i), "call " + i);
            }
            assertEquals(0, batch.size());
            transaction.commit();
        }
        assertEquals(List.of("default"), db.keyspaces());
    }

    @Test
    void hugeKeysAreNoKeys() {
        byte[] huge = new byte[256 << 20];
        assertCode(ErrorCode.KEY_TOO_LONG, () -> db.put(huge, b("v")));
        assertNull(db.get(huge));
        assertFalse(db.containsKey(huge));
        assertArrayEquals(new byte[][] {null, null}, db.multiGet(huge, b("k")));
        try (Cursor cursor = db.items(Range.all().from(huge).reverse())) {
            assertFalse(cursor.hasNext());
        }
    }

    @Test
    void numbersThatCannotBe() {
        assertCode(ErrorCode.INVALID_ARGUMENT, () -> new SharedReadMemory(-1));
        assertCode(ErrorCode.INVALID_ARGUMENT, () -> new SharedWriteMemory(-1));
        assertCode(ErrorCode.INVALID_ARGUMENT, () -> db.setFilterBudget(-1));
        assertCode(ErrorCode.INVALID_ARGUMENT, () -> db.setReadMemory(Long.MIN_VALUE));
        assertCode(ErrorCode.INVALID_ARGUMENT, () -> db.lockTransaction(Duration.ofMillis(-1), null));
        assertCode(ErrorCode.INVALID_ARGUMENT, () -> db.transaction(Isolation.SNAPSHOT, Durability.of("often")));
        assertCode(ErrorCode.INVALID_ARGUMENT, () -> db.put(b("k"), b("v"), Durability.of("")));
        assertThrows(ArithmeticException.class, () -> db.lockTransaction(Duration.ofSeconds(Long.MAX_VALUE), null));
    }

    @Test
    void theLongestWait() throws Exception {
        ExecutorService thread = Executors.newSingleThreadExecutor();
        try (LockTransaction holder = db.lockTransaction();
                LockTransaction waiting = db.lockTransaction(Duration.ofMillis(Long.MAX_VALUE), Durability.SYNC)) {
            holder.put(b("k"), b("v"));
            Future<?> wait = thread.submit(() -> waiting.put(b("k"), b("w")));
            while (waiting.source().inside() == 0) {
                Thread.sleep(1);
            }
            holder.commit();
            wait.get(60, TimeUnit.SECONDS);
            waiting.commit();
            assertEquals("w", s(db.get(b("k"))));
        } finally {
            thread.shutdownNow();
        }
    }

    @Test
    void textsThatCannotBe() {
        assertCode(ErrorCode.BAD_NAME, () -> db.createKeyspace("a\0b", new Options()));
        assertEquals("Ж\ud83d\ude00", db.createKeyspace("Ж\ud83d\ude00", new Options()).name());
        assertEquals(List.of("default", "Ж\ud83d\ude00"), db.keyspaces());
        TamisException error = assertThrows(
                InvalidOptionException.class, () -> db.createKeyspace("x", new Options().set("Ж", "\0")));
        assertEquals(ErrorCode.UNKNOWN_OPTION, error.code());
    }

    @Test
    void errorsSayWhere() {
        Keyspace sums = db.createKeyspace("sums", new Options().mergeOperator("add"));
        sums.merge(b("\0k"), b("bad"));
        TamisException error = assertThrows(TamisException.class, () -> sums.get(b("\0k")));
        assertEquals(ErrorCode.MERGE, error.code());
        assertEquals("\0k", s(error.key()));
        error = assertThrows(ExistsException.class, () -> db.createKeyspace("sums", new Options()));
        assertEquals("sums", error.keyspace());
        assertNull(error.key());
        assertThrows(NotFoundException.class, () -> db.keyspace("none"));
        assertThrows(LockedException.class, () -> Database.open(directory.resolve("data")));
        assertThrows(InvalidArgumentException.class, () -> db.deleteRange(b("b"), b("a")));
        assertThrows(
                NotFoundException.class,
                () -> Database.open(directory.resolve("none"), new Options().createIfMissing(false)));
        try (Database reader = Database.openReadOnly(directory.resolve("data"), new Options())) {
            assertThrows(ReadOnlyException.class, () -> reader.put(b("k"), b("v")));
        }
        try (Transaction one = db.transaction()) {
            one.get(b("k"));
            one.put(b("l"), b("1"));
            db.put(b("k"), b("2"));
            error = assertThrows(ConflictException.class, one::commit);
            assertEquals("k", s(error.key()));
            assertTrue(error.code().isRetryable());
        }
    }

    @Test
    void foreignKeyspacesAreRefused() {
        try (Database other = Database.open(directory.resolve("other"));
                Snapshot snapshot = db.snapshot();
                Transaction transaction = db.transaction()) {
            Keyspace foreign = other.createKeyspace("more", new Options());
            assertCode(ErrorCode.FOREIGN_KEYSPACE, () -> snapshot.keyspace(foreign).get(b("k")));
            assertCode(ErrorCode.FOREIGN_KEYSPACE, () -> snapshot.keyspace(other).get(b("k")));
            assertCode(ErrorCode.FOREIGN_KEYSPACE, () -> transaction.keyspace(foreign).put(b("k"), b("v")));
            assertCode(ErrorCode.FOREIGN_KEYSPACE, () -> db.write(new WriteBatch().put(foreign, b("k"), b("v"))));
        }
    }

    /** What is for one thread at a time may fail in several, with whatever exception, but harms nothing. */
    @Test
    void severalThreadsWhereOneIsAllowed() throws Exception {
        for (int i = 0; i < 1000; i++) {
            db.put(b("k" + i), new byte[100]);
        }
        ExecutorService threads = Executors.newFixedThreadPool(4);
        try (WriteBatch batch = new WriteBatch()) {
            for (int round = 0; round < 20; round++) {
                Cursor cursor = db.items(Range.all());
                Transaction transaction = db.transaction();
                List<Runnable> calls = List.of(
                        () -> {
                            while (cursor.hasNext()) {
                                cursor.next();
                            }
                        },
                        cursor::nextBack,
                        () -> cursor.seek(b("k5")),
                        () -> batch.put(b("batch"), new byte[50]),
                        () -> batch.delete(db, b("none")),
                        () -> db.write(batch),
                        () -> transaction.put(b("t"), b("v")),
                        () -> transaction.get(b("k1")),
                        transaction::savepoint);
                List<Future<?>> ends = new ArrayList<>();
                for (int thread = 0; thread < 4; thread++) {
                    int first = thread;
                    ends.add(threads.submit(() -> {
                        for (int i = 0; i < 200; i++) {
                            try {
                                calls.get((first + i) % calls.size()).run();
                            } catch (RuntimeException anything) {
                                assertFalse(anything.getMessage() != null && anything.getMessage().contains("bug"));
                            }
                        }
                    }));
                }
                for (Future<?> end : ends) {
                    end.get(120, TimeUnit.SECONDS);
                }
                cursor.close();
                transaction.close();
                batch.clear();
            }
        } finally {
            threads.shutdownNow();
        }
        assertEquals(100, db.get(b("k999")).length);
        assertTrue(db.verify().contains("\"problems\":[]"));
    }

    /**
     * Threads that shared a cursor got keys with other keys' values, and arrays out of bounds: what had been fetched was guarded by nothing.
     * Now each entry is whole, goes to one of them, and a call during another one's is refused.
     */
    @Test
    void aCursorOfSeveralThreadsReturnsWholeEntriesOnceOrRefuses() throws Exception {
        int count = 2000;
        for (int i = 0; i < count; i++) {
            byte[] key = b(String.format("%06d", i));
            db.put(key, Arrays.copyOf(key, 6 + i % 50));
        }
        ExecutorService threads = Executors.newFixedThreadPool(4);
        try {
            for (int round = 0; round < 100; round++) {
                boolean closes = round % 2 == 1;
                Set<String> seen = ConcurrentHashMap.newKeySet();
                Cursor cursor = db.items(Range.all());
                List<Future<?>> ends = new ArrayList<>();
                for (int thread = 0; thread < 4; thread++) {
                    boolean closer = closes && thread == 3;
                    ends.add(threads.submit(() -> {
                        for (int taken = 0; ; taken++) {
                            try {
                                Entry entry = cursor.next();
                                String key = s(entry.key());
                                assertArrayEquals(Arrays.copyOf(entry.key(), 6 + Integer.parseInt(key) % 50), entry.value());
                                assertTrue(seen.add(key), key);
                            } catch (InvalidArgumentException inUse) {
                                assertTrue(inUse.getMessage().contains("in use by another thread"), inUse.getMessage());
                            } catch (NoSuchElementException | ClosedException end) {
                                return null;
                            }
                            if (closer && taken == 100) {
                                cursor.close();
                            }
                        }
                    }));
                }
                for (Future<?> end : ends) {
                    end.get(120, TimeUnit.SECONDS);
                }
                assertTrue(closes || seen.size() == count, "entries were lost: " + seen.size());
                cursor.close();
            }
        } finally {
            threads.shutdownNow();
        }
    }

    /** The same for a batch, whose buffer two threads would have filled at once. */
    @Test
    void aBatchOfSeveralThreadsHoldsWholeWritesOrRefuses() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(4);
        AtomicInteger added = new AtomicInteger();
        try (WriteBatch batch = new WriteBatch()) {
            List<Future<?>> ends = new ArrayList<>();
            for (int thread = 0; thread < 4; thread++) {
                String name = "thread " + thread + " ";
                ends.add(threads.submit(() -> {
                    for (int i = 0; i < 5000; i++) {
                        byte[] key = b(name + i);
                        try {
                            batch.put(key, key);
                            added.incrementAndGet();
                        } catch (InvalidArgumentException inUse) {
                            assertTrue(inUse.getMessage().contains("in use by another thread"), inUse.getMessage());
                        }
                    }
                    return null;
                }));
            }
            for (Future<?> end : ends) {
                end.get(120, TimeUnit.SECONDS);
            }
            assertEquals(added.get(), batch.size());
            db.write(batch);
        } finally {
            threads.shutdownNow();
        }
        int there = 0;
        try (Cursor items = db.items(Range.all())) {
            while (items.hasNext()) {
                Entry entry = items.next();
                assertArrayEquals(entry.key(), entry.value());
                there++;
            }
        }
        assertEquals(added.get(), there);
    }

    /** Half of a pair became a question mark, so that two names were one. */
    @Test
    void halfOfAPairOfSurrogatesIsNoName() {
        for (String name : List.of("\ud83d", "a\ude00", "\ude00\ud83d")) {
            assertCode(ErrorCode.INVALID_ARGUMENT, () -> db.createKeyspace(name, new Options()));
            assertCode(ErrorCode.INVALID_ARGUMENT, () -> new Options().set("filter", name));
        }
        db.createKeyspace("\ud83d\ude00", new Options());
        assertEquals(List.of("default", "\ud83d\ude00"), db.keyspaces());
    }

    /** A call that waits, or works for long, is given up; its thread stays interrupted, and everything goes on from there. */
    @Test
    void interruptedThreadsGiveUp() {
        for (int i = 0; i < 5000; i++) {
            db.put(b("k" + i), new byte[100]);
        }
        db.flush();
        try (LockTransaction holds = db.lockTransaction(Duration.ofHours(1), null);
                LockTransaction waits = db.lockTransaction(Duration.ofHours(1), null)) {
            holds.put(b("a"), b("1"));
            waits.put(b("b"), b("2"));
            List<Executable> calls = List.of(
                    () -> waits.get(b("a")),
                    () -> waits.getForUpdate(b("a")),
                    () -> waits.put(b("a"), b("3")),
                    () -> db.verify(),
                    () -> db.compact());
            for (Executable call : calls) {
                Thread.currentThread().interrupt();
                assertCode(ErrorCode.INTERRUPTED, call);
                assertTrue(Thread.interrupted());
            }
            Thread.currentThread().interrupt();
            assertEquals(100, waits.get(b("k1")).length);
            assertTrue(Thread.interrupted(), "what does not wait takes no notice");
            holds.commit();
            assertEquals("1", s(waits.get(b("a"))));
            waits.commit();
        }
        assertEquals("2", s(db.get(b("b"))));
        db.compact();
        assertTrue(db.verify().contains("\"problems\":[]"));
    }

    @Test
    void theLicencesOfWhatIsLinkedAreThere() throws Exception {
        try (InputStream notice = Database.class.getResourceAsStream("/META-INF/THIRD-PARTY.txt")) {
            String text = s(notice.readAllBytes());
            assertTrue(text.contains("\nlz4_flex ") && text.contains("Permission is hereby granted"), text);
        }
    }
}
