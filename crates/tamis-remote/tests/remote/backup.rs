//! Backups: what is sent, what faults do, what is refused.

use object_store::Error as StoreError;
use tamis_remote::{BackupOptions, Error, Kind, Pinned, Retention, Source, Which};

use crate::faulty::{Fault, Faulty, PASSING};
use crate::world::{World, contents, impatient, repository, transfer};

#[test]
fn a_backup_is_what_the_database_was() {
    let (store, mut world) = (Faulty::new(), World::new(1));
    let repo = repository(&store, transfer());
    let mut held = Vec::new();
    for _ in 0..6 {
        world.write(400);
        let written = world.backup(&repo).unwrap();
        assert_eq!(written.number, held.len() as u64 + 1);
        assert_eq!(written.last_seq, world.db.snapshot().seq());
        held.push(world.model.clone());
    }
    for (at, model) in held.iter().enumerate() {
        let state = repo.find(Which::Number(at as u64 + 1)).unwrap();
        assert_eq!(contents(&repo, &state), *model);
    }
    assert_eq!(repo.find(Which::Latest).unwrap().number, 6);
    let second = repo.states().unwrap()[1];
    assert_eq!(repo.find(Which::At(second.written)).unwrap().number, 2);
    assert!(matches!(repo.find(Which::Number(7)), Err(Error::NoState { .. })));
    assert!(matches!(repo.find(Which::At(std::time::UNIX_EPOCH)), Err(Error::NoState { .. })));
}

/// The files of such values were logs, and have both names for a while.
#[test]
fn values_that_stay_in_logs_are_in_the_backup() {
    let (store, mut world) = (Faulty::new(), World::new(1));
    let repo = repository(&store, transfer());
    let mut held = Vec::new();
    for round in 0..3u8 {
        for i in (0..200u32).step_by(1 + usize::from(round)) {
            let (key, value) = (format!("key {i:04}").into_bytes(), vec![round + i as u8; 3000]);
            world.db.put(&key, &value).unwrap();
            world.model.insert(key, value);
        }
        world.backup(&repo).unwrap();
        held.push(world.model.clone());
        world.db.flush().unwrap();
        if round == 0 {
            let write = world.db.stats().write;
            assert!(write.flushes > 0 && write.blob_write_bytes == 0, "{write:?}");
        }
    }
    for (at, model) in held.iter().enumerate() {
        let state = repo.find(Which::Number(at as u64 + 1)).unwrap();
        assert_eq!(contents(&repo, &state), *model);
    }
}

#[test]
fn a_second_backup_sends_what_is_new() {
    let (store, mut world) = (Faulty::new(), World::new(2));
    let repo = repository(&store, transfer());
    world.write(3000);
    world.db.flush().unwrap();
    world.db.compact().unwrap();
    let first = world.backup(&repo).unwrap();
    assert!(first.bytes_sent >= first.bytes, "{first:?}");
    // The copy has a manifest of its own each time; tables are the same.
    world.db.put("one", "more").unwrap();
    let second = world.backup(&repo).unwrap();
    assert!(second.bytes_sent * 10 < second.bytes, "{second:?}");
    // Without a cache it is another copy, as far as anybody can tell.
    let uncached = world.backup_with(&repo, BackupOptions::default());
    assert!(matches!(uncached, Err(Error::AnotherWriter { number: 2, .. })), "{uncached:?}");
    let takeover = BackupOptions { takeover: true, ..BackupOptions::default() };
    let third = world.backup_with(&repo, takeover).unwrap();
    assert!(third.bytes_sent * 10 < third.bytes, "hashes are enough to find what is there: {third:?}");
    // Now the first copy is the other one.
    assert!(matches!(world.backup(&repo), Err(Error::AnotherWriter { number: 3, .. })));
}

#[test]
fn another_database_is_refused() {
    let (store, mut one, mut other) = (Faulty::new(), World::new(3), World::new(4));
    let repo = repository(&store, transfer());
    one.write(10);
    other.write(10);
    one.backup(&repo).unwrap();
    let names = store.names();
    assert!(matches!(other.backup(&repo), Err(Error::AnotherWriter { number: 1, .. })));
    assert_eq!(store.names(), names, "nothing was sent");
}

