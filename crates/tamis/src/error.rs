//! Errors: one narrow enum per kind of operation, all of which convert into [`Error`].
//!
//! Messages name the file and offset, if there are any, and what the caller can do.

use std::path::PathBuf;

use tamis_files::error::FileError;
pub use tamis_files::error::{Corruption, IoFailure, StorageError};

fn at_line(line: &usize) -> String {
    if *line == 0 { String::new() } else { format!("line {line}: ") }
}

fn did_you_mean(near: &Option<&str>) -> String {
    near.map_or_else(|| ";".into(), |near| format!("; did you mean `{near}`?"))
}

/// Why options were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// A name that no option has.
    #[error(
        "{}there is no option `{}`{} `tamis options` lists all options",
        at_line(line),
        name.escape_debug(),
        did_you_mean(near)
    )]
    Unknown {
        /// The line of the text, from 1; 0 if the option did not come from a text.
        line: usize,
        /// The unknown name.
        name: String,
        /// An option with a similar name, perhaps the one intended.
        near: Option<&'static str>,
    },
    /// An option that another version or build has.
    #[error("{}option `{name}` {reason}", at_line(line))]
    Unavailable {
        /// The line of the text, from 1; 0 if the option was not set from a text.
        line: usize,
        /// The name.
        name: String,
        /// Why this build does not have it.
        reason: &'static str,
    },
    /// A line that is neither `name = value`, a comment nor empty.
    #[error("line {line}: expected `name = value`, found `{}`", text.escape_debug())]
    Syntax {
        /// The line of the text, from 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// A value that the option does not accept.
    #[error("option `{name}` does not accept `{}`: {expected}", value.escape_debug())]
    Value {
        /// The option's name.
        name: &'static str,
        /// The value given.
        value: String,
        /// What the option accepts: type, unit and range.
        expected: String,
    },
    /// An option that is fixed while the keyspace is open.
    #[error("option `{}` cannot be changed while the keyspace is open; open it with the new value", name.escape_debug())]
    Fixed {
        /// The option's name.
        name: String,
    },
}

/// Why a database could not be opened.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has the database open (or this one, on a file system that cannot tell).
    #[error(
        "{} is locked: another process has the database open for writing; close it there, or open the database \
         read-only, which shows what has been written so far",
        path.display()
    )]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// This process already has the database open. Handles are cheap to clone: share the existing
    /// one.
    #[error(
        "{} is locked: this process has the database open already; clone that handle instead of opening it again, or drop \
         it first, with all its keyspaces, snapshots and transactions",
        path.display()
    )]
    OpenHere {
        /// The lock file.
        path: PathBuf,
    },
    /// The database changed during every attempt to open it read-only: its writer replaces files
    /// faster than they can be opened. Nothing is wrong with the database; try again later.
    #[error("{} was changed by its writer during every attempt to open it; try again", path.display())]
    Changing {
        /// The database's directory.
        path: PathBuf,
    },
    /// The state after the write that [`recover_to`](crate::Options::recover_to) names cannot be
    /// restored: the tables hold later writes.
    #[error("the state after write {asked} cannot be restored: the tables have writes up to {oldest}")]
    Unreachable {
        /// The number of the write.
        asked: u64,
        /// The oldest state that can be restored.
        oldest: u64,
    },
    /// The state after the write that [`recover_to`](crate::Options::recover_to) names cannot be
    /// restored: the logs record an ingestion before it, but not the data that it brought.
    #[error(
        "the state after write {asked} cannot be restored: write {seq} ingested tables that are not here"
    )]
    IngestedElsewhere {
        /// The number of the write.
        asked: u64,
        /// The number of the ingestion.
        seq: u64,
    },
    /// The database was not opened as a follower, so it cannot catch up with a writer.
    #[error("{} was not opened as a follower, and always shows the same state; open it with `open_follower`", path.display())]
    NotFollower {
        /// The database's directory.
        path: PathBuf,
    },
    /// The directory holds no database, and the options do not allow creating one.
    #[error("there is no database in {}; opening it for writing with `create_if_missing` creates one", path.display())]
    NotFound {
        /// The directory.
        path: PathBuf,
    },
    /// The path holds something other than a database of tamis: another engine's database, a file,
    /// or other files. Nothing was changed.
    #[error("{} holds no database of tamis: found {found}; nothing there was touched", path.display())]
    Foreign {
        /// The path.
        path: PathBuf,
        /// A description of what is there.
        found: String,
    },
    /// A database was to be created in a directory that holds other files. Nothing was changed.
    #[error(
        "there is no database in {}, and none is created among {found}; choose an empty directory, or set \
         `create_among_others`",
        path.display()
    )]
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// A description of what is there.
        found: String,
    },
    /// The directory holds a database, and the options ask for a new one.
    #[error("there is already a database in {}, and `error_if_exists` is set", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// An option that contradicts the stored database.
    #[error("option `{name}` is `{asked}`, but the database was created with `{stored}`: {advice}")]
    Incompatible {
        /// The option's name.
        name: &'static str,
        /// The value in the database.
        stored: String,
        /// The value asked for.
        asked: String,
        /// What to do.
        advice: String,
    },
    /// A file of a format that this version of the library does not read.
    #[error("{} has format version {found}; this library reads up to {supported}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version that this library reads.
        supported: u32,
    },
    /// An option names an operator that is neither built in nor among the options' `operators`.
    #[error(
        "keyspace `{}` has the option `{option} = {name}`, but there is no such operator; add it to \
         `operators` in the options",
        keyspace.escape_debug()
    )]
    Unregistered {
        /// The keyspace.
        keyspace: String,
        /// The option: `merge_operator` or `compaction_filter`.
        option: &'static str,
        /// The operator's name.
        name: String,
    },
    /// Options out of range or malformed.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// A failed system call or damaged bytes.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

