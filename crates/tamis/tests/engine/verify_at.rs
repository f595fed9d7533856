//! Verification of databases that damage keeps from being opened: it goes through everything and
//! tells damaged from sound files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tamis::io::{FileSystem, MemFs, Usage, read_file};
use tamis::maintenance::{VerifiedKind, VerifyReport};
use tamis::options::FilterChoice;
use tamis::{Durability, KeyspaceOptions, OpenError, Options, WriteBatch};

const DIR: &str = "db";

fn options(fs: &MemFs) -> Options {
    let keyspace = KeyspaceOptions {
        filter: FilterChoice::Grf.into(),
        memtable_bytes: 32 << 10,
        table_bytes: 8 << 10,
        block_bytes: 256,
        auto_compaction: false,
        ..KeyspaceOptions::default()
    };
    Options { keyspace, recycled_logs: 0, file_system: Some(Arc::new(fs.clone())), ..Options::default() }
}

/// A database with two keyspaces, several tables in each, a filter file, and synced writes in its
/// log.
fn filled(fs: &MemFs) {
    let db = options(fs).open(DIR).unwrap();
    let other = db.create_keyspace("other", options(fs).keyspace).unwrap();
    for round in 0..3 {
        for i in 0..300 {
            db.put(format!("key {i:04}"), format!("{round} {i:0>60}")).unwrap();
            other.put(format!("key {i:04}"), format!("other {round}")).unwrap();
        }
        db.flush().unwrap();
    }
    db.compact().unwrap();
    // Filter files are written in the background.
    db.wait_for_filters().unwrap();
    for i in 0..50 {
        let mut batch = WriteBatch::new();
        batch.put(format!("late {i}"), [i; 100]);
        db.write_with(batch, Durability::Sync).unwrap();
    }
    db.close().unwrap();
}

/// The files that hold data.
fn data_files(fs: &MemFs) -> Vec<String> {
    let mut names = fs.list(Path::new(DIR)).unwrap();
    names.retain(|name| name.contains('.') || name.starts_with("MANIFEST-") || name == "CURRENT");
    names.sort();
    names
}

fn overwrite(fs: &MemFs, path: &Path, bytes: &[u8]) {
    let beside = path.with_extension("new");
    fs.create(&beside, Usage::Log).unwrap().append(bytes).unwrap();
    fs.rename(&beside, path).unwrap();
}

fn copy_of(fs: &MemFs) -> MemFs {
    let copy = MemFs::new();
    copy.create_dir_all(Path::new(DIR)).unwrap();
    for name in fs.list(Path::new(DIR)).unwrap() {
        let path = Path::new(DIR).join(name);
        overwrite(&copy, &path, &read_file(fs, &path).unwrap());
    }
    copy
}

fn contents(fs: &MemFs) -> Vec<Vec<u8>> {
    data_files(fs).iter().map(|name| read_file(fs, &Path::new(DIR).join(name)).unwrap()).collect()
}

fn check(fs: &MemFs) -> VerifyReport {
    let before = contents(fs);
    let report = tamis_doctor::verify(DIR, options(fs)).unwrap();
    assert!(before == contents(fs), "verification changes nothing");
    report
}

#[test]
fn a_sound_database_has_no_problems_and_all_files_are_listed() {
    let fs = MemFs::new();
    assert!(tamis_doctor::verify(DIR, options(&fs)).is_err(), "there is none");
    filled(&fs);
    let report = check(&fs);
    assert_eq!((&report.problems, &report.unopenable), (&vec![], &None));
    assert!(report.log_writes == 50 && report.tables > 4 && report.filter_files > 0, "{report:?}");
    let listed: Vec<&str> = report.files.iter().map(|file| &*file.file).collect();
    for name in data_files(&fs).iter().filter(|name| *name != "CURRENT") {
        assert!(listed.contains(&&**name), "{name} not in {listed:?}");
    }
    let entries = |kind| report.files.iter().filter(|f| f.kind == kind).map(|f| f.entries).sum::<u64>();
    assert_eq!((entries(VerifiedKind::Log), entries(VerifiedKind::Table)), (50, report.entries));
    assert!(report.files.iter().any(|file| file.keyspace == "other"));
}

/// `verify` used to stop at the first damaged byte of a log, before any table was read.
#[test]
fn whatever_file_is_damaged_all_others_are_checked_and_found_sound() {
    let whole = MemFs::new();
    filled(&whole);
    let files = data_files(&whole);
    let (mut unopenable, mut cases) = (0, 0);
    for name in &files {
        let path: PathBuf = Path::new(DIR).join(name);
        let bytes = read_file(&whole, &path).unwrap();
        let flipped = |at: usize| {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x10;
            Some(bytes)
        };
        let len = bytes.len();
        let damages =
            [flipped(len / 4), flipped(len / 2), flipped(3 * len / 4), Some(bytes[..len / 2].to_vec()), None];
        for (n, damage) in damages.into_iter().enumerate() {
            let fs = copy_of(&whole);
            match &damage {
                Some(bytes) => overwrite(&fs, &path, bytes),
                None => fs.remove(&path).unwrap(),
            }
            let report = check(&fs);
            let what = format!("{name}, damage {n}: {:#?} {:#?}", report.problems, report.unopenable);
            // A missing filter file is no damage: it may have been dropped by a writer.
            let may_be_missing = name.ends_with(".flt") && damage.is_none();
            assert!(
                may_be_missing || report.problems.iter().any(|problem| problem.contains(&**name)),
                "{what}"
            );
            let opened = Options { on_damage: tamis::options::OnDamage::Quarantine, ..options(&fs) }
                .open_read_only(DIR);
            assert_eq!(opened.is_err(), report.unopenable.is_some(), "{what}");
            assert!(!matches!(opened, Err(OpenError::Changing { .. })), "{what}");
            for other in files.iter().filter(|other| *other != name && *other != "CURRENT") {
                if other.starts_with("MANIFEST") {
                    continue;
                }
                let found = report.files.iter().find(|file| file.file == *other);
                let found = found.unwrap_or_else(|| panic!("{other} was not checked: {what}"));
                assert_eq!(found.problems, Vec::<String>::new(), "{other}: {what}");
            }
            let blamed = report.files.iter().filter(|file| !file.problems.is_empty());
            let fits = |file: &str| file == name || file == "CURRENT" || file.starts_with("MANIFEST");
            assert!(blamed.clone().all(|file| fits(&file.file)), "{what}");
            assert!(report.tables > 4, "{what}");
            unopenable += u32::from(report.unopenable.is_some());
            cases += 1;
        }
    }
    assert!(unopenable > 10 && cases > unopenable, "{unopenable} of {cases}");
}
