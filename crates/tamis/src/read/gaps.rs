//! Gaps: stretches of keys without values that iterators have walked over and later ones jump over.
//!
//! A *gap* states that no key from `start` up to `end` has a value at the number `seq` or any later
//! one, as far as this list was told of writes. It does not say where the deletions are: flushes,
//! compactions and deletions never revive a dead key. Deletions may kill live keys, though, and
//! some without a number: a policy drops a run, an entry expires, a filter removes one. A reader
//! with the earlier view still sees such a key. So a gap records its *edition*, the number of the
//! latest view that proved it, and serves readers of that view and later ones. A write that gives a
//! key a value (a put or an operand) cuts the gap before it becomes visible. An ingestion drops all
//! gaps.
//!
//! # Who calls what
//! * An iterator at the number `S` that has passed many dead keys in a row, from key *a* up to key
//!   *b*, [learns](Gaps::learn) [*a*, *b*). An iterator at a key in a gap with `seq` ≤ `S`
//!   [jumps](Gaps::jump) to its end. Expired entries are not dead: they depend on the reader's
//!   clock.
//! * A range delete that may hide much in the memtable [reports it](Gaps::deleted), so no iterator
//!   need walk.
//! * A writer that gives keys values calls [`written`](Gaps::written) after its numbers are
//!   assigned and before it inserts anything, and so before the numbers become visible. Without
//!   gaps this costs one load.
//!
//! # Why no value is missed
//! A gap [*a*, *b*) learned by a walk at `S` holds for all later readers if every write of a value
//! into it with a number above `S` cuts it. A write that called `written` before the gap existed
//! would not. So a gap stands on a *watch*: from some moment on, `written` notes the smallest key
//! written behind the gap's end. `since` is the last number assigned at that moment, with the log's
//! lock held ([`LastNumber`]). A writer with a number above `since` takes that lock later, so it
//! finds the list not empty and calls `written` with the watch standing. A walk at `S` ≥ `since`
//! therefore proves the keys up to `b` or up to the smallest key noted: the walk has seen all
//! values with numbers up to `S`, and the others were noted or will cut the gap. The extension and
//! the notes change under one lock.
//!
//! A walk at a smaller `S` proves nothing, but leaves the watch to the next walk. The end of a gap
//! keeps its watch, so a gap at the head of a queue grows with every take. A noted key in the way
//! renews the watch.
//!
//! A reader loads the visible number before it asks for gaps, so a write that it must see has cut
//! them. To learn or to jump, its view needs all writes up to that number: if the active memtable
//! was replaced between its loads of view and number, it reads an older state than the number says
//! ([`View::has_all`](super::View::has_all)).
//!
//! # Threads and locks
//! The list has a leaf lock. Writers that commit in groups take it under the log's lock. A learner
//! holds it while it *tries* to take the log's lock: that is the opposite order, so it does not
//! wait, and learns nothing instead. To readers `count` is a hint; to writers it is an answer: its
//! store comes before the release of the log's lock under which a watch begins, and the writers
//! load it after they have taken that lock.

mod dead_keys;
mod deletions;

use std::fmt::Debug;
use std::sync::{Arc, OnceLock, Weak};

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tamis_base::key::SeqNo;

pub(crate) use dead_keys::DeadKeys;
use deletions::Deletions;
pub(crate) use deletions::Stretch;

/// The most gaps of a keyspace.
const MOST: usize = 64;

/// Longer keys are cut to this. The gap may then be shorter than the walk.
const KEY_BYTES: usize = 1 << 10;

/// The fewest dead keys in a row that are worth a gap. Few in debug builds, so that tests with few
/// keys meet gaps.
pub(crate) const WORTH: u64 = if cfg!(debug_assertions) { 3 } else { 64 };

/// Assigns sequence numbers.
pub(crate) trait LastNumber: Debug + Send + Sync {
    /// Calls `then` with the last number assigned, while none is being assigned. Returns `false`
    /// without the call if it would have to wait.
    fn held(&self, then: &mut dyn FnMut(SeqNo)) -> bool;
}

