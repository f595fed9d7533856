package org.apache.kafka.streams.state.internals;

import static org.apache.kafka.common.utils.Utils.mkEntry;
import static org.apache.kafka.common.utils.Utils.mkMap;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.lang.reflect.Field;
import java.util.List;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.internals.ProcessorRecordContext;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;
import org.junit.jupiter.api.Test;
import org.tamis.kafka.WindowStores;

/**
 * Kafka's own tests of window stores, with those of its RocksDB store, which look at the directories of segments: a store that has made
 * a directory for each of its segments takes them.
 */
class TamisWindowStoreTest extends AbstractRocksDBWindowStoreTest {
    /** As the superclass has it, which differs between releases. */
    private static final String NAME = nameOfSuperclass();

    private static String nameOfSuperclass() {
        try {
            Field name = AbstractRocksDBWindowStoreTest.class.getDeclaredField("STORE_NAME");
            name.setAccessible(true);
            return (String) name.get(null);
        } catch (ReflectiveOperationException error) {
            throw new AssertionError(error);
        }
    }

    @Override
    StoreType storeType() {
        return StoreType.RocksDBWindowStore;
    }

    @Override
    <K, V> WindowStore<K, V> buildWindowStore(
            long retention, long windowSize, boolean retainDuplicates, Serde<K> keySerde, Serde<V> valueSerde) {
        // Kafka's tests open a second store beside the first, in the same directory.
        String name = windowStore != null && windowStore.isOpen() ? "second" : NAME;
        return Stores.windowStoreBuilder(
                        WindowStores.withDirectories(name, retention, windowSize, retainDuplicates), keySerde, valueSerde)
                .build();
    }

    /** Kafka's test makes directories and expects them to be taken for segments. */
    @Test
    @Override
    public void testInitialLoading() {
        for (long segment = 0; segment <= 3; segment++) {
            windowStore.put(0, "v", segment * SEGMENT_INTERVAL);
        }
        windowStore.close();
        windowStore = buildWindowStore(RETENTION_PERIOD, WINDOW_SIZE, false, Serdes.Integer(), Serdes.String());
        windowStore.init((StateStoreContext) context, windowStore);
        assertEquals(List.of(SEGMENT_INTERVAL, 2 * SEGMENT_INTERVAL, 3 * SEGMENT_INTERVAL), starts());

        windowStore.put(1, "v", 5 * SEGMENT_INTERVAL);
        assertEquals(List.of(3 * SEGMENT_INTERVAL, 5 * SEGMENT_INTERVAL), starts());
    }

    /** Kafka's test casts to the class of its own store. */
    @Test
    @Override
    public void shouldMatchPositionAfterPut() {
        for (int offset = 1; offset <= 4; offset++) {
            context.setRecordContext(new ProcessorRecordContext(0, offset, 0, "", new RecordHeaders()));
            windowStore.put(offset, "v", SEGMENT_INTERVAL);
        }
        Position expected = Position.fromMap(mkMap(mkEntry("", mkMap(mkEntry(0, 4L)))));
        assertEquals(expected, ((WrappedStateStore<?, ?, ?>) windowStore).wrapped().getPosition());
    }

    private List<Long> starts() {
        return WindowStores.segmentStarts(context.stateDir(), NAME);
    }
}
