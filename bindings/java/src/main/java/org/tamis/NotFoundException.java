package org.tamis;

/** There is no database, or no keyspace, of that name. */
public final class NotFoundException extends TamisException {
    private static final long serialVersionUID = 1L;

    NotFoundException(ErrorCode code, String message, byte[] key, String keyspace) {
        super(code, message, key, keyspace);
    }
}
