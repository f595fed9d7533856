//! Requirements on every engine, checked for all that are compiled in.
//!
//! Sizes are small, and memtables as small as the engines permit, so that there are tables and compactions.

use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};

use tamis_bench::run::{Fill, RunSpec, run};
use tamis_bench::store::Session;
use tamis_bench::{BenchError, KeySet, NoProgress, ValueSizes, Workload};

use crate::engines::system::{System, Visitor};
use crate::engines::{Compression, Engine, Setup, shared};

/// Returns a small setup that no engine refuses.
pub(super) fn setup(dir: &Path) -> Setup {
    Setup {
        dir: dir.to_owned(),
        cache_bytes: 1 << 20,
        metadata_bytes: 0,
        memtable_bytes: 128 << 10,
        filter_bits: 10,
        compression: Compression::None,
        sync: false,
        direct_io: false,
        compaction: true,
        separated_bytes: None,
        overrides: Vec::new(),
    }
}

/// A check that applies to any engine.
trait Check {
    fn check<E: Engine>(&self, setup: &Setup);
}

struct Checked<'a, C>(&'a C, Setup);

impl<C: Check> Visitor for Checked<'_, C> {
    type Output = ();

    fn visit<E: Engine>(self) {
        self.0.check::<E>(&self.1);
    }
}

/// Runs it for every system that is compiled in, each in its own directory.
#[expect(clippy::print_stdout, reason = "a failed test shows the system")]
fn check_all(check: &impl Check) {
    for name in System::compiled_in() {
        let dir = tempfile::tempdir().unwrap();
        let system: System = name.parse().unwrap();
        let setup = Setup { overrides: system.overrides().to_vec(), ..setup(&dir.path().join("deep/db")) };
        println!("{name}");
        system.with(Checked(check, setup));
    }
}

/// Returns a setup in a directory next to the given one's.
fn beside(setup: &Setup, name: &str) -> Setup {
    Setup { dir: setup.dir.with_extension(name), ..setup.clone() }
}

fn open<E: Engine>(setup: &Setup) -> E {
    assert_eq!(E::refuses(setup), None, "{}", E::NAME);
    let (engine, told) = E::open(setup).unwrap();
    assert!(!told.is_empty() && !E::version().is_empty() && E::version() != "unknown");
    engine
}

