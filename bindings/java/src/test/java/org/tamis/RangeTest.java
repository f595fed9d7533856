package org.tamis;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.tamis.Testing.assertCode;
import static org.tamis.Testing.b;
import static org.tamis.Testing.keys;
import static org.tamis.Testing.s;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.NavigableMap;
import java.util.NoSuchElementException;
import java.util.Random;
import java.util.TreeMap;
import java.util.TreeSet;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Ranges, and cursors over them. */
final class RangeTest {
    @TempDir
    private Path directory;

    private Database db;

    @BeforeEach
    void open() {
        db = Database.open(directory);
        for (String key : List.of("a", "a/1", "a/2", "b", "c")) {
            db.put(b(key), b("value of " + key));
        }
    }

    @AfterEach
    void close() {
        db.close();
    }

    /** The part of a map is what a cursor over the same keys returns, in its order. */
    @Test
    void partsOfMaps() {
        NavigableMap<byte[], byte[]> map = new TreeMap<>(Arrays::compareUnsigned);
        byte[][] keys = {{}, {0}, {1}, {1, 0}, {1, (byte) 0x80}, {2}, {(byte) 0x80}, {(byte) 0xff}, {(byte) 0xff, (byte) 0xff}};
        for (byte[] key : keys) {
            if (key.length != 2) {
                map.put(key, key);
            }
        }
        try (Keyspace same = db.createKeyspace("same", new Options())) {
            map.forEach(same::put);
            partsOfMaps(map, same, keys);
        }
    }

    private static void partsOfMaps(NavigableMap<byte[], byte[]> map, Keyspace same, byte[][] keys) {
        for (byte[] from : keys) {
            for (byte[] to : keys) {
                for (Range range : List.of(
                        Range.all(),
                        Range.all().from(from),
                        Range.all().after(from),
                        Range.all().to(to),
                        Range.all().through(to),
                        Range.all().from(from).to(to),
                        Range.all().from(from).through(to),
                        Range.all().after(from).to(to),
                        Range.all().after(from).through(to),
                        Range.all().prefix(from))) {
                    for (Range directed : List.of(range, range.reverse())) {
                        List<String> expected = new ArrayList<>();
                        try (Cursor cursor = same.keys(directed)) {
                            cursor.forEachRemaining(entry -> expected.add(Arrays.toString(entry.key())));
                        }
                        List<String> part = new ArrayList<>();
                        directed.within(map).keySet().forEach(key -> part.add(Arrays.toString(key)));
                        assertEquals(expected, part);
                    }
                }
            }
        }
    }

    @Test
    void boundsAndDirections() {
        Range all = Range.all();
        assertEquals(List.of("a", "a/1", "a/2", "b", "c"), keys(db, all));
        assertEquals(List.of("c", "b", "a/2", "a/1", "a"), keys(db, all.reverse()));
        assertEquals(List.of("a", "a/1"), keys(db, all.reverse().reverse().to(b("a/2"))));
        assertEquals(List.of("a/2", "b"), keys(db, all.from(b("a/2")).through(b("b"))));
        assertEquals(List.of("b"), keys(db, all.after(b("a/2")).to(b("c"))));
        assertEquals(List.of("b", "a/2"), keys(db, all.reverse().after(b("a/1")).through(b("b"))));
        assertEquals(List.of("a/1", "a/2"), keys(db, all.prefix(b("a/"))));
        assertEquals(List.of("a/2", "a/1"), keys(db, all.prefix(b("a/")).reverse()));
        assertEquals(List.of("a/2"), keys(db, all.after(b("a/1")).prefix(b("a/"))));
        assertEquals(List.of("a/1"), keys(db, all.prefix(b("a/")).to(b("a/2"))));
        assertEquals(List.of(), keys(db, all.prefix(b("a/")).from(b("b"))));
        assertEquals(List.of(), keys(db, all.from(b("c")).to(b("a"))));
        assertEquals(List.of(), keys(db, all.after(b("b")).to(b("b")).reverse()));
    }

    @Test
    void prefixesOfTheLargestBytes() {
        byte[] one = {(byte) 0xFF};
        byte[] two = {(byte) 0xFF, (byte) 0xFF, 0};
        byte[] high = {(byte) 0x80};
        for (byte[] key : List.of(one, two, high)) {
            db.put(key, b("v"));
        }
        assertEquals(2, count(Range.all().prefix(one)));
        assertEquals(1, count(Range.all().prefix(new byte[] {(byte) 0xFF, (byte) 0xFF})));
        assertEquals(1, count(Range.all().prefix(high)));
        assertEquals(8, count(Range.all().prefix(new byte[0])));
        // Bytes are unsigned: these are greater than letters.
        assertEquals(3, count(Range.all().after(b("c"))));
        assertEquals(3, count(Range.all().from(b("c")).after(b("c")).from(b("a"))));
    }

