package org.tamis.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongConsumer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.WindowStore;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** One thread writes, others read as interactive queries do, until the store is closed under them. */
class ConcurrencyTest {
    private static final int READERS = 3;
    private static final int WRITES = 10_000;

    @TempDir
    Path directory;

    private static Bytes key(long i) {
        return Bytes.wrap(ByteBuffer.allocate(8).putLong(i).array());
    }

    /** Reads get the number of the last write; all they may throw is that the store is closed, and only once it is. */
    private static void run(StateStore store, LongConsumer write, LongConsumer read) throws Exception {
        AtomicLong written = new AtomicLong();
        AtomicLong reads = new AtomicLong();
        ExecutorService readers = Executors.newFixedThreadPool(READERS);
        List<Future<?>> running = new ArrayList<>();
        for (int i = 0; i < READERS; i++) {
            running.add(readers.submit(() -> {
                while (true) {
                    try {
                        read.accept(written.get());
                        reads.incrementAndGet();
                    } catch (InvalidStateStoreException error) {
                        assertTrue(!store.isOpen(), error::toString);
                        return;
                    }
                }
            }));
        }
        for (long i = 0; i < WRITES; i++) {
            write.accept(i);
            written.set(i);
        }
        store.close();
        for (Future<?> reader : running) {
            reader.get(60, TimeUnit.SECONDS);
        }
        readers.shutdown();
        assertTrue(reads.get() > 0);
    }

    @Test
    void keyValueStores() throws Exception {
        KeyValueStore<Bytes, byte[]> store = Contexts.opened(
                TamisStores.keyValueStore("store").get(), directory.toFile(), Map.of("tamis.memtable_bytes", "16 KiB"));
        run(store, i -> store.put(key(i), key(i).get()), last -> {
            assertEquals(key(last), last == 0 ? key(0) : Bytes.wrap(store.get(key(last))));
            try (var range = store.range(key(Math.max(0, last - 10)), key(last))) {
                assertTrue(last == 0 || range.hasNext());
            }
        });
    }

    /** Segments expire under the readers: a window that has expired is absent. */
    @Test
    void windowStores() throws Exception {
        WindowStore<Bytes, byte[]> store = Contexts.opened(
                TamisStores.windowStore("windows", Duration.ofMinutes(2), Duration.ofSeconds(1), false).get(),
                directory.toFile(),
                Map.of("tamis.memtable_bytes", "16 KiB"));
        run(store, i -> store.put(key(i % 10), key(i).get(), i * 1_000), last -> {
            store.fetch(key(last % 10), Math.max(0, last - 110) * 1_000);
            try (var windows = store.fetch(key(last % 10), 0, last * 1_000)) {
                while (windows.hasNext()) {
                    windows.next();
                }
            }
            if (!store.isOpen()) {
                throw new InvalidStateStoreException("closed");
            }
        });
    }

    @Test
    void versionedStores() throws Exception {
        TamisVersionedStore store = Contexts.opened(
                new TamisVersionedStore("versions", 10_000, 2_000), directory.toFile(), Map.of("tamis.memtable_bytes", "16 KiB"));
        run(store, i -> store.put(key(i % 10), key(i).get(), i * 100), last -> {
            store.get(key(last % 10));
            store.get(key(last % 10), Math.max(0, last - 99) * 100);
        });
    }
}
