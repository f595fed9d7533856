use std::path::Path;

use proptest::prelude::*;
use tamis_base::key::KeyBytes;
use tamis_env::io::{FileSystem, MemFs, Usage, read_file};

use super::*;
use crate::error::StorageError;

const PATH: &str = "/000009.flt";

fn key(text: &str) -> KeyBytes {
    text.as_bytes().into()
}

fn put(fs: &MemFs, bytes: &[u8]) {
    fs.create(Path::new(PATH), Usage::Table).unwrap().append(bytes).unwrap();
}

fn bytes(fs: &MemFs) -> Vec<u8> {
    read_file(fs, Path::new(PATH)).unwrap()
}

/// An image for a writer: kind, first key, end, `until`, bytes.
type New = (ImageKind, &'static str, Option<&'static str>, u64, Vec<u8>);

fn some() -> Vec<New> {
    vec![
        (ImageKind::Keys, "", Some("m"), 7, b"the keys before m".to_vec()),
        (ImageKind::Prefixes, "", Some("m"), 7, Vec::new()),
        (ImageKind::Keys, "m", None, 300, vec![0xAB; 300]),
    ]
}

fn write(fs: &MemFs, images: &[New]) -> ImageFile {
    let mut writer = ImageWriter::create(fs, Path::new(PATH), 9, 2).unwrap();
    for (kind, start, end, until, bytes) in images {
        writer.add(*kind, (key(start), end.map(key)), *until, bytes).unwrap();
    }
    writer.finish().unwrap()
}

fn open(fs: &MemFs) -> Result<ImageFile, StorageError> {
    ImageFile::open(fs, Path::new(PATH))
}

fn contents(fs: &MemFs, file: &ImageFile) -> Vec<Result<Vec<u8>, String>> {
    file.images().iter().map(|image| file.read(fs, image).map_err(|e| e.to_string())).collect()
}

#[test]
fn images_are_read_as_they_were_written() {
    let fs = MemFs::new();
    let written = write(&fs, &some());
    let file = open(&fs).unwrap();
    assert_eq!((file.number(), file.keyspace(), file.path()), (9, 2, Path::new(PATH)));
    assert_eq!(file.bytes(), bytes(&fs).len() as u64);
    assert_eq!((file.images(), file.bytes()), (written.images(), written.bytes()));
    for (n, (image, new)) in file.images().iter().zip(some()).enumerate() {
        let (kind, start, end, until, bytes) = new;
        assert_eq!((image.kind, &image.start, &image.end), (kind, &key(start), &end.map(key)));
        assert_eq!((image.until, image.age()), (until, (9, n as u32)));
        assert_eq!(file.read(&fs, image).unwrap(), bytes);
    }
}

#[test]
fn a_file_without_images_is_one() {
    let fs = MemFs::new();
    write(&fs, &[]);
    assert!(open(&fs).unwrap().images().is_empty());
}

#[test]
fn a_copy_keeps_its_age() {
    let fs = MemFs::new();
    let old = write(&fs, &some());
    let mut writer = ImageWriter::create(&fs, Path::new("/000012.flt"), 12, 2).unwrap();
    writer.add(ImageKind::Keys, (key("a"), Some(key("c"))), 400, b"new").unwrap();
    writer.copy(&old.images()[2], &old.read(&fs, &old.images()[2]).unwrap()).unwrap();
    writer.add(ImageKind::Keys, (key("c"), Some(key("d"))), 400, b"newer").unwrap();
    writer.finish().unwrap();
    let file = ImageFile::open(&fs, Path::new("/000012.flt")).unwrap();
    let ages: Vec<_> = file.images().iter().map(Image::age).collect();
    assert_eq!(ages, [(12, 0), (9, 2), (12, 1)]);
    assert_eq!(contents(&fs, &file)[1], Ok(vec![0xAB; 300]));
}

/// With any bit of any byte flipped there is an error, or nothing has changed. An image beside a
/// damaged one can be read.
#[test]
fn a_changed_byte_anywhere_is_noticed() {
    let fs = MemFs::new();
    let sound = write(&fs, &some());
    let all = contents(&fs, &sound);
    let good = bytes(&fs);
    let (mut whole, mut lost) = (0, 0);
    for at in 0..good.len() {
        for flip in [0x01, 0x80, 0xFF] {
            let mut bad = good.clone();
            bad[at] ^= flip;
            put(&fs, &bad);
            match open(&fs) {
                Err(error) => {
                    assert!(matches!(error, StorageError::Corrupt(_)), "byte {at}: {error}");
                    whole += 1;
                }
                Ok(file) => {
                    assert_eq!(file.images(), sound.images(), "byte {at}");
                    let wrong: Vec<_> =
                        contents(&fs, &file).into_iter().zip(&all).filter(|(a, b)| a != *b).collect();
                    assert_eq!(wrong.len(), 1, "byte {at}");
                    assert!(wrong[0].0.is_err(), "byte {at}");
                    lost += 1;
                }
            }
        }
    }
    let payload = all.iter().map(|image| image.as_ref().unwrap().len()).sum::<usize>();
    assert_eq!((lost, whole), (3 * payload, 3 * (good.len() - payload)));
}

#[test]
fn a_file_of_any_other_length_is_damaged() {
    let fs = MemFs::new();
    write(&fs, &some());
    let good = bytes(&fs);
    for len in 0..good.len() {
        put(&fs, &good[..len]);
        assert!(matches!(open(&fs), Err(StorageError::Corrupt(_))), "{len} bytes");
    }
    let mut longer = good.clone();
    longer.insert(0, 0);
    put(&fs, &longer);
    assert!(matches!(open(&fs), Err(StorageError::Corrupt(_))));
    // Cut behind the opening.
    put(&fs, &good);
    let file = open(&fs).unwrap();
    put(&fs, &good[..20]);
    let read = contents(&fs, &file);
    assert!(read[0].is_ok() && read[2].as_ref().is_err_and(|e| e.contains("ends within")), "{read:?}");
}

