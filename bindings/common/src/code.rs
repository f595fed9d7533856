//! [`Code`]: the kind of an error, as a number and a name that never change their meaning.

/// The kind of an error. Numbers and names are stable: new ones are added, and none is reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(i32)]
pub enum Code {
    /// An argument that the binding itself refuses: a null pointer, text that is not UTF-8, a choice that does not exist.
    InvalidArgument = 1,
    /// A panic was caught at the border: a bug. The database may refuse writes from now on, and is to be reopened.
    Panic = 2,
    /// The database of this handle was closed.
    Closed = 3,
    /// The transaction was committed, rolled back or prepared already.
    Ended = 4,
    /// An error that this version of the bindings has no number for.
    Other = 5,
    /// The calling thread was interrupted while it waited or worked: by its language's own means. What background threads do goes on.
    Interrupted = 6,
    /// The handle is of the process that this one was forked off, and of no use here. That process is not affected.
    Forked = 7,
    /// The directory holds no database, and the options do not allow creating one.
    NoDatabase = 10,
    /// The directory holds a database, and the options ask for a new one.
    DatabaseExists = 11,
    /// Another process has the database open for writing.
    Locked = 12,
    /// This process has the database open already.
    OpenHere = 13,
    /// The database's writer replaces files faster than they can be opened read-only. Try again.
    Changing = 14,
    /// An option contradicts the stored database.
    Incompatible = 15,
    /// A file of a format that this version does not read.
    UnsupportedFormat = 16,
    /// An option names a merge operator or compaction filter that is not there.
    UnregisteredOperator = 17,
    /// The directory holds somebody else's files, or is a file. Nothing was touched.
    NotEmpty = 18,
    /// A name that no option has.
    UnknownOption = 20,
    /// A value that the option does not accept, or options that contradict each other.
    InvalidOption = 21,
    /// The option cannot be changed while the keyspace is open.
    FixedOption = 22,
    /// A system call failed.
    Io = 30,
    /// The device or quota is full.
    NoSpace = 31,
    /// Bytes on disk are damaged.
    Corrupt = 32,
    /// The key is longer than 65,536 bytes.
    KeyTooLong = 40,
    /// The value is longer than the longest allowed.
    ValueTooLong = 41,
    /// The start of a range to delete lies after its end.
    ReversedRange = 42,
    /// The database is open read-only.
    ReadOnly = 43,
    /// A file could not be written. Writes resume once a retry in the background succeeds.
    Suspended = 44,
    /// Writes stopped after an earlier failure. Reopen the database.
    Poisoned = 45,
    /// The keyspace belongs to another database.
    ForeignKeyspace = 46,
    /// The keyspace has no merge operator.
    NoMergeOperator = 47,
    /// The keyspace's merge operator could not combine a key's operands.
    Merge = 48,
    /// The keyspace was dropped.
    Dropped = 50,
    /// A keyspace of that name exists already.
    KeyspaceExists = 51,
    /// No keyspace has that name.
    NoKeyspace = 52,
    /// A name that no keyspace can have.
    BadName = 53,
    /// The default keyspace cannot be dropped or renamed.
    DefaultKeyspace = 54,
    /// A concurrent write is in conflict with the transaction. Nothing was committed; try again.
    Conflict = 60,
    /// The transaction has outlived what is kept to validate it. Nothing was committed; try again.
    TooOld = 61,
    /// A lock was held by others for longer than the transaction waits. Drop it and try again.
    LockTimeout = 62,
    /// To wait for a lock would have closed a circle. Drop the transaction and try again.
    Deadlock = 63,
    /// The savepoint was undone by a rollback to an earlier one, or belongs to another transaction.
    NoSavepoint = 64,
    /// Another transaction is prepared under this name.
    PreparedExists = 65,
    /// The prepared transaction was committed or aborted already.
    NotPrepared = 66,
    /// A checkpoint or an external table goes to a new name, and this one exists.
    TargetExists = 70,
    /// The compaction was cancelled.
    Cancelled = 71,
    /// The compaction might not fit on the device.
    NoRoom = 72,
    /// Keys of an external table must be added in strictly ascending order.
    OutOfOrder = 80,
    /// An external table needs an entry or a range delete.
    EmptyTable = 81,
    /// An earlier write to the external table failed. Build it again.
    FailedTable = 82,
    /// The file is no complete external table.
    NotATable = 83,
    /// Two files of one ingestion overlap.
    Overlap = 84,
}

