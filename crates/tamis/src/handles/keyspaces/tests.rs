//! What a keyspace costs its database, by counts.

use std::sync::Arc;

use crate::session::Session;

use crate::catalogue::scheduler::IN_TURN;
use crate::catalogue::state::State;
use crate::io::MemFs;
use crate::options::KeyspaceOptions;
use crate::{Db, Options};

fn options() -> Options {
    Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() }
}

fn create(db: &Db, names: std::ops::Range<usize>) {
    names.for_each(|i| {
        drop(db.create_keyspace(&format!("keyspace {i:04}"), KeyspaceOptions::default()).unwrap())
    });
}

fn manifest_len(db: &Session) -> u64 {
    db.state().catalogue.manifest_len().unwrap()
}

/// Each time a compaction thread woke, it asked all keyspaces for a plan, and counted the memtables
/// of all for each: with 800 of them, a put waited for a millisecond.
#[test]
fn a_search_for_work_looks_at_what_has_changed_and_at_a_few_others() {
    const KEYSPACES: usize = 300;
    let db = options().open("/db").unwrap();
    create(&db, 1..KEYSPACES);
    db.wait_for_compaction().unwrap();
    let inner = db.inner();
    // Under the lock no other thread searches.
    let mut state = inner.state();
    while inner.next_compaction(&mut state).is_some() {}
    let mut looks = |changed: &[u32]| {
        changed.iter().for_each(|&id| state.scheduler.note_change(id));
        let before = state.scheduler.rounds.looks;
        assert!(inner.next_compaction(&mut state).is_none());
        state.scheduler.rounds.looks - before
    };
    assert_eq!(looks(&[]), IN_TURN);
    let both = looks(&[7, 150, 290]);
    assert!((IN_TURN..=IN_TURN + 3).contains(&both), "{both} keyspaces");
    assert_eq!(looks(&[]), IN_TURN, "nothing was due there");
    // Whatever becomes due by time alone is found as well.
    let mut seen: Vec<u32> = Vec::new();
    let State { catalogue, scheduler, .. } = &mut *state;
    for _ in 0..KEYSPACES.div_ceil(IN_TURN) {
        seen.extend(scheduler.rounds.next(catalogue.keyspaces()).iter().map(|keyspace| keyspace.id));
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), KEYSPACES);
}

/// Work was found in the first keyspaces only, as long as there was any.
#[test]
fn keyspaces_with_work_take_turns() {
    let db = options().open("/db").unwrap();
    create(&db, 1..5);
    let mut state = db.inner().state();
    let State { catalogue, scheduler, .. } = &mut *state;
    scheduler.rounds.note_all(catalogue.keyspaces());
    let served: Vec<u32> = (0..10)
        .map(|_| {
            let first = scheduler.rounds.next(catalogue.keyspaces())[0].id;
            scheduler.rounds.note_work(first);
            first
        })
        .collect();
    assert_eq!(served, [1, 2, 3, 4, 0, 1, 2, 3, 4, 0]);
}

/// Each creation copied the tree and the directory, and each flush wrote the log floors of all
/// keyspaces.
#[test]
fn the_manifest_grows_by_what_has_changed_whatever_else_there_is() {
    let db = options().open("/db").unwrap();
    let _pause = db.pause_compaction();
    let growth = |from: usize| {
        let inner = db.inner();
        let start = manifest_len(inner);
        create(&db, from..from + 1);
        let created = manifest_len(inner);
        db.put("key", "value").unwrap();
        db.flush().unwrap();
        let flushed = manifest_len(inner);
        db.drop_keyspace(&format!("keyspace {from:04}")).unwrap();
        [created - start, flushed - created, manifest_len(inner) - flushed]
    };
    create(&db, 1..10);
    let few = growth(1000);
    create(&db, 10..150);
    let many = growth(1001);
    for (few, many) in few.into_iter().zip(many) {
        // Numbers may take a byte more each.
        assert!(many <= few + 16, "{few} bytes beside 10 keyspaces, {many} beside 150");
    }
}

/// Each time that a log had grown by 16 KiB, the memtables of all keyspaces were added up: a put
/// beside 10,000 that hold something took 1.7 times as long as a put beside one.
#[test]
fn a_put_visits_no_other_keyspace_while_there_is_space() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    create(&db, 1..20);
    for i in 1..20 {
        db.keyspace(&format!("keyspace {i:04}")).unwrap().put("key", "value").unwrap();
    }
    let before = db.inner().keyspaces.filled.lists();
    (0..2000).for_each(|i| db.put(format!("{i}"), [7; 100]).unwrap());
    // The flush thread may look once or twice, at most every 100 ms.
    let lists = db.inner().keyspaces.filled.lists() - before;
    assert!(lists < 10, "{lists} in {} KiB of log", 2000 / 10);
}

