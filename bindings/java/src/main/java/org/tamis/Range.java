package org.tamis;

import java.util.Arrays;
import java.util.Collections;
import java.util.NavigableMap;

/**
 * A range of keys in the order of their unsigned bytes, and the direction in which a cursor goes through it. Immutable: every method
 * returns a narrower range. Between its ends in reverse order it is empty.
 *
 * <pre>{@code
 * Range.all().prefix(country).reverse()
 * Range.all().from(monday).to(tuesday)
 * }</pre>
 */
public final class Range {
    private static final Range ALL = new Range(null, false, null, false, false);

    /** Null: no bound. */
    final byte[] start;
    final boolean startIncluded;
    /** Null: no bound. */
    final byte[] end;
    final boolean endIncluded;
    final boolean reversed;

    private Range(byte[] start, boolean startIncluded, byte[] end, boolean endIncluded, boolean reversed) {
        this.start = start;
        this.startIncluded = startIncluded;
        this.end = end;
        this.endIncluded = endIncluded;
        this.reversed = reversed;
    }

    /**
     * Returns the range of all keys, in ascending order.
     *
     * @return the range
     */
    public static Range all() {
        return ALL;
    }

    /**
     * Leaves the keys that begin with a prefix.
     *
     * @param prefix the prefix; an empty one leaves all
     * @return the narrower range
     */
    public Range prefix(byte[] prefix) {
        Range from = from(prefix);
        byte[] after = afterPrefix(prefix);
        return after == null ? from : from.to(after);
    }

    /**
     * Leaves the keys that are not less than one.
     *
     * @param key the first key
     * @return the narrower range
     */
    public Range from(byte[] key) {
        return startingAt(key.clone(), true);
    }

    /**
     * Leaves the keys that are greater than one.
     *
     * @param key the key before the first
     * @return the narrower range
     */
    public Range after(byte[] key) {
        return startingAt(key.clone(), false);
    }

    /**
     * Leaves the keys that are less than one.
     *
     * @param key the key after the last
     * @return the narrower range
     */
    public Range to(byte[] key) {
        return endingAt(key.clone(), false);
    }

    /**
     * Leaves the keys that are not greater than one.
     *
     * @param key the last key
     * @return the narrower range
     */
    public Range through(byte[] key) {
        return endingAt(key.clone(), true);
    }

    /**
     * Turns the direction around.
     *
     * @return the same keys in the other order
     */
    public Range reverse() {
        return new Range(start, startIncluded, end, endIncluded, !reversed);
    }

    /**
     * Returns the part of a map that lies in the range, in its direction: a view of the map.
     *
     * @param map a map whose keys are in the order of unsigned bytes, that of {@link Arrays#compareUnsigned(byte[], byte[])}
     * @param <V> the type of its values
     * @return the view
     */
    public <V> NavigableMap<byte[], V> within(NavigableMap<byte[], V> map) {
        NavigableMap<byte[], V> part = map;
        if (start != null && end != null) {
            int order = Arrays.compareUnsigned(start, end);
            // Maps refuse such bounds.
            if (order > 0 || order == 0 && !(startIncluded && endIncluded)) {
                return Collections.emptyNavigableMap();
            }
            part = map.subMap(start, startIncluded, end, endIncluded);
        } else if (start != null) {
            part = map.tailMap(start, startIncluded);
        } else if (end != null) {
            part = map.headMap(end, endIncluded);
        }
        return reversed ? part.descendingMap() : part;
    }

    private Range startingAt(byte[] key, boolean included) {
        int order = start == null ? 1 : Arrays.compareUnsigned(key, start);
        if (order < 0 || (order == 0 && included)) {
            return this;
        }
        return new Range(key, included, end, endIncluded, reversed);
    }

    private Range endingAt(byte[] key, boolean included) {
        int order = end == null ? -1 : Arrays.compareUnsigned(key, end);
        if (order > 0 || (order == 0 && included)) {
            return this;
        }
        return new Range(start, startIncluded, key, included, reversed);
    }

    /** Returns the first key after all that begin with the prefix, or null if there is none. */
    private static byte[] afterPrefix(byte[] prefix) {
        int last = prefix.length - 1;
        while (last >= 0 && prefix[last] == (byte) 0xFF) {
            last--;
        }
        if (last < 0) {
            return null;
        }
        byte[] after = Arrays.copyOf(prefix, last + 1);
        after[last]++;
        return after;
    }

    static final int START_INCLUDED = 1;
    static final int END_INCLUDED = 2;

    /** The bounds that are included, as the native library takes them. */
    int bounds() {
        return (startIncluded ? START_INCLUDED : 0) | (endIncluded ? END_INCLUDED : 0);
    }
}
