package org.tamis;

/** A key or value that is too long, a reversed range, a bad name. */
public class InvalidArgumentException extends TamisException {
    private static final long serialVersionUID = 1L;

    InvalidArgumentException(ErrorCode code, String message, byte[] key, String keyspace) {
        super(code, message, key, keyspace);
    }
}
