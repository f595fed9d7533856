//! Several writers, and prunes beside them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use tamis_remote::{Error, Repository, Retention, Which};

use crate::faulty::{Faulty, PASSING};
use crate::world::{World, contents, repository, transfer};

/// Removes everything but the newest state, however young it is.
fn greedy() -> Retention {
    let mut retention = Retention::default();
    retention.grace = Duration::ZERO;
    retention
}

/// Ends the other threads, also after a failure.
struct Done<'d>(&'d AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn all_sound(repo: &Repository) {
    for state in repo.states().unwrap() {
        let state = repo.state(state.number).unwrap();
        let verified = repo.verify(&state, false, None).unwrap();
        assert!(verified.problems.is_empty(), "state {}: {:?}", state.number, verified.problems);
    }
}

#[test]
fn of_two_databases_one_gets_the_repository() {
    for seed in 0..20 {
        let store = Faulty::new();
        let (mut one, mut two) = (World::new(seed * 2 + 30), World::new(seed * 2 + 31));
        one.write(100);
        two.write(100);
        let results = {
            let run = |world: &mut World| {
                let repo = repository(&store, transfer());
                (0..3).map(|_| world.backup(&repo)).collect::<Result<Vec<_>, _>>()
            };
            std::thread::scope(|scope| {
                let first = scope.spawn(|| run(&mut one));
                let second = scope.spawn(|| run(&mut two));
                [first.join().unwrap(), second.join().unwrap()]
            })
        };
        let [first, second] = &results;
        assert!(first.is_ok() != second.is_ok(), "{results:?}");
        let lost = if first.is_ok() { second } else { first };
        assert!(matches!(lost, Err(Error::AnotherWriter { .. })), "{lost:?}");
        let winner = if first.is_ok() { &one } else { &two };
        let repo = repository(&store, transfer());
        let newest = repo.find(Which::Latest).unwrap();
        assert_eq!((newest.number, contents(&repo, &newest)), (3, winner.model.clone()));
        all_sound(&repo);
    }
}

#[test]
fn a_takeover_ends_the_other() {
    let store = Faulty::new();
    let (mut old, mut new) = (World::new(40), World::new(41));
    old.write(100);
    new.write(100);
    let repo = repository(&store, transfer());
    old.backup(&repo).unwrap();
    let mut options = new.backup_options();
    options.takeover = true;
    assert_eq!(new.backup_with(&repo, options).unwrap().number, 2);
    assert!(matches!(old.backup(&repo), Err(Error::AnotherWriter { number: 2, .. })));
    // It stays the writer without asking for it again.
    assert_eq!(new.backup(&repo).unwrap().number, 3);
    let states: Vec<_> = (1..=3).map(|number| repo.state(number).unwrap().epoch).collect();
    assert_eq!(states, [0, 1, 1]);
}

#[test]
fn prunes_beside_backups_break_nothing() {
    for seed in 0..6 {
        let store = Faulty::new();
        store.fail_randomly(seed, 40, &PASSING[..2]);
        let mut world = World::new(50 + seed);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _done = Done(&done);
            for _ in 0..2 {
                scope.spawn(|| {
                    let repo = repository(&store, transfer());
                    while !done.load(SeqCst) {
                        // It may lose a state to the other prune while it reads it, which is no
                        // failure.
                        repo.prune(&greedy()).unwrap();
                    }
                });
            }
            let mut transfer = transfer();
            // An upload in pieces is repeated as a whole: few pieces, or it would never end.
            transfer.piece_bytes = 32 << 10;
            transfer.attempts = 12;
            let repo = repository(&store, transfer);
            for _ in 0..25 {
                world.write(200);
                world.backup(&repo).unwrap();
                let newest = repo.find(Which::Latest).unwrap();
                let verified = repo.verify(&newest, false, None).unwrap();
                assert!(verified.problems.is_empty(), "state {}: {:?}", newest.number, verified.problems);
            }
        });
        store.sound();
        // The ends of some sessions failed; their signs would go with their lives.
        store.names().iter().filter(|name| name.contains("/sessions/")).for_each(|name| store.remove(name));
        let repo = repository(&store, transfer());
        repo.prune(&greedy()).unwrap();
        all_sound(&repo);
        let newest = repo.find(Which::Latest).unwrap();
        assert_eq!((newest.number, contents(&repo, &newest)), (25, world.model.clone()));
        // Nothing is left but what the state needs.
        let needed: BTreeMap<&str, u64> = newest
            .files
            .iter()
            .flat_map(|file| &file.pieces)
            .map(|piece| (piece.object.as_str(), piece.len))
            .collect();
        let left =
            store.names().into_iter().filter(|name| name.contains("/files/") || name.contains("/parts/"));
        assert_eq!(left.count(), needed.len());
    }
}

#[test]
fn two_processes_of_one_database_take_turns() {
    let store = Faulty::new();
    let mut world = World::new(60);
    world.write(300);
    let (first, second) = (world.copy(), world.copy());
    world.backup(&repository(&store, transfer())).unwrap();
    let (options, fs) = (world.backup_options(), world.fs.clone());
    std::thread::scope(|scope| {
        for copy in [&first, &second] {
            let (store, options, fs) = (&store, &options, &fs);
            scope.spawn(move || {
                let repo = repository(store, transfer());
                for _ in 0..5 {
                    // Superseded as often as five times in a row if the other is faster: also an
                    // answer.
                    match repo.backup_with(copy, options.clone(), fs.clone()) {
                        Ok(_) | Err(Error::Superseded { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    let repo = repository(&store, transfer());
    all_sound(&repo);
    for state in repo.states().unwrap() {
        assert_eq!(contents(&repo, &repo.state(state.number).unwrap()), world.model);
    }
}
