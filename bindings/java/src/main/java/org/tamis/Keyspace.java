package org.tamis;

import static java.util.Objects.requireNonNull;

import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.function.UnaryOperator;

/**
 * An ordered map of the database, with its own options, filters and tree. May be used by several threads at once.
 *
 * <p>Writes are acknowledged with the durability of the database, or of the call. They throw {@link InvalidArgumentException} for keys beyond
 * 64 KiB and values beyond 4 GiB − 1, {@link ReadOnlyException} in a database that was opened so, and {@link IoException}; then nothing
 * of the write is visible.
 *
 * <p>A handle that is no longer needed may be closed, or left to the garbage collector: the keyspace itself stays. It is
 * also closed with its database.
 */
public class Keyspace extends Reader implements AutoCloseable {
    private final Ref ref;
    /** The database, which it keeps open; null: this. */
    private final Database database;

    /** The database itself, which is its default keyspace. */
    Keyspace(long handle) {
        ref = Ref.of(this, handle, null, null);
        database = null;
    }

    Keyspace(long handle, Database database) {
        ref = Ref.uncounted(this, handle, database.source(), "the keyspace's handle is closed");
        this.database = database;
    }

    @Override
    final Ref source() {
        return ref;
    }

    @Override
    final Ref place() {
        return null;
    }

    /**
     * Returns the database that the keyspace belongs to.
     *
     * @return the database
     */
    @Override
    public Database database() {
        return database;
    }

    /** A call of the native library without an answer. */
    @FunctionalInterface
    interface Action {
        void on(long keyspace);
    }

    final void act(Action action) {
        long handle = ref.enter();
        try {
            action.on(handle);
        } finally {
            ref.exit();
        }
    }

    /**
     * Returns the keyspace's name.
     *
     * @return the name
     */
    public String name() {
        return Text.of(with((keyspace, none) -> Native.name(keyspace)));
    }

    /** Gives up the handle. A second call does nothing. */
    @Override
    public void close() {
        ref.close();
    }

    /**
     * Copies the value of a key into a buffer, without an array in between if it is direct.
     *
     * <p>The value is stored at the buffer's position, and its limit is set to the value's end, so that it can be read at once. If the
     * value is longer than what remains of the buffer, or the key has none, the buffer is left as it was.
     *
     * @param key a buffer whose remaining bytes are the key; it is left as it is
     * @param value the buffer for the value
     * @return the length of the value, or -1 if the key has none
     * @throws ReadOnlyBufferException if {@code value} is read-only
     */
    public int get(ByteBuffer key, ByteBuffer value) {
        requireNonNull(key, "key");
        if (value.isReadOnly()) {
            throw new ReadOnlyBufferException();
        }
        int at = value.position();
        int room = value.remaining();
        int length;
        if (key.isDirect() && value.isDirect()) {
            int keyAt = key.position();
            int keyLength = key.remaining();
            length = with((keyspace, none) ->
                    Native.getDirect(keyspace, key, keyAt, keyLength, value, at, room));
        } else {
            byte[] found = get(array(key));
            length = found == null ? -1 : found.length;
            if (found != null && length <= room) {
                value.duplicate().put(found);
            }
        }
        if (length >= 0 && length <= room) {
            value.limit(at + length);
        }
        return length;
    }

    /** Returns a copy of what remains of a buffer. */
    private static byte[] array(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }

    /**
     * Sets the value of a key.
     *
     * @param key the key
     * @param value the value
     */
    public void put(byte[] key, byte[] value) {
        requireNonNull(key, "key");
        requireNonNull(value, "value");
        act(keyspace -> Native.put(keyspace, 0, key, value));
    }

    /**
     * Sets the value of a key with another durability than the database's.
     *
     * @param key the key
     * @param value the value
     * @param durability the durability
     */
    public void put(byte[] key, byte[] value, Durability durability) {
        try (WriteBatch batch = new WriteBatch()) {
            database().write(batch.put(this, key, value), durability);
        }
    }

