package org.apache.kafka.streams.state.internals;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.tamis.kafka.TamisStores;

/** Kafka's own tests of key-value stores. */
class TamisKeyValueStoreTest extends AbstractKeyValueStoreTest {
    @Override
    protected <K, V> KeyValueStore<K, V> createKeyValueStore(StateStoreContext context) {
        KeyValueStore<K, V> store = TamisKeyValueStoreTest.<K, V>builder(context).withCachingDisabled().build();
        store.init(context, store);
        return store;
    }

    @SuppressWarnings("unchecked")
    static <K, V> StoreBuilder<KeyValueStore<K, V>> builder(StateStoreContext context) {
        return Stores.keyValueStoreBuilder(
                TamisStores.keyValueStore("my-store"), (Serde<K>) context.keySerde(), (Serde<V>) context.valueSerde());
    }
}
