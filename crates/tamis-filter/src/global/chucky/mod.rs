//! Chucky (N. Dayan, M. Twitto, "Chucky: A Succinct Cuckoo Filter for LSM-Tree", SIGMOD 2021): one
//! cuckoo filter for a whole tree, whose entries name the run of their key.
//!
//! An entry lies in one of two buckets of four slots, as in [`Cuckoo`](crate::Cuckoo), but its
//! fingerprint comes with its run. The runs of a bucket are encoded together, since nearly all of
//! them are the last level's: with ten times more keys in each level this costs about 1.5 bits per
//! entry rather than five. `codebook.rs` describes the encoding.
//!
//! # Differences from the paper
//! * Any number of buckets, not only a power of two (which costs up to twice the memory): the other
//!   bucket of `i` is `c - i` modulo their number, where `c` is a hash of the first bits of the
//!   fingerprint.
//! * Fingerprint lengths depend on the level alone and are found by a search; see `plan.rs`.
//! * An empty slot has its own symbol and no fingerprint, so a bucket whose runs have a long code
//!   may hold three entries.
//! * An entry that finds no slot is set aside by its full digest: versions of a key in more runs
//!   than two buckets have slots, which no size would cure (the paper sets these aside, too), and a
//!   few others, up to one in a thousand; more only if a filter of twice the size has no room for
//!   them, either.
//!
//! # Invariants
//! * The entries are a multiset of (pair of buckets, run, fingerprint), one for each pair of a key
//!   and a run. So an entry is removed by removing any that looks the same.
//! * An entry that is set aside counts once for each time it was set aside.
//!
//! # Threads
//! Immutable. A change copies the filter: two cache misses per affected key, plus one copy of all
//! words. The codebook is shared.

mod codebook;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::bits;
use crate::bloom::reduce;
use crate::digest::{Digest, SpreadSalt};
use crate::error::FilterError;
use crate::fingerprints::{MAX_KEYS, hash};
use crate::global::run_index::{KeyChange, expected_shares, for_each_key};
use crate::global::{RunIndex, RunIndexSpec, RunTag, Tagged, TagsAhead};
use crate::words::prefetch;
use codebook::{Bucket, Codebook, LOAD, MAX_BUCKET, SLOTS};

/// Moves before an entry is set aside. At 95 % full a few hundred are rare.
const MAX_MOVES: usize = 500;

/// Versions of one key that two buckets take. With more of them there would be almost no room for
/// anything else.
const MAX_COPIES: usize = 6;

/// Factors of extra room that building tries when the requested size does not suffice.
const ATTEMPTS: [f64; 7] = [1.0, 1.02, 1.05, 1.1, 1.25, 1.5, LARGEST_ATTEMPT];
const LARGEST_ATTEMPT: f64 = 2.0;

/// Maximum number of fingerprint bits from which the other bucket is derived.
const MAX_SUM_BITS: u32 = 12;

/// Salt of the hash that places entries.
const SALT: u64 = 0x6368_7563_6b79;

/// One cuckoo filter for all runs. See the module documentation.
#[derive(Clone)]
pub struct Chucky {
    book: Arc<Codebook>,
    /// For each value of the first bits of a fingerprint, the sum of its two buckets.
    sums: Arc<[u64]>,
    spread: SpreadSalt,
    words: Vec<u64>,
    buckets: u64,
    capacity: u64,
    /// Entries by symbol, excluding those set aside.
    counts: Vec<u64>,
    /// Runs without a symbol of their own, with their entries in the buckets.
    others: Vec<(RunTag, u64)>,
    /// Entries that found no slot: digests, with counts.
    aside: BTreeMap<(u64, RunTag), u32>,
    aside_entries: u64,
    /// Those of them that would find a slot in a larger filter.
    crowded_out: u64,
    /// Entries moved to make room since the filter was built.
    moves: u64,
    /// Maximum number of these.
    most_aside: u64,
    /// State of the sequence that chooses victims.
    random: u64,
}

/// A fingerprint with its symbol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    symbol: u8,
    print: u32,
}

