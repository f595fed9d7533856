package org.tamis;

/** A key with its value. The arrays are the caller's. */
public final class Entry {
    private final byte[] key;
    private final byte[] value;

    Entry(byte[] key, byte[] value) {
        this.key = key;
        this.value = value;
    }

    /**
     * Returns the key.
     *
     * @return the key, the same array at every call
     */
    public byte[] key() {
        return key;
    }

    /**
     * Returns the value.
     *
     * @return the value, the same array at every call; null in a cursor over keys
     */
    public byte[] value() {
        return value;
    }
}
