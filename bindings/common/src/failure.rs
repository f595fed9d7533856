//! [`Failure`]: an error as every language shows it.

use std::fmt;

use tamis::changes::ChangesError;
use tamis::options::ParseValueError;
use tamis::{
    AdminError, Corruption, Error, ExternalTableError, IoFailure, OpenError, OptionsError, ReadError,
    StorageError, TransactionError, WriteError,
};

use crate::Code;

/// An error: its kind, the engine's message, and what a program may need to act on it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The kind.
    pub code: Code,
    /// The message, in English, for people.
    pub text: String,
    /// The key concerned, of [`Code::Conflict`], [`Code::LockTimeout`], [`Code::Deadlock`] and [`Code::Merge`].
    pub key: Option<Vec<u8>>,
    /// The name of the keyspace concerned, where the error has one.
    pub keyspace: Option<String>,
}

impl Failure {
    /// Creates a failure without a key or keyspace.
    pub fn new(code: Code, text: impl Into<String>) -> Failure {
        Failure { code, text: text.into(), key: None, keyspace: None }
    }

    /// Creates the failure of an argument that the binding refuses.
    pub fn argument(text: impl Into<String>) -> Failure {
        Failure::new(Code::InvalidArgument, text)
    }

    /// Creates the failure of a handle whose database is closed.
    pub fn closed() -> Failure {
        WriteError::Closed.into()
    }

    /// Creates the failure of a transaction that has ended.
    pub fn ended() -> Failure {
        Failure::new(Code::Ended, "the transaction was committed, rolled back or prepared already")
    }

    /// Creates the failure of a panic that was caught at the border.
    pub fn panic(payload: &(dyn std::any::Any + Send)) -> Failure {
        let what = payload.downcast_ref::<&str>().copied();
        let what = what.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Failure::new(Code::Panic, format!("a bug in tamis: {}", what.unwrap_or("a panic without a message")))
    }

    fn of(code: Code, error: &impl fmt::Display) -> Failure {
        Failure::new(code, error.to_string())
    }

    fn in_keyspace(mut self, name: &str) -> Failure {
        self.keyspace = Some(name.to_owned());
        self
    }

