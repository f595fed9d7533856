//! A survey of the directory: the tables as they describe themselves, and the logs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use tamis::{OpenError, StorageError};
use tamis_base::collections::HashMap;
use tamis_base::epochs::{EpochMap, EpochSegment};
use tamis_base::ids::{KeyspaceId, LogId, TableId};
use tamis_base::key::{KeyBytes, KeyEnd, MAX_SEQNO, SeqNo};
use tamis_base::meta::{TableExtra, TableMeta};
use tamis_env::io::FileSystem;
use tamis_files::codec::Decoder;
use tamis_files::table::{Origin, ReaderConfig, Table};
use tamis_files::tree::edit::{NUMBER_LIMIT, VersionEdit};
use tamis_files::tree::files::{log_path, table_path};
use tamis_files::tree::replay::{ReplayOptions, Replayed, replay};
use tamis_files::tree::tombstones::Tombstones;

/// A table as its file describes it.
#[derive(Clone, Debug)]
pub(super) struct Described {
    pub(super) meta: TableMeta,
    /// For a merge output: the key range that it stands for, with the epochs of its inputs.
    pub(super) stretch: Option<TableMeta>,
    pub(super) origin: Origin,
    pub(super) external: bool,
}

/// Describes table `id`, or says why it cannot be used. Nothing that the table says is trusted.
/// Errors: failed reads.
pub(super) fn describe(
    fs: &dyn FileSystem,
    dir: &Path,
    id: TableId,
) -> Result<Result<Described, String>, StorageError> {
    let path = table_path(dir, id);
    let damage = |error: StorageError| match error {
        StorageError::Corrupt(damage) => Ok(Err(damage.what)),
        error => Err(error),
    };
    let table = match Table::open(fs, &path, id, ReaderConfig::for_a_look()) {
        Ok(table) => table,
        Err(error) => return damage(error),
    };
    let tombstones = match table.tombstone_bytes() {
        Ok(bytes) => bytes.map(|bytes| Tombstones::decode(&bytes)),
        Err(error) => return damage(error),
    };
    let tombstones = match tombstones {
        None => Tombstones::default(),
        Some(Some(tombstones)) => tombstones,
        Some(None) => return Ok(Err("its range tombstones do not decode".into())),
    };
    Ok(described(&table, id, &tombstones).map_err(str::to_owned))
}

fn described(table: &Table, id: TableId, tombstones: &Tombstones) -> Result<Described, &'static str> {
    let p = table.properties();
    let (mut smallest, mut largest): (Option<KeyBytes>, Option<KeyEnd>) = (None, None);
    let (mut min_seq, mut max_seq) = (SeqNo::MAX, 0);
    if p.entries > 0 {
        smallest = Some(p.smallest[..].into());
        largest = Some(KeyEnd::Included(p.largest[..].into()));
        (min_seq, max_seq) = (p.min_seq, p.max_seq);
    }
    for fragment in tombstones.fragments() {
        let (start, end) = (fragment.start.clone(), fragment.end.clone());
        let end = end.map_or(KeyEnd::Unbounded, KeyEnd::Excluded);
        smallest = Some(smallest.map_or_else(|| start.clone(), |key| key.min(start.clone())));
        largest = Some(largest.map_or_else(|| end.clone(), |key| key.max(end.clone())));
        for &seq in &*fragment.seqs {
            (min_seq, max_seq) = (min_seq.min(seq), max_seq.max(seq));
        }
    }
    let (Some(smallest), Some(largest)) = (smallest, largest) else { return Err("it holds nothing") };
    let external = p.external > 0;
    let epochs = match external {
        // For an external table, only the manifest knows it.
        true => EpochMap::flush(smallest.clone(), 0),
        false => decode_epochs(&p.epochs).ok_or("it does not say which flushes its entries come from")?,
    };
    let raw_bytes = p.raw_key_bytes.checked_add(p.raw_value_bytes).ok_or("its counts are too large")?;
    if max_seq.max(p.origin.flushed) > MAX_SEQNO / 2 {
        return Err("it holds a sequence number that no database reaches");
    }
    if p.blobs.last().is_some_and(|blob| blob.0 >= NUMBER_LIMIT / 4) {
        // The numbers of later files have to be larger, and below half of the limit.
        return Err("it refers to a blob file whose number no database reaches");
    }
    let meta = TableMeta {
        id,
        file_bytes: table.file_bytes(),
        smallest,
        largest,
        entries: p.entries,
        deletes: p.deletes,
        range_tombstones: tombstones.len() as u64,
        raw_bytes,
        min_seq,
        max_seq,
        epochs,
        extra: TableExtra { written: p.origin.written, blobs: p.blobs.clone(), ..TableExtra::default() },
    };
    if let Some(merged) = &p.origin.merged {
        let later = |ids: &[TableId]| ids.last().is_some_and(|&last| last >= merged.mark);
        let reversed = merged.to.as_ref().is_some_and(|to| *to <= merged.from);
        if merged.mark > id || later(&merged.inputs) || later(&merged.before) || reversed {
            return Err("its description of its origin contradicts itself");
        }
    }
    // Data that a manifest would reject must not be written into one.
    let mut bytes = Vec::new();
    VersionEdit { added: vec![(0, 0, 0, meta.clone())], ..VersionEdit::default() }.encode(&mut bytes);
    VersionEdit::decode(&bytes).map_err(|_| "its description of itself contradicts itself")?;
    let stretch = p.origin.merged.as_ref().map(|merged| {
        let epochs = decode_epochs(&merged.epochs).unwrap_or_else(|| meta.epochs.clone());
        let largest = merged.to.as_ref().map_or(KeyEnd::Unbounded, |to| KeyEnd::Excluded(to[..].into()));
        TableMeta { smallest: merged.from[..].into(), largest, epochs, ..meta.clone() }
    });
    Ok(Described { meta, stretch, origin: p.origin.clone(), external })
}

