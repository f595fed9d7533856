//! What a transaction depends on: the keys and ranges that nobody else may have written since it
//! read them. Plain data.
//!
//! A footprint is compared with the memtables, which hold everything that is committed, and with
//! the batches before it in its group, which hold what is about to be. Digests are compared first,
//! then the keys if the digests are equal: two keys are never confused.

use std::sync::Arc;

use smallvec::SmallVec;
use tamis_base::key::{KeyEnd, MAX_SEQNO, RangeTombstone, SeqNo};
use tamis_files::wal::ops::BatchOp;
use tamis_filter::Digest;
use tamis_policy::compaction::shape::KeyRange;

use crate::batch::WriteBatch;
use crate::catalogue::keyspace::KeyspaceInner;
use crate::memtable::Memtable;
use crate::read::pending::{PendingSpan, reaches};

/// A key with its digest.
#[derive(Debug)]
pub(crate) struct Point {
    pub(crate) digest: Digest,
    /// The last write that the transaction may have seen under the key.
    pub(crate) since: SeqNo,
    pub(crate) key: Box<[u8]>,
}

pub(crate) type Points = SmallVec<[Point; 1]>;

/// Non-empty ranges, each with the last write that the transaction may have seen in it.
pub(crate) type RangeReads = Vec<(SeqNo, PendingSpan)>;

/// The footprint in one keyspace.
#[derive(Debug)]
pub(crate) struct KeyspaceFootprint {
    pub(crate) keyspace: Arc<KeyspaceInner>,
    /// Nothing up to this sequence number conflicts: all of it was seen or already judged.
    pub(crate) since: SeqNo,
    /// Points by digest.
    points: Points,
    ranges: RangeReads,
}

/// Returns the end of a range as the first key after it.
fn exclusive(end: &KeyEnd) -> Option<Vec<u8>> {
    match end {
        KeyEnd::Included(last) => Some([&last[..], &[0]].concat()),
        KeyEnd::Excluded(end) => Some(end.to_vec()),
        KeyEnd::Unbounded => None,
    }
}

fn overlap(a: (&[u8], Option<&[u8]>), b: (&[u8], Option<&[u8]>)) -> bool {
    reaches(a.1, b.0) && reaches(b.1, a.0)
}

impl KeyspaceFootprint {
    /// No point or range was seen as of a number below `since`.
    pub(crate) fn new(
        keyspace: Arc<KeyspaceInner>,
        since: SeqNo,
        mut points: Points,
        ranges: RangeReads,
    ) -> KeyspaceFootprint {
        if points.len() > 1 {
            points.sort_unstable_by_key(|point| point.digest.get());
        }
        KeyspaceFootprint { keyspace, since, points, ranges }
    }

    /// Returns a part that depends only on the keyspace's existence.
    pub(crate) fn existence(keyspace: Arc<KeyspaceInner>) -> KeyspaceFootprint {
        KeyspaceFootprint::new(keyspace, MAX_SEQNO, SmallVec::new(), Vec::new())
    }

    /// Reports whether the transaction depends only on the keyspace's existence.
    pub(crate) fn is_empty(&self) -> bool {
        self.points.is_empty() && self.ranges.is_empty()
    }

    pub(crate) fn has_ranges(&self) -> bool {
        !self.ranges.is_empty()
    }

    fn has_point(&self, key: &[u8], digest: Digest) -> bool {
        let first = self.points.partition_point(|point| point.digest.get() < digest.get());
        let mut same = self.points[first..].iter().take_while(|point| point.digest == digest);
        same.any(|point| *point.key == *key)
    }

    fn in_range(&self, key: &[u8]) -> bool {
        self.ranges.iter().any(|(_, (start, end))| &start[..] <= key && reaches(end.as_deref(), key))
    }

