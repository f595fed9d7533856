//! Prints figures of the filters that name current runs: memory, rates, and the cost of a probe and
//! of a change.
//!
//! ```sh
//! cargo run --release -p tamis-filter --example run_index_figures [keys]
//! ```
//! The keys are random integers, spread over the runs of a full tree of three levels (size ratio
//! 10, one run in the last). A change is a merge of the ten runs of level 0 into one of level 1.
//! Times are the minimum of five rounds, in nanoseconds.

#![allow(clippy::print_stdout)]

use std::time::Instant;

use tamis_filter::Digest;
use tamis_filter::global::{
    Batch, Chucky, Epochs, RunIndex, RunIndexKind, RunIndexSpec, RunTag, Tagged, build,
};

fn batch(mut keys: Vec<u64>) -> Batch {
    keys.sort_unstable();
    let mut batch = Batch::new();
    for key in keys {
        let key = key.to_be_bytes();
        batch.push(&key, Digest::of(&key), Epochs::ALL);
    }
    batch
}

/// Returns the minimum time of five rounds per item, for `count` items, and the result of the last
/// round.
fn least<R>(count: usize, mut round: impl FnMut() -> R) -> (f64, R) {
    let mut times = Vec::new();
    let mut last = None;
    for _ in 0..5 {
        let started = Instant::now();
        last = Some(round());
        times.push(started.elapsed().as_nanos() as f64 / count.max(1) as f64);
    }
    (times.into_iter().fold(f64::INFINITY, f64::min), last.expect("five rounds"))
}

fn main() {
    let n: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let mut keys: Vec<u64> = (0..n).map(|n| Digest::from_u64(n).remix(1)).collect();
    let strangers: Vec<[u8; 8]> = (0..200_000).map(|n| Digest::from_u64(n).remix(2).to_be_bytes()).collect();
    let digests: Vec<Digest> = strangers.iter().map(|key| Digest::of(key)).collect();
    let spec = |bits_per_key| RunIndexSpec {
        bits_per_key,
        capacity: n,
        slots: vec![10, 11, 1],
        ratio: 10.0,
        segment: RunIndexSpec::SEGMENT,
    };
    // The eleventh run of level 1 is the output of the merge.
    let target = RunTag { level: 1, slot: 10 };
    let mut lists = Vec::new();
    for (tag, share) in spec(10.0).shares() {
        let run = keys.split_off(keys.len() - ((share * n as f64) as usize).min(keys.len()));
        if tag != target {
            lists.push((batch(run), tag));
        }
    }
    let items: Vec<Tagged<'_>> = lists.iter().map(|(batch, tag)| (batch, *tag)).collect();
    let level0: Vec<Tagged<'_>> = items.iter().filter(|(_, tag)| tag.level == 0).copied().collect();
    let moved = level0.iter().map(|(batch, _)| batch.len()).sum::<usize>();
    let merged = batch(
        level0
            .iter()
            .flat_map(|(batch, _)| batch.keys().iter())
            .map(|key| u64::from_be_bytes(key.try_into().expect("eight bytes")))
            .collect(),
    );
    println!("kind        bits  bits/key   rate %  runs named  probe ns  build ns/key  change ns/key moved");
    for kind in [RunIndexKind::Chucky, RunIndexKind::GrfHuffman, RunIndexKind::Remix] {
        for bits in [8.0, 10.0, 14.0] {
            let started = Instant::now();
            let index = build(kind, &items, &spec(bits)).expect("an index");
            let building = started.elapsed().as_nanos() as f64 / index.entries() as f64;
            let (probe, (hits, named)) = least(strangers.len(), || ask(&*index, &strangers, &digests));
            let (change, changed) = least(moved, || index.change(&level0, &[(&merged, target)]));
            println!(
                "{:10} {bits:5} {:9.2} {:8.3} {:11.3} {probe:9.1} {building:13.1} {change:10.1}{}",
                format!("{kind:?}"),
                index.memory_bytes() as f64 * 8.0 / index.entries() as f64,
                100.0 * f64::from(hits) / strangers.len() as f64,
                f64::from(named) / strangers.len() as f64,
                if changed.is_some() { "" } else { " (full)" },
            );
            if kind == RunIndexKind::Remix {
                break;
            }
        }
    }
    println!(
        "\nChucky: bits/key requested, load, bits per bucket, average fingerprint bits, 8 * 2^-F in %, set aside"
    );
    for bits in [8.0, 10.0, 12.0, 14.0, 16.0] {
        let filter = Chucky::build(&items, &spec(bits)).expect("a filter");
        println!(
            "{bits:5} {:6.3} {:4} {:6.2} {:7.3} {:5}",
            filter.load(),
            filter.bucket_bits(),
            filter.fingerprint_bits(),
            800.0 * 0.5f64.powf(filter.fingerprint_bits()),
            filter.set_aside()
        );
    }
}

/// Returns how many absent keys name any run, and how many runs they name.
fn ask(index: &dyn RunIndex, keys: &[[u8; 8]], digests: &[Digest]) -> (u32, u32) {
    let (mut hits, mut named) = (0, 0);
    for (key, digest) in keys.iter().zip(digests) {
        let before = named;
        index.probe(key, *digest, &mut |_| named += 1);
        hits += u32::from(named > before);
    }
    (hits, named)
}
