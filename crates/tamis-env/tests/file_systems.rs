//! One suite for every file system, including those of the test kit: what an engine relies on.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;

use tamis_env::io::{Access, DirectFs, DiskFs, FileSystem, MemFs, Usage, read_file, write_file_atomically};
use tamis_testkit::{Device, EmulatedFs, FaultyFs};

/// A file system and an empty directory in it, which exists.
struct Place {
    fs: Arc<dyn FileSystem>,
    root: PathBuf,
    maps: bool,
    _dir: Option<tempfile::TempDir>,
}

fn on_disk(fs: impl FileSystem + 'static, maps: bool, dir: tempfile::TempDir) -> Place {
    Place { fs: Arc::new(fs), root: dir.path().to_owned(), maps, _dir: Some(dir) }
}

/// With the directory above held.
fn held(fs: impl FileSystem + 'static, maps: bool) -> Place {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("base");
    fs.create_dir_all(&root).unwrap();
    let fs = fs.hold(dir.path()).unwrap().expect("a directory of the operating system can be held");
    Place { fs, root, maps, _dir: Some(dir) }
}

fn in_memory(fs: impl FileSystem + 'static, maps: bool) -> Place {
    let root = PathBuf::from("/data/base");
    fs.create_dir_all(&root).unwrap();
    Place { fs: Arc::new(fs), root, maps, _dir: None }
}

/// A directory next to the test executable, which is on a real device: the temporary directory is
/// often in memory.
fn device_dir() -> tempfile::TempDir {
    let executable = std::env::current_exe().unwrap();
    tempfile::tempdir_in(executable.parent().unwrap()).unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

fn places() -> Vec<Place> {
    let mut places = vec![
        on_disk(DiskFs::new(), true, tempfile::tempdir().unwrap()),
        on_disk(DiskFs::without_mapping(), false, tempfile::tempdir().unwrap()),
        on_disk(DirectFs::new(), false, device_dir()),
        held(DiskFs::new(), true),
        held(DirectFs::new(), false),
        in_memory(MemFs::new(), true),
        in_memory(FaultyFs::new(1), false),
        in_memory(EmulatedFs::new(Arc::new(MemFs::new()), Device::NVM), false),
        in_memory(EmulatedFs::new(Arc::new(FaultyFs::new(1)), Device::PCIE_SSD), false),
        on_disk(EmulatedFs::measured(Arc::new(DiskFs::new())), false, tempfile::tempdir().unwrap()),
    ];
    // A file system in memory, where direct transfers may be refused.
    if let Ok(dir) = tempfile::tempdir_in("/dev/shm") {
        places.push(on_disk(DirectFs::new(), false, dir));
    }
    places
}

fn pattern(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31) ^ (i >> 8) ^ salt) as u8).collect()
}

fn write(fs: &dyn FileSystem, path: &Path, usage: Usage, bytes: &[u8]) {
    let mut file = fs.create(path, usage).unwrap();
    file.append(bytes).unwrap();
    file.sync().unwrap();
}

fn kind<T>(result: io::Result<T>) -> ErrorKind {
    result.err().expect("an error").kind()
}

#[test]
fn appended_bytes_read_back_at_any_offset_and_never_beyond_the_end() {
    for Place { fs, root, .. } in places() {
        let path = root.join("t");
        for usage in [Usage::Table, Usage::Log] {
            let bytes = pattern(10_000, usage as usize);
            let mut file = fs.create(&path, usage).unwrap();
            bytes.chunks(777).for_each(|chunk| file.append(chunk).unwrap());
            file.sync().unwrap();
            assert_eq!(fs.file_len(&path).unwrap(), 10_000, "{fs:?}");
            for access in [Access::Random, Access::Sequential] {
                let reader = fs.open(&path, access).unwrap();
                assert_eq!(reader.len().unwrap(), 10_000);
                for (at, len) in
                    [(0, 10_000), (1, 1), (4095, 2), (4096, 4096), (9_999, 1), (5, 0), (10_000, 0)]
                {
                    let mut buf = vec![0; len];
                    reader.read_exact_at(&mut buf, at as u64).unwrap();
                    assert_eq!(buf, bytes[at..at + len], "{fs:?} at {at}");
                }
                let beyond = [(9_999, 2), (10_000, 1), (1 << 40, 1), (i64::MAX as u64, 1), (u64::MAX, 9)];
                for (at, len) in beyond {
                    let read = reader.read_exact_at(&mut vec![0; len], at);
                    assert_eq!(kind(read), ErrorKind::UnexpectedEof, "{fs:?} at {at}");
                }
            }
            assert_eq!(read_file(&*fs, &path).unwrap(), bytes);
        }
    }
}

