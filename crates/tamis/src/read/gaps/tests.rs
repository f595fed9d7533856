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

/// A range delete is known without a walk: over keys written before, over what other gaps noted,
/// and up to keys written after.
#[test]
fn a_range_delete_makes_a_gap_and_joins_others() {
    let (gaps, clock) = gaps();
    clock.0.store(10, Ordering::Relaxed);
    gaps.learn(b"b", Some(b"d"), 10, 100);
    gaps.learn(b"m", Some(b"p"), 10, 100);
    gaps.written([&b"e"[..], b"q"].into_iter());
    gaps.deleted(b"c", Some(b"t"), 14);
    assert_eq!(end_of(&gaps, b"b", 14), Some(Some(b"t".to_vec())));
    assert_eq!(gaps.jump(b"b", 13), None, "the delete is newer");
    gaps.written([&b"u"[..], b"h"].into_iter());
    assert_eq!(end_of(&gaps, b"b", 20), Some(Some(b"h".to_vec())));
    assert_eq!(end_of(&gaps, b"i", 20), Some(Some(b"t".to_vec())));
    // A walk finds the note of what was written behind.
    clock.0.store(20, Ordering::Relaxed);
    gaps.learn(b"i", Some(b"w"), 16, 100);
    assert_eq!(end_of(&gaps, b"i", 20), Some(Some(b"u".to_vec())));
    gaps.deleted(b"", None, 30);
    assert_eq!(end_of(&gaps, b"", 30), Some(None));
    gaps.written([&b"k"[..]].into_iter());
    assert_eq!((end_of(&gaps, b"", 30), end_of(&gaps, b"l", 30)), (Some(Some(b"k".to_vec())), Some(None)));
    for empty in [Some(&b"k"[..]), Some(b"a")] {
        gaps.deleted(b"k", empty, 31);
    }
    assert_eq!(gaps.jump(b"k", 31), None);
}

/// A walk that is older than the last number proves nothing, since a writer may have asked before
/// the watch stood.
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

/// A keyspace that was emptied, filled and emptied again had a gap between any two of its new keys.
/// Each walk over the dead keys joined one more of them, so 61 walks in a row passed all keys.
#[test]
fn one_walk_joins_all_gaps_that_writes_have_cut() {
    let (gaps, clock) = gaps();
    gaps.learn(b"", None, 10, 100);
    for i in 0..2 * MOST as u64 {
        gaps.written([&i.to_be_bytes()[..]].into_iter());
    }
    assert!(lock::lock(&gaps.gaps).len() > MOST / 2);
    clock.0.store(500, Ordering::Relaxed);
    gaps.learn(b"", None, 500, 100);
    assert_eq!(end_of(&gaps, b"", 500), Some(None));
    // Nothing is proved by a walk that is older than the last number.
    for i in 0..2 * MOST as u64 {
        gaps.written([&i.to_be_bytes()[..]].into_iter());
    }
    clock.0.store(1000, Ordering::Relaxed);
    gaps.learn(b"", None, 999, 100);
    assert_ne!(end_of(&gaps, b"", 1000), Some(None));
}

/// A run that a policy dropped, without a number, is still in the view of a snapshot.
#[test]
fn a_gap_is_for_readers_of_the_view_that_proved_it_and_later_ones() {
    let (gaps, _clock) = gaps();
    let at = |edition| Standpoint { seq: 10, edition, rotation: 0 };
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

    /// Writers that take their numbers, tell, and become visible in any order of steps that the
    /// protocol allows, and readers at the last visible number or at an older one.
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
