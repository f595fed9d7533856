//! Time to live: writes that are too old to be visible.
//!
//! An entry has expired when more than its keyspace's `time_to_live` has passed on the clock since
//! it was written. Its age is not stored with it. Instead, the database samples its current
//! sequence number over time ([`SeqTimes`]). Everything at or below a keyspace's *horizon*, the
//! newest number that the samples prove old enough, has expired. An entry disappears at the
//! earliest a full second after its time (the clock counts whole seconds), and at the latest max(1
//! s, `time_to_live` / 128) after it. Samples are stored with each edit of the manifest, and
//! occasionally by an edit of their own ([`SAVE_EVERY`], [`SAVE_PART`]). Writes made after the last
//! sample before a crash count as written when the database was reopened. A clock that goes back
//! makes entries live longer.
//!
//! # Invariants
//!
//! * A horizon never goes back, in memory or on disk (`Ages::expired`). A merge may drop an
//!   expired entry and leave older versions, which the entry had replaced, in tables that the merge
//!   does not read. The horizon hides these, so it must be permanent, even if the clock goes back
//!   or the time to live is lengthened or removed. So a merge raises the horizon before it drops
//!   anything, and the edit that publishes its outputs records it.
//! * A keyspace that has, or ever had, a time to live never forgets sequence numbers (`keep_seq`).
//!   If it got the time to live later, entries may have lost their numbers before. Everything
//!   present at that moment counts as written then, and the horizon stays at 0 until it can pass
//!   that moment as a whole.
//! * Readers load the view, then the horizon, then the visible sequence number. The horizon before
//!   the number: an entry that is rewritten before it expires is found, old or new, but is never
//!   missing. The view before the horizon: a merge raises the horizon before its outputs are in a
//!   view. If the horizon hides anything, the view must still be current afterwards, else the
//!   reader begins again: a replaced view may lack the memtable with what was rewritten.
//! * A snapshot records the horizons at its moment, and compactions keep what it sees. It does so
//!   under the `snapshots` lock, and a merge raises the horizon before it reads the list of
//!   snapshots. So a snapshot that is not in the list has the merge's horizon or a later one.
//!
//! # Threads and costs
//!
//! `times` has its own lock (see [`session`](crate::session) for its place), held for a few
//! comparisons. In a database without any time to live, a group of writes pays a relaxed load, and
//! a read pays a load and a comparison. With one, each group of writes and each read of a keyspace
//! that has it reads the clock (about 25 ns, on common systems without a system call). Each group
//! takes the lock; reads take it once a second altogether. Nothing under the lock can fail. Samples
//! lost by a panic make entries live longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tamis_base::key::SeqNo;
use tamis_files::tree::edit::VersionEdit;
use tamis_files::tree::times::{PRECISION, Sample, SeqTimes};
use tamis_policy::compaction::plan::{Plan, Reason};
use tamis_policy::compaction::shape::{Shape, TableShape};

use crate::catalogue::Catalogue;
use crate::catalogue::age::EntryAges;
use crate::catalogue::keyspace::KeyspaceInner;
use crate::clock::Clock;
use crate::session::committer::Committer;
use crate::sync::Mutex;

/// New samples are stored at least this often, in seconds, or once per shortest time to live
/// divided by [`SAVE_PART`] if that is longer.
const SAVE_EVERY: u64 = 60;

/// See [`SAVE_EVERY`].
const SAVE_PART: u64 = 16;

/// The samples of an open database, and the clock.
#[derive(Debug)]
pub(crate) struct Expiry {
    clock: Arc<dyn Clock>,
    committer: Arc<Committer>,
    /// Whether any keyspace has a time to live. Only a hint.
    wanted: AtomicBool,
    /// Whether deletes of any keyspace have a maximum age. Only a hint.
    ages_deletes: AtomicBool,
    times: Mutex<Times>,
}

