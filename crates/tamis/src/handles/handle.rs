//! Handles of an open database: to the whole database, and to one keyspace. Dropping the last one
//! closes it.

use std::sync::Arc;

use tamis_base::ids::DEFAULT_KEYSPACE;

use crate::batch::WriteBatch;
use crate::catalogue::keyspace::KeyspaceInner;
use crate::error::{AdminError, OpenError, StorageError, WriteError};
use crate::open::background::Workers;
use crate::open::close::close;
use crate::open::follow::Follower;
use crate::options::Durability;
use crate::session::Session;
use crate::sync::Mutex;

/// The state shared by all handles of one open database; dropping the last handle closes the
/// database.
pub(crate) struct Handle {
    pub(crate) inner: Arc<Session>,
    pub(crate) workers: Mutex<Option<Workers>>,
    /// Set if the database was opened to follow its writer.
    pub(crate) follower: Option<Arc<Mutex<Follower>>>,
}

debug_as!(Handle, "Handle", handle => "db": handle.inner);

impl Handle {
    /// See [`close`](crate::open::close::close).
    pub(crate) fn close(&self) -> Result<(), AdminError> {
        close(&self.inner, &self.workers)
    }

    /// Commits a batch of this database. Without a `durability`, uses the database's.
    pub(crate) fn write(&self, batch: WriteBatch, durability: Option<Durability>) -> Result<(), WriteError> {
        batch.check_owner(self.inner.instance)?;
        let durability = durability.unwrap_or(self.inner.options.durability);
        self.inner.write(batch, durability == Durability::Sync)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.inner.gate.is_ours() {
            // In a forked child, leave its copy alone: the files, locks and threads are the
            // parent's.
            std::mem::forget((self.inner.clone(), std::mem::take(&mut self.workers), self.follower.take()));
            return;
        }
        if let Err(error) = self.close() {
            ::log::error!("closing {}: {error}", self.inner.dir.display());
        }
    }
}

/// An open database: a handle that is cheap to clone and usable from any thread. Methods that name
/// no keyspace use the default one. It has the read methods of [`Readable`](crate::Readable); no
/// import needed.
///
/// ```
/// use tamis::Db;
///
/// # let dir = tempfile::tempdir()?;
/// let db = Db::open(dir.path())?;
/// db.put("key", "value")?;
/// assert_eq!(db.get("key")?.unwrap(), "value");
/// for item in db.prefix("k") {
///     let (key, value) = item?;
///     println!("{key:?} = {value:?}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Db {
    pub(crate) default: Keyspace,
}

debug_as!(Db, "Db", db => "path": db.inner().dir, "keyspaces": db.inner().keyspaces.directory.load().len());

impl Db {
    pub(crate) fn with(inner: Arc<Session>, workers: Option<Workers>) -> Db {
        Db::from_handle(Arc::new(Handle { inner, workers: Mutex::new(workers), follower: None }))
    }

    /// Starts the threads of a database opened read-only.
    pub(crate) fn reading(
        inner: Arc<Session>,
        follower: Option<Arc<Mutex<Follower>>>,
    ) -> Result<Db, OpenError> {
        let workers = Workers::start_reading(&inner, follower.clone())
            .map_err(|e| StorageError::io("start a thread for", &inner.dir, e))?;
        Ok(Db::from_handle(Arc::new(Handle { inner, workers: Mutex::new(Some(workers)), follower })))
    }

    pub(crate) fn from_handle(handle: Arc<Handle>) -> Db {
        let inner = handle.inner.keyspaces.directory.load()[&DEFAULT_KEYSPACE].clone();
        Db { default: Keyspace { handle, inner } }
    }

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.default.handle
    }

    pub(crate) fn inner(&self) -> &Session {
        &self.default.handle.inner
    }
}

/// A handle to one keyspace: cheap to clone, usable from any thread. It has the read methods of
/// [`Readable`](crate::Readable); no import needed.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let db = tamis::Db::open(dir.path())?;
/// let users = db.create_keyspace("users", tamis::KeyspaceOptions::default())?;
/// users.put("ada", "1815")?;
/// assert_eq!(users.get("ada")?.unwrap(), "1815");
/// assert_eq!(db.get("ada")?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Keyspace {
    pub(crate) handle: Arc<Handle>,
    pub(crate) inner: Arc<KeyspaceInner>,
}

debug_as!(Keyspace, "Keyspace", keyspace => "name": keyspace.name(), "path": keyspace.handle.inner.dir);
