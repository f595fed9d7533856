//! Errors: one narrow enum per kind of operation, all of which convert into [`Error`].
//!
//! A message names the file and the offset where they apply, and what the caller can do.

use std::io;
use std::path::{Path, PathBuf};

/// A system call that failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("could not {operation} {}: {message}", path.display())]
pub struct IoFailure {
    /// What was attempted, as a verb ("read", "sync", "rename").
    pub operation: &'static str,
    /// The file or directory concerned.
    pub path: PathBuf,
    /// The kind of the operating system's error.
    pub kind: io::ErrorKind,
    /// The operating system's own words.
    pub message: String,
    /// The operating system's number of the error, if it has one.
    pub code: Option<i32>,
}

impl IoFailure {
    /// Whether the device failed (`EIO`).
    pub(crate) fn is_device_error(&self) -> bool {
        #[cfg(unix)]
        return self.code == Some(rustix::io::Errno::IO.raw_os_error());
        #[cfg(not(unix))]
        return false;
    }

    /// Wraps an operating system error with what was attempted on which file.
    pub fn new(operation: &'static str, path: &Path, source: &io::Error) -> Self {
        IoFailure {
            operation,
            path: path.to_owned(),
            kind: source.kind(),
            message: source.to_string(),
            code: source.raw_os_error(),
        }
    }
}

/// Bytes on disk that are not what was written.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{} is damaged{}: {what}; run `tamis verify` to see how far it goes, and restore the file from a \
         checkpoint or open with `salvage`", path.display(), at(offset))]
pub struct Corruption {
    /// The damaged file.
    pub path: PathBuf,
    /// The offset of the damaged record or block in bytes, where it is known.
    pub offset: Option<u64>,
    /// What is wrong there.
    pub what: String,
}

fn at(offset: &Option<u64>) -> String {
    offset.map(|o| format!(" at offset {o}")).unwrap_or_default()
}

/// What can go wrong below the engine: a failed system call or damaged bytes.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StorageError {
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] IoFailure),
    /// Bytes on disk are damaged.
    #[error(transparent)]
    Corrupt(#[from] Corruption),
}

impl StorageError {
    /// A failed system call on `path`.
    pub fn io(operation: &'static str, path: &Path, source: &io::Error) -> Self {
        StorageError::Io(IoFailure::new(operation, path, source))
    }

    /// Damaged bytes in `path`.
    pub fn corrupt(path: &Path, offset: impl Into<Option<u64>>, what: impl Into<String>) -> Self {
        StorageError::Corrupt(Corruption { path: path.to_owned(), offset: offset.into(), what: what.into() })
    }

    /// Whether the device or quota ran out of room.
    pub fn is_out_of_space(&self) -> bool {
        matches!(self, StorageError::Io(e) if e.kind == io::ErrorKind::StorageFull
            || e.kind == io::ErrorKind::QuotaExceeded)
    }
}

fn at_line(line: &usize) -> String {
    if *line == 0 { String::new() } else { format!("line {line}: ") }
}

/// Why options were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// A name that no option has.
    #[error("{}no option is called `{name}`; `tamis options` lists them all", at_line(line))]
    Unknown {
        /// The line of the text, from 1; 0 if the option was not set by a text.
        line: usize,
        /// The unknown name.
        name: String,
    },
    /// A line that is neither `name = value`, a comment nor empty.
    #[error("line {line}: expected `name = value`, found `{text}`")]
    Syntax {
        /// The line of the text, from 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// A value that the option does not take.
    #[error("option `{name}` does not take `{value}`: {expected}")]
    Value {
        /// The option's name.
        name: &'static str,
        /// The value given.
        value: String,
        /// What it takes: type, unit and range.
        expected: String,
    },
    /// An option that holds from opening on.
    #[error("option `{name}` cannot be changed while the keyspace is open; open it with the new value")]
    Fixed {
        /// The option's name.
        name: String,
    },
}

