//! Logs and manifests that contradict each other, disks that fail or are full, and states that are
//! restored.

use std::sync::Arc;

use tamis_base::ids::DEFAULT_KEYSPACE;
use tamis_base::key::MAX_SEQNO;
use tamis_files::tree::manifest::Manifest;
use tamis_testkit::{CrashMode, FaultPlan, FaultyFs, OpClass};

use super::*;
use crate::batch::WriteBatch;
use crate::external::ExternalTableBuilder;
use crate::ingest::IngestOptions;
use crate::io::{MemFs, Usage};
use crate::open;
use crate::open::follow::tests::by_hand;
use crate::open::tests::{fill, names, options, refusal, repair, stored, with_log};
use crate::{Db, Options};

const DIR: &str = "/db";

fn on(fs: &FaultyFs) -> Options {
    Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() }
}

fn opened(options: Options) -> Result<Arc<Session>, OpenError> {
    open::open(Path::new(DIR), options, None)
}

fn entries_in_tables(db: &Session) -> Vec<u64> {
    let default = db.keyspaces.directory.load().get(&DEFAULT_KEYSPACE).unwrap().clone();
    default.view.load().version.tables.iter().map(|table| table.meta.entries).collect()
}

/// The first manifest of a database has no edits. Once there is a table or a write, one is missing.
#[test]
fn data_that_no_edit_knows_of_is_damage() {
    let with_table = || {
        let fs = stored(&ManifestState::new("default", ""));
        fs.create(Path::new("db/000009.tam"), Usage::Table).unwrap();
        fs
    };
    let with_write = || {
        let fs = with_log(&[(1, WriteBatch::new().put("a", "1"))], 1);
        let mut state = ManifestState::new("default", "");
        (state.last_seq, state.next_file) = (1, 6);
        let manifest = Manifest::create(&fs, Path::new("db"), 2, &state).unwrap();
        manifest.close().unwrap();
        tamis_files::tree::manifest::set_current(&fs, Path::new("db"), 2).unwrap();
        fs
    };
    for make in [&with_table as &dyn Fn() -> MemFs, &with_write] {
        for opened in [options(&make()).open_read_only("db"), options(&make()).open("db")] {
            let message = refusal(opened);
            assert!(message.contains("its edits are missing"), "{message}");
        }
        let told = |plan: &crate::session::repair::Plan<'_>| {
            let session = open::open(Path::new("db"), options(&make()), Some(plan)).unwrap();
            session.observed.warnings.all().iter().any(|told| told.contains("its edits are missing"))
        };
        assert!(told(&repair));
        // It made the manifest.
        let rebuilt = |fs: &dyn FileSystem| Ok(repair(fs)?.map(|repair| Repair { rebuilt: true, ..repair }));
        assert!(!told(&rebuilt));
    }
}

#[test]
fn writes_that_a_repair_has_in_tables_are_not_replayed() {
    let mut batch = WriteBatch::new();
    batch.put("a", "1").put("b", "2").put("c", "3");
    let fs = with_log(&[(1, &batch)], 3);
    let covers = |fs: &dyn FileSystem| {
        Ok(repair(fs)?
            .map(|repair| Repair { covered: [(DEFAULT_KEYSPACE, 2)].into_iter().collect(), ..repair }))
    };
    let session = open::open(Path::new("db"), options(&fs), Some(&covers)).unwrap();
    assert_eq!((session.visible(), entries_in_tables(&session)), (3, vec![1]));
}

#[test]
fn a_log_with_a_number_that_no_database_reaches_is_damage() {
    for (last, is_fine) in [(MAX_SEQNO / 2, true), (MAX_SEQNO / 2 + 1, false)] {
        let opened = opened(on(&by_hand(&[(5, &[last], false)], 0)));
        assert_eq!(opened.is_ok(), is_fine);
        if let Err(error) = opened {
            let error = error.to_string();
            assert!(error.contains("000005.log") && error.contains("no database reaches"), "{error}");
        }
    }
}

