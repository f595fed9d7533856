//! Saving and finding images, on devices that fail, fill up, crash and rot. The filtered keyspace
//! has no tables, so that nobody else saves images of it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tamis_base::key::KeyBytes;
use tamis_testkit::{CrashMode, FaultPlan, FaultyFs, OpClass};

use super::*;
use crate::jobs::images::reclaim::FREE_BYTES;
use crate::jobs::images::reclaim::MOST_FILES;
use crate::options::FilterChoice;
use crate::{AdminError, Db, Keyspace, KeyspaceOptions, Options};

const DIR: &str = "/db";
const NAME: &str = "filtered";
const MODES: [CrashMode; 3] = [CrashMode::KeepAll, CrashMode::DropUnsynced, CrashMode::Random];

fn options(fs: &FaultyFs) -> Options {
    let mut options = Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() };
    options.cache_bytes = 64 << 10;
    options.reserve_bytes = 0;
    options.keyspace.memtable_bytes = 8 << 10;
    options
}

fn filtered() -> KeyspaceOptions {
    KeyspaceOptions {
        filter: FilterChoice::Grf.into(),
        memtable_bytes: 8 << 10,
        ..KeyspaceOptions::default()
    }
}

/// Opens the database with its filtered keyspace.
fn open(fs: &FaultyFs) -> (Db, Keyspace) {
    let db = options(fs).open(DIR).expect("opening");
    let filtered = match db.keyspace(NAME) {
        Ok(found) => found,
        Err(_) => db.create_keyspace(NAME, filtered()).expect("a keyspace"),
    };
    (db, filtered)
}

/// The bytes of an image say which one it is: its first key and a number.
fn image_of(
    kind: ImageKind,
    start: &str,
    end: Option<&str>,
    until: u64,
    number: u32,
    len: usize,
) -> NewImage {
    let mut bytes = format!("{} {start} {number:08} ", kind.name()).into_bytes();
    bytes.resize(len.max(bytes.len()), b'.');
    let key = |text: &str| KeyBytes::from(text.as_bytes());
    NewImage { kind, span: Span { start: key(start), end: end.map(key) }, until, bytes }
}

fn image(start: &str, end: Option<&str>, until: u64, number: u32) -> NewImage {
    image_of(ImageKind::Keys, start, end, until, number, 0)
}

fn save(db: &Db, keyspace: &Keyspace, images: &[NewImage]) -> Result<(), NotSaved> {
    db.inner().save_images(&keyspace.inner, images, Moment::Open)
}

/// Lets the next save be attempted at once.
fn forget_backoff(db: &Db) {
    db.inner().files.filter_files.saving.lock().clear();
}

/// First key and end of a range, the image's first key, its number and its `until`.
type Found = (String, Option<String>, String, u32, u64);

/// Reads all images that count and can be read.
fn found_of(db: &Db, keyspace: &Keyspace, kind: ImageKind) -> Vec<Found> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let read = |image: LiveImage| {
        let bytes = text(&db.inner().files.filter_files.read(&image.stored).ok()?);
        let words: Vec<&str> = bytes.split(' ').collect();
        assert_eq!(words[0], kind.name());
        let (start, end) = (text(&image.span.start), image.span.end.as_deref().map(text));
        Some((start, end, words[1].to_owned(), words[2].parse().unwrap(), image.until))
    };
    db.inner().live_images(keyspace.inner.id, kind).into_iter().filter_map(read).collect()
}

fn found(db: &Db, keyspace: &Keyspace) -> Vec<Found> {
    found_of(db, keyspace, ImageKind::Keys)
}

fn item(start: &str, end: Option<&str>, from: &str, number: u32, until: u64) -> Found {
    (start.to_owned(), end.map(str::to_owned), from.to_owned(), number, until)
}

fn filter_files(fs: &FaultyFs, dir: &str) -> Vec<PathBuf> {
    let files = fs.files().into_iter().map(|(path, _)| path);
    files.filter(|path| path.starts_with(dir) && path.extension().is_some_and(|e| e == "flt")).collect()
}