/// Assigns a database's numbers; unset while it opens. Weak: the log has the state, which has the
/// keyspaces, which have this.
pub(crate) type Numbering = OnceLock<Weak<dyn LastNumber>>;

/// A reader's standpoint: writes up to a number, in a view.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standpoint {
    pub(crate) seq: SeqNo,
    /// The number of the view: see [`View::edition`](super::View::edition).
    pub(crate) edition: u64,
    /// The view's rotation: see [`View::rotation`](super::View::rotation).
    pub(crate) rotation: u64,
}

#[cfg(test)]
impl From<SeqNo> for Standpoint {
    fn from(seq: SeqNo) -> Standpoint {
        Standpoint { seq, edition: 0, rotation: 0 }
    }
}

/// Where an iterator may continue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Jump {
    /// The start of the gap.
    pub(crate) start: Vec<u8>,
    /// Its end; `None`: no key behind its start has a value.
    pub(crate) end: Option<Vec<u8>>,
}

#[derive(Debug)]
struct Gap {
    start: Vec<u8>,
    /// The end, as in [`Jump`]. Equal to the start if nothing is known yet but the watch stands.
    end: Option<Vec<u8>>,
    /// Readers at smaller numbers do not use the gap.
    seq: SeqNo,
    /// Readers of earlier views do not use it either.
    edition: u64,
    /// Writes behind the end with a larger number are noted.
    since: SeqNo,
    /// The smallest key noted.
    written: Option<Vec<u8>>,
    /// The number of dead keys found in it.
    weight: u64,
}

/// Compares two ends.
fn is_before(a: Option<&[u8]>, b: Option<&[u8]>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a < b,
        (Some(_), None) => true,
        (None, _) => false,
    }
}

fn cut(key: &[u8]) -> &[u8] {
    &key[..key.len().min(KEY_BYTES)]
}

impl Gap {
    fn is_behind(&self, key: &[u8]) -> bool {
        is_before(Some(key), self.end.as_deref())
    }

    fn note(&mut self, key: &[u8]) {
        if self.written.as_deref().is_none_or(|written| key < written) {
            self.written = Some(cut(key).to_vec());
        }
    }
}

/// The gaps of one keyspace; see the module documentation.
#[derive(Debug)]
pub(crate) struct Gaps {
    /// The number of gaps.
    count: AtomicUsize,
    /// Sorted by start, without overlap.
    gaps: lock::Mutex<Vec<Gap>>,
    numbers: Arc<Numbering>,
    /// The number of earlier active memtables.
    rotations: AtomicU64,
    deletions: Deletions,
}

