//! Handles of an open database: to the whole database, and to one keyspace. Dropping the last one
//! closes it.

use std::sync::Arc;

use tamis_base::ids::DEFAULT_KEYSPACE;
use tamis_files::tree::edit::VersionEdit;

use crate::batch::WriteBatch;
use crate::catalogue::keyspace::KeyspaceInner;
use crate::error::{AdminError, WriteError};
use crate::open::background::Workers;
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
    /// Commits a batch of this database. Without a `durability`, uses the database's.
    pub(crate) fn write(&self, batch: WriteBatch, durability: Option<Durability>) -> Result<(), WriteError> {
        batch.check_owner(self.inner.instance)?;
        let durability = durability.unwrap_or(self.inner.options.durability);
        self.inner.write(batch, durability == Durability::Synced)
    }

    /// Ends background work, syncs the log and releases the directory. Only the first call has an
    /// effect.
    ///
    /// The order lets the next opening tell a clean shutdown from a crash: sync the log; end
    /// background work; record in a last edit how far the log goes, and close the manifest; close
    /// the log. So a closed manifest means that the log is complete, and a closed log that holds
    /// records and has no successor means that the manifest is closed.
    pub(crate) fn shut_down(&self) -> Result<(), AdminError> {
        self.inner.gate.check_process()?;
        let db = &self.inner;
        // A stalled writer holds the log lock; it gives up when it sees that the database is
        // closing.
        if !db.gate.leave() {
            return Ok(());
        }
        drop(db.state());
        db.monitor.notify();
        // Under the log lock, so that every write is either acknowledged before this point or
        // refused.
        let mut log = db.lock_log();
        db.gate.close();
        let mut last = None;
        let mut closed = Ok(());
        let healthy = db.gate.check();
        if !db.gate.is_read_only() && healthy.is_ok() {
            closed = db.log.end(&mut log).map(|writer| last = writer);
        }
        drop(log);
        {
            let _state = db.state();
            db.gate.end();
        }
        db.monitor.notify();
        let workers = self.workers.lock().take().map(Workers::join);
        // Runs last, whichever way this function returns.
        let _events = EndEvents(workers);
        db.elastic.stop();
        db.throttle.leave_shared();
        // Manual compactions give up when they see that the database is closed.
        let mut state = db.state();
        while state.scheduler.has_manual() {
            state = db.monitor.wait(state);
        }
        drop(state);
        if closed.is_ok() && healthy.is_ok() {
            db.save_filters_at_close();
        }
        let mut state = db.state();
        let set_options = db.seen_workloads(&mut state);
        if closed.is_ok() && healthy.is_ok() && !db.gate.is_read_only() {
            closed = state.catalogue.settle();
        }
        let manifest = state.catalogue.end();
        let times = db.expiry.unsaved(&state.catalogue.tree().times);
        drop(state);
        db.log.remove_obsolete();
        db.files.garbage.remove_all(&*db.fs);
        let healthy = healthy.and_then(|()| db.gate.check());
        if let (Some(mut manifest), Ok(()), Ok(())) = (manifest, &closed, &healthy) {
            closed = db
                .check_named()
                .and_then(|()| {
                    manifest.append(&VersionEdit {
                        times,
                        hotness: db.elastic.hotness(),
                        last_seq: Some(db.visible()),
                        set_options,
                        ..VersionEdit::default()
                    })
                })
                .and_then(|()| manifest.close())
                .and_then(|()| last.map_or(Ok(()), |log| log.close().map(drop)));
        }
        db.lifecycle.lock.lock().take();
        closed?;
        Ok(healthy?)
    }
}

/// Ends the event listeners' thread.
struct EndEvents(Option<Workers>);

impl Drop for EndEvents {
    fn drop(&mut self) {
        if let Some(workers) = self.0.take() {
            workers.end_events();
        }
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
        if let Err(error) = self.shut_down() {
            ::log::error!("closing {}: {error}", self.inner.dir.display());
        }
    }
}

/// An open database: a handle that is cheap to clone and usable from any thread. Methods that name
/// no keyspace use the default one. It has the read methods of [`Readable`](crate::Readable); no
/// import needed.
///
/// ```
/// use tamis::{Db, Options};
///
/// # let dir = tempfile::tempdir()?;
/// let db = Db::open(dir.path(), Options::default())?;
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

    pub(crate) fn following(inner: Arc<Session>, workers: Workers, follower: Arc<Mutex<Follower>>) -> Db {
        let workers = Mutex::new(Some(workers));
        Db::from_handle(Arc::new(Handle { inner, workers, follower: Some(follower) }))
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
/// let db = tamis::Db::open(dir.path(), tamis::Options::default())?;
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
