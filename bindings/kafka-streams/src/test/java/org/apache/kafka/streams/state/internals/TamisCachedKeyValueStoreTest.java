package org.apache.kafka.streams.state.internals;

import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.state.KeyValueStore;

/** Kafka's own tests of key-value stores, of one below a cache. */
class TamisCachedKeyValueStoreTest extends AbstractKeyValueStoreTest {
    @Override
    protected <K, V> KeyValueStore<K, V> createKeyValueStore(StateStoreContext context) {
        KeyValueStore<K, V> store = TamisKeyValueStoreTest.<K, V>builder(context).withCachingEnabled().build();
        store.init(context, store);
        return store;
    }
}
