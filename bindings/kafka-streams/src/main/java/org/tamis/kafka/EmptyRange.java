package org.tamis.kafka;

import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** Ranges that end before they begin, which are most often a mistake of the caller's serializer. */
final class EmptyRange {
    private static final KeyValueStore<Bytes, byte[]> EMPTY = Stores.inMemoryKeyValueStore("empty").get();

    private EmptyRange() {}

    static boolean is(Bytes from, Bytes to) {
        return from != null && to != null && from.compareTo(to) > 0;
    }

    /** Lets an empty store of Kafka's log what Kafka's stores log about such a range, and returns its empty iterator. */
    static KeyValueIterator<Bytes, byte[]> warned(Bytes from, Bytes to) {
        return EMPTY.range(from, to);
    }
}
