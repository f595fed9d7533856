//! Who gets a lock, who waits, and who is told of a deadlock.

use super::*;

const NO_TIME: Duration = Duration::ZERO;

fn key(key: &str) -> Target {
    Target::key(key.as_bytes())
}

fn range(start: &str, end: &str) -> Target {
    let end = (!end.is_empty()).then(|| end.as_bytes().to_vec());
    Target::range((start.as_bytes().to_vec(), end))
}

fn granted(locks: &Locks, owner: Owner, target: Target, mode: Mode) -> bool {
    locks.acquire(owner, (0, "k"), &target, mode, NO_TIME).is_ok()
}

#[test]
fn shared_locks_are_shared_and_exclusive_ones_are_not() {
    use Mode::{Exclusive, Shared};
    let cases = [
        (key("b"), Shared, key("b"), Shared, true),
        (key("b"), Shared, key("b"), Exclusive, false),
        (key("b"), Exclusive, key("b"), Shared, false),
        (key("b"), Exclusive, key("c"), Exclusive, true),
        (key("b"), Exclusive, range("a", "b"), Shared, true),
        (key("b"), Exclusive, range("a", "c"), Shared, false),
        (range("a", "c"), Shared, key("b"), Shared, true),
        (range("a", "c"), Shared, key("b"), Exclusive, false),
        (range("a", "c"), Shared, key("c"), Exclusive, true),
        (range("a", "c"), Exclusive, range("b", ""), Shared, false),
        (range("a", "c"), Exclusive, range("c", ""), Exclusive, true),
        (range("b", ""), Exclusive, key("z"), Exclusive, false),
    ];
    for (first, held, second, asked, expected) in cases {
        let locks = Locks::default();
        assert!(granted(&locks, 1, first.clone(), held));
        assert_eq!(granted(&locks, 2, second.clone(), asked), expected, "{first:?} {second:?}");
        assert!(granted(&locks, 1, second.clone(), asked) || expected, "its own never block");
        assert!(locks.acquire(3, (1, "other"), &second, asked, NO_TIME).is_ok(), "another keyspace");
        locks.release(1);
        locks.release(2);
        locks.release(3);
        assert_eq!(locks.held(), 0);
    }
}

#[test]
fn requests_conflict_if_owners_differ_and_one_place_is_asked_for_exclusively() {
    use Mode::{Exclusive, Shared};
    let request = |owner, keyspace, target, mode| Request { owner, keyspace, target, mode };
    let first = request(1, 0, range("a", "c"), Exclusive);
    for (other, conflicts) in [
        (request(2, 0, key("b"), Exclusive), true),
        (request(2, 0, key("b"), Shared), true),
        (request(1, 0, key("b"), Exclusive), false),
        (request(2, 1, key("b"), Exclusive), false),
        (request(2, 0, key("c"), Exclusive), false),
    ] {
        assert_eq!((first.conflicts(&other), other.conflicts(&first)), (conflicts, conflicts));
    }
    let shared = request(1, 0, range("a", "c"), Shared);
    assert!(!shared.conflicts(&request(2, 0, key("b"), Shared)));
}

#[test]
fn memory_grows_with_the_keys_that_are_locked() {
    let locks = Locks::default();
    let taken = |locks: &Locks, target: Target| {
        let before = locks.memory_bytes();
        assert!(granted(locks, 1, target, Mode::Exclusive));
        locks.memory_bytes() - before
    };
    let (short, long) = (taken(&locks, key("a")), taken(&locks, key("a longer key")));
    assert_eq!((short - 2, long - 24), (taken(&locks, range("b", "c")), short - 2));
    let held = locks.memory_bytes();
    let waiting = Vec::with_capacity(3);
    let more = waiting.capacity() * size_of::<Waiting>();
    locks.table.lock().waiting = waiting;
    assert_eq!(locks.memory_bytes(), held + more);
    locks.table.lock().waiting = Vec::new();
    locks.release(1);
    assert_eq!(locks.memory_bytes(), 0);
    assert!(locks.table.lock().keyspaces[&0].keys.is_empty(), "keys that nobody holds are not listed");
}

