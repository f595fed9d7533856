//! Edits of a small state, and what a hostile manifest may cost.

use super::*;
use crate::tree::edit::tests::table;
use crate::tree::times::Sample;

fn state() -> ManifestState {
    let mut state = ManifestState::new("default", "a = 1");
    let edit = VersionEdit {
        create_keyspaces: vec![(1, "other".into(), String::new())],
        added: vec![
            (0, 6, 2, table(10, "m", "p")),
            (0, 6, 2, table(11, "a", "c")),
            (0, 0, 3, table(12, "a", "z")),
            (1, 0, 4, table(13, "a", "z")),
        ],
        log_floor: vec![(0, 8), (1, 5)],
        ..Default::default()
    };
    state.apply(&edit).unwrap();
    state
}

/// Each kind of edit here makes some ten megabytes of manifest. If applying any of them took
/// quadratic time, opening would take many minutes and this test would not end.
#[test]
fn a_hostile_manifest_is_applied_in_linear_time() {
    let mut state = ManifestState::new("default", "");
    let names = (1..400_000).map(|id| (id, format!("{id}"), String::new())).collect();
    state.apply(&VersionEdit { create_keyspaces: names, ..Default::default() }).unwrap();
    assert_eq!((state.keyspaces.len(), state.next_keyspace), (400_000, 400_000));
    for id in (1..400_000).rev() {
        state.apply(&VersionEdit { drop_keyspaces: vec![id], ..Default::default() }).unwrap();
    }
    // Each table sorts before all others of its run; removal starts at the back.
    let key = |id: u64| format!("{:07}", 9_999_999 - id);
    for id in 1..300_000 {
        let table = table(id, &key(id), &key(id));
        state.apply(&VersionEdit { added: vec![(0, 1, 1, table)], ..Default::default() }).unwrap();
    }
    assert_eq!(state.table_count(), 299_999);
    let removed = (1..300_000).map(|id| (0, id)).collect();
    state.apply(&VersionEdit { removed, ..Default::default() }).unwrap();
    assert_eq!(state.table_count(), 0);
    let times: Vec<_> = (1..3_000_000).map(|i| Sample { time: i * 128, seq: i }).collect();
    state.apply(&VersionEdit { times, ..Default::default() }).unwrap();
    assert!(state.times.samples().len() < 5000, "{} samples", state.times.samples().len());
}

#[test]
fn a_snapshot_rebuilds_the_state() {
    let mut state = state();
    let times = (1..500).map(|i| Sample { time: i * i, seq: i }).collect();
    let ages = vec![(0, Ages { since: 5, expired: 9 })];
    let added_filters = vec![(1, 21, 100), (0, 20, 200), (0, 19, 300)];
    state.apply(&VersionEdit { ages, times, added_filters, ..Default::default() }).unwrap();
    let mut bytes = Vec::new();
    state.snapshot().encode(&mut bytes);
    let mut rebuilt = ManifestState::default();
    rebuilt.apply(&VersionEdit::decode(&bytes).unwrap()).unwrap();
    assert_eq!(rebuilt, state);
}

#[test]
fn a_keyspace_keeps_everything_but_its_name() {
    let mut state = state();
    let renamed =
        |id, name: &str| VersionEdit { rename_keyspaces: vec![(id, name.into())], ..Default::default() };
    let tables = state.keyspaces[&1].runs.clone();
    state.apply(&renamed(1, "new")).unwrap();
    assert_eq!((&*state.keyspaces[&1].name, &state.keyspaces[&1].runs), ("new", &tables));
    // The former name is free again, and the new one is not.
    let create = |id, name: &str| VersionEdit {
        create_keyspaces: vec![(id, name.into(), String::new())],
        ..Default::default()
    };
    assert!(state.clone().apply(&create(2, "new")).is_err());
    state.apply(&create(2, "other")).unwrap();
    assert!(state.clone().apply(&renamed(2, "new")).is_err(), "taken");
    assert!(state.clone().apply(&renamed(2, "default")).is_err(), "taken");
    assert!(state.clone().apply(&renamed(0, "x")).is_err(), "the default keyspace");
    assert!(state.clone().apply(&renamed(9, "x")).is_err(), "unknown");
    state.apply(&renamed(1, "new")).unwrap();
    let mut rebuilt = ManifestState::default();
    rebuilt.apply(&state.snapshot()).unwrap();
    assert_eq!(rebuilt, state);
}

/// A missing blob file still occupies its number.
#[test]
fn numbers_of_blob_files_that_tables_refer_to_are_taken() {
    let referring = |file| {
        let mut meta = table(40, "x", "y");
        meta.extra.blobs = vec![(3, 10), (file, 10)];
        VersionEdit { added: vec![(0, 3, 50, meta)], ..Default::default() }
    };
    let mut state = state();
    state.apply(&referring(77)).unwrap();
    assert_eq!(state.next_file, 78);
    assert!(self::state().apply(&referring(NUMBER_LIMIT)).is_err());
}

