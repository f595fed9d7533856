//! Blob files: what was written is read back in every way of reading, and damaged or hostile bytes
//! are errors.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tamis_env::io::{Access, FileSystem, MemFs, Usage};

use super::format::FOOTER_BYTES;
use super::reader::GRAIN_BYTES;
use super::*;
use crate::codec::Encode;
use crate::error::StorageError;
use crate::settings::{ChecksumMode, Compression};
use crate::table::cache::BlockCache;
use crate::table::tests::support::TestFs;
use crate::table::{ReaderConfig, TouchCounts};
use crate::wal::ops::{GroupHeader, tag};
use crate::wal::{LogHeader, LogKind, LogWriter};

const ID: u64 = 7;

fn path() -> PathBuf {
    Path::new("/b").join("000007.blb")
}

/// Values of many lengths, some of which compress.
fn values() -> Vec<Vec<u8>> {
    let noise =
        |len: usize| (0..len).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    let mut values: Vec<Vec<u8>> = [0, 1, 30, 1023, 1024, 1025, 5000].map(noise).into();
    values.push(b"the same words, ".repeat(200));
    values.push(b"x".to_vec());
    values
}

fn write(fs: &MemFs, values: &[Vec<u8>], compression: Compression) -> Vec<Reference> {
    fs.create_dir_all(Path::new("/b")).unwrap();
    let file = fs.create(&path(), Usage::Table).unwrap();
    let mut writer = BlobWriter::new(file, path(), ID, compression);
    let references = values.iter().map(|value| writer.add(value).unwrap()).collect();
    let records = writer.bytes();
    let length = writer.finish().unwrap();
    assert_eq!(length, fs.file_len(&path()).unwrap());
    assert!(length > records);
    references
}

fn configs() -> [ReaderConfig; 4] {
    let mapped = |verify| ReaderConfig { map: true, verify, ..ReaderConfig::default() };
    let cache = Some(Arc::new(BlockCache::new(1 << 20, 4096)));
    [
        mapped(ChecksumMode::Once),
        mapped(ChecksumMode::Always),
        ReaderConfig { cache, ..ReaderConfig::default() },
        ReaderConfig::default(),
    ]
}

fn open(fs: &MemFs, config: &ReaderConfig) -> Result<BlobFile, StorageError> {
    BlobFile::open(fs, &path(), Some(ID), config)
}

#[test]
fn values_are_read_as_they_were_written() {
    for compression in [Compression::None, Compression::Lz4] {
        let (fs, values) = (MemFs::new(), values());
        let references = write(&fs, &values, compression);
        for config in configs() {
            let file = open(&fs, &config).unwrap();
            let lengths: usize = values.iter().map(Vec::len).sum();
            assert_eq!(
                (file.footer().unwrap().records, file.footer().unwrap().value_bytes),
                (values.len() as u64, lengths as u64)
            );
            let mut cost = TouchCounts::default();
            for (value, at) in values.iter().zip(&references) {
                file.check(at).unwrap();
                for _ in 0..2 {
                    assert_eq!(file.read(at, true, &mut cost).unwrap()[..], value[..]);
                }
                assert_eq!(Reference::decode(&at.encode()), Ok(*at));
            }
            assert_eq!(cost.blobs, 2 * values.len() as u64);
            // The last two of them together, from one piece.
            let last = &references[references.len() - 2..];
            if !file.is_mapped() {
                let piece = file.piece(last[0].offset, last[0].span + last[1].span).unwrap();
                for (i, at) in last.iter().enumerate() {
                    let value =
                        file.accept(at, &piece, (at.offset - last[0].offset) as usize, false, &mut cost);
                    assert_eq!(value.unwrap()[..], values[values.len() - 2 + i][..]);
                }
            }
        }
    }
}

/// Opening a file faulted on its footer, and a get on each page of its value. Each fault read as
/// much as the system reads ahead: 8 MiB on some.
#[test]
fn what_a_mapped_file_touches_for_the_first_time_is_announced() {
    let (written, values) = (MemFs::new(), values());
    for compression in [Compression::None, Compression::Lz4] {
        let references = write(&written, &values, compression);
        let fs = TestFs::default();
        let mut bytes = vec![0; written.file_len(&path()).unwrap() as usize];
        written.open(&path(), Access::Random).unwrap().read_exact_at(&mut bytes, 0).unwrap();
        let footer = bytes.len() - FOOTER_BYTES..bytes.len();
        fs.put(&path(), bytes);
        let announced = || std::mem::take(&mut *fs.announced.lock());

        let cache = Some(Arc::new(BlockCache::new(1 << 20, 4096)));
        let config = ReaderConfig { map: true, cache, ..ReaderConfig::default() };
        let file = BlobFile::open(&fs, &path(), Some(ID), &config).unwrap();
        assert_eq!(announced(), [footer]);
        for (value, at) in values.iter().zip(&references) {
            let record = at.offset as usize..(at.offset + at.span) as usize;
            let read = |fill_cache| assert_eq!(file.read(at, fill_cache, &mut ()).unwrap()[..], value[..]);
            file.prefetch(at);
            assert_eq!(announced(), vec![record.clone()]);
            read(false);
            assert_eq!(announced(), vec![record.clone()]);
            // Short values are verified at every read.
            let again = usize::from(at.span < GRAIN_BYTES);
            read(false);
            assert_eq!(announced().len(), again, "touched before");
            file.check(at).unwrap();
            assert_eq!(announced().len(), again, "touched before");
            // Where memory is scarce, it may be on the device again.
            fs.scarce.store(true, Ordering::Relaxed);
            read(false);
            assert_eq!(announced(), vec![record.clone()]);
            file.prefetch(at);
            assert_eq!(announced(), vec![record.clone()]);
            // A value that is decompressed is in the cache then.
            read(true);
            announced();
            read(true);
            let is_cached = file.cached(at).unwrap().is_some();
            assert_eq!(announced().is_empty(), is_cached);
            fs.scarce.store(false, Ordering::Relaxed);
        }
        let cached = references.iter().filter(|at| file.cached(at).unwrap().is_some()).count();
        assert_eq!(cached > 0, compression != Compression::None);
    }
}

