//! What a reader concludes from bytes at the exact boundaries, and how it says so.

use std::path::Path;

use tamis_env::io::{Access, FileSystem, Usage};
use tamis_testkit::FaultyFs;

use super::*;
use crate::codec::Encode;
use crate::wal::double::ToyFs;
use crate::wal::tests::{COMPLETE, PLAIN, SALVAGE, log_of, read, three};
use crate::wal::{LogHeader, LogWriter};

const NAME: &str = "d/000007.log";
const HEADER: LogHeader = LogHeader { kind: LogKind::Writes, id: 7, reused: false };

fn file(bytes: &[u8]) -> Arc<dyn ReadFile> {
    let fs = ToyFs::default();
    fs.set(NAME, bytes.to_vec());
    fs.open(Path::new(NAME), Access::Sequential).unwrap()
}

fn open(bytes: &[u8], kind: LogKind, id: LogId, options: ReadOptions) -> Result<LogReader, FileError> {
    LogReader::open(file(bytes), Path::new(NAME), kind, id, options)
}

/// Appends an intact record, wherever the bytes end.
fn push_record(bytes: &mut Vec<u8>, kind: RecordType, payload: &[u8], synced: u64) {
    let offset = bytes.len() as u64;
    let mut record = Vec::new();
    RecordHead::encode(&mut record, 7, offset, kind, payload.len() as u64, synced);
    record.extend_from_slice(payload);
    let checksum = xxh3_64_with_seed(&record[8..], seed(7, offset));
    record[..8].copy_from_slice(&checksum.to_le_bytes());
    bytes.extend_from_slice(&record);
}

/// Returns the offset that an error names, and its text.
fn told(error: &StorageError) -> (Option<u64>, String) {
    match error {
        StorageError::Corrupt(corrupt) => (corrupt.offset, error.to_string()),
        other => panic!("{other}"),
    }
}

#[test]
fn an_error_names_the_place_and_the_reason() {
    let (bytes, ends) = three(true);
    let mut no_header = bytes.clone();
    no_header[20] ^= 1;
    let mut hurt = bytes.clone();
    hurt[ends[0] as usize + 20] ^= 1;
    let cases: [(Result<LogReader, FileError>, u64, &[&str]); 5] = [
        (open(&bytes, LogKind::Manifest, 7, PLAIN), 0, &["a log of kind 1, not 2"]),
        (open(&bytes, LogKind::Writes, 6, PLAIN), 0, &["it holds log 7"]),
        (open(&no_header, LogKind::Writes, 7, COMPLETE), 0, &["the header is not intact", "was finished"]),
        (open(&no_header, LogKind::Writes, 7, PLAIN), 0, &["the header is not intact", "synced beyond"]),
        (open(&[], LogKind::Writes, 7, COMPLETE), 0, &["the header is not intact", "was finished"]),
    ];
    for (at, (opened, offset, texts)) in cases.into_iter().enumerate() {
        let FileError::Storage(error) = opened.unwrap_err() else { panic!("{at}") };
        let (found, text) = told(&error);
        assert!(found == Some(offset) && texts.iter().all(|part| text.contains(part)), "{at}: {text}");
    }
    for (bytes, options, offset, texts) in [
        (&bytes, COMPLETE, ends[2], ["there is no closing record", "was finished"]),
        (&hurt, COMPLETE, ends[0], ["checksum of a record does not match", "was finished"]),
        (&hurt, PLAIN, ends[0], ["checksum of a record does not match", "synced beyond"]),
    ] {
        let outcome = read(bytes, options);
        let (found, text) = told(&outcome.error.unwrap());
        assert!(found == Some(offset) && texts.iter().all(|part| text.contains(part)), "{text}");
        assert!(matches!(outcome.end, Some(End::Damaged { offset: at, .. }) if at == offset));
    }
}

/// How a log ends that has a bad record, in a new file and in a recycled one.
#[test]
fn a_bad_record_is_torn_if_it_has_a_head_or_a_successor() {
    for reused in [false, true] {
        let (bytes, ends) = three(false);
        let mut bytes = bytes;
        bytes.splice(..HEADER_BYTES as usize, LogHeader { reused, ..HEADER }.encode());
        let hurt = |at: u64| {
            let mut bytes = bytes.clone();
            bytes[at as usize] ^= 1;
            read(&bytes, PLAIN).end.unwrap()
        };
        let torn = |offset| End::Torn { offset };
        assert_eq!(hurt(ends[2] - 1), torn(ends[1]), "the head is intact");
        assert_eq!(hurt(ends[0] + 9), torn(ends[0]), "a record follows");
        let alone = if reused { End::Clean { offset: ends[1] } } else { torn(ends[1]) };
        assert_eq!(hurt(ends[1] + 9), alone, "may be what the file had before");
    }
}

