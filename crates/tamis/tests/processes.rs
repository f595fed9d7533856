//! What belongs to a process: its working directory, and what becomes of a database when the
//! process forks.
//!
//! Each test runs in a process of its own: this program again, with that test only.

#![cfg(target_os = "linux")]
#![allow(missing_docs, reason = "tests")]

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;

use tamis::{AdminError, Db, Error, OpenError, ReadError, StorageError, WriteError};

/// Runs a test in a process of its own, in an empty directory.
fn alone(name: &str, test: impl FnOnce(&Path)) {
    const RUNS: &str = "TAMIS_PROCESS_TEST";
    if let Ok(dir) = std::env::var(RUNS) {
        return test(dir.as_ref());
    }
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(RUNS, dir.path());
    assert!(command.status().unwrap().success());
}

/// Forks; the child does `act`, and ends without the destructors of the rest. Returns its number.
/// What the child is to drop, it takes out of an `Option`, which in the parent stays full.
fn fork(act: impl FnOnce()) -> i32 {
    // SAFETY: the child calls what a child of a process with several threads may call, and memory
    // allocation, which glibc prepares for a fork.
    match unsafe { libc::fork() } {
        0 => {
            let done = catch_unwind(AssertUnwindSafe(act));
            // SAFETY: it ends the process.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
        child => {
            assert!(child > 0);
            child
        }
    }
}

fn status_of(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: a child of this process, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

/// Two ends of a pipe.
fn pipe() -> (fs::File, fs::File) {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors, which are then owned by nobody else.
    let (read, write) = unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        use std::os::fd::FromRawFd;
        (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    };
    (read.into(), write.into())
}

fn is_forked(error: impl Into<Error>) {
    let error = error.into();
    let text = error.to_string();
    assert!(text.contains("belongs to another process"), "{text}");
}

/// In the child of a fork an inherited handle wrote to the parent's files, waited for threads that
/// were not there, or for locks that nobody would release.
#[test]
fn an_inherited_handle_returns_one_error_and_changes_nothing() {
    alone("an_inherited_handle_returns_one_error_and_changes_nothing", |dir| {
        let dir = dir.join("db");
        let db = Db::open(&dir).unwrap();
        let mut copy = Some(db.clone());
        for key in 0..1000 {
            db.put(format!("{key:04}"), vec![7; 100]).unwrap();
        }
        db.flush().unwrap();
        db.put("key", "value").unwrap();
        let mut snapshot = Some(db.snapshot());
        let mut iter = Some(db.iter());
        iter.as_mut().unwrap().next().unwrap().unwrap();
        let mut transaction = Some(db.transaction());
        transaction.as_mut().unwrap().put("key", "transaction").unwrap();
        let mut locking = Some(db.lock_transaction().unwrap());
        locking.as_mut().unwrap().put("locked", "value").unwrap();
        let mut changes = Some(db.changes(db.snapshot().seq()).unwrap());
        let mut pause = Some(db.pause_compaction());
        let child = fork(|| {
            let forked = StorageError::Forked { path: dir.clone() };
            assert!(matches!(db.check_process(), Err(StorageError::Forked { .. })), "{forked}");
            is_forked(db.get("key").unwrap_err());
            is_forked(db.multi_get(&["key"]).unwrap_err());
            is_forked(db.put("key", "child").unwrap_err());
            is_forked(db.sync().unwrap_err());
            is_forked(db.flush().unwrap_err());
            is_forked(db.compact().unwrap_err());
            is_forked(db.wait_for_compaction().unwrap_err());
            is_forked(db.verify().unwrap_err());
            is_forked(db.checkpoint(dir.join("copy")).unwrap_err());
            is_forked(db.create_keyspace("more", Default::default()).unwrap_err());
            is_forked(
                db.default_keyspace().change_options(|options| options.size_ratio = 5.into()).unwrap_err(),
            );
            let snapshot = snapshot.take().unwrap();
            is_forked(snapshot.get("key").unwrap_err());
            is_forked(db.snapshot().get("key").unwrap_err());
            let mut iter = iter.take().unwrap();
            is_forked(iter.next().unwrap().unwrap_err());
            assert!(iter.next().is_none() && iter.next_back().is_none());
            is_forked(iter.seek("key").unwrap_err());
            is_forked(db.iter().next_back().unwrap().unwrap_err());
            let (mut transaction, mut locking) = (transaction.take().unwrap(), locking.take().unwrap());
            assert!(transaction.put("other", "x").is_err());
            assert!(transaction.commit().is_err());
            assert!(locking.put("locked", "child").is_err());
            assert!(locking.commit().is_err());
            assert!(changes.as_mut().unwrap().poll().is_err());
            assert!(db.lock_transaction().is_err());
            assert!(matches!(Db::open(&dir), Err(OpenError::Locked { .. })));
            assert!(catch_unwind(AssertUnwindSafe(|| db.stats())).is_err(), "it cannot return an error");
            is_forked(copy.take().unwrap().close().unwrap_err());
            drop((snapshot, iter, changes.take(), pause.take()));
        });
        assert_eq!(status_of(child), 0);
        // Of all this the parent has noticed nothing.
        assert_eq!(snapshot.unwrap().get("key").unwrap().unwrap(), "value");
        assert_eq!(iter.unwrap().count(), 1000);
        transaction.unwrap().commit().unwrap();
        locking.unwrap().commit().unwrap();
        assert_eq!(changes.unwrap().poll().unwrap().map(|change| change.operations().count()), Some(1));
        drop(pause);
        drop(copy);
        db.flush().unwrap();
        db.compact().unwrap();
        assert!(db.verify().unwrap().problems.is_empty());
        db.close().unwrap();
        let db = Db::open(&dir).unwrap();
        assert_eq!(db.get("key").unwrap().unwrap(), "transaction");
        assert_eq!(db.get("locked").unwrap().unwrap(), "value");
    });
}

/// What the child does with its copies changes nothing for the parent.
#[test]
fn a_child_that_drops_its_copies_leaves_the_parent_alone() {
    alone("a_child_that_drops_its_copies_leaves_the_parent_alone", |dir| {
        let dir = dir.join("db");
        let db = Db::open(&dir).unwrap();
        db.put("key", "value").unwrap();
        for round in 0..20 {
            let mut copy = Some(db.clone());
            let child = fork(|| {
                let copy = copy.take().unwrap();
                assert!(copy.put("key", "child").is_err());
                drop(copy);
            });
            drop(copy);
            db.put("key", format!("{round}")).unwrap();
            assert_eq!(status_of(child), 0);
            assert!(matches!(Db::open(&dir), Err(OpenError::OpenHere { .. })));
        }
        db.flush().unwrap();
        assert!(db.verify().unwrap().problems.is_empty());
        db.close().unwrap();
        let db = Db::open(&dir).unwrap();
        assert_eq!(db.get("key").unwrap().unwrap(), "19");
    });
}

/// A child kept the database locked until it ended, though the parent had closed it: with Python's
/// `multiprocessing`, for as long as the pool lived.
#[test]
fn a_child_keeps_nobody_out_once_the_parent_has_closed() {
    alone("a_child_keeps_nobody_out_once_the_parent_has_closed", |dir| {
        let dir = dir.join("db");
        let db = Db::open(&dir).unwrap();
        db.put("key", "value").unwrap();
        let (mut wait, go) = pipe();
        let (mut told, tell) = pipe();
        let mut go = Some(go);
        let child = fork(|| {
            drop(go.take());
            // Locked as long as the parent has it, and free from then on.
            assert!(matches!(Db::open(&dir), Err(OpenError::Locked { .. })));
            (&tell).write_all(b"1").unwrap();
            wait.read_exact(&mut [0]).unwrap();
            let own = Db::open(&dir).unwrap();
            own.put("child", "value").unwrap();
            own.flush().unwrap();
            own.close().unwrap();
            (&tell).write_all(b"2").unwrap();
            assert_eq!(wait.read(&mut [0]).unwrap(), 0);
        });
        told.read_exact(&mut [0]).unwrap();
        db.close().unwrap();
        Db::open(&dir).unwrap().close().unwrap();
        go.as_ref().unwrap().write_all(b"x").unwrap();
        told.read_exact(&mut [0]).unwrap();
        let db = Db::open(&dir).unwrap();
        assert_eq!(db.get("child").unwrap().unwrap(), "value");
        drop(go);
        assert_eq!(status_of(child), 0);
    });
}

/// The child of a writer that was killed kept the database locked.
#[test]
fn the_child_of_a_killed_writer_keeps_nobody_out() {
    alone("the_child_of_a_killed_writer_keeps_nobody_out", |dir| {
        let dir = dir.join("db");
        let (mut wait, go) = pipe();
        let mut go = Some(go);
        let (mut told, tell) = pipe();
        let writer = fork(|| {
            let db = Db::open(&dir).unwrap();
            db.put("key", "value").unwrap();
            fork(|| {
                drop(go.take());
                (&tell).write_all(b"x").unwrap();
                // Until the end of the test.
                let _ = wait.read(&mut [0]);
            });
            // To be killed.
            loop {
                std::thread::park();
            }
        });
        told.read_exact(&mut [0]).unwrap();
        assert!(matches!(Db::open(&dir), Err(OpenError::Locked { .. })));
        // SAFETY: the process was started above.
        unsafe { libc::kill(writer, libc::SIGKILL) };
        status_of(writer);
        let db = Db::open(&dir).unwrap();
        assert_eq!(db.get("key").unwrap().unwrap(), "value");
        drop(go);
    });
}

/// Forks beside writers, flushes and readers: whatever lock another thread holds at that moment,
/// the child ends.
#[test]
fn a_fork_at_any_moment_leaves_a_child_that_ends() {
    alone("a_fork_at_any_moment_leaves_a_child_that_ends", |dir| {
        let dir = dir.join("db");
        let db = Db::open(&dir).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (db, done) = (&db, &done);
                scope.spawn(move || {
                    let mut round = 0u64;
                    while !done.load(std::sync::atomic::Ordering::Relaxed) {
                        db.put(format!("{thread} {}", round % 100), vec![1; 500]).unwrap();
                        if round.is_multiple_of(50) {
                            db.flush().unwrap();
                        }
                        let snapshot = db.snapshot();
                        snapshot.iter().take(10).for_each(|item| drop(item.unwrap()));
                        round += 1;
                    }
                });
            }
            let ended = catch_unwind(AssertUnwindSafe(|| {
                for _ in 0..50 {
                    let (copy, snapshot, mut iter) = (db.clone(), db.snapshot(), db.iter());
                    let _ = iter.next();
                    let mut all = Some((copy, snapshot, iter));
                    let child = fork(|| {
                        let (copy, snapshot, iter) = all.take().unwrap();
                        assert!(copy.get("x").is_err() && copy.put("x", "y").is_err());
                        assert!(snapshot.get("x").is_err() && copy.flush().is_err());
                        drop((iter, snapshot, copy));
                    });
                    assert_eq!(status_of(child), 0);
                }
            }));
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            ended.unwrap();
        });
        assert!(db.verify().unwrap().problems.is_empty());
    });
}

