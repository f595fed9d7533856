use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use tamis_policy::hotness::Marginal;
use tamis_policy::memory::Ghosts;

use super::*;

/// What all members hold together, and the most that it ever was.
#[derive(Debug, Default)]
struct Machine {
    held: AtomicU64,
    peak: AtomicU64,
}

/// A database that counts what it holds.
#[derive(Debug)]
struct Database {
    machine: Arc<Machine>,
    bytes: [AtomicU64; USES.len()],
    membership: Membership,
}

impl Database {
    fn open(memory: &SharedReadMemory, machine: &Arc<Machine>, path: &str) -> Arc<Database> {
        let membership = memory.join(Path::new(path));
        let database = Arc::new(Database { machine: machine.clone(), bytes: Default::default(), membership });
        database.membership.attach(&database);
        database
    }

    fn bytes(&self) -> u64 {
        USES.iter().map(|&of| self.used_bytes(of)).sum()
    }

    fn close(&self) {
        self.membership.leave(|| USES.iter().for_each(|&of| self.set_bytes(of, 0)));
    }

    /// Reports caches that are of no use, and filters.
    fn report(&self, gets: u64) {
        let ghosts = Ghosts { sampling: 1, step_bytes: 1000, evicted_bytes: gets * 1000, ghost_hits: 0 };
        let marginal = Marginal { gain: 1.0, loss: 1.0 };
        let readings = [
            (Use::Blocks, Reading::Counted(ghosts)),
            (Use::Filters, Reading::Expected(marginal)),
            (Use::Records, Reading::Counted(ghosts)),
        ];
        self.membership.report(gets, readings);
    }
}

impl Member for Database {
    fn set_bytes(&self, of: Use, bytes: u64) {
        let before = self.bytes[of as usize].swap(bytes, Relaxed);
        let held = self.machine.held.fetch_add(bytes.wrapping_sub(before), Relaxed);
        self.machine.peak.fetch_max(held.wrapping_add(bytes.wrapping_sub(before)), Relaxed);
    }

    fn used_bytes(&self, of: Use) -> u64 {
        self.bytes[of as usize].load(Relaxed)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.close();
    }
}

#[test]
fn shares_follow_members_and_the_total() {
    let (memory, machine) = (SharedReadMemory::new(86_400), Arc::new(Machine::default()));
    assert_eq!((memory.bytes(), memory.members().len()), (86_400, 0));
    let a = Database::open(&memory, &machine, "a");
    assert_eq!(a.bytes(), 86_400);
    let b = Database::open(&memory, &machine, "b");
    let c = Database::open(&memory, &machine, "c");
    assert_eq!((a.bytes(), b.bytes(), c.bytes()), (28_800, 28_800, 28_800));
    memory.set_bytes(8640);
    assert_eq!((a.bytes(), b.bytes(), c.bytes()), (2880, 2880, 2880));
    memory.set_bytes(172_800);
    let members = memory.members();
    let paths: Vec<_> = members.iter().map(|share| share.path.to_str().expect("text")).collect();
    assert_eq!(paths, ["a", "b", "c"]);
    assert!(members.iter().all(|share| share.bytes == 57_600
        && share.cache_bytes == 19_200
        && share.filter_used_bytes == 19_200));
    b.close();
    b.close();
    assert_eq!((a.bytes(), b.bytes(), c.bytes()), (86_400, 0, 86_400));
    drop(c);
    assert_eq!(a.bytes(), 172_800);
    assert_eq!(machine.peak.load(Relaxed), 172_800);
    // An opening that failed before there was a database.
    drop(memory.join(Path::new("d")));
    assert_eq!((a.bytes(), memory.members().len()), (172_800, 1));
}

/// Steps go both ways, and whoever gives does so before the other takes.
#[test]
fn a_step_is_given_before_it_is_taken() {
    const TOTAL: u64 = 64_000;
    let (memory, machine) = (SharedReadMemory::new(TOTAL), Arc::new(Machine::default()));
    let dbs = ["a", "b"].map(|path| Database::open(&memory, &machine, path));
    let mut gets = [0, 0];
    for busy in [0, 1] {
        for _ in 0..600 {
            gets[busy] += 10_000;
            for (database, gets) in dbs.iter().zip(gets) {
                database.report(gets);
                assert_eq!(machine.held.load(Relaxed), TOTAL);
            }
        }
        let least = TOTAL / 64;
        assert_eq!(dbs[busy].used_bytes(Use::Blocks), least, "{:?}", memory.members());
        assert_eq!(dbs[1 - busy].bytes(), 3 * least, "{:?}", memory.members());
    }
    assert!(memory.members().iter().all(|share| share.steps > 40), "{:?}", memory.members());
    assert_eq!(machine.peak.load(Relaxed), TOTAL);
}

/// Whoever is being dropped cannot be told to shrink. Until it has left, its memory is not given
/// away.
#[test]
fn a_member_that_is_being_dropped_keeps_its_memory_until_it_leaves() {
    #[derive(Debug)]
    struct Dropped;
    impl Member for Dropped {
        fn set_bytes(&self, _: Use, _: u64) {}

        fn used_bytes(&self, _: Use) -> u64 {
            0
        }
    }
    let (memory, machine) = (SharedReadMemory::new(6400), Arc::new(Machine::default()));
    let dropped = memory.join(Path::new("dropped"));
    dropped.attach(&Arc::new(Dropped));
    let other = Database::open(&memory, &machine, "other");
    let shares = || memory.members().iter().map(|share| share.bytes).collect::<Vec<_>>();
    assert_eq!((other.bytes(), shares()), (0, vec![6400, 0]));
    dropped.leave(|| {});
    assert_eq!((other.bytes(), shares()), (6400, vec![6400]));
}

/// Databases come, go, report and are resized from many threads. Together they never hold more than
/// the largest total.
#[test]
fn many_threads_never_hold_more_than_the_total() {
    const TOTAL: u64 = 64_000;
    let (memory, machine) = (SharedReadMemory::new(TOTAL), Arc::new(Machine::default()));
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (memory, machine) = (&memory, &machine);
            scope.spawn(move || {
                for round in 0..200 {
                    let database = Database::open(memory, machine, "x");
                    for gets in 0..10u64 {
                        database.report(gets * 10_000 * thread);
                        if round % 10 == thread {
                            memory.set_bytes(TOTAL / (1 + gets));
                        }
                        assert!(memory.members().iter().map(|share| share.bytes).sum::<u64>() <= TOTAL);
                    }
                    if round % 2 == 0 {
                        database.close();
                        assert_eq!(database.bytes(), 0);
                    }
                }
            });
        }
        scope.spawn(|| (0..200).for_each(|_| memory.set_bytes(TOTAL)));
    });
    assert!(machine.peak.load(Relaxed) <= TOTAL, "{machine:?}");
    assert_eq!((machine.held.load(Relaxed), memory.members().len()), (0, 0));
}