#[test]
fn a_shared_lock_becomes_exclusive_if_nobody_shares_it() {
    let locks = Locks::default();
    assert!(granted(&locks, 1, key("a"), Mode::Shared));
    assert!(granted(&locks, 1, key("a"), Mode::Exclusive));
    assert!(!granted(&locks, 2, key("a"), Mode::Shared));
    assert!(granted(&locks, 1, key("a"), Mode::Shared), "it stays exclusive");
    assert!(!granted(&locks, 2, key("a"), Mode::Shared));
    assert!(granted(&locks, 1, key("b"), Mode::Shared));
    locks.release_shared(1);
    assert!(granted(&locks, 2, key("b"), Mode::Exclusive));
    assert!(!granted(&locks, 2, key("a"), Mode::Shared));
}

/// Three transactions deadlock, on keys and a range: the last one is told which waits for
/// which.
#[test]
fn a_deadlock_is_named() {
    let locks = Locks::default();
    for (owner, name) in [(1, "a"), (2, "b"), (3, "c")] {
        assert!(granted(&locks, owner, key(name), Mode::Exclusive));
    }
    let long = Duration::from_secs(60);
    std::thread::scope(|scope| {
        let wait = |owner, target| locks.acquire(owner, (0, "k"), &target, Mode::Shared, long);
        let one = scope.spawn(move || wait(1, key("b")));
        let two = scope.spawn(move || wait(2, range("c", "d")));
        while locks.table.lock().waiting.len() < 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let Err(NotGranted::Deadlock(cycle)) = wait(3, key("a")) else { panic!("no deadlock was found") };
        let step = |step: &WaitsFor| {
            (step.transaction, String::from_utf8_lossy(&step.key).into_owned(), step.holder)
        };
        let cycle: Vec<_> = cycle.iter().map(step).collect();
        assert_eq!(cycle, [(3, "a".into(), 1), (1, "b".into(), 2), (2, "c".into(), 3)]);
        locks.release(3);
        two.join().unwrap().unwrap();
        locks.release(2);
        one.join().unwrap().unwrap();
    });
}

#[test]
fn two_that_want_to_become_exclusive_do_not_wait_for_ever() {
    let locks = Locks::default();
    assert!(granted(&locks, 1, key("a"), Mode::Shared) && granted(&locks, 2, key("a"), Mode::Shared));
    let long = Duration::from_secs(60);
    std::thread::scope(|scope| {
        let one = scope.spawn(|| locks.acquire(1, (0, "k"), &key("a"), Mode::Exclusive, long));
        while locks.table.lock().waiting.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let refused = locks.acquire(2, (0, "k"), &key("a"), Mode::Exclusive, long);
        assert!(matches!(refused, Err(NotGranted::Deadlock(cycle)) if cycle.len() == 2));
        locks.release(2);
        one.join().unwrap().unwrap();
    });
}

#[test]
fn a_timeout_names_the_holders() {
    let locks = Locks::default();
    for owner in [1, 2] {
        assert!(granted(&locks, owner, key("a"), Mode::Shared));
    }
    let refused = locks.acquire(3, (0, "k"), &range("", ""), Mode::Exclusive, Duration::from_millis(5));
    assert_eq!(refused, Err(NotGranted::Timeout { holders: vec![1, 2] }));
    assert!(locks.table.lock().waiting.is_empty());
    // Each once, however many of its locks are in the way, and in order.
    for (owner, name) in [(2, "b"), (1, "c")] {
        assert!(granted(&locks, owner, key(name), Mode::Shared));
    }
    assert!(granted(&locks, 1, range("b", "c"), Mode::Shared));
    let refused = locks.acquire(3, (0, "k"), &range("", ""), Mode::Exclusive, NO_TIME);
    assert_eq!(refused, Err(NotGranted::Timeout { holders: vec![1, 2] }));
}

