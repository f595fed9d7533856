//! State shared by all background jobs, and the progress of running compactions.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use tamis_policy::compaction::plan::{Plan, Reason, Work};
use tamis_policy::compaction::shape::RunningJob;

use crate::catalogue::scrubbed::Scrub;
use crate::compaction::execute::Helpers;
use crate::gate::pace::Pace;
use crate::options::Options;

/// State shared by the background jobs of one database.
#[derive(Debug)]
pub(crate) struct Background {
    pub(crate) pace: Pace,
    pub(crate) helpers: Helpers,
    /// The number of live pause guards.
    pub(crate) pauses: AtomicUsize,
    /// The number of callers that wait until nothing is due.
    pub(crate) settling: AtomicUsize,
    pub(crate) scrub: Scrub,
}

impl Background {
    pub(crate) fn new(options: &Options) -> Background {
        Background {
            pace: Pace::new(options.background_bytes_per_second),
            helpers: Helpers::new(options.compaction_threads().saturating_sub(1)),
            pauses: AtomicUsize::new(0),
            settling: AtomicUsize::new(0),
            scrub: Scrub::default(),
        }
    }

    /// Reports whether a caller waits until nothing is due.
    pub(crate) fn is_settling(&self) -> bool {
        self.settling.load(Relaxed) > 0
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.pauses.load(Relaxed) > 0
    }
}

/// A running compaction, as others see it.
#[derive(Debug)]
pub(crate) struct ActiveJob {
    pub(crate) number: u64,
    pub(crate) shape: RunningJob,
    pub(crate) progress: Arc<Progress>,
}

/// The progress of a running compaction. Sizes are in bytes.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) reason: Reason,
    pub(crate) work: Work,
    pub(crate) runs_in: usize,
    pub(crate) bytes_in: u64,
    pub(crate) parts: AtomicUsize,
    pub(crate) written: AtomicU64,
    cancelled: AtomicBool,
}

impl Progress {
    pub(crate) fn new(plan: &Plan, bytes_in: u64) -> Progress {
        Progress {
            reason: plan.reason,
            work: plan.work,
            runs_in: plan.inputs.len(),
            bytes_in,
            parts: AtomicUsize::new(1),
            written: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
        }
    }

    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Relaxed);
    }

    /// Reports whether cancellation was requested.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }

    /// Reports whether the job drops tables without reading them.
    pub(crate) fn drops(&self) -> bool {
        self.work == Work::Drop
    }

    /// Returns the number of bytes that the job may still write: at most as many as it reads, and
    /// none if it only moves or drops tables.
    pub(crate) fn may_write(&self) -> u64 {
        match self.work {
            Work::Merge => self.bytes_in.saturating_sub(self.written.load(Relaxed)),
            Work::Move | Work::Drop => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_has_one_helper_less_than_threads() {
        for (background_threads, sub_jobs, helpers) in [(1, None, 0), (4, None, 3), (4, Some(2), 1)] {
            let options = Options { background_threads, sub_jobs, ..Options::default() };
            assert_eq!(Background::new(&options).helpers.free(), helpers);
        }
    }
}