#[test]
fn a_map_equals_the_file_and_outlives_its_removal() {
    for Place { fs, root, maps, .. } in places() {
        let path = root.join("t");
        let bytes = pattern(9_001, 3);
        write(&*fs, &path, Usage::Table, &bytes);
        let map = fs.open(&path, Access::Random).unwrap().map().unwrap();
        assert_eq!(map.is_some(), maps, "{fs:?}");
        // A new file takes the name; the mapping keeps the old bytes.
        write(&*fs, &path, Usage::Table, b"new");
        fs.remove(&path).unwrap();
        assert!(map.is_none_or(|map| *map == bytes));

        write(&*fs, &path, Usage::Table, b"");
        let map = fs.open(&path, Access::Random).unwrap().map().unwrap();
        assert_eq!(map.map(|map| map.len()), maps.then_some(0), "{fs:?}");
    }
}

#[test]
fn replacing_a_file_keeps_the_old_bytes_for_links_and_open_readers() {
    for Place { fs, root, .. } in places() {
        let (a, b) = (root.join("a"), root.join("b"));
        write(&*fs, &a, Usage::Table, b"old bytes");
        fs.link_or_copy(&a, &b).unwrap();
        assert_eq!(kind(fs.link_or_copy(&a, &b)), ErrorKind::AlreadyExists, "{fs:?}");
        assert_eq!(kind(fs.link_or_copy(&root.join("none"), &root.join("c"))), ErrorKind::NotFound);
        let reader = fs.open(&a, Access::Random).unwrap();
        write(&*fs, &a, Usage::Table, b"new");
        assert_eq!(read_file(&*fs, &a).unwrap(), b"new");
        assert_eq!(read_file(&*fs, &b).unwrap(), b"old bytes");
        let mut buf = [0; 9];
        reader.read_exact_at(&mut buf, 0).unwrap();
        assert_eq!(&buf, b"old bytes");
    }
}

#[test]
fn a_recycled_file_keeps_its_old_bytes_after_the_new_ones_until_cut() {
    for Place { fs, root, .. } in places() {
        let (old, new) = (root.join("1.log"), root.join("2.log"));
        write(&*fs, &old, Usage::Log, b"0123456789");
        let mut file = fs.reuse(&old, &new).unwrap();
        file.append(b"ab").unwrap();
        file.append(b"c").unwrap();
        file.sync().unwrap();
        assert!(!fs.exists(&old).unwrap());
        assert_eq!(read_file(&*fs, &new).unwrap(), b"abc3456789", "{fs:?}");
        file.truncate_to_written().unwrap();
        assert_eq!(read_file(&*fs, &new).unwrap(), b"abc");
        file.append(b"de").unwrap();
        assert_eq!(read_file(&*fs, &new).unwrap(), b"abcde");
        assert_eq!(kind(fs.reuse(&old, &new)), ErrorKind::NotFound);
    }
}

#[test]
fn preallocated_space_reads_as_zeros_until_cut() {
    for Place { fs, root, .. } in places() {
        for usage in [Usage::Log, Usage::Table] {
            let path = root.join("p");
            let mut file = fs.create(&path, usage).unwrap();
            file.preallocate(0).unwrap();
            file.preallocate(6_000).unwrap();
            file.append(b"start").unwrap();
            file.sync().unwrap();
            // A file system that cannot reserve space leaves the length unchanged.
            let bytes = read_file(&*fs, &path).unwrap();
            assert!(bytes.len() == 6_000 || bytes.len() == 5, "{fs:?}: {}", bytes.len());
            assert!(bytes.starts_with(b"start") && bytes[5..].iter().all(|b| *b == 0), "{fs:?}");
            file.truncate_to_written().unwrap();
            assert_eq!(read_file(&*fs, &path).unwrap(), b"start");
        }
    }
}

