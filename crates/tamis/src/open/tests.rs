//! Directories that no engine wrote: whatever they contain, opening returns a database or an error.

use tamis_files::tree::edit::{Ages, VersionEdit};
use tamis_files::tree::manifest::set_current;
use tamis_files::tree::times::Sample;

use tamis_base::key::MAX_SEQNO;

use super::*;
use crate::Db;
use crate::io::{MemFs, Usage};

fn options(fs: &MemFs) -> Options {
    let mut options = Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() };
    options.keyspace.memtable_bytes = 64 << 10;
    options
}

/// Returns a database whose manifest has exactly this state.
fn stored(state: &ManifestState) -> MemFs {
    let (fs, dir) = (MemFs::new(), Path::new("db"));
    fs.create_dir_all(dir).unwrap();
    Manifest::create(&fs, dir, 1, state).unwrap().close().unwrap();
    set_current(&fs, dir, 1).unwrap();
    fs
}

fn refusal(opened: Result<Db, OpenError>) -> String {
    match opened.unwrap_err() {
        OpenError::Storage(StorageError::Corrupt(damage)) => damage.to_string(),
        other => panic!("{other}"),
    }
}

/// An intact manifest without the keyspace that "always exists" made opening panic.
#[test]
fn a_manifest_without_the_default_keyspace_is_damage() {
    let fs = stored(&ManifestState::default());
    for opened in [options(&fs).open_read_only("db"), options(&fs).open("db")] {
        let message = refusal(opened);
        assert!(message.contains("default keyspace") && message.contains("MANIFEST-000001"), "{message}");
    }
}

/// A counter at the end of its range was accepted; the database then wrote larger numbers into its
/// next manifest, which it refused to read from then on, or into a memtable, which panics on them.
#[test]
fn counters_with_no_numbers_left_are_damage() {
    let set: [fn(&mut ManifestState); 5] = [
        |state| state.next_file = NUMBER_LIMIT,
        |state| state.next_run = NUMBER_LIMIT,
        |state| Arc::make_mut(state.keyspaces.get_mut(&DEFAULT_KEYSPACE).unwrap()).next_epoch = NUMBER_LIMIT,
        |state| state.next_keyspace = KeyspaceId::MAX,
        |state| state.last_seq = MAX_SEQNO,
    ];
    for (i, set) in set.into_iter().enumerate() {
        let mut state = ManifestState::new(DEFAULT_NAME, "");
        set(&mut state);
        let message = refusal(options(&stored(&state)).open("db"));
        assert!(message.contains("that no database reaches"), "{i}: {message}");
    }
    let mut state = ManifestState::new(DEFAULT_NAME, "");
    (state.next_file, state.last_seq) = (NUMBER_LIMIT / 4, MAX_SEQNO / 4);
    let fs = stored(&state);
    for value in ["one", "two"] {
        let db = options(&fs).open("db").unwrap();
        db.put("key", value).unwrap();
        db.flush().unwrap();
        assert_eq!(db.get("key").unwrap().unwrap(), value);
    }
}

/// A keyspace with a log floor beyond all files, next to one with floor 0, opened and accepted
/// writes, to logs below the floor: the next opening skipped them, and acknowledged writes were
/// gone.
#[test]
fn a_log_floor_beyond_all_files_is_damage() {
    let mut state = ManifestState::new(DEFAULT_NAME, "");
    let edit =
        VersionEdit { create_keyspaces: vec![(1, "second".into(), String::new())], ..Default::default() };
    state.apply(&edit).unwrap();
    state.apply(&VersionEdit { log_floor: vec![(0, 1000)], ..Default::default() }).unwrap();
    let message = refusal(options(&stored(&state)).open("db"));
    assert!(message.contains("logs that were never created"), "{message}");
    state.next_file = 1000;
    let fs = stored(&state);
    options(&fs).open("db").unwrap().put("key", "value").unwrap();
    assert_eq!(options(&fs).open("db").unwrap().get("key").unwrap().unwrap(), "value");
}

/// The number of the next file is larger than that of every file in the directory. A file with the
/// largest number made it overflow (or, if slightly smaller, exceed what a manifest can hold).
#[test]
fn a_stray_file_with_a_huge_number_is_named_or_ignored() {
    let stray = |name: &str| {
        let fs = stored(&ManifestState::new(DEFAULT_NAME, ""));
        fs.create(&Path::new("db").join(name), Usage::Log).unwrap();
        options(&fs).open("db")
    };
    for name in ["72057594037927935.log", "72057594037927935.tam", "MANIFEST-72057594037927935"] {
        let message = refusal(stray(name));
        assert!(message.contains(name), "{message}");
    }
    for name in ["18446744073709551615.log", "MANIFEST-18446744073709551615", "72057594037927936.tam"] {
        stray(name).expect("no file of a database is called that");
    }
}

/// Ages of writes that were never made were believed: the session's writes expired early, or at
/// once.
#[test]
fn ages_of_future_writes_are_damage() {
    let (expired, since) = (Ages { since: 0, expired: 6 }, Ages { since: 6, expired: 0 });
    let edits = [
        VersionEdit { ages: vec![(0, expired)], last_seq: Some(5), ..Default::default() },
        VersionEdit { ages: vec![(0, since)], last_seq: Some(5), ..Default::default() },
    ];
    for mut edit in edits {
        let mut state = ManifestState::new(DEFAULT_NAME, "");
        state.apply(&edit).unwrap();
        let message = refusal(options(&stored(&state)).open("db"));
        assert!(message.contains("writes that were never made"), "{message}");
        edit.last_seq = Some(6);
        state.apply(&edit).unwrap();
        options(&stored(&state)).open("db").unwrap();
    }
}

/// A power failure takes back writes whose times the manifest has. Their numbers are given again,
/// and the new writes are not as old.
#[test]
fn times_of_lost_writes_are_forgotten() {
    let mut state = ManifestState::new(DEFAULT_NAME, "");
    let times = vec![Sample { time: 1, seq: 2 }, Sample { time: 2, seq: 6 }];
    state.apply(&VersionEdit { times, last_seq: Some(5), ..Default::default() }).unwrap();
    let mut options = options(&stored(&state));
    options.keyspace.time_to_live = Some(std::time::Duration::from_secs(3600));
    for _ in 0..2 {
        let db = options.clone().open("db").unwrap();
        db.put("key", "value").unwrap();
        assert_eq!(db.get("key").unwrap().unwrap(), "value");
        db.close().unwrap();
    }
}