/// The files of a database that was opened by a relative path were looked for below the working
/// directory of the moment.
#[test]
fn a_relative_path_outlives_the_working_directory() {
    alone("a_relative_path_outlives_the_working_directory", |dir| {
        let elsewhere = dir.join("elsewhere");
        fs::create_dir_all(elsewhere.join("db")).unwrap();
        for path in ["db", "./db", "db/", "."] {
            let root = dir.join(format!("root{}", path.len()));
            fs::create_dir_all(&root).unwrap();
            std::env::set_current_dir(&root).unwrap();
            let db = Db::open(path).unwrap();
            db.put("a", "1").unwrap();
            std::env::set_current_dir(&elsewhere).unwrap();
            db.put("b", "2").unwrap();
            db.flush().unwrap();
            db.create_keyspace("more", Default::default()).unwrap().put("c", "3").unwrap();
            db.compact().unwrap();
            assert!(db.verify().unwrap().problems.is_empty());
            db.close().unwrap();
            let db = Db::open(root.join(path)).unwrap();
            assert_eq!(db.get("b").unwrap().unwrap(), "2");
            assert_eq!(db.keyspace("more").unwrap().get("c").unwrap().unwrap(), "3");
        }
        let names = || fs::read_dir(&elsewhere).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(names().collect::<Vec<_>>(), ["db"]);
        assert_eq!(fs::read_dir(elsewhere.join("db")).unwrap().count(), 0);
    });
}

/// Names of the error in each kind of operation.
#[test]
fn the_error_is_the_same_in_all_operations() {
    let forked = || StorageError::Forked { path: "db".into() };
    let texts = [
        Error::from(ReadError::from(forked())).to_string(),
        Error::from(WriteError::from(forked())).to_string(),
        Error::from(AdminError::from(forked())).to_string(),
        Error::from(OpenError::from(forked())).to_string(),
    ];
    assert!(texts.iter().all(|text| *text == forked().to_string()), "{texts:?}");
}
