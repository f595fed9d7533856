//! Version edits: the changes that one manifest record makes.
//!
//! An edit is a sequence of fields, each a tag, a length and that many bytes
//! (`docs/formats/manifest.md`). A reader skips unknown fields with an odd tag and rejects an edit
//! with an unknown even tag. A table's description ends with a sequence of the same kind.
//!
//! Decoding trusts nothing. Every length is checked against the remaining bytes before memory is
//! allocated. Numbers of 2^56 or more are rejected, and counters above 2^56, so adding one never
//! overflows.

use tamis_base::epochs::{Epoch, EpochMap, EpochSegment};
use tamis_base::ids::{BlobFileId, FilterFileId, KeyspaceId, LogId, RunId, TableId};
use tamis_base::key::{KeyBytes, KeyEnd, MAX_KEY_BYTES, MAX_SEQNO, SeqNo};
use tamis_base::meta::{OldestDelete, Stretch, TableExtra, TableMeta};

use crate::codec::{Decoder, Encode};
use crate::tree::times::{self, Sample};
use crate::wal::DecodeError;

/// The deepest level allowed in an edit.
pub(crate) const MAX_LEVEL: u32 = 63;

/// The exclusive upper bound of file, run and epoch numbers.
pub const NUMBER_LIMIT: u64 = 1 << 56;

/// An atomic change to the database's shape. One edit applies its parts in this order: create
/// keyspaces, rename keyspaces, set options and log floors, remove tables, add tables, remove
/// filter files, add filter files, drop keyspaces. To move a table to another level, one edit
/// removes it and adds it under the same id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VersionEdit {
    /// No file with this number or a higher one exists yet. Counters never decrease: the larger of
    /// the old and the new value applies.
    pub next_file: Option<u64>,
    /// Upper bound on the sequence numbers in tables and finished logs.
    pub last_seq: Option<SeqNo>,
    /// The first epoch not assigned to a flush of any keyspace. Only old manifests contain this
    /// field.
    pub next_epoch: Option<Epoch>,
    /// Per keyspace, the first epoch not assigned to one of its flushes.
    pub next_epochs: Vec<(KeyspaceId, Epoch)>,
    /// The first run number not yet used.
    pub next_run: Option<RunId>,
    /// The first keyspace number not yet used.
    pub next_keyspace: Option<KeyspaceId>,
    /// Logs with smaller ids hold no write of the keyspace that its tables lack.
    pub log_floor: Vec<(KeyspaceId, LogId)>,
    /// The same floor for all keyspaces.
    pub floor: Option<LogId>,
    /// New keyspaces: number, name, options text.
    pub create_keyspaces: Vec<(KeyspaceId, String, String)>,
    /// New options texts for keyspaces.
    pub set_options: Vec<(KeyspaceId, String)>,
    /// New names for keyspaces.
    pub rename_keyspaces: Vec<(KeyspaceId, String)>,
    /// Keyspaces dropped, with all their tables.
    pub drop_keyspaces: Vec<KeyspaceId>,
    /// Tables added to a keyspace: keyspace, level, run, table.
    pub added: Vec<(KeyspaceId, u32, RunId, TableMeta)>,
    /// Tables removed from a keyspace.
    pub removed: Vec<(KeyspaceId, TableId)>,
    /// Write-time samples, newer than those of earlier edits, ascending.
    pub times: Vec<Sample>,
    /// The ages of keyspaces whose entries expire or once did.
    pub ages: Vec<(KeyspaceId, Ages)>,
    /// The known hotness of tables with elastic filters, encoded.
    pub hotness: Vec<(TableId, Vec<u8>)>,
    /// Filter files added to a keyspace: keyspace, file, bytes.
    pub added_filters: Vec<(KeyspaceId, FilterFileId, u64)>,
    /// Filter files removed from a keyspace.
    pub removed_filters: Vec<(KeyspaceId, FilterFileId)>,
}

/// What is known about the age of a keyspace's entries. A keyspace that once had a time to live
/// keeps this forever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ages {
    /// Entries written up to this sequence number may have lost theirs, and with it their age.
    pub since: SeqNo,
    /// Everything up to this write has expired, and some of it may be gone. The rest must stay
    /// invisible even if the clock or the time to live changes. 0: nothing has expired.
    pub expired: SeqNo,
}

