package org.tamis;

import static java.util.Objects.requireNonNull;

/**
 * A keyspace as it can be read: as of now, as of a snapshot, or within a transaction.
 *
 * <p>Keys are of up to 64 KiB, in the order of their unsigned bytes. Arrays that are passed are copied, and those that are returned are the
 * caller's. Methods throw {@link NullPointerException} for keys that are null, and {@link TamisException}: of the code
 * {@link ErrorCode#CLOSED} once the database is closed, and {@link ErrorCode#ENDED} once what they belong to is.
 */
public abstract class Reader {
    Reader() {}

    /** What is read. */
    abstract Ref source();

    /** The keyspace of it, or null for the source's own. */
    abstract Ref place();

    abstract Database database();

    /** A call of the native library. */
    @FunctionalInterface
    interface Call<T> {
        T on(long source, long place);
    }

    final <T> T with(Call<T> call) {
        Ref source = source();
        Ref place = place();
        long from = source.enter();
        try {
            long of = Ref.enterAny(place);
            try {
                return call.on(from, of);
            } finally {
                Ref.exitAny(place);
            }
        } finally {
            source.exit();
        }
    }

    /**
     * Returns the value of a key.
     *
     * @param key the key
     * @return the value, or null if the key has none
     */
    public byte[] get(byte[] key) {
        requireNonNull(key, "key");
        return with((source, place) -> Native.get(source, place, key));
    }

    /**
     * Reports whether a key has a value.
     *
     * @param key the key
     * @return true if it has
     */
    public boolean containsKey(byte[] key) {
        requireNonNull(key, "key");
        return with((source, place) -> Native.containsKey(source, place, key));
    }

    /**
     * Returns the values of several keys, all of one state. Cheaper than as many gets: their cache misses, or reads of the disk, overlap.
     *
     * @param keys the keys
     * @return the values in the order of the keys; null for a key that has none
     */
    public byte[][] multiGet(byte[]... keys) {
        for (byte[] key : keys) {
            requireNonNull(key, "key");
        }
        return with((source, place) -> Native.multiGet(source, place, keys));
    }

    /**
     * Returns a cursor over the keys of a range with their values. It reads nothing yet.
     *
     * @param range the range, and the direction
     * @return the cursor, which has to be closed
     */
    public Cursor items(Range range) {
        return cursor(range, false);
    }

    /**
     * Returns a cursor over the keys of a range: its entries have no values, which are not copied.
     *
     * @param range the range, and the direction
     * @return the cursor, which has to be closed
     */
    public Cursor keys(Range range) {
        return cursor(range, true);
    }

    private Cursor cursor(Range range, boolean keysOnly) {
        long handle = with((source, place) ->
                Native.cursor(source, place, range.start, range.end, range.bounds(), range.reversed, keysOnly));
        return new Cursor(handle, this, range.reversed, keysOnly);
    }

    /**
     * Reports whether there is no key. Costs the look at the first one.
     *
     * @return true if there is none
     */
    public boolean isEmpty() {
        try (Cursor keys = keys(Range.all())) {
            return !keys.hasNext();
        }
    }

    /**
     * Returns the first key with its value.
     *
     * @return the entry, or null if there is none
     */
    public Entry first() {
        return firstOf(Range.all());
    }

    /**
     * Returns the last key with its value.
     *
     * @return the entry, or null if there is none
     */
    public Entry last() {
        return firstOf(Range.all().reverse());
    }

    private Entry firstOf(Range range) {
        try (Cursor items = items(range)) {
            return items.hasNext() ? items.next() : null;
        }
    }
}
