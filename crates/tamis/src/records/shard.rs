//! A part of the record cache: a ring of records, and a hash table of their places.
//!
//! A probe reads one line of the table. A slot there has 32 bits of the digest, the *mark*, so a
//! probe for a key that is not here seldom reads a record. A record that is here is read from a
//! huge page, where the system has them: else each hit would miss the TLB.
//!
//! *Eviction* is FIFO with reinsertion: a new record takes the place of the oldest ones. Of these,
//! a record that has answered since it was written is written again, with a use less.
//!
//! # What is cached
//!
//! A shard caches the keys in a *slice* of its digests: all, half, a quarter … down to 1/64. Trials
//! of some hundred probes compare what hits saved with what probes and insertions cost. A slice
//! that costs more than it saves narrows at once; else it goes where a neighbour saved more. So a
//! shard that answers nothing is seldom asked, and goes on measuring. A shard whose keys are read
//! evenly holds a slice that fits into it, instead of one record after the other that leaves before
//! it is read again. Miniature simulations of caches sample by hash in the same manner (Waldspurger
//! et al., USENIX ATC 2017).
//!
//! # Invariants
//!
//! * A slot leads to a record in the ring, and two slots to two records of different names.
//! * A record in the ring without a slot is dead.

use std::mem;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use tamis_base::ids::KeyspaceId;
use tamis_base::key::SeqNo;
use tamis_env::sync::Mutex;
use tamis_filter::Digest;

use super::ring::{ALIGN, Header, Ring};
use crate::slice::Slice;

/// A record outlives as many rounds as it has uses.
const MOST_USES: u8 = 3;

/// An insertion writes at most this many records again, which bounds its time under the lock.
const MOST_AGAIN: u32 = 8;

/// The bytes of the ring for each slot. Smaller records than this cannot fill the ring.
const BYTES_PER_SLOT: usize = 96;

/// The slots of a bucket: one cache line.
const SLOTS: usize = 8;

/// The probes of a trial.
const TRIAL: u32 = 1 << 8;

/// A hit saves as much as this many probes cost.
const HIT: u32 = 12;

/// An insertion that displaces a record costs as much as this many probes.
const INSERTION: u32 = 16;

/// The narrowest slice is one in 2^this.
const NARROWEST: u32 = 6;

/// The trials until a neighbour counts: the ring holds the records of another slice at first.
const SETTLING: u32 = 7;

/// The most trials before a neighbour is tried again.
const MOST_PATIENCE: u32 = 1 << 8;

/// What a read sees, as far as the [rule of validity](super) needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    /// See [`View`](crate::read::View).
    pub(crate) edition: u64,
    /// See [`View`](crate::read::View).
    pub(crate) floor: u64,
    pub(crate) seq: SeqNo,
}

/// Which record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name<'k> {
    pub(super) keyspace: KeyspaceId,
    pub(super) digest: Digest,
    pub(super) key: &'k [u8],
}

impl Name<'_> {
    /// Distinguishes the records of a shard, nearly always.
    #[inline]
    fn mark(&self) -> u32 {
        mark(self.keyspace, self.digest)
    }
}

#[inline]
fn mark(keyspace: KeyspaceId, digest: Digest) -> u32 {
    (digest.get() >> 32) as u32 ^ keyspace.wrapping_mul(0x9e37_79b1)
}

/// A place of the ring with its record's mark; 0 is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot(u64);

impl Slot {
    #[inline]
    fn new(mark: u32, place: usize) -> Slot {
        Slot(u64::from(mark) << 32 | (place / ALIGN + 1) as u64)
    }

    /// The place, if the slot is taken.
    #[inline]
    fn any_place(self) -> Option<usize> {
        Some((self.0 as u32).checked_sub(1)? as usize * ALIGN)
    }

    /// The place, if the slot is taken and has this mark.
    #[inline]
    fn place(self, mark: u32) -> Option<usize> {
        if (self.0 >> 32) as u32 == mark { self.any_place() } else { None }
    }
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Bucket([Slot; SLOTS]);

#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Shard {
    /// The slice is one in 2^this. Read without the lock; who sees it late caches what the slice
    /// before had.
    narrow: AtomicU32,
    entries: Mutex<Entries>,
}

#[derive(Debug)]
struct Entries {
    buckets: Box<[Bucket]>,
    ring: Ring,
    trial: Trial,
    /// A hit of a record this old is owed to the last bytes.
    last_bytes: usize,
    last_hits: u64,
    evicted_bytes: u64,
}

impl Shard {
    /// A shard that counts the hits that it owes to the last `last_bytes` of its ring.
    pub(super) fn new(ring_bytes: usize, last_bytes: usize) -> Shard {
        let entries = Entries::new(ring_bytes, last_bytes);
        Shard { narrow: AtomicU32::new(0), entries: Mutex::new(entries) }
    }

    /// The bytes of a shard with a ring of this size.
    pub(super) fn bytes_for(ring_bytes: usize) -> usize {
        ring_bytes + buckets_for(ring_bytes) * size_of::<Bucket>()
    }