// Hidden, since users never see the other type.
#[doc(hidden)]
impl From<FileError> for OpenError {
    fn from(error: FileError) -> OpenError {
        match error {
            FileError::Format { path, found, supported } => OpenError::Format { path, found, supported },
            FileError::NotFound { path } => OpenError::NotFound { path },
            FileError::Storage(error) => OpenError::Storage(error),
        }
    }
}

/// Why a read failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The keyspace was dropped while the handle lived on.
    #[error("keyspace `{}` was dropped", name.escape_debug())]
    Dropped {
        /// The keyspace's name.
        name: String,
    },
    /// The keyspace's merge operator could not combine a key's operands into a value. Putting or
    /// deleting the key makes it readable again.
    #[error("could not merge the operands of the key `{}`: {what}", excerpt(key))]
    Merge {
        /// The key.
        key: Vec<u8>,
        /// The operator's name and message.
        what: String,
    },
    /// The transaction that the iterator belongs to has ended, and so has the iterator.
    #[error(
        "the transaction was committed, rolled back or prepared already, and its iterators ended with it"
    )]
    Ended,
    /// A failed system call or damaged bytes.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Formats a key for a message: escaped, and cut when long.
fn excerpt(key: &[u8]) -> String {
    const MAX_BYTES: usize = 60;
    match key.split_at_checked(MAX_BYTES) {
        Some((start, rest)) if !rest.is_empty() => format!("{}…", start.escape_ascii()),
        _ => key.escape_ascii().to_string(),
    }
}

