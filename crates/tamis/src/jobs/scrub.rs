//! The scrub: a thread that reads everything on disk at a bounded rate, so that damage is found
//! before a read needs the data.
//!
//! A pass reads each table, each filter file, each finished log that is still needed, and the
//! manifest. With the operating system's own file system it bypasses the page cache where possible:
//! recently read or written data would be found intact there whatever the state of the medium, and
//! a pass must not evict what reads need.
//!
//! A table found damaged is left alone by compactions from then on and listed in the statistics; a
//! table later found sound no longer is.
//!
//! # Threads
//!
//! One thread, which takes the `state` lock to list the files, and to read the manifest again if
//! what it read concurrently with a writer looked damaged. The results are behind their own mutex,
//! a leaf lock.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tamis_base::ids::LogId;
use tamis_base::key::KeyEnd;
use tamis_base::meta::TableMeta;
use tamis_files::blob::BlobFile;
use tamis_files::error::FileError;
use tamis_files::table::{ReaderConfig, Table};
use tamis_files::tree::files::{log_path, manifest_path};
use tamis_files::tree::manifest::Manifest;
use tamis_files::wal::{End, LogKind, LogReader, ReadOptions};
use tamis_policy::compaction::shape::KeyRange;

use crate::catalogue::keyspace::KeyspaceInner;
use crate::catalogue::scrubbed::{DamagedTable, MAX_PROBLEMS};
use crate::error::{OpenError, StorageError};
use crate::gate::pace::{Pace, Urgency};
use crate::io::{Access, DirectFs, FileSystem};
use crate::session::Session;
use crate::sync;
use crate::tree::blobs;
use crate::tree::open_table::OpenTable;

/// The minimum pause between two passes.
const REST: Duration = Duration::from_secs(1);

/// Bytes read between two checks of the pace.
const STEP_BYTES: u64 = 64 << 10;

/// Reads everything again and again until the database is closed.
pub(crate) fn scrub_loop(db: &Session) {
    let pass = Pass {
        fs: match db.options.file_system {
            Some(_) => db.fs.clone(),
            None => Arc::new(DirectFs::new()),
        },
        pace: Pace::new(db.options.scrub_bytes_per_second),
        db,
    };
    loop {
        if pass.run().is_some() {
            let mut seen = db.background.scrub.seen.lock();
            seen.stats.passes += 1;
            seen.last = std::mem::take(&mut seen.now);
        }
        let ended = sync::now();
        let mut state = db.state();
        while sync::since(ended) < REST && !db.gate.has_ended() {
            state = db.monitor.wait(state);
        }
        if db.gate.has_ended() {
            return;
        }
    }
}

struct Pass<'d> {
    db: &'d Session,
    fs: Arc<dyn FileSystem>,
    pace: Pace,
}

/// Reading continues as long as this is `Some`.
type GoOn = Option<()>;

