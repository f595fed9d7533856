//! The threads of an open database: one flushes, others compact, one may sync the log periodically,
//! one may [scrub](crate::jobs::scrub), and one calls the
//! [listeners](crate::observe).
//!
//! A worker takes the `state` lock, looks for a job, registers it, works without the lock, and
//! commits the result under it. A failed flush or compaction is undone and retried later, and the
//! flush thread replaces logs that could not be written; [`health`](crate::jobs::health) has the
//! rules. Only a panic stops writes for good.
//!
//! `background_threads` threads compact. A large merge takes up to as many less one as helpers for
//! its parts; that is also the number of helpers for all merges together. Callers that compact by
//! hand come on top.

use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

use crate::catalogue::keyspace::KeyspaceInner;
use crate::catalogue::state::State;
use crate::jobs::loops::{compaction_loop, flush_loop, sync_loop};
use crate::jobs::scrub::scrub_loop;
use crate::observe::Observer;
use crate::open::follow::{Follower, follow_loop};
use crate::options::Durability;
use crate::session::Session;
use crate::sync::Mutex;
use crate::sync::thread::{self, JoinHandle};

/// The threads of an open database; joined by [`join`](Workers::join).
#[derive(Debug, Default)]
pub(crate) struct Workers {
    work: Vec<JoinHandle<()>>,
    events: Option<EventThread>,
}

/// The thread that calls the listeners.
#[derive(Debug)]
struct EventThread {
    /// `None` once it is joined.
    thread: Option<JoinHandle<()>>,
    id: Arc<OnceLock<ThreadId>>,
    observer: Arc<Observer>,
}

impl EventThread {
    /// Starts it, if there are listeners.
    fn start(db: &Arc<Session>) -> std::io::Result<Option<EventThread>> {
        let observer = db.observed.observer.clone();
        if !observer.queue().has_listeners() {
            return Ok(None);
        }
        let id = Arc::<OnceLock<ThreadId>>::default();
        let (queue, own) = (observer.clone(), id.clone());
        // Without the database, which may be dropped by a listener.
        let thread = thread::spawn("tamis-events".into(), move || {
            let _ = own.set(std::thread::current().id());
            queue.queue().deliver();
        })?;
        Ok(Some(EventThread { thread: Some(thread), id, observer }))
    }
}

impl Drop for EventThread {
    /// If another thread could not be started, this one has nothing to wait for.
    fn drop(&mut self) {
        self.observer.queue().end();
    }
}

impl Workers {
    pub(crate) fn start(db: &Arc<Session>) -> std::io::Result<Workers> {
        {
            let mut state = db.state();
            let State { catalogue, scheduler, filters, .. } = &mut *state;
            scheduler.rounds.note_all(catalogue.keyspaces());
            filters.note_all(catalogue);
            let has_tables = |keyspace: &&Arc<KeyspaceInner>| !keyspace.view.load().version.runs.is_empty();
            let keyspaces = state.catalogue.keyspaces().values().filter(has_tables);
            keyspaces.for_each(|keyspace| db.update_pressure(&state, keyspace));
        }
        db.elastic.allow_worker();
        let mut workers = Workers { events: EventThread::start(db)?, ..Workers::default() };
        let mut spawn = |name: String, work: fn(&Session)| -> std::io::Result<()> {
            let db = db.clone();
            workers.work.push(thread::spawn(name, move || work(&db))?);
            Ok(())
        };
        spawn("tamis-flush".into(), flush_loop)?;
        for i in 0..db.options.background_threads {
            spawn(format!("tamis-compact-{i}"), compaction_loop)?;
        }
        if matches!(db.options.durability, Durability::Every(_)) {
            spawn("tamis-sync".into(), sync_loop)?;
        }
        if db.options.scrub_bytes_per_second > 0 {
            spawn("tamis-scrub".into(), scrub_loop)?;
        }
        Ok(workers)
    }

    /// For a database opened read-only: builds the global filters, if there are any, and follows
    /// its writer, if it has a `follower`.
    pub(crate) fn start_reading(
        db: &Arc<Session>,
        follower: Option<Arc<Mutex<Follower>>>,
    ) -> std::io::Result<Workers> {
        db.elastic.allow_worker();
        let mut workers = Workers { events: EventThread::start(db)?, ..Workers::default() };
        let is_due = {
            let State { filters, catalogue, .. } = &mut *db.state();
            filters.note_all(catalogue);
            filters.next(catalogue).is_some()
        };
        let db = db.clone();
        workers.work.extend(match follower {
            Some(follower) => {
                Some(thread::spawn("tamis-follow".into(), move || follow_loop(&db, &follower))?)
            }
            None if is_due => Some(thread::spawn("tamis-filter".into(), move || db.build_filters())?),
            None => None,
        });
        Ok(workers)
    }

