//! Tests of the rules, with numbers that can be worked out by hand.
//!
//! With a lifetime of 1000 the window is 8000 gets, so a miss that stands for one get counts for ln 2 = 0.693 reads per window.
//! One unit passes a quarter of the absent keys. So the first unit is worth 0.52 reads after one miss and 1.04 after two; the
//! second 1.04 after eight, the third 1.008 after 31.

mod heirs;
mod model;
mod simulation;

use std::f64::consts::LN_2;

use super::report::{Report, SegmentReport};
use super::*;

const CONFIG: HotnessConfig = HotnessConfig { life_time: Some(1000), inheritance: true };

/// Segments "b".."c", "c".."d", … with these bytes per unit; up to four units with a rate of a quarter.
fn spec(id: TableId, unit_bytes: &[u64]) -> TableSpec {
    let start = |i: usize| KeyBytes::from([b'b' + i as u8]);
    let segments = unit_bytes.iter().enumerate();
    TableSpec {
        id,
        units: 4,
        rate: 0.25,
        segments: segments
            .map(|(i, &unit_bytes)| SegmentSpec { start: start(i), keys: 100, unit_bytes })
            .collect(),
        end: KeyEnd::Excluded(start(unit_bytes.len())),
    }
}

fn cold(segments: usize) -> Vec<Hotness> {
    vec![Hotness::default(); segments]
}

fn recent(misses: f64) -> Hotness {
    Hotness { misses, asked: misses, recent: true }
}

fn expired(misses: f64) -> Hotness {
    Hotness { misses, asked: misses, recent: false }
}

fn id(table: TableId, segment: u32) -> SegmentId {
    SegmentId { table, segment }
}

fn manager(budget: u64, unit_bytes: &[u64], hotness: Vec<Hotness>) -> Manager {
    let mut manager = Manager::new(CONFIG, budget);
    manager.add_table(spec(1, unit_bytes), hotness);
    manager
}

/// Fills table 1 and completes the loads.
fn fill(manager: &mut Manager) -> Vec<Load> {
    let loads = manager.fill(&[1]);
    for load in &loads {
        assert!(manager.loaded(load, Outcome::Done));
    }
    loads
}

fn units(manager: &Manager, table: TableId) -> Vec<u8> {
    manager.segments_of(table).map(|segment| segment.units).collect()
}

/// Records misses until an adjustment results.
fn misses_until_adjusted(manager: &mut Manager, id: SegmentId) -> (u32, Adjustment) {
    (1..10_000).find_map(|n| Some((n, manager.access(id, 1, false)?))).expect("never")
}

/// The first segment of table 1.
fn first(manager: &Manager) -> SegmentReport {
    manager.segments_of(1).next().expect("table 1 is known")
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * b.abs()
}

#[test]
fn each_further_unit_takes_more_misses_and_free_bytes_are_taken() {
    let mut manager = manager(30, &[10], cold(1));
    let mut counts = Vec::new();
    for unit in 0..3 {
        let (n, adjustment) = misses_until_adjusted(&mut manager, id(1, 0));
        let load = Load { segment: id(1, 0), unit, bytes: 10 };
        assert_eq!(adjustment, Adjustment { unload: Vec::new(), load });
        assert_eq!(manager.report().reserved, 10);
        assert!(manager.access(id(1, 0), 0, false).is_none(), "one at a time");
        assert!(manager.loaded(&load, Outcome::Done));
        counts.push(n);
    }
    assert_eq!(counts, [2, 8 - 2, 31 - 8]);
    let report = manager.report();
    assert_eq!((report.used, report.reserved, report.loads, report.loaded_bytes), (30, 0, 3, 30));
    assert_eq!(report.by_units[..5], [0, 0, 0, 1, 0]);
    // 31 · ln 2 / 8000 lookups per get, of which 1/64 pass.
    assert!(near(report.expected_reads, 31.0 * LN_2 / 8000.0 / 64.0));
}