/// Why a database could not be opened.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OpenError {
    /// Another process (or another handle in this one) has the directory open.
    #[error(
        "{} is held: another process, or another handle in this one, has the database open for writing; close that one, \
         or open the database read-only beside it, which shows what was written until then",
        path.display()
    )]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// A read-only opening found the database changed under it each time it looked: whoever writes to it replaces files faster
    /// than they can be opened. Nothing is wrong with it; try again later.
    #[error("{} was changed by whoever writes to it whenever it was read; try again", path.display())]
    Changing {
        /// The database's directory.
        path: PathBuf,
    },
    /// There is no database there and the options do not allow creating one.
    #[error("there is no database in {}; set `create_if_missing` to create one", path.display())]
    NotFound {
        /// The directory.
        path: PathBuf,
    },
    /// There is a database there and the options ask for a new one.
    #[error("there is a database in {} already, and `error_if_exists` is set", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// An option that contradicts what the stored database was made with.
    #[error("option `{name}` is `{asked}`, but the database was made with `{stored}`: {advice}")]
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
        /// The newest version this library reads.
        supported: u32,
    },
    /// An option names an operator that is neither built in nor among the options' `operators`.
    #[error(
        "keyspace `{keyspace}` has the option `{option} = {name}`, and there is no such operator; put it into \
             `operators` of the options"
    )]
    Unregistered {
        /// The keyspace.
        keyspace: String,
        /// The option: `merge_operator` or `compaction_filter`.
        option: &'static str,
        /// The operator's name.
        name: String,
    },
    /// Options out of their range or not understood.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// A failed system call or damaged bytes.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Why a read failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// The keyspace was dropped while the handle lived on.
    #[error("keyspace `{name}` was dropped")]
    Dropped {
        /// The keyspace's name.
        name: String,
    },
    /// The keyspace's merge operator could not make a value of what was merged into a key. Putting or deleting the key
    /// makes it readable again.
    #[error("could not merge what was written to the key `{}`: {what}", excerpt(key))]
    Merge {
        /// The key.
        key: Vec<u8>,
        /// What the operator said, with its name.
        what: String,
    },
    /// A failed system call or damaged bytes.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// A key as people can read it; of a long one its start.
fn excerpt(key: &[u8]) -> String {
    const MAX_BYTES: usize = 60;
    match key.split_at_checked(MAX_BYTES) {
        Some((start, rest)) if !rest.is_empty() => format!("{}…", start.escape_ascii()),
        _ => key.escape_ascii().to_string(),
    }
}