    /// Waits for all threads that work; the gate must have ended. Returns what
    /// [`end_events`](Self::end_events) takes.
    pub(crate) fn join(mut self) -> Workers {
        for thread in self.work.drain(..) {
            thread.join().unwrap_or_else(|_| log::error!("a background thread of the database panicked"));
        }
        self
    }

    /// Waits until the listeners have been told of everything, unless one of them is the caller.
    /// With no lock held.
    pub(crate) fn end_events(self) {
        let Some(mut events) = self.events else { return };
        events.observer.queue().end();
        let is_caller = events.id.get() == Some(&std::thread::current().id());
        if let Some(thread) = events.thread.take().filter(|_| !is_caller) {
            thread.join().unwrap_or_else(|_| log::error!("the thread of the event listeners panicked"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::catalogue::scheduler::IN_TURN;
    use tamis_policy::compaction::policy::Pressure;

    use crate::catalogue::tests::session;
    use crate::io::MemFs;
    use crate::observe::events::{Event, EventListener};
    use crate::open;
    use crate::options::{KeyspaceOptions, Options};

    /// Filters of keyspaces whose turn came late were built late.
    #[test]
    fn work_on_all_filters_is_looked_for_when_threads_start() {
        let options = KeyspaceOptions { filter: "grf".parse().unwrap(), ..KeyspaceOptions::default() };
        let count = IN_TURN as u32 + 8;
        let ended = || {
            let db = session(count, &options, |db| {
                let last = db.keyspace(&(count - 1).to_string()).unwrap();
                last.put("key", "value").unwrap();
                last.flush().unwrap();
            });
            // The threads find that they should end, and nothing else.
            end(&db);
            db
        };
        let db = ended();
        Workers::start(&db).unwrap().join().end_events();
        let mut state = db.state();
        let found = state.next_filter_work().map(|(keyspace, _)| keyspace.id);
        assert_eq!(found, Some(count - 1));
        let State { catalogue, scheduler, .. } = &mut *state;
        assert_eq!(scheduler.rounds.next(catalogue.keyspaces()).len(), count as usize);
        // A reader has a thread for it.
        let reading = Workers::start_reading(&ended(), None).unwrap();
        assert_eq!(reading.work.len(), 1);
        reading.join().end_events();
    }

    /// Ends the work of a database whose threads have not started.
    fn end(db: &Session) {
        assert!(db.gate.leave());
        db.gate.close();
        let _state = db.state();
        db.gate.end();
    }

    #[test]
    fn there_is_a_thread_for_each_kind_of_work() {
        let threads = |durability, scrub_bytes_per_second| {
            let options = Options {
                file_system: Some(Arc::new(MemFs::new())),
                background_threads: 3,
                durability,
                scrub_bytes_per_second,
                ..Options::default()
            };
            let db = open::open(Path::new("/db"), options, None).unwrap();
            end(&db);
            let workers = Workers::start(&db).unwrap();
            let threads = workers.work.len();
            workers.join().end_events();
            threads
        };
        assert_eq!(threads(Durability::Buffered, 0), 4);
        assert_eq!(threads(Durability::Buffered, 1), 5);
        assert_eq!(threads(Durability::Every(std::time::Duration::from_millis(1)), 1), 6);
    }

    /// Writers were not slowed down until the first compaction ended.
    #[test]
    fn the_pressure_of_a_tree_is_known_when_threads_start() {
        let mut options = Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() };
        options.keyspace.auto_compaction = false;
        let db = options.clone().open("/db").unwrap();
        for i in 0..options.keyspace.slowdown_runs + 4 {
            db.put("key", i.to_string()).unwrap();
            db.flush().unwrap();
        }
        db.close().unwrap();
        options.keyspace.auto_compaction = true;
        let db = open::open(Path::new("/db"), options, None).unwrap();
        end(&db);
        let keyspace = db.keyspaces.directory.load().values().next().unwrap().clone();
        assert_eq!(keyspace.pressure.get(), Pressure::None);
        Workers::start(&db).unwrap().join().end_events();
        assert_ne!(keyspace.pressure.get(), Pressure::None);
    }

    /// If another thread could not be started, this one waited forever.
    #[test]
    fn the_listeners_thread_ends_with_what_holds_it() {
        let listener: Arc<dyn EventListener> = Arc::new(|_: &Event| ());
        let options = Options {
            file_system: Some(Arc::new(MemFs::new())),
            listeners: vec![listener],
            ..Options::default()
        };
        let db = open::open(Path::new("/db"), options, None).unwrap();
        let mut events = EventThread::start(&db).unwrap().unwrap();
        let thread = events.thread.take().unwrap();
        drop(events);
        thread.join().unwrap();
    }
}
