package org.tamis;

import java.nio.ByteBuffer;

/**
 * The native library.
 *
 * <p>Handles are those of {@link Ref#enter}; {@code source} is a keyspace, snapshot or transaction, and {@code place} the keyspace of a
 * snapshot or transaction that is meant, or 0 for the default one. A database's handle is that of its default keyspace. Texts are UTF-8, and
 * lists are packed as {@link Text} has it. All methods throw {@link TamisException}.
 */
final class Native {
    static {
        Library.load();
    }

    private Native() {}

    static native byte[] version();

    /** Frees an object. It is not used again. */
    static native void free(long handle);

    /** The number of objects that were not freed. */
    static native long live();

    // Databases.

    /** Opens a database; memory that is 0 is not shared. */
    static native long open(byte[] path, byte[] options, long readMemory, long writeMemory, boolean readOnly);

    static native void close(long database);

    static native byte[] verify(byte[] path, byte[] options);

    static native byte[] salvage(byte[] path, byte[] options, boolean dryRun);

    static native byte[] describeOptions();

    static native void flushAll(long database);

    static native void compactAll(long database);

    static native void cancelCompactions(long database);

    static native void sync(long database);

    static native void waitForCompaction(long database);

    static native void checkpoint(long database, byte[] path);

    static native void setFilterBudget(long database, long bytes);

    static native void setReadMemory(long database, long bytes);

    static final int STATS = 0;
    static final int KEYSPACE_STATS = 1;
    static final int TABLES = 2;
    static final int SEGMENTS = 3;
    static final int DATABASE_OPTIONS = 4;
    static final int KEYSPACE_OPTIONS = 5;
    static final int VERIFY = 6;

    static native byte[] report(long keyspace, int what);

    // Keyspaces.

    static final int EXISTING = 0;
    static final int NEW = 1;
    static final int EXISTING_OR_NEW = 2;

    static native long keyspace(long database, byte[] name, int which, byte[] options);

    static native byte[] name(long keyspace);

    static native byte[] keyspaces(long database);

    static native void dropKeyspace(long database, byte[] name);

    static native void renameKeyspace(long database, byte[] name, byte[] newName);

    static native void setOptions(long keyspace, byte[] options);

    static native void clear(long keyspace);

    static native void flush(long keyspace);

    static native void compact(long keyspace);

    static native void compactRange(long keyspace, byte[] start, byte[] end, int bounds);

    static native long approximateCount(long keyspace, byte[] start, byte[] end, int bounds);

    static native long approximateSize(long keyspace, byte[] start, byte[] end, int bounds);

    static native byte[] explainGet(long keyspace, byte[] key);

    static native long ingest(long keyspace, byte[] paths, boolean moveFiles);

    // Reads.

    static native byte[] get(long source, long place, byte[] key);

    /** Returns the length of the value, which is stored if it fits, or -1. */
    static native int getDirect(
            long keyspace, ByteBuffer key, int keyAt, int keyLength, ByteBuffer value, int valueAt, int room);

    static native boolean containsKey(long source, long place, byte[] key);

    static native byte[][] multiGet(long source, long place, byte[][] keys);

    static native long cursor(
            long source, long place, byte[] start, byte[] end, int bounds, boolean reversed, boolean keysOnly);

    /** Returns a group of items: a byte that says whether more may follow, and each item after the lengths of its key and value. */
    static native byte[] fetch(long cursor);

    /** Moves the front back to a key, if there is one, and returns a group of one item from the other end, or none. */
    static native byte[] nextBack(long cursor, byte[] front);

    static native void seek(long cursor, byte[] key);

    static native long snapshot(long database);

    static native long snapshotSeq(long snapshot);

    // Writes.

    static native void put(long source, long place, byte[] key, byte[] value);

    static native void putDirect(
            long keyspace, ByteBuffer key, int keyAt, int keyLength, ByteBuffer value, int valueAt, int valueLength);

    static native void delete(long source, long place, byte[] key);

    static native void merge(long source, long place, byte[] key, byte[] operand);

    static native void deleteRange(long source, long place, byte[] start, byte[] end, int bounds);

    /** Writes the operations of a {@link WriteBatch}. */
    static native void write(long database, byte[] operations, int length, long[] keyspaces, byte[] durability);

    static native long increment(long keyspace, byte[] key, long by);

    static native boolean compareAndSwap(long keyspace, byte[] key, byte[] expected, byte[] value);

    static native byte[] insertIfAbsent(long keyspace, byte[] key, byte[] value);

    static native byte[] take(long keyspace, byte[] key);

    // Transactions.

    static native long transaction(long database, boolean serializable, byte[] durability);

    static native long lockTransaction(long database, long timeoutMillis, byte[] durability);

    static native long commit(long transaction);

    static native void rollback(long transaction);

    static native long savepoint(long transaction);

    static native void rollbackTo(long transaction, long savepoint);

    static native byte[] getForUpdate(long transaction, long place, byte[] key);

    static native void prepare(long transaction, byte[] name);

    static native byte[] preparedTransactions(long database);

    static native void endPrepared(long database, byte[] name, boolean commit);

    // Shared memory.

    static native long sharedReadMemory(long bytes);

    static native long sharedWriteMemory(long bytes);

    static native long sharedMemoryBytes(long memory);

    static native void setSharedMemoryBytes(long memory, long bytes);

    static native byte[] sharedMemoryMembers(long memory);

    // External tables.

    static native long tableBuilder(byte[] path, byte[] options);

    static native void tablePut(long builder, byte[] key, byte[] value);

    static native void tableDelete(long builder, byte[] key);

    static native void tableDeleteRange(long builder, byte[] start, byte[] end, int bounds);

    static native long tableSize(long builder);

    static native byte[] tableFinish(long builder);
}
