//! What the background threads do: one flushes, others compact, one may sync the log. They are
//! started in [`background`](crate::open::background).

use std::sync::Arc;
use std::time::Duration;

use tamis_policy::compaction::plan::Plan;
use tamis_policy::compaction::policy::Pressure;

use crate::catalogue::keyspace::KeyspaceInner;
use crate::catalogue::state::State;
use crate::error::WriteError;
use crate::jobs::guarded::guarded;
use crate::options::Durability;
use crate::read::MemtableSlot;
use crate::select::Task;
use crate::session::Session;
use crate::sync::thread;
use crate::sync::{self, MutexGuard};

pub(crate) fn flush_loop(db: &Session) {
    loop {
        if let Some(memory) = &db.options.shared_write_memory {
            memory.balance();
        }
        db.keyspaces.chunks.make_ahead();
        let mut state = db.state();
        if db.gate.has_ended() {
            return;
        }
        match ToFlush::next(db, &mut state) {
            ToFlush::Nothing => {
                drop(state);
                db.remove_obsolete();
                db.retry_beginning();
                db.keep_reserve();
                db.save_hotness();
                db.keyspaces.chunks.release_if_idle(sync::now());
                db.log.prepare(false);
                db.log.trim();
                db.log.release_if_idle(sync::now());
                db.expire_logs();
                db.seal_as_asked();
                db.seal_old_deletes();
                db.seal_if_full();
                state = db.state();
                db.ripen(&mut state, Some(sync::now()));
                db.save_times(&mut state);
                if !db.gate.has_ended() && matches!(ToFlush::next(db, &mut state), ToFlush::Nothing) {
                    drop(db.monitor.wait_for_retry(state));
                }
            }
            ToFlush::Everything => {
                drop(state);
                guarded(db, "replacing the log", || db.resume());
                db.remove_obsolete();
            }
            ToFlush::Memtables(keyspace, slots) => {
                state.scheduler.start_flush(keyspace.id);
                drop(state);
                // First: the writer may need it before the flush ends.
                let size: u64 = slots.iter().map(|slot| slot.memtable.used_bytes() as u64).sum();
                db.log.prepare(size >= keyspace.options.memtable_bytes / 2);
                db.log.trim();
                let flushed = guarded(db, "a flush", || db.flush_memtables(&keyspace, &slots));
                if let Some(Err(error)) = &flushed {
                    db.flush_failed(&keyspace, error);
                }
                db.state().scheduler.end_flush(keyspace.id);
                db.monitor.notify();
                // Not when there is nothing to flush: that may never be.
                db.remove_obsolete();
                // While a disk fills up, this thread stays busy until it is full.
                db.keep_reserve();
            }
        }
    }
}

/// The next task of the flush thread.
enum ToFlush {
    Nothing,
    /// The oldest ones of a keyspace, newest first, for one run.
    Memtables(Arc<KeyspaceInner>, Vec<Arc<MemtableSlot>>),
    /// All memtables, to replace logs that could not be written.
    Everything,
}

impl ToFlush {
    fn next(db: &Session, state: &mut State) -> ToFlush {
        match db.gate.check_health() {
            Err(WriteError::Suspended { .. }) if db.gate.resume_is_due() => ToFlush::Everything,
            Err(_) => ToFlush::Nothing,
            Ok(()) => state
                .scheduler
                .next_flush()
                .map_or(ToFlush::Nothing, |(keyspace, slots)| ToFlush::Memtables(keyspace, slots)),
        }
    }
}

/// How far the threads that compact step behind others of the process, as a nice value.
const COMPACTION_NICE: usize = 10;

pub(crate) fn compaction_loop(db: &Session) {
    // Helpers of a merge inherit it.
    thread::lower_priority(COMPACTION_NICE);
    let (mut walked, mut merged) = (false, false);
    loop {
        db.keyspaces.chunks.make_ahead();
        // Without the lock: the file system may be slow.
        db.space.room.refresh(&*db.fs, &db.dir);
        let mut state = db.state();
        if db.gate.has_ended() {
            return;
        }
        // Filters first: that is quick, and it is what reads need most. But merges take turns with
        // them while writers of the keyspace wait for one.
        if db.gate.stopped().is_none()
            && let Some((filtered, task)) = state.next_filter_work()
        {
            let is_turn_of_merge = task != Task::Load
                && filtered.pressure.get() != Pressure::None
                && !std::mem::take(&mut merged)
                && !db.gate.cancels();
            if is_turn_of_merge && let Some((keyspace, plan)) = db.next_compaction(&mut state) {
                merged = true;
                compact(db, state, &keyspace, &plan);
                continue;
            }
            state.filters.start(filtered.id, &task);
            drop(state);
            guarded(db, "work on a filter", || db.work_on_filter(&filtered, task));
            continue;
        }
        // Not twice in a row: compactions must not wait for as long as keys are deleted.
        if !std::mem::take(&mut walked)
            && !db.gate.cancels()
            && let Some((keyspace, stretch)) = db.next_deletions(&state)
        {
            walked = true;
            drop(state);
            guarded(db, "a walk over deleted keys", || db.walk_over_deletions(&keyspace, &stretch));
            continue;
        }
        let next = match db.gate.cancels() {
            true => None,
            false => db.next_compaction(&mut state).or_else(|| db.next_for_reads(&mut state)),
        };
        match next {
            Some((keyspace, plan)) => compact(db, state, &keyspace, &plan),
            None => drop(db.monitor.wait(state)),
        }
    }
}

fn compact(db: &Session, mut state: MutexGuard<'_, State>, keyspace: &KeyspaceInner, plan: &Plan) {
    let job = db.start(&mut state, keyspace, plan);
    drop(state);
    // Failures are recorded in the keyspace's jobs.
    guarded(db, "a compaction", || db.run_plan(keyspace, plan, &job, None).map(drop));
}

pub(crate) fn sync_loop(db: &Session) {
    let Durability::Every(period) = db.options.durability else { return };
    let mut state = db.state();
    while !db.gate.has_ended() {
        // The condition variable is shared: sleep out the period, whatever the signal.
        let started = sync::now();
        while sync::since(started) < period && !db.gate.has_ended() {
            let left = period.saturating_sub(sync::since(started)).max(Duration::from_micros(100));
            state = db.monitor.wait_for(state, left);
        }
        drop(state);
        let mut log = db.lock_log();
        if db.gate.check_health().is_ok() {
            // A failure has suspended writes.
            let _ = db.log.sync(&mut log);
        }
        drop(log);
        state = db.state();
    }
}
