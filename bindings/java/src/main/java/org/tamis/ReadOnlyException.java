package org.tamis;

/** The database was opened read-only. */
public final class ReadOnlyException extends TamisException {
    private static final long serialVersionUID = 1L;

    ReadOnlyException(ErrorCode code, String message, byte[] key, String keyspace) {
        super(code, message, key, keyspace);
    }
}
