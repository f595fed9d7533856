//! Long calls that their thread gives up. They went on to their end, whatever a user did at the
//! keyboard.

use std::cell::Cell;
use std::sync::Arc;

use tamis::io::MemFs;
use tamis::maintenance::interruptible;
use tamis::{AdminError, Db, Error, Options};

thread_local! {
    static ANSWERS: Cell<u32> = const { Cell::new(0) };
}

/// Says yes the second time it is asked: then the call is under way.
fn later() -> bool {
    ANSWERS.set(ANSWERS.get() + 1);
    ANSWERS.get() > 1
}

fn open() -> Db {
    let options = Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() };
    let db = options.open("/db").unwrap();
    for table in 0..4 {
        for key in 0..2000 {
            db.put(format!("{key:06}"), vec![table; 100]).unwrap();
        }
        db.flush().unwrap();
    }
    db
}

#[test]
fn a_verification_is_given_up() {
    let db = open();
    let given_up = interruptible(|| true, || db.verify());
    assert!(matches!(given_up, Err(Error::Admin(AdminError::Interrupted))), "{given_up:?}");
    assert_eq!(interruptible(|| false, || db.verify()).unwrap().problems, [""; 0]);
}

#[test]
fn a_compaction_is_given_up_and_can_be_done_later() {
    let db = open();
    let given_up = interruptible(|| true, || db.compact());
    assert!(matches!(given_up, Err(AdminError::Interrupted)), "{given_up:?}");
    // Perhaps it is done before it is asked again.
    ANSWERS.set(0);
    let second = interruptible(later, || db.compact());
    assert!(matches!(second, Ok(()) | Err(AdminError::Interrupted)), "{second:?}");
    db.compact().unwrap();
    assert_eq!(db.iter().count(), 2000);
    assert!(db.verify().unwrap().problems.is_empty());
}

#[test]
fn a_compaction_that_waits_for_the_end_of_a_pause_is_given_up() {
    let db = open();
    let _pause = db.pause_compaction();
    let given_up = interruptible(|| true, || db.compact());
    assert!(matches!(given_up, Err(AdminError::Interrupted)), "{given_up:?}");
    // What does not wait does not ask.
    interruptible(|| true, || db.flush()).unwrap();
}
