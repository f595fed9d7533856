//! The readable rows of a figure, and queries on them.

use crate::figures::Row;
use crate::figures::compare::{Better, Measured, first_memory, other_memory};
use crate::figures::compose::distinct;
use crate::figures::rows::records;
use crate::filters::{Axis, Experiment, LoadRow, Metric, ReadRow, Side};

/// The side that the paper proposes.
pub(super) const OURS: &str = "grf";

/// The same filter with one Huffman-coded run number per key.
pub(super) const HUFFMAN: &str = "grf-huffman";

/// The scan whose shaded part is the time of a shorter one.
pub(super) const SCAN: &str = "seek-next50";
pub(super) const SHORTER_SCAN: &str = "seek-next20";

/// The rows of a figure.
pub(super) struct Facts<'a> {
    pub(super) experiment: &'a Experiment,
    pub(super) loads: Vec<LoadRow>,
    pub(super) reads: Vec<ReadRow>,
}

/// One place of a figure at which sides are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct At<'a> {
    pub(super) key_set: &'a str,
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

    /// Returns the key sets in the order of their rows.
    pub(super) fn key_sets(&self) -> Vec<&str> {
        let loads = self.loads.iter().map(|row| row.key_set.as_str());
        distinct(loads.chain(self.reads.iter().map(|row| row.measurement.key_set.as_str())))
    }

    /// Returns the rows of each key set, with the name of the set where there are several.
    pub(super) fn by_key_set(&self) -> Vec<(Option<&str>, Facts<'a>)> {
        let names = self.key_sets();
        let several = names.len() > 1;
        let of = |name: &str| Facts {
            experiment: self.experiment,
            loads: self.loads.iter().filter(|row| row.key_set == name).cloned().collect(),
            reads: self.reads.iter().filter(|row| row.measurement.key_set == name).cloned().collect(),
        };
        names.into_iter().map(|name| (several.then_some(name), of(name))).collect()
    }

    /// Returns the workloads in the order of their rows.
    pub(super) fn workloads(&self) -> Vec<&str> {
        distinct(self.reads.iter().map(|row| row.measurement.workload.as_str()))
    }

    /// Returns the numbers of threads in the order of their rows.
    pub(super) fn threads(&self) -> Vec<usize> {
        distinct(self.reads.iter().map(|row| row.measurement.threads))
    }

    pub(super) fn rows_of<'f>(&'f self, workload: &'f str) -> impl Iterator<Item = &'f ReadRow> {
        self.reads.iter().filter(move |row| row.measurement.workload == workload)
    }

    /// Returns all places where a workload was measured.
    pub(super) fn places<'f>(&'f self, workload: &'f str) -> Vec<At<'f>> {
        let at = |row: &'f ReadRow| At {
            key_set: &row.measurement.key_set,
            workload,
            point: &row.point,
            threads: row.measurement.threads,
        };
        distinct(self.rows_of(workload).map(at))
    }

    /// Returns the rows of one place.
    pub(super) fn rows_at<'f>(&'f self, at: At<'f>) -> impl Iterator<Item = &'f ReadRow> {
        self.rows_of(at.workload).filter(move |row| {
            let m = &row.measurement;
            m.key_set == at.key_set && row.point == at.point && m.threads == at.threads
        })
    }

    pub(super) fn side_at<'f>(&'f self, at: At<'f>, side: &str) -> Option<&'f ReadRow> {
        self.rows_at(at).find(|row| row.side == side)
    }

    /// Returns the shaded part of an operation's time, as in the paper: that of asking filters, or for a seek and 50
    /// steps that of a seek and 20. At most the whole.
    pub(super) fn shade(&self, row: &ReadRow) -> Option<f64> {
        let m = &row.measurement;
        let shorter = |at: At<'_>| self.side_at(at, &row.side).map(|shorter| shorter.measurement.ns_per_op);
        let part = match m.workload.as_str() {
            SCAN => shorter(At {
                key_set: &m.key_set,
                workload: SHORTER_SCAN,
                point: &row.point,
                threads: m.threads,
            }),
            _ => row.filter_ns,
        };
        part.map(|part| part.min(m.ns_per_op))
    }

    /// Returns the quantity by which this figure compares sides, and its direction.
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

    /// Returns a row's value on the horizontal axis, if it is a number.
    pub(super) fn x(&self, row: &ReadRow) -> Option<f64> {
        match self.experiment.axis {
            Axis::Bits(_) => row.bits,
            Axis::Threads(_) | Axis::InFlight(_) => Some(row.measurement.threads as f64),
            Axis::LevelingLevels(_) => row.leveling_levels.map(|count| count as f64),
            Axis::None => None,
        }
    }

    /// Reports whether a side was configured with a filter but keeps none: its figures say nothing about that filter.
    pub(super) fn is_bare(&self, row: &ReadRow) -> bool {
        self.loads.iter().any(|load| {
            let here = load.key_set == row.measurement.key_set && load.point == row.point;
            load.without_filter && load.filter == row.side && here
        })
    }

    /// Returns the filter bits per key of the first side at the same place that has a filter.
    pub(super) fn first_memory(&self, key_set: &str, point: &str) -> f64 {
        let here = self.loads.iter().filter(|load| load.key_set == key_set && load.point == point);
        first_memory(here.map(|load| load.filter_bits_per_key))
    }

    /// Returns the filter bits per key of a row's side.
    pub(super) fn memory(&self, row: &ReadRow) -> f64 {
        let of = |load: &&LoadRow| {
            load.filter == row.side && load.key_set == row.measurement.key_set && load.point == row.point
        };
        self.loads.iter().find(of).map_or(0.0, |load| load.filter_bits_per_key)
    }

    /// Reports whether a side's filter takes another amount of memory than the first one at its place.
    pub(super) fn spends_otherwise(&self, row: &LoadRow) -> bool {
        other_memory(row.filter_bits_per_key, self.first_memory(&row.key_set, &row.point))
    }

    /// Returns warnings about misleading figures, one sentence each.
    pub(super) fn warnings(&self) -> Vec<String> {
        let several = self.key_sets().len() > 1;
        let at = |row: &LoadRow| {
            let set = if several { row.key_set.as_str() } else { "" };
            let parts: Vec<&str> = [set, &row.point].into_iter().filter(|part| !part.is_empty()).collect();
            if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
        };
        let bare = self.loads.iter().filter(|row| row.without_filter).map(|row| {
            format!(
                "{}{} keeps no filter in memory: its figures are those of no filter.",
                row.filter,
                at(row)
            )
        });
        let spending = distinct(self.loads.iter().map(|row| row.filter.as_str()));
        let other = spending.into_iter().filter_map(|side| {
            let of_side = self.loads.iter().filter(|row| row.filter == side);
            let others: Vec<&LoadRow> = of_side.clone().filter(|row| self.spends_otherwise(row)).collect();
            let times = others.iter().map(|row| {
                row.filter_bits_per_key / self.first_memory(&row.key_set, &row.point)
            });
            let (least, most) =
                times.fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), n| (least.min(n), most.max(n)));
            (!others.is_empty()).then(|| {
                format!(
                    "{side} takes {least:.2} to {most:.2} times the memory of the first side at {} of {} points.",
                    others.len(),
                    of_side.count()
                )
            })
        });
        bare.chain(other).collect()
    }
}

/// Returns operations per second of wall-clock time.
pub(super) fn rate(row: &ReadRow) -> Measured {
    let value = row.measurement.wall_ops_per_second;
    // Rows of earlier versions have no spread.
    let least = if row.min_ops_per_second > 0.0 { row.min_ops_per_second } else { value };
    Measured::new(value, least, row.max_ops_per_second)
}

/// Returns the number of runs whose data was searched by gets or by iterators.
pub(super) fn sought(row: &ReadRow) -> Measured {
    Measured::exact(row.measurement.runs_searched_per_op + row.measurement.seeks_per_op)
}

/// Returns the duration of an operation on its thread in nanoseconds.
pub(super) fn time(row: &ReadRow) -> Measured {
    let value = row.measurement.ns_per_op;
    Measured::new(value, if row.min_ns > 0.0 { row.min_ns } else { value }, row.max_ns)
}

/// Reports whether a side is a filter of single tables.
pub(super) fn is_local(side: &str) -> bool {
    side.parse::<Side>().is_ok_and(|side| side.is_filter() && !side.is_global())
}

/// Reports whether a side is one of GRF's.
pub(super) fn is_grf(side: &str) -> bool {
    side == OURS || side == HUFFMAN
}
