//! Verification of everything on disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use tamis_base::ids::{BlobFileId, LogId};
use tamis_base::key::prefix_of;
use tamis_files::sums::RecordSum;
use tamis_files::table::{CursorOptions, ELASTIC, TableCursor, UnitDirectory, read_filter};
use tamis_files::tree::files::{filter_path, log_path, manifest_name, name_of};
use tamis_files::tree::replay::{ReplayOptions, replay};
use tamis_filter::{BloomScheme, ElasticSet, IndependentDigests};

use crate::error::{AdminError, Corruption, Error, OpenError, StorageError};
use crate::interrupt;
use crate::observe::cost::ReadCost;
use crate::select::{Probe, key_list_problem};
use crate::session::Session;
use crate::tree::blobs;
use crate::tree::open_table::{OpenTable, TableFilter};
use crate::tree::version::Version;

/// What [`Db::verify`](crate::Db::verify) found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct VerifyReport {
    /// Tables read.
    pub tables: usize,
    /// Data blocks read.
    pub blocks: u64,
    /// Filter files read.
    pub filter_files: usize,
    /// Blob files read, as far as tables refer to them.
    pub blob_files: usize,
    /// Bytes of the tables, values in blob files, and filter files read.
    pub bytes: u64,
    /// Key versions seen.
    pub entries: u64,
    /// Writes read from the logs.
    pub log_writes: u64,
    /// Everything that is wrong, in words, with file and offset.
    pub problems: Vec<String>,
    /// Why the database cannot be opened, if damage keeps it from that: only
    /// `tamis_doctor::verify` finds out.
    pub unopenable: Option<String>,
    /// Every file that was read, damaged or sound.
    pub files: Vec<VerifiedFile>,
}

/// One file that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct VerifiedFile {
    /// Its name.
    pub file: String,
    /// What it is.
    pub kind: VerifiedKind,
    /// The keyspace that it belongs to; empty for a manifest or a log, which have parts of all
    /// keyspaces, and if it is unknown.
    pub keyspace: String,
    /// Key versions in a table, as far as known; values in a blob file, including those that no
    /// table refers to any more, unless it is a log; writes that could be read from a log; 0 for
    /// others.
    pub entries: u64,
    /// What is wrong with it, in words; empty if it is sound.
    pub problems: Vec<String>,
}

/// The kind of a file that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum VerifiedKind {
    /// `CURRENT` or the manifest that it names.
    Manifest,
    /// A table.
    Table,
    /// A blob file.
    Blob,
    /// A filter file: without it, answers are the same.
    Filter,
    /// A log.
    Log,
}

impl VerifiedKind {
    /// Returns the kind in one or two words.
    pub fn name(self) -> &'static str {
        match self {
            VerifiedKind::Manifest => "manifest",
            VerifiedKind::Table => "table",
            VerifiedKind::Blob => "blob file",
            VerifiedKind::Filter => "filter file",
            VerifiedKind::Log => "log",
        }
    }
}

impl Session {
    pub(crate) fn verify(&self) -> Result<VerifyReport, Error> {
        self.gate.check_process()?;
        let mut report = VerifyReport::default();
        let manifest = manifest_name(self.state().catalogue.manifest_number());
        report.note(manifest, VerifiedKind::Manifest, "", 0, Vec::new());
        self.check_trees(&mut report)?;
        self.check_logs(&mut report);
        Ok(report)
    }

    /// Checks the tables and filter files of all keyspaces, unless the call is [given
    /// up](interrupt).
    pub(crate) fn check_trees(&self, report: &mut VerifyReport) -> Result<(), AdminError> {
        let keyspaces: Vec<_> = self.state().catalogue.keyspaces().values().cloned().collect();
        for keyspace in keyspaces {
            let view = keyspace.view.load_full();
            check_shape(keyspace.name(), &view.version, &mut report.problems);
            check_epochs(keyspace.name(), &view.version, &mut report.problems);
            let mut of_blobs: BTreeMap<BlobFileId, Vec<String>> = BTreeMap::new();
            for table in &view.version.tables {
                let before = report.problems.len();
                check_table(table, report);
                check_blobs(table, report, &mut of_blobs);
                if interrupt::is_interrupted() {
                    return Err(AdminError::Interrupted);
                }
                let problems = report.problems[before..].to_vec();
                let name = name_of(table.table.path());
                report.note(name, VerifiedKind::Table, keyspace.name(), table.meta.entries, problems);
            }
            for blob in &view.version.blobs {
                let file = &blob.file.file;
                let problems = of_blobs.remove(&file.id()).unwrap_or_default();
                report.problems.extend(problems.iter().cloned());
                report.blob_files += 1;
                report.note(
                    name_of(file.path()),
                    VerifiedKind::Blob,
                    keyspace.name(),
                    file.footer().map_or(0, |footer| footer.records),
                    problems,
                );
            }
            let named = self.named_filter_files(keyspace.id);
            let (files, wrong) = self.check_filter_files(&*self.fs, keyspace.id, &mut |bytes| {
                report.bytes += bytes;
                !interrupt::is_interrupted()
            });
            if interrupt::is_interrupted() {
                return Err(AdminError::Interrupted);
            }
            report.filter_files += files;
            for id in named {
                let path = filter_path(&self.dir, id);
                let of_it = wrong.iter().filter(|why| why.path() == path).map(ToString::to_string).collect();
                report.note(name_of(&path), VerifiedKind::Filter, keyspace.name(), 0, of_it);
            }
            report.problems.extend(wrong.iter().map(|why| format!("keyspace `{}`: {why}", keyspace.name())));
        }
        Ok(())
    }

