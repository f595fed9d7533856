package org.tamis;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.tamis.Testing.assertCode;
import static org.tamis.Testing.b;
import static org.tamis.Testing.keys;
import static org.tamis.Testing.s;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What the script does not ask: options, shared memory, reports, durabilities, several threads. */
final class DatabaseTest {
    @TempDir
    private Path directory;

    @Test
    void optionsAreThoseOfTheEngine() {
        Options options = new Options()
                .createIfMissing(true)
                .errorIfExists(true)
                .durability(Durability.every(Duration.ofMillis(250)))
                .cacheBytes(3 << 20)
                .memtableBytes(2 << 20)
                .filter("ribbon")
                .bitsPerKey(11.5)
                .compression("none")
                .mergeOperator("append");
        try (Database db = Database.open(directory, options)) {
            String text = db.databaseOptions();
            for (String line : List.of(
                    "durability = every 250 ms", "cache_bytes = 3 MiB", "keyspace.memtable_bytes = 2 MiB",
                    "keyspace.filter = ribbon", "keyspace.bits_per_key = 11.5", "keyspace.compression = none",
                    "keyspace.merge_operator = append")) {
                assertTrue(text.contains(line + "\n"), line + " in\n" + text);
            }
            db.setOptions(new Options().set("keyspace.filter", "xor").set("bits_per_key", 9));
            assertTrue(db.options().contains("filter = xor\n"), db.options());
            assertTrue(db.options().contains("bits_per_key = 9\n"), db.options());
            assertCode(ErrorCode.FIXED_OPTION, () -> db.setOptions(new Options().mergeOperator("add")));
        }
        assertCode(ErrorCode.DATABASE_EXISTS, () -> Database.open(directory, options));
        for (double value : new double[] {Double.NaN, 1e300, 1e-9, -1}) {
            Options wrong = new Options().bitsPerKey(value);
            assertCode(ErrorCode.INVALID_OPTION, () -> Database.open(directory, wrong));
        }
        String described = Options.describe();
        assertTrue(described.contains("\"name\":\"keyspace.filter\""), described);
    }

    @Test
    void codesAreThoseOfAllBindings() throws Exception {
        Path source = Path.of("..", "common", "src", "code.rs");
        Matcher matcher = Pattern.compile("Code::(\\w+) => \"([a-z-]+)\"")
                .matcher(Files.readString(source, StandardCharsets.UTF_8));
        Set<String> names = new HashSet<>();
        while (matcher.find()) {
            names.add(matcher.group(2));
        }
        Set<String> here = new HashSet<>();
        for (ErrorCode code : ErrorCode.values()) {
            here.add(code.text());
            assertEquals(code.text(), code.name().toLowerCase().replace('_', '-'));
            assertEquals(code, ErrorCode.of(code.number()));
        }
        assertEquals(names, here);
    }

    @Test
    void memoryIsShared() {
        try (SharedReadMemory memory = new SharedReadMemory(64 << 20)) {
            Options options = new Options().sharedReadMemory(memory);
            try (Database one = Database.open(directory.resolve("one"), options);
                    Database two = Database.open(directory.resolve("two"), options)) {
                assertEquals(64 << 20, memory.bytes());
                memory.setBytes(32 << 20);
                assertEquals(32 << 20, memory.bytes());
                assertTrue(memory.members().contains(directory.resolve("two").toString()), memory.members());
                one.put(b("k"), b("1"));
                two.put(b("k"), b("2"));
                one.flush();
                assertEquals("1", s(one.get(b("k"))));
                assertEquals("2", s(two.get(b("k"))));
                assertCode(ErrorCode.INVALID_OPTION, () -> one.createKeyspace("more", options));
            }
            assertEquals("[]", memory.members());
            Options both = new Options().sharedReadMemory(memory).cacheBytes(1 << 20);
            assertCode(ErrorCode.INVALID_OPTION, () -> Database.open(directory.resolve("three"), both));
        }
    }

