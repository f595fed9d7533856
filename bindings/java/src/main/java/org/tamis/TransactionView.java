package org.tamis;

import static java.util.Objects.requireNonNull;

/**
 * One keyspace as a transaction sees and changes it. Writes are seen by this transaction's reads at once, and by others when it commits. For
 * one thread at a time.
 *
 * <p>Within a transaction that locks, every method may throw {@link ConflictException}: it waited too long for a lock, or would have
 * waited in a circle.
 */
public abstract class TransactionView extends Reader {
    TransactionView() {}

    @FunctionalInterface
    private interface Action {
        void on(long transaction, long place);
    }

    private void act(Action action) {
        with((transaction, place) -> {
            action.on(transaction, place);
            return null;
        });
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
        act((transaction, place) -> Native.put(transaction, place, key, value));
    }

    /**
     * Deletes a key; one without a value is no error.
     *
     * @param key the key
     */
    public void delete(byte[] key) {
        requireNonNull(key, "key");
        act((transaction, place) -> Native.delete(transaction, place, key));
    }

    /**
     * Applies an operand to the value of a key with the keyspace's merge operator.
     *
     * @param key the key
     * @param operand the operand
     */
    public void merge(byte[] key, byte[] operand) {
        requireNonNull(key, "key");
        requireNonNull(operand, "operand");
        act((transaction, place) -> Native.merge(transaction, place, key, operand));
    }

    /**
     * Deletes the keys of a range.
     *
     * @param start the first key; null: no bound
     * @param end the key after the last; null: no bound
     * @throws InvalidArgumentException if the range ends before it starts
     */
    public void deleteRange(byte[] start, byte[] end) {
        act((transaction, place) -> Native.deleteRange(transaction, place, start, end, Range.START_INCLUDED));
    }

    /**
     * Deletes the keys of a range, whatever its direction.
     *
     * @param range the range
     * @throws InvalidArgumentException if the range ends before it starts
     */
    public void deleteRange(Range range) {
        act((transaction, place) ->
                Native.deleteRange(transaction, place, range.start, range.end, range.bounds()));
    }

    /**
     * Deletes the keys that begin with a prefix.
     *
     * @param prefix the prefix
     */
    public void deletePrefix(byte[] prefix) {
        deleteRange(Range.all().prefix(prefix));
    }
}
