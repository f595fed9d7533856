//! GRF: a filter over the keys of all runs of a tree that names the runs (H. Wang, T. Guo, J. Yang,
//! H. Zhang, "GRF: A Global Range Filter for LSM-Trees with Shape Encoding", SIGMOD 2024, sections
//! 4 and 5).
//!
//! A [`Partition`] is the filter of one key range of about 2^16 keys. It is an immutable value:
//! insertion and garbage collection make new ones, so readers need no lock. The newest serves all
//! live versions of a tree, as long as the cuts include their tables.
//!
//! # Structure
//! * A map (`map.rs`) assigns a key a position: learned (SNARF's), by the digest, or something
//!   between.
//! * A set (`set.rs`) holds an entry for each pair of a key and a table: its position and a
//!   *symbol*. Entries of neighbouring positions form blocks of about two cache lines.
//! * A book (`book.rs`) says which interval of epochs a symbol stands for. By the interval the
//!   caller finds the tables of a version. Symbols have short codes if they are frequent
//!   (`names.rs`), near the entropy of the runs' shares.
//!
//! # Codes
//! What the paper writes as digits (Shape Encoding, `shape.rs`) is an interval of flush numbers.
//! Here flush numbers never repeat, and intervals are what the tree's tables leave undivided:
//! *gaps* between cuts ([`Cuts`](super::Cuts)). Their codes follow from how many entries each has,
//! whatever the schedule of merges. "Last" stands for `[0, base)`. Flushes after the book was
//! written have symbols for epochs to come.
//!
//! # Bits
//! The number of positions is what the bits per key allow when the partition is built. Runs of
//! equal size that pile up leave the bits per key as they are: what the entries' share of the
//! positions saves, the codes take. Other flushes take more; then the partition is encoded anew
//! (`update.rs`): codes get shorter where tables have been merged, and as many low bits of
//! positions are cut as the budget asks for, block by block. The paper gives entries of upper
//! levels more bits of position instead (section 4.3.2). Each such bit costs as much as one for an
//! entry of the last level and rejects as many absent keys of the distribution; so all entries here
//! have the same, within a bit. Keys that the map does not know are the map's concern.
//!
//! # Why no key is ever rejected
//! Let a *table* be one of a version that has this partition, or one derived from it by insertion
//! or collection. The invariant: **the interval of an entry has an epoch in common with the table
//! that holds the entry's key**, in the version that the entry was made for and in all later ones.
//! As a key's position is always computed the same way (except for the low bits that the entry no
//! longer has), its entry is found; by the invariant it names the table.
//!
//! 1. When an entry is made, for a table with epochs `E`, its interval lies within `E`, or contains
//!    `E.lo`, or is "last" and `E.lo < base`. Tables only merge, and the epochs of a merged one
//!    contain those of each of its parts. So the invariant holds until the interval is changed.
//! 2. Collection changes an interval only if it lies in one gap between neighbouring cuts, closed
//!    on both sides. By the definition of [`Cuts`](super::Cuts), the table that holds the entry's
//!    key has an epoch of the gap and therefore all of it, in all live versions and all versions
//!    derived from them. The new interval is the gap; or "last" if all tables that have the gap begin
//!    before the base: then each of them has an epoch of `[0, base)`. Either way the invariant
//!    holds. Gaps that share a symbol because there are too many stand for their hull. A later base
//!    makes "last" longer, so it still has what it had.
//! 3. An entry is dropped only if no table holds its gap; one of "last", if no table begins before
//!    the base.
//! 4. Two entries with the same known bits and the same symbol answer alike: one is enough.
//! 5. The bits of a position that an entry keeps are the high ones of the map's. A map is extended
//!    by segments behind all others, which changes no position, or before them by a number of
//!    positions that leaves the cut bits of all positions as they are.
//! 6. A bit that an entry has lost is not asked for again, even if the next encoding had room for
//!    it (`Layout::refit`).
//!
//! For 2 and 3 the caller ensures that *cuts are not blind*: every table for which entries were
//! inserted is among the tables of the cuts, or all of its epochs lie after them. (A flush that got
//! its epoch before another but is published after it must be counted as soon as its keys are
//! inserted.)
//!
//! An entry cannot be taken out for a deleted key alone, as the paper's eager way does: another key
//! of the same table may have the same position, and both are one entry (4).
//!
//! # Threads
//! Values without locks or atomics, shared by `Arc`: any thread may call anything. The caller
//! publishes new partitions.
//!
//! # Costs
//! A probe reads the knots (usually cached), a word of the directory, and one or two lines of the
//! block. An insertion copies the partition: blocks without new keys as memory, the others entry by
//! entry.

