package org.tamis;

import static java.util.Objects.requireNonNull;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * Several writes, across keyspaces, that become visible and durable together, or not at all: see {@link Database#write(WriteBatch)}. Later
 * writes of a batch win over earlier ones. Keys and values are copied into the Java heap, and checked when the batch is written. Threads may
 * hand it on, and one at a time uses it: a call during another one's throws {@link InvalidArgumentException}.
 *
 * <p>Methods without a keyspace write to the default one of the database that the batch is written to. A batch may be used again after it
 * was written.
 */
public final class WriteBatch implements AutoCloseable {
    private static final byte[] NOTHING = new byte[0];
    /** The longest array that every Java machine can allocate. */
    private static final int MOST_BYTES = Integer.MAX_VALUE - 8;
    /** A buffer of this size is kept for the next writes. */
    private static final int KEPT_BYTES = 1 << 20;

    // An operation is its kind (a byte), the number of its keyspace (0: the default one), the lengths of its two arrays, and these;
    // numbers have four bytes.
    private static final int HEADER = 1 + 3 * Integer.BYTES;
    private static final int PUT = 0;
    private static final int DELETE = 1;
    private static final int MERGE = 2;
    private static final int DELETE_RANGE = 3;
    /** What a range is, beside the two bits of the kind: whether its ends are included, and whether it has them. */
    private static final int BOUNDS_SHIFT = 2;
    private static final int HAS_START = 1 << 4;
    private static final int HAS_END = 1 << 5;

    /** Whoever reads or changes the fields below has it. */
    private final Turn turn = new Turn("the batch");

    private byte[] buffer = NOTHING;
    private int length;
    private int size;
    private final List<Keyspace> keyspaces = new ArrayList<>();
    private boolean closed;

    /** Creates an empty batch. */
    public WriteBatch() {}

    private WriteBatch add(int kind, Keyspace keyspace, byte[] first, byte[] second) {
        turn.begin();
        try {
            append(kind, keyspace, first, second);
        } finally {
            turn.end();
        }
        return this;
    }

    private void append(int kind, Keyspace keyspace, byte[] first, byte[] second) {
        if (closed) {
            throw TamisException.of(ErrorCode.ENDED, "the batch is closed");
        }
        long end = (long) length + HEADER + first.length + second.length;
        if (end > MOST_BYTES) {
            throw TamisException.of(ErrorCode.INVALID_ARGUMENT, "a batch holds at most " + MOST_BYTES + " bytes");
        }
        if (end > buffer.length) {
            long doubled = Math.max(Math.max(256, end), 2L * buffer.length);
            buffer = Arrays.copyOf(buffer, (int) Math.min(MOST_BYTES, doubled));
        }
        buffer[length] = (byte) kind;
        Bytes.setInt(buffer, length + 1, number(keyspace));
        Bytes.setInt(buffer, length + 1 + Integer.BYTES, first.length);
        Bytes.setInt(buffer, length + 1 + 2 * Integer.BYTES, second.length);
        System.arraycopy(first, 0, buffer, length + HEADER, first.length);
        System.arraycopy(second, 0, buffer, length + HEADER + first.length, second.length);
        length = (int) end;
        size++;
    }

    /** Returns 0 for the default keyspace, or one more than the place of a keyspace in the list. */
    private int number(Keyspace keyspace) {
        if (keyspace == null) {
            return 0;
        }
        for (int i = 0; i < keyspaces.size(); i++) {
            if (keyspaces.get(i) == keyspace) {
                return i + 1;
            }
        }
        keyspaces.add(keyspace);
        return keyspaces.size();
    }

    /**
     * Adds a put.
     *
     * @param key the key
     * @param value the value
     * @return this
     */
    public WriteBatch put(byte[] key, byte[] value) {
        return add(PUT, null, requireNonNull(key, "key"), requireNonNull(value, "value"));
    }

    /**
     * Adds a put.
     *
     * @param keyspace the keyspace
     * @param key the key
     * @param value the value
     * @return this
     */
    public WriteBatch put(Keyspace keyspace, byte[] key, byte[] value) {
        requireNonNull(keyspace, "keyspace");
        return add(PUT, keyspace, requireNonNull(key, "key"), requireNonNull(value, "value"));
    }

    /**
     * Adds a delete.
     *
     * @param key the key
     * @return this
     */
    public WriteBatch delete(byte[] key) {
        return add(DELETE, null, requireNonNull(key, "key"), NOTHING);
    }

    /**
     * Adds a delete.
     *
     * @param keyspace the keyspace
     * @param key the key
     * @return this
     */
    public WriteBatch delete(Keyspace keyspace, byte[] key) {
        requireNonNull(keyspace, "keyspace");
        return add(DELETE, keyspace, requireNonNull(key, "key"), NOTHING);
    }

    /**
     * Adds a merge.
     *
     * @param key the key
     * @param operand the operand
     * @return this
     */
    public WriteBatch merge(byte[] key, byte[] operand) {
        return add(MERGE, null, requireNonNull(key, "key"), requireNonNull(operand, "operand"));
    }

    /**
     * Adds a merge.
     *
     * @param keyspace the keyspace
     * @param key the key
     * @param operand the operand
     * @return this
     */
    public WriteBatch merge(Keyspace keyspace, byte[] key, byte[] operand) {
        requireNonNull(keyspace, "keyspace");
        return add(MERGE, keyspace, requireNonNull(key, "key"), requireNonNull(operand, "operand"));
    }

    /**
     * Adds a delete of the keys of a range.
     *
     * @param start the first key; null: no bound
     * @param end the key after the last; null: no bound
     * @return this
     */
    public WriteBatch deleteRange(byte[] start, byte[] end) {
        return addRange(null, start, end, Range.START_INCLUDED);
    }

    /**
     * Adds a delete of the keys of a range.
     *
     * @param keyspace the keyspace
     * @param start the first key; null: no bound
     * @param end the key after the last; null: no bound
     * @return this
     */
    public WriteBatch deleteRange(Keyspace keyspace, byte[] start, byte[] end) {
        return addRange(requireNonNull(keyspace, "keyspace"), start, end, Range.START_INCLUDED);
    }

    /**
     * Adds a delete of the keys of a range, whatever its direction.
     *
     * @param range the range
     * @return this
     */
    public WriteBatch deleteRange(Range range) {
        return addRange(null, range.start, range.end, range.bounds());
    }

    /**
     * Adds a delete of the keys of a range, whatever its direction.
     *
     * @param keyspace the keyspace
     * @param range the range
     * @return this
     */
    public WriteBatch deleteRange(Keyspace keyspace, Range range) {
        return addRange(requireNonNull(keyspace, "keyspace"), range.start, range.end, range.bounds());
    }

    /**
     * Adds a delete of all keys that begin with a prefix.
     *
     * @param prefix the prefix; an empty one is that of every key
     * @return this
     */
    public WriteBatch deletePrefix(byte[] prefix) {
        return deleteRange(Range.all().prefix(prefix));
    }

    /**
     * Adds a delete of all keys that begin with a prefix.
     *
     * @param keyspace the keyspace
     * @param prefix the prefix; an empty one is that of every key
     * @return this
     */
    public WriteBatch deletePrefix(Keyspace keyspace, byte[] prefix) {
        return deleteRange(keyspace, Range.all().prefix(prefix));
    }

    private WriteBatch addRange(Keyspace keyspace, byte[] start, byte[] end, int bounds) {
        int has = (start == null ? 0 : HAS_START) | (end == null ? 0 : HAS_END);
        int kind = DELETE_RANGE | bounds << BOUNDS_SHIFT | has;
        return add(kind, keyspace, start == null ? NOTHING : start, end == null ? NOTHING : end);
    }

    /** Forgets the writes so far. */
    public void clear() {
        turn.begin();
        try {
            forget();
        } finally {
            turn.end();
        }
    }

    private void forget() {
        length = 0;
        size = 0;
        keyspaces.clear();
        if (buffer.length > KEPT_BYTES) {
            buffer = NOTHING;
        }
    }

    /**
     * Returns the number of writes.
     *
     * @return the number
     */
    public int size() {
        return size;
    }

    /**
     * Returns the size of the writes in memory.
     *
     * @return the number of bytes
     */
    public long bytes() {
        return length;
    }

    /** The operations as they are packed, for tests. */
    byte[] copy() {
        return Arrays.copyOf(buffer, length);
    }

    void writeTo(Database database, Durability durability) {
        byte[] text = Durability.bytes(durability);
        turn.begin();
        try {
            if (closed) {
                throw TamisException.of(ErrorCode.ENDED, "the batch is closed");
            }
            write(database, text);
        } finally {
            turn.end();
        }
    }

    private void write(Database database, byte[] durability) {
        List<Ref> entered = new ArrayList<>(keyspaces.size());
        try {
            long[] handles = new long[keyspaces.size()];
            for (int i = 0; i < handles.length; i++) {
                Ref ref = keyspaces.get(i).source();
                handles[i] = ref.enter();
                entered.add(ref);
            }
            database.act(handle -> Native.write(handle, buffer, length, handles, durability));
        } finally {
            entered.forEach(Ref::exit);
            forget();
        }
    }

    /** Forgets the writes and gives up the buffer. Writes that are added later throw {@link ClosedException}. */
    @Override
    public void close() {
        turn.begin();
        try {
            closed = true;
            forget();
            buffer = NOTHING;
        } finally {
            turn.end();
        }
    }
}
