//! The library's records as JSON objects; fields have the library's names.

use std::io;

use serde::Serialize as _;
use serde_json::ser::{Formatter, Serializer};
use serde_json::{Value, json};
use tamis::stats::{
    AutoFilterStats, DamagedTable, ElasticStats, GlobalFilterStats, KeyMapStats, KeyspaceStats,
    LatencyHistogram, LevelStats, Operation, QueryStats, ReadCost, ReaderStats, RunStats, SegmentStats,
    SnapshotStats, StallStats, Stats, WriteCost,
};

use crate::text::{hex, is_hidden};

/// Returns a value as one line, in which characters that do not show are escaped: a reader gets the
/// same, and a terminal no commands.
pub(crate) fn line(value: &Value) -> String {
    let mut line = Vec::new();
    let written = value.serialize(&mut Serializer::with_formatter(&mut line, Plain));
    debug_assert!(written.is_ok(), "memory takes it, and all names are strings");
    String::from_utf8(line).unwrap_or_default()
}

struct Plain;

impl Formatter for Plain {
    fn write_string_fragment<W: io::Write + ?Sized>(&mut self, out: &mut W, text: &str) -> io::Result<()> {
        let mut begin = 0;
        for (at, hidden) in text.char_indices().filter(|(_, c)| is_hidden(*c)) {
            out.write_all(&text.as_bytes()[begin..at])?;
            for unit in hidden.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}")?;
            }
            begin = at + hidden.len_utf8();
        }
        out.write_all(&text.as_bytes()[begin..])
    }
}

/// Adds bytes to an object: as text if they are UTF-8, otherwise (or if requested) as `<name>_hex`.
pub(crate) fn bytes(object: &mut serde_json::Map<String, Value>, name: &str, bytes: &[u8], as_hex: bool) {
    match std::str::from_utf8(bytes) {
        Ok(text) if !as_hex => object.insert(name.to_owned(), text.into()),
        _ => object.insert(format!("{name}_hex"), hex(bytes).into()),
    };
}

/// Returns a key and its value, unless it is left out.
pub(crate) fn entry(key: &[u8], value: Option<&[u8]>, as_hex: bool) -> Value {
    let mut object = serde_json::Map::new();
    bytes(&mut object, "key", key, as_hex);
    if let Some(value) = value {
        bytes(&mut object, "value", value, as_hex);
    }
    object.into()
}

macro_rules! fields {
    ($from:expr, $($field:ident),* $(,)?) => { json!({ $(stringify!($field): $from.$field),* }) };
}

