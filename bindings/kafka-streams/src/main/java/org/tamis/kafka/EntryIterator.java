package org.tamis.kafka;

import java.util.NoSuchElementException;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.state.KeyValueIterator;

/** The entries of a scan. It sees one moment of the store, and ends with an exception once the store is closed. */
final class EntryIterator implements KeyValueIterator<Bytes, byte[]> {
    private final String store;
    private final Scan scan;
    /** What comes next, if it was looked at. */
    private KeyValue<byte[], byte[]> next;
    private boolean closed;

    EntryIterator(String store, Scan scan) {
        this.store = store;
        this.scan = scan;
    }

    @Override
    public synchronized boolean hasNext() {
        if (closed) {
            throw Errors.closed("iterator of " + store);
        }
        // Asked in any case: it throws once the store is closed.
        boolean more = Errors.translated(store, "iterating", scan::hasNext);
        if (next == null && more) {
            next = Errors.translated(store, "iterating", scan::next);
        }
        return next != null;
    }

    @Override
    public synchronized Bytes peekNextKey() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        return Bytes.wrap(next.key);
    }

    @Override
    public synchronized KeyValue<Bytes, byte[]> next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        KeyValue<byte[], byte[]> entry = next;
        next = null;
        return KeyValue.pair(Bytes.wrap(entry.key), entry.value);
    }

    @Override
    public synchronized void close() {
        closed = true;
        scan.close();
    }
}
