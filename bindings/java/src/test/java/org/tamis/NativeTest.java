package org.tamis;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.tamis.Testing.assertCode;
import static org.tamis.Testing.b;
import static org.tamis.Testing.s;

import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** The native methods, with arguments that the classes above them never pass. */
final class NativeTest {
    @TempDir
    private Path directory;

    private Database db;
    private long handle;

    @BeforeEach
    void open() {
        db = Database.open(directory);
        handle = db.source().enter();
    }

    @AfterEach
    void close() {
        db.source().exit();
        db.close();
    }

    @Test
    void handlesOfAnotherKind() {
        byte[] k = b("k");
        long memory = Native.sharedReadMemory(1 << 20);
        long snapshot = Native.snapshot(handle);
        long cursor = Native.cursor(handle, 0, null, null, 0, false, false);
        List<Executable> calls = List.of(
                () -> Native.get(0, 0, k),
                () -> Native.get(memory, 0, k),
                () -> Native.get(cursor, 0, k),
                () -> Native.get(snapshot, snapshot, k),
                () -> Native.put(snapshot, 0, k, k),
                () -> Native.delete(snapshot, 0, k),
                () -> Native.merge(snapshot, 0, k, k),
                () -> Native.deleteRange(snapshot, 0, k, k, 0),
                () -> Native.increment(snapshot, k, 1),
                () -> Native.snapshotSeq(handle),
                () -> Native.fetch(handle),
                () -> Native.fetch(memory),
                () -> Native.commit(handle),
                () -> Native.commit(snapshot),
                () -> Native.getForUpdate(handle, 0, k),
                () -> Native.sharedMemoryBytes(handle),
                () -> Native.open(k, new byte[0], handle, 0, false),
                () -> Native.open(k, new byte[0], 0, memory, false),
                () -> Native.tablePut(handle, k, k),
                () -> Native.tableFinish(cursor),
                () -> Native.report(handle, 7),
                () -> Native.report(handle, -1),
                () -> Native.write(handle, new byte[0], 0, new long[] {snapshot}, null),
                () -> Native.write(handle, new byte[0], 0, new long[] {0}, null),
                () -> Native.write(handle, new byte[0], -1, new long[0], null));
        for (int i = 0; i < calls.size(); i++) {
            Executable call = calls.get(i);
            assertCode(ErrorCode.INVALID_ARGUMENT, call);
        }
        Native.free(cursor);
        Native.free(snapshot);
        Native.free(memory);
        Native.free(0);
    }

    @Test
    void nullIsRefused() {
        byte[] k = b("k");
        ByteBuffer direct = ByteBuffer.allocateDirect(8);
        List<Executable> calls = List.of(
                () -> Native.get(handle, 0, null),
                () -> Native.multiGet(handle, 0, null),
                () -> Native.multiGet(handle, 0, new byte[][] {k, null}),
                () -> Native.put(handle, 0, k, null),
                () -> Native.seek(Native.cursor(handle, 0, null, null, 0, false, false), null),
                () -> Native.getDirect(handle, null, 0, 0, direct, 0, 0),
                () -> Native.putDirect(handle, direct, 0, 0, null, 0, 0),
                () -> Native.keyspace(handle, null, 0, new byte[0]),
                () -> Native.keyspace(handle, k, 0, null),
                () -> Native.open(null, new byte[0], 0, 0, false));
        for (Executable call : calls) {
            assertCode(ErrorCode.INVALID_ARGUMENT, call);
        }
    }

    @Test
    void partsOutsideOfTheirBuffer() {
        ByteBuffer direct = ByteBuffer.allocateDirect(8);
        int most = Integer.MAX_VALUE;
        int[][] parts = {{0, 9}, {9, 0}, {8, 1}, {-1, 1}, {1, -1}, {most, most}, {1, most}, {Integer.MIN_VALUE, 0}};
        for (int[] part : parts) {
            assertCode(
                    ErrorCode.INVALID_ARGUMENT,
                    () -> Native.getDirect(handle, direct, part[0], part[1], direct, 0, 8));
            assertCode(
                    ErrorCode.INVALID_ARGUMENT,
                    () -> Native.getDirect(handle, direct, 0, 8, direct, part[0], part[1]));
            assertCode(
                    ErrorCode.INVALID_ARGUMENT,
                    () -> Native.putDirect(handle, direct, 0, 8, direct, part[0], part[1]));
        }
        // A buffer on the heap has no address.
        ByteBuffer onHeap = ByteBuffer.allocate(8);
        assertCode(ErrorCode.INVALID_ARGUMENT, () -> Native.putDirect(handle, onHeap, 0, 8, direct, 0, 8));
        Native.putDirect(handle, direct, 8, 0, direct, 0, 8);
        assertEquals(8, Native.getDirect(handle, direct, 8, 0, direct, 0, 8));
    }

    /** Batches that another thread changes while they are written: every one is refused, or is some batch. */
    @Test
    void damagedBatches() {
        byte[] whole;
        try (WriteBatch batch = new WriteBatch()) {
            batch.put(b("a"), b("1")).delete(b("b")).deleteRange(b("c"), b("d")).put(db, b("e"), b("2"));
            whole = batch.copy();
        }
        Random random = new Random(1);
        int written = 0;
        for (int i = 0; i < 5000; i++) {
            byte[] damaged = whole.clone();
            for (int times = random.nextInt(3); times >= 0; times--) {
                damaged[random.nextInt(damaged.length)] = (byte) random.nextInt(256);
            }
            written += isWritten(damaged, random.nextInt(damaged.length + 1)) ? 1 : 0;
        }
        assertTrue(written > 0 && written < 5000, written + " were written");
        for (int length = 1; length < 13; length++) {
            int part = length;
            assertCode(
                    ErrorCode.INVALID_ARGUMENT, () -> Native.write(handle, whole, part, new long[] {handle}, null));
        }
        db.clear();
        Native.write(handle, whole, whole.length, new long[] {handle}, null);
        assertEquals("1", s(db.get(b("a"))));
        assertEquals("2", s(db.get(b("e"))));
        assertNull(db.get(b("b")));
    }

    private boolean isWritten(byte[] operations, int length) {
        try {
            Native.write(handle, operations, length, new long[] {handle}, null);
            return true;
        } catch (TamisException refused) {
            List<ErrorCode> codes = List.of(
                    ErrorCode.INVALID_ARGUMENT, ErrorCode.REVERSED_RANGE, ErrorCode.NO_MERGE_OPERATOR);
            assertTrue(codes.contains(refused.code()), refused.getMessage());
            return false;
        }
    }

    @Test
    void damagedTexts() {
        List<byte[]> damaged = List.of(
                new byte[] {1},
                new byte[] {1, 0, 0, 0},
                new byte[] {-1, -1, -1, -1, 'a'},
                // A name without a value, and a byte that is no text.
                new byte[] {1, 0, 0, 0, 'a'},
                new byte[] {1, 0, 0, 0, -1, 1, 0, 0, 0, 'a'});
        for (byte[] packed : damaged) {
            assertCode(ErrorCode.INVALID_ARGUMENT, () -> Native.setOptions(handle, packed));
        }
        assertCode(ErrorCode.INVALID_ARGUMENT, () -> Native.dropKeyspace(handle, new byte[] {-1}));
    }
}
