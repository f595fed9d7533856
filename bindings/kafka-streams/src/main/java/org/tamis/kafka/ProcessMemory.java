package org.tamis.kafka;

import org.tamis.SharedReadMemory;

/**
 * The memory that all stores of this process share. It exists while there is a store that uses it.
 *
 * <p>The last store that was opened decides how much it is: applications in one process that ask for different amounts share one all the
 * same.
 */
final class ProcessMemory {
    private static SharedReadMemory read;
    private static int users;

    private ProcessMemory() {}

    /** Returns the memory, of so many bytes, to be given back with {@link #release}. */
    static synchronized SharedReadMemory acquire(long readBytes) {
        if (read == null) {
            read = new SharedReadMemory(readBytes);
        } else if (read.bytes() != readBytes) {
            read.setBytes(readBytes);
        }
        users++;
        return read;
    }

    /** Gives back what {@link #acquire} returned, once. */
    static synchronized void release() {
        if (--users == 0) {
            read.close();
            read = null;
        }
    }

    /** The number of stores that use it. */
    static synchronized int users() {
        return users;
    }
}