    @Test
    void memoryForWritesIsShared() {
        try (SharedWriteMemory memory = new SharedWriteMemory(8 << 20)) {
            Options options = new Options().sharedWriteMemory(memory);
            try (Database idle = Database.open(directory.resolve("idle"), options);
                    Database busy = Database.open(directory.resolve("busy"), options)) {
                assertEquals(8 << 20, memory.bytes());
                idle.put(b("k"), new byte[3 << 20]);
                assertEquals("[]", idle.tables());
                for (int i = 0; i < 20; i++) {
                    busy.put(b("k" + i), new byte[1 << 20]);
                }
                idle.waitForCompaction();
                // The busy one has taken its memory.
                assertTrue(idle.tables().contains("\"smallest\":\"k\""), idle.tables());
                assertTrue(memory.members().contains(directory.resolve("busy").toString()), memory.members());
                memory.setBytes(4 << 20);
                assertEquals(4 << 20, memory.bytes());
                assertCode(ErrorCode.INVALID_OPTION, () -> idle.setOptions(options));
            }
            assertEquals("[]", memory.members());
        }
    }

    @Test
    void durabilitiesAndBatches() {
        try (Database db = Database.open(directory)) {
            Keyspace more = db.createKeyspace("more", new Options().mergeOperator("append"));
            assertEquals("more", more.name());
            db.put(b("a"), b("1"), Durability.SYNC);
            more.put(b("a"), b("2"), Durability.BUFFERED);
            more.delete(b("a"), Durability.every(Duration.ofSeconds(1)));
            assertEquals("1", s(db.get(b("a"))));
            assertNull(more.get(b("a")));
            try (WriteBatch batch = new WriteBatch()) {
                batch.put(b("b"), b("1")).put(more, b("b"), b("2")).merge(more, b("b"), b("3")).delete(b("a"));
                batch.put(more, b("p1"), b("v")).put(more, b("p2"), b("v"));
                batch.deleteRange(more, Range.all().after(b("p1")).through(b("p2")));
                assertEquals(7, batch.size());
                assertTrue(batch.bytes() > 7);
                db.write(batch, Durability.SYNC);
                assertEquals(0, batch.size());
                assertEquals(0, batch.bytes());
                batch.put(b("c"), b("1"));
                batch.clear();
                db.write(batch);
            }
            assertEquals(List.of("b"), keys(db, Range.all()));
            assertEquals(List.of("b", "p1"), keys(more, Range.all()));
            assertEquals("23", s(more.get(b("b"))));
        }
    }

    @Test
    void reports() {
        try (Database db = Database.open(directory.resolve("data"))) {
            db.put(b("k"), b("v"));
            db.flush();
            assertTrue(db.stats().contains("\"visible_seq\":"));
            assertTrue(db.keyspaceStats().contains("\"levels\":"));
            assertTrue(db.tables().contains("\"smallest\":\"k\""));
            assertTrue(db.explainGet(b("k")).contains("\"kind\":\"found\""));
            assertEquals("[]", db.segments());
            assertTrue(db.verify().contains("\"problems\":[]"));
            db.waitForCompaction();
            db.cancelCompactions();
            assertTrue(db.approximateCount() > 0);
            assertTrue(db.approximateSize(Range.all()) > 0);
            assertEquals(0, db.approximateSize(Range.all().from(b("x"))));
            assertNotNull(Database.version());
            assertEquals(directory.resolve("data"), db.path());
            assertFalse(db.isReadOnly());
        }
        Options options = new Options();
        assertTrue(Database.verify(directory.resolve("data"), options).contains("\"problems\":[]"));
        assertTrue(Database.salvage(directory.resolve("data"), options, true).startsWith("{"));
    }

    @Test
    void manyKeysAtOnce() {
        try (Database db = Database.open(directory)) {
            byte[][] keys = new byte[5000][];
            for (int i = 0; i < keys.length; i++) {
                keys[i] = b("key " + i);
                if (i % 7 != 0) {
                    db.put(keys[i], keys[i]);
                }
            }
            byte[][] values = db.multiGet(keys);
            assertEquals(keys.length, values.length);
            for (int i = 0; i < keys.length; i++) {
                assertEquals(i % 7 == 0 ? null : "key " + i, s(values[i]));
            }
        }
    }

