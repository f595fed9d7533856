//! Restores to sequence numbers between states.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tamis::io::{FileSystem, MemFs};
use tamis::operators::Operators;
use tamis::{Db, WriteBatch};
use tamis_remote::{BackupOptions, Error, Repository, RestoreOptions, Restored, Retention, ShipOptions};
use tamis_testkit::Rng;

use crate::faulty::Faulty;
use crate::world::{Map, World, contents_of, options, repository, transfer};

const TO: &str = "/restored";

fn restore_to(repo: &Repository, seq: u64, fs: &Arc<dyn FileSystem>) -> Result<Restored, Error> {
    let mut options = RestoreOptions::default();
    options.file_system = Some(fs.clone());
    repo.restore_to(seq, TO.as_ref(), Operators::new(), &options)
}

fn shipping() -> ShipOptions {
    let mut options = ShipOptions::default();
    // Only when it is told to.
    options.interval = Duration::from_secs(3600);
    options.backup.cache = Some("/db/backup-cache.json".into());
    options
}

/// Writes at random; returns what there was at each number, by the number.
fn history(db: &Db, rng: &mut Rng, writes: u64, mut ship: impl FnMut(u64)) -> BTreeMap<u64, Map> {
    let mut held = BTreeMap::from([(0, Map::new())]);
    let mut model = Map::new();
    for write in 0..writes {
        let key = format!("key {}", rng.below(20)).into_bytes();
        match rng.below(4) {
            0 => {
                db.delete(&key).unwrap();
                model.remove(&key);
            }
            _ => {
                let value = vec![write as u8; rng.index(200)];
                db.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
        held.insert(db.snapshot().seq(), model.clone());
        if rng.one_in(9) {
            db.flush().unwrap();
        }
        ship(write);
    }
    held
}

#[test]
fn every_number_of_a_history_is_within_reach() {
    for seed in 0..3 {
        let (store, fs): (_, Arc<dyn FileSystem>) = (Faulty::new(), Arc::new(MemFs::new()));
        let repo = repository(&store, transfer());
        let db = options(&fs).open("/db").unwrap();
        let mut rng = Rng::named("moments", seed);
        let shipper = repo.ship_changes(&db, "ship", shipping()).unwrap();
        let mut when = Rng::new(seed);
        let held = history(&db, &mut rng, 60, |_| {
            if when.one_in(6) {
                shipper.ship_now().unwrap();
            }
        });
        // A flush or a merge that ends between two calls makes another state.
        db.wait_for_compaction().unwrap();
        shipper.ship_now().unwrap();
        // The acknowledgement makes one more state, and that is the end of it.
        shipper.ship_now().unwrap();
        let states = repo.states().unwrap().len();
        shipper.ship_now().unwrap();
        assert_eq!(repo.states().unwrap().len(), states);
        let last = db.snapshot().seq();
        let first = repo.state(1).unwrap().last_seq;
        for seq in first..=last {
            let to: Arc<dyn FileSystem> = Arc::new(MemFs::new());
            let restored = restore_to(&repo, seq, &to).unwrap();
            assert_eq!(restored.last_seq, seq);
            let expected = held.range(..=seq).next_back().unwrap().1;
            assert_eq!(contents_of(&to, TO.as_ref()), *expected, "seed {seed}, number {seq} of {last}");
        }
        let to: Arc<dyn FileSystem> = Arc::new(MemFs::new());
        for beyond in [first.saturating_sub(1), last + 1, u64::MAX] {
            let refused = restore_to(&repo, beyond, &to);
            assert!(first == 0 || matches!(refused, Err(Error::Unreachable { .. })), "{beyond}: {refused:?}");
        }
    }
}

/// A follower's files lacked the logs that the writer keeps for readers of changes. Of the numbers
/// between two states nearly all were refused, some with the advice to salvage a log that was not
/// damaged.
#[test]
fn every_number_is_within_reach_of_a_follower_while_logs_are_kept() {
    let (store, fs): (_, Arc<dyn FileSystem>) = (Faulty::new(), Arc::new(MemFs::new()));
    let repo = repository(&store, transfer());
    let mut keeping = options(&fs);
    keeping.changes_keep_time = Some(Duration::from_secs(1 << 30));
    let db = keeping.clone().open("/db").unwrap();
    let mut rng = Rng::named("followed", 0);
    let backup = || {
        let backup = BackupOptions { cache: Some("/db/backup-cache.json".into()), ..Default::default() };
        // Each by a new process, which has read nothing of the logs before.
        let follower = options(&fs).open_follower("/db").unwrap();
        repo.backup_with(&follower, backup, fs.clone()).unwrap();
    };
    backup();
    let held = history(&db, &mut rng, 60, |write| {
        if write % 20 == 19 {
            backup();
        }
    });
    let last = repo.find(tamis_remote::Which::Latest).unwrap().last_seq;
    assert_eq!(last, db.snapshot().seq());
    for (seq, expected) in held {
        let to: Arc<dyn FileSystem> = Arc::new(MemFs::new());
        restore_to(&repo, seq, &to).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(contents_of(&to, TO.as_ref()), expected, "number {seq} of {last}");
    }
}

/// One truncated state stopped the listing, every restore but by number, and every prune.
#[test]
fn a_damaged_state_is_named_and_passed_over() {
    let (store, mut world) = (Faulty::new(), World::new(31));
    let repo = repository(&store, transfer());
    let mut lasts = Vec::new();
    for _ in 0..4 {
        world.write(50);
        world.backup(&repo).unwrap();
        lasts.push(world.db.snapshot().seq());
    }
    let name = |number: u64| format!("states/{number:020}.json");
    let truncate = |number: u64| {
        let path = store.names().into_iter().find(|path| path.ends_with(&name(number))).expect("a state");
        store.replace(&path, store.bytes_of(&path)[..40].to_vec());
    };
    truncate(2);
    truncate(4);
    let (state, passed_over) = repo.find_readable(tamis_remote::Which::Latest).unwrap();
    assert_eq!((state.number, passed_over.len()), (3, 1));
    assert!(passed_over[0].to_string().contains(&name(4)), "{}", passed_over[0]);
    assert!(matches!(repo.find(tamis_remote::Which::Number(4)), Err(Error::Damaged { .. })));
    let to: Arc<dyn FileSystem> = Arc::new(MemFs::new());
    assert_eq!(restore_to(&repo, lasts[0], &to).unwrap().passed_over.len(), 2);
    // Neither takes the place of a sound one that a rule keeps.
    let mut retention = Retention::default();
    (retention.keep_last, retention.grace) = (1, Duration::ZERO);
    let pruned = repo.prune(&retention).unwrap();
    assert_eq!((pruned.states_kept, pruned.damaged.len()), (1, 1), "{pruned:?}");
    let to: Arc<dyn FileSystem> = Arc::new(MemFs::new());
    crate::world::restore(&repo, &state, &to, TO.as_ref()).unwrap();
    // Where no state can be read, nothing is known to be unneeded.
    truncate(3);
    assert!(repo.prune(&retention).is_err());
}

#[test]
fn logs_that_were_not_kept_are_missed() {
    let (store, fs): (_, Arc<dyn FileSystem>) = (Faulty::new(), Arc::new(MemFs::new()));
    let repo = repository(&store, transfer());
    let db = options(&fs).open("/db").unwrap();
    db.put("a", "1").unwrap();
    let cache = Some("/db/backup-cache.json".into());
    let backup = BackupOptions { cache, ..BackupOptions::default() };
    repo.backup_with(&db, backup.clone(), fs.clone()).unwrap();
    let first = db.snapshot().seq();
    for round in 0..4 {
        db.put("b", vec![round; 100]).unwrap();
        db.flush().unwrap();
    }
    db.put("c", "1").unwrap();
    repo.backup_with(&db, backup, fs).unwrap();
    let last = db.snapshot().seq();
    let to = || -> Arc<dyn FileSystem> { Arc::new(MemFs::new()) };
    assert!(restore_to(&repo, first, &to()).is_ok());
    assert!(restore_to(&repo, last, &to()).is_ok());
    let refused = restore_to(&repo, first + 2, &to());
    assert!(matches!(refused, Err(Error::Unreachable { .. })), "{refused:?}");
}

#[test]
fn a_batch_is_restored_as_a_whole_or_not_at_all() {
    let (store, fs): (_, Arc<dyn FileSystem>) = (Faulty::new(), Arc::new(MemFs::new()));
    let repo = repository(&store, transfer());
    let db = options(&fs).open("/db").unwrap();
    let shipper = repo.ship_changes(&db, "ship", shipping()).unwrap();
    shipper.ship_now().unwrap();
    let before = db.snapshot().seq();
    let mut batch = WriteBatch::new();
    batch.put("a", "1");
    batch.put("b", "2");
    db.write(batch).unwrap();
    shipper.ship_now().unwrap();
    let to: Arc<dyn FileSystem> = Arc::new(MemFs::new());
    let refused = restore_to(&repo, before + 1, &to);
    assert!(matches!(refused, Err(Error::Unreachable { .. })), "{refused:?}");
    let to: Arc<dyn FileSystem> = Arc::new(MemFs::new());
    restore_to(&repo, before + 2, &to).unwrap();
    assert_eq!(contents_of(&to, TO.as_ref()).len(), 2);
}

#[test]
fn writes_to_a_keyspace_that_no_state_before_has_are_not_within_reach() {
    let (store, fs): (_, Arc<dyn FileSystem>) = (Faulty::new(), Arc::new(MemFs::new()));
    let repo = repository(&store, transfer());
    let db = options(&fs).open("/db").unwrap();
    let shipper = repo.ship_changes(&db, "ship", shipping()).unwrap();
    db.put("a", "1").unwrap();
    shipper.ship_now().unwrap();
    let keyspace = db.create_keyspace("late", options(&fs).keyspace).unwrap();
    keyspace.put("b", "2").unwrap();
    let between = db.snapshot().seq();
    db.put("c", "3").unwrap();
    shipper.ship_now().unwrap();
    let to: Arc<dyn FileSystem> = Arc::new(MemFs::new());
    let refused = restore_to(&repo, between, &to);
    assert!(matches!(refused, Err(Error::Unreachable { .. })), "{refused:?}");
    let last = repo.find(tamis_remote::Which::Latest).unwrap().last_seq;
    let to: Arc<dyn FileSystem> = Arc::new(MemFs::new());
    restore_to(&repo, last, &to).unwrap();
    let restored = options(&to).open(TO).unwrap();
    assert_eq!(restored.keyspace("late").unwrap().get("b").unwrap().unwrap(), "2");
}
