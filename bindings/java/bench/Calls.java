import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.stream.Stream;

import org.rocksdb.BlockBasedTableConfig;
import org.rocksdb.BloomFilter;
import org.rocksdb.LRUCache;
import org.rocksdb.ReadOptions;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.RocksIterator;
import org.rocksdb.WriteOptions;
import org.tamis.Cursor;
import org.tamis.Database;
import org.tamis.Options;
import org.tamis.Range;
import org.tamis.WriteBatch;

/**
 * What a call through JNI costs, beside rocksdbjni: 200,000 keys of 16 bytes with values of 100, all in the block cache, merged into one
 * run, no compression, filters of 10 bits, logs that are not synced. Prints a table of ns for each operation: medians of rounds in which
 * both sides take turns.
 */
final class Calls {
    private static final int KEYS = 200_000;
    private static final int KEY_BYTES = 16;
    private static final int VALUE_BYTES = 100;
    private static final int ROUNDS = 7;
    private static final int STEPS = 50;
    private static final int BATCH = 1_000;
    private static final long CACHE_BYTES = 256 << 20;

    /** One engine: each method does one operation. */
    private interface Engine extends AutoCloseable {
        byte[] get(byte[] key) throws RocksDBException;

        int get(ByteBuffer key, ByteBuffer value) throws RocksDBException;

        void put(byte[] key, byte[] value) throws RocksDBException;

        void put(ByteBuffer key, ByteBuffer value) throws RocksDBException;

        void putAll(byte[][] keys, int from, byte[] value) throws RocksDBException;

        /** Reads up to {@link #STEPS} entries from a key on, and returns how many. */
        int scan(byte[] from);

        void settle() throws RocksDBException;

        @Override
        void close();
    }

    private Calls() {}

    public static void main(String[] arguments) throws Exception {
        Path work = Files.createTempDirectory("tamis-calls-");
        try (Engine tamis = new Tamis(work.resolve("tamis")); Engine rocksdb = new Rocks(work.resolve("rocksdb"))) {
            measure(Map.of("tamis", tamis, "rocksdb", rocksdb));
        } finally {
            try (Stream<Path> files = Files.walk(work)) {
                files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
            }
        }
    }

    private static byte[] key(Random random) {
        byte[] key = new byte[KEY_BYTES];
        random.nextBytes(key);
        return key;
    }

    private interface Work {
        /** Does operations of a part of the keys, and returns how many. */
        long on(Engine engine, int from, int to) throws Exception;
    }

    private static void measure(Map<String, Engine> engines) throws Exception {
        byte[][] keys = new byte[KEYS][];
        ByteBuffer[] direct = new ByteBuffer[KEYS];
        byte[][] absent = new byte[KEYS][];
        Random random = new Random(1);
        for (int i = 0; i < KEYS; i++) {
            keys[i] = key(random);
            absent[i] = key(random);
            direct[i] = ByteBuffer.allocateDirect(keys[i].length).put(keys[i]).flip();
        }
        byte[] value = new byte[VALUE_BYTES];
        random.nextBytes(value);
        Map<String, Work> works = new LinkedHashMap<>();
        works.put("get, array", (engine, from, to) -> {
            for (int i = from; i < to; i++) {
                check(engine.get(keys[i]).length == VALUE_BYTES);
            }
            return to - from;
        });
        works.put("get, direct buffers", (engine, from, to) -> {
            ByteBuffer into = ByteBuffer.allocateDirect(VALUE_BYTES);
            for (int i = from; i < to; i++) {
                into.clear();
                check(engine.get(direct[i].duplicate(), into) == VALUE_BYTES);
            }
            return to - from;
        });
        works.put("get, absent", (engine, from, to) -> {
            for (int i = from; i < to; i++) {
                check(engine.get(absent[i]) == null);
            }
            return to - from;
        });
        works.put("range: open, " + STEPS + " steps, close; a step", (engine, from, to) -> {
            long steps = 0;
            for (int i = from; i < to; i += STEPS) {
                steps += engine.scan(keys[i]);
            }
            return steps;
        });
        works.put("put, array", (engine, from, to) -> {
            for (int i = from; i < to; i++) {
                engine.put(keys[i], value);
            }
            return to - from;
        });
        works.put("put, direct buffers", (engine, from, to) -> {
            ByteBuffer of = ByteBuffer.allocateDirect(VALUE_BYTES).put(value).flip();
            for (int i = from; i < to; i++) {
                engine.put(direct[i].duplicate(), of.duplicate());
            }
            return to - from;
        });
        works.put("put, batches of " + BATCH, (engine, from, to) -> {
            for (int i = from; i + BATCH <= to; i += BATCH) {
                engine.putAll(keys, i, value);
            }
            return (to - from) / BATCH * BATCH;
        });
        for (Engine engine : engines.values()) {
            works.get("put, array").on(engine, 0, KEYS);
        }
        System.out.println("| ns | threads | tamis | rocksdbjni | ratio |");
        System.out.println("| --- | ---: | ---: | ---: | ---: |");
        for (int threads : new int[] {1, 2}) {
            for (Map.Entry<String, Work> work : works.entrySet()) {
                for (Engine engine : engines.values()) {
                    engine.settle();
                }
                Map<String, List<Double>> figures = Map.of("tamis", new ArrayList<>(), "rocksdb", new ArrayList<>());
                for (int round = -1; round < ROUNDS; round++) {
                    for (String side : round % 2 == 0 ? List.of("tamis", "rocksdb") : List.of("rocksdb", "tamis")) {
                        double ns = timed(work.getValue(), engines.get(side), threads);
                        if (round >= 0) {
                            figures.get(side).add(ns);
                        }
                    }
                }
                double ours = median(figures.get("tamis"));
                double theirs = median(figures.get("rocksdb"));
                System.out.printf(Locale.ROOT, "| %s | %d | %,.0f | %,.0f | %.2f × |%n",
                        work.getKey(), threads, ours, theirs, theirs / ours);
            }
        }
    }

