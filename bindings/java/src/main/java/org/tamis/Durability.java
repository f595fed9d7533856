package org.tamis;

import java.time.Duration;
import java.util.Objects;

/** When an acknowledged write survives a power failure. Every one survives the death of the process. */
public final class Durability {
    /** Some seconds later. */
    public static final Durability BUFFERED = new Durability("buffered");
    /** At once: the write returns when it is on the device. */
    public static final Durability SYNC = new Durability("sync");

    private final String text;

    private Durability(String text) {
        this.text = text;
    }

    /**
     * Returns the durability of writes that are synced together, once in a period.
     *
     * @param period the longest time until a write survives a power failure
     * @return the durability
     */
    public static Durability every(Duration period) {
        return new Durability("every " + period.toMillis() + " ms");
    }

    /**
     * Returns the durability that a text names, as the option {@code durability} has it: {@code "buffered"}, {@code "sync"},
     * {@code "every 100 ms"}. It is checked where it is used.
     *
     * @param text the text
     * @return the durability
     */
    public static Durability of(String text) {
        return new Durability(Objects.requireNonNull(text, "text"));
    }

    /** Returns the text of the option. */
    @Override
    public String toString() {
        return text;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Durability && ((Durability) other).text.equals(text);
    }

    @Override
    public int hashCode() {
        return text.hashCode();
    }

    static byte[] bytes(Durability durability) {
        return durability == null ? null : Text.bytes(durability.text);
    }
}