impl Gaps {
    /// Returns the gaps' memory in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let gaps = lock::lock(&self.gaps);
        let keys = |gap: &Gap| {
            let end = gap.end.as_ref().map_or(0, Vec::capacity);
            gap.start.capacity() + end + gap.written.as_ref().map_or(0, Vec::capacity)
        };
        gaps.capacity() * size_of::<Gap>() + gaps.iter().map(keys).sum::<usize>()
    }

    pub(crate) fn new(numbers: Arc<Numbering>) -> Gaps {
        let (count, rotations) = (AtomicUsize::new(0), AtomicU64::new(0));
        let deletions = Deletions::default();
        Gaps { count, gaps: lock::Mutex::new(Vec::new()), numbers, rotations, deletions }
    }

    /// Returns the recent deletions.
    #[inline]
    pub(crate) fn deletions(&self) -> &Deletions {
        &self.deletions
    }

    /// Counts a memtable about to become active, before anything can be written to it.
    pub(crate) fn rotate(&self) -> u64 {
        self.rotations.fetch_add(1, Ordering::Release) + 1
    }

    /// Returns the number of rotations.
    #[inline]
    pub(crate) fn rotations(&self) -> u64 {
        self.rotations.load(Ordering::Acquire)
    }

    /// Reports whether there are no gaps. One load.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Returns the gap that holds `key` for a reader.
    #[cold]
    pub(crate) fn jump(&self, key: &[u8], reader: impl Into<Standpoint>) -> Option<Jump> {
        let reader = reader.into();
        let gaps = lock::lock(&self.gaps);
        let gap = &gaps[gaps.partition_point(|gap| gap.start[..] <= *key).checked_sub(1)?];
        let usable = gap.is_behind(key) && gap.seq <= reader.seq && gap.edition <= reader.edition;
        usable.then(|| Jump { start: gap.start.clone(), end: gap.end.clone() })
    }

    /// Called by an iterator that found no value from `start` up to `end` (`None`: or behind),
    /// among `weight` dead keys.
    #[cold]
    pub(crate) fn learn(&self, start: &[u8], end: Option<&[u8]>, walk: impl Into<Standpoint>, weight: u64) {
        let walk = walk.into();
        let end = end.map(cut);
        if start.len() > KEY_BYTES || !is_before(Some(start), end) {
            return;
        }
        let mut gaps = lock::lock(&self.gaps);
        if walk.rotation != self.rotations() {
            // The view was replaced since the walk began, perhaps by one with values that were not
            // written here (a follower's, or ingested ones). Such a replacement holds the log's
            // lock from before it clears this list until after it has rotated.
            return;
        }
        let at = place_of(&mut gaps, start);
        gaps[at].weight = gaps[at].weight.saturating_add(weight);
        self.count.store(gaps.len(), Ordering::Release);
        extend(&mut gaps, at, end, walk);
        if is_before(gaps[at].end.as_deref(), end) {
            // Something was, or may have been, written on the way. From here on all writes are
            // noted.
            let renewed = self.numbers.get().and_then(Weak::upgrade).is_some_and(|numbers| {
                numbers.held(&mut |last| {
                    loop {
                        (gaps[at].since, gaps[at].written) = (last, None);
                        extend(&mut gaps, at, end, walk);
                        // A gap that was joined brought what it has noted. Each turn joins one, so
                        // this ends.
                        if last > walk.seq || !is_before(gaps[at].end.as_deref(), end) {
                            break;
                        }
                    }
                })
            });
            if !renewed && gaps[at].since == SeqNo::MAX {
                remove(&mut gaps, at, at);
            }
        }
        self.count.store(gaps.len(), Ordering::Release);
    }

    /// Called by a writer that deletes the keys from `start` up to `end` with the number `seq`, if
    /// it is the only writer: larger numbers assigned before this call belong only to operations
    /// that call [`written`](Self::written) after it. No walk over the memtables is then needed to
    /// know that the keys have no value.
    #[cold]
    pub(crate) fn deleted(&self, start: &[u8], end: Option<&[u8]>, seq: SeqNo) {
        let end = end.map(cut);
        if start.len() > KEY_BYTES || !is_before(Some(start), end) {
            return;
        }
        let mut gaps = lock::lock(&self.gaps);
        let at = place_of(&mut gaps, start);
        gaps[at].weight = gaps[at].weight.saturating_add(WORTH);
        while is_before(gaps[at].end.as_deref(), end) {
            // Writes on the way have smaller numbers. The keys are dead in every view.
            (gaps[at].since, gaps[at].written) = (seq, None);
            extend(&mut gaps, at, end, Standpoint { seq, edition: 0, rotation: 0 });
        }
        self.count.store(gaps.len(), Ordering::Release);
    }

    /// Called by writers that give these keys values, after the numbers are assigned and before
    /// anything is inserted.
    #[inline]
    pub(crate) fn written<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        if !self.is_empty() {
            self.cut(keys);
        }
    }

    #[cold]
    fn cut<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        let mut gaps = lock::lock(&self.gaps);
        for key in keys {
            let Some(at) = gaps.partition_point(|gap| gap.start[..] <= *key).checked_sub(1) else { continue };
            let gap = &mut gaps[at];
            if !gap.is_behind(key) {
                gap.note(key);
                continue;
            }
            let end = gap.end.replace(cut(key).to_vec());
            let behind = [key, &[0]].concat();
            let rest = Gap {
                seq: gap.seq,
                edition: gap.edition,
                since: gap.since,
                written: gap.written.take(),
                weight: gap.weight / 2,
                start: behind,
                end,
            };
            gap.note(key);
            let worth = rest.start.len() <= KEY_BYTES && is_before(Some(&rest.start), rest.end.as_deref());
            if worth && gaps.len() < MOST {
                gaps.insert(at + 1, rest);
            }
        }
        self.count.store(gaps.len(), Ordering::Release);
    }

    /// Forgets all gaps. The caller holds the log's lock, with a number assigned that is not
    /// visible yet.
    pub(crate) fn clear(&self) {
        lock::lock(&self.gaps).clear();
        self.count.store(0, Ordering::Release);
    }
}

