package org.tamis;

/** The database is open already, in this process or another one. */
public final class LockedException extends TamisException {
    private static final long serialVersionUID = 1L;

    LockedException(ErrorCode code, String message, byte[] key, String keyspace) {
        super(code, message, key, keyspace);
    }
}