/// Idle keyspaces hold back no log, and what is in no table is found at the next opening.
#[test]
fn logs_are_kept_for_the_keyspaces_that_need_them_and_no_longer() {
    let options = options();
    let db = options.clone().open("/db").unwrap();
    create(&db, 1..20);
    let keyspace = |i: usize| db.keyspace(&format!("keyspace {i:04}")).unwrap();
    let floor = || {
        let state = db.inner().state();
        (state.catalogue.tree().log_floor(), state.logs.current())
    };
    keyspace(3).put("key", "in the log alone").unwrap();
    let (held, _) = floor();
    for round in 0..3 {
        keyspace(5).put("key", format!("{round}")).unwrap();
        keyspace(5).flush().unwrap();
        let (oldest, current) = floor();
        assert!(oldest == held && current > held, "keyspace 3 needs its log");
    }
    let list: Vec<u32> = db.inner().keyspaces.filled.list().iter().map(|keyspace| keyspace.id).collect();
    assert_eq!(list, [keyspace(3).inner.id], "a flushed keyspace is not visited any more");
    db.drop_keyspace("keyspace 0003").unwrap();
    let (oldest, current) = floor();
    assert_eq!(oldest, current, "nobody needs an older log");
    keyspace(7).put("key", "found again").unwrap();
    db.close().unwrap();
    let db = options.open("/db").unwrap();
    assert_eq!(db.keyspace("keyspace 0007").unwrap().get("key").unwrap().unwrap(), "found again");
    assert_eq!(db.keyspace("keyspace 0005").unwrap().get("key").unwrap().unwrap(), "2");
    assert!(db.keyspace("keyspace 0003").is_err());
}

/// 400 keyspaces with one write of 50 bytes each took 1.6 GB of memory, of which statistics showed
/// a third.
#[test]
fn a_keyspace_with_a_small_write_takes_little_memory() {
    const KEYSPACES: usize = 400;
    let db = options().open("/db").unwrap();
    create(&db, 1..KEYSPACES);
    for name in db.keyspaces() {
        db.keyspace(&name).unwrap().put("key", [7; 50]).unwrap();
    }
    let held = db.inner().keyspaces.chunks.active() + db.inner().keyspaces.chunks.sealed();
    assert!(held <= KEYSPACES as u64 * 4096, "{held} bytes");
    assert_eq!(held, db.stats().keyspaces.iter().map(|keyspace| keyspace.memtable_bytes).sum::<u64>());
    db.flush().unwrap();
    assert_eq!((db.inner().keyspaces.chunks.active(), db.inner().keyspaces.chunks.sealed()), (0, 0));
}

/// The budget was compared with what memtables held once for each megabyte written, and then one
/// memtable was sealed, however small.
#[test]
fn many_small_memtables_keep_within_the_budget() {
    const BUDGET: u64 = 512 << 10;
    let db = Options { memtable_budget_bytes: BUDGET, ..options() }.open("/db").unwrap();
    create(&db, 1..300);
    let keyspaces: Vec<_> = db.keyspaces().iter().map(|name| db.keyspace(name).unwrap()).collect();
    let rolled = db.inner().state().logs.current();
    for keyspace in &keyspaces {
        keyspace.put("key", [7; 20]).unwrap();
        let memory = &db.inner().keyspaces.chunks;
        assert!(memory.active() <= BUDGET / 2 + (8 << 10), "{} bytes", memory.active());
        assert!(memory.active() + memory.sealed() <= BUDGET + (8 << 10));
    }
    let rolls = db.inner().state().logs.current() - rolled;
    assert!(rolls > 0 && rolls < 300, "they are sealed together: the numbers of files grew by {rolls}");
    for keyspace in &keyspaces {
        assert!(keyspace.get("key").unwrap().is_some());
    }
}

/// Deletes of other keyspaces were timed for as long as the database was open.
#[test]
fn what_a_dropped_keyspace_needed_is_needed_no_more() {
    let aged = |ttl: Option<u64>, deletes: Option<u64>| KeyspaceOptions {
        time_to_live: ttl.map(std::time::Duration::from_secs),
        max_tombstone_age: deletes.map(std::time::Duration::from_secs),
        ..KeyspaceOptions::default()
    };
    let db = options().open("/db").unwrap();
    for options in [aged(None, Some(3600)), aged(Some(3600), None)] {
        let ages_deletes = options.max_tombstone_age.is_some();
        let keyspace = db.create_keyspace("aged", options).unwrap();
        assert!(keyspace.inner.is_timed());
        assert_eq!(db.inner().expiry.ages_deletes(), ages_deletes);
        db.drop_keyspace("aged").unwrap();
        assert!(!db.inner().expiry.ages_deletes());
    }
    assert!(!db.default_keyspace().inner.is_timed());
}
