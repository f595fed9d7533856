//! Checks the fate of versions against a brute-force reader: whatever is flushed and merged, in any
//! pieces, every live snapshot and every current reader reads the same before and after.

use std::sync::Arc;

use proptest::prelude::*;
use tamis_files::tree::tombstones::RangeTombstone;

use super::*;
use crate::compaction::blobs::BlobInputs;
use crate::operators::{MergeError, OperatorNames, Operators};

const KEY: &[u8] = b"key";

type Version = (SeqNo, Kind, Vec<u8>);

/// The versions of the key in a memtable or a table.
#[derive(Clone, Debug, Default)]
struct Run {
    /// Newest first.
    versions: Vec<Version>,
    tombstones: Tombstones,
}

/// Joins base and operands with bars and does not support partial merges; fails on operands that
/// ask for it.
#[derive(Debug)]
struct Bars;

impl MergeOperator for Bars {
    fn name(&self) -> &str {
        "bars"
    }

    fn merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, MergeError> {
        if operands.contains(&&b"fail"[..]) {
            return Err(MergeError::new("told to fail"));
        }
        let mut value = base.unwrap_or(b"none").to_vec();
        operands.iter().for_each(|operand| value.extend([b"|", *operand].concat()));
        Ok(value)
    }
}

fn operator(name: &str) -> Arc<dyn MergeOperator> {
    let operators = Operators::new().with_merge(Arc::new(Bars));
    operators
        .resolve(OperatorNames { merge: Some(name), ..OperatorNames::default() })
        .expect("known")
        .merge
        .expect("named")
}

/// Returns the value read at `snapshot`; an error if the operator fails.
fn read(runs: &[Run], snapshot: SeqNo, operator: &dyn MergeOperator) -> Result<Option<Vec<u8>>, MergeError> {
    read_from(runs, snapshot, 0, operator)
}

/// The same for a reader that sees nothing below `live_from`.
fn read_from(
    runs: &[Run],
    snapshot: SeqNo,
    live_from: SeqNo,
    operator: &dyn MergeOperator,
) -> Result<Option<Vec<u8>>, MergeError> {
    let cover = runs.iter().map(|run| run.tombstones.cover(KEY, snapshot)).max().unwrap_or(0).max(live_from);
    let mut operands: Vec<&[u8]> = Vec::new();
    let mut base = None;
    for (_, kind, value) in chain(runs, snapshot, cover) {
        match kind {
            Kind::Merge => operands.insert(0, value),
            Kind::Put => base = Some(&value[..]),
            Kind::Delete | Kind::PutBlob => {}
        }
    }
    match operands.is_empty() {
        true => Ok(base.map(<[u8]>::to_vec)),
        false => operator.merge(KEY, base, &operands).map(Some),
    }
}

/// Returns the newest visible version and, if that is an operand, all versions down to its base.
fn chain(runs: &[Run], snapshot: SeqNo, cover: SeqNo) -> Vec<&Version> {
    let all = runs.iter().flat_map(|run| &run.versions);
    let mut chain = Vec::new();
    for version in all.filter(|(seq, ..)| (cover..=snapshot).contains(seq)) {
        chain.push(version);
        if version.1 != Kind::Merge {
            break;
        }
    }
    chain
}

/// Flushes or merges `inputs` into one run; also returns what it pins.
fn rewrite(
    inputs: &[Run],
    snapshots: &[SeqNo],
    visible: SeqNo,
    has_older: bool,
    rules: Rules<'_>,
) -> (Run, Vec<Option<SeqNo>>) {
    let tombstones = Tombstones::merge(inputs.iter().map(|run| &run.tombstones));
    let readers: Vec<SeqNo> = snapshots.iter().copied().chain([visible]).collect();
    let kept = tombstones.retain_visible(&readers, !has_older);
    let around = Surroundings {
        snapshots,
        tombstones: &tombstones,
        kept: &kept,
        level: 1,
        values: &BlobInputs::default(),
    };
    let mut versions = Versions::new(rules, around);
    let (mut run, mut pinned) = (Run::default(), Vec::new());
    let mut keep = |kept: Kept<'_>| {
        run.versions.push((kept.seq, kept.kind, kept.value.to_vec()));
        pinned.push(kept.pinned);
        Ok(())
    };
    versions.start(has_older);
    for (seq, kind, value) in inputs.iter().flat_map(|run| &run.versions) {
        versions.version(KEY, (*seq, *kind, value), &mut keep).expect("memory takes it");
    }
    versions.end(KEY, &mut keep).expect("memory takes it");
    run.tombstones = kept;
    assert!(run.versions.windows(2).all(|pair| pair[0].0 > pair[1].0), "newest first: {run:?}");
    (run, pinned)
}

