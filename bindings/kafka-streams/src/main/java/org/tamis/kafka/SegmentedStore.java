package org.tamis.kafka;

import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Predicate;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.internals.metrics.StreamsMetricsImpl;
import org.apache.kafka.streams.processor.internals.metrics.TaskMetrics;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.tamis.Range;

/**
 * A store of entries that have a key and a time, and expire: once the latest time written is more than the retention beyond theirs, reads do
 * not find them, and once a whole segment has expired it is dropped.
 *
 * <p>A read of one key is a scan of one prefix in each segment that its times touch. The filter of the segment knows the prefixes that
 * there are, so a key that the segment lacks costs one digest and no block.
 */
abstract class SegmentedStore extends TamisStore {
    private static final Logger LOG = LoggerFactory.getLogger(SegmentedStore.class);

    /** Of stores whose keys have prefixes that reads ask for. */
    static final Map<String, String> PREFIXES = Map.of("filter", "grf", "prefix_filter", KeyLayout.PREFIX_FILTER);

    private static final long NOTHING_SEEN = -1;

    private final KeyLayout layout;
    private final long retention;
    private final long segmentInterval;
    private final boolean indexed;

    // What views of the store share.
    private final AtomicReference<Segments> segments = new AtomicReference<>();
    private final AtomicReference<KeyOrder> order = new AtomicReference<>();
    private final AtomicLong streamTime = new AtomicLong(NOTHING_SEEN);
    private Sensor expired;

    SegmentedStore(String name, KeyLayout layout, long retention, long segmentInterval, boolean indexed) {
        super(name, PREFIXES);
        this.layout = layout;
        this.retention = retention;
        this.segmentInterval = segmentInterval;
        this.indexed = indexed;
    }

    @Override
    public void init(StateStoreContext context, StateStore root) {
        expired = TaskMetrics.droppedRecordsSensor(
                Thread.currentThread().getName(), context.taskId().toString(), (StreamsMetricsImpl) context.metrics());
        super.init(context, root);
    }

    @Override
    void opened(StoreDatabase database) {
        order.set(new KeyOrder(database.get()));
        segments.set(new Segments(database, layout, retention, segmentInterval, indexed));
    }

    @Override
    void closing() {
        segments.get().close();
    }

    /** The starts of the segments that there are. */
    List<Long> segmentStarts() {
        return segments.get().starts();
    }

    @Override
    void restoring(Collection<ConsumerRecord<byte[], byte[]>> records) {
        for (ConsumerRecord<byte[], byte[]> record : records) {
            seen(layout.segmentTime(layout.fromChangelog(record.key())));
        }
    }

    @Override
    boolean restore(ConsumerRecord<byte[], byte[]> record, Writes writes) {
        byte[] stored = layout.fromChangelog(record.key());
        long time = layout.segmentTime(stored);
        Segments.Segment segment = segments.get().liveAt(time, streamTime.get());
        if (segment == null) {
            return false;
        }
        order.get().note(record.key(), record.key().length - layout.suffixLength(), time);
        segments.get().put(writes, segment, stored, record.value());
        return true;
    }

    private void seen(long time) {
        // One thread writes.
        if (time > streamTime.get()) {
            streamTime.set(time);
        }
    }

    /** Writes an entry, or deletes it if the value is null. One that has expired is dropped, and counted. */
    final void put(byte[] key, byte[] stored, byte[] value) {
        database();
        long time = layout.segmentTime(stored);
        seen(time);
        // It may drop segments.
        beforeWrite();
        Segments.Segment segment = Errors.translated(name, "writing", () -> segments.get().liveAt(time, streamTime.get()));
        if (segment == null) {
            expired.record();
            return;
        }
        write(() -> {
            order.get().note(key, key.length, time);
            segments.get().put(segment, stored, value);
        });
    }

    /** Deletes an entry, of an expired segment, too: then there is none. */
    final void remove(byte[] stored) {
        database();
        long time = layout.segmentTime(stored);
        seen(time);
        Segments.Segment segment = segments.get().at(time);
        if (segment != null) {
            write(() -> segments.get().put(segment, stored, null));
        }
    }

    /** Returns a value, or null if there is none that has not expired. */
    final byte[] get(byte[] stored) {
        database();
        long time = layout.segmentTime(stored);
        Segments.Segment found = time < oldest() ? null : segments.get().at(time);
        Segments.Segment segment = found != null && readsCommitted() ? found.committed() : found;
        return segment == null ? null : Errors.translated(name, "reading", () -> segment.read(entries -> entries.get(stored)));
    }

    /** The first time that has not expired. */
    long oldest() {
        return streamTime.get() - retention + 1;
    }

    /** Whether there is an index by time. */
    final boolean isIndexed() {
        return indexed;
    }

    /** A plan to read a range of one key: stored keys are in the order that callers expect. */
    final SegmentIterator.Plan plan(long from, long to, Range range, Predicate<byte[]> wanted, boolean forward) {
        return plan(from, to, Scan.range(forward ? range : range.reverse()), wanted, forward);
    }

    /** A plan to read what the index by time has from one time up to another, in the order of the entries. */
    final SegmentIterator.Plan plan(long from, long to, boolean forward) {
        Comparator<byte[]> ascending = order.get().isChangelogs() ? Arrays::compareUnsigned : layout.changelogOrder();
        return plan(from, to, Scan.times(from, to, forward ? ascending : ascending.reversed()), stored -> true, forward);
    }

    /** A plan to read several keys. */
    final SegmentIterator.Plan plan(
            Bytes keyFrom, Bytes keyTo, long from, long to, Predicate<byte[]> wanted, boolean forward) {
        if (EmptyRange.is(keyFrom, keyTo)) {
            EmptyRange.warned(keyFrom, keyTo).close();
            return new SegmentIterator.Plan(name, List.of(), Scan.range(Range.all()), wanted);
        }
        Range range = keyFrom == null ? Range.all() : Range.all().from(KeyLayout.start(keyFrom.get()));
        if (keyTo != null) {
            // All entries of the last key, and nothing after them: the terminator is the smallest byte.
            byte[] end = KeyLayout.prefix(keyTo.get());
            end[end.length - 1]++;
            range = range.to(end);
        }
        if (order.get().isChangelogs()) {
            return plan(from, to, range, wanted, forward);
        }
        Comparator<byte[]> ascending = layout.changelogOrder();
        return plan(from, to, Scan.sorted(range, wanted, forward ? ascending : ascending.reversed()), wanted, forward);
    }

    private SegmentIterator.Plan plan(
            long from, long to, Scan.Source source, Predicate<byte[]> wanted, boolean forward) {
        if (from > to) {
            LOG.debug("{}: all from {} to {} has expired", name, from, to);
        }
        List<Segments.Segment> found =
                from > to ? List.of() : segments.get().between(from, to, forward, readsCommitted());
        return new SegmentIterator.Plan(name, found, source, wanted);
    }

    static byte[] notNull(Bytes key) {
        return Objects.requireNonNull(key, "key cannot be null").get();
    }
}
