package org.tamis;

/** A point in a transaction to return to, of {@link Transaction#savepoint()}. */
public final class Savepoint {
    /** No other transaction of the process has one of this number. */
    final long number;

    Savepoint(long number) {
        this.number = number;
    }
}