    /// Reports whether records of this digest are cached at present.
    #[inline]
    pub(super) fn covers(&self, digest: Digest) -> bool {
        digest.get() & ((1 << self.narrow.load(Relaxed)) - 1) == 0
    }

    /// Returns a record that satisfies `valid`. A shard that another thread has locked does not
    /// answer.
    #[inline]
    pub(super) fn get(&self, name: Name<'_>, valid: impl Fn(&Header) -> bool) -> Option<(SeqNo, Slice)> {
        let mut entries = self.entries.try_lock()?;
        entries.trial.probes += 1;
        if entries.trial.probes >= TRIAL {
            self.judge(&mut entries);
        }
        let place = entries.find(name)?;
        let header = entries.ring.header(place);
        if !valid(&header) {
            return None;
        }
        if header.uses < MOST_USES {
            entries.ring.set_uses(place, header.uses + 1);
        }
        entries.trial.hits += 1;
        // One that has answered would have been written again.
        if header.uses == 0 && entries.ring.age(place) < entries.last_bytes {
            entries.last_hits += 1;
        }
        let (_, value) = entries.ring.record(place, &header);
        Some((header.seq, Slice::copy_of(value)))
    }

    #[cold]
    fn judge(&self, entries: &mut Entries) {
        self.narrow.store(entries.trial.judge(self.narrow.load(Relaxed)), Relaxed);
    }

    /// Adds a record, if `allowed` under the lock, in place of the one of its key and of the oldest
    /// ones.
    pub(super) fn insert(
        &self,
        name: Name<'_>,
        sight: Sight,
        (seq, value): (SeqNo, &[u8]),
        allowed: impl FnOnce() -> bool,
    ) {
        let mut entries = self.entries.lock();
        if allowed() {
            entries.insert(name, sight, (seq, value));
        }
    }

    /// Removes the records with this digest, and those that cannot be told from them.
    pub(super) fn forget(&self, keyspace: KeyspaceId, digest: Digest) {
        self.entries.lock().remove(mark(keyspace, digest), |_| true);
    }

    /// Changes the size of the ring. Keeps what fits, the newest first to stay.
    pub(super) fn resize(&self, ring_bytes: usize) {
        let mut entries = self.entries.lock();
        if entries.ring.capacity() != ring_bytes / ALIGN * ALIGN {
            entries.resize(ring_bytes);
        }
    }

    /// The bytes held.
    pub(super) fn used_bytes(&self) -> usize {
        let entries = self.entries.lock();
        entries.ring.used() + size_of_val(&*entries.buckets)
    }

    /// The hits owed to the last bytes, and the bytes evicted.
    pub(super) fn report(&self) -> (u64, u64) {
        let entries = self.entries.lock();
        (entries.last_hits, entries.evicted_bytes)
    }
}

fn buckets_for(ring_bytes: usize) -> usize {
    (ring_bytes / BYTES_PER_SLOT / SLOTS).max(1)
}

impl Entries {
    fn new(ring_bytes: usize, last_bytes: usize) -> Entries {
        let buckets = vec![Bucket::default(); buckets_for(ring_bytes)].into_boxed_slice();
        let (ring, trial) = (Ring::new(ring_bytes), Trial::default());
        Entries { buckets, ring, trial, last_bytes, last_hits: 0, evicted_bytes: 0 }
    }

    /// The number of a mark's bucket.
    #[inline]
    fn bucket_of(&self, mark: u32) -> usize {
        ((u64::from(mark) * self.buckets.len() as u64) >> 32) as usize
    }

    #[inline]
    fn find(&self, name: Name<'_>) -> Option<usize> {
        let mark = name.mark();
        let of_name = |place: &usize| {
            self.ring.prefetch(*place);
            let header = self.ring.header(*place);
            header.keyspace == name.keyspace && self.ring.record(*place, &header).0 == name.key
        };
        let slots = &self.buckets[self.bucket_of(mark)].0;
        slots.iter().filter_map(|slot| slot.place(mark)).find(of_name)
    }

    fn insert(&mut self, name: Name<'_>, sight: Sight, (seq, value): (SeqNo, &[u8])) {
        let mark = name.mark();
        let (Ok(key_bytes), Ok(value_bytes)) = (u16::try_from(name.key.len()), u16::try_from(value.len()))
        else {
            return;
        };
        let (keyspace, edition) = (name.keyspace, sight.edition);
        let header = Header { seq, edition, keyspace, mark, key_bytes, value_bytes, uses: 0 };
        if let Some(place) = self.find(name) {
            let known = self.ring.header(place);
            if known.seq == seq && known.edition >= sight.floor {
                return; // another thread was faster
            }
            self.remove(mark, |at| at == place);
        }
        if header.taken() > self.ring.capacity() / 8 {
            return;
        }
        let mut again = MOST_AGAIN;
        while !self.ring.fits(header.taken()) {
            self.evict(&mut again);
        }
        let place = self.ring.push(&header, name.key, value);
        self.add_slot(Slot::new(mark, place), mark);
    }