fn get(session: &mut impl Session, key: &[u8]) -> Option<Vec<u8>> {
    session.get(key, |answer| answer.map(<[u8]>::to_vec)).unwrap()
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Collects at most `most` entries.
fn noting(entries: &mut Entries, most: usize) -> impl FnMut(&[u8], &[u8]) -> ControlFlow<()> {
    move |key, value| {
        entries.push((key.to_vec(), value.to_vec()));
        if entries.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

fn scan(session: &mut impl Session, low: &[u8], high: Option<&[u8]>, most: usize) -> Entries {
    let mut entries = Vec::new();
    session.scan(low, high, noting(&mut entries, most)).unwrap();
    entries
}

fn scan_back(session: &mut impl Session, high: &[u8], most: usize) -> Entries {
    let mut entries = Vec::new();
    session.scan_back(high, noting(&mut entries, most)).unwrap();
    entries
}

/// Returns key and value number `i` of `round`.
fn entry(i: u32, round: u32) -> (Vec<u8>, Vec<u8>) {
    let value =
        if i.is_multiple_of(7) { Vec::new() } else { format!("value {i} of round {round}").into_bytes() };
    (format!("key {i:06}").into_bytes(), value)
}

/// Puts entries `from..to` of a round in a scattered order.
fn put(session: &mut impl Session, from: u32, to: u32, round: u32) {
    let count = to - from;
    // A prime that divides no count used here, so each number occurs once.
    for i in (0..count).map(|i| from + (i * 7919) % count) {
        let (key, value) = entry(i, round);
        session.put(&key, &value).unwrap();
    }
}

fn entries(numbers: impl Iterator<Item = u32>, round: u32) -> Entries {
    numbers.map(|i| entry(i, round)).collect()
}

/// Checks that entries 100..3000 of `round` are present.
fn check_reads<E: Engine>(session: &mut impl Session, round: u32) {
    for i in [100, 101, 1500, 2999] {
        let (key, value) = entry(i, round);
        assert_eq!(get(session, &key), Some(value), "{i}");
    }
    for absent in [&b"a"[..], b"key 000099", b"key 001000x", b"key 003000", b"z"] {
        assert_eq!(get(session, absent), None, "{absent:?}");
    }
    check_multi_get(session, round);

    // Both ends belong to a range, present or not; without an end it extends to the last key.
    assert_eq!(scan(session, b"key 000200", Some(b"key 000203"), 99), entries(200..=203, round));
    assert_eq!(scan(session, b"key 000200x", Some(b"key 000203x"), 99), entries(201..=203, round));
    assert_eq!(scan(session, b"key 002990", None, 99), entries(2990..3000, round));
    assert_eq!(scan(session, b"", None, 3), entries(100..103, round));
    assert_eq!(scan(session, b"key 000200", Some(b"key 000900"), 3), entries(200..203, round));
    for (low, high) in
        [(&b"key 000200a"[..], &b"key 000200z"[..]), (b"l", b"z"), (b"key 000300", b"key 000200")]
    {
        assert_eq!(scan(session, low, Some(high), 99), [], "{low:?} to {high:?}");
    }
    assert_eq!(scan(session, b"z", None, 99), []);

    if E::lacks(Workload::ReverseNext50, 1).is_some() {
        return;
    }
    assert_eq!(scan_back(session, b"key 000300", 4), entries((297..=300).rev(), round));
    assert_eq!(scan_back(session, b"key 000300x", 4), entries((297..=300).rev(), round));
    assert_eq!(scan_back(session, b"z", 2), entries((2998..3000).rev(), round));
    assert_eq!(scan_back(session, b"key 000102", 99), entries((100..=102).rev(), round));
    assert_eq!(scan_back(session, b"a", 99), []);
}

/// Checks absent keys, repeated keys, unordered keys, and an early end.
fn check_multi_get(session: &mut impl Session, round: u32) {
    let keys: Vec<Vec<u8>> = [2500, 9, 100, 2500, 105, 5000, 2999].map(|i| entry(i, round).0).to_vec();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    for most in [keys.len(), 3] {
        let mut answers = Vec::new();
        let look = |place, answer: Option<&[u8]>| {
            answers.push((place, answer.map(<[u8]>::to_vec)));
            if answers.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        session.multi_get(&keys, look).unwrap();
        let there = |i: u32| (100..3000).contains(&i).then(|| entry(i, round).1);
        let expected: Vec<_> =
            [2500, 9, 100, 2500, 105, 5000, 2999].map(there).into_iter().enumerate().collect();
        assert_eq!(answers, expected[..most]);
    }
    session.multi_get(&[], |_, _| panic!("there is no key")).unwrap();
}

struct Operations;

impl Check for Operations {
    fn check<E: Engine>(&self, setup: &Setup) {
        let engine: E = open(setup);
        {
            let session = &mut engine.session().unwrap();
            assert_eq!(get(session, b"key"), None);
            assert_eq!(scan(session, b"", None, 9), []);
            if E::lacks(Workload::ReverseNext50, 1).is_none() {
                assert_eq!(scan_back(session, b"z", 9), []);
            }
            put(session, 100, 3000, 1);
            check_reads::<E>(session, 1);
            put(session, 100, 3000, 2);
            check_reads::<E>(session, 2);
        }
        engine.settle().unwrap();
        check_reads::<E>(&mut engine.session().unwrap(), 2);
        put(&mut engine.session().unwrap(), 100, 3000, 3);
        engine.close().unwrap();

        let engine: E = open(setup);
        check_reads::<E>(&mut engine.session().unwrap(), 3);
        engine.settle().unwrap();
        // Also without any work to do.
        engine.settle().unwrap();
        check_reads::<E>(&mut engine.session().unwrap(), 3);
        engine.close().unwrap();
    }
}

#[test]
fn operations_give_the_same_answers_from_memory_from_tables_and_after_reopening() {
    check_all(&Operations);
}

/// What the process that is killed puts into which directory, and whether synced.
const KILLED: [&str; 3] =
    ["TAMIS_PEERS_KILLED_SYSTEM", "TAMIS_PEERS_KILLED_DIRECTORY", "TAMIS_PEERS_KILLED_SYNCED"];

/// What it says when it has put everything.
const ALL_PUT: &str = "all was put";

/// Returns the number of entries that it puts: enough for some memtables, few if synced.
fn entries_put(setup: &Setup) -> u32 {
    if setup.sync { 60 } else { 3000 }
}

struct Puts;

impl Check for Puts {
    #[expect(clippy::print_stdout, reason = "the test that started it reads this")]
    fn check<E: Engine>(&self, setup: &Setup) {
        let engine: E = open(setup);
        let mut session = engine.session().unwrap();
        put(&mut session, 0, entries_put(setup), 1);
        println!("{ALL_PUT}");
        loop {
            std::thread::park();
        }
    }
}

#[test]
#[ignore = "runs until it is killed, by the test that starts it"]
fn puts_until_it_is_killed() {
    let [name, dir, synced] = KILLED.map(|variable| std::env::var(variable).unwrap());
    let system: System = name.parse().unwrap();
    let setup =
        Setup { sync: synced == "true", overrides: system.overrides().to_vec(), ..setup(Path::new(&dir)) };
    system.with(Checked(&Puts, setup));
}

/// Has a process put entries, and kills it then.
fn put_and_kill(name: &str, setup: &Setup) {
    let values = [name.to_owned(), setup.dir.to_str().unwrap().to_owned(), setup.sync.to_string()];
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "engines::conformance::puts_until_it_is_killed"])
        .envs(KILLED.into_iter().zip(values))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let all_put = lines.map(Result::unwrap).any(|line| line.contains(ALL_PUT));
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(all_put, "{name}");
}

struct Deaths<'n>(&'n str);

impl Check for Deaths<'_> {
    fn check<E: Engine>(&self, setup: &Setup) {
        for sync in [false, true] {
            let setup = beside(&Setup { sync, ..setup.clone() }, if sync { "synced" } else { "buffered" });
            if E::refuses(&setup).is_some() || E::durability(&setup).starts_with(shared::WITH_PROCESS) {
                continue;
            }
            put_and_kill(self.0, &setup);
            let engine: E = open(&setup);
            let found = scan(&mut engine.session().unwrap(), b"", None, usize::MAX);
            assert!(found == entries(0..entries_put(&setup), 1), "{}: {} entries", self.0, found.len());
            engine.close().unwrap();
        }
    }
}

