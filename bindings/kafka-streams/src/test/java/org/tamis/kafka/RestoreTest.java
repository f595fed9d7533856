package org.tamis.kafka;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.internals.ChangelogRecordDeserializationHelper;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.state.internals.PositionSerde;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Restoring from changelogs, and the position up to which a store has its input. */
class RestoreTest {
    private static final byte[] VALUE = {7};

    @TempDir
    Path directory;

    private Contexts.Context context;

    private <S extends TamisStore> S opened(S store, Map<String, ?> configs) {
        context = Contexts.of(directory.toFile(), configs);
        store.init((StateStoreContext) context, store);
        return store;
    }

    private static TamisKeyValueStore keyValueStore() {
        return new TamisKeyValueStore("store");
    }

    private static TamisWindowStore windowStore() {
        return (TamisWindowStore)
                TamisStores.windowStore("windows", Duration.ofMinutes(2), Duration.ofSeconds(1), false).get();
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static ConsumerRecord<byte[], byte[]> record(byte[] key, byte[] value, Position position) {
        Headers headers = new RecordHeaders();
        if (position != null) {
            headers.add(ChangelogRecordDeserializationHelper.CHANGELOG_VERSION_HEADER_RECORD_CONSISTENCY);
            headers.add(
                    ChangelogRecordDeserializationHelper.CHANGELOG_POSITION_HEADER_KEY,
                    PositionSerde.serialize(position).array());
        }
        return new ConsumerRecord<>(
                "changelog", 0, 0, 0, TimestampType.CREATE_TIME, 0, 0, key, value, headers, Optional.empty());
    }

    private static Position position(String topic, long offset) {
        return Position.emptyPosition().withComponent(topic, 0, offset);
    }

    private static byte[] window(String key, long time) {
        byte[] bytes = bytes(key);
        return ByteBuffer.allocate(bytes.length + 12).put(bytes).putLong(time).putInt(0).array();
    }

    @Test
    void recordsAndTombstonesInOrder() {
        TamisKeyValueStore store = opened(keyValueStore(), Map.of());
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int i = 0; i < 10_000; i++) {
            records.add(record(bytes("key" + i % 3_000), i % 7 == 0 ? null : ByteBuffer.allocate(4).putInt(i).array(), null));
        }
        context.restore(records);
        for (int key = 0; key < 3_000; key++) {
            int last = key + (9_999 - key) / 3_000 * 3_000;
            byte[] expected = last % 7 == 0 ? null : ByteBuffer.allocate(4).putInt(last).array();
            assertArrayEquals(expected, store.get(Bytes.wrap(bytes("key" + key))));
        }
        assertEquals(Position.emptyPosition(), store.getPosition());
        store.close();
    }

    @Test
    void expiredWindowsAreNotRestored() {
        TamisWindowStore store = opened(windowStore(), Map.of());
        context.restore(
                List.of(
                        record(window("a", 0), VALUE, null),
                        record(window("a", 600_000), VALUE, null),
                        record(window("b", 600_000), VALUE, null),
                        record(window("b", 600_000), null, null)));
        assertEquals(List.of(600_000L), store.segmentStarts());
        assertNull(store.fetch(Bytes.wrap(bytes("a")), 0));
        assertArrayEquals(VALUE, store.fetch(Bytes.wrap(bytes("a")), 600_000));
        assertNull(store.fetch(Bytes.wrap(bytes("b")), 600_000));
        // The restored records have moved the time on.
        store.put(Bytes.wrap(bytes("late")), VALUE, 1);
        assertEquals(List.of(600_000L), store.segmentStarts());
        store.close();
    }

    @Test
    void aKeyThatNoWindowHasIsSaid() {
        TamisWindowStore store = opened(windowStore(), Map.of());
        assertThrows(
                ProcessorStateException.class,
                () -> context.restore(List.of(record(bytes("short"), VALUE, null))));
        store.close();
    }

    @Test
    void thePositionComesFromTheRecordsIfConsistencyIsAskedFor() {
        Map<String, ?> consistency = Map.of(StreamsConfig.InternalConfig.IQ_CONSISTENCY_OFFSET_VECTOR_ENABLED, true);
        TamisKeyValueStore store = opened(keyValueStore(), consistency);
        context.restore(
                List.of(
                        record(bytes("a"), VALUE, position("input", 5)),
                        record(bytes("b"), VALUE, position("other", 7)),
                        record(bytes("c"), null, position("input", 9))));
        assertEquals(position("input", 9).withComponent("other", 0, 7), store.getPosition());
        store.close();
        TamisWindowStore windows = opened(windowStore(), consistency);
        context.restore(List.of(record(window("a", 600_000), VALUE, position("input", 5))));
        assertEquals(position("input", 5), windows.getPosition());
        windows.close();
    }

    /** It is kept with the offsets of the checkpoint: what is written after a commit is not in it, after a crash. */
    @Test
    void thePositionIsKeptByCommits() {
        for (TamisStore store : List.of(keyValueStore(), windowStore())) {
            opened(store, Map.of());
            for (int offset = 1; offset <= 3; offset++) {
                Contexts.at(context, offset);
                put(store);
                assertEquals(position("input", offset), store.getPosition());
                if (offset == 2) {
                    if (StoreOffsets.areManaged()) {
                        store.commit(Map.of());
                    } else {
                        store.flush();
                        context.commitStore();
                    }
                }
            }
            store.close();
        }
        assertEquals(position("input", 2), opened(keyValueStore(), Map.of()).getPosition());
        context.store().close();
        assertEquals(position("input", 2), opened(windowStore(), Map.of()).getPosition());
        context.store().close();
    }

    private static void put(TamisStore store) {
        if (store instanceof TamisWindowStore) {
            ((TamisWindowStore) store).put(Bytes.wrap(bytes("key")), VALUE, 0);
        } else {
            ((TamisKeyValueStore) store).put(Bytes.wrap(bytes("key")), VALUE);
        }
    }
}
