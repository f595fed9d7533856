//! The disk space of logs, and keeping it within [`max_log_bytes`](crate::Options::max_log_bytes).
//!
//! Logs count with their size on disk: their records, the space reserved after them, and the remaining contents of reused
//! files. So do obsolete logs that are kept to be overwritten.
//!
//! * The current log reserves space in steps, so that a synced append changes nothing but data: a quarter of a megabyte at
//!   first, then half of its length, at most 4 MiB. The appending thread does this before the append.
//! * A log that takes no more records releases the space after its last one.
//! * Before a step that would exceed the limit, obsolete logs are removed; beyond three quarters of it, memtables that hold
//!   back the oldest log are sealed; beyond all of it, the writer waits for their flushes. The step is taken regardless once
//!   nothing is left to flush.
//!
//! The counters are a statistic and a hint (`Relaxed`): those of the current log are written only by the log's owner, those
//! of closed logs under the `state` lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::db::commit::{Directory, LogState};
use crate::db::inner::{ClosedLog, DbInner, KeyspaceInner, State};
use crate::error::WriteError;
use crate::options::Options;
use crate::tree::files::log_path;
use crate::wal::LogWriter;

/// The first step of a log, in bytes.
const FIRST_STEP: u64 = 256 << 10;

/// The largest step, in bytes.
const LARGEST_STEP: u64 = 4 << 20;

/// An upper bound on a record's size besides its batches, in bytes: two heads (the closing record's, too) and a group's header.
const RECORD_BYTES: u64 = 96;

/// An obsolete log is kept only if the disk has this many times as much free as all kept logs take.
const FREE_TO_KEEP: u64 = 8;

/// The bytes of logs on disk.
#[derive(Debug, Default)]
pub(crate) struct LogSpace {
    current: AtomicU64,
    /// Rolled logs that are still needed.
    closed: AtomicU64,
}

impl LogSpace {
    /// Returns the bytes of the logs that are still needed.
    pub(crate) fn needed(&self) -> u64 {
        self.current.load(Relaxed) + self.closed.load(Relaxed)
    }
}

/// Returns the expected size of a log when it is rolled, in bytes.
fn expected(options: &Options) -> u64 {
    let bytes = options.keyspace.memtable_bytes.min(options.max_log_bytes);
    bytes.saturating_add(bytes / 8)
}

/// Returns the size of the next reservation of a log of `len` bytes.
fn step(options: &Options, len: u64) -> u64 {
    let of_all = (options.max_log_bytes / 8).max(1);
    let first = FIRST_STEP.min(expected(options)).min(of_all);
    (len / 2).clamp(first, LARGEST_STEP.min(of_all).max(first))
}

/// Returns how much space appending `bytes` would add to the log.
fn growth(options: &Options, log: &LogWriter, bytes: u64) -> u64 {
    let end = log.len().saturating_add(bytes).saturating_add(RECORD_BYTES);
    if end <= log.allocated() {
        return 0;
    }
    end.saturating_add(step(options, end)) - log.allocated()
}

impl State {
    /// Returns the bytes of obsolete logs that are kept to be overwritten.
    fn recyclable_bytes(&self) -> u64 {
        self.recyclable.iter().map(|log| log.allocated).sum()
    }
}

impl DbInner {
    /// Returns the bytes of all logs on disk.
    pub(crate) fn log_space_bytes(&self, state: &State) -> u64 {
        self.log_space.needed() + state.recyclable_bytes()
    }

    /// Records the size of the current log.
    pub(crate) fn note_log(&self, log: &LogWriter) {
        self.log_bytes.store(log.len(), Relaxed);
        self.log_space.current.store(log.allocated(), Relaxed);
    }

    /// Records the size of the rolled logs. Must be called after every change of their list.
    pub(crate) fn note_closed_logs(&self, state: &State) {
        self.log_space.closed.store(state.logs.iter().map(|log| log.allocated).sum(), Relaxed);
    }

