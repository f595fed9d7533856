//! Turns a sequence of versions into tables: drops invisible versions, cuts at size and borders,
//! builds filters. Shared by flush and compaction.
//!
//! With [`protect_writes`](crate::Options::protect_writes), records are checked on their way. A
//! version is hashed when it is read, and again when it is added to its table. The sums of all that
//! was read and of all that each table was given are part of the result: the caller compares them
//! with the memtables, and with the finished tables. A sum says nothing about the order, so that is
//! checked too: of two versions of a key, the one that comes first hides the other.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use tamis_base::epochs::EpochMap;
use tamis_base::ids::{BlobFileId, TableId};
use tamis_base::key::{KeyBytes, KeyEnd, Kind, MAX_SEQNO, SeqNo, prefix_of};
use tamis_base::meta::{TableExtra, TableMeta};
use tamis_files::blob::Reference;
use tamis_files::sums::{RecordHash, RecordSum};
use tamis_files::table::{ExtraProperties, TableBuilder, TableOptions};
use tamis_files::tree::files::table_path;
use tamis_files::tree::tombstones::Tombstones;
use tamis_filter::Digest;
use tamis_policy::compaction::plan::is_guard;

use crate::compaction::blob_output::BlobOutput;
use crate::compaction::filters::FilterBuilder;
use crate::compaction::sink::{Older, TableSink, encode_epochs};
use crate::compaction::versions::{Kept, SeparatedValues, Surroundings, Versions};
use crate::error::StorageError;
use crate::io::Usage;
use crate::read::merge::MergeCursor;
use crate::tree::new_tables::NewFiles;

/// Bytes of keys and values written between two calls to the
/// [`JobControl`](crate::compaction::sink::JobControl), approximately.
const STRETCH_BYTES: u64 = 32 << 10;

/// The tables that a merge wrote.
#[derive(Debug)]
pub(crate) struct MergeOutput {
    pub(crate) tables: Vec<TableMeta>,
    pub(crate) files: NewFiles,
    /// Bytes of all these files.
    pub(crate) written_bytes: u64,
    /// The bytes of the blob files among them.
    pub(crate) blob_bytes: u64,
    /// If writes are protected: the sum of the versions that were read.
    pub(crate) read: RecordSum,
    /// If writes are protected: for each table, the sum of its versions. Otherwise empty.
    pub(crate) sums: Vec<RecordSum>,
}

/// A table being written.
struct OpenOutput {
    id: TableId,
    builder: TableBuilder,
    filter: FilterBuilder,
    first_key: Vec<u8>,
    /// Bytes kept for snapshots only, per snapshot.
    pinned: BTreeMap<SeqNo, u64>,
    /// Bytes referred to, per blob file.
    blobs: BTreeMap<BlobFileId, u64>,
    /// Bytes of the values in blob files.
    separated: u64,
    /// The smallest sequence number of a delete.
    oldest_delete: Option<SeqNo>,
    /// The sum of the versions, if writes are protected.
    sum: Option<RecordSum>,
}

/// Writes everything that `input` returns within its bounds to tables, along with the parts of
/// `tombstones` within them: no table covers a key outside.
///
/// `epochs` maps the key range of an output table to its epochs.
pub(crate) fn write_tables(
    sink: &TableSink<'_>,
    input: &mut MergeCursor,
    tombstones: Tombstones,
    older: &mut dyn Older,
    epochs: &dyn Fn(&KeyBytes, &KeyEnd) -> EpochMap,
) -> Result<Option<MergeOutput>, StorageError> {
    let (output, blobs) = (MergeOutput::new(sink), BlobOutput::default());
    let mut writer = MergeWriter { sink, epochs, output, blobs, reported: 0, complained: false };
    let is_whole = writer.run(input, &tombstones, older)?;
    Ok(is_whole.then_some(writer.output))
}

