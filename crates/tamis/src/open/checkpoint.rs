//! Checkpoints: a second database directory that shares the immutable files of the first.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use tamis_files::tree::files::{blob_path, current_path, filter_path, log_path, options_path, table_path};
use tamis_files::tree::manifest::{Manifest, set_current};
use tamis_files::wal::{LogHeader, LogKind, LogWriter};

use crate::error::{AdminError, StorageError, WriteError};
use crate::io::{Usage, write_file_atomically};
use crate::open::{create_dir_durably, refuse_empty};
use crate::session::Session;

impl Session {
    /// Links all tables, blob files and logs into `target` and writes a manifest there. `CURRENT`
    /// is written last: an interrupted checkpoint is not a database.
    pub(crate) fn checkpoint(&self, target: &Path) -> Result<(), AdminError> {
        let mut made = false;
        let result = self.write_checkpoint(target, &mut made);
        if result.is_err()
            && made
            && let Err(e) = self.remove_unfinished(target)
        {
            log::warn!("could not remove the unfinished checkpoint {}: {e}", target.display());
        }
        result
    }

    /// Removes `CURRENT` first, durably: a power failure may undo any of the other removals, and a
    /// directory with half of its files must not look like a database.
    fn remove_unfinished(&self, target: &Path) -> std::io::Result<()> {
        let current = current_path(target);
        if self.fs.exists(&current)? {
            self.fs.remove(&current)?;
            self.fs.sync_dir(target)?;
        }
        self.fs.remove_dir_all(target)
    }

    /// Sets `made` once the checkpoint owns the directory.
    fn write_checkpoint(&self, target: &Path, made: &mut bool) -> Result<(), AdminError> {
        if self.gate.is_read_only() {
            return Err(WriteError::ReadOnly.into());
        }
        self.check_ready()?;
        let io = |operation, path: &Path, e: std::io::Error| StorageError::io(operation, path, e);
        refuse_empty(target)?;
        if self.fs.exists(target).map_err(|e| io("look for", target, e))? {
            return Err(AdminError::TargetExists { path: target.to_owned() });
        }
        // Nothing is written while the log lock is held. After rolling the log, every log that
        // matters is complete and immutable.
        let mut log = self.lock_log();
        self.gate.check_writable()?;
        self.log.roll(&mut log).and_then(|()| self.log.sync_rolled())?;
        let mut state = self.state();
        self.gate.check_writable()?;
        *made = true;
        create_dir_durably(&*self.fs, target)?;
        let link = |from: &Path, to: &Path| self.fs.link_or_copy(from, to).map_err(|e| io("link", to, e));
        let mut blobs = BTreeSet::new();
        for keyspace in state.catalogue.keyspaces().values() {
            for table in &keyspace.view.load().version.tables {
                let id = table.meta.id;
                link(&table_path(&self.dir, id), &table_path(target, id))?;
                blobs.extend(table.meta.extra.blobs.iter().map(|blob| blob.0));
            }
        }
        for id in blobs {
            link(&blob_path(&self.dir, id), &blob_path(target, id))?;
        }
        // Overwriting one of these logs here would change it in the checkpoint.
        for id in state.logs.share() {
            link(&log_path(&self.dir, id), &log_path(target, id))?;
        }
        let mut tree = state.catalogue.tree().clone();
        let mut left_out = Vec::new();
        for stored in tree.keyspaces.values_mut() {
            Arc::make_mut(stored).filter_files.retain(|&id, _| {
                let (from, to) = (filter_path(&self.dir, id), filter_path(target, id));
                let linked = self.fs.link_or_copy(&from, &to);
                // The checkpoint rebuilds its filters without this file.
                left_out.extend(linked.as_ref().err().map(|e| format!("{}: {e}", from.display())));
                linked.is_ok()
            });
        }
        let times = self.expiry.unsaved(&tree.times);
        times.into_iter().for_each(|sample| tree.times.note(sample, 1, u64::MAX));
        tree.last_seq = self.visible();
        let current = state.logs.current();
        drop(log);
        drop(state);
        left_out.into_iter().for_each(|why| {
            self.warn(format!("the checkpoint {} lacks a filter file: {why}", target.display()));
        });
        // The current log is empty. Its name marks where the logs of keyspaces without unflushed
        // writes start.
        let path = log_path(target, current);
        let file = self.fs.create(&path, Usage::Log).map_err(|e| io("create", &path, e))?;
        let header = LogHeader { kind: LogKind::Writes, id: current, reused: false };
        LogWriter::create(file, &path, header)?.close()?;
        tree.next_file = self.files.numbers.next() + 1;
        let options = options_path(target);
        write_file_atomically(&*self.fs, &options, self.options.to_text().as_bytes())
            .map_err(|e| io("write", &options, e))?;
        let number = tree.next_file - 1;
        Manifest::create(&*self.fs, target, number, &tree)?.close()?;
        set_current(&*self.fs, target, number)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
