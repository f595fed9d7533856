package org.tamis.kafka;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.errors.TaskCorruptedException;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Offsets in stores that are not transactional (KIP-1035), and the mark of a store that is ahead of them. */
class OffsetsTest {
    private static final Map<String, String> EXACTLY_ONCE =
            Map.of(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    private static final Map<String, String> AT_LEAST_ONCE = Map.of();
    private static final TopicPartition CHANGELOG = new TopicPartition("app-store-changelog", 3);
    private static final Bytes ONE = Bytes.wrap(new byte[] {1});
    private static final Bytes TWO = Bytes.wrap(new byte[] {2});
    private static final byte[] VALUE = {7};

    @TempDir
    Path directory;

    private final List<TamisStore> open = new ArrayList<>();

    @AfterEach
    void close() {
        open.forEach(TamisStore::close);
    }

    private TamisKeyValueStore opened(Map<String, ?> configs) {
        return opened(new TamisKeyValueStore("store"), configs);
    }

    private <S extends TamisStore> S opened(S store, Map<String, ?> configs) {
        open.add(store);
        store.init((StateStoreContext) Contexts.of(directory.toFile(), configs), store);
        return store;
    }

    /** Writes survive a crash without a commit, and the offset is the one before them. */
    @Test
    void atLeastOnceIsAheadOfItsOffset() throws IOException {
        assumeTrue(StoreOffsets.areManaged(), "since Kafka Streams 4.3");
        TamisKeyValueStore store = opened(AT_LEAST_ONCE);
        store.put(ONE, VALUE);
        store.commit(Map.of(CHANGELOG, 1L));
        store.put(TWO, VALUE);
        directory = Crashes.of(directory);
        store = opened(AT_LEAST_ONCE);
        assertEquals(1L, store.committedOffset(CHANGELOG));
        assertArrayEquals(VALUE, store.get(TWO));
    }

    /** Under exactly-once, what a crash has left may have been aborted: Kafka Streams deletes it. */
    @Test
    void aCrashCorruptsWhatIsNotTransactional() throws IOException {
        assumeTrue(StoreOffsets.areManaged(), "since Kafka Streams 4.3");
        for (Map<String, String> before : List.of(EXACTLY_ONCE, AT_LEAST_ONCE)) {
            Path whole = directory;
            TamisKeyValueStore store = opened(before);
            store.put(ONE, VALUE);
            store.commit(Map.of(CHANGELOG, 1L));
            directory = Crashes.of(whole);
            assertThrows(TaskCorruptedException.class, () -> opened(EXACTLY_ONCE));
            // Also if nothing was written meanwhile.
            assertThrows(TaskCorruptedException.class, () -> opened(EXACTLY_ONCE));
            directory = whole;
            store.close();
        }
    }

    /** A store that was closed after a commit is what it should be; one that was closed before is not. */
    @Test
    void closingAfterACommit() {
        assumeTrue(StoreOffsets.areManaged(), "since Kafka Streams 4.3");
        TamisKeyValueStore store = opened(EXACTLY_ONCE);
        store.put(ONE, VALUE);
        store.commit(Map.of(CHANGELOG, 1L));
        store.close();
        store = opened(EXACTLY_ONCE);
        assertEquals(1L, store.committedOffset(CHANGELOG));
        store.put(TWO, VALUE);
        store.close();
        assertThrows(TaskCorruptedException.class, () -> opened(EXACTLY_ONCE));
    }

    /** No offsets: the store has to be restored. */
    @Test
    void aCommitWithoutOffsetsForgetsThem() {
        TamisKeyValueStore store = opened(AT_LEAST_ONCE);
        store.put(ONE, VALUE);
        store.commit(Map.of(CHANGELOG, 1L));
        store.commit(Map.of());
        assertNull(store.committedOffset(CHANGELOG));
        assertArrayEquals(VALUE, store.get(ONE));
    }

    /** Values of another format would be misread. */
    @Test
    void anotherFormatIsRefused() {
        opened(AT_LEAST_ONCE).close();
        ProcessorStateException refused = assertThrows(
                ProcessorStateException.class, () -> opened(new TamisKeyValueStore.Timestamped("store"), AT_LEAST_ONCE));
        assertEquals(
                "Store store: its directory holds plain values, not timestamped values. Delete it, and the store is restored.",
                refused.getMessage());
    }
}