/// The log that the process had not ended, and what it had written of a record.
#[test]
fn an_opening_tells_what_it_cuts_off() {
    let fs = by_hand(&[(5, &[1, 2], false)], 0);
    let torn = log_path(Path::new(DIR), 5);
    fs.truncate(&torn, fs.file_len(&torn).unwrap() - 1).unwrap();
    let session = opened(on(&fs)).unwrap();
    let told = session.observed.warnings.all().join("\n");
    assert!(told.contains("a record is torn; it was never synced"), "{told}");
    assert_eq!(session.visible(), 1);
}

#[test]
fn every_session_writes_its_options() {
    let fs = MemFs::new();
    drop(options(&fs).open("db").unwrap());
    let path = tamis_files::tree::files::options_path(Path::new("db"));
    fs.remove(&path).unwrap();
    drop(options(&fs).open("db").unwrap());
    assert!(fs.exists(&path).unwrap());
}

/// Without readers of changes, nothing is done with logs before the session begins.
#[test]
fn on_a_full_disk_logs_stay_as_they_are_unless_changes_are_kept() {
    let fs = by_hand(&[(5, &[1, 2], false), (6, &[2], false)], 0);
    let torn = log_path(Path::new(DIR), 5);
    fs.truncate(&torn, fs.file_len(&torn).unwrap() - 1).unwrap();
    fill(&fs);
    let session = opened(on(&fs)).unwrap();
    assert!(session.gate.is_waiting());
    assert_eq!(session.state().logs.current(), 5, "the logs from there on count");
    assert!(names(&fs).contains(&"000006.log".to_owned()), "{:?}", names(&fs));
}

#[test]
fn on_a_full_disk_that_cannot_sync_an_opening_tells_what_may_be_lost() {
    let fs = by_hand(&[(5, &[1, 2], false)], 0);
    fill(&fs);
    fs.plan(FaultPlan {
        fail_at: Some(fs.operations()),
        only: Some(OpClass::Sync),
        sticky: true,
        ..FaultPlan::none()
    });
    let session = opened(on(&fs)).unwrap();
    assert!(session.gate.is_waiting());
    let told = session.observed.warnings.all().join("\n");
    assert!(told.contains("the data shown could not be synced"), "{told}");
}

#[test]
fn readers_of_changes_are_warned_if_a_log_cannot_be_synced_for_them() {
    let mut warned = 0;
    for at in 0.. {
        let fs = by_hand(&[(5, &[1, 2], false)], 0);
        let (done, failures) = (fs.operations(), fs.failures());
        fs.plan(FaultPlan { fail_at: Some(done + at), only: Some(OpClass::Sync), ..FaultPlan::none() });
        let opened = opened(Options { changes_keep_bytes: 1 << 20, ..on(&fs) });
        if fs.failures() == failures {
            break;
        }
        let Ok(session) = opened else { continue };
        let told = session.observed.warnings.all();
        warned += u32::from(told.iter().any(|told| told.contains("readers of changes may fall behind")));
    }
    assert!(warned > 0);
}

/// Returns a crashed database whose log has this sum in counters, and more than a memtable holds.
fn with_counters(count: u64) -> FaultyFs {
    let fs = FaultyFs::new(1);
    let mut large = counting(&fs);
    large.keyspace.memtable_bytes = 4 << 20;
    let db = large.open(DIR).unwrap();
    for i in 0..count {
        db.merge((i % 100).to_be_bytes(), 1u64.to_le_bytes()).unwrap();
        db.put(i.to_be_bytes().repeat(4), [7; 100]).unwrap();
    }
    fs.after_crash(CrashMode::KeepAll)
}

fn counting(fs: &FaultyFs) -> Options {
    let mut options = on(fs);
    options.keyspace.merge_operator = Some("add".into());
    options.keyspace.memtable_bytes = 32 << 10;
    options.keyspace.auto_compaction = false;
    options
}

/// Asserts that a database has all writes of [`with_counters`], each once.
fn check_counters(db: &Db, count: u64, what: &str) {
    let mut sum = 0;
    for i in 0..100u64 {
        let value = db.get(i.to_be_bytes()).unwrap().unwrap();
        sum += u64::from_le_bytes(value[..].try_into().unwrap());
    }
    assert_eq!((sum, db.iter().count() as u64), (count, count + 100), "{what}");
}

