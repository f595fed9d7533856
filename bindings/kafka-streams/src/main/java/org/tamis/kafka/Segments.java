package org.tamis.kafka;

import java.nio.ByteBuffer;
import java.util.List;
import java.util.NavigableMap;
import java.util.concurrent.ConcurrentNavigableMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.stream.Collectors;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
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
 */
final class Segments {
    private static final Logger LOG = LoggerFactory.getLogger(Segments.class);
    private static final String PREFIX = "segment.";
    /** Segments of another interval, whose entries have to move. */
    private static final String OLD_PREFIX = "old-segment.";
    private static final byte[] FORMAT_KEY = {'f', 'o', 'r', 'm', 'a', 't'};
    private static final byte FORMAT_VERSION = 1;
    private static final int MOVED_AT_ONCE = 1000;

    private final Database database;
    private final Options options;
    private final KeyLayout layout;
    private final long retention;
    private final long interval;
    private final ConcurrentNavigableMap<Long, Segment> segments = new ConcurrentSkipListMap<>();

    /** One of them. */
    static final class Segment {
        final Keyspace entries;
        private final ConcurrentNavigableMap<Long, Segment> segments;
        private final long id;

        private Segment(Keyspace entries, ConcurrentNavigableMap<Long, Segment> segments, long id) {
            this.entries = entries;
            this.segments = segments;
            this.id = id;
        }

        /** Whether it has not expired, and the store is open. */
        boolean isLive() {
            return segments.get(id) == this;
        }
    }

    /** Finds the segments of a database, or makes it one of this layout if it is new. */
    Segments(StoreDatabase store, KeyLayout layout, long retention, long interval) {
        database = store.get();
        options = store.keyspaceOptions();
        this.layout = layout;
        this.retention = retention;
        this.interval = interval;
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
        for (String name : names(PREFIX)) {
            add(id(Long.parseLong(name.substring(PREFIX.length()))), database.keyspace(name));
        }
        names(OLD_PREFIX).forEach(this::move);
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
                batch.put(getOrCreate(id(layout.segmentTime(entry.key()))).entries, entry.key(), entry.value());
                if (batch.size() == MOVED_AT_ONCE || !entries.hasNext()) {
                    database.write(batch);
                    batch.clear();
                }
            }
        }
        database.dropKeyspace(old);
    }

    private Segment add(long id, Keyspace entries) {
        Segment segment = new Segment(entries, segments, id);
        segments.put(id, segment);
        return segment;
    }

    private Segment getOrCreate(long id) {
        Segment segment = segments.get(id);
        return segment != null ? segment : add(id, database.keyspaceOrCreate(name(id), options));
    }

    private long id(long time) {
        return time / interval;
    }

    private String name(long id) {
        return PREFIX + id * interval;
    }

    /** Returns the segment of a time, or null if there is none. */
    Segment at(long time) {
        return segments.get(id(time));
    }

    /** Returns the segment of a time, created if need be, or null if the time has expired. Drops segments that have expired. */
    Segment liveAt(long time, long streamTime) {
        long oldest = id(streamTime - retention);
        if (id(time) < oldest) {
            return null;
        }
        Segment segment = getOrCreate(id(time));
        while (segments.firstKey() < oldest) {
            long expired = segments.pollFirstEntry().getKey();
            LOG.debug("dropping {}", name(expired));
            database.dropKeyspace(name(expired));
        }
        return segment;
    }

    /** The segments that may hold times of a range, in the order in which a read goes through them. */
    List<Segment> between(long from, long to, boolean forward) {
        if (id(from) > id(to)) {
            return List.of();
        }
        NavigableMap<Long, Segment> found = segments.subMap(id(from), true, id(to), true);
        return List.copyOf((forward ? found : found.descendingMap()).values());
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
