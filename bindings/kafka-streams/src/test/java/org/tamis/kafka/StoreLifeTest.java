package org.tamis.kafka;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.tamis.Handles;

/** Opening, closing, damage, directories and memory of stores. */
class StoreLifeTest {
    private static final Duration HOUR = Duration.ofHours(1);

    @TempDir
    Path directory;

    private final List<StateStore> open = new ArrayList<>();
    private long handles;
    private int users;

    /** A test that failed may have left stores open. */
    @BeforeEach
    void count() {
        handles = Handles.open();
        users = ProcessMemory.users();
    }

    @AfterEach
    void nothingStaysOpen() {
        open.forEach(StateStore::close);
        assertEquals(users, ProcessMemory.users());
        assertEquals(handles, Handles.open());
    }

    private <S extends StateStore> S opened(S store) {
        return opened(store, Map.of());
    }

    private <S extends StateStore> S opened(S store, Map<String, ?> configs) {
        open.add(store);
        return Contexts.opened(store, directory.toFile(), configs);
    }

    private static KeyValueStore<Bytes, byte[]> keyValueStore() {
        return TamisStores.keyValueStore("store").get();
    }

    private static WindowStore<Bytes, byte[]> windowStore(Duration retention) {
        return TamisStores.windowStore("windows", retention, Duration.ofSeconds(1), false).get();
    }

    private static SessionStore<Bytes, byte[]> sessionStore() {
        return TamisStores.sessionStore("sessions", HOUR).get();
    }

    private static Bytes bytes(String text) {
        return Bytes.wrap(text.getBytes(StandardCharsets.UTF_8));
    }

    private static final byte[] VALUE = {1, 2, 3};

    @Test
    void whatWasWrittenIsThereAfterReopening() {
        KeyValueStore<Bytes, byte[]> store = opened(keyValueStore());
        WindowStore<Bytes, byte[]> windows = opened(windowStore(HOUR));
        SessionStore<Bytes, byte[]> sessions = opened(sessionStore());
        Windowed<Bytes> session = new Windowed<>(bytes("key"), new SessionWindow(10, 20));
        store.put(bytes("key"), VALUE);
        windows.put(bytes("key"), VALUE, 5);
        sessions.put(session, VALUE);
        for (StateStore each : List.of(store, windows, sessions)) {
            assertTrue(each.isOpen() && each.persistent());
            each.flush();
            each.close();
            assertFalse(each.isOpen());
            each.close();
            each.flush();
        }
        assertArrayEquals(VALUE, opened(keyValueStore()).get(bytes("key")));
        assertArrayEquals(VALUE, opened(windowStore(HOUR)).fetch(bytes("key"), 5));
        assertArrayEquals(VALUE, opened(sessionStore()).fetchSession(bytes("key"), 10, 20));
    }

    @Test
    void aClosedStoreIsRefused() {
        KeyValueStore<Bytes, byte[]> store = opened(keyValueStore());
        store.put(bytes("key"), VALUE);
        KeyValueIterator<Bytes, byte[]> iterator = store.all();
        assertTrue(iterator.hasNext());
        store.close();
        Stream.<Runnable>of(
                        () -> store.get(bytes("key")),
                        () -> store.put(bytes("key"), VALUE),
                        () -> store.putIfAbsent(bytes("key"), VALUE),
                        () -> store.putAll(List.of(KeyValue.pair(bytes("key"), VALUE))),
                        () -> store.delete(bytes("key")),
                        store::all,
                        store::reverseAll,
                        () -> store.range(bytes("a"), bytes("z")),
                        store::approximateNumEntries,
                        iterator::hasNext,
                        iterator::next,
                        iterator::peekNextKey)
                .forEach(use -> assertThrows(InvalidStateStoreException.class, use::run));
        iterator.close();

        WindowStore<Bytes, byte[]> windows = opened(windowStore(HOUR));
        SessionStore<Bytes, byte[]> sessions = opened(sessionStore());
        windows.close();
        sessions.close();
        assertThrows(InvalidStateStoreException.class, () -> windows.put(bytes("key"), VALUE, 1));
        assertThrows(InvalidStateStoreException.class, () -> windows.fetch(bytes("key"), 1));
        assertThrows(InvalidStateStoreException.class, () -> sessions.fetchSession(bytes("key"), 1, 2));
        assertThrows(
                InvalidStateStoreException.class,
                () -> sessions.remove(new Windowed<>(bytes("key"), new SessionWindow(1, 2))));
        // As Kafka's own stores: there is nothing to iterate over.
        assertFalse(windows.fetch(bytes("key"), 0, 10).hasNext());
        assertFalse(sessions.fetch(bytes("key")).hasNext());
    }

