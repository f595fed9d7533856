//! Logs written by hand: what a writer leaves behind only after a failure, or for a moment.

use std::path::Path;

use tamis_base::ids::{KeyspaceId, LogId};
use tamis_base::key::SeqNo;
use tamis_files::tree::edit::VersionEdit;
use tamis_files::tree::files::log_path;
use tamis_files::tree::manifest::{Manifest, set_current};
use tamis_files::tree::state::ManifestState;
use tamis_files::wal::ops::GroupHeader;
use tamis_files::wal::{LogHeader, LogKind, LogReader, LogWriter};
use tamis_testkit::FaultyFs;

use super::{FollowedLogs, MOST_HELD};
use crate::io::{FileSystem, Usage};
use crate::open::beside::tests::{content, options};
use crate::open::follow::tests::{by_hand, follower_of, keys};
use crate::{Db, OpenError, WriteBatch};

fn dir() -> &'static Path {
    Path::new("/db")
}

/// Two keyspaces that need logs from `log` on.
fn needs(log: LogId, last_seq: SeqNo) -> VersionEdit {
    VersionEdit {
        create_keyspaces: vec![(1, "other".into(), String::new())],
        log_floor: vec![(0, log), (1, log)],
        next_file: Some(10),
        last_seq: Some(last_seq),
        ..VersionEdit::default()
    }
}

/// Puts manifest `number` in force.
fn manifest(fs: &FaultyFs, number: u64, edit: &VersionEdit) {
    let mut state = ManifestState::new("default", "");
    state.apply(edit).unwrap();
    Manifest::create(fs, dir(), number, &state).unwrap();
    set_current(fs, dir(), number).unwrap();
}

fn database(edit: &VersionEdit) -> FaultyFs {
    let fs = FaultyFs::new(7);
    fs.create_dir_all(dir()).unwrap();
    manifest(&fs, 1, edit);
    fs
}

fn log(fs: &FaultyFs, id: LogId) -> LogWriter {
    let path = log_path(dir(), id);
    let header = LogHeader { kind: LogKind::Writes, id, reused: false };
    LogWriter::create(fs.create(&path, Usage::Log).unwrap(), &path, header).unwrap()
}

fn append(log: &mut LogWriter, header: GroupHeader, batch: &WriteBatch) {
    let mut head = Vec::new();
    header.encode(&mut head);
    log.append(&[&head, batch.bytes()]).unwrap();
    log.sync().unwrap();
}

/// Appends a write of one key.
fn put(log: &mut LogWriter, keyspace: KeyspaceId, first_seq: SeqNo) {
    let mut batch = WriteBatch::new();
    batch.put_id(keyspace, format!("key {first_seq}").as_bytes(), b"value");
    append(log, GroupHeader { first_seq, count: 1, older_logs_synced: false }, &batch);
}

/// Appends a write that takes exactly so many bytes.
fn put_bytes(log: &mut LogWriter, keyspace: KeyspaceId, first_seq: SeqNo, bytes: usize) {
    let batch = |len: usize| {
        let mut batch = WriteBatch::new();
        batch.put_id(keyspace, b"large", &vec![7; len]);
        batch
    };
    let batch = batch(2 * bytes - batch(bytes).bytes().len());
    assert_eq!(batch.bytes().len(), bytes);
    append(log, GroupHeader { first_seq, count: 1, older_logs_synced: false }, &batch);
}

fn follows(fs: &FaultyFs) -> Result<Db, OpenError> {
    options(fs.clone()).open_follower("/db")
}

impl FollowedLogs {
    /// Reports whether there are writes to a keyspace.
    pub(in crate::open::follow) fn knows(&self, keyspace: KeyspaceId) -> bool {
        self.memtables.contains_key(&keyspace)
    }
}

fn memtables(db: &Db, keyspace: &str) -> usize {
    db.keyspace(keyspace).unwrap().stats().memtables
}

/// A record that is being written looks damaged, too: so a log is checked once it no longer grows.
#[test]
fn damage_after_the_last_record_is_reported_once_the_log_stands_still() {
    for has_next in [false, true] {
        let fs = database(&needs(5, 6));
        let mut current = log(&fs, 5);
        put(&mut current, 0, 7);
        if has_next {
            log(&fs, 6);
        }
        let follower = follows(&fs).unwrap();
        put(&mut current, 0, 8);
        let damaged = current.len();
        put(&mut current, 0, 9);
        put(&mut current, 0, 10);
        fs.corrupt(log_path(dir(), 5), damaged + 25, 0x41).unwrap();
        assert_eq!(follower.catch_up().unwrap(), 8, "{has_next}");
        let error = follower.catch_up().unwrap_err();
        assert!(matches!(error, OpenError::Storage(_)), "{has_next}: {error}");
        assert_eq!(keys(&follower), ["key 7", "key 8"]);
    }
}

