//! Time to live: which writes are too old to be seen.
//!
//! An entry has expired when more seconds of the clock than its keyspace's `time_to_live` have passed since it was
//! written. Its age is not stored with it: the database samples which sequence number it is at
//! ([`SeqTimes`]), and everything at or below a keyspace's *horizon*, the newest number that the samples say to be old
//! enough, is gone. An entry goes at the earliest a full second after its time (the clock counts whole seconds), and at
//! the latest max(1 s, `time_to_live` / 128) after its time. Samples are stored with each edit of the manifest, and now
//! and then by an edit of their own ([`SAVE_EVERY`], [`SAVE_PART`]); what was written after the last one before a crash
//! counts as written when the database was opened again. A clock that goes back makes entries live longer.
//!
//! # Invariants
//!
//! * A horizon never goes back, in memory or on disk ([`Ages::expired`]): a merge may drop an expired entry and leave
//!   the older ones that it replaced in tables which it does not read. The horizon hides these, so it must hold for
//!   good, also if the clock goes back and if the time to live is made longer or taken away. So before a merge drops
//!   anything it raises the horizon, and the edit that publishes its outputs records it.
//! * Sequence numbers are never forgotten in a keyspace that has, or ever had, a time to live (`keep_seq`). In one that
//!   got it later, entries may have lost theirs before: all that was there at that moment counts as written then, and
//!   the horizon stays at 0 until it can pass that moment as a whole.
//! * Readers load the view first, then the horizon, then the visible sequence number. The horizon before the number: an
//!   entry that is rewritten before it expires is found old or new, but is never missing. The view before the horizon:
//!   a merge raises the horizon before its outputs are in a view.
//! * A snapshot takes the horizons of its moment along, and compactions keep for it what it sees. It takes them under
//!   the `snapshots` lock, and a merge raises the horizon before it reads the list of snapshots: so a snapshot that is
//!   not in the list has the merge's horizon or a later one.
//!
//! # Threads and costs
//!
//! `times` is a lock of its own, the last to be taken, held for a few comparisons. A database without any time to live
//! pays a relaxed load for each group of writes, and a read pays a load and a comparison. With one, each group of writes
//! and each read of a keyspace that has it reads the clock (on the usual systems without a system call: some 25 ns), a
//! group takes the lock, and reads together take it once a second.

use crate::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::compaction::plan::{Plan, Reason};
use crate::compaction::shape::{Shape, TableShape};
use crate::db::inner::{DbInner, KeyspaceInner, State};
use crate::key::SeqNo;
use crate::options::KeyspaceOptions;
use crate::read::Memtables;
use crate::tree::edit::{Ages, VersionEdit};
use crate::tree::times::{PRECISION, Sample, SeqTimes};

/// Samples are stored at least this often, in seconds, if there are new ones,
const SAVE_EVERY: u64 = 60;

/// or only every so many parts of the shortest time to live if that is longer.
const SAVE_PART: u64 = 16;

/// What an open keyspace knows of the ages of its entries.
#[derive(Debug)]
pub(crate) struct Age {
    /// How many seconds an entry lives.
    ttl: Option<u64>,
    /// See [`Ages::since`]; `None` in a keyspace that never had a time to live.
    since: Option<SeqNo>,
    /// The horizon: everything up to this write has expired. Only ever raised. Release and Acquire: who sees a
    /// horizon in `checked` sees it here.
    expired: AtomicU64,
    /// The first second for which the horizon was not looked up yet.
    checked: AtomicU64,
}

impl Age {
    /// Of a keyspace with these options, of which `known` is stored. `last_seq` is not below any number in its tables.
    pub(crate) fn new(options: &KeyspaceOptions, known: Option<Ages>, last_seq: SeqNo) -> Age {
        let seconds =
            |ttl: std::time::Duration| ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0));
        let ttl = options.time_to_live.map(seconds);
        Age {
            ttl,
            since: known.map(|ages| ages.since).or(ttl.map(|_| last_seq)),
            expired: AtomicU64::new(known.map_or(0, |ages| ages.expired)),
            checked: AtomicU64::new(0),
        }
    }

    /// Whether merges must leave the entries their sequence numbers.
    pub(crate) fn keep_seq(&self) -> bool {
        self.since.is_some()
    }

    /// What is to be stored.
    pub(crate) fn ages(&self) -> Option<Ages> {
        self.since.map(|since| Ages { since, expired: self.expired.load(Ordering::Acquire) })
    }
}

/// The first sequence number that is to be seen when everything up to `expired` is not: the horizon as reads take it,
/// like that of a range tombstone over all keys.
#[inline]
pub(crate) fn live_from(expired: SeqNo) -> SeqNo {
    expired + SeqNo::from(expired > 0)
}

/// The samples of an open database.
#[derive(Debug)]
pub(crate) struct Expiry {
    /// Whether any keyspace has a time to live. Says only whether to look.
    wanted: AtomicBool,
    times: Mutex<Times>,
}