    @Test
    void iteratorsEndAndCanBeClosedTwice() {
        KeyValueStore<Bytes, byte[]> store = opened(keyValueStore());
        KeyValueIterator<Bytes, byte[]> none = store.all();
        assertThrows(NoSuchElementException.class, none::next);
        assertThrows(NoSuchElementException.class, none::peekNextKey);
        none.close();
        none.close();
        assertThrows(InvalidStateStoreException.class, none::hasNext);
        KeyValueIterator<Windowed<Bytes>, byte[]> windows = opened(windowStore(HOUR)).all();
        assertThrows(NoSuchElementException.class, windows::next);
        assertThrows(NoSuchElementException.class, windows::peekNextKey);
        windows.close();
        windows.close();
    }

    /** An iterator that was not closed keeps nothing of the directory once its store is closed: Kafka Streams deletes it. */
    @Test
    void aClosedStoreCanBeDeletedAndBegunAnew() throws IOException {
        KeyValueStore<Bytes, byte[]> store = opened(keyValueStore(), Map.of("tamis.memtable_bytes", "16 KiB"));
        for (int i = 0; i < 2_000; i++) {
            store.put(bytes("key" + i), new byte[100]);
        }
        KeyValueIterator<Bytes, byte[]> left = store.all();
        assertTrue(left.hasNext());
        store.close();
        assertEquals(List.of(), openFiles());
        Utils.delete(directory.resolve("tamis").toFile());
        assertNull(opened(keyValueStore()).get(bytes("key1")));
    }

    private List<Path> openFiles() throws IOException {
        Path descriptors = Path.of("/proc/self/fd");
        if (!Files.isDirectory(descriptors)) {
            return List.of();
        }
        try (Stream<Path> all = Files.list(descriptors)) {
            return all.map(descriptor -> {
                        try {
                            return Files.readSymbolicLink(descriptor);
                        } catch (IOException closed) {
                            return descriptor;
                        }
                    })
                    .filter(file -> file.startsWith(directory))
                    .collect(Collectors.toList());
        }
    }

    @Test
    void aDirectoryIsOpenOnce() {
        KeyValueStore<Bytes, byte[]> first = opened(keyValueStore());
        first.put(bytes("key"), VALUE);
        ProcessorStateException error = assertThrows(ProcessorStateException.class, () -> opened(keyValueStore()));
        assertTrue(error.getMessage().contains("store") && error.getMessage().contains(directory.toString()), error.getMessage());
        assertThrows(ProcessorStateException.class, () -> Contexts.opened(first, directory.toFile(), Map.of()));
        assertArrayEquals(VALUE, first.get(bytes("key")));
    }

    @Test
    void damageIsSaidAtOpening() throws IOException {
        KeyValueStore<Bytes, byte[]> store = opened(keyValueStore(), Map.of("tamis.memtable_bytes", "16 KiB"));
        for (int i = 0; i < 2_000; i++) {
            store.put(bytes("key" + i), new byte[100]);
        }
        store.close();
        try (Stream<Path> files = Files.walk(directory.resolve("tamis/store"))) {
            for (Path file : files.filter(Files::isRegularFile).collect(Collectors.toList())) {
                byte[] noise = new byte[(int) Files.size(file)];
                Arrays.fill(noise, (byte) 0x5A);
                Files.write(file, noise);
            }
        }
        ProcessorStateException error = assertThrows(ProcessorStateException.class, () -> opened(keyValueStore()));
        assertTrue(error.getMessage().startsWith("Store store, opening "), error.getMessage());
        Utils.delete(directory.resolve("tamis").toFile());
        opened(keyValueStore());
    }

    @Test
    void aFileInPlaceOfTheDirectoryIsSaid() throws IOException {
        Files.createFile(directory.resolve("tamis"));
        assertThrows(ProcessorStateException.class, () -> opened(keyValueStore()));
    }

    @Test
    void aNameThatLeavesTheDirectoryIsRefused() {
        for (String name : List.of("..", ".", "a/b", "../a", "/a")) {
            assertThrows(ProcessorStateException.class, () -> opened(TamisStores.keyValueStore(name).get()));
        }
    }

    @Test
    void anotherKindOfStoreInTheDirectoryIsSaid() throws IOException {
        StateStore windows = opened(windowStore(HOUR));
        windows.close();
        Files.move(directory.resolve("tamis/windows"), directory.resolve("tamis/sessions"));
        ProcessorStateException error = assertThrows(ProcessorStateException.class, () -> opened(sessionStore()));
        assertTrue(error.getMessage().contains("another kind"), error.getMessage());
    }

