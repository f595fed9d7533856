use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn key(k: u16) -> KeyBytes {
    k.to_be_bytes()[..].into()
}

/// A table with the epoch of each of its keys.
#[derive(Clone, Debug)]
struct Table {
    smallest: u16,
    largest: u16,
    map: EpochMap,
    versions: BTreeMap<u16, Epoch>,
}

impl Table {
    fn covers(&self, k: u16) -> bool {
        (self.smallest..=self.largest).contains(&k)
    }

    fn overlaps(&self, other: &Table) -> bool {
        self.smallest <= other.largest && other.smallest <= self.largest
    }
}

fn flush(keys: impl IntoIterator<Item = u16>, epoch: Epoch) -> Option<Table> {
    let versions: BTreeMap<u16, Epoch> = keys.into_iter().map(|k| (k, epoch)).collect();
    let (smallest, largest) = (*versions.first_key_value()?.0, *versions.last_key_value()?.0);
    Some(Table { smallest, largest, map: EpochMap::flush(key(smallest), epoch), versions })
}

/// Merges tables into tables of at most `max` entries; the newest version of each key wins.
fn compact(inputs: &[Table], max: usize) -> Vec<Table> {
    let mut versions = BTreeMap::new();
    for (&k, &e) in inputs.iter().flat_map(|t| &t.versions) {
        versions.entry(k).and_modify(|newest: &mut Epoch| *newest = e.max(*newest)).or_insert(e);
    }
    let ends: Vec<KeyEnd> = inputs.iter().map(|t| KeyEnd::Included(key(t.largest))).collect();
    let starts: Vec<KeyBytes> = inputs.iter().map(|t| key(t.smallest)).collect();
    let parts: Vec<_> = inputs
        .iter()
        .zip(&starts)
        .zip(&ends)
        .map(|((t, smallest), largest)| (&t.map, &smallest[..], largest))
        .collect();
    let all: Vec<(u16, Epoch)> = versions.into_iter().collect();
    all.chunks(max)
        .map(|chunk| {
            let (smallest, largest) = (chunk[0].0, chunk[chunk.len() - 1].0);
            let map = EpochMap::merge(&parts, &key(smallest), &KeyEnd::Included(key(largest)));
            assert_eq!(EpochMap::from_segments(map.segments().to_vec()).as_ref(), Some(&map));
            assert_eq!(map.segments()[0].start, key(smallest));
            Table { smallest, largest, map, versions: chunk.iter().copied().collect() }
        })
        .collect()
}

fn assert_versions_within(table: &Table) -> Result<(), TestCaseError> {
    for (&k, &e) in &table.versions {
        let (lo, hi) = table.map.at(&key(k));
        prop_assert!(lo <= e && e < hi, "key {} of epoch {} outside [{}, {})", k, e, lo, hi);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_version_lies_within_the_epochs_of_its_output(
        flushes in prop::collection::vec(prop::collection::vec(0u16..80, 1..20), 1..8),
        split in 1usize..7,
        max in 1usize..12,
    ) {
        let tables: Vec<Table> = flushes.into_iter().zip(1..).filter_map(|(keys, e)| flush(keys, e)).collect();
        // Two rounds, so that inputs with several segments and gaps are merged too.
        let (older, newer) = tables.split_at(split.min(tables.len()));
        let mut second: Vec<Table> = compact(older, max);
        second.extend(compact(newer, max));
        for table in second.iter().chain(&compact(&second, max)) {
            assert_versions_within(table)?;
        }
    }
}

/// A leveled tree whose compactions below level 1 take one table and the tables it overlaps.
struct Tree {
    level0: Vec<Table>,
    levels: [Vec<Table>; 3],
    random: u64,
}

impl Tree {
    const TABLE: usize = 32;
    const KEYS: u16 = 2000;

    fn next(&mut self, below: usize) -> usize {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.random >> 33) as usize % below
    }

    fn push_down(&mut self, inputs: Vec<Table>, target: usize) {
        let hull = (
            inputs.iter().map(|t| t.smallest).min().unwrap(),
            inputs.iter().map(|t| t.largest).max().unwrap(),
        );
        let level = std::mem::take(&mut self.levels[target]);
        let (overlapping, mut rest): (Vec<_>, Vec<_>) =
            level.into_iter().partition(|t| t.smallest <= hull.1 && hull.0 <= t.largest);
        let mut outputs = compact(&[inputs, overlapping].concat(), Self::TABLE);
        if target == self.levels.len() - 1 {
            outputs.iter_mut().for_each(|t| t.map = t.map.clone().reaching_down());
        }
        rest.extend(outputs);
        rest.sort_by_key(|t| t.smallest);
        assert!(rest.windows(2).all(|w| !w[0].overlaps(&w[1])));
        self.levels[target] = rest;
    }

    fn settle(&mut self) {
        if self.level0.len() >= 4 {
            let runs = std::mem::take(&mut self.level0);
            self.push_down(runs, 0);
        }
        for (level, capacity) in [(0, 4), (1, 16)] {
            while self.levels[level].len() > capacity {
                let victim = self.next(self.levels[level].len());
                let table = self.levels[level].remove(victim);
                self.push_down(vec![table], level + 1);
            }
        }
    }

    fn tables(&self) -> impl Iterator<Item = &Table> {
        self.level0.iter().chain(self.levels.iter().flatten())
    }
}

#[test]
fn in_a_leveled_tree_with_partial_merges_tables_that_cover_a_key_have_disjoint_epochs_there() {
    let mut tree = Tree { level0: Vec::new(), levels: Default::default(), random: 7 };
    let (mut newest, mut hits) = (BTreeMap::new(), 0usize);
    for epoch in 1..=400 {
        // Most flushes stay within a window, so that there are holes between tables.
        let (from, width) = if epoch % 16 == 0 { (0, Tree::KEYS) } else { (tree.next(1900) as u16, 100) };
        let keys: Vec<u16> = (0..24).map(|_| from + tree.next(width.into()) as u16).collect();
        newest.extend(keys.iter().map(|&k| (k, epoch)));
        tree.level0.extend(flush(keys, epoch));
        tree.settle();

        for k in 0..Tree::KEYS {
            let mut intervals: Vec<(Epoch, Epoch)> = tree
                .tables()
                .filter(|t| t.covers(k))
                .map(|t| t.map.at(&key(k)))
                .filter(|(lo, hi)| lo < hi)
                .collect();
            intervals.sort_unstable();
            assert!(intervals.windows(2).all(|w| w[0].1 <= w[1].0), "flush {epoch}, key {k}: {intervals:?}");
            if let Some(&e) = newest.get(&k) {
                let candidates: Vec<_> = tree
                    .tables()
                    .filter(|t| t.covers(k) && (t.map.at(&key(k)).0..t.map.at(&key(k)).1).contains(&e))
                    .collect();
                assert_eq!(candidates.len(), 1, "one candidate for the newest version of {k}");
                assert_eq!(candidates[0].versions.get(&k), Some(&e));
                hits += 1;
            }
        }
    }
    assert!(
        hits > 100_000 && tree.levels.iter().all(|level| level.len() > 3),
        "the tree is too small for this test"
    );
    let (tables, steps) = tree.tables().fold((0, 0), |(t, s), table| (t + 1, s + table.map.segments().len()));
    assert!(steps <= 4 * tables, "{steps} segments in {tables} tables");
}
