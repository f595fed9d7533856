//! Filter files.

use std::path::Path;

use tamis_files::images::{Image, ImageFile, ImageKind, ImageWriter, newest};

use crate::put;
use crate::reseal;
use tamis::StorageError;
use tamis::io::{MemFs, read_file};
use tamis_doctor::inspect::dump_filter_images;

/// Checks a filter file, as it is and with its checksums corrected.
pub fn filter_images(bytes: &[u8]) {
    check(bytes);
    check(&reseal::filter_images(bytes));
}

fn check(bytes: &[u8]) {
    let (fs, path) = (MemFs::new(), Path::new("000009.flt"));
    put(&fs, path, bytes);
    let dumped = dump_filter_images(&fs, path, &mut std::io::sink());
    let file = match ImageFile::open(&fs, path) {
        Ok(file) => file,
        Err(StorageError::Corrupt(_)) => {
            assert!(dumped.is_err(), "a dump hides damage");
            return;
        }
        Err(other) => panic!("reading memory failed: {other}"),
    };
    assert_eq!(file.bytes(), bytes.len() as u64);
    let read: Vec<_> = file.images().iter().map(|image| file.read(&fs, image)).collect();
    assert_eq!(dumped.is_ok(), read.iter().all(Result::is_ok), "a dump and a reader disagree");
    let all: u64 = file.images().iter().map(|image| image.bytes).sum();
    assert!(all <= bytes.len() as u64, "more bytes of images than there are");
    check_newest(file.images());
    // Copied into a later file, what can be read stays the same.
    let Some(later) = file.images().iter().map(|image| image.made).max().unwrap_or(0).checked_add(1) else {
        return;
    };
    let (again, sound) = (Path::new("again.flt"), |at: &usize| read[*at].is_ok());
    let mut writer = ImageWriter::create(&fs, again, later, file.keyspace()).expect("in memory");
    let sound: Vec<usize> = (0..read.len()).filter(sound).collect();
    for &at in &sound {
        writer.copy(&file.images()[at], read[at].as_ref().expect("it is sound")).expect("in memory");
    }
    writer.finish().expect("in memory");
    let copied = ImageFile::open(&fs, again).expect("a reader opens what a writer made");
    assert_eq!(copied.images().len(), sound.len());
    for (copy, &at) in copied.images().iter().zip(&sound) {
        let image = &file.images()[at];
        let facts =
            |image: &Image| (image.kind, image.start.clone(), image.end.clone(), image.until, image.age());
        assert_eq!(facts(copy), facts(image));
        assert_eq!(copied.read(&fs, copy).ok(), read[at].as_ref().ok().cloned());
    }
    let resealed = reseal::filter_images(&read_file(&fs, again).expect("in memory"));
    assert_eq!(
        resealed,
        read_file(&fs, again).expect("in memory"),
        "the checksums are not those of the document"
    );
}

/// Checks that the ranges of the newest images are in order and within their images', and that no
/// image is missing at a border.
fn check_newest(images: &[Image]) {
    for kind in ImageKind::ALL {
        let parts = newest(images, kind);
        for part in &parts {
            let image = &images[part.at];
            assert!(image.kind == kind && image.start <= part.start);
            assert!(part.end.is_some() || image.end.is_none());
            assert!(part.end.as_ref().is_none_or(|end| part.start < *end));
            assert!(part.end.as_ref().zip(image.end.as_ref()).is_none_or(|(end, last)| end <= last));
        }
        assert!(parts.windows(2).all(|pair| pair[0].end.as_ref().is_some_and(|end| *end <= pair[1].start)));
        if images.len() > 256 {
            return;
        }
        for key in images.iter().map(|image| &image.start) {
            let over = |image: &&Image| {
                image.kind == kind && image.start <= *key && image.end.as_ref().is_none_or(|end| key < end)
            };
            let newest = images.iter().filter(over).map(Image::age).max();
            let part = parts.iter().rfind(|part| part.start <= *key);
            let part = part.filter(|part| part.end.as_ref().is_none_or(|end| key < end));
            assert_eq!(part.map(|part| images[part.at].age()), newest, "at {key:?}");
        }
    }
}