#[test]
fn lookups_of_present_keys_gain_no_units_but_count_as_accesses() {
    let mut manager = manager(30, &[10], vec![expired(0.0)]);
    assert!(manager.segments_of(1).all(|segment| segment.expired));
    for _ in 0..1000 {
        assert_eq!(manager.access(id(1, 0), 1, true), None);
    }
    let segment = first(&manager);
    assert_eq!((segment.misses, segment.expired), (0.0, false));
    assert!(near(segment.asked, 1000.0 * LN_2 / 8000.0));
}

#[test]
fn an_access_may_stand_for_several_gets() {
    let mut manager = manager(30, &[10], cold(1));
    assert!(manager.access(id(1, 0), 2, false).is_some());
    assert!(near(first(&manager).misses, 2.0 * LN_2 / 8000.0));
}

#[test]
fn frequencies_converge_and_halve_in_a_window() {
    let mut manager = manager(0, &[10], cold(1));
    for _ in 0..40_000 {
        manager.advance(4);
        manager.access(id(1, 0), 1, false);
    }
    let frequency = |manager: &Manager| first(manager).misses;
    let before = frequency(&manager);
    assert!((before - 0.25).abs() < 0.001, "one get in four: {before}");
    manager.advance(8000);
    assert!(near(frequency(&manager), before / 2.0));
    manager.advance(16_000);
    assert!(near(frequency(&manager), before / 8.0));
}

#[test]
fn a_segment_expires_after_more_than_a_life_time() {
    let mut manager = manager(0, &[10], cold(1));
    manager.access(id(1, 0), 1, true);
    manager.advance(1000);
    assert_eq!(manager.report().expired, 0);
    manager.advance(1);
    assert_eq!(manager.report().expired, 1);
}

#[test]
fn the_life_time_follows_the_number_of_segments() {
    let mut manager = Manager::new(HotnessConfig { life_time: None, inheritance: true }, 0);
    assert_eq!(manager.report().life_time, 1000);
    for table in 0..15 {
        manager.add_table(spec(table, &[1; 100]), cold(100));
    }
    assert_eq!(manager.report().life_time, 1500);
    manager.remove_table(3);
    assert_eq!((manager.report().life_time, manager.report().segments), (1400, 1400));
}

/// Segments 0 and 1 have one unit each, and no bytes are free.
fn full(hotness: Vec<Hotness>) -> Manager {
    let mut manager = manager(20, &[10, 10, 10], hotness);
    assert_eq!(fill(&mut manager).len(), 2);
    assert_eq!(units(&manager, 1), [1, 1, 0]);
    manager
}

#[test]
fn only_expired_segments_lose_units_and_the_least_recently_used_first() {
    let mut manager = full(vec![recent(2e-5), recent(1e-5), recent(0.0)]);
    for _ in 0..10 {
        assert_eq!(manager.access(id(1, 2), 1, false), None, "no segment is expired");
    }
    assert_eq!(manager.report().refused, 9, "all but the first, which would not pay off");
    manager.access(id(1, 1), 1, true);
    manager.advance(1001);
    manager.access(id(1, 0), 1, true);
    let adjustment = manager.access(id(1, 2), 1, false).unwrap();
    assert_eq!(adjustment.unload, [Unload { segment: id(1, 1), units: 0 }]);
    assert_eq!(units(&manager, 1), [1, 0, 1]);
    assert_eq!((manager.report().used, manager.report().reserved, manager.report().unloads), (10, 10, 1));
}

#[test]
fn the_coldest_restored_segment_loses_units_first() {
    let mut manager = full(vec![recent(1e-5), recent(2e-5), recent(0.0)]);
    manager.advance(1001);
    let (_, adjustment) = misses_until_adjusted(&mut manager, id(1, 2));
    assert_eq!(adjustment.unload, [Unload { segment: id(1, 0), units: 0 }]);
}

