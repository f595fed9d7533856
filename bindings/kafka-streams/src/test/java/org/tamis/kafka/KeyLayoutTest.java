package org.tamis.kafka;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Random;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.junit.jupiter.api.Test;

class KeyLayoutTest {
    private final Random random = new Random(23);

    /** Short keys of few bytes, so that many are equal, or the beginning of another. */
    private byte[] key() {
        byte[] key = new byte[random.nextInt(5)];
        byte[] alphabet = {0, 1, 2, 0x7F, (byte) 0x80, (byte) 0xFF};
        for (int i = 0; i < key.length; i++) {
            key[i] = alphabet[random.nextInt(alphabet.length)];
        }
        return key;
    }

    @Test
    void theOrderIsThatOfKeysThenTimes() {
        for (int i = 0; i < 100_000; i++) {
            byte[] a = key();
            byte[] b = key();
            long atA = random.nextInt(3);
            long atB = random.nextInt(3);
            int expected = Arrays.compareUnsigned(a, b) != 0 ? Arrays.compareUnsigned(a, b) : Long.compare(atA, atB);
            int actual = Arrays.compareUnsigned(KeyLayout.window(a, atA, 0), KeyLayout.window(b, atB, 0));
            assertEquals(Integer.signum(expected), Integer.signum(actual));
        }
    }

    @Test
    void whatWasEncodedComesBack() {
        for (int i = 0; i < 10_000; i++) {
            byte[] key = key();
            long start = random.nextLong() >>> 1;
            long end = random.nextLong() >>> 1;
            byte[] window = KeyLayout.window(key, start, i);
            assertArrayEquals(key, KeyLayout.WINDOW.key(window));
            assertEquals(start, KeyLayout.WINDOW.segmentTime(window));
            byte[] session = KeyLayout.session(key, start, end);
            assertArrayEquals(key, KeyLayout.SESSION.key(session));
            assertEquals(start, KeyLayout.sessionStart(session));
            assertEquals(end, KeyLayout.SESSION.segmentTime(session));
        }
    }

    @Test
    void theChangelogHasKafkasForm() {
        for (int i = 0; i < 10_000; i++) {
            byte[] key = key();
            long time = random.nextLong() >>> 1;
            byte[] changelog = ByteBuffer.allocate(key.length + 12).put(key).putLong(time).putInt(i).array();
            assertArrayEquals(KeyLayout.window(key, time, i), KeyLayout.WINDOW.fromChangelog(changelog));
            assertArrayEquals(changelog, KeyLayout.WINDOW.toChangelog(KeyLayout.window(key, time, i)));
        }
        assertThrows(ProcessorStateException.class, () -> KeyLayout.WINDOW.fromChangelog(new byte[11]));
        assertThrows(ProcessorStateException.class, () -> KeyLayout.SESSION.fromChangelog(new byte[15]));
        assertThrows(ProcessorStateException.class, () -> KeyLayout.SESSION.fromChangelog(null));
    }

    @Test
    void allEntriesOfAKeyAndNoOthersHaveItsPrefix() {
        for (int i = 0; i < 100_000; i++) {
            byte[] key = key();
            byte[] other = key();
            byte[] prefix = KeyLayout.prefix(key);
            byte[] stored = KeyLayout.window(other, 0, 0);
            boolean has = stored.length >= prefix.length && Arrays.equals(prefix, Arrays.copyOf(stored, prefix.length));
            assertEquals(Arrays.equals(key, other), has);
        }
    }

    /** The engine's filter takes the prefix up to the first byte 0. */
    @Test
    void thePrefixEndsWithTheFirstByteZero() {
        for (int i = 0; i < 10_000; i++) {
            byte[] prefix = KeyLayout.prefix(key());
            for (int at = 0; at < prefix.length; at++) {
                assertEquals(at == prefix.length - 1, prefix[at] == 0);
            }
        }
    }

    /** Bytes that no key is encoded to are decoded to something, without an exception. */
    @Test
    void damagedEscapesAreDecoded() {
        byte[] stored = new byte[20];
        Arrays.fill(stored, (byte) 1);
        assertTrue(KeyLayout.WINDOW.key(stored).length <= 7);
        assertFalse(KeyLayout.hasEscapes(new byte[] {2, 3}, 2));
    }
}
