//! Salvage: opening a damaged database with everything that can still be read.
//!
//! [`prepare`] examines everything in the directory and decides what becomes of it, changing
//! nothing. An opening for writing then calls [`Second::give`], which gives every file that will
//! not be part of the database a second name (`….aside`; for unreadable tables that the manifest
//! names, `….damaged`), and continues like any other opening, with the prepared tree instead of the
//! manifest's. It ends with a new manifest, put in force in one step.
//!
//! # Invariants
//!
//! * No file is ever lost from the directory: a file loses its old name only once it has another.
//!   That holds for `CURRENT` and `OPTIONS`, too, which are replaced.
//! * A directory without a file that bears this engine's mark is not touched
//!   ([`place`]).
//! * A crash before the new manifest is in force leaves everything as it was, except for second
//!   names.
//! * Decisions follow from the directory alone: an interrupted salvage is repeated in the same way.
//!
//! # When the manifest is believed
//!
//! The manifest is believed as far as it can be read. If it is whole, and so are the files that it
//! names, the tree is what it says, without the tables that cannot be opened. If it is damaged or
//! truncated (truncation shows only in files that have since been removed, in logs that should have
//! been removed later, and in writes to keyspaces that it does not know), names and options of
//! keyspaces are taken from what can be read, and the tree is rebuilt from the tables found
//! ([`lineage`], [`tree`]). The tables themselves say which part of the logs they hold; the rest is
//! replayed.
//!
//! A single thread does this. It holds the directory lock, or changes nothing.

mod lineage;
mod rebuild;
mod report;
mod survey;
#[cfg(test)]
mod tests;
mod tree;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

pub use report::{SalvageReport, SalvagedKeyspace, SalvagedLog, SalvagedTable, TableFate};
use survey::{Described, LogScan, scan_log};
use tamis::repair::{self, Repair, free_name};
use tamis::{Db, OpenError, Options, StorageError};
use tamis_base::collections::{HashMap, HashSet};
use tamis_base::ids::{BlobFileId, KeyspaceId, LogId, TableId};
use tamis_base::key::SeqNo;
use tamis_base::meta::TableMeta;
use tamis_env::io::FileSystem;
use tamis_files::blob::BlobFile;
use tamis_files::error::is_lasting;
use tamis_files::table::ReaderConfig;
use tamis_files::tree::edit::VersionEdit;
use tamis_files::tree::files::{
    blob_path, current_path, filter_path, lock_path, log_path, manifest_name, manifest_path, name_of,
    options_path, table_path,
};
use tamis_files::tree::found::{Base, Files, find_base};
use tamis_files::tree::manifest::LoadedManifest;
use tamis_files::tree::place::{self, Place};
use tamis_files::tree::replay::{ReplayOptions, replay};
use tamis_files::tree::state::ManifestState;
use tamis_files::wal::End;

/// A salvage plan.
#[derive(Debug)]
struct Plan {
    /// The tree that replaces the manifest's.
    tree: ManifestState,
    /// The number of the manifest that the tree comes from; never 0.
    number: u64,
    /// How that manifest ends, if the tree is its own.
    end: Option<End>,
    /// The write up to which each keyspace is in tables, whatever the logs say.
    covered: HashMap<KeyspaceId, SeqNo>,
    /// Logs that cannot be read at all.
    unreadable: HashSet<LogId>,
    /// What was found and decided.
    report: SalvageReport,
    /// Files that get a second name, with the suffix to append.
    second_names: Vec<(PathBuf, &'static str)>,
}

/// A salvage plan in the making.
struct Work<'a> {
    fs: &'a dyn FileSystem,
    dir: &'a Path,
    options: &'a Options,
    files: Files,
    /// Usable tables.
    usable: BTreeMap<TableId, Described>,
    /// Tables that cannot be used: the reason, and the number of entries if it is known.
    unusable: BTreeMap<TableId, (String, u64)>,
    /// The tables that the manifest names.
    named: BTreeMap<TableId, (KeyspaceId, TableMeta)>,
    /// The blob files that each table refers to, used or not, as far as it can be described.
    values: BTreeMap<TableId, Vec<BlobFileId>>,
    report: SalvageReport,
}

