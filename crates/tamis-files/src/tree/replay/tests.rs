//! Logs of a few small records, whole, cut or missing, and what a replay makes of them.

use super::*;
use crate::wal::double::ToyFs;
use crate::wal::ops::tag;
use crate::wal::{LogHeader, LogWriter};
use tamis_env::io::Usage;

const DIR: &str = "db";

const SALVAGE: ReplayOptions = ReplayOptions { salvage: true, until: None };

const PLAIN: ReplayOptions = ReplayOptions { salvage: false, until: None };

/// A record: the number of its first write, how many it has, and whether it says that older logs
/// were synced.
type Written = (SeqNo, u64, bool);

/// How a log ends.
#[derive(Clone, Copy)]
enum Last {
    Open,
    Closed,
    Names(LogId),
}

/// Writes a log. Returns where its records start.
fn write(fs: &ToyFs, id: LogId, records: &[Written], last: Last) -> Vec<u64> {
    let path = log_path(Path::new(DIR), id);
    let header = LogHeader { kind: LogKind::Writes, id, reused: false };
    let mut log = LogWriter::create(fs.create(&path, Usage::Log).unwrap(), &path, header).unwrap();
    let mut starts = Vec::new();
    for &(first_seq, count, older_logs_synced) in records {
        let mut payload = Vec::new();
        GroupHeader { first_seq, count, older_logs_synced }.encode(&mut payload);
        (0..count).for_each(|_| payload.extend([tag::DELETE, 0, 1, b'k']));
        starts.push(log.len());
        log.append(&[&payload]).unwrap();
    }
    match last {
        Last::Open => 0,
        Last::Closed => log.finish(None).unwrap(),
        Last::Names(next) => log.finish(Some(next)).unwrap(),
    };
    starts
}

/// Cuts the last byte of a log.
fn cut(fs: &ToyFs, id: LogId) {
    let path = log_path(Path::new(DIR), id);
    let mut bytes = fs.bytes(&path);
    bytes.pop();
    fs.set(&path, bytes);
}

type Writes = Vec<(LogId, SeqNo)>;

fn replayed(fs: &ToyFs, logs: &[LogId], options: ReplayOptions) -> (Writes, Result<Replayed, FileError>) {
    let mut writes = Vec::new();
    let apply = |log, seq, _: &BatchOp<'_>| -> Result<(), FileError> {
        writes.push((log, seq));
        Ok(())
    };
    let replayed = replay(fs, Path::new(DIR), logs, options, apply);
    (writes, replayed)
}

fn whole(fs: &ToyFs, logs: &[LogId]) -> (Writes, Replayed) {
    let (writes, replayed) = replayed(fs, logs, PLAIN);
    let replayed = replayed.unwrap();
    assert_eq!(replayed.stopped, None);
    (writes, replayed)
}

/// Returns what is wrong, in which log, and where.
fn damage(replayed: Result<Replayed, FileError>) -> (LogId, Option<u64>, String) {
    match replayed.unwrap_err() {
        FileError::Storage(StorageError::Corrupt(damage)) => {
            let is_of = |id: &LogId| log_path(Path::new(DIR), *id) == damage.path;
            ((0..10).find(is_of).unwrap(), damage.offset, damage.what.to_string())
        }
        other => panic!("{other}"),
    }
}

#[test]
fn writes_are_numbered_across_logs_and_how_the_logs_end_is_known() {
    let fs = ToyFs::default();
    write(&fs, 3, &[(5, 2, false)], Last::Names(4));
    write(&fs, 4, &[(7, 1, true)], Last::Closed);
    let ends = |replayed: &Replayed| (replayed.any_closed, replayed.last_closed, replayed.last_empty);
    let (writes, both) = whole(&fs, &[3, 4]);
    assert_eq!((writes, both.last_seq), (vec![(3, 5), (3, 6), (4, 7)], 7));
    assert_eq!((ends(&both), both.broken, both.warnings), ((true, true, false), None, vec![]));

    write(&fs, 4, &[(7, 1, true)], Last::Open);
    let (_, open) = whole(&fs, &[3, 4]);
    assert_eq!((ends(&open), open.broken, open.warnings), ((true, false, false), None, vec![]));

    write(&fs, 4, &[], Last::Open);
    let (_, empty) = whole(&fs, &[3, 4]);
    assert_eq!((ends(&empty), empty.last_seq), ((true, false, true), 6));

    write(&fs, 4, &[], Last::Closed);
    let (_, empty) = whole(&fs, &[3, 4]);
    assert_eq!((ends(&empty), empty.last_seq), ((true, false, false), 6));

    let (writes, none) = whole(&fs, &[]);
    assert_eq!((writes, ends(&none), none.last_seq), (vec![], (false, false, false), 0));
}

