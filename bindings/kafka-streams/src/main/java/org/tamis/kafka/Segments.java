package org.tamis.kafka;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.NavigableMap;
import java.util.concurrent.ConcurrentNavigableMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.tamis.ClosedException;
import org.tamis.Cursor;
import org.tamis.Database;
import org.tamis.Entry;
import org.tamis.Keyspace;
import org.tamis.Options;
import org.tamis.Range;
import org.tamis.WriteBatch;

/**
 * The keyspaces of a store's database that hold the entries of one interval of time each. What is older than the retention is dropped with
 * its keyspace: without a write per entry, and without a compaction.
 *
 * <p>The intervals, and which of them are kept, are those of Kafka's own stores: caches above a store rely on entries being ordered by
 * interval first. The default keyspace records the layout and the interval; if the application is started with another retention,
 * the entries move to the new intervals when the store is opened.
 *
 * <p>A store that is asked for what lies in short ranges of time has a second keyspace for each segment: its keys are those of the
 * entries behind their times, and its values are empty. Where a store gets such an index later, it is built at opening.
 */
final class Segments {
    private static final Logger LOG = LoggerFactory.getLogger(Segments.class);
    private static final String PREFIX = "segment.";
    /** Segments of another interval, whose entries have to move. */
    private static final String OLD_PREFIX = "old-segment.";
    private static final String TIMES_PREFIX = "times.";
    /** Indexes that are not complete. */
    private static final String BUILT_PREFIX = "built-times.";
    private static final byte[] FORMAT_KEY = {'f', 'o', 'r', 'm', 'a', 't'};
    private static final byte FORMAT_VERSION = 1;
    private static final int MOVED_AT_ONCE = 1000;
    private static final byte[] NOTHING = {};

    private final StoreDatabase store;
    private final Database database;
    private final Options options;
    private final KeyLayout layout;
    private final long retention;
    private final long interval;
    private final boolean indexed;
    private final ConcurrentNavigableMap<Long, Segment> segments = new ConcurrentSkipListMap<>();
    /** Segments that have expired, to be dropped with the next commit. */
    private final List<Segment> expired = new ArrayList<>();

    /** One of them. */
    static final class Segment {
        final Table entries;
        /** The index by time, or null. */
        final Table times;
        private final ConcurrentNavigableMap<Long, Segment> segments;
        private final long id;

        private Segment(Table entries, Table times, ConcurrentNavigableMap<Long, Segment> segments, long id) {
            this.entries = entries;
            this.times = times;
            this.segments = segments;
            this.id = id;
        }

        /** The same segment without what is staged. */
        Segment committed() {
            return new Segment(entries.committed(), times == null ? null : times.committed(), segments, id);
        }

        /** Whether it has not expired, and the store is open. */
        boolean isLive() {
            Segment live = segments.get(id);
            return live != null && live.entries.keyspace == entries.keyspace;
        }

        /** Reads something of it: nothing is in a segment that is dropped meanwhile. */
        <T> T read(Function<Table, T> reading) {
            try {
                return reading.apply(entries);
            } catch (ClosedException error) {
                if (isLive() || segments.isEmpty()) {
                    throw error;
                }
                return null;
            }
        }
    }

    /** Finds the segments of a database, or makes it one of this layout if it is new. */
    Segments(StoreDatabase store, KeyLayout layout, long retention, long interval, boolean indexed) {
        this.store = store;
        database = store.get();
        options = store.keyspaceOptions();
        this.layout = layout;
        this.retention = retention;
        this.interval = interval;
        this.indexed = indexed;
        ByteBuffer format = ByteBuffer.allocate(2 + Long.BYTES)
                .put(FORMAT_VERSION).put((byte) layout.ordinal()).putLong(interval);
        byte[] stored = database.get(FORMAT_KEY);
        if (stored == null) {
            database.put(FORMAT_KEY, format.array());
        } else if (stored.length != format.capacity() || stored[0] != format.get(0) || stored[1] != format.get(1)) {
            throw new ProcessorStateException("The directory holds another kind of store than " + layout
                    + ", or one of a newer version. Delete it, and the store is restored.");
        } else if (ByteBuffer.wrap(stored).getLong(2) != interval) {
            for (String name : names(PREFIX)) {
                database.renameKeyspace(name, OLD_PREFIX + name.substring(PREFIX.length()));
            }
            database.put(FORMAT_KEY, format.array());
        }
        List<String> old = names(OLD_PREFIX);
        names(BUILT_PREFIX).forEach(database::dropKeyspace);
        if (!indexed || !old.isEmpty()) {
            names(TIMES_PREFIX).forEach(database::dropKeyspace);
        }
        old.forEach(this::move);
        List<String> times = names(TIMES_PREFIX);
        for (String name : names(PREFIX)) {
            String start = name.substring(PREFIX.length());
            Keyspace entries = database.keyspace(name);
            if (indexed && !times.remove(TIMES_PREFIX + start)) {
                index(entries, start);
            }
            add(id(Long.parseLong(start)), entries, indexed ? database.keyspace(TIMES_PREFIX + start) : null);
        }
        // Those of segments that were dropped.
        times.forEach(database::dropKeyspace);
        store.segments(this);
    }

