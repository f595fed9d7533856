package org.tamis;

/** Somebody else has written or locked what a transaction depends on. Nothing was committed; another attempt may succeed. */
public final class ConflictException extends TamisException {
    private static final long serialVersionUID = 1L;

    ConflictException(ErrorCode code, String message, byte[] key, String keyspace) {
        super(code, message, key, keyspace);
    }
}
