package org.tamis.kafka;

import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.internals.metrics.StreamsMetricsImpl;
import org.apache.kafka.streams.processor.internals.metrics.TaskMetrics;
import org.apache.kafka.streams.query.MultiVersionedKeyQuery;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.query.ResultOrder;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.VersionedRecordIterator;
import org.apache.kafka.streams.state.internals.StoreQueryUtils;
import org.tamis.Options;
import org.tamis.Range;

/**
 * A persistent store that keeps the former values of its keys for a while.
 *
 * <p>What a key has now is in one keyspace, behind its time: a get is a get. What it had is in segments, by the time at which it ended:
 * intervals {@code [from, to)} with a value, or with none where the key was deleted. They do not overlap. Between the first known time and
 * the last there are no gaps, but after a delete that was the last write then: it is known as the end of the interval before, or, if
 * there is none, as an empty interval. So the interval that holds a time is the first that ends after it, if it begins early enough.
 *
 * <p>A segment is dropped once all that it holds ended longer ago than the history is retained.
 */
final class TamisVersionedStore extends TamisStore implements VersionedKeyValueStore<Bytes, byte[]> {
    private static final String LATEST = "latest";
    private static final long NOTHING_SEEN = -1;
    private static final byte DELETED = 0;
    private static final byte VALUE = 1;

    private final long retention;
    private final long segmentInterval;
    // What views of the store share.
    private final AtomicReference<Table> latest = new AtomicReference<>();
    private final AtomicReference<Segments> segments = new AtomicReference<>();
    private final AtomicLong streamTime = new AtomicLong(NOTHING_SEEN);
    private Sensor expired;

    TamisVersionedStore(String name, long retention, long segmentInterval) {
        super(name, SegmentedStore.PREFIXES);
        this.retention = retention;
        this.segmentInterval = segmentInterval;
    }

    /** What a key had for some time. */
    private static final class Interval {
        final long from;
        final long to;
        /** Null: it was deleted. */
        final byte[] value;

        Interval(long from, long to, byte[] value) {
            this.from = from;
            this.to = to;
            this.value = value;
        }

        static Interval of(KeyValue<byte[], byte[]> entry) {
            byte[] stored = entry.value;
            byte[] value = stored[0] == DELETED ? null : Arrays.copyOfRange(stored, 1, stored.length);
            return new Interval(KeyLayout.sessionStart(entry.key), KeyLayout.VERSION.segmentTime(entry.key), value);
        }

        byte[] storedValue() {
            if (value == null) {
                return new byte[] {DELETED};
            }
            return ByteBuffer.allocate(1 + value.length).put(VALUE).put(value).array();
        }

        VersionedRecord<byte[]> asRecord() {
            return value == null ? null : new VersionedRecord<>(value, from, to);
        }
    }

    @Override
    public void init(StateStoreContext context, StateStore root) {
        expired = TaskMetrics.droppedRecordsSensor(
                Thread.currentThread().getName(), context.taskId().toString(), (StreamsMetricsImpl) context.metrics());
        super.init(context, root);
    }

    @Override
    void opened(StoreDatabase database) {
        // Only gets ask it.
        Options options = database.keyspaceOptions().set("prefix_filter", "none").set("filter", "blocked-bloom");
        latest.set(database.table(database.get().keyspaceOrCreate(LATEST, options)));
        segments.set(new Segments(database, KeyLayout.VERSION, retention, segmentInterval, false));
    }

    @Override
    void closing() {
        segments.get().close();
    }

    /** Part of the interface since Kafka Streams 4.4. */
    public VersionedKeyValueStore<Bytes, byte[]> readOnly(IsolationLevel level) {
        return isolated(level);
    }

    private List<Segments.Segment> segmentsFrom(long time) {
        return segments.get().between(time, Long.MAX_VALUE, true, readsCommitted());
    }

    @Override
    boolean isHistory() {
        return true;
    }

    @Override
    boolean restore(ConsumerRecord<byte[], byte[]> record, Writes writes) {
        return put(writes, record.key(), record.value(), record.timestamp()) != PUT_RETURN_CODE_NOT_PUT;
    }

