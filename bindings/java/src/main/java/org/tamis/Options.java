package org.tamis;

import static java.util.Objects.requireNonNull;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.List;

/**
 * Options of a database with those of its default keyspace, of another keyspace, or of an external table. They have the names and texts that
 * {@code tamis options} lists, and {@link #describe()} too; those of the default keyspace may be named with the prefix {@code keyspace.} or
 * without. Names and values are checked where the options are used, which throws {@link InvalidOptionException}.
 *
 * <p>What is not set has its default. They are copied when they are used. For one thread at a time.
 */
public final class Options {
    /** Names and values in turns. */
    private final List<byte[]> texts = new ArrayList<>();

    private SharedReadMemory sharedReadMemory;
    private SharedWriteMemory sharedWriteMemory;

    /** Creates options with their defaults. */
    public Options() {}

    /**
     * Sets an option.
     *
     * @param name its name: {@code "cache_bytes"}
     * @param value its value as text: {@code "64 MiB"}
     * @return this
     */
    public Options set(String name, String value) {
        texts.add(Text.bytes(requireNonNull(name, "name")));
        texts.add(Text.bytes(requireNonNull(value, "value")));
        return this;
    }

    /**
     * Sets an option that is a number: of bytes, where the name says so.
     *
     * @param name its name
     * @param value its value
     * @return this
     */
    public Options set(String name, long value) {
        return set(name, Long.toString(value));
    }

    /**
     * Sets an option that is a number.
     *
     * @param name its name
     * @param value its value
     * @return this
     */
    public Options set(String name, double value) {
        // Without an exponent.
        return set(name, Double.isFinite(value) ? BigDecimal.valueOf(value).toPlainString() : Double.toString(value));
    }

    /**
     * Sets an option that is true or false.
     *
     * @param name its name
     * @param value its value
     * @return this
     */
    public Options set(String name, boolean value) {
        return set(name, Boolean.toString(value));
    }

    /**
     * Sets {@code create_if_missing}: whether an opening creates a database that is not there.
     *
     * @param create false: it throws {@link NotFoundException}
     * @return this
     */
    public Options createIfMissing(boolean create) {
        return set("create_if_missing", create);
    }

    /**
     * Sets {@code create_among_others}: whether a database is also created in a directory that has files of others.
     *
     * @param among true: it is; false: the directory must be missing or empty
     * @return this
     */
    public Options createAmongOthers(boolean among) {
        return set("create_among_others", among);
    }

    /**
     * Sets {@code error_if_exists}: whether an opening refuses a database that is there.
     *
     * @param refuse true: it throws {@link ExistsException}
     * @return this
     */
    public Options errorIfExists(boolean refuse) {
        return set("error_if_exists", refuse);
    }

    /**
     * Sets {@code durability}: when an acknowledged write survives a power failure.
     *
     * @param durability the durability of writes that do not have their own
     * @return this
     */
    public Options durability(Durability durability) {
        return set("durability", durability.toString());
    }

    /**
     * Sets {@code cache_bytes}: the size of the block cache.
     *
     * @param bytes the size
     * @return this
     */
    public Options cacheBytes(long bytes) {
        return set("cache_bytes", bytes);
    }

    /**
     * Sets {@code memtable_bytes}: the size at which a keyspace's memtable is written to a table.
     *
     * @param bytes the size
     * @return this
     */
    public Options memtableBytes(long bytes) {
        return set("memtable_bytes", bytes);
    }

    /**
     * Sets {@code filter}: the filter of each table or run.
     *
     * @param filter its name: {@code "bloom"}, {@code "ribbon"}, …
     * @return this
     */
    public Options filter(String filter) {
        return set("filter", filter);
    }

    /**
     * Sets {@code bits_per_key}: the size of filters.
     *
     * @param bits the number of bits
     * @return this
     */
    public Options bitsPerKey(double bits) {
        return set("bits_per_key", bits);
    }

    /**
     * Sets {@code compression}: that of blocks.
     *
     * @param compression its name, or {@code "none"}
     * @return this
     */
    public Options compression(String compression) {
        return set("compression", compression);
    }

    /**
     * Sets {@code merge_operator}, which is stored with the keyspace.
     *
     * @param operator its name: {@code "add"}, {@code "append"} or {@code "max"}
     * @return this
     */
    public Options mergeOperator(String operator) {
        return set("merge_operator", operator);
    }

    /**
     * Lets the database share memory for its block cache and elastic filters with others of the process, in place of the options
     * {@code cache_bytes}, {@code filter_budget_bytes} and {@code read_memory_bytes}, which an opening refuses beside it.
     *
     * @param memory the memory; null: the database has its own
     * @return this
     */
    public Options sharedReadMemory(SharedReadMemory memory) {
        sharedReadMemory = memory;
        return this;
    }

    /**
     * Lets the database share memory for its memtables with others of the process, besides its own {@code memtable_budget_bytes}.
     *
     * @param memory the memory; null: the database has its own
     * @return this
     */
    public Options sharedWriteMemory(SharedWriteMemory memory) {
        sharedWriteMemory = memory;
        return this;
    }

    /**
     * Returns all options of a database, those of its default keyspace with their prefix.
     *
     * @return a JSON list of objects {@code name}, {@code class}, {@code takes}, {@code default} and {@code doc}, all texts
     */
    public static String describe() {
        return Text.of(Native.describeOptions());
    }

    /** Names and values, packed, of anything but a database to open. */
    byte[] packed() {
        if (sharedReadMemory != null || sharedWriteMemory != null) {
            throw TamisException.of(ErrorCode.INVALID_OPTION, "memory is shared by databases that are opened with it");
        }
        return Text.packed(texts);
    }

    /** Opens a database with these options, and returns its handle. */
    long open(byte[] path, boolean readOnly) {
        Ref read = sharedReadMemory == null ? null : sharedReadMemory.ref();
        Ref write = sharedWriteMemory == null ? null : sharedWriteMemory.ref();
        long readMemory = Ref.enterAny(read);
        try {
            long writeMemory = Ref.enterAny(write);
            try {
                return Native.open(path, Text.packed(texts), readMemory, writeMemory, readOnly);
            } finally {
                Ref.exitAny(write);
            }
        } finally {
            Ref.exitAny(read);
        }
    }
}
