package org.tamis;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;
import static org.tamis.Testing.assertCode;
import static org.tamis.Testing.b;
import static org.tamis.Testing.collectUntil;
import static org.tamis.Testing.s;

import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** Objects after, and during, the closing of themselves and of their database. */
final class LifetimesTest {
    @TempDir
    private Path directory;

    private long before;
    private Database db;

    @BeforeEach
    void open() {
        before = Handles.open();
        db = Database.open(directory.resolve("data"));
        db.put(b("a"), b("1"));
        db.put(b("b"), b("2"));
    }

    @AfterEach
    void nothingIsLeft() {
        db.close();
        assertEquals(before, Handles.open());
    }

    private static Map<String, Executable> reads(Reader reader) {
        Map<String, Executable> calls = new LinkedHashMap<>();
        calls.put("get", () -> reader.get(b("a")));
        calls.put("containsKey", () -> reader.containsKey(b("a")));
        calls.put("multiGet", () -> reader.multiGet(b("a"), b("b")));
        calls.put("multiGet of nothing", () -> reader.multiGet());
        calls.put("items", () -> reader.items(Range.all()));
        calls.put("keys", () -> reader.keys(Range.all()));
        calls.put("isEmpty", reader::isEmpty);
        calls.put("first", reader::first);
        calls.put("last", reader::last);
        return calls;
    }

    private static Map<String, Executable> callsOf(Keyspace keyspace) {
        Map<String, Executable> calls = reads(keyspace);
        ByteBuffer buffer = ByteBuffer.allocateDirect(8);
        calls.put("get direct", () -> keyspace.get(buffer, buffer));
        calls.put("get from the heap", () -> keyspace.get(ByteBuffer.wrap(b("a")), buffer));
        calls.put("put", () -> keyspace.put(b("k"), b("v")));
        calls.put("put sync", () -> keyspace.put(b("k"), b("v"), Durability.SYNC));
        calls.put("put direct", () -> keyspace.put(buffer, buffer));
        calls.put("delete", () -> keyspace.delete(b("k")));
        calls.put("delete sync", () -> keyspace.delete(b("k"), Durability.SYNC));
        calls.put("deleteRange", () -> keyspace.deleteRange(b("k"), b("l")));
        calls.put("deleteRange of a range", () -> keyspace.deleteRange(Range.all()));
        calls.put("deletePrefix", () -> keyspace.deletePrefix(b("k")));
        calls.put("clear", keyspace::clear);
        calls.put("merge", () -> keyspace.merge(b("k"), b("v")));
        calls.put("increment", () -> keyspace.increment(b("n"), 1));
        calls.put("compareAndSwap", () -> keyspace.compareAndSwap(b("k"), null, b("v")));
        calls.put("insertIfAbsent", () -> keyspace.insertIfAbsent(b("k"), b("v")));
        calls.put("take", () -> keyspace.take(b("k")));
        calls.put("update", () -> keyspace.update(b("k"), value -> value));
        calls.put("approximateCount", keyspace::approximateCount);
        calls.put("approximateSize", () -> keyspace.approximateSize(Range.all()));
        calls.put("flush", keyspace::flush);
        calls.put("compact", keyspace::compact);
        calls.put("compact a range", () -> keyspace.compact(Range.all()));
        calls.put("ingest", () -> keyspace.ingest(List.of(Path.of("x"))));
        calls.put("explainGet", () -> keyspace.explainGet(b("a")));
        calls.put("keyspaceStats", keyspace::keyspaceStats);
        calls.put("tables", keyspace::tables);
        calls.put("options", keyspace::options);
        calls.put("setOptions", () -> keyspace.setOptions(new Options()));
        calls.put("name", keyspace::name);
        return calls;
    }

