//! The threads of an open database: one flushes, others compact, one may sync the log now and then.
//!
//! A worker takes the `state` lock, looks for a job, registers it, works without the lock, and commits the
//! result under it. A failed flush or compaction poisons the database: its data stays readable, and nothing
//! more is acknowledged until it is opened again. Only a compaction that finds no room is undone and tried again
//! later: nothing that was acknowledged depends on it.
//!
//! There are `background_threads` threads that compact. A large merge takes up to `sub_jobs` − 1 helpers of its own
//! for its parts; there are so many helpers for all merges together. So no more than `background_threads` +
//! `sub_jobs` − 1 threads compact at once, besides callers that compact by hand.

use std::sync::Arc;
use std::time::Duration;

use crate::db::flush::next_flush;
use crate::db::inner::DbInner;
use crate::error::StorageError;
use crate::options::Durability;
use crate::sync;
use crate::sync::thread::{self, JoinHandle};

/// The threads of an open database; joined by [`join`](Workers::join).
#[derive(Debug, Default)]
pub(crate) struct Workers(Vec<JoinHandle<()>>);

impl Workers {
    pub(crate) fn start(db: &Arc<DbInner>) -> std::io::Result<Workers> {
        {
            let state = db.state();
            state.keyspaces.values().for_each(|keyspace| db.update_pressure(&state, keyspace));
        }
        db.elastic.allow_worker();
        let mut workers = Workers::default();
        let mut spawn = |name: String, work: fn(&DbInner)| -> std::io::Result<()> {
            let db = db.clone();
            workers.0.push(thread::spawn(name, move || work(&db))?);
            Ok(())
        };
        spawn("tamis-flush".into(), flush_loop)?;
        for i in 0..db.options.background_threads {
            spawn(format!("tamis-compact-{i}"), compaction_loop)?;
        }
        if matches!(db.options.durability, Durability::Every(_)) {
            spawn("tamis-sync".into(), sync_loop)?;
        }
        Ok(workers)
    }

    /// For a database that is only read: builds the global filters, if there are any.
    pub(crate) fn start_reading(db: &Arc<DbInner>) -> std::io::Result<Workers> {
        db.elastic.allow_worker();
        let mut workers = Workers::default();
        if db.next_filter_task(&db.state()).is_some() {
            let db = db.clone();
            workers.0.push(thread::spawn("tamis-filter".into(), move || db.build_filters())?);
        }
        Ok(workers)
    }

    /// Waits for all threads; `state.closing` must be set.
    pub(crate) fn join(self) {
        for thread in self.0 {
            if thread.join().is_err() {
                log::error!("a background thread of the database panicked");
            }
        }
    }
}

fn flush_loop(db: &DbInner) {
    loop {
        let (keyspace, slot) = {
            let mut state = db.state();
            loop {
                if state.closing {
                    drop(state);
                    db.remove_garbage();
                    return;
                }
                if db.poison.get().is_none()
                    && let Some(job) = next_flush(&state)
                {
                    state.jobs.entry(job.0.id).or_default().flushing = true;
                    break job;
                }
                drop(state);
                db.remove_garbage();
                db.retry_beginning();
                state = db.state();
                db.save_times(&mut state);
                if !state.closing && (next_flush(&state).is_none() || db.poison.get().is_some()) {
                    state = db.wait(state);
                }
            }
        };
        let result = guarded("a flush", || db.flush_memtable(&keyspace, &slot));
        db.state().jobs.entry(keyspace.id).or_default().flushing = false;
        if let Err(error) = result {
            db.poison(&error);
        }
        db.changed.notify_all();
    }
}

/// Turns a panic into a failure like others, so that the job is ended in order and nobody waits for it for ever.
fn guarded(job: &str, work: impl FnOnce() -> Result<(), StorageError>) -> Result<(), String> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err(format!("{job} panicked; please report it with the message of the panic")),
    }
}

fn compaction_loop(db: &DbInner) {
    loop {
        // Without the lock: the file system may take its time.
        db.background.room.refresh(&*db.fs, &db.dir);
        let mut state = db.state();
        if state.closing {
            return;
        }
        // Filters first: that is quick, and reads wait for nothing as much.
        if db.poison.get().is_none()
            && let Some((keyspace, task)) = db.next_filter_task(&state)
        {
            state.jobs.entry(keyspace.id).or_default().start_filtering();
            drop(state);
            let work = || {
                db.work_on_filter(&keyspace, task);
                Ok(())
            };
            if let Err(error) = guarded("work on a filter", work) {
                db.poison(&error);
            }
            continue;
        }
        let next = match db.cancelled() || db.poison.get().is_some() {
            true => None,
            false => db.next_compaction(&mut state).or_else(|| db.next_for_reads(&mut state)),
        };
        let Some((keyspace, plan)) = next else {
            drop(db.wait(state));
            continue;
        };
        let job = db.register(&mut state, &keyspace, &plan);
        drop(state);
        if let Err(error) = guarded("a compaction", || db.run_plan(&keyspace, &plan, &job, None).map(drop)) {
            db.poison(&error);
        }
    }
}

fn sync_loop(db: &DbInner) {
    let Durability::Every(period) = db.options.durability else { return };
    let mut state = db.state();
    while !state.closing {
        // The condition variable is shared: sleep in slices of the period, whoever signals.
        let started = sync::now();
        while sync::since(started) < period && !state.closing {
            let left = period.saturating_sub(sync::since(started)).max(Duration::from_micros(100));
            state = db.changed.wait_timeout(state, left);
        }
        drop(state);
        if db.poison.get().is_none() {
            let result = db.sync_log(&mut db.lock_log());
            if let Err(error) = result {
                db.poison(&error);
            }
        }
        state = db.state();
    }
}

impl DbInner {
    /// Removes files that nobody needs any more.
    pub(crate) fn remove_garbage(&self) {
        for path in self.garbage.take() {
            if let Err(e) = self.fs.remove(&path)
                && e.kind() != std::io::ErrorKind::NotFound
            {
                log::warn!("could not remove {}: {e}; the next opening will", path.display());
            }
        }
    }
}
