//! Overlapping reads: `multi_get`, seeks and scans over unmapped tables return the same as single
//! reads, and read no more than necessary.

use std::path::Path;
use std::sync::Arc;

use tamis::io::{DiskFs, FileSystem, MemFs};
use tamis::options::{AsyncReads, FilterPolicy, ReadMode};
use tamis::stats::ReadCost;
use tamis::{Db, Options, Slice};
use tamis_testkit::{FaultPlan, FaultyFs, OpClass, Rng};

fn options(fs: Option<Arc<dyn FileSystem>>, depth: usize, cache_bytes: u64) -> Options {
    let mut options = Options {
        file_system: fs,
        read_mode: ReadMode::Buffered,
        read_queue_depth: depth,
        cache_bytes,
        ..Options::default()
    };
    options.keyspace.block_bytes = 512;
    options.keyspace.auto_compaction = false;
    options.keyspace.filter = FilterPolicy::none();
    options.keyspace.merge_operator = Some("append".into());
    options
}

fn key(i: u64) -> Vec<u8> {
    format!("key{i:05}").into_bytes()
}

/// Puts, deletes, merges and range deletes in several runs.
fn fill(db: &Db, rng: &mut Rng, runs: u64, keys: u64) {
    for run in 0..runs {
        for _ in 0..150 {
            let place = key(rng.below(keys));
            match rng.below(10) {
                0 => db.delete(place).unwrap(),
                1..4 => db.merge(place, format!("+{run}")).unwrap(),
                _ => db.put(place, vec![run as u8; 20 + rng.below(150) as usize]).unwrap(),
            }
        }
        let from = rng.below(keys);
        db.delete_range(key(from)..key(from + 5)).unwrap();
        // Operands of one key fill several blocks.
        let hot = key(rng.below(keys));
        for part in 0..rng.below(2) * 60 {
            db.merge(&hot, format!("+{run}.{part} and some more")).unwrap();
        }
        if run + 1 < runs {
            db.flush().unwrap();
        }
    }
}

fn cost<T>(db: &Db, work: impl FnOnce() -> T) -> (T, ReadCost) {
    let before = db.stats().read;
    let result = work();
    (result, db.stats().read - before)
}

fn singles(db: &Db, keys: &[Vec<u8>]) -> Vec<Option<Slice>> {
    keys.iter().map(|key| db.get(key).unwrap()).collect()
}

type Items = Vec<(Vec<u8>, Vec<u8>)>;

fn items(iter: impl Iterator<Item = Result<(Slice, Slice), tamis::ReadError>>) -> Items {
    iter.map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
}

/// Reads everything in a database in one read mode, for comparison with another.
fn answers(db: &Db, seed: u64, keys: u64) -> (Vec<Vec<Option<Slice>>>, Vec<Items>) {
    let mut rng = Rng::new(seed);
    let mut gets = Vec::new();
    for count in [0, 1, 2, 31, 32, 33, 100, 300] {
        let asked: Vec<_> = (0..count).map(|_| key(rng.below(keys + 20))).collect();
        let many = db.multi_get(&asked).unwrap();
        assert_eq!(many, singles(db, &asked));
        gets.push(many);
    }
    let mut scans = vec![items(db.iter()), items(db.iter().rev())];
    for _ in 0..20 {
        let from = rng.below(keys);
        let range = key(from)..key(from + rng.below(200));
        scans.push(items(db.range(range.clone())));
        scans.push(items(db.range(range).rev()));
        // One iterator from both ends, with seeks in between.
        let mut iter = db.iter();
        let mut mixed = Vec::new();
        for _ in 0..8 {
            iter.seek(key(rng.below(keys))).unwrap();
            mixed.extend(items(iter.by_ref().take(rng.below(40) as usize)));
            mixed.extend(items(iter.by_ref().rev().take(rng.below(10) as usize)));
        }
        scans.push(mixed);
    }
    (gets, scans)
}

