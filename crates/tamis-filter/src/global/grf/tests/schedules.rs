//! No key of any version is rejected, whatever the tree does; on the schedules of the paper exactly
//! one table is named.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Op {
    /// Flushes this many new keys; the flag says whether the cuts already include their table.
    Flush(u64, bool),
    /// Merges tables adjacent in age within one of the two stripes.
    Merge(bool, usize, usize),
    Drop(bool, usize),
    /// Collects codes; if the flag is set, with the base that a new partition would get.
    Collect(bool),
    /// Stores the partition and reads it.
    Reopen,
    /// Keeps a version alive.
    Hold,
    Release(usize),
    /// Makes a new partition for new versions, and shrinks the old one. If the flag is set, from the
    /// old one.
    Renew(bool),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0u64..90, any::<bool>()).prop_map(|(keys, known)| Op::Flush(keys, known)),
        4 => (any::<bool>(), 0usize..20, 2usize..6).prop_map(|(stripe, at, n)| Op::Merge(stripe, at, n)),
        1 => (any::<bool>(), 0usize..20).prop_map(|(stripe, at)| Op::Drop(stripe, at)),
        2 => any::<bool>().prop_map(Op::Collect),
        1 => Just(Op::Reopen),
        1 => Just(Op::Hold),
        1 => any::<usize>().prop_map(Op::Release),
        2 => any::<bool>().prop_map(Op::Renew),
    ]
}

#[derive(Clone, Debug)]
struct Table {
    epochs: Epochs,
    keys: BTreeSet<Key>,
}

/// Tables of two stripes of the key space, each oldest first: merges of one stripe only are partial
/// merges.
#[derive(Clone, Debug, Default)]
struct Version {
    stripes: [Vec<Table>; 2],
}

impl Version {
    fn tables(&self) -> impl Iterator<Item = &Table> {
        self.stripes.iter().flatten()
    }

    fn keys(&self) -> impl Iterator<Item = (&Key, Epochs)> {
        self.tables().flat_map(|table| table.keys.iter().map(|key| (key, table.epochs)))
    }

    /// Checks that every key is named by one of these partitions, or may be in a last level that
    /// one of them does not know.
    fn is_covered_by(&self, partitions: &[&Partition]) {
        for (key, table) in self.keys() {
            let covered = partitions.iter().any(|partition| {
                let unknown = partition.last_is_unknown() && table.intersects(epochs(0, partition.base()));
                unknown || named(partition, key).iter().any(|named| named.intersects(table))
            });
            assert!(covered, "{key:?} of {table:?}: {:?}", named(partitions[0], key));
        }
    }
}

struct Tree {
    kind: usize,
    now: Version,
    partition: Partition,
    spec: PartitionSpec,
    /// Live versions, with the partition they were published with and, if that round is over, the
    /// snapshot of its last one.
    held: Vec<(Version, Partition, bool)>,
    rest: Option<Partition>,
    next_epoch: u64,
    next_key: u64,
}

impl Tree {
    fn new(kind: usize, spec: PartitionSpec) -> Self {
        let partition = Partition::build(&Batch::new(), 0, &spec).expect("a valid specification");
        let (now, held) = (Version::default(), Vec::new());
        Tree { kind, now, partition, spec, held, rest: None, next_epoch: 0, next_key: 0 }
    }

    fn cuts(&self, more: Option<Epochs>) -> Cuts {
        // Versions of the previous round have their own partition, but additional cuts do no harm.
        let held = self.held.iter().map(|(version, ..)| version);
        Cuts::of(held.chain([&self.now]).flat_map(Version::tables).map(|table| table.epochs).chain(more))
    }

