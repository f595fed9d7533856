//! Scheduling without threads: what is due, what waits, and what is remembered.

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use tamis_base::key::{KeyEnd, Kind};
use tamis_filter::Digest;
use tamis_policy::compaction::plan::{PlanInput, Reason, Work};
use tamis_policy::compaction::shape::{KeyRange, OutputRun};

use super::*;
use crate::catalogue::state::State;
use crate::catalogue::tests::session;
use crate::options::KeyspaceOptions;
use crate::read::Memtables;

fn failure() -> StorageError {
    StorageError::io("write", Path::new("x"), std::io::ErrorKind::Other.into())
}

/// What is remembered is looked through each time, and kept for as long as the database is open.
#[test]
fn nothing_is_remembered_once_it_is_over() {
    type Step = fn(&mut Scheduler);
    let steps: [(Step, Step); 8] = [
        (|all| all.start_flush(7), |all| all.end_flush(7)),
        (|all| assert!(all.flush_failed(7, &failure())), |all| all.allow_flushes(7)),
        (|all| assert!(all.flush_failed(7, &failure())), |all| all.allow_all_flushes()),
        (|all| all.compaction_failed(7, &failure(), None), |all| all.merged(7)),
        (|all| assert_eq!(all.note_room(7, Some("no".into())), None), |all| _ = all.note_room(7, None)),
        (|all| assert!(all.should_warn(7) && !all.should_warn(7)), |all| all.merged(7)),
        (|all| assert!(all.start_manual(7) && !all.start_manual(7)), |all| all.end_manual(7)),
        (|all| all.note_dropped(7, [5].into_iter()), |all| all.forget_dropped(7, &[5].into_iter().collect())),
    ];
    let mut scheduler = Scheduler::default();
    for (at, (begin, end)) in steps.into_iter().enumerate() {
        begin(&mut scheduler);
        assert_eq!(Vec::from_iter(scheduler.known()), [7], "{at}");
        end(&mut scheduler);
        assert_eq!(Vec::from_iter(scheduler.known()), [], "{at}");
    }
}

#[test]
fn what_fails_is_told_until_it_succeeds() {
    let mut scheduler = Scheduler::default();
    assert!(scheduler.flush_failed(7, &failure()) && !scheduler.flush_failed(7, &failure()));
    assert!(scheduler.flush_failed(8, &failure()));
    scheduler.compaction_failed(7, &failure(), None);
    let cause = failure().to_string();
    assert_eq!(scheduler.troubles(7), [("flushes", &*cause), ("compactions", &*cause)]);
    assert!(scheduler.retries_flushes() && scheduler.is_aside(7) && !scheduler.is_aside(8));
    scheduler.allow_all_flushes();
    assert_eq!(Vec::from_iter(scheduler.known()), [7]);
    assert_eq!(scheduler.troubles(7), [("compactions", &*cause)]);
    assert!(!scheduler.retries_flushes());
    scheduler.merged(7);

    assert_eq!(scheduler.note_room(8, Some("no room".into())), None);
    assert_eq!(
        (scheduler.lacking_room(), scheduler.troubles(8)),
        (vec![8], vec![("compactions", "no room")])
    );
    assert!(scheduler.check_compactions(8).is_err());
    assert_eq!(scheduler.note_room(8, None).as_deref(), Some("no room"));
    assert_eq!((scheduler.lacking_room(), scheduler.troubles(8)), (vec![], vec![]));
}

#[test]
fn memtables_flushed_together_are_about_two_full_ones() {
    let together = |sizes: &[u64], most| Scheduler::flushed_together(sizes.iter().copied(), 100, most);
    assert_eq!(together(&[100, 100, 100], 9), 2);
    assert_eq!(together(&[125, 125, 1], 9), 2);
    assert_eq!(together(&[125, 126], 9), 1);
    assert_eq!(together(&[300, 1], 9), 1, "at least one");
    // Writers wait.
    assert_eq!(together(&[99, 1], 2), 2);
    assert_eq!(together(&[100, 1], 2), 1);
}