#[test]
fn every_read_mode_returns_the_same() {
    for seed in 0..2 {
        let dir = tempfile::tempdir().unwrap();
        let keys = 400;
        let with = |mode, reads, depth, cache_bytes, pin_metadata| {
            let options = options(None, depth, cache_bytes);
            Options { read_mode: mode, async_reads: reads, pin_metadata, ..options }
        };
        let plain = with(ReadMode::Mapped, AsyncReads::Off, 1, 0, true);
        let db = plain.clone().open(dir.path()).unwrap();
        fill(&db, &mut Rng::new(seed), 6, keys);
        db.flush().unwrap();
        let expected = answers(&db, seed, keys);
        db.close().unwrap();
        // Mapped, where no memory is known to be there: scans announce what they will need.
        let fs = Arc::new(DiskFs::new().with_memory(0));
        let db = Options { file_system: Some(fs), ..plain }.open(dir.path()).unwrap();
        assert_eq!(answers(&db, seed, keys), expected, "mapped, and memory is scarce");
        db.close().unwrap();
        for &mode in &ReadMode::available()[1..] {
            for reads in [AsyncReads::Auto, AsyncReads::Threads, AsyncReads::Off] {
                for (depth, cache_bytes, pin) in [(1, 0, true), (2, 1 << 10, false), (32, 1 << 20, true)] {
                    let db = with(mode, reads, depth, cache_bytes, pin).open(dir.path()).unwrap();
                    assert_eq!(
                        answers(&db, seed, keys),
                        expected,
                        "{mode:?} {reads:?} {depth} {cache_bytes}"
                    );
                    let told = db.stats().overlapping_reads;
                    let overlaps = depth > 1 && reads != AsyncReads::Off;
                    assert_eq!(
                        told.is_some_and(|told| told.batches > 0 && told.reads > told.batches),
                        overlaps
                    );
                    assert_eq!(db.stats().read.batched_reads > 0, overlaps);
                    db.close().unwrap();
                }
            }
        }
    }
}

/// Six runs over the same keys in memory, each of many blocks, without a filter.
fn six_runs(depth: usize, cache_bytes: u64) -> Db {
    let db = options(Some(Arc::new(MemFs::new())), depth, cache_bytes).open("/db").unwrap();
    for run in 0..6u64 {
        for i in (0..1200).filter(|i| i % 6 == run) {
            db.put(key(i), [run as u8; 100]).unwrap();
        }
        db.flush().unwrap();
    }
    db
}

/// A cache that keeps nothing must not make a batch read the same block once per key.
#[test]
fn a_batch_reads_no_block_twice_even_without_a_cache() {
    let db = six_runs(32, 0);
    // Four adjacent keys in each run: about as many blocks as runs, far fewer than keys.
    let asked: Vec<_> = (240..264).map(key).collect();
    let (values, many) = cost(&db, || db.multi_get(&asked).unwrap());
    assert!(values.iter().all(Option::is_some));
    let alone = six_runs(1, 0);
    let (_, one_by_one) = cost(&alone, || singles(&alone, &asked));
    assert_eq!(many.runs_searched, one_by_one.runs_searched);
    assert_eq!(many.block_reads, one_by_one.block_reads);
    assert_eq!(one_by_one.io_reads, one_by_one.block_reads);
    // One round for each run, with as many blocks as the keys are in: two or three here.
    assert!(many.io_reads <= 18, "{many:?}");
    assert_eq!(many.io_reads, many.checksums_verified);
    assert_eq!(many.io_reads, many.cache_misses);
    assert_eq!(many.block_reads, many.cache_misses + many.cache_hits);
    // Cached blocks are not read again.
    let db = six_runs(32, 1 << 20);
    db.multi_get(&asked).unwrap();
    let (_, again) = cost(&db, || db.multi_get(&asked).unwrap());
    assert_eq!((again.io_reads, again.cache_hits), (0, again.block_reads));
    let (_, single) = cost(&db, || singles(&db, &asked));
    assert_eq!(single.io_reads, 0);
}

#[test]
fn a_seek_reads_the_first_blocks_of_all_runs_together() {
    let (db, alone) = (six_runs(32, 0), six_runs(1, 0));
    for place in [17, 600, 1100] {
        let seek = |db: &Db| {
            cost(db, || {
                items({
                    let mut iter = db.iter();
                    iter.seek(key(place)).unwrap();
                    iter.take(1)
                })
            })
        };
        let ((first, together), (same, single)) = (seek(&db), seek(&alone));
        assert_eq!(first, same);
        assert_eq!(single.batched_reads, 0);
        // A seek into a gap between two blocks may read the next one as well, separately.
        assert!(
            together.batched_reads == 6 && together.io_reads <= single.io_reads,
            "{together:?} {single:?}"
        );
        assert!(together.block_reads <= single.block_reads, "{together:?} {single:?}");
        assert_eq!(db.stats().overlapping_reads.map(|told| told.depth), Some(32));
    }
}