#[test]
fn puts_survive_the_death_of_the_process_unless_they_are_said_not_to() {
    for name in System::compiled_in() {
        let dir = tempfile::tempdir().unwrap();
        let system: System = name.parse().unwrap();
        let setup = Setup { overrides: system.overrides().to_vec(), ..setup(&dir.path().join("db")) };
        system.with(Checked(&Deaths(name), setup));
    }
}

/// Settings that engines refuse.
const REFUSALS: [(&str, &[&str]); 11] = [
    ("tamis", &[]),
    ("rocksdb", &["overrides"]),
    ("rocksdb-row-cache", &["overrides"]),
    ("leveldb", &["lz4", "direct", "held back", "overrides"]),
    ("fjall", &["direct", "overrides"]),
    ("tidesdb", &["direct", "held back", "overrides"]),
    ("surrealkv", &["lz4", "direct", "overrides"]),
    ("lmdb", &["lz4", "direct", "held back", "overrides"]),
    ("mdbx", &["lz4", "direct", "held back", "overrides"]),
    ("redb", &["lz4", "direct", "held back", "overrides"]),
    ("bf-tree", &["lz4", "direct", "held back", "sync", "overrides"]),
];

struct Refusals;

impl Check for Refusals {
    fn check<E: Engine>(&self, setup: &Setup) {
        let plain = Setup { overrides: Vec::new(), ..setup.clone() };
        let asked = [
            ("lz4", Setup { compression: Compression::Lz4, ..plain.clone() }),
            ("direct", Setup { direct_io: true, ..plain.clone() }),
            ("held back", Setup { compaction: false, ..plain.clone() }),
            ("sync", Setup { sync: true, ..plain.clone() }),
            ("overrides", Setup { overrides: vec!["cache_bytes=1".into()], ..plain.clone() }),
        ];
        let refused: Vec<_> =
            asked.iter().filter(|(_, asked)| E::refuses(asked).is_some()).map(|(name, _)| *name).collect();
        let (_, expected) = REFUSALS.iter().find(|(name, _)| *name == E::NAME).unwrap();
        assert_eq!(refused, *expected, "{}", E::NAME);
        assert_eq!(E::refuses(&plain), None);
    }
}