    private int count(Range range) {
        return keys(db, range).size();
    }

    @Test
    void arraysOfARangeAreCopied() {
        byte[] key = b("b");
        Range range = Range.all().from(key);
        key[0] = 'z';
        assertEquals(List.of("b", "c"), keys(db, range));
    }

    @Test
    void cursorsLookAhead() {
        try (Cursor cursor = db.items(Range.all().from(b("b")))) {
            Entry first = cursor.peek();
            assertEquals("value of b", s(first.value()));
            assertSame(first, cursor.peek());
            assertSame(first, cursor.next());
            assertEquals("c", s(cursor.next().key()));
            assertFalse(cursor.hasNext());
            assertThrows(NoSuchElementException.class, cursor::next);
            assertThrows(NoSuchElementException.class, cursor::peek);
            assertThrows(UnsupportedOperationException.class, cursor::remove);
        }
        try (Cursor cursor = db.keys(Range.all())) {
            assertNull(cursor.peek().value());
            assertEquals("a", s(cursor.next().key()));
            assertEquals("a/1", s(cursor.next().key()));
            assertNull(cursor.nextBack().value());
        }
    }

    @Test
    void bothEndsMeet() {
        try (Cursor cursor = db.items(Range.all())) {
            assertEquals("a", s(cursor.next().key()));
            assertEquals("c", s(cursor.nextBack().key()));
            assertEquals("a/1", s(cursor.peek().key()));
            assertEquals("b", s(cursor.nextBack().key()));
            assertEquals("a/1", s(cursor.next().key()));
            assertEquals("value of a/2", s(cursor.nextBack().value()));
            assertNull(cursor.nextBack());
            assertFalse(cursor.hasNext());
        }
        try (Cursor cursor = db.items(Range.all().reverse())) {
            assertCode(ErrorCode.INVALID_ARGUMENT, cursor::nextBack);
            assertCode(ErrorCode.INVALID_ARGUMENT, () -> cursor.seek(b("b")));
            assertEquals("c", s(cursor.next().key()));
        }
    }

    @Test
    void aSeekAfterItemsWereFetched() {
        for (int i = 0; i < 1000; i++) {
            db.put(b(String.format("n%03d", i)), b("v"));
        }
        try (Cursor cursor = db.keys(Range.all().prefix(b("n")))) {
            for (int i = 0; i < 100; i++) {
                assertEquals(String.format("n%03d", i), s(cursor.next().key()));
            }
            cursor.seek(b("n500"));
            assertEquals("n500", s(cursor.next().key()));
            cursor.seek(b("n010"));
            assertEquals("n010", s(cursor.peek().key()));
            assertEquals("n999", s(cursor.nextBack().key()));
            assertEquals("n010", s(cursor.next().key()));
            cursor.seek(b("z"));
            assertFalse(cursor.hasNext());
            cursor.seek(b("a"));
            assertEquals("n000", s(cursor.next().key()));
        }
    }

    /** Groups end by their number of items and by their bytes: none is lost or returned twice. */
    @Test
    void manyAndLargeItems() {
        Random random = new Random(1);
        TreeSet<String> written = new TreeSet<>();
        try (WriteBatch batch = new WriteBatch()) {
            for (int i = 0; i < 3000; i++) {
                String key = "m" + random.nextInt(1 << 20);
                written.add(key);
                byte[] value = new byte[i % 100 == 0 ? 300_000 : random.nextInt(50)];
                Arrays.fill(value, (byte) key.hashCode());
                batch.put(b(key), value);
            }
            db.write(batch);
            assertEquals(0, batch.size());
        }
        List<String> ascending = new ArrayList<>(written);
        assertEquals(ascending, keys(db, Range.all().prefix(b("m"))));
        List<String> descending = new ArrayList<>();
        try (Cursor cursor = db.items(Range.all().prefix(b("m")).reverse())) {
            cursor.forEachRemaining(entry -> {
                byte[] expected = new byte[entry.value().length];
                Arrays.fill(expected, (byte) s(entry.key()).hashCode());
                assertArrayEquals(expected, entry.value());
                descending.add(s(entry.key()));
            });
        }
        Collections.reverse(descending);
        assertEquals(ascending, descending);
    }
}
