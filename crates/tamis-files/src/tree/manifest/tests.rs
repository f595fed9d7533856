//! Manifests of a few edits, whole, cut, damaged, and on devices that are full or fail.

use super::*;
use crate::tree::edit::tests::table;
use crate::wal::double::ToyFs;

const DIR: &str = "db";

fn path() -> std::path::PathBuf {
    files::manifest_path(Path::new(DIR), 1)
}

fn edits(n: u64) -> Vec<VersionEdit> {
    (0..n)
        .map(|i| VersionEdit {
            added: vec![(0, 0, i, table(i + 10, "a", "z"))],
            removed: if i > 0 { vec![(0, i + 9)] } else { vec![] },
            ..Default::default()
        })
        .collect()
}

/// Creates a database with `n` edits after the first record; returns the state after each and
/// the manifest's length then.
fn database(fs: &ToyFs, n: u64) -> (Manifest, Vec<(ManifestState, u64)>) {
    let dir = Path::new(DIR);
    let mut state = ManifestState::new("default", "");
    let mut manifest = Manifest::create(fs, dir, 1, &state).unwrap();
    set_current(fs, dir, 1).unwrap();
    let mut history = vec![(state.clone(), manifest.log.len())];
    for edit in edits(n) {
        state.apply(&edit).unwrap();
        manifest.append(&edit).unwrap();
        history.push((state.clone(), manifest.log.len()));
    }
    (manifest, history)
}

fn open(fs: &ToyFs) -> Result<Option<LoadedManifest>, FileError> {
    Manifest::open(fs, Path::new(DIR))
}

fn corrupt_offset(fs: &ToyFs) -> Option<u64> {
    match open(fs) {
        Err(FileError::Storage(StorageError::Corrupt(c))) => c.offset,
        other => panic!("{other:?}"),
    }
}

#[test]
fn edits_add_up_to_the_state_at_the_next_opening() {
    let fs = ToyFs::default();
    assert!(open(&fs).unwrap().is_none(), "no CURRENT, no database");
    let (manifest, history) = database(&fs, 5);
    let (state, len) = history.last().unwrap();
    let loaded = open(&fs).unwrap().unwrap();
    assert_eq!((&loaded.state, loaded.number), (state, 1));
    assert_eq!(loaded.end, End::Clean { offset: *len });
    manifest.close().unwrap();
    let loaded = open(&fs).unwrap().unwrap();
    assert!(matches!(loaded.end, End::Closed { .. }) && loaded.state == *state);
}

#[test]
fn a_truncated_manifest_has_the_state_of_its_complete_edits() {
    let fs = ToyFs::default();
    let (_, history) = database(&fs, 4);
    let bytes = fs.bytes(path());
    for cut in 0..bytes.len() {
        fs.set(path(), bytes[..cut].to_vec());
        let whole = history.iter().rev().find(|(_, len)| *len <= cut as u64);
        match (open(&fs), whole) {
            (Ok(Some(loaded)), Some((state, _))) => assert_eq!(loaded.state, *state, "cut at {cut}"),
            (Err(FileError::Storage(StorageError::Corrupt(_))), None) => {}
            (other, _) => panic!("cut at {cut}: {other:?}"),
        }
    }
}

/// Reads what is there of the manifest, and where it is damaged, if it is.
fn readable(fs: &ToyFs) -> (ManifestState, Option<Option<u64>>) {
    let (loaded, error) = Manifest::read_what_is_there(fs, Path::new(DIR), 1).unwrap();
    let damage = error.map(|error| match error {
        StorageError::Corrupt(damage) => damage.offset,
        other => panic!("{other}"),
    });
    (loaded.state, damage)
}