/// Examines the database in `dir`. `None` if there is none. Errors: failed reads.
fn prepare(fs: &dyn FileSystem, dir: &Path, options: &Options) -> Result<Option<Plan>, OpenError> {
    let current = current_path(dir);
    let has_current = fs.exists(&current).map_err(|e| StorageError::io("look for", &current, e))?;
    let files = match fs.exists(dir) {
        Ok(true) => Files::list(fs, dir)?,
        Ok(false) => Files::default(),
        Err(e) => return Err(StorageError::io("look for", dir, e).into()),
    };
    if !files.any() && !has_current {
        return Ok(None);
    }
    let mut base = find_base(fs, dir, &files)?;
    let mut work = Work {
        fs,
        dir,
        options,
        files,
        usable: BTreeMap::new(),
        unusable: BTreeMap::new(),
        named: BTreeMap::new(),
        values: BTreeMap::new(),
        report: SalvageReport::default(),
    };
    work.look_at_tables(&base)?;
    if let (Some(loaded), true) = (&base.manifest, base.wrong.is_empty()) {
        base.wrong = work.contradictions(loaded)?;
    }
    work.report.rebuilt = !base.wrong.is_empty();
    work.report.manifest = base.current.iter().chain(&base.wrong).cloned().collect();
    let mut salvage = if work.report.rebuilt { work.rebuilt(&base)? } else { work.believed(&base)? };
    // These two are replaced, as by any opening; what was wrong may be in them.
    let replaced = [current, options_path(dir)];
    let needed = salvage.report.is_needed();
    for path in replaced.into_iter().filter(|_| needed) {
        if fs.exists(&path).map_err(|e| StorageError::io("look for", &path, e))? {
            salvage.report.others.push(name_of(&path));
            salvage.second_names.push((path, ".aside"));
        }
    }
    Ok(Some(salvage))
}

