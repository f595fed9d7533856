package org.tamis.kafka;

import java.nio.ByteBuffer;
import org.tamis.Database;

/**
 * Whether the entries of a store have the order of {@link KeyLayout#toChangelog the changelog's keys}, in which the caches of Kafka Streams
 * merge what they hold with what the store returns.
 *
 * <p>They do unless one key is the beginning of another that goes on with bytes like those of a time, whose first byte is 0. That takes keys of
 * different lengths of which some contain a byte 0, or times beyond the year 2,000,000. So a store whose keys all have one length (numbers,
 * UUIDs), or contain no byte 0 (text), has the order. For others, reads of several keys sort each segment.
 *
 * <p>What is known of the keys is stored, before the first write that changes it; at most three times in a store's life.
 */
final class KeyOrder {
    private static final byte[] KEY = {'k', 'e', 'y', 's'};
    private static final int NONE = -1;
    private static final int DIFFERENT = -2;
    private static final int TIME_BITS = 56;

    private final Database database;
    /** The length of all keys, or one of the above. */
    private int length = NONE;
    /** Whether some key contains a byte that is escaped, or some time is that late. */
    private boolean odd;
    private volatile boolean changelogs = true;

    KeyOrder(Database database) {
        this.database = database;
        byte[] stored = database.get(KEY);
        if (stored != null && stored.length == Integer.BYTES + 1) {
            ByteBuffer known = ByteBuffer.wrap(stored);
            length = known.getInt();
            odd = known.get() != 0;
            update();
        }
    }

    /** Takes note of a key that is about to be written, with its time. */
    void note(byte[] key, int keyLength, long time) {
        int lengthNow = length == NONE || length == keyLength ? keyLength : DIFFERENT;
        boolean oddNow = odd || time >>> TIME_BITS != 0 || KeyLayout.hasEscapes(key, keyLength);
        if (lengthNow != length || oddNow != odd) {
            byte[] record = ByteBuffer.allocate(Integer.BYTES + 1).putInt(lengthNow).put((byte) (oddNow ? 1 : 0)).array();
            database.put(KEY, record);
            length = lengthNow;
            odd = oddNow;
            update();
        }
    }

    private void update() {
        changelogs = length != DIFFERENT || !odd;
    }

    boolean isChangelogs() {
        return changelogs;
    }
}
