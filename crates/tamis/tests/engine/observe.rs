//! What a database tells of itself: latencies, causes of stalls, events, slow operations.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tamis::events::{CompactionOutcome, Event, EventListener, FlushOutcome};
use tamis::io::MemFs;
use tamis::stats::{Operation, StallCause};
use tamis::{Db, Durability, Options, WriteBatch};
use tamis_testkit::{Device, EmulatedFs, FaultPlan, FaultyFs, OpClass};

/// Keeps all events.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Event>>>);

impl EventListener for Log {
    fn event(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Log {
    fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn options() -> Options {
    Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() }
}

fn listened(log: &Log) -> Options {
    Options { listeners: vec![Arc::new(log.clone())], ..options() }
}

#[test]
fn every_operation_is_timed_where_slow_ones_are_to_be_reported() {
    let db =
        Options { slow_operation_threshold: Some(Duration::from_secs(60)), ..options() }.open("/db").unwrap();
    for i in 0..100 {
        db.put(format!("{i:03}"), "value").unwrap();
        db.get(format!("{i:03}")).unwrap();
    }
    let mut batch = WriteBatch::new();
    batch.put("synced", "value");
    db.write_with(batch, Durability::Sync).unwrap();
    db.multi_get(&["1", "2", "3"]).unwrap();
    assert_eq!(db.iter().count(), 101);
    assert_eq!(db.iter().rev().count(), 101);
    db.iter().seek("050").unwrap();
    db.flush().unwrap();
    db.put("001", "value").unwrap();
    db.compact().unwrap();
    // A flush is timed after it was published.
    while db.stats().latencies.flush.samples() < 2 {
        std::thread::yield_now();
    }
    let stats = db.stats();
    let samples = |operation| stats.latencies.of(operation).samples();
    let expected = [
        (Operation::Get, 100),
        (Operation::MultiGet, 1),
        (Operation::Seek, 3),
        (Operation::Write, 101),
        (Operation::GroupWrite, 1),
        (Operation::Flush, 2),
        (Operation::Compaction, stats.write.compactions),
        (Operation::Stall, 0),
    ];
    for (operation, count) in expected {
        assert_eq!(samples(operation), count, "{}", operation.name());
    }
    assert_eq!(samples(Operation::LogSync), stats.write.log_syncs);
    assert!(samples(Operation::ManifestEdit) >= 3);
    let gets = stats.latencies.of(Operation::Get);
    assert!(gets.percentile(0.5) <= gets.max() && gets.max() <= gets.total());
}

#[test]
fn a_sample_is_timed_otherwise() {
    let db = options().open("/db").unwrap();
    for i in 0..20_000u32 {
        db.put(i.to_be_bytes(), "value").unwrap();
        db.get(i.to_be_bytes()).unwrap();
    }
    let latencies = db.stats().latencies;
    let (gets, writes) = (latencies.get.samples(), latencies.write.samples());
    assert!((40..160).contains(&gets), "{gets} of 20000 gets");
    assert!((800..1700).contains(&writes), "{writes} of 20000 writes");
}

#[test]
fn flushes_and_compactions_tell_what_they_made_of_what() {
    let log = Log::default();
    let db = listened(&log).open("/db").unwrap();
    for round in 0..2 {
        for i in 0..100 {
            db.put(format!("{i:03}"), format!("{round}")).unwrap();
        }
        db.flush().unwrap();
    }
    db.compact().unwrap();
    db.wait_for_compaction().unwrap();
    let tables: Vec<u64> = db.default_keyspace().tables().iter().map(|table| table.id).collect();
    db.close().unwrap();
    let events = log.take();
    let flushed: Vec<&FlushOutcome> = events
        .iter()
        .filter_map(|e| match e {
            Event::FlushEnded(flush) => Some(flush),
            _ => None,
        })
        .collect();
    assert_eq!(flushed.len(), 2);
    assert!(flushed.iter().all(|flush| flush.tables.len() == 1 && flush.error.is_none()));
    let merged: Vec<&CompactionOutcome> = events
        .iter()
        .filter_map(|e| match e {
            Event::CompactionEnded(merge) => Some(merge),
            _ => None,
        })
        .collect();
    let last = merged.last().expect("a compaction");
    assert_eq!((&last.outputs, last.reason, last.cancelled), (&tables, "manual", false));
    let begun = events.iter().find_map(|e| match e {
        Event::CompactionBegan(begun) if begun.job == last.job => Some(begun),
        _ => None,
    });
    assert!(!begun.expect("it has begun").inputs.is_empty());
    // What is there in the end is what was created and not removed.
    let mut there = std::collections::BTreeSet::new();
    for event in &events {
        match event {
            Event::TableCreated { table, .. } => assert!(there.insert(*table), "{table} is created twice"),
            Event::TableRemoved { table, .. } => assert!(there.remove(table), "{table} was not there"),
            _ => {}
        }
    }
    assert_eq!(there.into_iter().collect::<Vec<_>>(), tables);
    let order = events.iter().map(|e| match e {
        Event::FlushBegan(_) => 'f',
        Event::FlushEnded(_) => 'F',
        Event::CompactionBegan(_) => 'c',
        Event::CompactionEnded(_) => 'C',
        _ => ' ',
    });
    let order: String = order.filter(|c| *c != ' ').collect();
    // The second flush is published, and merged, before its end is told.
    assert!(order.starts_with("fFf"), "{order}");
    assert!(order.rfind('c') < order.rfind('C'), "{order}");
}

/// A listener may call everything, writes and flushes included: none of the engine's locks is held,
/// and the thread that calls it does none of the engine's work.
#[test]
fn a_listener_may_use_the_database_and_panic() {
    let place: Arc<OnceLock<Db>> = Arc::default();
    let log = Log::default();
    let used = place.clone();
    let uses = move |event: &Event| {
        let Some(db) = used.get() else { return };
        if let Event::FlushEnded(_) = event {
            // The second flush comes from here.
            if db.get("from the listener").unwrap().is_none() {
                db.put("from the listener", "value").unwrap();
                db.flush().unwrap();
            }
            assert!(db.iter().count() >= 2);
            assert!(db.stats().write.flushes >= 1);
        }
    };
    let panics = |_: &Event| panic!("a listener that panics on purpose");
    let listeners: Vec<Arc<dyn EventListener>> =
        vec![Arc::new(panics), Arc::new(uses), Arc::new(log.clone())];
    let db = Options { listeners, ..options() }.open("/db").unwrap();
    place.set(db.clone()).unwrap();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    while db.get("from the listener").unwrap().is_none() || db.stats().write.flushes < 2 {
        std::thread::yield_now();
    }
    db.put("key", "the engine goes on").unwrap();
    db.close().unwrap();
    let flushes = log.take().iter().filter(|event| matches!(event, Event::FlushEnded(_))).count();
    assert_eq!(flushes, 2, "closing waits for the listeners");
}

#[test]
fn a_listener_may_close_the_database() {
    let place: Arc<Mutex<Option<Db>>> = Arc::default();
    let own = place.clone();
    let (sender, closed) = std::sync::mpsc::channel();
    let closes = move |event: &Event| {
        if let Event::FlushEnded(_) = event {
            let db = own.lock().unwrap().take();
            sender.send(db.is_some_and(|db| db.close().is_ok())).unwrap();
        }
    };
    let db = Options { listeners: vec![Arc::new(closes)], ..options() }.open("/db").unwrap();
    db.put("key", "value").unwrap();
    *place.lock().unwrap() = Some(db.clone());
    let _ = db.flush();
    drop(db);
    assert!(closed.recv().unwrap());
}

#[test]
fn stalls_are_counted_and_told_by_cause() {
    let log = Log::default();
    let mut options = listened(&log);
    options.keyspace.memtable_bytes = 16 << 10;
    options.keyspace.max_memtables = 2;
    options.background_bytes_per_second = 256 << 10;
    let db = options.open("/db").unwrap();
    for i in 0..400u32 {
        db.put(i.to_be_bytes(), vec![7; 1024]).unwrap();
    }
    let stats = db.stats();
    let of = |cause| *stats.stalls.iter().find(|stall| stall.cause == cause).unwrap();
    assert!(of(StallCause::Memtables).count > 0);
    let stops = stats.stalls.iter().filter(|stall| {
        !matches!(stall.cause, StallCause::SlowedByCompactions | StallCause::SlowedByFlushes)
    });
    let (count, nanos) = stops.fold((0, 0), |sum, stall| (sum.0 + stall.count, sum.1 + stall.nanos));
    assert_eq!((count, nanos), (stats.write.stalls, stats.write.stall_nanos));
    assert_eq!(stats.latencies.stall.samples(), count);
    let slowed = of(StallCause::SlowedByCompactions).count + of(StallCause::SlowedByFlushes).count;
    assert_eq!(slowed, stats.write.slowdowns);
    db.close().unwrap();
    let events = log.take();
    let began = events.iter().filter(|event| matches!(event, Event::StallBegan { .. })).count();
    let ended = events.iter().filter(|event| matches!(event, Event::StallEnded { .. })).count();
    assert_eq!((began as u64, ended), (count, began));
}

#[test]
fn slow_operations_are_reported_with_what_they_did() {
    let log = Log::default();
    let options = Options { slow_operation_threshold: Some(Duration::from_micros(1)), ..listened(&log) };
    let db = options.open("/db").unwrap();
    for i in 0..1000 {
        db.put(format!("{i:04}"), vec![b'v'; 100]).unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    let slow: Vec<_> = log
        .take()
        .into_iter()
        .filter_map(|event| match event {
            Event::SlowOperation(slow) => Some(slow),
            _ => None,
        })
        .collect();
    assert!(!slow.is_empty());
    for one in &slow {
        assert!(one.took >= Duration::from_micros(1));
        assert_eq!(one.keyspace, "default");
        assert!(!one.explanation.is_empty(), "{one}");
    }
}

/// The read that is repeated for the explanation sees what the slow one saw.
#[test]
fn slow_reads_are_explained() {
    let log = Log::default();
    let slow = EmulatedFs::new(Arc::new(MemFs::new()), Device::HDD);
    let mut options = Options {
        file_system: Some(Arc::new(slow)),
        slow_operation_threshold: Some(Duration::from_millis(1)),
        read_mode: tamis::options::ReadMode::Buffered,
        cache_bytes: 0,
        ..listened(&log)
    };
    options.keyspace.auto_compaction = false;
    let db = options.open("/db").unwrap();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    db.get("key").unwrap();
    db.range("k"..).next().unwrap().unwrap();
    db.close().unwrap();
    let slow = log.take().into_iter().filter_map(|event| match event {
        Event::SlowOperation(slow) => Some(slow),
        _ => None,
    });
    let reads: Vec<_> = slow.filter(|one| one.key.is_some()).collect();
    assert_eq!(reads.len(), 2, "{reads:?}");
    let [get, seek] = &reads[..] else { unreachable!() };
    assert_eq!((get.operation, get.key.as_deref()), (Operation::Get, Some(&b"key"[..])));
    assert!(
        get.explanation.starts_with("found 5 bytes, ") && get.explanation.contains("io_reads 1"),
        "{get}"
    );
    assert_eq!((seek.operation, seek.key.as_deref()), (Operation::Seek, Some(&b"k"[..])));
    assert!(seek.explanation.starts_with("1 entries") && seek.explanation.contains("io_reads 1"), "{seek}");
}

#[test]
fn failures_suspensions_and_their_ends_are_told() {
    let (log, fs) = (Log::default(), FaultyFs::new(5));
    let db = Options { file_system: Some(Arc::new(fs.clone())), ..listened(&log) }.open("/db").unwrap();
    let put = |durability| {
        let mut batch = WriteBatch::new();
        batch.put("key", "value");
        db.write_with(batch, durability)
    };
    put(Durability::Sync).unwrap();
    fs.plan(FaultPlan { fail_at: Some(0), sticky: true, only: Some(OpClass::Sync), ..FaultPlan::none() });
    assert!(put(Durability::Sync).is_err());
    fs.plan(FaultPlan::none());
    while put(Durability::Sync).is_err() {
        std::thread::yield_now();
    }
    fs.plan(FaultPlan { fail_at: Some(0), sticky: true, only: Some(OpClass::Name), ..FaultPlan::none() });
    put(Durability::Buffered).unwrap();
    let _ = db.flush();
    fs.plan(FaultPlan::none());
    while db.flush().is_err() {
        std::thread::yield_now();
    }
    let suspensions = db.stats().write.suspensions as usize;
    db.close().unwrap();
    let events = log.take();
    let at = |is: &dyn Fn(&Event) -> bool| events.iter().position(is);
    let suspended = at(&|event| matches!(event, Event::WritesSuspended { .. })).expect("a suspension");
    let resumed = at(&|event| matches!(event, Event::WritesResumed { .. })).expect("its end");
    assert!(suspended < resumed);
    assert!(at(&|event| matches!(event, Event::Warning { .. })).is_some());
    let told = events.iter().filter(|event| matches!(event, Event::WritesSuspended { .. })).count();
    assert_eq!(told, suspensions);
}