#[test]
fn large_values_and_appends_at_borders_round_trip() {
    let sizes = [1 << 20, (1 << 20) - 1, 700_000, 3 << 20, 10, 2 << 20];
    let values: Vec<Vec<u8>> =
        sizes.iter().map(|&len: &usize| (0..len).map(|i| (i >> 3) as u8).collect()).collect();
    for compression in [Compression::None, Compression::Lz4] {
        let fs = MemFs::new();
        let references = write(&fs, &values, compression);
        let file = open(&fs, &configs()[0]).unwrap();
        for (value, at) in values.iter().zip(&references) {
            assert_eq!(file.read(at, false, &mut ()).unwrap()[..], value[..]);
        }
    }
}

#[test]
fn every_flipped_byte_is_an_error_of_what_it_is_part_of() {
    for compression in [Compression::None, Compression::Lz4] {
        let (fs, values) = (MemFs::new(), values());
        let references = write(&fs, &values, compression);
        let good = tamis_env::io::read_file(&fs, &path()).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            fs.create(&path(), Usage::Table).unwrap().append(&bad).unwrap();
            for config in configs() {
                let Ok(file) = open(&fs, &config) else { continue };
                let results = values.iter().zip(&references).map(|(value, reference)| {
                    let hurt = (reference.offset..reference.offset + reference.span).contains(&(at as u64));
                    assert_eq!(file.check(reference).is_err(), hurt, "byte {at}");
                    match file.read(reference, true, &mut ()) {
                        Ok(read) => assert!(!hurt && read[..] == value[..], "byte {at}: a wrong value"),
                        Err(error) => assert!(hurt && matches!(error, StorageError::Corrupt(_)), "byte {at}"),
                    }
                    hurt
                });
                assert_eq!(results.filter(|hurt| *hurt).count(), 1, "byte {at} of the footer went unnoticed");
            }
        }
    }
}

#[test]
fn a_file_that_is_cut_or_another_is_refused() {
    let fs = MemFs::new();
    write(&fs, &values(), Compression::None);
    let good = tamis_env::io::read_file(&fs, &path()).unwrap();
    for len in (0..good.len()).step_by(7) {
        fs.create(&path(), Usage::Table).unwrap().append(&good[..len]).unwrap();
        assert!(matches!(open(&fs, &configs()[2]), Err(StorageError::Corrupt(_))), "{len} bytes");
    }
    fs.create(&path(), Usage::Table).unwrap().append(&good).unwrap();
    let error = BlobFile::open(&fs, &path(), Some(ID + 1), &configs()[0]).unwrap_err();
    assert!(error.to_string().contains("blob file 7"), "{error}");
}

#[test]
fn references_to_what_is_not_there_are_errors() {
    let fs = MemFs::new();
    let references = write(&fs, &values(), Compression::Lz4);
    let real = references[5];
    let wrong = [
        Reference { offset: u64::MAX, ..real },
        Reference { span: u64::MAX, ..real },
        Reference { offset: real.offset + 1, ..real },
        Reference { offset: references[4].offset, ..real },
        Reference { span: real.span - 1, ..real },
        Reference { span: 9, ..real },
        Reference { len: real.len + 1, ..real },
        Reference { checksum: real.checksum ^ 1, ..real },
        Reference { checksum: references[4].checksum, ..real },
    ];
    for config in configs() {
        for at in wrong {
            // First without a cached or verified record, then with one.
            for _ in 0..2 {
                let file = open(&fs, &config).unwrap();
                assert!(file.read(&at, true, &mut ()).is_err(), "{at:?}");
                assert!(file.check(&at).is_err(), "{at:?}");
                file.read(&real, false, &mut ()).unwrap();
                assert!(file.read(&at, false, &mut ()).is_err(), "{at:?}");
            }
        }
    }
    let bytes = real.encode();
    for len in 0..bytes.len() {
        assert!(Reference::decode(&bytes[..len]).is_err());
    }
    assert!(Reference::decode(&[&bytes[..], &[0]].concat()).is_err());
    assert!(Reference::decode(&Reference { span: 8, ..real }.encode()).is_err());
    assert!(Reference::decode(&Reference { len: 1 << 32, ..real }.encode()).is_err());
}

