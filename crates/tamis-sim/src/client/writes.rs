//! A client's writes: batches, ingestions, and a stream of overwrites that watches the space in use.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tamis::ingest::{ExternalTableBuilder, IngestOptions};
use tamis::simulation::Scheduler;
use tamis::{Durability, WriteBatch};

use super::contents::stated;
use super::{Client, Failure, Known, key};
use crate::oracle::{Effect, effects, value};
use crate::plan::{Change, Space};

impl Change {
    fn space(&self) -> Space {
        match self {
            Change::Put { space, .. }
            | Change::Merge { space, .. }
            | Change::Delete { space, .. }
            | Change::DeleteRange { space, .. } => *space,
        }
    }
}

impl Client {
    /// Writes changes of those keyspaces that there are as one batch.
    pub(super) fn write(&self, changes: &[Change], synced: bool) -> Result<(), Failure> {
        let number = self.shared.oracle().next(self.number);
        let mut batch = WriteBatch::new();
        let (mut all, mut lives) = (Vec::new(), Vec::new());
        for change in changes {
            let Some(Known { keyspace, life }) = self.space(change.space()) else { continue };
            let effects = effects(self.number, number, change, life);
            match change {
                Change::DeleteRange { from, to, .. } => {
                    batch.delete_range_in(&keyspace, key(self.number, *from)..key(self.number, *to));
                }
                _ => effects.iter().for_each(|effect| match effect {
                    Effect::Put((_, key), value) => _ = batch.put_in(&keyspace, key, value),
                    Effect::Append((_, key), operand) => _ = batch.merge_in(&keyspace, key, operand),
                    Effect::Delete((_, key)) => _ = batch.delete_in(&keyspace, key),
                }),
            }
            all.extend(effects);
            lives.push(life);
        }
        if lives.is_empty() {
            return Ok(());
        }
        let began = self.shared.oracle().begin(self.number, all);
        debug_assert_eq!(began, number);
        let durability = if synced { Durability::Sync } else { self.shared.options.durability };
        match self.db.write_with(batch, durability) {
            Ok(()) => {
                let durable = synced || self.shared.always_synced;
                self.shared.oracle().acknowledged(self.number, number, durable);
                Ok(())
            }
            Err(error) => {
                self.shared.oracle().failed(self.number, number);
                self.shared.excuse_in(lives.into_iter(), "a write", &error, None)
            }
        }
    }

    /// Overwrites the client's keys. However busy that keeps the database, the space in use stays
    /// within the sum that `docs/deletes.md` states.
    pub(super) fn overwrite(&self, space: Space, times: u16) -> Result<(), Failure> {
        // The files of readers that have gone, such as the look at all contents after an opening,
        // are removed within a second.
        self.shared.machine.sleep(Duration::from_secs(1));
        for n in 0..times {
            self.shared.machine.renew();
            let key = (n % u16::from(self.shared.keys)) as u8;
            self.write(&[Change::Put { space, key, len: 900 }], false)?;
            if n % 8 == 0 && !self.shared.disk.was_hurt() {
                let before = stated(&self.db);
                let used = self.shared.disk.used(self.db.path());
                let after = stated(&self.db);
                let seen = before.0.max(after.0);
                let largest = self.shared.largest.fetch_max(seen, Relaxed).max(seen);
                // What each thread has replaced and not yet removed.
                let removals = (self.shared.options.background_threads as u64 + 1) * largest;
                let sum = before.1.max(after.1) + removals;
                if used > sum && !self.shared.disk.has_crashed() {
                    return Err(format!("{used} bytes are in use, but the stated sum is {sum}"));
                }
            }
        }
        Ok(())
    }

    /// Builds a table of some of the client's keys, and ingests it.
    pub(super) fn ingest(&self, known: &Known, from: u8, to: u8) -> Result<(), Failure> {
        let number = self.shared.oracle().next(self.number);
        // A session that crashed may have left a file of this number.
        let path = format!("/external-{}-{number}-{}", self.number, self.shared.oracle().stamp());
        let path = Path::new(&path);
        let written: Vec<(Vec<u8>, Vec<u8>)> =
            (from..to).map(|k| (key(self.number, k), value(self.number, number, 30))).collect();
        let build = || {
            let fs = Arc::new(self.shared.disk.clone());
            let options = known.keyspace.options();
            let mut builder = ExternalTableBuilder::create_on(fs, path, &options)?;
            written.iter().try_for_each(|(key, value)| builder.put(key, value))?;
            builder.finish()
        };
        if let Err(error) = build() {
            return self.shared.excuse("building a table", &error, None);
        }
        let effect =
            |(key, value): &(Vec<u8>, Vec<u8>)| Effect::Put((known.life, key.clone()), value.clone());
        self.shared.oracle().begin(self.number, written.iter().map(effect).collect());
        match known.keyspace.ingest(&[path], IngestOptions::default()) {
            Ok(_) => {
                // An ingestion survives a power cut when it returns.
                self.shared.oracle().acknowledged(self.number, number, true);
                Ok(())
            }
            Err(error) => {
                self.shared.oracle().failed(self.number, number);
                self.shared.excuse_in([known.life].into_iter(), "an ingestion", &error, None)
            }
        }
    }
}