/// Why a write was not acknowledged.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// A key beyond [`MAX_KEY_BYTES`](crate::MAX_KEY_BYTES).
    #[error("a key of {len} bytes is too long: keys hold at most {max} bytes")]
    KeyTooLong {
        /// The key's length in bytes.
        len: usize,
        /// The maximum length, in bytes.
        max: usize,
    },
    /// A value beyond [`MAX_VALUE_BYTES`](crate::MAX_VALUE_BYTES).
    #[error("a value of {len} bytes is too long: values hold at most {max} bytes")]
    ValueTooLong {
        /// The value's length in bytes.
        len: usize,
        /// The maximum length, in bytes.
        max: usize,
    },
    /// A range that starts after its end.
    #[error("the range to delete starts after its end")]
    ReversedRange,
    /// The database was opened read-only.
    #[error("the database is open read-only")]
    ReadOnly,
    /// The handle was closed.
    #[error("the database is closed")]
    Closed,
    /// A panic in the engine may have broken an invariant, so no more writes are acknowledged.
    #[error("writes stopped after an earlier failure: {cause}; reopen the database to continue")]
    Poisoned {
        /// The failure.
        cause: String,
    },
    /// A file could not be written: a full disk, a failed sync, a limit. No acknowledged write is
    /// lost. The failed work is retried in the background, and writes resume once it succeeds;
    /// until then, every write that depends on it is refused. Until writes resume, a read-only
    /// opening, or an opening after a crash, may find a write that failed before; after that,
    /// never. `docs/failures.md` has the rule.
    #[error("writes are suspended until a retry succeeds: {cause}")]
    Suspended {
        /// The last failure.
        cause: String,
    },
    /// The keyspace was dropped while the handle lived on.
    #[error("keyspace `{}` was dropped", name.escape_debug())]
    Dropped {
        /// The keyspace's name.
        name: String,
    },
    /// An operand was merged into a keyspace without a merge operator.
    #[error("keyspace `{}` has no merge operator; set one with its option `merge_operator`", name.escape_debug())]
    NoMergeOperator {
        /// The keyspace's name.
        name: String,
    },
    /// The keyspace's options name an operator that is not registered, and the database was opened
    /// without it, as [`Operators::with_unknown`](crate::operators::Operators::with_unknown)
    /// permits.
    #[error(
        "keyspace `{}` can be read but not written: its option `{option} = {name}` names an operator that this program \
         does not have",
        keyspace.escape_debug()
    )]
    Unregistered {
        /// The keyspace.
        keyspace: String,
        /// The option: `merge_operator` or `compaction_filter`.
        option: &'static str,
        /// The operator's name.
        name: String,
    },
    /// The keyspace belongs to another database.
    #[error("keyspace `{}` belongs to another database", name.escape_debug())]
    ForeignKeyspace {
        /// The keyspace's name.
        name: String,
    },
    /// A failed system call.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Why changes could not be read, or a position could not be stored.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ChangesError {
    /// The next change cannot be read. Its log was not kept, or a power failure took back unsynced
    /// writes that readers may have seen, or (rarely) a log could not be synced and was abandoned,
    /// with its writes in tables.
    #[error(
        "the changes from number {wanted} on are gone, those from {oldest} on are there: take a snapshot, and continue with \
         the changes after its number"
    )]
    FellBehind {
        /// The number of the next change.
        wanted: u64,
        /// The oldest number from which changes are available. A snapshot at this number less one,
        /// or a newer one, contains everything before it.
        oldest: u64,
    },
    /// Changes were requested after a number that no write has yet. Either the position comes from
    /// another database, or a power failure took back writes that were not synced. In that case a
    /// reader that had read them has seen writes that no longer exist, and must start over with a
    /// snapshot.
    #[error(
        "there is no write {since}: the last one is {last}; the position is from another database, or writes after it were \
         lost in a power failure. Take a snapshot, and continue with the changes after its number"
    )]
    Ahead {
        /// The number after which changes were requested.
        since: u64,
        /// The number of the last write.
        last: u64,
    },
    /// There is no consumer of this name.
    #[error("there is no consumer `{}`", name.escape_debug())]
    NoConsumer {
        /// The name.
        name: String,
    },
    /// A consumer's name that is empty, longer than 255 bytes, or has control characters.
    #[error("`{}` cannot be the name of a consumer: names have 1 to 255 bytes and no control characters", name.escape_debug())]
    BadName {
        /// The name.
        name: String,
    },
    /// The database was opened read-only, and will not change.
    #[error("the database is open read-only, and has no changes to come")]
    ReadOnly,
    /// The database was closed, and all changes were read.
    #[error("the database is closed")]
    Closed,
    /// A position could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A failed system call or damaged bytes.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Why a transaction, or an atomic change of a key, did not succeed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// Somebody else has written what the transaction depends on since it began. Nothing was
    /// committed; another attempt may succeed.
    #[error(
        "a concurrent write of key {} in keyspace `{}` is in conflict; nothing was committed, try again",
        excerpt_of_key(key),
        keyspace.escape_debug()
    )]
    Conflict {
        /// The keyspace's name.
        keyspace: String,
        /// The key that was written; if a range was deleted or ingested, a key of the transaction
        /// in that range.
        key: Vec<u8>,
    },
    /// More was written since the transaction began than is kept for validating it. Nothing was
    /// committed; a shorter attempt may succeed.
    #[error(
        "the transaction has outlived what is kept to validate it in keyspace `{}`; nothing was committed: commit \
         sooner, or set a larger `transaction_history_bytes`",
        keyspace.escape_debug()
    )]
    TooOld {
        /// The keyspace's name.
        keyspace: String,
    },
    /// Others held a lock for longer than the transaction waits. The transaction holds its own
    /// locks until it is dropped.
    #[error(
        "key {} in keyspace `{}` is locked by {}; drop this transaction and begin again",
        excerpt_of_key(key),
        keyspace.escape_debug(),
        transactions(holders)
    )]
    LockTimeout {
        /// The keyspace's name.
        keyspace: String,
        /// The key, or the first key of the range.
        key: Vec<u8>,
        /// The numbers of the transactions that hold the lock.
        holders: Vec<u64>,
    },
    /// Waiting for a lock would have deadlocked: the transactions would have waited for each other
    /// in a cycle. This one holds its own locks until it is dropped.
    #[error("a deadlock: {}; drop this transaction and begin again", circle(cycle))]
    Deadlock {
        /// The cycle, beginning with this transaction: each waits for the next one.
        cycle: Vec<WaitsFor>,
    },
    /// The calling thread was [interrupted](crate::maintenance::interruptible) while it waited for
    /// a lock. The transaction is unchanged.
    #[error("the wait for a lock was interrupted")]
    Interrupted,
    /// Another transaction is prepared under this name.
    #[error("there is already a prepared transaction called {}", excerpt_of_key(name))]
    PreparedExists {
        /// The name.
        name: Vec<u8>,
    },
    /// The prepared transaction was already committed or aborted, or is being committed or aborted
    /// now.
    #[error("the prepared transaction {} was committed or aborted already", excerpt_of_key(name))]
    NotPrepared {
        /// The name.
        name: Vec<u8>,
    },
    /// The savepoint was discarded by a rollback to an earlier one, or belongs to another
    /// transaction.
    #[error("the savepoint was undone by a rollback to an earlier one, or belongs to another transaction")]
    NoSavepoint,
    /// A read failed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The commit failed, or one of the transaction's writes was refused.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl TransactionError {
    /// Reports whether another attempt may succeed: after a conflict, a deadlock or a timeout, or
    /// if the transaction took too long.
    pub fn is_retryable(&self) -> bool {
        use TransactionError::{Conflict, Deadlock, LockTimeout, TooOld};
        matches!(self, Conflict { .. } | TooOld { .. } | LockTimeout { .. } | Deadlock { .. })
    }
}