impl Chucky {
    /// Builds a filter of all keys of these runs, with room for `spec.capacity` entries; future
    /// entries are expected in the levels above the deepest one. Expected linear time after a merge
    /// of the keys.
    ///
    /// For small `bits_per_key` (below 8 or so) the shortest fingerprints need, and get, more than
    /// requested.
    ///
    /// # Errors
    /// [`FilterError::BitsPerKey`] for values outside `(0, 64]`, [`FilterError::TooLarge`] beyond
    /// 2^31 entries, [`FilterError::Construction`] if even twice the room does not suffice.
    pub fn build(items: &[Tagged<'_>], spec: &RunIndexSpec) -> Result<Self, FilterError> {
        if !(spec.bits_per_key > 0.0 && spec.bits_per_key <= 64.0) {
            return Err(FilterError::BitsPerKey(spec.bits_per_key));
        }
        let mut counts: BTreeMap<RunTag, u64> = BTreeMap::new();
        items.iter().for_each(|(batch, tag)| *counts.entry(*tag).or_default() += batch.len() as u64);
        let entries = counts.values().sum();
        let capacity = spec.capacity.max(entries).max(1);
        if capacity > MAX_KEYS {
            return Err(FilterError::TooLarge { keys: capacity });
        }
        let bucket_bits = (spec.bits_per_key * LOAD * SLOTS as f64) as u32;
        let shares = expected_shares(&counts, capacity, spec);
        let book = Arc::new(Codebook::new(&shares, bucket_bits.min(MAX_BUCKET)));
        for room in ATTEMPTS {
            let buckets = (capacity as f64 * room / (LOAD * SLOTS as f64)).ceil() as u64;
            let mut filter = Self::empty(&book, buckets.max(1), capacity);
            if room == LARGEST_ATTEMPT {
                // Many keys with versions in many runs each get in each other's way in a filter of
                // any size. Setting entries aside costs memory; having no filter costs every read.
                filter.most_aside = capacity;
            }
            if for_each_key(&[], items, |change| filter.apply(change)).is_some() {
                return Ok(filter);
            }
        }
        Err(FilterError::Construction { keys: entries })
    }

    fn empty(book: &Arc<Codebook>, buckets: u64, capacity: u64) -> Self {
        let spread = SpreadSalt::new(SALT);
        let sum_bits = book.shortest_width().min(MAX_SUM_BITS);
        let sums = (0..1u64 << sum_bits).map(|bits| reduce(hash(Digest::from_u64(bits), spread), buckets));
        // The last bucket is read as if there were words after it.
        let words = bits::words_for(buckets * u64::from(book.bucket_bits())) as usize + 2;
        let mut filter = Chucky {
            book: book.clone(),
            sums: sums.collect(),
            spread,
            words: vec![0; words],
            buckets,
            capacity,
            counts: vec![0; book.len()],
            others: Vec::new(),
            aside: BTreeMap::new(),
            aside_entries: 0,
            crowded_out: 0,
            moves: 0,
            most_aside: 16 + capacity / 1024,
            random: SALT,
        };
        // An empty bucket is not all zeros. It always has a code.
        if let Some(nothing) = book.encode(&book.nothing()) {
            (0..buckets).for_each(|bucket| filter.write(bucket, nothing));
        }
        filter
    }

    /// Returns the filter after a change of runs, in which every affected key is processed
    /// individually. `None` if it became too full, or if an entry to remove is not there.
    pub fn change(&self, removed: &[Tagged<'_>], added: &[Tagged<'_>]) -> Option<Self> {
        let mut changed = self.clone();
        for_each_key(removed, added, |change| changed.apply(change))?;
        changed.others.retain(|(_, entries)| *entries > 0);
        Some(changed)
    }

    /// Returns the number of entries set aside.
    pub fn set_aside(&self) -> u64 {
        self.aside_entries
    }

    /// Returns the number of entries moved to make room for others since the filter was built.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// Returns the share of slots in use.
    pub fn load(&self) -> f64 {
        self.counts.iter().sum::<u64>() as f64 / (self.buckets * SLOTS as u64) as f64
    }

    /// Bits of a bucket, code and fingerprints.
    pub fn bucket_bits(&self) -> u32 {
        self.book.bucket_bits()
    }

    /// Returns the average number of fingerprint bits over the present entries.
    pub fn fingerprint_bits(&self) -> f64 {
        let (entries, bits) = (0u8..).zip(&self.counts).fold((0, 0), |(entries, bits), (symbol, &count)| {
            (entries + count, bits + count * u64::from(self.book.width(symbol)))
        });
        bits as f64 / entries.max(1) as f64
    }

    /// Returns the average number of entries that match a random absent key.
    pub fn expected_rate(&self) -> f64 {
        let matches = (0u8..).zip(&self.counts).map(|(symbol, &count)| {
            // In one of two buckets, which coincide in a filter of one bucket.
            let met = (2.0 / self.buckets as f64).min(1.0);
            count as f64 * met * 0.5f64.powi(self.book.width(symbol) as i32)
        });
        matches.sum()
    }

    /// Returns all 32 bits of a key's fingerprint, and its buckets.
    #[inline]
    fn locate(&self, digest: u64) -> (u32, [u64; 2]) {
        let hash = hash(Digest::from_u64(digest), self.spread);
        // The top bits choose the bucket, the low half is the fingerprint.
        let (print, first) = (hash as u32, reduce(hash, self.buckets));
        (print, [first, self.other(first, print)])
    }

    /// Returns the other bucket of a fingerprint, given all 32 bits or as many as are known; it may
    /// be the same one.
    #[inline]
    fn other(&self, bucket: u64, print: u32) -> u64 {
        let sum = self.sums[(u64::from(print) >> (32 - self.sums.len().trailing_zeros())) as usize];
        if sum >= bucket { sum - bucket } else { sum + self.buckets - bucket }
    }

    /// Returns a stored fingerprint with zeros for the unknown bits.
    fn widened(&self, entry: Entry) -> u32 {
        entry.print << (32 - self.book.width(entry.symbol))
    }

    /// The bits of a bucket.
    #[inline]
    fn read(&self, bucket: u64) -> u128 {
        let width = self.book.bucket_bits();
        let at = bucket * u64::from(width);
        let (word, shift) = ((at / 64) as usize, (at % 64) as u32);
        let low = u128::from(self.words[word]) | u128::from(self.words[word + 1]) << 64;
        let mut bits = low >> shift;
        if shift + width > 128 {
            // Here `shift > 0`.
            bits |= u128::from(self.words[word + 2]) << (128 - shift);
        }
        bits & (u128::MAX >> (MAX_BUCKET - width))
    }

    fn write(&mut self, bucket: u64, bits: u128) {
        let width = self.book.bucket_bits();
        let at = bucket * u64::from(width);
        let (word, shift) = ((at / 64) as usize, (at % 64) as u32);
        let mask = u128::MAX >> (MAX_BUCKET - width);
        let mut put = |word: usize, mask: u64, bits: u64| self.words[word] = self.words[word] & !mask | bits;
        put(word, (mask << shift) as u64, (bits << shift) as u64);
        put(word + 1, (mask << shift >> 64) as u64, (bits << shift >> 64) as u64);
        if shift + width > 128 {
            put(word + 2, (mask >> (128 - shift)) as u64, (bits >> (128 - shift)) as u64);
        }
    }

    fn entry(&self, tag: RunTag, print: u32) -> Entry {
        let symbol = self.book.symbol(tag);
        Entry { symbol, print: print >> (32 - self.book.width(symbol)) }
    }

    /// Counts an entry that was placed in a bucket for good, or removed.
    fn count(&mut self, tag: RunTag, symbol: u8, came: bool) {
        let step = |count: &mut u64| *count = if came { *count + 1 } else { count.saturating_sub(1) };
        step(&mut self.counts[usize::from(symbol)]);
        if symbol == self.book.other {
            match self.others.iter_mut().find(|(t, _)| *t == tag) {
                Some((_, entries)) => step(entries),
                None if came => self.others.push((tag, 1)),
                None => {}
            }
        }
    }

    /// Applies the change of one key. `None` if the filter is too full or the key was never there.
    fn apply(&mut self, change: &KeyChange<'_>) -> Option<()> {
        // All removals come first, to make room. A retagged entry stays in its bucket if that has
        // the bits.
        let mut freed = [None; SLOTS];
        for (i, &tag) in change.removed.iter().enumerate() {
            let bucket = self.remove(change.digest, tag)?;
            freed[i % SLOTS] = bucket.or(freed[i % SLOTS]);
        }
        for (i, &tag) in change.added.iter().enumerate() {
            self.insert(change.digest, tag, freed.get(i).copied().flatten())?;
        }
        Some(())
    }

    /// Removes an entry and returns its bucket (`Some(None)`: it had been set aside). `None` if it
    /// is not there.
    fn remove(&mut self, digest: u64, tag: RunTag) -> Option<Option<u64>> {
        if !self.aside.is_empty()
            && let Some(times) = self.aside.get_mut(&(digest, tag))
        {
            *times -= 1;
            if *times == 0 {
                self.aside.remove(&(digest, tag));
            }
            self.aside_entries -= 1;
            self.crowded_out = self.crowded_out.min(self.aside_entries);
            return Some(None);
        }
        let (print, buckets) = self.locate(digest);
        let entry = self.entry(tag, print);
        // Runs that share a symbol look the same; only added entries of such runs are counted.
        if entry.symbol == self.book.other
            && !self.others.iter().any(|(t, entries)| *t == tag && *entries > 0)
        {
            return None;
        }
        for bucket in buckets {
            let mut slots = self.book.decode(self.read(bucket));
            if let Some(at) = slots.entries(&self.book).iter().position(|held| *held == Some(entry)) {
                slots.clear(at, &self.book);
                self.count(tag, entry.symbol, false);
                // A rarer combination may have a code that is longer by more than the length of the
                // fingerprint.
                return self.spill(bucket, slots, Vec::new(), &mut Vec::new()).then_some(Some(bucket));
            }
        }
        None
    }

    /// Adds an entry, if possible to the `preferred` bucket; if there is no slot, it is set aside.
    /// `None` if too many are.
    fn insert(&mut self, digest: u64, tag: RunTag, preferred: Option<u64>) -> Option<()> {
        let (print, [a, b]) = self.locate(digest);
        let entry = self.entry(tag, print);
        let first = match preferred {
            Some(bucket) => bucket,
            // Choose the emptier of the two, which delays the moves.
            None if self.free(b) > self.free(a) => b,
            None => a,
        };
        let crowded = preferred.is_none() && self.copies(a, b, print) >= MAX_COPIES;
        if !crowded {
            let mut undo = Vec::new();
            if self.place(vec![(entry, first)], &mut undo) {
                self.count(tag, entry.symbol, true);
                return Some(());
            }
            undo.into_iter().rev().for_each(|(bucket, bits)| self.write(bucket, bits));
            self.crowded_out += 1;
            if self.crowded_out > self.most_aside {
                return None;
            }
        }
        *self.aside.entry((digest, tag)).or_default() += 1;
        self.aside_entries += 1;
        Some(())
    }

    fn free(&self, bucket: u64) -> usize {
        let symbols = self.book.decode(self.read(bucket)).symbols;
        symbols.into_iter().filter(|&symbol| symbol == self.book.empty).count()
    }

    /// Counts the entries in two buckets that can be nowhere else and look like a key's.
    fn copies(&self, a: u64, b: u64, print: u32) -> usize {
        let unknown = 32 - self.sums.len().trailing_zeros();
        let count = |bucket: u64| {
            let slots = self.book.decode(self.read(bucket));
            let alike = |entry: &Entry| self.widened(*entry) >> unknown == print >> unknown;
            slots.entries(&self.book).iter().flatten().filter(|entry| alike(entry)).count()
        };
        count(a) + if a == b { 0 } else { count(b) }
    }

    /// Finds slots for entries, each in its current or its other bucket, by moving others. Returns
    /// `false` if that took too many moves; the writes must then be undone, last first: `undo` has
    /// the old contents.
    fn place(&mut self, mut homeless: Vec<(Entry, u64)>, undo: &mut Vec<(u64, u128)>) -> bool {
        while let Some((entry, bucket)) = homeless.pop() {
            let other = self.other(bucket, self.widened(entry));
            if self.put(bucket, entry, undo) || self.put(other, entry, undo) {
                continue;
            }
            if self.put_by_move(bucket, entry, undo) || self.put_by_move(other, entry, undo) {
                continue;
            }
            if undo.len() > MAX_MOVES {
                return false;
            }
            let bucket = if self.next_random() & 1 == 0 { bucket } else { other };
            let mut slots = self.book.decode(self.read(bucket));
            if !slots.entries(&self.book).contains(&None) {
                homeless.push(self.evict(bucket, &mut slots));
            }
            slots.add(entry, &self.book);
            // Last, because the new entry could be moved straight back to where it was put.
            while self.book.encode(&slots).is_none() {
                let evicted = self.evict(bucket, &mut slots);
                homeless.push(evicted);
            }
            self.log_write(bucket, &slots, undo);
        }
        true
    }

    /// Adds an entry to a bucket by moving another entry of the bucket to where there is room for
    /// it. Near full load, a walk that looks one step ahead is several times shorter than a blind
    /// one.
    fn put_by_move(&mut self, bucket: u64, entry: Entry, undo: &mut Vec<(u64, u128)>) -> bool {
        let slots = self.book.decode(self.read(bucket));
        for (at, moved) in slots.entries(&self.book).into_iter().enumerate() {
            let Some(moved) = moved else { continue };
            let target = self.other(bucket, self.widened(moved));
            let mut left = slots;
            left.clear(at, &self.book);
            let fits = left.add(entry, &self.book) && self.book.encode(&left).is_some();
            if fits && target != bucket && self.put(target, moved, undo) {
                self.log_write(bucket, &left, undo);
                self.moves += 1;
                return true;
            }
        }
        false
    }

    /// Writes the new contents of a bucket, and finds other slots for entries that no longer fit.
    fn spill(
        &mut self,
        bucket: u64,
        mut slots: Bucket,
        mut homeless: Vec<(Entry, u64)>,
        undo: &mut Vec<(u64, u128)>,
    ) -> bool {
        while self.book.encode(&slots).is_none() {
            let evicted = self.evict(bucket, &mut slots);
            homeless.push(evicted);
        }
        self.log_write(bucket, &slots, undo);
        self.place(homeless, undo)
    }

    /// Removes some entry from a bucket (which has one), and returns it with its other bucket.
    fn evict(&mut self, bucket: u64, slots: &mut Bucket) -> (Entry, u64) {
        let start = self.next_random() as usize;
        let entries = slots.entries(&self.book);
        self.moves += 1;
        let found = (0..SLOTS).map(|i| (start + i) % SLOTS).find_map(|at| Some((at, entries[at]?)));
        let (at, entry) = found.expect("an empty bucket has a code");
        slots.clear(at, &self.book);
        (entry, self.other(bucket, self.widened(entry)))
    }

    /// Adds an entry to a bucket that has a slot and the bits for it.
    fn put(&mut self, bucket: u64, entry: Entry, undo: &mut Vec<(u64, u128)>) -> bool {
        let mut slots = self.book.decode(self.read(bucket));
        let fits = slots.add(entry, &self.book) && self.book.encode(&slots).is_some();
        if fits {
            self.log_write(bucket, &slots, undo);
        }
        fits
    }

    fn log_write(&mut self, bucket: u64, slots: &Bucket, undo: &mut Vec<(u64, u128)>) {
        if let Some(bits) = self.book.encode(slots) {
            undo.push((bucket, self.read(bucket)));
            self.write(bucket, bits);
        }
    }

    /// A Weyl sequence, mixed: the same moves on every machine.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        Digest::from_u64(self.random).remix(0) >> 32
    }
}