#[test]
fn what_is_there_of_a_truncated_manifest_is_read_and_a_missing_start_is_damage() {
    let fs = ToyFs::default();
    let (_, history) = database(&fs, 4);
    let bytes = fs.bytes(path());
    for cut in 0..bytes.len() {
        fs.set(path(), bytes[..cut].to_vec());
        let whole = history.iter().rev().find(|(_, len)| *len <= cut as u64);
        let expected = match whole {
            Some((state, _)) => (state.clone(), None),
            None => (ManifestState::default(), Some(Some(0))),
        };
        assert_eq!(readable(&fs), expected, "cut at {cut}");
    }
}

#[test]
fn what_is_there_of_a_damaged_manifest_ends_before_the_damage() {
    let fs = ToyFs::default();
    let (manifest, history) = database(&fs, 3);
    let bytes = fs.bytes(path());
    for (edits, (state, start)) in history[..3].iter().enumerate() {
        let mut hurt = bytes.clone();
        hurt[*start as usize + 8] ^= 0x20;
        fs.set(path(), hurt);
        // Nothing shows that the last one was synced.
        let damage = (edits < 2).then_some(Some(*start));
        assert_eq!(readable(&fs), (state.clone(), damage));
    }
    let (state, start) = history.last().unwrap();
    // It is partly applied before it turns out to be wrong.
    let wrong = VersionEdit {
        set_options: vec![(0, "changed".into())],
        removed: vec![(0, 77)],
        ..VersionEdit::default()
    };
    drop(manifest);
    let (mut manifest, _) = database(&fs, 3);
    manifest.append(&wrong).unwrap();
    manifest.append(&VersionEdit { last_seq: Some(100), ..VersionEdit::default() }).unwrap();
    assert_eq!(readable(&fs), (state.clone(), Some(Some(*start))));
}

#[test]
fn damage_before_the_last_edit_is_an_error_that_names_the_record() {
    let fs = ToyFs::default();
    let (_, history) = database(&fs, 3);
    let bytes = fs.bytes(path());
    for (record, (_, start)) in history.iter().enumerate().take(2) {
        for at in *start..history[record + 1].1 {
            let mut hurt = bytes.clone();
            hurt[at as usize] ^= 0x20;
            fs.set(path(), hurt);
            assert_eq!(corrupt_offset(&fs), Some(*start), "byte {at}");
        }
    }
}

#[test]
fn an_edit_that_does_not_apply_is_an_error_that_names_the_record() {
    let fs = ToyFs::default();
    let (mut manifest, _) = database(&fs, 1);
    let offset = manifest.log.len();
    manifest.append(&VersionEdit { removed: vec![(0, 77)], ..Default::default() }).unwrap();
    assert_eq!(corrupt_offset(&fs), Some(offset));
}

#[test]
fn a_current_without_a_manifest_name_is_an_error() {
    let fs = ToyFs::default();
    database(&fs, 1);
    let current = files::current_path(Path::new(DIR));
    for text in ["", "MANIFEST-000001", "000001.log\n", "../MANIFEST-000001\n", "MANIFEST-1\n"] {
        fs.set(&current, text.into());
        assert_eq!(corrupt_offset(&fs), None, "{text:?}");
    }
    fs.set(&current, b"MANIFEST-000002\n".to_vec());
    assert!(matches!(open(&fs), Err(FileError::Storage(StorageError::Io(_)))), "a missing manifest");
}

#[test]
fn a_manifest_with_another_number_is_rejected() {
    let fs = ToyFs::default();
    database(&fs, 1);
    fs.rename(&path(), &files::manifest_path(Path::new(DIR), 2)).unwrap();
    set_current(&fs, Path::new(DIR), 2).unwrap();
    assert_eq!(corrupt_offset(&fs), Some(0));
}

