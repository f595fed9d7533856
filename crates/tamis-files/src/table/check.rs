//! Checks a whole table: every checksum, the order of all entries, and whether the properties are
//! true.

use tamis_base::key::{Kind, MAX_KEY_BYTES, MAX_SEQNO, SeqNo, compare_versions};
use tamis_filter::Digest;

use super::block::{BlockView, InBlock, fingerprint};
use super::frame::Damage;
use super::index::{BlockAt, Index};
use super::properties::Properties;
use super::reader::Table;
use crate::error::StorageError;
use crate::sums::{RecordHash, RecordSum};

/// The maximum number of problems reported.
const MAX_PROBLEMS: usize = 100;

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableCheck {
    /// The number of data blocks that could be read.
    pub blocks: u64,
    /// Bytes of those blocks in the file.
    pub(crate) bytes: u64,
    /// The number of entries in those blocks.
    pub entries: u64,
    /// The sum of those entries, each with its sequence number.
    pub sum: RecordSum,
    /// The first hundred problems found, each with the offset of the part concerned.
    pub problems: Vec<(u64, String)>,
}

impl TableCheck {
    fn problem(&mut self, offset: u64, what: impl Into<String>) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push((offset, what.into()));
        }
    }

    fn failure(&mut self, offset: u64, error: &StorageError) {
        match error {
            StorageError::Corrupt(corruption) => self.problem(offset, corruption.what.clone()),
            StorageError::Io(_) | StorageError::Forked { .. } => self.problem(offset, error.to_string()),
        }
    }
}

/// The last entry seen and the sums over all entries.
#[derive(Default)]
struct Walk {
    last: Option<(Vec<u8>, SeqNo)>,
    sums: Properties,
    /// Entries that refer to blob files.
    references: u64,
    /// Whether every block could be read, so that the sums cover the whole table.
    complete: bool,
}

impl Table {
    /// Reads every block from the file, bypassing the cache, and reports all problems. Never fails:
    /// an unreadable block is a problem like any other. Cost: one pass over the file.
    pub fn check(&self) -> TableCheck {
        self.check_while(&mut |_| true)
    }

    /// Like [`check`](Self::check), but stops once `go_on` returns `false`. It is called before
    /// each block is read, with the block's size.
    pub fn check_while(&self, go_on: &mut dyn FnMut(u64) -> bool) -> TableCheck {
        let mut report = TableCheck::default();
        for (part, offset) in [
            (self.filter_bytes(), self.footer().filter.offset),
            (self.tombstone_bytes(), self.footer().tombstones.offset),
        ] {
            if let Err(error) = part {
                report.failure(offset, &error);
            }
        }
        let index = match self.index(&mut ()) {
            Ok(index) => index,
            Err(error) => {
                report.failure(self.footer().index.offset, &error);
                return report;
            }
        };
        let mut walk = Walk { complete: true, ..Walk::default() };
        for i in 0..index.len() {
            let Some(at) = index.block(i) else { break };
            if !go_on(at.span) {
                walk.complete = false;
                break;
            }
            match self.fresh_block(at) {
                Ok(block) => {
                    report.blocks += 1;
                    report.bytes += at.span;
                    if let Err(damage) = check_block(&block, at, &index, &mut walk, &mut report) {
                        report.problem(at.offset, damage.0);
                        walk.complete = false;
                    }
                }
                Err(error) => {
                    report.failure(at.offset, &error);
                    walk.complete = false;
                }
            }
        }
        report.entries = walk.sums.entries;
        if walk.references > 0 && !self.footer().blobs {
            let what = format!("{} entries refer to blob files, and the table lists none", walk.references);
            report.problem(self.footer().properties.offset, what);
        }
        if walk.complete {
            self.compare_properties(walk, &mut report);
        }
        report
    }

    fn compare_properties(&self, walk: Walk, report: &mut TableCheck) {
        let (said, found) = (self.properties(), &walk.sums);
        let offset = self.footer().properties.offset;
        let largest = walk.last.map(|(key, _)| key).unwrap_or_default();
        for (name, same) in [
            ("entries", said.entries == found.entries),
            ("deletes", said.deletes == found.deletes),
            ("key bytes", said.raw_key_bytes == found.raw_key_bytes),
            ("value bytes", said.raw_value_bytes == found.raw_value_bytes),
            ("the smallest sequence number", said.min_seq == found.min_seq),
            ("the largest sequence number", said.max_seq == found.max_seq),
            ("the smallest key", said.smallest == found.smallest),
            ("the largest key", said.largest == largest),
        ] {
            if !same {
                report.problem(offset, format!("the properties are wrong about {name}"));
            }
        }
    }
}

/// Checks one block; returns `Err` if it cannot be decoded completely.
fn check_block(
    block: &[u8],
    at: BlockAt,
    index: &Index,
    walk: &mut Walk,
    report: &mut TableCheck,
) -> Result<(), Damage> {
    let view = BlockView::parse(block)?;
    let mut key = Vec::new();
    for i in 0..view.len() {
        view.copy_key(i, &mut key)?;
        let (seq, kind, value) = (view.seq(i)?, view.kind(i)?, view.value(i)?);
        let newest_here = i == 0 || walk.last.as_ref().is_none_or(|(last, _)| *last != key);
        if let Some((last_key, last_seq)) = &walk.last
            && compare_versions(last_key, *last_seq, &key, seq).is_ge()
        {
            report.problem(at.offset, format!("entry {i} is out of order"));
        }
        if key.len() > MAX_KEY_BYTES {
            report.problem(at.offset, format!("entry {i} has a key that is too long"));
        }
        if seq > MAX_SEQNO {
            report.problem(at.offset, format!("entry {i} has an impossible sequence number"));
        }
        if i == 0 && at.index > 0 {
            let before = index.separator(at.index - 1);
            let continues = before == key && walk.last.as_ref().is_some_and(|(last, _)| *last == key);
            if before >= key && !continues {
                report
                    .problem(at.offset, "the block's first key is not greater than the preceding separator");
            }
        }
        if view.has_hash_index() && view.fingerprint(i)? != fingerprint(Digest::of(&key)) {
            report.problem(at.offset, format!("entry {i} has the fingerprint of another key"));
        }
        if view.has_hash_index() && newest_here {
            let (found, _) = view.find(&key, Some(Digest::of(&key)), MAX_SEQNO)?;
            if found != (InBlock::Here(i)) {
                report.problem(at.offset, format!("the hash index does not lead to entry {i}"));
            }
        }
        report.sum.add(RecordHash::of(kind as u8, &key, value), seq);
        let sums = &mut walk.sums;
        if sums.entries == 0 {
            sums.smallest.clone_from(&key);
            sums.min_seq = seq;
        }
        sums.entries += 1;
        sums.deletes += u64::from(kind == Kind::Delete);
        walk.references += u64::from(kind == Kind::PutBlob);
        sums.raw_key_bytes += key.len() as u64;
        sums.raw_value_bytes += value.len() as u64;
        sums.min_seq = sums.min_seq.min(seq);
        sums.max_seq = sums.max_seq.max(seq);
        let last = walk.last.get_or_insert_default();
        last.0.clone_from(&key);
        last.1 = seq;
    }
    if key > index.separator(at.index) {
        report.problem(at.offset, "the block's last key is greater than the following separator");
    }
    Ok(())
}
