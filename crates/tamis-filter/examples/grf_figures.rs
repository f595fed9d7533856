//! Prints the costs of a partition of a global filter: rate, code bits, ns per probe and per
//! inserted key. Run with `cargo run --release -p tamis-filter --example grf_figures`; takes a few
//! seconds.
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use tamis_filter::Digest;
use tamis_filter::global::{Batch, Cuts, Epochs, MapChoice, Partition, PartitionSpec, QueryMix};

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
    let spec = PartitionSpec { bits_per_key: 10.0, map, mix: QueryMix::default() };
    let last = Epochs { lo: 0, hi: BASE };
    let built = batch((0..KEYS).map(|i| (key(i, 1).to_be_bytes(), last)).collect());
    let start = Instant::now();
    let partition = Partition::build(&built, BASE, &spec).expect("a valid specification");
    let build = start.elapsed().as_nanos() as f64 / KEYS as f64;
    let absent: Vec<([u8; 8], Digest)> =
        (0..PROBES as u64).map(|i| key(i, 7).to_be_bytes()).map(|key| (key, Digest::of(&key))).collect();
    // A tree of shape 999: nine runs of a hundred flushes, nine of ten, nine of one. 9 % of the
    // keys are in them.
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
    let collected = grown.collect(0, &cuts);
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
    // Rounds are shorter than a time slice, so that on a busy machine most of them are not
    // interrupted.
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

/// Equal runs that pile up, and then small flushes: one key in a thousand each.
fn piled(bits_per_key: f64, map: MapChoice, runs: u64) {
    let key = |i: u64, salt: u64| random(i, salt) >> 14;
    let spec = PartitionSpec { bits_per_key, map, mix: QueryMix::default() };
    let (mut tables, mut partition) = (Vec::new(), None::<Partition>);
    for run in 0..runs {
        let epochs = Epochs { lo: run, hi: run + 1 };
        tables.push(epochs);
        let new = batch(
            (run * KEYS / runs..(run + 1) * KEYS / runs).map(|i| (key(i, 3).to_be_bytes(), epochs)).collect(),
        );
        let cuts = Cuts::of(tables.iter().copied());
        partition = Some(match partition {
            None => Partition::build(&new, 0, &spec).expect("a valid specification"),
            Some(partition) => partition.insert(&new, &cuts),
        });
    }
    let mut partition = partition.expect("there are runs");
    let absent: Vec<([u8; 8], Digest)> =
        (0..PROBES as u64).map(|i| key(i, 7).to_be_bytes()).map(|key| (key, Digest::of(&key))).collect();
    let present: Vec<([u8; 8], Digest)> = (0..KEYS)
        .map(|i| key(random(i, 9) % KEYS, 3).to_be_bytes())
        .map(|key| (key, Digest::of(&key)))
        .collect();
    let time = |partition: &Partition, keys: &[([u8; 8], Digest)]| {
        let mut rounds = keys.chunks(ROUND).cycle();
        median(64, ROUND, || {
            let (mut hits, keys) = (0u64, rounds.next().unwrap_or_default());
            keys.iter().for_each(|(key, digest)| partition.probe(key, *digest, |epochs| hits += epochs.lo));
            black_box(hits);
        })
    };
    let rate = |partition: &Partition| {
        let mut hits = 0;
        absent.iter().for_each(|(key, digest)| partition.probe(key, *digest, |_| hits += 1));
        hits as f64 / PROBES as f64
    };
    let report = |when: &str, partition: &Partition| {
        println!(
            "  {when:<24} {:6.2} bits/entry, codes {:.2}, names {:.4} runs, absent {:.1} ns, present {:.1} ns",
            partition.memory_bytes() as f64 * 8.0 / partition.entries() as f64,
            partition.code_bits(),
            rate(partition),
            time(partition, &absent),
            time(partition, &present),
        );
    };
    println!("{runs} equal runs, {bits_per_key} bits, {map:?}");
    report("piled up", &partition);
    let flushes = 100;
    let started = Instant::now();
    let mut spent = std::time::Duration::ZERO;
    for flush in 0..flushes {
        let epochs = Epochs { lo: runs + flush, hi: runs + flush + 1 };
        tables.push(epochs);
        let keys = (0..KEYS / 1000).map(|i| (key(flush << 20 | i, 11).to_be_bytes(), epochs));
        let (new, cuts) = (batch(keys.collect()), Cuts::of(tables.iter().copied()));
        let begun = Instant::now();
        partition = partition.insert(&new, &cuts);
        spent += begun.elapsed();
    }
    let _ = started;
    println!("  small flushes: {:.0} ns/key", spent.as_nanos() as f64 / (flushes * (KEYS / 1000)) as f64);
    report("and small flushes", &partition);
    let cuts = Cuts::of([Epochs { lo: 0, hi: runs + flushes }]);
    let begun = Instant::now();
    let merged = partition.collect(0, &cuts);
    println!("  encoding anew: {:.1} ns/entry", begun.elapsed().as_nanos() as f64 / merged.entries() as f64);
    report("all merged", &merged);
}

/// A dense cluster between two old keys: flushes of a thousand keys, and a build anew whenever the
/// partition is crowded.
fn shifted(map: MapChoice) {
    let spec = PartitionSpec { bits_per_key: 10.0, map, mix: QueryMix::default() };
    let cluster = |i: u64| (1 << 49) + 12_345 + (random(i, 6) >> 32);
    let mut all: Vec<([u8; 8], Epochs)> =
        (0..KEYS).map(|i| ((random(i, 1) >> 14).to_be_bytes(), Epochs { lo: 0, hi: BASE })).collect();
    let mut partition = Partition::build(&batch(all.clone()), BASE, &spec).expect("a valid specification");
    let mut tables = vec![Epochs { lo: 0, hi: BASE }];
    let (mut spent, mut slowest, mut built, mut largest) = (0.0, 0.0f64, 0, 0);
    for flush in 0..20 {
        let epochs = Epochs { lo: BASE + flush, hi: BASE + flush + 1 };
        tables.push(epochs);
        let keys: Vec<_> =
            (flush * 1000..(flush + 1) * 1000).map(|i| (cluster(i).to_be_bytes(), epochs)).collect();
        let (new, cuts) = (batch(keys.clone()), Cuts::of(tables.iter().copied()));
        let begun = Instant::now();
        partition = partition.insert(&new, &cuts);
        let taken = begun.elapsed().as_nanos() as f64 / 1000.0;
        (spent, slowest) = (spent + taken / 20.0, slowest.max(taken));
        largest = largest.max(partition.largest_block());
        all.extend(keys);
        if partition.is_crowded() {
            partition = Partition::build(&batch(all.clone()), BASE, &spec).expect("a valid specification");
            built += 1;
        }
    }
    println!(
        "cluster of 20,000 keys between two of {KEYS}, {map:?}: insert {spent:.0} ns/key, slowest flush {slowest:.0} ns/key, blocks up to \
         {largest}, {built} builds"
    );
}

fn main() {
    for map in [MapChoice::Learned, MapChoice::Mixed, MapChoice::Local, MapChoice::Digest] {
        shifted(map);
    }
    for bits in [10.0, 14.0] {
        for map in [MapChoice::Digest, MapChoice::Learned] {
            for runs in [1, 4, 19, 74] {
                piled(bits, map, runs);
            }
        }
    }
    // The bits of a layout of one cache line per bucket, which docs/decisions.md compares with this
    // one.
    piled(13.1, MapChoice::Digest, 19);
    println!("{KEYS} keys, 10 bits per key, T = 10; absent keys\n");
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
