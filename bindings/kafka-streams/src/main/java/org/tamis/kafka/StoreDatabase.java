package org.tamis.kafka;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.tamis.Database;
import org.tamis.Options;
import org.tamis.TamisException;

/** The database of one store, in a directory of its own within that of the task. */
final class StoreDatabase implements AutoCloseable {
    /** The directory of a task in which its stores have theirs. */
    static final String DIRECTORY = "tamis";

    /**
     * Memtables as large as those of Kafka's default store, and little disk beside the data: a store on a full disk is restored elsewhere.
     */
    private static final Map<String, String> DEFAULTS =
            Map.of("memtable_bytes", "16 MiB", "reserve_bytes", "0", "recycled_logs", "1");

    private final Database database;

    private StoreDatabase(Database database) {
        this.database = database;
    }

    /**
     * Opens the database of a store, or creates it, with options of its kind besides those of all stores. What it needs is given back
     * by {@link #close}.
     */
    static StoreDatabase open(String store, File stateDirectory, Map<String, ?> configs, Map<String, String> ofKind) {
        Path stores = stateDirectory.toPath().resolve(DIRECTORY);
        Path directory = stores.resolve(store).normalize();
        if (!stores.equals(directory.getParent())) {
            throw new ProcessorStateException("Store " + store + ": no directory can have this name");
        }
        Map<String, String> defaults = new HashMap<>(DEFAULTS);
        defaults.putAll(ofKind);
        TamisConfig config = TamisConfig.of(configs, store, defaults);
        try {
            Files.createDirectories(directory);
        } catch (IOException error) {
            throw new ProcessorStateException("Store " + store + ": cannot create " + directory, error);
        }
        Options options = new Options().sharedReadMemory(ProcessMemory.acquire(config.readMemory()));
        try {
            config.options().forEach(options::set);
            return new StoreDatabase(Database.open(directory, options));
        } catch (TamisException error) {
            ProcessMemory.release();
            throw Errors.translated(store, "opening " + directory, error);
        } catch (RuntimeException | Error error) {
            ProcessMemory.release();
            throw error;
        }
    }

    Database get() {
        return database;
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
            database.close();
        } finally {
            ProcessMemory.release();
        }
    }
}