#[test]
fn no_segment_loses_more_than_another_gains() {
    // 0.01 · 8000 · 0.75 = 60 reads per window; after that much time 60 / 2^(1001/8000) = 55.
    let mut manager = full(vec![recent(0.01), recent(0.01), recent(0.0)]);
    manager.advance(1001);
    let (n, adjustment) = misses_until_adjusted(&mut manager, id(1, 2));
    // Neither number is known more precisely than the counts it follows from.
    let deviation = |reads: f64| (reads * 0.75 * LN_2 / 2.0).sqrt();
    let lost = 60.0 * 0.5f64.powf(1001.0 / 8000.0);
    let pays = |n: &u32| {
        let won = f64::from(*n) * 0.75 * LN_2;
        won - deviation(won) - 1.0 > lost + deviation(lost)
    };
    assert_eq!(n, (1..).find(pays).unwrap());
    assert_eq!(adjustment.unload.len(), 1);
}

#[test]
fn units_are_searched_from_the_queue_with_the_most() {
    // Segment 0 has three units and is hotter than segment 1 with one, but its last is worth less.
    let mut manager = manager(40, &[10, 10, 10], vec![recent(0.001), recent(0.000_1), recent(0.0)]);
    fill(&mut manager);
    assert_eq!(units(&manager, 1), [3, 1, 0]);
    manager.access(id(1, 1), 1, true);
    manager.access(id(1, 0), 1, true);
    manager.advance(1001);
    let (_, adjustment) = misses_until_adjusted(&mut manager, id(1, 2));
    assert_eq!(adjustment.unload, [Unload { segment: id(1, 0), units: 2 }]);
}

#[test]
fn several_units_make_room_for_a_large_one_or_none_if_not_enough() {
    let mut manager =
        manager(30, &[10, 10, 10, 30], vec![expired(1e-5), expired(2e-5), recent(1e-5), recent(0.0)]);
    fill(&mut manager);
    assert_eq!(units(&manager, 1), [1, 1, 1, 0]);
    for _ in 0..50 {
        assert_eq!(manager.access(id(1, 3), 1, false), None, "two of three are expired");
    }
    assert_eq!(units(&manager, 1), [1, 1, 1, 0]);
    manager.advance(1001);
    let adjustment = manager.access(id(1, 3), 1, false).unwrap();
    let gone = |segment| Unload { segment: id(1, segment), units: 0 };
    assert_eq!(adjustment.unload, [gone(0), gone(1), gone(2)]);
    assert_eq!(adjustment.load, Load { segment: id(1, 3), unit: 0, bytes: 30 });
}

/// A large unit found after small ones makes these unnecessary: they stay.
#[test]
fn no_more_units_are_taken_than_needed() {
    let mut manager = manager(50, &[10, 40, 40], vec![expired(1e-5), expired(2e-5), recent(0.0)]);
    fill(&mut manager);
    assert_eq!(units(&manager, 1), [1, 1, 0]);
    let (_, adjustment) = misses_until_adjusted(&mut manager, id(1, 2));
    assert_eq!(adjustment.unload, [Unload { segment: id(1, 1), units: 0 }]);
}

/// Otherwise expired segments with expensive units would end every search in their queue.
#[test]
fn expensive_segments_of_one_queue_do_not_hide_cheap_ones_of_another() {
    let mut hotness = vec![expired(0.1); 40];
    hotness.extend([expired(1e-9), recent(0.0)]);
    let mut manager = manager(4 * 40 + 1, &[1; 42], hotness);
    fill(&mut manager);
    assert_eq!(manager.report().by_units[..5], [1, 1, 0, 0, 40]);
    let (n, adjustment) = misses_until_adjusted(&mut manager, id(1, 41));
    assert_eq!((n, adjustment.unload), (4, vec![Unload { segment: id(1, 40), units: 0 }]));
}

#[test]
fn a_unit_being_loaded_is_not_taken() {
    let mut manager = manager(10, &[10, 10], vec![expired(1e-5), recent(0.0)]);
    let loads = manager.fill(&[1]);
    assert_eq!(loads, [Load { segment: id(1, 0), unit: 0, bytes: 10 }]);
    for _ in 0..5 {
        assert_eq!(manager.access(id(1, 1), 1, false), None);
    }
    assert!(manager.loaded(&loads[0], Outcome::Done));
    assert!(manager.access(id(1, 1), 1, false).is_some());
}