#[test]
fn a_replay_stops_before_the_record_that_goes_beyond_its_last_write() {
    let fs = ToyFs::default();
    write(&fs, 3, &[(1, 3, false), (4, 2, false)], Last::Names(4));
    write(&fs, 4, &[(6, 1, false)], Last::Closed);
    for (until, last, stopped) in [
        (2, 0, Some((3, 1))),
        (3, 3, Some((3, 4))),
        (4, 3, Some((3, 4))),
        (5, 5, Some((4, 6))),
        (6, 6, None),
        (7, 6, None),
    ] {
        let options = ReplayOptions { until: Some(until), ..PLAIN };
        let (writes, replayed) = replayed(&fs, &[3, 4], options);
        let replayed = replayed.unwrap();
        assert_eq!((replayed.last_seq, replayed.stopped), (last, stopped), "{until}");
        assert_eq!(writes.len() as u64, last, "{until}");
        assert!(stopped.is_none() || !replayed.last_closed && !replayed.last_empty, "{until}");
    }
}

/// The first record may have any number; each later one continues it.
#[test]
fn a_gap_between_numbers_is_damage_and_is_told_in_a_salvage() {
    let fs = ToyFs::default();
    write(&fs, 3, &[(1, 1, false)], Last::Names(4));
    let starts = write(&fs, 4, &[(3, 1, true), (5, 1, true)], Last::Closed);
    let (writes, result) = replayed(&fs, &[3, 4], PLAIN);
    let between = "its first write is number 3, expected 2; a log before it is missing";
    assert_eq!(damage(result), (4, Some(starts[0]), between.to_owned()));
    assert_eq!(writes, [(3, 1)]);
    let (_, result) = replayed(&fs, &[4], PLAIN);
    let within = "its first write is number 5, expected 4";
    assert_eq!(damage(result), (4, Some(starts[1]), within.to_owned()));

    let (writes, result) = replayed(&fs, &[3, 4], SALVAGE);
    let warnings = result.unwrap().warnings;
    assert_eq!(writes, [(3, 1), (4, 3), (4, 5)]);
    let path = log_path(Path::new(DIR), 4);
    let told = |at: u64, what: &str| format!("{} at offset {at}: {what}", path.display());
    assert_eq!(warnings, [told(starts[0], between), told(starts[1], within)]);

    // A number that was given before would stand for two writes.
    write(&fs, 4, &[(1, 1, true)], Last::Closed);
    for options in [PLAIN, SALVAGE] {
        let (writes, result) = replayed(&fs, &[3, 4], options);
        assert_eq!((damage(result).0, writes), (4, vec![(3, 1)]));
    }
}

#[test]
fn a_successor_that_is_missing_is_damage_and_is_told_in_a_salvage() {
    let fs = ToyFs::default();
    write(&fs, 3, &[(1, 1, false)], Last::Names(4));
    write(&fs, 5, &[(2, 1, true)], Last::Closed);
    for logs in [&[3][..], &[3, 5]] {
        let (log, offset, what) = damage(replayed(&fs, logs, PLAIN).1);
        assert_eq!((log, offset), (4, None));
        assert!(what.contains("the log is missing") && what.contains("000003.log"), "{what}");
        let (writes, result) = replayed(&fs, logs, SALVAGE);
        let warnings = result.unwrap().warnings;
        assert_eq!((writes.len(), warnings.len()), (logs.len(), 1), "{warnings:?}");
        assert!(warnings[0].contains("the log is missing"), "{warnings:?}");
    }
}

/// What follows a torn end is dropped, unless it says that what is torn had been synced.
#[test]
fn nothing_after_a_torn_end_is_replayed_but_in_a_salvage() {
    let fs = ToyFs::default();
    let starts = write(&fs, 3, &[(1, 1, false), (2, 1, false)], Last::Open);
    cut(&fs, 3);
    for (synced, dropped) in [(false, 2), (true, 0)] {
        let after = [(2, 1, false), (3, 1, synced)];
        write(&fs, 4, &after, Last::Closed);
        let (writes, result) = replayed(&fs, &[3, 4], PLAIN);
        assert_eq!(writes, [(3, 1)]);
        if synced {
            assert_eq!(damage(result), (3, Some(starts[1]), "a record is torn".to_owned()));
            continue;
        }
        let found = result.unwrap();
        assert_eq!(found.broken, Some((3, starts[1], "a record is torn".to_owned())));
        let [first, second] = &found.warnings[..] else { panic!("{:?}", found.warnings) };
        let cut = format!("cut at offset {}: a record is torn; it was never synced", starts[1]);
        assert!(first.contains("000003.log") && first.contains(&cut), "{first}");
        let told = format!("dropped {dropped} records after the torn end of an older log");
        assert!(second.contains("000004.log") && second.contains(&told), "{second}");
        // Its closing record is that of nothing.
        assert_eq!(found.last_seq, 1);
    }
    let (writes, result) = replayed(&fs, &[3, 4], SALVAGE);
    assert_eq!((writes, result.unwrap().last_seq), (vec![(3, 1), (4, 2), (4, 3)], 3));
}

