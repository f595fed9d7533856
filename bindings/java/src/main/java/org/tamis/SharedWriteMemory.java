package org.tamis;

/**
 * Memory for the memtables of several databases of the process: beyond half of it the largest memtable of all is flushed, also that of an
 * idle database; beyond all of it writers wait for flushes of their database. Databases are opened with it by
 * {@link Options#sharedWriteMemory}. May be used by several threads at once.
 */
public final class SharedWriteMemory extends SharedMemory {
    /**
     * Creates memory that no database uses yet.
     *
     * @param bytes its size, in bytes
     */
    public SharedWriteMemory(long bytes) {
        super(Native.sharedWriteMemory(bytes));
    }
}