mod tag {
    pub(super) const NEXT_FILE: u64 = 2;
    pub(super) const LAST_SEQ: u64 = 4;
    pub(super) const NEXT_EPOCH: u64 = 6;
    pub(super) const NEXT_RUN: u64 = 8;
    pub(super) const NEXT_KEYSPACE: u64 = 10;
    pub(super) const LOG_FLOOR: u64 = 12;
    pub(super) const CREATE_KEYSPACE: u64 = 14;
    pub(super) const SET_OPTIONS: u64 = 16;
    pub(super) const DROP_KEYSPACE: u64 = 18;
    pub(super) const ADD_TABLE: u64 = 20;
    pub(super) const REMOVE_TABLE: u64 = 22;
    /// Odd: a reader that does not know it derives the epochs in use from the tables.
    pub(super) const KEYSPACE_EPOCH: u64 = 25;
    /// Odd: a reader that does not know it treats entries as younger than they are.
    pub(super) const TIMES: u64 = 27;
    /// Even: a reader that does not know it would return old entries after their replacements
    /// expired and were dropped.
    pub(super) const AGES: u64 = 28;
    /// Even: a reader that does not know it would find the data under its old name.
    pub(super) const RENAME_KEYSPACE: u64 = 30;
    /// Even: a reader that does not know it would look for logs that were deleted as no longer
    /// needed.
    pub(super) const FLOOR: u64 = 32;
    /// Odd: a reader that does not know it relearns the hotness.
    pub(super) const HOTNESS: u64 = 29;
    /// Both odd: a reader that does not know filter files rebuilds the filters from the tables.
    pub(super) const ADD_FILTER: u64 = 31;
    pub(super) const REMOVE_FILTER: u64 = 33;
}

mod table_tag {
    pub(super) const WRITTEN: u64 = 1;
    /// Even: a reader that does not know it would read the entries with wrong numbers.
    pub(super) const GLOBAL_SEQ: u64 = 2;
    pub(super) const PINNED: u64 = 3;
    /// Even: a reader that does not know it would lose the list of the blob files.
    pub(super) const BLOBS: u64 = 4;
    /// Odd: a reader that does not know it estimates the lengths of blocks of flushes again.
    pub(super) const STRETCH: u64 = 5;
    /// Odd: a reader that does not know it treats deletes as older than they are.
    pub(super) const OLDEST_DELETE: u64 = 7;
}

const END_EXCLUDED: u8 = 0;
const END_INCLUDED: u8 = 1;
const END_UNBOUNDED: u8 = 2;

const CUT: DecodeError = DecodeError("a field is cut short");

impl VersionEdit {
    /// Appends the encoded edit to `buf`.
    pub fn encode(&self, buf: &mut Vec<u8>) {
        let mut out = Fields { buf, field: Vec::new() };
        let counters = [
            (tag::NEXT_FILE, self.next_file),
            (tag::LAST_SEQ, self.last_seq),
            (tag::NEXT_EPOCH, self.next_epoch),
            (tag::NEXT_RUN, self.next_run),
            (tag::NEXT_KEYSPACE, self.next_keyspace.map(u64::from)),
            (tag::FLOOR, self.floor),
        ];
        for (tag, value) in counters {
            if let Some(value) = value {
                out.put(tag, |f| f.put_varint(value));
            }
        }
        for (keyspace, name, options) in &self.create_keyspaces {
            out.put(tag::CREATE_KEYSPACE, |f| {
                f.put_varint((*keyspace).into());
                f.put_bytes(name.as_bytes());
                f.put_bytes(options.as_bytes());
            });
        }
        for (keyspace, name) in &self.rename_keyspaces {
            out.put(tag::RENAME_KEYSPACE, |f| {
                f.put_varint((*keyspace).into());
                f.put_bytes(name.as_bytes());
            });
        }
        for (keyspace, options) in &self.set_options {
            out.put(tag::SET_OPTIONS, |f| {
                f.put_varint((*keyspace).into());
                f.put_bytes(options.as_bytes());
            });
        }
        for (keyspace, log) in &self.log_floor {
            out.put(tag::LOG_FLOOR, |f| {
                f.put_varint((*keyspace).into());
                f.put_varint(*log);
            });
        }
        for (keyspace, epoch) in &self.next_epochs {
            out.put(tag::KEYSPACE_EPOCH, |f| {
                f.put_varint((*keyspace).into());
                f.put_varint(*epoch);
            });
        }
        for (keyspace, table) in &self.removed {
            out.put(tag::REMOVE_TABLE, |f| {
                f.put_varint((*keyspace).into());
                f.put_varint(*table);
            });
        }
        for (keyspace, level, run, table) in &self.added {
            out.put(tag::ADD_TABLE, |f| {
                f.put_varint((*keyspace).into());
                f.put_varint((*level).into());
                f.put_varint(*run);
                encode_table(f, table);
            });
        }
        for keyspace in &self.drop_keyspaces {
            out.put(tag::DROP_KEYSPACE, |f| f.put_varint((*keyspace).into()));
        }
        if !self.times.is_empty() {
            out.put(tag::TIMES, |f| times::encode(&self.times, f));
        }
        for (keyspace, ages) in &self.ages {
            out.put(tag::AGES, |f| {
                f.put_varint((*keyspace).into());
                f.put_varint(ages.since);
                f.put_varint(ages.expired);
            });
        }
        for (table, hotness) in &self.hotness {
            out.put(tag::HOTNESS, |f| {
                f.put_varint(*table);
                f.put_bytes(hotness);
            });
        }
        for (keyspace, file) in &self.removed_filters {
            out.put(tag::REMOVE_FILTER, |f| {
                f.put_varint((*keyspace).into());
                f.put_varint(*file);
            });
        }
        for (keyspace, file, bytes) in &self.added_filters {
            out.put(tag::ADD_FILTER, |f| {
                f.put_varint((*keyspace).into());
                f.put_varint(*file);
                f.put_varint(*bytes);
            });
        }
    }