/// The number of files in the directory, once it is `wanted` or does not become that: the flush
/// thread removes obsolete ones, too.
fn files_left(fs: &FaultyFs, db: &Db, wanted: usize) -> usize {
    let started = std::time::Instant::now();
    loop {
        db.inner().files.garbage.remove_all(&*db.inner().fs);
        let left = filter_files(fs, DIR).len();
        if left == wanted || started.elapsed() > Duration::from_secs(60) {
            return left;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn warnings(db: &Db) -> Vec<String> {
    db.stats().warnings
}

/// Saves images of [a, m) and [m, end), then a newer one of [f, m).
fn three(db: &Db, keyspace: &Keyspace) {
    save(db, keyspace, &[image("a", Some("m"), 1, 1), image("m", None, 1, 2)]).unwrap();
    save(db, keyspace, &[image("f", Some("m"), 4, 3)]).unwrap();
}

fn the_three() -> Vec<Found> {
    vec![item("a", Some("f"), "a", 1, 1), item("f", Some("m"), "f", 3, 4), item("m", None, "m", 2, 1)]
}

#[test]
fn saved_images_are_found_again() {
    let fs = FaultyFs::new(1);
    let (db, keyspace) = open(&fs);
    assert_eq!(found(&db, &keyspace), []);
    three(&db, &keyspace);
    let prefixes = image_of(ImageKind::Prefixes, "", None, 3, 4, 0);
    save(&db, &keyspace, &[prefixes]).unwrap();
    let as_expected = |db: &Db, keyspace: &Keyspace| {
        assert_eq!(found(db, keyspace), the_three());
        assert_eq!(found_of(db, keyspace, ImageKind::Prefixes), [item("", None, "", 4, 3)]);
        assert_eq!(found(db, db.default_keyspace()), []);
        let stats = keyspace.stats();
        let bytes: u64 =
            fs.files().iter().filter(|(path, _)| filter_files(&fs, DIR).contains(path)).map(|f| f.1).sum();
        assert_eq!((stats.filter_files, stats.filter_file_bytes, stats.next_epoch), (3, bytes, 4));
        let report = db.verify().unwrap();
        assert_eq!((report.filter_files, report.problems), (3, vec![]));
        assert_eq!(warnings(db), Vec::<String>::new());
    };
    as_expected(&db, &keyspace);
    drop((db, keyspace));
    let (db, keyspace) = open(&fs);
    as_expected(&db, &keyspace);
}

#[test]
fn superseded_files_go() {
    let fs = FaultyFs::new(2);
    let (db, keyspace) = open(&fs);
    three(&db, &keyspace);
    save(&db, &keyspace, &[image("e", Some("z"), 5, 4)]).unwrap();
    let after =
        vec![item("a", Some("e"), "a", 1, 1), item("e", Some("z"), "e", 4, 5), item("z", None, "m", 2, 1)];
    assert_eq!((found(&db, &keyspace), files_left(&fs, &db, 2)), (after, 2));
    // A reader keeps a file that goes.
    let held = db.inner().live_images(keyspace.inner.id, ImageKind::Keys);
    save(&db, &keyspace, &[image("", None, 5, 5)]).unwrap();
    assert_eq!(files_left(&fs, &db, 3), 3);
    assert!(held.iter().all(|image| db.inner().files.filter_files.read(&image.stored).is_ok()));
    drop(held);
    assert_eq!((found(&db, &keyspace), files_left(&fs, &db, 1)), (vec![item("", None, "", 5, 5)], 1));
    assert_eq!(warnings(&db), Vec::<String>::new());
    drop((db, keyspace));
    let (db, keyspace) = open(&fs);
    assert_eq!(found(&db, &keyspace).len(), 1);
}

/// Replaces one of sixteen parts at a time, over and over.
#[test]
fn the_files_take_little_more_than_what_counts() {
    let fs = FaultyFs::new(3);
    let (db, keyspace) = open(&fs);
    let key = |part: u32| format!("{part:02}");
    let part = |part: u32, number: u32| {
        let end = key(part + 1);
        image_of(ImageKind::Keys, &key(part), Some(&end), number.into(), number, 200 << 10)
    };
    let all: Vec<NewImage> = (0..16).map(|n| part(n, 0)).collect();
    let counting: u64 = all.iter().map(|image| image.bytes.len() as u64).sum();
    save(&db, &keyspace, &all).unwrap();
    let mut newest = [0; 16];
    for number in 1..100 {
        let at = number * number % 16;
        newest[at as usize] = number;
        save(&db, &keyspace, &[part(at, number)]).unwrap();
        let stats = keyspace.stats();
        assert!(stats.filter_file_bytes < counting * 3 / 2 + 4096, "{number}: {}", stats.filter_file_bytes);
    }
    let wanted: Vec<Found> = (0..16)
        .map(|n| item(&key(n), Some(&key(n + 1)), &key(n), newest[n as usize], newest[n as usize].into()))
        .collect();
    assert_eq!(found(&db, &keyspace), wanted);
    assert_eq!(files_left(&fs, &db, keyspace.stats().filter_files), keyspace.stats().filter_files);
    assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
    drop((db, keyspace));
    let (db, keyspace) = open(&fs);
    assert_eq!(found(&db, &keyspace), wanted);
}

#[test]
fn many_small_files_are_joined() {
    let fs = FaultyFs::new(4);
    let (db, keyspace) = open(&fs);
    let key = |n: u32| format!("{n:04}");
    for n in 0..3 * MOST_FILES as u32 {
        save(&db, &keyspace, &[image(&key(n), Some(&key(n + 1)), 1, n)]).unwrap();
        assert!(keyspace.stats().filter_files <= MOST_FILES, "{n}");
    }
    assert_eq!(found(&db, &keyspace).len(), 3 * MOST_FILES);
}

fn stored() -> impl Strategy<Value = Vec<Stored>> {
    let image = (any::<bool>(), 0..6u8, 1..5u8, 1..400_000u64);
    prop::collection::vec(prop::collection::vec(image, 0..4), 0..10).prop_map(|files| {
        let of_file = |(file, images): (usize, Vec<(bool, u8, u8, u64)>)| {
            let images = images.into_iter().enumerate().map(|(at, (keys, start, len, bytes))| {
                let kind = if keys { ImageKind::Keys } else { ImageKind::Prefixes };
                let range = ([start][..].into(), Some([start + len][..].into()));
                (at, Image::new(kind, range, 1, (file as u64 + 1, at as u32), bytes))
            });
            let images: Vec<_> = images.collect();
            Stored { bytes: 100 + images.iter().map(|(_, image)| image.bytes).sum::<u64>(), images }
        };
        files.into_iter().enumerate().map(of_file).collect()
    })
}

proptest! {
    /// Whatever the files, everything that counts is kept, in the old files or the new one; and
    /// little else.
    #[test]
    fn a_plan_keeps_what_counts(files in stored(), start in 0..6u8, len in 1..5u8, bytes in 0..400_000usize) {
        let new = NewImage {
            kind: ImageKind::Keys,
            span: Span { start: [start][..].into(), end: Some([start + len][..].into()) },
            until: 1,
            bytes: vec![0; bytes],
        };
        let plan = plan(&files, std::slice::from_ref(&new));
        let range = (new.span.start.clone(), new.span.end.clone());
        let new = Image::new(new.kind, range, 1, (u64::MAX, 0), bytes as u64);
        let before: Vec<Image> = files.iter().flat_map(|f| f.images.iter().map(|(_, image)| image.clone())).chain([new.clone()]).collect();
        let kept = |file: &usize| !plan.dropped.contains(file);
        let in_old = (0..files.len()).filter(kept).flat_map(|file| files[file].images.iter().map(|(_, image)| image.clone()));
        let copied: Vec<Image> = plan.copied.iter().map(|&(file, at)| files[file].images[at].1.clone()).collect();
        let after: Vec<Image> = in_old.chain(copied.clone()).chain([new]).collect();
        let mut counting = BTreeSet::new();
        for kind in ImageKind::ALL {
            let parts = |images: &[Image]| -> Vec<_> {
                newest(images, kind).into_iter().map(|part| (part.start, part.end, part.image.clone())).collect()
            };
            prop_assert_eq!(parts(&before), parts(&after));
            counting.extend(parts(&after).iter().map(|part| (part.2.age(), part.2.bytes)));
        }
        for image in &copied {
            prop_assert!(counting.contains(&(image.age(), image.bytes)), "a superseded image was copied");
        }
        let counting: u64 = counting.iter().map(|image| image.1).sum();
        let old: u64 = (0..files.len()).filter(kept).map(|file| files[file].bytes).sum();
        let total = old + bytes as u64 + copied.iter().map(|image| image.bytes).sum::<u64>();
        prop_assert!(total <= FREE_BYTES || counting * 3 >= total * 2 || (0..files.len()).all(|file| !kept(&file)));
    }
}

#[test]
fn a_dropped_keyspace_takes_its_files_with_it() {
    let fs = FaultyFs::new(5);
    let (db, keyspace) = open(&fs);
    three(&db, &keyspace);
    let other = db.create_keyspace("other", filtered()).unwrap();
    save(&db, &other, &[image("", None, 1, 9)]).unwrap();
    db.drop_keyspace(NAME).unwrap();
    assert_eq!(files_left(&fs, &db, 1), 1);
    assert!(save(&db, &keyspace, &[image("", None, 1, 1)]).is_ok(), "nothing is left to be done");
    assert_eq!((found(&db, &keyspace), found(&db, &other).len(), files_left(&fs, &db, 1)), (vec![], 1, 1));
    drop((db, keyspace, other));
    let (db, again) = open(&fs);
    assert_eq!((found(&db, &again), files_left(&fs, &db, 1)), (vec![], 1));
}

#[test]
fn a_keyspace_that_loses_its_global_filter_loses_its_files() {
    let fs = FaultyFs::new(6);
    let with = |filter: FilterChoice| {
        let mut options = options(&fs);
        options.keyspace.filter = filter.into();
        options.open(DIR).unwrap()
    };
    let db = with(FilterChoice::Grf);
    three(&db, db.default_keyspace());
    drop(db);
    let db = with(FilterChoice::BlockedBloom);
    assert_eq!((filter_files(&fs, DIR).len(), db.default_keyspace().stats().filter_files), (0, 0));
    drop(db);
    let db = with(FilterChoice::Grf);
    assert_eq!((found(&db, db.default_keyspace()), warnings(&db)), (vec![], vec![]));
}

#[test]
fn files_that_no_manifest_names_are_removed_and_their_numbers_not_used_again() {
    let fs = FaultyFs::new(7);
    let (db, keyspace) = open(&fs);
    three(&db, &keyspace);
    drop((db, keyspace));
    let named = filter_files(&fs, DIR);
    let stray = Path::new(DIR).join("000500.flt");
    fs.link_or_copy(&named[0], &stray).unwrap();
    let (db, keyspace) = open(&fs);
    assert_eq!(filter_files(&fs, DIR), named);
    save(&db, &keyspace, &[image("x", None, 1, 9)]).unwrap();
    assert!(filter_files(&fs, DIR).iter().max().unwrap() > &stray);
}

#[test]
fn a_checkpoint_has_the_images() {
    let fs = FaultyFs::new(8);
    let (db, keyspace) = open(&fs);
    three(&db, &keyspace);
    db.checkpoint("/copy").unwrap();
    save(&db, &keyspace, &[image("", None, 5, 5)]).unwrap();
    assert_eq!(files_left(&fs, &db, 1), 1);
    assert_eq!(filter_files(&fs, "/copy").len(), 2);
    // A file that is missing is missing in the checkpoint, too, and that is no reason not to make
    // one.
    fs.remove(&filter_files(&fs, DIR)[0]).unwrap();
    db.checkpoint("/second").unwrap();
    assert!(warnings(&db).iter().any(|w| w.contains("/second lacks a filter file")), "{:?}", warnings(&db));
    for (dir, wanted) in [("/copy", the_three()), ("/second", vec![])] {
        let copy = options(&fs.after_crash(CrashMode::DropUnsynced)).open(dir).unwrap();
        let keyspace = copy.keyspace(NAME).unwrap();
        assert_eq!((found(&copy, &keyspace), warnings(&copy)), (wanted, vec![]));
    }
}

#[test]
fn a_reader_without_the_lock_uses_the_images_and_saves_none() {
    let fs = FaultyFs::new(9);
    let (db, keyspace) = open(&fs);
    three(&db, &keyspace);
    let reader = || {
        let reader = options(&fs).open_read_only(DIR).unwrap();
        let keyspace = reader.keyspace(NAME).unwrap();
        (reader, keyspace)
    };
    let (first, of_first) = reader();
    assert_eq!(found(&first, &of_first), the_three());
    assert!(matches!(save(&first, &of_first, &[image("", None, 1, 1)]), Err(NotSaved::Later)));
    let (late, of_late) = reader();
    // The writer goes on, and replaces all files, opened or not.
    save(&db, &keyspace, &[image("", None, 5, 5)]).unwrap();
    assert_eq!(files_left(&fs, &db, 1), 1);
    assert_eq!((found(&late, &of_late), warnings(&late)), (vec![], vec![]));
    assert_eq!(late.verify().unwrap().problems, Vec::<String>::new());
    let (new, of_new) = reader();
    assert_eq!(found(&new, &of_new), [item("", None, "", 5, 5)]);
}

/// The same options for the doctor, which stands on another build of this crate.
fn doctors(fs: &FaultyFs) -> ::tamis::Options {
    let text = options(fs).to_text();
    let file_system = Some(Arc::new(fs.clone()) as _);
    ::tamis::Options { file_system, ..::tamis::Options::from_text(&text).unwrap() }
}

/// With the manifest, and without it.
#[test]
fn salvage_does_without_the_images() {
    for (lost, from_end) in [("MANIFEST", false), (".tam", true)] {
        let fs = FaultyFs::new(10);
        let (db, keyspace) = open(&fs);
        db.put("key", "value").unwrap();
        db.flush().unwrap();
        keyspace.put("key", "value").unwrap();
        keyspace.flush().unwrap();
        // The filter's own image is the third one.
        db.wait_for_filters().unwrap();
        three(&db, &keyspace);
        drop(keyspace);
        db.close().unwrap();
        let report = tamis_doctor::salvage(DIR, doctors(&fs), false).unwrap();
        assert_eq!((report.notes, filter_files(&fs, DIR).len()), (vec![], 3), "nothing is wrong yet");
        let (path, _) =
            fs.files().into_iter().find(|(path, _)| path.to_str().unwrap().contains(lost)).unwrap();
        let at = if from_end { fs.file_len(&path).unwrap() - 10 } else { 60 };
        fs.corrupt(&path, at, 1).unwrap();
        let report = tamis_doctor::salvage(DIR, doctors(&fs), false).unwrap();
        assert!(report.notes.iter().any(|note| note.contains("3 filter files are left out")), "{report:#?}");
        assert_eq!(filter_files(&fs, DIR).len(), 0);
        let aside =
            fs.files().iter().filter(|(path, _)| path.to_str().unwrap().ends_with(".flt.aside")).count();
        assert_eq!(aside, 3);
        let db = options(&fs).open(DIR).unwrap();
        let get = |name: &String| db.keyspace(name).unwrap().get("key").unwrap();
        assert_eq!(db.keyspaces().iter().filter_map(get).count(), if lost == ".tam" { 1 } else { 2 });
        let stats = db.stats();
        let loaded = stats
            .keyspaces
            .iter()
            .filter_map(|keyspace| Some(keyspace.global_filter.as_ref()?.images_loaded));
        assert_eq!(loaded.sum::<u64>(), 0);
    }
}

#[test]
fn a_file_that_is_missing_or_another_is_left_out_with_a_warning() {
    for replaced in [false, true] {
        let fs = FaultyFs::new(11);
        let (db, keyspace) = open(&fs);
        three(&db, &keyspace);
        drop((db, keyspace));
        let files = filter_files(&fs, DIR);
        fs.remove(&files[1]).unwrap();
        if replaced {
            fs.link_or_copy(&files[0], &files[1]).unwrap();
        }
        let (db, keyspace) = open(&fs);
        let rest = vec![item("a", Some("m"), "a", 1, 1), item("m", None, "m", 2, 1)];
        assert_eq!((found(&db, &keyspace), found(&db, &keyspace)), (rest.clone(), rest));
        let told = warnings(&db);
        assert!(told.len() == 1 && told[0].contains("a global filter is built from the tables"), "{told:?}");
        assert_eq!(db.verify().unwrap().problems.len(), 1);
        // The next save drops it.
        save(&db, &keyspace, &[image("x", None, 1, 9)]).unwrap();
        assert_eq!((files_left(&fs, &db, 2), db.verify().unwrap().problems), (2, vec![]));
    }
}

/// With any byte of any filter file changed, each image that is found is one that was saved, what
/// is not found is warned of once, and the database is otherwise as it was.
#[test]
fn damage_costs_images_and_nothing_else() {
    let fs = FaultyFs::new(12);
    let (db, keyspace) = open(&fs);
    // Without tables of the filtered keyspace nobody else reads its images.
    db.put("key", "value").unwrap();
    three(&db, &keyspace);
    drop((db, keyspace));
    let mut lost = BTreeSet::new();
    for path in filter_files(&fs, DIR) {
        let len = fs.file_len(&path).unwrap();
        for at in 0..len {
            let hurt = fs.after_crash(CrashMode::KeepAll);
            hurt.corrupt(&path, at, 0x10).unwrap();
            let (db, keyspace) = open(&hurt);
            let context = format!("{} at {at}", path.display());
            let once = found(&db, &keyspace);
            // Another image may have come in the place of a damaged one.
            let again = found(&db, &keyspace);
            assert_eq!(again, found(&db, &keyspace), "{context}");
            for part in once.iter().chain(&again) {
                assert!([("a", 1), ("m", 2), ("f", 3)].contains(&(&*part.2, part.3)), "{context}: {part:?}");
            }
            assert_ne!(again, the_three(), "{context}");
            assert_eq!(warnings(&db).len(), 1, "{context}: {:?}", warnings(&db));
            lost.insert(warnings(&db)[0].split(": ").next().unwrap().to_owned());
            assert_eq!(db.get("key").unwrap().unwrap(), "value");
        }
    }
    assert_eq!(lost.len(), 2, "images and whole files: {lost:?}");
}

#[test]
fn a_dump_shows_images_and_damage() {
    let fs = FaultyFs::new(16);
    let (db, keyspace) = open(&fs);
    three(&db, &keyspace);
    let dump = |path: &Path| {
        let mut out = Vec::new();
        let result = tamis_doctor::inspect::dump_filter_images(&fs, path, &mut out);
        (String::from_utf8(out).unwrap(), result.is_ok())
    };
    let files = filter_files(&fs, DIR);
    let first = fs.file_len(&files[0]).unwrap();
    let wanted = format!(
        "filter file {}: {first} bytes, 2 images of keyspace 1\n  \
         keys from \"a\" to \"m\": flushes below 1, 16 bytes\n  \
         keys from \"m\" to the end: flushes below 1, 16 bytes\n",
        files[0].display()
    );
    assert_eq!(dump(&files[0]), (wanted, true));
    let other = Path::new(DIR).join("000777.flt");
    fs.link_or_copy(&files[1], &other).unwrap();
    let (text, sound) = dump(&other);
    assert!(sound && text.contains("not 777: the file was renamed"), "{text}");
    let identified = tamis_doctor::inspect::identify(&fs, &other).unwrap();
    assert_eq!(identified, tamis_doctor::inspect::Contents::FilterImages);
    fs.corrupt(&files[0], 3, 1).unwrap();
    let (text, sound) = dump(&files[0]);
    assert!(!sound && text.contains("16 bytes, damaged\n") && text.contains("to the end"), "{text}");
    let manifest = fs.files().into_iter().map(|file| file.0);
    let manifest = manifest.into_iter().find(|path| path.to_str().unwrap().contains("MANIFEST")).unwrap();
    let mut out = Vec::new();
    tamis_doctor::inspect::dump_manifest(&fs, &manifest, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.matches("  keyspace 1: + filter file ").count(), 2, "{text}");
}

#[test]
fn the_scrub_reads_filter_files() {
    let fs = FaultyFs::new(17);
    let (db, keyspace) = open(&fs);
    three(&db, &keyspace);
    drop((db, keyspace));
    let files = filter_files(&fs, DIR);
    fs.corrupt(&files[1], 3, 1).unwrap();
    let db = Options { scrub_bytes_per_second: 1 << 30, ..options(&fs) }.open(DIR).unwrap();
    let started = std::time::Instant::now();
    let problems = loop {
        let problems = db.stats().scrub.unwrap().problems;
        if !problems.is_empty() {
            break problems;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "the scrub has found nothing");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(problems.len() == 1 && problems[0].contains(files[1].to_str().unwrap()), "{problems:?}");
    assert!(db.stats().damaged_tables.is_empty());
}

/// `until` would be above an epoch that a flush can still get.
#[test]
fn an_image_from_the_future_is_left_out() {
    let fs = FaultyFs::new(13);
    let (db, keyspace) = open(&fs);
    three(&db, &keyspace);
    let id = keyspace.inner.id;
    db.inner().monitor.lock().catalogue.forget_epochs(id, 4);
    assert_eq!(found(&db, &keyspace), the_three());
    db.inner().monitor.lock().catalogue.forget_epochs(id, 3);
    assert_eq!(found(&db, &keyspace), [item("a", Some("m"), "a", 1, 1), item("m", None, "m", 2, 1)]);
    assert!(warnings(&db).len() == 1 && warnings(&db)[0].contains("epochs up to 4"), "{:?}", warnings(&db));
}

#[test]
fn a_full_device_is_left_alone() {
    let fs = FaultyFs::new(14);
    let (db, keyspace) = open(&fs);
    three(&db, &keyspace);
    let used: u64 = fs.files().iter().map(|(_, len)| len).sum();
    fs.set_capacity(Some(used + LEAVE_FREE / 2));
    let (operations, files) = (fs.operations(), filter_files(&fs, DIR));
    let refused = save(&db, &keyspace, &[image("x", None, 7, 7)]);
    assert!(matches!(&refused, Err(NotSaved::Failed(e)) if e.is_out_of_space()), "{refused:?}");
    assert!(matches!(save(&db, &keyspace, &[]), Err(NotSaved::Later)), "in backoff");
    assert!(!db.inner().may_save_images(keyspace.inner.id));
    assert!(fs.operations() - operations < 10, "it was hardly tried");
    assert_eq!(filter_files(&fs, DIR), files);
    db.put("key", "value").unwrap();
    fs.set_capacity(None);
    forget_backoff(&db);
    assert!(db.inner().may_save_images(keyspace.inner.id));
    save(&db, &keyspace, &[image("x", None, 7, 7)]).unwrap();
    assert_eq!(found(&db, &keyspace).len(), 4);
    assert_eq!(db.stats().suspended, None);
}

/// What a session saved: for each first key the numbers that were tried, and the last one that was
/// saved.
#[derive(Default)]
struct Ledger {
    tried: BTreeMap<String, BTreeSet<u32>>,
    saved: BTreeMap<String, u32>,
    /// Synced writes to the default keyspace.
    puts: u32,
}

impl Ledger {
    fn save(&mut self, db: &Db, keyspace: &Keyspace, number: u32, starts: &[&str]) -> bool {
        forget_backoff(db);
        let image = |start: &&str| {
            let end = char::from(start.as_bytes()[0] + 1).to_string();
            image_of(ImageKind::Keys, start, Some(&end), number.into(), number, 300 << 10)
        };
        let images: Vec<NewImage> = starts.iter().map(image).collect();
        for start in starts {
            self.tried.entry((*start).to_owned()).or_default().insert(number);
        }
        let saved = save(db, keyspace, &images).is_ok();
        if saved {
            self.saved.extend(starts.iter().map(|start| ((*start).to_owned(), number)));
        }
        saved
    }

    fn put(&mut self, db: &Db) -> Result<(), crate::WriteError> {
        let mut batch = crate::WriteBatch::new();
        batch.put(format!("{:04}", self.puts), "value");
        db.write_with(batch, crate::Durability::Sync)?;
        self.puts += 1;
        Ok(())
    }

    /// Checks what a database holds after a crash or a failure.
    fn judge(&self, fs: &FaultyFs, context: &str) {
        let db = options(fs).open(DIR).unwrap_or_else(|e| panic!("{context}: {e}"));
        assert!(self.saved.is_empty() || db.keyspace(NAME).is_ok(), "{context}");
        if let Ok(keyspace) = db.keyspace(NAME) {
            let found = found(&db, &keyspace);
            let at = |start: &str| found.iter().find(|part| part.0 == start);
            for (start, saved) in &self.saved {
                let part = at(start).unwrap_or_else(|| panic!("{context}: the image at {start} is gone"));
                assert!(part.3 >= *saved, "{context}: {part:?} is older than {saved}");
            }
            for part in &found {
                assert!(self.tried[&part.2].contains(&part.3) && part.0 == part.2, "{context}: {part:?}");
                assert!(
                    part.4 == u64::from(part.3) && part.4 <= keyspace.stats().next_epoch,
                    "{context}: {part:?}"
                );
            }
            let named = keyspace.stats().filter_files;
            assert_eq!(filter_files(fs, DIR).len(), named, "{context}: leftovers");
        }
        for n in 0..self.puts {
            assert!(db.get(format!("{n:04}")).unwrap().is_some(), "{context}: write {n}");
        }
        assert_eq!(db.verify().unwrap().problems, Vec::<String>::new(), "{context}");
        db.close().unwrap_or_else(|e| panic!("{context}: {e}"));
    }
}

/// Saves images so that files are superseded and joined, beside flushes. With `give_up` it ends at
/// the first failure.
fn tour(fs: &FaultyFs, ledger: &mut Ledger, give_up: bool) -> Option<(Db, Keyspace)> {
    let db = options(fs).open(DIR).ok()?;
    let keyspace = match db.keyspace(NAME) {
        Ok(found) => found,
        Err(AdminError::NoKeyspace { .. }) => db.create_keyspace(NAME, filtered()).ok()?,
        Err(_) => return None,
    };
    let rounds: [&[&str]; 7] = [&["a", "b", "c", "d"], &["a"], &["b"], &["c", "a"], &[], &["a", "b"], &["d"]];
    for (number, starts) in (1..).zip(rounds) {
        let mut went = ledger.save(&db, &keyspace, number, starts);
        went &= ledger.put(&db).is_ok();
        if number % 3 == 0 {
            went &= db.flush().is_ok();
        }
        if give_up && !went {
            break;
        }
    }
    Some((db, keyspace))
}

/// The world stops at each operation in turn.
#[test]
fn a_crash_at_any_moment_leaves_images_that_were_saved() {
    let mut stops = 0;
    for stop in 0.. {
        let fs = FaultyFs::new(stop);
        fs.plan(FaultPlan { fail_at: Some(stop), sticky: true, partial_append: true, ..FaultPlan::none() });
        let mut ledger = Ledger::default();
        let session = tour(&fs, &mut ledger, true);
        let closed = session.is_some_and(|(db, keyspace)| {
            drop(keyspace);
            db.close().is_ok()
        });
        if closed && fs.failures() == 0 {
            break;
        }
        for mode in MODES {
            let after = fs.after_crash(mode);
            ledger.judge(&after, &format!("stopped at operation {stop}, {mode:?}"));
        }
        stops += 1;
    }
    assert!(stops > 100, "{stops} stops");
}

/// One operation fails, and the device works again. Saves and writes may fail then; the next ones
/// do not, nothing is lost, and a save that fails leaves writes alone.
#[test]
fn a_failed_operation_costs_a_save_at_most() {
    for (class, error) in [(None, ErrorKind::Other), (Some(OpClass::Write), ErrorKind::StorageFull)] {
        let mut failed_saves = 0;
        for at in 0.. {
            let context = format!("{class:?} {error:?} at operation {at}");
            let fs = FaultyFs::new(at);
            let mut ledger = Ledger::default();
            let (db, keyspace) = tour(&fs, &mut ledger, false).expect("nothing fails");
            let fail_at = Some(fs.operations() + at);
            fs.plan(FaultPlan { fail_at, error, only: class, partial_append: true, ..FaultPlan::none() });
            // Only saves: what fails concerns them.
            let mut went = true;
            for (number, starts) in (10..).zip([&["b", "c", "d"][..], &["a"]]) {
                went &= ledger.save(&db, &keyspace, number, starts);
            }
            assert!(went || fs.failures() > 0, "{context}");
            failed_saves += u64::from(!went);
            let over = fs.failures() == 0;
            fs.plan(FaultPlan::none());
            assert_eq!((db.stats().suspended, db.stats().poisoned), (None, None), "{context}");
            assert!(went || warnings(&db).iter().any(|w| w.contains("was not saved")), "{context}");
            ledger.put(&db).unwrap_or_else(|e| panic!("{context}: {e}"));
            assert!(ledger.save(&db, &keyspace, 20, &["c"]), "{context}: the retry");
            db.flush().unwrap_or_else(|e| panic!("{context}: {e}"));
            drop(keyspace);
            db.close().unwrap_or_else(|e| panic!("{context}: {e}"));
            ledger.judge(&fs.after_crash(CrashMode::DropUnsynced), &context);
            if over {
                break;
            }
        }
        assert!(failed_saves > 10, "{failed_saves}");
    }
}