/// Why a write was not acknowledged.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// A key beyond [`MAX_KEY_BYTES`](crate::MAX_KEY_BYTES).
    #[error("a key of {len} bytes is too long: keys hold at most {max} bytes")]
    KeyTooLong {
        /// The key's length in bytes.
        len: usize,
        /// The longest allowed, in bytes.
        max: usize,
    },
    /// A value beyond [`MAX_VALUE_BYTES`](crate::MAX_VALUE_BYTES).
    #[error("a value of {len} bytes is too long: values hold at most {max} bytes")]
    ValueTooLong {
        /// The value's length in bytes.
        len: usize,
        /// The longest allowed, in bytes.
        max: usize,
    },
    /// A range whose start lies behind its end.
    #[error("the range to delete starts after its end")]
    ReversedRange,
    /// The database was opened read-only.
    #[error("the database is open read-only")]
    ReadOnly,
    /// The handle was closed.
    #[error("the database is closed")]
    Closed,
    /// A panic in the engine may have broken an invariant, so nothing more is acknowledged.
    #[error("writes stopped after an earlier failure: {cause}; reopen the database to go on")]
    Poisoned {
        /// The failure.
        cause: String,
    },
    /// A file could not be written: a full disk, a failed sync, a limit. Nothing that was acknowledged is lost. The work is tried
    /// again in the background, and once it succeeds writes go on by themselves; until then this write, and each that needs what
    /// failed, is refused. `docs/operations.md` has the rule.
    #[error("writes are suspended until what failed succeeds: {cause}")]
    Suspended {
        /// The last failure.
        cause: String,
    },
    /// The keyspace was dropped while the handle lived on.
    #[error("keyspace `{name}` was dropped")]
    Dropped {
        /// The keyspace's name.
        name: String,
    },
    /// Something was merged into a keyspace without a merge operator.
    #[error("keyspace `{name}` has no merge operator; its option `merge_operator` names one")]
    NoMergeOperator {
        /// The keyspace's name.
        name: String,
    },
    /// The keyspace belongs to another database.
    #[error("keyspace `{name}` belongs to another database")]
    ForeignKeyspace {
        /// The keyspace's name.
        name: String,
    },
    /// A failed system call.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Why an administrative operation (flush, compact, checkpoint, keyspaces) failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AdminError {
    /// A keyspace of that name exists.
    #[error("a keyspace called `{name}` exists already")]
    KeyspaceExists {
        /// The name.
        name: String,
    },
    /// No keyspace has that name.
    #[error("no keyspace is called `{name}`")]
    NoKeyspace {
        /// The name.
        name: String,
    },
    /// A keyspace name that is empty, too long, or holds control characters.
    #[error("`{name}` cannot name a keyspace: 1 to 255 bytes without control characters")]
    BadName {
        /// The name.
        name: String,
    },
    /// The default keyspace cannot be dropped.
    #[error("the default keyspace cannot be dropped")]
    DefaultKeyspace,
    /// An option names an operator that is neither built in nor among the options' `operators`.
    #[error(
        "the option `{option} = {name}` names no operator; put it into `operators` of the database's options"
    )]
    Unregistered {
        /// The option: `merge_operator` or `compaction_filter`.
        option: &'static str,
        /// The operator's name.
        name: String,
    },
    /// The directory of a checkpoint exists already.
    #[error("{} exists already; a checkpoint goes to a new directory", path.display())]
    TargetExists {
        /// The directory.
        path: PathBuf,
    },
    /// It was cancelled; nothing has changed, or only some of it is done.
    #[error("the compaction was cancelled")]
    Cancelled,
    /// A compaction that might not fit on the device.
    #[error(
        "compaction of keyspace `{keyspace}` may need {needed} bytes, and {free} are free; make room and try again"
    )]
    NoRoom {
        /// The keyspace's name.
        keyspace: String,
        /// Bytes that it may need at most.
        needed: u64,
        /// Bytes that are free, without what others were promised.
        free: u64,
    },
    /// A file that is not to be ingested, or files that are not to be ingested together.
    #[error(transparent)]
    External(#[from] ExternalTableError),
    /// Options out of their range.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The write path refused.
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
    /// A key that is not greater than the one before. The keys are escaped and cut.
    #[error("key {key} comes after {previous}: keys must be added in strictly ascending order")]
    OutOfOrder {
        /// The key.
        key: String,
        /// The key added before it.
        previous: String,
    },
    /// There is a file of that name.
    #[error("{} exists already; an external table goes to a new file", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A table without entries and range deletes.
    #[error("{} would hold nothing", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// An earlier write to the file failed.
    #[error("{} could not be written before and is of no use; build it again", path.display())]
    Failed {
        /// The file.
        path: PathBuf,
    },
    /// A table that a database wrote for itself: its entries have sequence numbers of that database.
    #[error("{} is a table of a database, not one that was built to be ingested", path.display())]
    NotExternal {
        /// The file.
        path: PathBuf,
    },
    /// A file that is no table, not all of one, or damaged.
    #[error("{} is no complete external table: {what}; build it again", path.display())]
    NotATable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Two files of one ingestion say something about one key.
    #[error("{} and {} overlap: the keys of the second are {range}", first.display(), second.display())]
    Overlap {
        /// The file with the smaller first key.
        first: PathBuf,
        /// The other file.
        second: PathBuf,
        /// The second file's key range in words.
        range: String,
    },
    /// Options out of their range.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// A key or value that is too long, or a reversed range.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A failed system call.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// A key for a message: escaped, in quotes, and cut when long.
pub(crate) fn excerpt_of_key(key: &[u8]) -> String {
    const MOST: usize = 64;
    let (head, rest) = key.split_at(key.len().min(MOST));
    let more = if rest.is_empty() { String::new() } else { format!("… ({} bytes)", key.len()) };
    format!("\"{}\"{more}", head.escape_ascii())
}

/// Any error of the library: every narrower one converts into it.
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