fn decode_epochs(bytes: &[u8]) -> Option<EpochMap> {
    let mut input = Decoder::new(bytes);
    let mut segments = Vec::new();
    while !input.is_empty() {
        let segment = EpochSegment { start: input.bytes()?.into(), lo: input.varint()?, hi: input.varint()? };
        if segment.hi > NUMBER_LIMIT / 2 {
            return None;
        }
        segments.push(segment);
    }
    EpochMap::from_segments(segments)
}

/// Reads all of a table and returns what is wrong with it, if anything.
pub(super) fn examine(fs: &dyn FileSystem, dir: &Path, id: TableId) -> Result<Option<String>, StorageError> {
    let path = table_path(dir, id);
    match Table::open(fs, &path, id, ReaderConfig::for_a_look()) {
        Ok(table) => {
            let problems = table.check().problems;
            Ok(problems.first().map(|(offset, what)| format!("damaged at offset {offset}: {what}")))
        }
        Err(StorageError::Corrupt(damage)) => Ok(Some(damage.what)),
        Err(error) => Err(error),
    }
}

/// The contents of one log.
#[derive(Clone, Debug, Default)]
pub(super) struct LogScan {
    pub(super) id: LogId,
    pub(super) writes: u64,
    /// The number of writes that are in no table.
    pub(super) new: u64,
    pub(super) first_seq: SeqNo,
    pub(super) last_seq: SeqNo,
    pub(super) problems: Vec<String>,
    /// Whether it cannot be replayed at all.
    pub(super) unusable: bool,
    /// Keyspaces that it writes to, each with the number of its first write there.
    pub(super) keyspaces: BTreeMap<KeyspaceId, SeqNo>,
}

/// Reads one log. `covered`: the write up to which each keyspace is in tables.
pub(super) fn scan_log(
    fs: &dyn FileSystem,
    dir: &Path,
    id: LogId,
    covered: &HashMap<KeyspaceId, SeqNo>,
) -> Result<LogScan, OpenError> {
    let mut scan = LogScan { id, ..LogScan::default() };
    let replayed =
        replay::<OpenError>(fs, dir, &[id], ReplayOptions { salvage: true, until: None }, |_, seq, op| {
            let keyspace = op.keyspace();
            scan.writes += 1;
            scan.first_seq = if scan.first_seq == 0 { seq } else { scan.first_seq };
            scan.last_seq = seq;
            if !op.is_ingestion() {
                scan.keyspaces.entry(keyspace).or_insert(seq);
                scan.new += u64::from(seq > covered.get(&keyspace).copied().unwrap_or(0));
            }
            Ok(())
        });
    match replayed {
        // Missing successors show once all logs are replayed.
        Ok(Replayed { warnings, .. }) => {
            scan.problems = warnings.into_iter().filter(|w| !w.contains("says that it follows")).collect();
        }
        Err(OpenError::Storage(StorageError::Corrupt(damage))) => {
            scan.problems.push(damage.to_string());
            scan.unusable = true;
        }
        // Among them: a log of a newer format, which is as good as it was.
        Err(error) => return Err(error),
    }
    if scan.last_seq > MAX_SEQNO / 2 {
        let what = "it holds a sequence number that no database reaches";
        scan.problems.push(format!("{}: {what}", log_path(dir, id).display()));
        scan.unusable = true;
    }
    Ok(scan)
}

/// Tables by number, for lookups.
pub(super) type Tables = BTreeMap<TableId, Arc<Described>>;
