//! Options that give deep trees and many tables, and make rare events common.

use fastrand::Rng;
use tamis::options::{FilterChoice, FilterPolicy};
use tamis::{KeyspaceOptions, Options};

use crate::plan::{Settings, pick};

fn set(settings: &mut Settings, name: &str, value: impl ToString) {
    settings.push((name.to_owned(), value.to_string()));
}

/// Draws database options, without those of keyspaces.
pub fn database(rng: &mut Rng) -> Settings {
    let mut s = Settings::new();
    set(&mut s, "read_mode", pick(rng, &["mapped", "buffered", "direct"]));
    // The simulated disk takes in reads without the help of threads. `auto` would ask the real
    // system for io_uring.
    set(&mut s, "async_reads", pick(rng, &["threads", "threads", "off"]));
    set(&mut s, "read_queue_depth", pick(rng, &["1", "2", "32"]));
    set(&mut s, "cache_bytes", pick(rng, &["0", "2 KiB", "1 MiB"]));
    set(&mut s, "filter_budget_bytes", pick(rng, &["0", "2 KiB", "1 MiB"]));
    set(&mut s, "pin_metadata", rng.bool());
    set(&mut s, "verify_checksums", pick(rng, &["once", "always"]));
    set(&mut s, "memtable_budget_bytes", pick(rng, &["8 KiB", "1 MiB"]));
    set(&mut s, "max_log_bytes", pick(rng, &["8 KiB", "64 KiB", "1 MiB"]));
    set(&mut s, "background_threads", rng.u8(1..4));
    set(&mut s, "background_bytes_per_second", pick(rng, &["unlimited", "unlimited", "4 MiB"]));
    set(&mut s, "record_cache_bytes", pick(rng, &["64 KiB", "4 KiB", "0"]));
    set(&mut s, "read_memory_bytes", pick(rng, &["0", "0", "0", "64 KiB"]));
    set(&mut s, "transaction_history_bytes", pick(rng, &["0", "192 MiB"]));
    set(&mut s, "max_open_files", pick(rng, &["0", "16", "1000"]));
    set(&mut s, "reserve_bytes", pick(rng, &["0", "64 MiB"]));
    set(&mut s, "heat_sampling", pick(rng, &["auto", "1"]));
    set(&mut s, "sub_jobs", rng.u8(1..4));
    set(&mut s, "recycled_logs", rng.u8(..3));
    set(&mut s, "scrub_bytes_per_second", pick(rng, &["0", "0", "64 KiB", "10 MiB"]));
    set(&mut s, "changes_keep_bytes", pick(rng, &["0", "0", "64 KiB"]));
    set(&mut s, "durability", pick(rng, &["buffered", "buffered", "every 20 ms", "sync"]));
    set(&mut s, "protect_writes", pick(rng, &["false", "false", "true"]));
    s
}

/// Draws keyspace options.
pub fn keyspace(rng: &mut Rng, levels: usize, merges: bool) -> Settings {
    let mut s = Settings::new();
    if merges {
        set(&mut s, "merge_operator", "append");
    }
    reshape(rng, levels, &mut s);
    s
}

/// Redraws all options that a keyspace may change between openings.
pub fn reshape(rng: &mut Rng, levels: usize, s: &mut Settings) {
    s.retain(|(name, _)| name == "merge_operator");
    let level0 = rng.u8(1..5);
    let slowdown = level0 + rng.u8(..3);
    set(s, "levels", levels);
    set(s, "level0_runs", level0);
    set(s, "slowdown_runs", slowdown);
    set(s, "stop_runs", slowdown + rng.u8(..4));
    set(s, "size_ratio", rng.u8(2..5));
    set(s, "max_memtables", rng.u8(2..4));
    set(s, "auto_compaction", rng.u8(..10) > 0);
    set(s, "memtable_bytes", pick(rng, &["4 KiB", "8 KiB", "16 KiB"]));
    set(s, "table_bytes", pick(rng, &["4 KiB", "8 KiB"]));
    set(s, "block_bytes", pick(rng, &["128", "256", "512", "1 KiB", "4 KiB", "64 KiB"]));
    set(s, "restart_interval", rng.u8(1..20));
    set(s, "compression", pick(rng, &["none", "lz4", "none,lz4"]));
    let all: Vec<FilterChoice> = FilterChoice::all().collect();
    let filter = if rng.u8(..4) == 0 { FilterChoice::BlockedBloom } else { *pick(rng, &all) };
    set(s, "filter", name_of(filter));
    if filter == FilterChoice::Auto {
        // Its rule goes to and fro at a few runs.
        set(s, "workload", "empty-range 1, empty-get 8");
    }
    set(s, "bits_per_key", pick(rng, &["0.5", "4", "10", "30"]));
    set(s, "filter_unit_bytes", pick(rng, &["128", "512", "4 KiB"]));
    set(s, "key_map", pick(rng, &["auto", "learned", "digest", "mixed", "local"]));
    set(s, "prefix_filter", pick(rng, &["none", "none", "3", "2,5", "delimiter /"]));
    set(s, "blob_threshold", pick(rng, &["0", "1", "16", "100"]));
    set(s, "blob_garbage", pick(rng, &["0.05", "0.3", "1"]));
    set(s, "blob_file_bytes", pick(rng, &["4 KiB", "1 MiB"]));
    shape(rng, s);
    if !filter.is_elastic() && !filter.is_of_tree() {
        set(s, "filter_allocation", pick(rng, &["uniform", "uniform", "monkey", "mnemosyne"]));
    }
}

