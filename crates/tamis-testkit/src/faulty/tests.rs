use std::collections::BTreeSet;
use std::io::ErrorKind;

use proptest::prelude::*;

use tamis_env::io::{Access, FileSystem, Usage, WriteFile, read_file, write_file_atomically};

use super::model::SECTOR;
use super::*;

const LOG: &str = "/db/log";

/// A machine whose directory `/db` survives.
fn machine(seed: u64) -> FaultyFs {
    let fs = FaultyFs::new(seed);
    fs.create_dir_all(Path::new("/db")).unwrap();
    fs.sync_dir(Path::new("/")).unwrap();
    fs
}

/// A file whose name survives, with `synced` as its durable content.
fn file(fs: &FaultyFs, path: &str, synced: &[u8]) -> Box<dyn WriteFile> {
    let mut file = fs.create(Path::new(path), Usage::Log).unwrap();
    file.append(synced).unwrap();
    file.sync().unwrap();
    fs.sync_dir(Path::new("/db")).unwrap();
    file
}

fn content(fs: &FaultyFs, path: &str) -> Option<Vec<u8>> {
    match read_file(fs, Path::new(path)) {
        Err(e) if e.kind() == ErrorKind::NotFound => None,
        read => Some(read.unwrap()),
    }
}

fn fail_next(fs: &FaultyFs, only: OpClass) {
    fs.plan(FaultPlan { fail_at: Some(fs.operations()), only: Some(only), ..FaultPlan::none() });
}

#[test]
fn a_power_cut_loses_unsynced_data_and_nothing_else() {
    let fs = machine(1);
    let mut log = file(&fs, LOG, b"synced");
    log.append(b" lost").unwrap();
    assert_eq!(content(&fs, LOG).unwrap(), b"synced lost");
    assert_eq!(fs.durable_bytes(LOG).unwrap(), b"synced");
    assert_eq!(content(&fs.crash(CrashMode::DropUnsynced), LOG).unwrap(), b"synced");
}

#[test]
fn a_process_crash_keeps_everything_but_makes_nothing_durable() {
    let fs = machine(1);
    let mut log = file(&fs, LOG, b"synced");
    log.append(b" kept").unwrap();
    fs.create(Path::new("/db/new"), Usage::Log).unwrap();
    let fs = fs.crash(CrashMode::KeepAll);
    assert_eq!(content(&fs, LOG).unwrap(), b"synced kept");
    assert_eq!(content(&fs, "/db/new").unwrap(), b"");
    let fs = fs.crash(CrashMode::DropUnsynced);
    assert_eq!(content(&fs, LOG).unwrap(), b"synced");
    assert_eq!(content(&fs, "/db/new"), None);
}

#[test]
fn a_synced_file_is_lost_with_its_unsynced_name() {
    let fs = machine(1);
    let mut log = fs.create(Path::new(LOG), Usage::Log).unwrap();
    log.append(b"x").unwrap();
    log.sync().unwrap();
    assert_eq!(fs.durable_bytes(LOG), None);
    assert_eq!(content(&fs.after_crash(CrashMode::DropUnsynced), LOG), None);
    // Nor does syncing its directory save it if the directory's own name was not synced.
    let fs = FaultyFs::new(1);
    fs.create_dir_all(Path::new("/db")).unwrap();
    file(&fs, LOG, b"x");
    assert_eq!(content(&fs.crash(CrashMode::DropUnsynced), LOG), None);
}