    /// Returns a key of the footprint changed by a range write with the number `seq`, if there is
    /// one.
    fn meets_range(&self, range: (&[u8], Option<&[u8]>), seq: SeqNo) -> Option<Vec<u8>> {
        let within = |key: &[u8]| range.0 <= key && reaches(range.1, key);
        if let Some(point) = self.points.iter().find(|point| point.since < seq && within(&point.key)) {
            return Some(point.key.to_vec());
        }
        let mut ranges = self.ranges.iter().filter(|(since, _)| *since < seq);
        let met = ranges.find(|(_, (start, end))| overlap((start, end.as_deref()), range));
        met.map(|(_, (start, _))| (&start[..]).max(range.0).to_vec())
    }

    /// Returns a key of the footprint that an ingested file may change.
    pub(crate) fn meets_ingested(&self, range: &KeyRange, seq: SeqNo) -> Option<Vec<u8>> {
        let end = exclusive(&range.largest);
        self.meets_range((&range.smallest, end.as_deref()), seq)
    }

    /// Returns a key of the footprint that an operation of a batch writes; `digest` is that of its
    /// key, if it has one.
    fn meets(&self, op: &BatchOp<'_>, digest: Option<Digest>) -> Option<Vec<u8>> {
        match *op {
            BatchOp::Put { key, .. } | BatchOp::Merge { key, .. } | BatchOp::Delete { key, .. } => {
                let meets = digest.is_some_and(|digest| self.has_point(key, digest)) || self.in_range(key);
                meets.then(|| key.to_vec())
            }
            // Newer than everything that was seen.
            BatchOp::DeleteRange { start, end, .. } => self.meets_range((start, end), MAX_SEQNO),
            BatchOp::Ingestion { .. } => None,
        }
    }

    /// Returns a key of the footprint for which a memtable has a newer write.
    ///
    /// Cost: for each point, a probe of the memtable's filter, and a search if it says "maybe"; for
    /// each range, a step for each version that the memtable has in it.
    pub(crate) fn meets_memtable(&self, memtable: &Arc<Memtable>) -> Option<Vec<u8>> {
        if memtable.max_seq().is_none_or(|last| last <= self.since) {
            return None;
        }
        for Point { digest, since, key } in &self.points {
            let since = self.since.max(*since);
            if memtable.may_contain(*digest)
                && memtable.get(key, MAX_SEQNO).is_some_and(|newest| newest.seq > since)
            {
                return Some(key.to_vec());
            }
        }
        for (since, (start, end)) in &self.ranges {
            let since = self.since.max(*since);
            let mut cursor = memtable.cursor();
            cursor.seek(start, MAX_SEQNO);
            while cursor.valid() && reaches(end.as_deref(), cursor.key()) {
                if cursor.seq() > since {
                    return Some(cursor.key().to_vec());
                }
                cursor.next();
            }
        }
        memtable.newest_range_tombstones(self.since, |RangeTombstone { start, end, seq }| {
            self.meets_range((start, end.as_deref()), *seq)
        })
    }
}

