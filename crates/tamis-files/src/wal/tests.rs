//! Logs are written, damaged in every way a medium or an operator can, and read back.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use tamis_env::io::{Access, FileSystem, Usage};

use super::double::ToyFs;
use super::format::HEADER_BYTES;
use super::reader::Gap;
use super::window::CHUNK_BYTES;
use super::*;
use crate::error::{FileError, StorageError};

const NAME: &str = "d/000007.log";
const HEADER: LogHeader = LogHeader { kind: LogKind::Writes, id: 7, reused: false };

fn writer(fs: &ToyFs) -> LogWriter {
    let path = Path::new(NAME);
    LogWriter::create(fs.create(path, Usage::Log).unwrap(), path, HEADER).unwrap()
}

/// The result of reading a whole log.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) records: Vec<(u64, Vec<u8>)>,
    pub(super) end: Option<End>,
    pub(super) gaps: Vec<Gap>,
    pub(super) error: Option<StorageError>,
}

impl Outcome {
    pub(super) fn payloads(&self) -> Vec<&[u8]> {
        self.records.iter().map(|(_, payload)| &payload[..]).collect()
    }

    pub(super) fn damaged_at(&self) -> Option<u64> {
        match &self.error {
            Some(StorageError::Corrupt(c)) => c.offset,
            _ => None,
        }
    }

    /// The offset at which the log ended without damage and its rest was dropped.
    fn dropped_at(&self) -> Option<u64> {
        match &self.end {
            Some(End::Torn { offset } | End::Clean { offset }) if self.error.is_none() => Some(*offset),
            _ => None,
        }
    }
}

pub(super) fn read(bytes: &[u8], options: ReadOptions) -> Outcome {
    let fs = ToyFs::default();
    fs.set(NAME, bytes.to_vec());
    read_from(&fs, options)
}

fn read_from(fs: &ToyFs, options: ReadOptions) -> Outcome {
    let path = Path::new(NAME);
    let mut outcome = Outcome { records: Vec::new(), end: None, gaps: Vec::new(), error: None };
    let file = fs.open(path, Access::Sequential).unwrap();
    let mut reader = match LogReader::open(file, path, LogKind::Writes, 7, options) {
        Ok(reader) => reader,
        Err(FileError::Storage(e)) => return Outcome { error: Some(e), ..outcome },
        Err(e) => panic!("{e}"),
    };
    loop {
        match reader.next_record() {
            Ok(Some(record)) => outcome.records.push((record.offset, record.payload.to_vec())),
            Ok(None) => break,
            Err(e) => {
                outcome.error = Some(e);
                break;
            }
        }
    }
    outcome.end = reader.end().cloned();
    outcome.gaps = reader.gaps().to_vec();
    outcome
}

pub(super) const PLAIN: ReadOptions = ReadOptions { expect_complete: false, salvage: false };
pub(super) const COMPLETE: ReadOptions = ReadOptions { expect_complete: true, salvage: false };
pub(super) const SALVAGE: ReadOptions = ReadOptions { expect_complete: false, salvage: true };

/// Writes a log of the given records, each synced or not; returns its bytes and the end of every
/// record.
pub(super) fn log_of(records: &[(Vec<u8>, bool)]) -> (Vec<u8>, Vec<u64>) {
    let fs = ToyFs::default();
    let mut log = writer(&fs);
    let mut ends = Vec::new();
    for (payload, synced) in records {
        ends.push(log.append(&[payload]).unwrap());
        if *synced {
            log.sync().unwrap();
        }
    }
    (fs.bytes(NAME), ends)
}

pub(super) fn three(synced: bool) -> (Vec<u8>, Vec<u64>) {
    log_of(&[(b"first".to_vec(), synced), (b"second".to_vec(), synced), (b"third".to_vec(), synced)])
}

#[test]
fn records_come_back_in_order_and_parts_are_joined() {
    let fs = ToyFs::default();
    let mut log = writer(&fs);
    log.append(&[b"a", b"", b"bc"]).unwrap();
    log.append(&[]).unwrap();
    let end = log.append(&[b"d"]).unwrap();
    assert_eq!((log.len(), log.synced()), (end, 0));
    assert_eq!(fs.appends(), 4, "one call for the header and one for each record");
    let outcome = read_from(&fs, PLAIN);
    assert_eq!(outcome.payloads(), [&b"abc"[..], b"", b"d"]);
    assert_eq!(outcome.end, Some(End::Clean { offset: end }));
}

