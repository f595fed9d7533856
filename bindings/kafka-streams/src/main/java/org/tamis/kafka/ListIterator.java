package org.tamis.kafka;

import java.util.List;
import java.util.NoSuchElementException;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.state.KeyValueIterator;

/** Entries that are in memory. */
final class ListIterator<K, V> implements KeyValueIterator<K, V> {
    private final List<KeyValue<K, V>> entries;
    private int at;

    ListIterator(List<KeyValue<K, V>> entries) {
        this.entries = entries;
    }

    @Override
    public boolean hasNext() {
        return at < entries.size();
    }

    @Override
    public K peekNextKey() {
        return peek().key;
    }

    @Override
    public KeyValue<K, V> next() {
        KeyValue<K, V> entry = peek();
        at++;
        return entry;
    }

    private KeyValue<K, V> peek() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        return entries.get(at);
    }

    @Override
    public void close() {
        at = entries.size();
    }
}
