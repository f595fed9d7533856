//! What is in the directory of a checkpoint, and what a failed one leaves.

use tamis_base::ids::DEFAULT_KEYSPACE;
use tamis_testkit::{CrashMode, FaultPlan, FaultyFs, OpClass};

use super::*;
use crate::Options;
use crate::io::{FileSystem, MemFs, read_file};
use crate::open;
use crate::open::follow::tests::by_hand;
use crate::open::tests::{fill, options};

/// Its manifest has the first number that no file has, and knows the next one.
#[test]
fn a_checkpoint_goes_on_with_the_numbers_of_its_database() {
    let fs = MemFs::new();
    let session = open::open(Path::new("db"), options(&fs), None).unwrap();
    session.checkpoint(Path::new("copy")).unwrap();
    let copied = Manifest::open(&fs, Path::new("copy")).unwrap().unwrap();
    let next = session.files.numbers.next();
    assert_eq!((copied.number, copied.state.next_file), (next, next + 1));
    let stored = |dir: &str| read_file(&fs, &options_path(Path::new(dir)));
    assert_eq!(stored("copy").unwrap(), stored("db").unwrap());
}

/// The name of `CURRENT` may have become durable although that was answered with an error. Then the
/// other removals may be undone, all or some.
#[test]
fn no_power_failure_makes_a_database_of_a_failed_checkpoint() {
    let mut failed = 0;
    for at in 0.. {
        let fs = FaultyFs::new(at);
        let options = Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() };
        let session = open::open(Path::new("/db"), options, None).unwrap();
        let (done, failures) = (fs.operations(), fs.failures());
        fs.plan(FaultPlan { fail_at: Some(done + at), only: Some(OpClass::Sync), ..FaultPlan::none() });
        let made = session.checkpoint(Path::new("/copy"));
        if fs.failures() == failures {
            made.unwrap();
            break;
        }
        if made.is_ok() {
            continue;
        }
        failed += 1;
        assert!(!fs.exists(Path::new("/copy")).unwrap(), "{at}");
        for _ in 0..20 {
            let left = fs.after_crash(CrashMode::Random);
            assert!(!left.exists(&current_path(Path::new("/copy"))).unwrap(), "{at}");
        }
    }
    assert!(failed > 3, "{failed}");
}

/// It would lack what is in memory only.
#[test]
fn a_database_that_waits_for_room_begins_before_its_checkpoint() {
    let fs = by_hand(&[(5, &[1, 2], false)], 0);
    fill(&fs);
    let options = || Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() };
    let session = open::open(Path::new("/db"), options(), None).unwrap();
    assert!(session.gate.is_waiting());
    let refused = session.checkpoint(Path::new("/copy")).unwrap_err();
    assert!(matches!(refused, AdminError::Write(WriteError::Suspended { .. })), "{refused:?}");
    assert!(!fs.exists(Path::new("/copy")).unwrap());
    fs.set_capacity(None);
    session.checkpoint(Path::new("/copy")).unwrap();
    assert!(!session.gate.is_waiting());
    let copy = open::open(Path::new("/copy"), options(), None).unwrap();
    let default = copy.keyspaces.directory.load().get(&DEFAULT_KEYSPACE).unwrap().clone();
    let entries: u64 = default.view.load().version.tables.iter().map(|table| table.meta.entries).sum();
    assert_eq!((copy.visible(), entries), (2, 2));
}
