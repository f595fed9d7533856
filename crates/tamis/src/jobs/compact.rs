//! Compactions: choosing the next one, and carrying it out, from its registration to the edit that
//! publishes it.
//!
//! Workers and callers that compact by hand follow the same steps. Under the `state` lock a plan is
//! obtained and [started](Session::start). Without the lock it is [run](Session::run_plan), which
//! publishes its outputs and always unregisters it.
//!
//! # Lack of room
//!
//! A merge may need as many bytes as its inputs have. A plan that does not fit into the available
//! [room](crate::gate::room) is not started. A merge that meets a full disk midway, or fails
//! otherwise, is undone, and its keyspace backs off, longer each time, or until there is clearly
//! more room. Either case warns once, until a merge of the keyspace succeeds again. Nothing is
//! lost: reads continue, and so do writes until level 0 is full; then they are refused with the
//! cause.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tamis_base::collections::HashSet;
use tamis_base::ids::TableId;
use tamis_files::tree::edit::VersionEdit;
use tamis_files::tree::files::table_path;
use tamis_policy::compaction::deletes::{self, DeleteTimes};
use tamis_policy::compaction::plan::{OutputRun, Plan, Reason, Work};
use tamis_policy::compaction::policy::Pressure;
use tamis_policy::compaction::released;

use crate::catalogue::keyspace::KeyspaceInner;
use crate::catalogue::progress::Progress;
use crate::catalogue::scheduler::{Job, input_bytes};
use crate::catalogue::state::State;
use crate::compaction::blobs::{self, BlobInputs};
use crate::compaction::filters::{self, FilterBits};
use crate::compaction::{Lineage, MergeLineage, NewKeys, TableSink, execute, parts};
use crate::error::StorageError;
use crate::gate::room::{LEFT_FREE, human};
use crate::jobs::control::{CancelToken, CompactionControl, reason_name, work_name};
use crate::jobs::covered::{covered_tables, hidden_share};
use crate::jobs::verify::check_written;
use crate::observe::events::{CompactionInfo, CompactionOutcome, Event};
use crate::observe::latency::Operation;
use crate::observe::span;
use crate::session::Session;
use crate::session::expiry::expired_tables;
use crate::sync;
use crate::tree::new_tables::NewTables;
use crate::tree::open_table::OpenTable;
use crate::tree::version::Version;

/// How a started plan ended.
#[derive(Debug)]
pub(crate) enum PlanEnd {
    Done,
    /// Nothing has changed.
    Cancelled,
    /// Nothing has changed: an input could not be read, or an output could not be written.
    Undone(StorageError),
}

/// What may be started in a keyspace.
#[derive(Debug)]
enum Due {
    /// Nothing until something changes.
    Nothing,
    /// Nothing for a while.
    Waits,
    Plan(Plan),
    /// A plan lacks room: the bytes that it needs, and the free bytes.
    NoRoom(u64, u64),
}

/// The tables that a merge has written, and the bytes that it has read and written.
#[derive(Default)]
struct Merged {
    opened: NewTables,
    read: u64,
    written: u64,
}

/// Returns when the oldest and the newest data of the tables was flushed; unknown counts as oldest.
fn written_span(tables: &[Arc<OpenTable>]) -> (u64, u64) {
    let spans = || tables.iter().map(|table| table.meta.extra.written);
    (spans().map(|span| span.0).min().unwrap_or(0), spans().map(|span| span.1).max().unwrap_or(0))
}

impl Session {
    /// Returns the plan that the policy wants next in a keyspace, if it may start now.
    pub(crate) fn next_plan(&self, state: &State, keyspace: &KeyspaceInner) -> Option<Plan> {
        match self.due(state, keyspace) {
            Due::Plan(plan) => Some(plan),
            Due::Nothing | Due::Waits | Due::NoRoom(..) => None,
        }
    }