impl Work<'_> {
    /// Reads each table's description of itself, and compares it with what the manifest says.
    fn look_at_tables(&mut self, base: &Base) -> Result<(), OpenError> {
        if let Some(loaded) = &base.manifest {
            for (&keyspace, state) in loaded.state.keyspaces.iter() {
                self.named.extend(state.tables().map(|meta| (meta.id, (keyspace, meta.clone()))));
            }
        }
        let files = |meta: &TableMeta| meta.extra.blobs.iter().map(|blob| blob.0).collect::<Vec<_>>();
        self.values.extend(self.named.iter().map(|(&id, (_, meta))| (id, files(meta))));
        for &id in &self.files.tables {
            let described = survey::describe(self.fs, self.dir, id)?;
            if let Ok(d) = &described {
                self.values.entry(id).or_default().extend(files(&d.meta));
            }
            let named = self.named.get(&id).map(|(_, meta)| meta);
            let values = match &described {
                Ok(d) if named.is_none() => self.lacks_values(d)?,
                _ => None,
            };
            let checked = described.and_then(|mut d| {
                let Some(meta) = named else { return values.map_or(Ok(d), Err) };
                if (meta.entries, meta.file_bytes) != (d.meta.entries, d.meta.file_bytes) {
                    return Err("it is not the table that the manifest names".to_owned());
                }
                if d.external != meta.extra.global_seq.is_some() {
                    return Err("the manifest and the table disagree on whether it was ingested".to_owned());
                }
                if d.meta.extra.blobs != meta.extra.blobs {
                    return Err(
                        "the manifest and the table disagree on the blob files that it refers to".to_owned()
                    );
                }
                d.meta = meta.clone();
                Ok(d)
            });
            match checked {
                Ok(d) if d.external && named.is_none() => {
                    let why = "it was ingested, and its sequence number was only in the lost part of the manifest: \
                               ingest it again, if it is not older than the existing data";
                    self.unusable.insert(id, (why.to_owned(), d.meta.entries));
                    self.report.entries_found += d.meta.entries;
                }
                Ok(d) => {
                    self.report.entries_found += d.meta.entries;
                    self.usable.insert(id, d);
                }
                Err(why) => {
                    let entries = named.map_or(0, |meta| meta.entries);
                    self.unusable.insert(id, (why, entries));
                }
            }
        }
        Ok(())
    }

    /// Reports why a table that no manifest names is not complete, if a blob file that it refers to
    /// is missing or damaged and what it was made from may still be there: inputs of its merge, or
    /// logs.
    fn lacks_values(&self, d: &Described) -> Result<Option<String>, StorageError> {
        let there = |id: &TableId| self.files.tables.binary_search(id).is_ok();
        if d.origin.merged.as_ref().is_some_and(|merged| !merged.inputs.iter().any(there)) {
            return Ok(None);
        }
        for &(id, bytes) in &d.meta.extra.blobs {
            let path = blob_path(self.dir, id);
            match BlobFile::open(self.fs, &path, Some(id), &ReaderConfig::for_a_look()) {
                Ok(file) if bytes <= file.data_bytes() => {}
                Ok(_) => return Ok(Some(format!("blob file {id} is not the one that it refers to"))),
                Err(why) if is_lasting(&why) => {
                    return Ok(Some(format!("blob file {id}, which it refers to, cannot be read: {why}")));
                }
                Err(why) => return Err(why),
            }
        }
        Ok(None)
    }

    /// Finds evidence that an undamaged manifest lost its last edits.
    fn contradictions(&self, loaded: &LoadedManifest) -> Result<Vec<String>, OpenError> {
        let mut found = Vec::new();
        let manifest = manifest_path(self.dir, loaded.number);
        let manifest = manifest.display();
        let missing = self.named.keys().find(|id| self.files.tables.binary_search(id).is_err());
        if let Some(id) = missing {
            found.push(format!("{manifest} names table {id}, which does not exist"));
        }
        let floor = loaded.state.log_floor();
        let logs: Vec<LogId> = self.files.logs.iter().copied().filter(|&id| id >= floor).collect();
        if floor > 0 && logs.first() != Some(&floor) {
            let log = log_path(self.dir, floor);
            found.push(format!("{manifest} needs {}, which does not exist", log.display()));
        }
        if !found.is_empty() {
            return Ok(found);
        }
        let mut unknown = None;
        let replayed = replay::<OpenError>(
            self.fs,
            self.dir,
            &logs,
            ReplayOptions { salvage: true, until: None },
            |_, _, op| {
                if op.keyspace() >= loaded.state.next_keyspace && !op.is_ingestion() {
                    unknown = Some(op.keyspace());
                }
                Ok(())
            },
        );
        let replayed = match replayed {
            Ok(replayed) => replayed,
            Err(OpenError::Storage(StorageError::Corrupt(_))) => return Ok(found),
            Err(error) => return Err(error),
        };
        if let Some(id) = unknown {
            found.push(format!("{manifest} does not know keyspace {id}, which the logs write to"));
        }
        if floor == 0 && (!self.files.tables.is_empty() || replayed.last_seq > 0) {
            found.push(format!("{manifest} has lost all of its edits"));
        }
        if replayed.last_closed && !matches!(loaded.end, End::Closed { .. }) {
            found.push(format!("{manifest} has no closing record, but the last log has one"));
        }
        Ok(found)
    }

    /// Plans the tree that the manifest describes, without the tables that cannot be opened.
    fn believed(mut self, base: &Base) -> Result<Plan, OpenError> {
        let loaded = base.manifest.as_ref().expect("it is whole");
        let mut tree = loaded.state.clone();
        let mut edit = VersionEdit::default();
        let mut second_names = Vec::new();
        for id in std::mem::take(&mut self.files.tables) {
            let path = table_path(self.dir, id);
            let named = self.named.get(&id).map(|(keyspace, meta)| (*keyspace, meta.entries));
            let (fate, why) = match (named, self.unusable.get(&id)) {
                (Some(_), None) => (TableFate::Kept, String::new()),
                (Some((keyspace, entries)), Some((why, _))) => {
                    edit.removed.push((keyspace, id));
                    second_names.push((path.clone(), ".damaged"));
                    let path = path.display();
                    self.report.losses.push(format!("{path} is left out with its {entries} entries: {why}"));
                    (TableFate::SetAside, why.clone())
                }
                (None, _) => {
                    second_names.push((path, ".aside"));
                    (TableFate::SetAside, "the manifest, which is whole, does not name it".to_owned())
                }
            };
            let keyspace = named.map_or("", |(id, _)| &loaded.state.keyspaces[&id].name).to_owned();
            self.note_table(id, keyspace, fate, why);
        }
        for (&keyspace, stored) in tree.keyspaces.iter() {
            edit.removed_filters.extend(stored.filter_files.keys().map(|file| (keyspace, *file)));
        }
        edit.next_file = self.after_blobs();
        tree.apply(&edit).map_err(|what| StorageError::corrupt(self.dir, None, what))?;
        let (scans, unreadable) = self.scan_logs(tree.log_floor(), &HashMap::default())?;
        self.note_logs(&scans);
        if let (End::Closed { .. }, Some(last)) = (&loaded.end, scans.last())
            && last.last_seq > 0
            && last.last_seq < tree.last_seq
        {
            let (last, known) = (last.last_seq, tree.last_seq);
            self.report
                .losses
                .push(format!("the logs end with write {last}, the database with write {known}"));
        }
        for (id, state) in tree.keyspaces.iter() {
            self.note_keyspace(&tree, *id, &state.name, "the manifest");
        }
        let (number, end) = (loaded.number, Some(loaded.end.clone()));
        Ok(self.finish(Plan {
            tree,
            number,
            end,
            covered: HashMap::default(),
            unreadable,
            report: SalvageReport::default(),
            second_names,
        }))
    }

    /// Reads the logs from `floor` on; returns what each holds, and those that cannot be read at
    /// all.
    fn scan_logs(
        &self,
        floor: LogId,
        covered: &HashMap<KeyspaceId, SeqNo>,
    ) -> Result<(Vec<LogScan>, HashSet<LogId>), OpenError> {
        let mut scans = Vec::new();
        for &id in self.files.logs.iter().filter(|&&id| id >= floor) {
            scans.push(scan_log(self.fs, self.dir, id, covered)?);
        }
        let unreadable = scans.iter().filter(|scan| scan.unusable).map(|scan| scan.id).collect();
        Ok((scans, unreadable))
    }

    fn note_table(&mut self, id: TableId, keyspace: String, fate: TableFate, why: String) {
        let entries = match self.usable.get(&id) {
            Some(d) => d.meta.entries,
            None => self.unusable.get(&id).map_or(0, |(_, entries)| *entries),
        };
        if fate == TableFate::Kept {
            self.report.entries_kept += entries;
        }
        let file = name_of(&table_path(self.dir, id));
        self.report.tables.push(SalvagedTable { file, keyspace, entries, fate, why });
    }

    fn note_logs(&mut self, scans: &[LogScan]) {
        for &id in &self.files.logs {
            let file = name_of(&log_path(self.dir, id));
            let mut log = SalvagedLog { file, writes: 0, replayed: 0, problems: Vec::new() };
            if let Some(scan) = scans.iter().find(|scan| scan.id == id) {
                log.writes = scan.writes;
                log.replayed = if scan.unusable { 0 } else { scan.new };
                log.problems.clone_from(&scan.problems);
            }
            self.report.writes_replayed += log.replayed;
            // Writes that were never synced were never promised.
            let lost = log.problems.iter().filter(|what| !what.ends_with("it was never synced"));
            self.report.losses.extend(lost.cloned());
            self.report.logs.push(log);
        }
        for pair in scans.windows(2) {
            let (before, after) = (pair[0].last_seq, pair[1].first_seq);
            if before > 0 && after > before + 1 {
                let (from, to) = (before + 1, after - 1);
                self.report.losses.push(format!("the writes {from} to {to} are in no existing log"));
            }
        }
    }

    fn note_keyspace(&mut self, tree: &ManifestState, id: KeyspaceId, name: &str, source: &str) {
        let (mut tables, mut entries) = (0, 0);
        if let Some(state) = tree.keyspaces.get(&id) {
            state.tables().for_each(|meta| {
                tables += 1;
                entries += meta.entries;
            });
        }
        let (name, source) = (name.to_owned(), source.to_owned());
        self.report.keyspaces.push(SalvagedKeyspace { name, source, tables, entries });
    }

    /// Returns the blob files that get a second name: those that no table of the tree refers to,
    /// which would be removed, and those that a table set aside refers to, which would be once the
    /// tables of the tree no longer do. With their values, such a table can be put back.
    fn blobs_to_keep(&self, tree: &ManifestState) -> Vec<BlobFileId> {
        let tables = tree.keyspaces.values().flat_map(|keyspace| keyspace.tables());
        let in_tree: BTreeSet<BlobFileId> =
            tables.flat_map(|meta| meta.extra.blobs.iter().map(|blob| blob.0)).collect();
        let aside: BTreeSet<String> = self
            .report
            .tables
            .iter()
            .filter(|table| table.fate == TableFate::SetAside)
            .map(|table| table.file.clone())
            .collect();
        let values =
            self.values.iter().filter(|(id, _)| aside.contains(&name_of(&table_path(self.dir, **id))));
        let needed: BTreeSet<BlobFileId> = values.flat_map(|(_, files)| files).copied().collect();
        let mut keep = self.files.blobs.clone();
        keep.retain(|id| !in_tree.contains(id) || needed.contains(id));
        keep
    }

    /// The number after those of all blob files that a table refers to, whether or not they are
    /// there: no new file may get one.
    fn after_blobs(&self) -> Option<u64> {
        self.values.values().flatten().max().map(|largest| largest + 1)
    }

    /// Gives every manifest and log a second name: the new manifest makes them superfluous, so they
    /// would be removed.
    fn finish(mut self, mut salvage: Plan) -> Plan {
        for &number in &self.files.manifests {
            self.report.others.push(manifest_name(number));
            salvage.second_names.push((manifest_path(self.dir, number), ".aside"));
        }
        let logs = self.files.logs.iter().map(|&id| (log_path(self.dir, id), ".aside"));
        salvage.second_names.extend(logs);
        if self.report.rebuilt {
            for table in &self.report.tables {
                if matches!(table.fate, TableFate::Superseded | TableFate::SetAside) {
                    salvage.second_names.push((self.dir.join(&table.file), ".aside"));
                }
            }
        }
        for id in self.blobs_to_keep(&salvage.tree) {
            let path = blob_path(self.dir, id);
            self.report.others.push(name_of(&path));
            salvage.second_names.push((path, ".aside"));
        }
        // They are true only of the tree that they were made for.
        for &id in &self.files.filters {
            let path = filter_path(self.dir, id);
            self.report.others.push(name_of(&path));
            salvage.second_names.push((path, ".aside"));
        }
        if !self.files.filters.is_empty() && self.report.is_needed() {
            let count = self.files.filters.len();
            let what = format!("{count} filter files are left out: global filters are built from the tables");
            self.report.notes.push(what);
        }
        salvage.report = self.report;
        salvage
    }
}

