//! The preparation of operations, which must not be timed.

#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::keys::KeySet;
use crate::mixgraph::{self, KeyRanges};
use crate::pattern::Pattern;
use crate::random::{Permutation, Random, mix64};
use crate::run::RunSpec;
use crate::value;
use crate::workload::{INSERT_EVERY, LONGEST_SCAN, MULTI_GET_KEYS, NEXT_ENTRIES, Workload, ZIPF_EXPONENT};
use crate::zipf::Ranks;

/// The target limit of a chunk's prepared keys and values in bytes, so that it does not evict the
/// database's data from the processor's cache.
const CHUNK_BYTES: usize = 64 << 10;

/// The most operations in a chunk.
const CHUNK_OPS: usize = 1024;

/// The action of an operation and its correct answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Put `other` under `key`.
    Put,
    /// Get `key`, which has a value, then put `other` under it.
    Modify,
    /// Get `key`, which has a value.
    GetExisting,
    /// Get `key`, which has none.
    GetAbsent,
    /// Look for a key from `key` to `other`.
    EmptyRange,
    /// Seek to `key`, which exists, and read this many entries after it.
    Seek(usize),
    /// Seek to `key` in reverse, and read this many entries before it.
    Back(usize),
}

/// One prepared operation; ranges point into [`Chunk::bytes`].
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) action: Action,
    pub(super) key: Range<usize>,
    pub(super) other: Range<usize>,
    /// The key's [`tag`](value::tag_of), where a value is expected.
    pub(super) tag: u64,
    /// The length of the expected value in bytes.
    pub(super) value_bytes: usize,
}

/// A few operations, ready to be executed.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) bytes: Vec<u8>,
    pub(super) ops: Vec<Op>,
}

/// Prepares the operations of one thread, chunk by chunk, in one reused buffer.
pub(super) struct Source<'a> {
    spec: &'a RunSpec<'a>,
    order: &'a [u64],
    thread: u64,
    threads: u64,
    random: Random,
    /// Scrambles fill order and Zipf ranks over the key set.
    permutation: Permutation,
    ranks: Option<Ranks>,
    ranges: Option<KeyRanges>,
    /// The number of operations that keeps a chunk small enough.
    fitting: usize,
    /// The numbers of the keys that this thread inserted, in order.
    inserted: Vec<u64>,
    chunk: Chunk,
    scratch: Vec<u8>,
}

impl<'a> Source<'a> {
    pub(super) fn new(spec: &'a RunSpec<'a>, order: &'a [u64], thread: u64, threads: u64) -> Self {
        use Workload::*;
        let skewed =
            matches!(spec.workload, GetZipf | SeekZipf | YcsbA | YcsbB | YcsbC | YcsbD | YcsbE | YcsbF);
        let exponent = spec.pattern.map_or(ZIPF_EXPONENT, Pattern::skew);
        let value = if spec.workload.writes() { spec.value_bytes.mean() as usize } else { 0 };
        let bytes = spec.keys.key_bytes() as usize + value + 1;
        Source {
            spec,
            order,
            thread,
            threads,
            random: Random::part(spec.seed, (spec.workload as u64) << 32 | thread),
            permutation: Permutation::new(spec.keys.len(), spec.seed),
            ranks: skewed.then(|| Ranks::new(spec.fill.loaded, exponent)),
            ranges: (spec.workload == Mixgraph).then(|| KeyRanges::new(spec.keys.len())),
            fitting: (CHUNK_BYTES / bytes).clamp(1, CHUNK_OPS),
            inserted: Vec::new(),
            chunk: Chunk::default(),
            scratch: Vec::new(),
        }
    }

    /// Returns the number of operations of the next chunk.
    pub(super) fn chunk_ops(&self) -> u64 {
        match self.spec.workload {
            batched if batched.is_batched() => self.fitting.next_multiple_of(MULTI_GET_KEYS) as u64,
            _ => self.fitting as u64,
        }
    }

    /// Prepares operations `from..from + count` of this thread.
    pub(super) fn prepare(&mut self, from: u64, count: u64) -> &Chunk {
        self.chunk.bytes.clear();
        self.chunk.ops.clear();
        for n in from..from + count {
            self.push(n);
        }
        &self.chunk
    }