#[test]
fn names_follow_the_rules_of_a_disk() {
    for Place { fs, root, .. } in places() {
        let dir = root.join("x/y");
        assert_eq!(kind(fs.create(&dir.join("f"), Usage::Log)), ErrorKind::NotFound, "{fs:?}");
        assert_eq!(kind(fs.list(&dir)), ErrorKind::NotFound);
        fs.create_dir_all(&dir).unwrap();
        fs.create_dir_all(&dir).unwrap();
        write(&*fs, &dir.join("f"), Usage::Log, b"f");
        write(&*fs, &dir.join("g"), Usage::Log, b"g");
        fs.create_dir_all(&dir.join("sub")).unwrap();
        let mut names = fs.list(&dir).unwrap();
        names.sort();
        assert_eq!(names, ["f", "g", "sub"], "{fs:?}");
        fs.sync_dir(&dir).unwrap();

        fs.rename(&dir.join("f"), &dir.join("g")).unwrap();
        assert_eq!(read_file(&*fs, &dir.join("g")).unwrap(), b"f");
        assert_eq!(kind(fs.rename(&dir.join("f"), &dir.join("g"))), ErrorKind::NotFound);
        assert_eq!(kind(fs.open(&dir.join("f"), Access::Random)), ErrorKind::NotFound);
        assert_eq!(kind(fs.remove(&dir.join("f"))), ErrorKind::NotFound);
        assert_eq!(kind(fs.file_len(&dir.join("f"))), ErrorKind::NotFound);
        assert!(fs.exists(&dir).unwrap() && !fs.exists(&dir.join("f")).unwrap());

        fs.rename(&root.join("x"), &root.join("z")).unwrap();
        assert_eq!(read_file(&*fs, &root.join("z/y/g")).unwrap(), b"f", "{fs:?}");
        assert!(fs.rename(&root.join("z"), &root.join("z/y/w")).is_err());
        fs.remove_dir_all(&root.join("z")).unwrap();
        assert!(fs.list(&root).unwrap().is_empty(), "{fs:?}");
        assert_eq!(kind(fs.remove_dir_all(&root.join("z"))), ErrorKind::NotFound);
    }
}

#[test]
fn a_second_lock_is_refused_until_the_first_is_dropped() {
    for Place { fs, root, .. } in places() {
        let path = root.join("LOCK");
        let held = fs.lock(&path).unwrap().expect("free");
        assert!(fs.lock(&path).unwrap().is_none(), "{fs:?}");
        assert!(fs.lock(&root.join("OTHER")).unwrap().is_some());
        drop(held);
        assert!(fs.lock(&path).unwrap().is_some(), "{fs:?}");
        assert!(fs.exists(&path).unwrap());
    }
}

#[test]
fn an_atomic_write_replaces_the_content_and_leaves_no_other_file() {
    for Place { fs, root, .. } in places() {
        let path = root.join("CURRENT");
        for content in [&b"one"[..], b"another", b""] {
            write_file_atomically(&*fs, &path, content).unwrap();
            assert_eq!(read_file(&*fs, &path).unwrap(), content);
        }
        assert_eq!(fs.list(&root).unwrap(), ["CURRENT"]);
    }
}

#[test]
fn a_dropped_writer_loses_nothing() {
    for Place { fs, root, .. } in places() {
        let path = root.join("t");
        let bytes = pattern(5_000, 9);
        fs.create(&path, Usage::Table).unwrap().append(&bytes).unwrap();
        assert_eq!(read_file(&*fs, &path).unwrap(), bytes, "{fs:?}");
    }
}

#[test]
fn a_finished_file_is_synced_by_name_and_stays_unchanged() {
    for Place { fs, root, .. } in places() {
        let path = root.join("file");
        write(&*fs, &path, Usage::Table, &pattern(5000, 1));
        fs.sync_file(&path).unwrap();
        assert_eq!(read_file(&*fs, &path).unwrap(), pattern(5000, 1));
        assert_eq!(kind(fs.sync_file(&root.join("none"))), ErrorKind::NotFound);
    }
}