    /// Decodes an edit that fills `bytes` exactly.
    pub fn decode(bytes: &[u8]) -> Result<VersionEdit, DecodeError> {
        let mut edit = VersionEdit::default();
        let mut samples = None;
        let mut rest = Decoder::new(bytes);
        while let Some((tag, bytes)) = next_field(&mut rest)? {
            let mut f = Decoder::new(bytes);
            match tag {
                tag::NEXT_FILE => once(&mut edit.next_file, counter(&mut f)?)?,
                tag::LAST_SEQ => once(&mut edit.last_seq, seqno(&mut f)?)?,
                tag::NEXT_EPOCH => once(&mut edit.next_epoch, counter(&mut f)?)?,
                tag::NEXT_RUN => once(&mut edit.next_run, counter(&mut f)?)?,
                tag::NEXT_KEYSPACE => once(&mut edit.next_keyspace, keyspace(&mut f)?)?,
                tag::FLOOR => once(&mut edit.floor, counter(&mut f)?)?,
                tag::LOG_FLOOR => edit.log_floor.push((keyspace(&mut f)?, counter(&mut f)?)),
                tag::CREATE_KEYSPACE => {
                    edit.create_keyspaces.push((keyspace(&mut f)?, text(&mut f)?, text(&mut f)?));
                }
                tag::RENAME_KEYSPACE => edit.rename_keyspaces.push((keyspace(&mut f)?, text(&mut f)?)),
                tag::SET_OPTIONS => edit.set_options.push((keyspace(&mut f)?, text(&mut f)?)),
                tag::DROP_KEYSPACE => edit.drop_keyspaces.push(keyspace(&mut f)?),
                tag::ADD_TABLE => {
                    let (keyspace, level) = (keyspace(&mut f)?, f.varint().ok_or(CUT)?);
                    if level > MAX_LEVEL.into() {
                        return Err(DecodeError("a level is too deep"));
                    }
                    let run = number(&mut f)?;
                    edit.added.push((keyspace, level as u32, run, decode_table(&mut f)?));
                }
                tag::REMOVE_TABLE => edit.removed.push((keyspace(&mut f)?, number(&mut f)?)),
                tag::KEYSPACE_EPOCH => edit.next_epochs.push((keyspace(&mut f)?, counter(&mut f)?)),
                tag::TIMES => once(&mut samples, times::decode(&mut f)?)?,
                tag::AGES => {
                    let keyspace = keyspace(&mut f)?;
                    edit.ages.push((keyspace, Ages { since: seqno(&mut f)?, expired: seqno(&mut f)? }));
                }
                tag::ADD_FILTER => {
                    let (keyspace, file) = (keyspace(&mut f)?, number(&mut f)?);
                    edit.added_filters.push((keyspace, file, f.varint().ok_or(CUT)?));
                }
                tag::REMOVE_FILTER => edit.removed_filters.push((keyspace(&mut f)?, number(&mut f)?)),
                tag::HOTNESS => edit.hotness.push((number(&mut f)?, f.bytes().ok_or(CUT)?.to_vec())),
                _ => {
                    skip_unknown(tag)?;
                    continue;
                }
            }
            if !f.is_empty() {
                return Err(DecodeError("a field is longer than what it holds"));
            }
        }
        edit.times = samples.unwrap_or_default();
        Ok(edit)
    }
}

