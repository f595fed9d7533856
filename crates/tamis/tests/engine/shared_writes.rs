//! Several databases share the memory for memtables.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tamis::io::MemFs;
use tamis::options::{MemoryLimit, SharedWriteMemory};
use tamis::{Db, Durability, Options};
use tamis_testkit::{FaultPlan, FaultyFs, OpClass};

const TOTAL: u64 = 1 << 20;

/// What may be written between two looks, chunks of arenas that are not full, and filters of
/// memtables.
const SLACK: u64 = TOTAL / 4;

/// Options of a database whose own limits are far above what it shares.
fn sharing(memory: &SharedWriteMemory) -> Options {
    let mut options = Options {
        file_system: Some(Arc::new(MemFs::new())),
        durability: Durability::Buffered,
        shared_write_memory: Some(memory.clone()),
        ..Options::default()
    };
    // Chunks of 64 KiB.
    options.keyspace.memtable_bytes = TOTAL;
    options
}

fn open(options: Options, dir: &str) -> Db {
    options.open(Path::new(dir)).expect("opening")
}

fn put(db: &Db, keys: std::ops::Range<u32>) {
    keys.for_each(|i| db.put(i.to_be_bytes(), [i as u8; 200]).expect("a put"));
}

fn check(db: &Db, keys: std::ops::Range<u32>) {
    for i in keys {
        assert_eq!(db.get(i.to_be_bytes()).expect("a get").as_deref(), Some(&[i as u8; 200][..]), "key {i}");
    }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(60), "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Nobody writes to a database that holds nearly half of the memory: it is flushed as another needs
/// the memory.
#[test]
fn an_idle_database_gives_up_what_a_busy_one_needs() {
    let memory = SharedWriteMemory::new(TOTAL);
    let (idle, busy) = (open(sharing(&memory), "/idle"), open(sharing(&memory), "/busy"));
    put(&idle, 0..1500);
    let held = |at: usize| memory.members()[at].active_bytes;
    let before = held(0);
    assert!((TOTAL / 4..TOTAL / 2).contains(&before) && idle.stats().write.flushes == 0, "{before}");
    // Less than what the idle one holds, but more than half of the total with it.
    put(&busy, 0..1200);
    assert!(held(1) > 0 && busy.stats().write.flushes == 0);
    wait_until("the flush of the idle one", || idle.stats().write.flushes == 1);
    wait_until("its memory", || held(0) < before / 4);
    put(&busy, 1200..20_000);
    assert!(busy.stats().write.flushes > 2);
    check(&idle, 0..1500);
    check(&busy, 0..20_000);
}

/// Four databases are written to at once while others come and go.
#[test]
fn the_total_holds_with_many_writers() {
    let memory = SharedWriteMemory::new(TOTAL);
    let done = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Relaxed) {
                most = most.max(memory.used_bytes());
                std::thread::yield_now();
            }
            most
        });
        let write = |n: u32| {
            let memory = &memory;
            scope.spawn(move || {
                let mut options = sharing(memory);
                for round in 0..4 {
                    let db = open(options.clone(), &format!("/{n}"));
                    put(&db, round * 3000..(round + 1) * 3000);
                    // Opening would replay the log into memtables of any size.
                    db.flush().expect("a flush");
                    db.close().expect("closing");
                    options.create_if_missing = false;
                }
                let db = open(options, &format!("/{n}"));
                check(&db, 0..12_000);
            })
        };
        let writers: Vec<_> = (0..4).map(write).collect();
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Relaxed);
        ended.into_iter().for_each(|end| end.expect("no failure"));
        watch.join().expect("no failure")
    });
    assert!(most > TOTAL / 2 && most <= TOTAL + SLACK, "{most}");
    assert_eq!((memory.members(), memory.used_bytes()), (Vec::new(), 0));
}

/// A database whose flushes fail keeps its memory, and nobody else waits for it.
#[test]
fn failing_flushes_stop_no_other_database() {
    let memory = SharedWriteMemory::new(TOTAL);
    let fs = FaultyFs::new(1);
    let mut options = sharing(&memory);
    options.file_system = Some(Arc::new(fs.clone()));
    let failing = open(options, "/failing");
    put(&failing, 0..1500);
    fs.plan(FaultPlan {
        only: Some(OpClass::Name),
        fail_at: Some(fs.operations()),
        sticky: true,
        ..FaultPlan::none()
    });
    let sound = open(sharing(&memory), "/sound");
    put(&sound, 0..20_000);
    check(&sound, 0..20_000);
    check(&failing, 0..1500);
    assert!(sound.stats().write.flushes > 2);
    let member = &memory.members()[0];
    assert!(member.path == Path::new("/failing") && member.active_bytes + member.sealed_bytes > TOTAL / 4);
    // Once flushes work again, the memory is given up.
    fs.plan(FaultPlan::none());
    wait_until("a flush that succeeds", || {
        put(&sound, 0..100);
        failing.stats().write.flushes > 0 && memory.members()[0].sealed_bytes == 0
    });
    check(&failing, 0..1500);
}

#[test]
fn only_open_writers_are_members() {
    let memory = SharedWriteMemory::new(TOTAL);
    let options = sharing(&memory);
    let db = open(options.clone(), "/db");
    options.clone().open("/db").expect_err("it is open already");
    assert_eq!(memory.members().len(), 1);
    let handle = db.clone();
    put(&db, 0..10);
    db.close().expect("closing");
    assert_eq!(memory.members(), []);
    check(&handle, 0..10);
    let reader = options.clone().open_read_only("/db").expect("opening");
    assert_eq!(memory.members(), []);
    check(&reader, 0..10);
    memory.set_bytes(2 * TOTAL);
    assert_eq!(memory.bytes(), 2 * TOTAL);
    let same = Options { shared_write_memory: Some(memory.clone()), ..options.clone() };
    let other = Options { shared_write_memory: Some(SharedWriteMemory::new(TOTAL)), ..options.clone() };
    assert!(same == options && other != options);
}

/// What memtables do not take of a limit for both is for reads, and given up as memtables grow.
#[test]
fn one_limit_is_shared_by_memtables_and_block_caches() {
    const LIMIT: u64 = 64 << 20;
    let limit = MemoryLimit::new(LIMIT);
    let options = Options {
        file_system: Some(Arc::new(MemFs::new())),
        shared_read_memory: Some(limit.reads()),
        shared_write_memory: Some(limit.writes()),
        ..Options::default()
    };
    let db = options.clone().open("/one").unwrap();
    let idle = options.open("/other").unwrap();
    // Empty memtables take nothing. A step of the limit may be exceeded.
    let before = LIMIT - LIMIT / 32;
    while limit.reads().bytes() != before {
        std::thread::yield_now();
    }
    for i in 0..12_000u32 {
        db.put(i.to_be_bytes(), [7; 1024]).unwrap();
    }
    let used = limit.writes().used_bytes();
    assert!(used > 8 << 20, "{used}");
    // The flush thread looks once a second.
    while limit.reads().bytes() + used > LIMIT {
        std::thread::yield_now();
    }
    assert!(limit.reads().bytes() < before);
    let shares: u64 = limit.reads().members().iter().map(|share| share.bytes).sum();
    assert!(shares <= limit.reads().bytes());
    db.flush().unwrap();
    while limit.reads().bytes() < before {
        std::thread::yield_now();
    }
    drop(idle);
}
