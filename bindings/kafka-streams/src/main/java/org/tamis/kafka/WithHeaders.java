package org.tamis.kafka;

import java.time.Duration;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.HeadersBytesStore;
import org.apache.kafka.streams.state.HeadersBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.TimestampedBytesStore;
import org.apache.kafka.streams.state.WindowStore;

/**
 * Stores whose values begin with the headers of their records (KIP-1271). Kafka Streams writes and reads these; the store does not. The
 * classes inside are for releases since 4.3, and not loaded with others.
 */
final class WithHeaders {
    /** Whether this release of Kafka Streams has such stores. They came together with offsets in stores. */
    static final boolean EXIST = StoreOffsets.areManaged();

    private static final String FORMAT = "values with headers";

    private WithHeaders() {}

    static final class KeyValue extends TamisStores.KeyValue implements HeadersBytesStoreSupplier {
        KeyValue(String name) {
            super(name, true);
        }

        @Override
        public KeyValueStore<Bytes, byte[]> get() {
            return new KeyValueEntries(name);
        }
    }

    private static final class KeyValueEntries extends TamisKeyValueStore implements HeadersBytesStore {
        KeyValueEntries(String name) {
            super(name);
        }

        @Override
        String format() {
            return FORMAT;
        }
    }

    static final class Window extends TamisStores.Window implements HeadersBytesStoreSupplier {
        Window(String name, Duration retention, Duration windowSize, boolean retainDuplicates, boolean indexed) {
            super(name, retention, windowSize, retainDuplicates, true, indexed);
        }

        @Override
        public WindowStore<Bytes, byte[]> get() {
            return new WindowEntries(this);
        }
    }

    private static final class WindowEntries extends TamisWindowStore implements TimestampedBytesStore, HeadersBytesStore {
        WindowEntries(Window of) {
            super(of.name, of.retention, of.segmentIntervalMs(), of.windowSize, of.retainDuplicates, of.indexed);
        }

        @Override
        String format() {
            return FORMAT;
        }
    }

    static final class Session extends TamisStores.Session implements HeadersBytesStoreSupplier {
        Session(String name, Duration retention, boolean indexed) {
            super(name, retention, indexed);
        }

        @Override
        public SessionStore<Bytes, byte[]> get() {
            return new SessionEntries(this);
        }
    }

    private static final class SessionEntries extends TamisSessionStore implements HeadersBytesStore {
        SessionEntries(Session of) {
            super(of.name, of.retention, of.segmentIntervalMs(), of.indexed);
        }

        @Override
        String format() {
            return FORMAT;
        }
    }
}