/// One run of many blocks.
fn one_run(depth: usize, cache_bytes: u64) -> Db {
    let db = options(Some(Arc::new(MemFs::new())), depth, cache_bytes).open("/db").unwrap();
    for i in 0..3000 {
        db.put(key(i), [7; 100]).unwrap();
    }
    db.flush().unwrap();
    db
}

#[test]
fn a_scan_reads_ahead_progressively_in_both_directions() {
    for rev in [false, true] {
        let scan = |db: &Db| {
            cost(db, || {
                let iter = db.iter();
                if rev { items(iter.rev()) } else { items(iter) }
            })
        };
        let (expected, single) = scan(&one_run(1, 0));
        assert_eq!(expected.len(), 3000);
        assert_eq!(single.io_reads, single.block_reads);
        for depth in [2, 8, 32] {
            let db = one_run(depth, 0);
            let (found, ahead) = scan(&db);
            assert_eq!(found, expected);
            assert_eq!(ahead.block_reads, single.block_reads);
            assert_eq!(ahead.io_bytes, single.io_bytes, "every block is read once");
            assert_eq!(ahead.checksums_verified, single.checksums_verified);
            let most = single.block_reads / depth as u64 + 8;
            assert!(ahead.io_reads <= most, "{depth}: {} of {most} reads", ahead.io_reads);
        }
    }
}

#[test]
fn a_scan_does_not_read_ahead_beyond_its_bounds() {
    let (db, alone) = (one_run(32, 0), one_run(1, 0));
    for (from, to) in [(0, 30), (100, 160), (2500, 2600), (2900, 2999)] {
        for rev in [false, true] {
            let scan = |db: &Db| {
                cost(db, || {
                    let iter = db.range(key(from)..key(to));
                    if rev { items(iter.rev()) } else { items(iter) }
                })
            };
            let ((found, ahead), (same, single)) = (scan(&db), scan(&alone));
            assert_eq!(found, same);
            // The block that holds the bound, and the one before a start on a block's edge, may be
            // read in vain.
            assert!(ahead.io_bytes <= single.io_bytes + 2 * 700, "{from}..{to}: {ahead:?} {single:?}");
            assert!(ahead.io_reads < single.io_reads, "{from}..{to}: {ahead:?} {single:?}");
        }
    }
}

/// Blocks read ahead are in the cache after the scan has passed them, one by one, and are not read
/// ahead again.
#[test]
fn a_scan_fills_the_cache_and_reads_from_it() {
    let db = one_run(32, 4 << 20);
    let (all, first) = cost(&db, || items(db.iter()));
    assert!(db.stats().cache_used_bytes <= 4 << 20);
    assert!(db.stats().cache_used_bytes >= first.bytes_read);
    let (again, second) = cost(&db, || items(db.iter()));
    assert_eq!(all, again);
    assert_eq!((second.io_reads, second.cache_hits), (0, second.block_reads));
    let asked: Vec<_> = (0..3000).step_by(7).map(key).collect();
    let (_, gets) = cost(&db, || db.multi_get(&asked).unwrap());
    assert_eq!(gets.io_reads, 0);
}

#[test]
fn an_iterator_that_seeks_around_reads_nothing_ahead() {
    let (db, alone) = (one_run(32, 0), one_run(1, 0));
    let jump = |db: &Db| {
        cost(db, || {
            let mut iter = db.iter();
            for n in 0..50u64 {
                iter.seek(key(n * 1237 % 2990)).unwrap();
                iter.next().unwrap().unwrap();
            }
        })
    };
    // A block between two of which a seek falls is not left before the merge needs the next one.
    let (there, single) = (jump(&db).1, jump(&alone).1);
    assert_eq!((there.io_reads, there.io_bytes), (single.io_reads, single.io_bytes), "{there:?} {single:?}");
    assert_eq!(there.batched_reads, 0);
}

