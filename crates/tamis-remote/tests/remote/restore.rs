//! Restores: interrupted at any operation of the file system and at any request.

use std::path::Path;
use std::sync::Arc;

use tamis::WriteBatch;
use tamis::io::{FileSystem, MemFs, Usage};
use tamis::operators::Operators;
use tamis_remote::{BackupOptions, Error, RestoreOptions, Which};
use tamis_testkit::{CrashMode, FaultPlan, FaultyFs};

use crate::faulty::{Fault, Faulty};
use crate::world::{Map, World, contents_of, impatient, options, repository, restore, transfer};

const TO: &str = "/restored";

#[test]
fn an_interrupted_restore_continues() {
    let (store, mut world) = (Faulty::new(), World::new(20));
    let mut transfer = transfer();
    transfer.parallel = 1;
    let repo = repository(&store, transfer);
    world.write(600);
    world.backup(&repo).unwrap();
    let state = repo.find(Which::Latest).unwrap();
    for at in 0.. {
        let broken = FaultyFs::new(at);
        broken.plan(FaultPlan { fail_at: Some(at), ..FaultPlan::none() });
        let fs: Arc<dyn FileSystem> = Arc::new(broken.clone());
        let first = restore(&repo, &state, &fs, TO.as_ref());
        let interrupted = first.is_err();
        assert_eq!(interrupted, broken.failures() > 0);
        // Then the power fails.
        let fs: Arc<dyn FileSystem> = Arc::new(broken.crash(CrashMode::DropUnsynced));
        if interrupted {
            let again = restore(&repo, &state, &fs, TO.as_ref());
            match again {
                Ok(_) => {}
                // Everything was there, down to the removal of the marker.
                Err(Error::NotEmpty { .. }) => assert!(fs.exists(&Path::new(TO).join("CURRENT")).unwrap()),
                Err(error) => panic!("operation {at}: {error}"),
            }
        }
        assert_eq!(contents_of(&fs, TO.as_ref()), world.model, "operation {at}");
        if !interrupted {
            return;
        }
    }
}

#[test]
fn a_restore_that_was_cut_off_fetches_the_rest() {
    let (store, mut world) = (Faulty::new(), World::new(21));
    let repo = repository(&store, transfer());
    for _ in 0..4 {
        world.write(500);
        world.db.flush().unwrap();
    }
    world.backup(&repo).unwrap();
    let state = repo.find(Which::Latest).unwrap();
    let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new());
    let mut hasty = impatient();
    hasty.parallel = 1;
    let hasty = repository(&store, hasty);
    let (mut rounds, mut there) = (0, 0);
    loop {
        // Each round gets as far as thirty requests bring it.
        store.fail_from(30, Fault::Refused);
        match restore(&hasty, &state, &fs, TO.as_ref()) {
            Ok(restored) => {
                assert!(restored.bytes_there > 0);
                break;
            }
            Err(error) => assert!(matches!(error, Error::Request { .. }), "{error:?}"),
        }
        let now: u64 =
            fs.list(TO.as_ref()).unwrap().iter().filter(|name| name.ends_with(".tam")).count() as u64;
        assert!(now >= there, "what was whole stays");
        (there, rounds) = (now, rounds + 1);
        if rounds > 100 {
            store.sound();
        }
    }
    assert!(rounds > 0);
    store.sound();
    assert_eq!(contents_of(&fs, TO.as_ref()), world.model);
}

#[test]
fn an_interrupted_restore_to_a_number_continues() {
    let (store, fs): (_, Arc<dyn FileSystem>) = (Faulty::new(), Arc::new(MemFs::new()));
    let mut transfer = transfer();
    transfer.parallel = 1;
    let repo = repository(&store, transfer);
    let db = options(&fs).open("/db").unwrap();
    let mut model = Map::new();
    let put = |key: &str, model: &mut Map| {
        db.put(key, "value").unwrap();
        model.insert(key.into(), "value".into());
    };
    let cache = Some("/db/backup-cache.json".into());
    let backup =
        || repo.backup_with(&db, BackupOptions { cache: cache.clone(), ..Default::default() }, fs.clone());
    put("table", &mut model);
    db.flush().unwrap();
    put("first", &mut model);
    backup().unwrap();
    put("second", &mut model);
    let seq = db.snapshot().seq();
    put("third", &mut Map::new());
    backup().unwrap();
    let to = |fs: &Arc<dyn FileSystem>| {
        let mut options = RestoreOptions::default();
        options.file_system = Some(fs.clone());
        repo.restore_to(seq, TO.as_ref(), Operators::new(), &options)
    };
    let marker = Path::new(TO).join("RESTORING");
    for at in 0.. {
        let broken = FaultyFs::new(at);
        broken.plan(FaultPlan { fail_at: Some(at), ..FaultPlan::none() });
        let fs: Arc<dyn FileSystem> = Arc::new(broken.clone());
        let first = to(&fs);
        let untouched = broken.failures() == 0;
        let fs: Arc<dyn FileSystem> = Arc::new(broken.crash(CrashMode::DropUnsynced));
        // Without the marker it is the database.
        let there = |name: &str| fs.exists(&Path::new(TO).join(name)).unwrap();
        if !fs.exists(&marker).unwrap() && there("CURRENT") {
            assert_eq!(contents_of(&fs, TO.as_ref()), model, "operation {at}");
        } else {
            assert!(first.is_err(), "operation {at}");
            assert_eq!(to(&fs).unwrap().last_seq, seq);
            assert_eq!(contents_of(&fs, TO.as_ref()), model, "operation {at}, again");
        }
        assert!(!fs.exists(&marker).unwrap());
        if untouched {
            first.unwrap();
            return;
        }
    }
}