#[derive(Clone, Debug)]
enum Event {
    Write(Kind, u8),
    DeleteRange,
    Take,
    Release(usize),
    Flush,
    /// Merges this many runs, starting at this index.
    Merge(usize, usize),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => any::<u8>().prop_map(|n| Event::Write(Kind::Put, n)),
        12 => any::<u8>().prop_map(|n| Event::Write(Kind::Merge, n)),
        2 => Just(Event::Write(Kind::Delete, 0)),
        2 => Just(Event::DeleteRange),
        4 => Just(Event::Take),
        3 => any::<usize>().prop_map(Event::Release),
        5 => Just(Event::Flush),
        4 => (any::<usize>(), 1..4usize).prop_map(|(first, count)| Event::Merge(first, count)),
    ]
}

/// A tree of one key: runs newest first, starting with the memtable.
struct World {
    operator: Arc<dyn MergeOperator>,
    /// Everything ever written.
    all: Run,
    runs: Vec<Run>,
    snapshots: Vec<SeqNo>,
    seq: SeqNo,
}

impl World {
    fn new(operator_name: &str) -> World {
        let operator = operator(operator_name);
        World { operator, all: Run::default(), runs: vec![Run::default()], snapshots: Vec::new(), seq: 0 }
    }

    fn rules(&self) -> Rules<'_> {
        Rules { operator: Some(&*self.operator), ..Rules::default() }
    }

    /// Some operands and values make `add` and `bars` fail.
    fn value(&self, n: u8) -> Vec<u8> {
        match n {
            0..8 => b"fail".to_vec(),
            _ => u64::from(n).to_le_bytes().to_vec(),
        }
    }

    fn carry_out(&mut self, event: &Event) {
        match *event {
            Event::Write(kind, n) => {
                self.seq += 1;
                let value = if kind == Kind::Delete { Vec::new() } else { self.value(n) };
                for run in [&mut self.all, &mut self.runs[0]] {
                    run.versions.insert(0, (self.seq, kind, value.clone()));
                }
            }
            Event::DeleteRange => {
                self.seq += 1;
                let tombstone = RangeTombstone { start: b"a"[..].into(), end: None, seq: self.seq };
                for run in [&mut self.all, &mut self.runs[0]] {
                    let old = run.tombstones.iter();
                    run.tombstones = Tombstones::fragment(old.chain([tombstone.clone()]).collect());
                }
            }
            Event::Take if self.seq > 0 && self.snapshots.last() != Some(&self.seq) => {
                self.snapshots.push(self.seq);
            }
            Event::Take => {}
            Event::Release(which) => {
                let count = self.snapshots.len();
                if count > 0 {
                    self.snapshots.remove(which % count);
                }
            }
            Event::Flush => {
                let (run, _) = rewrite(&self.runs[..1], &self.snapshots, self.seq, true, self.rules());
                self.runs[0] = run;
                self.runs.insert(0, Run::default());
            }
            Event::Merge(first, count) => {
                let tables = self.runs.len() - 1;
                if tables > 0 {
                    let first = 1 + first % tables;
                    let end = (first + count).min(self.runs.len());
                    self.merge(first, end);
                }
            }
        }
    }

    fn merge(&mut self, first: usize, end: usize) {
        let has_older = end < self.runs.len();
        let inputs = &self.runs[first..end];
        let (run, pinned) = rewrite(inputs, &self.snapshots, self.seq, has_older, self.rules());
        self.check_stripes(&run);
        let cover = run.tombstones.cover(KEY, MAX_SEQNO);
        let now = chain(std::slice::from_ref(&run), MAX_SEQNO, cover);
        for (version, pinned) in run.versions.iter().zip(pinned) {
            let stripe = self.snapshots.iter().copied().find(|&snapshot| snapshot >= version.0);
            let expected = stripe.filter(|_| !now.contains(&version));
            assert_eq!(pinned, expected, "{version:?} of {run:?} with {:?}", self.snapshots);
        }
        self.runs.splice(first..end, [run]);
    }

    /// Checks that no two versions remain that no reader can tell apart.
    fn check_stripes(&self, run: &Run) {
        if self.operator.name() != "append" {
            return;
        }
        let stripe = |version: &Version| self.snapshots.partition_point(|&snapshot| snapshot < version.0);
        let alone = run.versions.windows(2).all(|pair| stripe(&pair[0]) != stripe(&pair[1]));
        assert!(alone, "two versions share a stripe of {:?}: {run:?}", self.snapshots);
    }

    fn check(&self) {
        for &reader in self.snapshots.iter().chain([&MAX_SEQNO]) {
            let expected = read(std::slice::from_ref(&self.all), reader, &*self.operator);
            assert_eq!(self.read(reader).ok(), expected.ok(), "at {reader}: {:?}", self.runs);
        }
    }

    fn read(&self, snapshot: SeqNo) -> Result<Option<Vec<u8>>, MergeError> {
        read(&self.runs, snapshot, &*self.operator)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_reader_reads_the_same_before_and_after(
        name in prop::sample::select(vec!["add", "append", "max", "bars"]),
        events in prop::collection::vec(event(), 1..60),
    ) {
        let mut world = World::new(name);
        for event in &events {
            world.carry_out(event);
            world.check();
        }
        world.carry_out(&Event::Flush);
        world.snapshots.clear();
        world.merge(0, world.runs.len());
        world.check();
        // Without snapshots and older data, a readable key is a single put without a number.
        if let Ok(value) = world.read(MAX_SEQNO) {
            let expected: Vec<Version> = value.into_iter().map(|value| (0, Kind::Put, value)).collect();
            prop_assert_eq!(&world.runs[0].versions, &expected);
            prop_assert!(world.runs[0].tombstones.is_empty());
        }
    }

    #[test]
    fn dropping_expired_versions_is_invisible_to_readers(
        events in prop::collection::vec(event(), 1..40),
        kept_outside in 0..3usize,
        horizon in 0..40u64,
    ) {
        let mut world = World::new("append");
        events.iter().for_each(|event| world.carry_out(event));
        let end = world.runs.len().saturating_sub(kept_outside).max(1);
        let has_older = end < world.runs.len();
        let live_from = horizon + u64::from(horizon > 0);
        let now = read_from(&world.runs, MAX_SEQNO, live_from, &*world.operator).expect("append does not fail");
        let snapshot = world.snapshots.last().copied().unwrap_or(0);
        let rules = Rules { expired: Some(horizon), ..world.rules() };
        let (run, _) = rewrite(&world.runs[..end], &world.snapshots, world.seq, has_older, rules);
        let before: Vec<_> = world.snapshots.iter().map(|&s| world.read(s)).collect();
        world.runs.splice(..end, [run]);
        let after: Vec<_> = world.snapshots.iter().map(|&s| world.read(s)).collect();
        prop_assert_eq!(before, after, "snapshots read the same");
        let left = read_from(&world.runs, MAX_SEQNO, live_from, &*world.operator).expect("append does not fail");
        prop_assert_eq!(left, now, "{:?}", world.runs);
        let gone = |seq: SeqNo| seq > snapshot && seq < live_from;
        prop_assert!(!world.runs[0].versions.iter().any(|version| gone(version.0)), "{:?}", world.runs);
    }

    #[test]
    fn a_filter_decides_only_about_versions_that_no_snapshot_sees(
        events in prop::collection::vec(event(), 1..40),
        kept_outside in 0..3usize,
    ) {
        let mut world = World::new("append");
        events.iter().for_each(|event| world.carry_out(event));
        let end = world.runs.len().saturating_sub(kept_outside).max(1);
        let has_older = end < world.runs.len();
        let now = world.read(MAX_SEQNO).expect("append does not fail");
        let before: Vec<_> = world.snapshots.iter().map(|&s| world.read(s)).collect();
        let rules = Rules { filter: Some(&Parity), ..world.rules() };
        let (run, _) = rewrite(&world.runs[..end], &world.snapshots, world.seq, has_older, rules);
        world.runs.splice(..end, [run]);
        let after: Vec<_> = world.snapshots.iter().map(|&s| world.read(s)).collect();
        prop_assert_eq!(before, after, "snapshots read the same");
        let found = world.read(MAX_SEQNO).expect("append does not fail");
        let filtered = now.as_ref().and_then(|value| match Parity.filter(1, KEY, value) {
            Decision::Keep => Some(value.clone()),
            Decision::Remove => None,
            Decision::Replace(other) => Some(other),
        });
        prop_assert!(found == now || found == filtered, "{:?} of {:?}", found, now);
        if world.snapshots.is_empty() && !has_older {
            prop_assert_eq!(found, filtered);
        }
    }
}

