//! Restores: interrupted at any operation of the file system and at any request.

use std::path::Path;
use std::sync::Arc;

use tamis::io::{FileSystem, MemFs, Usage};
use tamis_remote::{Error, Which};
use tamis_testkit::{CrashMode, FaultPlan, FaultyFs};

use crate::faulty::{Fault, Faulty};
use crate::world::{World, contents_of, impatient, repository, restore, transfer};

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
