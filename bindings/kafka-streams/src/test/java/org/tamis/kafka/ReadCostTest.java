package org.tamis.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.state.WindowStoreIterator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What reads of window and session stores cost, by the engine's counters. */
class ReadCostTest {
    private static final Map<String, String> SMALL =
            Map.of("tamis.memtable_bytes", "64 KiB", "tamis.auto_compaction", "false", "tamis.read_compaction", "false");
    private static final int KEYS = 5_000;

    @TempDir
    Path directory;

    private static Bytes key(int i) {
        return Bytes.wrap(ByteBuffer.allocate(8).putLong(i * 2L).array());
    }

    private static Bytes absent(int i) {
        return Bytes.wrap(ByteBuffer.allocate(8).putLong(i * 2L + 1).array());
    }

    private static JsonNode read(TamisStore store) throws Exception {
        return new ObjectMapper().readTree(store.database().stats()).path("read");
    }

    private static long grown(JsonNode before, JsonNode after, String counter) {
        assertTrue(before.has(counter), counter);
        return after.path(counter).asLong() - before.path(counter).asLong();
    }

    /** In a segment of several runs, a fetch of a key that it lacks asks one filter once, with one digest, and reads no block. */
    @Test
    void aFetchOfAnAbsentKeyCostsOneDigest() throws Exception {
        TamisWindowStore store = (TamisWindowStore)
                TamisStores.windowStore("windows", Duration.ofHours(1), Duration.ofMinutes(1), true).get();
        Contexts.opened(store, directory.toFile(), SMALL);
        for (int i = 0; i < KEYS; i++) {
            store.put(key(i % 1_000 * 5 + i / 1_000), new byte[50], i);
        }
        store.database().flush();
        store.database().waitForCompaction();
        JsonNode segment = new ObjectMapper().readTree(store.database().keyspace("segment.0").keyspaceStats());
        assertTrue(segment.path("runs").asInt() >= 4, segment.toString());

        JsonNode before = read(store);
        for (int i = 0; i < KEYS; i++) {
            try (WindowStoreIterator<byte[]> none = store.fetch(absent(i), 0, 10_000)) {
                assertFalse(none.hasNext());
            }
        }
        JsonNode after = read(store);
        assertEquals(KEYS, grown(before, after, "scans"));
        assertTrue(grown(before, after, "digests") <= KEYS, after.toString());
        assertTrue(grown(before, after, "range_probes") <= KEYS, after.toString());
        // False positives are allowed for.
        assertTrue(grown(before, after, "block_reads") < KEYS / 20, after.toString());
        assertTrue(grown(before, after, "seeks") < KEYS / 20, after.toString());

        before = after;
        for (int i = 0; i < KEYS; i++) {
            try (WindowStoreIterator<byte[]> one = store.fetch(key(i), 0, 10_000)) {
                assertEquals(50, one.next().value.length);
                assertFalse(one.hasNext());
            }
        }
        after = read(store);
        assertTrue(grown(before, after, "digests") <= KEYS, after.toString());
        store.close();
    }

    @Test
    void sessionsOfAnAbsentKeyCostOneDigest() throws Exception {
        TamisSessionStore store = (TamisSessionStore) TamisStores.sessionStore("sessions", Duration.ofHours(1)).get();
        Contexts.opened(store, directory.toFile(), SMALL);
        for (int i = 0; i < KEYS; i++) {
            store.put(new Windowed<>(key(i % 1_000 * 5 + i / 1_000), new SessionWindow(i, i + 10)), new byte[50]);
        }
        store.database().flush();
        store.database().waitForCompaction();
        JsonNode before = read(store);
        for (int i = 0; i < KEYS; i++) {
            assertEquals(0, Answers.of(store.findSessions(absent(i), 0, 10_000)).size());
        }
        JsonNode after = read(store);
        assertEquals(KEYS, grown(before, after, "scans"));
        assertTrue(grown(before, after, "digests") <= KEYS, after.toString());
        assertTrue(grown(before, after, "block_reads") < KEYS / 20, after.toString());
        store.close();
    }

    @Test
    void aGetOfAnAbsentKeyCostsOneDigest() throws Exception {
        TamisKeyValueStore store = (TamisKeyValueStore) TamisStores.keyValueStore("store").get();
        Contexts.opened(store, directory.toFile(), SMALL);
        for (int i = 0; i < KEYS; i++) {
            store.put(key(i % 1_000 * 5 + i / 1_000), new byte[50]);
        }
        store.database().flush();
        JsonNode before = read(store);
        for (int i = 0; i < KEYS; i++) {
            assertNull(store.get(absent(i)));
        }
        JsonNode after = read(store);
        assertEquals(KEYS, grown(before, after, "digests"));
        assertTrue(grown(before, after, "block_reads") < KEYS / 5, after.toString());
        store.close();
    }
}
