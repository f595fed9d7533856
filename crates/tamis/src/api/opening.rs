//! The ways to open a database: for writing, for reading, and as a follower of a writer.

use std::path::Path;

use tamis_files::tree::place::{self, Place};

use crate::error::{OpenError, StorageError};
use crate::handles::handle::Db;
use crate::open;
use crate::open::background::Workers;
use crate::open::{beside, follow};
use crate::options::Options;

impl Options {
    /// Opens the database in `path`, creating it if the options allow.
    ///
    /// Replays the log. A torn tail that was never synced is cut off with a warning (see
    /// [`Stats::warnings`](crate::stats::Stats::warnings)). Costs one read of each table's metadata
    /// and one flush of the log's contents.
    ///
    /// # Errors
    ///
    /// [`OpenError::OpenHere`] if this process has the database open, [`OpenError::Locked`] if
    /// another one has; [`OpenError::Foreign`] if there is something else than a database, and
    /// [`OpenError::NotEmpty`] if one would have to be created among files of others: then nothing
    /// was touched; [`OpenError::Incompatible`] if an option contradicts the stored database,
    /// naming the option; damage, with its file and offset.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Db, OpenError> {
        let inner = open::open(path.as_ref(), self, None)?;
        let db = Db::with(inner.clone(), None);
        db.load_consumers();
        let workers = Workers::start(&inner)
            .map_err(|e| OpenError::Storage(StorageError::io("start a thread for", path.as_ref(), e)))?;
        *db.handle().workers.lock() = Some(workers);
        Ok(db)
    }

    /// Opens the database in `path` without changing anything there and without taking its lock.
    /// The log is replayed into memory, and the handle keeps showing the state at that moment.
    /// Writes are refused.
    ///
    /// Alongside a writer, that is a state which a crash of the writer might have left during the
    /// call: everything acknowledged before, and possibly writes that are not acknowledged yet, or
    /// that failed while the writer's [suspension](crate::WriteError::Suspended) lasts.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Options::open), except that no lock is asked for and nothing is created;
    /// [`OpenError::Changing`] if the writer replaced files during every attempt.
    pub fn open_read_only(self, path: impl AsRef<Path>) -> Result<Db, OpenError> {
        Db::reading(beside::open(path.as_ref(), &self, None)?, None)
    }

    /// Opens the database in `path` read-only beside a writer, which may be in another process, and
    /// keeps up with it: now, and whenever [`catch_up`](Db::catch_up) is called, or by itself every
    /// [`follow_interval`](Options::follow_interval). Nothing is changed in the directory and no
    /// lock is taken; the writer does not know of its followers.
    ///
    /// What it shows is a state that the writer had when the last call began, or a later one: a
    /// prefix of all writes, with those that were acknowledged, and perhaps some that are not yet,
    /// or that failed while the writer's [suspension](crate::WriteError::Suspended) lasts.
    /// Iterators and snapshots keep the state of their moment, and hold its tables, which keeps
    /// their disk space. Memory: the writes that are in the writer's memtables are in memory here,
    /// too.
    ///
    /// Costs what an opening costs; `max_open_files` does not apply, as the writer may remove files
    /// that are in use here.
    ///
    /// # Errors
    ///
    /// Those of [`open_read_only`](Options::open_read_only).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use tamis::{Db, Options};
    ///
    /// // In one process ...
    /// let writer = Db::open(dir.path())?;
    /// writer.put("key", "old")?;
    /// // ... and in another one.
    /// let follower = Options::default().open_follower(dir.path())?;
    /// writer.put("key", "new")?;
    /// assert_eq!(follower.get("key")?.unwrap(), "old");
    /// follower.catch_up()?;
    /// assert_eq!(follower.get("key")?.unwrap(), "new");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_follower(self, path: impl AsRef<Path>) -> Result<Db, OpenError> {
        let (inner, follower) = follow::open(path.as_ref(), &self)?;
        Db::reading(inner, Some(follower))
    }

    /// Returns the options that the database in `path` was last opened with, if it exists.
    ///
    /// # Errors
    ///
    /// [`OpenError::Foreign`] if there is something else than a database; the file of options
    /// cannot be read, is no text, or does not [parse](Options::from_text). Options that
    /// this build does not have are ignored.
    pub fn stored_in(path: impl AsRef<Path>) -> Result<Option<Options>, OpenError> {
        let fs = open::file_system(&Options::default());
        // Others have files of this name, too.
        match place::look_at(&*fs, path.as_ref())? {
            Place::Free | Place::Others(_) => return Ok(None),
            Place::Foreign(found) => {
                return Err(OpenError::Foreign { path: path.as_ref().to_owned(), found });
            }
            _ => {}
        }
        let path = tamis_files::tree::files::options_path(path.as_ref());
        let failed = |e: std::io::Error| StorageError::io("read", &path, e);
        if !fs.exists(&path).map_err(failed)? {
            return Ok(None);
        }
        let bytes = crate::io::read_file(&*fs, &path).map_err(failed)?;
        let text = String::from_utf8(bytes).map_err(|_| {
            OpenError::Storage(StorageError::corrupt(&path, None, "the options are not text"))
        })?;
        Ok(Some(Options::from_stored(&text)?))
    }
}