#[test]
fn one_fault_at_any_request_does_no_harm() {
    let mut requests = 0;
    for fault in PASSING {
        for at in 0.. {
            let (store, mut world) = (Faulty::new(), World::new(5));
            let mut transfer = transfer();
            transfer.timeout = std::time::Duration::from_millis(200);
            let repo = repository(&store, transfer);
            world.write(600);
            store.fail_at(at, fault);
            let written = world.backup(&repo).unwrap();
            requests = store.requests();
            assert_eq!(written.number, 1, "{fault:?} at request {at}");
            store.sound();
            let state = repo.find(Which::Latest).unwrap();
            assert_eq!(contents(&repo, &state), world.model, "{fault:?} at request {at}");
            if requests <= at {
                break;
            }
        }
        assert!(requests > 10, "{requests} requests");
    }
}

#[test]
fn an_interrupted_backup_continues() {
    for fault in [Fault::Refused, Fault::Unanswered, Fault::Hangs, Fault::Forbidden] {
        for at in 0.. {
            let (store, mut world) = (Faulty::new(), World::new(6));
            world.write(600);
            // The same files each time, as for a process that is started again at once.
            let copy = world.copy();
            store.fail_from(at, fault);
            let hasty = repository(&store, impatient());
            let failed = hasty.backup_with(&copy, world.backup_options(), world.fs.clone());
            let interrupted = failed.is_err();
            store.sound();
            let there = store.names();
            let repo = repository(&store, transfer());
            // A prune in between leaves alone what the interrupted session has sent.
            let mut retention = Retention::default();
            retention.grace = std::time::Duration::ZERO;
            repo.prune(&retention).unwrap();
            let sent_before = |names: &[String]| names.iter().filter(|name| is_content(name)).count();
            let kept = sent_before(&store.names());
            assert_eq!(kept, sent_before(&there), "{fault:?} from request {at}");

            let written = repo.backup_with(&copy, world.backup_options(), world.fs.clone()).unwrap();
            let state = repo.find(Which::Latest).unwrap();
            assert_eq!(written.number, state.number);
            assert_eq!(contents(&repo, &state), world.model, "{fault:?} from request {at}");
            let all = sent_before(&store.names());
            assert_eq!(written.objects_sent as usize, all - kept, "{fault:?} from request {at}");
            if !interrupted {
                break;
            }
            assert!(at < 1000, "it never ends");
        }
    }
}

fn is_content(name: &str) -> bool {
    name.contains("/files/") || name.contains("/parts/")
}

#[test]
fn what_is_refused_for_good_is_not_tried_again() {
    let (store, mut world) = (Faulty::new(), World::new(7));
    let repo = repository(&store, transfer());
    world.write(10);
    store.fail_from(3, Fault::Forbidden);
    let failed = world.backup(&repo).unwrap_err();
    assert!(
        matches!(failed, Error::Request { source: StoreError::PermissionDenied { .. }, .. }),
        "{failed:?}"
    );
    assert_eq!(repo.requests().retries, 0);
}