#[test]
fn a_closed_log_is_complete_and_an_unclosed_one_is_not() {
    let fs = ToyFs::default();
    let mut log = writer(&fs);
    let data_end = log.append(&[b"a"]).unwrap();
    let unclosed = fs.bytes(NAME);
    let end = log.close().unwrap();
    let outcome = read_from(&fs, COMPLETE);
    assert_eq!(outcome.payloads(), [b"a"]);
    assert_eq!(outcome.end, Some(End::Closed { offset: end, successor: None }));
    assert_eq!(read(&unclosed, COMPLETE).damaged_at(), Some(data_end));
    for cut in 0..fs.bytes(NAME).len() {
        assert!(read(&fs.bytes(NAME)[..cut], COMPLETE).damaged_at().is_some(), "cut at {cut}");
    }
}

#[test]
fn a_log_cut_at_any_byte_yields_only_its_whole_records() {
    let (bytes, ends) = three(false);
    for cut in 0..bytes.len() {
        let outcome = read(&bytes[..cut], PLAIN);
        let whole = ends.iter().filter(|&&end| end <= cut as u64).count();
        assert_eq!(outcome.payloads(), [&b"first"[..], b"second", b"third"][..whole], "cut at {cut}");
        let kept = match whole {
            0 if cut < HEADER_BYTES as usize => 0,
            0 => HEADER_BYTES,
            n => ends[n - 1],
        };
        assert_eq!(outcome.dropped_at(), Some(kept), "cut at {cut}");
    }
}

#[test]
fn a_corrupted_last_record_is_torn_at_any_byte() {
    let (bytes, ends) = three(true);
    for at in ends[1] as usize..bytes.len() {
        let mut hurt = bytes.clone();
        hurt[at] ^= 0x10;
        let outcome = read(&hurt, PLAIN);
        assert_eq!(outcome.payloads(), [&b"first"[..], b"second"], "byte {at}");
        assert_eq!(outcome.end, Some(End::Torn { offset: ends[1] }), "byte {at}");
    }
}

#[test]
fn a_corrupted_record_is_damage_if_a_later_one_proves_it_was_synced() {
    let (synced, ends) = three(true);
    let (unsynced, _) = three(false);
    for at in HEADER_BYTES as usize..ends[0] as usize {
        let (mut damaged, mut torn) = (synced.clone(), unsynced.clone());
        damaged[at] ^= 1;
        torn[at] ^= 1;
        assert_eq!(read(&damaged, PLAIN).damaged_at(), Some(HEADER_BYTES), "byte {at}");
        let outcome = read(&torn, PLAIN);
        assert!(outcome.records.is_empty());
        assert_eq!(outcome.end, Some(End::Torn { offset: HEADER_BYTES }), "byte {at}");
    }
}

#[test]
fn a_hole_of_zeros_in_synced_bytes_is_damage() {
    let (mut bytes, ends) = three(true);
    bytes[ends[0] as usize..ends[1] as usize].fill(0);
    assert_eq!(read(&bytes, PLAIN).damaged_at(), Some(ends[0]));
}

#[test]
fn the_proof_may_come_long_after_the_damage() {
    // Only the last record was written after a sync; those between say nothing about the first.
    let mut records = vec![(vec![1; 600], false); 40];
    records[39].1 = true;
    records.push((b"after the sync".to_vec(), false));
    let (bytes, ends) = log_of(&records);
    let mut hurt = bytes.clone();
    hurt[100] ^= 1;
    assert_eq!(read(&hurt, PLAIN).damaged_at(), Some(HEADER_BYTES));
    hurt.truncate(ends[39] as usize);
    assert_eq!(read(&hurt, PLAIN).end, Some(End::Torn { offset: HEADER_BYTES }));
}

#[test]
fn a_corrupted_header_is_damage_if_a_record_follows_it() {
    let (bytes, _) = three(false);
    for at in 0..HEADER_BYTES as usize {
        let mut hurt = bytes.clone();
        hurt[at] ^= 4;
        assert_eq!(read(&hurt, PLAIN).damaged_at(), Some(0), "byte {at}");
        let salvaged = read(&hurt, SALVAGE);
        assert_eq!(salvaged.records.len(), 3);
        assert_eq!((salvaged.gaps[0].start, salvaged.gaps[0].end), (0, HEADER_BYTES));
        let alone = read(&hurt[..HEADER_BYTES as usize], PLAIN);
        assert_eq!(alone.dropped_at(), Some(0));
    }
}

