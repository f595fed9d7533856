//! Runs that a merge leaves lazy because a global filter excludes them.
//!
//! A filter for the whole tree knows which of its runs have keys in a key range. A merge over a
//! version with such a filter therefore opens no run by itself. It asks the filter about the keys
//! ahead of its position ([`WholeTree::ahead`], [`WholeTree::behind`]) and activates the listed
//! runs, each where its keys may begin. The others stay lazy. At the end of the range the merge
//! asks again.
//!
//! # Invariants
//! * A run is in one of three states. *In the heap*: it has a version, or a lazy position at a
//!   bound before which it has nothing in the range. *Done*: nothing of it is left within the
//!   bounds of the merge. *Lazy without a position* ([`LazyRuns`]): it has nothing left before the
//!   end of the range (`RunContext::until`), in the direction of the merge.
//! * Nothing is missed as long as the merge returns no version at or beyond the end of the range
//!   before it asks about these runs again. This is checked whenever the top of the heap changes.
//! * A run that stands on a version stays in the heap: keeping it there costs nothing. One with a
//!   lazy position at the end of a range loses its position, since the filter knows better when to
//!   open it.
//! * A question whose answer lists most runs is the last one until the next seek: the runs that are
//!   not listed get a lazy position at the end of the range, and whatever follows is merged as
//!   without a filter.
//! * Each probe reaches further than the one before. A filter that makes no progress is not
//!   trusted: in that case, as when it knows nothing, all lazy runs are activated.
//!
//! # Cost
//! One probe per key range, and for each listed run a search among its tables. A run that is not
//! listed costs nothing. A step of the merge costs one more comparison, mostly of two numbers, and
//! none in the last range.
//!
//! A scan that comes through the keys of most runs gains nothing from the filter. If nearly all
//! scans of the keyspace lately did ([`ReadHabits`]), scans do not ask, except one in some, which
//! tells whether that is still so.
//!
//! Belongs to its merge, and like it to one thread at a time.
//!
//! [`WholeTree::ahead`]: crate::select::run_selector::WholeTree::ahead
//! [`WholeTree::behind`]: crate::select::run_selector::WholeTree::behind

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;
use tamis_base::key::{SeqNo, prefix_of};

use super::source::MergeSource;
use super::together;
use crate::error::StorageError;
use crate::observe::cost::ReadCost;
use crate::read::habits::{Bounded, ReadHabits};
use crate::read::run_cursor::{RunContext, RunCursor, RunTables, Until};
use crate::read::start::MergeStart;
use crate::selector::RangeRuns;
use crate::tree::version::Version;

/// Keys requested of the first range of a merge: as many as cost little more than one.
pub(crate) const FIRST_KEYS: usize = 8;
/// The factor by which each following range may be larger.
pub(crate) const MORE_KEYS: usize = 8;

/// Reports whether these are so many of all runs that leaving the others closed is not worth a
/// question.
fn are_most(runs: usize, all: usize) -> bool {
    4 * runs >= 3 * all
}

/// State of a merge under a global filter.
#[derive(Debug)]
pub(super) struct LazyRuns {
    /// For each run of the version, its number among the sources, if it is one of them.
    sources: Vec<Option<u32>>,
    pub(crate) listed: RangeRuns,
    /// The sources activated last.
    pub(crate) woken: SmallVec<[u32; 8]>,
    /// The number of runs among the sources.
    runs: usize,
    habits: Arc<ReadHabits>,
    /// Whether the scan asks the filter, and within what bounds; `None` before the first.
    scan: Option<(bool, Bounded)>,
    cost: ReadCost,
}

impl LazyRuns {
    /// Returns `None` unless these are the tables of a version with a global filter.
    pub(super) fn of(tables: &RunTables) -> Option<LazyRuns> {
        match tables {
            RunTables::Of(view) if view.selector.is_global() => Some(LazyRuns {
                sources: vec![None; view.version.runs.len()],
                listed: RangeRuns::default(),
                woken: SmallVec::new(),
                runs: 0,
                habits: view.habits.clone(),
                scan: None,
                cost: ReadCost::default(),
            }),
            _ => None,
        }
    }

