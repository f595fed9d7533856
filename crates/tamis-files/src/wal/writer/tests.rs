//! What each call does to the file, on a machine that counts operations.

use std::io::ErrorKind;

use tamis_env::io::{FileSystem, Usage};
use tamis_testkit::{FaultPlan, FaultyFs, OpClass};

use super::*;
use crate::wal::LogKind;

const PATH: &str = "/000007.log";

fn writer(fs: &FaultyFs) -> LogWriter {
    let header = LogHeader { kind: LogKind::Writes, id: 7, reused: false };
    LogWriter::create(fs.create(Path::new(PATH), Usage::Log).unwrap(), Path::new(PATH), header).unwrap()
}

fn size(fs: &FaultyFs) -> u64 {
    fs.files()[0].1
}

/// Returns how many operations on files `work` takes.
fn operations<T>(fs: &FaultyFs, work: impl FnOnce() -> T) -> (T, u64) {
    let before = fs.operations();
    (work(), fs.operations() - before)
}

/// Returns the size of the payload with which the next record ends at `end`.
fn payload_up_to(log: &LogWriter, end: u64) -> usize {
    let mut head = Vec::new();
    let ends_there = |len: &u64| {
        RecordHead::encode(&mut head, 7, log.len(), RecordType::Data, *len, log.synced());
        log.len() + head.len() as u64 + len == end
    };
    (0..end).find(ends_there).unwrap() as usize
}

#[test]
fn a_log_takes_what_was_written_and_is_empty_before() {
    let fs = FaultyFs::new(1);
    let mut log = writer(&fs);
    assert!(log.is_empty());
    assert_eq!((log.len(), log.allocated(), size(&fs)), (HEADER_BYTES, HEADER_BYTES, HEADER_BYTES));
    let end = log.append(&[&[7; 3000]]).unwrap();
    assert!(!log.is_empty());
    assert_eq!((log.len(), log.allocated(), size(&fs)), (end, end, end));
    assert!((3000..100_000).contains(&log.memory_bytes()), "{} bytes", log.memory_bytes());
}

#[test]
fn space_that_is_there_is_not_reserved_and_space_that_is_not_there_not_given_back() {
    let fs = FaultyFs::new(1);
    let mut log = writer(&fs);
    assert_eq!(operations(&fs, || log.preallocate(HEADER_BYTES)), (true, 0));
    assert_eq!(operations(&fs, || log.preallocate(1000)), (true, 1));
    assert_eq!((log.allocated(), size(&fs)), (1000, 1000));
    assert_eq!(operations(&fs, || log.preallocate(1000)), (true, 0));
    assert_eq!(operations(&fs, || log.append(&[b"record"]).unwrap()).1, 1);
    assert_eq!((log.allocated(), size(&fs)), (1000, 1000));
    assert_eq!(operations(&fs, || log.give_back()).1, 1);
    assert_eq!((log.allocated(), size(&fs)), (log.len(), log.len()));
    assert_eq!(operations(&fs, || log.give_back()).1, 0);
    // Up to the last byte.
    assert!(log.preallocate(2000));
    let payload = payload_up_to(&log, 2000);
    assert_eq!(log.append(&[&vec![0; payload]]).unwrap(), 2000);
    assert_eq!(operations(&fs, || log.give_back()).1, 0);
    assert_eq!(size(&fs), 2000);
}

#[test]
fn a_refused_reservation_is_retried_once_the_log_needs_the_space() {
    for len in [100, 4999, 5000] {
        let fs = FaultyFs::new(1);
        let mut log = writer(&fs);
        assert!(log.preallocate(70));
        fs.set_capacity(Some(1000));
        assert_eq!(operations(&fs, || log.preallocate(5000)), (false, 1));
        assert_eq!((log.allocated(), size(&fs)), (70, 70), "it keeps what it has");
        fs.set_capacity(None);
        let payload = payload_up_to(&log, len);
        assert_eq!(log.append(&[&vec![0; payload]]).unwrap(), len);
        let retried = len >= 5000;
        assert_eq!(operations(&fs, || log.preallocate(6000)), (true, u64::from(retried)), "{len}");
        log.retry_preallocation();
        assert_eq!(operations(&fs, || log.preallocate(7000)), (true, 1));
        assert_eq!((log.allocated(), size(&fs)), (7000, 7000));
    }
}

#[test]
fn after_a_failure_the_file_is_left_as_it_is() {
    let fs = FaultyFs::new(1);
    let mut log = writer(&fs);
    assert!(log.preallocate(1000));
    let error = ErrorKind::Other;
    fs.plan(FaultPlan { fail_at: Some(0), error, only: Some(OpClass::Sync), ..FaultPlan::none() });
    log.sync().unwrap_err();
    assert_eq!(operations(&fs, || log.preallocate(2000)), (true, 0));
    assert_eq!(operations(&fs, || log.give_back()).1, 0);
    assert_eq!((log.allocated(), size(&fs)), (1000, 1000));
}

#[test]
fn a_closed_log_is_durable_and_ends_with_its_last_record() {
    let fs = FaultyFs::new(1);
    let mut log = writer(&fs);
    fs.sync_dir(Path::new("/")).unwrap();
    assert!(log.preallocate(1000));
    log.append(&[b"record"]).unwrap();
    let end = log.close().unwrap();
    assert_eq!(size(&fs), end);
    let durable = fs.durable_bytes(PATH).unwrap();
    assert_eq!(durable, tamis_env::io::read_file(&fs, Path::new(PATH)).unwrap());
}

/// Here, writing the buffer and a part behind it are two appends.
#[test]
fn parts_from_the_stated_length_on_are_written_from_where_they_are() {
    let fs = FaultyFs::new(1);
    let mut log = writer(&fs);
    let part = vec![1; 2 * LONG_PART];
    for (lens, appends) in [
        (&[LONG_PART - 1, LONG_PART - 1][..], 1),
        (&[LONG_PART], 2),
        (&[LONG_PART, LONG_PART], 3),
        (&[10, LONG_PART, 10], 3),
        (&[LONG_PART + 1, 10, LONG_PART - 1], 3),
    ] {
        let parts: Vec<_> = lens.iter().map(|&len| &part[..len]).collect();
        assert_eq!(operations(&fs, || log.append(&parts).unwrap()).1, appends, "{lens:?}");
    }
}

/// More would be held in memory, or written in more pieces than needed.
#[test]
fn short_parts_are_assembled_up_to_the_stated_length() {
    // A payload of this length, beyond a log's header.
    const HEAD: usize = 12 + 1 + 3 + 1;
    let short = vec![1; LONG_PART - 1];
    let parts = |mut len: usize| {
        let mut parts = Vec::new();
        while len > 0 {
            let part = &short[..len.min(short.len())];
            parts.push(part);
            len -= part.len();
        }
        parts
    };
    let appends = |parts: &[&[u8]]| {
        let fs = FaultyFs::new(1);
        let mut log = writer(&fs);
        operations(&fs, || log.append(parts).unwrap()).1
    };
    // As a whole, although the head makes the record longer.
    assert_eq!(appends(&[&parts(ASSEMBLE_BYTES - 5)[..], &[&[1; 5]]].concat()), 1);
    // One byte more, and the buffer is full before the last part, or not.
    for (before_last, expected) in [(ASSEMBLE_BYTES - HEAD - 1, 1), (ASSEMBLE_BYTES - HEAD, 2)] {
        let parts = [&parts(before_last)[..], &[&[1; 100]]].concat();
        assert_eq!(appends(&parts), expected, "{before_last}");
    }
}
