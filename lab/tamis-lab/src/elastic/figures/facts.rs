//! The readable rows of a figure, and queries on them.

use tamis_bench::report::grouped;

use crate::elastic::rounds::TIMED;
use crate::elastic::rows::{MissingRow, ReadRow, RestartRow, ShiftRow, TableRow, WARMUP, WindowRow};
use crate::elastic::{ElasticExperiment, LoadRow};
use crate::figures::Row;
use crate::figures::compare::{Better, Gain, Measured, other_memory};
use crate::figures::compose::distinct;
use crate::figures::rows::records;

/// Elastic filters that do not inherit hotness: not the paper's subject.
pub(super) const COLD: &str = "elastic-cold";

/// Share of late reads from which they are reported.
const MANY_LATE: f64 = 0.1;

/// The rows of a figure.
pub(super) struct Facts<'a> {
    pub(super) experiment: &'a ElasticExperiment,
    /// Each database once, with its first row.
    pub(super) loads: Vec<LoadRow>,
    pub(super) reads: Vec<ReadRow>,
    /// Windows before the first round.
    pub(super) warmups: Vec<WindowRow>,
    pub(super) windows: Vec<WindowRow>,
    pub(super) shifts: Vec<ShiftRow>,
    pub(super) restarts: Vec<RestartRow>,
    pub(super) tables: Vec<TableRow>,
    pub(super) missing: Vec<MissingRow>,
}

impl<'a> Facts<'a> {
    pub(super) fn new(experiment: &'a ElasticExperiment, rows: &[Row]) -> Facts<'a> {
        let mut loads: Vec<LoadRow> = Vec::new();
        for load in records::<LoadRow>(rows, "load") {
            let same = |other: &LoadRow| other.filter == load.filter && other.point == load.point;
            if !load.filter.is_empty() && !loads.iter().any(same) {
                loads.push(load);
            }
        }
        let mut reads: Vec<ReadRow> = records(rows, "read");
        reads.retain(|row| !row.side.is_empty() && row.measurement.ns_per_op > 0.0);
        let mut tables: Vec<TableRow> = records(rows, "table");
        tables.retain(|row| !row.side.is_empty());
        Facts {
            experiment,
            loads,
            reads,
            warmups: records(rows, WARMUP),
            windows: records(rows, "window"),
            shifts: records(rows, "shift"),
            restarts: records(rows, "restart"),
            tables,
            missing: records(rows, "missing"),
        }
    }

    /// Returns the workloads in the order of their rows.
    pub(super) fn workloads(&self) -> Vec<&str> {
        distinct(self.reads.iter().map(|row| row.measurement.workload.as_str()))
    }

    pub(super) fn rows_of<'f>(&'f self, workload: &'f str) -> impl Iterator<Item = &'f ReadRow> {
        self.reads.iter().filter(move |row| row.measurement.workload == workload)
    }

    /// Returns the fixed filter that a row is compared with: the first side that is not elastic at the same point.
    pub(super) fn fixed_for(&self, row: &ReadRow) -> Option<&ReadRow> {
        self.all_fixed_for(row).next()
    }

    /// Returns the rows of all sides at the same point that are not elastic.
    pub(super) fn all_fixed_for(&self, row: &ReadRow) -> impl Iterator<Item = &ReadRow> {
        let same = |other: &&ReadRow| {
            other.measurement.workload == row.measurement.workload && other.point == row.point
        };
        self.reads.iter().filter(same).filter(|other| !other.elastic)
    }

    /// Reports whether a row's filters take another amount of memory than those of the fixed filter at its point.
    pub(super) fn spends_otherwise(&self, row: &ReadRow) -> bool {
        let fixed = self.fixed_for(row);
        fixed.is_some_and(|fixed| other_memory(row.memory_bits_per_key, fixed.memory_bits_per_key))
    }

    /// Returns the localities of the skewed points, ascending. Uniform gets belong to all of them.
    pub(super) fn localities(&self) -> Vec<u64> {
        let mut found = distinct(self.reads.iter().filter(|row| row.skew > 0.0).map(|row| row.locality));
        found.sort_unstable();
        found
    }

    /// Returns the facts with the points of one locality only.
    pub(super) fn at_locality(&self, locality: u64) -> Facts<'a> {
        let here = |row: &&ReadRow| row.skew == 0.0 || row.locality == locality;
        Facts {
            experiment: self.experiment,
            loads: self.loads.clone(),
            reads: self.reads.iter().filter(here).cloned().collect(),
            warmups: Vec::new(),
            windows: Vec::new(),
            shifts: Vec::new(),
            restarts: Vec::new(),
            tables: self.tables.clone(),
            missing: self.missing.clone(),
        }
    }

    /// Returns the elastic rows that satisfy `keep`, each with its fixed row, without rows that say nothing about their
    /// filters.
    pub(super) fn pairs(&self, keep: impl Fn(&ReadRow) -> bool) -> Vec<(&ReadRow, &ReadRow)> {
        let ours = self.reads.iter().filter(|row| row.elastic && row.side != COLD && keep(row));
        let pair = |row| Some((row, self.fixed_for(row)?));
        ours.filter_map(pair).filter(|(row, fixed)| !row.without_filter && !fixed.without_filter).collect()
    }