    /**
     * Sets the value of a key, from direct buffers without an array in between.
     *
     * @param key a buffer whose remaining bytes are the key; it is left as it is
     * @param value a buffer whose remaining bytes are the value; it is left as it is
     */
    public void put(ByteBuffer key, ByteBuffer value) {
        requireNonNull(key, "key");
        requireNonNull(value, "value");
        if (!key.isDirect() || !value.isDirect()) {
            put(array(key), array(value));
            return;
        }
        int keyAt = key.position();
        int keyLength = key.remaining();
        int valueAt = value.position();
        int valueLength = value.remaining();
        act(keyspace -> Native.putDirect(keyspace, key, keyAt, keyLength, value, valueAt, valueLength));
    }

    /**
     * Deletes a key; one without a value is no error, and nothing is read.
     *
     * @param key the key
     */
    public void delete(byte[] key) {
        requireNonNull(key, "key");
        act(keyspace -> Native.delete(keyspace, 0, key));
    }

    /**
     * Deletes a key with another durability than the database's.
     *
     * @param key the key
     * @param durability the durability
     */
    public void delete(byte[] key, Durability durability) {
        try (WriteBatch batch = new WriteBatch()) {
            database().write(batch.delete(this, key), durability);
        }
    }

    /**
     * Deletes the keys of a range, at the cost of one write regardless of how many there are.
     *
     * @param start the first key; null: no bound
     * @param end the key after the last; null: no bound
     * @throws InvalidArgumentException if the range ends before it starts
     */
    public void deleteRange(byte[] start, byte[] end) {
        act(keyspace -> Native.deleteRange(keyspace, 0, start, end, Range.START_INCLUDED));
    }

    /**
     * Deletes the keys of a range, whatever its direction, at the cost of one write.
     *
     * @param range the range
     * @throws InvalidArgumentException if the range ends before it starts
     */
    public void deleteRange(Range range) {
        act(keyspace -> Native.deleteRange(keyspace, 0, range.start, range.end, range.bounds()));
    }

    /**
     * Deletes the keys that begin with a prefix, at the cost of one write.
     *
     * @param prefix the prefix
     */
    public void deletePrefix(byte[] prefix) {
        deleteRange(Range.all().prefix(prefix));
    }

    /** Deletes all keys, at the cost of one write. */
    public void clear() {
        act(Native::clear);
    }

    /**
     * Applies an operand to the value of a key with the keyspace's merge operator, without reading the value: it costs as much as a put.
     *
     * @param key the key
     * @param operand the operand
     * @throws InvalidArgumentException if the keyspace has no merge operator
     */
    public void merge(byte[] key, byte[] operand) {
        requireNonNull(key, "key");
        requireNonNull(operand, "operand");
        act(keyspace -> Native.merge(keyspace, 0, key, operand));
    }

    /**
     * Adds to the number under a key, atomically, modulo 2^64. A missing value is 0. Numbers are signed, of eight bytes,
     * little-endian, as those of the merge operator {@code add}.
     *
     * @param key the key
     * @param by what is added
     * @return the sum
     * @throws TamisException of the code {@link ErrorCode#MERGE} if the value is not eight bytes long
     */
    public long increment(byte[] key, long by) {
        requireNonNull(key, "key");
        return with((keyspace, none) -> Native.increment(keyspace, key, by));
    }

    /**
     * Sets the value of a key if it is the expected one, atomically.
     *
     * @param key the key
     * @param expected the expected value; null: the key has none
     * @param value the new value; null: the key is deleted
     * @return true if the value was the expected one
     */
    public boolean compareAndSwap(byte[] key, byte[] expected, byte[] value) {
        requireNonNull(key, "key");
        return with((keyspace, none) -> Native.compareAndSwap(keyspace, key, expected, value));
    }

    /**
     * Replaces the value of a key by what a function makes of it, atomically. The function is called again whenever somebody else has
     * written the key meanwhile.
     *
     * @param key the key
     * @param function takes the value, or null if the key has none; returns the new value, or null to delete the key
     * @return the new value, or null
     */
    public byte[] update(byte[] key, UnaryOperator<byte[]> function) {
        while (true) {
            byte[] expected = get(key);
            // The function may write to what it is given.
            byte[] value = function.apply(expected == null ? null : expected.clone());
            if (compareAndSwap(key, expected, value)) {
                return value;
            }
        }
    }