fn plan(tables: &[(usize, TableId)]) -> Plan {
    let input = |&(level, table)| PlanInput { level, run: table, tables: vec![table] };
    Plan {
        inputs: tables.iter().map(input).collect(),
        output_level: 3,
        output: OutputRun::New,
        range: KeyRange { smallest: b"a"[..].into(), largest: KeyEnd::Unbounded },
        max_table_bytes: 1 << 20,
        borders: Vec::new(),
        edges: Vec::new(),
        reason: Reason::Manual,
        work: Work::Merge,
        guard_bits: None,
        bottommost: false,
        stretch: None,
    }
}

#[test]
fn a_keyspace_that_changed_is_looked_at_before_those_whose_turn_it_is() {
    let count = 3 * IN_TURN as KeyspaceId;
    let db = session(count, &KeyspaceOptions::default(), |_| ());
    let mut state = db.state();
    let State { catalogue, .. } = &mut *state;
    let all = catalogue.keyspaces();
    let last = count - 1;
    let keyspace = all.get(&last).unwrap();
    let first = |change: &dyn Fn(&mut Scheduler)| {
        let mut scheduler = Scheduler::default();
        change(&mut scheduler);
        scheduler.rounds.next(all)[0].id
    };
    assert_eq!(first(&|_| ()), 1, "it is not its turn");
    assert_eq!(first(&|scheduler| scheduler.note_change(last)), last);
    assert_eq!(first(&|scheduler| scheduler.rounds.note_work(last)), last);
    assert_eq!(
        first(&|scheduler| {
            assert!(scheduler.start_manual(last));
            scheduler.end_manual(last);
        }),
        last
    );
    assert_eq!(
        first(&|scheduler| {
            let plan = plan(&[(1, 5)]);
            let job = scheduler.start(keyspace, &plan);
            scheduler.end(last, &plan, &job);
        }),
        last
    );
    let mut rounds = Rounds::default();
    rounds.note_all(all);
    assert_eq!(rounds.next(all).len(), count as usize);
}

#[test]
fn a_running_job_is_known_with_its_inputs_and_what_it_may_still_write() {
    let db = session(1, &KeyspaceOptions::default(), |db| {
        db.put("key", "value").unwrap();
        db.flush().unwrap();
    });
    let mut state = db.state();
    let State { catalogue, scheduler, .. } = &mut *state;
    let keyspace = catalogue.keyspaces().get(&0).unwrap();
    let table = keyspace.view.load().version.tables[0].meta.clone();
    let plan = plan(&[(2, table.id), (1, 999)]);
    assert_eq!((scheduler.promised(), scheduler.is_idle()), (0, true));
    let job = scheduler.start(keyspace, &plan);
    assert_eq!(scheduler.running(0)[0].shape.input_levels, (1, 2));
    assert_eq!((scheduler.promised(), job.progress.written.load(Relaxed)), (table.file_bytes, 0));
    job.progress.written.fetch_add(10, Relaxed);
    assert_eq!((scheduler.promised(), scheduler.is_idle()), (table.file_bytes - 10, false));
    assert_eq!(scheduler.busy(0).unwrap().len(), 2);
    let second = scheduler.start(keyspace, &Plan { work: Work::Move, ..plan.clone() });
    assert_eq!(scheduler.promised(), table.file_bytes - 10, "a move writes nothing");
    assert_eq!(
        (job.progress.parts.load(Relaxed), job.progress.drops(), second.progress.drops()),
        (1, false, false)
    );
    assert!(Progress::new(&Plan { work: Work::Drop, ..plan.clone() }, 10).drops());
    assert_eq!((job.number(), second.number()), (1, 2));
    assert!(scheduler.runs_any(&[second.number()]));
    scheduler.end(0, &plan, &second);
    assert!(!scheduler.runs_any(&[second.number()]));
    assert_eq!(scheduler.cancel(), [job.number()]);
    assert!(job.progress.is_cancelled());
    scheduler.end(0, &plan, &job);
    assert_eq!((scheduler.promised(), scheduler.is_idle(), scheduler.known().count()), (0, true, 0));
}