/// What an opening does to files before the new manifest is in force.
struct Second {
    dir: PathBuf,
    /// Files that get a second name, with the suffix to append.
    names: Vec<(PathBuf, &'static str)>,
    /// Files of a rebuilt tree, which may exist only in the page cache.
    kept: Vec<PathBuf>,
}

impl Second {
    /// Durably gives every file that will not be part of the database a second name, and makes the
    /// files that will be part of it durable. Returns the first names with their second names.
    fn give(&self, fs: &dyn FileSystem) -> Result<HashMap<PathBuf, PathBuf>, StorageError> {
        for path in &self.kept {
            match fs.sync_file(path) {
                // Reads of its values will fail; the opening warns of it.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                synced => synced.map_err(|e| StorageError::io("sync", path, e))?,
            }
        }
        let mut preserved = HashMap::default();
        for (path, suffix) in &self.names {
            let second = free_name(fs, path, suffix).map_err(|e| StorageError::io("look for", path, e))?;
            fs.link_or_copy(path, &second).map_err(|e| StorageError::io("set aside", path, e))?;
            preserved.insert(path.clone(), second);
        }
        if !self.kept.is_empty() || !preserved.is_empty() {
            fs.sync_dir(&self.dir).map_err(|e| StorageError::io("sync", &self.dir, e))?;
        }
        Ok(preserved)
    }
}

impl Plan {
    /// Returns the files of a rebuilt tree.
    fn kept(&self, dir: &Path) -> Vec<PathBuf> {
        if !self.report.rebuilt {
            return Vec::new();
        }
        let kept = self.report.tables.iter().filter(|table| table.fate == TableFate::Kept);
        let blobs = self.tree.keyspaces.values().flat_map(|keyspace| keyspace.tables());
        let blobs: BTreeSet<BlobFileId> =
            blobs.flat_map(|meta| meta.extra.blobs.iter().map(|blob| blob.0)).collect();
        let blobs = blobs.into_iter().map(|id| blob_path(dir, id));
        kept.map(|table| dir.join(&table.file)).chain(blobs).collect()
    }