#[test]
fn a_grown_manifest_should_roll_and_its_successor_has_the_same_state() {
    let fs = ToyFs::default();
    let (mut manifest, _) = database(&fs, 0);
    let long = VersionEdit { set_options: vec![(0, "x".repeat(300 << 10))], ..Default::default() };
    let mut appended = 0;
    while !manifest.should_roll() {
        manifest.append(&long).unwrap();
        appended += 1;
    }
    assert_eq!(appended, 4, "1 MiB is reached by the fourth edit");
    let state = open(&fs).unwrap().unwrap().state;
    let next = Manifest::create(&fs, Path::new(DIR), 2, &state).unwrap();
    assert_eq!(open(&fs).unwrap().unwrap().number, 1, "in force only once CURRENT says so");
    set_current(&fs, Path::new(DIR), 2).unwrap();
    assert!(!next.should_roll() && !next.log.is_empty());
    let loaded = open(&fs).unwrap().unwrap();
    assert_eq!((loaded.number, loaded.state), (2, state));
}

/// The bounds themselves are not exceeded yet.
#[test]
fn a_manifest_rolls_beyond_a_mebibyte_and_four_times_its_first_record() {
    let fs = ToyFs::default();
    let (mut manifest, _) = database(&fs, 0);
    let before = manifest.len();
    manifest.append(&text(1 << 19)).unwrap();
    let head = manifest.len() - before - (1 << 19);
    manifest.append(&text(MIN_ROLL_BYTES - manifest.len() - head)).unwrap();
    assert_eq!(manifest.len(), MIN_ROLL_BYTES);
    assert!(!manifest.should_roll());
    manifest.append(&VersionEdit::default()).unwrap();
    assert!(manifest.should_roll());
    let divides = (1..100).any(|bytes| {
        manifest.append(&text(bytes)).unwrap();
        manifest.len().is_multiple_of(ROLL_FACTOR)
    });
    assert!(divides);
    manifest.snapshot_end = manifest.len() / ROLL_FACTOR;
    assert!(!manifest.should_roll());
    manifest.snapshot_end -= 1;
    assert!(manifest.should_roll());
}

/// Freeing space takes an edit too. If it did not fit, a new manifest would be needed, which
/// fits even less.
/// Space that was reserved was once given back when half of it was used and no more could be had:
/// just when the disk was full.
#[test]
fn edits_fit_on_a_full_disk_until_the_reserved_space_is_used_up() {
    let fs = tamis_testkit::FaultyFs::new(1);
    fs.create_dir_all(Path::new(DIR)).unwrap();
    let mut manifest = Manifest::create(&fs, Path::new(DIR), 1, &ManifestState::default()).unwrap();
    fs.set_capacity(Some(0));
    let full = manifest.len() + RESERVED_BYTES - 1000;
    while manifest.len() < full {
        manifest.append(&VersionEdit { last_seq: Some(7), ..VersionEdit::default() }).unwrap();
    }
}

#[test]
fn a_failed_append_poisons_the_manifest() {
    let fs = ToyFs::default();
    let (mut manifest, _) = database(&fs, 1);
    let edit = VersionEdit::default();
    fs.fail_after(1);
    assert!(manifest.append(&edit).is_err(), "the sync fails");
    fs.heal();
    let len = fs.bytes(path()).len();
    assert!(manifest.append(&edit).unwrap_err().is_out_of_space());
    assert_eq!(fs.bytes(path()).len(), len);
}

/// The manifest in force names what is in it, and is the only file that does.
#[test]
fn a_new_manifest_and_its_name_survive_a_power_failure() {
    let fs = tamis_testkit::FaultyFs::new(1);
    fs.create_dir_all(Path::new(DIR)).unwrap();
    fs.sync_dir(Path::new("/")).unwrap();
    let state = ManifestState::new("default", "");
    drop(Manifest::create(&fs, Path::new(DIR), 1, &state).unwrap());
    assert!(fs.durable_bytes(path()).is_some(), "the file has no name");
    let left = fs.after_crash(tamis_testkit::CrashMode::DropUnsynced);
    let (loaded, error) = Manifest::read_what_is_there(&left, Path::new(DIR), 1).unwrap();
    assert_eq!((loaded.state, error.map(|error| error.to_string())), (state, None));
}

/// An edit that sets a text of this length.
fn text(bytes: u64) -> VersionEdit {
    VersionEdit { set_options: vec![(0, "x".repeat(bytes as usize))], ..VersionEdit::default() }
}