    private static Map<String, Executable> callsOf(Database db) {
        Map<String, Executable> calls = callsOf((Keyspace) db);
        calls.put("keyspace", () -> db.keyspace("default"));
        calls.put("createKeyspace", () -> db.createKeyspace("new", new Options()));
        calls.put("keyspaceOrCreate", () -> db.keyspaceOrCreate("default", new Options()));
        calls.put("dropKeyspace", () -> db.dropKeyspace("more"));
        calls.put("renameKeyspace", () -> db.renameKeyspace("more", "less"));
        calls.put("keyspaces", db::keyspaces);
        calls.put("write", () -> db.write(new WriteBatch().put(b("k"), b("v"))));
        calls.put("snapshot", db::snapshot);
        calls.put("transaction", () -> db.transaction());
        calls.put("lockTransaction", () -> db.lockTransaction());
        calls.put("preparedTransactions", db::preparedTransactions);
        calls.put("commitPrepared", () -> db.commitPrepared(b("p")));
        calls.put("abortPrepared", () -> db.abortPrepared(b("p")));
        calls.put("cancelCompactions", db::cancelCompactions);
        calls.put("sync", db::sync);
        calls.put("waitForCompaction", db::waitForCompaction);
        calls.put("checkpoint", () -> db.checkpoint(Path.of("x")));
        calls.put("setFilterBudget", () -> db.setFilterBudget(1 << 20));
        calls.put("setReadMemory", () -> db.setReadMemory(1 << 20));
        calls.put("stats", db::stats);
        calls.put("segments", db::segments);
        calls.put("databaseOptions", db::databaseOptions);
        calls.put("verify", () -> db.verify());
        return calls;
    }

    private static Map<String, Executable> callsOf(TransactionView view) {
        Map<String, Executable> calls = reads(view);
        calls.put("put", () -> view.put(b("k"), b("v")));
        calls.put("delete", () -> view.delete(b("k")));
        calls.put("merge", () -> view.merge(b("k"), b("v")));
        calls.put("deleteRange", () -> view.deleteRange(b("k"), b("l")));
        calls.put("deleteRange of a range", () -> view.deleteRange(Range.all()));
        calls.put("deletePrefix", () -> view.deletePrefix(b("k")));
        return calls;
    }

    private static Map<String, Executable> callsOf(Transaction transaction) {
        Map<String, Executable> calls = callsOf((TransactionView) transaction);
        calls.put("savepoint", transaction::savepoint);
        calls.put("rollbackTo", () -> transaction.rollbackTo(new Savepoint(1)));
        // The ends come last.
        calls.put("rollback", transaction::rollback);
        calls.put("commit", transaction::commit);
        return calls;
    }

    private static Map<String, Executable> callsOf(Cursor cursor) {
        Map<String, Executable> calls = new LinkedHashMap<>();
        calls.put("hasNext", cursor::hasNext);
        calls.put("next", cursor::next);
        calls.put("peek", cursor::peek);
        calls.put("nextBack", cursor::nextBack);
        calls.put("seek", () -> cursor.seek(b("a")));
        return calls;
    }

    private static void assertAll(ErrorCode code, Map<String, Executable> calls) {
        calls.forEach((name, call) -> {
            TamisException error = assertThrows(ClosedException.class, call, name);
            assertEquals(code, error.code(), name);
        });
    }

    @Test
    void everythingOfAClosedDatabaseSaysSo() {
        Keyspace more = db.createKeyspace("more", new Options());
        Snapshot snapshot = db.snapshot();
        Cursor cursor = db.items(Range.all());
        Cursor fetched = db.items(Range.all());
        assertTrue(fetched.hasNext());
        Transaction transaction = db.transaction();
        LockTransaction locks = db.lockTransaction();
        db.close();
        db.close();
        assertTrue(db.isClosed());
        assertEquals(before, Handles.open(), "a closing frees what belongs to the database");
        assertAll(ErrorCode.CLOSED, callsOf(db));
        assertAll(ErrorCode.CLOSED, callsOf(more));
        assertAll(ErrorCode.CLOSED, reads(snapshot));
        assertAll(ErrorCode.CLOSED, Map.of("seq", snapshot::seq));
        assertAll(ErrorCode.CLOSED, reads(snapshot.keyspace(more)));
        assertAll(ErrorCode.CLOSED, callsOf(cursor));
        assertAll(ErrorCode.CLOSED, callsOf(fetched));
        assertAll(ErrorCode.CLOSED, callsOf(transaction.keyspace(more)));
        assertAll(ErrorCode.CLOSED, callsOf(transaction));
        assertAll(ErrorCode.CLOSED, callsOf(locks.keyspace(more)));
        assertAll(ErrorCode.CLOSED, callsOf(locks));
        assertAll(ErrorCode.CLOSED, Map.of(
                "getForUpdate", () -> locks.getForUpdate(b("a")),
                "getForUpdate in a keyspace", () -> locks.getForUpdate(more, b("a")),
                "prepare", () -> locks.prepare(b("p"))));
        List.of(more, snapshot, cursor, fetched, transaction, locks).forEach(LifetimesTest::close);
        db = Database.open(directory.resolve("data"));
        assertEquals("1", s(db.get(b("a"))));
    }

