package org.tamis;

/** The kind of an error: its number and name are the same in every language binding, and never change their meaning. */
public enum ErrorCode {
    /** An argument that the binding itself refuses: a null pointer, text that is not UTF-8, a choice that does not exist. */
    INVALID_ARGUMENT(1, "invalid-argument"),
    /** A panic was caught at the border: a bug. The database may refuse writes from now on, and is to be reopened. */
    PANIC(2, "panic"),
    /** The database of this handle was closed. */
    CLOSED(3, "closed"),
    /** The transaction was committed, rolled back or prepared already. */
    ENDED(4, "ended"),
    /** An error that this version of the bindings has no number for. */
    OTHER(5, "other"),
    /** The thread was interrupted while it waited or worked, and still is. What background threads do goes on. */
    INTERRUPTED(6, "interrupted"),
    /** The handle is of the process that this one was forked off, and of no use here. */
    FORKED(7, "forked"),
    /** The directory holds no database, and the options do not allow creating one. */
    NO_DATABASE(10, "no-database"),
    /** The directory holds a database, and the options ask for a new one. */
    DATABASE_EXISTS(11, "database-exists"),
    /** Another process has the database open for writing. */
    LOCKED(12, "locked"),
    /** This process has the database open already. */
    OPEN_HERE(13, "open-here"),
    /** The database's writer replaces files faster than they can be opened read-only. Try again. */
    CHANGING(14, "changing"),
    /** An option contradicts the stored database. */
    INCOMPATIBLE(15, "incompatible"),
    /** A file of a format that this version does not read. */
    UNSUPPORTED_FORMAT(16, "unsupported-format"),
    /** An option names a merge operator or compaction filter that is not there. */
    UNREGISTERED_OPERATOR(17, "unregistered-operator"),
    /** The directory holds somebody else's files, or is a file. Nothing was touched. */
    NOT_EMPTY(18, "not-empty"),
    /** A name that no option has. */
    UNKNOWN_OPTION(20, "unknown-option"),
    /** A value that the option does not accept, or options that contradict each other. */
    INVALID_OPTION(21, "invalid-option"),
    /** The option cannot be changed while the keyspace is open. */
    FIXED_OPTION(22, "fixed-option"),
    /** A system call failed. */
    IO(30, "io"),
    /** The device or quota is full. */
    NO_SPACE(31, "no-space"),
    /** Bytes on disk are damaged. */
    CORRUPT(32, "corrupt"),
    /** The key is longer than 65,536 bytes. */
    KEY_TOO_LONG(40, "key-too-long"),
    /** The value is longer than the longest allowed. */
    VALUE_TOO_LONG(41, "value-too-long"),
    /** The start of a range to delete lies after its end. */
    REVERSED_RANGE(42, "reversed-range"),
    /** The database is open read-only. */
    READ_ONLY(43, "read-only"),
    /** A file could not be written. Writes resume once a retry in the background succeeds. */
    SUSPENDED(44, "suspended"),
    /** Writes stopped after an earlier failure. Reopen the database. */
    POISONED(45, "poisoned"),
    /** The keyspace belongs to another database. */
    FOREIGN_KEYSPACE(46, "foreign-keyspace"),
    /** The keyspace has no merge operator. */
    NO_MERGE_OPERATOR(47, "no-merge-operator"),
    /** The keyspace's merge operator could not combine a key's operands. */
    MERGE(48, "merge"),
    /** The keyspace was dropped. */
    DROPPED(50, "dropped"),
    /** A keyspace of that name exists already. */
    KEYSPACE_EXISTS(51, "keyspace-exists"),
    /** No keyspace has that name. */
    NO_KEYSPACE(52, "no-keyspace"),
    /** A name that no keyspace can have. */
    BAD_NAME(53, "bad-name"),
    /** The default keyspace cannot be dropped or renamed. */
    DEFAULT_KEYSPACE(54, "default-keyspace"),
    /** A concurrent write is in conflict with the transaction. Nothing was committed; try again. */
    CONFLICT(60, "conflict"),
    /** The transaction has outlived what is kept to validate it. Nothing was committed; try again. */
    TOO_OLD(61, "too-old"),
    /** A lock was held by others for longer than the transaction waits. Drop it and try again. */
    LOCK_TIMEOUT(62, "lock-timeout"),
    /** To wait for a lock would have closed a circle. Drop the transaction and try again. */
    DEADLOCK(63, "deadlock"),
    /** The savepoint was undone by a rollback to an earlier one, or belongs to another transaction. */
    NO_SAVEPOINT(64, "no-savepoint"),
    /** Another transaction is prepared under this name. */
    PREPARED_EXISTS(65, "prepared-exists"),
    /** The prepared transaction was committed or aborted already. */
    NOT_PREPARED(66, "not-prepared"),
    /** A checkpoint or an external table goes to a new name, and this one exists. */
    TARGET_EXISTS(70, "target-exists"),
    /** The compaction was cancelled. */
    CANCELLED(71, "cancelled"),
    /** The compaction might not fit on the device. */
    NO_ROOM(72, "no-room"),
    /** Keys of an external table must be added in strictly ascending order. */
    OUT_OF_ORDER(80, "out-of-order"),
    /** An external table needs an entry or a range delete. */
    EMPTY_TABLE(81, "empty-table"),
    /** An earlier write to the external table failed. Build it again. */
    FAILED_TABLE(82, "failed-table"),
    /** The file is no complete external table. */
    NOT_A_TABLE(83, "not-a-table"),
    /** Two files of one ingestion overlap. */
    OVERLAP(84, "overlap");

    private final int number;
    private final String text;

    ErrorCode(int number, String text) {
        this.number = number;
        this.text = text;
    }

    /**
     * Returns the number of this code in all languages.
     *
     * @return the number
     */
    public int number() {
        return number;
    }

    /**
     * Returns the name of this code in all languages, in lower case with hyphens: {@code "no-database"}.
     *
     * @return the name
     */
    public String text() {
        return text;
    }

    /**
     * Reports whether another attempt of the same transaction may succeed.
     *
     * @return true for conflicts and locks that were not granted
     */
    public boolean isRetryable() {
        return this == CONFLICT || this == TOO_OLD || this == LOCK_TIMEOUT || this == DEADLOCK;
    }

    static ErrorCode of(int number) {
        for (ErrorCode code : values()) {
            if (code.number == number) {
                return code;
            }
        }
        return OTHER;
    }
}