#[test]
fn a_number_that_is_not_reached_leaves_the_marker() {
    let (store, fs): (_, Arc<dyn FileSystem>) = (Faulty::new(), Arc::new(MemFs::new()));
    let repo = repository(&store, transfer());
    let db = options(&fs).open("/db").unwrap();
    let cache = Some("/db/backup-cache.json".into());
    let backup =
        || repo.backup_with(&db, BackupOptions { cache: cache.clone(), ..Default::default() }, fs.clone());
    db.put("a", "1").unwrap();
    backup().unwrap();
    let first = db.snapshot().seq();
    let mut batch = WriteBatch::new();
    batch.put("b", "2");
    batch.put("c", "3");
    db.write(batch).unwrap();
    backup().unwrap();
    let target: Arc<dyn FileSystem> = Arc::new(MemFs::new());
    let mut options = RestoreOptions::default();
    options.file_system = Some(target.clone());
    let to = |seq| repo.restore_to(seq, TO.as_ref(), Operators::new(), &options);
    assert!(matches!(to(first + 1), Err(Error::Unreachable { .. })));
    assert!(target.exists(&Path::new(TO).join("RESTORING")).unwrap());
    // What the engine has left there is no hindrance.
    to(first).unwrap();
    assert_eq!(contents_of(&target, TO.as_ref()).len(), 1);
}

#[test]
fn one_restore_at_a_time() {
    let (store, mut world) = (Faulty::new(), World::new(24));
    let repo = repository(&store, transfer());
    world.write(100);
    world.backup(&repo).unwrap();
    let state = repo.find(Which::Latest).unwrap();
    let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new());
    fs.create_dir_all(TO.as_ref()).unwrap();
    let other = fs.lock(&Path::new(TO).join("LOCK")).unwrap().unwrap();
    let refused = restore(&repo, &state, &fs, TO.as_ref());
    let busy = |error: &Error| matches!(error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::ResourceBusy);
    assert!(refused.as_ref().is_err_and(busy), "{refused:?}");
    drop(other);
    restore(&repo, &state, &fs, TO.as_ref()).unwrap();
    assert_eq!(contents_of(&fs, TO.as_ref()), world.model);
}

#[test]
fn bytes_damaged_on_their_way_are_fetched_again() {
    let (store, mut world) = (Faulty::new(), World::new(22));
    let repo = repository(&store, transfer());
    world.write(600);
    world.backup(&repo).unwrap();
    let state = repo.find(Which::Latest).unwrap();
    for at in 0.. {
        let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new());
        store.fail_at(at, Fault::WrongByte);
        restore(&repo, &state, &fs, TO.as_ref()).unwrap();
        assert_eq!(contents_of(&fs, TO.as_ref()), world.model, "request {at}");
        if store.requests() <= at {
            return;
        }
    }
}

#[test]
fn other_peoples_directories_are_left_alone() {
    let (store, mut world) = (Faulty::new(), World::new(23));
    let repo = repository(&store, transfer());
    world.write(10);
    world.backup(&repo).unwrap();
    let state = repo.find(Which::Latest).unwrap();
    let refused = restore(&repo, &state, &world.fs, &world.dir);
    assert!(matches!(refused, Err(Error::NotEmpty { .. })), "{refused:?}");
    let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new());
    fs.create_dir_all(TO.as_ref()).unwrap();
    drop(fs.create(&Path::new(TO).join("letter.txt"), Usage::Log).unwrap());
    assert!(matches!(restore(&repo, &state, &fs, TO.as_ref()), Err(Error::NotEmpty { .. })));
    assert_eq!(fs.list(TO.as_ref()).unwrap(), ["letter.txt"]);
}

/// A file of somebody's that is called like the marker made a restore take everything beside it for
/// its own, and remove it.
#[test]
fn a_file_called_like_the_marker_proves_nothing() {
    let (store, mut world) = (Faulty::new(), World::new(25));
    let repo = repository(&store, transfer());
    world.write(10);
    world.backup(&repo).unwrap();
    let state = repo.find(Which::Latest).unwrap();
    let others: [&[(&str, &str)]; 4] = [
        &[("RESTORING", ""), ("letter.txt", "dear")],
        &[("RESTORING", "the old chair, a diary"), ("000001.log", "mine")],
        &[("RESTORING", "the old chair, a diary")],
        &[("RESTORING", "tamis restores a backup to this directory\n"), ("letter.txt", "dear")],
    ];
    for files in others {
        let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new());
        fs.create_dir_all(TO.as_ref()).unwrap();
        for (name, text) in files {
            let mut file = fs.create(&Path::new(TO).join(name), Usage::Log).unwrap();
            file.append(text.as_bytes()).unwrap();
        }
        let refused = restore(&repo, &state, &fs, TO.as_ref());
        assert!(matches!(refused, Err(Error::NotEmpty { .. })), "{files:?}: {refused:?}");
        for (name, text) in files {
            let there = tamis::io::read_file(&*fs, &Path::new(TO).join(name)).unwrap();
            assert_eq!(there, text.as_bytes());
        }
        assert_eq!(fs.list(TO.as_ref()).unwrap().len(), files.len(), "nothing was added");
    }
    // One that an earlier version has begun continues.
    let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new());
    fs.create_dir_all(TO.as_ref()).unwrap();
    for name in ["RESTORING", "LOCK", "000077.tam", "000078.tam.partial"] {
        drop(fs.create(&Path::new(TO).join(name), Usage::Log).unwrap());
    }
    restore(&repo, &state, &fs, TO.as_ref()).unwrap();
    assert_eq!(contents_of(&fs, TO.as_ref()), world.model);
}