#[test]
fn engines_refuse_unsupported_settings_and_no_others() {
    check_all(&Refusals);
}

struct OtherSetups;

impl Check for OtherSetups {
    fn check<E: Engine>(&self, setup: &Setup) {
        let others = [
            Setup { compression: Compression::Lz4, ..setup.clone() },
            Setup { direct_io: true, ..setup.clone() },
            Setup { cache_bytes: 0, filter_bits: 0, ..setup.clone() },
            Setup { memtable_bytes: 4 << 20, ..setup.clone() },
        ];
        for (i, other) in others.into_iter().enumerate() {
            let other = beside(&other, &i.to_string());
            if E::refuses(&other).is_some() {
                continue;
            }
            let engine: E = open(&other);
            put(&mut engine.session().unwrap(), 100, 3000, 1);
            engine.settle().unwrap();
            check_reads::<E>(&mut engine.session().unwrap(), 1);
            engine.close().unwrap();
        }
        // Syncing every write is slow, so there are few.
        let synced = beside(&Setup { sync: true, ..setup.clone() }, "synced");
        if E::refuses(&synced).is_some() {
            return;
        }
        let engine: E = open(&synced);
        put(&mut engine.session().unwrap(), 0, 60, 1);
        assert_eq!(scan(&mut engine.session().unwrap(), b"", None, 99), entries(0..60, 1));
        engine.close().unwrap();
    }
}

#[test]
fn accepted_setups_work() {
    check_all(&OtherSetups);
}

struct HeldBack;

impl Check for HeldBack {
    fn check<E: Engine>(&self, setup: &Setup) {
        let held = Setup { compaction: false, ..setup.clone() };
        if E::refuses(&held).is_some() {
            return;
        }
        let engine: E = open(&held);
        for round in 1..=9 {
            put(&mut engine.session().unwrap(), 100, 3000, round);
            engine.settle().unwrap();
        }
        let runs = engine.inside().unwrap().runs.unwrap();
        assert!((9..=27).contains(&runs), "{}: {runs} runs", E::NAME);
        check_reads::<E>(&mut engine.session().unwrap(), 9);
        engine.close().unwrap();

        // They are merged by default; another directory is used since some engines store their options.
        let engine: E = open(&beside(setup, "merged"));
        for round in 1..=9 {
            put(&mut engine.session().unwrap(), 100, 3000, round);
            engine.settle().unwrap();
        }
        let merged = engine.inside().unwrap().runs.unwrap();
        assert!(merged < 9, "{}: {merged} runs", E::NAME);
        check_reads::<E>(&mut engine.session().unwrap(), 9);
        engine.close().unwrap();
    }
}

#[test]
fn without_compaction_every_flush_leaves_a_run() {
    check_all(&HeldBack);
}

struct Insides;

impl Check for Insides {
    fn check<E: Engine>(&self, setup: &Setup) {
        let engine: E = open(setup);
        for round in 1..=3 {
            put(&mut engine.session().unwrap(), 0, 9000, round);
        }
        engine.settle().unwrap();
        check_scattered_gets(&mut engine.session().unwrap());
        let inside = engine.inside().unwrap();
        assert!(inside.runs.unwrap() >= 1);
        let tells = matches!(E::NAME, "tamis" | "rocksdb" | "rocksdb-row-cache" | "fjall");
        assert_eq!(
            inside.filter_bytes.is_some() && inside.index_bytes.is_some(),
            tells,
            "{}: {inside:?}",
            E::NAME
        );
        // 9000 keys of 10 bits. A filter may contain duplicates of keys, and has whole blocks; one for the whole tree that cut
        // bits while it had several versions of each key gets them back with its next rebuild only.
        assert!(
            inside.filter_bytes.is_none_or(|bytes| (6_000..90_000).contains(&bytes)),
            "{}: {inside:?}",
            E::NAME
        );
        assert!(inside.index_bytes.is_none_or(|bytes| bytes > 0), "{}: {inside:?}", E::NAME);
        assert!(
            inside.cache_bytes.is_none_or(|bytes| bytes <= 2 * setup.cache_bytes),
            "{}: {inside:?}",
            E::NAME
        );
        engine.close().unwrap();

        // One entry is enough for a run, if `settle` flushes memtables.
        let engine: E = open(&beside(setup, "one"));
        put(&mut engine.session().unwrap(), 0, 1, 1);
        engine.settle().unwrap();
        assert_eq!(engine.inside().unwrap().runs, Some(1), "{}", E::NAME);
        engine.close().unwrap();
    }
}

