//! Keyspaces that are found, renamed and cleared, and what can be asked of a range.

use std::sync::Arc;

use tamis::{AdminError, Db, KeyspaceOptions, OpenError, Options};

use crate::support::{get, items, keyspace_options, open, options};

#[test]
fn all_callers_get_the_one_that_one_of_them_creates() {
    let db = open();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let db = &db;
            scope.spawn(move || {
                for round in 0..10 {
                    let keyspace =
                        db.get_or_create_keyspace(&format!("k{round}"), keyspace_options()).unwrap();
                    keyspace.put(format!("{thread}"), "").unwrap();
                }
            });
        }
    });
    assert_eq!(db.keyspaces().len(), 11);
    for round in 0..10 {
        assert_eq!(db.keyspace(&format!("k{round}")).unwrap().iter().count(), 4);
    }
    assert!(matches!(db.get_or_create_keyspace("", keyspace_options()), Err(AdminError::BadName { .. })));
}

#[test]
fn a_renamed_keyspace_keeps_its_contents_handles_and_transactions() {
    let options = options();
    let db = options.clone().open("/db").unwrap();
    let users = db.create_keyspace("users", keyspace_options()).unwrap();
    users.put("ada", "1815").unwrap();
    db.flush().unwrap();
    users.put("kurt", "1906").unwrap();
    let mut tx = db.transaction();
    assert_eq!(get(&tx.keyspace(&users), "ada").unwrap(), "1815");
    let former = users.name();
    db.rename_keyspace("users", "people").unwrap();
    assert_eq!((former, users.name()), ("users", "people"));
    tx.put_in(&users, "ada", "1816").unwrap();
    tx.commit().unwrap();
    assert!(matches!(db.keyspace("users"), Err(AdminError::NoKeyspace { .. })));
    assert_eq!(db.keyspaces(), ["default", "people"]);
    let again = db.create_keyspace("users", keyspace_options()).unwrap();
    assert!(again.is_empty().unwrap());
    let refused = |from, to| db.rename_keyspace(from, to).unwrap_err();
    assert!(matches!(refused("people", "users"), AdminError::KeyspaceExists { .. }));
    assert!(matches!(refused("people", "a\nb"), AdminError::BadName { .. }));
    assert!(matches!(refused("default", "x"), AdminError::DefaultKeyspace));
    assert!(matches!(refused("nobody", "x"), AdminError::NoKeyspace { .. }));
    db.rename_keyspace("people", "people").unwrap();
    assert!(matches!(users.stats(), stats if stats.name == "people"));
    drop((again, users, db));
    let db = options.open("/db").unwrap();
    let people = db.keyspace("people").unwrap();
    assert_eq!(items(people.iter()), ["ada=1816", "kurt=1906"]);
    assert!(db.verify().unwrap().problems.is_empty());
}

#[test]
fn a_cleared_keyspace_is_empty_and_a_prefix_goes_as_a_whole() {
    let db = open();
    let keyspace = db.create_keyspace("k", keyspace_options()).unwrap();
    assert!(keyspace.is_empty().unwrap() && keyspace.first().unwrap().is_none());
    for key in ["a", "a/1", "a/2", "a0", "b", "\u{fffd}"] {
        keyspace.put(key, "").unwrap();
    }
    let before = db.snapshot();
    keyspace.delete_prefix("a/").unwrap();
    assert_eq!(items(keyspace.iter()), ["a=", "a0=", "b=", "\u{fffd}="]);
    assert_eq!(keyspace.first().unwrap().unwrap().0, "a");
    assert_eq!(keyspace.last().unwrap().unwrap().0, "\u{fffd}");
    keyspace.delete_prefix([0xEF]).unwrap();
    keyspace.clear().unwrap();
    assert!(keyspace.is_empty().unwrap() && keyspace.last().unwrap().is_none());
    assert_eq!(before.keyspace(&keyspace).iter().count(), 6);
    keyspace.put("new", "").unwrap();
    assert_eq!(items(keyspace.iter()), ["new="]);
    db.put("a", "").unwrap();
    db.delete_prefix("").unwrap();
    assert!(db.is_empty().unwrap());
}

#[test]
fn a_range_is_estimated_within_blocks_wherever_it_is() {
    let db = open();
    let keyspace_options =
        KeyspaceOptions { memtable_bytes: 64 << 20, block_bytes: 1024, ..keyspace_options() };
    let keyspace = db.create_keyspace("k", keyspace_options).unwrap();
    let key = |i: u32| format!("key{i:05}");
    for i in 0..10_000 {
        keyspace.put(key(i), [7; 50]).unwrap();
    }
    for place in ["memtable", "table", "both"] {
        let copies = if place == "both" { 2 } else { 1 };
        for (from, to) in [(0, 10_000), (2000, 7000), (9000, 20_000), (4000, 4100)] {
            let exact = u64::from(to.min(10_000) - from) * copies;
            let found = keyspace.approximate_len(key(from)..key(to)).unwrap();
            assert!((exact / 2..=exact * 2).contains(&found), "{place}: {found} of {exact}");
            let bytes = keyspace.approximate_size(key(from)..key(to)).unwrap();
            assert!((exact * 20..exact * 200).contains(&bytes), "{place}: {bytes} bytes of {exact}");
        }
        assert_eq!(keyspace.approximate_len("x".."y").unwrap(), 0);
        assert_eq!(keyspace.approximate_len("b".."a").unwrap(), 0);
        assert_eq!(keyspace.approximate_size(.."a").unwrap(), 0);
        if place == "memtable" {
            db.flush().unwrap();
        } else {
            for i in 0..10_000 {
                keyspace.put(key(i), [8; 50]).unwrap();
            }
        }
    }
}

#[test]
fn an_error_says_whether_this_process_has_the_database_open() {
    let dir = tempfile::tempdir().unwrap();
    let in_memory = options();
    for (path, options) in [(dir.path(), Options::default()), (std::path::Path::new("/db"), in_memory)] {
        let db = options.clone().open(path).unwrap();
        let refused = options.clone().open(path).unwrap_err();
        assert!(matches!(refused, OpenError::OpenHere { .. }), "{refused}");
        let salvage = tamis_doctor::salvage(path, options.clone(), true).unwrap_err();
        assert!(matches!(salvage, OpenError::OpenHere { .. }), "{salvage}");
        drop(db);
        drop(options.open(path).unwrap());
    }
}

/// A process that holds the lock until its input ends: this test program itself.
#[cfg(unix)]
#[test]
#[expect(clippy::print_stdout, reason = "tells the other process that the database is open")]
fn an_error_says_that_another_process_has_the_database_open() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    const VARIABLE: &str = "TAMIS_TEST_HOLDS";
    if let Some(dir) = std::env::var_os(VARIABLE) {
        let _db = Db::open(dir).unwrap();
        println!("open");
        let _ = std::io::stdin().read_line(&mut String::new());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let name = "keyspaces::an_error_says_that_another_process_has_the_database_open";
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(VARIABLE, dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("open")), "the other process opened it");
    let refused = Db::open(dir.path()).unwrap_err();
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    assert!(matches!(refused, OpenError::Locked { .. }), "{refused}");
    drop(Db::open(dir.path()).unwrap());
}

#[test]
fn a_database_that_was_dropped_by_one_holder_is_still_open_for_the_others() {
    let options = options();
    let db = Arc::new(options.clone().open("/db").unwrap());
    let transaction = db.transaction();
    drop(db);
    assert!(matches!(options.clone().open("/db"), Err(OpenError::OpenHere { .. })), "a transaction holds it");
    drop(transaction);
    drop(options.open("/db").unwrap());
}
