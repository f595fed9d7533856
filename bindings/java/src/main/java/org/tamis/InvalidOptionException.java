package org.tamis;

/** An option that does not exist, or a value that it does not accept. */
public final class InvalidOptionException extends InvalidArgumentException {
    private static final long serialVersionUID = 1L;

    InvalidOptionException(ErrorCode code, String message, byte[] key, String keyspace) {
        super(code, message, key, keyspace);
    }
}
