//! Replicas: what they show, what they cost, and what faults do to them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tamis::io::{FileSystem, MemFs};
use tamis::{Db, Options};
use tamis_remote::{BackupOptions, Error, Replica, ReplicaOptions, Repository, Retention};
use tamis_testkit::{FaultyFs, Rng};

use crate::faulty::{Fault, Faulty};
use crate::world::{Map, garbage, has_values_in_logs, options, repository, transfer};

/// A writer, and a session of backups of it.
struct Writer {
    fs: Arc<dyn FileSystem>,
    db: Db,
    repo: Repository,
    model: Map,
    rng: Rng,
}

impl Writer {
    fn new(store: &Faulty, seed: u64) -> Writer {
        let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new());
        let mut options = options(&fs);
        options.keyspace.blob_threshold = 64 * (seed % 2);
        options.keyspace.blob_garbage = garbage(seed);
        let db = options.open("/db").unwrap();
        Writer { fs, db, repo: repository(store, transfer()), model: Map::new(), rng: Rng::new(seed) }
    }

    fn write(&mut self, operations: u64) {
        for _ in 0..operations {
            let key = format!("key {:05}", self.rng.below(5000)).into_bytes();
            match self.rng.one_in(6) {
                true => {
                    self.db.delete(&key).unwrap();
                    self.model.remove(&key);
                }
                false => {
                    let value = vec![self.rng.next_u64() as u8; 20 + self.rng.index(200)];
                    self.db.put(&key, &value).unwrap();
                    self.model.insert(key, value);
                }
            }
        }
    }

    fn ship(&self) -> u64 {
        let cache = Some("/db/backup-cache.json".into());
        let options = BackupOptions { cache, ..BackupOptions::default() };
        self.repo.backup_with(&self.db, options, self.fs.clone()).unwrap().last_seq
    }
}

fn replica(store: &Faulty, cache: &Arc<dyn FileSystem>) -> Replica {
    try_replica(&repository(store, transfer()), cache, 1 << 20).unwrap()
}

fn try_replica(repo: &Repository, cache: &Arc<dyn FileSystem>, bytes: u64) -> Result<Replica, Error> {
    let mut options = ReplicaOptions::default();
    options.cache_file_system = Some(cache.clone());
    options.cache_bytes = bytes;
    // Nothing is kept in memory that the test is about.
    options.options = Options { cache_bytes: 0, ..Options::default() };
    repo.open_replica("/cache".as_ref(), options)
}

fn memory() -> Arc<dyn FileSystem> {
    Arc::new(MemFs::new())
}

fn all(db: &Db) -> Map {
    db.iter()
        .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())))
        .collect::<Result<_, _>>()
        .unwrap()
}

#[test]
fn a_replica_follows() {
    let store = Faulty::new();
    let mut writer = Writer::new(&store, 1);
    writer.ship();
    let replica = replica(&store, &memory());
    let snapshot = replica.db().snapshot();
    let mut in_logs = false;
    for round in 0..30 {
        let writes = writer.rng.below(400);
        writer.write(writes);
        match round % 5 {
            1 => writer.db.flush().unwrap(),
            3 => writer.db.compact().unwrap(),
            _ => {}
        }
        // It may miss many states, and finds the newest all the same.
        for _ in 0..writer.rng.below(8) {
            writer.db.put("x", "y").unwrap();
            writer.model.insert("x".into(), "y".into());
            writer.ship();
        }
        let shipped = writer.ship();
        in_logs |= has_values_in_logs(&writer.db);
        assert_eq!(replica.catch_up().unwrap(), shipped);
        assert_eq!(all(&replica.db()), writer.model, "round {round}");
        for _ in 0..20 {
            let key = format!("key {:05}", writer.rng.below(5000)).into_bytes();
            let found = replica.db().get(&key).unwrap().map(|value| value.to_vec());
            assert_eq!(found.as_ref(), writer.model.get(&key));
        }
    }
    assert!(in_logs);
    assert_eq!(snapshot.iter().count(), 0, "a snapshot stays what it was");
    let state = replica.stats().state;
    assert_eq!(replica.catch_up().unwrap(), writer.db.snapshot().seq(), "nothing new");
    assert_eq!(replica.stats().state, state);
}

