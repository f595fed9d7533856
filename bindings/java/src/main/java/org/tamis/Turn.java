package org.tamis;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/**
 * Lets one thread at a time work with what several may hand on to each other. Whoever comes meanwhile is refused: to wait would hide a mistake.
 *
 * <p>One atomic exchange for each turn. What a thread wrote in its turn is seen by the next one.
 */
final class Turn {
    private static final VarHandle TAKEN;

    static {
        try {
            TAKEN = MethodHandles.lookup().findVarHandle(Turn.class, "taken", boolean.class);
        } catch (ReflectiveOperationException error) {
            throw new ExceptionInInitializerError(error);
        }
    }

    private final String what;

    @SuppressWarnings("unused")
    private boolean taken;

    /** @param what what it is of, for the exception */
    Turn(String what) {
        this.what = what;
    }

    /** Begins a turn, which {@link #end} ends. */
    void begin() {
        if (!tryBegin()) {
            throw TamisException.of(
                    ErrorCode.INVALID_ARGUMENT, what + " is in use by another thread, and is for one at a time");
        }
    }

    /** Begins a turn, or returns false if there is one. */
    boolean tryBegin() {
        return TAKEN.compareAndSet(this, false, true);
    }

    void end() {
        TAKEN.setRelease(this, false);
    }
}