impl MergeOutput {
    pub(crate) fn new(sink: &TableSink<'_>) -> MergeOutput {
        let files = NewFiles::new(sink.dir, sink.garbage);
        MergeOutput {
            tables: Vec::new(),
            files,
            written_bytes: 0,
            blob_bytes: 0,
            read: RecordSum::default(),
            sums: Vec::new(),
        }
    }
}

struct MergeWriter<'a, 's> {
    sink: &'a TableSink<'s>,
    epochs: &'a dyn Fn(&KeyBytes, &KeyEnd) -> EpochMap,
    output: MergeOutput,
    blobs: BlobOutput,
    /// Bytes already reported to the job's control.
    reported: u64,
    /// A table with one wrong reference may have a million: only one is logged.
    complained: bool,
}

impl MergeWriter<'_, '_> {
    /// Returns `false` when cancelled.
    fn run(
        &mut self,
        input: &mut MergeCursor,
        tombstones: &Tombstones,
        older: &mut dyn Older,
    ) -> Result<bool, StorageError> {
        let (snapshots, level) = (self.sink.snapshots, self.sink.level);
        let (start, end) = input.bounds();
        let (start, end) = (start.to_vec(), end.map(<[u8]>::to_vec));
        let kept_tombstones = tombstones.retain_visible(&self.sink.readers(), !older.any());
        let around =
            Surroundings { snapshots, tombstones, kept: &kept_tombstones, level, values: self.sink.blobs };
        let mut versions = Versions::new(self.sink.rules, around);
        let mut open: Option<OpenOutput> = None;
        // The start key of the table being written; everything before it is in earlier tables.
        let mut lower: Vec<u8> = start.clone();
        // The current key, and its first bytes: most keys differ there.
        let mut key: Option<Vec<u8>> = None;
        let mut prefix = 0;
        // The number of the version before, if writes are protected.
        let mut before = MAX_SEQNO;
        let end_prefix = end.as_deref().map_or(u64::MAX, prefix_of);
        let mut digest = Digest::from_u64(0);
        let (mut next_border, mut next_edge) = (0, 0);
        let (mut steps, mut stretch) = (0u64, 0u64);
        match start.is_empty() {
            true => input.seek_to_first()?,
            false => input.seek(&start, MAX_SEQNO)?,
        }
        while input.valid() {
            let next_prefix = input.prefix();
            let (next, seq, kind, value) = input.version();
            if next_prefix >= end_prefix && end.as_deref().is_some_and(|end| next >= end) {
                break;
            }
            let origin = self.sink.protect.then(|| Origin::of(next, (seq, kind, value)));
            if let Some(origin) = origin {
                let in_order = |last: &[u8]| (last, Reverse(before)) <= (next, Reverse(seq));
                if !key.as_deref().is_none_or(in_order) {
                    let what = "the records to merge are out of order: memory has changed";
                    return Err(StorageError::corrupt(self.sink.dir, None, what));
                }
                before = seq;
                self.output.read.add(origin.hash, seq);
            }
            steps += 1;
            if steps.is_multiple_of(4096) || stretch >= STRETCH_BYTES {
                stretch = 0;
                if !self.go_on(open.as_ref()) {
                    return Ok(false);
                }
            }
            if next_prefix != prefix || key.as_deref() != Some(next) {
                if let Some(done) = &key {
                    versions.end(done, &mut |kept| self.keep(&mut open, done, digest, kept, None))?;
                }
                let new = key.get_or_insert_default();
                new.clear();
                new.extend_from_slice(next);
                prefix = next_prefix;
                versions.start(older.may_hold(new));
                digest = Digest::of(new);
                let mut border = self.sink.guard_bits.is_some_and(|bits| is_guard(digest, bits));
                while self.sink.borders.get(next_border).is_some_and(|b| b[..] <= new[..]) {
                    next_border += 1;
                    border = true;
                }
                let mut most = self.sink.max_table_bytes;
                while self.sink.edges.get(next_edge).is_some_and(|edge| edge[..] <= new[..]) {
                    next_edge += 1;
                    most = self.sink.max_table_bytes / 2;
                }
                let full = |table: &OpenOutput| table.builder.reaches(most);
                if open.as_ref().is_some_and(|table| border || full(table)) {
                    self.finish(open.take(), &lower, Some(new), &kept_tombstones)?;
                    lower.clone_from(new);
                }
            }
            let user_key = key.as_deref().expect("set above");
            let version = (seq, kind, value);
            let len = value.len() as u64;
            let before = self.blobs.bytes();
            versions.version(user_key, version, &mut |kept| {
                self.keep(&mut open, user_key, digest, kept, origin)
            })?;
            // The value of a reference may be moved: then it counts, not the reference.
            stretch += user_key.len() as u64 + len.max(self.blobs.bytes() - before);
            input.next()?;
        }
        if let Some(done) = &key {
            versions.end(done, &mut |kept| self.keep(&mut open, done, digest, kept, None))?;
        }
        self.finish(open.take(), &lower, end.as_deref(), &kept_tombstones)?;
        self.blobs.finish()?;
        self.output.blob_bytes = self.blobs.bytes();
        let goes_on = self.go_on(None);
        self.output.written_bytes += self.output.blob_bytes;
        Ok(goes_on)
    }

