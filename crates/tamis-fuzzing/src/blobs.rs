//! Blob files, and references to values in them.

use std::path::Path;
use std::sync::Arc;

use tamis_files::blob::{BlobFile, BlobWriter, Reference};
use tamis_files::codec::Encode;
use tamis_files::settings::Compression;
use tamis_files::table::ReaderConfig;
use tamis_files::table::cache::BlockCache;
use tamis_files::wal::ops::{GroupHeader, tag};
use tamis_files::wal::{LogHeader, LogKind, LogWriter};

use crate::reseal;
use crate::{is_refusal, put};
use tamis::io::{FileSystem, MemFs, Usage, read_file};
use tamis_doctor::inspect::dump_blobs;

/// Checks a blob file and a reference to it, as they are and with their checksums corrected. The
/// first byte is the length of the reference, which follows; the rest is the file.
pub fn blobs(bytes: &[u8]) {
    let Some((&len, rest)) = bytes.split_first() else { return };
    let Some((reference, file)) = rest.split_at_checked(len.into()) else { return };
    check(reference, file);
    let (reference, file) = reseal::blobs(reference, file);
    check(&reference, &file);
}

fn check(reference: &[u8], bytes: &[u8]) {
    let (fs, path) = (MemFs::new(), Path::new("000007.blb"));
    put(&fs, path, bytes);
    let cache = Some(Arc::new(BlockCache::new(1 << 20, 4096)));
    let configs = [
        ReaderConfig { map: true, ..ReaderConfig::default() },
        ReaderConfig { cache, ..ReaderConfig::default() },
        ReaderConfig::for_a_look(),
    ];
    let mut answers: Vec<Option<Vec<u8>>> = Vec::new();
    for config in configs {
        let opened = BlobFile::open(&fs, path, None, &config);
        let dumped = dump_blobs(&fs, path, &mut std::io::sink());
        assert_eq!(dumped.is_ok(), opened.is_ok(), "a dump and a reader disagree");
        let file = match opened {
            Ok(file) => file,
            Err(error) if is_refusal(&error) => return,
            Err(other) => panic!("reading memory failed: {other}"),
        };
        let Ok(at) = Reference::decode(reference) else { return };
        assert_eq!(at.encode(), reference, "a reference has two forms");
        let sound = file.check(&at).is_ok();
        for _ in 0..2 {
            let read = file.read(&at, true, &mut ()).ok().map(|value| value.to_vec());
            assert_eq!(read.is_some(), sound, "a check and a read disagree");
            assert!(read.as_ref().is_none_or(|value| value.len() as u64 == at.len));
            answers.push(read);
        }
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "the answer depends on how the file is read");
    if let Some(Some(value)) = answers.pop() {
        write_again(&value);
    }
}

fn write_again(value: &[u8]) {
    let (fs, path) = (MemFs::new(), Path::new("000008.blb"));
    for compression in [Compression::None, Compression::Lz4] {
        let file = fs.create(path, Usage::Table).expect("a file in memory");
        let mut writer = BlobWriter::new(file, path.to_owned(), 8, compression);
        let at = writer.add(value).expect("in memory");
        writer.finish().expect("in memory");
        let bytes = read_file(&fs, path).expect("in memory");
        let (reference, resealed) = reseal::blobs(&at.encode(), &bytes);
        assert_eq!(
            (reference, resealed),
            (at.encode(), bytes),
            "the checksums are not those of the document"
        );
        let file = BlobFile::open(&fs, path, Some(8), &ReaderConfig::default()).expect("a writer made it");
        assert_eq!(file.read(&at, false, &mut ()).expect("it was written")[..], *value);
    }
}

/// Returns an input for [`blobs`]: a log with a few values, and a reference to one of them.
pub fn logged() -> Vec<u8> {
    let (fs, path) = (MemFs::new(), Path::new("000007.log"));
    let header = LogHeader { kind: LogKind::Writes, id: 7, reused: false };
    let file = fs.create(path, Usage::Log).expect("a file in memory");
    let mut writer = LogWriter::create(file, path, header).expect("in memory");
    let mut places = Vec::new();
    for (first_seq, value) in [(1, b"a value ".repeat(20)), (2, b"another value".to_vec())] {
        let mut bytes = Vec::new();
        GroupHeader { first_seq, count: 1, older_logs_synced: false }.encode(&mut bytes);
        bytes.put_u8(tag::PUT);
        bytes.put_varint(1);
        bytes.put_bytes(b"key");
        bytes.put_bytes(&value);
        let end = writer.append(&[&bytes]).expect("in memory");
        places.push(Reference::in_log(7, end - value.len() as u64, &value));
    }
    writer.close().expect("in memory");
    let reference = places[0].encode();
    let file = read_file(&fs, path).expect("in memory");
    [&[reference.len() as u8], &reference[..], &file].concat()
}

/// Returns an input for [`blobs`]: a file of a few values and a reference to number `which` of
/// them.
pub fn blob_file(which: usize, compressed: bool) -> Vec<u8> {
    let (fs, path) = (MemFs::new(), Path::new("000007.blb"));
    let file = fs.create(path, Usage::Table).expect("a file in memory");
    let compression = if compressed { Compression::Lz4 } else { Compression::None };
    let mut writer = BlobWriter::new(file, path.to_owned(), 7, compression);
    let values = [b"a value ".repeat(20), b"another".to_vec(), Vec::new(), (0..255).collect()];
    let references: Vec<_> = values.iter().map(|value| writer.add(value).expect("in memory")).collect();
    writer.finish().expect("in memory");
    let reference = references[which % references.len()].encode();
    let file = read_file(&fs, path).expect("in memory");
    [&[reference.len() as u8], &reference[..], &file].concat()
}
