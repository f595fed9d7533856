package org.tamis.kafka;

import java.time.Duration;
import java.util.Objects;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.VersionedBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.internals.VersionedKeyValueToBytesStoreAdapter;

/**
 * Suppliers of stores that are kept by tamis: what {@link org.apache.kafka.streams.state.Stores} has for stores kept by RocksDB, with the
 * same meaning of all arguments.
 *
 * <pre>{@code
 * Materialized.as(TamisStores.timestampedKeyValueStore("counts"))
 * Stores.keyValueStoreBuilder(TamisStores.keyValueStore("users"), Serdes.Long(), Serdes.String())
 * }</pre>
 */
public final class TamisStores {
    /** The first part of the tag with a store's name in its metrics: {@code tamis-state-id}. */
    static final String SCOPE = "tamis";

    /** Kafka's own least interval of a segment. */
    private static final long LEAST_SEGMENT_MS = 60_000;

    private TamisStores() {}

    /**
     * Returns a supplier of a key-value store.
     *
     * @param name the name of the store
     * @return the supplier
     */
    public static KeyValueBytesStoreSupplier keyValueStore(String name) {
        return new KeyValue(name, false);
    }

    /**
     * Returns a supplier of a key-value store whose values have timestamps.
     *
     * @param name the name of the store
     * @return the supplier
     */
    public static KeyValueBytesStoreSupplier timestampedKeyValueStore(String name) {
        return new KeyValue(name, true);
    }

    /**
     * Returns a supplier of a window store.
     *
     * @param name the name of the store
     * @param retention how long windows are kept, at least the size of a window
     * @param windowSize the size of a window
     * @param retainDuplicates whether several values of one key and window are kept
     * @return the supplier
     * @throws IllegalArgumentException for a negative duration, or a window that is longer than the retention
     */
    public static WindowBytesStoreSupplier windowStore(
            String name, Duration retention, Duration windowSize, boolean retainDuplicates) {
        return new Window(name, retention, windowSize, retainDuplicates, false, false);
    }

    /**
     * Returns a supplier of a window store whose values have timestamps.
     *
     * @param name the name of the store
     * @param retention how long windows are kept, at least the size of a window
     * @param windowSize the size of a window
     * @param retainDuplicates whether several values of one key and window are kept
     * @return the supplier
     * @throws IllegalArgumentException for a negative duration, or a window that is longer than the retention
     */
    public static WindowBytesStoreSupplier timestampedWindowStore(
            String name, Duration retention, Duration windowSize, boolean retainDuplicates) {
        return new Window(name, retention, windowSize, retainDuplicates, true, false);
    }

    /**
     * Returns a supplier of a session store.
     *
     * @param name the name of the store
     * @param retention how long sessions are kept after their end
     * @return the supplier
     * @throws IllegalArgumentException for a negative duration
     */
    public static SessionBytesStoreSupplier sessionStore(String name, Duration retention) {
        return new Session(name, retention, false);
    }

    /**
     * Returns a supplier of a store that keeps the former values of its keys, by the time of their records.
     *
     * @param name the name of the store
     * @param historyRetention how long former values are kept, and how late a record may be
     * @return the supplier
     * @throws IllegalArgumentException for a negative duration
     */
    public static VersionedBytesStoreSupplier versionedKeyValueStore(String name, Duration historyRetention) {
        return new Versioned(name, historyRetention);
    }

    /**
     * Returns a supplier of a key-value store whose values have timestamps and the headers of their records. For Kafka Streams since 4.3.
     *
     * @param name the name of the store
     * @return the supplier
     */
    public static KeyValueBytesStoreSupplier timestampedKeyValueStoreWithHeaders(String name) {
        return new WithHeaders.KeyValue(name);
    }

    /**
     * Returns a supplier of a window store whose values have timestamps and the headers of their records. For Kafka Streams since 4.3.
     *
     * @param name the name of the store
     * @param retention how long windows are kept, at least the size of a window
     * @param windowSize the size of a window
     * @param retainDuplicates whether several values of one key and window are kept
     * @return the supplier
     * @throws IllegalArgumentException for a negative duration, or a window that is longer than the retention
     */
    public static WindowBytesStoreSupplier timestampedWindowStoreWithHeaders(
            String name, Duration retention, Duration windowSize, boolean retainDuplicates) {
        return new WithHeaders.Window(name, retention, windowSize, retainDuplicates, false);
    }

    /**
     * Returns a supplier of a session store whose values have the headers of their records. For Kafka Streams since 4.3.
     *
     * @param name the name of the store
     * @param retention how long sessions are kept after their end
     * @return the supplier
     * @throws IllegalArgumentException for a negative duration
     */
    public static SessionBytesStoreSupplier sessionStoreWithHeaders(String name, Duration retention) {
        return new WithHeaders.Session(name, retention, false);
    }

