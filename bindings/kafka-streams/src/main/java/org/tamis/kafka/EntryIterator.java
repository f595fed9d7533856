package org.tamis.kafka;

import java.util.NoSuchElementException;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.tamis.Cursor;
import org.tamis.Entry;

/** The entries of a cursor. It sees one moment of the store, and ends with an exception once the store is closed. */
final class EntryIterator implements KeyValueIterator<Bytes, byte[]> {
    private final String store;
    private final Cursor cursor;
    private boolean closed;

    EntryIterator(String store, Cursor cursor) {
        this.store = store;
        this.cursor = cursor;
    }

    @Override
    public synchronized boolean hasNext() {
        if (closed) {
            throw Errors.closed("iterator of " + store);
        }
        return Errors.translated(store, "iterating", cursor::hasNext);
    }

    @Override
    public synchronized Bytes peekNextKey() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        return Bytes.wrap(Errors.translated(store, "iterating", () -> cursor.peek().key()));
    }

    @Override
    public synchronized KeyValue<Bytes, byte[]> next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        Entry entry = Errors.translated(store, "iterating", cursor::next);
        return KeyValue.pair(Bytes.wrap(entry.key()), entry.value());
    }

    @Override
    public synchronized void close() {
        closed = true;
        cursor.close();
    }
}