impl Pass<'_> {
    /// Returns `None` if the database is being closed.
    fn run(&self) -> GoOn {
        for table in self.tables() {
            // Not held beyond its own turn: the files of replaced tables must be removable.
            if let Some(table) = table.upgrade() {
                self.table(&table)?;
            }
        }
        self.filter_files()?;
        let logs = finished_logs(self.db);
        // None of them is cut short while it is read.
        self.db.log.trim();
        for log in logs {
            self.log(log)?;
        }
        self.manifest();
        Some(())
    }

    fn tables(&self) -> Vec<Weak<OpenTable>> {
        let keyspaces = self.db.keyspaces.directory.load_full();
        let views = keyspaces.values().map(|keyspace| keyspace.view.load_full());
        views.flat_map(|view| view.version.tables.iter().map(Arc::downgrade).collect::<Vec<_>>()).collect()
    }

    /// Counts bytes about to be read, or just read, and waits until the pace permits them.
    fn spend(&self, bytes: u64) -> GoOn {
        self.db.background.scrub.seen.lock().stats.bytes += bytes;
        let leaves = || self.db.gate.cancels() || self.db.gate.is_leaving();
        self.pace.wait(Urgency::Compaction, bytes, &leaves);
        (!leaves()).then_some(())
    }

    fn table(&self, table: &OpenTable) -> GoOn {
        let path = table.table.path();
        let config = ReaderConfig::for_a_look();
        let opened = Table::open(&*self.fs, path, table.meta.id, config.clone());
        // Not every file system can bypass the page cache.
        let opened = match opened {
            Err(StorageError::Io(e)) if e.kind() == std::io::ErrorKind::InvalidInput => {
                Table::open(&*self.db.fs, path, table.meta.id, config)
            }
            opened => opened,
        };
        let fresh = match opened {
            Ok(fresh) => fresh,
            Err(error) => {
                self.problem(error.to_string());
                self.flawed(table, &error);
                return Some(());
            }
        };
        let check = self.paying(|go_on| fresh.check_while(go_on))?;
        self.db.background.scrub.seen.lock().stats.tables += 1;
        for (offset, what) in &check.problems {
            self.problem(format!("{} at offset {offset}: {what}", path.display()));
        }
        let damage = fresh.flaw().get();
        damage.iter().for_each(|damage| self.flawed(table, damage));
        let values_are_sound = self.blobs(table, &fresh)?;
        // Parts that a table lost at opening, or files of its values, cannot be restored while it
        // is open.
        let lost = table.table.why_lost().is_some() || table.blobs.lost().next().is_some();
        if damage.is_none() && check.problems.is_empty() && values_are_sound && !lost {
            table.table.flaw().forget();
        }
        Some(())
    }

    /// Lets `check` read, and pays for it step by step. `None` if the pass is to end.
    fn paying<T>(&self, check: impl FnOnce(&mut dyn FnMut(u64) -> bool) -> T) -> Option<T> {
        let (mut unpaid, mut going) = (0, Some(()));
        let checked = check(&mut |bytes| {
            unpaid += bytes;
            if unpaid >= STEP_BYTES {
                going = self.spend(std::mem::take(&mut unpaid));
            }
            going.is_some()
        });
        going?;
        self.spend(unpaid)?;
        Some(checked)
    }

    /// Reads the values in blob files that a table refers to, and reports whether they are all
    /// there.
    fn blobs(&self, table: &OpenTable, fresh: &Arc<Table>) -> Option<bool> {
        let config = ReaderConfig::for_a_look();
        let opened = table.blobs.iter().map(|blob| {
            let (id, path) = (blob.file.id(), blob.file.path());
            // Not every file system can bypass the page cache.
            let file = match BlobFile::open(&*self.fs, path, Some(id), &config) {
                Err(StorageError::Io(e)) if e.kind() == std::io::ErrorKind::InvalidInput => {
                    BlobFile::open(&*self.db.fs, path, Some(id), &config)
                }
                opened => opened,
            };
            (id, file)
        });
        let files: BTreeMap<_, _> = opened.collect();
        let problems =
            self.paying(|go_on| blobs::check(fresh, |id| files.get(&id).map(Result::as_ref), go_on))?;
        for (_, why) in &problems {
            table.note_damage(why);
            self.problem(why.to_string());
        }
        Some(problems.is_empty())
    }

    /// Records damage. A read error that may pass says nothing about the table.
    fn flawed(&self, table: &OpenTable, error: &StorageError) {
        if matches!(error, StorageError::Corrupt(_)) {
            table.table.flaw().note(error);
        }
    }

    fn filter_files(&self) -> GoOn {
        for keyspace in self.db.keyspaces.directory.load_full().values() {
            let mut going = Some(());
            // Through the page cache: an image is short beside a table, and nothing is lost with
            // one.
            let (_, wrong) = self.db.check_filter_files(&*self.db.fs, keyspace.id, &mut |bytes| {
                going = self.spend(bytes);
                going.is_some()
            });
            wrong.into_iter().for_each(|why| self.problem(why.to_string()));
            going?;
        }
        Some(())
    }

    fn log(&self, id: LogId) -> GoOn {
        let path = log_path(&self.db.dir, id);
        let (mut unpaid, mut going) = (0, Some(()));
        let mut read = || -> Result<(), OpenError> {
            // Sequential reads go through the page cache: the log was written recently.
            let file =
                self.db.fs.open(&path, Access::Sequential).map_err(|e| StorageError::io("open", &path, e))?;
            let options = ReadOptions { expect_complete: true, salvage: false };
            let mut log = LogReader::open(file, &path, LogKind::Writes, id, options)?;
            while let Some(record) = log.next_record()? {
                unpaid += record.end - record.offset;
                if unpaid >= STEP_BYTES {
                    going = self.spend(std::mem::take(&mut unpaid));
                    if going.is_none() {
                        break;
                    }
                }
            }
            Ok(())
        };
        let result = read();
        going?;
        self.spend(unpaid)?;
        let needed = || finished_logs(self.db).contains(&id);
        match result {
            Ok(()) => self.db.background.scrub.seen.lock().stats.logs += 1,
            // A log that is no longer needed is removed or overwritten.
            Err(error) if needed() => self.problem(error.to_string()),
            Err(_) => {}
        }
        Some(())
    }

    /// Checks the manifest as the next opening would read it. While it is being written, its last
    /// edit may seem torn.
    fn manifest(&self) {
        let read = || Manifest::open(&*self.db.fs, &self.db.dir);
        let sound = |read: &Result<Option<_>, FileError>| {
            let end = |loaded: &tamis_files::tree::manifest::LoadedManifest| {
                matches!(loaded.end, End::Clean { .. })
            };
            read.as_ref().is_ok_and(|loaded| loaded.as_ref().is_some_and(end))
        };
        if sound(&read()) {
            return;
        }
        let state = self.db.state();
        if state.catalogue.unsettled().is_some() || self.db.gate.is_waiting() {
            // It is known to be unsound and will be rewritten.
            return;
        }
        let path = manifest_path(&self.db.dir, state.catalogue.manifest_number());
        match read() {
            again if sound(&again) => {}
            Ok(Some(_)) => self.problem(format!("{} does not end as it was written", path.display())),
            Ok(None) => self.problem(format!("{} has no CURRENT any more", self.db.dir.display())),
            Err(error) => self.problem(error.to_string()),
        }
    }

    fn problem(&self, what: String) {
        let is_new = {
            let mut seen = self.db.background.scrub.seen.lock();
            let is_new = !seen.last.contains(&what);
            seen.now.len() < MAX_PROBLEMS && seen.now.insert(what.clone()) && is_new
        };
        if is_new {
            self.db.warn(format!("scrub: {what}"));
        }
    }
}