    /** The time of an operation, of one thread of several that share the keys. */
    private static double timed(Work work, Engine engine, int threads) throws Exception {
        long[] done = new long[threads];
        List<Thread> all = new ArrayList<>();
        Exception[] failure = new Exception[1];
        long begin = System.nanoTime();
        for (int t = 0; t < threads; t++) {
            int mine = t;
            Thread thread = new Thread(() -> {
                try {
                    done[mine] = work.on(engine, KEYS / threads * mine, KEYS / threads * (mine + 1));
                } catch (Exception error) {
                    failure[0] = error;
                }
            });
            thread.start();
            all.add(thread);
        }
        for (Thread thread : all) {
            thread.join();
        }
        if (failure[0] != null) {
            throw failure[0];
        }
        return (System.nanoTime() - begin) / (double) Arrays.stream(done).sum() * threads;
    }

    private static double median(List<Double> values) {
        double[] sorted = values.stream().mapToDouble(Double::doubleValue).sorted().toArray();
        return sorted[sorted.length / 2];
    }

    private static void check(boolean right) {
        if (!right) {
            throw new AssertionError("a wrong answer");
        }
    }

    private static final class Tamis implements Engine {
        private final Database db;

        Tamis(Path directory) {
            db = Database.open(directory, new Options().cacheBytes(CACHE_BYTES).set("compression", "none"));
        }

        @Override
        public byte[] get(byte[] key) {
            return db.get(key);
        }

        @Override
        public int get(ByteBuffer key, ByteBuffer value) {
            return db.get(key, value);
        }

        @Override
        public void put(byte[] key, byte[] value) {
            db.put(key, value);
        }

        @Override
        public void put(ByteBuffer key, ByteBuffer value) {
            db.put(key, value);
        }

        @Override
        public void putAll(byte[][] keys, int from, byte[] value) {
            try (WriteBatch batch = new WriteBatch()) {
                for (int i = from; i < from + BATCH; i++) {
                    batch.put(keys[i], value);
                }
                db.write(batch);
            }
        }

        @Override
        public int scan(byte[] from) {
            int steps = 0;
            try (Cursor items = db.items(Range.all().from(from))) {
                for (; steps < STEPS && items.hasNext(); steps++) {
                    check(items.next().value().length == VALUE_BYTES);
                }
            }
            return steps;
        }

        @Override
        public void settle() {
            db.flush();
            db.compact();
        }

        @Override
        public void close() {
            db.close();
        }
    }

    private static final class Rocks implements Engine {
        private final org.rocksdb.Options options = new org.rocksdb.Options();
        private final ReadOptions reads = new ReadOptions();
        private final WriteOptions writes = new WriteOptions();
        private final RocksDB db;

        Rocks(Path directory) throws RocksDBException, IOException {
            Files.createDirectories(directory);
            options.setCreateIfMissing(true)
                    .setCompressionType(org.rocksdb.CompressionType.NO_COMPRESSION)
                    .setTableFormatConfig(new BlockBasedTableConfig()
                            .setBlockCache(new LRUCache(CACHE_BYTES))
                            .setFilterPolicy(new BloomFilter(10)));
            db = RocksDB.open(options, directory.toString());
        }

        @Override
        public byte[] get(byte[] key) throws RocksDBException {
            return db.get(key);
        }

        @Override
        public int get(ByteBuffer key, ByteBuffer value) throws RocksDBException {
            return db.get(reads, key, value);
        }

        @Override
        public void put(byte[] key, byte[] value) throws RocksDBException {
            db.put(key, value);
        }

        @Override
        public void put(ByteBuffer key, ByteBuffer value) throws RocksDBException {
            db.put(writes, key, value);
        }

        @Override
        public void putAll(byte[][] keys, int from, byte[] value) throws RocksDBException {
            try (org.rocksdb.WriteBatch batch = new org.rocksdb.WriteBatch()) {
                for (int i = from; i < from + BATCH; i++) {
                    batch.put(keys[i], value);
                }
                db.write(writes, batch);
            }
        }

        @Override
        public int scan(byte[] from) {
            int steps = 0;
            try (RocksIterator items = db.newIterator(reads)) {
                for (items.seek(from); steps < STEPS && items.isValid(); items.next(), steps++) {
                    check(items.key().length == KEY_BYTES && items.value().length == VALUE_BYTES);
                }
            }
            return steps;
        }

        @Override
        public void settle() throws RocksDBException {
            try (org.rocksdb.FlushOptions flush = new org.rocksdb.FlushOptions()) {
                db.flush(flush);
            }
            db.compactRange();
        }

        @Override
        public void close() {
            db.close();
            writes.close();
            reads.close();
            options.close();
        }
    }
}