#[test]
fn an_absent_key_costs_no_request_and_a_present_one_costs_one() {
    let store = Faulty::new();
    let mut writer = Writer::new(&store, 2);
    writer.write(20_000);
    writer.db.flush().unwrap();
    writer.db.compact().unwrap();
    writer.ship();
    // The cache is smaller than a block: every read is a request.
    let replica = try_replica(&repository(&store, transfer()), &memory(), 64).unwrap();
    let db = replica.db();
    db.get("warm").unwrap();
    let before = replica.stats().requests;
    let (mut requests, mut positives) = (0, 0);
    for number in 0..2000 {
        let count = replica.stats().requests.total();
        // Outside of all tables, and within one.
        assert_eq!(db.get(format!("absent {number}")).unwrap(), None);
        assert_eq!(replica.stats().requests.total(), count);
        let within = format!("key {number:05}x");
        assert_eq!(db.get(&within).unwrap(), None);
        requests += replica.stats().requests.total() - count;
        positives += db.explain_get(&within).unwrap().cost.block_reads;
    }
    assert!(positives * 20 < 2000, "{positives} blocks for 2,000 absent keys");
    // Builds with assertions look for every key that a filter denies.
    let checks = if cfg!(debug_assertions) { 2000 } else { 0 };
    assert!(requests <= checks + positives, "{requests} requests, {positives} false positives");
    let (mut present, mut most) = (0, 0);
    let between = replica.stats().requests;
    for key in writer.model.keys().step_by(7) {
        let count = replica.stats().requests;
        assert!(db.get(key).unwrap().is_some());
        let of_this = replica.stats().requests.since(&count);
        assert_eq!(of_this.total(), of_this.gets);
        (present, most) = (present + 1, most.max(of_this.total()));
    }
    let requests = replica.stats().requests.since(&between);
    assert_eq!(most, 1);
    assert_eq!(requests.total(), present);
    assert!(requests.bytes_fetched / present < 16 << 10, "a block each: {requests:?}");
    assert_eq!(before.puts, 0);
}

#[test]
fn metadata_costs_one_request_a_table_once() {
    let store = Faulty::new();
    let mut writer = Writer::new(&store, 3);
    for _ in 0..4 {
        writer.write(800);
        writer.db.flush().unwrap();
    }
    writer.ship();
    let state = writer.repo.find(tamis_remote::Which::Latest).unwrap();
    let cache = memory();
    let first = replica(&store, &cache);
    let pieces: usize = state.files.iter().map(|file| file.pieces.len()).sum();
    let requests = first.stats().requests;
    assert!(requests.gets as usize <= pieces + 2, "{requests:?} for {pieces} objects");
    assert_eq!(all(&first.db()), writer.model);
    drop(first);
    // After a restart, everything that was read is in the cache directory.
    let second = replica(&store, &cache);
    assert_eq!(all(&second.db()), writer.model);
    let requests = second.stats().requests;
    assert!(requests.total() <= 3, "the hint, a listing, the state: {requests:?}");
    let stats = second.stats();
    assert!(stats.cache_hits > 0 && stats.cache_misses == 0, "{stats:?}");
}

#[test]
fn a_damaged_cache_is_fetched_again() {
    let store = Faulty::new();
    let mut writer = Writer::new(&store, 4);
    writer.write(600);
    writer.db.flush().unwrap();
    writer.write(50);
    writer.ship();
    let cache = FaultyFs::new(1);
    let shared: Arc<dyn FileSystem> = Arc::new(cache.clone());
    assert_eq!(all(&replica(&store, &shared).db()), writer.model);
    let mut rng = Rng::new(4);
    for round in 0..60 {
        for (path, len) in cache.files() {
            if len > 0 && rng.one_in(2) {
                cache.corrupt(&path, rng.below(len), 1 << rng.below(8)).unwrap();
            }
            if rng.one_in(10) {
                cache.truncate(&path, rng.below(len + 1)).unwrap();
            }
            if rng.one_in(10) {
                let _ = cache.remove(&path);
            }
        }
        assert_eq!(all(&replica(&store, &shared).db()), writer.model, "round {round}");
    }
}

#[test]
fn bytes_damaged_on_their_way_can_be_forgotten() {
    let store = Faulty::new();
    let mut writer = Writer::new(&store, 13);
    writer.write(600);
    writer.db.flush().unwrap();
    writer.write(50);
    writer.ship();
    let mut forgotten = 0;
    for at in 0.. {
        let cache = memory();
        store.fail_at(at, Fault::WrongByte);
        let repo = repository(&store, transfer());
        // The state itself is not in the cache, and read again by whoever asks again.
        let first = try_replica(&repo, &cache, 1 << 20);
        let replica = first.or_else(|_| try_replica(&repo, &cache, 1 << 20)).unwrap();
        let read = replica.db().iter().collect::<Result<Vec<_>, _>>();
        let done = store.requests() <= at;
        store.sound();
        if read.is_err() {
            replica.forget_cache();
            forgotten += 1;
        }
        assert_eq!(all(&replica.db()), writer.model, "request {at}");
        drop(replica);
        assert_eq!(all(&try_replica(&repo, &cache, 1 << 20).unwrap().db()), writer.model, "request {at}");
        if done {
            break;
        }
    }
    assert!(forgotten > 0);
}

#[test]
fn a_cache_that_cannot_be_written_is_done_without() {
    let store = Faulty::new();
    let mut writer = Writer::new(&store, 5);
    writer.write(600);
    writer.db.flush().unwrap();
    writer.ship();
    let cache = FaultyFs::new(1);
    cache.create_dir_all(Path::new("/cache")).unwrap();
    cache.set_capacity(Some(1000));
    let replica = replica(&store, &(Arc::new(cache) as Arc<dyn FileSystem>));
    assert_eq!(all(&replica.db()), writer.model);
}