    fn push(&mut self, n: u64) {
        match self.spec.workload {
            Workload::FillRandom => self.put(self.permutation.at(self.thread + n * self.threads), 0),
            Workload::FillSeq => self.put(self.order[(self.thread + n * self.threads) as usize], 0),
            Workload::Overwrite => self.overwrite(),
            Workload::GetEmpty | Workload::MultiGetEmpty => self.get_absent(),
            Workload::GetExisting | Workload::MultiGetExisting => self.get_any(),
            Workload::GetMixed | Workload::MultiGet if self.random.chance(50) => self.get_absent(),
            Workload::GetMixed | Workload::MultiGet => self.get_any(),
            Workload::ReadWrite if self.random.chance(50) => self.overwrite(),
            Workload::ReadMostly if self.random.chance(10) => self.overwrite(),
            Workload::ReadWrite | Workload::ReadMostly => self.get_any(),
            Workload::GetZipf | Workload::YcsbC => {
                let i = self.zipf_key();
                self.get(i);
            }
            Workload::Seek | Workload::SeekNext20 | Workload::SeekNext50 | Workload::SeekNext10000 => {
                let next = match self.spec.workload {
                    Workload::Seek => 0,
                    Workload::SeekNext20 => 20,
                    Workload::SeekNext10000 => 10_000,
                    _ => NEXT_ENTRIES,
                };
                let i = self.any_key();
                self.existing(Action::Seek(next), i);
            }
            Workload::ReverseNext50 => {
                let i = self.any_key();
                self.existing(Action::Back(NEXT_ENTRIES), i);
            }
            Workload::SeekZipf => {
                let i = self.zipf_key();
                self.existing(Action::Seek(0), i);
            }
            Workload::YcsbA | Workload::YcsbB | Workload::YcsbF => {
                let i = self.zipf_key();
                let updates = if self.spec.workload == Workload::YcsbB { 5 } else { 50 };
                let action = if self.spec.workload == Workload::YcsbF { Action::Modify } else { Action::Put };
                match self.random.chance(updates) {
                    true => {
                        let version = self.random.next_u64() as u32;
                        self.write(action, i, version)
                    }
                    false => self.get(i),
                }
            }
            Workload::YcsbD | Workload::YcsbE => {
                if let Some(i) = self.insert_at(self.thread + n * self.threads) {
                    self.inserted.push(i);
                    self.put(i, 0);
                } else if self.spec.workload == Workload::YcsbD {
                    let i = self.latest_key();
                    self.get(i);
                } else {
                    let next = self.random.below(LONGEST_SCAN as u64) as usize;
                    let i = self.zipf_key();
                    self.existing(Action::Seek(next), i);
                }
            }
            Workload::RangeEmpty | Workload::RangeAbsent => self.empty_range(),
            Workload::Mixgraph => self.mixgraph(),
            Workload::Compact => unreachable!("refused by `run`"),
        }
    }

    fn mixgraph(&mut self) {
        const READ_OR_PUT: u64 = mixgraph::GET_PERCENT + mixgraph::PUT_PERCENT;
        let i = self.range_key();
        match self.random.below(100) {
            0..mixgraph::GET_PERCENT => self.get(i),
            mixgraph::GET_PERCENT..READ_OR_PUT => {
                let version = self.random.next_u64() as u32;
                self.put(i, version);
            }
            _ => {
                let entries = mixgraph::scan_length(&mut self.random) as usize;
                self.existing(Action::Seek(entries - 1), i);
            }
        }
    }

    /// Returns the number of an existing key.
    fn any_key(&mut self) -> u64 {
        if let Some(pattern) = self.spec.pattern {
            return self.pattern_key(pattern);
        }
        let fill = &self.spec.fill;
        match self.random.below(fill.loaded) {
            i if fill.loaded == self.spec.keys.len() => i,
            place => fill.at(place),
        }
    }

    /// Returns the number of an existing key; popular keys are scattered over the key space.
    fn zipf_key(&mut self) -> u64 {
        if let Some(pattern) = self.spec.pattern {
            return self.pattern_key(pattern);
        }
        let fill = &self.spec.fill;
        let rank = self.ranks.as_ref().expect("made for these workloads").draw(&mut self.random);
        match fill.loaded == self.spec.keys.len() {
            true => self.permutation.at(rank),
            false => fill.at(rank),
        }
    }

    /// Returns the number of an existing key, mostly from a hot range.
    fn range_key(&mut self) -> u64 {
        if let Some(pattern) = self.spec.pattern {
            return self.pattern_key(pattern);
        }
        let place = self.ranges.as_ref().expect("made for this workload").draw(&mut self.random);
        let i = match self.order {
            // Numbers are positions.
            [] => place,
            order => order[place as usize],
        };
        self.spec.fill.present(i, self.spec.keys.len())
    }

    fn pattern_key(&mut self, pattern: &Pattern) -> u64 {
        let i = pattern.draw(&mut self.random);
        self.spec.fill.present(i, self.spec.keys.len())
    }

