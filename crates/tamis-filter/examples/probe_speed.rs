//! Prints nanoseconds per probe of blocked filters that fit the cache and of filters that do not,
//! one probe at a time and in batches. Run with `cargo run --release -p tamis-filter --example
//! probe_speed`; the argument `hot` skips the large ones, which take 4 GB and half a minute to
//! build.
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use tamis_filter::{
    AtomicBlockedBloom, BlockedBloom, Bloom, BloomScheme, Digest, probe_many_keys, probe_selected,
};

/// Number of runs, as in a ten-way tiered tree.
const RUNS: u64 = 18;
const PROBES: u64 = 4_000_000;

/// Digests of absent keys, cheap enough not to distort the measurement.
fn stranger(i: u64) -> Digest {
    Digest::from_u64(Digest::from_u64(i).remix(0xfeed))
}

fn members(from: u64, n: u64) -> Vec<Digest> {
    (from..from + n).map(|i| Digest::of(&i.to_le_bytes())).collect()
}

/// Returns the best of five rounds of `probes` probes, in ns per probe.
fn time(what: &str, probes: u64, mut run: impl FnMut() -> u64) {
    let round = |_| {
        let start = Instant::now();
        black_box(run());
        start.elapsed().as_nanos() as f64 / probes as f64
    };
    let best = (0..5).map(round).fold(f64::INFINITY, f64::min);
    println!("{what:<64} {best:8.2} ns");
}

fn over_runs(name: &str, filters: &[BlockedBloom]) {
    let chosen: Vec<u32> = (0..filters.len() as u32).collect();
    let gets = PROBES / RUNS;
    // Each get depends on the previous answer, like the gets of one reader; otherwise the processor
    // overlaps gets.
    time(&format!("{name}: 18 filters, one after the other"), gets * RUNS, || {
        (0..gets).fold(0, |last: u64, i| {
            let d = stranger(i ^ (last & 1) << 40);
            filters.iter().fold(0, |n, f| n + u64::from(f.contains(d)))
        })
    });
    time(&format!("{name}: 18 filters, stop at the first positive"), gets * RUNS, || {
        (0..gets).fold(0, |last: u64, i| {
            let d = stranger(i ^ (last & 1) << 40);
            u64::from(filters.iter().any(|f| f.contains(d)))
        })
    });
    time(&format!("{name}: 18 filters, probe_selected"), gets * RUNS, || {
        (0..gets).fold(0, |last: u64, i| {
            let d = stranger(i ^ (last & 1) << 40);
            u64::from(probe_selected(filters, &chosen, d).count_ones())
        })
    });
}

fn one(name: &str, filter: &BlockedBloom) {
    time(&format!("{name}: one filter, independent probes"), PROBES, || {
        (0..PROBES).map(|i| u64::from(filter.contains(stranger(i)))).sum()
    });
    time(&format!("{name}: one filter, each probe waits for the last"), PROBES, || {
        (0..PROBES).fold(0, |last: u64, i| u64::from(filter.contains(stranger(i ^ (last & 1) << 40))))
    });
    let keys: Vec<_> = (0..PROBES).map(stranger).collect();
    time(&format!("{name}: one filter, probe_many_keys by 64"), PROBES, || {
        keys.chunks(64).map(|group| u64::from(probe_many_keys(filter, group).count_ones())).sum()
    });
}

fn main() {
    println!("10 bits per key, absent keys; ns per single filter probe, best of five\n");
    let hot = BlockedBloom::build(&members(0, 10_000), 10.0, 1).expect("a valid size");
    one("12 KiB", &hot);
    let hot: Vec<_> = (0..RUNS)
        .map(|i| BlockedBloom::build(&members(i << 32, 10_000), 10.0, i).expect("a valid size"))
        .collect();
    over_runs("18 x 12 KiB", &hot);
    schemes();
    if std::env::args().any(|arg| arg == "hot") {
        return;
    }

    let keys = members(0, 80_000_000);
    let start = Instant::now();
    let cold = BlockedBloom::build(&keys, 10.0, 1).expect("a valid size");
    let built = start.elapsed().as_nanos() as f64 / keys.len() as f64;
    println!("\n{:<64} {built:8.2} ns", "100 MB: build, per key");
    one("100 MB", &cold);
    drop((cold, keys));
    let cold: Vec<_> = (0..RUNS)
        .map(|i| BlockedBloom::build(&members(i << 32, 80_000_000), 10.0, i).expect("a valid size"))
        .collect();
    over_runs("18 x 100 MB", &cold);
}

/// Measures the other filters of the crate, in the cache.
fn schemes() {
    let digests = members(0, 10_000);
    for scheme in [BloomScheme::Rotation, BloomScheme::DoubleHashing] {
        let bloom = Bloom::build(&digests, 10.0, scheme, 1).expect("a valid size");
        time(&format!("12 KiB: standard Bloom, {scheme:?}"), PROBES, || {
            (0..PROBES).map(|i| u64::from(bloom.contains(stranger(i)))).sum()
        });
    }
    let atomic = AtomicBlockedBloom::for_keys(10_000, 10.0, 1).expect("a valid size");
    digests.iter().for_each(|d| atomic.insert(*d));
    time("12 KiB: concurrent, contains", PROBES, || {
        (0..PROBES).map(|i| u64::from(atomic.contains(stranger(i)))).sum()
    });
}
