package org.tamis.kafka;

import java.util.HashSet;
import java.util.Set;
import org.tamis.WriteBatch;

/**
 * The writes of a store since its last commit, in memory. The commit writes them as one batch, with the offsets that they belong to; what
 * was not committed is lost with the process, and nothing of it is ever on disk.
 *
 * <p>If they need more than a limit, they are written before their commit, as those that follow until then: memory is bounded. The store
 * is marked as {@link StoreOffsets ahead} of its offsets meanwhile.
 *
 * <p><b>Threads.</b> One thread stages and commits, any number read. The monitor of this object is held while tables change together, and
 * while a range is looked up in both the staged writes and the keyspace. A get needs none: a commit writes before it clears.
 */
final class Staging {
    /** What an entry needs beside its key and value: a node of the map, its index, two arrays' headers. */
    private static final long ENTRY_BYTES = 100;

    private final long limit;
    /** Those with staged writes. */
    private final Set<Table> tables = new HashSet<>();
    private volatile long bytes;
    private boolean on = true;

    /** @param limit the most bytes to stage */
    Staging(long limit) {
        this.limit = limit;
    }

    /** Whether writes are staged, and do not go through. For the thread that writes. */
    boolean isOn() {
        return on;
    }

    /** The bytes that staged writes need, about. */
    long bytes() {
        return bytes;
    }

    boolean isFull() {
        return bytes > limit;
    }

    synchronized void stage(Table table, byte[] key, byte[] value) {
        tables.add(table);
        bytes += ENTRY_BYTES + table.stage(key, value);
    }

    /** Forgets what is staged for a table that is about to be dropped. */
    synchronized void forget(Table table) {
        if (tables.remove(table)) {
            table.forgetStaged();
        }
    }

    /**
     * Adds what is staged to a batch, has the batch written, and forgets it. If writing fails, it stays.
     *
     * @param onAfterwards whether later writes are staged
     */
    synchronized void write(WriteBatch batch, Runnable write, boolean onAfterwards) {
        for (Table table : tables) {
            table.forEachStaged((key, value) -> Writes.put(batch, table.keyspace, key, value));
        }
        write.run();
        tables.forEach(Table::forgetStaged);
        tables.clear();
        bytes = 0;
        on = onAfterwards;
    }
}