impl Bucket {
    /// Returns the slots in order; `None` for empty ones.
    fn entries(&self, book: &Codebook) -> [Option<Entry>; SLOTS] {
        std::array::from_fn(|at| {
            let (symbol, print) = (self.symbols[at], self.prints[at]);
            (symbol != book.empty).then_some(Entry { symbol, print })
        })
    }

    /// Empties a slot.
    fn clear(&mut self, at: usize, book: &Codebook) {
        (self.symbols[at], self.prints[at]) = (book.empty, 0);
        self.sort();
    }

    /// Puts an entry into an empty slot, if any.
    fn add(&mut self, entry: Entry, book: &Codebook) -> bool {
        let Some(at) = self.symbols.iter().position(|&symbol| symbol == book.empty) else { return false };
        (self.symbols[at], self.prints[at]) = (entry.symbol, entry.print);
        self.sort();
        true
    }

    fn sort(&mut self) {
        let mut slots: [(u8, u32); SLOTS] = std::array::from_fn(|i| (self.symbols[i], self.prints[i]));
        slots.sort_unstable();
        (self.symbols, self.prints) = (slots.map(|slot| slot.0), slots.map(|slot| slot.1));
    }
}

impl RunIndex for Chucky {
    fn probe(&self, _: &[u8], digest: Digest, found: &mut dyn FnMut(RunTag)) {
        let (print, [a, b]) = self.locate(digest.get());
        // Both are read before either is examined, so the two misses overlap.
        let (first, second) = (self.read(a), self.read(b));
        let mut name = |symbol: u8| match self.book.tag(symbol) {
            Some(tag) => found(tag),
            None => self.others.iter().for_each(|(tag, _)| found(*tag)),
        };
        self.book.probe(first, print, &mut name);
        if a != b {
            self.book.probe(second, print, &mut name);
        }
        if !self.aside.is_empty() {
            let all = (digest.get(), RunTag { level: 0, slot: 0 })..=(digest.get(), RunTag::LAST);
            self.aside.range(all).for_each(|((_, tag), _)| found(*tag));
        }
    }