    /** Segments begin elsewhere then: the entries have to move. */
    @Test
    void anotherRetentionFindsTheEntries() {
        WindowStore<Bytes, byte[]> store = opened(windowStore(HOUR));
        for (int minute = 0; minute < 60; minute++) {
            store.put(bytes("key"), new byte[] {(byte) minute}, Duration.ofMinutes(minute).toMillis());
            store.put(bytes("key" + minute), VALUE, Duration.ofMinutes(minute).toMillis());
        }
        List<KeyValue<Long, Bytes>> expected = Answers.of(store.fetch(bytes("key"), 0, HOUR.toMillis()));
        assertEquals(60, expected.size());
        store.close();
        for (Duration retention : List.of(Duration.ofMinutes(170), Duration.ofMinutes(61), HOUR)) {
            WindowStore<Bytes, byte[]> again = opened(windowStore(retention));
            assertEquals(expected, Answers.of(again.fetch(bytes("key"), 0, HOUR.toMillis())));
            assertArrayEquals(VALUE, again.fetch(bytes("key59"), Duration.ofMinutes(59).toMillis()));
            again.close();
        }
    }

    /** A topology may be changed to emit windows when they are closed, and back. */
    @Test
    void anIndexByTimeIsBuiltWhereItIsMissing() {
        WindowStore<Bytes, byte[]> plain = opened(windowStore(HOUR));
        for (int i = 0; i < 5_000; i++) {
            plain.put(bytes("key" + i % 100), VALUE, i * 500L);
        }
        List<KeyValue<Windowed<Bytes>, Bytes>> expected = Answers.of(plain.fetchAll(600_000, 1_900_000));
        assertEquals(2_601, expected.size());
        plain.close();
        for (Duration retention : List.of(HOUR, Duration.ofMinutes(70))) {
            TamisWindowStore indexed = opened(indexedStore(retention));
            assertEquals(2_601, Answers.of(indexed.fetchAll(600_000, 1_900_000)).size());
            assertTrue(indexed.database().keyspaces().contains("times.0"));
            indexed.put(bytes("key0"), null, 600_000);
            indexed.put(bytes("key0"), VALUE, 600_001);
            indexed.close();
            indexed = opened(indexedStore(retention));
            assertEquals(2_601, Answers.of(indexed.fetchAll(600_000, 1_900_000)).size());
            assertEquals(0, Answers.of(indexed.fetchAll(600_000, 600_000)).size());
            indexed.put(bytes("key0"), VALUE, 600_000);
            indexed.put(bytes("key0"), null, 600_001);
            indexed.close();
        }
        TamisWindowStore again = opened((TamisWindowStore) windowStore(HOUR));
        assertEquals(expected, Answers.of(again.fetchAll(600_000, 1_900_000)));
        assertFalse(again.database().keyspaces().stream().anyMatch(name -> name.startsWith("times.")));
    }

    private static TamisWindowStore indexedStore(Duration retention) {
        return (TamisWindowStore)
                new TamisStores.Window("windows", retention, Duration.ofSeconds(1), false, false, true).get();
    }

    @Test
    void expiredSegmentsAreDroppedFromTheDirectory() {
        TamisWindowStore store = opened((TamisWindowStore) windowStore(Duration.ofMinutes(4)));
        for (int minute = 0; minute < 100; minute++) {
            store.put(bytes("key"), VALUE, Duration.ofMinutes(minute).toMillis());
        }
        List<Long> starts = store.segmentStarts();
        assertEquals(List.of(94L, 96L, 98L), starts.stream().map(start -> start / 60_000).collect(Collectors.toList()));
        // Three segments, the default one, the offsets.
        assertEquals(5, store.database().keyspaces().size());
        store.close();
        assertEquals(starts, opened((TamisWindowStore) windowStore(Duration.ofMinutes(4))).segmentStarts());
    }