/// Decides by the eighth byte: keeps, removes or replaces.
#[derive(Debug)]
struct Parity;

impl CompactionFilter for Parity {
    fn name(&self) -> &str {
        "parity"
    }

    fn filter(&self, level: usize, key: &[u8], value: &[u8]) -> Decision {
        assert_eq!((level, key), (1, KEY));
        match value.first().map(|n| n % 3) {
            Some(0) => Decision::Remove,
            Some(1) => Decision::Replace(b"other".to_vec()),
            _ => Decision::Keep,
        }
    }
}

/// A run of these versions, newest first, without tombstones.
fn run(versions: &[(SeqNo, Kind, &[u8])]) -> Run {
    let versions = versions.iter().map(|(seq, kind, value)| (*seq, *kind, value.to_vec())).collect();
    Run { versions, tombstones: Tombstones::default() }
}

fn rewritten(
    versions: &[(SeqNo, Kind, &[u8])],
    snapshots: &[SeqNo],
    has_older: bool,
    rules: Rules<'_>,
) -> Vec<Version> {
    rewrite(&[run(versions)], snapshots, 100, has_older, rules).0.versions
}

#[test]
fn operands_are_folded_into_an_operand_or_with_their_base_into_a_put() {
    let append = operator("append");
    let rules = Rules { operator: Some(&*append), ..Rules::default() };
    let operands: [(SeqNo, Kind, &[u8]); 2] = [(9, Kind::Merge, b"b"), (8, Kind::Merge, b"a")];
    assert_eq!(rewritten(&operands, &[], true, rules), run(&[(9, Kind::Merge, b"ab")]).versions);
    assert_eq!(rewritten(&operands, &[], false, rules), run(&[(0, Kind::Put, b"ab")]).versions);
    let (put, delete): (Version, Version) = ((7, Kind::Put, b"base".to_vec()), (7, Kind::Delete, Vec::new()));
    let with = |base: &Version, snapshots: &[SeqNo]| {
        let versions = [operands[0], operands[1], (base.0, base.1, &base.2[..])];
        rewritten(&versions, snapshots, true, rules)
    };
    assert_eq!(with(&put, &[]), run(&[(9, Kind::Put, b"baseab")]).versions);
    assert_eq!(with(&put, &[7]), run(&[(9, Kind::Merge, b"ab"), (7, Kind::Put, b"base")]).versions);
    assert_eq!(with(&delete, &[7]), run(&[(9, Kind::Put, b"ab"), (7, Kind::Delete, b"")]).versions);
    let apart = [(9, Kind::Put, &b"baseab"[..]), (8, Kind::Put, b"basea")];
    assert_eq!(with(&put, &[8]), run(&[(9, Kind::Merge, b"b"), apart[1]]).versions);
}