    /// Returns what the engine opens, and the report.
    fn into_repair(self, dir: &Path) -> (Repair, SalvageReport) {
        let (warnings, kept) = (self.warnings(), self.kept(dir));
        let Plan { tree, number, end, covered, unreadable, report, second_names } = self;
        let second = Second { dir: dir.to_owned(), names: second_names, kept };
        let repair = Repair {
            manifest: LoadedManifest { state: tree, number, end: end.unwrap_or(End::Clean { offset: 0 }) },
            covered,
            unreadable,
            rebuilt: report.rebuilt,
            needed: report.is_needed(),
            warnings,
            preserve: Box::new(move |fs| second.give(fs)),
        };
        (repair, report)
    }

    /// Returns the warnings for the caller that opened the database.
    fn warnings(&self) -> Vec<String> {
        let SalvageReport { manifest, losses, rebuilt, tables, .. } = &self.report;
        let mut warnings = manifest.clone();
        if *rebuilt {
            let count = |fate| tables.iter().filter(|table| table.fate == fate).count();
            warnings.push(format!(
                "the tree was rebuilt from {} tables; {} are superseded by these and set aside, and {} are set aside for \
                 other reasons",
                count(TableFate::Kept),
                count(TableFate::Superseded),
                count(TableFate::SetAside)
            ));
        }
        warnings.extend(losses.iter().cloned());
        warnings
    }
}

/// Restores the damaged database in `path` to a consistent state, with everything that can still be
/// read, so that it can be opened. No file is removed or overwritten: files that are no longer part
/// of the database are renamed to `….aside` (or `….damaged`), `CURRENT` and `OPTIONS` are copied
/// there before they are replaced, and the report lists them all. A directory in which no file
/// bears the mark of a database is [not touched](OpenError::Foreign).
///
/// If the manifest is damaged or missing, the tree is rebuilt from the tables and logs found.
/// Damaged records of logs are left out, and so are tables that cannot be opened. Writes may be
/// missing afterwards, and deleted keys may come back. Damaged blocks within a table remain errors
/// of the reads that touch them, and a missing blob file still needs the option
/// [`on_damage`](Options::on_damage).
///
/// An intact database is left as it is. With `dry_run` nothing is changed, and the report says what
/// would be done.
///
/// # Errors
///
/// Those of [`Db::open`], except that damage is no error: it is in the report.
pub fn salvage(path: impl AsRef<Path>, options: Options, dry_run: bool) -> Result<SalvageReport, OpenError> {
    let path = path.as_ref();
    let mut report = look(path, &options)?;
    report.dry_run = dry_run;
    if dry_run || !report.is_needed() {
        return Ok(report);
    }
    let options = Options { create_if_missing: true, error_if_exists: false, ..options };
    let (plan, done) = planned(path, &options);
    let (db, moved) = repair::open(path, options.clone(), &plan)?;
    let warnings = db.stats().warnings;
    db.close().map_err(|error| StorageError::io("close", path, std::io::Error::other(error)))?;
    let report = done.take().unwrap_or(report);
    Ok(SalvageReport { moved, warnings, ..report })
}

/// Opens the database in `path` for reading, as a [salvage](salvage()) would leave it, and changes
/// nothing.
///
/// # Errors
///
/// Those of [`Options::open_read_only`], and of a salvage.
pub fn open_read_only(path: impl AsRef<Path>, options: Options) -> Result<Db, OpenError> {
    let (plan, _) = planned(path.as_ref(), &options);
    repair::open_read_only(path.as_ref(), &options, &plan)
}

/// Opens the same to be checked. Returns what was found, too.
pub(crate) fn open_to_check(dir: &Path, options: &Options) -> Result<(Db, SalvageReport), OpenError> {
    let (plan, found) = planned(dir, options);
    let db = repair::open_to_check(dir, options, Some(&plan))?;
    Ok((db, found.take().unwrap_or_default()))
}

/// Returns a plan for an opening, and where its report will be.
#[expect(clippy::type_complexity, reason = "a closure has no other name")]
fn planned<'a>(
    dir: &'a Path,
    options: &'a Options,
) -> (impl Fn(&dyn FileSystem) -> Result<Option<Repair>, OpenError> + 'a, Rc<Cell<Option<SalvageReport>>>) {
    let found = Rc::<Cell<Option<SalvageReport>>>::default();
    let report = found.clone();
    let plan = move |fs: &dyn FileSystem| {
        let plan = prepare(fs, dir, options)?.map(|plan| plan.into_repair(dir));
        Ok(plan.map(|(repair, found)| {
            report.set(Some(found));
            repair
        }))
    };
    (plan, found)
}