/// Each position is checked once.
#[test]
fn the_end_of_a_log_that_was_checked_is_remembered() {
    let follower = follows(&by_hand(&[(5, &[7, 8], false)], 6)).unwrap();
    let follower = follower_of(&follower).lock();
    let position = follower.logs.position.as_ref().unwrap();
    assert_eq!(Some(position.looked_at), position.reader.as_ref().map(LogReader::pos));
}

#[test]
fn a_log_without_its_closing_record_ends_the_logs_or_is_damaged() {
    let with = |damages: bool, older_logs_synced: bool| {
        let fs = database(&needs(5, 6));
        let mut first = log(&fs, 5);
        put(&mut first, 0, 7);
        let damaged = first.len();
        put(&mut first, 0, 8);
        put(&mut first, 0, 9);
        if damages {
            fs.corrupt(log_path(dir(), 5), damaged + 25, 0x41).unwrap();
        }
        let mut batch = WriteBatch::new();
        batch.put("key 10", "value");
        append(&mut log(&fs, 6), GroupHeader { first_seq: 10, count: 1, older_logs_synced }, &batch);
        follows(&fs).map(|db| keys(&db)).map_err(|error| error.to_string())
    };
    // A power failure took the record, and what came after it.
    assert_eq!(with(false, false).unwrap(), ["key 7", "key 8", "key 9"]);
    let error = with(false, true).unwrap_err();
    assert!(error.contains("the log ends without its closing record"), "{error}");
    let error = with(true, false).unwrap_err();
    assert!(!error.contains("closing record"), "{error}");
}

#[test]
fn a_finished_log_of_writes_cannot_be_the_last() {
    let none = follows(&by_hand(&[(5, &[], true)], 6)).unwrap();
    assert_eq!((keys(&none).len(), none.stats().visible_seq), (0, 6));
    let error = follows(&by_hand(&[(5, &[1], true)], 0)).unwrap_err();
    assert!(error.to_string().contains("it was finished, but neither"), "{error}");
}

#[test]
fn a_record_that_does_not_follow_is_damage() {
    let error = follows(&by_hand(&[(5, &[7, 9], false)], 6)).unwrap_err();
    assert!(error.to_string().contains("its first write is number 9, expected 8"), "{error}");
    let fs = database(&needs(5, 6));
    let mut batch = WriteBatch::new();
    batch.put("key", "value");
    append(&mut log(&fs, 5), GroupHeader { first_seq: 7, count: 2, older_logs_synced: false }, &batch);
    let error = follows(&fs).unwrap_err();
    assert!(error.to_string().contains("whose count of operations is wrong"), "{error}");
    // Two keyspaces are known, 0 and 1.
    let fs = database(&needs(5, 6));
    let mut current = log(&fs, 5);
    put(&mut current, 1, 7);
    put(&mut current, 2, 8);
    let error = follows(&fs).unwrap_err();
    assert!(error.to_string().contains("a write to a keyspace that is not in the manifest"), "{error}");
}

/// The directory is listed only when the manifest changes.
#[test]
fn a_log_created_ahead_may_go_after_it_was_listed() {
    let fs = by_hand(&[(5, &[7], false), (6, &[], false)], 6);
    let follower = follows(&fs).unwrap();
    fs.remove(&log_path(dir(), 6)).unwrap();
    assert_eq!(follower.catch_up().unwrap(), 7);
}

/// The number that readers use shows them these writes as soon as they are in a memtable that
/// readers have.
#[test]
fn writes_up_to_the_visible_number_go_into_memtables_that_nobody_has() {
    let fs = database(&needs(5, 10));
    let mut current = log(&fs, 5);
    put(&mut current, 0, 6);
    let follower = follows(&fs).unwrap();
    assert_eq!((follower.stats().visible_seq, memtables(&follower, "default")), (10, 1));
    for (seqs, count) in [(7..9, 2), (9..10, 3), (10..11, 4), (11..12, 4), (12..14, 4)] {
        seqs.clone().for_each(|seq| put(&mut current, 0, seq));
        follower.catch_up().unwrap();
        assert_eq!(memtables(&follower, "default"), count, "{seqs:?}");
    }
    assert_eq!(keys(&follower).len(), 8);
    assert!(!follower_of(&follower).lock().logs.has_unpublished());
}

