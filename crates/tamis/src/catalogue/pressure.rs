//! The pressure that the tree's shape puts on writers, where every commit can see it.
//!
//! A policy's answer costs a walk over all tables. So it is computed under the `state` lock when
//! the tree or the list of jobs changes, and cached here. A commit reads one word.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use tamis_policy::compaction::policy::{CompactionPolicy, Pressure};
use tamis_policy::compaction::shape::Shape;

/// Returns the pressure that a shape puts on writers. Only a compaction ends a stop. So if none
/// runs and none would be due with unlimited room, writers are slowed down instead: only their
/// writes can make one due.
///
/// With `deterministic`, a compaction is due once the oldest run of level 0 is the last of its
/// block. An ingestion that runs concurrently with a flush and shares no keys with it may land
/// below it with a later epoch. So level 0 can be full before anything is due.
pub(crate) fn pressure_of(policy: &dyn CompactionPolicy, shape: Shape) -> Pressure {
    match policy.write_pressure(&shape) {
        Pressure::Stop
            if shape.running.is_empty() && policy.plan(&Shape { room: None, ..shape }).is_none() =>
        {
            Pressure::Slowdown(1.0)
        }
        pressure => pressure,
    }
}

/// The policy's last answer. Set under the `state` lock. Writers read it without the lock, to see
/// whether to check further, and under it to wait for a change.
#[derive(Debug, Default)]
pub(crate) struct KnownPressure(AtomicU32);

const STOP: u32 = u32::MAX;
const STEPS: f64 = 1e6;

impl KnownPressure {
    pub(crate) fn set(&self, pressure: Pressure) {
        let word = match pressure {
            Pressure::None => 0,
            Pressure::Slowdown(severity) => 1 + (severity.clamp(0.0, 1.0) * STEPS) as u32,
            Pressure::Stop => STOP,
        };
        // The word is all there is to publish.
        self.0.store(word, Relaxed);
    }

    pub(crate) fn get(&self) -> Pressure {
        match self.0.load(Relaxed) {
            0 => Pressure::None,
            STOP => Pressure::Stop,
            word => Pressure::Slowdown(f64::from(word - 1) / STEPS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::KeyspaceOptions;
    use crate::tree::tests::table;
    use tamis_base::epochs::{EpochMap, EpochSegment};
    use tamis_policy::compaction::policy::policy_for;
    use tamis_policy::compaction::shape::{LevelShape, RunShape, TableShape};

    /// Writers used to wait forever for a compaction of two runs: the one with the earlier epoch
    /// was the newer one, since an ingestion had overtaken a flush.
    #[test]
    fn writers_are_not_stopped_where_only_they_can_make_a_compaction_due() {
        let mut options = KeyspaceOptions::default();
        let settings = [
            ("compaction", "tiering"),
            ("deterministic", "true"),
            ("size_ratio", "3"),
            ("level0_runs", "2"),
            ("slowdown_runs", "2"),
            ("stop_runs", "2"),
        ];
        settings.iter().for_each(|(name, value)| options.set(name, value).unwrap());
        let run = |id: u64, from: &str, to: &str, (lo, hi): (u64, u64)| {
            let mut meta = table(id, from, to);
            let segment = EpochSegment { start: meta.smallest.clone(), lo, hi };
            meta.epochs = EpochMap::from_segments(vec![segment]).unwrap();
            RunShape {
                id,
                tables: vec![TableShape { meta: std::sync::Arc::new(meta), busy: false, free: true }],
            }
        };
        let shape = |newer, older| {
            let mut levels = vec![LevelShape::default(); options.levels];
            levels[0].runs = vec![run(7, "a", "c", newer), run(6, "d", "f", older)];
            levels[1].runs = vec![run(5, "a", "z", (0, 2))];
            Shape { levels, ..Shape::default() }
        };
        let policy = policy_for(&options.policy());
        assert_eq!(policy.write_pressure(&shape((2, 3), (3, 4))), Pressure::Stop);
        assert_eq!(pressure_of(&*policy, shape((2, 3), (3, 4))), Pressure::Slowdown(1.0));
        assert_eq!(pressure_of(&*policy, shape((3, 4), (2, 3))), Pressure::Stop, "a compaction is due");
    }

    #[test]
    fn pressure_reads_back_as_set() {
        let known = KnownPressure::default();
        assert_eq!(known.get(), Pressure::None);
        for severity in [0.0, 0.25, 1.0] {
            known.set(Pressure::Slowdown(severity));
            assert_eq!(known.get(), Pressure::Slowdown(severity));
        }
        known.set(Pressure::Stop);
        assert_eq!(known.get(), Pressure::Stop);
        known.set(Pressure::None);
        assert_eq!(known.get(), Pressure::None);
    }
}
