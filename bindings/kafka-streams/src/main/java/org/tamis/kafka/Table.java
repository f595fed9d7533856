package org.tamis.kafka;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.concurrent.ConcurrentNavigableMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.function.BiConsumer;
import org.apache.kafka.streams.KeyValue;
import org.tamis.Keyspace;
import org.tamis.Range;

/**
 * A keyspace of a store, with the store's {@link Staging staged} writes on top.
 *
 * <p><b>Threads.</b> One thread writes, any number read.
 */
final class Table {
    /** Stands for the value of a key whose delete is staged: compared by identity. */
    private static final byte[] DELETED = new byte[0];

    /** What a staged entry needs beside its key and value: a node of the map, its index, two arrays' headers. */
    private static final long ENTRY_BYTES = 100;

    final Keyspace keyspace;
    /** Null: writes go through. */
    private final Staging staging;
    private final ConcurrentNavigableMap<byte[], byte[]> staged = new ConcurrentSkipListMap<>(Arrays::compareUnsigned);

    Table(Keyspace keyspace, Staging staging) {
        this.keyspace = keyspace;
        this.staging = staging;
    }

    /** The same table without what is staged. */
    Table committed() {
        return staging == null ? this : new Table(keyspace, null);
    }

    /** Sets the value of a key, or deletes the key if the value is null. */
    void put(byte[] key, byte[] value) {
        if (staging != null) {
            staging.stage(this, key, value);
        } else if (value == null) {
            keyspace.delete(key);
        } else {
            keyspace.put(key, value);
        }
    }

    /** Adds a write to what is staged, which shares no array with the caller. Returns the bytes by which that has grown. */
    long stage(byte[] key, byte[] value) {
        byte[] now = value == null ? DELETED : value.clone();
        byte[] before = staged.put(key.clone(), now);
        return before == null ? ENTRY_BYTES + key.length + now.length : now.length - before.length;
    }

    private static byte[] copy(byte[] staged) {
        return staged == DELETED ? null : staged.clone();
    }

    /** The value of a key, or null. */
    byte[] get(byte[] key) {
        // A commit writes to the keyspace before it clears what was staged, so one of the two has it.
        byte[] found = staging == null ? null : staged.get(key);
        if (found == null) {
            return keyspace.get(key);
        }
        return copy(found);
    }

    /** The entries of a range, in its direction, as they are now. */
    Scan items(Range range) {
        return scan(range, false);
    }

    /** The same without values. */
    Scan keys(Range range) {
        return scan(range, true);
    }

    private Scan scan(Range range, boolean keysOnly) {
        if (staging == null) {
            return Scan.of(keysOnly ? keyspace.keys(range) : keyspace.items(range));
        }
        // No commit in between.
        synchronized (staging) {
            List<KeyValue<byte[], byte[]>> above = new ArrayList<>();
            NavigableMap<byte[], byte[]> within = range.within(staged);
            within.forEach((key, value) -> above.add(KeyValue.pair(key.clone(), copy(value))));
            Scan below = Scan.of(keysOnly ? keyspace.keys(range) : keyspace.items(range));
            return above.isEmpty() ? below : new OverlaidScan(above, below, within.comparator());
        }
    }

    long approximateCount() {
        return keyspace.approximateCount() + staged.size();
    }

    /** Passes on what is staged: keys with values, or with null for deletes. */
    void forEachStaged(BiConsumer<byte[], byte[]> action) {
        for (Map.Entry<byte[], byte[]> entry : staged.entrySet()) {
            action.accept(entry.getKey(), entry.getValue() == DELETED ? null : entry.getValue());
        }
    }

    void forgetStaged() {
        staged.clear();
    }
}