#[test]
fn memtables_that_hold_back_the_oldest_log_are_flushed_first() {
    let db = session(3, &KeyspaceOptions::default(), |_| ());
    let mut state = db.state();
    let State { catalogue, scheduler, .. } = &mut *state;
    let [first, second] = [1, 2].map(|id| catalogue.keyspaces().get(&id).unwrap().clone());
    for (keyspace, log) in [(&first, 50), (&second, 30)] {
        let (active, sealed) = (keyspace.fresh_memtable(60), vec![keyspace.fresh_memtable(log)]);
        keyspace.replace_memtables(Memtables { active, sealed });
        scheduler.note_memtables(keyspace);
    }
    assert_eq!(scheduler.sealed().iter().map(|keyspace| keyspace.id).collect::<Vec<_>>(), [2, 1]);
    let oldest = |scheduler: &Scheduler, without| scheduler.oldest_sealed_log(without);
    assert_eq!([0, 1, 2].map(|without| oldest(scheduler, without)), [Some(30), Some(30), Some(50)]);
    let next = |scheduler: &Scheduler| scheduler.next_flush().map(|(keyspace, _)| keyspace.id);
    assert_eq!(next(scheduler), Some(2));
    scheduler.start_flush(2);
    assert!(scheduler.is_flushing(2));
    assert_eq!(next(scheduler), Some(1));
    assert!(scheduler.flush_failed(1, &failure()));
    assert_eq!(next(scheduler), None);
    scheduler.end_flush(2);

    // Nothing is remembered of a keyspace that was dropped.
    scheduler.note_dropped(2, [5].into_iter());
    scheduler.compaction_failed(2, &failure(), None);
    assert!(scheduler.should_warn(2));
    second.let_go();
    scheduler.note_dropped_keyspace(&second);
    assert_eq!(Vec::from_iter(scheduler.known()), [1]);
    assert_eq!((oldest(scheduler, 0), oldest(scheduler, 1)), (Some(50), None));
}

