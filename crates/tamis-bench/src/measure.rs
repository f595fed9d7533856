//! The time and cost of one run: the record that `--json` prints, one object per line.

use serde::{Deserialize, Serialize};
use tamis::stats::{ReadCost, Stats, WriteCost};
use tamis::{Db, Options};

use crate::run::Timing;

/// One measurement. `*_per_op` are means over `ops` operations; an operation of `multi-get` is one
/// key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measurement {
    /// The experiment: `bench`, `main`, or a figure of a paper.
    pub experiment: String,
    /// The engine: `tamis`.
    pub system: String,
    /// The workload's name.
    pub workload: String,
    /// The key set's name.
    pub key_set: String,
    /// The number of existing keys.
    pub keys: u64,
    /// The mean length of a key in bytes.
    pub key_bytes: u64,
    /// The mean length of a value in bytes.
    pub value_bytes: u64,
    /// The number of concurrent threads.
    pub threads: usize,
    /// Operations over all threads.
    pub ops: u64,
    /// Mean nanoseconds of one operation on its thread.
    pub ns_per_op: f64,
    /// The median latency in nanoseconds. This and the percentiles below are from a sample of
    /// operations and include one reading of the clock (about 20 ns); `ns_per_op` does not.
    pub p50_ns: u64,
    /// The 99th percentile of the latency in nanoseconds.
    pub p99_ns: u64,
    /// The 99.9th percentile of the latency in nanoseconds.
    pub p999_ns: u64,
    /// The 99.99th percentile of the latency in nanoseconds: of a million operations, three or four
    /// of the sample are above.
    pub p9999_ns: u64,
    /// Operations per second over all threads.
    pub ops_per_second: f64,
    /// Operations per second of wall time, from the start of the first thread to the end of the
    /// last. Lower than `ops_per_second`, since key generation counts, but valid even with more
    /// threads than cores.
    pub wall_ops_per_second: f64,
    /// Digests computed.
    pub digests_per_op: f64,
    /// Memtables probed.
    pub memtable_probes_per_op: f64,
    /// Table filters probed, for keys or for ranges.
    pub filter_probes_per_op: f64,
    /// Table filters that answered "maybe" for an absent key or an empty range.
    pub false_positives_per_op: f64,
    /// Runs whose data was searched by gets.
    pub runs_searched_per_op: f64,
    /// Runs opened by iterators.
    pub seeks_per_op: f64,
    /// Data blocks accessed, cached or not.
    pub block_reads_per_op: f64,
    /// Bytes of those blocks as stored.
    pub bytes_read_per_op: f64,
    /// Read system calls.
    pub io_reads_per_op: f64,
    /// Blocks found in the cache, over the whole run.
    pub cache_hits: u64,
    /// Blocks not found in the cache, over the whole run.
    pub cache_misses: u64,
    /// Bits of table filter memory per entry.
    pub filter_bits_per_key: f64,
    /// Bytes of table filter memory.
    pub filter_bytes: u64,
    /// Sorted runs in the tree.
    pub runs: usize,
    /// Levels that hold a run.
    pub levels: usize,
    /// Whether one digest served all filters of a get.
    pub hash_sharing: bool,
    /// Whether compaction was idle; otherwise it was off.
    pub settled: bool,
    /// Whether every write was synced.
    pub sync: bool,
    /// The option `keyspace.filter`.
    pub filter: String,
    /// The option `keyspace.compaction`.
    pub compaction: String,
    /// The option `keyspace.merge`.
    pub merge: String,
    /// The option `keyspace.size_ratio`.
    pub size_ratio: String,
    /// The option `read_mode`.
    pub read_mode: String,
    /// The block cache's capacity in bytes.
    pub cache_bytes: u64,
    /// Bytes written to files, including logs, per byte of keys and values written since opening.
    pub write_amplification: f64,
    /// Bytes of the tables per byte of keys and values in them.
    pub table_bytes_per_raw_byte: f64,
    /// Milliseconds of flush and compaction after the last write of this workload.
    pub settle_ms: u64,
    /// Milliseconds that writes of this workload were slowed down or stalled.
    pub stall_ms: u64,
    /// Bytes of the tables that `compact` merged; 0 for other workloads, as in the next two.
    pub compaction_read_bytes: u64,
    /// Bytes of the tables that `compact` wrote.
    pub compaction_written_bytes: u64,
    /// Nanoseconds of processor time that `compact` took, over all threads; 0 where the system does
    /// not tell.
    pub processor_ns: u64,
    /// The number of repetitions of which this is the median.
    pub repeats: u32,
}