/// Returns the logs that were finished and that the next opening would read. None while writes are
/// suspended, since logs that could not be written are about to be replaced; and none before the
/// session has begun, since the last one of the session before may end anywhere.
fn finished_logs(db: &Session) -> Vec<LogId> {
    let state = db.state();
    if db.gate.check_health().is_err() || db.gate.is_waiting() {
        return Vec::new();
    }
    let floor = state.catalogue.tree().log_floor();
    state.logs.rolled_from(floor).collect()
}

impl Session {
    /// Returns the tables known to be damaged, by keyspace and level.
    pub(crate) fn damaged_tables(&self) -> Vec<DamagedTable> {
        let mut found = Vec::new();
        for keyspace in self.keyspaces.directory.load_full().values() {
            let view = keyspace.view.load_full();
            for run in &view.version.runs {
                for table in &view.version.tables[run.tables.clone()] {
                    let Some(why) = table.table.flaw().get() else { continue };
                    let meta = &table.meta;
                    found.push(DamagedTable {
                        keyspace: keyspace.name().to_owned(),
                        table: meta.id,
                        path: table.table.path().to_owned(),
                        level: run.level,
                        smallest: meta.smallest.to_vec(),
                        largest: match &meta.largest {
                            KeyEnd::Included(key) | KeyEnd::Excluded(key) => key.to_vec(),
                            KeyEnd::Unbounded => Vec::new(),
                        },
                        entries: meta.entries,
                        quarantined: table.table.why_lost().is_some(),
                        what: why.to_string(),
                    });
                }
            }
        }
        found
    }

    /// Returns the damage that stops merges of the first such table of a keyspace that overlaps the
    /// range, if there is one.
    pub(crate) fn damage_within(
        &self,
        keyspace: &KeyspaceInner,
        range: Option<&KeyRange>,
    ) -> Option<StorageError> {
        let view = keyspace.view.load();
        let concerned = |meta: &TableMeta| {
            range.is_none_or(|range| {
                range.overlaps(&KeyRange { smallest: meta.smallest.clone(), largest: meta.largest.clone() })
            })
        };
        view.version
            .tables
            .iter()
            .filter(|table| table.table.flaw().stops_merges() && concerned(&table.meta))
            .find_map(|table| table.table.flaw().get())
    }
}

#[cfg(test)]
mod tests;