    fn at_key(mut self, key: &[u8]) -> Failure {
        self.key = Some(key.to_owned());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

impl From<IoFailure> for Failure {
    fn from(error: IoFailure) -> Failure {
        StorageError::from(error).into()
    }
}

impl From<Corruption> for Failure {
    fn from(error: Corruption) -> Failure {
        StorageError::from(error).into()
    }
}

impl From<StorageError> for Failure {
    fn from(error: StorageError) -> Failure {
        let code = match &error {
            StorageError::Io(_) if error.is_out_of_space() => Code::NoSpace,
            StorageError::Io(_) => Code::Io,
            StorageError::Corrupt(_) => Code::Corrupt,
            StorageError::Forked { .. } => Code::Forked,
            _ => Code::Other,
        };
        Failure::of(code, &error)
    }
}

impl From<OptionsError> for Failure {
    fn from(error: OptionsError) -> Failure {
        let code = match &error {
            OptionsError::Unknown { .. } | OptionsError::Unavailable { .. } => Code::UnknownOption,
            OptionsError::Syntax { .. } | OptionsError::Value { .. } => Code::InvalidOption,
            OptionsError::Fixed { .. } => Code::FixedOption,
            _ => Code::Other,
        };
        Failure::of(code, &error)
    }
}

impl From<ParseValueError> for Failure {
    fn from(error: ParseValueError) -> Failure {
        Failure::of(Code::InvalidArgument, &error)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        let code = match &error {
            OpenError::Options(error) => return error.clone().into(),
            OpenError::Storage(error) => return error.clone().into(),
            OpenError::Unregistered { keyspace, .. } => {
                return Failure::of(Code::UnregisteredOperator, &error).in_keyspace(keyspace);
            }
            OpenError::Locked { .. } => Code::Locked,
            OpenError::OpenHere { .. } => Code::OpenHere,
            OpenError::Changing { .. } => Code::Changing,
            OpenError::NotFound { .. } => Code::NoDatabase,
            OpenError::Foreign { .. } | OpenError::NotEmpty { .. } => Code::NotEmpty,
            OpenError::Exists { .. } => Code::DatabaseExists,
            OpenError::Incompatible { .. } => Code::Incompatible,
            OpenError::Format { .. } => Code::UnsupportedFormat,
            // Followers and restores are not in other languages.
            OpenError::NotFollower { .. }
            | OpenError::Unreachable { .. }
            | OpenError::IngestedElsewhere { .. } => Code::Other,
            _ => Code::Other,
        };
        Failure::of(code, &error)
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Failure {
        match &error {
            ReadError::Storage(error) => error.clone().into(),
            ReadError::Dropped { name } => Failure::of(Code::Dropped, &error).in_keyspace(name),
            ReadError::Ended => Failure::ended(),
            ReadError::Merge { key, .. } => Failure::of(Code::Merge, &error).at_key(key),
            _ => Failure::of(Code::Other, &error),
        }
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Failure {
        let code = match &error {
            WriteError::Storage(error) => return error.clone().into(),
            WriteError::Dropped { name } => return Failure::of(Code::Dropped, &error).in_keyspace(name),
            WriteError::NoMergeOperator { name } => {
                return Failure::of(Code::NoMergeOperator, &error).in_keyspace(name);
            }
            WriteError::Unregistered { keyspace, .. } => {
                return Failure::of(Code::UnregisteredOperator, &error).in_keyspace(keyspace);
            }
            WriteError::ForeignKeyspace { name } => {
                return Failure::of(Code::ForeignKeyspace, &error).in_keyspace(name);
            }
            WriteError::KeyTooLong { .. } => Code::KeyTooLong,
            WriteError::ValueTooLong { .. } => Code::ValueTooLong,
            WriteError::ReversedRange => Code::ReversedRange,
            WriteError::ReadOnly => Code::ReadOnly,
            WriteError::Closed => Code::Closed,
            WriteError::Poisoned { .. } => Code::Poisoned,
            WriteError::Suspended { .. } => Code::Suspended,
            _ => Code::Other,
        };
        Failure::of(code, &error)
    }
}

impl From<TransactionError> for Failure {
    fn from(error: TransactionError) -> Failure {
        match &error {
            TransactionError::Read(error) => error.clone().into(),
            TransactionError::Write(error) => error.clone().into(),
            TransactionError::Conflict { keyspace, key } => {
                Failure::of(Code::Conflict, &error).in_keyspace(keyspace).at_key(key)
            }
            TransactionError::TooOld { keyspace } => Failure::of(Code::TooOld, &error).in_keyspace(keyspace),
            TransactionError::LockTimeout { keyspace, key, .. } => {
                Failure::of(Code::LockTimeout, &error).in_keyspace(keyspace).at_key(key)
            }
            TransactionError::Deadlock { cycle } => {
                let failure = Failure::of(Code::Deadlock, &error);
                match cycle.first() {
                    Some(wait) => failure.in_keyspace(&wait.keyspace).at_key(&wait.key),
                    None => failure,
                }
            }
            TransactionError::PreparedExists { .. } => Failure::of(Code::PreparedExists, &error),
            TransactionError::NotPrepared { .. } => Failure::of(Code::NotPrepared, &error),
            TransactionError::Interrupted => Failure::of(Code::Interrupted, &error),
            TransactionError::NoSavepoint => Failure::of(Code::NoSavepoint, &error),
            _ => Failure::of(Code::Other, &error),
        }
    }
}

impl From<AdminError> for Failure {
    fn from(error: AdminError) -> Failure {
        match &error {
            AdminError::External(error) => error.clone().into(),
            AdminError::Options(error) => error.clone().into(),
            AdminError::Write(error) => error.clone().into(),
            AdminError::Storage(error) => error.clone().into(),
            AdminError::KeyspaceExists { name } => {
                Failure::of(Code::KeyspaceExists, &error).in_keyspace(name)
            }
            AdminError::NoKeyspace { name } => Failure::of(Code::NoKeyspace, &error).in_keyspace(name),
            AdminError::BadName { .. } => Failure::of(Code::BadName, &error),
            AdminError::DefaultKeyspace => Failure::of(Code::DefaultKeyspace, &error),
            AdminError::Unregistered { .. } => Failure::of(Code::UnregisteredOperator, &error),
            AdminError::TargetExists { .. } => Failure::of(Code::TargetExists, &error),
            AdminError::Interrupted => Failure::of(Code::Interrupted, &error),
            AdminError::Cancelled => Failure::of(Code::Cancelled, &error),
            AdminError::NoRoom { keyspace, .. } => Failure::of(Code::NoRoom, &error).in_keyspace(keyspace),
            _ => Failure::of(Code::Other, &error),
        }
    }
}

impl From<ExternalTableError> for Failure {
    fn from(error: ExternalTableError) -> Failure {
        let code = match &error {
            ExternalTableError::Options(error) => return error.clone().into(),
            ExternalTableError::Write(error) => return error.clone().into(),
            ExternalTableError::Storage(error) => return error.clone().into(),
            ExternalTableError::OutOfOrder { .. } => Code::OutOfOrder,
            ExternalTableError::Exists { .. } => Code::TargetExists,
            ExternalTableError::Empty { .. } => Code::EmptyTable,
            ExternalTableError::Failed { .. } => Code::FailedTable,
            ExternalTableError::NotExternal { .. } | ExternalTableError::NotATable { .. } => Code::NotATable,
            ExternalTableError::Overlap { .. } => Code::Overlap,
            _ => Code::Other,
        };
        Failure::of(code, &error)
    }
}

impl From<ChangesError> for Failure {
    fn from(error: ChangesError) -> Failure {
        match error {
            ChangesError::Write(error) => error.into(),
            ChangesError::Storage(error) => error.into(),
            ChangesError::ReadOnly => WriteError::ReadOnly.into(),
            ChangesError::Closed => WriteError::Closed.into(),
            // No binding reads changes yet.
            other => Failure::of(Code::Other, &other),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Open(error) => error.into(),
            Error::Read(error) => error.into(),
            Error::Write(error) => error.into(),
            Error::Transaction(error) => error.into(),
            Error::Changes(error) => error.into(),
            Error::Admin(error) => error.into(),
            Error::External(error) => error.into(),
            Error::Options(error) => error.into(),
            Error::Storage(error) => error.into(),
            other => Failure::of(Code::Other, &other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The enums are `#[non_exhaustive]`, so the compiler does not ask for a new variant: the list of the public surface does.
    #[test]
    fn every_variant_of_every_error_has_a_code() {
        let surface = include_str!("../../../crates/tamis-surface/golden/tamis.txt");
        let source = include_str!("failure.rs");
        let mut variants = 0;
        for line in surface.lines().filter_map(|line| line.strip_prefix("tamis::")) {
            let Some((name, variant)) = line.split_once("::") else { continue };
            if !name.ends_with("Error") || name.contains(['.', ' ']) {
                continue;
            }
            let variant = variant.split(['(', ' ']).next().expect("a split has a first part");
            variants += 1;
            assert!(source.contains(&format!("{name}::{variant}")), "{name}::{variant} has no code");
        }
        assert!(variants > 50, "{variants}: the list has another form");
    }

    #[test]
    fn texts_are_the_engines_and_conflicts_keep_their_key() {
        let error = ReadError::Merge { key: b"k\xff".to_vec(), what: "add: a value".into() };
        let failure = Failure::from(TransactionError::from(error.clone()));
        assert_eq!((failure.code, failure.text.as_str()), (Code::Merge, &*error.to_string()));
        assert_eq!(failure.key.as_deref(), Some(&b"k\xff"[..]));
        assert_eq!(Failure::closed().text, WriteError::Closed.to_string());
    }
}