    /// Reports whether the rolled logs and the current one come near their limit, so that the memtables that hold back the
    /// oldest log should be flushed.
    pub(crate) fn logs_are_long(&self, growth: u64) -> bool {
        let max = self.options.max_log_bytes;
        self.log_space.needed().saturating_add(growth) > max - max / 4
    }

    /// Reserves space for a record of `bytes`, if needed. On a full disk obsolete logs are removed, and the append may still
    /// find room.
    pub(crate) fn reserve(&self, log: &mut LogWriter, bytes: u64) {
        let growth = growth(&self.options, log, bytes);
        if growth == 0 || log.preallocate(log.allocated() + growth) {
            return;
        }
        self.background.room.outdated();
        if self.release_recyclable() {
            // Retry once more; if that fails, the append will report it.
            log.retry_preallocation();
            log.preallocate(log.allocated() + growth);
        }
    }

    /// Keeps the disk space of logs within its limit before `bytes` are appended. May wait for flushes.
    pub(crate) fn keep_log_space(
        &self,
        log: &mut LogState,
        directory: &Directory,
        bytes: usize,
    ) -> Result<(), WriteError> {
        let max = self.options.max_log_bytes;
        loop {
            let Some(writer) = &log.writer else { return Ok(()) };
            let growth = growth(&self.options, writer, bytes as u64);
            if growth == 0 {
                return Ok(());
            }
            let over = || self.log_space.needed().saturating_add(growth) > max;
            if self.log_space_bytes(&self.state()).saturating_add(growth) > max {
                self.release_recyclable();
            }
            if !self.logs_are_long(growth) {
                return Ok(());
            }
            let pinning = self.keyspaces_pinning_logs(&self.state(), log, growth);
            if !pinning.is_empty() {
                self.seal(log, &pinning)?;
            }
            let flushes = || {
                directory.values().any(|ks| !ks.is_dropped() && !ks.view.load().memtables.sealed.is_empty())
            };
            if !over() || !flushes() {
                return Ok(());
            }
            let check = |state: &State| directory.values().try_for_each(|ks| self.check_flushes(state, ks));
            self.stall_while(|| over() && flushes(), check)?;
        }
    }

    /// Returns the keyspaces whose active memtables keep the oldest log alive, once logs come near their limit.
    pub(crate) fn keyspaces_pinning_logs(
        &self,
        state: &State,
        log: &LogState,
        growth: u64,
    ) -> Vec<Arc<KeyspaceInner>> {
        if !self.logs_are_long(growth) {
            return Vec::new();
        }
        let oldest = state.logs.first().map_or(log.id, |log| log.id);
        let pins = |ks: &&Arc<KeyspaceInner>| {
            let active = &ks.view.load().memtables.active;
            !active.memtable.is_empty() && active.first_log.load(Relaxed) <= oldest
        };
        state.keyspaces.values().filter(pins).cloned().collect()
    }

    /// Reports whether an obsolete log may be kept to be overwritten: it is not much longer than logs are expected to be,
    /// logs are far from their limit, and the disk has room.
    pub(crate) fn may_recycle(&self, state: &State, log: &ClosedLog) -> bool {
        let (options, kept) = (&self.options, state.recyclable_bytes() + log.allocated);
        let max = options.max_log_bytes;
        state.recyclable.len() < options.recycled_logs
            && log.allocated <= expected(options).saturating_mul(2)
            && self.log_space.needed() + kept <= max - max / 4
            && self.background.room.free().is_none_or(|free| kept.saturating_mul(FREE_TO_KEEP) <= free)
    }

    /// Removes the obsolete logs that are kept to be overwritten; `false` if there are none.
    fn release_recyclable(&self) -> bool {
        let released = std::mem::take(&mut self.state().recyclable);
        released.iter().for_each(|log| self.garbage.push(log_path(&self.dir, log.id)));
        if !released.is_empty() {
            self.remove_garbage();
        }
        !released.is_empty()
    }
}