    @Test
    void firstAndLast() {
        try (Database db = Database.open(directory)) {
            assertNull(db.first());
            assertNull(db.last());
            assertTrue(db.isEmpty());
            db.put(b("a"), b("1"));
            db.put(b("b"), b("2"));
            assertEquals("a", s(db.first().key()));
            assertEquals("2", s(db.last().value()));
            try (Snapshot snapshot = db.snapshot()) {
                db.clear();
                assertEquals("b", s(snapshot.last().key()));
                assertTrue(snapshot.seq() > 0);
            }
        }
    }

    @Test
    void oneOfACircleOfWaitsIsRefused() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(2);
        CyclicBarrier barrier = new CyclicBarrier(2);
        try (Database db = Database.open(directory)) {
            List<Future<Boolean>> ends = new ArrayList<>();
            for (String own : List.of("a", "b")) {
                String other = own.equals("a") ? "b" : "a";
                ends.add(threads.submit(() -> {
                    try (LockTransaction locks = db.lockTransaction(Duration.ofSeconds(60), null)) {
                        locks.put(b(own), b(own));
                        barrier.await(60, TimeUnit.SECONDS);
                        locks.put(b(other), b(own));
                        locks.commit();
                        return true;
                    } catch (ConflictException circle) {
                        assertEquals(ErrorCode.DEADLOCK, circle.code(), circle.getMessage());
                        return false;
                    }
                }));
            }
            boolean first = ends.get(0).get(120, TimeUnit.SECONDS);
            assertEquals(!first, ends.get(1).get(120, TimeUnit.SECONDS));
            assertEquals(first ? "a" : "b", s(db.get(b("a"))));
            assertEquals(first ? "a" : "b", s(db.get(b("b"))));
        } finally {
            threads.shutdownNow();
        }
    }

    @Test
    void whatAFunctionThrowsIsNotCommitted() {
        try (Database db = Database.open(directory)) {
            long before = Handles.open();
            assertThrows(IllegalStateException.class, () -> db.transact(transaction -> {
                transaction.put(b("k"), b("v"));
                throw new IllegalStateException();
            }));
            assertNull(db.get(b("k")));
            assertEquals("v", db.transact(transaction -> {
                transaction.put(b("k"), b("v"));
                return s(transaction.get(b("k")));
            }));
            assertEquals("v", s(db.get(b("k"))));
            int[] calls = {0};
            assertThrows(ConflictException.class, () -> db.transact(transaction -> {
                transaction.get(b("k"));
                transaction.put(b("l"), b("v"));
                db.put(b("k"), b("" + calls[0]++));
                return null;
            }));
            assertEquals(100, calls[0]);
            assertEquals(before, Handles.open());
        }
    }

    @Test
    void threadsCountTogether() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(4);
        try (Database db = Database.open(directory)) {
            Keyspace sums = db.createKeyspace("sums", new Options().mergeOperator("add"));
            List<Future<?>> ends = new ArrayList<>();
            for (int thread = 0; thread < 4; thread++) {
                int number = thread;
                ends.add(threads.submit(() -> {
                    byte[] one = {1, 0, 0, 0, 0, 0, 0, 0};
                    for (int i = 0; i < 500; i++) {
                        db.increment(b("n"), 1);
                        db.update(b("u"), before -> b(before == null ? "1" : "" + (1 + Integer.parseInt(s(before)))));
                        db.transact(transaction -> {
                            byte[] before = transaction.get(b("m"));
                            int next = before == null ? 1 : 1 + Integer.parseInt(s(before));
                            transaction.put(b("m"), b(Integer.toString(next)));
                            return next;
                        });
                        sums.merge(b("n"), one);
                        db.put(b("t" + number), b(Integer.toString(i)));
                        assertEquals(Integer.toString(i), s(db.get(b("t" + number))));
                        assertTrue(keys(db, Range.all().prefix(b("t"))).contains("t" + number));
                    }
                }));
            }
            for (Future<?> end : ends) {
                end.get(120, TimeUnit.SECONDS);
            }
            assertEquals(2000, db.increment(b("n"), 0));
            assertEquals("2000", s(db.get(b("m"))));
            assertEquals("2000", s(db.get(b("u"))));
            assertNull(db.update(b("u"), before -> null));
            assertNull(db.get(b("u")));
            assertEquals(2000, sums.increment(b("n"), 0));
        } finally {
            threads.shutdownNow();
        }
    }
}
