package org.tamis;

/**
 * Memory for the block caches and elastic filters of several databases of the process, divided between them to save the most block reads.
 * Databases are opened with it by {@link Options#sharedReadMemory}. What exceeds a smaller size is evicted at once. May be used by
 * several threads at once.
 */
public final class SharedReadMemory extends SharedMemory {
    /**
     * Creates memory that no database uses yet.
     *
     * @param bytes its size, in bytes
     */
    public SharedReadMemory(long bytes) {
        super(Native.sharedReadMemory(bytes));
    }
}
