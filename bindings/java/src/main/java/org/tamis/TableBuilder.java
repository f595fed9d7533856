package org.tamis;

import static java.util.Objects.requireNonNull;

import java.nio.file.Path;

/**
 * Builds a sorted table in a file, for {@link Keyspace#ingest}. Closing it before {@link #finish()} removes the file. For one thread at a
 * time.
 */
public final class TableBuilder implements AutoCloseable {
    private final Ref ref;

    /**
     * Begins a table in a new file, with default options.
     *
     * @param file the file
     * @throws ExistsException if it exists
     */
    public TableBuilder(Path file) {
        this(file, new Options());
    }

    /**
     * Begins a table in a new file.
     *
     * @param file the file
     * @param options those of a keyspace; they should be like those of the one that will ingest it
     * @throws ExistsException if it exists
     */
    public TableBuilder(Path file, Options options) {
        long handle = Native.tableBuilder(Text.path(file), options.packed());
        ref = Ref.of(this, handle, null, "the table was finished or dropped");
    }

    /** A call of the native library. */
    @FunctionalInterface
    private interface Call<T> {
        T on(long builder);
    }

    private <T> T with(Call<T> call) {
        long handle = ref.enter();
        try {
            return call.on(handle);
        } finally {
            ref.exit();
        }
    }

    /**
     * Adds an entry.
     *
     * @param key the key, greater than the one before
     * @param value the value
     * @throws InvalidArgumentException of the code {@link ErrorCode#OUT_OF_ORDER} if the key is not greater
     */
    public void put(byte[] key, byte[] value) {
        requireNonNull(key, "key");
        requireNonNull(value, "value");
        with(builder -> {
            Native.tablePut(builder, key, value);
            return null;
        });
    }

    /**
     * Adds a delete, which hides a value that the keyspace has. In order with the entries.
     *
     * @param key the key
     */
    public void delete(byte[] key) {
        requireNonNull(key, "key");
        with(builder -> {
            Native.tableDelete(builder, key);
            return null;
        });
    }

    /**
     * Adds a delete of the keys of a range that the keyspace has; the table's own are not hidden. At any time.
     *
     * @param range the range
     */
    public void deleteRange(Range range) {
        with(builder -> {
            Native.tableDeleteRange(builder, range.start, range.end, range.bounds());
            return null;
        });
    }

    /**
     * Returns the number of keys added, deletes included.
     *
     * @return the number
     */
    public long size() {
        return with(Native::tableSize);
    }

    /**
     * Completes the table and syncs it. The builder has ended then, also after an exception.
     *
     * @return the table as a JSON object
     * @throws InvalidArgumentException of the code {@link ErrorCode#EMPTY_TABLE} if nothing was added
     */
    public String finish() {
        try {
            return Text.of(with(Native::tableFinish));
        } finally {
            ref.close();
        }
    }

    /** Removes the table's file, unless it is finished. A second call does nothing. */
    @Override
    public void close() {
        ref.close();
    }
}
