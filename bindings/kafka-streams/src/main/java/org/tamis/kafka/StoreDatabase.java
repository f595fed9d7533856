package org.tamis.kafka;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.query.Position;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.tamis.Database;
import org.tamis.Keyspace;
import org.tamis.Options;
import org.tamis.TamisException;
import org.tamis.WriteBatch;

/** The database of one store, in a directory of its own within that of the task. */
final class StoreDatabase implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(StoreDatabase.class);

    /** The directory of a task in which its stores have theirs. */
    static final String DIRECTORY = "tamis";

    /**
     * Memtables as large as those of Kafka's default store, and little disk beside the data: a store on a full disk is restored elsewhere.
     * The few offsets are seldom flushed, and keep logs from being removed: up to four memtables' worth.
     */
    private static final Map<String, String> DEFAULTS = Map.of(
            "memtable_bytes", "16 MiB", "reserve_bytes", "0", "recycled_logs", "1", "max_log_bytes", "64 MiB");

    private final Database database;
    private final StoreOffsets offsets;
    /** Null: writes go through. */
    private final Staging staging;
    /** Where restored records wait for the rest of their batch if they depend on each other; the same, if there is that. Or null. */
    private final Staging restoring;

    private final boolean isHistory;
    private final Table entries;
    /** Those of the store, if it has any. */
    private Segments segments;

    private StoreDatabase(Database database, Staging staging, boolean isHistory) {
        this.database = database;
        this.staging = staging;
        this.isHistory = isHistory;
        restoring = staging == null && isHistory ? new Staging() : staging;
        offsets = new StoreOffsets(database);
        entries = table(database);
    }

    /**
     * Opens the database of a store, or creates it, with options of its kind besides those of all stores. What it needs is given back
     * by {@link #close}.
     *
     * @param staging where writes wait for their commit; null: they go through
     * @param isHistory whether what a record changes depends on the records before it
     */
    static StoreDatabase open(
            String store,
            File stateDirectory,
            Map<String, ?> configs,
            Map<String, String> ofKind,
            Staging staging,
            boolean isHistory) {
        Path directory = directory(store, stateDirectory);
        Map<String, String> defaults = new HashMap<>(DEFAULTS);
        defaults.putAll(ofKind);
        TamisConfig config = TamisConfig.of(configs, store, defaults);
        try {
            Files.createDirectories(directory);
            // What a crash has left.
            Utils.delete(aside(directory).toFile());
        } catch (IOException error) {
            throw new ProcessorStateException("Store " + store + ": cannot create " + directory, error);
        }
        Options options = new Options();
        ProcessMemory.use(options, config.readMemory(), config.writeMemory());
        try {
            config.options().forEach(options::set);
            Database database = Database.open(directory, options);
            try {
                return new StoreDatabase(database, staging, isHistory);
            } catch (RuntimeException | Error error) {
                database.close();
                throw error;
            }
        } catch (TamisException error) {
            ProcessMemory.release();
            throw Errors.translated(store, "opening " + directory, error);
        } catch (RuntimeException | Error error) {
            ProcessMemory.release();
            throw error;
        }
    }

    private static Path directory(String store, File stateDirectory) {
        Path stores = stateDirectory.toPath().resolve(DIRECTORY);
        Path directory = stores.resolve(store).normalize();
        if (!stores.equals(directory.getParent())) {
            throw new ProcessorStateException("Store " + store + ": no directory can have this name");
        }
        return directory;
    }

    /** Where a directory is while it is deleted: no store has such a name. */
    private static Path aside(Path directory) {
        return directory.resolveSibling("~" + directory.getFileName());
    }

    /** Deletes the directory of a store, which is not open: all of it, or after a crash nothing. */
    static void delete(String store, File stateDirectory) {
        Path directory = directory(store, stateDirectory);
        Path aside = aside(directory);
        try {
            Utils.delete(aside.toFile());
            if (Files.exists(directory)) {
                Files.move(directory, aside, StandardCopyOption.ATOMIC_MOVE);
                Utils.delete(aside.toFile());
            }
        } catch (IOException error) {
            throw new ProcessorStateException("Store " + store + ": cannot delete " + directory, error);
        }
    }

    Database get() {
        return database;
    }

    StoreOffsets offsets() {
        return offsets;
    }

    /** Where writes wait for their commit, or null. */
    Staging staging() {
        return staging;
    }

    /** What the default keyspace holds. */
    Table entries() {
        return entries;
    }

    Table table(Keyspace keyspace) {
        return new Table(keyspace, restoring);
    }

    /** Begins writes that take effect together. */
    Writes writes() {
        return new Writes(database, staging);
    }

    /** The same for restored records. {@link #restored} comes after them. */
    Writes restoredWrites() {
        return new Writes(database, isHistory ? restoring : null);
    }

    /** Writes what was staged for restored records: others have committed it. */
    void restored() {
        if (isHistory) {
            try (WriteBatch batch = new WriteBatch()) {
                restoring.write(batch, database);
            }
        }
    }

    /** Forgets what is staged for a table that is about to be dropped. */
    void forget(Table table) {
        if (restoring != null) {
            restoring.forget(table);
        }
    }

    /** Has commits drop segments that have expired: what was dropped before a commit would be missing if there is none. */
    void segments(Segments segments) {
        this.segments = segments;
    }

    /** Writes what is staged, with the offsets and the position that it leads to, all or nothing. No offsets: there are none any more. */
    void commit(Map<TopicPartition, Long> committed, Position position) {
        if (segments != null) {
            segments.forgetExpired();
        }
        try (WriteBatch batch = new WriteBatch()) {
            offsets.commit(batch, committed, position);
            if (staging == null) {
                database.write(batch);
            } else {
                staging.write(batch, database);
            }
        }
        offsets.committed(!committed.isEmpty());
        if (segments != null) {
            segments.dropExpired();
        }
    }

    /** Forgets what is staged, and all offsets: what the store holds belongs to none. */
    void giveUp() {
        if (staging != null) {
            staging.forget();
        }
        offsets.forget();
    }

    /**
     * The options of a keyspace beside the default one, which has the same.
     */
    Options keyspaceOptions() {
        Options options = new Options();
        database.options().lines().map(String::trim).filter(line -> !line.isEmpty() && !line.startsWith("#")).forEach(line -> {
            int equals = line.indexOf('=');
            options.set(line.substring(0, equals).trim(), line.substring(equals + 1).trim());
        });
        return options;
    }

    /** Closes the database, whose files may then be deleted, and gives back its part of the shared memory. */
    @Override
    public void close() {
        try {
            try {
                offsets.closing();
            } catch (TamisException error) {
                LOG.warn("the store at {} could not note that it was closed after a commit, and will be restored as a whole if it is "
                        + "opened under exactly-once: {}", database.path(), error.getMessage());
            }
            database.close();
        } finally {
            ProcessMemory.release();
        }
    }
}
