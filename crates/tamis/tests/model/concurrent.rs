//! Writers, readers and background work at once: every reader's view must be consistent.
//!
//! Each writer owns some pairs of keys and writes both halves of a pair in one batch, always with
//! equal values (or deletes both). In every view, whatever else happens, the halves of every pair
//! are therefore equal, and a writer's counters never run backwards from an older view to a newer
//! one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use tamis::io::MemFs;
use tamis::{Db, Options, Snapshot, WriteBatch};

use crate::settings::options;
use crate::support::{abort_when_the_engine_panics, scale};

const WRITERS: u64 = 3;
const PAIRS: u64 = 12;
const BATCHES: u64 = 1500;

/// The halves of a pair are at the two ends of the key space, in different tables.
fn half(end: char, writer: u64, pair: u64) -> Vec<u8> {
    format!("{end}-writer{writer}-pair{pair:02}").into_bytes()
}

/// A small generator: threads must not share proptest's.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % sides
    }
}

fn write(db: &Db, writer: u64, dice: &mut Dice) {
    let pad = "x".repeat(dice.roll(300) as usize);
    for number in 1..=BATCHES {
        let mut batch = WriteBatch::new();
        for _ in 0..=dice.roll(3) {
            let pair = dice.roll(PAIRS);
            match dice.roll(10) {
                0 => ["a", "z"]
                    .iter()
                    .for_each(|end| _ = batch.delete(half(end.chars().next().expect("one"), writer, pair))),
                1 => {
                    let upper = pair + dice.roll(4);
                    for end in ['a', 'z'] {
                        batch.delete_range(half(end, writer, pair)..half(end, writer, upper));
                    }
                }
                _ => {
                    let value = format!("{number:08}{pad}");
                    batch.put(half('a', writer, pair), &value).put(half('z', writer, pair), &value);
                }
            }
        }
        // Every batch ends with the writer's own clock, which is also one of a pair.
        let clock = format!("{number:08}");
        batch.put(half('a', writer, 99), &clock).put(half('z', writer, 99), &clock);
        db.write(batch).expect("a write");
    }
}

/// Checks the halves of each pair as three kinds of reads return them; returns the clocks.
fn check(snapshot: &Snapshot) -> Vec<u64> {
    let pairs = || (0..WRITERS).flat_map(|w| (0..PAIRS).chain([99]).map(move |p| (w, p)));
    let keys: Vec<_> = pairs().flat_map(|(w, p)| [half('a', w, p), half('z', w, p)]).collect();
    let values = snapshot.multi_get(&keys).expect("a multi_get");
    for (key, value) in keys.chunks(2).zip(values.chunks(2)) {
        let key = key[0].escape_ascii();
        assert_eq!(value[0], value[1], "multi_get of {key} at {}", snapshot.seq());
    }
    for (key, value) in keys.iter().zip(&values) {
        let one = snapshot.get(key).expect("a get");
        assert_eq!(&one, value, "get and multi_get of {} at {}", key.escape_ascii(), snapshot.seq());
    }
    let listed = |iter: tamis::Iter| -> Vec<_> { iter.map(|item| item.expect("an item")).collect() };
    let (low, high) = (listed(snapshot.prefix("a-")), listed(snapshot.prefix("z-")));
    let sides = low.iter().map(|(k, v)| (&k[1..], v)).eq(high.iter().map(|(k, v)| (&k[1..], v)));
    assert!(sides, "iterators at {}: {low:?} and {high:?}", snapshot.seq());
    let mut backwards = listed(snapshot.iter());
    backwards.reverse();
    let all: Vec<_> = snapshot.iter().rev().map(|item| item.expect("an item")).collect();
    assert_eq!(all, backwards);
    let alive = keys.iter().zip(&values).filter(|(_, value)| value.is_some()).count();
    assert_eq!(all.len(), alive, "iterator and multi_get at {}", snapshot.seq());
    let clock = |w| values[(w as usize * (PAIRS as usize + 1) + PAIRS as usize) * 2].as_ref();
    let number = |value: &tamis::Slice| std::str::from_utf8(value).expect("digits").parse().expect("digits");
    (0..WRITERS).map(|w| clock(w).map_or(0, number)).collect()
}

