//! The keyspaces of a database: finding, creating, renaming and dropping them.
//!
//! Each change is one manifest edit, made under the `state` lock: after a crash it has either
//! happened or not. After a failed edit the change has not happened for as long as the database
//! stays open; the next opening shows whether it did. Only a failed drop suspends writes
//! ([`health`](crate::work::health)), since writes to the keyspace might be lost. A drop frees
//! space: it is accepted while writes are suspended, and on a full disk it gets the
//! [reserve](crate::gate::reserve).
//!
//! Everywhere but in the catalogue, a keyspace is its number: renaming one moves nothing, and its
//! handles stay valid.

use std::sync::Arc;

use tamis_base::ids::DEFAULT_KEYSPACE;
use tamis_files::tree::edit::VersionEdit;

use crate::catalogue::age::Age;
use crate::catalogue::keyspace::{HIDDEN_PREFIX, KeyspaceInner, SharedParts};
use crate::error::{AdminError, StorageError, WriteError};
use crate::handles::handle::{Db, Keyspace};
use crate::operators::Unregistered;
use crate::options::KeyspaceOptions;
use crate::session::Session;
use crate::tree::new_tables::NewTables;

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
    /// # let db = tamis::Db::open(dir.path(), tamis::Options::default())?;
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

impl Session {
    /// `name` has been checked.
    pub(crate) fn create_keyspace(
        &self,
        name: &str,
        options: KeyspaceOptions,
    ) -> Result<Arc<KeyspaceInner>, AdminError> {
        self.check_ready()?;
        options.check()?;
        let operators = self.options.operators.resolve(options.operators());
        let operators =
            operators.map_err(|Unregistered { option, name }| AdminError::Unregistered { option, name })?;
        let mut state = self.state();
        if state.catalogue.named(name).is_some() {
            return Err(AdminError::KeyspaceExists { name: name.to_owned() });
        }
        let id = state.catalogue.tree().next_keyspace;
        let edit = VersionEdit {
            create_keyspaces: vec![(id, name.to_owned(), options.to_text())],
            log_floor: vec![(id, state.logs.current())],
            ages: Age::new(&options, None, 0).ages().map(|ages| (id, ages)).into_iter().collect(),
            ..VersionEdit::default()
        };
        self.commit_without_tables(&mut state, edit)?;
        let inner = Arc::new(KeyspaceInner::empty(
            id,
            name,
            options,
            &self.options,
            operators,
            &SharedParts {
                sampler: &self.elastic.sampler,
                reads: &self.keyspaces.read_counters,
                chunks: &self.keyspaces.chunks,
                numbering: &self.keyspaces.numbering,
            },
        ));
        self.expiry.join(&inner);
        state.catalogue.add(&inner);
        state.catalogue.publish_keyspaces();
        Ok(inner)
    }

    fn rename_keyspace(&self, name: &str, new_name: &str) -> Result<(), AdminError> {
        self.check_ready()?;
        check_shown(name)?;
        check_name(new_name)?;
        let mut state = self.state();
        let found = state.catalogue.named(name).cloned();
        let keyspace = found.ok_or_else(|| AdminError::NoKeyspace { name: name.to_owned() })?;
        if keyspace.id == DEFAULT_KEYSPACE {
            return Err(AdminError::DefaultKeyspace);
        }
        if new_name == name {
            return Ok(());
        }
        if state.catalogue.named(new_name).is_some() {
            return Err(AdminError::KeyspaceExists { name: new_name.to_owned() });
        }
        let edit = VersionEdit {
            rename_keyspaces: vec![(keyspace.id, new_name.to_owned())],
            ..VersionEdit::default()
        };
        self.commit_without_tables(&mut state, edit)?;
        keyspace.names.add(new_name);
        state.catalogue.publish_keyspaces();
        Ok(())
    }

    fn drop_keyspace(&self, name: &str) -> Result<(), AdminError> {
        // A drop frees space, so it is accepted even while writes are suspended.
        self.gate.check_open()?;
        self.check_begun()?;
        check_shown(name)?;
        let commit = || {
            let mut state = self.state();
            let found = state.catalogue.named(name).cloned();
            let keyspace = found.ok_or_else(|| AdminError::NoKeyspace { name: name.to_owned() })?;
            if keyspace.id == DEFAULT_KEYSPACE {
                return Err(AdminError::DefaultKeyspace);
            }
            // Its writes no longer need a log.
            let all: Vec<_> = keyspace.view.load().memtables.iter().cloned().collect();
            let (_, floor) = self.floors(&state, &keyspace, &all);
            let edit = VersionEdit {
                drop_keyspaces: vec![keyspace.id],
                floor: Some(floor),
                ..VersionEdit::default()
            };
            let unchanged = |_, _: &_| unreachable!("no tables change");
            let dropped = self.commit_edit(&mut state, edit, NewTables::default(), unchanged);
            Ok((state, keyspace, dropped))
        };
        let (mut state, keyspace, mut dropped) = commit()?;
        if dropped.as_ref().is_err_and(StorageError::is_out_of_space) {
            drop(state);
            self.find_room();
            (state, _, dropped) = commit()?;
        }
        // If the drop took effect after all, later writes to the keyspace would be lost.
        dropped.inspect_err(|error| self.gate.suspend(error))?;
        self.elastic.dropped(&keyspace.view.load().version);
        state.catalogue.remove(&keyspace);
        self.keyspaces.filled.remove(keyspace.id);
        state.scheduler.note_dropped_keyspace(&keyspace);
        self.transactions.history.forget(keyspace.id);
        if keyspace.is_timed() {
            self.expiry.configure(state.catalogue.keyspaces().values().map(|keyspace| &**keyspace));
        }
        state.catalogue.publish_keyspaces();
        self.release_logs(&mut state);
        drop(state);
        self.monitor.notify();
        Ok(())
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

/// Refuses names reserved for hidden keyspaces.
fn check_shown(name: &str) -> Result<(), AdminError> {
    match name.starts_with(HIDDEN_PREFIX) {
        true => Err(AdminError::NoKeyspace { name: name.to_owned() }),
        false => Ok(()),
    }
}

fn check_name(name: &str) -> Result<(), AdminError> {
    if name.is_empty() || name.len() > 255 || name.chars().any(char::is_control) {
        return Err(AdminError::BadName { name: name.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
