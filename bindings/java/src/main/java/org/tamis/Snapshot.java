package org.tamis;

import static java.util.Objects.requireNonNull;

/**
 * The state of the database at one moment, in all keyspaces. Its methods read the default keyspace. Keeps old versions on disk
 * until it is closed. May be used by several threads at once.
 */
public final class Snapshot extends Reader implements AutoCloseable {
    private final Ref ref;
    private final Database database;

    Snapshot(long handle, Database database) {
        ref = Ref.of(this, handle, database.source(), "the snapshot was released");
        this.database = database;
    }

    @Override
    Ref source() {
        return ref;
    }

    @Override
    Ref place() {
        return null;
    }

    @Override
    Database database() {
        return database;
    }

    /**
     * Returns a keyspace as the snapshot has it.
     *
     * @param keyspace a keyspace of the same database
     * @return what can be read of it, until the snapshot is closed
     */
    public Reader keyspace(Keyspace keyspace) {
        return new View(this, requireNonNull(keyspace, "keyspace"));
    }

    /**
     * Returns the sequence number of the last write that the snapshot sees.
     *
     * @return the number
     */
    public long seq() {
        return with((snapshot, none) -> Native.snapshotSeq(snapshot));
    }

    /** Releases the snapshot. A second call does nothing. */
    @Override
    public void close() {
        ref.close();
    }

    private static final class View extends Reader {
        private final Snapshot snapshot;
        private final Keyspace keyspace;

        View(Snapshot snapshot, Keyspace keyspace) {
            this.snapshot = snapshot;
            this.keyspace = keyspace;
        }

        @Override
        Ref source() {
            return snapshot.source();
        }

        @Override
        Ref place() {
            return keyspace.source();
        }

        @Override
        Database database() {
            return snapshot.database();
        }
    }
}