#[test]
fn a_log_of_another_kind_or_a_newer_format_is_refused() {
    let (bytes, _) = three(true);
    let fs = ToyFs::default();
    fs.set(NAME, bytes.clone());
    let path = Path::new(NAME);
    let open = |kind| LogReader::open(fs.open(path, Access::Sequential).unwrap(), path, kind, 7, PLAIN);
    assert!(matches!(open(LogKind::Manifest), Err(FileError::Storage(StorageError::Corrupt(_)))));
    let mut newer = bytes;
    newer[8] = 9;
    let checksum = xxhash_rust::xxh3::xxh3_64(&newer[..24]);
    newer[24..32].copy_from_slice(&checksum.to_le_bytes());
    fs.set(NAME, newer);
    assert!(matches!(open(LogKind::Writes), Err(FileError::Format { found: 9, .. })));
}

/// Two logs under each other's names were both taken for recycled files whose new headers had not
/// reached the disk: empty, silently losing all their writes.
#[test]
fn a_later_log_under_an_earlier_name_is_damage() {
    let (bytes, _) = three(true);
    let open = |id, salvage| {
        let fs = ToyFs::default();
        fs.set(NAME, bytes.clone());
        let file = fs.open(Path::new(NAME), Access::Sequential).unwrap();
        let options = ReadOptions { expect_complete: false, salvage };
        let reader = LogReader::open(file, Path::new(NAME), LogKind::Writes, id, options);
        reader.map(|mut reader| reader.next_record().unwrap().is_some())
    };
    assert!(open(7, false).unwrap());
    let refused = open(6, false).unwrap_err().to_string();
    assert!(refused.contains("it holds log 7"), "{refused}");
    // A recycled file holds an earlier log until its header is written.
    assert!(!open(8, false).unwrap());
    assert!(!open(6, true).unwrap(), "salvage takes what it can, which is nothing here");
}

#[test]
fn old_records_of_a_recycled_file_never_come_back() {
    let fs = ToyFs::default();
    let old = Path::new("d/000003.log");
    let header = LogHeader { id: 3, ..HEADER };
    let mut log = LogWriter::create(fs.create(old, Usage::Log).unwrap(), old, header).unwrap();
    for _ in 0..50 {
        log.append(&[b"stale"]).unwrap();
        log.sync().unwrap();
    }
    log.close().unwrap();
    let stale = fs.bytes(old);

    let path = Path::new(NAME);
    let header = LogHeader { reused: true, ..HEADER };
    let mut log = LogWriter::create(fs.reuse(old, path).unwrap(), path, header).unwrap();
    // The same record lengths as before, so that old records start where new ones would.
    let mut end = HEADER_BYTES;
    for _ in 0..10 {
        end = log.append(&[b"fresh"]).unwrap();
        log.sync().unwrap();
    }
    assert_eq!(fs.bytes(NAME).len(), stale.len());
    let outcome = read_from(&fs, PLAIN);
    assert_eq!(outcome.payloads(), [b"fresh"; 10]);
    assert_eq!(outcome.end, Some(End::Clean { offset: end }));

    // The rename survived a power cut, but no byte of the new log did.
    let outcome = read(&stale, PLAIN);
    assert!(outcome.records.is_empty());
    assert_eq!(outcome.end, Some(End::Clean { offset: 0 }));
}

#[test]
fn preallocated_zeros_are_a_clean_end() {
    let fs = ToyFs::default();
    let mut log = writer(&fs);
    log.preallocate(1 << 20);
    assert_eq!(read_from(&fs, PLAIN).end, Some(End::Clean { offset: HEADER_BYTES }));
    let end = log.append(&[b"a"]).unwrap();
    assert_eq!(fs.bytes(NAME).len(), 1 << 20);
    let outcome = read_from(&fs, PLAIN);
    assert_eq!(outcome.payloads(), [b"a"]);
    assert_eq!(outcome.end, Some(End::Clean { offset: end }));
    assert_eq!(read(&[0; 5000], PLAIN).end, Some(End::Clean { offset: 0 }), "created, never written");
}

