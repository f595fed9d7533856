package org.tamis;

/** The database is closed, or what was called has ended: a cursor, snapshot or transaction; or the keyspace was dropped. */
public final class ClosedException extends TamisException {
    private static final long serialVersionUID = 1L;

    ClosedException(ErrorCode code, String message, byte[] key, String keyspace) {
        super(code, message, key, keyspace);
    }
}