#[test]
fn unknown_segments_and_loads_are_ignored() {
    let mut manager = manager(10, &[10], cold(1));
    assert_eq!(manager.access(id(1, 1), 1, false), None);
    assert_eq!(manager.access(id(2, 0), 1, false), None);
    assert!(!manager.loaded(&Load { segment: id(2, 0), unit: 0, bytes: 10 }, Outcome::Done));
    assert!(
        !manager.loaded(&Load { segment: id(1, 0), unit: 99, bytes: 10 }, Outcome::Done),
        "never requested"
    );
    manager.remove_table(2);
    assert_eq!(
        (manager.fill(&[2]), manager.encode(2), manager.segments_of(2).count()),
        (Vec::new(), None, 0)
    );
    assert_eq!(manager.report().failed, 0);
}

#[test]
fn free_bytes_go_where_a_byte_saves_most() {
    // Reads per get and byte of units 0, 1, 2 …: 0.008, 0.002, 0.0005 · 0.75 / 10 and 0.016, 0.004 · 0.75 / 40; the last
    // segment is never asked.
    let mut manager = manager(115, &[10, 40, 10], vec![recent(0.008), recent(0.016), recent(0.0)]);
    let loads = manager.fill(&[1, 1]);
    let order: Vec<(u32, u8)> = loads.iter().map(|load| (load.segment.segment, load.unit)).collect();
    // 0.0008, 0.0004, 0.0002, 0.0001, 0.00005, 0.0000125 (times 0.75).
    assert_eq!(order, [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2)]);
    assert_eq!((manager.report().reserved, manager.report().used), (110, 0));
}

#[test]
fn units_may_be_loaded_in_any_order() {
    let mut manager = manager(40, &[10], vec![recent(0.5)]);
    let loads = manager.fill(&[1]);
    for i in [2, 0, 3, 1] {
        assert!(manager.loaded(&loads[i], Outcome::Done));
    }
    assert_eq!((manager.report().used, manager.report().reserved, units(&manager, 1)), (40, 0, vec![4]));
}

#[test]
fn a_failed_load_cancels_those_above_it() {
    let mut manager = manager(40, &[10], vec![recent(0.5)]);
    let loads = manager.fill(&[1]);
    assert!(manager.loaded(&loads[3], Outcome::Done), "not yet known to be unusable");
    assert!(!manager.loaded(&loads[1], Outcome::Unreadable));
    assert_eq!((manager.report().used, manager.report().reserved, units(&manager, 1)), (0, 10, vec![1]));
    assert!(manager.loaded(&loads[0], Outcome::Done));
    assert_eq!(manager.access(id(1, 0), 1, false), None, "unit 2 is still under way");
    assert_eq!(manager.fill(&[1]), []);
    assert!(!manager.loaded(&loads[2], Outcome::Done), "unusable without unit 1");
    let report = manager.report();
    assert_eq!((report.used, report.reserved, report.loads, report.failed), (10, 0, 2, 1));
    assert_eq!(manager.access(id(1, 0), 1, false), None, "an unreadable unit is not requested again");
    assert_eq!(manager.fill(&[1]), []);
}

#[test]
fn a_skipped_load_may_be_requested_again() {
    let mut manager = manager(10, &[10], vec![recent(0.5)]);
    let loads = manager.fill(&[1]);
    assert!(!manager.loaded(&loads[0], Outcome::Skipped));
    assert_eq!((manager.report().reserved, manager.report().failed, units(&manager, 1)), (0, 0, vec![0]));
    assert_eq!(manager.access(id(1, 0), 1, false).map(|adjustment| adjustment.load), Some(loads[0]));
}

