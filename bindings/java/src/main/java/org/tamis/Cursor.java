package org.tamis;

import static java.util.Objects.requireNonNull;

import java.util.Iterator;
import java.util.NoSuchElementException;

/**
 * An iterator over the keys of a range in order, over exactly the state at the time of its creation, whatever is written meanwhile. Keeps
 * that state from being freed until it is closed. Threads may hand it on, and one at a time uses it: a call during another one's throws
 * {@link InvalidArgumentException}. Only {@link #close()} may be called at any time.
 *
 * <p>Items come from the native library in groups that grow to 128 items or 256 KiB, so that a long scan pays for the border once a group;
 * within a transaction they come one by one, as its commit depends on all that was read.
 *
 * <p>Methods throw {@link ClosedException}, of the code {@link ErrorCode#CLOSED} once the database is closed and of
 * {@link ErrorCode#ENDED} once the cursor is.
 */
public final class Cursor implements Iterator<Entry>, AutoCloseable {
    private static final byte[] NOTHING = new byte[0];
    /** Before the first item of a group: whether more may follow. */
    private static final int HEADER = 1;
    /** Before each item: the lengths of its key and its value. */
    private static final int LENGTHS = 2 * Integer.BYTES;

    /** Whoever reads or changes the fields that are not final has it. */
    private final Turn turn = new Turn("the cursor");
    private final Ref ref;
    /** What is read stays open as long as it is read. */
    private final Reader reader;
    private final boolean reversed;
    private final boolean keysOnly;

    private byte[] group = NOTHING;
    /** Where the next item of the group is. */
    private int at;
    private boolean more = true;
    /** The next item, if it was looked at. */
    private Entry peeked;

    Cursor(long handle, Reader reader, boolean reversed, boolean keysOnly) {
        ref = Ref.of(this, handle, reader.database().source(), "the cursor is closed");
        this.reader = reader;
        this.reversed = reversed;
        this.keysOnly = keysOnly;
    }

    /** Reports whether there is another entry. May read. */
    @Override
    public boolean hasNext() {
        // Most often: at most a moment old if another thread moves the cursor, which then has the turn that next() needs.
        if (at < group.length) {
            ref.check();
            return true;
        }
        turn.begin();
        try {
            return isAhead();
        } finally {
            turn.end();
        }
    }

    private boolean isAhead() {
        ref.check();
        while (at >= group.length && more) {
            long handle = ref.enter();
            try {
                group = Native.fetch(handle);
            } finally {
                ref.exit();
            }
            more = group[0] != 0;
            at = HEADER;
        }
        return at < group.length;
    }

    /** Returns the next entry, and moves on. */
    @Override
    public Entry next() {
        turn.begin();
        try {
            Entry entry = ahead();
            at += LENGTHS + entry.key().length + (keysOnly ? 0 : entry.value().length);
            peeked = null;
            return entry;
        } finally {
            turn.end();
        }
    }

    /**
     * Returns the entry that {@link #next()} will return, and does not move on.
     *
     * @return the entry, the same object as {@link #next()} will return
     * @throws NoSuchElementException if there is none
     */
    public Entry peek() {
        turn.begin();
        try {
            return ahead();
        } finally {
            turn.end();
        }
    }

    private Entry ahead() {
        if (!isAhead()) {
            throw new NoSuchElementException();
        }
        if (peeked == null) {
            byte[] key = key();
            int valueAt = at + LENGTHS + key.length;
            byte[] value = keysOnly ? null : Bytes.copy(group, valueAt, Bytes.getInt(group, at + Integer.BYTES));
            peeked = new Entry(key, value);
        }
        return peeked;
    }

    /** Returns the key of the next item of the group. */
    private byte[] key() {
        return Bytes.copy(group, at + LENGTHS, Bytes.getInt(group, at));
    }

    /**
     * Returns the next entry from the other end. Both ends meet, and no entry is returned twice. From the first call on items are fetched one
     * by one, so that they cost more.
     *
     * @return the entry, or null if there is none
     * @throws InvalidArgumentException for a cursor in reverse order
     */
    public Entry nextBack() {
        turn.begin();
        try {
            return back();
        } finally {
            turn.end();
        }
    }

    private Entry back() {
        ref.check();
        refuseReversed("be asked from the other end");
        // What was fetched and not taken is given back.
        byte[] front = at < group.length ? key() : null;
        long handle = ref.enter();
        byte[] item;
        try {
            item = Native.nextBack(handle, front);
        } finally {
            ref.exit();
        }
        forget();
        if (item.length == HEADER) {
            return null;
        }
        int keyLength = Bytes.getInt(item, HEADER);
        byte[] key = Bytes.copy(item, HEADER + LENGTHS, keyLength);
        int valueAt = HEADER + LENGTHS + keyLength;
        return new Entry(key, keysOnly ? null : Bytes.copy(item, valueAt, item.length - valueAt));
    }

    /**
     * Moves on, or back, to the first key of the range that is not less than {@code key}. Costs a search in every run.
     *
     * @param key the key
     * @throws InvalidArgumentException for a cursor in reverse order
     */
    public void seek(byte[] key) {
        requireNonNull(key, "key");
        turn.begin();
        try {
            ref.check();
            refuseReversed("seek");
            long handle = ref.enter();
            try {
                Native.seek(handle, key);
            } finally {
                ref.exit();
            }
            forget();
        } finally {
            turn.end();
        }
    }

    private void refuseReversed(String what) {
        if (reversed) {
            throw TamisException.of(ErrorCode.INVALID_ARGUMENT, "a cursor in reverse order cannot " + what);
        }
    }

    private void forget() {
        group = NOTHING;
        at = 0;
        more = true;
        peeked = null;
    }

    /**
     * Returns what is read.
     *
     * @return the keyspace, snapshot or transaction
     */
    public Reader reader() {
        return reader;
    }

    /** Gives up what the cursor keeps alive: memtables, tables. A second call does nothing. */
    @Override
    public void close() {
        ref.close();
        // A call that another thread is in ends as it would have, or finds it closed; what it has fetched goes with the cursor.
        if (turn.tryBegin()) {
            forget();
            turn.end();
        }
    }
}
