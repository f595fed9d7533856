package org.tamis;

/**
 * The native objects behind databases, cursors, snapshots, transactions and the like, for tests: after a test that closes what it opens,
 * {@link #open()} is what it was before, and {@link #leaked()} has not grown.
 */
public final class Handles {
    private Handles() {}

    /**
     * Returns how many native objects there are in this process now. Objects that are closed while other threads are inside are counted
     * until those have left.
     *
     * @return the number of objects
     */
    public static long open() {
        return Native.live();
    }

    /**
     * Returns how many objects the garbage collector had to close, as the program lost them without closing them. Handles of keyspaces
     * are not counted: they need not be closed.
     *
     * @return the number of objects since the library was loaded
     */
    public static long leaked() {
        return Ref.leaked();
    }
}
