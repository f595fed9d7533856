package org.tamis.kafka.it.bench;

import java.nio.ByteBuffer;
import java.util.Arrays;

/**
 * The keys and values of measurements, determined by their number. Keys have 16 bytes: in the order of their numbers they fall
 * anywhere, and those of numbers that were not written fall among those that were. Values cannot be compressed.
 */
final class Entries {
    static final int KEY_BYTES = 16;

    private Entries() {}

    static byte[] key(long number) {
        return ByteBuffer.allocate(KEY_BYTES).putLong(mixed(number)).putLong(number).array();
    }

    static byte[] value(long number, int bytes) {
        ByteBuffer value = ByteBuffer.allocate((bytes + Long.BYTES - 1) / Long.BYTES * Long.BYTES);
        for (long word = 1; value.hasRemaining(); word++) {
            value.putLong(mixed(number * 31 + word));
        }
        return Arrays.copyOf(value.array(), bytes);
    }

    /** The number of probe or update {@code i}: spread over {@code count}. */
    static long drawn(long i, long count) {
        return Math.floorMod(mixed(i ^ 0x5555_5555_5555_5555L), count);
    }

    /** The finalizer of SplitMix64: a bijection. */
    private static long mixed(long number) {
        long z = number + 0x9E37_79B9_7F4A_7C15L;
        z = (z ^ (z >>> 30)) * 0xBF58_476D_1CE4_E5B9L;
        z = (z ^ (z >>> 27)) * 0x94D0_49BB_1331_11EBL;
        return z ^ (z >>> 31);
    }
}
