//! No key of any version is denied, whatever the tree does; on the schedules of the paper exactly one table is named.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Op {
    /// So many new keys are flushed; whether the cuts know of their table already.
    Flush(u64, bool),
    /// In one of the two stripes, tables that follow each other in age become one.
    Merge(bool, usize, usize),
    Drop(bool, usize),
    /// Garbage collection of blocks with at least so many entries.
    Collect(usize),
    /// A version stays alive.
    Hold,
    Release(usize),
    /// A new partition is built, and the old one shrunk.
    Rebuild,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0u64..90, any::<bool>()).prop_map(|(keys, known)| Op::Flush(keys, known)),
        4 => (any::<bool>(), 0usize..20, 2usize..6).prop_map(|(stripe, at, n)| Op::Merge(stripe, at, n)),
        1 => (any::<bool>(), 0usize..20).prop_map(|(stripe, at)| Op::Drop(stripe, at)),
        1 => (0usize..40).prop_map(Op::Collect),
        1 => Just(Op::Hold),
        1 => any::<usize>().prop_map(Op::Release),
        1 => Just(Op::Rebuild),
    ]
}

#[derive(Clone, Debug)]
struct Table {
    epochs: Epochs,
    keys: BTreeSet<Key>,
}

/// Tables of two stripes of the key space, each oldest first: merges of one stripe only are partial merges.
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

    /// Every key is named by one of these partitions, or may be in a last level that one of them does not know.
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
    /// Versions alive, with what they were published with and, if that round is over, the rest of its last partition.
    held: Vec<(Version, Partition, bool)>,
    rest: Option<Partition>,
    next_epoch: u64,
    next_key: u64,
}

impl Tree {
    fn new(kind: usize, spec: PartitionSpec) -> Self {
        let partition = Partition::build(&Batch::new(), 0, &spec).expect("a sound specification");
        let (now, held) = (Version::default(), Vec::new());
        Tree { kind, now, partition, spec, held, rest: None, next_epoch: 0, next_key: 0 }
    }

    fn cuts(&self, more: Option<Epochs>) -> Cuts {
        // Versions of the round before have their own partition, but to know more cuts does no harm.
        let held = self.held.iter().map(|(version, ..)| version);
        Cuts::of(held.chain([&self.now]).flat_map(Version::tables).map(|table| table.epochs).chain(more))
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Flush(keys, known) => {
                let table = epochs(self.next_epoch, self.next_epoch + 1);
                self.next_epoch += 1;
                let all: BTreeSet<Key> = (0..keys)
                    .map(|i| {
                        // Some keys are written again.
                        let again = random(self.next_key + i, 9) % 4 == 0;
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
            Op::Collect(at_least) => self.partition = self.partition.collect(&self.cuts(None), at_least),
            Op::Hold => self.held.push((self.now.clone(), self.partition.clone(), false)),
            Op::Release(at) => {
                if !self.held.is_empty() {
                    self.held.remove(at % self.held.len());
                }
            }
            Op::Rebuild => {
                let base = self.now.tables().map(|table| table.epochs.hi).min().unwrap_or(self.next_epoch);
                self.rest = Some(self.partition.shrink());
                self.partition = Partition::build(&batch(self.now.keys()), base, &self.spec).expect("sound");
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
    fn no_key_of_any_version_is_denied(
        kind in 0..KINDS,
        map in prop::sample::select(&[MapChoice::Auto, MapChoice::Learned, MapChoice::Digest, MapChoice::Mixed][..]),
        radices in prop::sample::select(vec![vec![10, 10], vec![2, 2, 2], vec![3], vec![4, 4, 4]]),
        bits_per_key in 1.0..14.0,
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let mut tree = Tree::new(kind, PartitionSpec { bits_per_key, growth: 1.2, radices, map });
        for op in &ops {
            tree.apply(op);
            if matches!(op, Op::Collect(_) | Op::Rebuild | Op::Flush(_, true)) {
                tree.check();
            }
        }
        tree.check();
    }
}
