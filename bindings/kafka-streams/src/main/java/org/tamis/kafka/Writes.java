package org.tamis.kafka;

import java.util.ArrayList;
import java.util.List;
import org.tamis.Database;
import org.tamis.Keyspace;
import org.tamis.WriteBatch;

/** Writes of a store that take effect together, at once or with the next commit. */
final class Writes implements AutoCloseable {
    private final Database database;
    /** Where they are staged, or null. */
    private final Staging staging;
    /** Null: they are staged. */
    private final WriteBatch batch;

    private final List<Runnable> staged = new ArrayList<>();

    Writes(Database database, Staging staging) {
        this.database = database;
        this.staging = staging;
        batch = staging == null ? new WriteBatch() : null;
    }

    /** Adds a write, or a delete if the value is null. */
    void put(Table table, byte[] key, byte[] value) {
        if (batch == null) {
            staged.add(() -> staging.stage(table, key, value));
        } else {
            put(batch, table.keyspace, key, value);
        }
    }

    static void put(WriteBatch batch, Keyspace keyspace, byte[] key, byte[] value) {
        if (value == null) {
            batch.delete(keyspace, key);
        } else {
            batch.put(keyspace, key, value);
        }
    }

    /** Does all of it. */
    void apply() {
        if (batch != null) {
            database.write(batch);
            return;
        }
        synchronized (staging) {
            staged.forEach(Runnable::run);
        }
        staged.clear();
    }

    @Override
    public void close() {
        if (batch != null) {
            batch.close();
        }
    }
}