/// A log that was created ahead and not needed is no reason to warn.
#[test]
fn a_log_without_its_closing_record_is_told_if_a_later_one_has_records() {
    let fs = ToyFs::default();
    write(&fs, 3, &[(1, 1, false)], Last::Open);
    write(&fs, 4, &[], Last::Open);
    let end = fs.bytes(log_path(Path::new(DIR), 3)).len() as u64;
    let broken = Some((3, end, "the log ends without its closing record".to_owned()));
    let (_, ahead) = whole(&fs, &[3, 4]);
    assert_eq!((ahead.broken, ahead.warnings, ahead.last_empty), (broken.clone(), vec![], true));
    write(&fs, 4, &[(2, 1, false)], Last::Open);
    let (writes, lost) = whole(&fs, &[3, 4]);
    assert_eq!((writes, lost.broken, lost.warnings.len()), (vec![(3, 1)], broken, 2));
    assert!(lost.warnings[0].contains("ends without its closing record"), "{:?}", lost.warnings);
}

#[test]
fn a_damaged_record_ends_a_replay_and_is_told_in_a_salvage() {
    let fs = ToyFs::default();
    let path = log_path(Path::new(DIR), 3);
    let header = LogHeader { kind: LogKind::Writes, id: 3, reused: false };
    let mut log = LogWriter::create(fs.create(&path, Usage::Log).unwrap(), &path, header).unwrap();
    let mut starts = Vec::new();
    for first_seq in 1..=3 {
        let mut payload = Vec::new();
        GroupHeader { first_seq, count: 1, older_logs_synced: true }.encode(&mut payload);
        payload.extend([tag::DELETE, 0, 1, b'k']);
        starts.push(log.len());
        log.append(&[&payload]).unwrap();
        log.sync().unwrap();
    }
    log.close().unwrap();
    let mut bytes = fs.bytes(&path);
    bytes[starts[2] as usize - 1] ^= 1;
    fs.set(&path, bytes);
    let (log, offset, what) = damage(replayed(&fs, &[3], PLAIN).1);
    assert_eq!((log, offset), (3, Some(starts[1])), "{what}");
    let (writes, result) = replayed(&fs, &[3], SALVAGE);
    let result = result.unwrap();
    assert_eq!((writes, result.last_seq, result.last_closed), (vec![(3, 1), (3, 3)], 3, true));
    let [skipped, gap] = &result.warnings[..] else { panic!("{:?}", result.warnings) };
    assert!(skipped.contains("expected 2") && gap.contains("skipped the"), "{:?}", result.warnings);
}

/// The count of a record and its operations must agree, or all later numbers are wrong.
#[test]
fn a_record_whose_count_is_wrong_is_damage() {
    for count in [1, 3] {
        let fs = ToyFs::default();
        let path = log_path(Path::new(DIR), 3);
        let header = LogHeader { kind: LogKind::Writes, id: 3, reused: false };
        let mut log = LogWriter::create(fs.create(&path, Usage::Log).unwrap(), &path, header).unwrap();
        let mut payload = Vec::new();
        GroupHeader { first_seq: 1, count, older_logs_synced: true }.encode(&mut payload);
        payload.extend([tag::DELETE, 0, 1, b'k', tag::DELETE, 0, 1, b'l']);
        log.append(&[&payload]).unwrap();
        let what = damage(replayed(&fs, &[3], PLAIN).1).2;
        assert!(what.contains("count of operations is wrong"), "{what}");
    }
}

#[test]
fn the_first_write_of_a_log_is_found_without_reading_the_rest() {
    let fs = ToyFs::default();
    let first = |id| first_write(&fs, &log_path(Path::new(DIR), id), id).unwrap();
    write(&fs, 3, &[(7, 2, false), (9, 1, false)], Last::Open);
    let bytes = fs.bytes(log_path(Path::new(DIR), 3)).len() as u64;
    assert_eq!(first(3), Some((7, bytes)));
    write(&fs, 4, &[], Last::Closed);
    assert_eq!(first(4), None);
}

/// A crash may keep the name of a log that was created ahead, and nothing else of it.
#[test]
fn a_log_without_a_header_is_told_only_if_a_later_one_has_records() {
    let fs = ToyFs::default();
    write(&fs, 3, &[(1, 1, false)], Last::Names(4));
    fs.set(log_path(Path::new(DIR), 4), b"not a header".to_vec());
    let (writes, found) = whole(&fs, &[3, 4]);
    assert_eq!((writes, found.last_seq), (vec![(3, 1)], 1));
    assert_eq!(found.broken, Some((4, 0, "a record is torn".to_owned())));
    assert_eq!((found.warnings, found.last_closed, found.last_empty), (vec![], false, false));
    write(&fs, 5, &[(2, 1, false)], Last::Open);
    let (writes, found) = whole(&fs, &[3, 4, 5]);
    assert_eq!((writes, found.warnings.len()), (vec![(3, 1)], 1), "{:?}", found.warnings);
    assert!(found.warnings[0].contains("dropped 1 records"), "{:?}", found.warnings);
}