    /// Returns the gains of elastic filters over fixed ones at the points that satisfy `keep`.
    pub(super) fn gains(
        &self,
        keep: impl Fn(&ReadRow) -> bool,
        of: fn(&ReadRow) -> Option<Measured>,
        better: Better,
    ) -> Vec<Gain> {
        let pairs = self.pairs(keep).into_iter();
        pairs.filter_map(|(row, fixed)| Gain::of(of(row)?, of(fixed)?, better)).collect()
    }

    /// Returns the settings of loading under which the sides do not have the same runs, each with all runs.
    pub(super) fn unequal_trees(&self) -> Vec<(&str, String)> {
        let loads = || self.loads.iter().filter(|row| row.point != TIMED);
        let points = distinct(loads().map(|row| row.point.as_str()));
        let unequal = |point: &'_ str| {
            let here = || loads().filter(|row| row.point == point);
            let several = distinct(here().map(|row| row.runs.as_str())).len() > 1;
            let each = here().map(|row| format!("{} {}", row.filter, row.runs)).collect::<Vec<_>>();
            several.then(|| each.join(", "))
        };
        points.into_iter().filter_map(|point| Some((point, unequal(point)?))).collect()
    }

    /// Returns warnings about misleading figures, one sentence each.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (point, runs) in self.unequal_trees() {
            let at = if point.is_empty() { "All points" } else { point };
            lines.push(format!("{at}: the sides do not have the same runs by level: {runs}."));
        }
        for row in &self.reads {
            let at = match row.point.is_empty() {
                true => row.measurement.workload.clone(),
                false => format!("{}, {}", row.measurement.workload, row.point),
            };
            if row.without_filter {
                lines.push(format!(
                    "{at}: {} keeps no filter in memory: its figures are those of no filter.",
                    row.side
                ));
            }
            if let Some(fixed) = self.fixed_for(row).filter(|_| self.spends_otherwise(row)) {
                lines.push(format!(
                    "{at}: {} takes {:.2} bits per key and {} {:.2}: not the same memory.",
                    row.side, row.memory_bits_per_key, fixed.side, fixed.memory_bits_per_key
                ));
            }
            if row.elastic && row.warmup_settled == Some(false) {
                lines.push(format!(
                    "{at}: the placement of {} had not settled after {} gets.",
                    row.side,
                    grouped(row.warmup)
                ));
            }
            if let (Some(reads), Some(late)) = (row.device_reads_per_op, row.late_reads_per_op)
                && late > reads * MANY_LATE
            {
                let ns = row.device_ns_per_op.unwrap_or(0.0) / reads;
                lines.push(format!(
                    "{at}: {:.0} % of the reads of {} took longer than {} does; a read took {ns:.0} ns on average.",
                    late / reads * 100.0,
                    row.side,
                    row.device
                ));
            }
            if row.failed_loads > 0 {
                lines.push(format!(
                    "{at}: {} did not get {} units that it requested: unreadable, or no memory left after loading.",
                    row.side, row.failed_loads
                ));
            }
        }
        lines
    }
}

/// Returns operations per second of wall-clock time.
pub(super) fn rate(row: &ReadRow) -> Option<Measured> {
    let value = row.measurement.wall_ops_per_second;
    let least = if row.min_ops_per_second > 0.0 { row.min_ops_per_second } else { value };
    Some(Measured::new(value, least, row.max_ops_per_second))
}

/// Returns the duration of an operation on its thread in nanoseconds.
pub(super) fn time(row: &ReadRow) -> Option<Measured> {
    let value = row.measurement.ns_per_op;
    Some(Measured::new(value, if row.min_ns > 0.0 { row.min_ns } else { value }, row.max_ns))
}

/// Returns the data blocks read per operation.
pub(super) fn blocks(row: &ReadRow) -> Option<Measured> {
    Some(Measured::exact(row.blocks_per_op))
}

/// Returns the digests computed per operation.
pub(super) fn digests(row: &ReadRow) -> Option<Measured> {
    Some(Measured::exact(row.measurement.digests_per_op))
}

/// Returns the filters asked per operation, each with all its units.
pub(super) fn probes(row: &ReadRow) -> Option<Measured> {
    Some(Measured::exact(row.measurement.filter_probes_per_op))
}

/// Returns the wasted reads per operation, with those of the first and of the last round as their spread: which keys a
/// filter takes for its own is chance.
pub(super) fn in_vain(row: &ReadRow) -> Option<Measured> {
    let value = row.in_vain_per_op?;
    let ends = [row.in_vain_first, row.in_vain_last].into_iter().flatten();
    Some(
        ends.fold(Measured::exact(value), |all, end| {
            Measured::new(value, all.least.min(end), all.most.max(end))
        }),
    )
}
