//! One round of operations, timed in short pieces.
//!
//! A round's time is the median of its pieces' means: whatever interrupts the program makes one piece long, and is
//! dropped. A piece has enough operations that what is dear and rare, a false positive, is part of nearly every one.

use std::ops::Range;
use std::time::Instant;

use tamis::Db;
use tamis_bench::BenchError;
use tamis_bench::histogram::Histogram;
use tamis_bench::keys::KeySet;
use tamis_bench::progress::Progress;
use tamis_bench::random::Random;
use tamis_bench::run::Timing;
use tamis_bench::value;
use tamis_bench::workload::Workload;

use crate::figures::compare::median;

/// Operations of a piece: with gets about 30 µs, with seeks into many runs a millisecond.
const PIECE: u64 = 128;

/// The operation of a piece that is timed by itself as well, for percentiles.
const TIMED: usize = PIECE as usize / 2;

/// One in this many values found is compared byte by byte; of the others only the first bytes.
const WHOLE_CHECK_EVERY: u64 = 256;

/// What to do, and the answers to expect.
#[derive(Clone, Copy)]
pub(super) struct Round<'a> {
    /// An overwrite, a seek or a get.
    pub(super) workload: Workload,
    pub(super) keys: &'a KeySet,
    pub(super) value_bytes: usize,
    pub(super) ops: u64,
    pub(super) seed: u64,
    pub(super) progress: &'a dyn Progress,
}

/// One prepared operation; ranges are those of the piece's bytes.
struct Op {
    key: Range<usize>,
    value: Range<usize>,
    tag: u64,
}

impl Round<'_> {
    /// Executes all operations, and checks every answer. Returns the timing, and the mean time of an operation with all
    /// interruptions.
    pub(super) fn run(&self, db: &Db) -> Result<(Timing, f64), BenchError> {
        let mut random = Random::new(self.seed);
        let (mut bytes, mut ops) = (Vec::new(), Vec::new());
        let (mut means, mut all_ns, mut latency) = (Vec::new(), 0u64, Histogram::default());
        self.progress.begin(self.workload.name(), self.ops, "operations");
        let whole = Instant::now();
        let mut done = 0;
        while done < self.ops {
            let count = PIECE.min(self.ops - done);
            bytes.clear();
            ops.clear();
            (0..count).for_each(|_| ops.push(self.prepare(&mut random, &mut bytes)));
            let begun = Instant::now();
            for (at, op) in ops.iter().enumerate() {
                if at == TIMED {
                    let begun = Instant::now();
                    self.execute(db, &bytes, op, done + at as u64)?;
                    latency.record(ns_since(begun));
                } else {
                    self.execute(db, &bytes, op, done + at as u64)?;
                }
            }
            let ns = ns_since(begun);
            means.push(ns as f64 / count as f64);
            all_ns += ns;
            done += count;
            self.progress.advance(count);
        }
        self.progress.end();
        let ns = median(means).unwrap_or(0.0);
        let timing = Timing {
            ops: done,
            busy_ns: (ns * done as f64).round() as u64,
            ops_per_second: 1e9 / ns.max(1e-3),
            wall_ns: ns_since(whole),
            latency,
            ..Timing::default()
        };
        Ok((timing, all_ns as f64 / done.max(1) as f64))
    }

    fn prepare(&self, random: &mut Random, bytes: &mut Vec<u8>) -> Op {
        let start = bytes.len();
        match self.workload {
            Workload::GetEmpty => self.keys.absent(random.below(self.keys.absent_len()), bytes),
            _ => self.keys.existing(random.below(self.keys.len()), bytes),
        }
        let key = start..bytes.len();
        let tag = value::tag_of(&bytes[key.clone()]);
        if self.workload == Workload::Overwrite {
            value::fill(tag, random.next_u64() as u32, self.value_bytes, bytes);
        }
        Op { value: key.end..bytes.len(), key, tag }
    }

    #[inline]
    fn execute(&self, db: &Db, bytes: &[u8], op: &Op, number: u64) -> Result<(), BenchError> {
        let key = &bytes[op.key.clone()];
        let is_its_value = |found: &[u8]| {
            if number.is_multiple_of(WHOLE_CHECK_EVERY) {
                value::check_whole(op.tag, self.value_bytes, found)
            } else {
                value::check(op.tag, self.value_bytes, found)
            }
        };
        let right = match self.workload {
            Workload::Overwrite => {
                db.put(key, &bytes[op.value.clone()])?;
                true
            }
            Workload::Seek => match db.range(key..).next_ref() {
                Some(item) => {
                    let (found, value) = item?;
                    found == key && is_its_value(value)
                }
                None => false,
            },
            Workload::GetEmpty => db.get(key)?.is_none(),
            _ => db.get(key)?.is_some_and(|value| is_its_value(&value)),
        };
        if right { Ok(()) } else { Err(self.wrong(key)) }
    }

    #[cold]
    fn wrong(&self, key: &[u8]) -> BenchError {
        let absent = self.workload == Workload::GetEmpty;
        BenchError::WrongAnswer {
            workload: self.workload.name().into(),
            key: key.iter().map(|b| format!("{b:02x}")).collect(),
            expected: if absent { "no value" } else { "the key with its value" }.into(),
            got: if absent { "a value" } else { "something else" }.into(),
        }
    }
}

fn ns_since(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {

    use tamis_bench::progress::NoProgress;

    use super::*;
    use crate::growth::load;

    const ALL: [Workload; 4] =
        [Workload::GetEmpty, Workload::GetExisting, Workload::Seek, Workload::Overwrite];

    #[test]
    fn all_operations_are_done_and_wrong_answers_end_the_round() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path().join("db")).unwrap();
        let keys = KeySet::uniform(300, 8, 1).unwrap();
        let round = |workload| Round {
            workload,
            keys: &keys,
            value_bytes: 16,
            ops: 1000,
            seed: 7,
            progress: &NoProgress,
        };
        load::fill(&db, &keys, 16, 2, &NoProgress).unwrap();
        for workload in ALL.into_iter().chain(ALL) {
            let (timing, mean) = round(workload).run(&db).unwrap();
            // One of each piece of 128, and one of the last, of 104.
            assert_eq!((timing.ops, timing.latency.len()), (1000, 8), "{workload}");
            assert!(timing.ns_per_op() > 0.0 && mean > 0.0);
        }
        let other = KeySet::uniform(300, 8, 2).unwrap();
        for workload in [Workload::GetExisting, Workload::Seek] {
            let longer = Round { value_bytes: 17, ..round(workload) };
            let others = Round { keys: &other, ..round(workload) };
            for wrong in [longer, others] {
                assert!(wrong.run(&db).unwrap_err().is_wrong_answer(), "{workload}");
            }
        }
        // All keys of one byte exist now, those that this set calls absent, too.
        let fewer = KeySet::uniform(3, 1, 1).unwrap();
        (0..=255u8).try_for_each(|byte| db.put([byte], b"")).unwrap();
        let stray = Round { keys: &fewer, ..round(Workload::GetEmpty) };
        assert!(stray.run(&db).unwrap_err().is_wrong_answer());
    }
}