/// Each read of each operation fails once: that operation returns an error or the right result, and
/// the next one is right.
#[test]
fn a_failed_read_in_a_batch_fails_the_call_and_leaves_nothing_behind() {
    let fs = FaultyFs::new(1);
    let mut options = options(Some(Arc::new(fs.clone())), 8, 0);
    options.pin_metadata = false;
    let db = options.open(Path::new("/db")).unwrap();
    fill(&db, &mut Rng::new(3), 5, 200);
    let asked: Vec<_> = (0..220).step_by(3).map(key).collect();
    let (values, all) = (db.multi_get(&asked).unwrap(), items(db.iter()));
    let mut failed = [0; 4];
    for at in 0.. {
        let fails = |sticky| FaultPlan {
            fail_at: Some(fs.operations() + at),
            sticky,
            only: Some(OpClass::Read),
            ..FaultPlan::none()
        };
        let failures = fs.failures();
        fs.plan(fails(false));
        let many = db.multi_get(&asked);
        fs.plan(FaultPlan::none());
        assert_eq!(many.is_err(), fs.failures() > failures, "{at}");
        failed[0] += u64::from(many.is_err());
        assert!(many.is_err() || many.unwrap() == values);
        assert_eq!(db.multi_get(&asked).unwrap(), values);

        // A read ahead that fails is repeated when its block is needed, so these may succeed all
        // the same.
        for (rev, sticky) in [(false, false), (true, false), (false, true), (true, true)] {
            let before = fs.failures();
            let mut iter = db.iter();
            fs.plan(fails(sticky));
            let mut given = Vec::new();
            let mut error = false;
            while let Some(item) = if rev { iter.next_back() } else { iter.next() } {
                match item {
                    Ok((key, value)) => given.push((key.to_vec(), value.to_vec())),
                    Err(_) => error = true,
                }
            }
            fs.plan(FaultPlan::none());
            assert!(!error || fs.failures() > before, "{at}");
            assert!(error || !sticky || fs.failures() == before, "{at}");
            failed[1 + usize::from(rev)] += u64::from(error);
            if rev {
                given.reverse();
                assert!(given[..] == all[all.len() - given.len()..], "{at}");
            } else {
                assert!(given[..] == all[..given.len()], "{at}");
            }
            assert!(error || given.len() == all.len(), "{at}");
            // The other end of the iterator has nothing left after it went backwards.
            let mut iter = if rev { db.iter() } else { iter };
            iter.seek(key(0)).unwrap();
            assert!(items(iter) == all, "{at}");
        }

        let before = fs.failures();
        fs.plan(fails(false));
        let single: Vec<_> = asked.iter().map(|key| db.get(key)).collect();
        fs.plan(FaultPlan::none());
        let errors = single.iter().filter(|value| value.is_err()).count() as u64;
        assert!(errors <= fs.failures() - before, "{at}");
        failed[3] += fs.failures() - before;
        for (value, expected) in single.into_iter().zip(&values) {
            assert!(value.is_err() || value.unwrap() == *expected, "{at}");
        }
        assert_eq!(singles(&db, &asked), values);
        if fs.failures() == failures {
            break;
        }
    }
    assert!(failed.iter().all(|&failed| failed > 10), "{failed:?}");
}

/// The number of times that calls waited for the device, alone or for a batch.
fn waits<T>(db: &Db, work: impl FnOnce() -> T) -> (T, u64, ReadCost) {
    let batches = || db.stats().overlapping_reads.map_or(0, |told| told.batches);
    let before = batches();
    let (result, cost) = cost(db, work);
    (result, batches() - before + cost.io_reads - cost.batched_reads, cost)
}

#[test]
fn a_scan_over_several_runs_waits_for_blocks_of_all_of_them_together() {
    for rev in [false, true] {
        let scan = |db: &Db, from: u64, count: usize| {
            waits(db, || {
                if rev {
                    items(db.range(..key(from)).rev().take(count))
                } else {
                    items(db.range(key(from)..).take(count))
                }
            })
        };
        let (db, alone) = (six_runs(32, 0), six_runs(1, 0));
        let (expected, single, cost) = scan(&alone, 600, 300);
        assert_eq!((single, cost.batched_reads), (cost.io_reads, 0));
        let (found, first, _) = scan(&db, 600, 300);
        assert_eq!(found, expected);
        assert!(first * 8 <= single, "{first} of {single} waits, {rev}");
        // The next one knows how far scans go.
        for _ in 0..20 {
            scan(&db, 400, 60);
        }
        let (found, short, cost) = scan(&db, 600, 60);
        assert_eq!(found[..], expected[..60]);
        assert!(short <= 2, "{short} waits, {rev}: {cost:?}");
        // And forgets it again.
        for _ in 0..100 {
            scan(&db, 400, 1);
        }
        let (_, waited, cost) = scan(&db, 600, 1);
        assert!(waited <= 2, "{cost:?}");
        assert_eq!(cost.io_bytes, cost.bytes_read, "nothing is read in vain");
    }
}