/// Rolled logs used to keep the space reserved for a full memtable or left over from a recycled
/// file.
#[test]
fn a_finished_log_releases_the_space_after_its_end() {
    for reused in [false, true] {
        let fs = ToyFs::default();
        let mut log = if reused {
            let old = Path::new("d/000003.log");
            fs.set(old, vec![0xEE; 1 << 20]);
            let (path, header) = (Path::new(NAME), LogHeader { reused: true, ..HEADER });
            LogWriter::create(fs.reuse(old, path).unwrap(), path, header).unwrap().in_file_of(1 << 20)
        } else {
            let mut log = writer(&fs);
            assert!(log.preallocate(1 << 20));
            log
        };
        assert_eq!(log.allocated(), 1 << 20);
        log.append(&[b"first"]).unwrap();
        log.sync().unwrap();
        log.append(&[b"second"]).unwrap();
        let reader = fs.open(Path::new(NAME), Access::Sequential).unwrap();
        let mut reader = LogReader::open(reader, Path::new(NAME), LogKind::Writes, 7, PLAIN).unwrap();
        let end = log.finish(Some(9)).unwrap();
        log.give_back();
        assert_eq!((log.allocated(), fs.bytes(NAME).len() as u64), (end, end));
        log.sync().unwrap();
        let outcome = read_from(&fs, ReadOptions { expect_complete: true, salvage: false });
        assert_eq!(outcome.payloads(), [&b"first"[..], b"second"]);
        assert_eq!(outcome.end, Some(End::Closed { offset: end, successor: Some(9) }));
        // A reader opened before reads its content or gets an error, never another end.
        while let Ok(Some(_)) = reader.next_record() {}
        assert!(matches!(reader.end(), None | Some(End::Closed { .. })), "{:?}", reader.end());
    }
}

#[test]
fn salvage_skips_damage_and_reports_it() {
    let records: Vec<_> = (0..20u8).map(|i| (vec![i; 30], true)).collect();
    let (mut bytes, ends) = log_of(&records);
    bytes[ends[2] as usize + 20] ^= 1;
    bytes[ends[9] as usize..ends[11] as usize].fill(0xEE);
    let outcome = read(&bytes, SALVAGE);
    let kept: Vec<u8> = outcome.records.iter().map(|(_, payload)| payload[0]).collect();
    let expected: Vec<u8> = (0..20).filter(|i| ![3, 10, 11].contains(i)).collect();
    assert_eq!(kept, expected);
    let gaps: Vec<_> = outcome.gaps.iter().map(|gap| (gap.start, gap.end)).collect();
    assert_eq!(gaps, [(ends[2], ends[3]), (ends[9], ends[11])]);
    assert_eq!(outcome.end, Some(End::Clean { offset: ends[19] }));
    assert_eq!(read(&bytes, PLAIN).damaged_at(), Some(ends[2]));
}

/// Short parts are assembled, long ones written from where they are: the record is the same.
#[test]
fn a_record_is_its_parts_whatever_their_sizes() {
    let content: Vec<u8> = (0..30_000u32).map(|i| (i.wrapping_mul(i) >> 5) as u8).collect();
    let sizes = [0, 1, 4095, 4096, 10_000];
    let fs = ToyFs::default();
    let mut log = writer(&fs);
    let mut expected = Vec::new();
    for at in 0..sizes.len().pow(3) {
        let (first, second, third) = (sizes[at % 5], sizes[at / 5 % 5], sizes[at / 25]);
        let parts = [&content[..first], &content[first..first + second], &content[..third]];
        log.append(&parts).unwrap();
        expected.push(parts.concat());
    }
    let outcome = read_from(&fs, PLAIN);
    assert_eq!(outcome.end, Some(End::Clean { offset: log.len() }));
    assert!(outcome.payloads() == expected);
}