mod book;
mod build;
mod choose;
mod exceptions;
#[cfg(any(test, feature = "run-index"))]
mod huffman;
mod image;
mod layout;
mod map;
mod names;
mod pieces;
mod review;
mod set;
pub mod shape;
mod update;
mod walk;

use std::sync::Arc;

#[cfg(any(test, feature = "run-index"))]
pub use huffman::GrfHuffman;
pub use review::Review;

use super::{Epoch, Epochs, MapChoice, QueryMix};
use crate::digest::Digest;

use book::Book;
use map::Map;
use set::Set;

/// In the results of [`Partition::behind`]: there is no bound; the last key may lie right before
/// the start of the walk. No key belongs to this number, so it must not be passed to
/// [`Partition::lower_key`].
pub const NO_BOUND: u64 = u64::MAX;

/// How to build a [`Partition`].
#[derive(Clone, PartialEq, Debug)]
pub struct PartitionSpec {
    /// Bits of memory per key of a run, including map, directory and codes, in `(0, 64]`.
    /// Partitions of a few hundred keys or fewer take more.
    pub bits_per_key: f64,
    /// How keys are mapped to positions.
    pub map: MapChoice,
    /// The queries by which [`MapChoice::Auto`] chooses.
    pub mix: QueryMix,
}

/// The map of a [`Partition`], and why it was chosen.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MapReason {
    /// The map; never [`MapChoice::Auto`].
    pub chosen: MapChoice,
    /// The share of held-out keys that the learned map would not have distinguished from the
    /// others; `None` if that was not measured: the caller chose the map, or there were too few
    /// keys.
    pub holdout_rate: Option<f64>,
    /// That rate if the map spread keys evenly.
    pub ideal_rate: f64,
}

/// The filter of a key range. Cloning shares its memory. See the module documentation.
#[derive(Clone, Debug)]
pub struct Partition {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    map: Arc<Map>,
    book: Arc<Book>,
    set: Set,
    /// Low bits of the map's positions that the set does not have.
    cut: u32,
    bits_per_key: f64,
    /// Entries of the last level.
    last: u64,
    /// Keys when it was built.
    built: u64,
    /// Keys that the entries stand for, each once for every run that has it, as far as that is
    /// known: those that share a position and a code are one entry, and memory is for all of them.
    keys: u64,
    /// Entries whose codes were made before they were known: of epochs that were to come.
    young: u64,
    crowd: Crowd,
    reason: MapReason,
    last_is_unknown: bool,
    /// The share of the symbols that a walk through a segment is expected to meet; 0 if walks end
    /// within segments.
    met_by_a_walk: f64,
}

/// A partition whose largest block has at least so many entries, and [`CROWDED_TIMES`] those of the
/// largest when it was built, is crowded.
const CROWDED_BLOCK: u64 = 512;
const CROWDED_TIMES: u64 = 4;
/// A partition is also crowded if at least so many new keys lack the common prefix; or if so many,
/// and more than half of all new ones, have the position of the one before.
const CROWDED_KEYS: u64 = 1024;

/// A partition that takes the memory that it may by more than this factor less would be better off
/// anew.
const STARVED: f64 = 1.15;

/// What says that keys arrive where the map does not tell them apart.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Crowd {
    /// Entries of the largest block, when built and now.
    built_largest: u64,
    largest: u64,
    /// Keys inserted since, and those of them at the position of the key before, of the same table.
    added: u64,
    joined: u64,
    /// Those that lack the common prefix.
    strays: u64,
    /// The map told only three quarters of the keys apart that it was built for. That more of them
    /// are alike then says nothing.
    is_blurred: bool,
}

/// Reports whether a block of so many entries is out of proportion to the largest one when the map
/// was made.
fn is_crowded(largest: u64, built_largest: u64) -> bool {
    largest >= CROWDED_BLOCK.max(built_largest.saturating_mul(CROWDED_TIMES))
}

impl Partition {
    /// Returns whether keys have piled up since the partition was built: outside of the common
    /// prefix, or between keys that had been neighbours. Answers stay right, but a partition built
    /// anew gives fewer false positives and takes less time to insert into.
    pub fn is_crowded(&self) -> bool {
        let Crowd { built_largest, largest, added, joined, strays, is_blurred } = self.inner.crowd;
        is_crowded(largest, built_largest)
            || strays >= CROWDED_KEYS
            || !is_blurred && joined >= CROWDED_KEYS && joined > added / 2
    }

