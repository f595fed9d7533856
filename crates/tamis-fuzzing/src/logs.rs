//! Logs and manifests.

use std::path::Path;

use tamis::StorageError;
use tamis::io::{Access, FileSystem, MemFs};
use tamis_base::key::MAX_SEQNO;
use tamis_doctor::inspect::dump_log;
use tamis_files::error::FileError;
use tamis_files::tree::files::log_path;
use tamis_files::tree::replay::{ReplayOptions, replay};
use tamis_files::wal::{End, LogKind, LogReader, ReadOptions};

use crate::{empty_fs, put, reseal};

const HEADER_BYTES: u64 = 32;

/// Checks a write-ahead log, read as recovery and `tamis dump` read it.
pub fn log(bytes: &[u8]) {
    check_log(bytes);
    let sealed = reseal::log(bytes);
    if sealed != bytes {
        check_log(&sealed);
    }
}

/// The result of reading a log.
#[derive(Debug, PartialEq)]
struct Reading {
    /// Start, end and payload of each record.
    records: Vec<(u64, u64, Vec<u8>)>,
    end: Option<End>,
    damage: Option<String>,
    gaps: usize,
}

/// Reads a log; `None` if it cannot be opened at all (another kind, a newer version).
fn read(bytes: &[u8], id: u64, options: ReadOptions) -> Option<Reading> {
    let (fs, path) = (MemFs::new(), Path::new("log"));
    put(&fs, path, bytes);
    let file = fs.open(path, Access::Sequential).expect("just made");
    let mut reading = Reading { records: Vec::new(), end: None, damage: None, gaps: 0 };
    let mut reader = match LogReader::open(file, path, LogKind::Writes, id, options) {
        Ok(reader) => reader,
        Err(FileError::Storage(StorageError::Corrupt(damage))) if !options.salvage => {
            reading.damage = Some(damage.what);
            return Some(reading);
        }
        Err(FileError::Format { .. } | FileError::Storage(StorageError::Corrupt(_))) => return None,
        Err(other) => panic!("reading memory failed: {other}"),
    };
    let mut last_end = 0;
    loop {
        match reader.next_record() {
            Ok(Some(record)) => {
                assert!(record.offset >= HEADER_BYTES.max(last_end), "records overlap");
                assert!(record.end > record.offset && record.end <= bytes.len() as u64);
                assert!(record.synced <= record.offset, "a record claims a sync of bytes not written yet");
                last_end = record.end;
                reading.records.push((record.offset, record.end, record.payload.to_vec()));
            }
            Ok(None) => break,
            Err(error) => {
                reading.damage = Some(error.to_string());
                break;
            }
        }
    }
    reading.end = reader.end().cloned();
    let end = reading.end.as_ref().expect("a reader that stops knows how the log ends");
    if let End::Closed { offset, .. } | End::Clean { offset } | End::Torn { offset } = end {
        assert!((last_end..=bytes.len() as u64).contains(offset), "{end:?} behind a record at {last_end}");
    }
    let mut covered = 0;
    for gap in reader.gaps() {
        assert!(gap.start >= covered && gap.start <= gap.end && gap.end <= bytes.len() as u64, "{gap}");
        assert!(reading.records.iter().all(|(start, end, _)| *end <= gap.start || gap.end <= *start));
        covered = gap.end;
    }
    reading.gaps = reader.gaps().len();
    match options.salvage {
        true => assert_eq!(reading.damage, None, "a salvaging reader reads to the end"),
        false => {
            assert_eq!(reading.gaps, 0, "only a salvaging reader skips");
            assert_eq!(reading.damage.is_some(), matches!(reading.end, Some(End::Damaged { .. })));
        }
    }
    Some(reading)
}

fn check_log(bytes: &[u8]) {
    let id = reseal::log_id(bytes);
    for expect_complete in [false, true] {
        let strict = read(bytes, id, ReadOptions { expect_complete, salvage: false });
        let salvaged = read(bytes, id, ReadOptions { expect_complete, salvage: true });
        let (Some(strict), Some(salvaged)) = (strict, salvaged) else { continue };
        assert!(salvaged.records.starts_with(&strict.records), "salvage lost records");
        if strict.damage.is_none() {
            assert_eq!(strict, salvaged, "salvage changes an undamaged log");
        }
        let Some(End::Torn { offset } | End::Clean { offset } | End::Closed { offset, .. }) = strict.end
        else {
            continue;
        };
        if !expect_complete || matches!(strict.end, Some(End::Closed { .. })) {
            // Nothing behind the end of the log is part of it.
            let cut = &bytes[..offset as usize];
            let again = read(cut, id, ReadOptions { expect_complete, salvage: false }).expect("still a log");
            assert_eq!(again.records, strict.records, "bytes behind the end matter");
            assert_eq!((again.damage, again.gaps), (None, 0));
        }
    }
    check_replay(bytes, id);
}

fn check_replay(bytes: &[u8], id: u64) {
    let (fs, dir) = (empty_fs(), Path::new("db"));
    put(&fs, &log_path(dir, id), bytes);
    let run = |salvage: bool| {
        let (mut last, mut applied) = (0, Vec::new());
        let options = ReplayOptions { salvage, until: None };
        let replayed = replay::<FileError>(&fs, dir, &[id], options, |log, seq, op| {
            assert_eq!(log, id);
            assert!(seq > last && seq <= MAX_SEQNO, "write {seq} follows write {last}");
            last = seq;
            applied.push(format!("{op:?}"));
            Ok(())
        });
        replayed.map(|replayed| (replayed.last_seq, last, applied))
    };
    let (strict, salvaged) = (run(false), run(true));
    if let Ok((replayed, last, ..)) = &strict {
        assert_eq!(replayed, last, "the last write is the last one applied");
        assert_eq!(strict.as_ref().ok(), salvaged.as_ref().ok(), "salvage changes an undamaged log");
    }
    let _ = dump_log(&fs, &log_path(dir, id), &mut std::io::sink());
}