/// Returns what a salvage of the database in `dir` would find and do. Changes nothing.
fn look(dir: &Path, options: &Options) -> Result<SalvageReport, OpenError> {
    options.check()?;
    let fs = repair::file_system(options);
    let foreign = |found| OpenError::Foreign { path: dir.to_owned(), found };
    match place::look_at(&*fs, dir)? {
        Place::Database | Place::Headless => {}
        Place::Unproven => {
            return Err(foreign("`CURRENT`, but no file that bears the mark of a database".to_owned()));
        }
        Place::Others(found) | Place::Foreign(found) => return Err(foreign(found)),
        Place::Free => return Err(OpenError::NotFound { path: dir.to_owned() }),
    }
    let path = lock_path(dir);
    let io = |operation, e: std::io::Error| StorageError::io(operation, &path, e);
    // Locking creates the lock file.
    let _lock = match fs.exists(&path).map_err(|e| io("look for", e))? {
        true => Some(
            fs.lock(&path).map_err(|e| io("lock", e))?.ok_or_else(|| repair::locked(&*fs, path.clone()))?,
        ),
        false => None,
    };
    let plan = prepare(&*fs, dir, options)?;
    plan.map(|plan| plan.report).ok_or(OpenError::NotFound { path: dir.to_owned() })
}
