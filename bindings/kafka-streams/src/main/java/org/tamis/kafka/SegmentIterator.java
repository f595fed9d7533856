package org.tamis.kafka;

import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.function.Function;
import java.util.function.Predicate;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.tamis.ClosedException;
import org.tamis.TamisException;

/**
 * Entries of one segment after the other. A segment is looked into when the iterator comes to it, as in Kafka's own stores; one that
 * has expired meanwhile is passed over, and after the store is closed there is nothing more.
 *
 * @param <K> what callers have as keys
 */
class SegmentIterator<K> implements KeyValueIterator<K, byte[]> {
    /** What is read, and how. */
    static final class Plan {
        final String store;
        final List<Segments.Segment> segments;
        final Scan.Source source;
        final Predicate<byte[]> wanted;

        Plan(String store, List<Segments.Segment> segments, Scan.Source source, Predicate<byte[]> wanted) {
            this.store = store;
            this.segments = segments;
            this.source = source;
            this.wanted = wanted;
        }
    }

    private final Plan plan;
    private final Function<byte[], K> keyOf;
    private final Iterator<Segments.Segment> remaining;
    /** The segment that is being read, or null. */
    private Scan scan;
    private KeyValue<byte[], byte[]> next;
    private boolean closed;

    SegmentIterator(Plan plan, Function<byte[], K> keyOf) {
        this.plan = plan;
        this.keyOf = keyOf;
        remaining = plan.segments.iterator();
    }

    @Override
    public synchronized boolean hasNext() {
        while (next == null && !closed && advance()) {
            // Until there is an entry.
        }
        return next != null && !closed && isOpen();
    }

    /** What was found before the store was closed is not returned any more. */
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
            if (scan == null) {
                if (!remaining.hasNext()) {
                    return false;
                }
                Segments.Segment segment = remaining.next();
                if (segment.isLive()) {
                    scan = plan.source.of(segment);
                }
            } else if (scan.hasNext()) {
                KeyValue<byte[], byte[]> entry = scan.next();
                if (plan.wanted.test(entry.key)) {
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

    private void leave() {
        if (scan != null) {
            scan.close();
            scan = null;
        }
    }

    @Override
    public synchronized K peekNextKey() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        return keyOf.apply(next.key);
    }

    @Override
    public synchronized KeyValue<K, byte[]> next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        KeyValue<byte[], byte[]> entry = next;
        next = null;
        return KeyValue.pair(keyOf.apply(entry.key), entry.value);
    }

    @Override
    public synchronized void close() {
        closed = true;
        next = null;
        leave();
    }
}