    /**
     * Sets the value of a key if it has none, atomically.
     *
     * @param key the key
     * @param value the value
     * @return null if it was inserted; otherwise the value that is there
     */
    public byte[] insertIfAbsent(byte[] key, byte[] value) {
        requireNonNull(key, "key");
        requireNonNull(value, "value");
        return with((keyspace, none) -> Native.insertIfAbsent(keyspace, key, value));
    }

    /**
     * Deletes a key and returns the value that it had, atomically.
     *
     * @param key the key
     * @return the value, or null if it had none
     */
    public byte[] take(byte[] key) {
        requireNonNull(key, "key");
        return with((keyspace, none) -> Native.take(keyspace, key));
    }

    /**
     * Estimates the number of keys from the metadata of tables, without reading them.
     *
     * @return the number
     */
    public long approximateCount() {
        return approximateCount(Range.all());
    }

    /**
     * Estimates the number of keys in a range from the metadata of tables, without reading them. Memtables count as a whole.
     *
     * @param range the range
     * @return the number
     */
    public long approximateCount(Range range) {
        return with((keyspace, none) ->
                Native.approximateCount(keyspace, range.start, range.end, range.bounds()));
    }

    /**
     * Estimates the bytes that a range takes in tables.
     *
     * @param range the range
     * @return the number of bytes
     */
    public long approximateSize(Range range) {
        return with((keyspace, none) ->
                Native.approximateSize(keyspace, range.start, range.end, range.bounds()));
    }

    /** Writes the memtables to tables, and returns when they are there. Of a database: those of all keyspaces. */
    public void flush() {
        act(Native::flush);
    }

    /** Merges all tables into the last level, and returns when that is done. Of a database: in all keyspaces. */
    public void compact() {
        act(Native::compact);
    }

    /**
     * Merges the tables that hold keys of a range into the last level, and returns when that is done.
     *
     * @param range the range
     */
    public void compact(Range range) {
        act(keyspace -> Native.compactRange(keyspace, range.start, range.end, range.bounds()));
    }

    /**
     * Makes tables that {@link TableBuilder} built part of the keyspace, all or none, as if their entries were written now. They are
     * verified first, and copied.
     *
     * @param files the tables
     * @return the number of entries
     */
    public long ingest(List<Path> files) {
        return ingest(files, false);
    }

    /**
     * Makes tables that {@link TableBuilder} built part of the keyspace, all or none.
     *
     * @param files the tables
     * @param moveFiles link them instead of copying, where the file system can, and remove their names
     * @return the number of entries
     */
    public long ingest(List<Path> files, boolean moveFiles) {
        List<byte[]> paths = new ArrayList<>(files.size());
        for (Path file : files) {
            paths.add(Text.path(file));
        }
        byte[] packed = Text.packed(paths);
        return with((keyspace, none) -> Native.ingest(keyspace, packed, moveFiles));
    }

    /**
     * Executes one get and returns its path as JSON: memtables, runs, filters, blocks, outcome, cost.
     *
     * @param key the key
     * @return a JSON object
     */
    public String explainGet(byte[] key) {
        requireNonNull(key, "key");
        return Text.of(with((keyspace, none) -> Native.explainGet(keyspace, key)));
    }

    /**
     * Returns the keyspace's statistics: its levels and runs, bytes, filters. The names are those of the Rust struct
     * {@code KeyspaceStats}.
     *
     * @return a JSON object
     */
    public String keyspaceStats() {
        return report(Native.KEYSPACE_STATS);
    }

    /**
     * Returns the tables on disk, by level, run and key.
     *
     * @return a JSON list
     */
    public String tables() {
        return report(Native.TABLES);
    }

    /**
     * Returns the keyspace's options in force.
     *
     * @return lines {@code name = value}
     */
    public String options() {
        return report(Native.KEYSPACE_OPTIONS);
    }

    final String report(int what) {
        return Text.of(with((keyspace, none) -> Native.report(keyspace, what)));
    }

    /**
     * Changes options of the open keyspace, all or none; they are stored with it.
     *
     * @param options the options that change
     * @throws InvalidOptionException for an unknown option, a value that it does not accept, or one that is fixed while the keyspace is open
     */
    public void setOptions(Options options) {
        byte[] packed = options.packed();
        act(keyspace -> Native.setOptions(keyspace, packed));
    }
}
