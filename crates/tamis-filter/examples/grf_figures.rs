//! Prints the costs of a partition of a global filter: rate, code bits, ns per probe and per inserted key. Run with
//! `cargo run --release -p tamis-filter --example grf_figures`; takes a few seconds.
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use tamis_filter::Digest;
use tamis_filter::global::{Batch, Cuts, Epochs, MapChoice, Partition, PartitionSpec};

const KEYS: u64 = 1 << 16;
const PROBES: usize = 1 << 16;
const ROUND: usize = 1 << 11;
/// The epoch at which the round begins.
const BASE: u64 = 1000;

fn random(i: u64, salt: u64) -> u64 {
    Digest::from_u64(i).remix(salt)
}

fn batch(mut entries: Vec<([u8; 8], Epochs)>) -> Batch {
    entries.sort_unstable();
    let mut batch = Batch::new();
    for (key, epochs) in entries {
        batch.push(&key, Digest::of(&key), epochs);
    }
    batch
}

/// Returns the median of `rounds` runs, in ns per item.
fn median(rounds: usize, items: usize, mut run: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_nanos() as f64 / items as f64
        })
        .collect();
    times.sort_unstable_by(f64::total_cmp);
    times[rounds / 2]
}

fn figures(name: &str, map: MapChoice, key: impl Fn(u64, u64) -> u64) {
    let spec = PartitionSpec { bits_per_key: 10.0, growth: 1.1, radices: vec![10, 10, 10], map };
    let last = Epochs { lo: 0, hi: BASE };
    let built = batch((0..KEYS).map(|i| (key(i, 1).to_be_bytes(), last)).collect());
    let start = Instant::now();
    let partition = Partition::build(&built, BASE, &spec).expect("a valid specification");
    let build = start.elapsed().as_nanos() as f64 / KEYS as f64;
    let absent: Vec<([u8; 8], Digest)> =
        (0..PROBES as u64).map(|i| key(i, 7).to_be_bytes()).map(|key| (key, Digest::of(&key))).collect();
    // A tree of shape 999: nine runs of a hundred flushes, nine of ten, nine of one. 9 % of the keys are in them.
    let runs = [100, 10, 1].into_iter().flat_map(|size| std::iter::repeat_n(size, 9));
    let (mut grown, mut tables, mut next) = (partition.clone(), vec![last], BASE);
    for flushes in runs {
        let epochs = Epochs { lo: next, hi: next + flushes };
        next += flushes;
        let keys = (epochs.lo * KEYS / 10_000..epochs.hi * KEYS / 10_000).map(|i| key(i, 3).to_be_bytes());
        tables.push(epochs);
        grown =
            grown.insert(&batch(keys.map(|key| (key, epochs)).collect()), &Cuts::of(tables.iter().copied()));
    }
    let cuts = Cuts::of(tables);
    let collected = grown.collect(&cuts, 0);
    let rate = |partition: &Partition| {
        let mut hits = 0;
        absent.iter().for_each(|(key, digest)| partition.probe(key, *digest, |_| hits += 1));
        hits as f64 / PROBES as f64
    };
    println!("{name}: {:?}", partition.reason());
    for (when, partition) in [("built", &partition), ("grown", &grown), ("collected", &collected)] {
        println!(
            "  {when:<10} {:6.2} bits/key, codes {:.2}, expected rate 2^-{:.2}, measured 2^-{:.2}, blocks up to {}",
            partition.memory_bytes() as f64 * 8.0 / partition.entries() as f64,
            partition.code_bits(),
            -partition.expected_rate().log2(),
            -rate(partition).log2(),
            partition.largest_block(),
        );
    }
    // Rounds are shorter than a time slice, so that on a busy machine most of them are not interrupted.
    let mut rounds = absent.chunks(ROUND).cycle();
    let probe = median(64, ROUND, || {
        let (mut hits, keys) = (0u64, rounds.next().unwrap_or_default());
        keys.iter().for_each(|(key, digest)| collected.probe(key, *digest, |epochs| hits += epochs.lo));
        black_box(hits);
    });
    let chained = median(64, ROUND, || {
        let (mut last, keys) = (0u64, rounds.next().unwrap_or_default());
        for at in 0..keys.len() {
            let (key, digest) = &keys[(at + (last & 1) as usize) % keys.len()];
            collected.probe(key, *digest, |epochs| last ^= epochs.lo);
        }
        black_box(last);
    });
    let new =
        batch((0..KEYS / 16).map(|i| (key(i, 5).to_be_bytes(), Epochs { lo: next, hi: next + 1 })).collect());
    let insert = median(31, new.len(), || {
        black_box(collected.insert(&new, &cuts));
    });
    println!(
        "  build {build:.0} ns/key, insert {insert:.0} ns/key, probe {probe:.1} ns ({chained:.1} ns if each waits for the last)"
    );
}

fn main() {
    println!("{KEYS} keys, 10 bits per key at growth 1.1, T = 10; absent keys\n");
    let uniform = |i: u64, salt: u64| random(i, salt) >> 14;
    figures("uniform, learned", MapChoice::Learned, uniform);
    figures("uniform, digest", MapChoice::Digest, uniform);
    figures("uniform, mixed", MapChoice::Mixed, uniform);
    figures("uniform, auto", MapChoice::Auto, uniform);
    figures("clusters, auto", MapChoice::Auto, |i, salt| {
        let r = random(i, salt);
        (random(r % 3000, 99) & !0xff_ffff) + (r >> 40) % 100_000
    });
}