#[test]
fn huge_records_round_trip_without_being_assembled() {
    let fs = ToyFs::default();
    let mut log = writer(&fs);
    let big: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
    let before = fs.appends();
    log.append(&[b"head", &big, b"tail"]).unwrap();
    assert_eq!(fs.appends() - before, 3);
    let end = log.append(&[b"next"]).unwrap();
    log.sync().unwrap();
    log.append(&[b"last"]).unwrap();
    let outcome = read_from(&fs, PLAIN);
    assert_eq!(outcome.records[0].1, [b"head", &big[..], b"tail"].concat());
    assert_eq!(outcome.payloads()[1..], [b"next", b"last"]);
    let mut hurt = fs.bytes(NAME);
    hurt[2_000_000] ^= 1;
    assert_eq!(read(&hurt, PLAIN).damaged_at(), Some(HEADER_BYTES));
    assert_eq!(read(&hurt, SALVAGE).payloads(), [b"next", b"last"]);
    hurt.truncate(end as usize);
    assert_eq!(read(&hurt, PLAIN).end, Some(End::Torn { offset: HEADER_BYTES }));
}

/// However many short parts a record has, the writer holds a bounded piece of it in memory.
#[test]
fn a_record_of_many_short_parts_is_written_piece_by_piece() {
    let fs = ToyFs::default();
    let mut log = writer(&fs);
    let part: Vec<u8> = (0..4095u32).map(|i| (i * i) as u8).collect();
    let parts = vec![&part[..]; 800];
    let before = fs.appends();
    log.append(&parts).unwrap();
    assert_eq!(fs.appends() - before, 4, "three full pieces of a mebibyte and the rest");
    log.append(&[b"next"]).unwrap();
    assert!(log.memory_bytes() <= 4 << 20, "{} bytes are held", log.memory_bytes());
    let outcome = read_from(&fs, PLAIN);
    assert_eq!(outcome.payloads(), [&parts.concat()[..], b"next"]);
}

#[test]
fn a_record_across_a_read_boundary_is_found() {
    for before in 0..40 {
        // The first record's head takes 12 + 1 + 3 + 1 bytes.
        let payload = vec![0xAB; CHUNK_BYTES - before - HEADER_BYTES as usize - 17];
        let (mut bytes, ends) = log_of(&[(payload, true), (b"next".to_vec(), false)]);
        assert_eq!(ends[0], (CHUNK_BYTES - before) as u64);
        bytes[HEADER_BYTES as usize + 8] ^= 1;
        assert_eq!(read(&bytes, SALVAGE).payloads(), [b"next"], "{before} bytes before the boundary");
    }
}

#[test]
fn a_record_right_after_any_number_of_zeros_is_found() {
    for zeros in 40..240 {
        let (mut bytes, ends) = log_of(&[(vec![0; zeros], true), (b"next".to_vec(), false)]);
        bytes[HEADER_BYTES as usize..ends[0] as usize].fill(0);
        assert_eq!(read(&bytes, SALVAGE).payloads(), [b"next"], "{zeros} zeros");
    }
}

#[test]
fn a_payload_full_of_false_heads_does_not_slow_the_search_down() {
    // But for the head check, each 32-bit group reads as a data record of two million bytes, and
    // this takes hours.
    let lure: Vec<u8> = [1, 0xFF, 0xFF, 0x7F].repeat(1 << 20);
    let (mut bytes, ends) = log_of(&[(lure, true), (b"proof".to_vec(), false)]);
    bytes[500] ^= 1;
    assert_eq!(read(&bytes, PLAIN).damaged_at(), Some(HEADER_BYTES));
    bytes.truncate(ends[0] as usize);
    assert_eq!(read(&bytes, PLAIN).end, Some(End::Torn { offset: HEADER_BYTES }));
}

#[test]
fn after_a_failed_write_or_sync_the_writer_repeats_the_error() {
    for failing in [1, 2] {
        let fs = ToyFs::default();
        let mut log = writer(&fs);
        fs.fail_after(failing - 1);
        let result = log.append(&[b"a"]).and_then(|_| log.sync());
        assert!(result.unwrap_err().is_out_of_space());
        fs.heal();
        let len = fs.bytes(NAME).len();
        assert!(log.append(&[b"b"]).unwrap_err().is_out_of_space());
        assert!(log.sync().is_err() && log.check().is_err() && log.close().is_err());
        assert_eq!(fs.bytes(NAME).len(), len, "nothing was written after the failure");
    }
}

fn records() -> impl Strategy<Value = Vec<(Vec<u8>, bool)>> {
    let payload = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..40),
        1 => (any::<u8>(), 500..3000usize).prop_map(|(byte, len)| vec![byte; len]),
    ];
    prop::collection::vec((payload, any::<bool>()), 1..12)
}