#[test]
fn verification_finds_every_damaged_or_missing_object() {
    let (store, mut world) = (Faulty::new(), World::new(8));
    let repo = repository(&store, transfer());
    world.write(2000);
    world.backup(&repo).unwrap();
    let state = repo.find(Which::Latest).unwrap();
    let sound = repo.verify(&state, false, None).unwrap();
    assert!(sound.problems.is_empty() && sound.objects > 3, "{sound:?}");
    assert_eq!(sound.bytes, state.bytes());
    assert!(repo.verify(&state, true, None).unwrap().problems.is_empty());
    for name in store.names().into_iter().filter(|name| is_content(name)) {
        let bytes = store.bytes_of(&name);
        let mut flipped = bytes.clone();
        flipped[bytes.len() / 3] ^= 1;
        store.replace(&name, flipped);
        assert_eq!(repo.verify(&state, false, None).unwrap().problems.len(), 1, "{name}");
        assert!(repo.verify(&state, true, None).unwrap().problems.is_empty(), "sizes are the same: {name}");
        let fs: std::sync::Arc<dyn tamis::io::FileSystem> = std::sync::Arc::new(tamis::io::MemFs::new());
        let refused = crate::world::restore(&repo, &state, &fs, "/r".as_ref());
        assert!(matches!(refused, Err(Error::Damaged { .. })), "{name}: {refused:?}");

        store.replace(&name, bytes[..bytes.len() - 1].to_vec());
        assert_eq!(repo.verify(&state, false, None).unwrap().problems.len(), 1, "{name}");
        assert_eq!(repo.verify(&state, true, None).unwrap().problems.len(), 1, "{name}");
        store.remove(&name);
        assert_eq!(repo.verify(&state, false, None).unwrap().problems.len(), 1, "{name}");
        assert_eq!(repo.verify(&state, true, None).unwrap().problems.len(), 1, "{name}");
        let refused = crate::world::restore(&repo, &state, &fs, "/r".as_ref());
        assert!(matches!(refused, Err(Error::Gone { .. })), "{name}: {refused:?}");

        // The next backup does not know, as it trusts what the newest state names; the check is
        // what finds it.
        store.replace(&name, bytes);
    }
    assert!(repo.verify(&state, false, None).unwrap().problems.is_empty());
}

#[test]
fn hints_that_are_wrong_cost_requests_only() {
    let (store, mut world) = (Faulty::new(), World::new(9));
    let repo = repository(&store, transfer());
    for _ in 0..3 {
        world.write(10);
        world.backup(&repo).unwrap();
    }
    for hint in [r#"{"number":1}"#, r#"{"number":99}"#, r#"{"number":0}"#, "x", "", r#"{"number":-1}"#] {
        store.replace("some/where/latest", hint.as_bytes().to_vec());
        assert_eq!(repo.find(Which::Latest).unwrap().number, 3, "{hint}");
    }
    store.replace("some/where/latest", vec![b' '; 2000]);
    assert_eq!(repo.find(Which::Latest).unwrap().number, 3);
    store.remove("some/where/latest");
    assert_eq!(repo.find(Which::Latest).unwrap().number, 3);
}

/// A database whose files have other names than a database's.
struct Renamed<'p>(&'p (dyn Fn() -> Result<Pinned, Error> + Sync));

impl Source for Renamed<'_> {
    fn pin(&self) -> Result<Pinned, Error> {
        (self.0)()
    }
}

#[test]
fn a_state_that_readers_would_refuse_is_not_written() {
    let store = Faulty::new();
    let repo = repository(&store, transfer());
    let mut world = World::new(11);
    world.write(100);
    let copy = world.copy();
    for name in ["RESTORING", "LOCK", "000001.log.partial", "backup-cache.json", "../x"] {
        let pinned = || -> Result<Pinned, Error> {
            let mut pinned = copy.pin()?;
            let file = pinned.files.iter_mut().find(|file| file.kind == Kind::Manifest);
            file.unwrap().name = name.to_owned();
            Ok(pinned)
        };
        let refused = repo.backup_with(&Renamed(&pinned), world.backup_options(), world.fs.clone());
        assert!(matches!(refused, Err(Error::Damaged { .. })), "{name}: {refused:?}");
    }
    assert!(repo.states().unwrap().is_empty());
    repo.backup_with(&copy, world.backup_options(), world.fs.clone()).unwrap();
}

#[test]
fn a_bandwidth_is_kept() {
    let (store, mut world) = (Faulty::new(), World::new(10));
    let mut transfer = transfer();
    transfer.bytes_per_second = Some(1 << 20);
    let repo = repository(&store, transfer);
    world.write(3000);
    let begin = std::time::Instant::now();
    let written = world.backup(&repo).unwrap();
    // A bound from below: pauses cannot be shorter than they are.
    let least = written.bytes_sent as f64 / f64::from(1 << 20) - 0.1;
    assert!(begin.elapsed().as_secs_f64() >= least, "{written:?}");
}
