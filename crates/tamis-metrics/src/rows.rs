//! The table of metrics: name, kind, unit, help, labels, and how each follows from [`Stats`].

use tamis::stats::{LatencyHistogram, Operation, ReadCost, Stats, WriteCost};

/// What a metric's number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MetricKind {
    /// It only grows, from 0 at each opening.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Durations in buckets.
    Histogram,
}

impl MetricKind {
    /// Returns its name in the text format.
    pub fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// The description of one metric, from [`metrics`]. Each has the label `database` besides
/// those listed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetricInfo {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: MetricKind,
    /// Its unit: `bytes`, `seconds`, or nothing for a number of things.
    pub unit: &'static str,
    /// What it says.
    pub help: String,
    /// The names of its labels.
    pub labels: &'static [&'static str],
}

/// A number of a metric.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'s> {
    Count(u64),
    /// Nanoseconds, of a metric in seconds.
    Nanos(u64),
    Number(f64),
    Histogram(&'s LatencyHistogram),
}

/// Takes the numbers of one metric, each with the values of its labels.
pub(crate) type Sink<'a, 's> = &'a mut dyn FnMut(&[&str], Value<'s>);

struct Row {
    name: &'static str,
    kind: MetricKind,
    unit: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    read: for<'s> fn(&'s Stats, Sink<'_, 's>),
}

macro_rules! rows {
    ($($kind:ident $name:literal $unit:literal [$($label:literal),*] $help:literal, $read:expr;)*) => {
        const ROWS: &[Row] = &[$(Row {
            name: $name,
            kind: MetricKind::$kind,
            unit: $unit,
            labels: &[$($label),*],
            help: $help,
            read: $read,
        },)*];
    };
}

/// One number without labels.
macro_rules! one {
    ($stats:ident, $value:expr) => {
        |$stats, sink| sink(&[], Value::Number($value as f64))
    };
}

/// One number for each keyspace.
macro_rules! each {
    ($keyspace:ident, $value:expr) => {
        |stats, sink| {
            for $keyspace in &stats.keyspaces {
                sink(&[&$keyspace.name], Value::Number($value as f64));
            }
        }
    };
}

/// One number for each level of each keyspace that holds anything.
macro_rules! levels {
    ($level:ident, $value:expr) => {
        |stats, sink| {
            for keyspace in &stats.keyspaces {
                for $level in keyspace.levels.iter().filter(|level| !level.runs.is_empty()) {
                    let number = $level.level.to_string();
                    sink(&[&keyspace.name, &number], Value::Number($value as f64));
                }
            }
        }
    };
}