/// Returns the first part of a footprint that a batch writes to, with the key.
pub(crate) fn met_by<'p>(
    parts: &'p [KeyspaceFootprint],
    batch: &WriteBatch,
) -> Option<(&'p KeyspaceFootprint, Vec<u8>)> {
    if !parts.iter().any(|part| batch.keyspaces().contains(&part.keyspace.id)) {
        return None;
    }
    let mut digests = batch.digests().iter();
    for op in batch.ops() {
        let op = op.expect("a batch decodes what it encoded");
        let digest = op.key().and_then(|_| digests.next().copied());
        for part in parts.iter().filter(|part| part.keyspace.id == op.keyspace()) {
            if let Some(key) = part.meets(&op, digest) {
                return Some((part, key));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::Options;
    use crate::io::MemFs;

    /// What is read: the keys, and the ranges from a start to an end.
    fn footprint(keys: &[&str], ranges: &[(&str, Option<&str>)]) -> KeyspaceFootprint {
        let db =
            Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() }.open("/db").unwrap();
        let keyspace = db.inner().keyspaces.directory.load()[&0].clone();
        let point =
            |key: &&str| Point { digest: Digest::of(key.as_bytes()), since: 0, key: key.as_bytes().into() };
        let range = |&(start, end): &(&str, Option<&str>)| {
            (0, (start.as_bytes().to_vec(), end.map(|end| end.as_bytes().to_vec())))
        };
        let (points, ranges) = (keys.iter().map(point).collect(), ranges.iter().map(range).collect());
        KeyspaceFootprint::new(keyspace, 0, points, ranges)
    }

    /// The key at which a batch meets what was read.
    fn met(part: &KeyspaceFootprint, write: impl FnOnce(&mut WriteBatch)) -> Option<String> {
        let mut batch = WriteBatch::new();
        write(&mut batch);
        let met = met_by(std::slice::from_ref(part), &batch);
        met.map(|(_, key)| String::from_utf8(key).unwrap())
    }

    fn put(part: &KeyspaceFootprint, key: &str) -> Option<String> {
        met(part, |batch| _ = batch.put(key, "value"))
    }

    fn delete(part: &KeyspaceFootprint, range: std::ops::Range<&str>) -> Option<String> {
        met(part, |batch| _ = batch.delete_range(range))
    }

    /// A batch of the same group that writes the first key of a range was read before, and is a
    /// conflict; one that writes the key behind it is none.
    #[test]
    fn a_range_that_was_read_has_its_start_and_not_its_end() {
        let part = footprint(&[], &[("b", Some("d"))]);
        let puts = ["a", "b", "c", "czz", "d", "e"].map(|key| put(&part, key));
        assert_eq!(puts.map(|met| met.unwrap_or_default()), ["", "b", "c", "czz", "", ""]);
        let open = footprint(&[], &[("b", None)]);
        assert_eq!(
            (put(&open, "a"), put(&open, "b"), put(&open, "z")),
            (None, Some("b".into()), Some("z".into()))
        );
    }

    #[test]
    fn a_range_delete_meets_the_ranges_and_keys_in_it() {
        let part = footprint(&[], &[("b", Some("d"))]);
        let deletes = ["a".."b", "a".."bb", "c".."x", "a".."x", "d".."e"].map(|range| delete(&part, range));
        assert_eq!(deletes.map(|met| met.unwrap_or_default()), ["", "b", "c", "b", ""]);
        let part = footprint(&["k", "m"], &[]);
        let deletes = ["a".."k", "k".."l", "l".."n", "mm".."x"].map(|range| delete(&part, range));
        assert_eq!(deletes.map(|met| met.unwrap_or_default()), ["", "k", "m", ""]);
    }

    /// An ingested file whose last key is `b` does not hold the next key, which is `b` and a zero.
    #[test]
    fn an_ingested_file_meets_what_was_read_before_it_and_in_its_range() {
        let file = KeyRange { smallest: b"a"[..].into(), largest: KeyEnd::Included(b"b"[..].into()) };
        type Case<'a> = (&'a [&'a str], &'a [(&'a str, Option<&'a str>)], SeqNo, Option<&'a str>);
        let cases: [Case<'_>; 6] = [
            (&["b"], &[], 1, Some("b")),
            (&["b"], &[], 0, None),
            (&["b\0"], &[], 1, None),
            (&[], &[("b", None)], 1, Some("b")),
            (&[], &[("b", None)], 0, None),
            (&[], &[("b\0", None)], 1, None),
        ];
        for (keys, ranges, seq, met) in cases {
            let part = footprint(keys, ranges);
            assert_eq!(part.has_ranges(), !ranges.is_empty());
            let found = part.meets_ingested(&file, seq);
            assert_eq!(found.as_deref(), met.map(str::as_bytes), "{keys:?} {ranges:?} {seq}");
        }
    }

    #[test]
    fn every_key_that_was_read_is_met_and_no_other() {
        let part = footprint(&["m", "a", "z", "k"], &[]);
        for key in ["a", "k", "m", "z"] {
            assert_eq!(put(&part, key).as_deref(), Some(key));
        }
        assert_eq!(put(&part, "b"), None);
        let nothing: Points = smallvec![];
        let part = KeyspaceFootprint::new(part.keyspace, 0, nothing, RangeReads::new());
        assert!(part.is_empty() && put(&part, "a").is_none());
    }
}
