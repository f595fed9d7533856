//! The figures of a row by name: their units, their direction, and when they are meaningless.

use tamis_bench::Workload;

use crate::record::{Figures, Row};

/// One of the figures of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Figure {
    NsPerOp,
    OpsPerSecond,
    Open,
    P50,
    P99,
    P999,
    PutP9999,
    SlowestPut,
    MedianSecond,
    WorstSecond,
    WriteAmplification,
    UnsettledSpace,
    SpaceAmplification,
    Resident,
    Filters,
    FilterBits,
    Indexes,
    Runs,
    Cpu,
    Instructions,
    ReadBytes,
    DeviceReadBytes,
    Reads,
    Faults,
    Settle,
    Wall,
}

/// The unit in which a figure is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Nanoseconds,
    /// Stored as operations per second, written in thousands.
    Thousands,
    Bytes,
    /// A plain number: amplifications, runs, bits.
    Plain,
}

/// The quantiles in ascending order.
pub(super) const QUANTILES: [Figure; 3] = [Figure::P50, Figure::P99, Figure::P999];

/// The costs of a system, in the order of the tables.
pub(super) const COSTS: [Figure; 21] = [
    Figure::Open,
    Figure::PutP9999,
    Figure::SlowestPut,
    Figure::MedianSecond,
    Figure::WorstSecond,
    Figure::WriteAmplification,
    Figure::UnsettledSpace,
    Figure::SpaceAmplification,
    Figure::Resident,
    Figure::Filters,
    Figure::FilterBits,
    Figure::Indexes,
    Figure::Runs,
    Figure::Cpu,
    Figure::Instructions,
    Figure::ReadBytes,
    Figure::DeviceReadBytes,
    Figure::Reads,
    Figure::Faults,
    Figure::Settle,
    Figure::Wall,
];

impl Figure {
    /// All figures.
    pub(super) const ALL: [Figure; 26] = [
        Figure::NsPerOp,
        Figure::OpsPerSecond,
        Figure::Open,
        Figure::P50,
        Figure::P99,
        Figure::P999,
        Figure::PutP9999,
        Figure::SlowestPut,
        Figure::MedianSecond,
        Figure::WorstSecond,
        Figure::WriteAmplification,
        Figure::UnsettledSpace,
        Figure::SpaceAmplification,
        Figure::Resident,
        Figure::Filters,
        Figure::FilterBits,
        Figure::Indexes,
        Figure::Runs,
        Figure::Cpu,
        Figure::Instructions,
        Figure::ReadBytes,
        Figure::DeviceReadBytes,
        Figure::Reads,
        Figure::Faults,
        Figure::Settle,
        Figure::Wall,
    ];

    /// Returns the figure by which a suite is judged: throughput for mixes of operations and where threads wait for each
    /// other or for background work, time for the others.
    pub(super) fn headline(suite: &str) -> Figure {
        if matches!(suite, "ycsb" | "mixgraph" | "writers" | "sync" | "steady") {
            Figure::OpsPerSecond
        } else if suite == "opening" {
            Figure::Open
        } else {
            Figure::NsPerOp
        }
    }

