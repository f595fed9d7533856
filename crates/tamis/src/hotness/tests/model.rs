//! Random histories, compared with a model that keeps everything in plain maps and relies only on the reported events.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Op {
    Advance(u64),
    Access { segment: usize, weight: u32, held: bool },
    Add { unit_bytes: Vec<u64>, hotness: u8, fill: bool },
    Remove(usize),
    Fill,
    Budget(u64),
    End { load: usize, outcome: Outcome },
}

fn op() -> impl Strategy<Value = Op> {
    let outcome = prop_oneof![
        8 => Just(Outcome::Done),
        1 => Just(Outcome::Unreadable),
        1 => Just(Outcome::Skipped)
    ];
    prop_oneof![
        6 => (0..400u64).prop_map(Op::Advance),
        40 => (any::<usize>(), 1..9u32, prop::bool::weighted(0.3))
            .prop_map(|(segment, weight, held)| Op::Access { segment, weight, held }),
        3 => (prop::collection::vec(0..40u64, 1..12), any::<u8>(), any::<bool>())
            .prop_map(|(unit_bytes, hotness, fill)| Op::Add { unit_bytes, hotness, fill }),
        1 => any::<usize>().prop_map(Op::Remove),
        2 => Just(Op::Fill),
        1 => (0..600u64).prop_map(Op::Budget),
        16 => (any::<usize>(), outcome).prop_map(|(load, outcome)| Op::End { load, outcome }),
    ]
}

#[derive(Clone, Debug)]
struct Known {
    bytes: u64,
    units: u8,
    limit: u8,
    under_way: BTreeSet<u8>,
    last: i64,
    /// The weights and times of lookups of absent keys.
    misses: Vec<(i64, f64)>,
}

#[derive(Default)]
struct Model {
    now: i64,
    budget: u64,
    segments: BTreeMap<SegmentId, Known>,
    under_way: Vec<Load>,
}

impl Model {
    fn expired(&self, id: SegmentId) -> bool {
        self.now > self.segments[&id].last + 1000
    }

    fn frequency(&self, id: SegmentId) -> f64 {
        let ages =
            self.segments[&id].misses.iter().map(|&(at, f)| f * 0.5f64.powf((self.now - at) as f64 / 8000.0));
        ages.sum()
    }

    fn reads(&self) -> f64 {
        self.segments.iter().map(|(&id, known)| self.frequency(id) * 0.25f64.powi(known.units.into())).sum()
    }

    fn begin(&mut self, load: Load) {
        let known = self.segments.get_mut(&load.segment).unwrap();
        assert_eq!((load.unit, load.bytes), (known.units, known.bytes), "units come in order");
        assert!(known.units < known.limit);
        known.units += 1;
        assert!(known.under_way.insert(load.unit), "in flight twice");
        self.under_way.push(load);
    }

    fn adjust(&mut self, Adjustment { unload, load }: Adjustment) {
        let before = self.reads();
        for Unload { segment, units } in unload {
            assert!(self.expired(segment) && segment != load.segment);
            let known = self.segments.get_mut(&segment).unwrap();
            assert_eq!(known.units, units + 1);
            assert!(!known.under_way.contains(&units), "taken while under way");
            known.units = units;
        }
        self.begin(load);
        let won = (before - self.reads()) * 8000.0;
        assert!(won > 1.0 - 1e-6, "an adjustment gained {won} reads");
    }

    fn bytes(&self) -> u64 {
        self.segments.values().map(|known| u64::from(known.units) * known.bytes).sum()
    }

    fn check(&self, manager: &Manager) {
        let report = manager.report();
        assert!(report.used + report.reserved <= report.budget);
        assert_eq!((report.budget, report.used + report.reserved), (self.budget, self.bytes()));
        let under_way =
            |known: &Known| known.under_way.iter().filter(|&&unit| unit < known.units).count() as u64;
        assert_eq!(
            report.reserved,
            self.segments.values().map(|known| under_way(known) * known.bytes).sum::<u64>()
        );
        let mut by_units = [0; 17];
        self.segments.values().for_each(|known| by_units[usize::from(known.units)] += 1);
        assert_eq!((report.by_units, report.segments), (by_units, self.segments.len() as u64));
        assert!((report.expected_reads - self.reads()).abs() <= 1e-9 * self.reads().max(1e-3));

        // Each queue holds, seen from both ends, the segments with this many units, each once.
        for units in 0..=MAX_UNITS {
            let from = |end| manager.queues.from(end, units).collect::<Vec<_>>();
            let (mut forth, back) = (from(End::Lru), from(End::Mru));
            assert!(forth.iter().all(|&slot| manager.queues[slot].units() == units));
            assert_eq!(forth.len(), manager.queues.len(units));
            forth.reverse();
            assert_eq!(forth, back);
        }
        for (&id, known) in &self.segments {
            let slot = manager.slot(id).unwrap();
            assert_eq!(manager.id(slot), id);
            assert_eq!(manager.queues[slot].units(), known.units);
            assert_eq!(manager.clock.expired(manager.queues[slot].last), self.expired(id));
        }
    }
}