#[test]
fn filter_files_come_and_go_with_their_keyspace() {
    let mut state = state();
    let added_filters = vec![(1, 21, 100), (0, 20, 200), (0, 19, 300), (7, 90, 1)];
    state.apply(&VersionEdit { added_filters, ..Default::default() }).unwrap();
    assert_eq!(state.next_file, 22);
    // Neither an unknown keyspace nor an unknown file is an error.
    let removed_filters = vec![(0, 19), (0, 21), (0, 5), (7, 90)];
    let added_filters = vec![(0, 30, 7)];
    state.apply(&VersionEdit { added_filters, removed_filters, ..Default::default() }).unwrap();
    assert_eq!(state.keyspaces[&0].filter_files, BTreeMap::from([(20, 200), (30, 7)]));
    assert_eq!(state.keyspaces[&1].filter_files, BTreeMap::from([(21, 100)]));
    let edit = VersionEdit {
        added_filters: vec![(1, 31, 1)],
        drop_keyspaces: vec![1],
        create_keyspaces: vec![(2, "another".into(), String::new())],
        ..Default::default()
    };
    state.apply(&edit).unwrap();
    assert!(!state.keyspaces.contains_key(&1));
    assert!(state.keyspaces[&2].filter_files.is_empty());
}

#[test]
fn writes_are_forgotten_down_to_what_tables_and_ages_reach() {
    assert_eq!(ManifestState::new("default", "").cut_at(0), Ok(()));
    assert_eq!(ManifestState::default().cut_at(0), Ok(()), "there are no keyspaces");
    let mut state = state();
    let times = vec![Sample { time: 100, seq: 20 }, Sample { time: 200, seq: 70 }];
    state.apply(&VersionEdit { last_seq: Some(90), times, ..Default::default() }).unwrap();
    assert_eq!(state.cut_at(29), Err(30));
    let ages = vec![(1, Ages { since: 40, expired: 35 })];
    state.apply(&VersionEdit { ages, ..Default::default() }).unwrap();
    assert_eq!((state.cut_at(39), state.last_seq), (Err(40), 90));
    assert_eq!((state.cut_at(60), state.last_seq), (Ok(()), 60));
    assert_eq!(state.times.newest().map(|newest| newest.seq), Some(20));
    assert_eq!((state.cut_at(80), state.last_seq), (Ok(()), 60));
}

#[test]
fn nothing_of_a_dropped_keyspace_stays() {
    let mut state = state();
    let hotness = vec![(12, vec![1]), (13, vec![2])];
    state.apply(&VersionEdit { hotness, ..Default::default() }).unwrap();
    state.apply(&VersionEdit { drop_keyspaces: vec![1], ..Default::default() }).unwrap();
    assert_eq!(state.snapshot().hotness, vec![(12, vec![1])]);
    assert_eq!((state.log_floor(), ManifestState::default().log_floor()), (8, 0));
    let again = VersionEdit { added: vec![(0, 1, 9, table(13, "a", "b"))], ..Default::default() };
    state.apply(&again).unwrap();
}

#[test]
fn numbers_of_tables_levels_and_runs_have_limits() {
    let takes = |level, run, id| {
        let added = vec![(0, level, run, table(id, "a", "b"))];
        state().apply(&VersionEdit { added, ..Default::default() }).is_ok()
    };
    assert!(takes(MAX_LEVEL, NUMBER_LIMIT - 1, NUMBER_LIMIT - 1));
    assert!(!takes(MAX_LEVEL + 1, 9, 20) && !takes(1, NUMBER_LIMIT, 20) && !takes(1, 9, NUMBER_LIMIT));
}

/// The hotness of a table that is gone would grow the manifest for ever.
#[test]
fn hotness_moves_with_its_table_and_goes_with_it() {
    let mut state = state();
    let hotness = vec![(11, vec![1]), (12, vec![2]), (13, vec![3])];
    state.apply(&VersionEdit { hotness, ..Default::default() }).unwrap();
    let edit = VersionEdit {
        removed: vec![(0, 11), (0, 12)],
        added: vec![(0, 1, 9, table(12, "a", "z"))],
        ..Default::default()
    };
    state.apply(&edit).unwrap();
    assert_eq!([11, 12, 13].map(|id| state.hotness(id)), [None, Some(&[2][..]), Some(&[3][..])]);
    assert_eq!(state.snapshot().hotness, vec![(12, vec![2]), (13, vec![3])]);
}

/// Readers that do not know a floor for all keyspaces refuse it.
#[test]
fn a_snapshot_has_a_floor_for_all_keyspaces_only_if_one_was_set() {
    let mut state = state();
    assert_eq!(state.snapshot().floor, None);
    state.apply(&VersionEdit { floor: Some(9), ..Default::default() }).unwrap();
    assert_eq!((state.snapshot().floor, state.log_floor()), (Some(9), 9));
}