    @Override
    public long put(Bytes key, byte[] value, long timestamp) {
        byte[] bytes = SegmentedStore.notNull(key);
        database();
        long[] validTo = new long[1];
        write(() -> {
            try (Writes writes = storeDatabase().writes()) {
                validTo[0] = put(writes, bytes, value, timestamp);
            }
        });
        if (validTo[0] == PUT_RETURN_CODE_NOT_PUT) {
            expired.record();
        }
        return validTo[0];
    }

    @Override
    public VersionedRecord<byte[]> delete(Bytes key, long timestamp) {
        SegmentedStore.notNull(key);
        if (timestamp < oldest()) {
            database();
            expired.record();
            return null;
        }
        VersionedRecord<byte[]> before = get(key, timestamp);
        put(key, null, timestamp);
        return before;
    }

    /** The first time that the history goes back to. */
    private long oldest() {
        return streamTime.get() - retention;
    }

    private long put(Writes writes, byte[] key, byte[] value, long time) {
        if (time < oldest()) {
            return PUT_RETURN_CODE_NOT_PUT;
        }
        // One thread writes.
        streamTime.set(Math.max(streamTime.get(), time));
        long validTo = addVersion(writes, key, value, time);
        writes.apply();
        return validTo;
    }

    private long addVersion(Writes writes, byte[] key, byte[] value, long time) {
        VersionedRecord<byte[]> current = current(key);
        if (current == null || time >= current.timestamp()) {
            if (current != null && time > current.timestamp()) {
                add(writes, key, new Interval(current.timestamp(), time, current.value()));
            }
            Interval next = current == null ? firstEndingAfter(key, time) : null;
            if (next != null) {
                return insert(writes, key, value, time, next);
            }
            if (value != null) {
                writes.put(latest.get(), key, ByteBuffer.allocate(Long.BYTES + value.length).putLong(time).put(value).array());
            } else {
                writes.put(latest.get(), key, null);
                if (current == null || time == current.timestamp()) {
                    add(writes, key, new Interval(time, time, null));
                }
            }
            return PUT_RETURN_CODE_VALID_TO_UNDEFINED;
        }
        Interval next = firstEndingAfter(key, time);
        if (next != null) {
            return insert(writes, key, value, time, next);
        }
        add(writes, key, new Interval(time, current.timestamp(), value));
        return current.timestamp();
    }

    /** Inserts a version before another, or into it. Returns when it ends. */
    private long insert(Writes writes, byte[] key, byte[] value, long time, Interval next) {
        if (next.from > time) {
            add(writes, key, new Interval(time, next.from, value));
            return next.from;
        }
        if (next.from < time) {
            remove(writes, key, next);
            add(writes, key, new Interval(next.from, time, next.value));
        }
        add(writes, key, new Interval(time, next.to, value));
        return next.to;
    }

    private void add(Writes writes, byte[] key, Interval interval) {
        Segments.Segment segment = segments.get().liveAt(interval.to, streamTime.get());
        if (segment != null) {
            segments.get().put(writes, segment, KeyLayout.session(key, interval.from, interval.to), interval.storedValue());
        }
    }

    private void remove(Writes writes, byte[] key, Interval interval) {
        Segments.Segment segment = segments.get().at(interval.to);
        if (segment != null) {
            segments.get().put(writes, segment, KeyLayout.session(key, interval.from, interval.to), null);
        }
    }

    private VersionedRecord<byte[]> current(byte[] key) {
        byte[] stored = (readsCommitted() ? latest.get().committed() : latest.get()).get(key);
        return stored == null
                ? null
                : new VersionedRecord<>(
                        Arrays.copyOfRange(stored, Long.BYTES, stored.length), ByteBuffer.wrap(stored).getLong());
    }

    /** Returns the first interval of a key that ends after a time, or null if there is none. */
    private Interval firstEndingAfter(byte[] key, long time) {
        if (time == Long.MAX_VALUE) {
            return null;
        }
        Range range = endingAfter(key, time);
        for (Segments.Segment segment : segmentsFrom(time)) {
            Interval first = segment.read(entries -> {
                try (Scan scan = entries.items(range)) {
                    return scan.hasNext() ? Interval.of(scan.next()) : null;
                }
            });
            if (first != null) {
                return first;
            }
        }
        return null;
    }