/// The memory for records that wait for their publication is bounded. The price is a memtable.
#[test]
fn records_that_are_too_many_to_be_held_back_get_a_memtable() {
    let fs = database(&needs(5, 0));
    let mut current = log(&fs, 5);
    put(&mut current, 0, 1);
    put(&mut current, 1, 2);
    let follower = follows(&fs).unwrap();
    let counts = || (memtables(&follower, "default"), memtables(&follower, "other"));
    let held = || {
        let follower = follower_of(&follower).lock();
        (follower.logs.held.len(), follower.logs.held_bytes)
    };
    assert_eq!((counts(), held()), ((1, 1), (0, 0)));
    // As many as may be.
    put_bytes(&mut current, 0, 3, MOST_HELD);
    assert_eq!(follower.catch_up().unwrap(), 3);
    assert_eq!((counts(), held()), ((1, 1), (0, 0)));
    // One byte more, then again as many as may be.
    put_bytes(&mut current, 0, 4, MOST_HELD + 1);
    put_bytes(&mut current, 1, 5, MOST_HELD);
    assert_eq!(follower.catch_up().unwrap(), 5);
    assert_eq!((counts(), held()), ((2, 1), (0, 0)));
    // In several records.
    (6..9).for_each(|seq| put_bytes(&mut current, 1, seq, MOST_HELD / 2 + 100));
    assert_eq!(follower.catch_up().unwrap(), 8);
    assert_eq!(counts(), (2, 2));
    assert_eq!(content(&follower)[&b"large"[..]].len(), follower.get("large").unwrap().unwrap().len());
}

/// Edits and writes that a power failure took: what was read since is reread.
#[test]
fn a_manifest_that_needs_an_earlier_log_again_gets_its_writes() {
    let fs = by_hand(&[(5, &[7], true), (6, &[8], false)], 7);
    manifest(&fs, 2, &needs(6, 7));
    let follower = follows(&fs).unwrap();
    assert_eq!(keys(&follower), ["key 8"]);
    manifest(&fs, 3, &needs(5, 6));
    assert_eq!(follower.catch_up().unwrap(), 8);
    assert_eq!(keys(&follower), ["key 7", "key 8"]);
}

/// The next keyspace gets the number of one whose creation a power failure took.
#[test]
fn a_keyspace_that_gets_the_number_of_another_replaces_it() {
    let fs = database(&needs(5, 6));
    put(&mut log(&fs, 5), 0, 7);
    let follower = follows(&fs).unwrap();
    let handle = follower.keyspace("other").unwrap();
    let mut edit = needs(5, 6);
    edit.create_keyspaces[0].1 = "another".into();
    edit.create_keyspaces[0].2 = crate::KeyspaceOptions::default().to_text();
    manifest(&fs, 2, &edit);
    follower.catch_up().unwrap();
    assert_eq!(follower.keyspaces(), ["default", "another"]);
    assert!(handle.get("key").is_err() && handle.put("key", "value").is_err());
    assert_eq!(follower.keyspace("another").unwrap().get("key").unwrap(), None);
    // A manifest that no writer makes.
    manifest(&fs, 3, &VersionEdit { last_seq: Some(1 << 55), ..edit.clone() });
    let error = follower.catch_up().unwrap_err();
    assert!(error.to_string().contains("a sequence number that no database reaches"), "{error}");
}

#[test]
fn finished_logs_that_lead_up_to_the_needed_ones_are_found_and_read_once() {
    let logs: [(LogId, &[SeqNo], bool); 4] =
        [(2, &[1], true), (3, &[3, 4], true), (4, &[5, 6], true), (5, &[7, 8], false)];
    let fs = by_hand(&logs, 6);
    let follower = follows(&fs).unwrap();
    let (db, mut follower) = (follower.inner(), follower_of(&follower).lock());
    let logs = &mut follower.logs;
    let end = |log| (log, fs.file_len(&log_path(dir(), log)).unwrap());
    assert_eq!(logs.before(db, None, 9), []);
    // Log 2 ends before number 2.
    assert_eq!(logs.before(db, Some(5), 9), [end(4), end(3)]);
    let known = |logs: &FollowedLogs| {
        let mut known: Vec<_> = logs.known.keys().copied().collect();
        known.sort();
        known
    };
    assert_eq!(known(logs), [3, 4]);
    let before = fs.operations();
    assert_eq!(logs.before(db, Some(5), 9).len(), 2);
    let again = fs.operations() - before;
    logs.known.clear();
    let before = fs.operations();
    assert_eq!(logs.before(db, Some(5), 9).len(), 2);
    assert!(fs.operations() - before > again);
    fs.remove(&log_path(dir(), 3)).unwrap();
    assert_eq!((logs.before(db, Some(5), 9), known(logs)), (vec![end(4)], vec![4]));
    // Without a write in the log that is needed, the next one tells.
    let fs = by_hand(&[(4, &[5, 6], true), (5, &[], false)], 6);
    let follower = follows(&fs).unwrap();
    let (db, mut follower) = (follower.inner(), follower_of(&follower).lock());
    assert_eq!(follower.logs.before(db, Some(5), 7).len(), 1);
    assert_eq!(follower.logs.before(db, Some(5), 8), []);
}
