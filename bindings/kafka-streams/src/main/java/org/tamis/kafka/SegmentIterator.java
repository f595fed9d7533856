package org.tamis.kafka;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.function.Function;
import java.util.function.Predicate;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.tamis.ClosedException;
import org.tamis.Cursor;
import org.tamis.Entry;
import org.tamis.Range;
import org.tamis.TamisException;

/**
 * The entries of a range in one segment after the other. A segment is looked into when the iterator comes to it, as in Kafka's own
 * stores; one that has expired meanwhile is passed over, and after the store is closed there is nothing more.
 *
 * @param <K> what callers have as keys
 */
class SegmentIterator<K> implements KeyValueIterator<K, byte[]> {
    /** What is read, and how. */
    static final class Plan {
        final String store;
        final List<Segments.Segment> segments;
        final Range range;
        final Predicate<byte[]> wanted;
        /** The order within a segment if it is not that of the stored keys, or null. */
        final Comparator<Entry> order;

        Plan(String store, List<Segments.Segment> segments, Range range, Predicate<byte[]> wanted, Comparator<Entry> order) {
            this.store = store;
            this.segments = segments;
            this.range = range;
            this.wanted = wanted;
            this.order = order;
        }
    }

    private final Plan plan;
    private final Function<byte[], K> keyOf;
    private final Iterator<Segments.Segment> remaining;
    private Cursor cursor;
    private Iterator<Entry> entries;
    private Entry next;
    private boolean closed;

    SegmentIterator(Plan plan, Function<byte[], K> keyOf) {
        this.plan = plan;
        this.keyOf = keyOf;
        remaining = plan.segments.iterator();
    }

    /** The comparator for a layout's order in the changelog. */
    static Comparator<Entry> changelogOrder(KeyLayout layout, boolean forward) {
        Comparator<Entry> order = (a, b) ->
                Arrays.compareUnsigned(layout.toChangelog(a.key()), layout.toChangelog(b.key()));
        return forward ? order : order.reversed();
    }

    @Override
    public synchronized boolean hasNext() {
        while (next == null && !closed && advance()) {
            // Until there is an entry.
        }
        return next != null && !closed && isOpen();
    }

    /** Whether what was found before a close is still to be returned: no. */
    private boolean isOpen() {
        for (Segments.Segment segment : plan.segments) {
            if (segment.isLive()) {
                return true;
            }
        }
        return false;
    }

    /** Does one step. Reports whether there may be more. */
    private boolean advance() {
        try {
            if (entries == null) {
                if (!remaining.hasNext()) {
                    return false;
                }
                Segments.Segment segment = remaining.next();
                if (segment.isLive()) {
                    open(segment);
                }
            } else if (entries.hasNext()) {
                Entry entry = entries.next();
                if (plan.wanted.test(entry.key())) {
                    next = entry;
                }
            } else {
                leave();
            }
        } catch (ClosedException expired) {
            leave();
        } catch (TamisException error) {
            throw Errors.translated(plan.store, "iterating", error);
        }
        return true;
    }

    private void open(Segments.Segment segment) {
        cursor = segment.entries.items(plan.range);
        entries = plan.order == null ? cursor : sorted();
    }

    private Iterator<Entry> sorted() {
        List<Entry> found = new ArrayList<>();
        while (cursor.hasNext()) {
            Entry entry = cursor.next();
            if (plan.wanted.test(entry.key())) {
                found.add(entry);
            }
        }
        found.sort(plan.order);
        return found.iterator();
    }

    private void leave() {
        entries = null;
        if (cursor != null) {
            cursor.close();
            cursor = null;
        }
    }

    @Override
    public synchronized K peekNextKey() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        return keyOf.apply(next.key());
    }

    @Override
    public synchronized KeyValue<K, byte[]> next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        Entry entry = next;
        next = null;
        return KeyValue.pair(keyOf.apply(entry.key()), entry.value());
    }

    @Override
    public synchronized void close() {
        closed = true;
        next = null;
        leave();
    }
}