struct Fields<'a> {
    buf: &'a mut Vec<u8>,
    field: Vec<u8>,
}

impl Fields<'_> {
    fn put(&mut self, tag: u64, write: impl FnOnce(&mut Vec<u8>)) {
        self.field.clear();
        write(&mut self.field);
        self.buf.put_varint(tag);
        self.buf.put_bytes(&self.field);
    }
}

fn next_field<'a>(rest: &mut Decoder<'a>) -> Result<Option<(u64, &'a [u8])>, DecodeError> {
    if rest.is_empty() {
        return Ok(None);
    }
    let tag = rest.varint().ok_or(CUT)?;
    Ok(Some((tag, rest.bytes().ok_or(CUT)?)))
}

fn skip_unknown(tag: u64) -> Result<(), DecodeError> {
    match tag % 2 {
        1 => Ok(()),
        _ => Err(DecodeError("a field that only a newer version of the library understands")),
    }
}

fn once<T>(slot: &mut Option<T>, value: T) -> Result<(), DecodeError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(DecodeError("a counter is set twice")),
    }
}

/// Decodes an assigned number, which is below the limit.
fn number(d: &mut Decoder<'_>) -> Result<u64, DecodeError> {
    match d.varint().ok_or(CUT)? {
        n if n < NUMBER_LIMIT => Ok(n),
        _ => Err(DecodeError("a number is out of range")),
    }
}

/// Decodes the next number to assign, which is at most the limit.
fn counter(d: &mut Decoder<'_>) -> Result<u64, DecodeError> {
    match d.varint().ok_or(CUT)? {
        n if n <= NUMBER_LIMIT => Ok(n),
        _ => Err(DecodeError("a counter is out of range")),
    }
}

fn seqno(d: &mut Decoder<'_>) -> Result<SeqNo, DecodeError> {
    match d.varint().ok_or(CUT)? {
        n if n <= MAX_SEQNO => Ok(n),
        _ => Err(DecodeError("a sequence number is out of range")),
    }
}

fn keyspace(d: &mut Decoder<'_>) -> Result<KeyspaceId, DecodeError> {
    let id = d.varint().ok_or(CUT)?;
    KeyspaceId::try_from(id).map_err(|_| DecodeError("no such keyspace number"))
}

fn text(d: &mut Decoder<'_>) -> Result<String, DecodeError> {
    let bytes = d.bytes().ok_or(CUT)?;
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| DecodeError("a string is not valid UTF-8"))
}

fn key(d: &mut Decoder<'_>) -> Result<KeyBytes, DecodeError> {
    // A range tombstone may end at the successor of the longest key, which is one byte longer.
    match d.bytes().ok_or(CUT)? {
        bytes if bytes.len() <= MAX_KEY_BYTES + 1 => Ok(bytes.into()),
        _ => Err(DecodeError("a key is too long")),
    }
}

fn encode_table(f: &mut Vec<u8>, table: &TableMeta) {
    f.put_varint(table.id);
    f.put_varint(table.file_bytes);
    f.put_bytes(&table.smallest);
    match &table.largest {
        KeyEnd::Excluded(end) => {
            f.put_u8(END_EXCLUDED);
            f.put_bytes(end);
        }
        KeyEnd::Included(end) => {
            f.put_u8(END_INCLUDED);
            f.put_bytes(end);
        }
        KeyEnd::Unbounded => f.put_u8(END_UNBOUNDED),
    }
    f.put_varint(table.entries);
    f.put_varint(table.deletes);
    f.put_varint(table.range_tombstones);
    f.put_varint(table.raw_bytes);
    f.put_varint(table.min_seq);
    f.put_varint(table.max_seq);
    let segments = table.epochs.segments();
    f.put_varint(segments.len() as u64);
    for segment in segments {
        f.put_bytes(&segment.start);
        f.put_varint(segment.lo);
        f.put_varint(segment.hi);
    }
    let extra = &table.extra;
    let mut out = Fields { buf: f, field: Vec::new() };
    if extra.written != (0, 0) {
        out.put(table_tag::WRITTEN, |f| {
            f.put_varint(extra.written.0);
            f.put_varint(extra.written.1);
        });
    }
    if let Some(seq) = extra.global_seq {
        out.put(table_tag::GLOBAL_SEQ, |f| f.put_varint(seq));
    }
    if !extra.pinned.is_empty() {
        out.put(table_tag::PINNED, |f| {
            for &(seq, bytes) in &extra.pinned {
                f.put_varint(seq);
                f.put_varint(bytes);
            }
        });
    }
    if !extra.blobs.is_empty() {
        out.put(table_tag::BLOBS, |f| {
            for &(file, bytes) in &extra.blobs {
                f.put_varint(file);
                f.put_varint(bytes);
            }
        });
    }
    if let Some(oldest) = extra.oldest_delete {
        out.put(table_tag::OLDEST_DELETE, |f| {
            f.put_varint(oldest.seq);
            f.put_varint(oldest.since);
        });
    }
    if let Some(stretch) = &extra.stretch {
        out.put(table_tag::STRETCH, |f| {
            f.put_varint(stretch.from);
            stretch.factors.iter().for_each(|&factor| f.put_varint(factor));
        });
    }
}

