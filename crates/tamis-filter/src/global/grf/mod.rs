//! GRF: a filter over the keys of all runs of a tree that names the runs (H. Wang, T. Guo, J. Yang, H. Zhang, "GRF: A
//! Global Range Filter for LSM-Trees with Shape Encoding", SIGMOD 2024, sections 4 and 5).
//!
//! A [`Partition`] is the filter of one key range of about 2^16 keys. It is an immutable value: insertion and garbage
//! collection make new ones, so readers need no lock. The newest serves all live versions of a tree, as long as the
//! cuts include their tables.
//!
//! # Structure
//! * A map (`map.rs`) assigns a key to a block and a position in it: learned (SNARF's), by the digest, or mixed.
//! * Blocks (`blocks.rs`) of a hundred entries or so: the positions in Elias–Fano coding, then the codes.
//! * A code (`code.rs`) stands for an interval of epochs, by which the caller finds the tables of a version.
//! * Variable-length fingerprints (section 4.3.2): an entry whose code has `a` digits has `a` more bits of position.
//!   A key matches it if it agrees in all bits that the entry has. Garbage collection that drops digits drops as many
//!   bits.
//!
//! # Codes
//! Let `W(i)` be the number of flushes that a run of level `i` holds (the product of the radices below).
//! `f = epoch - base` is written in the mixed radix: Shape Encoding (`shape.rs`), with flush numbers that never
//! repeat. A code of `a` digits has the `a` highest of them and stands for all epochs that begin with these: an
//! aligned interval of `W` epochs. The code without digits is "last" and stands for `[0, base)`. The greatest code of
//! each length stands for all later epochs, too.
//!
//! # Why no key is ever rejected
//! Let a *table* be one of a version that has this partition, or one derived from it by insertion or collection. The
//! invariant: **the code of an entry has an epoch in common with the table that holds the entry's key**, in the
//! version that the entry was made for and in all later ones. As a key's position is always computed the same way
//! (except for the low bits that the entry no longer has), its entry is found; by the invariant it names the table.
//!
//! 1. When an entry is made, for a table with epochs `E`, its code lies within `E`, or contains `E.lo`, or is "last" and
//!    `E.lo < base`. Tables only merge, and the epochs of a merged one contain those of each of its parts. So the invariant
//!    holds until the code is changed.
//! 2. Collection changes a code only if everything it stands for lies in one gap between neighbouring cuts, closed on
//!    both sides. By the definition of [`Cuts`](super::Cuts), the table that holds the entry's key has an epoch of the
//!    gap and therefore all of it, in all live versions and all versions derived from them. The new code stands only for
//!    epochs of the gap, or is "last" while the gap begins before the base: then `[0, base)` has the gap's first epoch.
//!    Either way the invariant holds.
//! 3. An entry is dropped only if no table holds its gap.
//! 4. Two entries with the same known bits and the same code answer alike: one is enough.
//!
//! For 2 and 3 the caller ensures that *cuts are not blind*: every table for which entries were inserted is among the
//! tables of the cuts, or all of its epochs lie after them. (A flush that got its epoch before another but is
//! published after it must be counted as soon as its keys are inserted.)
//!
//! # Threads
//! Values without locks or atomics, shared by `Arc`: any thread may call anything. The caller publishes new
//! partitions.
//!
//! # Costs
//! A probe reads the knots (usually cached), a word of the directory, and two or three lines of the block. An
//! insertion copies the partition: blocks without new keys word by word, the others entry by entry.

mod blocks;
mod build;
mod code;
#[cfg(any(test, feature = "run-index"))]
mod huffman;
mod map;
pub mod shape;
mod update;
mod walk;

use std::sync::Arc;

#[cfg(any(test, feature = "run-index"))]
pub use huffman::GrfHuffman;

use super::{Epoch, Epochs, MapChoice};
use crate::digest::Digest;

use blocks::{Blocks, Layout};
use code::Coder;
use map::Map;

/// In the results of [`Partition::behind`]: there is no bound; the last key may lie right before the start of the
/// walk. No key belongs to this number, so it must not be passed to [`Partition::lower_key`].
pub const NO_BOUND: u64 = u64::MAX;

/// How to build a [`Partition`].
#[derive(Clone, PartialEq, Debug)]
pub struct PartitionSpec {
    /// Bits of memory per key, including model, directory and codes, once the partition has grown to [`Self::growth`]
    /// times its original keys. In `(0, 64]`. Partitions of a few hundred keys or fewer take up to two more.
    pub bits_per_key: f64,
    /// Expected number of entries before the partition is rebuilt, relative to its original number; at least 1.
    /// Values above 32 are treated as 32.
    pub growth: f64,
    /// Number of runs of level `i` that make a run of level `i + 1`, level 0 first, without the last level. 1 to 16
    /// levels, none of them 0, at most 48 bits in total if each is written in binary.
    pub radices: Vec<u32>,
    /// How keys are mapped to positions.
    pub map: MapChoice,
}

