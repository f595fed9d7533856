//! What the tuner has seen and decided, per keyspace. See [`tune`](crate::jobs::tune).

use std::collections::VecDeque;

use tamis_model::engine::{Operations, Workload, zipf_exponent};

use crate::catalogue::keyspace::KeyspaceInner;
use crate::observe::cost::ReadCost;
use crate::options::KeyspaceOptions;

/// Fewer operations since the last check are not a workload.
const FEWEST_OPERATIONS: u64 = 10_000;

/// The number of decisions kept for statistics.
const REMEMBERED: usize = 32;

/// One change requested by the tuner.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TuningDecision {
    /// The keyspace's name.
    pub keyspace: String,
    /// The workload that the change was made for, as text.
    pub workload: String,
    /// Names and values of the options that change, as text.
    pub changes: Vec<(String, String)>,
    /// The predicted saving, as a fraction of an operation's time.
    pub gain: f64,
    /// Why, in words.
    pub reason: String,
}

/// The tuning state of one keyspace.
#[derive(Debug, Default)]
pub(crate) struct Tuning {
    /// The counters at the last check.
    reads: ReadCost,
    writes: u64,
    /// Entries flushed since the database was opened.
    pub(crate) flushed: u64,
    /// Whether the last check asked for a change that was not made.
    pub(crate) asked: bool,
    /// The last observed workload, of this session or an earlier one.
    pub(crate) seen: Option<Workload>,
    /// Whether a thread is deciding.
    pub(crate) deciding: bool,
}

impl Tuning {
    /// Creates the state of a keyspace whose workload was seen before.
    pub(crate) fn having_seen(workload: Workload) -> Tuning {
        Tuning { seen: Some(workload), ..Tuning::default() }
    }

    /// Returns the workload to decide for: the declared one, or the operations since the last
    /// check, if there are enough of them and no other thread is deciding.
    pub(crate) fn look(&mut self, keyspace: &KeyspaceInner) -> Option<Workload> {
        if self.deciding {
            return None;
        }
        let reads = keyspace.reads.read();
        let new = operations(reads - self.reads, self.flushed - self.writes);
        if new.total() < FEWEST_OPERATIONS {
            return None;
        }
        (self.reads, self.writes) = (reads, self.flushed);
        let entries: u64 = keyspace.view.load().version.tables.iter().map(|table| table.meta.entries).sum();
        let skew = keyspace.reads.collisions().map(|rate| zipf_exponent(rate, entries as f64));
        let seen = Workload::observed(&new, skew).0.in_percent();
        if keyspace.declared.is_none() && seen.is_sound() {
            // Half the weight is on earlier observations, so that one session of pure loading does
            // not make the database write-only.
            self.seen = Some(self.seen.map_or(seen, |before| before.blended(&seen).in_percent()));
        }
        keyspace.declared.or(self.seen)
    }

    /// Returns the options to store for options that hold now.
    pub(crate) fn stored(&self, now: &KeyspaceOptions) -> KeyspaceOptions {
        KeyspaceOptions { workload: self.seen.or(now.workload), ..now.clone() }
    }
}

/// The last decisions since the database was opened.
#[derive(Debug, Default)]
pub(crate) struct Decisions(VecDeque<TuningDecision>);

impl Decisions {
    pub(crate) fn add(&mut self, decision: TuningDecision) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(decision);
    }

    pub(crate) fn all(&self) -> Vec<TuningDecision> {
        self.0.iter().cloned().collect()
    }
}

impl From<Vec<TuningDecision>> for Decisions {
    fn from(made: Vec<TuningDecision>) -> Decisions {
        let mut decisions = Decisions::default();
        made.into_iter().for_each(|decision| decisions.add(decision));
        decisions
    }
}

fn operations(reads: ReadCost, writes: u64) -> Operations {
    Operations {
        gets: reads.gets,
        found: reads.found,
        scans: reads.scans,
        empty_scans: reads.empty_scans,
        entries: reads.entries,
        writes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::tests::session;

    fn gets(count: u64) -> ReadCost {
        ReadCost { gets: count, found: count, ..ReadCost::default() }
    }

    #[test]
    fn a_workload_is_the_operations_since_the_last_look_if_there_are_enough() {
        let db = session(1, &KeyspaceOptions::default(), |_| ());
        let keyspace = db.keyspaces.directory.load().get(&0).unwrap().clone();
        let mut tuning = Tuning { flushed: FEWEST_OPERATIONS - 1, ..Tuning::default() };
        assert_eq!(tuning.look(&keyspace), None);
        tuning.flushed += 1;
        tuning.deciding = true;
        assert_eq!(tuning.look(&keyspace), None, "another thread decides");
        tuning.deciding = false;
        let of_writes = tuning.look(&keyspace).unwrap();
        assert_eq!((tuning.seen, tuning.look(&keyspace)), (Some(of_writes), None));
        keyspace.reads.add(&gets(FEWEST_OPERATIONS - 1));
        assert_eq!(tuning.look(&keyspace), None);
        keyspace.reads.add(&gets(1));
        let of_both = tuning.look(&keyspace).unwrap();
        assert_ne!(of_both, of_writes);
        assert_eq!((tuning.seen, tuning.look(&keyspace)), (Some(of_both), None));
        // Half the weight is on what was seen before.
        let mut alone = Tuning::default();
        let of_gets = alone.look(&keyspace).unwrap();
        assert_eq!(of_both, of_writes.blended(&of_gets).in_percent());
        assert_eq!(Tuning::having_seen(of_gets).stored(&KeyspaceOptions::default()).workload, Some(of_gets));
    }

    #[test]
    fn a_declared_workload_is_the_one_to_decide_for() {
        let declared: Workload = "get 10, put 90".parse().unwrap();
        let options = KeyspaceOptions { workload: Some(declared), ..KeyspaceOptions::default() };
        let db = session(1, &options, |_| ());
        let keyspace = db.keyspaces.directory.load().get(&0).unwrap().clone();
        let mut tuning = Tuning { flushed: FEWEST_OPERATIONS, ..Tuning::default() };
        assert_eq!((tuning.look(&keyspace), tuning.seen), (Some(declared), None));
        assert_eq!(tuning.look(&keyspace), None);
    }

    #[test]
    fn the_last_decisions_are_kept() {
        let decision =
            |reason: usize| TuningDecision { reason: reason.to_string(), ..TuningDecision::default() };
        let decisions = Decisions::from((0..REMEMBERED + 3).map(decision).collect::<Vec<_>>());
        let expected: Vec<_> = (3..REMEMBERED + 3).map(decision).collect();
        assert_eq!(decisions.all(), expected);
    }
}
