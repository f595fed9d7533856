package org.apache.kafka.streams.state.internals;

import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.tamis.kafka.TamisStores;

/** Kafka's own tests of session stores. */
class TamisSessionStoreTest extends AbstractSessionBytesStoreTest {
    /** One that expires by segments, and has {@code findSessions} of times. */
    @Override
    StoreType storeType() {
        return StoreType.RocksDBTimeOrderedSessionStoreWithIndex;
    }

    @Override
    <K, V> SessionStore<K, V> buildSessionStore(long retention, Serde<K> keySerde, Serde<V> valueSerde) {
        // Kafka's tests open a second store beside the first, in the same directory.
        String name = sessionStore != null && sessionStore.isOpen() ? "second" : "sessions";
        return Stores.sessionStoreBuilder(
                        TamisStores.sessionStore(name, Duration.ofMillis(retention)), keySerde, valueSerde)
                .build();
    }
}