#[derive(Debug)]
struct Times {
    samples: SeqTimes,
    /// Seconds within which one sample is enough.
    distance: u64,
    /// The longest time to live, in seconds.
    keep: u64,
}

impl Expiry {
    /// With the samples that are stored.
    pub(crate) fn new(samples: SeqTimes) -> Expiry {
        let times = Times { samples, distance: 1, keep: u64::MAX };
        Expiry { wanted: AtomicBool::new(false), times: Mutex::new(times) }
    }

    /// To be called whenever there are other keyspaces than before, and before the first write.
    pub(crate) fn configure<'k>(&self, keyspaces: impl Iterator<Item = &'k KeyspaceInner>) {
        let (shortest, longest) = keyspaces
            .filter_map(|keyspace| keyspace.age.ttl)
            .fold((u64::MAX, 0), |(shortest, longest), ttl| (ttl.min(shortest), ttl.max(longest)));
        let mut times = self.times.lock();
        times.distance = (shortest / PRECISION).max(1);
        times.keep = longest.max(1);
        self.wanted.store(longest > 0, Ordering::Relaxed);
    }
}

/// Drops, without reading them, the tables that hold nothing but what has expired and what no snapshot sees.
///
/// Older versions of their keys may stay behind in other tables, and may be deletes' and range tombstones' victims. They
/// are older than what is dropped, so the horizon hides them as well. A snapshot that lives sees none of what is
/// dropped (its number is smaller); one that is taken from now on has a horizon that hides it. So nobody's answers
/// change, whatever else overlaps the tables.
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

impl DbInner {
    /// Notes that everything that is visible was written by now. Called after each group of writes, and whenever
    /// something became visible otherwise.
    #[inline]
    pub(crate) fn note_time(&self) {
        if self.expiry.wanted.load(Ordering::Relaxed) {
            // The number first: what is visible now was written by a time that is read later.
            let seq = self.visible();
            self.note(Sample { seq, time: self.now() });
        }
    }

    fn note(&self, sample: Sample) {
        let mut times = self.expiry.times.lock();
        let (distance, keep) = (times.distance, times.keep);
        times.samples.note(sample, distance, keep);
    }

    /// The horizon of a keyspace now: everything up to this write has expired; 0: nothing.
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

    /// The horizon that a merge goes by; `None` if it may forget sequence numbers. To be called before the merge reads
    /// the list of snapshots.
    pub(crate) fn expired_for_merge(&self, keyspace: &KeyspaceInner) -> Option<SeqNo> {
        keyspace.age.keep_seq().then(|| self.expired(keyspace))
    }

    #[cold]
    fn look_up(&self, age: &Age, ttl: u64, now: u64) {
        // What no write has been noted for since: a table that was ingested, the writes of a log that was read.
        self.note_time();
        let gone = now.checked_sub(ttl).map_or(0, |time| self.expiry.times.lock().samples.made_before(time));
        // Up to `since` all or nothing: entries without a number may be as young as that.
        if age.since.is_some_and(|since| gone >= since) {
            age.expired.fetch_max(gone, Ordering::AcqRel);
        }
        age.checked.fetch_max(now.saturating_add(1), Ordering::AcqRel);
    }

    /// The samples that are not in the stored tree yet.
    pub(crate) fn unsaved_times(&self, stored: &SeqTimes) -> Vec<Sample> {
        let known = stored.newest().map_or(0, |sample| sample.seq);
        self.expiry.times.lock().samples.after(known).to_vec()
    }

    /// Stores new samples if that has not been done for a while: a memtable may take days to fill. For a background
    /// thread that has nothing else to do.
    pub(crate) fn save_times(&self, state: &mut State) {
        let stopped = state.closing || state.manifest.is_none() || self.health.stopped().is_some();
        if !self.expiry.wanted.load(Ordering::Relaxed) || stopped {
            return;
        }
        let (stored, now) = (state.tree.times.newest(), self.now());
        let due = {
            let times = self.expiry.times.lock();
            let period = (times.distance * PRECISION / SAVE_PART).max(SAVE_EVERY);
            let since = stored.or(times.samples.samples().first().copied());
            times.samples.newest() != stored
                && since.is_some_and(|since| now >= since.time.saturating_add(period))
        };
        if due {
            // If it fails they are saved with a later edit.
            let none = |_, _: &Memtables| unreachable!("no tables change");
            let _ = self.commit_edit(state, VersionEdit::default(), Vec::new(), none);
        }
    }

    /// Adds to an edit what is known of ages and is not stored yet. To be called before the edit is given the last
    /// visible sequence number, above which no stored number may lie.
    pub(crate) fn save_ages(&self, state: &State, edit: &mut VersionEdit) {
        edit.times = self.unsaved_times(&state.tree.times);
        for (id, keyspace) in &state.keyspaces {
            let stored = state.tree.keyspaces.get(id).and_then(|stored| stored.ages);
            let ages = keyspace.age.ages().filter(|ages| Some(*ages) != stored);
            edit.ages.extend(ages.map(|ages| (*id, ages)));
        }
    }
}

#[cfg(test)]
mod tests;