    /// Reports progress to the job's control; returns `false` if the job is cancelled.
    fn go_on(&mut self, open: Option<&OpenOutput>) -> bool {
        let tables = self.output.written_bytes + open.map_or(0, |table| table.builder.estimated_bytes());
        let written = tables + self.blobs.bytes();
        let new = written.saturating_sub(self.reported);
        self.reported = self.reported.max(written);
        self.sink.control.go_on(new)
    }

    /// Writes a version to the open table, or to a new one. `origin` is the version just read, if
    /// writes are protected.
    #[inline]
    fn keep(
        &mut self,
        open: &mut Option<OpenOutput>,
        key: &[u8],
        digest: Digest,
        kept: Kept<'_>,
        origin: Option<Origin>,
    ) -> Result<(), StorageError> {
        if origin.is_some_and(|origin| origin.has_become(key, &kept)) {
            let what = "a record changed while it was merged: memory has changed";
            return Err(StorageError::corrupt(self.sink.dir, None, what));
        }
        let table = match open {
            Some(table) => table,
            None => open.insert(self.open(key)?),
        };
        match kept.kind {
            Kind::Put if self.sink.separates(kept.value) => {}
            Kind::PutBlob => {}
            _ => return table.add(key, digest, kept),
        }
        self.keep_apart(table, key, digest, kept)
    }

    /// Writes a version whose value is in a blob file or goes into one.
    fn keep_apart(
        &mut self,
        table: &mut OpenOutput,
        key: &[u8],
        digest: Digest,
        kept: Kept<'_>,
    ) -> Result<(), StorageError> {
        let (sink, value) = (self.sink, kept.value);
        let at = match kept.kind {
            Kind::PutBlob => {
                let (at, most) = match sink.blobs.place(value) {
                    Ok(found) => found,
                    // It stays unchanged and counts for no file: only reads of this key fail.
                    Err(why) => {
                        if !std::mem::replace(&mut self.complained, true) {
                            log::warn!("a wrong reference stays where it is: {why}");
                        }
                        return table.add(key, digest, kept);
                    }
                };
                let files = &mut self.output.files;
                let mut stays = !sink.blobs.moves(&at) && self.blobs.can_stay(sink, files, &at);
                let mut moved = if stays { None } else { sink.blobs.read(value)? };
                if moved.is_none() && !stays {
                    // A value that cannot be read counts for its file if that is, or can become, a
                    // blob file.
                    stays = sink.blobs.may_become_blob(&at) && self.blobs.can_stay(sink, files, &at);
                    if !stays {
                        moved = sink.blobs.read_from_log(value)?;
                    }
                }
                let Some(value) = moved else {
                    // If the value cannot be read, only reads of this key fail.
                    if stays {
                        table.refer(&at, most, kept.pinned);
                    }
                    return table.add(key, digest, kept);
                };
                if !sink.separates(&value) {
                    return table.add(key, digest, Kept { kind: Kind::Put, value: &value, ..kept });
                }
                self.blobs.put(sink, &mut self.output.files, &value)?
            }
            _ => self.blobs.put(sink, &mut self.output.files, value)?,
        };
        table.refer(&at, u64::MAX, kept.pinned);
        table.add(key, digest, Kept { kind: Kind::PutBlob, value: &at.encode(), ..kept })
    }

