package org.tamis.kafka;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Iterator;
import java.util.List;
import java.util.function.Predicate;
import org.apache.kafka.streams.KeyValue;
import org.tamis.Cursor;
import org.tamis.Entry;
import org.tamis.Range;

/** Entries that a read goes through, with their stored keys. What the engine throws is not translated. */
interface Scan extends Iterator<KeyValue<byte[], byte[]>>, AutoCloseable {
    @Override
    void close();

    /** How a segment is read. */
    interface Source {
        Scan of(Segments.Segment segment);
    }

    /** The entries of a cursor; those of one over keys have no values. */
    static Scan of(Cursor cursor) {
        return new Scan() {
            @Override
            public boolean hasNext() {
                return cursor.hasNext();
            }

            @Override
            public KeyValue<byte[], byte[]> next() {
                Entry entry = cursor.next();
                return KeyValue.pair(entry.key(), entry.value());
            }

            @Override
            public void close() {
                cursor.close();
            }
        };
    }

    /** A range, in the order of the stored keys or against it. */
    static Source range(Range range) {
        return segment -> segment.entries.items(range);
    }

    /** What is wanted of a range, in another order. It is in memory as a whole. */
    static Source sorted(Range range, Predicate<byte[]> wanted, Comparator<byte[]> order) {
        return segment -> {
            List<KeyValue<byte[], byte[]>> found = new ArrayList<>();
            try (Scan all = range(range).of(segment)) {
                all.forEachRemaining(entry -> {
                    if (wanted.test(entry.key)) {
                        found.add(entry);
                    }
                });
            }
            found.sort((a, b) -> order.compare(a.key, b.key));
            return of(found.iterator());
        };
    }

    /** The entries of a range of time, both ends included, found by the segment's index. Their keys are in memory, and then sorted. */
    static Source times(long from, long to, Comparator<byte[]> order) {
        Range first = Range.all().from(time(from));
        Range range = to == Long.MAX_VALUE ? first : first.to(time(to + 1));
        return segment -> {
            List<byte[]> found = new ArrayList<>();
            try (Scan keys = segment.times.keys(range)) {
                keys.forEachRemaining(entry -> found.add(KeyLayout.ofTimeKey(entry.key)));
            }
            found.sort(order);
            return of(found.stream()
                    .map(key -> KeyValue.pair(key, segment.entries.get(key)))
                    // Deleted since.
                    .filter(entry -> entry.value != null)
                    .iterator());
        };
    }

    private static byte[] time(long time) {
        return ByteBuffer.allocate(Long.BYTES).putLong(time).array();
    }

    private static Scan of(Iterator<KeyValue<byte[], byte[]>> entries) {
        return new Scan() {
            @Override
            public boolean hasNext() {
                return entries.hasNext();
            }

            @Override
            public KeyValue<byte[], byte[]> next() {
                return entries.next();
            }

            @Override
            public void close() {}
        };
    }
}
