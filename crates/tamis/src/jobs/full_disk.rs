//! Precautions against a full disk: whether everything in memory can still be flushed, and the size
//! of the [reserve](crate::gate::reserve).

use std::sync::atomic::Ordering::Relaxed;

use crate::catalogue::keyspace::KeyspaceInner;
use crate::gate::reserve::{LOOK_AFTER, for_tables};
use crate::gate::room::LEFT_FREE;
use crate::session::Session;

impl Session {
    /// Checks whether everything in memory can still be flushed once the log has grown by `growth`
    /// for a write of `bytes`. If not, the disk counts as full from now on. The caller holds the
    /// log's lock.
    pub(crate) fn look_ahead(&self, bytes: usize, growth: u64) {
        // Not by the logs' size, which hardly changes where memtables are small. Where space cannot
        // be reserved, a log grows with each write.
        let logged = self.observed.write_counters.log_bytes.get().saturating_add(bytes as u64);
        let was_scarce = self.space.reserve.scarce.load(Relaxed);
        if !was_scarce && logged.saturating_sub(self.space.reserve.looked.load(Relaxed)) < LOOK_AFTER {
            return;
        }
        self.space.reserve.looked.store(logged, Relaxed);
        let size = self.log.needed();
        let free = self.space.room.ask(&*self.fs, &self.dir);
        self.log.note_free(free);
        let Some(free) = free else { return };
        let needed = |to_flush: u64| {
            let to_flush = to_flush.max(size).saturating_add(growth);
            let kept = self.space.reserve.kept(to_flush);
            for_tables(to_flush).saturating_add(growth.saturating_mul(2)).saturating_add(kept)
        };
        let is_less = |free: u64, needed: u64| free.saturating_add(self.space.reserve.held()) < needed;
        // The keyspaces are visited only if space is scarce. An entry takes at most twice as much
        // in a table as in a memtable.
        let chunks = &self.keyspaces.chunks;
        let most = needed(2 * (chunks.active() + chunks.sealed() + chunks.in_logs()));
        if !self.space.reserve.is_full() && !is_less(free, most) {
            return;
        }
        let to_flush = self.bytes_to_flush();
        let (needed, kept) = (needed(to_flush), self.space.reserve.kept(to_flush));
        let is_short = |free: u64| is_less(free, needed);
        if self.space.reserve.is_full() {
            // Deletes of single keys take at most half of it.
            let left = LEFT_FREE.max(kept / 2);
            self.space.reserve.scarce.store(is_short(free.saturating_add(kept - left)), Relaxed);
            return;
        }
        if !is_short(free)
            || self.log.give_back()
                && self.space.room.ask(&*self.fs, &self.dir).is_none_or(|free| !is_short(free))
        {
            return;
        }
        self.space.reserve.fill(kept, "what is in memory would not fit");
    }

    /// On a full disk, seals all memtables that hold writes: flushing deletes frees space by later
    /// merges, and flushing other writes frees their logs. Otherwise, seals the memtables with
    /// deletes in keyspaces where a compaction lacks room. For the flush thread.
    pub(crate) fn seal_if_full(&self) {
        let lacking = (!self.space.reserve.is_full()).then(|| self.state().scheduler.lacking_room());
        if lacking.as_ref().is_some_and(Vec::is_empty) {
            return;
        }
        let mut due = self.keyspaces.filled.list();
        if let Some(lacking) = lacking {
            let has_deletes = |ks: &KeyspaceInner| ks.view.load().memtables.active.memtable.has_deletes();
            due.retain(|keyspace| lacking.contains(&keyspace.id) && has_deletes(keyspace));
        }
        if !due.is_empty() {
            self.try_seal(&due);
        }
    }

    /// Releases the reserve if compactions want it, and creates or resizes it to follow the tables'
    /// bytes if there is room. Failures are retried later. For the flush thread.
    pub(crate) fn keep_reserve(&self) {
        if self.space.reserve.spend_if_wanted() {
            self.monitor.notify();
        }
        if !self.gate.is_waiting() {
            self.space.reserve.follow(|| {
                let keyspaces = self.keyspaces.directory.load();
                let stored = keyspaces.values().map(|keyspace| {
                    let version = keyspace.view.load().version.clone();
                    let blobs = version.blobs.iter().map(|blob| blob.file.file.file_bytes());
                    version.table_bytes() + blobs.sum::<u64>()
                });
                let manifest = self.state().catalogue.manifest_len().unwrap_or(0);
                (stored.sum(), manifest, self.log.needed())
            });
        }
    }
}