#[test]
fn an_unsynced_rename_may_be_undone_but_never_loses_the_file() {
    let fs = machine(2);
    write_file_atomically(&fs, Path::new("/db/CURRENT"), b"one").unwrap();
    let mut beside = file(&fs, "/db/CURRENT.tmp", b"two");
    beside.sync().unwrap();
    fs.rename(Path::new("/db/CURRENT.tmp"), Path::new("/db/CURRENT")).unwrap();
    assert_eq!(fs.durable_bytes("/db/CURRENT").unwrap(), b"one");
    let mut seen = BTreeSet::new();
    for _ in 0..50 {
        let after = fs.after_crash(CrashMode::Random);
        let current = content(&after, "/db/CURRENT").unwrap();
        assert_eq!(content(&after, "/db/CURRENT.tmp").is_some(), current == b"one");
        seen.insert(current);
    }
    assert_eq!(seen.len(), 2);
    fs.sync_dir(Path::new("/db")).unwrap();
    assert_eq!(content(&fs.crash(CrashMode::DropUnsynced), "/db/CURRENT").unwrap(), b"two");
}

#[test]
fn a_prefix_of_a_directorys_changes_survives() {
    let fs = machine(3);
    for n in 0..6 {
        fs.create(Path::new(&format!("/db/{n}")), Usage::Log).unwrap();
    }
    let mut counts = BTreeSet::new();
    for _ in 0..100 {
        let mut names = fs.after_crash(CrashMode::Random).list(Path::new("/db")).unwrap();
        names.sort();
        assert!(names.iter().enumerate().all(|(n, name)| *name == n.to_string()), "{names:?}");
        counts.insert(names.len());
    }
    assert_eq!(counts.len(), 7);
}

#[test]
fn sectors_survive_in_any_combination_and_at_most_one_is_torn() {
    let fs = machine(4);
    drop(file(&fs, LOG, &[1; 8 * SECTOR]));
    let mut log = fs.reuse(Path::new(LOG), Path::new("/db/log2")).unwrap();
    fs.sync_dir(Path::new("/db")).unwrap();
    log.append(&[2; 6 * SECTOR]).unwrap();
    let (mut torn_seen, mut out_of_order, mut patterns) = (false, false, BTreeSet::new());
    for _ in 0..300 {
        let bytes = content(&fs.after_crash(CrashMode::Random), "/db/log2").unwrap();
        assert_eq!(bytes.len(), 8 * SECTOR);
        assert!(bytes[6 * SECTOR..].iter().all(|b| *b == 1));
        let fresh: Vec<usize> =
            bytes.chunks(SECTOR).map(|sector| sector.iter().filter(|b| **b == 2).count()).collect();
        let torn = fresh.iter().filter(|n| !matches!(**n, 0 | SECTOR)).count();
        assert!(torn <= 1, "{fresh:?}");
        torn_seen |= torn == 1;
        out_of_order |= fresh.windows(2).any(|pair| pair[0] == 0 && pair[1] == SECTOR);
        patterns.insert(fresh);
    }
    assert!(torn_seen && out_of_order && patterns.len() > 50, "{}", patterns.len());
    assert!(patterns.contains(&vec![0; 8]));
}

#[test]
fn an_unsynced_length_ends_anywhere_and_a_synced_reserve_stays() {
    let fs = machine(5);
    let mut log = file(&fs, LOG, &[1; 100]);
    log.append(&[2; 900]).unwrap();
    let lengths: BTreeSet<usize> =
        (0..60).map(|_| content(&fs.after_crash(CrashMode::Random), LOG).unwrap().len()).collect();
    assert!(lengths.first() == Some(&100) && lengths.last() == Some(&1000) && lengths.len() > 5);

    log.preallocate(5000).unwrap();
    log.sync().unwrap();
    log.append(&[3; 1000]).unwrap();
    for _ in 0..20 {
        let bytes = content(&fs.after_crash(CrashMode::Random), LOG).unwrap();
        assert_eq!(bytes.len(), 5000);
        assert!(bytes[100..1000].iter().all(|b| *b == 2) && bytes[2000..].iter().all(|b| *b == 0));
    }
}

