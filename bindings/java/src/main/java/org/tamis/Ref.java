package org.tamis;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.lang.ref.Cleaner;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Owns a native object, and keeps it from being freed while a call works with it.
 *
 * <p>Every call of the native library is between {@link #enter} and {@link #exit}. {@link #close} lets no further call in; the object is
 * freed by the last that leaves, or at once if there is none. So whatever threads do, no call ever sees a freed object. An
 * owner that was not closed is closed once it is unreachable, and counted as a leak.
 *
 * <p>What belongs to a database is closed with it: {@code parent} is the reference of its database.
 */
final class Ref {
    private static final Cleaner CLEANER = Cleaner.create();
    private static final AtomicLong LEAKED = new AtomicLong();
    private static final int CLOSED = Integer.MIN_VALUE;
    private static final VarHandle STATE;
    private static final VarHandle FREED;

    static {
        try {
            STATE = MethodHandles.lookup().findVarHandle(Ref.class, "state", int.class);
            FREED = MethodHandles.lookup().findVarHandle(Ref.class, "freed", boolean.class);
        } catch (ReflectiveOperationException error) {
            throw new ExceptionInInitializerError(error);
        }
    }

    private final long handle;
    private final Ref parent;
    /** What is open of a database. */
    private final Set<Ref> children;
    /** What is said of it once it is closed by itself. */
    private final String ended;
    /** Whether it has to be closed. */
    private final boolean counted;
    private final Cleaner.Cleanable cleanable;

    /** The number of calls inside, and {@link #CLOSED}. */
    @SuppressWarnings("unused")
    private volatile int state;

    @SuppressWarnings("unused")
    private volatile boolean freed;

    private Ref(Object owner, long handle, Ref parent, boolean counted, String ended) {
        this.handle = handle;
        this.parent = parent;
        children = parent == null ? ConcurrentHashMap.newKeySet() : Set.of();
        this.counted = counted;
        this.ended = ended;
        cleanable = CLEANER.register(owner, this::collect);
    }

    /** Owns a native object until it, or its parent if it has one, is closed. */
    static Ref of(Object owner, long handle, Ref parent, String ended) {
        return adopted(new Ref(owner, handle, parent, true, ended));
    }

    /** Owns a native object that may be left to the garbage collector. */
    static Ref uncounted(Object owner, long handle, Ref parent, String ended) {
        return adopted(new Ref(owner, handle, parent, false, ended));
    }

    private static Ref adopted(Ref ref) {
        if (ref.parent != null) {
            ref.parent.children.add(ref);
            // It may have been closed since the object was made, and have missed this child.
            if (ref.parent.isClosed()) {
                ref.close();
            }
        }
        return ref;
    }

    /** Begins a call, and returns the handle for it. */
    long enter() {
        if ((int) STATE.getAndAdd(this, 1) < 0) {
            exit();
            throw failure();
        }
        return handle;
    }

    /** Ends a call. */
    void exit() {
        if ((int) STATE.getAndAdd(this, -1) == CLOSED + 1) {
            free();
        }
    }

    /** Begins a call if there is a reference; otherwise returns 0. */
    static long enterAny(Ref ref) {
        return ref == null ? 0 : ref.enter();
    }

    /** Ends a call if there is a reference. */
    static void exitAny(Ref ref) {
        if (ref != null) {
            ref.exit();
        }
    }

    boolean isClosed() {
        return state < 0;
    }

    /** Returns how many calls are inside, for tests. */
    int inside() {
        return state & ~CLOSED;
    }

    /** Fails if it is closed. */
    void check() {
        if (isClosed()) {
            throw failure();
        }
    }

    /** Closes it and what belongs to it. A second call does nothing. */
    void close() {
        end(false);
    }

    /** Called once the owner is unreachable, and with it what belongs to it. */
    private void collect() {
        end(true);
    }

    private void end(boolean lost) {
        int before = (int) STATE.getAndBitwiseOr(this, CLOSED);
        if (before < 0) {
            return;
        }
        if (lost && counted) {
            LEAKED.incrementAndGet();
        }
        if (before == 0) {
            free();
        }
        for (Ref child : children) {
            child.end(lost);
        }
        if (parent != null) {
            parent.children.remove(this);
        }
        cleanable.clean();
    }

    /** Late calls that are turned away leave, too: only the first to find it closed and unused frees it. */
    private void free() {
        if (FREED.compareAndSet(this, false, true)) {
            Native.free(handle);
        }
    }

    private TamisException failure() {
        if (parent == null && ended == null || parent != null && parent.isClosed()) {
            return TamisException.of(ErrorCode.CLOSED, "the database is closed");
        }
        return TamisException.of(ErrorCode.ENDED, ended);
    }

    static long leaked() {
        return LEAKED.get();
    }
}