/// Returns the file of an index and images of `payload` bytes, with right checksums.
fn sealed(index: &[u8], payload: usize) -> Vec<u8> {
    let mut bytes = vec![0; payload];
    bytes.extend_from_slice(index);
    let index_sum = xxhash_rust::xxh3::xxh3_64_with_seed(index, payload as u64);
    let footer = format::Footer { file: 9, keyspace: 2, index_bytes: index.len() as u64, index_sum };
    footer.encode((payload + index.len()) as u64, &mut bytes);
    bytes
}

#[test]
fn an_index_that_contradicts_itself_is_damaged() {
    let fs = MemFs::new();
    write(&fs, &some()[..1]);
    let image = || open(&fs).unwrap().images()[0].clone();
    let opened = |image: &Image, payload: usize| {
        let mut index = Vec::new();
        image.encode(&mut index);
        let fs = MemFs::new();
        put(&fs, &sealed(&index, payload));
        open(&fs).map(|file| file.images().to_vec())
    };
    assert_eq!(opened(&image(), 17).unwrap(), [image()]);
    assert!(opened(&image(), 16).is_err() && opened(&image(), 18).is_err(), "another length");
    let wrong = |change: fn(&mut Image)| {
        let mut image = image();
        change(&mut image);
        opened(&image, 17).is_err()
    };
    assert!(!wrong(|_| {}));
    assert!(wrong(|image| image.bytes = u64::MAX));
    assert!(wrong(|image| image.end = Some(image.start.clone())));
    assert!(wrong(|image| image.made = 10));
    assert!(wrong(|image| image.start = vec![b'a'; (64 << 10) + 2].into()));
    for (at, byte) in [(0, 2), (2, 2)] {
        let mut index = Vec::new();
        image().encode(&mut index);
        index[at] = byte;
        put(&fs, &sealed(&index, 17));
        assert!(open(&fs).is_err(), "byte {at} of the index");
        write(&fs, &some()[..1]);
    }
}

/// The newest image at a key, by definition.
fn newest_at(images: &[Image], kind: ImageKind, key: &[u8]) -> Option<usize> {
    let over = |image: &Image| *image.start <= *key && image.end.as_ref().is_none_or(|end| *key < **end);
    let over = images.iter().enumerate().filter(|(_, image)| image.kind == kind && over(image));
    over.max_by_key(|(at, image)| (image.age(), *at)).map(|(at, _)| at)
}

fn an_image() -> impl Strategy<Value = Image> {
    let end = prop_oneof![1 => Just(None), 4 => (1..9u8).prop_map(Some)];
    (any::<bool>(), 0..12u8, end, 0..4u64, 0..3u32).prop_map(|(kind, start, length, made, place)| Image {
        kind: if kind { ImageKind::Keys } else { ImageKind::Prefixes },
        start: if start == 0 { key("") } else { [start][..].into() },
        end: length.map(|length| [start + length][..].into()),
        until: 1,
        made,
        place,
        bytes: 0,
        offset: 0,
        sum: 0,
    })
}

proptest! {
    #[test]
    fn the_newest_image_counts_at_every_key(images in prop::collection::vec(an_image(), 0..12)) {
        for kind in ImageKind::ALL {
            let parts = newest(&images, kind);
            for pair in parts.windows(2) {
                prop_assert!(pair[0].end.as_ref().is_some_and(|end| *end <= pair[1].start));
                prop_assert!(pair[0].at != pair[1].at || pair[0].end.as_ref() != Some(&pair[1].start));
            }
            let keys = (0..24u8).flat_map(|byte| [vec![byte], vec![byte, 0]]).chain([vec![]]);
            for key in keys {
                let over = |part: &&Newest<'_>| {
                    *part.start <= *key && part.end.as_ref().is_none_or(|end| *key < **end)
                };
                let found: Vec<usize> = parts.iter().filter(over).map(|part| part.at).collect();
                let wanted: Vec<usize> = newest_at(&images, kind, &key).into_iter().collect();
                prop_assert_eq!(found, wanted, "at {:?}", key);
            }
        }
    }

    #[test]
    fn arbitrary_bytes_are_read_or_rejected_without_panic(
        index in prop::collection::vec(prop_oneof![0..9u8, any::<u8>()], 0..80),
        payload in 0..40usize,
        raw in any::<bool>(),
    ) {
        let fs = MemFs::new();
        put(&fs, &if raw { index.clone() } else { sealed(&index, payload) });
        if let Ok(file) = open(&fs) {
            prop_assert_eq!(file.images().iter().map(|image| image.bytes).sum::<u64>(), payload as u64);
            let mut again = Vec::new();
            file.images().iter().for_each(|image| image.encode(&mut again));
            prop_assert_eq!(&again, &index, "the encoding of an index is unique");
            contents(&fs, &file);
            ImageKind::ALL.iter().for_each(|kind| _ = newest(file.images(), *kind));
        }
    }

    #[test]
    fn mutated_indices_are_read_or_rejected_without_panic(
        hurts in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let fs = MemFs::new();
        let mut index = Vec::new();
        write(&fs, &some()).images().iter().for_each(|image| image.encode(&mut index));
        hurts.iter().for_each(|(at, byte)| { let at = at.index(index.len()); index[at] = *byte; });
        index.truncate(cut.index(index.len() + 1));
        put(&fs, &sealed(&index, 317));
        if let Ok(file) = open(&fs) {
            contents(&fs, &file);
        }
    }
}
