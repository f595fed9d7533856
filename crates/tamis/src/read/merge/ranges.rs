//! A merge under a global filter goes from one listed range to the next.

use tamis_base::key::MAX_SEQNO;

use crate::error::StorageError;
use crate::read::habits::Bounded;
use crate::read::merge::MergeCursor;
use crate::read::merge::lazy::{FIRST_KEYS, MORE_KEYS};
use crate::read::merge::source::{MergeSource, Ranked, rank_of};
use crate::read::start::MergeStart;

impl MergeCursor {
    /// Starts over, with all runs lazy except those needed first.
    pub(super) fn start(&mut self, start: MergeStart<'_>) -> Result<(), StorageError> {
        if let Some(lazy_runs) = &mut self.lazy_runs {
            lazy_runs.listed.set_wanted(FIRST_KEYS);
            let bounded = match start {
                MergeStart::At(..) => self.context.end.is_some(),
                MergeStart::Before(_) => !self.context.start.is_empty(),
            };
            lazy_runs.start_scan(Bounded(bounded), &self.sources);
        }
        self.backward = start.is_backward();
        self.heap.clear();
        for (i, source) in self.sources.iter_mut().enumerate() {
            match source {
                MergeSource::Run(run) => run.sleep(),
                MergeSource::Asleep(_) => {}
                MergeSource::Memtable(cursor) => {
                    start.seek_in(cursor);
                    if cursor.valid() {
                        self.heap
                            .push(Ranked { rank: rank_of(cursor.key(), self.backward), source: i as u32 });
                    }
                }
            }
        }
        self.wake(start)?;
        self.unpark_top()?;
        self.arrived(false);
        Ok(())
    }

    /// Reports whether the next version lies at or beyond the end of the range.
    #[inline]
    pub(super) fn listed_range_is_over(&self) -> bool {
        let Some(until) = &self.context.until else { return false };
        if self.heap.is_empty() {
            return true;
        }
        let prefix = self.prefix();
        if prefix != until.prefix {
            return (prefix > until.prefix) != self.backward;
        }
        let key = self.top().key();
        if self.backward { *key < until.key[..] } else { *key >= until.key[..] }
    }

    /// Continues with the next range. After an error the merge is at its end until the next seek.
    #[cold]
    pub(super) fn go_on(&mut self) -> Result<(), StorageError> {
        let Some(until) = self.context.until.take() else { return Ok(()) };
        let sources = &mut self.sources;
        self.heap.retain(|at| match &mut sources[at.source as usize] {
            MergeSource::Run(run) if run.is_lazy() => {
                run.sleep();
                false
            }
            _ => true,
        });
        let start = if self.backward {
            MergeStart::Before(Some(&until.key))
        } else {
            MergeStart::At(&until.key, MAX_SEQNO)
        };
        if let Some(lazy_runs) = &mut self.lazy_runs {
            // An iteration that has come this far may go on.
            lazy_runs.listed.set_wanted(lazy_runs.listed.wanted().saturating_mul(MORE_KEYS));
        }
        let woken = self.wake(start);
        if woken.is_err() {
            // Some runs may be prepared for a seek that did not happen.
            self.heap.clear();
            self.context.until = None;
            for source in &mut self.sources {
                if let MergeSource::Run(run) = source {
                    run.reset();
                }
            }
        }
        woken
    }

    fn wake(&mut self, start: MergeStart<'_>) -> Result<(), StorageError> {
        let Some(lazy_runs) = &mut self.lazy_runs else { return Ok(()) };
        lazy_runs.wake(start, &mut self.context, &mut self.sources)?;
        for &source in &lazy_runs.woken {
            let at = &self.sources[source as usize];
            if at.valid() {
                self.heap.push(Ranked { rank: rank_of(at.key(), self.backward), source });
            }
        }
        self.heapify();
        Ok(())
    }
}
