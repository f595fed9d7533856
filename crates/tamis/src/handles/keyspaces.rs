//! The keyspaces of a database: finding, creating, renaming and dropping them.
//!
//! Each change is one manifest edit, made under the `state` lock: after a crash it has either
//! happened or not. After a failed edit the change has not happened for as long as the database
//! stays open; the next opening shows whether it did. Only a failed drop suspends writes
//! ([`health`](crate::jobs::health)), since writes to the keyspace might be lost. A drop frees
//! space: it is accepted while writes are suspended, and on a full disk it gets the
//! [reserve](crate::gate::reserve).
//!
//! Everywhere but in the catalogue, a keyspace is its number: renaming one moves nothing, and its
//! handles stay valid.

use crate::catalogue::keyspace::HIDDEN_PREFIX;
use crate::error::{AdminError, WriteError};
use crate::handles::handle::{Db, Keyspace};
use crate::jobs::keyspaces::check_name;
use crate::options::KeyspaceOptions;

impl Db {
    /// Returns the keyspace called `name`.
    ///
    /// # Errors
    ///
    /// [`AdminError::NoKeyspace`] if there is none by that name.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace, AdminError> {
        self.check_process()?;
        let directory = self.inner().keyspaces.directory.load();
        match directory.named(name).filter(|ks| !ks.is_dropped() && !ks.is_hidden()) {
            Some(inner) => Ok(Keyspace { handle: self.handle().clone(), inner: inner.clone() }),
            None => Err(AdminError::NoKeyspace { name: name.to_owned() }),
        }
    }

    /// Creates a keyspace; its options are stored with the database.
    ///
    /// # Errors
    ///
    /// [`AdminError::KeyspaceExists`], [`AdminError::BadName`], [`AdminError::Options`] for options
    /// out of range, [`AdminError::Unregistered`] for an operator that is not registered with the
    /// database, [`AdminError::Write`] or [`AdminError::Storage`] if the keyspace cannot be stored.
    pub fn create_keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace, AdminError> {
        self.check_process()?;
        check_name(name)?;
        let inner = self.inner().create_keyspace(name, options)?;
        Ok(Keyspace { handle: self.handle().clone(), inner })
    }

    /// Returns the keyspace called `name`, creating it with these options if there is none. An
    /// existing one keeps its own options. If several callers race, one creates it and all get it.
    ///
    /// # Errors
    ///
    /// Those of [`create_keyspace`](Db::create_keyspace), except `KeyspaceExists`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tamis::Db::open(dir.path())?;
    /// let users = db.get_or_create_keyspace("users", tamis::KeyspaceOptions::default())?;
    /// # let again = db.get_or_create_keyspace("users", tamis::KeyspaceOptions::default())?;
    /// # users.put("ada", "1815")?;
    /// # assert_eq!(again.get("ada")?.unwrap(), "1815");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_or_create_keyspace(
        &self,
        name: &str,
        options: KeyspaceOptions,
    ) -> Result<Keyspace, AdminError> {
        self.check_process()?;
        loop {
            if let Ok(known) = self.keyspace(name) {
                return Ok(known);
            }
            match self.create_keyspace(name, options.clone()) {
                // Another thread created it first; it may also have been dropped since.
                Err(AdminError::KeyspaceExists { .. }) => {}
                created => return created,
            }
        }
    }

    /// Renames the keyspace called `name` to `new_name`, which must not be in use. Costs one write
    /// to the manifest, however much the keyspace holds. Its handles stay usable, and so do
    /// snapshots and transactions that read it. If the manifest is lost, salvage finds the keyspace
    /// under the name it had when its tables were written.
    ///
    /// # Errors
    ///
    /// [`AdminError::NoKeyspace`], [`AdminError::KeyspaceExists`] and [`AdminError::BadName`] for
    /// the names, [`AdminError::DefaultKeyspace`], [`AdminError::Write`] or [`AdminError::Storage`]
    /// if the rename cannot be stored: the keyspace then keeps its name for as long as the database
    /// stays open, and the next opening may find either name.
    pub fn rename_keyspace(&self, name: &str, new_name: &str) -> Result<(), AdminError> {
        self.check_process()?;
        self.inner().rename_keyspace(name, new_name)
    }

    /// Drops the keyspace called `name` with all its data. From then on its handles return errors;
    /// existing iterators stay usable. Files are removed in the background; a file that an iterator
    /// or a value still reads from is removed once they are dropped.
    ///
    /// # Errors
    ///
    /// [`AdminError::NoKeyspace`], [`AdminError::DefaultKeyspace`], [`AdminError::Write`] or
    /// [`AdminError::Storage`] if the drop cannot be stored.
    pub fn drop_keyspace(&self, name: &str) -> Result<(), AdminError> {
        self.check_process()?;
        self.inner().drop_keyspace(name)
    }

    /// Returns the names of all keyspaces, in order of creation.
    pub fn keyspaces(&self) -> Vec<String> {
        let state = self.inner().state();
        let shown = state.catalogue.keyspaces().values().filter(|keyspace| !keyspace.is_hidden());
        shown.map(|keyspace| keyspace.name().to_owned()).collect()
    }
}

impl Db {
    /// Returns the keyspace of this name that is hidden from programs, if it was ever created.
    pub(crate) fn hidden_keyspace(&self, name: &str) -> Option<Keyspace> {
        debug_assert!(name.starts_with(HIDDEN_PREFIX));
        let handle = self.handle();
        let directory = handle.inner.keyspaces.directory.load();
        let found = directory.named(name);
        found.map(|inner| Keyspace { handle: handle.clone(), inner: inner.clone() })
    }

    /// Like `hidden_keyspace`, but creates it if there is none.
    pub(crate) fn create_hidden_keyspace(&self, name: &str) -> Result<Keyspace, WriteError> {
        loop {
            if let Some(keyspace) = self.hidden_keyspace(name) {
                return Ok(keyspace);
            }
            match self.handle().inner.create_keyspace(name, KeyspaceOptions::default()) {
                // Another thread created it first.
                Ok(_) | Err(AdminError::KeyspaceExists { .. }) => {}
                Err(AdminError::Write(error)) => return Err(error),
                Err(AdminError::Storage(error)) => return Err(WriteError::Storage(error)),
                Err(other) => unreachable!("default options are accepted: {other}"),
            }
        }
    }
}

#[cfg(test)]
mod tests;