/// The map of a [`Partition`], and why it was chosen.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MapReason {
    /// The map; never [`MapChoice::Auto`].
    pub chosen: MapChoice,
    /// The share of held-out keys that the learned map would not have distinguished from the others; `None` if that
    /// was not measured: the caller chose the map, or there were too few keys.
    pub holdout_rate: Option<f64>,
    /// That rate if the map spread keys evenly.
    pub ideal_rate: f64,
}

/// The filter of a key range. Cloning shares its memory. See the module documentation.
#[derive(Clone, Debug)]
pub struct Partition {
    inner: Arc<Inner>,
}

#[derive(Clone, Debug)]
struct Inner {
    map: Arc<Map>,
    coder: Arc<Coder>,
    layout: Layout,
    blocks: Blocks,
    entries: u64,
    last: u64,
    built: u64,
    reason: MapReason,
    last_is_unknown: bool,
}

impl Partition {
    /// Returns whether entries of the last level are omitted: any key may be there.
    pub fn last_is_unknown(&self) -> bool {
        self.inner.last_is_unknown
    }

    /// The first epoch that codes distinguish; earlier ones belong to the last level.
    pub fn base(&self) -> Epoch {
        self.inner.coder.base()
    }

    /// Calls `found` with the epochs of the code of every entry that the key matches; equal ones may repeat. For a
    /// key that is in no table, `found` is called only at the false-positive rate. `digest` is the key's.
    #[inline]
    pub fn probe(&self, key: &[u8], digest: Digest, mut found: impl FnMut(Epochs)) {
        let inner = &*self.inner;
        let spot = inner.map.spot(key, digest);
        inner.blocks.probe(&inner.layout, &inner.coder, spot.block, spot.position, |code| {
            found(inner.coder.epochs(code));
        });
    }

    /// Prefetches what [`Partition::probe`] of this key will read.
    #[inline]
    pub fn prefetch(&self, key: &[u8], digest: Digest) {
        let inner = &*self.inner;
        inner.blocks.prefetch(inner.map.spot(key, digest).block);
    }

    /// Returns the number of entries: one for all keys of a table that share a position, one for each table that
    /// holds a key.
    pub fn entries(&self) -> u64 {
        self.inner.entries
    }

    /// Returns the number of entries after building.
    pub fn built_entries(&self) -> u64 {
        self.inner.built
    }

    /// Returns the number of entries of the last level.
    pub fn last_entries(&self) -> u64 {
        self.inner.last
    }

    /// Returns the bytes held, as if nothing were shared with other partitions.
    pub fn memory_bytes(&self) -> usize {
        let inner = &*self.inner;
        size_of::<Inner>() + inner.blocks.memory_bytes() + size_of::<Map>() + inner.map.memory_bytes()
    }

    /// Returns the map and why it was chosen.
    pub fn reason(&self) -> MapReason {
        self.inner.reason
    }

    /// Returns the code bits per entry: indicator, digits, extra bits of the position. Linear in the number of
    /// blocks.
    pub fn code_bits(&self) -> f64 {
        self.inner.blocks.code_bits(&self.inner.layout) as f64 / self.entries().max(1) as f64
    }

    /// Returns the expected number of entries that a random absent key matches, if absent keys are distributed over
    /// blocks like the entries and uniformly within blocks. Decodes the partition; meant for statistics.
    pub fn expected_rate(&self) -> f64 {
        let inner = &*self.inner;
        let tops = (inner.map.positions >> inner.layout.extra) as f64;
        let (mut entries, mut sum) = (Vec::new(), 0.0);
        for at in 0..inner.blocks.count() {
            entries.clear();
            inner.blocks.decode(&inner.layout, &inner.coder, at, &mut entries);
            let matches = entries.iter().map(|entry| (-f64::from(entry.code.digits())).exp2() / tops);
            sum += entries.len() as f64 * matches.sum::<f64>();
        }
        sum / self.entries().max(1) as f64
    }

    /// Returns the number of blocks.
    pub fn blocks(&self) -> usize {
        self.inner.blocks.count()
    }

    /// Returns the number of entries of the largest block. Linear in the number of blocks.
    pub fn largest_block(&self) -> usize {
        let blocks = &self.inner.blocks;
        (0..blocks.count()).map(|at| blocks.entries(at)).max().unwrap_or(0) as usize
    }

    /// Writes to `key` the smallest key that `number`, from [`Partition::ahead`] or [`Partition::behind`], can stand
    /// for. It is the empty key for number 0, which keys before the model have, too. Not for [`NO_BOUND`].
    pub fn lower_key(&self, number: u64, key: &mut Vec<u8>) {
        if number == 0 {
            key.clear();
        } else {
            self.inner.map.keys.write_key_at(number, key);
        }
    }
}

#[cfg(test)]
mod tests;