/// However far it gets, a full disk neither loses a replayed write nor applies it twice, and what
/// was made of it is removed.
#[test]
fn on_a_disk_with_any_room_all_writes_are_replayed_once() {
    const COUNT: u64 = 400;
    let base = with_counters(COUNT);
    let used: u64 = base.files().iter().map(|(_, len)| len).sum();
    let (mut waited, mut began) = (0, 0);
    for room in (0..).step_by(3 << 10) {
        let fs = base.after_crash(CrashMode::KeepAll);
        let before = names(&fs);
        fs.set_capacity(Some(used + room));
        let db = counting(&fs).open(DIR).unwrap();
        check_counters(&db, COUNT, &format!("with {room} bytes"));
        if !db.stats().warnings.iter().any(|told| told.contains("without room to write")) {
            began += 1;
            if began > 2 {
                break;
            }
            continue;
        }
        waited += 1;
        let tables = names(&fs).into_iter().filter(|name| name.ends_with(".tam") && !before.contains(name));
        assert_eq!(tables.collect::<Vec<_>>(), [""; 0], "with {room} bytes");
        fs.set_capacity(None);
        db.close().unwrap();
        check_counters(&counting(&fs).open(DIR).unwrap(), COUNT, &format!("later, with {room} bytes"));
    }
    assert!(waited > 5, "{waited}");
}

/// Only a lack of room is waited for.
#[test]
fn an_opening_that_cannot_write_fails() {
    const COUNT: u64 = 300;
    let base = with_counters(COUNT);
    let mut failed = 0;
    for at in 0.. {
        let fs = base.after_crash(CrashMode::KeepAll);
        let (done, failures) = (fs.operations(), fs.failures());
        fs.plan(FaultPlan {
            fail_at: Some(done + at),
            only: Some(OpClass::Write),
            sticky: true,
            ..FaultPlan::none()
        });
        let opened = opened(counting(&fs));
        if fs.failures() == failures {
            break;
        }
        let error = opened.expect_err("no write succeeds");
        assert!(matches!(error, OpenError::Storage(_)), "{error:?}");
        failed += 1;
        fs.plan(FaultPlan::none());
        check_counters(&counting(&fs).open(DIR).unwrap(), COUNT, &format!("after {at}"));
    }
    assert!(failed > 5, "{failed}");
}

/// A state between none of the writes and all of them.
#[test]
fn the_state_after_any_write_in_the_logs_is_restored() {
    for (until, known) in (0..4).flat_map(|until| [(until, 0), (until, 3)]) {
        let fs = by_hand(&[(5, &[1, 2], true), (6, &[3], false)], known);
        // What is below the floor is no part of it, whatever it holds.
        let mut other = fs.create(&log_path(Path::new(DIR), 3), Usage::Log).unwrap();
        other.append(&[7; 1000]).unwrap();
        drop(other);
        let session = opened(Options { recover_to: Some(until), ..on(&fs) }).unwrap();
        let entries: u64 = entries_in_tables(&session).iter().sum();
        assert_eq!((session.visible(), entries), (until, until), "{known}");
    }
}

/// The last write that the manifest knows is an ingestion, which the logs name as well.
#[test]
fn the_state_after_an_ingestion_is_restored() {
    let fs = FaultyFs::new(1);
    let db = on(&fs).open(DIR).unwrap();
    db.put("a", "before").unwrap();
    let options = on(&fs).keyspace;
    let mut table = ExternalTableBuilder::create_on(Arc::new(fs.clone()), "/table", &options).unwrap();
    table.put("z", "ingested").unwrap();
    table.finish().unwrap();
    db.default_keyspace().ingest(&["/table"], IngestOptions::default()).unwrap();
    let until = db.stats().visible_seq;
    db.put("a", "after").unwrap();
    let fs = fs.after_crash(CrashMode::KeepAll);
    let db = Options { recover_to: Some(until), ..on(&fs) }.open(DIR).unwrap();
    let values = ["a", "z"].map(|key| db.get(key).unwrap().unwrap().to_vec());
    assert_eq!(values, [&b"before"[..], b"ingested"]);
}