fn counters(fields: impl Iterator<Item = (&'static str, u64)>) -> Value {
    fields
        .map(|(name, count)| (name.to_owned(), Value::from(count)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

pub(crate) fn read_cost(cost: &ReadCost) -> Value {
    counters(cost.fields())
}

pub(crate) fn write_cost(cost: &WriteCost) -> Value {
    counters(cost.fields())
}

pub(crate) fn stats(stats: &Stats) -> Value {
    let mut value = fields!(
        stats,
        cache_used_bytes,
        cache_capacity_bytes,
        record_cache_used_bytes,
        record_cache_capacity_bytes,
        log_files,
        log_bytes,
        log_allocated_bytes,
        memtable_bytes,
        filter_bytes,
        filter_mapped_bytes,
        index_bytes,
        snapshots,
        oldest_snapshot,
        readers_memtable_bytes,
        readers_table_bytes,
        readers_blob_bytes,
        visible_seq,
        poisoned,
        suspended,
        troubles,
        open_table_files,
        warnings,
    );
    value["read"] = read_cost(&stats.read);
    value["write"] = write_cost(&stats.write);
    let latency = |operation: &Operation| (operation.name(), latency(stats.latencies.of(*operation)));
    value["latencies"] = Operation::ALL.iter().map(latency).collect();
    let stall = |stall: &StallStats| json!({ "cause": stall.cause.name(), "count": stall.count, "nanos": stall.nanos });
    value["stalls"] = stats.stalls.iter().map(stall).collect();
    value["memory"] = stats.memory.fields().collect();
    value["damaged_tables"] = stats.damaged_tables.iter().map(damaged_table).collect();
    value["scrub"] = stats
        .scrub
        .as_ref()
        .map_or(Value::Null, |scrub| fields!(scrub, passes, bytes, tables, logs, problems));
    value["elastic"] = stats.elastic.as_ref().map_or(Value::Null, elastic);
    value["snapshots_live"] = stats.snapshots_live.iter().map(snapshot).collect();
    value["oldest_reader"] = stats.oldest_reader.as_ref().map_or(Value::Null, reader);
    value["keyspaces"] = stats.keyspaces.iter().map(keyspace).collect();
    value
}

fn latency(histogram: &LatencyHistogram) -> Value {
    let nanos = |time: std::time::Duration| time.as_nanos() as u64;
    json!({
        "samples": histogram.samples(),
        "mean_nanos": nanos(histogram.mean()),
        "p50_nanos": nanos(histogram.percentile(0.5)),
        "p90_nanos": nanos(histogram.percentile(0.9)),
        "p99_nanos": nanos(histogram.percentile(0.99)),
        "p999_nanos": nanos(histogram.percentile(0.999)),
        "max_nanos": nanos(histogram.max()),
    })
}

fn damaged_table(table: &DamagedTable) -> Value {
    let mut value = fields!(table, keyspace, table, level, entries, quarantined, what);
    value["path"] = table.path.display().to_string().into();
    if let Value::Object(object) = &mut value {
        bytes(object, "smallest", &table.smallest, false);
        bytes(object, "largest", &table.largest, false);
    }
    value
}

pub(crate) fn keyspace(stats: &KeyspaceStats) -> Value {
    let mut value = fields!(
        stats,
        name,
        policy,
        next_epoch,
        memtables,
        memtable_bytes,
        memtable_entries,
        runs,
        entries,
        deletes,
        range_tombstones,
        oldest_delete_seconds,
        table_bytes,
        filter_files,
        filter_file_bytes,
        raw_bytes,
        reclaimable_bytes,
        expired_seq,
        filter_bytes,
        filter_mapped_bytes,
        index_bytes,
        filter_bits_per_key,
        tables_without_filter,
        tables_with_key_list,
        tables_with_unusable_filter,
    );
    value["blob_files"] = stats.blob_files.into();
    value["blob_bytes"] = stats.blob_bytes.into();
    value["blob_garbage_bytes"] = stats.blob_garbage_bytes.into();
    value["global_filter"] = stats.global_filter.as_ref().map_or(Value::Null, global_filter);
    value["auto_filter"] = stats.auto_filter.as_ref().map_or(Value::Null, auto_filter);
    value["queries"] = stats.queries.as_ref().map_or(Value::Null, queries);
    value["levels"] = stats.levels.iter().map(level).collect();
    value["promise"] =
        fields!(stats.promise, runs_per_level, tables, space_amplification, write_amplification);
    value
}

fn auto_filter(stats: &AutoFilterStats) -> Value {
    fields!(stats, in_force, wanted, per_table_ns, global_ns, tables_without_own_filter, changes, reason,)
}

fn queries(stats: &QueryStats) -> Value {
    fields!(
        stats,
        observed,
        found_gets,
        absent_gets,
        false_positives_per_get,
        ranges,
        empty_ranges,
        seeks,
        kept,
    )
}

fn global_filter(stats: &GlobalFilterStats) -> Value {
    let mut value = fields!(
        stats,
        kind,
        partitions,
        unbuilt,
        entries,
        bytes,
        old_bytes,
        code_bits,
        expected_rate,
        tables_outside,
        inserted,
        rebuilt,
        collected,
        keys_from_lists,
        keys_from_data,
        damaged_lists,
        images_loaded,
        images_saved,
    );
    let map = |map: &KeyMapStats| fields!(map, map, partitions, holdout_rate, ideal_rate);
    value["maps"] = stats.maps.iter().map(map).collect();
    value
}

pub(crate) fn elastic(stats: &ElasticStats) -> Value {
    let mut value = fields!(
        stats,
        budget_bytes,
        used_bytes,
        index_bytes,
        retired_bytes,
        gets,
        life_time,
        sampling,
        segments,
        keys,
        by_units,
        expected_extra_reads,
        least_extra_reads,
        loads,
        load_reads,
        load_bytes,
        failed_loads,
        evictions,
        dropped_samples,
    );
    value["bits_per_key"] = stats.bits_per_key().into();
    value
}

/// Returns a segment of a table with an elastic filter; its keys are hexadecimal if requested or
/// not UTF-8.
pub(crate) fn segment(stats: &SegmentStats, as_hex: bool) -> Value {
    let mut value = fields!(
        stats, keyspace, level, run, table, segment, keys, unit_bytes, enabled, units, hotness, asked,
        uncached,
    );
    if let Value::Object(object) = &mut value {
        bytes(object, "smallest", &stats.smallest, as_hex);
        bytes(object, "end", &stats.end, as_hex);
    }
    value
}

fn snapshot(stats: &SnapshotStats) -> Value {
    fields!(stats, seq, age_seconds, handles, pinned_bytes, pinned_table_bytes)
}

fn reader(stats: &ReaderStats) -> Value {
    fields!(stats, keyspace, min_age_seconds, max_age_seconds, memtable_bytes, table_bytes, blob_bytes)
}

fn level(stats: &LevelStats) -> Value {
    let mut value = fields!(stats, level, target_bytes);
    value["runs"] = stats.runs.iter().map(run).collect();
    value
}

fn run(stats: &RunStats) -> Value {
    let mut value = fields!(stats, run, tables, entries, bytes, filter_bytes, filters, epochs);
    if let Value::Object(object) = &mut value {
        bytes(object, "smallest", &stats.smallest, false);
        bytes(object, "largest", &stats.largest, false);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// U+009B begins a command on some terminals, U+202E turns the rest of the line round.
    #[test]
    fn characters_that_do_not_show_are_escaped_and_read_back() {
        let value = json!({ "k\u{202e}": "a\u{9b}31m\u{1b}\u{200b}\"\\é\u{e0041}\n" });
        let line = line(&value);
        assert_eq!(line, r#"{"k\u202e":"a\u009b31m\u001b\u200b\"\\é\udb40\udc41\n"}"#);
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
    }
}