/// The proof that a record was synced is in the shortest record that there is, at the end.
#[test]
fn the_last_bytes_of_a_file_can_be_a_record() {
    let (mut bytes, ends) = log_of(&[(Vec::new(), false)]);
    push_record(&mut bytes, RecordType::Close, &[], ends[0]);
    assert_eq!(ends[0], HEADER_BYTES + MIN_RECORD_BYTES);
    assert_eq!(bytes.len() as u64, ends[0] + MIN_RECORD_BYTES);
    bytes[HEADER_BYTES as usize] ^= 1;
    assert_eq!(read(&bytes, PLAIN).damaged_at(), Some(HEADER_BYTES));
}

#[test]
fn a_record_with_a_bad_payload_proves_nothing_and_is_skipped() {
    let records: Vec<_> = (0..4u8).map(|i| (vec![i; 30], i == 0)).collect();
    let (mut bytes, ends) = log_of(&records);
    // Only the second one says that the first one was synced.
    bytes.truncate(ends[1] as usize);
    bytes[ends[0] as usize - 1] ^= 1;
    assert_eq!(read(&bytes, PLAIN).damaged_at(), Some(HEADER_BYTES));
    bytes[ends[1] as usize - 1] ^= 1;
    assert_eq!(read(&bytes, PLAIN).end, Some(End::Torn { offset: HEADER_BYTES }));

    let records: Vec<_> = (0..4u8).map(|i| (vec![i; 30], true)).collect();
    let (mut bytes, ends) = log_of(&records);
    bytes[ends[0] as usize - 1] ^= 1;
    bytes[ends[1] as usize - 1] ^= 1;
    let outcome = read(&bytes, SALVAGE);
    assert_eq!(outcome.payloads(), [[2; 30], [3; 30]]);
    assert_eq!((outcome.gaps[0].start, outcome.gaps[0].end), (HEADER_BYTES, ends[1]));
}

/// Such a record was never written: the first one comes after the header.
#[test]
fn nothing_within_a_header_is_a_record() {
    let mut bytes = vec![0xEE; 16];
    push_record(&mut bytes, RecordType::Data, b"forged", 16);
    assert!(read(&bytes, SALVAGE).records.is_empty());
    bytes.resize(HEADER_BYTES as usize, 0xEE);
    push_record(&mut bytes, RecordType::Data, b"written", HEADER_BYTES);
    assert_eq!(read(&bytes, SALVAGE).payloads(), [b"written"]);
}

/// Hostile bytes may have a true head wherever they like, each of which costs a hash of what it
/// claims. What is beyond the budget is an error, since acknowledged writes may be there.
#[test]
fn the_search_hashes_as_much_as_its_budget_allows() {
    const LEN: usize = 64 << 10;
    let budget = 8 * LEN as u64 + (1 << 20);
    for more in [0, 1] {
        let mut bytes = HEADER.encode();
        bytes.resize(LEN, 0xEE);
        let (mut at, mut left) = (HEADER_BYTES + MIN_RECORD_BYTES, budget + more);
        while left > 0 {
            // A claim that is more than what is left has a head of this length, too.
            let claim = left.min(LEN as u64 - at);
            let mut head = Vec::new();
            RecordHead::encode(&mut head, 7, at, RecordType::Data, claim, at);
            let payload = claim - head.len() as u64;
            RecordHead::encode(&mut head, 7, at, RecordType::Data, payload, at);
            bytes[at as usize..][..head.len()].copy_from_slice(&head);
            left -= head.len() as u64 + payload;
            at += head.len() as u64;
        }
        let outcome = read(&bytes, PLAIN);
        if more == 0 {
            assert_eq!(outcome.end, Some(End::Torn { offset: HEADER_BYTES }));
            continue;
        }
        let (offset, text) = told(&outcome.error.unwrap());
        assert_eq!(offset, Some(HEADER_BYTES));
        assert!(text.contains("too odd to tell whether it had been synced"), "{text}");
    }
}

