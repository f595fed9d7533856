package org.tamis;

/** There is one of that name already. */
public final class ExistsException extends TamisException {
    private static final long serialVersionUID = 1L;

    ExistsException(ErrorCode code, String message, byte[] key, String keyspace) {
        super(code, message, key, keyspace);
    }
}