/// Returns the index of the gap that contains `start` or ends there. If there is none, inserts an
/// empty one.
fn place_of(gaps: &mut Vec<Gap>, start: &[u8]) -> usize {
    let place = gaps.partition_point(|gap| gap.start[..] <= *start);
    let touches = |gap: &Gap| !is_before(gap.end.as_deref(), Some(start));
    if let Some(before) = place.checked_sub(1).filter(|&before| touches(&gaps[before])) {
        return before;
    }
    let start = start.to_vec();
    let (end, since, written) = (Some(start.clone()), SeqNo::MAX, None);
    gaps.insert(place, Gap { start, end, seq: 0, edition: 0, since, written, weight: 0 });
    if gaps.len() > MOST { evict(gaps, place) } else { place }
}

/// Extends a gap for a walk up to `end`, as far as it is watched and nothing was noted. Joins it
/// with the gaps that it meets.
fn extend(gaps: &mut Vec<Gap>, at: usize, end: Option<&[u8]>, walk: Standpoint) {
    while gaps[at].since <= walk.seq {
        let mut limit = end;
        let next = gaps.get(at + 1).map(|next| next.start.clone());
        for other in [gaps[at].written.as_deref(), next.as_deref()].into_iter().flatten() {
            if is_before(Some(other), limit) {
                limit = Some(other);
            }
        }
        let limit = limit.map(<[u8]>::to_vec);
        let gap = &mut gaps[at];
        if is_before(gap.end.as_deref(), limit.as_deref()) {
            gap.end = limit;
            (gap.seq, gap.edition) = (gap.seq.max(walk.seq), gap.edition.max(walk.edition));
        }
        if next.is_none() || is_before(gap.end.as_deref(), next.as_deref()) {
            break;
        }
        let next = gaps.remove(at + 1);
        let gap = &mut gaps[at];
        (gap.seq, gap.edition) = (gap.seq.max(next.seq), gap.edition.max(next.edition));
        gap.weight = gap.weight.saturating_add(next.weight);
        (gap.end, gap.since, gap.written) = (next.end, next.since, next.written);
    }
}

/// Removes a gap. Returns the new index of the gap at `kept`. The gap before it has not noted
/// writes behind the removed gap's start.
fn remove(gaps: &mut Vec<Gap>, at: usize, kept: usize) -> usize {
    let gone = gaps.remove(at);
    if let Some(before) = at.checked_sub(1) {
        gaps[before].note(&gone.start);
    }
    if at < kept { kept - 1 } else { kept }
}

/// Makes room for the gap at `kept`. Returns its new index.
fn evict(gaps: &mut Vec<Gap>, kept: usize) -> usize {
    let least = (0..gaps.len()).filter(|&at| at != kept).min_by_key(|&at| gaps[at].weight);
    least.map_or(kept, |least| remove(gaps, least, kept))
}

/// The lock; loom's in its models.
mod lock {
    #[cfg(all(test, loom))]
    pub(super) use loom::sync::{Mutex, MutexGuard};

    #[cfg(not(all(test, loom)))]
    pub(super) use crate::sync::{Mutex, MutexGuard};

    #[cfg(all(test, loom))]
    pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap()
    }

    #[cfg(not(all(test, loom)))]
    pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock()
    }
}

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