    private List<String> names(String prefix) {
        return database.keyspaces().stream().filter(name -> name.startsWith(prefix)).collect(Collectors.toList());
    }

    /** Moves the entries of a segment of another interval. Doing it again after a crash does no harm. */
    private void move(String old) {
        LOG.info("moving the entries of {} to segments of {} ms", old, interval);
        try (Keyspace from = database.keyspace(old); Cursor entries = from.items(Range.all()); WriteBatch batch = new WriteBatch()) {
            while (entries.hasNext()) {
                Entry entry = entries.next();
                long id = id(layout.segmentTime(entry.key()));
                batch.put(database.keyspaceOrCreate(PREFIX + id * interval, options), entry.key(), entry.value());
                if (batch.size() == MOVED_AT_ONCE || !entries.hasNext()) {
                    database.write(batch);
                    batch.clear();
                }
            }
        }
        database.dropKeyspace(old);
    }

    /** Builds the index by time of a segment that has none. */
    private void index(Keyspace entries, String start) {
        LOG.info("indexing {} by time", entries.name());
        try (Keyspace times = database.createKeyspace(BUILT_PREFIX + start, new Options());
                Cursor keys = entries.keys(Range.all());
                WriteBatch batch = new WriteBatch()) {
            while (keys.hasNext()) {
                batch.put(times, layout.timeKey(keys.next().key()), NOTHING);
                if (batch.size() == MOVED_AT_ONCE || !keys.hasNext()) {
                    database.write(batch);
                    batch.clear();
                }
            }
        }
        database.renameKeyspace(BUILT_PREFIX + start, TIMES_PREFIX + start);
    }

    private Segment add(long id, Keyspace entries, Keyspace times) {
        Segment segment = new Segment(store.table(entries), times == null ? null : store.table(times), segments, id);
        segments.put(id, segment);
        return segment;
    }

    private Segment getOrCreate(long id) {
        Segment segment = segments.get(id);
        if (segment != null) {
            return segment;
        }
        Keyspace times = indexed ? database.keyspaceOrCreate(TIMES_PREFIX + id * interval, new Options()) : null;
        return add(id, database.keyspaceOrCreate(PREFIX + id * interval, options), times);
    }

    private long id(long time) {
        return time / interval;
    }

    /** Returns the segment of a time, or null if there is none. */
    Segment at(long time) {
        return segments.get(id(time));
    }

    /**
     * Returns the segment of a time, created if need be, or null if the time has expired. Nothing is found any more in segments that have
     * expired; they are dropped, if what has made them expire is committed.
     */
    Segment liveAt(long time, long streamTime) {
        long oldest = id(streamTime - retention);
        if (id(time) < oldest) {
            return null;
        }
        Segment segment = getOrCreate(id(time));
        while (segments.firstKey() < oldest) {
            expired.add(segments.pollFirstEntry().getValue());
        }
        if (store.staging() == null) {
            dropExpired();
        }
        return segment;
    }

    /** Drops the segments that have expired. */
    void dropExpired() {
        forgetExpired();
        for (Segment segment : expired) {
            LOG.debug("dropping the segment from {} on", segment.id * interval);
            database.dropKeyspace(PREFIX + segment.id * interval);
            if (indexed) {
                database.dropKeyspace(TIMES_PREFIX + segment.id * interval);
            }
        }
        expired.clear();
    }

    /** Forgets what is staged for segments that have expired. */
    void forgetExpired() {
        for (Segment segment : expired) {
            store.forget(segment.entries);
            if (indexed) {
                store.forget(segment.times);
            }
        }
    }

    /** Adds the write of an entry to others, or its delete if the value is null. */
    void put(Writes writes, Segment segment, byte[] stored, byte[] value) {
        writes.put(segment.entries, stored, value);
        if (indexed) {
            writes.put(segment.times, layout.timeKey(stored), value == null ? null : NOTHING);
        }
    }

    /** Writes an entry, or deletes it if the value is null. */
    void put(Segment segment, byte[] stored, byte[] value) {
        if (!indexed) {
            segment.entries.put(stored, value);
            return;
        }
        try (Writes writes = store.writes()) {
            put(writes, segment, stored, value);
            writes.apply();
        }
    }

    /**
     * The segments that may hold times of a range, in the order in which a read goes through them.
     *
     * @param committed without what is staged
     */
    List<Segment> between(long from, long to, boolean forward, boolean committed) {
        if (id(from) > id(to)) {
            return List.of();
        }
        NavigableMap<Long, Segment> found = segments.subMap(id(from), true, id(to), true);
        List<Segment> wanted = new ArrayList<>();
        for (Segment segment : (forward ? found : found.descendingMap()).values()) {
            wanted.add(committed ? segment.committed() : segment);
        }
        return wanted;
    }

    /** The starts of all segments, in order. */
    List<Long> starts() {
        return segments.keySet().stream().map(id -> id * interval).collect(Collectors.toList());
    }

    /** Nothing is found in them any more. */
    void close() {
        segments.clear();
    }
}