    /// Returns the number of an existing key, mostly a recent one. Keys that other threads inserted
    /// in this run are not yet known to exist.
    fn latest_key(&mut self) -> u64 {
        let rank = self.ranks.as_ref().expect("made for this workload").draw(&mut self.random);
        let mine = self.inserted.len() as u64;
        match rank < mine {
            true => self.inserted[(mine - 1 - rank) as usize],
            false => self.spec.fill.at(self.spec.fill.loaded - 1 - (rank - mine)),
        }
    }

    /// Returns the key that operation `op` of all threads inserts, if any: the next in fill order,
    /// for one operation of every twenty, at a varying place so that every thread has its share.
    /// Returns `None` when no keys are left.
    fn insert_at(&self, op: u64) -> Option<u64> {
        let (twenty, at) = (op / INSERT_EVERY, op % INSERT_EVERY);
        let last = (twenty + 1) * INSERT_EVERY > self.spec.ops;
        let place = self.spec.fill.loaded + twenty;
        let inserts = at == mix64(twenty) % INSERT_EVERY && !last && place < self.spec.keys.len();
        inserts.then(|| self.spec.fill.at(place))
    }

    fn put(&mut self, i: u64, version: u32) {
        self.write(Action::Put, i, version);
    }

    fn write(&mut self, action: Action, i: u64, version: u32) {
        let start = self.chunk.bytes.len();
        self.spec.keys.existing(i, &mut self.chunk.bytes);
        let end = self.chunk.bytes.len();
        let tag = value::tag_of(&self.chunk.bytes[start..end]);
        let value_bytes = self.spec.value_bytes.of(tag);
        value::fill(tag, version, value_bytes, &mut self.chunk.bytes);
        let other = end..self.chunk.bytes.len();
        self.chunk.ops.push(Op { action, key: start..end, other, tag, value_bytes });
    }

    fn overwrite(&mut self) {
        let (i, version) = (self.any_key(), self.random.next_u64() as u32);
        self.put(i, version);
    }

    fn get_any(&mut self) {
        let i = self.any_key();
        self.get(i);
    }

    /// Prepares a get of existing key `i` or, with the pattern's share, of an absent key right
    /// after it.
    fn get(&mut self, i: u64) {
        let gap = self.spec.pattern.and_then(|pattern| pattern.gap(&mut self.random));
        let Some(n) = gap else { return self.existing(Action::GetExisting, i) };
        let start = self.chunk.bytes.len();
        self.spec.keys.gap_key(i, n, &mut self.chunk.bytes);
        let key = start..self.chunk.bytes.len();
        self.chunk.ops.push(Op { action: Action::GetAbsent, key, other: 0..0, tag: 0, value_bytes: 0 });
    }

    fn existing(&mut self, action: Action, i: u64) {
        let start = self.chunk.bytes.len();
        self.spec.keys.existing(i, &mut self.chunk.bytes);
        let key = start..self.chunk.bytes.len();
        let tag = value::tag_of(&self.chunk.bytes[key.clone()]);
        let value_bytes = self.spec.value_bytes.of(tag);
        self.chunk.ops.push(Op { action, key, other: 0..0, tag, value_bytes });
    }

    fn get_absent(&mut self) {
        let start = self.chunk.bytes.len();
        let i = self.random.below(self.spec.keys.absent_len());
        self.spec.keys.absent(i, &mut self.chunk.bytes);
        let key = start..self.chunk.bytes.len();
        self.chunk.ops.push(Op { action: Action::GetAbsent, key, other: 0..0, tag: 0, value_bytes: 0 });
    }

    fn empty_range(&mut self) {
        let keys: &KeySet = self.spec.keys;
        let start = self.chunk.bytes.len();
        loop {
            self.scratch.clear();
            self.chunk.bytes.truncate(start);
            let (low, high) = (&mut self.chunk.bytes, &mut self.scratch);
            let made = match self.spec.workload {
                Workload::RangeAbsent => {
                    keys.absent_range(self.random.below(keys.absent_len()), low, high);
                    true
                }
                _ => keys.empty_range(self.random.below(keys.len()), low, high),
            };
            if made {
                break;
            }
        }
        let middle = self.chunk.bytes.len();
        self.chunk.bytes.extend_from_slice(&self.scratch);
        let other = middle..self.chunk.bytes.len();
        self.chunk.ops.push(Op {
            action: Action::EmptyRange,
            key: start..middle,
            other,
            tag: 0,
            value_bytes: 0,
        });
    }
}