/// The description of a run, without its figures.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    /// See [`Measurement::experiment`].
    pub experiment: String,
    /// See [`Measurement::workload`].
    pub workload: String,
    /// See [`Measurement::key_set`].
    pub key_set: String,
    /// See [`Measurement::keys`].
    pub keys: u64,
    /// See [`Measurement::key_bytes`].
    pub key_bytes: f64,
    /// See [`Measurement::value_bytes`].
    pub value_bytes: f64,
    /// See [`Measurement::threads`].
    pub threads: usize,
    /// See [`Measurement::settled`].
    pub settled: bool,
}

impl Measurement {
    /// Combines the labels, the timing, and the database's counters before and after the run.
    pub fn new(labels: Labels, timing: &Timing, before: &Stats, db: &Db) -> Measurement {
        let after = db.stats();
        let cost = after.read - before.read;
        let options = db.options();
        let mut m = Measurement {
            experiment: labels.experiment,
            system: "tamis".to_owned(),
            workload: labels.workload,
            key_set: labels.key_set,
            keys: labels.keys,
            key_bytes: labels.key_bytes.round() as u64,
            value_bytes: labels.value_bytes.round() as u64,
            threads: labels.threads,
            ops: timing.ops,
            ns_per_op: timing.ns_per_op(),
            p50_ns: timing.latency.quantile(0.50),
            p99_ns: timing.latency.quantile(0.99),
            p999_ns: timing.latency.quantile(0.999),
            p9999_ns: timing.latency.quantile(0.9999),
            ops_per_second: timing.ops_per_second,
            wall_ops_per_second: timing.ops as f64 * 1e9 / timing.wall_ns.max(1) as f64,
            hash_sharing: options.hash_sharing,
            settled: labels.settled,
            sync: options.durability == tamis::Durability::Sync,
            filter: option_text(options, "keyspace.filter"),
            compaction: option_text(options, "keyspace.compaction"),
            merge: option_text(options, "keyspace.merge"),
            size_ratio: option_text(options, "keyspace.size_ratio"),
            read_mode: option_text(options, "read_mode"),
            cache_bytes: options.cache_bytes,
            repeats: 1,
            ..Measurement::default()
        };
        m.set_cost(&cost);
        m.set_tree(&after);
        let stalled = |s: &Stats| s.write.slowdown_nanos + s.write.stall_nanos;
        m.stall_ms = (stalled(&after) - stalled(before)) / 1_000_000;
        m
    }

    fn set_cost(&mut self, cost: &ReadCost) {
        let per_op = |count: u64| count as f64 / self.ops.max(1) as f64;
        self.digests_per_op = per_op(cost.digests);
        self.memtable_probes_per_op = per_op(cost.memtable_probes);
        self.filter_probes_per_op = per_op(cost.filter_probes + cost.range_probes);
        self.false_positives_per_op = per_op(cost.false_positives + cost.range_false_positives);
        self.runs_searched_per_op = per_op(cost.runs_searched);
        self.seeks_per_op = per_op(cost.seeks);
        self.block_reads_per_op = per_op(cost.block_reads);
        self.bytes_read_per_op = per_op(cost.bytes_read);
        self.io_reads_per_op = per_op(cost.io_reads);
        self.cache_hits = cost.cache_hits;
        self.cache_misses = cost.cache_misses;
    }

    /// Records the tree's shape and the amplification since opening.
    pub fn set_tree(&mut self, stats: &Stats) {
        self.write_amplification = write_amplification(stats);
        if let Some(tree) = stats.keyspaces.first() {
            self.filter_bits_per_key = tree.filter_bits_per_key;
            self.filter_bytes = tree.filter_bytes;
            self.runs = tree.runs;
            self.levels = tree.levels.iter().filter(|level| !level.runs.is_empty()).count();
            self.table_bytes_per_raw_byte = ratio(tree.table_bytes, tree.raw_bytes);
        }
    }

    /// Returns the repetition with the median `ns_per_op`; see
    /// [`median_by`](Measurement::median_by).
    pub fn median(repetitions: Vec<Measurement>) -> Option<Measurement> {
        Measurement::median_by(repetitions, |m| m.ns_per_op)
    }

