//! Stretches of keys without values, which iterators have walked over and later ones jump over.
//!
//! A *gap* says: no key from `start` up to `end` has a value at the number `seq`, nor at any later one, as far as this list has been told of
//! writes. It says nothing about where the deletions are: flushes and compactions make no dead key live, and neither do deletions. They may make
//! live keys dead, though, and some without a number: a policy drops a run, an entry expires, a filter removes one. A reader that holds the
//! view from before still sees it. So a gap has the number of the latest view, its *edition*, by which it was proved, and is for readers
//! of that view and later ones. What gives a key a value, a put or an operand, cuts the gap before it becomes visible; an ingestion drops all gaps.
//!
//! # Who calls what
//! * An iterator at the number `S` that has passed many dead keys in a row, from key *a* up to key *b*, [learns](Gaps::learn) of [*a*, *b*).
//!   One at a key in a gap with `seq` ≤ `S` [jumps](Gaps::jump) to its end. Expired entries are not dead: they depend on the reader's clock.
//! * A writer that gives keys values calls [`written`](Gaps::written) after its numbers are assigned and before it inserts anything, and so
//!   before the numbers become visible. Where there is no gap that costs one load.
//!
//! # Why no value is missed
//! A gap [*a*, *b*) learnt by a walk at `S` is true for all later readers if every write of a value into it with a number above `S` cuts it. One that
//! had called `written` before the gap was there would not. So a gap stands on a *watch*: from some moment on, whatever is written
//! behind its end is noted, the smallest key of it (`written`); and `since` is the last number that was assigned at that moment, with
//! the log's lock held ([`LastNumber`]). A writer whose number is above `since` takes that lock later, so it finds the list not empty, and calls
//! `written` with the watch standing. A walk at `S` ≥ `since` therefore proves the keys up to `b` or up to the smallest key noted: values with
//! numbers up to `S` it has seen itself, and the others were noted or will cut the gap. The extension and the notes change under one
//! lock.
//!
//! A walk at a smaller `S` proves nothing, but leaves the watch to the next one. The end of a gap keeps its watch, so that a gap at the
//! head of a queue grows with every take, and is renewed when a key noted is in the way.
//!
//! A reader loads the visible number before it asks for gaps: a write that it must see has cut them. It needs a view that has all writes up
//! to that number, both to learn and to jump: if the active memtable was replaced between its loads of the view and of the number,
//! it reads an older state than the number says ([`View::has_all`](super::View::has_all)).
//!
//! # Threads and locks
//! The list has a leaf lock, taken under the log's by writers that commit in groups. Who learns holds it while it *tries* to take the log's:
//! the order is the other way round, so it does not wait, and rather learns nothing. `count` is a hint to readers, and to writers an answer: its
//! store comes before the release of the log's lock under which a watch begins, and the writers' loads after they have taken it.

use std::fmt::Debug;
use std::sync::{Arc, OnceLock, Weak};

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::key::SeqNo;

/// The most gaps of a keyspace.
const MOST: usize = 64;

/// Longer keys are cut to this: a gap may be shorter than what was found.
const KEY_BYTES: usize = 1 << 10;

/// So many dead keys in a row are worth a gap. Few where assertions are checked, so that tests with few keys meet gaps.
pub(crate) const WORTH: u64 = if cfg!(debug_assertions) { 3 } else { 64 };

/// What assigns sequence numbers.
pub(crate) trait LastNumber: Debug + Send + Sync {
    /// Calls `then` with the last number assigned, while none is being assigned. Returns `false`, without a call, if it would have to wait.
    fn held(&self, then: &mut dyn FnMut(SeqNo)) -> bool;
}

/// What assigns the numbers of a database; nothing while it is being opened. Weak: the log has the state, which has the keyspaces, which have
/// this.
pub(crate) type Numbering = OnceLock<Weak<dyn LastNumber>>;

