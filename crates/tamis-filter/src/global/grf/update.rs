//! Insertion, garbage collection, and the snapshot kept of a partition after its successor was built.

use std::sync::Arc;

use crate::global::{Batch, Cuts};

use super::blocks::{Blocks, Layout, Writer, collect, merge};
use super::build::{sorted, take_block};
use super::code::{Code, Collector};
use super::map::{Kind, Map};
use super::{Inner, Partition};

impl Partition {
    /// Returns the partition with the entries of `batch` added; the affected blocks are garbage-collected by `cuts`.
    ///
    /// Valid for the version that has the tables of the batch, and later ones. `cuts` cover all versions that can
    /// still be read with the result; whether they include the batch's own tables makes no difference. They must not
    /// be blind (see the module documentation) to tables that were inserted before.
    ///
    /// # Panics
    /// If the partition outgrows 8 GiB.
    pub fn insert(&self, batch: &Batch, cuts: &Cuts) -> Partition {
        let inner = &*self.inner;
        let (map, shift) = self.map_for(batch);
        let coder = &inner.coder;
        let places =
            batch.iter().map(|(key, digest, table)| (map.spot(key, digest), coder.assign(table, cuts)));
        let new = sorted(places, &inner.layout);
        let mut rest = &new[..];
        let mut collector = Collector::new(coder, cuts);
        let words = inner.blocks.memory_bytes() / 8 + batch.len() / 4;
        let mut writer = Writer::new(inner.layout, coder, map.blocks(), words);
        let (mut entries, mut merged) = (Vec::new(), Vec::new());
        for at in 0..map.blocks() {
            let old = at.checked_sub(shift).filter(|&old| old < inner.blocks.count());
            if rest.first().is_none_or(|(of, _)| *of != at) {
                match old {
                    Some(old) => writer.copy(&inner.blocks, old),
                    None => writer.block(&[]),
                }
                continue;
            }
            entries.clear();
            if let Some(old) = old {
                inner.blocks.decode(&inner.layout, coder, old, &mut entries);
                collect(&mut entries, &inner.layout, &mut collector, !inner.last_is_unknown);
            }
            let new = take_block(&mut rest, at);
            let new = new.filter(|entry| entry.code != Code::LAST || !inner.last_is_unknown);
            merge(&entries, new, &mut merged);
            writer.block(&merged);
        }
        self.with(map, writer.finish())
    }

    /// Returns the partition after garbage collection, by `cuts`, of all blocks with at least this many entries.
    /// `cuts` as for [`Partition::insert`].
    pub fn collect(&self, cuts: &Cuts, at_least: usize) -> Partition {
        let inner = &*self.inner;
        let mut collector = Collector::new(&inner.coder, cuts);
        let count = inner.blocks.count();
        let mut writer = Writer::new(inner.layout, &inner.coder, count, inner.blocks.memory_bytes() / 8);
        let mut entries = Vec::new();
        for at in 0..count {
            if inner.blocks.entries(at) < at_least as u64 {
                writer.copy(&inner.blocks, at);
                continue;
            }
            entries.clear();
            inner.blocks.decode(&inner.layout, &inner.coder, at, &mut entries);
            collect(&mut entries, &inner.layout, &mut collector, !inner.last_is_unknown);
            writer.block(&entries);
        }
        self.with(inner.map.clone(), writer.finish())
    }

    /// Returns what readers of older versions need in addition to the next partition (section 4.2, cross-round
    /// snapshots): the entries outside the last level. The result knows nothing about the last level: any key may be
    /// there.
    pub fn shrink(&self) -> Partition {
        let inner = &*self.inner;
        let kept = inner.entries - inner.last;
        // Few entries in as many positions: more low bits, fewer buckets.
        let tops = inner.map.positions >> inner.layout.extra;
        let per_block = (kept / inner.blocks.count().max(1) as u64).max(1);
        let width = (tops / per_block).max(1).ilog2().max(inner.layout.width);
        let layout = Layout { width, buckets: ((tops - 1) >> width) + 1, ..inner.layout };
        let mut writer = Writer::new(layout, &inner.coder, inner.blocks.count(), 0);
        let mut entries = Vec::new();
        for at in 0..inner.blocks.count() {
            entries.clear();
            inner.blocks.decode(&inner.layout, &inner.coder, at, &mut entries);
            entries.retain(|entry| entry.code != Code::LAST);
            writer.block(&entries);
        }
        let (blocks, entries, last) = writer.finish();
        let inner = Inner { layout, blocks, entries, last, last_is_unknown: true, ..inner.clone() };
        Partition { inner: Arc::new(inner) }
    }

    fn with(&self, map: Arc<Map>, (blocks, entries, last): (Blocks, u64, u64)) -> Partition {
        let inner = Inner { map, blocks, entries, last, ..(*self.inner).clone() };
        Partition { inner: Arc::new(inner) }
    }

    /// Extends the map with new segments if keys arrive in an empty edge; also returns by how many blocks the
    /// existing ones move.
    fn map_for(&self, batch: &Batch) -> (Arc<Map>, usize) {
        let inner = &*self.inner;
        let keys = batch.keys();
        let (Some(first), Some(last), false) = (keys.first(), keys.last(), inner.map.kind == Kind::Digest)
        else {
            return (inner.map.clone(), 0);
        };
        let within =
            |key| (1..inner.map.segments() - 1).contains(&inner.map.segment(inner.map.keys.clamped(key)));
        if inner.map.segments() > 2 && within(first) && within(last) {
            return (inner.map.clone(), 0);
        }
        let numbers: Vec<u64> = keys.iter().map(|key| inner.map.keys.clamped(key)).collect();
        match inner.map.extend(&numbers, |block| inner.blocks.entries(block) == 0) {
            Some((map, shift)) => (Arc::new(map), shift),
            None => (inner.map.clone(), 0),
        }
    }
}