#[test]
fn a_removed_table_returns_its_bytes_and_wants_no_loads() {
    let mut manager = manager(40, &[10, 10], vec![recent(0.5); 2]);
    let loads = manager.fill(&[1]);
    assert!(manager.loaded(&loads[0], Outcome::Done));
    manager.remove_table(1);
    let report = manager.report();
    assert_eq!((report.used, report.reserved, report.segments, report.by_units), (0, 0, 0, [0; 17]));
    assert!(!manager.loaded(&loads[1], Outcome::Done));
    manager.add_table(spec(2, &[40]), vec![recent(0.5)]);
    assert_eq!(manager.fill(&[1, 2]).len(), 1);
}

#[test]
fn a_smaller_budget_evicts_the_cheapest_units_and_a_larger_one_restores_them() {
    let hotness = vec![recent(0.4), recent(0.2), recent(0.002)];
    let mut manager = manager(110, &[10; 3], hotness);
    let loads = manager.fill(&[1]);
    assert_eq!(units(&manager, 1), [4, 4, 3]);
    // Value of the last units: 0.4 / 256, 0.2 / 256, 0.002 / 64; then 0.002 / 16, 0.002 / 4 …, times 3.
    let gone = |segment, units| Unload { segment: id(1, segment), units };
    assert_eq!(manager.set_budget(85), [gone(2, 0)]);
    assert_eq!(manager.set_budget(70), [gone(1, 3)]);
    assert_eq!((manager.report().reserved, manager.report().unloads), (70, 4));
    for load in &loads {
        let wanted = load.unit < units(&manager, 1)[load.segment.segment as usize];
        assert_eq!(manager.loaded(load, Outcome::Done), wanted);
    }
    assert_eq!((manager.report().used, manager.report().failed), (70, 0));
    assert_eq!(manager.set_budget(200), []);
    assert_eq!(manager.fill(&[1]).len(), 5);
    assert_eq!(manager.set_budget(0).len(), 3);
    assert_eq!((manager.report().used, manager.report().reserved), (0, 0));
}

#[test]
fn segments_without_bytes_and_tables_with_odd_numbers_are_harmless() {
    let mut manager = Manager::new(CONFIG, u64::MAX);
    let (mut none, mut odd) = (spec(1, &[0, 0]), spec(2, &[1, u64::MAX]));
    none.units = 200;
    (odd.units, odd.rate) = (200, f64::NAN);
    manager.add_table(none, vec![recent(f64::INFINITY), recent(f64::NAN)]);
    manager.add_table(odd, vec![recent(1.0), recent(-1.0)]);
    assert_eq!(manager.fill(&[1, 2]), [], "no bytes, or a filter that rejects nothing");
    for table in [1, 2] {
        for segment in [0, 1] {
            assert_eq!(manager.access(id(table, segment), u32::MAX, false), None);
        }
    }
    let mut wide = spec(3, &[1]);
    wide.units = 200;
    manager.add_table(wide, vec![recent(1.0)]);
    assert_eq!(manager.fill(&[3]).len(), usize::from(MAX_UNITS));
    assert!(manager.report().expected_reads.is_finite());
}

#[test]
fn hotness_round_trips_and_the_coldest_are_least_recently_used() {
    let mut manager = manager(0, &[10; 3], vec![recent(0.5), recent(0.000_1), expired(0.01)]);
    for _ in 0..3 {
        manager.access(id(1, 0), 1, true);
    }
    let bytes = manager.encode(1).unwrap();
    let hotness = decode_hotness(&bytes, 3).unwrap();
    for (hotness, segment) in hotness.iter().zip(manager.segments_of(1)) {
        assert!((hotness.misses / segment.misses - 1.0).abs() < 0.05);
        assert!((hotness.asked / segment.asked - 1.0).abs() < 0.05);
        assert!(hotness.recent);
    }
    let mut again = Manager::new(CONFIG, 0);
    again.add_table(spec(1, &[10; 3]), hotness);
    let order = again.queues.from(End::Lru, 0).map(|slot| again.queues[slot].index);
    assert_eq!(order.collect::<Vec<_>>(), [1, 2, 0]);
    assert_eq!(again.encode(1).unwrap(), bytes);
}