    fn prefetch(&self, _: &[u8], digest: Digest) {
        let (_, buckets) = self.locate(digest.get());
        for bucket in buckets {
            let word = bucket * u64::from(self.book.bucket_bits()) / 64;
            self.words.get(word as usize).into_iter().for_each(prefetch);
        }
    }

    fn answers_ranges(&self) -> bool {
        false
    }

    fn ahead(&self, _: &[u8], _: Option<&[u8]>, _: &mut TagsAhead) -> bool {
        false
    }

    fn behind(&self, _: Option<&[u8]>, _: &[u8], _: &mut TagsAhead) -> bool {
        false
    }

    fn lower_key(&self, _: u64, key: &mut Vec<u8>) {
        // No numbers are ever returned, and the empty key is never too great.
        key.clear();
    }

    fn change(&self, removed: &[Tagged<'_>], added: &[Tagged<'_>]) -> Option<Arc<dyn RunIndex>> {
        Some(Arc::new(Chucky::change(self, removed, added)?))
    }

    fn memory_bytes(&self) -> usize {
        // An entry in the tree of set-aside entries takes about half as much again as its contents.
        let aside = self.aside.len() * size_of::<((u64, RunTag), u32)>() * 3 / 2;
        size_of::<Self>() + self.words.len() * 8 + self.sums.len() * 8 + self.book.memory_bytes() + aside
    }

    fn entries(&self) -> u64 {
        self.counts.iter().sum::<u64>() + self.aside_entries
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }
}

impl fmt::Debug for Chucky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chucky")
            .field("entries", &self.entries())
            .field("buckets", &self.buckets)
            .field("bucket_bits", &self.book.bucket_bits())
            .field("fingerprint_bits", &self.fingerprint_bits())
            .finish_non_exhaustive()
    }
}
