//! The figures of a row by name: which are times, which of two is the better one, and which say nothing.

use crate::record::Figures;

/// One of the figures that a round has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Figure {
    NsPerOp,
    OpsPerSecond,
    P50,
    P99,
    P999,
    WriteAmplification,
    SpaceAmplification,
    Resident,
    Filters,
    Indexes,
    Runs,
    Cpu,
    ReadBytes,
    DeviceReadBytes,
    Settle,
}

/// In which unit a figure is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Nanoseconds,
    /// Stored as operations per second, written in thousands.
    Thousands,
    Bytes,
    /// A number by itself: amplifications, runs.
    Plain,
}

/// The quantiles, in order.
pub(super) const QUANTILES: [Figure; 3] = [Figure::P50, Figure::P99, Figure::P999];

/// What a system costs, in the order of the tables.
pub(super) const COSTS: [Figure; 10] = [
    Figure::WriteAmplification,
    Figure::SpaceAmplification,
    Figure::Resident,
    Figure::Filters,
    Figure::Indexes,
    Figure::Runs,
    Figure::Cpu,
    Figure::ReadBytes,
    Figure::DeviceReadBytes,
    Figure::Settle,
];

impl Figure {
    /// All of them.
    pub(super) const ALL: [Figure; 15] = [
        Figure::NsPerOp,
        Figure::OpsPerSecond,
        Figure::P50,
        Figure::P99,
        Figure::P999,
        Figure::WriteAmplification,
        Figure::SpaceAmplification,
        Figure::Resident,
        Figure::Filters,
        Figure::Indexes,
        Figure::Runs,
        Figure::Cpu,
        Figure::ReadBytes,
        Figure::DeviceReadBytes,
        Figure::Settle,
    ];

    /// The figure that a suite is about: mixes of operations are told by throughput, the others by time.
    pub(super) fn headline(suite: &str) -> Figure {
        if matches!(suite, "ycsb" | "mixgraph") { Figure::OpsPerSecond } else { Figure::NsPerOp }
    }

    /// What it is called, with its unit.
    pub(super) fn title(self) -> &'static str {
        match self {
            Figure::NsPerOp => "ns per operation",
            Figure::OpsPerSecond => "thousand operations a second",
            Figure::P50 => "p50, ns",
            Figure::P99 => "p99, ns",
            Figure::P999 => "p99.9, ns",
            Figure::WriteAmplification => {
                "write amplification: bytes written to files, log included, by bytes put"
            }
            Figure::SpaceAmplification => "space: bytes of files by bytes of keys and values",
            Figure::Resident => "resident memory of the process, mapped files not counted",
            Figure::Filters => "filters in memory, as the engine says",
            Figure::Indexes => "indexes in memory, as the engine says",
            Figure::Runs => "sorted runs, as the engine says",
            Figure::Cpu => "processor time of the process, ns per operation",
            Figure::ReadBytes => "bytes asked of the system per operation, mapped files not counted",
            Figure::DeviceReadBytes => "bytes read from the device per operation",
            Figure::Settle => "ns from the last operation until compaction was done",
        }
    }

    /// A short name, for lists.
    pub(super) fn name(self) -> &'static str {
        match self {
            Figure::NsPerOp => "time",
            Figure::OpsPerSecond => "throughput",
            Figure::P50 => "p50",
            Figure::P99 => "p99",
            Figure::P999 => "p99.9",
            Figure::WriteAmplification => "write amplification",
            Figure::SpaceAmplification => "space",
            Figure::Resident => "resident memory",
            Figure::Filters => "filters",
            Figure::Indexes => "indexes",
            Figure::Runs => "runs",
            Figure::Cpu => "processor time",
            Figure::ReadBytes => "bytes read",
            Figure::DeviceReadBytes => "bytes from the device",
            Figure::Settle => "settling",
        }
    }

    /// In which unit it is written.
    pub(super) fn unit(self) -> Unit {
        match self {
            Figure::NsPerOp | Figure::P50 | Figure::P99 | Figure::P999 | Figure::Cpu | Figure::Settle => {
                Unit::Nanoseconds
            }
            Figure::OpsPerSecond => Unit::Thousands,
            Figure::Resident
            | Figure::Filters
            | Figure::Indexes
            | Figure::ReadBytes
            | Figure::DeviceReadBytes => Unit::Bytes,
            Figure::WriteAmplification | Figure::SpaceAmplification | Figure::Runs => Unit::Plain,
        }
    }

    /// What a round has of it. `None` where it says nothing: a time, a throughput or an amplification of 0 was not
    /// measured, an engine that cannot tell tells nothing, and a negative or endless number is no figure at all.
    pub(super) fn of(self, figures: &Figures) -> Option<f64> {
        let inside = &figures.inside;
        let known = |bytes: Option<u64>| bytes.map_or(f64::NAN, |bytes| bytes as f64);
        let (value, zero_counts) = match self {
            Figure::NsPerOp => (figures.ns_per_op, false),
            Figure::OpsPerSecond => (figures.ops_per_second, false),
            Figure::P50 => (figures.p50_ns as f64, false),
            Figure::P99 => (figures.p99_ns as f64, false),
            Figure::P999 => (figures.p999_ns as f64, false),
            Figure::WriteAmplification => (figures.write_amplification, false),
            Figure::SpaceAmplification => (figures.space_amplification, false),
            Figure::Resident => (figures.resident_bytes as f64, false),
            Figure::Cpu => (figures.cpu_ns_per_op, false),
            Figure::Settle => (figures.settle_ns as f64, false),
            Figure::ReadBytes => (figures.read_bytes_per_op, true),
            Figure::DeviceReadBytes => (figures.device_read_bytes_per_op, true),
            Figure::Filters => (known(inside.filter_bytes), true),
            Figure::Indexes => (known(inside.index_bytes), true),
            Figure::Runs => (known(inside.runs), true),
        };
        (value.is_finite() && (value > 0.0 || zero_counts && value == 0.0)).then_some(value)
    }

    /// Whether `a` is better than `b`.
    pub(super) fn better(self, a: f64, b: f64) -> bool {
        if self == Figure::OpsPerSecond { a > b } else { a < b }
    }

    /// How often better `ours` is than `other`: above 1 is ahead. Two zeros are equal; a zero of ours against anything
    /// is endlessly better.
    pub(super) fn ratio(self, ours: f64, other: f64) -> f64 {
        let (above, below) = if self == Figure::OpsPerSecond { (ours, other) } else { (other, ours) };
        match (above == 0.0, below == 0.0) {
            (true, true) => 1.0,
            (false, true) => f64::INFINITY,
            _ => above / below,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_no_figure() {
        let none = Figures { write_amplification: -1.0, ns_per_op: f64::NAN, ..Figures::default() };
        let told: Vec<Figure> = Figure::ALL.into_iter().filter(|figure| figure.of(&none).is_some()).collect();
        // Nothing read is a fact. Nothing else is.
        assert_eq!(told, [Figure::ReadBytes, Figure::DeviceReadBytes]);
        let mut some = Figures { ns_per_op: 2.0, ..Figures::default() };
        some.inside.filter_bytes = Some(0);
        assert_eq!(Figure::NsPerOp.of(&some), Some(2.0));
        assert_eq!(Figure::Filters.of(&some), Some(0.0));
        assert_eq!(Figure::Indexes.of(&some), None);
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