    fn due(&self, state: &State, keyspace: &KeyspaceInner) -> Due {
        if self.background.is_paused() || state.scheduler.is_manual(keyspace.id) {
            return Due::Waits;
        }
        let shaping = keyspace.shaping.load();
        let lacks_operators = keyspace.operators.missing.is_some();
        let is_empty = keyspace.view.load().version.runs.is_empty();
        if lacks_operators || is_empty || !shaping.options.auto_compaction {
            return Due::Nothing;
        }
        let shape = self.shape(state, keyspace);
        // A shape that must follow from the flushes alone must not depend on when a snapshot was
        // released.
        let rewrite = || match shaping.options.deterministic {
            true => None,
            false => released::plan(&shape, shaping.options.table_bytes).or_else(|| {
                let (version, options) = (&keyspace.view.load().version, &shaping.options);
                blobs::plan(&shape, version, options.blob_garbage, options.table_bytes)
            }),
        };
        // First, since it costs nothing and avoids rewriting expired data. A deterministic shape
        // must not depend on time, and a policy that drops tables itself knows best which to drop.
        let expired = (!shaping.options.deterministic && !shaping.policy.drops_data())
            .then(|| expired_tables(&shape))
            .flatten();
        // On a full disk a range delete frees space, whatever the policy.
        let is_full = self.space.reserve.is_full();
        let covered = || {
            let drops = is_full || !shaping.options.deterministic && !shaping.policy.drops_data();
            drops.then(|| covered_tables(&shape, &keyspace.view.load().version, None)).flatten()
        };
        let dropped = expired.or_else(covered);
        // A drop needs no room, so it ignores the backoff of merges. But while the manifest has to
        // be rewritten, it would fail each time it is tried.
        let may_go = dropped.is_some() && state.catalogue.unsettled().is_none();
        if !may_go && state.scheduler.holds_back(keyspace.id, self.space.room.free()) {
            return Due::Waits;
        }
        let deletes = || {
            let goes = !shaping.options.deterministic && !shaping.policy.drops_data();
            goes.then(|| deletes::plan(&shape, &*shaping.policy, shaping.options.table_bytes)).flatten()
        };
        let has_time = || shaping.policy.write_pressure(&shape) == Pressure::None;
        let overdue = |first: bool| {
            let age = shaping.options.max_tombstone_age?;
            (first == has_time())
                .then(|| deletes::overdue(&shape, &*shaping.policy, age, shaping.options.table_bytes))
                .flatten()
        };
        // Old deletes must not wait forever for a policy that always wants something, nor hold up
        // writers.
        let planned = dropped
            .or_else(|| overdue(true))
            .or_else(|| shaping.policy.plan(&shape))
            .or_else(|| overdue(false))
            // Level 0 may wait for the tables that these would take.
            .or_else(|| if has_time() { deletes().or_else(rewrite) } else { None });
        let lack = match planned {
            Some(plan) => match self.lack_of_room(keyspace, &plan, shape.room) {
                None => return Due::Plan(plan),
                lack => lack,
            },
            // The policy itself may have found a lack of room.
            None => shaping.policy.needs(&shape).zip(shape.room),
        };
        let goes = !shaping.options.deterministic && lack.is_some() || is_full;
        let freeing = (goes && !shaping.policy.drops_data()).then(|| {
            let version = keyspace.view.load().version.clone();
            let hidden = |named: &HashSet<TableId>, id| hidden_share(&version, named, id);
            deletes::freeing(&shape, &*shaping.policy, shaping.options.table_bytes, hidden)
        });
        let freeing = freeing.flatten();
        match (freeing, lack) {
            (Some(plan), _) => Due::Plan(plan),
            (None, None) => Due::Nothing,
            (None, Some((needed, free))) => Due::NoRoom(needed, free),
        }
    }

    /// Returns the bytes that a plan needs and those available, if they do not suffice.
    pub(crate) fn lack_of_room(
        &self,
        keyspace: &KeyspaceInner,
        plan: &Plan,
        room: Option<u64>,
    ) -> Option<(u64, u64)> {
        let room = room.filter(|_| plan.work == Work::Merge)?;
        let needed = input_bytes(keyspace, plan, Some(room));
        (needed > room).then_some((needed, room))
    }

    /// Returns the next compaction of any keyspace.
    pub(crate) fn next_compaction(&self, state: &mut State) -> Option<(Arc<KeyspaceInner>, Plan)> {
        // Without room for a manifest, nothing can be changed.
        if self.gate.is_waiting() || self.background.is_paused() {
            return None;
        }
        for keyspace in state.scheduler.rounds.next(state.catalogue.keyspaces()) {
            let due = self.due(state, &keyspace);
            let lack = match &due {
                Due::NoRoom(needed, free) => Some((*needed, *free)),
                Due::Plan(_) | Due::Nothing | Due::Waits => None,
            };
            let what = lack.map(|(needed, free)| {
                let (name, needed, free) = (keyspace.name(), human(needed), human(free));
                format!("compaction of keyspace `{name}` needs {needed}, but only {free} are free: it waits for more room")
            });
            let waited = state.scheduler.note_room(keyspace.id, what.clone()).is_some();
            match due {
                Due::Plan(plan) => {
                    state.scheduler.rounds.note_work(keyspace.id);
                    return Some((keyspace, plan));
                }
                Due::Nothing => state.scheduler.rounds.note_nothing(keyspace.id),
                Due::Waits | Due::NoRoom(..) => state.scheduler.rounds.note_change(keyspace.id),
            }
            if let (Some((needed, free)), Some(what)) = (lack, what) {
                let held = self.space.reserve.held();
                if (free < held || self.space.reserve.is_full()) && needed <= free.saturating_add(held) {
                    self.space.reserve.want();
                }
                if state.scheduler.should_warn(keyspace.id) {
                    self.warn(what);
                }
                if !waited {
                    // Waiting callers must be notified.
                    self.monitor.notify();
                }
            }
        }
        None
    }