fn run(ops: Vec<Op>) {
    let mut manager = Manager::new(CONFIG, 300);
    let mut model = Model { budget: 300, ..Model::default() };
    let mut next_table = 0;
    for op in ops {
        match op {
            Op::Advance(gets) => {
                manager.advance(gets);
                model.now += gets as i64;
            }
            Op::Access { segment, weight, held } if !model.segments.is_empty() => {
                let id = *model.segments.keys().nth(segment % model.segments.len()).unwrap();
                let (now, known) = (model.now, model.segments.get_mut(&id).unwrap());
                known.last = now;
                if !held {
                    known.misses.push((now, f64::from(weight) * LN_2 / 8000.0));
                }
                if let Some(adjustment) = manager.access(id, weight, held) {
                    assert!(model.segments[&id].under_way.is_empty());
                    assert_eq!(adjustment.load.segment, id);
                    model.adjust(adjustment);
                }
            }
            Op::Add { unit_bytes, hotness, fill } => {
                let hotness_of = |i: usize| match usize::from(hotness).wrapping_mul(i + 1) % 5 {
                    0 => expired(0.0),
                    n => {
                        if n % 2 == 0 {
                            expired(1e-4 * n as f64)
                        } else {
                            recent(1e-4 * n as f64)
                        }
                    }
                };
                for (segment, &bytes) in unit_bytes.iter().enumerate() {
                    let hotness = hotness_of(segment);
                    model.segments.insert(
                        id(next_table, segment as u32),
                        Known {
                            bytes,
                            units: 0,
                            limit: if bytes == 0 { 0 } else { 4 },
                            under_way: BTreeSet::new(),
                            last: if hotness.recent { model.now } else { model.now - 1001 },
                            misses: vec![(model.now, hotness.misses)],
                        },
                    );
                }
                manager.add_table(
                    spec(next_table, &unit_bytes),
                    (0..unit_bytes.len()).map(hotness_of).collect(),
                );
                if fill {
                    manager.fill(&[next_table]).into_iter().for_each(|load| model.begin(load));
                    manager.take_for(&[next_table]).into_iter().for_each(|more| model.adjust(more));
                }
                next_table += 1;
            }
            Op::Remove(n) if next_table > 0 => {
                let table = n as u64 % next_table;
                manager.remove_table(table);
                model.segments.retain(|id, _| id.table != table);
            }
            Op::Fill => {
                let all: Vec<TableId> = (0..next_table).collect();
                manager.fill(&all).into_iter().for_each(|load| model.begin(load));
            }
            Op::Budget(bytes) => {
                model.budget = bytes;
                for Unload { segment, units } in manager.set_budget(bytes) {
                    let known = model.segments.get_mut(&segment).unwrap();
                    assert!(units < known.units);
                    known.units = units;
                }
            }
            Op::End { load, outcome } if !model.under_way.is_empty() => {
                let load = model.under_way.swap_remove(load % model.under_way.len());
                let known = model.segments.get_mut(&load.segment);
                let wanted = known.is_some_and(|known| {
                    let wanted = load.unit < known.units && outcome == Outcome::Done;
                    assert!(known.under_way.remove(&load.unit));
                    if outcome == Outcome::Unreadable {
                        known.limit = known.limit.min(load.unit);
                    }
                    if !wanted {
                        known.units = known.units.min(load.unit);
                    }
                    wanted
                });
                assert_eq!(manager.loaded(&load, outcome), wanted);
            }
            Op::Access { .. } | Op::Remove(_) | Op::End { .. } => {}
        }
        model.check(&manager);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn random_histories_keep_the_invariants(ops in prop::collection::vec(op(), 1..400)) {
        run(ops);
    }

    #[test]
    fn any_bytes_are_read_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..40), segments in 0..20usize) {
        if let Some(hotness) = decode_hotness(&bytes, segments) {
            prop_assert_eq!(hotness.len(), segments);
            prop_assert!(hotness.iter().all(|hotness| (0.0..=1.0).contains(&hotness.misses)));
            prop_assert!(hotness.iter().all(|hotness| (0.0..=1.0).contains(&hotness.asked)));
        }
    }
}