rows! {
    Histogram "tamis_latency_seconds" "seconds" ["operation"]
        "How long operations took. Gets, multi-gets, seeks and writes are sampled: their counters have the numbers of all.",
        |stats, sink| {
            for &operation in Operation::ALL {
                sink(&[operation.name()], Value::Histogram(stats.latencies.of(operation)));
            }
        };
    Counter "tamis_stalls_total" "" ["cause"] "Waits of writes, and delays of commits, by cause.",
        |stats, sink| stats.stalls.iter().for_each(|stall| sink(&[stall.cause.name()], Value::Count(stall.count)));
    Counter "tamis_stall_seconds_total" "seconds" ["cause"] "Time of those waits, by cause.",
        |stats, sink| stats.stalls.iter().for_each(|stall| sink(&[stall.cause.name()], Value::Nanos(stall.nanos)));
    Gauge "tamis_memory_bytes" "bytes" ["owner"] "Memory that the database takes, by owner.",
        |stats, sink| stats.memory.fields().for_each(|(owner, bytes)| sink(&[owner], Value::Count(bytes)));
    Gauge "tamis_writable" "" [] "1 if writes proceed, 0 if they are suspended or have stopped.",
        one!(stats, u8::from(stats.poisoned.is_none() && stats.suspended.is_none()));
    Gauge "tamis_troubles" "" [] "Failed work that is being retried.", one!(stats, stats.troubles.len());
    Counter "tamis_warnings_total" "" [] "Warnings since the database was opened.", one!(stats, stats.warnings.len());
    Gauge "tamis_damaged_tables" "" [] "Tables known to be damaged.", one!(stats, stats.damaged_tables.len());
    Gauge "tamis_running_compactions" "" [] "Compactions that are running.", one!(stats, stats.jobs.len());
    Gauge "tamis_cache_capacity_bytes" "bytes" [] "Capacity of the block cache.", one!(stats, stats.cache_capacity_bytes);
    Gauge "tamis_cache_used_bytes" "bytes" [] "Bytes in the block cache.", one!(stats, stats.cache_used_bytes);
    Gauge "tamis_record_cache_capacity_bytes" "bytes" [] "Capacity of the record cache.",
        one!(stats, stats.record_cache_capacity_bytes);
    Gauge "tamis_record_cache_used_bytes" "bytes" [] "Bytes in the record cache.",
        one!(stats, stats.record_cache_used_bytes);
    Gauge "tamis_filter_mapped_bytes" "bytes" [] "Filters that lie in mapped tables: page cache.",
        one!(stats, stats.filter_mapped_bytes);
    Gauge "tamis_log_files" "" [] "Log files that are still needed.", one!(stats, stats.log_files);
    Gauge "tamis_log_bytes" "bytes" [] "Bytes of those log files.", one!(stats, stats.log_bytes);
    Gauge "tamis_log_allocated_bytes" "bytes" [] "Bytes of all log files on disk, which max_log_bytes limits.",
        one!(stats, stats.log_allocated_bytes);
    Gauge "tamis_retained_log_bytes" "bytes" [] "Bytes of logs that are kept only for readers of changes.",
        one!(stats, stats.retained_log_bytes);
    Gauge "tamis_reserve_bytes" "bytes" [] "Space on the device that is kept for a full disk.", one!(stats, stats.reserve_bytes);
    Gauge "tamis_open_table_files" "" [] "Open table files that are not mapped.", one!(stats, stats.open_table_files);
    Gauge "tamis_visible_sequence" "" [] "Newest write that readers see.", one!(stats, stats.visible_seq);
    Gauge "tamis_durable_sequence" "" [] "Newest write up to which all survive a power failure.", one!(stats, stats.durable_seq);
    Gauge "tamis_consumer_sequence" "" ["consumer"] "Last write that a named consumer of changes has acknowledged.",
        |stats, sink| {
            let consumers = stats.change_consumers.iter();
            consumers.for_each(|consumer| sink(&[&consumer.name], Value::Count(consumer.position)));
        };
    Gauge "tamis_snapshots" "" [] "Live snapshots; those of the same state count once.", one!(stats, stats.snapshots);
    Gauge "tamis_oldest_snapshot_seconds" "seconds" [] "Age of the oldest live snapshot.",
        one!(stats, stats.snapshots_live.iter().map(|snapshot| snapshot.age_seconds).max().unwrap_or(0));
    Gauge "tamis_oldest_reader_seconds" "seconds" [] "Age of the oldest replaced state that a reader still holds, counted from its replacement.",
        one!(stats, stats.oldest_reader.as_ref().map_or(0, |reader| reader.min_age_seconds));
    Gauge "tamis_memtables" "" ["keyspace"] "Memtables, the active one included.", each!(keyspace, keyspace.memtables);
    Gauge "tamis_memtable_bytes" "bytes" ["keyspace"] "Bytes in memtables.", each!(keyspace, keyspace.memtable_bytes);
    Gauge "tamis_memtable_entries" "" ["keyspace"] "Key versions in memtables.", each!(keyspace, keyspace.memtable_entries);
    Gauge "tamis_entries" "" ["keyspace"] "Key versions on disk, deletes included.", each!(keyspace, keyspace.entries);
    Gauge "tamis_deletes" "" ["keyspace"] "Deletes among them.", each!(keyspace, keyspace.deletes);
    Gauge "tamis_range_tombstones" "" ["keyspace"] "Deletes of ranges on disk.", each!(keyspace, keyspace.range_tombstones);
    Gauge "tamis_table_bytes" "bytes" ["keyspace"] "Bytes of table files.", each!(keyspace, keyspace.table_bytes);
    Gauge "tamis_blob_bytes" "bytes" ["keyspace"] "Bytes of blob files.", each!(keyspace, keyspace.blob_bytes);
    Gauge "tamis_blob_garbage_bytes" "bytes" ["keyspace"] "Bytes of blob files that no table refers to.",
        each!(keyspace, keyspace.blob_garbage_bytes);
    Gauge "tamis_raw_bytes" "bytes" ["keyspace"] "Bytes of keys and values on disk before compression.",
        each!(keyspace, keyspace.raw_bytes);
    Gauge "tamis_reclaimable_bytes" "bytes" ["keyspace"] "Bytes kept for snapshots that are gone.",
        each!(keyspace, keyspace.reclaimable_bytes);
    Gauge "tamis_filter_bytes" "bytes" ["keyspace"] "Bytes of filters in memory.", each!(keyspace, keyspace.filter_bytes);
    Gauge "tamis_filter_bits_per_key" "" ["keyspace"] "Filter bits in memory for each key version on disk.",
        each!(keyspace, keyspace.filter_bits_per_key);
    Gauge "tamis_index_bytes" "bytes" ["keyspace"] "Bytes of indexes in memory.", each!(keyspace, keyspace.index_bytes);
    Gauge "tamis_level_runs" "" ["keyspace", "level"] "Sorted runs of a level.", levels!(level, level.runs.len());
    Gauge "tamis_level_tables" "" ["keyspace", "level"] "Tables of a level.",
        levels!(level, level.runs.iter().map(|run| run.tables).sum::<usize>());
    Gauge "tamis_level_bytes" "bytes" ["keyspace", "level"] "Bytes of a level's tables.",
        levels!(level, level.runs.iter().map(|run| run.bytes).sum::<u64>());
    Gauge "tamis_level_entries" "" ["keyspace", "level"] "Key versions of a level.",
        levels!(level, level.runs.iter().map(|run| run.entries).sum::<u64>());
    Gauge "tamis_level_target_bytes" "bytes" ["keyspace", "level"] "Size at which a level is compacted; 0: the limit is a number of runs.",
        levels!(level, level.target_bytes);
}