#[test]
fn sequence_numbers_that_indicate_age_are_not_reset() {
    let versions: [(SeqNo, Kind, &[u8]); 2] = [(9, Kind::Put, b"new"), (8, Kind::Put, b"hidden")];
    let rules = |horizon| Rules { expired: Some(horizon), ..Rules::default() };
    let newest = run(&versions[..1]).versions;
    assert_eq!(rewritten(&versions, &[], false, rules(8)), newest);
    assert_eq!(rewritten(&versions, &[9], false, rules(9)), newest);
    assert_eq!(rewritten(&versions, &[], false, rules(9)), []);
    // No trace is needed: all older data has expired as well, wherever it lies.
    assert_eq!(rewritten(&versions, &[], true, rules(9)), []);
    // A version whose number was reset before ages were tracked is older than the first effective
    // horizon.
    let forgotten = [(0, Kind::Put, &b"value"[..])];
    assert_eq!(rewritten(&forgotten, &[], false, rules(0)), run(&forgotten).versions);
    assert_eq!(rewritten(&forgotten, &[], false, rules(9)), []);
}

/// Regression: an operand was folded with a base that readers no longer saw, and the expired value
/// reappeared.
#[test]
fn an_expired_base_does_not_reappear_with_a_young_operand() {
    let append = operator("append");
    let rules = Rules { operator: Some(&*append), expired: Some(7), ..Rules::default() };
    let versions: [(SeqNo, Kind, &[u8]); 2] = [(9, Kind::Merge, b"young"), (7, Kind::Put, b"expired")];
    assert_eq!(rewritten(&versions, &[], true, rules), run(&[(9, Kind::Put, b"young")]).versions);
    assert_eq!(rewritten(&versions[..1], &[], true, rules), run(&versions[..1]).versions);
}

