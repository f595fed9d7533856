//! Conversion between measurements and rows.

use serde::{Deserialize, Serialize};
use tamis_bench::measure::Measurement;

use crate::figures::Row;
use crate::figures::compare::Measured;
use crate::figures::rows::records;

/// The `kind` of a [`MixRow`].
pub(super) const READ: &str = "read";

/// One side in one mix with one number of threads: the round of median throughput, and the spread of all rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MixRow {
    /// `read`.
    pub kind: String,
    /// The side's name.
    pub side: String,
    /// Its filter, by the side's name for it.
    pub selector: String,
    /// Requested filter bits per key; 0 for none.
    pub bits_asked: f64,
    /// Minimum throughput of all rounds, in operations per second of wall-clock time.
    pub min_ops_per_second: f64,
    /// Maximum throughput of all rounds.
    pub max_ops_per_second: f64,
    /// Minimum 99th percentile of all rounds, in nanoseconds.
    pub min_p99_ns: u64,
    /// Maximum 99th percentile of all rounds.
    pub max_p99_ns: u64,
    /// Bytes of filters in memory at the end; for elastic ones the used part of their budget.
    pub memory_bytes: u64,
    /// The same in bits per entry of the tree.
    pub memory_bits_per_key: f64,
    /// The round of median throughput.
    #[serde(flatten)]
    pub measurement: Measurement,
}

impl MixRow {
    /// Returns operations per second of wall-clock time.
    pub(super) fn throughput(&self) -> f64 {
        self.measurement.wall_ops_per_second
    }

    /// Returns the same with its spread.
    pub(super) fn rate(&self) -> Measured {
        Measured::new(self.throughput(), self.min_ops_per_second, self.max_ops_per_second)
    }

    /// Reports whether another side had more throughput and a lower tail latency, by more than the spreads of both.
    pub(super) fn is_dominated_by(&self, other: &MixRow) -> bool {
        other.min_ops_per_second > self.max_ops_per_second && other.max_p99_ns < self.min_p99_ns
    }

    /// Reports whether the row has the necessary values, which rows of another version, or edited ones, may lack.
    fn is_sound(&self) -> bool {
        let m = &self.measurement;
        let numbers = [m.wall_ops_per_second, self.min_ops_per_second, self.max_ops_per_second];
        !self.side.is_empty()
            && !m.workload.is_empty()
            && m.threads > 0
            && numbers.iter().all(|number| number.is_finite() && *number > 0.0)
    }
}

/// Returns all readable rows of mixes, in order; the last one of each side, mix and number of threads.
pub(super) fn mixes(rows: &[Row]) -> Vec<MixRow> {
    let mut mixes: Vec<MixRow> = Vec::new();
    for row in records::<MixRow>(rows, READ).into_iter().filter(MixRow::is_sound) {
        let at = |other: &MixRow| {
            (other.side.clone(), other.measurement.workload.clone(), other.measurement.threads)
        };
        match mixes.iter_mut().find(|other| at(other) == at(&row)) {
            Some(other) => *other = row,
            None => mixes.push(row),
        }
    }
    mixes
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::figures::rows::row;

    /// Returns a row of three rounds with throughputs 10 % apart.
    pub(in crate::ycsb) fn mix(
        side: &str,
        workload: &str,
        threads: usize,
        per_second: f64,
        p99_ns: u64,
    ) -> MixRow {
        let (selector, bits) = side.split_once('@').unwrap_or((side, "10"));
        MixRow {
            kind: READ.into(),
            side: side.into(),
            selector: selector.into(),
            bits_asked: bits.parse().unwrap(),
            min_ops_per_second: per_second * 0.95,
            max_ops_per_second: per_second * 1.05,
            min_p99_ns: p99_ns - p99_ns / 20,
            max_p99_ns: p99_ns + p99_ns / 20,
            measurement: Measurement {
                workload: workload.into(),
                threads,
                wall_ops_per_second: per_second,
                p99_ns,
                ..Measurement::default()
            },
            ..MixRow::default()
        }
    }

    #[test]
    fn the_later_of_two_rows_counts_and_broken_ones_are_skipped() {
        let whole = mix("grf", "ycsb-c", 2, 100.0, 10);
        let mut rows = vec![
            row(&mix("grf", "ycsb-c", 2, 50.0, 10)),
            row(&whole),
            row(&mix("grf", "ycsb-c", 1, 9.0, 10)),
        ];
        for broken in [
            r#"{"kind": "read"}"#,
            r#"{"kind": "read", "side": "grf", "workload": "ycsb-c", "threads": 2}"#,
            r#"{"kind": "read", "side": "grf", "workload": "ycsb-c", "threads": -2, "wall_ops_per_second": 5}"#,
            r#"{"kind": 7}"#,
            r#"{}"#,
        ] {
            rows.push(serde_json::from_str(broken).unwrap());
        }
        let read = mixes(&rows);
        assert_eq!(read.len(), 2);
        assert_eq!(read[0], whole);
    }

    #[test]
    fn a_side_is_dominated_only_if_both_differ_by_more_than_the_spread() {
        let slow = mix("bloom", "ycsb-c", 1, 100.0, 1000);
        for (per_second, p99, dominates) in
            [(200.0, 500, true), (200.0, 990, false), (105.0, 500, false), (50.0, 500, false)]
        {
            assert_eq!(
                slow.is_dominated_by(&mix("grf", "ycsb-c", 1, per_second, p99)),
                dominates,
                "{per_second} {p99}"
            );
        }
        assert!(!slow.is_dominated_by(&slow));
    }
}