/// One transaction that waits for another's lock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitsFor {
    /// The number of the waiting transaction.
    pub transaction: u64,
    /// The keyspace's name.
    pub keyspace: String,
    /// The key, or the first key of the range.
    pub key: Vec<u8>,
    /// The number of the transaction that holds the lock.
    pub holder: u64,
}

fn transactions(numbers: &[u64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    format!("transaction {}", numbers.join(", "))
}

fn circle(cycle: &[WaitsFor]) -> String {
    let step = |step: &WaitsFor| {
        let (key, keyspace) = (excerpt_of_key(&step.key), step.keyspace.escape_debug());
        format!(
            "transaction {} waits for key {key} in `{keyspace}`, held by {}",
            step.transaction, step.holder
        )
    };
    cycle.iter().map(step).collect::<Vec<_>>().join("; ")
}

/// Why an administrative operation (flush, compact, checkpoint, keyspaces) failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// A keyspace of that name already exists.
    #[error("a keyspace called `{}` already exists", name.escape_debug())]
    KeyspaceExists {
        /// The name.
        name: String,
    },
    /// No keyspace has that name.
    #[error("there is no keyspace called `{}`", name.escape_debug())]
    NoKeyspace {
        /// The name.
        name: String,
    },
    /// A keyspace name that is empty, too long, or contains control characters.
    #[error("`{}` cannot name a keyspace: names are 1 to 255 bytes without control characters", name.escape_debug())]
    BadName {
        /// The name.
        name: String,
    },
    /// The default keyspace cannot be dropped or renamed.
    #[error("the default keyspace cannot be dropped or renamed")]
    DefaultKeyspace,
    /// An option names an operator that is neither built in nor among the options' `operators`.
    #[error(
        "the option `{option} = {name}` names no known operator; add it to `operators` in the database's options"
    )]
    Unregistered {
        /// The option: `merge_operator` or `compaction_filter`.
        option: &'static str,
        /// The operator's name.
        name: String,
    },
    /// The directory of a checkpoint already exists.
    #[error("{} exists already; a checkpoint goes to a new directory", path.display())]
    TargetExists {
        /// The directory.
        path: PathBuf,
    },
    /// The compaction was cancelled before it was complete; part of it may have been done.
    #[error("the compaction was cancelled")]
    Cancelled,
    /// The calling thread was [interrupted](crate::maintenance::interruptible) while it worked or
    /// waited. Background threads continue their work.
    #[error("the call was interrupted before it was complete")]
    Interrupted,
    /// A compaction that might not fit on the device.
    #[error(
        "compaction of keyspace `{}` may need {needed} bytes, and {free} are free; make room and try again",
        keyspace.escape_debug()
    )]
    NoRoom {
        /// The keyspace's name.
        keyspace: String,
        /// The maximum number of bytes that the compaction may need.
        needed: u64,
        /// Free bytes, without those reserved for other compactions.
        free: u64,
    },
    /// A file that cannot be ingested, or files that cannot be ingested together.
    #[error(transparent)]
    External(#[from] ExternalTableError),
    /// Options out of range.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// A write that the operation needed failed.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A failed system call or damaged bytes.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Why an external table could not be built, read or ingested.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ExternalTableError {
    /// A key that is not greater than the previous one. The keys are escaped and cut.
    #[error("key {key} comes after {previous}: keys must be added in strictly ascending order")]
    OutOfOrder {
        /// The key.
        key: String,
        /// The key added before it.
        previous: String,
    },
    /// A file of that name already exists.
    #[error("{} exists already; an external table goes to a new file", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A table without entries or range deletes.
    #[error("{} would be empty: an external table needs an entry or a range delete", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// An earlier write to the file failed.
    #[error("an earlier write to {} failed; build the file again", path.display())]
    Failed {
        /// The file.
        path: PathBuf,
    },
    /// A table that belongs to a database: its entries have sequence numbers of that database.
    #[error("{} is a table of a database, not one built for ingestion", path.display())]
    NotExternal {
        /// The file.
        path: PathBuf,
    },
    /// A file that is not a table, is incomplete or is damaged.
    #[error("{} is not a complete external table: {what}; build it again", path.display())]
    NotATable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Two files of one ingestion overlap.
    #[error("{} and {} overlap: the keys of the second are {range}", first.display(), second.display())]
    Overlap {
        /// The file with the smaller first key.
        first: PathBuf,
        /// The other file.
        second: PathBuf,
        /// The second file's key range as text.
        range: String,
    },
    /// Options out of range.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// A key or value that is too long, or a reversed range.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A failed system call.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Formats a key for a message: escaped, in quotes, and cut when long.
pub(crate) fn excerpt_of_key(key: &[u8]) -> String {
    const MOST: usize = 64;
    let (head, rest) = key.split_at(key.len().min(MOST));
    let more = if rest.is_empty() { String::new() } else { format!("… ({} bytes)", key.len()) };
    format!("\"{}\"{more}", head.escape_ascii())
}

/// Any error of the library; every narrower error converts into it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// From opening.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// From reading.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// From writing.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// From reading changes.
    #[error(transparent)]
    Changes(#[from] ChangesError),
    /// From transactions.
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    /// From administrative operations.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// From building or reading an external table.
    #[error(transparent)]
    External(#[from] ExternalTableError),
    /// From options.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// From below the engine.
    #[error(transparent)]
    Storage(#[from] StorageError),
}