#[test]
fn failed_work_backs_off_further_each_time_but_is_never_given_up() {
    let failure = |kind: std::io::ErrorKind| StorageError::io("write", Path::new("x"), kind.into());
    let pauses = |scheduler: &mut Scheduler, error: &StorageError| -> Vec<u64> {
        let pause = |tries| {
            scheduler.compaction_failed(0, error, Some(1 << 20));
            let backoff = scheduler.get(0).unwrap().backoff.as_ref().unwrap();
            assert_eq!((backoff.tries, backoff.told().is_some()), (tries, tries > 1));
            backoff.pause.as_secs()
        };
        (1..=9).map(pause).collect()
    };
    let mut scheduler = Scheduler::default();
    let other = failure(std::io::ErrorKind::Other);
    assert_eq!(pauses(&mut scheduler, &other), [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    assert!(scheduler.holds_back(0, Some(2 << 20)));
    scheduler.merged(0);
    let full = failure(std::io::ErrorKind::StorageFull);
    assert_eq!(pauses(&mut scheduler, &full), [1, 2, 4, 4, 4, 4, 4, 4, 4]);
    assert!(scheduler.holds_back(0, Some(1 << 20)) && scheduler.holds_back(0, None));
    assert!(!scheduler.holds_back(0, Some(2 << 20)));
    assert!(scheduler.check_compactions(0).is_err() && scheduler.check_flushes(0).is_ok());
    scheduler.merged(0);
    assert!(!scheduler.holds_back(0, None) && scheduler.check_compactions(0).is_ok());
}

#[test]
fn who_waits_is_told_what_fails_and_who_compacts_by_hand_is_known() {
    let mut scheduler = Scheduler::default();
    assert!(scheduler.flush_failed(7, &failure()));
    assert!(scheduler.check_all_flushes().is_ok(), "it may be over soon");
    assert!(!scheduler.flush_failed(7, &failure()));
    assert!(scheduler.check_flushes(7).is_err() && scheduler.check_flushes(8).is_ok());
    assert!(scheduler.check_all_flushes().is_err());
    assert!(scheduler.check_compactions(7).is_err(), "it waits for the flush, too");
    scheduler.allow_flushes(7);
    assert!(scheduler.check_all_flushes().is_ok() && scheduler.check_compactions(7).is_ok());

    assert!(!scheduler.is_manual(7) && !scheduler.has_manual() && scheduler.is_idle());
    assert!(scheduler.start_manual(7));
    assert!(scheduler.is_manual(7) && !scheduler.is_manual(8));
    assert!(scheduler.has_manual() && !scheduler.is_idle());
    scheduler.end_manual(7);
    assert!(!scheduler.is_manual(7) && !scheduler.has_manual() && scheduler.is_idle());
    scheduler.start_flush(7);
    assert!(!scheduler.is_idle() && !scheduler.has_manual());
    scheduler.end_flush(7);
    assert!(scheduler.is_idle());

    scheduler.note_dropped(7, [5, 6].into_iter());
    assert_eq!((scheduler.dropped(7), scheduler.dropped(8)), (vec![5, 6], vec![]));
    scheduler.forget_dropped(7, &[5].into_iter().collect());
    assert_eq!(scheduler.dropped(7), [6]);
}

/// As few as fit go together once writers may soon wait for one of them.
#[test]
fn one_memtable_is_flushed_at_a_time_when_all_but_one_are_sealed() {
    for (max_memtables, sealed, together) in [(4, 2, 2), (4, 3, 1), (3, 2, 1)] {
        let options =
            KeyspaceOptions { memtable_bytes: 64 << 10, max_memtables, ..KeyspaceOptions::default() };
        let db = session(1, &options, |_| ());
        let mut state = db.state();
        let State { catalogue, scheduler, .. } = &mut *state;
        let keyspace = catalogue.keyspaces().get(&0).unwrap();
        let full = |log| {
            let slot = keyspace.fresh_memtable(log);
            slot.memtable.insert(b"key", Digest::of(b"key"), log, Kind::Put, &[0; 48 << 10]);
            slot
        };
        let sealed = (1..=sealed).rev().map(full).collect();
        keyspace.replace_memtables(Memtables { active: keyspace.fresh_memtable(9), sealed });
        scheduler.note_memtables(keyspace);
        let (_, slots) = scheduler.next_flush().unwrap();
        assert_eq!(slots.len(), together, "{max_memtables}");
        assert_eq!(slots.last().unwrap().first_log.load(Relaxed), 1, "the oldest");
    }
}

#[test]
fn keyspaces_that_were_dropped_are_not_looked_for_again() {
    let db = session(IN_TURN as KeyspaceId + 4, &KeyspaceOptions::default(), |_| ());
    let state = db.state();
    let all = state.catalogue.keyspaces();
    let mut rounds = Rounds::default();
    // An empty database has nobody whose turn it could have been.
    assert_eq!(rounds.next(&Directory::default()).len(), 0);
    rounds.note_change(3);
    rounds.note_change(999);
    let ids = |found: Vec<Arc<KeyspaceInner>>| found.iter().map(|keyspace| keyspace.id).collect::<Vec<_>>();
    assert_eq!(ids(rounds.next(all))[..3], [3, 1, 2]);
    assert_eq!(rounds.changed, BTreeSet::from([3]));
    // Nor is one that the scheduler was told of.
    let mut scheduler = Scheduler::default();
    scheduler.note_change(5);
    let dropped = all.get(&5).unwrap();
    dropped.let_go();
    scheduler.note_dropped_keyspace(dropped);
    assert_eq!(scheduler.rounds.changed, BTreeSet::new());
}