/// Returns the name of the metric of one of the counters of a cost, and its unit.
fn counter_name(of: &str, field: &str) -> (String, &'static str) {
    match field.strip_suffix("_nanos") {
        Some(what) => (format!("tamis_{of}_{what}_seconds_total"), "seconds"),
        None if field.ends_with("bytes") || field == "bytes_read" => {
            (format!("tamis_{of}_{field}_total"), "bytes")
        }
        None => (format!("tamis_{of}_{field}_total"), ""),
    }
}

/// Visits every metric with its numbers: those of the table, and the counters of [`ReadCost`] and
/// [`WriteCost`].
pub(crate) fn visit<'s>(stats: &'s Stats, mut each: impl FnMut(MetricInfo, &dyn Fn(Sink<'_, 's>))) {
    for row in ROWS {
        let &Row { name, kind, unit, labels, help, read } = row;
        let info = MetricInfo { name: name.to_owned(), kind, unit, help: help.to_owned(), labels };
        each(info, &|sink| read(stats, sink));
    }
    let read = ReadCost::DOCS.iter().zip(stats.read.fields()).map(|(doc, field)| ("read", doc, field.1));
    let write = WriteCost::DOCS.iter().zip(stats.write.fields()).map(|(doc, field)| ("write", doc, field.1));
    for (of, (field, doc), count) in read.chain(write) {
        let (name, unit) = counter_name(of, field);
        let help = doc.trim().to_owned();
        let info = MetricInfo { name, kind: MetricKind::Counter, unit, help, labels: &[] };
        let value = if unit == "seconds" { Value::Nanos(count) } else { Value::Count(count) };
        each(info, &|sink| sink(&[], value));
    }
}

/// Describes all metrics, in the order of the [text](crate::to_prometheus).
pub fn metrics() -> Vec<MetricInfo> {
    let mut all = Vec::new();
    visit(&Stats::default(), |info, _| all.push(info));
    all
}