    /// Returns its name with its unit.
    pub(super) fn title(self) -> &'static str {
        match self {
            Figure::NsPerOp => "ns per operation",
            Figure::OpsPerSecond => "thousand operations per second",
            Figure::Open => "ns of an opening, with none of the files in the page cache",
            Figure::P50 => "p50, ns",
            Figure::P99 => "p99, ns",
            Figure::P999 => "p99.9, ns",
            Figure::PutP9999 => "p99.99 of puts, ns",
            Figure::SlowestPut => "the slowest put, ns",
            Figure::MedianSecond => "puts in the median second, thousands",
            Figure::WorstSecond => "puts in the worst second, thousands",
            Figure::WriteAmplification => {
                "write amplification: bytes written to files, including the log, / bytes put"
            }
            Figure::UnsettledSpace => {
                "space right after the last operation: bytes of files / bytes of keys and values"
            }
            Figure::SpaceAmplification => "space: bytes of files / bytes of keys and values",
            Figure::Resident => "resident memory of the process, excluding mapped files",
            Figure::Filters => "filters in memory, as reported by the engine",
            Figure::FilterBits => "filters in memory, bits per key of the database",
            Figure::Indexes => "indexes in memory, as reported by the engine",
            Figure::Runs => "sorted runs, as reported by the engine",
            Figure::Cpu => "processor time of the process, ns per operation",
            Figure::Instructions => "instructions of the calling thread per operation, counted by callgrind",
            Figure::ReadBytes => "bytes requested from the system per operation, excluding mapped files",
            Figure::DeviceReadBytes => "bytes read from the device per operation",
            Figure::Reads => "read calls per operation, excluding io_uring",
            Figure::Faults => "page faults that read from the device, per operation",
            Figure::Settle => "ns from the last operation until compaction had finished",
            Figure::Wall => {
                "ns per operation by the clock on the wall, including the preparation of operations"
            }
        }
    }

    /// Returns a short name for lists.
    pub(super) fn name(self) -> &'static str {
        match self {
            Figure::NsPerOp => "time",
            Figure::OpsPerSecond => "throughput",
            Figure::Open => "opening",
            Figure::P50 => "p50",
            Figure::P99 => "p99",
            Figure::P999 => "p99.9",
            Figure::PutP9999 => "p99.99 of puts",
            Figure::SlowestPut => "slowest put",
            Figure::MedianSecond => "median second",
            Figure::WorstSecond => "worst second",
            Figure::WriteAmplification => "write amplification",
            Figure::UnsettledSpace => "space after the last operation",
            Figure::SpaceAmplification => "space",
            Figure::Resident => "resident memory",
            Figure::Filters => "filters",
            Figure::FilterBits => "filter bits per key",
            Figure::Indexes => "indexes",
            Figure::Runs => "runs",
            Figure::Cpu => "processor time",
            Figure::Instructions => "instructions",
            Figure::ReadBytes => "bytes read",
            Figure::DeviceReadBytes => "bytes from the device",
            Figure::Reads => "read calls",
            Figure::Faults => "page faults that read",
            Figure::Settle => "settling",
            Figure::Wall => "time on the wall",
        }
    }

    /// Returns its unit.
    pub(super) fn unit(self) -> Unit {
        match self {
            Figure::NsPerOp
            | Figure::Open
            | Figure::P50
            | Figure::P99
            | Figure::P999
            | Figure::PutP9999
            | Figure::SlowestPut
            | Figure::Cpu
            | Figure::Settle
            | Figure::Wall => Unit::Nanoseconds,
            Figure::OpsPerSecond | Figure::MedianSecond | Figure::WorstSecond => Unit::Thousands,
            Figure::Resident
            | Figure::Filters
            | Figure::Indexes
            | Figure::ReadBytes
            | Figure::DeviceReadBytes => Unit::Bytes,
            Figure::WriteAmplification
            | Figure::UnsettledSpace
            | Figure::SpaceAmplification
            | Figure::FilterBits
            | Figure::Instructions
            | Figure::Reads
            | Figure::Faults
            | Figure::Runs => Unit::Plain,
        }
    }

    /// Returns a round's value. `None` where it is meaningless: a time, a throughput or an amplification of 0 was not
    /// measured, an engine may not report it, and a negative or infinite number is invalid. After insertions the number of keys is not
    /// known, and so neither are the bits of each.
    pub(super) fn of(self, row: &Row) -> Option<f64> {
        if row.is_counted() != (self == Figure::Instructions) {
            return None;
        }
        let figures = &row.figures;
        let inside = &figures.inside;
        let known = |bytes: Option<u64>| bytes.map_or(f64::NAN, |bytes| bytes as f64);
        let (value, zero_counts) = match self {
            Figure::NsPerOp => (figures.ns_per_op, false),
            Figure::OpsPerSecond => (figures.ops_per_second, false),
            Figure::Open => (figures.open_ns as f64, false),
            Figure::P50 => (figures.p50_ns as f64, false),
            Figure::P99 => (figures.p99_ns as f64, false),
            Figure::P999 => (figures.p999_ns as f64, false),
            Figure::PutP9999 => (figures.put_p9999_ns as f64, false),
            Figure::SlowestPut => (figures.slowest_put_ns as f64, false),
            Figure::MedianSecond => (second(figures, |whole| whole[whole.len() / 2]), false),
            // A second without a put is a measurement, too.
            Figure::WorstSecond => (second(figures, |whole| whole[0]), true),
            Figure::WriteAmplification => (figures.write_amplification, false),
            Figure::UnsettledSpace => (figures.space_amplification_before_settling, false),
            Figure::SpaceAmplification => (figures.space_amplification, false),
            Figure::Resident => (figures.resident_bytes as f64, false),
            Figure::Cpu => (figures.cpu_ns_per_op, false),
            Figure::Settle => (figures.settle_ns as f64, false),
            Figure::Wall => (figures.wall_ns_per_op, false),
            Figure::ReadBytes => (figures.read_bytes_per_op, true),
            Figure::DeviceReadBytes => (figures.device_read_bytes_per_op, true),
            Figure::Reads => (figures.reads_per_op, false),
            Figure::Faults => (figures.major_faults_per_op, false),
            Figure::Filters => (known(inside.filter_bytes), true),
            Figure::FilterBits => (known(inside.filter_bytes) * 8.0 / keys_of(row), true),
            Figure::Instructions => (figures.instructions_per_op, false),
            Figure::Indexes => (known(inside.index_bytes), true),
            Figure::Runs => (known(inside.runs), true),
        };
        (value.is_finite() && (value > 0.0 || zero_counts && value == 0.0)).then_some(value)
    }

    /// Reports whether more is better.
    pub(super) fn is_rate(self) -> bool {
        matches!(self, Figure::OpsPerSecond | Figure::MedianSecond | Figure::WorstSecond)
    }

    /// Reports whether `a` is better than `b`.
    pub(super) fn better(self, a: f64, b: f64) -> bool {
        if self.is_rate() { a > b } else { a < b }
    }

    /// Returns the factor by which `ours` is better than `other`: above 1 is ahead. Two zeros are equal; a zero of ours
    /// against anything else is infinitely better.
    pub(super) fn ratio(self, ours: f64, other: f64) -> f64 {
        let (above, below) = if self.is_rate() { (ours, other) } else { (other, ours) };
        match (above == 0.0, below == 0.0) {
            (true, true) => 1.0,
            (false, true) => f64::INFINITY,
            _ => above / below,
        }
    }
}