#[test]
fn zeros_over_bytes_cut_but_not_synced_are_written_by_the_next_sync() {
    let fs = machine(5);
    drop(file(&fs, LOG, &[1; 1000]));
    let mut log = fs.reuse(Path::new(LOG), Path::new(LOG)).unwrap();
    log.append(&[2; 10]).unwrap();
    log.truncate_to_written().unwrap();
    log.preallocate(2000).unwrap();
    assert_eq!(fs.durable_bytes(LOG).unwrap(), [1; 1000]);
    log.sync().unwrap();
    assert!(fs.durable_bytes(LOG).unwrap() == [&[2; 10][..], &[0; 1990]].concat());
}

#[test]
fn no_later_sync_saves_the_bytes_of_a_failed_one() {
    let fs = machine(6);
    let mut log = file(&fs, LOG, b"one");
    log.append(b"two").unwrap();
    fail_next(&fs, OpClass::Sync);
    let error = log.sync().unwrap_err();
    assert!(!cfg!(unix) || error.raw_os_error() == Some(5), "{error}");
    log.append(b"three").unwrap();
    log.sync().unwrap();
    // It still reads back as if all were well.
    assert_eq!(content(&fs, LOG).unwrap(), b"onetwothree");
    assert_eq!(fs.durable_bytes(LOG).unwrap(), b"one\0\0\0three");
    assert_eq!(content(&fs.after_crash(CrashMode::DropUnsynced), LOG).unwrap(), b"one\0\0\0three");
    // By luck the bytes may have reached the medium all the same.
    let seen: BTreeSet<Vec<u8>> =
        (0..40).map(|_| content(&fs.after_crash(CrashMode::Random), LOG).unwrap()).collect();
    assert!(seen.contains(&b"onetwothree"[..]) && seen.contains(&b"one\0\0\0three"[..]), "{seen:?}");
}

/// A run that uses every kind of operation; each step must pass on its error.
fn workload(fs: &FaultyFs) -> io::Result<()> {
    let (a, b, c) = (Path::new("/w/a"), Path::new("/w/b"), Path::new("/w/c"));
    fs.create_dir_all(Path::new("/w"))?;
    let _lock = fs.lock(Path::new("/w/LOCK"))?;
    let mut file = fs.create(a, Usage::Log)?;
    file.preallocate(100)?;
    file.append(b"bytes")?;
    file.truncate_to_written()?;
    file.sync()?;
    fs.sync_dir(Path::new("/w"))?;
    fs.link_or_copy(a, c)?;
    fs.rename(a, b)?;
    let reader = fs.open(b, Access::Random)?;
    reader.len()?;
    reader.read_exact_at(&mut [0; 5], 0)?;
    fs.exists(a)?;
    fs.file_len(b)?;
    fs.list(Path::new("/w"))?;
    fs.reuse(b, a)?;
    fs.remove(a)?;
    fs.remove_dir_all(Path::new("/w"))
}

#[test]
fn every_operation_can_be_made_to_fail() {
    let dry = FaultyFs::new(7);
    workload(&dry).unwrap();
    assert_eq!(dry.operations(), 19);
    for n in 0..dry.operations() {
        let fs = FaultyFs::new(7);
        fs.plan(FaultPlan { fail_at: Some(n), error: ErrorKind::StorageFull, ..FaultPlan::none() });
        assert_eq!(workload(&fs).unwrap_err().kind(), ErrorKind::StorageFull, "operation {n}");
        assert_eq!((fs.operations(), fs.failures()), (n + 1, 1));
    }
    let fs = FaultyFs::new(7);
    fs.plan(FaultPlan { fail_at: Some(dry.operations()), ..FaultPlan::none() });
    workload(&fs).unwrap();
    assert_eq!(fs.failures(), 0);
}