    fn open(&mut self, first_key: &[u8]) -> Result<OpenOutput, StorageError> {
        let id = self.sink.next_file.fetch_add(1, Relaxed);
        let path = table_path(self.sink.dir, id);
        let file =
            self.sink.fs.create(&path, Usage::Table).map_err(|e| StorageError::io("create", &path, e))?;
        self.output.files.add_table(id);
        let options = self.sink.options;
        let table_options = TableOptions {
            block_bytes: options.block_bytes as usize,
            restart_interval: options.restart_interval,
            hash_index: true,
            compression: options.compression.at(self.sink.level).of_files(),
        };
        Ok(OpenOutput {
            id,
            builder: TableBuilder::new(file, path, table_options),
            filter: FilterBuilder::new(
                options,
                self.sink.filter,
                self.sink.filter_bits.most(),
                self.sink.new_keys,
            )
            .with_salt(id),
            first_key: first_key.to_vec(),
            pinned: BTreeMap::new(),
            blobs: BTreeMap::new(),
            separated: 0,
            oldest_delete: None,
            sum: self.sink.protect.then(RecordSum::default),
        })
    }

    /// Finishes the table that holds the key range [`lower`, `upper`), including its range
    /// tombstones. If there are no keys, creates a table for the tombstones alone.
    fn finish(
        &mut self,
        open: Option<OpenOutput>,
        lower: &[u8],
        upper: Option<&[u8]>,
        kept: &Tombstones,
    ) -> Result<(), StorageError> {
        let clipped = kept.clip(lower, upper);
        let table = match open {
            Some(table) => table,
            None if clipped.is_empty() => return Ok(()),
            None => self.open(lower)?,
        };
        let OpenOutput { id, builder, filter, first_key, pinned, blobs, separated, mut oldest_delete, sum } =
            table;
        let blobs: Vec<_> = blobs.into_iter().collect();
        // Finish the values before the table: without a manifest, salvage takes a whole table as
        // replacing its inputs.
        self.blobs.finish()?;
        let written = builder.properties();
        let (entries, deletes) = (written.entries, written.deletes);
        let raw_bytes = written.raw_key_bytes + written.raw_value_bytes + separated;
        let (mut min_seq, mut max_seq) = (written.min_seq, written.max_seq);
        let last_key = builder.last_key();
        let mut smallest: Option<KeyBytes> = (entries > 0).then(|| first_key[..].into());
        let mut largest: Option<KeyEnd> = (entries > 0).then(|| KeyEnd::Included(last_key[..].into()));
        for fragment in clipped.fragments() {
            let start = &fragment.start;
            smallest = Some(smallest.map_or_else(|| start.clone(), |s| s.min(start.clone())));
            let end = fragment.end.clone().map_or(KeyEnd::Unbounded, KeyEnd::Excluded);
            largest = Some(largest.map_or_else(|| end.clone(), |l| l.max(end.clone())));
            for &seq in &*fragment.seqs {
                min_seq = min_seq.min(seq);
                max_seq = max_seq.max(seq);
                oldest_delete = Some(oldest_delete.map_or(seq, |oldest| oldest.min(seq)));
            }
        }
        let (Some(smallest), Some(largest)) = (smallest, largest) else { return Ok(()) };
        let epochs = (self.epochs)(&smallest, &largest);
        let bits = self.sink.filter_bits.of_table(&smallest, &largest, entries);
        let filter = filter.with_bits(bits).finish(self.sink.options, id).unwrap_or_else(|why| {
            log::warn!("table {id} is written without a filter: {why}");
            None
        });
        let path = table_path(self.sink.dir, id);
        let extra = ExtraProperties {
            filter_kind: filter.as_ref().map_or_else(String::new, |filter| filter.kind.to_owned()),
            range_tombstones: clipped.len() as u64,
            epochs: encode_epochs(&epochs),
            external: 0,
            origin: self.sink.lineage.origin(lower, upper, self.epochs, self.sink.written, max_seq),
            blobs: blobs.clone(),
        };
        let tombstones = (!clipped.is_empty()).then(|| {
            let mut bytes = Vec::new();
            clipped.encode(&mut bytes);
            bytes
        });
        let finished = builder.finish(filter.and_then(|filter| filter.bytes), tombstones, extra)?;
        log::debug!("wrote {} with {entries} entries", path.display());
        self.output.written_bytes += finished.file_bytes;
        self.output.sums.extend(sum);
        self.output.tables.push(TableMeta {
            id,
            file_bytes: finished.file_bytes,
            smallest,
            largest,
            entries,
            deletes,
            range_tombstones: clipped.len() as u64,
            raw_bytes,
            min_seq,
            max_seq,
            epochs,
            extra: TableExtra {
                written: self.sink.written,
                pinned: pinned.into_iter().collect(),
                oldest_delete: oldest_delete.map(|seq| self.sink.deletes.oldest(seq)),
                blobs,
                ..TableExtra::default()
            },
        });
        Ok(())
    }
}