fn check_scattered_gets(session: &mut impl Session) {
    for i in (0..9000).step_by(17) {
        let (key, value) = entry(i, 3);
        assert_eq!(get(session, &key), Some(value));
    }
}

#[test]
fn statistics_of_engines_are_plausible() {
    check_all(&Insides);
}

struct Workloads;

impl Check for Workloads {
    fn check<E: Engine>(&self, setup: &Setup) {
        check_workloads::<E>(setup, ValueSizes::Fixed(60));
        check_workloads::<E>(&beside(setup, "mixed"), ValueSizes::Pareto);
    }
}

fn check_workloads<E: Engine>(setup: &Setup, value_bytes: ValueSizes) {
    const HELD: u64 = 300;
    let keys = KeySet::uniform(6000, 8, 1).unwrap();
    let mut fill = Fill::random(&keys, 5);
    fill.loaded = keys.len() - HELD;
    let engine: E = open(setup);
    for workload in Workload::ALL {
        // A fill in order begins with keys that `fill-random` left out.
        if workload == Workload::FillSeq || !workload.is_run() || E::lacks(workload, 1).is_some() {
            continue;
        }
        let seed = if workload.is_fill() { 5 } else { 9 };
        let spec = RunSpec {
            workload,
            keys: &keys,
            value_bytes,
            threads: 2,
            ops: 2000,
            seed,
            fill: fill.clone(),
            pattern: None,
            progress: &NoProgress,
        };
        let timing = run(&engine, &spec).unwrap_or_else(|error| panic!("{} in {workload}: {error}", E::NAME));
        assert!(timing.ops >= 2000 && timing.busy_ns > 0);
        fill.loaded += Fill::inserts(workload, 2000);
        if workload.writes() {
            engine.settle().unwrap();
        }
    }
    assert!(fill.loaded <= keys.len());
    // Checks that absent keys are not found.
    let mut stray = Vec::new();
    keys.existing(fill.at(keys.len() - 1), &mut stray);
    assert_eq!(get(&mut engine.session().unwrap(), &stray), None);
    engine.close().unwrap();
}

#[test]
fn every_workload_runs_on_two_threads_with_correct_answers() {
    check_all(&Workloads);
}

struct InOrder;

impl Check for InOrder {
    fn check<E: Engine>(&self, setup: &Setup) {
        let keys = KeySet::sequential(5000, 16).unwrap();
        let engine: E = open(setup);
        for workload in [Workload::FillSeq, Workload::GetMixed, Workload::SeekNext50, Workload::ReverseNext50]
        {
            if E::lacks(workload, 1).is_some() {
                continue;
            }
            let fill = Fill::numbered(&keys);
            let spec = RunSpec {
                workload,
                keys: &keys,
                value_bytes: ValueSizes::Fixed(60),
                threads: 2,
                ops: 1000,
                seed: 3,
                fill,
                pattern: None,
                progress: &NoProgress,
            };
            run(&engine, &spec).unwrap_or_else(|error| panic!("{} in {workload}: {error}", E::NAME));
        }
        // A run that expects other values must fail, or the other runs would prove nothing.
        let spec = RunSpec {
            workload: Workload::GetExisting,
            keys: &keys,
            value_bytes: ValueSizes::Fixed(61),
            threads: 2,
            ops: 1000,
            seed: 3,
            fill: Fill::numbered(&keys),
            pattern: None,
            progress: &NoProgress,
        };
        assert!(run(&engine, &spec).is_err_and(|error: BenchError| error.is_wrong_answer()), "{}", E::NAME);
        engine.close().unwrap();
    }
}

#[test]
fn a_fill_in_order_is_read_back_and_wrong_values_are_noticed() {
    check_all(&InOrder);
}