    private static long millis(String what, Duration duration) {
        long millis;
        try {
            millis = duration.toMillis();
        } catch (ArithmeticException error) {
            throw new IllegalArgumentException(what + " is too long: " + duration, error);
        }
        if (millis < 0) {
            throw new IllegalArgumentException(what + " is negative: " + duration);
        }
        return millis;
    }

    private static long segmentInterval(long retention) {
        return Math.max(retention / 2, LEAST_SEGMENT_MS);
    }

    private static final class Versioned implements VersionedBytesStoreSupplier {
        /** More than a window store has: a get of a former value looks into one or few, and what has expired is dropped sooner. */
        private static final int SEGMENTS = 12;

        private static final long LEAST_VERSIONED_SEGMENT_MS = 2_000;

        private final String name;
        private final long retention;

        Versioned(String name, Duration retention) {
            this.name = Objects.requireNonNull(name, "name");
            TamisConfig.supplies(name);
            this.retention = millis("the history", retention);
        }

        @Override
        public String name() {
            return name;
        }

        @Override
        public KeyValueStore<Bytes, byte[]> get() {
            long interval = Math.max(retention / SEGMENTS, LEAST_VERSIONED_SEGMENT_MS);
            return new VersionedKeyValueToBytesStoreAdapter(new TamisVersionedStore(name, retention, interval));
        }

        @Override
        public String metricsScope() {
            return SCOPE;
        }

        @Override
        public long historyRetentionMs() {
            return retention;
        }
    }

    static class KeyValue implements KeyValueBytesStoreSupplier {
        final String name;
        private final boolean timestamped;

        KeyValue(String name, boolean timestamped) {
            this.name = Objects.requireNonNull(name, "name");
            TamisConfig.supplies(name);
            this.timestamped = timestamped;
        }

        @Override
        public String name() {
            return name;
        }

        @Override
        public KeyValueStore<Bytes, byte[]> get() {
            return timestamped ? new TamisKeyValueStore.Timestamped(name) : new TamisKeyValueStore(name);
        }

        @Override
        public String metricsScope() {
            return SCOPE;
        }
    }

    static class Window implements WindowBytesStoreSupplier {
        final String name;
        final long retention;
        final long windowSize;
        final boolean retainDuplicates;
        final boolean indexed;
        private final boolean timestamped;

        /** {@code indexed}: for reads of short ranges of time. */
        Window(
                String name,
                Duration retention,
                Duration windowSize,
                boolean retainDuplicates,
                boolean timestamped,
                boolean indexed) {
            this.name = Objects.requireNonNull(name, "name");
            TamisConfig.supplies(name);
            this.retention = millis("the retention", retention);
            this.windowSize = millis("the window", windowSize);
            this.retainDuplicates = retainDuplicates;
            this.timestamped = timestamped;
            this.indexed = indexed;
            if (this.windowSize > this.retention) {
                throw new IllegalArgumentException("the windows of " + name + " are longer, " + windowSize
                        + ", than they are kept, " + retention);
            }
        }

        @Override
        public String name() {
            return name;
        }

        @Override
        public WindowStore<Bytes, byte[]> get() {
            return timestamped
                    ? new TamisWindowStore.Timestamped(
                            name, retention, segmentIntervalMs(), windowSize, retainDuplicates, indexed)
                    : new TamisWindowStore(name, retention, segmentIntervalMs(), windowSize, retainDuplicates, indexed);
        }

        @Override
        public String metricsScope() {
            return SCOPE;
        }

        @Override
        public long segmentIntervalMs() {
            return segmentInterval(retention);
        }

        @Override
        public long windowSize() {
            return windowSize;
        }

        @Override
        public boolean retainDuplicates() {
            return retainDuplicates;
        }

        @Override
        public long retentionPeriod() {
            return retention;
        }
    }

    static class Session implements SessionBytesStoreSupplier {
        final String name;
        final long retention;
        final boolean indexed;

        /** {@code indexed}: for reads of short ranges of time. */
        Session(String name, Duration retention, boolean indexed) {
            this.name = Objects.requireNonNull(name, "name");
            TamisConfig.supplies(name);
            this.retention = millis("the retention", retention);
            this.indexed = indexed;
        }

        @Override
        public String name() {
            return name;
        }

        @Override
        public SessionStore<Bytes, byte[]> get() {
            return new TamisSessionStore(name, retention, segmentIntervalMs(), indexed);
        }

        @Override
        public String metricsScope() {
            return SCOPE;
        }

        @Override
        public long segmentIntervalMs() {
            return segmentInterval(retention);
        }

        @Override
        public long retentionPeriod() {
            return retention;
        }
    }
}