/// What a reader sees: writes up to a number, in a view.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standpoint {
    pub(crate) seq: SeqNo,
    /// The number of the view: see [`View::edition`](super::View::edition).
    pub(crate) edition: u64,
}

#[cfg(test)]
impl From<SeqNo> for Standpoint {
    fn from(seq: SeqNo) -> Standpoint {
        Standpoint { seq, edition: 0 }
    }
}

/// Where an iterator may go on.
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
    /// The end, as in [`Jump`]; the start if nothing is known yet but the watch stands.
    end: Option<Vec<u8>>,
    /// Readers at smaller numbers do not use it.
    seq: SeqNo,
    /// Nor do those of earlier views.
    edition: u64,
    /// What is written behind the end with a larger number is noted.
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
    /// How many there are.
    count: AtomicUsize,
    /// By their starts; they do not overlap.
    gaps: lock::Mutex<Vec<Gap>>,
    numbers: Arc<Numbering>,
    /// The number of memtables that were active before the present one.
    rotations: AtomicU64,
}

impl Gaps {
    pub(crate) fn new(numbers: Arc<Numbering>) -> Gaps {
        let (count, rotations) = (AtomicUsize::new(0), AtomicU64::new(0));
        Gaps { count, gaps: lock::Mutex::new(Vec::new()), numbers, rotations }
    }

    /// Counts a memtable that is about to become the active one, before anybody can write to it.
    pub(crate) fn rotate(&self) -> u64 {
        self.rotations.fetch_add(1, Ordering::Release) + 1
    }

    /// Returns how many there were.
    #[inline]
    pub(crate) fn rotations(&self) -> u64 {
        self.rotations.load(Ordering::Acquire)
    }

    /// Reports whether there is none. One load.
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

    /// Called by an iterator that found no value from `start` up to `end` (`None`: or behind), at `weight` dead keys.
    #[cold]
    pub(crate) fn learn(&self, start: &[u8], end: Option<&[u8]>, walk: impl Into<Standpoint>, weight: u64) {
        let walk = walk.into();
        let end = end.map(cut);
        if start.len() > KEY_BYTES || !is_before(Some(start), end) {
            return;
        }
        let mut gaps = lock::lock(&self.gaps);
        let place = gaps.partition_point(|gap| gap.start[..] <= *start);
        let touches = |gap: &Gap| !is_before(gap.end.as_deref(), Some(start));
        let at = match place.checked_sub(1).filter(|&before| touches(&gaps[before])) {
            Some(before) => before,
            None => {
                let (start, since) = (start.to_vec(), SeqNo::MAX);
                gaps.insert(
                    place,
                    Gap {
                        end: Some(start.clone()),
                        start,
                        seq: 0,
                        edition: 0,
                        since,
                        written: None,
                        weight: 0,
                    },
                );
                if gaps.len() > MOST { evict(&mut gaps, place) } else { place }
            }
        };
        gaps[at].weight = gaps[at].weight.saturating_add(weight);
        self.count.store(gaps.len(), Ordering::Release);
        extend(&mut gaps, at, end, walk);
        if is_before(gaps[at].end.as_deref(), end) {
            // Somebody wrote on the way, or may have. From here on whatever is written is noted.
            let renewed = self.numbers.get().and_then(Weak::upgrade).is_some_and(|numbers| {
                numbers.held(&mut |last| {
                    let gap = &mut gaps[at];
                    (gap.since, gap.written) = (last, None);
                })
            });
            if renewed {
                extend(&mut gaps, at, end, walk);
            } else if gaps[at].since == SeqNo::MAX {
                remove(&mut gaps, at, at);
            }
        }
        self.count.store(gaps.len(), Ordering::Release);
    }

    /// Called by whoever gives these keys values, after the numbers are assigned and before anything is inserted.
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

    /// Forgets everything. For whoever holds the log's lock, with a number assigned that is not visible yet.
    pub(crate) fn clear(&self) {
        lock::lock(&self.gaps).clear();
        self.count.store(0, Ordering::Release);
    }
}

