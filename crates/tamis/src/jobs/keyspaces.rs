//! Keyspaces come, go and change their names by edits of the manifest.

use std::sync::Arc;

use tamis_base::ids::DEFAULT_KEYSPACE;
use tamis_files::tree::edit::VersionEdit;

use crate::catalogue::age::EntryAges;
use crate::catalogue::keyspace::{HIDDEN_PREFIX, KeyspaceInner, SharedParts};
use crate::error::{AdminError, StorageError};
use crate::operators::Unregistered;
use crate::options::KeyspaceOptions;
use crate::session::Session;
use crate::tree::new_tables::NewTables;

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
            ages: EntryAges::new(&options, None, 0).ages().map(|ages| (id, ages)).into_iter().collect(),
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
                records: &self.files.records,
                protect: self.options.protect_writes,
            },
        ));
        self.expiry.join(&inner);
        state.catalogue.add(&inner);
        state.catalogue.publish_keyspaces();
        Ok(inner)
    }

    pub(crate) fn rename_keyspace(&self, name: &str, new_name: &str) -> Result<(), AdminError> {
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

    pub(crate) fn drop_keyspace(&self, name: &str) -> Result<(), AdminError> {
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
        // Freed when `state` is no longer locked.
        let _forgotten = self.transactions.history.forget(keyspace.id);
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

/// Refuses names reserved for hidden keyspaces.
pub(crate) fn check_shown(name: &str) -> Result<(), AdminError> {
    match name.starts_with(HIDDEN_PREFIX) {
        true => Err(AdminError::NoKeyspace { name: name.to_owned() }),
        false => Ok(()),
    }
}

pub(crate) fn check_name(name: &str) -> Result<(), AdminError> {
    if name.is_empty() || name.len() > 255 || name.chars().any(char::is_control) {
        return Err(AdminError::BadName { name: name.to_owned() });
    }
    Ok(())
}
