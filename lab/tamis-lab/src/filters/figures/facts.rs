//! The rows of a figure that can be read, and questions to them.

use crate::figures::Row;
use crate::figures::compare::{Better, Measured};
use crate::figures::compose::distinct;
use crate::figures::rows::records;
use crate::filters::{Axis, Experiment, LoadRow, Metric, ReadRow, Side};

/// The side that the paper is about.
pub(super) const OURS: &str = "grf";

/// The same filter with one Huffman-coded run number for each key.
pub(super) const HUFFMAN: &str = "grf-huffman";

/// The rows of a figure.
pub(super) struct Facts<'a> {
    pub(super) experiment: &'a Experiment,
    pub(super) loads: Vec<LoadRow>,
    pub(super) reads: Vec<ReadRow>,
}

/// One place of a figure where sides are held against each other.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct At<'a> {
    pub(super) workload: &'a str,
    pub(super) point: &'a str,
    pub(super) threads: usize,
}

impl<'a> Facts<'a> {
    pub(super) fn new(experiment: &'a Experiment, rows: &[Row]) -> Facts<'a> {
        let mut loads: Vec<LoadRow> = records(rows, "load");
        loads.retain(|row| !row.filter.is_empty());
        let mut reads: Vec<ReadRow> = records(rows, "read");
        reads.retain(|row| !row.side.is_empty() && row.measurement.ns_per_op > 0.0);
        Facts { experiment, loads, reads }
    }

    /// The workloads in the order of their rows.
    pub(super) fn workloads(&self) -> Vec<&str> {
        distinct(self.reads.iter().map(|row| row.measurement.workload.as_str()))
    }

    /// The numbers of threads in the order of their rows.
    pub(super) fn threads(&self) -> Vec<usize> {
        distinct(self.reads.iter().map(|row| row.measurement.threads))
    }

    pub(super) fn rows_of<'f>(&'f self, workload: &'f str) -> impl Iterator<Item = &'f ReadRow> {
        self.reads.iter().filter(move |row| row.measurement.workload == workload)
    }

    /// All places where a workload was measured.
    pub(super) fn places<'f>(&'f self, workload: &'f str) -> Vec<At<'f>> {
        let at = |row: &'f ReadRow| At { workload, point: &row.point, threads: row.measurement.threads };
        distinct(self.rows_of(workload).map(at))
    }

    /// The rows of one place.
    pub(super) fn rows_at<'f>(&'f self, at: &'f At<'f>) -> impl Iterator<Item = &'f ReadRow> {
        self.rows_of(at.workload).filter(|row| row.point == at.point && row.measurement.threads == at.threads)
    }

    pub(super) fn side_at<'f>(&'f self, at: &'f At<'f>, side: &str) -> Option<&'f ReadRow> {
        self.rows_at(at).find(|row| row.side == side)
    }

    /// What counts in this figure, and which way is better.
    pub(super) fn metric(&self, row: &ReadRow) -> Measured {
        match self.experiment.metric {
            Metric::Time => time(row),
            Metric::Throughput => rate(row),
        }
    }

    pub(super) fn better(&self) -> Better {
        match self.experiment.metric {
            Metric::Time => Better::Less,
            Metric::Throughput => Better::More,
        }
    }

    /// Where a row stands across, if that is a number.
    pub(super) fn x(&self, row: &ReadRow) -> Option<f64> {
        match self.experiment.axis {
            Axis::Bits(_) => row.bits,
            Axis::Threads(_) => Some(row.measurement.threads as f64),
            Axis::LevelingLevels(_) => row.leveling_levels.map(|count| count as f64),
            Axis::None => None,
        }
    }

    /// Whether a side was given a filter and keeps none: its figures say nothing of that filter.
    pub(super) fn is_bare(&self, row: &ReadRow) -> bool {
        self.loads
            .iter()
            .any(|load| load.without_filter && load.filter == row.side && load.point == row.point)
    }

    /// What makes figures say something else than it seems, a sentence each.
    pub(super) fn warnings(&self) -> Vec<String> {
        let at = |row: &LoadRow| match row.point.is_empty() {
            true => String::new(),
            false => format!(" ({})", row.point),
        };
        let bare = self.loads.iter().filter(|row| row.without_filter).map(|row| {
            format!(
                "{}{} keeps no filter in memory: its figures are those of no filter.",
                row.filter,
                at(row)
            )
        });
        let other = self.loads.iter().filter(|row| row.spends_otherwise()).map(|row| {
            format!(
                "{}{} takes {:.1} bits a key where {} were asked for: not the same memory as the others.",
                row.filter,
                at(row),
                row.filter_bits_per_key,
                row.bits_asked
            )
        });
        bare.chain(other).collect()
    }
}

/// Operations a second by the clock on the wall.
pub(super) fn rate(row: &ReadRow) -> Measured {
    let value = row.measurement.wall_ops_per_second;
    // Rows of versions that did not tell the spread.
    let least = if row.min_ops_per_second > 0.0 { row.min_ops_per_second } else { value };
    Measured::new(value, least, row.max_ops_per_second)
}

/// Runs whose data was searched, by gets or by iterators.
pub(super) fn sought(row: &ReadRow) -> Measured {
    Measured::exact(row.measurement.runs_searched_per_op + row.measurement.seeks_per_op)
}

/// Nanoseconds of an operation on its thread.
pub(super) fn time(row: &ReadRow) -> Measured {
    let value = row.measurement.ns_per_op;
    Measured::new(value, if row.min_ns > 0.0 { row.min_ns } else { value }, row.max_ns)
}

/// Whether a side is a filter of single tables.
pub(super) fn is_local(side: &str) -> bool {
    side.parse::<Side>().is_ok_and(|side| side.is_filter() && !side.is_global())
}

/// Whether a side is one of GRF's.
pub(super) fn is_grf(side: &str) -> bool {
    side == OURS || side == HUFFMAN
}