/// Extends a gap up to `end`, as far as it is watched and nothing was noted, for a walk; joins it with those that it meets.
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

/// Removes a gap; returns the place of the one that was at `kept`. The one before it has not noted what was written behind this one's start.
fn remove(gaps: &mut Vec<Gap>, at: usize, kept: usize) -> usize {
    let gone = gaps.remove(at);
    if let Some(before) = at.checked_sub(1) {
        gaps[before].note(&gone.start);
    }
    if at < kept { kept - 1 } else { kept }
}

/// Makes room for the gap at `kept`, whose place it returns.
fn evict(gaps: &mut Vec<Gap>, kept: usize) -> usize {
    let least = (0..gaps.len()).filter(|&at| at != kept).min_by_key(|&at| gaps[at].weight);
    least.map_or(kept, |least| remove(gaps, least, kept))
}

/// The lock, which is loom's in its models.
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

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    use super::*;

    /// Assigns numbers; busy if the highest bit is set.
    #[derive(Debug, Default)]
    struct Clock(AtomicU64);

    impl LastNumber for Clock {
        fn held(&self, then: &mut dyn FnMut(SeqNo)) -> bool {
            let last = self.0.load(Ordering::Relaxed);
            let free = last >> 63 == 0;
            if free {
                then(last);
            }
            free
        }
    }

    fn gaps() -> (Gaps, Arc<Clock>) {
        let clock = Arc::<Clock>::default();
        let numbers = Numbering::new();
        numbers.set(Arc::<Clock>::downgrade(&clock)).expect("set once");
        (Gaps::new(Arc::new(numbers)), clock)
    }

    fn end_of(gaps: &Gaps, key: &[u8], snapshot: SeqNo) -> Option<Option<Vec<u8>>> {
        gaps.jump(key, snapshot).map(|jump| jump.end)
    }

    #[test]
    fn a_gap_serves_readers_at_its_number_and_later_ones() {
        let (gaps, clock) = gaps();
        clock.0.store(10, Ordering::Relaxed);
        gaps.learn(b"b", Some(b"f"), 10, 100);
        assert_eq!(end_of(&gaps, b"b", 10), Some(Some(b"f".to_vec())));
        assert_eq!(end_of(&gaps, b"e", 99), Some(Some(b"f".to_vec())));
        for (key, snapshot) in [(&b"b"[..], 9), (b"a", 10), (b"f", 10)] {
            assert_eq!(gaps.jump(key, snapshot), None, "{key:?} at {snapshot}");
        }
        gaps.clear();
        assert!(gaps.is_empty() && gaps.jump(b"c", 10).is_none());
    }

    /// A walk that is older than the last number proves nothing, since a writer may have asked before the watch stood.
    #[test]
    fn an_old_walk_leaves_a_watch_and_the_next_one_proves() {
        let (gaps, clock) = gaps();
        clock.0.store(11, Ordering::Relaxed);
        gaps.learn(b"b", Some(b"f"), 10, 100);
        assert_eq!(gaps.jump(b"c", 11), None);
        gaps.written([&b"d"[..]].into_iter());
        gaps.learn(b"b", Some(b"f"), 11, 100);
        // The number of that write may be above 11; it is looked for anew from here on.
        assert_eq!(end_of(&gaps, b"c", 11), Some(Some(b"f".to_vec())));
    }

    #[test]
    fn what_is_noted_on_the_way_bounds_a_gap_whose_numbers_are_taken() {
        let (gaps, clock) = gaps();
        clock.0.store(11, Ordering::Relaxed);
        gaps.learn(b"b", Some(b"f"), 10, 100);
        gaps.written([&b"d"[..], b"e"].into_iter());
        clock.0.store(1 << 63, Ordering::Relaxed);
        gaps.learn(b"b", Some(b"f"), 12, 100);
        assert_eq!(end_of(&gaps, b"c", 12), Some(Some(b"d".to_vec())));
        assert_eq!(gaps.jump(b"d", 12), None);
    }

    #[test]
    fn nothing_is_kept_if_nobody_can_say_which_number_is_the_last() {
        let (gaps, clock) = gaps();
        clock.0.store(1 << 63, Ordering::Relaxed);
        gaps.learn(b"b", Some(b"f"), 10, 100);
        assert!(gaps.is_empty());
    }

    #[test]
    fn a_write_cuts_a_gap_in_two() {
        let (gaps, _clock) = gaps();
        gaps.learn(b"b", None, 10, 100);
        gaps.written([&b"d"[..]].into_iter());
        assert_eq!(end_of(&gaps, b"c", 10), Some(Some(b"d".to_vec())));
        assert_eq!(gaps.jump(b"d", 10), None);
        assert_eq!(gaps.jump(b"d\0", 10), Some(Jump { start: b"d\0".to_vec(), end: None }));
        // The key is deleted again: a walk over it joins the two.
        gaps.learn(b"b", None, 12, 1);
        assert_eq!(gaps.jump(b"d", 12), Some(Jump { start: b"b".to_vec(), end: None }));
    }

    /// A run that a policy dropped, without a number, is still in the view of a snapshot.
    #[test]
    fn a_gap_is_for_readers_of_the_view_that_proved_it_and_later_ones() {
        let (gaps, _clock) = gaps();
        let at = |edition| Standpoint { seq: 10, edition };
        gaps.learn(b"b", Some(b"d"), at(3), 100);
        gaps.learn(b"d", Some(b"f"), at(2), 100);
        assert_eq!(gaps.jump(b"e", at(2)), None);
        assert!(gaps.jump(b"e", at(3)).is_some() && gaps.jump(b"b", at(9)).is_some());
        gaps.written([&b"c"[..]].into_iter());
        assert_eq!(gaps.jump(b"e", at(2)), None);
        gaps.learn(b"f", Some(b"h"), at(5), 100);
        assert_eq!(gaps.jump(b"g", at(4)), None);
    }

    #[test]
    fn a_queue_is_one_gap_that_grows() {
        let (gaps, clock) = gaps();
        let key = |i: u64| i.to_be_bytes();
        gaps.learn(&key(0), Some(&key(100)), 0, 100);
        for i in 100..5000 {
            let seq = 2 * i;
            clock.0.store(seq, Ordering::Relaxed);
            gaps.written([&key(i + 1000)[..]].into_iter());
            gaps.learn(&key(0), Some(&key(i + 1)), seq, 1);
            assert_eq!(end_of(&gaps, &key(5), seq), Some(Some(key(i + 1).to_vec())), "{i}");
        }
        assert_eq!(lock::lock(&gaps.gaps).len(), 1);
    }

    #[test]
    fn there_are_no_more_gaps_than_the_most_and_the_largest_stay() {
        let (gaps, _clock) = gaps();
        for i in 0..1000u64 {
            let start = (i.wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_be_bytes();
            gaps.learn(&start, Some(&[&start[..], &[0]].concat()), 5, i % 997);
        }
        let kept = lock::lock(&gaps.gaps);
        assert_eq!(kept.len(), MOST);
        // The last one is there whatever it weighs.
        assert!(kept.iter().filter(|gap| gap.weight <= 900).count() <= 1);
        drop(kept);
        gaps.clear();
        let long = vec![b'k'; 5000];
        gaps.learn(b"a", Some(&long), 5, 5000);
        assert_eq!(end_of(&gaps, b"a", 5).flatten().map(|end| end.len()), Some(KEY_BYTES));
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// A writer takes a number for these keys, and tells of them.
        Begin(Vec<u8>, bool),
        /// The oldest, or the newest.
        Tell(bool),
        Insert(bool),
        Walk(u8, usize, bool),
        Busy(bool),
    }

    fn step() -> impl Strategy<Value = Step> {
        let keys = proptest::collection::vec(0..40u8, 1..3);
        prop_oneof![
            4 => (keys, prop_oneof![2 => Just(true), 1 => Just(false)]).prop_map(|(keys, dead)| Step::Begin(keys, dead)),
            4 => any::<bool>().prop_map(Step::Tell),
            4 => any::<bool>().prop_map(Step::Insert),
            6 => (0..40u8, 1..40usize, any::<bool>()).prop_map(|(from, len, old)| Step::Walk(from, len, old)),
            1 => any::<bool>().prop_map(Step::Busy),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 2000 }))]

        /// Writers that take their numbers, tell, and become visible in any order of steps that the protocol allows, and readers at the
        /// last visible number or at an older one.
        #[test]
        fn no_reader_jumps_over_a_value(steps in proptest::collection::vec(step(), 1..120)) {
            let (gaps, clock) = gaps();
            let mut values: BTreeMap<u8, Vec<(u64, bool)>> = BTreeMap::new();
            // Numbers, keys, whether they delete; of writers that have not told, and that have.
            let (mut begun, mut told) = (std::collections::VecDeque::new(), BTreeMap::new());
            let (mut last, mut older, mut busy) = (0, 0, false);
            for step in steps {
                let in_flight = begun.front().map(|(first, ..): &(u64, Vec<u8>, bool)| *first).into_iter().chain(told.keys().copied());
                let visible = in_flight.min().map_or(last, |first| first - 1);
                match step {
                    Step::Begin(keys, dead) if !busy => {
                        begun.push_back((last + 1, keys.clone(), dead));
                        last += keys.len() as u64;
                        clock.0.store(last, Ordering::Relaxed);
                    }
                    Step::Begin(..) => {}
                    Step::Tell(oldest) => if let Some((first, keys, dead)) = if oldest { begun.pop_front() } else { begun.pop_back() } {
                        if !dead {
                            gaps.written(keys.iter().map(std::slice::from_ref));
                        }
                        for (i, key) in keys.iter().enumerate() {
                            values.entry(*key).or_default().push((first + i as u64, !dead));
                        }
                        told.insert(first, ());
                    },
                    Step::Insert(true) => _ = told.pop_first(),
                    Step::Insert(false) => _ = told.pop_last(),
                    Step::Busy(now) => {
                        busy = now;
                        clock.0.store(last | u64::from(busy) << 63, Ordering::Relaxed);
                    }
                    Step::Walk(from, len, old) => {
                        let seq = if old { older } else { visible };
                        let live = |key: &u8| {
                            let all = values.get(key).into_iter().flatten();
                            all.filter(|(at, _)| *at <= seq).max().is_some_and(|(_, live)| *live)
                        };
                        let mut at = from;
                        let mut start = None;
                        let stop = 40.min(usize::from(from) + len) as u8;
                        while at < stop && !live(&at) {
                            if let Some(jump) = gaps.jump(&[at], seq) {
                                let end = jump.end.as_deref().map_or(40, |end| end[0] + u8::from(end.len() > 1));
                                for key in jump.start[0] + u8::from(jump.start.len() > 1)..end {
                                    prop_assert!(!live(&key), "{} at {} by {:?}", key, seq, jump);
                                }
                                start.get_or_insert(jump.start);
                                at = end;
                            } else {
                                start.get_or_insert(vec![at]);
                                at += 1;
                            }
                        }
                        if let Some(start) = start {
                            gaps.learn(&start, (at < 40).then_some(&[at][..]), seq, 1);
                        }
                        if old {
                            older = visible;
                        }
                    }
                }
            }
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    //! The protocol under every interleaving and every value that the memory model lets a load return.
    //!
    //! ```sh
    //! RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 cargo test -p tamis --lib gaps::model
    //! ```
    //! One key, which a writer gives a value while readers look for it and learn that it has none. The steps of the writer are in the order of
    //! [`commit`](crate::db::commit): the number under the log's lock, the gaps, the insertion, the visible number. Those of a reader: the
    //! visible number, the key, the gaps. The claim: no reader jumps over a value that it must see. Each [`Mistake`] must be found to break it.

    use loom::sync::Mutex;
    use loom::thread;

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Mistake {
        None,
        /// The writer tells of the key after its number is visible.
        TellLast,
        /// The writer tells of the key before it has a number.
        TellFirst,
        /// Who learns takes the last number without the lock under which numbers are assigned.
        Unheld,
        /// Who learns takes what is visible for the last number.
        Visible,
    }

    #[derive(Debug)]
    struct Log {
        mistake: Mistake,
        last: Mutex<u64>,
        unheld: AtomicU64,
        visible: AtomicU64,
    }

    impl LastNumber for Log {
        fn held(&self, then: &mut dyn FnMut(SeqNo)) -> bool {
            match self.mistake {
                Mistake::Unheld => then(self.unheld.load(Ordering::Acquire)),
                Mistake::Visible => then(self.visible.load(Ordering::Acquire)),
                _ => {
                    let Ok(last) = self.last.try_lock() else { return false };
                    then(*last);
                }
            }
            true
        }
    }

    struct Db {
        log: Arc<Log>,
        gaps: Gaps,
        /// The number of the value; 0: none.
        value: AtomicU64,
    }

    const KEY: &[u8] = b"k";

    impl Db {
        fn put(&self) {
            let tell = || self.gaps.written([KEY].into_iter());
            let mistake = self.log.mistake;
            if mistake == Mistake::TellFirst {
                tell();
            }
            let seq = {
                let mut last = self.log.last.lock().unwrap();
                *last += 1;
                self.log.unheld.store(*last, Ordering::Release);
                *last
            };
            if !matches!(mistake, Mistake::TellFirst | Mistake::TellLast) {
                tell();
            }
            self.value.store(seq, Ordering::Release);
            self.log.visible.store(seq, Ordering::SeqCst);
            if mistake == Mistake::TellLast {
                tell();
            }
        }

        fn read(&self) {
            let seq = self.log.visible.load(Ordering::Acquire);
            let is_live = |at: u64| at > 0 && at <= seq;
            if !self.gaps.is_empty() && self.gaps.jump(KEY, seq).is_some() {
                assert!(!is_live(self.value.load(Ordering::Acquire)), "a reader jumps over a value");
            } else if !is_live(self.value.load(Ordering::Acquire)) {
                self.gaps.learn(b"a", Some(b"z"), seq, 1);
            }
        }
    }

    fn check(mistake: Mistake) {
        loom::model(move || {
            let log =
                Log { mistake, last: Mutex::new(0), unheld: AtomicU64::new(0), visible: AtomicU64::new(0) };
            let log = Arc::new(log);
            let numbers = Numbering::new();
            numbers.set(Arc::<Log>::downgrade(&log)).expect("set once");
            let db = loom::sync::Arc::new(Db {
                log,
                gaps: Gaps::new(Arc::new(numbers)),
                value: AtomicU64::new(0),
            });
            let writer = thread::spawn({
                let db = db.clone();
                move || db.put()
            });
            db.read();
            db.read();
            writer.join().unwrap();
            db.read();
            db.read();
        });
    }

    #[test]
    fn no_reader_jumps_over_a_value() {
        check(Mistake::None);
    }

    #[test]
    #[should_panic(expected = "a reader jumps over a value")]
    fn telling_after_the_number_is_visible_is_found() {
        check(Mistake::TellLast);
    }

    #[test]
    #[should_panic(expected = "a reader jumps over a value")]
    fn telling_before_there_is_a_number_is_found() {
        check(Mistake::TellFirst);
    }

    #[test]
    #[should_panic(expected = "a reader jumps over a value")]
    fn a_last_number_without_the_lock_is_found() {
        check(Mistake::Unheld);
    }

    #[test]
    #[should_panic(expected = "a reader jumps over a value")]
    fn the_visible_number_in_place_of_the_last_is_found() {
        check(Mistake::Visible);
    }
}