impl Code {
    /// All codes, in the order of their numbers.
    pub const ALL: &[Code] = &[
        Code::InvalidArgument,
        Code::Panic,
        Code::Closed,
        Code::Ended,
        Code::Other,
        Code::Interrupted,
        Code::Forked,
        Code::NoDatabase,
        Code::DatabaseExists,
        Code::Locked,
        Code::OpenHere,
        Code::Changing,
        Code::Incompatible,
        Code::UnsupportedFormat,
        Code::UnregisteredOperator,
        Code::NotEmpty,
        Code::UnknownOption,
        Code::InvalidOption,
        Code::FixedOption,
        Code::Io,
        Code::NoSpace,
        Code::Corrupt,
        Code::KeyTooLong,
        Code::ValueTooLong,
        Code::ReversedRange,
        Code::ReadOnly,
        Code::Suspended,
        Code::Poisoned,
        Code::ForeignKeyspace,
        Code::NoMergeOperator,
        Code::Merge,
        Code::Dropped,
        Code::KeyspaceExists,
        Code::NoKeyspace,
        Code::BadName,
        Code::DefaultKeyspace,
        Code::Conflict,
        Code::TooOld,
        Code::LockTimeout,
        Code::Deadlock,
        Code::NoSavepoint,
        Code::PreparedExists,
        Code::NotPrepared,
        Code::TargetExists,
        Code::Cancelled,
        Code::NoRoom,
        Code::OutOfOrder,
        Code::EmptyTable,
        Code::FailedTable,
        Code::NotATable,
        Code::Overlap,
    ];

    /// Returns the number.
    pub fn number(self) -> i32 {
        self as i32
    }

    /// Returns the name, in lower case with hyphens.
    pub fn name(self) -> &'static str {
        match self {
            Code::InvalidArgument => "invalid-argument",
            Code::Panic => "panic",
            Code::Closed => "closed",
            Code::Ended => "ended",
            Code::Other => "other",
            Code::Interrupted => "interrupted",
            Code::Forked => "forked",
            Code::NoDatabase => "no-database",
            Code::DatabaseExists => "database-exists",
            Code::Locked => "locked",
            Code::OpenHere => "open-here",
            Code::Changing => "changing",
            Code::Incompatible => "incompatible",
            Code::UnsupportedFormat => "unsupported-format",
            Code::UnregisteredOperator => "unregistered-operator",
            Code::NotEmpty => "not-empty",
            Code::UnknownOption => "unknown-option",
            Code::InvalidOption => "invalid-option",
            Code::FixedOption => "fixed-option",
            Code::Io => "io",
            Code::NoSpace => "no-space",
            Code::Corrupt => "corrupt",
            Code::KeyTooLong => "key-too-long",
            Code::ValueTooLong => "value-too-long",
            Code::ReversedRange => "reversed-range",
            Code::ReadOnly => "read-only",
            Code::Suspended => "suspended",
            Code::Poisoned => "poisoned",
            Code::ForeignKeyspace => "foreign-keyspace",
            Code::NoMergeOperator => "no-merge-operator",
            Code::Merge => "merge",
            Code::Dropped => "dropped",
            Code::KeyspaceExists => "keyspace-exists",
            Code::NoKeyspace => "no-keyspace",
            Code::BadName => "bad-name",
            Code::DefaultKeyspace => "default-keyspace",
            Code::Conflict => "conflict",
            Code::TooOld => "too-old",
            Code::LockTimeout => "lock-timeout",
            Code::Deadlock => "deadlock",
            Code::NoSavepoint => "no-savepoint",
            Code::PreparedExists => "prepared-exists",
            Code::NotPrepared => "not-prepared",
            Code::TargetExists => "target-exists",
            Code::Cancelled => "cancelled",
            Code::NoRoom => "no-room",
            Code::OutOfOrder => "out-of-order",
            Code::EmptyTable => "empty-table",
            Code::FailedTable => "failed-table",
            Code::NotATable => "not-a-table",
            Code::Overlap => "overlap",
        }
    }

    /// Reports whether another attempt of the same transaction may succeed.
    pub fn is_retryable(self) -> bool {
        matches!(self, Code::Conflict | Code::TooOld | Code::LockTimeout | Code::Deadlock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_ascend_and_names_are_the_variants() {
        assert!(Code::ALL.is_sorted_by(|one, next| one.number() < next.number()));
        for code in Code::ALL {
            let words = code.name().split('-');
            let variant: String = words.map(|word| word[..1].to_uppercase() + &word[1..]).collect();
            assert_eq!(variant, format!("{code:?}"));
        }
    }
}