#[test]
fn what_a_prune_took_is_an_error_until_the_replica_catches_up() {
    let store = Faulty::new();
    let mut writer = Writer::new(&store, 6);
    writer.write(3000);
    writer.db.flush().unwrap();
    writer.ship();
    let replica = try_replica(&repository(&store, transfer()), &memory(), 64).unwrap();
    let key = writer.model.keys().next().unwrap().clone();
    assert!(replica.db().get(&key).unwrap().is_some());
    writer.write(3000);
    writer.db.flush().unwrap();
    writer.db.compact().unwrap();
    writer.ship();
    let mut retention = Retention::default();
    retention.grace = Duration::ZERO;
    assert!(writer.repo.prune(&retention).unwrap().objects_removed > 0);
    let error = replica.db().get(&key).unwrap_err().to_string();
    assert!(error.contains("gone"), "{error}");
    replica.catch_up().unwrap();
    assert_eq!(all(&replica.db()), writer.model);
}

#[test]
fn states_that_were_pruned_do_not_hide_newer_ones() {
    let store = Faulty::new();
    let mut writer = Writer::new(&store, 7);
    writer.ship();
    let replica = replica(&store, &memory());
    for _ in 0..3 {
        writer.write(10);
        writer.ship();
    }
    let mut retention = Retention::default();
    retention.grace = Duration::ZERO;
    writer.repo.prune(&retention).unwrap();
    for _ in 0..100 {
        replica.catch_up().unwrap();
    }
    assert_eq!(all(&replica.db()), writer.model);
}

#[test]
fn faults_delay_a_replica_and_never_mislead_it() {
    let store = Faulty::new();
    let mut writer = Writer::new(&store, 8);
    writer.ship();
    let cache = memory();
    let mut open = replica(&store, &cache);
    let mut shown = writer.model.clone();
    for round in 0..40u64 {
        writer.write(100);
        if round % 3 == 0 {
            writer.db.flush().unwrap();
        }
        writer.ship();
        match round % 2 {
            0 => store.fail_randomly(round, 6, &[Fault::Refused, Fault::CutShort, Fault::Unanswered]),
            _ => store.fail_from(round / 2, Fault::Forbidden),
        }
        let caught_up = open.catch_up();
        store.sound();
        match caught_up {
            Ok(_) => assert_eq!(all(&open.db()), writer.model, "round {round}"),
            // Everything is as before.
            Err(_) => assert_eq!(all(&open.db()), shown, "round {round}"),
        }
        if round % 10 == 9 {
            drop(open);
            open = replica(&store, &cache);
        }
        open.catch_up().unwrap();
        shown = writer.model.clone();
        assert_eq!(all(&open.db()), shown, "round {round}");
    }
}

#[test]
fn a_replica_passes_over_states_that_were_pruned() {
    let store = Faulty::new();
    let mut writer = Writer::new(&store, 12);
    writer.ship();
    let replica = replica(&store, &memory());
    for _ in 0..2 {
        writer.write(100);
        writer.ship();
    }
    let mut retention = Retention::default();
    retention.grace = Duration::ZERO;
    writer.repo.prune(&retention).unwrap();
    assert_eq!(writer.repo.states().unwrap().len(), 1);
    replica.catch_up().unwrap();
    assert_eq!(all(&replica.db()), writer.model);
}

#[test]
fn a_takeover_is_followed() {
    let store = Faulty::new();
    let mut writer = Writer::new(&store, 9);
    writer.write(500);
    writer.db.flush().unwrap();
    writer.ship();
    let replica = replica(&store, &memory());
    let before = all(&replica.db());
    // Another database, with files of the same names.
    let mut other = Writer::new(&store, 10);
    other.write(300);
    other.db.flush().unwrap();
    let options = BackupOptions { takeover: true, ..BackupOptions::default() };
    other.repo.backup_with(&other.db, options, other.fs.clone()).unwrap();
    let old = replica.db();
    replica.catch_up().unwrap();
    assert_eq!(all(&replica.db()), other.model);
    assert_eq!(all(&old), before);
}

#[test]
fn a_replica_refuses_writes() {
    let store = Faulty::new();
    let writer = Writer::new(&store, 11);
    writer.ship();
    let cache = memory();
    let replica = replica(&store, &cache);
    let second = try_replica(&repository(&store, transfer()), &cache, 1 << 20);
    assert!(matches!(second, Err(Error::Io { .. })), "{second:?}");
    assert!(replica.db().put("a", "b").is_err());
    assert!(replica.db().flush().is_err());
    let empty = try_replica(&repository(&Faulty::new(), transfer()), &memory(), 1 << 20);
    assert!(matches!(empty, Err(Error::NoState { .. })));
}
