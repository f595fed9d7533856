package org.tamis;

/**
 * Memory for block caches and elastic filters that several databases of the process share, divided between them by what they ask. Databases
 * are opened with it by {@link Options#sharedReadMemory}. May be used by several threads at once.
 *
 * <p>Closing it gives up this handle; databases that are open with it keep their shares.
 */
public final class SharedReadMemory implements AutoCloseable {
    private final Ref ref;

    /**
     * Creates memory that no database uses yet.
     *
     * @param bytes its size, in bytes
     */
    public SharedReadMemory(long bytes) {
        ref = Ref.of(this, Native.sharedReadMemory(bytes), null, "the shared memory is closed");
    }

    Ref ref() {
        return ref;
    }

    /**
     * Returns its size.
     *
     * @return the number of bytes
     */
    public long bytes() {
        long handle = ref.enter();
        try {
            return Native.sharedReadMemoryBytes(handle);
        } finally {
            ref.exit();
        }
    }

    /**
     * Changes its size, also while databases use it.
     *
     * @param bytes the new size, in bytes
     */
    public void setBytes(long bytes) {
        long handle = ref.enter();
        try {
            Native.setSharedReadMemoryBytes(handle, bytes);
        } finally {
            ref.exit();
        }
    }

    /** Gives up the handle. A second call does nothing. */
    @Override
    public void close() {
        ref.close();
    }
}