#[test]
fn the_disk_reports_its_free_space() {
    let dir = tempfile::tempdir().unwrap();
    let free = DiskFs::new().available_space(dir.path()).unwrap();
    assert_eq!(free.is_some(), cfg!(any(unix, windows)));
    assert_ne!(free, Some(0));
}

#[test]
fn a_file_in_memory_is_not_mapped_while_written_and_its_map_never_changes() {
    let fs = MemFs::new();
    let (path, new) = (Path::new("f"), Path::new("g"));
    let mut file = fs.create(path, Usage::Table).unwrap();
    file.append(b"before").unwrap();
    let reader = fs.open(path, Access::Random).unwrap();
    assert!(reader.map().unwrap().is_none());
    drop(file);
    let map = reader.map().unwrap().unwrap();
    let mut file = fs.reuse(path, new).unwrap();
    file.append(b"after").unwrap();
    assert_eq!((&*map, &*read_file(&fs, new).unwrap()), (&b"before"[..], &b"aftere"[..]));
}

/// Any mix of appends, syncs, preallocation and cuts of one file, against a vector.
fn behaves_like_a_vector(place: &Place, usage: Usage, steps: &[(u8, usize)], reads: &[(usize, usize)]) {
    let Place { fs, root, .. } = place;
    let path = root.join("model");
    let mut file = fs.create(&path, usage).unwrap();
    let (mut model, mut reserved) = (Vec::new(), 0);
    for &(action, len) in steps {
        match action {
            0..=4 => {
                let bytes = pattern(len, model.len());
                file.append(&bytes).unwrap();
                model.extend(bytes);
            }
            5 | 6 => file.sync().unwrap(),
            7 => {
                file.preallocate(len as u64).unwrap();
                reserved = reserved.max(len);
            }
            _ => {
                file.truncate_to_written().unwrap();
                reserved = 0;
            }
        }
    }
    file.sync().unwrap();
    let len = usize::try_from(fs.file_len(&path).unwrap()).unwrap();
    assert!(len == model.len() || len == model.len().max(reserved), "{fs:?}: {len}");
    model.resize(len, 0);
    let reader = fs.open(&path, Access::Random).unwrap();
    for &(at, want) in reads {
        let at = at % (len + 2);
        let mut buf = vec![0; want];
        match (reader.read_exact_at(&mut buf, at as u64), model.get(at..at + want)) {
            (Ok(()), expected) => assert!(want == 0 || expected == Some(&buf), "{fs:?} {at}+{want} of {len}"),
            (Err(e), expected) => {
                assert_eq!(e.kind(), ErrorKind::UnexpectedEof);
                assert!(expected.is_none(), "{fs:?} {at}+{want} of {len}");
            }
        }
    }
    assert!(read_file(&**fs, &path).unwrap() == model, "{fs:?}");
}

/// Lengths that meet the boundaries of blocks and of the direct writer's buffer.
fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => 0usize..300,
        3 => (0usize..4, 0usize..9).prop_map(|(blocks, more)| (blocks * 4096 + more).saturating_sub(4)),
        2 => 0usize..40_000,
        1 => (0usize..3, 0usize..9).prop_map(|(more, odd)| ((1 << 20) + more * 4096 + odd).saturating_sub(4)),
        1 => Just((2 << 20) + 17),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn files_behave_like_vectors(
        steps in prop::collection::vec((0u8..9, lengths()), 1..10),
        reads in prop::collection::vec((any::<usize>(), lengths()), 1..12),
    ) {
        for place in places() {
            for usage in [Usage::Table, Usage::Log] {
                behaves_like_a_vector(&place, usage, &steps, &reads);
            }
        }
    }
}