#[test]
fn a_plan_fails_once_or_permanently_and_only_its_class() {
    let fs = machine(8);
    let mut log = file(&fs, LOG, b"");
    fail_next(&fs, OpClass::Sync);
    log.append(b"a").unwrap();
    log.sync().unwrap_err();
    log.sync().unwrap();

    let at = Some(fs.operations() + 1);
    fs.plan(FaultPlan { fail_at: at, sticky: true, only: Some(OpClass::Write), ..FaultPlan::none() });
    log.append(b"b").unwrap();
    log.append(b"c").unwrap_err();
    log.sync().unwrap();
    log.append(b"c").unwrap_err();
    fs.plan(FaultPlan::none());
    log.append(b"c").unwrap();
    assert_eq!(content(&fs, LOG).unwrap(), b"abc");
}

#[test]
fn a_failed_append_may_leave_a_prefix_that_the_next_one_overwrites() {
    let fs = machine(9);
    let mut lengths = BTreeSet::new();
    for _ in 0..30 {
        let mut log = file(&fs, LOG, b"head");
        let fail_at = Some(fs.operations());
        fs.plan(FaultPlan { fail_at, partial_append: true, ..FaultPlan::none() });
        log.append(&[9; 100]).unwrap_err();
        let left = content(&fs, LOG).unwrap();
        assert!(left.starts_with(b"head") && left[4..].iter().all(|b| *b == 9));
        lengths.insert(left.len());
        log.append(b"next").unwrap();
        log.truncate_to_written().unwrap();
        assert_eq!(content(&fs, LOG).unwrap(), b"headnext");
    }
    assert!(lengths.len() > 5 && lengths.iter().all(|len| (4..=104).contains(len)));
}