/// Decodes the fields that follow a table's epochs, to the end of `f`.
fn decode_extra(f: &mut Decoder<'_>) -> Result<TableExtra, DecodeError> {
    let mut extra = TableExtra::default();
    let (mut written, mut pinned, mut blobs) = (None, None, None);
    while let Some((tag, bytes)) = next_field(f)? {
        let mut f = Decoder::new(bytes);
        match tag {
            table_tag::WRITTEN => once(&mut written, (f.varint().ok_or(CUT)?, f.varint().ok_or(CUT)?))?,
            table_tag::GLOBAL_SEQ => once(&mut extra.global_seq, seqno(&mut f)?)?,
            table_tag::PINNED => {
                let mut list: Vec<(SeqNo, u64)> = Vec::new();
                while !f.is_empty() {
                    let (seq, bytes) = (seqno(&mut f)?, f.varint().ok_or(CUT)?);
                    if list.last().is_some_and(|last| last.0 >= seq) {
                        return Err(DecodeError("a table's snapshots are not in order"));
                    }
                    list.push((seq, bytes));
                }
                once(&mut pinned, list)?;
            }
            table_tag::BLOBS => {
                let mut list: Vec<(BlobFileId, u64)> = Vec::new();
                while !f.is_empty() {
                    let (file, bytes) = (number(&mut f)?, f.varint().ok_or(CUT)?);
                    if list.last().is_some_and(|last| last.0 >= file) {
                        return Err(DecodeError("a table's blob files are not in order"));
                    }
                    list.push((file, bytes));
                }
                once(&mut blobs, list)?;
            }
            table_tag::OLDEST_DELETE => {
                let oldest = OldestDelete { seq: seqno(&mut f)?, since: f.varint().ok_or(CUT)? };
                once(&mut extra.oldest_delete, oldest)?;
            }
            table_tag::STRETCH => {
                let mut stretch = Stretch { from: number(&mut f)?, factors: Vec::new() };
                while !f.is_empty() {
                    if stretch.factors.len() > MAX_LEVEL as usize {
                        return Err(DecodeError("a level is too deep"));
                    }
                    stretch.factors.push(f.varint().ok_or(CUT)?);
                }
                once(&mut extra.stretch, stretch)?;
            }
            _ => {
                skip_unknown(tag)?;
                continue;
            }
        }
        if !f.is_empty() {
            return Err(DecodeError("a field is longer than what it holds"));
        }
    }
    extra.written = written.unwrap_or_default();
    extra.pinned = pinned.unwrap_or_default();
    extra.blobs = blobs.unwrap_or_default();
    match extra.written {
        (oldest, newest) if oldest > newest => {
            Err(DecodeError("a table's newest data is older than its oldest"))
        }
        _ => Ok(extra),
    }
}

/// Decodes a table's description, which takes the rest of `f`.
fn decode_table(f: &mut Decoder<'_>) -> Result<TableMeta, DecodeError> {
    let id = number(f)?;
    let file_bytes = f.varint().ok_or(CUT)?;
    let smallest = key(f)?;
    let largest = match f.u8().ok_or(CUT)? {
        END_EXCLUDED => KeyEnd::Excluded(key(f)?),
        END_INCLUDED => KeyEnd::Included(key(f)?),
        END_UNBOUNDED => KeyEnd::Unbounded,
        _ => return Err(DecodeError("a table's key range has an unknown kind of end")),
    };
    let entries = f.varint().ok_or(CUT)?;
    let deletes = f.varint().ok_or(CUT)?;
    let range_tombstones = f.varint().ok_or(CUT)?;
    let raw_bytes = f.varint().ok_or(CUT)?;
    let (min_seq, max_seq) = (seqno(f)?, seqno(f)?);
    let epochs = decode_epochs(f)?;
    let extra = decode_extra(f)?;
    let misplaced = extra.oldest_delete.is_some_and(|oldest| !(min_seq..=max_seq).contains(&oldest.seq));
    if !largest.reaches(&smallest) || deletes > entries || min_seq > max_seq || misplaced {
        return Err(DecodeError("a table's description contradicts itself"));
    }
    Ok(TableMeta {
        id,
        file_bytes,
        smallest,
        largest,
        entries,
        deletes,
        range_tombstones,
        raw_bytes,
        min_seq,
        max_seq,
        epochs,
        extra,
    })
}