    /// Starts a plan: from now on its inputs are busy.
    pub(crate) fn start(&self, state: &mut State, keyspace: &KeyspaceInner, plan: &Plan) -> Job {
        let job = state.scheduler.start(keyspace, plan);
        self.update_pressure(state, keyspace);
        job
    }

    /// Runs a started plan to its end, successful or not. An error means that its edit failed: it
    /// is unknown whether the edit is on disk, and the tree in memory is unchanged.
    pub(crate) fn run_plan(
        &self,
        keyspace: &KeyspaceInner,
        plan: &Plan,
        job: &Job,
        cancel: Option<&CancelToken>,
    ) -> Result<PlanEnd, StorageError> {
        let started = sync::now();
        self.observed.observer.raise(|| {
            Event::CompactionBegan(CompactionInfo {
                job: job.number(),
                keyspace: keyspace.name().to_owned(),
                reason: reason_name(plan.reason),
                work: work_name(plan.work),
                inputs: plan.tables().collect(),
                output_level: plan.output_level,
                bytes_in: job.progress.bytes_in,
            })
        });
        span!(
            "compaction",
            job = job.number(),
            keyspace = keyspace.name(),
            reason = reason_name(plan.reason),
            work = work_name(plan.work),
            bytes_in = job.progress.bytes_in,
            output_level = plan.output_level,
        );
        let mut told = CompactionOutcome::default();
        // Ended even on a panic, since other threads wait for its inputs.
        let work =
            std::panic::AssertUnwindSafe(|| self.compact(keyspace, plan, &job.progress, cancel, &mut told));
        let result = std::panic::catch_unwind(work);
        self.tell_of_end(keyspace, plan, job, started, &result, told);
        if matches!(&result, Ok(Ok(PlanEnd::Undone(_)))) {
            // Its outputs are gone; the cached free space is out of date.
            self.space.room.outdated();
            self.space.room.refresh(&*self.fs, &self.dir);
        }
        {
            let mut state = self.state();
            state.scheduler.end(keyspace.id, plan, job);
            match &result {
                Ok(Ok(PlanEnd::Done)) if plan.work == Work::Merge => state.scheduler.merged(keyspace.id),
                Ok(Ok(PlanEnd::Undone(error)) | Err(error)) => {
                    state.scheduler.compaction_failed(keyspace.id, error, self.space.room.free());
                    self.observed.write_counters.set_aside.add(1);
                    if state.scheduler.should_warn(keyspace.id) {
                        let name = keyspace.name();
                        self.warn(format!(
                            "a compaction of keyspace `{name}` was undone and will be retried later: {error}"
                        ));
                    }
                }
                Ok(Ok(PlanEnd::Cancelled)) => {
                    let asked = job.progress.is_cancelled() || cancel.is_some_and(CancelToken::is_cancelled);
                    self.observed.write_counters.cancelled.add(u64::from(asked));
                }
                _ => {}
            }
            self.space.room.outdated();
            self.update_pressure(&state, keyspace);
        }
        self.monitor.notify();
        // By the thread that replaced the files: a compaction makes no more of them obsolete before
        // these are gone.
        self.files.garbage.remove_all(&*self.fs);
        // Joined small tables were at rest before.
        let moves_data = plan.work == Work::Merge && plan.reason != Reason::SmallTables;
        let border = matches!(result, Ok(Ok(PlanEnd::Done))) && moves_data;
        if border && self.is_round_border(keyspace, plan.output_level) {
            self.reconsider(keyspace);
        }
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Records and raises the end of a compaction.
    fn tell_of_end(
        &self,
        keyspace: &KeyspaceInner,
        plan: &Plan,
        job: &Job,
        started: Instant,
        result: &std::thread::Result<Result<PlanEnd, StorageError>>,
        told: CompactionOutcome,
    ) {
        let took = sync::since(started);
        let (cancelled, error) = match result {
            Ok(Ok(PlanEnd::Done)) => (false, None),
            Ok(Ok(PlanEnd::Cancelled)) => (true, None),
            Ok(Ok(PlanEnd::Undone(error)) | Err(error)) => (false, Some(error.to_string())),
            Err(_) => (false, Some("a panic".to_owned())),
        };
        let keyspace = || keyspace.name().to_owned();
        if let Some(error) = &error {
            let error = error.clone();
            self.observed.observer.raise(|| Event::BackgroundError {
                work: "compaction",
                keyspace: keyspace(),
                error,
            });
        } else if !cancelled && plan.work == Work::Merge {
            self.observed.observer.record(Operation::Compaction, took);
        }
        self.observed.observer.raise(|| {
            Event::CompactionEnded(CompactionOutcome {
                job: job.number(),
                keyspace: keyspace(),
                reason: reason_name(plan.reason),
                work: work_name(plan.work),
                output_level: plan.output_level,
                took,
                cancelled,
                error,
                ..told
            })
        });
    }

    /// Returns the tables among the ancestors of `inputs`, through any number of merges, and among
    /// the keyspace's tables dropped unread, whose files still exist: these are still being read,
    /// or wait to be removed.
    fn still_there(&self, keyspace: &KeyspaceInner, inputs: &[Arc<OpenTable>]) -> Vec<TableId> {
        let is_there = |id: &TableId| self.fs.exists(&table_path(&self.dir, *id)).unwrap_or(true);
        let mut dropped = self.state().scheduler.dropped(keyspace.id);
        let gone: HashSet<TableId> = dropped.extract_if(.., |id| !is_there(id)).collect();
        self.state().scheduler.forget_dropped(keyspace.id, &gone);
        let merged = inputs.iter().filter_map(|t| t.table.properties().origin.merged.as_ref());
        let mut ids: Vec<TableId> = merged.flat_map(|m| m.inputs.iter().chain(&m.before)).copied().collect();
        ids.sort_unstable();
        ids.dedup();
        // A file counts as existing if its state is unknown.
        ids.retain(is_there);
        ids.append(&mut dropped);
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Merges the inputs of a plan into new tables, which nobody knows yet. An error says how the
    /// plan ends instead: nothing has changed then.
    fn merge_tables(
        &self,
        control: &CompactionControl<'_>,
        plan: &Plan,
        version: &Version,
        inputs: &[Arc<OpenTable>],
    ) -> Result<Merged, PlanEnd> {
        let keyspace = control.keyspace;
        let expired = self.expiry.expired_for_merge(keyspace);
        let snapshots = self.live_snapshots();
        let shaping = keyspace.shaping.load_full();
        let options = &shaping.options;
        let accesses = keyspace.filter.accesses().map(|accesses| &**accesses);
        let bits = FilterBits::for_plan(options, version, accesses, plan);
        let (mark, before) = (self.files.numbers.next(), self.still_there(keyspace, inputs));
        let room = self.space.room.free();
        let blobs = BlobInputs::of(inputs, version, options, plan.max_table_bytes, room);
        let known = inputs.iter().filter_map(|table| table.meta.oldest_delete());
        let deletes = DeleteTimes::of_merge(known, self.now());
        let sink = TableSink {
            fs: &*self.fs,
            dir: &self.dir,
            garbage: &self.files.garbage,
            next_file: self.files.numbers.counter(),
            options,
            level: plan.output_level,
            filter: keyspace
                .filter
                .for_table(options, plan.output_level, || filters::runs_after(version, plan)),
            filter_bits: &bits,
            new_keys: NewKeys::None,
            max_table_bytes: plan.max_table_bytes,
            borders: &plan.borders,
            edges: &plan.edges,
            snapshots: &snapshots,
            visible: self.visible(),
            guard_bits: plan.guard_bits,
            written: written_span(inputs),
            deletes: &deletes,
            rules: keyspace.rules(expired),
            lineage: Lineage {
                keyspace: keyspace.id,
                keyspace_name: keyspace.name(),
                merge: Some(MergeLineage { mark, inputs, before: &before }),
            },
            blobs: &blobs,
            protect: self.options.protect_writes,
            control,
        };
        let cuts = parts::cuts(inputs, plan, self.options.compaction_threads());
        control.progress.parts.store(cuts.len() + 1, Ordering::Relaxed);
        let mut output = match execute::merge(version, plan, &sink, &cuts, &self.background.helpers) {
            Ok(output) => output.ok_or(PlanEnd::Cancelled)?,
            // The failure concerns only the outputs, which are gone.
            Err(error) => return Err(PlanEnd::Undone(error)),
        };
        output.tables.iter_mut().for_each(|table| table.extra.stretch.clone_from(&plan.stretch));
        // If the edit found no room, the inputs and the outputs would both stay, and no manifest
        // could be written.
        if self.space.room.ask(&*self.fs, &self.dir).is_some_and(|free| free < LEFT_FREE / 2) {
            let full = std::io::ErrorKind::StorageFull.into();
            return Err(PlanEnd::Undone(StorageError::io("write to", &self.dir, full)));
        }
        if !cuts.is_empty() {
            self.observed.write_counters.sub_jobs.add(cuts.len() as u64 + 1);
        }
        let tables: u64 = inputs.iter().map(|t| t.meta.file_bytes).sum();
        let read = tables + blobs.moved_bytes(inputs);
        let (written, blobs) = (output.written_bytes, output.blob_bytes);
        let opened = output.files.open(&*self.fs, &output.tables, &self.files.reader_config);
        let opened = opened.map_err(PlanEnd::Undone)?;
        check_written(&opened, &output.sums).map_err(PlanEnd::Undone)?;
        bits.inherit(&opened);
        self.observed.write_counters.blob_write_bytes.add(blobs);
        Ok(Merged { opened, read, written })
    }

    /// Carries out a plan: writes the tables of a merge, and publishes the change.
    fn compact(
        &self,
        keyspace: &KeyspaceInner,
        plan: &Plan,
        progress: &Progress,
        cancel: Option<&CancelToken>,
        told: &mut CompactionOutcome,
    ) -> Result<PlanEnd, StorageError> {
        let version = keyspace.view.load().version.clone();
        if keyspace.is_dropped() {
            return Ok(PlanEnd::Cancelled);
        }
        let inputs: Vec<Arc<OpenTable>> =
            execute::input_tables(&version, plan).into_iter().flatten().collect();
        let merged = match plan.work {
            Work::Move | Work::Drop => Ok(Merged::default()),
            Work::Merge => {
                let control = CompactionControl { db: self, keyspace, progress, cancel };
                self.merge_tables(&control, plan, &version, &inputs)
            }
        };
        let Merged { opened, read, written } = match merged {
            Ok(merged) => merged,
            Err(end) => return Ok(end),
        };
        let mut state = self.state();
        if keyspace.is_dropped() {
            return Ok(PlanEnd::Cancelled);
        }
        let run = match plan.output {
            OutputRun::Into(run) => run,
            OutputRun::New => self.files.numbers.take(),
        };
        let round_ends = self.round_ends(&state, keyspace, plan);
        let mut edit = VersionEdit::default();
        edit.removed.extend(inputs.iter().map(|t| (keyspace.id, t.meta.id)));
        let added =
            |table: &Arc<OpenTable>| (keyspace.id, plan.output_level as u32, run, (*table.meta).clone());
        let tables = if plan.work == Work::Move { &inputs[..] } else { &opened[..] };
        edit.added.extend(tables.iter().map(added));
        let outputs = edit.added.iter().map(|(_, _, _, meta)| meta.id).collect();
        self.commit_edit(&mut state, edit, opened, |_, old| old.clone())?;
        (told.outputs, told.bytes_read, told.bytes_written) = (outputs, read, written);
        // Only for these: a keyspace that merges nothing drops tables by age forever, and the list
        // would grow without end.
        if plan.reason == Reason::Covered {
            state.scheduler.note_dropped(keyspace.id, inputs.iter().map(|table| table.meta.id));
        }
        if round_ends {
            self.begin_round(&mut state, keyspace);
        }
        drop(state);
        match plan.work {
            Work::Move => self.observed.write_counters.trivial_moves.add(1),
            Work::Drop => self.observed.write_counters.dropped_tables.add(inputs.len() as u64),
            Work::Merge => {
                self.observed.write_counters.compactions.add(1);
                self.observed.write_counters.compaction_read_bytes.add(read);
                self.observed.write_counters.compaction_write_bytes.add(written);
            }
        }
        self.keep_filters_in_memory(Some(keyspace));
        Ok(PlanEnd::Done)
    }
}

#[cfg(test)]
mod tests;