    /// Returns the repetition with the median `figure`. Of an even number, the upper of the two in
    /// the middle, with times and rates half-way between them.
    pub fn median_by(
        mut repetitions: Vec<Measurement>,
        figure: impl Fn(&Measurement) -> f64,
    ) -> Option<Measurement> {
        repetitions.sort_by(|a, b| figure(a).total_cmp(&figure(b)));
        let count = repetitions.len();
        let mut median = repetitions.get(count / 2)?.clone();
        median.meet(&repetitions[(count - 1) / 2]);
        median.repeats = u32::try_from(count).unwrap_or(u32::MAX);
        Some(median)
    }

    /// Moves times and rates half-way to those of another repetition.
    fn meet(&mut self, other: &Measurement) {
        self.ns_per_op = self.ns_per_op.midpoint(other.ns_per_op);
        self.ops_per_second = self.ops_per_second.midpoint(other.ops_per_second);
        self.wall_ops_per_second = self.wall_ops_per_second.midpoint(other.wall_ops_per_second);
        self.p50_ns = self.p50_ns.midpoint(other.p50_ns);
        self.p99_ns = self.p99_ns.midpoint(other.p99_ns);
        self.p999_ns = self.p999_ns.midpoint(other.p999_ns);
        self.p9999_ns = self.p9999_ns.midpoint(other.p9999_ns);
    }

    /// Returns the measurement as one line of JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a measurement is representable as JSON")
    }
}

/// Returns the write amplification since opening: see [`bytes_per_user_byte`].
pub fn write_amplification(stats: &Stats) -> f64 {
    bytes_per_user_byte(&stats.write)
}

/// Returns the bytes written to logs and tables per byte of keys and values written.
pub fn bytes_per_user_byte(write: &WriteCost) -> f64 {
    ratio(write.log_bytes + write.flush_bytes + write.compaction_write_bytes, write.user_bytes)
}

/// Returns `a / b`, or 0 if `b` is 0.
pub fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

/// Returns the value of an option in its text form; empty if there is no such option.
pub fn option_text(options: &Options, name: &str) -> String {
    let text = options.to_text();
    let value_of = |line: &str| {
        let (found, value) = line.split_once('=')?;
        (found.trim() == name).then(|| value.trim().trim_matches('"').to_owned())
    };
    text.lines().find_map(value_of).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_taken_by_time_and_records_the_repetitions() {
        let run = |ns: f64| Measurement { ns_per_op: ns, ..Measurement::default() };
        let median = Measurement::median(vec![run(5.0), run(1.0), run(3.0)]).unwrap();
        assert_eq!((median.ns_per_op, median.repeats), (3.0, 3));
        assert_eq!(Measurement::median(vec![]), None);
        let of_two = Measurement::median(vec![run(5.0), run(1.0)]).unwrap();
        assert_eq!((of_two.ns_per_op, of_two.repeats), (3.0, 2), "the upper one was taken");
        let rate = |rate: f64| Measurement { wall_ops_per_second: rate, ..Measurement::default() };
        let of_four = [9.0, 1.0, 2.0, 4.0].map(rate).to_vec();
        let of_four = Measurement::median_by(of_four, |m| m.wall_ops_per_second).unwrap();
        assert_eq!(of_four.wall_ops_per_second, 3.0);
    }

    #[test]
    fn the_json_line_has_the_promised_fields_and_reads_back() {
        let m = Measurement { workload: "seek".into(), ns_per_op: 1.5, ..Measurement::default() };
        let line = m.to_json();
        assert!(!line.contains('\n'));
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        for field in [
            "experiment",
            "system",
            "workload",
            "keys",
            "key_bytes",
            "value_bytes",
            "threads",
            "ops",
            "ns_per_op",
            "p50_ns",
            "p99_ns",
            "digests_per_op",
            "filter_probes_per_op",
            "false_positives_per_op",
            "block_reads_per_op",
            "filter_bits_per_key",
            "runs",
        ] {
            assert!(value.get(field).is_some(), "{field}");
        }
        assert_eq!(serde_json::from_str::<Measurement>(&line).unwrap(), m);
    }

    #[test]
    fn zero_divided_by_zero_is_zero() {
        assert_eq!(ratio(5, 0), 0.0);
        assert_eq!(ratio(5, 2), 2.5);
    }
}