/// Returns the space reserved for coming edits, in bytes.
fn ahead(manifest: &Manifest) -> u64 {
    manifest.log.allocated() - manifest.len()
}

#[test]
fn space_for_coming_edits_is_topped_up_once_less_than_half_is_left() {
    let fs = ToyFs::default();
    let (mut manifest, _) = database(&fs, 0);
    assert_eq!(ahead(&manifest), RESERVED_BYTES);
    let before = manifest.len();
    manifest.append(&text(200)).unwrap();
    let head = manifest.len() - before - 200;
    // Lengths from 128 up to 16383 take two bytes each.
    let used = |manifest: &Manifest| ahead(manifest) - RESERVED_BYTES / 2;
    while used(&manifest) > 10_000 {
        manifest.append(&text(8_000)).unwrap();
    }
    manifest.append(&text(used(&manifest) - head)).unwrap();
    assert_eq!(ahead(&manifest), RESERVED_BYTES / 2);
    manifest.append(&VersionEdit::default()).unwrap();
    assert_eq!(ahead(&manifest), RESERVED_BYTES);
    // After a long edit, as much again as two of them.
    manifest.append(&text(100 << 10)).unwrap();
    assert!((200 << 10..201 << 10).contains(&ahead(&manifest)), "{}", ahead(&manifest));
}

#[test]
fn space_for_coming_edits_is_reserved_once_there_is_room_again() {
    let fs = tamis_testkit::FaultyFs::new(1);
    fs.create_dir_all(Path::new(DIR)).unwrap();
    let state = ManifestState::new("default", "");
    let mut manifest = Manifest::create(&fs, Path::new(DIR), 1, &state).unwrap();
    fs.set_capacity(Some(fs.files().iter().map(|(_, bytes)| bytes).sum()));
    while ahead(&manifest) >= RESERVED_BYTES / 2 {
        manifest.append(&text(1000)).unwrap();
    }
    fs.set_capacity(None);
    manifest.append(&VersionEdit::default()).unwrap();
    assert_eq!(ahead(&manifest), RESERVED_BYTES);
}

/// Without them, a flush would take an epoch that a table has.
#[test]
fn the_epochs_that_old_edits_set_for_all_keyspaces_count() {
    let fs = ToyFs::default();
    let (mut manifest, _) = database(&fs, 1);
    for next_epoch in [Some(50), Some(60), None] {
        manifest.append(&VersionEdit { next_epoch, ..VersionEdit::default() }).unwrap();
    }
    assert_eq!(open(&fs).unwrap().unwrap().state.keyspaces[&0].next_epoch, 60);
    let (state, damage) = readable(&fs);
    assert_eq!((state.keyspaces[&0].next_epoch, damage), (60, None));
}

/// Salvage would take what it could not read for what is lost.
#[test]
fn a_manifest_that_cannot_be_read_now_is_not_a_damaged_one() {
    let fs = tamis_testkit::FaultyFs::new(1);
    fs.create_dir_all(Path::new(DIR)).unwrap();
    let read = |number| Manifest::read_what_is_there(&fs, Path::new(DIR), number);
    let state = ManifestState::new("default", "");
    drop(Manifest::create(&fs, Path::new(DIR), 1, &state).unwrap());
    for at in 0.. {
        let failures = fs.failures();
        let fail_at = Some(fs.operations() + at);
        fs.plan(tamis_testkit::FaultPlan { fail_at, ..tamis_testkit::FaultPlan::none() });
        let result = read(1);
        if fs.failures() == failures {
            assert!(at > 1 && result.unwrap().1.is_none());
            break;
        }
        assert!(matches!(result, Err(FileError::Storage(StorageError::Io(_)))), "{at}: {result:?}");
    }
    fs.plan(tamis_testkit::FaultPlan::none());
    let (loaded, error) = read(2).unwrap();
    assert!(loaded.state.keyspaces.is_empty() && is_damage(&error.unwrap()), "it is missing");
}