/// Returns the name of a filter in the options' text.
fn name_of(filter: FilterChoice) -> String {
    let text =
        KeyspaceOptions { filter: FilterPolicy::uniform(filter), ..KeyspaceOptions::default() }.to_text();
    let line = text.lines().find_map(|line| line.strip_prefix("filter = "));
    line.expect("options name their filter").to_owned()
}

/// Draws a tree shape that the engine accepts.
fn shape(rng: &mut Rng, s: &mut Settings) {
    let layered = ["leveling", "lazy-leveling", "hybrid:1", "hybrid:2"];
    let (compaction, merge, deterministic) = match rng.u8(..12) {
        0..=2 => ("leveling", "auto", false),
        3..=5 => (*pick(rng, &layered), *pick(rng, &["auto", "full", "partial", "partitioned"]), false),
        6 | 7 => (*pick(rng, &layered), *pick(rng, &["full", "partitioned"]), true),
        8 | 9 => ("tiering", "auto", rng.bool()),
        _ => ("fragmented", "auto", false),
    };
    set(s, "compaction", compaction);
    set(s, "merge", merge);
    set(s, "deterministic", deterministic);
    if !deterministic {
        set(s, "max_tombstone_age", pick(rng, &["none", "none", "1 s", "4 s"]));
    }
    set(s, "picker", pick(rng, &["least-overlap", "round-robin", "most-tombstones", "oldest"]));
}

/// What an option of an open keyspace may be changed to.
const CHANGES: &[(&str, &[&str])] = &[
    ("compaction", &["leveling", "tiering", "lazy-leveling", "hybrid:1", "fragmented"]),
    ("merge", &["auto", "full", "partial", "partitioned"]),
    ("size_ratio", &["2", "3", "4"]),
    ("table_bytes", &["4 KiB", "8 KiB", "64 KiB"]),
    ("level0_runs", &["1", "2", "4"]),
    ("slowdown_runs", &["2", "4", "8"]),
    ("stop_runs", &["4", "8"]),
    ("slowdown_debt_bytes", &["4 KiB", "64 KiB", "64 GiB"]),
    ("auto_compaction", &["true", "true", "false"]),
    ("read_compaction", &["true", "false"]),
    ("filter", &["none", "blocked-bloom", "bloom", "ribbon", "fuse", "elastic", "surf", "grafite"]),
    ("filter_allocation", &["uniform", "monkey", "mnemosyne"]),
    ("bits_per_key", &["0.5", "4", "10", "30"]),
    ("blob_threshold", &["0", "1", "16", "100"]),
    ("blob_garbage", &["0.05", "0.3", "1"]),
    ("blob_file_bytes", &["4 KiB", "1 MiB"]),
    ("picker", &["least-overlap", "round-robin", "oldest"]),
    ("deterministic", &["true", "false"]),
];

/// Draws a change of one option of an open database.
pub fn change(rng: &mut Rng) -> (String, String) {
    let (name, values) = *pick(rng, CHANGES);
    (name.to_owned(), (*pick(rng, values)).to_owned())
}

/// Returns database options from settings. On a conflict, the option named last falls back to its
/// default.
pub fn options(settings: &Settings) -> Options {
    let mut options = Options::default();
    for (name, value) in settings {
        options.set(name, value).unwrap_or_else(|error| panic!("the option {name} = {value}: {error}"));
    }
    options
}

/// Returns keyspace options from settings.
pub fn keyspace_options(settings: &Settings) -> KeyspaceOptions {
    let mut options = KeyspaceOptions::default();
    for (name, value) in settings {
        options.set(name, value).unwrap_or_else(|error| panic!("the option {name} = {value}: {error}"));
    }
    options
}