#[test]
fn bytes_are_valued_by_refusals_and_by_the_next_victims() {
    let mut manager = full(vec![recent(0.003), recent(0.001), recent(0.0)]);
    let idle = manager.marginal(5);
    assert!(near(idle.gain, 0.003 * 0.25 * 0.75 / 10.0), "the best of those accessed lately: {idle:?}");
    assert!(near(idle.loss, 0.001 * 0.75 / 10.0), "{idle:?}");
    for _ in 0..30 {
        manager.access(id(1, 2), 1, false);
    }
    let refused = manager.marginal(5);
    assert!(near(refused.gain, 30.0 * LN_2 / 8000.0 * 0.75 / 10.0), "{refused:?}");
    assert_eq!(manager.set_budget(24), []);
    let partly = manager.marginal(5);
    assert!(near(partly.loss, refused.loss / 5.0), "four of five bytes are free: {partly:?}");
    manager.set_budget(25);
    assert_eq!(manager.marginal(5), Marginal { gain: 0.0, loss: 0.0 });
}

/// The segments that would gain most are remembered, however many are refused.
#[test]
fn the_best_refused_are_remembered() {
    let mut manager = manager(0, &[10; 24], cold(24));
    for segment in 0..24 {
        for _ in 0..10 * (segment + 1) {
            manager.access(id(1, segment), 1, false);
        }
    }
    let best: f64 = (9..=24).map(|n| f64::from(10 * n)).sum::<f64>() / 16.0;
    assert!(near(manager.marginal(1).gain, best * LN_2 / 8000.0 * 0.75 / 10.0));
    manager.remove_table(1);
    assert_eq!(manager.marginal(1), Marginal { gain: 0.0, loss: 0.0 });
}

/// A flush frees no bytes: its table used to have no filter until gets had missed in each of its segments.
#[test]
fn a_hot_new_table_takes_units_from_expired_segments_at_once() {
    let mut manager = Manager::new(CONFIG, 20);
    manager.add_table(spec(1, &[10, 10]), vec![expired(1e-5), expired(2e-5)]);
    manager.fill(&[1]).iter().for_each(|load| assert!(manager.loaded(load, Outcome::Done)));
    manager.add_table(spec(2, &[10, 10]), vec![recent(0.1), recent(1e-5)]);
    assert_eq!(manager.fill(&[2]), []);
    let adjustments = manager.take_for(&[2]);
    // Both go to the hot segment, one after the other; the other segment's gain does not exceed what it would take.
    let loads: Vec<_> = adjustments.iter().map(|more| (more.load.segment, more.load.unit)).collect();
    assert_eq!(loads, [(id(2, 0), 0), (id(2, 0), 1)]);
    let lost: Vec<_> = adjustments.iter().flat_map(|more| &more.unload).map(|less| less.segment).collect();
    assert_eq!(lost, [id(1, 0), id(1, 1)]);
    assert_eq!(manager.take_for(&[2]), [], "nothing is left to take");
}

/// Regression: one get in 64 was counted, then all of them; no segment may expire because of that.
#[test]
fn a_life_time_has_the_same_number_of_counted_gets_at_any_sampling() {
    let config = |life_time| HotnessConfig { life_time, inheritance: true };
    let mut manager = Manager::new(config(None), 20);
    manager.add_table(spec(1, &[10, 10]), vec![recent(0.01), recent(0.01)]);
    let life_time = |manager: &Manager| manager.report().life_time;
    manager.sample(64);
    assert_eq!(life_time(&manager), 64_000);
    manager.advance(64_000);
    manager.sample(1);
    assert_eq!((life_time(&manager), manager.report().expired), (64_000, 0));
    let mut seen = vec![];
    for _ in 0..200 {
        manager.advance(1001);
        manager.sample(1);
        if seen.last() != Some(&life_time(&manager)) {
            seen.push(life_time(&manager));
        }
    }
    assert_eq!(seen, [32_000, 16_000, 8000, 4000, 2000, 1000]);
    // A lifetime that the caller sets stays as it is.
    let mut fixed = Manager::new(config(Some(5)), 0);
    fixed.sample(64);
    assert_eq!(life_time(&fixed), 5);
    fixed.sample(0);
}
