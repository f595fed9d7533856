package org.tamis.kafka;

import org.tamis.Options;
import org.tamis.SharedReadMemory;
import org.tamis.SharedWriteMemory;

/**
 * The memory that all stores of this process share. It exists while there is a store that uses it.
 *
 * <p>The last store that was opened decides how much it is: applications in one process that ask for different amounts share one all the
 * same.
 */
final class ProcessMemory {
    private static SharedReadMemory read;
    private static SharedWriteMemory write;
    private static int users;

    private ProcessMemory() {}

    /** Lets a database use the memory. To be given back with {@link #release}. */
    static synchronized void use(Options options, long readBytes, long writeBytes) {
        if (users == 0) {
            read = new SharedReadMemory(readBytes);
            write = new SharedWriteMemory(writeBytes);
        }
        if (read.bytes() != readBytes) {
            read.setBytes(readBytes);
        }
        if (write.bytes() != writeBytes) {
            write.setBytes(writeBytes);
        }
        options.sharedReadMemory(read).sharedWriteMemory(write);
        users++;
    }

    /** Gives back what {@link #use} has let use, once. */
    static synchronized void release() {
        if (--users == 0) {
            read.close();
            write.close();
        }
    }

    /** The number of stores that use it. */
    static synchronized int users() {
        return users;
    }

    /** What each database has of the memory for memtables, as JSON. */
    static synchronized String writers() {
        return users == 0 ? "[]" : write.members();
    }
}
