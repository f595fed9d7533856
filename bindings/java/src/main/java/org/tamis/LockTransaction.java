package org.tamis;

import static java.util.Objects.requireNonNull;

/**
 * A transaction that locks what it reads and writes, for keys that many want at once. Others that lock wait for it; plain writers do not.
 * Locks are held until it ends.
 */
public final class LockTransaction extends Transaction {
    LockTransaction(long handle, Database database) {
        super(handle, database);
    }

    /**
     * Returns the value of a key of the default keyspace, and locks it against readers as well as writers.
     *
     * @param key the key
     * @return the value, or null if the key has none
     * @throws ConflictException if the lock was not granted in time, or would close a circle of waiting transactions
     */
    public byte[] getForUpdate(byte[] key) {
        requireNonNull(key, "key");
        return with((transaction, none) -> Native.getForUpdate(transaction, 0, key));
    }

    /**
     * Returns the value of a key, and locks it against readers as well as writers.
     *
     * @param keyspace the keyspace
     * @param key the key
     * @return the value, or null if the key has none
     * @throws ConflictException if the lock was not granted in time, or would close a circle of waiting transactions
     */
    public byte[] getForUpdate(Keyspace keyspace, byte[] key) {
        requireNonNull(key, "key");
        return keyspace(keyspace).with((transaction, place) -> Native.getForUpdate(transaction, place, key));
    }

    /**
     * Stores the transaction's writes durably under a name, as the first phase of a two-phase commit. It survives a crash with its locks,
     * until {@link Database#commitPrepared} or {@link Database#abortPrepared}. This object has ended then, also after an exception.
     *
     * @param name any bytes
     * @throws ExistsException if another transaction is prepared under this name
     */
    public void prepare(byte[] name) {
        requireNonNull(name, "name");
        end(transaction -> {
            Native.prepare(transaction, name);
            return 0;
        });
    }
}