/// Registers a transaction as waiting, without a thread. Returns where it would sleep.
fn wait_in(table: &mut Table, owner: Owner, target: Target, mode: Mode) -> Arc<Parking> {
    let request = Request { owner, keyspace: 0, target, mode };
    let place = Arc::<Parking>::default();
    table.waiting.push(Waiting { request, name: String::new(), place: place.clone(), overtaken: false });
    place
}

/// Waits until a waiter was woken.
fn until_called(place: &Parking) {
    let started = Instant::now();
    while !place.called.load(Relaxed) {
        assert!(started.elapsed() < Duration::from_secs(20), "it is left asleep");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A holder that waits for nobody is not part of the cycle.
#[test]
fn a_deadlock_names_only_those_in_the_cycle() {
    let mut table = Table::default();
    let request = |owner, target, mode| Request { owner, keyspace: 0, target, mode };
    for owner in [2, 3, 4] {
        table.grant(request(owner, key("a"), Mode::Shared));
    }
    table.grant(request(1, key("b"), Mode::Exclusive));
    table.grant(request(5, key("c"), Mode::Exclusive));
    wait_in(&mut table, 1, key("a"), Mode::Exclusive);
    // 2 waits for one that waits for nobody, 3 for nobody, and 4 closes the cycle.
    wait_in(&mut table, 2, key("c"), Mode::Exclusive);
    assert_eq!(table.cycle(1), None);
    wait_in(&mut table, 4, key("b"), Mode::Exclusive);
    let cycle = table.cycle(1).unwrap();
    let steps: Vec<_> = cycle.iter().map(|step| (step.transaction, step.holder)).collect();
    assert_eq!(steps, [(1, 4), (4, 1)]);
}

/// There are 2^60 ways through sixty pairs of transactions that wait for the next pair.
#[test]
fn the_search_for_a_deadlock_looks_at_each_transaction_once() {
    let mut table = Table::default();
    for pair in 0..60 {
        for owner in [2 * pair + 1, 2 * pair + 2] {
            let (held, wanted) = (key(&pair.to_string()), key(&(pair + 1).to_string()));
            table.grant(Request { owner, keyspace: 0, target: held, mode: Mode::Shared });
            wait_in(&mut table, owner, wanted, Mode::Exclusive);
        }
    }
    assert_eq!(table.cycle(1), None);
}

/// A reader waits its turn behind a writer. The writer stops waiting, since it would deadlock.
#[test]
fn whoever_stops_waiting_holds_up_nobody() {
    let locks = Locks::default();
    let (holder, writer, reader) = (1, 2, 3);
    assert!(granted(&locks, holder, key("a"), Mode::Shared));
    assert!(granted(&locks, writer, key("b"), Mode::Exclusive));
    std::thread::scope(|scope| {
        let wait = || locks.acquire(writer, (0, "k"), &key("a"), Mode::Exclusive, Duration::from_secs(60));
        let refused = scope.spawn(wait);
        until_waiting(&locks, 1);
        let mut table = locks.table.lock();
        let place = wait_in(&mut table, reader, key("a"), Mode::Shared);
        assert_eq!(table.blocking(&table.waiting[1].request), [writer]);
        let held_up = wait_in(&mut table, holder, key("b"), Mode::Exclusive);
        // It looks again, and finds the cycle.
        table.waiting[0].place.wake();
        drop(table);
        assert!(matches!(refused.join().unwrap(), Err(NotGranted::Deadlock(_))));
        assert!(place.called.load(Relaxed));
        assert!(!held_up.called.load(Relaxed), "the writer still holds its lock");
    });
}

/// A reader waits its turn behind a writer, and sleeps. Then the one that the writer waits for
/// begins to wait for the reader.
#[test]
fn a_waiter_whose_turn_comes_by_another_wait_is_woken() {
    let locks = Locks::default();
    let (reader, writer, holder) = (1, 2, 3);
    assert!(granted(&locks, holder, key("shared"), Mode::Shared));
    assert!(granted(&locks, reader, key("own"), Mode::Exclusive));
    std::thread::scope(|scope| {
        let place = {
            let mut table = locks.table.lock();
            wait_in(&mut table, writer, key("shared"), Mode::Exclusive);
            wait_in(&mut table, reader, key("shared"), Mode::Shared)
        };
        let wait = || locks.acquire(holder, (0, "k"), &key("own"), Mode::Exclusive, Duration::from_secs(60));
        let waiting = scope.spawn(wait);
        until_called(&place);
        locks.release(reader);
        waiting.join().unwrap().unwrap();
    });
}

/// The first of the waiters no longer blocked are woken; those that they would block sleep on.
/// A waiter that is still blocked holds up shared requests behind it, but no exclusive ones.
#[test]
fn those_who_can_go_on_together_are_woken() {
    use Mode::{Exclusive, Shared};
    let mut table = Table::default();
    let request = |owner, target, mode| Request { owner, keyspace: 0, target, mode };
    table.grant(request(1, key("x"), Exclusive));
    let waiting = [
        request(2, range("a", ""), Exclusive),
        request(3, key("b"), Shared),
        request(4, key("b"), Exclusive),
        request(5, key("b"), Shared),
        request(6, range("c", "d"), Exclusive),
    ];
    for request in waiting {
        let (name, place) = (String::new(), Arc::default());
        table.waiting.push(Waiting { request, name, place, overtaken: false });
    }
    let woken = |table: &Table| -> Vec<Owner> {
        let woken = table.unblocked();
        let is_woken = |waiting: &&Waiting| woken.iter().any(|one| Arc::ptr_eq(one, &waiting.place));
        table.waiting.iter().filter(is_woken).map(|waiting| waiting.request.owner).collect()
    };
    assert_eq!(woken(&table), [4, 6]);
    assert!(table.keyspaces.get_mut(&0).unwrap().give_up(1, &key("x"), Exclusive));
    assert_eq!(woken(&table), [2]);
}

/// Waits until `count` transactions wait for locks.
fn until_waiting(locks: &Locks, count: usize) {
    while locks.table.lock().waiting.len() < count {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Two readers with overlapping locks used to keep a writer out forever, each arriving while
/// the other was inside.
#[test]
fn readers_that_overlap_do_not_starve_a_writer() {
    let locks = Locks::default();
    let long = Duration::from_secs(60);
    assert!(granted(&locks, 1, key("a"), Mode::Shared));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| locks.acquire(2, (0, "k"), &range("a", "c"), Mode::Exclusive, long));
        until_waiting(&locks, 1);
        assert!(!granted(&locks, 3, key("a"), Mode::Shared), "the writer comes first");
        assert!(!granted(&locks, 3, range("b", ""), Mode::Shared));
        assert!(granted(&locks, 3, key("c"), Mode::Shared), "the writer does not want it");
        assert!(granted(&locks, 1, key("b"), Mode::Shared), "the writer waits for it anyway");
        locks.release(1);
        writer.join().unwrap().unwrap();
        assert!(!granted(&locks, 3, key("a"), Mode::Shared));
    });
    locks.release(2);
    assert!(granted(&locks, 3, key("a"), Mode::Shared));
}

/// A waits its turn behind B, which waits for C. When C starts to wait for A, A may go before
/// B: no held lock closes a cycle.
#[test]
fn the_order_of_waiters_makes_no_deadlock() {
    let locks = Locks::default();
    let (a, b, c) = (1, 2, 3);
    let long = Duration::from_secs(60);
    let wait = |owner, name, mode| locks.acquire(owner, (0, "k"), &key(name), mode, long);
    assert!(granted(&locks, c, key("shared"), Mode::Shared));
    assert!(granted(&locks, a, key("own"), Mode::Exclusive));
    std::thread::scope(|scope| {
        let second = scope.spawn(move || wait(b, "shared", Mode::Exclusive));
        until_waiting(&locks, 1);
        let first = scope.spawn(move || wait(a, "shared", Mode::Shared));
        until_waiting(&locks, 2);
        let third = scope.spawn(move || wait(c, "own", Mode::Exclusive));
        first.join().unwrap().unwrap();
        locks.release(a);
        third.join().unwrap().unwrap();
        locks.release(c);
        second.join().unwrap().unwrap();
    });
}

/// A waiter that lost its lock to a later request loses it to no other.
#[test]
fn a_waiter_is_overtaken_once() {
    let mut table = Table::default();
    let request = |owner| Request { owner, keyspace: 0, target: key("a"), mode: Mode::Exclusive };
    let (name, place) = (String::new(), Arc::default());
    table.waiting.push(Waiting { request: request(1), name, place, overtaken: false });
    assert_eq!(table.blocking(&request(2)), []);
    table.waiting[0].overtaken = true;
    assert_eq!(table.blocking(&request(2)), [1]);
    assert_eq!(table.blocking(&request(1)), []);
}

#[test]
fn a_waiter_that_finds_the_lock_taken_again_is_overtaken() {
    let locks = Locks::default();
    let request = |owner| Request { owner, keyspace: 0, target: key("a"), mode: Mode::Exclusive };
    assert!(granted(&locks, 1, key("a"), Mode::Exclusive));
    std::thread::scope(|scope| {
        let waiter =
            scope.spawn(|| locks.acquire(2, (0, "k"), &key("a"), Mode::Exclusive, Duration::from_secs(60)));
        until_waiting(&locks, 1);
        {
            let mut table = locks.table.lock();
            assert!(!table.waiting[0].overtaken);
            assert!(table.keyspaces.get_mut(&0).unwrap().give_up(1, &key("a"), Mode::Exclusive));
            // It cannot look before another has the lock.
            table.wake();
            table.grant(request(3));
        }
        let started = Instant::now();
        while !locks.table.lock().waiting[0].overtaken {
            assert!(started.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(1));
        }
        locks.release(3);
        waiter.join().unwrap().unwrap();
    });
    locks.release(2);
}

/// Threads that want overlapping keys and ranges, and retry after a deadlock, all finish, and
/// none is inside together with one that excludes it. A waiter left asleep would time out.
#[test]
fn nobody_is_left_asleep() {
    const KEYS: [&str; 4] = ["a", "b", "c", "d"];
    let locks = Locks::default();
    let inside: [std::sync::atomic::AtomicI32; 4] = Default::default();
    let run = |thread: usize| {
        use std::sync::atomic::Ordering::SeqCst;
        let mut random = thread + 1;
        let mut draw = |below: usize| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) % below
        };
        for _ in 0..300 {
            let owner = locks.owner();
            let mut locked: Vec<(usize, usize, Mode)> = Vec::new();
            for _ in 0..=draw(3) {
                let (from, to) = (draw(4), draw(4));
                let mode = if draw(3) == 0 { Mode::Shared } else { Mode::Exclusive };
                let (to, target) = match from < to {
                    true => (to, range(KEYS[from], KEYS[to])),
                    false => (from + 1, key(KEYS[from])),
                };
                match locks.acquire(owner, (0, "k"), &target, mode, Duration::from_secs(60)) {
                    Ok(()) => locked.push((from, to, mode)),
                    Err(NotGranted::Deadlock(_)) => break,
                    Err(timeout) => panic!("{timeout:?}"),
                }
            }
            // A place counts the readers inside; a writer adds more than all readers together
            // could.
            let mut mine = [0; 4];
            for (from, to, mode) in locked {
                let weight = if mode == Mode::Shared { 1 } else { 1000 };
                (from..to).for_each(|place| mine[place] = weight.max(mine[place]));
            }
            for (place, weight) in mine.into_iter().enumerate().filter(|(_, weight)| *weight > 0) {
                let others = inside[place].fetch_add(weight, SeqCst);
                assert!(if weight == 1 { others < 1000 } else { others == 0 }, "{others} inside");
            }
            std::thread::yield_now();
            (0..4).for_each(|place| _ = inside[place].fetch_sub(mine[place], SeqCst));
            locks.release(owner);
        }
    };
    std::thread::scope(|scope| (0..6).for_each(|thread| _ = scope.spawn(move || run(thread))));
    assert_eq!((locks.held(), locks.table.lock().waiting.len()), (0, 0));
}