    /// Checks the logs together with the one being written: writers wait meanwhile.
    fn check_logs(&self, report: &mut VerifyReport) {
        let log = self.lock_log();
        // None is cut short while it is read.
        self.log.trim();
        loop {
            let needed = || -> Vec<_> {
                let state = self.state();
                let floor = state.catalogue.tree().log_floor();
                state.logs.rolled_from(floor).chain(log.is_open().then(|| log.id())).collect()
            };
            let (mut logs, mut writes) = (needed(), BTreeMap::<LogId, u64>::new());
            if self.gate.is_read_only() {
                // A writer elsewhere removes logs whose contents are in tables.
                logs.retain(|id| self.fs.exists(&log_path(&self.dir, *id)).unwrap_or(true));
            }
            let replayed =
                replay::<OpenError>(&*self.fs, &self.dir, &logs, ReplayOptions::default(), |log, _, _| {
                    *writes.entry(log).or_default() += 1;
                    Ok(())
                });
            let problems = match replayed {
                // A torn, never synced tail is not damage; opening has warned of it.
                Ok(_) if !log.is_open() => Vec::new(),
                Ok(replayed) => replayed.warnings,
                Err(error) => vec![error.to_string()],
            };
            // A flush may make a log obsolete while it is read here, and then it is removed or
            // overwritten.
            let still_needed = needed();
            if problems.is_empty() || logs.iter().all(|id| still_needed.contains(id)) {
                report.log_writes += writes.values().sum::<u64>();
                for id in logs {
                    let path = log_path(&self.dir, id);
                    // What is wrong between two logs names neither first: it counts for the one
                    // that it ends in.
                    let of_it = problems.iter().filter(|what| what.starts_with(&*path.to_string_lossy()));
                    let of_it = of_it.cloned().collect();
                    let count = writes.get(&id).copied().unwrap_or(0);
                    report.note(name_of(&path), VerifiedKind::Log, "", count, of_it);
                }
                report.problems.extend(problems);
                return;
            }
        }
    }
}

impl VerifyReport {
    /// Adds a file: for `tamis-doctor`.
    #[doc(hidden)]
    pub fn note(
        &mut self,
        file: String,
        kind: VerifiedKind,
        keyspace: &str,
        entries: u64,
        problems: Vec<String>,
    ) {
        let keyspace = keyspace.to_owned();
        self.files.push(VerifiedFile { file, kind, keyspace, entries, problems });
    }
}

fn check_shape(keyspace: &str, version: &Version, problems: &mut Vec<String>) {
    for run in &version.runs {
        for pair in version.tables[run.tables.clone()].windows(2) {
            if pair[0].meta.overlaps(&pair[1].meta) {
                let (a, b) = (pair[0].meta.id, pair[1].meta.id);
                let (level, run) = (run.level, run.id);
                problems.push(format!(
                    "keyspace `{keyspace}`: tables {a} and {b} of run {run} in level {level} overlap"
                ));
            }
        }
    }
}