/// A log with a put of each value, under the name of a blob file, and the places of the values.
fn log(fs: &MemFs, values: &[Vec<u8>]) -> Vec<Reference> {
    fs.create_dir_all(Path::new("/b")).unwrap();
    let path = Path::new("/b/000007.log");
    let header = LogHeader { kind: LogKind::Writes, id: ID, reused: false };
    let mut writer = LogWriter::create(fs.create(path, Usage::Log).unwrap(), path, header).unwrap();
    let open = BlobFile::of_log(fs, path, ID).unwrap();
    let mut places = Vec::new();
    for (seq, value) in (1..).zip(values) {
        let mut bytes = Vec::new();
        GroupHeader { first_seq: seq, count: 1, older_logs_synced: false }.encode(&mut bytes);
        bytes.put_u8(tag::PUT);
        bytes.put_varint(1);
        bytes.put_bytes(b"key");
        bytes.put_varint(value.len() as u64);
        let end = writer.append(&[&bytes, value]).unwrap();
        if value.len() >= Reference::MIN_SPAN {
            let at = Reference::in_log(ID, end - value.len() as u64, value);
            // While the log is written.
            assert_eq!(&open.read(&at, true, &mut ()).unwrap()[..], &value[..]);
            places.push(at);
        }
    }
    writer.close().unwrap();
    fs.link_or_copy(path, &self::path()).unwrap();
    places
}

#[test]
fn values_are_read_from_a_log() {
    let (fs, values) = (MemFs::new(), values());
    let places = log(&fs, &values);
    for config in configs() {
        let file = open(&fs, &config).unwrap();
        assert!((file.footer().is_none(), file.data_bytes()) == (true, file.file_bytes()));
        for (at, value) in places.iter().zip(values.iter().filter(|value| value.len() >= 9)) {
            assert_eq!(Reference::decode(&at.encode()).unwrap(), *at);
            for _ in 0..2 {
                assert_eq!(&file.read(at, true, &mut ()).unwrap()[..], &value[..]);
                file.check(at).unwrap();
            }
        }
    }
    assert!(BlobFile::open(&fs, &path(), Some(ID + 1), &configs()[0]).is_err());
}

#[test]
fn a_wrong_or_damaged_place_in_a_log_is_an_error() {
    let fs = MemFs::new();
    let places = log(&fs, &values());
    let real = places[3];
    let wrong = [
        Reference { offset: u64::MAX, ..real },
        Reference { offset: real.offset + 1, ..real },
        Reference { offset: 0, ..real },
        Reference { offset: places[4].offset, ..real },
        Reference { span: real.span - 1, len: real.len - 1, ..real },
        Reference { span: real.span + 1, ..real },
        Reference { len: real.len + 1, ..real },
    ];
    let whole = tamis_env::io::read_file(&fs, &path()).unwrap();
    for config in configs() {
        fs.create(&path(), Usage::Table).unwrap().append(&whole).unwrap();
        let file = open(&fs, &config).unwrap();
        for at in wrong {
            for _ in 0..2 {
                assert!(file.read(&at, false, &mut ()).is_err(), "{at:?}");
                assert!(file.check(&at).is_err(), "{at:?}");
                file.read(&real, false, &mut ()).unwrap();
            }
        }
        let mut bytes = whole.clone();
        bytes[real.offset as usize + 5] ^= 1;
        fs.create(&path(), Usage::Table).unwrap().append(&bytes).unwrap();
        let file = open(&fs, &config).unwrap();
        assert!(file.read(&real, false, &mut ()).is_err() && file.check(&real).is_err());
        file.read(&places[4], false, &mut ()).unwrap();
    }
    for end in [0, 20, 31, 47, 60, whole.len() / 2, whole.len() - 1] {
        fs.create(&path(), Usage::Table).unwrap().append(&whole[..end]).unwrap();
        assert!(matches!(open(&fs, &configs()[2]), Err(StorageError::Corrupt(_))), "{end} bytes");
    }
}

/// What a crash cut off, or something else overwrote.
#[test]
fn a_value_that_an_open_log_does_not_have_is_an_error() {
    let fs = MemFs::new();
    let places = log(&fs, &values());
    let path = Path::new("/b/000007.log");
    let whole = tamis_env::io::read_file(&fs, path).unwrap();
    let real = places[3];
    let mut damaged = whole.clone();
    damaged[(real.offset + real.span / 2) as usize] ^= 4;
    for bytes in [&damaged[..], &whole[..(real.offset + real.span - 1) as usize], &[]] {
        fs.create(path, Usage::Log).unwrap().append(bytes).unwrap();
        let open = BlobFile::of_log(&fs, path, ID).unwrap();
        (0..2).for_each(|_| assert!(open.read(&real, true, &mut ()).is_err()));
    }
    fs.remove(path).unwrap();
    assert!(BlobFile::of_log(&fs, path, ID).is_err());
}
