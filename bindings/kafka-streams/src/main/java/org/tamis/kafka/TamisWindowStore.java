package org.tamis.kafka;

import java.util.function.Predicate;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.TimeWindow;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.ReadOnlyWindowStore;
import org.apache.kafka.streams.state.TimestampedBytesStore;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;
import org.tamis.Range;

/** A persistent window store. Keys hold up to 32 KiB, of most bytes up to 64 KiB. */
class TamisWindowStore extends SegmentedStore implements WindowStore<Bytes, byte[]> {
    private static final int LAST_SEQUENCE = Integer.MAX_VALUE;

    private final long windowSize;
    private final boolean retainDuplicates;
    /** Tells apart entries of the same key and window, if duplicates are retained. As in Kafka's own stores it begins anew at every start. */
    private int sequence;

    TamisWindowStore(
            String name, long retention, long segmentInterval, long windowSize, boolean retainDuplicates, boolean indexed) {
        super(name, KeyLayout.WINDOW, retention, segmentInterval, indexed);
        this.windowSize = windowSize;
        this.retainDuplicates = retainDuplicates;
    }

    /** A store whose values begin with their timestamp. Kafka Streams writes and reads it; the store does not. */
    static final class Timestamped extends TamisWindowStore implements TimestampedBytesStore {
        Timestamped(
                String name, long retention, long segmentInterval, long windowSize, boolean retainDuplicates, boolean indexed) {
            super(name, retention, segmentInterval, windowSize, retainDuplicates, indexed);
        }

        @Override
        String format() {
            return "timestamped values";
        }
    }

    /** Part of the interface since Kafka Streams 4.4. */
    public ReadOnlyWindowStore<Bytes, byte[]> readOnly(IsolationLevel level) {
        return isolated(level);
    }

    @Override
    public void put(Bytes key, byte[] value, long windowStart) {
        byte[] bytes = notNull(key);
        if (retainDuplicates) {
            if (value == null) {
                // Which of the duplicates to delete?
                return;
            }
            sequence = (sequence + 1) & LAST_SEQUENCE;
        }
        put(bytes, KeyLayout.window(bytes, windowStart, sequence), value);
    }

    @Override
    public byte[] fetch(Bytes key, long windowStart) {
        return get(KeyLayout.window(notNull(key), windowStart, sequence));
    }

    @Override
    public WindowStoreIterator<byte[]> fetch(Bytes key, long from, long to) {
        return values(key, from, to, true);
    }

    @Override
    public WindowStoreIterator<byte[]> backwardFetch(Bytes key, long from, long to) {
        return values(key, from, to, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes keyFrom, Bytes keyTo, long from, long to) {
        return entries(keyFrom, keyTo, from, to, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes keyFrom, Bytes keyTo, long from, long to) {
        return entries(keyFrom, keyTo, from, to, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> all() {
        return entries(null, null, 0, Long.MAX_VALUE, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardAll() {
        return entries(null, null, 0, Long.MAX_VALUE, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetchAll(long from, long to) {
        return isIndexed() ? indexed(from, to, true) : entries(null, null, from, to, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetchAll(long from, long to) {
        return isIndexed() ? indexed(from, to, false) : entries(null, null, from, to, false);
    }

    /** With an index, a window expires a millisecond later: when it is closed, it is emitted first. So do Kafka's own stores. */
    @Override
    long oldest() {
        return super.oldest() - (isIndexed() ? 1 : 0);
    }

    private WindowStoreIterator<byte[]> values(Bytes key, long from, long to, boolean forward) {
        byte[] bytes = notNull(key);
        long first = Math.max(Math.max(from, oldest()), 0);
        Range range = Range.all()
                .from(KeyLayout.window(bytes, first, 0))
                .through(KeyLayout.window(bytes, Math.max(first, to), LAST_SEQUENCE));
        return new Values(plan(first, to, range, entry -> true, forward));
    }

    private KeyValueIterator<Windowed<Bytes>, byte[]> entries(Bytes keyFrom, Bytes keyTo, long from, long to, boolean forward) {
        long first = Math.max(Math.max(from, oldest()), 0);
        Predicate<byte[]> wanted = stored -> {
            long time = KeyLayout.WINDOW.segmentTime(stored);
            return first <= time && time <= to;
        };
        return new SegmentIterator<>(plan(keyFrom, keyTo, first, to, wanted, forward), this::windowed);
    }

    private KeyValueIterator<Windowed<Bytes>, byte[]> indexed(long from, long to, boolean forward) {
        long first = Math.max(Math.max(from, oldest()), 0);
        return new SegmentIterator<>(plan(first, to, forward), this::windowed);
    }

    private Windowed<Bytes> windowed(byte[] stored) {
        long start = KeyLayout.WINDOW.segmentTime(stored);
        long end = start + windowSize;
        return new Windowed<>(
                Bytes.wrap(KeyLayout.WINDOW.key(stored)), new TimeWindow(start, end < start ? Long.MAX_VALUE : end));
    }

    /** The windows of one key, each by its start. */
    private static final class Values extends SegmentIterator<Long> implements WindowStoreIterator<byte[]> {
        Values(Plan plan) {
            super(plan, KeyLayout.WINDOW::segmentTime);
        }
    }
}
