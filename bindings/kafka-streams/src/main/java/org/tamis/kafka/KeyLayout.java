package org.tamis.kafka;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Comparator;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.errors.ProcessorStateException;

/**
 * How the entries of a window or session store are laid out as keys of tamis, and how as keys of the changelog.
 *
 * <p>The changelog has Kafka's form: the record's key, then a suffix of fixed length: a window's start and a sequence number, or a
 * session's end and start. There the entries of a key are not together: those of {@code "a"} and of {@code "a\0"} alternate.
 *
 * <p>tamis has the escaped key, a terminator, and the same suffix. The terminator is the byte 0, which the escaped key does not contain:
 * {@code 00} is written {@code 01 01}, and {@code 01} is written {@code 01 02}. So escaped keys have the order of the keys, none is a prefix
 * of another, the entries of a key are one range, and all have the prefix up to the first byte 0, which the engine's filter knows.
 */
enum KeyLayout {
    /** Suffix: the start of the window (8 bytes), a sequence number (4 bytes). */
    WINDOW(Long.BYTES + Integer.BYTES),
    /** Suffix: the end of the session, and its start (8 bytes each). */
    SESSION(2 * Long.BYTES),
    /** As of a session, for the time in which a version was valid. */
    VERSION(2 * Long.BYTES);

    /** The engine's option for the prefix that all entries of a key have. */
    static final String PREFIX_FILTER = "delimiter 0x00";

    private static final byte TERMINATOR = 0;
    private static final byte ESCAPE = 1;
    private static final int ESCAPED_BITS = 1;

    private final int suffix;

    KeyLayout(int suffix) {
        this.suffix = suffix;
    }

    /** A key of tamis for a window. */
    static byte[] window(byte[] key, long start, int sequence) {
        return escaped(key, key.length, WINDOW.suffix).putLong(start).putInt(sequence).array();
    }

    /** A key of tamis for a session. */
    static byte[] session(byte[] key, long start, long end) {
        return escaped(key, key.length, SESSION.suffix).putLong(end).putLong(start).array();
    }

    /** The escaped key with its terminator: what all entries of a key begin with. */
    static byte[] prefix(byte[] key) {
        return escaped(key, key.length, 0).array();
    }

    /** The escaped key without its terminator: what precedes all entries of the key and of those after it. */
    static byte[] start(byte[] key) {
        byte[] prefix = prefix(key);
        return Arrays.copyOf(prefix, prefix.length - 1);
    }

    /** The key of tamis for a key of the changelog. */
    byte[] fromChangelog(byte[] key) {
        if (key == null || key.length < suffix) {
            throw new ProcessorStateException("a changelog record has a key that no " + this + " entry has: "
                    + (key == null ? "null" : Bytes.wrap(key).toString()));
        }
        int length = key.length - suffix;
        return escaped(key, length, suffix).put(key, length, suffix).array();
    }

    /** The key of the changelog for a key of tamis. */
    byte[] toChangelog(byte[] stored) {
        byte[] key = key(stored);
        byte[] raw = Arrays.copyOf(key, key.length + suffix);
        System.arraycopy(stored, stored.length - suffix, raw, key.length, suffix);
        return raw;
    }

    /** The time that decides in which segment an entry is: the start of a window, the end of a session. */
    long segmentTime(byte[] stored) {
        return ByteBuffer.wrap(stored).getLong(stored.length - suffix);
    }

    /** The key of an entry in an index by time: its time, and its stored key. */
    byte[] timeKey(byte[] stored) {
        return ByteBuffer.allocate(Long.BYTES + stored.length).putLong(segmentTime(stored)).put(stored).array();
    }

    /** The stored key, of a key in an index by time. */
    static byte[] ofTimeKey(byte[] timeKey) {
        return Arrays.copyOfRange(timeKey, Long.BYTES, timeKey.length);
    }

    /** The start of a session. */
    static long sessionStart(byte[] stored) {
        return ByteBuffer.wrap(stored).getLong(stored.length - Long.BYTES);
    }

    /** The order of the changelog's keys, for keys of tamis. */
    Comparator<byte[]> changelogOrder() {
        return (a, b) -> Arrays.compareUnsigned(toChangelog(a), toChangelog(b));
    }

    /** The record's key, of a key of tamis. */
    byte[] key(byte[] stored) {
        int end = stored.length - suffix - 1;
        byte[] key = new byte[Math.max(end, 0)];
        int length = 0;
        for (int i = 0; i < end; i++) {
            boolean escape = stored[i] == ESCAPE && i + 1 < end;
            key[length++] = escape ? (byte) (stored[++i] - 1) : stored[i];
        }
        return length == key.length ? key : Arrays.copyOf(key, length);
    }

    /** Whether a key contains a byte that is escaped. */
    static boolean hasEscapes(byte[] key, int length) {
        return escapes(key, length) > 0;
    }

    int suffixLength() {
        return suffix;
    }

    private static int escapes(byte[] key, int length) {
        int escapes = 0;
        for (int i = 0; i < length; i++) {
            if ((key[i] & ~ESCAPED_BITS) == 0) {
                escapes++;
            }
        }
        return escapes;
    }

    /** A buffer with the escaped key and the terminator, at whose position a suffix has room. */
    private static ByteBuffer escaped(byte[] key, int length, int suffix) {
        int escapes = escapes(key, length);
        byte[] stored = new byte[length + escapes + 1 + suffix];
        if (escapes == 0) {
            System.arraycopy(key, 0, stored, 0, length);
        } else {
            int at = 0;
            for (int i = 0; i < length; i++) {
                byte b = key[i];
                if ((b & ~ESCAPED_BITS) == 0) {
                    stored[at++] = ESCAPE;
                    b++;
                }
                stored[at++] = b;
            }
        }
        stored[length + escapes] = TERMINATOR;
        return ByteBuffer.wrap(stored).position(length + escapes + 1);
    }
}