#[derive(Debug)]
struct Times {
    samples: SeqTimes,
    /// The period within which one sample suffices, in seconds.
    distance: u64,
    /// The longest time to live, in seconds.
    keep: u64,
}

impl Expiry {
    /// Starts with the stored samples.
    pub(crate) fn new(samples: SeqTimes, clock: Arc<dyn Clock>, committer: &Arc<Committer>) -> Expiry {
        let times = Times { samples, distance: 1, keep: u64::MAX };
        Expiry {
            clock,
            committer: committer.clone(),
            wanted: AtomicBool::new(false),
            ages_deletes: AtomicBool::new(false),
            times: Mutex::new(times),
        }
    }

    /// Returns the current time in seconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Takes over the samples that the writer has recorded, in a database that follows it.
    pub(crate) fn follow(&self, stored: &SeqTimes) {
        let mut times = self.times.lock();
        let known = times.samples.newest().map_or(0, |sample| sample.seq);
        times.samples.note_all(stored.after(known));
    }

    /// Must be called with all keyspaces before the first write, and whenever a keyspace [that is
    /// timed](KeyspaceInner::is_timed) is dropped.
    pub(crate) fn configure<'k>(&self, keyspaces: impl Iterator<Item = &'k KeyspaceInner>) {
        let mut times = self.times.lock();
        (times.distance, times.keep) = (u64::MAX / PRECISION, 1);
        self.wanted.store(false, Ordering::Relaxed);
        self.ages_deletes.store(false, Ordering::Relaxed);
        drop(times);
        keyspaces.for_each(|keyspace| self.join(keyspace));
    }

    /// Must be called with each new keyspace, before its first write.
    pub(crate) fn join(&self, keyspace: &KeyspaceInner) {
        let deletes = keyspace.options.max_tombstone_age.map(|age| age.as_secs());
        for age in keyspace.age.ttl.into_iter().chain(deletes) {
            let mut times = self.times.lock();
            times.distance = times.distance.min((age / PRECISION).max(1));
            times.keep = times.keep.max(age);
        }
        if keyspace.age.ttl.is_some() {
            self.wanted.store(true, Ordering::Relaxed);
        }
        if deletes.is_some() {
            self.ages_deletes.store(true, Ordering::Relaxed);
        }
    }

    /// Reports whether the times of deletes must be noted.
    #[inline]
    pub(crate) fn ages_deletes(&self) -> bool {
        self.ages_deletes.load(Ordering::Relaxed)
    }

    /// Returns the time of the newest sample before the write with this number: the write was made
    /// then or later. If there is none before it, returns the time of the oldest sample: the write
    /// was made then or earlier. `None` without samples.
    pub(crate) fn written_since(&self, seq: SeqNo) -> Option<u64> {
        let times = self.times.lock();
        let samples = times.samples.samples();
        let later = samples.partition_point(|sample| sample.seq < seq);
        samples.get(later.saturating_sub(1)).map(|sample| sample.time)
    }

    /// Records that everything visible was written by now. Called after each group of writes, and
    /// whenever anything else became visible.
    #[inline]
    pub(crate) fn note_visible(&self) {
        if self.wanted.load(Ordering::Relaxed) {
            self.note();
        }
    }

    /// Like [`note_visible`](Self::note_visible), but also without a time to live.
    fn note(&self) {
        // The number first: what is visible now was written before the time read next.
        let seq = self.committer.visible();
        let sample = Sample { seq, time: self.now() };
        let mut times = self.times.lock();
        let (distance, keep) = (times.distance, times.keep);
        times.samples.note(sample, distance, keep);
    }

    /// Returns the current horizon of a keyspace: everything up to this write has expired. 0:
    /// nothing.
    #[inline]
    pub(crate) fn expired(&self, keyspace: &KeyspaceInner) -> SeqNo {
        let age = &keyspace.age;
        if let Some(ttl) = age.ttl {
            let now = self.now();
            if now >= age.checked.load(Ordering::Acquire) {
                self.look_up(age, ttl, now);
            }
        }
        age.expired.load(Ordering::Acquire)
    }

    /// Returns the horizon that a merge uses; `None` if it may forget sequence numbers. Must be
    /// called before the merge reads the list of snapshots.
    pub(crate) fn expired_for_merge(&self, keyspace: &KeyspaceInner) -> Option<SeqNo> {
        keyspace.age.keep_seq().then(|| self.expired(keyspace))
    }

    #[cold]
    fn look_up(&self, age: &EntryAges, ttl: u64, now: u64) {
        // For data that no write has recorded: an ingested table, the writes of a replayed log.
        self.note_visible();
        let gone = now.checked_sub(ttl).map_or(0, |time| self.times.lock().samples.made_before(time));
        // All or nothing up to `since`: entries without a number may be as young as that.
        if age.since.is_some_and(|since| gone >= since) {
            age.expired.fetch_max(gone, Ordering::AcqRel);
        }
        age.checked.fetch_max(now.saturating_add(1), Ordering::AcqRel);
    }

    /// Returns the samples that the stored tree lacks.
    pub(crate) fn unsaved(&self, stored: &SeqTimes) -> Vec<Sample> {
        let known = stored.newest().map_or(0, |sample| sample.seq);
        self.times.lock().samples.after(known).to_vec()
    }

    /// Reports whether samples have gone unsaved for so long that an edit should store them.
    pub(crate) fn is_save_due(&self, stored: Option<Sample>) -> bool {
        let (ages_entries, ages_deletes) = (self.wanted.load(Ordering::Relaxed), self.ages_deletes());
        if !ages_entries && !ages_deletes {
            return false;
        }
        let now = self.now();
        if ages_deletes && !ages_entries {
            // Otherwise each group of writes does.
            self.note();
        }
        let times = self.times.lock();
        let period = (times.distance * PRECISION / SAVE_PART).max(SAVE_EVERY);
        let since = stored.or(times.samples.samples().first().copied());
        times.samples.newest() != stored
            && since.is_some_and(|since| now >= since.time.saturating_add(period))
    }

    /// Forgets the samples of writes after `seq`, which a power failure took back.
    pub(crate) fn cut_at(&self, seq: SeqNo) {
        self.times.lock().samples.cut_at(seq);
    }

    /// Adds unsaved ages to an edit. Must be called before the edit gets its last sequence number,
    /// which no stored horizon may exceed. Samples may exceed it: an opening cuts them.
    pub(crate) fn save_ages(&self, catalogue: &Catalogue, edit: &mut VersionEdit) {
        if self.ages_deletes() {
            self.note();
        }
        edit.times = self.unsaved(&catalogue.tree().times);
        for (id, keyspace) in catalogue.keyspaces().aging.iter() {
            let stored = catalogue.tree().keyspaces.get(id).and_then(|stored| stored.ages);
            let ages = keyspace.age.ages().filter(|ages| Some(*ages) != stored);
            edit.ages.extend(ages.map(|ages| (*id, ages)));
        }
    }
}

/// Drops, without reading them, the tables that hold only expired data that no snapshot sees.
///
/// Older versions of their keys, hidden by their deletes and range tombstones, may remain in other
/// tables. They are older than what is dropped, so the horizon hides them as well. A live snapshot
/// sees nothing of what is dropped (its number is smaller), and a snapshot taken from now on has a
/// horizon that hides it. So no read changes its answer, whatever else overlaps the tables.
pub(crate) fn expired_tables(shape: &Shape) -> Option<Plan> {
    if shape.expired == 0 {
        return None;
    }
    let newest_snapshot = shape.snapshots.last().copied();
    let gone = |table: &TableShape| {
        let seen = newest_snapshot.is_some_and(|snapshot| table.meta.min_seq <= snapshot);
        table.free && table.meta.max_seq <= shape.expired && !seen
    };
    Plan::drop_of(shape, Reason::Expired, gone)
}

#[cfg(test)]
mod tests;