    private static void close(AutoCloseable object) {
        try {
            object.close();
        } catch (Exception error) {
            throw new AssertionError(error);
        }
    }

    @Test
    void whatWasClosedByItselfHasEnded() {
        Keyspace more = db.createKeyspace("more", new Options());
        Snapshot snapshot = db.snapshot();
        Cursor cursor = db.items(Range.all());
        assertTrue(cursor.hasNext());
        Transaction transaction = db.transaction();
        LockTransaction locks = db.lockTransaction();
        for (AutoCloseable object : List.of(snapshot, cursor, transaction, locks)) {
            close(object);
            close(object);
        }
        assertAll(ErrorCode.ENDED, reads(snapshot));
        assertAll(ErrorCode.ENDED, reads(snapshot.keyspace(more)));
        assertAll(ErrorCode.ENDED, callsOf(cursor));
        assertAll(ErrorCode.ENDED, callsOf(transaction));
        assertAll(ErrorCode.ENDED, callsOf(transaction.keyspace(more)));
        assertAll(ErrorCode.ENDED, callsOf(locks));
        more.close();
        more.close();
        assertAll(ErrorCode.ENDED, callsOf(more));
        assertCode(ErrorCode.ENDED, () -> db.write(new WriteBatch().put(more, b("k"), b("v"))));
        assertEquals(before + 1, Handles.open());
        assertEquals("1", s(db.get(b("a"))));
    }

    @Test
    void builtTablesBatchesAndSharedMemoryEnd() {
        Path file = directory.resolve("one.table");
        TableBuilder dropped = new TableBuilder(file);
        dropped.put(b("a"), b("1"));
        assertTrue(file.toFile().exists());
        dropped.close();
        dropped.close();
        assertFalse(file.toFile().exists(), "a table that was not finished is removed");
        Map<String, Executable> calls = Map.of(
                "put", () -> dropped.put(b("b"), b("2")),
                "delete", () -> dropped.delete(b("b")),
                "deleteRange", () -> dropped.deleteRange(Range.all()),
                "size", dropped::size,
                "finish", dropped::finish);
        assertAll(ErrorCode.ENDED, calls);

        WriteBatch batch = new WriteBatch();
        batch.put(b("k"), b("v"));
        batch.close();
        batch.close();
        assertAll(ErrorCode.ENDED, Map.of("put", () -> batch.put(b("k"), b("v")), "write", () -> db.write(batch)));

        SharedReadMemory memory = new SharedReadMemory(8 << 20);
        Database shared = Database.open(directory.resolve("shared"), new Options().sharedReadMemory(memory));
        memory.close();
        memory.close();
        assertAll(ErrorCode.ENDED, Map.of(
                "bytes", memory::bytes,
                "members", memory::members,
                "setBytes", () -> memory.setBytes(1),
                "open", () -> Database.open(directory.resolve("late"), new Options().sharedReadMemory(memory))));
        shared.put(b("k"), b("v"));
        assertEquals("v", s(shared.get(b("k"))));
        shared.close();
    }

    @Test
    void aCommittedTransactionNeedsNoClose() {
        Transaction transaction = db.transaction();
        transaction.put(b("c"), b("3"));
        transaction.commit();
        assertEquals(before + 1, Handles.open());
        assertAll(ErrorCode.ENDED, callsOf(transaction));
        assertEquals("3", s(db.get(b("c"))));
    }

    @Test
    void whatIsReadKeepsItsDatabaseOpen() throws InterruptedException {
        Cursor cursor = lost("kept");
        long leaked = Handles.leaked();
        for (int i = 0; i < 5; i++) {
            System.gc();
            Thread.sleep(10);
        }
        assertEquals("a", s(cursor.next().key()));
        assertEquals("b", s(cursor.next().key()));
        assertFalse(cursor.hasNext());
        assertEquals(leaked, Handles.leaked());
        ((Database) cursor.reader()).close();
    }

    /** A cursor over a database that nobody else has. */
    private Cursor lost(String name) {
        Database lost = Database.open(directory.resolve(name));
        lost.put(b("a"), b("1"));
        lost.put(b("b"), b("2"));
        return lost.items(Range.all());
    }

