//! What can go wrong.

use std::io;

/// A failure of a backup, a restore or a replica.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address of a repository is not understood, or needs a cargo feature that was not
    /// compiled.
    #[error("{url}: {why}")]
    Url {
        /// The address.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// A request failed, after retries where these could help.
    #[error("could not {what}: {source}")]
    Request {
        /// What was asked.
        what: String,
        /// Why the last attempt failed.
        #[source]
        source: object_store::Error,
    },
    /// The repository has no state, or none that was asked for.
    #[error("the repository has no {what}")]
    NoState {
        /// What was looked for.
        what: String,
    },
    /// An object that a state names is not there (any more).
    #[error("{object} is gone: the state that names it was removed, or the repository is damaged")]
    Gone {
        /// The object's name.
        object: String,
    },
    /// An object's bytes are not those that were written.
    #[error("{object} is damaged: {why}")]
    Damaged {
        /// The object's name.
        object: String,
        /// What is wrong with it.
        why: String,
    },
    /// The newest state is another database's, or that of a copy of this one.
    #[error(
        "state {number} was written by another writer ({writer}); if this database is to continue the repository, ask for a takeover"
    )]
    AnotherWriter {
        /// The number of the other's state.
        number: u64,
        /// The other.
        writer: String,
    },
    /// A newer state of the same database appeared meanwhile.
    #[error("state {number} of the same database appeared meanwhile")]
    Superseded {
        /// The number of the newer state.
        number: u64,
    },
    /// The work stood still for so long that what was uploaded may have been pruned; the next
    /// attempt begins anew.
    #[error("the upload stood still for too long, so that a prune may have removed its objects; begin again")]
    Expired,
    /// A sequence number cannot be restored.
    #[error("sequence number {seq} cannot be restored: {why}")]
    Unreachable {
        /// The number that was asked for.
        seq: u64,
        /// Why not.
        why: String,
    },
    /// The target of a restore holds other files.
    #[error("{path} is not empty, and not the rest of an interrupted restore")]
    NotEmpty {
        /// The directory.
        path: String,
    },
    /// A local file could not be read or written.
    #[error("{what}: {source}")]
    Io {
        /// The file, or what was done.
        what: String,
        /// The failure.
        #[source]
        source: io::Error,
    },
    /// The database could not say which files it consists of.
    #[error(transparent)]
    Admin(#[from] tamis::AdminError),
    /// A database could not be opened, or not follow its writer.
    #[error(transparent)]
    Open(#[from] tamis::OpenError),
}

impl Error {
    /// Reports whether an object cannot be used, though the store can be reached.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, Error::Damaged { .. } | Error::Gone { .. })
    }

    /// Returns a closure that makes an error of a local file's.
    pub(crate) fn io(what: impl std::fmt::Display) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { what: what.to_string(), source }
    }

    pub(crate) fn damaged(object: &str, why: impl std::fmt::Display) -> Error {
        Error::Damaged { object: object.to_owned(), why: why.to_string() }
    }
}