/// Every operation on a path in a held directory is one in that directory, whatever its name is by
/// now; all other paths are looked up.
#[cfg(unix)]
#[test]
fn a_held_directory_is_the_same_under_another_name() {
    for plain in [Arc::new(DiskFs::new()) as Arc<dyn FileSystem>, Arc::new(DirectFs::new())] {
        let top = tempfile::tempdir().unwrap();
        let (dir, moved, copy) = (top.path().join("a"), top.path().join("b"), top.path().join("copy"));
        plain.create_dir_all(&dir).unwrap();
        plain.create_dir_all(&copy).unwrap();
        write(&*plain, &dir.join("old"), Usage::Table, b"old");
        let fs = plain.hold(&dir).unwrap().unwrap();
        let lock = fs.lock(&dir.join("LOCK")).unwrap().unwrap();
        std::fs::rename(&dir, &moved).unwrap();
        plain.create_dir_all(&dir).unwrap();
        write(&*plain, &dir.join("old"), Usage::Table, b"of another");
        assert!(plain.lock(&dir.join("LOCK")).unwrap().is_some(), "another directory");
        assert!(plain.lock(&moved.join("LOCK")).unwrap().is_none());
        assert!(
            fs.is_locked_here(&dir.join("LOCK")).unwrap()
                && plain.is_locked_here(&moved.join("LOCK")).unwrap()
        );
        assert!(!plain.is_locked_here(&dir.join("LOCK")).unwrap());

        assert_eq!(read_file(&*fs, &dir.join("old")).unwrap(), b"old");
        assert_eq!(fs.file_len(&dir.join("old")).unwrap(), 3);
        for usage in [Usage::Table, Usage::Log] {
            write(&*fs, &dir.join("new"), usage, b"new");
            assert!(!plain.exists(&dir.join("new")).unwrap() && fs.exists(&dir.join("new")).unwrap());
        }
        fs.sync_file(&dir.join("new")).unwrap();
        fs.sync_dir(&dir).unwrap();
        fs.rename(&dir.join("new"), &dir.join("newer")).unwrap();
        fs.reuse(&dir.join("newer"), &dir.join("reused")).unwrap().append(b"NE").unwrap();
        // Into another directory, which is looked up, and back.
        fs.link_or_copy(&dir.join("reused"), &copy.join("linked")).unwrap();
        fs.link_or_copy(&copy.join("linked"), &dir.join("back")).unwrap();
        fs.create_dir_all(&dir.join("x/y")).unwrap();
        write(&*fs, &dir.join("x/y/z"), Usage::Log, b"deep");
        std::os::unix::fs::symlink(&copy, moved.join("x/link")).unwrap();
        assert_eq!(read_file(&*plain, &moved.join("x/y/z")).unwrap(), b"deep");
        fs.remove_dir_all(&dir.join("x")).unwrap();
        assert_eq!(read_file(&*plain, &copy.join("linked")).unwrap(), b"NEw", "links are not followed");
        fs.remove(&dir.join("old")).unwrap();
        let mut names = fs.list(&dir).unwrap();
        names.sort();
        assert_eq!(names, ["LOCK", "back", "reused"]);
        assert!(fs.available_space(&dir).unwrap().is_some_and(|bytes| bytes > 0));
        // Nothing of all this happened in the other one.
        assert_eq!(read_file(&*plain, &dir.join("old")).unwrap(), b"of another");
        assert_eq!(plain.list(&dir).unwrap().len(), 2);
        drop(lock);
        assert!(plain.lock(&moved.join("LOCK")).unwrap().is_some());
        // Gone for good.
        std::fs::remove_dir_all(&moved).unwrap();
        assert_eq!(kind(fs.create(&dir.join("late"), Usage::Log)), ErrorKind::NotFound);
    }
}

/// A FIFO stopped its reader for ever.
#[cfg(target_os = "linux")]
#[test]
fn what_is_no_file_is_not_opened_and_not_waited_for() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("fifo");
    mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let link = top.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let systems: [Arc<dyn FileSystem>; 3] =
        [Arc::new(DiskFs::new()), Arc::new(DiskFs::new().with_mapped_logs(true)), Arc::new(DirectFs::new())];
    for fs in systems {
        for path in [&path, &link, &top.path().to_owned(), &PathBuf::from("/dev/zero")] {
            assert_eq!(kind(fs.open(path, Access::Random)), ErrorKind::InvalidInput);
            assert_eq!(kind(fs.open(path, Access::Sequential)), ErrorKind::InvalidInput);
            fs.sync_file(path).unwrap_err();
            fs.lock(path).unwrap_err();
        }
        fs.reuse(&path, &path).unwrap_err();
    }
}
