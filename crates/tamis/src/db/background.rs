//! Background work: one thread flushes, others compact.
//!
//! A worker takes the `state` lock, looks for a job, registers it, works without the lock, and commits the
//! result under it. A failed flush or compaction poisons the database: its data stays readable, and nothing
//! more is acknowledged until it is opened again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::compaction::plan::{OutputRun, Plan, Work};
use crate::compaction::shape::RunningJob;
use crate::compaction::{TableSink, execute, filters, writer};
use crate::db::inner::{DbInner, KeyspaceInner, State};
use crate::error::StorageError;
use crate::options::Durability;
use crate::read::merge::{MergeCursor, Tables};
use crate::table::CursorOptions;
use crate::tree::edit::VersionEdit;
use crate::tree::epochs::EpochMap;
use crate::tree::files::log_path;
use crate::tree::meta::{KeyspaceId, LogId, TableMeta};
use crate::tree::open_table::OpenTable;
use crate::tree::tombstones::Tombstones;
use crate::tree::version::{MemtableSlot, Version, View};

/// The threads of an open database; joined by [`join`](Workers::join).
#[derive(Debug, Default)]
pub(crate) struct Workers(Vec<JoinHandle<()>>);

impl Workers {
    pub(crate) fn start(db: &Arc<DbInner>) -> std::io::Result<Workers> {
        let mut workers = Workers::default();
        let mut spawn = |name: String, work: fn(&DbInner)| -> std::io::Result<()> {
            let db = db.clone();
            workers.0.push(std::thread::Builder::new().name(name).spawn(move || work(&db))?);
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

fn next_flush(state: &State) -> Option<(Arc<KeyspaceInner>, Arc<MemtableSlot>)> {
    let oldest =
        |ks: &Arc<KeyspaceInner>| ks.view.load().sealed.last().cloned().map(|slot| (ks.clone(), slot));
    let idle = |ks: &&Arc<KeyspaceInner>| !state.jobs.get(&ks.id).is_some_and(|jobs| jobs.flushing);
    // The one that holds the oldest log first.
    let due = state.keyspaces.values().filter(idle).filter_map(oldest);
    due.min_by_key(|(_, slot)| slot.first_log.load(Ordering::Relaxed))
}

fn compaction_loop(db: &DbInner) {
    loop {
        let (keyspace, plan, job) = {
            let mut state = db.state();
            loop {
                if state.closing {
                    return;
                }
                if db.poison.get().is_none()
                    && let Some((keyspace, plan)) = db.next_compaction(&mut state)
                {
                    let job = db.register(&mut state, &keyspace, &plan);
                    break (keyspace, plan, job);
                }
                state = db.wait(state);
            }
        };
        if let Err(error) = guarded("a compaction", || db.run_plan(&keyspace, &plan, job)) {
            db.poison(&error);
        }
    }
}

fn sync_loop(db: &DbInner) {
    let Durability::Every(period) = db.options.durability else { return };
    let mut state = db.state();
    while !state.closing {
        // The condition variable is shared: sleep in slices of the period, whoever signals.
        let started = std::time::Instant::now();
        while started.elapsed() < period && !state.closing {
            let left = period.saturating_sub(started.elapsed()).max(Duration::from_micros(100));
            state = db.changed.wait_timeout(state, left).expect("state").0;
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

/// When the oldest and the newest data of the tables was flushed; what is not known counts as oldest.
fn written_span(tables: &[Arc<OpenTable>]) -> (u64, u64) {
    let spans = || tables.iter().map(|table| table.meta.extra.written);
    (spans().map(|span| span.0).min().unwrap_or(0), spans().map(|span| span.1).max().unwrap_or(0))
}

/// Lets a job go on until a condition holds.
struct Until<F>(F);

impl<F: Fn() -> bool + Sync> writer::JobControl for Until<F> {
    fn go_on(&self, _written: u64) -> bool {
        !(self.0)()
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

    fn cancelled(&self) -> bool {
        self.closed.load(Ordering::Relaxed) || self.poison.get().is_some()
    }

    /// Writes one sealed memtable to a new run in level 0 and publishes it.
    fn flush_memtable(&self, keyspace: &KeyspaceInner, slot: &Arc<MemtableSlot>) -> Result<(), StorageError> {
        let (run, epoch) = {
            let mut state = self.state();
            let Some(epoch) = state.tree.take_epoch(keyspace.id) else { return Ok(()) };
            (self.next_file.fetch_add(1, Ordering::Relaxed), epoch)
        };
        let Some((metas, bytes)) = self.write_memtable(keyspace, slot, epoch, true)? else {
            return Ok(());
        };
        // What was written before this memtable in other keyspaces must not be lost where this survives.
        if self.directory.load().len() > 1 {
            self.sync_closed_logs()?;
        }
        let opened = self.open_tables(&metas)?;
        let mut state = self.state();
        if keyspace.is_dropped() {
            opened.iter().for_each(|table| table.mark_obsolete());
            return Ok(());
        }
        let mut edit = VersionEdit { next_epochs: vec![(keyspace.id, epoch + 1)], ..VersionEdit::default() };
        edit.added.extend(metas.into_iter().map(|meta| (keyspace.id, 0, run, meta)));
        edit.log_floor = self.log_floors(&state, Some((keyspace.id, slot)));
        let without = |view: &View, version: Arc<Version>| View {
            active: view.active.clone(),
            sealed: view.sealed.iter().filter(|s| !Arc::ptr_eq(s, slot)).cloned().collect(),
            version,
        };
        if edit.added.is_empty() {
            // Everything in it was hidden: no table, but the log is not needed any more.
            self.commit_edit(&mut state, edit, opened, |_, _, _| unreachable!("no tables change"))?;
            let view = keyspace.view.load_full();
            keyspace.view.store(Arc::new(without(&view, view.version.clone())));
        } else {
            self.commit_edit(&mut state, edit, opened, |_, view, version| without(view, version))?;
        }
        self.drop_obsolete_logs(&mut state);
        drop(state);
        self.write_counters.flushes.add(1);
        self.write_counters.flush_bytes.add(bytes);
        self.changed.notify_all();
        Ok(())
    }

    /// Writes a memtable's contents to a table (or none, if nobody can see any of it). `None` if cancelled.
    pub(crate) fn write_memtable(
        &self,
        keyspace: &KeyspaceInner,
        slot: &MemtableSlot,
        epoch: u64,
        cancellable: bool,
    ) -> Result<Option<(Vec<TableMeta>, u64)>, StorageError> {
        let expired = self.expired_for_merge(keyspace);
        let snapshots = self.live_snapshots();
        let (options, view) = (&keyspace.options, keyspace.view.load());
        let sink = TableSink {
            fs: &*self.fs,
            dir: &self.dir,
            next_file: &self.next_file,
            options,
            level: 0,
            filter_bits: filters::bits_for_flush(options, &view.version, slot.memtable.entries() as u64),
            max_table_bytes: u64::MAX,
            borders: &[],
            snapshots: &snapshots,
            visible: self.visible(),
            guard_bits: None,
            written: (self.now(), self.now()),
            expired,
            control: &Until(|| cancellable && self.cancelled()),
        };
        let mut cursor = MergeCursor::new(Tables::List(Vec::new()), CursorOptions::default(), 1);
        cursor.add_memtable(slot.memtable.cursor());
        let tombstones = slot.tombstones().map_or_else(Tombstones::default, |t| t.1.clone());
        let output =
            writer::write_tables(&sink, &mut cursor, tombstones, &mut writer::Everything, &|smallest, _| {
                EpochMap::flush(smallest.clone(), epoch)
            })?;
        let Some(output) = output else { return Ok(None) };
        self.fs.sync_dir(&self.dir).map_err(|e| StorageError::io("sync", &self.dir, &e))?;
        Ok(Some((output.tables, output.written_bytes)))
    }

    pub(crate) fn open_tables(&self, metas: &[TableMeta]) -> Result<Vec<Arc<OpenTable>>, StorageError> {
        let open = |meta: &TableMeta| {
            OpenTable::open(&*self.fs, &self.dir, Arc::new(meta.clone()), &self.reader_config, &self.garbage)
        };
        metas.iter().map(open).collect()
    }

    /// For every keyspace, the oldest log that holds writes which are in no table (once `flushed` is).
    fn log_floors(
        &self,
        state: &State,
        flushed: Option<(KeyspaceId, &Arc<MemtableSlot>)>,
    ) -> Vec<(KeyspaceId, LogId)> {
        let floor = |ks: &Arc<KeyspaceInner>| {
            let view = ks.view.load();
            let waiting = view.memtables().filter(|slot| {
                !slot.memtable.is_empty()
                    && !flushed.is_some_and(|(id, gone)| id == ks.id && Arc::ptr_eq(gone, slot))
            });
            let oldest = waiting.map(|slot| slot.first_log.load(Ordering::Relaxed)).min();
            (ks.id, oldest.unwrap_or(state.current_log))
        };
        state.keyspaces.values().map(floor).collect()
    }

    /// Recycles or removes the logs below every keyspace's floor.
    pub(crate) fn drop_obsolete_logs(&self, state: &mut State) {
        let floor = state.tree.log_floor().min(state.current_log);
        let obsolete: Vec<_> = state.logs.extract_if(.., |log| log.id < floor).collect();
        if obsolete.is_empty() {
            return;
        }
        // Closes the handles; the contents are in tables that are durable.
        self.closed_logs.lock().expect("closed logs").retain(|(id, _)| *id >= floor);
        for log in obsolete {
            if !log.linked && state.recyclable.len() < self.options.recycled_logs {
                state.recyclable.push(log.id);
            } else {
                self.garbage.push(log_path(&self.dir, log.id));
            }
        }
    }

    fn next_compaction(&self, state: &mut State) -> Option<(Arc<KeyspaceInner>, Plan)> {
        let count = state.keyspaces.len().max(1);
        state.round_robin = (state.round_robin + 1) % count;
        let order = state.keyspaces.values().cycle().skip(state.round_robin).take(state.keyspaces.len());
        order.cloned().find_map(|ks| self.next_plan(state, &ks).map(|plan| (ks, plan)))
    }

    /// Marks a plan's inputs as taken; gives the job's number.
    pub(crate) fn register(&self, state: &mut State, keyspace: &KeyspaceInner, plan: &Plan) -> u64 {
        state.next_job += 1;
        let number = state.next_job;
        let jobs = state.jobs.entry(keyspace.id).or_default();
        jobs.busy.extend(plan.tables());
        let levels = || plan.inputs.iter().map(|input| input.level);
        let job = RunningJob {
            input_levels: (levels().min().unwrap_or(0), levels().max().unwrap_or(0)),
            output_level: plan.output_level,
            output: plan.output,
            range: plan.range.clone(),
        };
        jobs.running.push((number, job));
        number
    }

    /// Runs a registered plan to its end, successful or not, and unregisters it.
    pub(crate) fn run_plan(
        &self,
        keyspace: &KeyspaceInner,
        plan: &Plan,
        job: u64,
    ) -> Result<(), StorageError> {
        // Unregistered even if it panics: others wait for its inputs.
        let work = std::panic::AssertUnwindSafe(|| self.compact(keyspace, plan));
        let result = std::panic::catch_unwind(work);
        {
            let mut state = self.state();
            let jobs = state.jobs.entry(keyspace.id).or_default();
            for id in plan.tables() {
                jobs.busy.remove(&id);
            }
            jobs.running.retain(|(number, _)| *number != job);
        }
        self.changed.notify_all();
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn compact(&self, keyspace: &KeyspaceInner, plan: &Plan) -> Result<(), StorageError> {
        let version = keyspace.view.load().version.clone();
        let inputs: Vec<Arc<OpenTable>> =
            execute::input_tables(&version, plan).into_iter().flatten().collect();
        let (metas, read, written) = if plan.work == Work::Move {
            (inputs.iter().map(|t| (*t.meta).clone()).collect(), 0, 0)
        } else if plan.work == Work::Drop {
            (Vec::new(), 0, 0)
        } else {
            let expired = self.expired_for_merge(keyspace);
            let snapshots = self.live_snapshots();
            let sink = TableSink {
                fs: &*self.fs,
                dir: &self.dir,
                next_file: &self.next_file,
                options: &keyspace.options,
                level: plan.output_level,
                filter_bits: filters::bits_for_plan(&keyspace.options, &version, plan),
                max_table_bytes: plan.max_table_bytes,
                borders: &plan.borders,
                snapshots: &snapshots,
                visible: self.visible(),
                guard_bits: plan.guard_bits,
                written: written_span(&inputs),
                expired,
                control: &Until(|| self.cancelled() || keyspace.is_dropped()),
            };
            let Some(output) = execute::merge(&version, plan, &sink)? else { return Ok(()) };
            self.fs.sync_dir(&self.dir).map_err(|e| StorageError::io("sync", &self.dir, &e))?;
            let read = inputs.iter().map(|t| t.meta.file_bytes).sum();
            (output.tables, read, output.written_bytes)
        };
        let opened = if plan.work == Work::Move { inputs.clone() } else { self.open_tables(&metas)? };

        let mut state = self.state();
        if keyspace.is_dropped() {
            opened.iter().for_each(|table| table.mark_obsolete());
            return Ok(());
        }
        let run = match plan.output {
            OutputRun::Into(run) => run,
            OutputRun::New => self.next_file.fetch_add(1, Ordering::Relaxed),
        };
        let round_ends = self.round_ends(&state, keyspace, plan);
        let mut edit = VersionEdit::default();
        edit.removed.extend(inputs.iter().map(|t| (keyspace.id, t.meta.id)));
        edit.added.extend(metas.into_iter().map(|meta| (keyspace.id, plan.output_level as u32, run, meta)));
        self.commit_edit(&mut state, edit, opened, |_, view, version| View {
            active: view.active.clone(),
            sealed: view.sealed.clone(),
            version,
        })?;
        if round_ends {
            self.begin_round(&mut state, keyspace);
        }
        drop(state);
        match plan.work {
            Work::Move => self.write_counters.trivial_moves.add(1),
            Work::Drop => self.write_counters.dropped_tables.add(inputs.len() as u64),
            Work::Merge => {
                self.write_counters.compactions.add(1);
                self.write_counters.compaction_read_bytes.add(read);
                self.write_counters.compaction_write_bytes.add(written);
            }
        }
        Ok(())
    }
}
