package org.tamis.kafka;

import java.util.HashSet;
import java.util.Set;
import org.tamis.Database;
import org.tamis.WriteBatch;

/**
 * The writes of a store since its last commit, in memory. The commit writes them as one batch, with the offsets that they belong to; what
 * was not committed is lost with the process, and nothing of it is ever on disk. Kafka Streams bounds the memory: it commits when the
 * stores of a thread have told it too many {@link #bytes}.
 *
 * <p><b>Threads.</b> One thread stages and commits, any number read. The monitor of this object is held while tables change together, and
 * while a range is looked up in both the staged writes and the keyspace. A get needs none: a commit writes before it clears.
 */
final class Staging {
    /** Those with staged writes. */
    private final Set<Table> tables = new HashSet<>();
    private volatile long bytes;

    /** The bytes that staged writes need, about. */
    long bytes() {
        return bytes;
    }

    synchronized void stage(Table table, byte[] key, byte[] value) {
        tables.add(table);
        bytes += table.stage(key, value);
    }

    /** Forgets what is staged for a table that is about to be dropped. */
    synchronized void forget(Table table) {
        if (tables.remove(table)) {
            table.forgetStaged();
        }
    }

    /** Forgets all that is staged. */
    synchronized void forget() {
        tables.forEach(Table::forgetStaged);
        tables.clear();
        bytes = 0;
    }

    /** Adds what is staged to a batch, writes the batch, and forgets what was staged. If writing fails, it stays. */
    synchronized void write(WriteBatch batch, Database database) {
        for (Table table : tables) {
            table.forEachStaged((key, value) -> Writes.put(batch, table.keyspace, key, value));
        }
        database.write(batch);
        forget();
    }
}
