package org.tamis;

/** A system call failed. */
public final class IoException extends TamisException {
    private static final long serialVersionUID = 1L;

    IoException(ErrorCode code, String message, byte[] key, String keyspace) {
        super(code, message, key, keyspace);
    }
}