#[test]
fn a_backward_seek_reads_the_first_blocks_of_all_runs_together() {
    let db = six_runs(32, 0);
    for place in [17, 600, 1100] {
        let (found, waited, cost) = waits(&db, || items(db.range(..key(place)).rev().take(1)));
        assert_eq!(found[0].0, key(place - 1));
        assert!(cost.batched_reads >= 5 && waited <= 2, "{waited}: {cost:?}");
    }
}

/// Six runs that all have the same keys, so that a seek to one finds it in every run.
#[test]
fn a_bounded_scan_reads_no_block_beyond_its_bound() {
    let db = options(Some(Arc::new(MemFs::new())), 32, 0).open("/db").unwrap();
    for run in 0..6u64 {
        for i in 0..600 {
            db.put(key(i), [run as u8; 100]).unwrap();
        }
        db.flush().unwrap();
    }
    // The tables are alike: where one begins a block, so do the others.
    let block_of: Vec<u64> = (0..600)
        .map(|i| {
            let told = db.explain_get(key(i)).unwrap();
            told.steps
                .iter()
                .find_map(|step| match step {
                    tamis::explain::ExplainStep::Run { block: Some(block), .. } => Some(block.offset),
                    _ => None,
                })
                .unwrap()
        })
        .collect();
    let (mut rng, mut edges) = (Rng::new(5), 0);
    for _ in 0..200 {
        let from = rng.below(590) as usize;
        let to = from + 1 + rng.below(40.min(599 - from as u64)) as usize;
        for rev in [false, true] {
            let range = key(from as u64)..key(to as u64);
            let (found, cost) =
                cost(&db, || if rev { items(db.range(range).rev()) } else { items(db.range(range)) });
            assert_eq!(found.len(), to - from);
            let mut blocks = block_of[from..to].to_vec();
            blocks.dedup();
            // The index does not tell whether a block begins with the bound or before it.
            let begins = block_of[to] != block_of[to - 1];
            edges += u64::from(begins);
            let blocks = 6 * blocks.len() as u64;
            let most = blocks + if begins { 6 } else { 0 };
            assert!((blocks..=most).contains(&cost.block_reads), "{from}..{to} {rev}: {cost:?}");
            assert_eq!(cost.io_bytes, cost.bytes_read, "{from}..{to} {rev}: {cost:?}");
        }
    }
    assert!(edges < 120, "{edges} of 400 bounds say nothing");
}

/// Without a filter every run is a candidate; where the first one mostly has the answer, no other
/// is read with it.
#[test]
fn the_candidates_of_a_get_are_read_together_unless_the_first_mostly_answers() {
    let (db, alone) = (six_runs(32, 0), six_runs(1, 0));
    let read = |db: &Db, places: &[u64]| {
        waits(db, || places.iter().map(|&place| db.get(key(place)).unwrap()).collect::<Vec<_>>())
    };
    // Keys of the oldest run, of the one before, and none.
    let old: Vec<u64> = (0..600).filter(|i| i % 6 < 2).chain(1200..1230).collect();
    let (values, waited, cost) = read(&db, &old);
    assert_eq!(values, read(&alone, &old).0);
    assert!(waited <= old.len() as u64 + 30, "{waited}: {cost:?}");
    let newest: Vec<u64> = (0..1200).filter(|i| i % 6 == 5).collect();
    read(&db, &newest);
    let (values, waited, cost) = read(&db, &newest);
    assert!(values.iter().all(Option::is_some));
    assert_eq!((waited, cost.io_reads), (newest.len() as u64, newest.len() as u64), "{cost:?}");
}
