//! Tests of the manager.

mod placement;
mod simulation;

use std::ops::Range;

use super::*;

/// Segments of equal size that begin at consecutive numbers.
#[derive(Debug)]
struct Even {
    starts: Vec<[u8; 8]>,
    keys: u64,
    unit_bytes: u64,
    /// What the first unit takes in addition.
    more: u64,
}

impl Segments for Even {
    fn count(&self) -> usize {
        self.starts.len()
    }

    fn start(&self, segment: usize) -> BorderKey {
        self.starts[segment][..].into()
    }

    fn keys(&self, _segment: usize) -> u64 {
        self.keys
    }

    fn bytes(&self, _segment: usize, units: u8) -> u64 {
        if units == 0 { 0 } else { self.unit_bytes * u64::from(units) + self.more }
    }
}

/// A table of eight units whose segments, of a thousand keys each, divide a range of numbers
/// evenly.
fn table(id: TableId, range: Range<u64>, segments: u64) -> TableSpec {
    let width = (range.end - range.start) / segments;
    let starts = (0..segments).map(|i| (range.start + i * width).to_be_bytes()).collect();
    TableSpec {
        id,
        rates: (0..=8).map(|units| 0.25f64.powi(units)).collect(),
        segments: Arc::new(Even { starts, keys: 1000, unit_bytes: 400, more: 16 }),
        end: KeyEnd::Excluded(range.end.to_be_bytes().into()),
        fixed_bytes: 100,
    }
}

fn manager(budget: u64) -> Manager {
    Manager::new(HotnessConfig { life_time: None, inheritance: true }, budget)
}

fn even(segments: usize, f: f64) -> Vec<Hotness> {
    vec![Hotness { misses: f, asked: f }; segments]
}

fn miss(manager: &mut Manager, table: TableId, segment: u32, weight: u32) {
    let id = SegmentId { table, segment };
    manager.access(&Sample { id, weight, held: false, read: BlockRead::None });
}

/// Adjusts, and loads all that is asked for.
fn settle(manager: &mut Manager) -> Adjustment {
    let adjustment = manager.adjust();
    for load in &adjustment.load {
        assert!(manager.wants(load));
        assert_eq!(manager.loaded(load, Outcome::Done), Some(load.to));
        assert!(!manager.wants(load));
    }
    check(manager);
    adjustment
}

/// The invariants of the module, and that the counters are what they count.
fn check(manager: &Manager) {
    let (mut held, mut reserved, mut fixed) = (0, 0, 0);
    for table in manager.tables.values() {
        fixed += table.fixed_bytes;
        for (index, segment) in table.segments.iter().enumerate() {
            held += table.shape.bytes(index, segment.claimed());
            if segment.loading > 0 {
                assert!(segment.loading > segment.units);
                reserved +=
                    table.shape.bytes(index, segment.loading) - table.shape.bytes(index, segment.units);
            }
            assert!(segment.claimed() <= segment.limit);
        }
    }
    assert_eq!((manager.held, manager.reserved, manager.fixed), (held, reserved, fixed));
    assert!(
        manager.held == 0 || manager.used() <= manager.budget,
        "{} of {}",
        manager.used(),
        manager.budget
    );
}

fn units(manager: &Manager, table: TableId) -> Vec<u8> {
    manager.segments_of(table).map(|segment| segment.units).collect()
}

#[test]
fn a_segment_takes_twelve_bytes() {
    assert_eq!(SEGMENT_BYTES, 12);
}

#[test]
fn hotness_of_merged_tables_is_the_sum_over_old_segments_and_the_mean_over_runs() {
    let mut manager = manager(0);
    // Two runs over the same range: one segment against four.
    manager.add_table(table(1, 0..4000, 4), even(4, 0.1));
    manager.add_table(table(2, 0..4000, 1), even(1, 0.4));
    let new = table(3, 0..4000, 2);
    let merged = manager.inherited(&new, Origin::Merged(&[vec![1], vec![2]]), 2);
    // Each half has two of the four segments of one run, 2000 keys, and half of the other's, 500
    // keys.
    assert!(
        merged.iter().all(|h| (h.misses - 0.2).abs() < 1e-6 && (h.asked - 0.2).abs() < 1e-6),
        "{merged:?}"
    );
    let flushed = manager.inherited(&new, Origin::Flushed(&[vec![1]]), 2);
    assert!(flushed.iter().all(|h| (h.misses - 0.2).abs() < 1e-6));
    let unknown = manager.inherited(&new, Origin::Nothing, 5);
    assert!(unknown.iter().all(|h| h.misses == 0.2));
    let elsewhere = manager.inherited(&table(4, 9000..9100, 1), Origin::Merged(&[vec![1]]), 10);
    assert_eq!(elsewhere[0].misses, 0.1, "nothing is known there");
    let cold = Manager::new(HotnessConfig { life_time: None, inheritance: false }, 0);
    assert_eq!(cold.inherited(&new, Origin::Merged(&[vec![1]]), 2), vec![Hotness::default(); 2]);
}

#[test]
fn hotness_is_stored_and_read_back() {
    let mut manager = manager(0);
    manager.add_table(table(7, 0..3000, 3), even(3, 0.0));
    miss(&mut manager, 7, 1, 100);
    let bytes = manager.encode(7).unwrap();
    let known = decode_hotness(&bytes, 3).unwrap();
    assert_eq!((known[0].misses, known[2].misses), (0.0, 0.0));
    let exact = manager.segments_of(7).nth(1).unwrap().misses;
    assert!((known[1].misses / exact - 1.0).abs() < 0.05, "{known:?} {exact}");
    assert_eq!(manager.encode(8), None);
}

/// Decay moves nothing; after very many gets all numbers are brought back into range at once.
#[test]
fn frequencies_keep_their_ratios_while_they_decay() {
    let mut manager = manager(0);
    manager.add_table(table(1, 0..2000, 2), even(2, 0.0));
    (0..300).for_each(|_| miss(&mut manager, 1, 0, 1));
    (0..100).for_each(|_| miss(&mut manager, 1, 1, 1));
    for _ in 0..300 {
        manager.advance(20_000);
        let f: Vec<f64> = manager.segments_of(1).map(|segment| segment.misses).collect();
        assert!(f[0] < 1e-30 || (f[0] / f[1] - 3.0).abs() < 0.01, "{f:?}");
    }
}