/// A search reads the rest of the file.
#[test]
fn a_search_ends_once_it_has_shown_what_it_is_for() {
    let records: Vec<_> = (0..8u8).map(|i| (vec![i; CHUNK_BYTES], true)).collect();
    let (mut bytes, ends) = log_of(&records);
    bytes[ends[0] as usize - 1] ^= 1;
    let fs = FaultyFs::new(1);
    let path = Path::new("/000007.log");
    fs.create(path, Usage::Log).unwrap().append(&bytes).unwrap();
    let reads = |options| {
        let file = fs.open(path, Access::Sequential).unwrap();
        let mut reader = LogReader::open(file, path, LogKind::Writes, 7, options).unwrap();
        let before = fs.operations();
        let _ = reader.next_record();
        fs.operations() - before
    };
    // The first record alone, or the next one, too: looking for it, hashing it, and reading it.
    let (complete, plain, salvage) = (reads(COMPLETE), reads(PLAIN), reads(SALVAGE));
    assert!(complete <= 2 && plain <= 5 && salvage <= 7, "{complete}, {plain} and {salvage} reads");
}

#[test]
fn a_file_belongs_to_the_log_whose_intact_header_it_has() {
    let (bytes, _) = three(true);
    let is_of = |bytes: &[u8], id| is_header_of(&*file(bytes), id).unwrap();
    assert!(is_of(&bytes, 7) && is_of(&bytes[..HEADER_BYTES as usize], 7));
    assert!(!is_of(&bytes, 6) && !is_of(&bytes, 8));
    assert!(!is_of(&bytes[..HEADER_BYTES as usize - 1], 7) && !is_of(&[], 7));
    let mut hurt = bytes;
    hurt[31] ^= 1;
    assert!(!is_of(&hurt, 7));
}

#[test]
fn a_complete_log_is_known_by_its_last_bytes() {
    let (data, _) = log_of(&[(b"record".to_vec(), true)]);
    let mut closed = data.clone();
    push_record(&mut closed, RecordType::Close, &9u64.to_le_bytes(), data.len() as u64);
    let identify = |bytes: &[u8], end: usize| {
        identify_complete(&bytes[..HEADER_BYTES as usize], &bytes[bytes.len() - end..], bytes.len() as u64)
    };
    // Of all bytes, of the closing record alone, and of too few.
    assert_eq!(identify(&closed, closed.len()), Some(Ok(7)));
    assert_eq!(identify(&closed, closed.len() - data.len()), Some(Ok(7)));
    assert_eq!(identify(&closed, closed.len() - data.len() - 1), None);
    assert_eq!(identify(&data, data.len()), None, "it ends with another record");
    let followed = [&closed[..], &[0]].concat();
    assert_eq!(identify(&followed, followed.len()), None, "something follows");
    let mut hurt = closed.clone();
    *hurt.last_mut().unwrap() ^= 1;
    assert_eq!(identify(&hurt, hurt.len()), None);
    let mut other = LogHeader { kind: LogKind::Manifest, ..HEADER }.encode();
    push_record(&mut other, RecordType::Close, &[], HEADER_BYTES);
    assert_eq!(identify(&other, other.len()), None, "a manifest");
    let mut newer = closed;
    newer.splice(8..12, 9u32.to_le_bytes());
    let checksum = xxhash_rust::xxh3::xxh3_64(&newer[..24]);
    newer.truncate(24);
    newer.put_u64(checksum);
    assert_eq!(identify(&newer, newer.len()), Some(Err(9)));
}

#[test]
fn a_reader_notices_that_a_log_was_cut() {
    let fs = ToyFs::default();
    let path = Path::new(NAME);
    let mut log = LogWriter::create(fs.create(path, Usage::Log).unwrap(), path, HEADER).unwrap();
    assert!(log.preallocate(1000));
    let file = fs.open(path, Access::Sequential).unwrap();
    let mut reader = LogReader::open(file, path, LogKind::Writes, 7, PLAIN).unwrap();
    assert!(!reader.was_cut().unwrap(), "it is as long as before");
    log.append(&[b"record"]).unwrap();
    log.give_back();
    assert!(reader.was_cut().unwrap());
    assert!(!reader.was_cut().unwrap(), "that is known by now");
    assert!(log.preallocate(1000));
    assert!(!reader.was_cut().unwrap(), "it has become longer");
    assert_eq!(reader.next_record().unwrap().unwrap().payload, b"record");
}
