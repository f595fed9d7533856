package org.tamis;

/** Memory that databases of the process share, of one kind or the other. */
abstract class SharedMemory implements AutoCloseable {
    private final Ref ref;

    SharedMemory(long handle) {
        ref = Ref.of(this, handle, null, "the shared memory is closed");
    }

    final Ref ref() {
        return ref;
    }

    /** A call of the native library. */
    @FunctionalInterface
    private interface Call<T> {
        T on(long memory);
    }

    private <T> T with(Call<T> call) {
        long handle = ref.enter();
        try {
            return call.on(handle);
        } finally {
            ref.exit();
        }
    }

    /**
     * Returns its size.
     *
     * @return the number of bytes
     */
    public final long bytes() {
        return with(Native::sharedMemoryBytes);
    }

    /**
     * Changes its size, also while databases use it.
     *
     * @param bytes the new size, in bytes
     */
    public final void setBytes(long bytes) {
        with(memory -> {
            Native.setSharedMemoryBytes(memory, bytes);
            return null;
        });
    }

    /**
     * Returns what each database that is open with it has of it, in the order in which they were opened.
     *
     * @return a JSON list of objects with the names of the Rust struct
     */
    public final String members() {
        return Text.of(with(Native::sharedMemoryMembers));
    }

    /** Gives up the handle: databases that are open with the memory go on sharing it. A second call does nothing. */
    @Override
    public final void close() {
        ref.close();
    }
}