/// Even without a snapshot, each multi_get and each iterator is consistent.
fn check_live(db: &Db) {
    let pair = [half('a', 1, 3), half('z', 1, 3)];
    let values = db.multi_get(&pair).expect("a multi_get");
    assert_eq!(values[0], values[1], "a multi_get is consistent");
    let items: Vec<_> = db.iter().map(|item| item.expect("an item")).collect();
    let middle = items.partition_point(|(key, _)| key[0] == b'a');
    let (low, high) = items.split_at(middle);
    assert!(low.iter().map(|(k, v)| (&k[1..], v)).eq(high.iter().map(|(k, v)| (&k[1..], v))));
}

fn read(db: &Db, done: &AtomicU64, dice: &mut Dice) {
    let mut held: Vec<(Snapshot, Vec<u64>)> = Vec::new();
    let mut newest = vec![0; WRITERS as usize];
    while done.load(Ordering::Acquire) < WRITERS {
        let snapshot = db.snapshot();
        let clocks = check(&snapshot);
        assert!(clocks.iter().zip(&newest).all(|(now, then)| now >= then), "{clocks:?} after {newest:?}");
        newest.clone_from(&clocks);
        check_live(db);
        held.push((snapshot, clocks));
        if held.len() > 4 {
            held.remove(dice.roll(4) as usize);
        }
        // Held snapshots read the same, however much was written and compacted since.
        for (snapshot, clocks) in &held {
            assert_eq!(&check(snapshot), clocks);
        }
    }
}

fn maintain(db: &Db, done: &AtomicBool, dice: &mut Dice) {
    while !done.load(Ordering::Acquire) {
        match dice.roll(4) {
            0 => db.compact().expect("a compaction"),
            1 => db.flush().expect("a flush"),
            2 => assert_eq!(db.verify().expect("verifying").problems, Vec::<String>::new()),
            _ => db.wait_for_compaction().expect("settling"),
        }
    }
}

fn run(options: Options, seed: u64) {
    let db = options.open("/db").expect("opening");
    let (writing, finished) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (db, writing, finished) = (&db, &writing, &finished);
        let readers: Vec<_> =
            (0..2).map(|r| scope.spawn(move || read(db, writing, &mut Dice(seed + 100 + r)))).collect();
        let maintainer = scope.spawn(move || maintain(db, finished, &mut Dice(seed + 200)));
        for writer in 0..WRITERS {
            scope.spawn(move || {
                write(db, writer, &mut Dice(seed + writer));
                writing.fetch_add(1, Ordering::AcqRel);
            });
        }
        let ends: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        finished.store(true, Ordering::Release);
        let end = maintainer.join();
        assert!(ends.iter().all(Result::is_ok) && end.is_ok(), "a thread failed, see above");
    });
    assert_eq!(check(&db.snapshot()), vec![BATCHES; WRITERS as usize]);
    db.compact().expect("a compaction");
    assert_eq!(check(&db.snapshot()), vec![BATCHES; WRITERS as usize]);
    assert_eq!(db.verify().expect("verifying").problems, Vec::<String>::new());
}

#[test]
fn every_view_is_consistent_during_writes_flushes_and_compactions() {
    abort_when_the_engine_panics();
    let mut runner = TestRunner::deterministic();
    for seed in 0..12 * scale() {
        let mut options = options(2 + seed as usize % 4).new_tree(&mut runner).expect("options").current();
        // Without compaction, three writers would make more runs than a test has time for.
        options.keyspace.auto_compaction = true;
        options.file_system = Some(Arc::new(MemFs::new()));
        let what = format!("{options:#?}");
        let run = std::panic::AssertUnwindSafe(|| run(options, seed));
        if let Err(panic) = std::panic::catch_unwind(run) {
            let why = panic.downcast_ref::<String>().map_or("see above", |why| why);
            panic!("seed {seed}: {why}\nwith {what}");
        }
    }
}