/// Checks that at every key the tables covering it hold disjoint epochs, with those of newer runs
/// later, so that a filter that stores a key's epoch identifies a single table. Between two cuts no
/// table begins and no epochs change, so checking the cuts checks all keys.
fn check_epochs(keyspace: &str, version: &Version, problems: &mut Vec<String>) {
    let cuts = version.tables.iter().flat_map(|table| {
        let starts = table.meta.epochs.segments().iter().map(|segment| &segment.start);
        starts.filter(|start| table.meta.covers(start)).chain([&table.meta.smallest])
    });
    let cuts: std::collections::BTreeSet<&[u8]> = cuts.map(|key| &key[..]).collect();
    for key in cuts {
        let prefix = tamis_base::key::prefix_of(key);
        let covering = version.runs.iter().filter_map(|run| version.table_for(run, key, prefix));
        let mut newer: Option<(u64, u64)> = None;
        for table in covering.map(|table| &version.tables[table].meta) {
            let (lo, hi) = table.epochs.at(key);
            if lo == hi {
                continue;
            }
            if let Some((id, newer_lo)) = newer.filter(|(_, newer_lo)| *newer_lo < hi) {
                problems.push(format!(
                    "keyspace `{keyspace}`: at key {key:02x?} table {id} holds epochs from {newer_lo}, and the \
                     older table {} up to {hi}",
                    table.id
                ));
                break;
            }
            newer = Some((table.id, lo));
        }
    }
}

/// Reads tables that were just written, and fails unless they have the records that they were given,
/// in order, and filters that know their keys. `sums` has the sum of each; it is empty if writes are
/// not protected.
pub(crate) fn check_written(tables: &[Arc<OpenTable>], sums: &[RecordSum]) -> Result<(), StorageError> {
    for (table, sum) in tables.iter().zip(sums) {
        let mut report = VerifyReport::default();
        let found = check_table(table, &mut report);
        let differs = || "the table does not have what it was given: memory has changed".to_owned();
        let wrong = report.problems.into_iter().next().or_else(|| (found != *sum).then(differs));
        if let Some(what) = wrong {
            return Err(StorageError::corrupt(table.table.path(), None, what));
        }
    }
    Ok(())
}

/// Reads all of a table and adds any problems to the report. Returns the sum of its entries.
pub(crate) fn check_table(table: &OpenTable, report: &mut VerifyReport) -> RecordSum {
    report.tables += 1;
    report.bytes += table.meta.file_bytes;
    let check = table.table.check_while(&mut |_| !interrupt::is_interrupted());
    if interrupt::is_interrupted() {
        // Only a part was read, which says nothing of the rest.
        return check.sum;
    }
    if check.problems.is_empty() && table.table.why_lost().is_none() {
        table.table.flaw().forget();
    }
    report.blocks += check.blocks;
    report.entries += check.entries;
    report.problems.extend(
        check
            .problems
            .iter()
            .map(|(offset, what)| format!("{} at offset {offset}: {what}", table.table.path().display())),
    );
    let name = table.table.path().display();
    if table.meta.range_tombstones != table.tombstones.as_ref().map_or(0, |t| t.len() as u64) {
        report.problems.push(format!("{name}: the manifest and the table disagree on the range tombstones"));
    }
    if table.meta.extra.global_seq.is_some_and(|seq| (table.meta.min_seq, table.meta.max_seq) != (seq, seq)) {
        report
            .problems
            .push(format!("{name}: the manifest assigns several sequence numbers to an ingested table"));
    }
    check_filter(table, report);
    check.sum
}

/// Checks that a table's filter can be read, and denies no key.
fn check_filter(table: &OpenTable, report: &mut VerifyReport) {
    let name = table.table.path().display();
    if !table.table.has_filter() {
        return;
    }
    if matches!(table.filter, TableFilter::Keys) {
        report.problems.extend(key_list_problem(table).map(|what| format!("{name}: its key list {what}")));
        return;
    }
    if table.table.properties().filter_kind == ELASTIC {
        match UnitDirectory::read(&table.table) {
            Err(why) => report.problems.push(format!("{name}: its filter: {why}")),
            Ok(directory) => {
                if table.filter_is_unusable() {
                    report.problems.push(format!("{name}: its filter was found unusable before"));
                }
                check_units(table, &directory, &mut report.problems);
            }
        }
        return;
    }
    match read_filter(&table.table) {
        Err(why) => report.problems.push(format!("{name}: its filter: {why}")),
        Ok(filter) => {
            if table.filter_is_unusable() {
                report.problems.push(format!("{name}: its filter was found unusable before"));
            }
            let denied = keys_denied(table, &filter);
            if denied > 0 {
                report.problems.push(format!("{name}: its filter denies {denied} of its keys"));
            }
        }
    }
}

/// The error's text advises to verify.
/// Says what is damaged: for `tamis-doctor`.
pub fn in_words(error: &StorageError) -> String {
    match error {
        StorageError::Io(failure) => failure.to_string(),
        StorageError::Corrupt(Corruption { path, offset, what, .. }) => {
            let at = offset.map_or(String::new(), |offset| format!(" at offset {offset}"));
            format!("{}{at}: {what}", path.display())
        }
        _ => error.to_string(),
    }
}