    @Test
    void whatIsLostIsClosedAndCounted() throws InterruptedException {
        long leaked = Handles.leaked();
        lost("lost");
        db.snapshot();
        db.transaction();
        new SharedReadMemory(1 << 20);
        // Not counted: a keyspace's handle need not be closed.
        db.createKeyspace("more", new Options());
        assertEquals(before + 7, Handles.open());
        collectUntil(() -> Handles.open() == before + 1);
        assertEquals(leaked + 5, Handles.leaked());
        try (Database again = Database.open(directory.resolve("lost"))) {
            assertEquals("1", s(again.get(b("a"))));
        }
    }

    @Test
    void aClosingLetsTheCallsInsideEnd() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(4);
        try {
            for (int round = 0; round < 20; round++) {
                Database closing = Database.open(directory.resolve("closing"));
                Keyspace more = closing.keyspaceOrCreate("more", new Options());
                CountDownLatch running = new CountDownLatch(4);
                List<Future<?>> ends = new ArrayList<>();
                ends.add(threads.submit(() -> untilClosed(running, () -> {
                    closing.put(b("k"), new byte[1000]);
                    more.put(b("k"), b("v"));
                })));
                ends.add(threads.submit(() -> untilClosed(running, () -> {
                    closing.get(b("k"));
                    more.multiGet(b("k"), b("l"));
                })));
                ends.add(threads.submit(() -> untilClosed(running, () -> {
                    try (Cursor cursor = closing.items(Range.all())) {
                        cursor.forEachRemaining(entry -> assertNull(entry.key().length > 1 ? entry : null));
                    }
                    try (Snapshot snapshot = closing.snapshot()) {
                        snapshot.get(b("k"));
                    }
                })));
                ends.add(threads.submit(() -> untilClosed(running, () -> {
                    try (Transaction transaction = closing.transaction()) {
                        transaction.put(b("t"), b("v"));
                        transaction.commit();
                    } catch (ConflictException tryAgain) {
                        assertEquals(ErrorCode.CONFLICT, tryAgain.code());
                    }
                    closing.flush();
                })));
                if (!running.await(60, TimeUnit.SECONDS)) {
                    for (Future<?> end : ends) {
                        if (end.isDone()) {
                            end.get();
                        }
                    }
                    List<String> inside = new ArrayList<>();
                    Thread.getAllStackTraces().forEach((thread, calls) -> {
                        if (thread.getName().startsWith("pool") && calls.length > 1) {
                            inside.add(calls[0] + " of " + calls[1]);
                        }
                    });
                    fail("a call has not ended for a minute; those inside: " + inside);
                }
                closing.close();
                for (Future<?> end : ends) {
                    end.get(60, TimeUnit.SECONDS);
                }
                assertEquals(before + 1, Handles.open());
            }
        } finally {
            threads.shutdownNow();
        }
    }

    /** Repeats a call until it says that it is closed, and nothing else. */
    private static void untilClosed(CountDownLatch running, Runnable call) {
        boolean counted = false;
        while (true) {
            try {
                call.run();
            } catch (ClosedException closed) {
                assertEquals(ErrorCode.CLOSED, closed.code(), closed.getMessage());
                return;
            }
            if (!counted) {
                running.countDown();
                counted = true;
            }
        }
    }

    @Test
    void aTransactionIsFreedWhenItsWaitEnds() throws Exception {
        ExecutorService thread = Executors.newSingleThreadExecutor();
        try {
            LockTransaction holder = db.lockTransaction();
            holder.put(b("k"), b("v"));
            LockTransaction waiting = db.lockTransaction(Duration.ofSeconds(60), null);
            Future<?> wait = thread.submit(() -> waiting.put(b("k"), b("w")));
            while (waiting.source().inside() == 0) {
                Thread.sleep(1);
            }
            waiting.close();
            assertEquals(before + 3, Handles.open());
            assertAll(ErrorCode.ENDED, callsOf(waiting));
            assertFalse(wait.isDone());
            // Which lets go of the lock.
            db.close();
            try {
                wait.get(60, TimeUnit.SECONDS);
            } catch (ExecutionException refused) {
                assertInstanceOf(TamisException.class, refused.getCause());
            }
            assertEquals(before, Handles.open());
        } finally {
            thread.shutdownNow();
        }
    }
}
