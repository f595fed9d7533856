package org.tamis;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.tamis.Testing.assertCode;
import static org.tamis.Testing.b;
import static org.tamis.Testing.s;

import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Buffers of every kind as keys and values. */
final class BuffersTest {
    @TempDir
    private Path directory;

    private Database db;

    @BeforeEach
    void open() {
        db = Database.open(directory);
    }

    @AfterEach
    void close() {
        db.close();
    }

    private static ByteBuffer direct(byte[] bytes) {
        ByteBuffer buffer = ByteBuffer.allocateDirect(bytes.length);
        buffer.put(bytes).flip();
        return buffer;
    }

    /** The bytes in all kinds of buffers: whole, within a larger one, a slice of a larger one, read-only. */
    private static List<ByteBuffer> all(byte[] bytes) {
        ByteBuffer larger = ByteBuffer.allocateDirect(bytes.length + 10);
        larger.position(4);
        larger.put(bytes).flip().position(4);
        ByteBuffer onHeap = ByteBuffer.allocate(bytes.length + 10);
        onHeap.position(4);
        onHeap.put(bytes).flip().position(4);
        return List.of(
                direct(bytes), larger, larger.slice(), larger.asReadOnlyBuffer(), larger.slice().asReadOnlyBuffer(),
                ByteBuffer.wrap(bytes), onHeap, onHeap.slice(), onHeap.asReadOnlyBuffer());
    }

    @Test
    void whatRemainsIsTheKeyAndTheValue() {
        int number = 0;
        for (ByteBuffer key : all(b("key"))) {
            for (ByteBuffer value : all(b("some value"))) {
                int keyAt = key.position();
                int valueAt = value.position();
                db.clear();
                db.put(key, value);
                assertEquals("some value", s(db.get(b("key"))));
                assertEquals(List.of(keyAt, valueAt), List.of(key.position(), value.position()));
                assertEquals(List.of(3, 10), List.of(key.remaining(), value.remaining()));
                number++;
            }
        }
        assertEquals(81, number);
    }

    @Test
    void theValueIsStoredAtThePosition() {
        db.put(b("key"), b("value"));
        for (ByteBuffer key : all(b("key"))) {
            for (ByteBuffer into : List.of(ByteBuffer.allocateDirect(20), ByteBuffer.allocate(20))) {
                into.position(5);
                for (ByteBuffer value : List.of(into, into.duplicate().slice())) {
                    int at = value.position();
                    assertEquals(5, db.get(key, value));
                    assertEquals(at, value.position());
                    byte[] read = new byte[value.remaining()];
                    value.get(read);
                    assertEquals("value", s(read));
                    assertEquals(0, into.duplicate().get(4));
                    assertEquals(0, into.duplicate().clear().get(10));
                }
            }
        }
    }

    @Test
    void whatDoesNotFitIsNotStored() {
        db.put(b("key"), b("value"));
        db.put(b("empty"), new byte[0]);
        for (ByteBuffer room : List.of(ByteBuffer.allocateDirect(4), ByteBuffer.allocate(4))) {
            assertEquals(5, db.get(direct(b("key")), room));
            assertEquals(4, room.remaining());
            assertEquals(0, room.getInt(0));
            assertEquals(-1, db.get(direct(b("absent")), room));
            assertEquals(4, room.remaining());
            assertEquals(0, db.get(direct(b("empty")), room));
            assertEquals(0, room.remaining());
            assertEquals(5, db.get(direct(b("key")), room));
        }
        assertEquals(5, db.get(direct(b("key")), ByteBuffer.allocateDirect(0)));
    }

    @Test
    void emptyAndLongOnes() {
        ByteBuffer empty = ByteBuffer.allocateDirect(0);
        db.put(empty, empty);
        assertArrayEquals(new byte[0], db.get(new byte[0]));
        assertEquals(0, db.get(empty, ByteBuffer.allocateDirect(1)));
        byte[] key = new byte[65536];
        byte[] value = new byte[1 << 20];
        key[65535] = 1;
        value[1 << 19] = 2;
        db.put(direct(key), direct(value));
        ByteBuffer into = ByteBuffer.allocateDirect(1 << 20);
        assertEquals(1 << 20, db.get(direct(key), into));
        assertEquals(direct(value), into);
        assertCode(ErrorCode.KEY_TOO_LONG, () -> db.put(ByteBuffer.allocateDirect(65537), empty));
    }

    @Test
    void oneBufferMayBeBoth() {
        ByteBuffer both = direct(b("key--"));
        db.put(both, both);
        assertEquals(5, db.get(both, both));
        assertEquals("key--", s(db.get(b("key--"))));
    }

    @Test
    void readOnlyRoomIsRefused() {
        db.put(b("key"), b("value"));
        for (ByteBuffer room : List.of(ByteBuffer.allocateDirect(9), ByteBuffer.allocate(9))) {
            ByteBuffer readOnly = room.asReadOnlyBuffer();
            assertThrows(ReadOnlyBufferException.class, () -> db.get(direct(b("key")), readOnly));
            assertEquals(0, room.get(0));
        }
    }
}