    fn base(&self) -> u64 {
        self.now.tables().map(|table| table.epochs.hi).min().unwrap_or(self.next_epoch)
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Flush(keys, known) => {
                let table = epochs(self.next_epoch, self.next_epoch + 1);
                self.next_epoch += 1;
                let all: BTreeSet<Key> = (0..keys)
                    .map(|i| {
                        // Some keys are written again.
                        let again = random(self.next_key + i, 9).is_multiple_of(4);
                        key(self.kind, if again { i } else { self.next_key + i })
                    })
                    .collect();
                self.next_key += keys;
                let cuts = self.cuts(known.then_some(table));
                self.partition = self.partition.insert(&batch(all.iter().map(|key| (key, table))), &cuts);
                for (at, stripe) in self.now.stripes.iter_mut().enumerate() {
                    let keys = all.iter().filter(|key| key.len() % 2 == at).cloned().collect();
                    stripe.push(Table { epochs: table, keys });
                }
            }
            Op::Merge(stripe, at, n) => {
                let stripe = &mut self.now.stripes[usize::from(stripe)];
                if stripe.len() > 1 {
                    let at = at % (stripe.len() - 1);
                    let inputs: Vec<Table> = stripe.drain(at..(at + n).min(stripe.len())).collect();
                    let hull = epochs(inputs[0].epochs.lo, inputs[inputs.len() - 1].epochs.hi);
                    let keys = inputs.into_iter().flat_map(|table| table.keys).collect();
                    stripe.insert(at, Table { epochs: hull, keys });
                }
            }
            Op::Drop(stripe, at) => {
                let stripe = &mut self.now.stripes[usize::from(stripe)];
                if !stripe.is_empty() {
                    stripe.remove(at % stripe.len());
                }
            }
            Op::Collect(moves) => {
                let base = if moves { self.base() } else { 0 };
                self.partition = self.partition.collect(base, &self.cuts(None));
            }
            Op::Reopen => {
                self.partition = Partition::from_bytes(&self.partition.to_bytes()).expect("its own bytes");
            }
            Op::Hold => self.held.push((self.now.clone(), self.partition.clone(), false)),
            Op::Release(at) => {
                if !self.held.is_empty() {
                    self.held.remove(at % self.held.len());
                }
            }
            Op::Renew(from_old) => {
                let base = self.base();
                self.rest = Some(self.partition.shrink());
                self.partition = if from_old {
                    self.partition.collect(base, &Cuts::of(self.now.tables().map(|table| table.epochs)))
                } else {
                    Partition::build(&batch(self.now.keys()), base, &self.spec).expect("sound")
                };
                self.held.iter_mut().for_each(|(.., over)| *over = true);
            }
        }
    }

    fn check(&self) {
        consistent(&self.partition);
        self.now.is_covered_by(&[&self.partition]);
        for (version, partition, over) in &self.held {
            version.is_covered_by(&[partition]);
            consistent(&partition.shrink());
            version.is_covered_by(&[&partition.shrink()]);
            if !over {
                version.is_covered_by(&[&self.partition]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_key_of_any_version_is_rejected(
        kind in 0..KINDS,
        map in prop::sample::select(&MAPS[..]),
        bits_per_key in prop_oneof![0.01..14.0, 14.0..64.0],
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let mut tree = Tree::new(kind, PartitionSpec { bits_per_key, ..spec_of(map) });
        for op in &ops {
            tree.apply(op);
            if matches!(op, Op::Collect(_) | Op::Renew(_) | Op::Flush(_, true)) {
                tree.check();
            }
        }
        tree.check();
    }
}

/// A deterministic tree: tiering above a last level that takes all of the level above at once (lazy
/// leveling).
fn deterministic(t: u64, levels: u32, flushes: u64) -> Vec<Epochs> {
    let round = t.pow(levels - 1);
    let mut tables = Vec::new();
    let base = flushes / round * round;
    if base > 0 {
        tables.push(epochs(0, base));
    }
    let mut lo = base;
    for level in (0..levels - 1).rev() {
        let size = t.pow(level);
        while lo + size <= flushes {
            tables.push(epochs(lo, lo + size));
            lo += size;
        }
    }
    tables
}

/// The paper's rule and the intervals name the same run, after every flush, for every flush of the
/// round, with garbage collection by the oldest of three live versions.
#[test]
fn codes_name_the_same_runs_as_the_paper() {
    for (t, levels) in [(3u64, 3u32), (4, 4), (5, 3), (10, 3)] {
        let shape = shape::Shape { radices: vec![t as u32; levels as usize - 1] };
        let round = t.pow(levels - 1);
        let base = 2 * round;
        let mut codes: Vec<Epochs> = Vec::new();
        for flushes in 0..round {
            let now = deterministic(t, levels, base + flushes);
            let oldest = flushes.saturating_sub(2);
            let alive = (oldest..=flushes).flat_map(|flushes| deterministic(t, levels, base + flushes));
            let cuts = Cuts::of(alive);
            let counts = codes.iter().fold(BTreeMap::new(), |mut counts, &code| {
                *counts.entry(code).or_default() += 1;
                counts
            });
            let book = book::Book::new(base, &counts, base + flushes, true);
            let collected = book.collect(base, &cuts);
            for code in &mut codes {
                let symbol = book.exact(*code);
                *code = collected[usize::from(symbol)].expect("all are held");
            }
            for (flush, &code) in (0..).zip(&codes) {
                let named: Vec<Epochs> = now.iter().copied().filter(|table| table.intersects(code)).collect();
                assert_eq!(named.len(), 1, "T {t}: flush {flush} of {flushes}, {code:?}");
                let (kse, vse) = (shape.kse(flush), shape.vse(flushes));
                let (level, run) = shape::Shape::locate(&kse, &vse).expect("older");
                // Runs by level, oldest first, in the digits' order.
                let size = t.pow(level as u32);
                let of_level: Vec<&Epochs> =
                    now.iter().filter(|table| table.lo >= base && table.hi - table.lo == size).collect();
                assert_eq!(*of_level[run as usize], named[0], "T {t}: flush {flush} of {flushes}");
                // Garbage collection leaves no finer a code than the paper's does: it has the
                // digits dropped there.
                let dropped = kse.len() - shape::Shape::kept(&kse, &shape.vse(oldest));
                let size = t.pow(dropped as u32);
                let of_paper = epochs(base + flush / size * size, base + (flush / size + 1) * size);
                assert!(code.contains(of_paper), "T {t}: flush {flush} of {flushes}: {code:?} {of_paper:?}");
            }
            codes.push(book::Book::interval(base, epochs(base + flushes, base + flushes + 1), &cuts));
        }
    }
}

/// The same through partitions: a key that shares its position with no other is named once, with
/// its own table.
#[test]
fn deterministic_trees_name_one_table() {
    for (t, levels) in [(3u64, 3u32), (4, 4), (10, 3)] {
        let round = t.pow(levels - 1);
        let spec = PartitionSpec { bits_per_key: 40.0, ..spec(MapChoice::Digest) };
        let last: Vec<Key> = (0..200).map(|i| key(0, 1 << 40 | i)).collect();
        let built = batch(last.iter().map(|key| (key, epochs(0, round))));
        let mut partition = Partition::build(&built, round, &spec).expect("sound");
        for flush in round..2 * round - 1 {
            let cuts = Cuts::of(deterministic(t, levels, flush));
            let keys: Vec<Key> = (0..3).map(|i| key(0, flush * 3 + i)).collect();
            let table = epochs(flush, flush + 1);
            partition = partition.insert(&batch(keys.iter().map(|key| (key, table))), &cuts);
            let now = deterministic(t, levels, flush + 1);
            let (mut asked, mut more) = (0, 0);
            for flush in round..=flush {
                for key in (0..3).map(|i| key(0, flush * 3 + i)) {
                    let named = named(&partition, &key);
                    let tables: Vec<&Epochs> = now
                        .iter()
                        .filter(|table| named.iter().any(|named| named.intersects(**table)))
                        .collect();
                    assert!(tables.iter().any(|table| table.contains(epochs(flush, flush + 1))));
                    asked += 1;
                    more += tables.len() - 1;
                }
            }
            assert!(more * 50 <= asked + 49, "{more} tables more for {asked} keys");
        }
    }
}

/// A table merged into few runs has short codes, and an encoding with them room for more bits than
/// its entries have: the low bit of positions in coarse blocks, or any that were cut. The layout
/// took the room, and keys whose bit was a one were denied.
#[test]
fn bits_once_cut_are_never_asked_for() {
    for map in [MapChoice::Learned, MapChoice::Digest, MapChoice::Mixed, MapChoice::Local] {
        for runs in [2u64, 8, 19, 60] {
            for bits_per_key in [5.0, 8.3, 10.0] {
                let spec = PartitionSpec { bits_per_key, ..spec(map) };
                let built: Vec<Key> = (0..2000).map(|i| key(0, i)).collect();
                let of = |keys: &[Key], table| batch(keys.iter().map(|key| (key, table)));
                let mut partition = Partition::build(&of(&built, epochs(0, 1)), 0, &spec).expect("sound");
                let (mut all, mut tables) = (built, vec![epochs(0, 1)]);
                for run in 1..runs {
                    let keys: Vec<Key> = (0..600).map(|i| key(0, run << 20 | i)).collect();
                    let table = epochs(run, run + 1);
                    partition = partition.insert(&of(&keys, table), &Cuts::of(tables.iter().copied()));
                    all.extend(keys);
                    tables.push(table);
                }
                let merged = partition.collect(0, &Cuts::of([epochs(0, runs), epochs(runs, runs + 1)]));
                assert!(merged.code_bits() <= partition.code_bits());
                for partition in [&partition, &merged] {
                    consistent(partition);
                    let lost = all.iter().filter(|key| named(partition, key).is_empty()).count();
                    assert_eq!(lost, 0, "{map:?}, {runs} runs, {bits_per_key} bits");
                }
            }
        }
    }
}