/// A version as it was read.
#[derive(Clone, Copy)]
struct Origin {
    hash: RecordHash,
    seq: SeqNo,
    kind: Kind,
    /// Where its value is: versions that a merge changes have theirs elsewhere.
    value: *const u8,
}

impl Origin {
    fn of(key: &[u8], (seq, kind, value): (SeqNo, Kind, &[u8])) -> Origin {
        Origin { hash: RecordHash::of(kind as u8, key, value), seq, kind, value: value.as_ptr() }
    }

    /// Reports whether `kept` is this version, and is not what it was.
    fn has_become(&self, key: &[u8], kept: &Kept<'_>) -> bool {
        let is_it = kept.kind == self.kind && kept.value.as_ptr() == self.value;
        // Numbers that no reader can tell from older ones become 0.
        let has_number = [self.seq, 0].contains(&kept.seq);
        is_it && (!has_number || RecordHash::of(kept.kind as u8, key, kept.value) != self.hash)
    }
}

impl OpenOutput {
    /// Counts a value in a blob file that the next entry refers to; of this file, at most `most`
    /// bytes may be listed. Wrong references may name one record twice, and a table that lists more
    /// than the file has could not be opened.
    fn refer(&mut self, at: &Reference, most: u64, pinned: Option<SeqNo>) {
        let refers = self.blobs.entry(at.file).or_default();
        *refers = refers.saturating_add(at.span).min(most);
        self.separated = self.separated.saturating_add(at.len);
        if let Some(snapshot) = pinned {
            *self.pinned.entry(snapshot).or_default() += at.len;
        }
    }

    #[inline]
    fn add(&mut self, key: &[u8], digest: Digest, kept: Kept<'_>) -> Result<(), StorageError> {
        let Kept { seq, kind, value, pinned } = kept;
        if let Some(snapshot) = pinned {
            *self.pinned.entry(snapshot).or_default() += (key.len() + value.len()) as u64;
        }
        if kind == Kind::Delete {
            self.oldest_delete = Some(self.oldest_delete.map_or(seq, |oldest| oldest.min(seq)));
        }
        if let Some(sum) = &mut self.sum {
            sum.add(RecordHash::of(kind as u8, key, value), seq);
        }
        self.filter.add(key, digest);
        self.builder.add(key, digest, seq, kind, value)
    }
}
