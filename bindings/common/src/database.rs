//! [`Database`]: a database with the life of a handle in a language without ownership.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

use tamis::Db;
use tamis_metrics::Publisher;

use crate::Failure;
use crate::options::Opening;

/// An open database that anyone who holds it can close. Handles that a binding makes from it (keyspaces, snapshots, iterators,
/// transactions) hold it too, and ask [`db`](Self::db) before every call: after the closing they answer
/// [`Code::Closed`](crate::Code::Closed), reads included.
///
/// Calls that run while another thread closes end as they would have, or with that error.
#[derive(Debug)]
pub struct Database {
    /// It is dropped before the database is closed.
    publisher: Mutex<Option<Publisher>>,
    db: Db,
    closed: AtomicBool,
}

impl Database {
    /// Opens the database in `path`, or creates it. A relative path is that of the current directory at this moment.
    ///
    /// # Errors
    ///
    /// As [`Db::open`].
    pub fn open(path: impl AsRef<Path>, opening: Opening) -> Result<Database, Failure> {
        let (db, publisher) = opening.open(crate::absolute(path))?;
        Ok(Database { publisher: Mutex::new(publisher), db, closed: AtomicBool::new(false) })
    }

    /// Opens the database in `path` for reading.
    ///
    /// # Errors
    ///
    /// As [`tamis::Options::open_read_only`].
    pub fn open_read_only(path: impl AsRef<Path>, opening: Opening) -> Result<Database, Failure> {
        Ok(Database {
            publisher: Mutex::new(None),
            db: opening.open_read_only(crate::absolute(path))?,
            closed: AtomicBool::new(false),
        })
    }

    /// Returns the database, for one call.
    ///
    /// # Errors
    ///
    /// [`Code::Closed`](crate::Code::Closed) after [`close`](Self::close).
    #[inline]
    pub fn db(&self) -> Result<&Db, Failure> {
        if self.is_closed() { Err(Failure::closed()) } else { Ok(&self.db) }
    }

    /// Reports whether it was closed.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    /// Ends background work, syncs the log and releases the directory: another opening succeeds from then on. Closing again does
    /// nothing.
    ///
    /// # Errors
    ///
    /// As [`Db::close`]. The database is closed all the same.
    pub fn close(&self) -> Result<(), Failure> {
        if self.closed.swap(true, SeqCst) {
            return Ok(());
        }
        drop(self.publisher.lock().unwrap_or_else(PoisonError::into_inner).take());
        Ok(self.db.clone().close()?)
    }
}