    /// Records that the run with these tables is the source `source`.
    pub(super) fn add_run(&mut self, version: &Version, tables: &Range<usize>, source: usize) {
        let place = version.runs.partition_point(|run| run.tables.end <= tables.start);
        debug_assert!(tables.end <= version.runs[place].tables.end && self.sources[place].is_none());
        self.sources[place] = Some(source as u32);
        self.runs += 1;
    }

    /// Ends the scan, and decides whether the next one asks the filter.
    pub(crate) fn start_scan(&mut self, bounded: Bounded, sources: &[MergeSource]) {
        self.end_scan(sources);
        self.scan = Some((self.habits.asks_filter(bounded), bounded));
    }

    /// Reports whether the scan needed most of the runs.
    pub(super) fn end_scan(&mut self, sources: &[MergeSource]) {
        if let Some((true, bounded)) = self.scan.take() {
            let needed = |source: &&MergeSource| matches!(source, MergeSource::Run(run) if run.was_needed());
            self.habits.asked_filter(bounded, are_most(sources.iter().filter(needed).count(), self.runs));
        }
    }

    pub(super) fn drain_cost(&mut self, cost: &mut ReadCost) {
        *cost = *cost + std::mem::take(&mut self.cost);
    }

    /// Asks the filter about the range from `start` on. Returns whether it knows; if so,
    /// `self.listed` holds its answer.
    fn ask(&mut self, start: MergeStart<'_>, context: &RunContext) -> bool {
        let RunTables::Of(view) = &context.tables else { return false };
        let Some(filter) = view.selector.tree() else { return false };
        let mut cost = ReadCost::default();
        let out = &mut self.listed;
        out.clear();
        let known = match start {
            MergeStart::At(from, _) => {
                filter.ahead(&view.version, from, context.end.as_deref(), out, &mut cost)
                    && out.until().is_none_or(|until| until > from)
            }
            MergeStart::Before(before) => {
                filter.behind(&view.version, before, &context.start, out, &mut cost)
                    && out.until().is_none_or(|until| before.is_none_or(|before| until < before))
            }
        };
        if known {
            // Counts as one probe, however many runs and partitions it concerns.
            (cost.range_probes, cost.range_negatives) = (1, u64::from(out.runs().len() == 0));
        }
        self.cost = self.cost + cost;
        known
    }

    /// Finds the lazy runs needed for the range from `start` on, and gives them positions.
    pub(crate) fn wake(
        &mut self,
        start: MergeStart<'_>,
        context: &mut RunContext,
        sources: &mut [MergeSource],
    ) -> Result<(), StorageError> {
        self.woken.clear();
        context.until = None;
        let over = match start {
            MergeStart::At(from, _) => context.ends_before(from),
            MergeStart::Before(before) => before.is_some_and(|before| *before <= context.start[..]),
        };
        if over {
            return Ok(());
        }
        if matches!(self.scan, Some((false, _))) || !self.ask(start, context) {
            return self.wake_all(start, context, sources);
        }
        let within = |until: &&[u8]| match start {
            MergeStart::At(..) => !context.ends_before(until),
            MergeStart::Before(_) => **until > context.start[..],
        };
        let until = self.listed.until().filter(within);
        context.until = until.map(|key| Until { prefix: prefix_of(key), key: key.to_vec() });
        match start {
            MergeStart::At(from, seq) => self.wake_ahead(from, seq, context, sources)?,
            MergeStart::Before(before) => self.wake_behind(before, context, sources)?,
        }
        if are_most(self.listed.runs().len(), self.runs)
            && let Some(until) = context.until.take()
        {
            for (source, run) in sleeping(sources) {
                match start {
                    MergeStart::At(..) => run.wake_from(context, &until.key),
                    MergeStart::Before(_) => run.wake_below(context, Some(&until.key))?,
                }
                run.was_not_listed();
                self.woken.push(source);
            }
        }
        Ok(())
    }

