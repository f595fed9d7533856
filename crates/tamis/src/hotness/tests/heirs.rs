//! Tests of inheritance by new tables.

use super::*;

/// A table with these segment starts and key counts, up to `end`.
fn table(id: TableId, segments: &[(&str, u64)], end: &str) -> TableSpec {
    let segment =
        |&(start, keys): &(&str, u64)| SegmentSpec { start: start.as_bytes().into(), keys, unit_bytes: 10 };
    TableSpec {
        id,
        units: 4,
        rate: 0.25,
        segments: segments.iter().map(segment).collect(),
        end: KeyEnd::Excluded(end.as_bytes().into()),
    }
}

/// Table 1 from "b" to "j" in two halves, table 2 from "d" to "h" in one.
fn old(inheritance: bool) -> Manager {
    let mut manager = Manager::new(HotnessConfig { life_time: Some(1000), inheritance }, 0);
    manager.add_table(table(1, &[("b", 400), ("f", 100)], "j"), vec![recent(0.1), expired(0.02)]);
    manager.add_table(table(2, &[("d", 40)], "h"), vec![expired(0.5)]);
    manager
}

fn assert_hotness(found: &[Hotness], expected: &[(f64, bool)]) {
    assert_eq!(found.len(), expected.len());
    for (hotness, &(misses, recent)) in found.iter().zip(expected) {
        assert!(near(hotness.misses, misses) && near(hotness.asked, misses), "{hotness:?}, not {misses}");
        assert_eq!(hotness.recent, recent, "{hotness:?}");
    }
}

#[test]
fn a_merged_segment_gets_the_runs_hotness_weighted_by_their_keys() {
    let new = table(9, &[("b", 1), ("d", 1), ("g", 1), ("x", 1)], "z");
    let hotness = old(true).inherited(&new, Origin::Merged(&[vec![1, 7], vec![2]]), 50);
    // "b".."d": half of the first. "d".."g": its other half, a quarter of the second, three quarters of the third.
    // "g".."x": three quarters of the second and a quarter of the third. "x".."z": nothing is known.
    let second = (225.0 * (0.05 + 0.005) + 30.0 * 0.375) / 255.0;
    let third = (75.0 * 0.015 + 10.0 * 0.125) / 85.0;
    assert_hotness(&hotness, &[(0.05, true), (second, true), (third, false), (1.0 / 50.0, true)]);
}

#[test]
fn a_flushed_segment_gets_the_hotness_within_its_range() {
    let new = table(9, &[("a", 1), ("e", 1), ("x", 1)], "z");
    let hotness = old(true).inherited(&new, Origin::Flushed(&[vec![1]]), 3);
    assert_hotness(&hotness, &[(0.075, true), (0.025 + 0.02, true), (1.0 / 3.0, true)]);
    let above_cold = old(true).inherited(&table(9, &[("g", 1)], "h"), Origin::Flushed(&[vec![1]]), 1);
    assert_hotness(&above_cold, &[(0.005, false)]);
}

#[test]
fn without_history_all_segments_of_a_run_are_equally_hot() {
    let new = table(9, &[("a", 1), ("e", 1)], "z");
    for manager in [old(true), old(false)] {
        assert_hotness(&manager.inherited(&new, Origin::Nothing, 4), &[(0.25, true); 2]);
        assert_hotness(&manager.inherited(&new, Origin::Nothing, 0), &[(1.0, true); 2]);
    }
    assert_hotness(&old(true).inherited(&new, Origin::Merged(&[vec![], vec![8]]), 4), &[(0.25, true); 2]);
}

#[test]
fn without_inheritance_new_tables_are_cold() {
    let new = table(9, &[("b", 1)], "j");
    for origin in [Origin::Merged(&[vec![1], vec![2]]), Origin::Flushed(&[vec![1]])] {
        assert_eq!(old(false).inherited(&new, origin, 1), [Hotness::default()]);
    }
}

/// Runs without keys, or with keys too close together to be told apart, count equally.
#[test]
fn a_merged_segment_inherits_from_segments_without_shared_keys() {
    let mut manager = Manager::new(CONFIG, 0);
    manager.add_table(table(1, &[("b", 0), ("f", 0)], "j"), vec![recent(0.1), recent(0.3)]);
    manager.add_table(table(2, &[("b", 0)], "j"), vec![recent(0.6)]);
    let hotness = manager.inherited(&table(9, &[("b", 1)], "j"), Origin::Merged(&[vec![1], vec![2]]), 1);
    assert_hotness(&hotness, &[(0.5, true)]);
}

/// Regression: a small run's segments span many of a large run and are asked as often as all of them together. Each new segment
/// became as hot as the small run's segment that spanned it.
#[test]
fn a_small_run_does_not_heat_up_what_it_is_merged_into() {
    let mut manager = Manager::new(CONFIG, 0);
    // One byte each, evenly spaced from "!" on.
    let starts: Vec<String> = (b'!'..b'z').map(|byte| char::from(byte).to_string()).collect();
    let segments: Vec<(&str, u64)> = starts.iter().map(|start| (&start[..], 100)).collect();
    let alike = 1.0 / segments.len() as f64;
    manager.add_table(table(1, &segments, "z"), vec![recent(alike); segments.len()]);
    manager.add_table(table(2, &[("!", 100)], "z"), vec![recent(1.0)]);
    let merged = manager.inherited(&table(9, &segments, "z"), Origin::Merged(&[vec![2], vec![1]]), 1);
    let sum: f64 = merged.iter().map(|hotness| hotness.misses).sum();
    assert!((0.9..1.1).contains(&sum), "once per get, as each run before: {sum}");
}

/// A table that is rewritten unchanged stays as hot as it was; so does the sum over segments that are cut differently.
#[test]
fn hotness_is_kept_by_a_rewrite() {
    let manager = old(true);
    let same = manager.inherited(&table(9, &[("b", 1), ("f", 1)], "j"), Origin::Merged(&[vec![1]]), 1);
    assert_hotness(&same, &[(0.1, true), (0.02, false)]);
    let finer: Vec<(&str, u64)> = ["b", "c", "cm", "d", "g", "h", "i"].map(|start| (start, 1)).into();
    let cut = manager.inherited(&table(9, &finer, "j"), Origin::Flushed(&[vec![1]]), 1);
    assert!(near(cut.iter().map(|hotness| hotness.misses).sum(), 0.12));
}

/// Where all keys exist, the last run has no misses, but a run above it will miss every lookup.
#[test]
fn hits_in_older_runs_become_misses_in_a_flushed_one() {
    let mut manager = Manager::new(CONFIG, 0);
    let hits = Hotness { misses: 0.0, asked: 0.5, recent: true };
    manager.add_table(table(1, &[("b", 100)], "j"), vec![hits]);
    let hotness = manager.inherited(&table(9, &[("b", 1)], "j"), Origin::Flushed(&[vec![1]]), 1);
    assert_hotness(&hotness, &[(0.5, true)]);
}