/// Returns the largest synced offset that any of these records states.
fn claimed(records: &[(Vec<u8>, bool)], ends: &[u64]) -> u64 {
    (0..records.len() - 1).filter(|&i| records[i].1).map(|i| ends[i]).max().unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Corrupts any bytes anywhere: the reader returns a prefix of what was written, and reports a
    /// corrupted record that was provably synced as damage at exactly that record.
    #[test]
    fn corrupted_bytes_never_yield_a_wrong_record(
        records in records(),
        hurts in prop::collection::vec((any::<prop::sample::Index>(), 1..=255u8), 1..4),
        tail in 0..600usize,
    ) {
        let (mut bytes, ends) = log_of(&records);
        let claimed = claimed(&records, &ends);
        let last_starts = if ends.len() > 1 { ends[ends.len() - 2] } else { HEADER_BYTES };
        let written = bytes.clone();
        for (at, flip) in &hurts {
            bytes[HEADER_BYTES as usize + at.index(written.len() - HEADER_BYTES as usize)] ^= flip;
        }
        // Two changes of one byte may undo each other.
        let hurt: Vec<u64> =
            (0..bytes.len()).filter(|&at| bytes[at] != written[at]).map(|at| at as u64).collect();
        let unhurt = hurt.is_empty();
        let first = hurt.first().map_or(ends.len(), |at| ends.partition_point(|end| end <= at));
        let proof_hurt = hurt.last().is_some_and(|&at| at >= last_starts);
        bytes.resize(bytes.len() + tail, 0);
        let outcome = read(&bytes, PLAIN);
        prop_assert!(unhurt || outcome.records.len() == first);
        for (got, (written, _)) in outcome.records.iter().zip(&records) {
            prop_assert_eq!(&got.1, written);
        }
        if !unhurt {
            let start = if first == 0 { HEADER_BYTES } else { ends[first - 1] };
            if claimed > start && !proof_hurt {
                prop_assert_eq!(outcome.damaged_at(), Some(start));
            } else if claimed <= start {
                prop_assert_eq!(outcome.dropped_at(), Some(start));
            }
        }

        let salvaged = read(&bytes, SALVAGE);
        let mut rest = records.iter();
        for (_, payload) in &salvaged.records {
            prop_assert!(rest.any(|(written, _)| written == payload), "a record that was never written");
        }
    }

    /// A power cut keeps any subset of the sectors written since the last sync: the synced records
    /// come back, and no damage is reported.
    #[test]
    fn a_power_cut_is_never_reported_as_damage(
        records in records(),
        lost in prop::collection::vec(any::<bool>(), 64),
    ) {
        let (mut bytes, ends) = log_of(&records);
        let synced = (0..records.len()).filter(|&i| records[i].1).map(|i| ends[i]).max().unwrap_or(0) as usize;
        let before = bytes.clone();
        for (i, sector) in bytes.chunks_mut(512).enumerate() {
            let kept = synced.saturating_sub(i * 512).min(sector.len());
            if lost[i % lost.len()] {
                sector[kept..].fill(0);
            }
        }
        let outcome = read(&bytes, PLAIN);
        prop_assert!(outcome.error.is_none(), "{:?}", outcome.error);
        let whole = ends.iter().take_while(|&&end| bytes[..end as usize] == before[..end as usize]).count();
        prop_assert_eq!(outcome.records.len(), whole);
        prop_assert!(whole >= ends.iter().filter(|&&end| end as usize <= synced).count());
    }

    /// Files that are not logs at all cause no panic and no endless work.
    #[test]
    fn hostile_files_are_read_without_panic(
        mut bytes in prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(2), any::<u8>()], 0..4000),
        with_header in any::<bool>(),
        salvage in any::<bool>(),
        expect_complete in any::<bool>(),
    ) {
        if with_header {
            bytes.splice(..0, three(true).0.into_iter().take(HEADER_BYTES as usize));
        }
        let outcome = read(&bytes, ReadOptions { expect_complete, salvage });
        prop_assert!(outcome.records.is_empty());
        prop_assert!(outcome.error.is_some() == (expect_complete && !salvage));
    }
}

#[test]
fn readers_and_writers_may_move_between_threads() {
    fn movable<T: Send>() {}
    movable::<LogWriter>();
    movable::<LogReader>();
    movable::<Arc<Gap>>();
}
