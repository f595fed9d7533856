package org.tamis;

/** Bytes on disk differ from what was written. */
public final class CorruptionException extends TamisException {
    private static final long serialVersionUID = 1L;

    CorruptionException(ErrorCode code, String message, byte[] key, String keyspace) {
        super(code, message, key, keyspace);
    }
}