    /// Returns whether entries of the last level are omitted: any key may be there.
    pub fn last_is_unknown(&self) -> bool {
        self.inner.last_is_unknown
    }

    /// The first epoch that codes distinguish; earlier ones belong to the last level.
    pub fn base(&self) -> Epoch {
        self.inner.book.base
    }

    /// Calls `found` with the epochs of the code of every entry that the key matches; equal ones
    /// may repeat. For a key that is in no table, `found` is called only at the false-positive
    /// rate. `digest` is the key's.
    #[inline]
    pub fn probe(&self, key: &[u8], digest: Digest, found: impl FnMut(Epochs)) {
        self.probe_at(self.position(key, digest), found);
    }

    /// Returns the position of a key, for [`Partition::probe_at`] and the functions that fetch what
    /// it reads.
    #[inline]
    pub fn position(&self, key: &[u8], digest: Digest) -> u64 {
        self.inner.map.position(key, digest) >> self.inner.cut
    }

    /// [`Partition::probe`] by the [position](Partition::position) of a key.
    #[inline]
    pub fn probe_at(&self, position: u64, mut found: impl FnMut(Epochs)) {
        let inner = &*self.inner;
        inner.set.probe(&inner.book.names, position, |symbol| found(inner.book.epochs(symbol)));
    }

    /// Prefetches the word of the directory that a probe of this position reads first.
    #[inline]
    pub fn prefetch_directory(&self, position: u64) {
        self.inner.set.prefetch_directory(position);
    }

    /// Reads the directory, and prefetches what a probe of this position reads next.
    #[inline]
    pub fn prefetch(&self, position: u64) {
        self.inner.set.prefetch(position);
    }

    /// Returns the number of entries: one for all keys of a table that share a position, one for
    /// each table that holds a key.
    pub fn entries(&self) -> u64 {
        self.inner.set.entries()
    }

    /// Returns how many keys the entries stand for, each counted once for every table that holds
    /// it. Once codes were collected it is an estimate: what became one entry were versions of a
    /// key, or keys that share a position.
    pub fn keys(&self) -> u64 {
        self.inner.keys
    }

    /// Returns the number of keys after building.
    pub fn built_keys(&self) -> u64 {
        self.inner.built
    }

    /// Returns whether there is memory for more bits of positions, since codes have become shorter or
    /// entries fewer. Only a partition built anew has them.
    pub fn is_starved(&self) -> bool {
        let inner = &*self.inner;
        // Keys at one position are one entry: where there are many, a partition built anew takes as
        // little. Nor would one that has not changed since it was built take more.
        let asked = inner.bits_per_key * inner.keys.min(self.entries()) as f64;
        inner.keys != inner.built && (self.memory_bytes() * 8) as f64 * STARVED < asked
    }

    /// Returns the number of entries of the last level.
    pub fn last_entries(&self) -> u64 {
        self.inner.last
    }

    /// Returns the bytes held, as if nothing were shared with other partitions.
    pub fn memory_bytes(&self) -> usize {
        let inner = &*self.inner;
        build::fixed_bytes(&inner.map, &inner.book) + inner.set.heap_bytes()
    }

    /// Returns the map and why it was chosen.
    pub fn reason(&self) -> MapReason {
        self.inner.reason
    }

    /// Returns the code bits per entry. Linear in the number of blocks.
    pub fn code_bits(&self) -> f64 {
        self.inner.set.symbol_bits() as f64 / self.entries().max(1) as f64
    }

    /// Returns the expected number of entries that a random absent key matches, if absent keys are
    /// distributed over blocks like the entries and uniformly within blocks. Linear in the number
    /// of blocks.
    pub fn expected_rate(&self) -> f64 {
        self.inner.set.rate()
    }

    /// Returns the number of blocks.
    pub fn blocks(&self) -> usize {
        self.inner.set.blocks()
    }

    /// Returns the number of entries of the largest block.
    pub fn largest_block(&self) -> usize {
        self.inner.crowd.largest as usize
    }

    /// Writes to `key` the smallest key that `number`, from [`Partition::ahead`] or
    /// [`Partition::behind`], can stand for. It is the empty key for number 0, which keys before
    /// the model have, too. Not for [`NO_BOUND`].
    pub fn lower_key(&self, number: u64, key: &mut Vec<u8>) {
        self.inner.map.lower_key(number, key);
    }
}

#[cfg(test)]
mod tests;