    /** Memtables that no store would flush by itself yet are flushed when all of them together are too large. */
    @Test
    void allStoresShareOneMemory() throws IOException {
        Map<String, ?> configs = Map.of(
                TamisConfig.READ_MEMORY, "1000000", TamisConfig.WRITE_MEMORY, 8L << 20, "tamis.memtable_bytes", "64 MiB");
        List<KeyValueStore<Bytes, byte[]>> stores = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            stores.add(opened(TamisStores.keyValueStore("store" + i).get(), configs));
        }
        assertEquals(users + 4, ProcessMemory.users());
        for (int i = 0; i < 40_000; i++) {
            stores.get(i % 4).put(bytes("key" + i), new byte[1_000]);
        }
        JsonNode writers = new ObjectMapper().readTree(ProcessMemory.writers());
        assertEquals(users + 4, writers.size());
        for (KeyValueStore<Bytes, byte[]> store : stores) {
            JsonNode stats = new ObjectMapper().readTree(((TamisStore) store).database().stats());
            assertTrue(stats.path("write").path("flushes").asLong() > 0, stats.path("write").toString());
            assertTrue(stats.path("memtable_bytes").asLong() < 8 << 20, stats.toString());
        }
    }

    @Test
    void optionsOfTheEngineComeFromTheConfiguration() {
        TamisStore store = opened(
                (TamisStore) keyValueStore(),
                Map.of("tamis.block_bytes", "8 KiB", "tamis.store.store.bits_per_key", "12.5", "tamis.store.other.bits_per_key", "1"));
        String options = store.database().options();
        assertTrue(options.contains("block_bytes = 8 KiB"), options);
        assertTrue(options.contains("bits_per_key = 12.5"), options);
        store.close();
        for (Map<String, String> wrong : List.of(
                Map.of("tamis.no_such_option", "1"), Map.of("tamis.block_bytes", "many"), Map.of("tamis.store.store.block_bytes", "-1"))) {
            assertThrows(ProcessorStateException.class, () -> opened(keyValueStore(), wrong));
        }
        // Whichever store it names: misspelt, it was passed over without a word.
        for (String wrong : List.of("tamis.store.store.bits_per_keys", "tamis.store.other.no_such", "tamis.store.store", "tamis.store.")) {
            assertThrows(ConfigException.class, () -> opened(keyValueStore(), Map.of(wrong, "1")));
        }
        TamisStores.keyValueStore("to.be.opened");
        Map<String, String> shared = Map.of(
                "tamis.store.store.bits_per_key", "1", "tamis.store.stroe.bits_per_key", "1", "tamis.store.to.be.opened.block_bytes", "1");
        assertEquals(Set.of("tamis.store.stroe.bits_per_key"), TamisConfig.strangers(shared));
        for (String wrong : List.of("many", "0", "-5", "")) {
            assertThrows(ConfigException.class, () -> opened(keyValueStore(), Map.of(TamisConfig.READ_MEMORY, wrong)));
            assertThrows(ConfigException.class, () -> opened(keyValueStore(), Map.of(TamisConfig.WRITE_MEMORY, wrong)));
        }
    }

    @Test
    void segmentsHaveTheOptionsOfTheStore() {
        TamisWindowStore store = opened((TamisWindowStore) windowStore(HOUR), Map.of("tamis.bits_per_key", "14", "tamis.background_threads", "1"));
        store.put(bytes("key"), VALUE, 0);
        String options = store.database().keyspace("segment.0").options();
        assertTrue(options.contains("bits_per_key = 14") && options.contains("prefix_filter = delimiter 0x00"), options);
    }

    @Test
    void argumentsOfSuppliersAreChecked() {
        Duration second = Duration.ofSeconds(1);
        assertThrows(NullPointerException.class, () -> TamisStores.keyValueStore(null));
        assertThrows(NullPointerException.class, () -> TamisStores.sessionStore(null, second));
        assertThrows(IllegalArgumentException.class, () -> TamisStores.sessionStore("s", second.negated()));
        assertThrows(IllegalArgumentException.class, () -> TamisStores.versionedKeyValueStore("s", second.negated()));
        assertThrows(IllegalArgumentException.class, () -> TamisStores.sessionStore("s", Duration.ofSeconds(Long.MAX_VALUE)));
        assertThrows(IllegalArgumentException.class, () -> TamisStores.windowStore("s", second, second.plusMillis(1), false));
        assertThrows(IllegalArgumentException.class, () -> TamisStores.timestampedWindowStore("s", second, second.negated(), true));
    }

    @Test
    void keysOfTheGreatestLength() {
        KeyValueStore<Bytes, byte[]> store = opened(keyValueStore());
        store.put(Bytes.wrap(new byte[1 << 16]), VALUE);
        assertArrayEquals(VALUE, store.get(Bytes.wrap(new byte[1 << 16])));
        store.put(Bytes.wrap(new byte[0]), VALUE);
        assertArrayEquals(VALUE, store.get(Bytes.wrap(new byte[0])));
        assertThrows(ProcessorStateException.class, () -> store.put(Bytes.wrap(new byte[(1 << 16) + 1]), VALUE));
        WindowStore<Bytes, byte[]> windows = opened(windowStore(HOUR));
        windows.put(Bytes.wrap(new byte[0]), VALUE, 1);
        assertArrayEquals(VALUE, windows.fetch(Bytes.wrap(new byte[0]), 1));
        byte[] zeros = new byte[(1 << 15) - 7];
        windows.put(Bytes.wrap(zeros), VALUE, 1);
        assertArrayEquals(VALUE, windows.fetch(Bytes.wrap(zeros), 1));
        assertThrows(ProcessorStateException.class, () -> windows.put(Bytes.wrap(new byte[1 << 15]), VALUE, 1));
    }
}