fn decode_epochs(f: &mut Decoder<'_>) -> Result<EpochMap, DecodeError> {
    let count = f.varint_usize().ok_or(CUT)?;
    // A segment takes at least three bytes, so a forged count cannot allocate more than the field
    // justifies.
    if count > f.remaining() / 3 {
        return Err(CUT);
    }
    let mut segments = Vec::with_capacity(count);
    for _ in 0..count {
        let start = key(f)?;
        let (lo, hi) = (counter(f)?, counter(f)?);
        segments.push(EpochSegment { start, lo, hi });
    }
    EpochMap::from_segments(segments).ok_or(DecodeError("a table's epochs are not a step function"))
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A table with keys from `smallest` to `largest`.
    pub(crate) fn table(id: TableId, smallest: &str, largest: &str) -> TableMeta {
        TableMeta {
            id,
            file_bytes: 1000,
            smallest: smallest.as_bytes().into(),
            largest: KeyEnd::Included(largest.as_bytes().into()),
            entries: 10,
            deletes: 1,
            range_tombstones: 0,
            raw_bytes: 500,
            min_seq: 3,
            max_seq: 30,
            epochs: EpochMap::from_segments(vec![EpochSegment {
                start: smallest.as_bytes().into(),
                lo: 1,
                hi: 2,
            }])
            .unwrap(),
            extra: TableExtra::default(),
        }
    }

    fn a_key() -> impl Strategy<Value = KeyBytes> {
        prop::collection::vec(any::<u8>(), 0..12).prop_map(KeyBytes::from)
    }

    fn a_table() -> impl Strategy<Value = TableMeta> {
        let ends = prop_oneof![
            a_key().prop_map(KeyEnd::Included),
            a_key().prop_map(KeyEnd::Excluded),
            Just(KeyEnd::Unbounded),
        ];
        let segments = prop::collection::btree_map(a_key(), (0..1000u64, 1..1000u64), 1..5);
        let counts = (0..NUMBER_LIMIT, any::<u64>(), any::<u64>(), 0..=MAX_SEQNO);
        (a_key(), ends, segments, counts).prop_map(|(smallest, largest, segments, (id, n, m, seq))| {
            let mut segments: Vec<_> = segments
                .into_iter()
                .map(|(start, (lo, len))| EpochSegment { start, lo, hi: lo + len })
                .collect();
            segments.dedup_by_key(|segment| (segment.lo, segment.hi));
            let largest = if largest.reaches(&smallest) { largest } else { KeyEnd::Unbounded };
            TableMeta {
                id,
                file_bytes: n,
                smallest,
                largest,
                entries: n.max(m),
                deletes: n.min(m),
                range_tombstones: m,
                raw_bytes: n ^ m,
                min_seq: seq / 2,
                max_seq: seq,
                epochs: EpochMap::from_segments(segments).unwrap(),
                extra: TableExtra {
                    written: (n.min(m), n.max(m)),
                    global_seq: (n % 3 == 0).then_some(seq),
                    oldest_delete: (n % 5 < 3).then(|| OldestDelete { seq: seq - seq / 4, since: m }),
                    pinned: (1..m % 4).map(|i| (i * 7, n)).collect(),
                    blobs: (1..n % 4).map(|i| (i * 5, m)).collect(),
                    stretch: (m % 2 == 0)
                        .then(|| Stretch { from: id, factors: (0..n % 65).map(|i| n ^ i).collect() }),
                },
            }
        })
    }

    fn an_edit() -> impl Strategy<Value = VersionEdit> {
        let number = || prop::option::of(0..=NUMBER_LIMIT);
        let counters =
            (number(), prop::option::of(0..=MAX_SEQNO), number(), number(), any::<Option<u32>>(), number());
        let keyspaces = (
            prop::collection::vec((any::<u32>(), "\\PC{0,8}", "\\PC{0,20}"), 0..3),
            prop::collection::vec((any::<u32>(), "\\PC{0,8}"), 0..3),
            prop::collection::vec((any::<u32>(), 0..NUMBER_LIMIT), 0..3),
            prop::collection::vec(any::<u32>(), 0..3),
            prop::collection::vec((any::<u32>(), 0..=MAX_SEQNO, 0..=MAX_SEQNO), 0..3),
            prop::collection::vec((1..1u64 << 50, 1..MAX_SEQNO / 4), 0..4),
        );
        let added = prop::collection::vec((any::<u32>(), 0..=MAX_LEVEL, 0..NUMBER_LIMIT, a_table()), 0..4);
        let removed = prop::collection::vec((any::<u32>(), 0..NUMBER_LIMIT), 0..4);
        let hotness =
            prop::collection::vec((0..NUMBER_LIMIT, prop::collection::vec(any::<u8>(), 0..9)), 0..3);
        let filters = prop::collection::vec((any::<u32>(), 0..NUMBER_LIMIT, any::<u64>()), 0..3);
        (counters, keyspaces, added, removed, hotness, filters).prop_map(
            |(counters, keyspaces, added, removed, hotness, filters)| VersionEdit {
                hotness,
                removed_filters: filters.iter().rev().map(|&(keyspace, file, _)| (keyspace, file)).collect(),
                added_filters: filters,
                next_file: counters.0,
                last_seq: counters.1,
                next_epoch: counters.2,
                next_run: counters.3,
                next_keyspace: counters.4,
                floor: counters.5,
                next_epochs: keyspaces.2.iter().map(|&(id, n)| (id, n)).collect(),
                create_keyspaces: keyspaces.0,
                rename_keyspaces: keyspaces.1.iter().rev().cloned().collect(),
                set_options: keyspaces.1,
                log_floor: keyspaces.2,
                drop_keyspaces: keyspaces.3,
                ages: keyspaces.4.iter().map(|&(id, since, expired)| (id, Ages { since, expired })).collect(),
                times: keyspaces
                    .5
                    .iter()
                    .scan(Sample { time: 0, seq: 0 }, |at, &(time, seq)| {
                        *at = Sample { time: at.time + time, seq: at.seq + seq };
                        Some(*at)
                    })
                    .collect(),
                added,
                removed,
            },
        )
    }

    fn encoded(edit: &VersionEdit) -> Vec<u8> {
        let mut bytes = Vec::new();
        edit.encode(&mut bytes);
        bytes
    }

    #[test]
    fn unknown_fields_are_skipped_if_odd_and_rejected_if_even() {
        let edit = VersionEdit { next_file: Some(9), removed: vec![(0, 4)], ..Default::default() };
        let mut bytes = encoded(&edit);
        bytes.put_varint(1001);
        bytes.put_bytes(b"from the future");
        assert_eq!(VersionEdit::decode(&bytes), Ok(edit.clone()));
        bytes.put_varint(1002);
        bytes.put_bytes(b"from the future");
        assert!(VersionEdit::decode(&bytes).is_err());
    }

    #[test]
    fn a_table_description_can_grow_in_the_same_way() {
        let meta = table(5, "a", "z");
        for (tag, accepted) in [(9, true), (8, false)] {
            let (mut bytes, mut field) = (Vec::new(), Vec::new());
            [0, 6, 17].iter().for_each(|&n| field.put_varint(n));
            encode_table(&mut field, &meta);
            field.put_varint(tag);
            field.put_bytes(b"new");
            bytes.put_varint(tag::ADD_TABLE);
            bytes.put_bytes(&field);
            let edit = VersionEdit { added: vec![(0, 6, 17, meta.clone())], ..Default::default() };
            assert_eq!(VersionEdit::decode(&bytes).ok(), accepted.then_some(edit));
        }
    }

    #[test]
    fn contradictions_and_numbers_out_of_range_are_rejected() {
        let refused = |edit: VersionEdit| VersionEdit::decode(&encoded(&edit)).is_err();
        let with = |change: fn(&mut TableMeta)| {
            let mut meta = table(5, "b", "c");
            change(&mut meta);
            VersionEdit { added: vec![(0, 0, 0, meta)], ..Default::default() }
        };
        assert!(!refused(with(|_| {})));
        assert!(refused(with(|m| m.largest = KeyEnd::Excluded(m.smallest.clone()))));
        assert!(refused(with(|m| m.deletes = m.entries + 1)));
        assert!(refused(with(|m| m.min_seq = m.max_seq + 1)));
        assert!(refused(with(|m| m.max_seq = MAX_SEQNO + 1)));
        assert!(refused(with(|m| m.extra.oldest_delete = Some(OldestDelete { seq: 2, since: 1 }))));
        assert!(refused(with(|m| m.extra.oldest_delete = Some(OldestDelete { seq: 31, since: 1 }))));
        assert!(!refused(with(|m| m.extra.oldest_delete = Some(OldestDelete { seq: 30, since: u64::MAX }))));
        assert!(refused(with(|m| m.id = NUMBER_LIMIT)));
        assert!(!refused(with(|m| m.extra.pinned = vec![(5, 1), (6, 2)])));
        assert!(refused(with(|m| m.extra.pinned = vec![(5, 1), (5, 2)])));
        assert!(!refused(with(|m| m.extra.blobs = vec![(5, 1), (6, 2)])));
        assert!(refused(with(|m| m.extra.blobs = vec![(5, 1), (5, 2)])));
        assert!(!refused(with(|m| m.largest = KeyEnd::Excluded(vec![b'c'; MAX_KEY_BYTES + 1].into()))));
        assert!(refused(with(|m| m.largest = KeyEnd::Excluded(vec![b'c'; MAX_KEY_BYTES + 2].into()))));
        assert!(refused(VersionEdit { last_seq: Some(u64::MAX), ..Default::default() }));
        let filter = |file| VersionEdit { added_filters: vec![(0, file, 5)], ..Default::default() };
        assert!(!refused(filter(NUMBER_LIMIT - 1)) && refused(filter(NUMBER_LIMIT)));
        assert!(refused(VersionEdit { removed_filters: vec![(0, NUMBER_LIMIT)], ..Default::default() }));
        let ages =
            |since, expired| VersionEdit { ages: vec![(0, Ages { since, expired })], ..Default::default() };
        assert!(!refused(ages(MAX_SEQNO, 0)));
        assert!(refused(ages(MAX_SEQNO + 1, 0)) && refused(ages(0, MAX_SEQNO + 1)));
        let times = VersionEdit { times: vec![Sample { time: 7, seq: 7 }], ..Default::default() };
        assert!(VersionEdit::decode(&encoded(&times).repeat(2)).is_err(), "samples in two fields");
        let mut twice = encoded(&VersionEdit { next_file: Some(1), ..Default::default() });
        twice.extend_from_within(..);
        assert!(VersionEdit::decode(&twice).is_err());
    }

    #[test]
    fn when_a_table_was_written_takes_no_bytes_if_it_is_unknown() {
        let written = |written| {
            let mut meta = table(5, "a", "z");
            meta.extra.written = written;
            let edit = VersionEdit { added: vec![(0, 6, 17, meta)], ..Default::default() };
            let bytes = encoded(&edit);
            assert_eq!(VersionEdit::decode(&bytes), Ok(edit));
            bytes.len()
        };
        assert_eq!([(0, 1), (1, 1)].map(|times| written(times) - written((0, 0))), [4, 4]);
    }

    #[test]
    fn a_segment_count_beyond_the_field_allocates_nothing() {
        let mut field = Vec::new();
        field.put_varint(1 << 60);
        field.extend_from_slice(&[0; 30]);
        assert!(decode_epochs(&mut Decoder::new(&field)).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn edits_round_trip(edit in an_edit()) {
            prop_assert_eq!(VersionEdit::decode(&encoded(&edit)), Ok(edit));
        }

        #[test]
        fn mutated_edits_are_decoded_or_rejected_without_panic(
            edit in an_edit(),
            hurts in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = encoded(&edit);
            if !bytes.is_empty() {
                hurts.iter().for_each(|(at, byte)| { let at = at.index(bytes.len()); bytes[at] = *byte; });
                bytes.truncate(cut.index(bytes.len()) + 1);
            }
            if let Ok(read) = VersionEdit::decode(&bytes) {
                prop_assert_eq!(VersionEdit::decode(&encoded(&read)), Ok(read));
            }
        }

        #[test]
        fn arbitrary_bytes_are_decoded_or_rejected_without_panic(
            bytes in prop::collection::vec(prop_oneof![0..24u8, any::<u8>()], 0..120),
        ) {
            if let Ok(read) = VersionEdit::decode(&bytes) {
                prop_assert_eq!(VersionEdit::decode(&encoded(&read)), Ok(read));
            }
        }
    }
}
