import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Random;
import java.util.stream.Stream;
import org.tamis.Cursor;
import org.tamis.Database;
import org.tamis.Options;
import org.tamis.Range;
import org.tamis.WriteBatch;

/**
 * What operations cost through the Java interface, in ns each: medians of interleaved rounds over 100,000 keys with values of 100 bytes, in memory.
 */
final class Operations {
    private static final int KEYS = 100_000;
    private static final int ROUNDS = 9;
    /** The works from here on read one table. */
    private static final int READS = 3;

    private interface Work {
        /** Does {@link #KEYS} operations. */
        void run();
    }

    public static void main(String[] arguments) throws IOException {
        Path directory = Files.createTempDirectory("operations");
        try (Database db = Database.open(directory, new Options().cacheBytes(256 << 20))) {
            measure(db);
        } finally {
            try (Stream<Path> files = Files.walk(directory)) {
                files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
            }
        }
    }

    private static void measure(Database db) {
        byte[][] keys = new byte[KEYS][];
        byte[][] absent = new byte[KEYS][];
        ByteBuffer[] direct = new ByteBuffer[KEYS];
        Random random = new Random(1);
        for (int i = 0; i < KEYS; i++) {
            keys[i] = String.format("key %016x", random.nextLong()).getBytes(UTF_8);
            absent[i] = String.format("key %016x", random.nextLong()).getBytes(UTF_8);
            direct[i] = ByteBuffer.allocateDirect(keys[i].length).put(keys[i]).flip();
        }
        byte[] value = new byte[100];
        ByteBuffer into = ByteBuffer.allocateDirect(100);
        ByteBuffer from = ByteBuffer.allocateDirect(100);
        WriteBatch batch = new WriteBatch();
        String[] names = {
            "put", "put, direct", "batch of 1,000", "get", "get, direct", "get, absent", "multiGet of 100", "range of 3", "scan", "scan of keys",
        };
        Work[] works = {
            () -> {
                for (byte[] key : keys) {
                    db.put(key, value);
                }
            },
            () -> {
                for (ByteBuffer key : direct) {
                    db.put(key, from);
                }
            },
            () -> {
                for (byte[] key : keys) {
                    batch.put(key, value);
                    if (batch.size() == 1000) {
                        db.write(batch);
                    }
                }
            },
            () -> {
                for (byte[] key : keys) {
                    check(db.get(key) != null);
                }
            },
            () -> {
                for (ByteBuffer key : direct) {
                    into.clear();
                    check(db.get(key, into) == 100);
                }
            },
            () -> {
                for (byte[] key : absent) {
                    check(db.get(key) == null);
                }
            },
            () -> {
                for (int i = 0; i < KEYS; i += 100) {
                    check(db.multiGet(Arrays.copyOfRange(keys, i, i + 100)).length == 100);
                }
            },
            () -> {
                for (byte[] key : keys) {
                    try (Cursor items = db.items(Range.all().from(key))) {
                        for (int i = 0; i < 3 && items.hasNext(); i++) {
                            check(items.next().value().length == 100);
                        }
                    }
                }
            },
            () -> {
                try (Cursor items = db.items(Range.all())) {
                    items.forEachRemaining(entry -> check(entry.value().length == 100));
                }
            },
            () -> {
                try (Cursor items = db.keys(Range.all())) {
                    items.forEachRemaining(entry -> check(entry.key().length == 20));
                }
            },
        };
        long[][] nanos = new long[works.length][ROUNDS];
        for (int round = -1; round < ROUNDS; round++) {
            for (int i = 0; i < works.length; i++) {
                if (i == READS) {
                    db.flush();
                    db.compact();
                }
                long begun = System.nanoTime();
                works[i].run();
                if (round >= 0) {
                    nanos[i][round] = System.nanoTime() - begun;
                }
            }
        }
        for (int i = 0; i < works.length; i++) {
            Arrays.sort(nanos[i]);
            System.out.printf("%-18s %,8d%n", names[i], nanos[i][ROUNDS / 2] / KEYS);
        }
    }

    private static void check(boolean right) {
        if (!right) {
            throw new AssertionError();
        }
    }
}