#[test]
fn without_an_operator_operands_stay_unchanged() {
    let versions: [(SeqNo, Kind, &[u8]); 4] =
        [(9, Kind::Merge, b"b"), (8, Kind::Merge, b"a"), (7, Kind::Put, b"base"), (6, Kind::Put, b"hidden")];
    let expected: Vec<_> = run(&versions[..3]).versions;
    assert_eq!(rewritten(&versions, &[], true, Rules::default()), expected);
}

#[test]
fn a_failing_operator_only_prevents_the_merge() {
    let bars = operator("bars");
    let rules = Rules { operator: Some(&*bars), ..Rules::default() };
    let versions: [(SeqNo, Kind, &[u8]); 4] = [
        (9, Kind::Merge, b"b"),
        (8, Kind::Merge, b"fail"),
        (7, Kind::Put, b"base"),
        (6, Kind::Put, b"hidden"),
    ];
    let mut expected = run(&versions[..3]).versions;
    assert_eq!(rewritten(&versions, &[], true, rules), expected);
    // Operands need their order even where nothing older is left; their base does not.
    expected[2].0 = 0;
    assert_eq!(rewritten(&versions, &[], false, rules), expected);
    // A later put heals it.
    let healed = [&[(10, Kind::Put, &b"new"[..])][..], &versions].concat();
    assert_eq!(rewritten(&healed, &[], false, rules), run(&[(0, Kind::Put, b"new")]).versions);
}

#[test]
fn many_operands_are_folded_in_groups_and_too_many_are_written_unchanged() {
    let count = 3 * GROUP_OPERANDS as u64 + 5;
    let operands = |len: usize| -> Vec<Version> {
        (1..=count).rev().map(|seq| (seq, Kind::Merge, vec![seq as u8; len])).collect()
    };
    let rewritten = |name: &str, versions: Vec<Version>, has_older| {
        let operator = operator(name);
        let rules = Rules { operator: Some(&*operator), ..Rules::default() };
        let inputs = [Run { versions, tombstones: Tombstones::default() }];
        rewrite(&inputs, &[], count, has_older, rules).0.versions
    };
    let appended: Vec<u8> = (1..=count).map(|seq| seq as u8).collect();
    assert_eq!(rewritten("append", operands(1), true), [(count, Kind::Merge, appended.clone())]);
    assert_eq!(rewritten("append", operands(1), false), [(0, Kind::Put, appended)]);
    // Without partial merges the operands wait for their base, up to a limit.
    assert_eq!(rewritten("bars", operands(1), true), operands(1));
    assert_eq!(rewritten("bars", operands(1), false).len(), 1);
    let large = operands(MAX_BYTES / 1000);
    assert_eq!(rewritten("bars", large.clone(), false), large);
}

/// Regression: a snapshot kept an expired operand, and the merge folded it with a younger one,
/// under the younger number: current readers saw the expired operand again.
#[test]
fn versions_pinned_below_the_horizon_are_not_folded_with_those_above() {
    for oldest in [Kind::Merge, Kind::Put, Kind::Delete] {
        let mut world = World::new("append");
        for kind in [oldest, Kind::Merge, Kind::Merge, Kind::Merge] {
            world.carry_out(&Event::Write(kind, 0));
        }
        world.carry_out(&Event::Take);
        let (horizon, live_from) = (2, 3);
        let rules = Rules { expired: Some(horizon), ..world.rules() };
        let now = |runs: &[Run]| read_from(runs, MAX_SEQNO, live_from, &*world.operator).unwrap();
        let (before, seen) = (now(&world.runs), world.read(4).unwrap());
        let (run, _) = rewrite(&world.runs, &world.snapshots, world.seq, false, rules);
        let runs = [run];
        assert_eq!(before.as_deref(), Some(&b"failfail"[..]));
        assert_eq!(now(&runs), before, "{oldest:?}: {runs:?}");
        assert_eq!(read(&runs, 4, &*world.operator).unwrap(), seen, "{oldest:?}: {runs:?}");
    }
}