#[test]
fn a_full_device_refuses_until_something_is_removed() {
    let fs = machine(10);
    fs.set_capacity(Some(1000));
    let mut log = file(&fs, LOG, &[1; 600]);
    let mut more = file(&fs, "/db/more", &[2; 300]);
    assert_eq!(fs.available_space(Path::new("/db")).unwrap(), Some(100));
    assert_eq!(more.preallocate(401).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(more.append(&[2; 101]).unwrap_err().kind(), ErrorKind::StorageFull);
    more.truncate_to_written().unwrap();
    more.append(&[2; 100]).unwrap();
    assert_eq!(log.append(b"x").unwrap_err().kind(), ErrorKind::StorageFull);
    // A second name keeps the space in use; overwriting takes none.
    fs.link_or_copy(Path::new("/db/more"), Path::new("/db/again")).unwrap();
    fs.remove(Path::new("/db/more")).unwrap();
    assert_eq!(fs.available_space(Path::new("/db")).unwrap(), Some(0));
    fs.reuse(Path::new("/db/again"), Path::new("/db/more")).unwrap().append(&[3; 400]).unwrap();
    fs.remove(Path::new("/db/more")).unwrap();
    assert_eq!(fs.available_space(Path::new("/db")).unwrap(), Some(400));
    log.append(&[1; 400]).unwrap();
    // The restarted machine is as full as what it found, and the removals were not synced.
    let after = fs.after_crash(CrashMode::DropUnsynced);
    assert_eq!(after.available_space(Path::new("/db")).unwrap(), Some(100));
    let after = fs.crash(CrashMode::KeepAll);
    assert_eq!(after.available_space(Path::new("/db")).unwrap(), Some(0));
}

#[test]
fn a_replaced_file_frees_its_space() {
    let fs = machine(10);
    fs.set_capacity(Some(1000));
    let free = || fs.available_space(Path::new("/db")).unwrap().unwrap();
    file(&fs, LOG, &[1; 600]);
    let mut log = file(&fs, LOG, &[1; 700]);
    assert_eq!(free(), 300);
    file(&fs, "/db/other", &[2; 100]);
    fs.rename(Path::new("/db/other"), Path::new(LOG)).unwrap();
    assert_eq!(free(), 900);
    // Appends to the unnamed file take no space.
    log.append(&[1; 5000]).unwrap();
    assert_eq!(free(), 900);
}

#[test]
fn a_crash_ends_all_handles_and_frees_the_locks() {
    let fs = machine(11);
    let mut log = file(&fs, LOG, b"x");
    let reader = fs.open(Path::new(LOG), Access::Random).unwrap();
    let held = fs.lock(Path::new("/db/LOCK")).unwrap();
    assert!(fs.lock(Path::new("/db/LOCK")).unwrap().is_none());
    let after = fs.crash(CrashMode::KeepAll);
    let operations = fs.operations();
    log.append(b"y").unwrap_err();
    log.sync().unwrap_err();
    reader.read_exact_at(&mut [0], 0).unwrap_err();
    fs.clone().list(Path::new("/db")).unwrap_err();
    assert_eq!((fs.operations(), after.operations()), (operations, 0));
    let again = after.lock(Path::new("/db/LOCK")).unwrap();
    assert!(again.is_some());
    drop(held);
    assert!(after.lock(Path::new("/db/LOCK")).unwrap().is_none());
    assert_eq!(content(&after, LOG).unwrap(), b"x");
}

#[test]
fn a_file_with_two_names_is_one_file_after_a_crash() {
    let fs = machine(12);
    file(&fs, LOG, b"0123");
    fs.link_or_copy(Path::new(LOG), Path::new("/db/second")).unwrap();
    fs.sync_dir(Path::new("/db")).unwrap();
    let fs = fs.crash(CrashMode::Random);
    fs.reuse(Path::new(LOG), Path::new(LOG)).unwrap().append(b"ab").unwrap();
    assert_eq!(content(&fs, "/db/second").unwrap(), b"ab23");
}

#[test]
fn removed_files_come_back_unless_the_directory_was_synced() {
    let fs = machine(13);
    fs.create_dir_all(Path::new("/db/sub")).unwrap();
    file(&fs, "/db/sub/f", b"x");
    fs.sync_dir(Path::new("/db/sub")).unwrap();
    fs.remove_dir_all(Path::new("/db/sub")).unwrap();
    assert!(fs.files().is_empty());
    let after = fs.after_crash(CrashMode::DropUnsynced);
    assert_eq!(after.files(), [(PathBuf::from("/db/sub/f"), 1)]);
    fs.sync_dir(Path::new("/db")).unwrap();
    assert!(fs.crash(CrashMode::DropUnsynced).files().is_empty());
}

#[test]
fn swapped_directories_survive_a_crash() {
    let fs = machine(14);
    fs.create_dir_all(Path::new("/db/a/b")).unwrap();
    fs.sync_dir(Path::new("/db")).unwrap();
    fs.sync_dir(Path::new("/db/a")).unwrap();
    fs.rename(Path::new("/db/a/b"), Path::new("/db/b")).unwrap();
    fs.rename(Path::new("/db/a"), Path::new("/db/b/a")).unwrap();
    let after = fs.crash(CrashMode::KeepAll);
    assert!(after.exists(Path::new("/db/b/a")).unwrap() && !after.exists(Path::new("/db/a")).unwrap());
    assert!(after.crash(CrashMode::DropUnsynced).exists(Path::new("/db/a/b")).unwrap());
}

#[test]
fn damage_is_permanent_and_within_the_file() {
    let fs = machine(15);
    let mut log = file(&fs, LOG, b"0123");
    log.append(b"45").unwrap();
    fs.corrupt(LOG, 1, 0xff).unwrap();
    fs.corrupt(LOG, 5, 1).unwrap();
    fs.corrupt(LOG, 6, 1).unwrap_err();
    fs.corrupt("/db/none", 0, 1).unwrap_err();
    assert_eq!(content(&fs, LOG).unwrap(), b"0\xce2344");
    assert_eq!(fs.durable_bytes(LOG).unwrap(), b"0\xce23");
    fs.truncate(LOG, 3).unwrap();
    fs.truncate(LOG, 4).unwrap_err();
    assert_eq!(fs.files(), [(PathBuf::from(LOG), 3)]);
    assert_eq!(content(&fs.crash(CrashMode::DropUnsynced), LOG).unwrap(), b"0\xce2");
}

#[test]
fn equal_seeds_give_equal_crashes() {
    let crashes = |seed| {
        let fs = machine(seed);
        let mut log = file(&fs, LOG, &[1; 3000]);
        log.append(&[2; 9000]).unwrap();
        (0..5).map(|_| content(&fs.after_crash(CrashMode::Random), LOG)).collect::<Vec<_>>()
    };
    assert!(crashes(1) == crashes(1));
    assert!(crashes(1) != crashes(2));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    /// Appends, good and failed syncs, reserves, cuts and restarts of the writer, against two
    /// vectors.
    #[test]
    fn every_surviving_byte_is_the_old_or_the_new_one(
        seed: u64,
        steps in prop::collection::vec((0u8..10, 0usize..1500), 1..20),
    ) {
        let fs = machine(seed);
        let mut log = file(&fs, LOG, b"");
        let (mut volatile, mut durable, mut written) = (Vec::new(), Vec::new(), 0);
        // Whether the byte was given up by a failed sync and not written since.
        let mut abandoned: Vec<bool> = Vec::new();
        // Whether it was written since the last sync.
        let mut fresh: Vec<bool> = Vec::new();
        for (salt, (action, len)) in steps.into_iter().enumerate() {
            match action {
                0..=3 => {
                    log.append(&vec![salt as u8 + 1; len]).unwrap();
                    let end = written + len;
                    let longest = volatile.len().max(end);
                    volatile.resize(longest, 0);
                    fresh.resize(longest, false);
                    abandoned.resize(longest, false);
                    volatile[written..end].fill(salt as u8 + 1);
                    fresh[written..end].fill(true);
                    abandoned[written..end].fill(false);
                    written = end;
                }
                4 | 5 => {
                    log.sync().unwrap();
                    let old = std::mem::replace(&mut durable, volatile.clone());
                    for i in (0..durable.len()).filter(|i| abandoned[*i]) {
                        durable[i] = old.get(i).copied().unwrap_or(0);
                    }
                    fresh.fill(false);
                }
                6 => {
                    fail_next(&fs, OpClass::Sync);
                    log.sync().unwrap_err();
                    for (a, f) in abandoned.iter_mut().zip(&mut fresh) {
                        *a |= std::mem::take(f);
                    }
                }
                7 | 8 => {
                    let len = if action == 7 { volatile.len() + len } else { written };
                    if action == 7 {
                        log.preallocate(len as u64).unwrap();
                    } else {
                        log.truncate_to_written().unwrap();
                    }
                    // Zeros over bytes that the medium still has are a write like any other.
                    let old = volatile.len();
                    volatile.resize(len, 0);
                    fresh.resize(len, false);
                    abandoned.resize(len, false);
                    for flag in fresh.iter_mut().take(durable.len()).skip(old) {
                        *flag = true;
                    }
                }
                _ => {
                    log = fs.reuse(Path::new(LOG), Path::new(LOG)).unwrap();
                    written = 0;
                }
            }
        }
        prop_assert!(content(&fs, LOG).unwrap() == volatile);
        prop_assert!(fs.durable_bytes(LOG).unwrap() == durable);
        prop_assert!(content(&fs.after_crash(CrashMode::KeepAll), LOG).unwrap() == volatile);
        prop_assert!(content(&fs.after_crash(CrashMode::DropUnsynced), LOG).unwrap() == durable);
        for _ in 0..8 {
            let after = content(&fs.after_crash(CrashMode::Random), LOG).unwrap();
            let (least, most) = (volatile.len().min(durable.len()), volatile.len().max(durable.len()));
            prop_assert!((least..=most).contains(&after.len()));
            for (i, byte) in after.iter().enumerate() {
                let old = durable.get(i).copied().unwrap_or(0);
                prop_assert!(*byte == old || Some(byte) == volatile.get(i), "byte {} is {}", i, byte);
            }
        }
    }
}