/// Reads all values in blob files that a table refers to. What is wrong with the table is added to
/// the report, and what is wrong with a file, once, to `of_blobs`.
fn check_blobs(
    table: &OpenTable,
    report: &mut VerifyReport,
    of_blobs: &mut BTreeMap<BlobFileId, Vec<String>>,
) {
    let file = |id| {
        let file = table.blobs.file(id)?;
        Some(file.why_lost().map_or(Ok(file), Err))
    };
    let problems = blobs::check(&table.table, file, &mut |bytes| {
        report.bytes += bytes;
        !interrupt::is_interrupted()
    });
    for (file, why) in problems {
        table.note_damage(&why);
        let what = in_words(&why);
        match file {
            None => report.problems.push(what),
            Some(id) => {
                let known = of_blobs.entry(id).or_default();
                if !known.contains(&what) {
                    known.push(what);
                }
            }
        }
    }
}

/// Loads every unit, probes all units of a segment for all of its keys, and counts these. Memory:
/// the units of one segment.
fn check_units(table: &OpenTable, directory: &UnitDirectory, problems: &mut Vec<String>) {
    let name = table.table.path().display();
    let spec = directory.spec();
    let hashes = match spec.scheme {
        BloomScheme::Independent => directory.units() * directory.probes(),
        BloomScheme::Rotation | BloomScheme::DoubleHashing => 1,
    };
    let group = |segment: usize, problems: &mut Vec<String>| {
        let mut set = ElasticSet::new(directory.salt(segment));
        for unit in 0..directory.units() {
            match directory.read_unit(&table.table, segment, unit) {
                Ok(unit) => {
                    problems.extend(set.load(unit).err().map(|why| format!("{name}: its filter: {why}")))
                }
                Err(why) => problems.push(why.to_string()),
            }
        }
        set
    };
    let options = CursorOptions { fill_cache: false, read_ahead: 1 << 20 };
    let mut cursor = TableCursor::new(table.table.clone(), options);
    let (mut found, mut denied) = (vec![0u64; directory.segments()], 0u64);
    let (mut set, mut opened) = (ElasticSet::new(0), 0);
    let mut last: Option<IndependentDigests> = None;
    // The check of the blocks reports damaged ones.
    let mut moved = cursor.seek_to_first();
    while moved.is_ok() && cursor.valid() && !interrupt::is_interrupted() {
        let key = cursor.key();
        let segment = directory.segment_of(key, prefix_of(key));
        while opened <= segment {
            set = group(opened, problems);
            opened += 1;
        }
        // The first is the digest that the other schemes derive everything from.
        let digests = IndependentDigests::of(key, hashes);
        let maybe = match spec.scheme {
            BloomScheme::Independent => set.contains_independent(&digests).unwrap_or(true),
            BloomScheme::Rotation | BloomScheme::DoubleHashing => set.contains(digests.as_slice()[0]),
        };
        denied += u64::from(!maybe);
        // Keys with the same hashes count once, as they do when a filter is built.
        if last.is_none_or(|last| last.as_slice() != digests.as_slice()) {
            found[segment] += 1;
            last = Some(digests);
        }
        moved = cursor.next();
    }
    for segment in opened..directory.segments() {
        group(segment, problems);
    }
    if denied > 0 {
        problems.push(format!("{name}: its filter denies {denied} of its keys"));
    }
    let mut wrong = (0..directory.segments()).filter(|segment| directory.keys(*segment) != found[*segment]);
    if let (Ok(()), Some(segment)) = (&moved, wrong.next()) {
        problems.push(format!(
            "{name}: segment {segment} of its filter claims {} keys but has {}; {} others are wrong, too",
            directory.keys(segment),
            found[segment],
            wrong.count()
        ));
    }
}

/// Returns the number of the table's keys that its filter wrongly denies.
fn keys_denied(table: &OpenTable, filter: &tamis_filter::Filter) -> u64 {
    let mut cursor =
        TableCursor::new(table.table.clone(), CursorOptions { fill_cache: false, read_ahead: 1 << 20 });
    let (mut denied, mut cost) = (0, ReadCost::default());
    // The check of the blocks reports damaged ones.
    let mut moved = cursor.seek_to_first();
    while moved.is_ok() && cursor.valid() && !interrupt::is_interrupted() {
        let mut probe = Probe::new(cursor.key(), Some(tamis_filter::Digest::of(cursor.key())));
        denied += u64::from(!crate::select::ask_filter(filter, &mut probe, &mut cost));
        moved = cursor.next();
    }
    denied
}

#[cfg(test)]
mod tests;