    /// Adds a slot to its bucket, in place of the one with the oldest record if none is free.
    fn add_slot(&mut self, slot: Slot, mark: u32) {
        let bucket = self.bucket_of(mark);
        let slots = &mut self.buckets[bucket].0;
        let free = slots.iter().position(|slot| *slot == Slot::default());
        let oldest = || (0..SLOTS).min_by_key(|&at| slots[at].any_place().map(|place| self.ring.age(place)));
        if let Some(at) = free.or_else(oldest) {
            slots[at] = slot;
        }
    }

    /// Drops the oldest record, or writes it again.
    fn evict(&mut self, again: &mut u32) {
        let place = self.ring.pop().expect("an empty ring has room for an eighth of it");
        let mut header = self.ring.header(place);
        let (slot, bucket) = (Slot::new(header.mark, place), self.bucket_of(header.mark));
        let Some(at) = self.buckets[bucket].0.iter().position(|of| *of == slot) else { return };
        let mut moved = None;
        if header.uses > 0 && *again > 0 {
            *again -= 1;
            header.uses -= 1;
            moved = self.ring.push_again(place, &header);
        }
        if moved.is_none() {
            self.trial.displaced += 1;
            self.evicted_bytes += header.taken() as u64;
        }
        self.buckets[bucket].0[at] = moved.map_or(Slot::default(), |place| Slot::new(header.mark, place));
    }

    /// Removes records of this mark by their place.
    fn remove(&mut self, mark: u32, which: impl Fn(usize) -> bool) {
        let bucket = self.bucket_of(mark);
        for slot in &mut self.buckets[bucket].0 {
            if slot.place(mark).is_some_and(&which) {
                *slot = Slot::default();
            }
        }
    }

    fn resize(&mut self, ring_bytes: usize) {
        let mut old = mem::replace(self, Entries::new(ring_bytes, self.last_bytes));
        self.trial = mem::take(&mut old.trial);
        (self.last_hits, self.evicted_bytes) = (old.last_hits, old.evicted_bytes);
        while let Some(place) = old.ring.pop() {
            let header = old.ring.header(place);
            let slot = Slot::new(header.mark, place);
            if !old.buckets[old.bucket_of(header.mark)].0.contains(&slot)
                || header.taken() > self.ring.capacity() / 8
            {
                continue;
            }
            while !self.ring.fits(header.taken()) {
                self.evict(&mut 0);
            }
            let (key, value) = old.ring.record(place, &header);
            let place = self.ring.push(&header, key, value);
            self.add_slot(Slot::new(header.mark, place), header.mark);
        }
    }
}

/// Chooses a shard's slice by what it saves. From the best slice known, its *home*, it tries the
/// neighbours now and then.
#[derive(Debug, Default)]
struct Trial {
    probes: u32,
    hits: u32,
    displaced: u32,
    /// The home is one in 2^this.
    home: u32,
    /// What the home saved in its last trial.
    saved: i64,
    /// Trials until a neighbour is tried, or until what it saves counts.
    wait: u32,
    /// The trials that the next wait takes.
    patience: u32,
    /// The neighbour that was tried last: the wider one.
    wider: bool,
}

impl Trial {
    /// Ends the trial of a slice of one in 2^`narrow`, and returns that of the next.
    fn judge(&mut self, narrow: u32) -> u32 {
        let cost = self.probes + INSERTION * self.displaced;
        // By all gets, of which a narrow slice has few.
        let saved = (i64::from(HIT * self.hits) - i64::from(cost)) << (NARROWEST - narrow);
        (self.probes, self.hits, self.displaced) = (0, 0, 0);
        self.wait = self.wait.saturating_sub(1);
        match narrow == self.home {
            true => self.stay(saved),
            false if self.wait > 0 => narrow,
            false => self.compare(narrow, saved),
        }
    }

    fn stay(&mut self, saved: i64) -> u32 {
        let before = mem::replace(&mut self.saved, saved);
        if saved < 0 {
            self.home = (self.home + 1).min(NARROWEST);
            return self.home;
        }
        if before <= 0 {
            // Other keys are read now.
            (self.patience, self.wait, self.wider) = (1, 0, false);
        }
        if self.wait > 0 {
            return self.home;
        }
        self.wider = !self.wider;
        let neighbour = if self.wider { self.home.checked_sub(1) } else { Some(self.home + 1) };
        match neighbour.filter(|narrow| *narrow <= NARROWEST) {
            Some(neighbour) => {
                self.wait = SETTLING;
                neighbour
            }
            None => self.home,
        }
    }

    /// Moves to a neighbour that saved more, by an eighth: what a trial counts varies.
    fn compare(&mut self, narrow: u32, saved: i64) -> u32 {
        if saved > self.saved + self.saved / 8 {
            (self.home, self.saved) = (narrow, saved);
            // Next, the one behind it.
            (self.wider, self.patience, self.wait) = (!self.wider, 1, 1);
        } else {
            self.patience = (self.patience * 2).clamp(1, MOST_PATIENCE);
            self.wait = self.patience;
        }
        self.home
    }
}