    private static Range endingAfter(byte[] key, long time) {
        return Range.all()
                .from(KeyLayout.session(key, 0, time + 1))
                .through(KeyLayout.session(key, Long.MAX_VALUE, Long.MAX_VALUE));
    }

    @Override
    public VersionedRecord<byte[]> get(Bytes key) {
        byte[] bytes = SegmentedStore.notNull(key);
        database();
        return Errors.translated(name, "reading", () -> current(bytes));
    }

    @Override
    public VersionedRecord<byte[]> get(Bytes key, long asOf) {
        byte[] bytes = SegmentedStore.notNull(key);
        database();
        return Errors.translated(name, "reading", () -> {
            VersionedRecord<byte[]> current = current(bytes);
            if (current != null && current.timestamp() <= asOf) {
                return current;
            }
            if (asOf < oldest() || asOf < 0) {
                return null;
            }
            Interval found = firstEndingAfter(bytes, asOf);
            return found == null || found.from > asOf ? null : found.asRecord();
        });
    }

    /** The versions of a key that held at some time of a range, both ends included. */
    private List<VersionedRecord<byte[]>> versions(byte[] key, long from, long to, boolean ascending) {
        List<VersionedRecord<byte[]>> found = new ArrayList<>();
        if (to >= oldest() && from < Long.MAX_VALUE) {
            Range range = from < 0 ? Range.all().prefix(KeyLayout.prefix(key)) : endingAfter(key, from);
            for (Segments.Segment segment : segmentsFrom(Math.max(from, 0))) {
                segment.read(entries -> {
                    try (Scan scan = entries.items(range)) {
                        scan.forEachRemaining(entry -> {
                            Interval interval = Interval.of(entry);
                            if (interval.from <= to && interval.value != null) {
                                found.add(interval.asRecord());
                            }
                        });
                    }
                    return null;
                });
            }
        }
        VersionedRecord<byte[]> current = current(key);
        if (current != null && current.timestamp() <= to) {
            found.add(current);
        }
        if (!ascending) {
            Collections.reverse(found);
        }
        return found;
    }

    @Override
    @SuppressWarnings("unchecked")
    public <R> QueryResult<R> query(Query<R> query, PositionBound bound, QueryConfig config) {
        // Kafka's handler casts the store to its own.
        if (!(query instanceof MultiVersionedKeyQuery)) {
            return super.query(query, bound, config);
        }
        long begun = System.nanoTime();
        TamisVersionedStore seen = isolated(levelOf(config));
        MultiVersionedKeyQuery<Bytes, byte[]> asked = (MultiVersionedKeyQuery<Bytes, byte[]>) query;
        QueryResult<R> result;
        synchronized (position) {
            int partition = context().taskId().partition();
            if (StoreQueryUtils.isPermitted(seen.position, bound, partition)) {
                long from = asked.fromTime().map(Instant::toEpochMilli).orElse(Long.MIN_VALUE);
                long to = asked.toTime().map(Instant::toEpochMilli).orElse(Long.MAX_VALUE);
                database();
                List<VersionedRecord<byte[]>> found = Errors.translated(name, "reading", () ->
                        seen.versions(asked.key().get(), from, to, asked.resultOrder() == ResultOrder.ASCENDING));
                result = (QueryResult<R>) QueryResult.forResult(new Versions(found.iterator()));
            } else {
                result = QueryResult.notUpToBound(seen.position, bound, partition);
            }
            result.setPosition(seen.position.copy());
        }
        if (config.isCollectExecutionInfo()) {
            result.addExecutionInfo("Handled in " + getClass() + " in " + (System.nanoTime() - begun) + "ns");
        }
        return result;
    }

    private static final class Versions implements VersionedRecordIterator<byte[]> {
        private final Iterator<VersionedRecord<byte[]>> versions;

        Versions(Iterator<VersionedRecord<byte[]>> versions) {
            this.versions = versions;
        }

        @Override
        public boolean hasNext() {
            return versions.hasNext();
        }

        @Override
        public VersionedRecord<byte[]> next() {
            return versions.next();
        }

        @Override
        public void close() {}
    }
}