/// Returns the number of keys after a row; NaN if it inserted some.
fn keys_of(row: &Row) -> f64 {
    let inserts = row.conditions.workload.parse::<Workload>().is_ok_and(Workload::inserts);
    if inserts { f64::NAN } else { row.conditions.keys as f64 }
}

/// Returns a number of puts chosen from those of the whole seconds in ascending order, the last second being incomplete;
/// NaN for fewer than three.
fn second(figures: &Figures, choose: impl FnOnce(&[u32]) -> u32) -> f64 {
    let mut whole = figures.puts_by_second.clone();
    whole.pop();
    whole.sort_unstable();
    if whole.len() < 3 { f64::NAN } else { f64::from(choose(&whole)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::row;

    #[test]
    fn unmeasured_values_are_no_figures() {
        let of = |figures| Row { figures, ..row("runs", "seek", "tamis", 0, 1.0) };
        let none = of(Figures { write_amplification: -1.0, ns_per_op: f64::NAN, ..Figures::default() });
        let told: Vec<Figure> = Figure::ALL.into_iter().filter(|figure| figure.of(&none).is_some()).collect();
        // Zero bytes read is a measurement, unlike the other zeros.
        assert_eq!(told, [Figure::ReadBytes, Figure::DeviceReadBytes]);
        let mut some = of(Figures { ns_per_op: 2.0, ..Figures::default() });
        some.figures.inside.filter_bytes = Some(0);
        assert_eq!(Figure::NsPerOp.of(&some), Some(2.0));
        assert_eq!(Figure::Filters.of(&some), Some(0.0));
        assert_eq!(Figure::Indexes.of(&some), None);
    }

    #[test]
    fn bits_per_key_are_of_all_keys_where_their_number_is_known() {
        let mut measured = row("ycsb", "ycsb-a", "tamis", 0, 1.0);
        assert_eq!(Figure::FilterBits.of(&measured), None);
        measured.conditions.keys = 4_000_000;
        measured.figures.inside.filter_bytes = Some(5_000_000);
        measured.figures.write_amplification = 3.0;
        assert_eq!(Figure::FilterBits.of(&measured), Some(10.0));
        measured.conditions.workload = "ycsb-d".to_owned();
        assert_eq!(Figure::FilterBits.of(&measured), None);
        measured.conditions = crate::record::Conditions { keys: 0, ..measured.conditions };
        measured.conditions.workload = "ycsb-a".to_owned();
        assert_eq!(Figure::FilterBits.of(&measured), None);
    }

    #[test]
    fn a_row_with_instructions_has_nothing_else() {
        let mut counted = row("settled", "seek", "tamis", 5, 1.0);
        assert_eq!(Figure::Instructions.of(&counted), None);
        counted.figures.instructions_per_op = 612.5;
        let told: Vec<Figure> =
            Figure::ALL.into_iter().filter(|figure| figure.of(&counted).is_some()).collect();
        assert_eq!((told, Figure::Instructions.of(&counted)), (vec![Figure::Instructions], Some(612.5)));
    }

    #[test]
    fn seconds_count_if_they_are_whole() {
        let of = |puts_by_second: &[u32]| {
            let figures = Figures { puts_by_second: puts_by_second.to_vec(), ..Figures::default() };
            let measured = Row { figures, ..row("steady", "overwrite", "tamis", 0, 1.0) };
            [Figure::MedianSecond, Figure::WorstSecond].map(|figure| figure.of(&measured))
        };
        assert_eq!(of(&[]), [None, None]);
        assert_eq!(of(&[5, 6, 1]), [None, None]);
        assert_eq!(of(&[5, 9, 6, 1]), [Some(6.0), Some(5.0)]);
        assert_eq!(of(&[5, 0, 6, 7, 1]), [Some(6.0), Some(0.0)]);
    }

    #[test]
    fn above_one_is_ahead_for_times_and_for_throughput() {
        assert_eq!(Figure::NsPerOp.ratio(100.0, 250.0), 2.5);
        assert_eq!(Figure::OpsPerSecond.ratio(100.0, 250.0), 0.4);
        assert_eq!(Figure::ReadBytes.ratio(0.0, 0.0), 1.0);
        assert_eq!(Figure::ReadBytes.ratio(0.0, 5.0), f64::INFINITY);
        assert_eq!(Figure::ReadBytes.ratio(5.0, 0.0), 0.0);
        assert!(Figure::NsPerOp.better(1.0, 2.0) && !Figure::NsPerOp.better(2.0, 2.0));
        assert!(Figure::OpsPerSecond.better(2.0, 1.0));
    }

    #[test]
    fn every_figure_is_headline_quantile_or_cost() {
        for figure in Figure::ALL {
            let heads = [Figure::NsPerOp, Figure::OpsPerSecond];
            let places = [heads.contains(&figure), QUANTILES.contains(&figure), COSTS.contains(&figure)];
            assert_eq!(places.iter().filter(|there| **there).count(), 1, "{figure:?}");
        }
        assert_eq!(Figure::headline("ycsb"), Figure::OpsPerSecond);
        assert_eq!(Figure::headline("settled"), Figure::NsPerOp);
    }
}
