package org.tamis;

import static java.nio.charset.StandardCharsets.UTF_8;

/**
 * An error of the engine. The message says what can be done about it, {@link #code()} which kind it is in every language, and the
 * subclasses are groups of kinds that programs tell apart.
 */
public class TamisException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    /** The kind. */
    private final ErrorCode code;
    /** The key concerned, or null. */
    private final byte[] key;
    /** The name of the keyspace concerned, or null. */
    private final String keyspace;

    TamisException(ErrorCode code, String message, byte[] key, String keyspace) {
        super(message);
        this.code = code;
        this.key = key;
        this.keyspace = keyspace;
    }

    /**
     * Returns the kind of the error.
     *
     * @return the code
     */
    public ErrorCode code() {
        return code;
    }

    /**
     * Returns the key concerned, of {@link ErrorCode#CONFLICT}, {@link ErrorCode#LOCK_TIMEOUT}, {@link ErrorCode#DEADLOCK} and
     * {@link ErrorCode#MERGE}.
     *
     * @return a copy of the key, or null if the error has none
     */
    public byte[] key() {
        return key == null ? null : key.clone();
    }

    /**
     * Returns the name of the keyspace concerned.
     *
     * @return the name, or null if the error has none
     */
    public String keyspace() {
        return keyspace;
    }

    /** Called by the native library. */
    static TamisException of(int code, byte[] message, byte[] key, byte[] keyspace) {
        String name = keyspace == null ? null : new String(keyspace, UTF_8);
        return of(ErrorCode.of(code), new String(message, UTF_8), key, name);
    }

    static TamisException of(ErrorCode code, String message) {
        return of(code, message, null, null);
    }

    private static TamisException of(ErrorCode code, String message, byte[] key, String keyspace) {
        switch (code) {
            case CLOSED:
            case ENDED:
            case DROPPED:
            case NOT_PREPARED:
                return new ClosedException(code, message, key, keyspace);
            case CONFLICT:
            case TOO_OLD:
            case LOCK_TIMEOUT:
            case DEADLOCK:
                return new ConflictException(code, message, key, keyspace);
            case CORRUPT:
                return new CorruptionException(code, message, key, keyspace);
            case DATABASE_EXISTS:
            case KEYSPACE_EXISTS:
            case PREPARED_EXISTS:
            case TARGET_EXISTS:
            case NOT_EMPTY:
                return new ExistsException(code, message, key, keyspace);
            case INVALID_ARGUMENT:
            case KEY_TOO_LONG:
            case VALUE_TOO_LONG:
            case REVERSED_RANGE:
            case FOREIGN_KEYSPACE:
            case NO_MERGE_OPERATOR:
            case BAD_NAME:
            case DEFAULT_KEYSPACE:
            case NO_SAVEPOINT:
            case OUT_OF_ORDER:
            case EMPTY_TABLE:
            case NOT_A_TABLE:
            case OVERLAP:
                return new InvalidArgumentException(code, message, key, keyspace);
            case INCOMPATIBLE:
            case UNREGISTERED_OPERATOR:
            case UNKNOWN_OPTION:
            case INVALID_OPTION:
            case FIXED_OPTION:
                return new InvalidOptionException(code, message, key, keyspace);
            case IO:
            case NO_SPACE:
            case SUSPENDED:
                return new IoException(code, message, key, keyspace);
            case LOCKED:
            case OPEN_HERE:
                return new LockedException(code, message, key, keyspace);
            case NO_DATABASE:
            case NO_KEYSPACE:
                return new NotFoundException(code, message, key, keyspace);
            case READ_ONLY:
                return new ReadOnlyException(code, message, key, keyspace);
            default:
                return new TamisException(code, message, key, keyspace);
        }
    }
}
