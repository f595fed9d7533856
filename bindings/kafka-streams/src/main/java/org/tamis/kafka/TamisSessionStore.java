package org.tamis.kafka;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.function.Predicate;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.ReadOnlySessionStore;
import org.apache.kafka.streams.state.SessionStore;
import org.tamis.Range;

/** A persistent session store. Keys hold up to 32 KiB, of most bytes up to 64 KiB. */
class TamisSessionStore extends SegmentedStore implements SessionStore<Bytes, byte[]> {
    TamisSessionStore(String name, long retention, long segmentInterval, boolean indexed) {
        super(name, KeyLayout.SESSION, retention, segmentInterval, indexed);
    }

    /** Part of the interface since Kafka Streams 4.4. */
    public ReadOnlySessionStore<Bytes, byte[]> readOnly(IsolationLevel level) {
        return isolated(level);
    }

    @Override
    public void put(Windowed<Bytes> session, byte[] aggregate) {
        byte[] key = notNull(session.key());
        put(key, KeyLayout.session(key, session.window().start(), session.window().end()), aggregate);
    }

    @Override
    public void remove(Windowed<Bytes> session) {
        remove(KeyLayout.session(notNull(session.key()), session.window().start(), session.window().end()));
    }

    @Override
    public byte[] fetchSession(Bytes key, long start, long end) {
        return get(KeyLayout.session(notNull(key), start, end));
    }

    /**
     * The sessions that end within a range of time, in the order of their ends. Without an index, reads all that end in its segments.
     *
     * <p>Those that have expired are among them until their segment is dropped: Kafka Streams asks so for what to emit when sessions are
     * closed, and that is when they expire.
     */
    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(long earliestEnd, long latestEnd) {
        long first = Math.max(earliestEnd, 0);
        Predicate<byte[]> wanted = stored -> {
            long end = KeyLayout.SESSION.segmentTime(stored);
            return first <= end && end <= latestEnd;
        };
        List<KeyValue<Windowed<Bytes>, byte[]>> found = new ArrayList<>();
        SegmentIterator.Plan plan =
                isIndexed() ? plan(first, latestEnd, true) : plan(null, null, first, latestEnd, wanted, true);
        try (KeyValueIterator<Windowed<Bytes>, byte[]> sessions = new SegmentIterator<>(plan, TamisSessionStore::windowed)) {
            sessions.forEachRemaining(found::add);
        }
        // Stable: sessions that end together stay in the order of keys and starts.
        found.sort(Comparator.comparingLong(session -> session.key.window().end()));
        return new ListIterator<>(found);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(Bytes key, long earliestEnd, long latestStart) {
        return sessions(key, earliestEnd, latestStart, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFindSessions(Bytes key, long earliestEnd, long latestStart) {
        return sessions(key, earliestEnd, latestStart, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(
            Bytes keyFrom, Bytes keyTo, long earliestEnd, long latestStart) {
        return sessions(keyFrom, keyTo, earliestEnd, latestStart, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFindSessions(
            Bytes keyFrom, Bytes keyTo, long earliestEnd, long latestStart) {
        return sessions(keyFrom, keyTo, earliestEnd, latestStart, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes key) {
        return sessions(key, 0, Long.MAX_VALUE, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes key) {
        return sessions(key, 0, Long.MAX_VALUE, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes keyFrom, Bytes keyTo) {
        return sessions(keyFrom, keyTo, 0, Long.MAX_VALUE, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes keyFrom, Bytes keyTo) {
        return sessions(keyFrom, keyTo, 0, Long.MAX_VALUE, false);
    }

    private KeyValueIterator<Windowed<Bytes>, byte[]> sessions(Bytes key, long earliestEnd, long latestStart, boolean forward) {
        byte[] bytes = notNull(key);
        if (latestStart < 0) {
            // As Kafka's own stores do.
            throw new IllegalArgumentException("no session of " + name() + " starts at a negative time: " + latestStart);
        }
        long first = Math.max(Math.max(earliestEnd, oldest()), 0);
        Range range = Range.all()
                .from(KeyLayout.session(bytes, 0, first))
                .through(KeyLayout.session(bytes, Long.MAX_VALUE, Long.MAX_VALUE));
        return new SegmentIterator<>(
                plan(first, Long.MAX_VALUE, range, startingBy(latestStart), forward), TamisSessionStore::windowed);
    }

    private KeyValueIterator<Windowed<Bytes>, byte[]> sessions(
            Bytes keyFrom, Bytes keyTo, long earliestEnd, long latestStart, boolean forward) {
        long first = Math.max(Math.max(earliestEnd, oldest()), 0);
        Predicate<byte[]> wanted = startingBy(latestStart).and(stored -> first <= KeyLayout.SESSION.segmentTime(stored));
        return new SegmentIterator<>(
                plan(keyFrom, keyTo, first, Long.MAX_VALUE, wanted, forward), TamisSessionStore::windowed);
    }

    private static Predicate<byte[]> startingBy(long latestStart) {
        return stored -> KeyLayout.sessionStart(stored) <= latestStart;
    }

    private static Windowed<Bytes> windowed(byte[] stored) {
        SessionWindow window = new SessionWindow(KeyLayout.sessionStart(stored), KeyLayout.SESSION.segmentTime(stored));
        return new Windowed<>(Bytes.wrap(KeyLayout.SESSION.key(stored)), window);
    }
}