    fn wake_ahead(
        &mut self,
        from: &[u8],
        seq: SeqNo,
        context: &mut RunContext,
        sources: &mut [MergeSource],
    ) -> Result<(), StorageError> {
        let until = end_of_range(context);
        for (place, bound) in self.listed.runs() {
            let Some((source, run)) = lazy_run(&self.sources, place, sources) else { continue };
            if until.is_some_and(|until| bound >= until) {
                continue;
            }
            if bound <= from {
                run.wake_at(context, from)?;
            } else {
                run.check_gap(context, from, Some(bound));
                run.wake_from(context, bound);
                // An iteration through a whole range will need it: its cache misses overlap with
                // those of the others.
                if self.listed.wanted() > FIRST_KEYS {
                    run.prepare_lazy(context, false)?;
                }
            }
            self.woken.push(source);
        }
        together::fetch_prepared(context, sources, false);
        for &source in &self.woken {
            if let MergeSource::Run(run) = &mut sources[source as usize] {
                run.seek(context, from, seq)?;
            }
        }
        if cfg!(debug_assertions) {
            let until = end_of_range(context);
            sleeping(sources).for_each(|(_, run)| run.check_gap(context, from, until));
        }
        Ok(())
    }

    fn wake_behind(
        &mut self,
        before: Option<&[u8]>,
        context: &RunContext,
        sources: &mut [MergeSource],
    ) -> Result<(), StorageError> {
        let until = context.until.as_ref().map_or(&context.start[..], |until| &until.key);
        for (place, bound) in self.listed.runs() {
            let Some((source, run)) = lazy_run(&self.sources, place, sources) else { continue };
            let bound = if bound.is_empty() { None } else { Some(bound) };
            if bound.is_some_and(|bound| bound <= until) {
                continue;
            }
            // A lazy run at the start of the range is opened at once: it is first in the heap.
            let bound = match (bound, before) {
                (Some(bound), Some(before)) => Some(bound.min(before)),
                (bound, before) => bound.or(before),
            };
            if let Some(bound) = bound.filter(|bound| before.is_none_or(|before| *bound < before)) {
                run.check_gap(context, bound, before);
            }
            run.wake_below(context, bound)?;
            self.woken.push(source);
        }
        if cfg!(debug_assertions) {
            sleeping(sources).for_each(|(_, run)| run.check_gap(context, until, before));
        }
        Ok(())
    }

    /// Activates all runs, as without a global filter.
    fn wake_all(
        &mut self,
        start: MergeStart<'_>,
        context: &mut RunContext,
        sources: &mut [MergeSource],
    ) -> Result<(), StorageError> {
        for (source, run) in sleeping(sources) {
            run.prepare_for(context, start)?;
            self.woken.push(source);
        }
        together::fetch_prepared(context, sources, start.is_backward());
        for &source in &self.woken {
            let MergeSource::Run(run) = &mut sources[source as usize] else { continue };
            run.seek_for(context, start)?;
        }
        Ok(())
    }
}

/// Returns the key at which the range that the filter answered for ends forwards, or the iteration.
fn end_of_range(context: &RunContext) -> Option<&[u8]> {
    context.until.as_ref().map(|until| &until.key[..]).or(context.end.as_deref())
}

/// Returns the run at this place of the version if it is lazy without a position, with its number
/// among the sources.
fn lazy_run<'s>(
    of_run: &[Option<u32>],
    place: usize,
    sources: &'s mut [MergeSource],
) -> Option<(u32, &'s mut RunCursor)> {
    let source = of_run.get(place).copied().flatten()?;
    let run = with_cursor(&mut sources[source as usize])?;
    run.is_unopened().then_some((source, run))
}

/// Returns the cursor of a run, creating it if necessary.
fn with_cursor(source: &mut MergeSource) -> Option<&mut RunCursor> {
    if let MergeSource::Asleep(tables) = source {
        let mut run = RunCursor::new(tables.clone());
        run.sleep();
        *source = MergeSource::Run(Box::new(run));
    }
    match source {
        MergeSource::Run(run) => Some(run),
        _ => None,
    }
}

/// Returns all runs that are lazy without a position.
fn sleeping(sources: &mut [MergeSource]) -> impl Iterator<Item = (u32, &mut RunCursor)> {
    sources.iter_mut().enumerate().filter_map(|(source, at)| {
        let run = with_cursor(at)?;
        run.is_unopened().then_some((source as u32, run))
    })
}
