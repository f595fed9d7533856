//! Random histories of a database, its repository and its restores, compared with maps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use object_store::local::LocalFileSystem;
use tamis::io::{FileSystem, MemFs};
use tamis_remote::{Error, Retention, Which};
use tamis_testkit::Rng;

use crate::faulty::{Fault, Faulty, PASSING};
use crate::world::{Map, World, contents, repository, restore, transfer};

#[test]
fn histories() {
    for seed in 0..12 {
        history(seed, &Faulty::new());
    }
}

#[test]
fn histories_in_a_directory() {
    for seed in 20..23 {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalFileSystem::new_with_prefix(dir.path()).unwrap();
        history(seed, &Faulty::over(Arc::new(store)));
    }
}

fn history(seed: u64, store: &Faulty) {
    let mut rng = Rng::named("remote", seed);
    let mut transfer = transfer();
    transfer.attempts = 12;
    // An upload in pieces is repeated as a whole: few pieces, or it would never end.
    transfer.piece_bytes = 32 << 10;
    let repo = repository(store, transfer);
    let mut world = World::new(seed);
    let mut held: BTreeMap<u64, Map> = BTreeMap::new();
    for _ in 0..40 {
        store.fail_randomly(rng.next_u64(), 20, &[Fault::Refused, Fault::Unanswered, Fault::CutShort]);
        match rng.below(10) {
            0..=3 => world.write(rng.below(400)),
            4 => world.db.compact().unwrap(),
            5..=7 => {
                // Sometimes the process dies on the way.
                if rng.one_in(3) {
                    store.fail_from(rng.below(20), rng.pick(&PASSING[..2]));
                    match world.backup(&repo) {
                        Ok(written) => drop(held.insert(written.number, world.model.clone())),
                        Err(error) => assert!(matches!(error, Error::Request { .. }), "{error:?}"),
                    }
                    store.sound();
                    // The state may be there although its writer has not heard of it.
                    let newest = repo.states().unwrap().last().map(|state| state.number);
                    if let Some(number) = newest {
                        held.entry(number).or_insert_with(|| world.model.clone());
                    }
                } else {
                    let written = world.backup(&repo).unwrap();
                    held.insert(written.number, world.model.clone());
                }
            }
            8 => {
                let mut retention = Retention::default();
                retention.grace = Duration::ZERO;
                retention.keep_last = rng.index(4);
                repo.prune(&retention).unwrap();
            }
            _ => {
                // A restore becomes the database.
                let Ok(state) = repo.find(Which::Latest) else { continue };
                let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new());
                restore(&repo, &state, &fs, "/restored".as_ref()).unwrap();
                let model = held[&state.number].clone();
                world = World::over(fs, "/restored".as_ref(), model, rng.next_u64());
                let refused = world.backup(&repo);
                assert!(matches!(refused, Err(Error::AnotherWriter { .. })), "{refused:?}");
                let mut options = world.backup_options();
                options.takeover = true;
                let written = world.backup_with(&repo, options).unwrap();
                held.insert(written.number, world.model.clone());
            }
        }
    }
    store.sound();
    let states = repo.states().unwrap();
    assert!(!states.is_empty());
    for listing in states {
        let state = repo.state(listing.number).unwrap();
        assert_eq!(contents(&repo, &state), held[&listing.number], "seed {seed}, state {}", listing.number);
    }
}
