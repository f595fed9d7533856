//! Prints how well the maps of a partition of a global filter tell absent keys and empty ranges
//! from keys: for each key set, the share of held-out keys that match, the share of empty ranges
//! that do, bits per key, and ns per built key and per probe. Run with `cargo run --release -p
//! tamis-filter --example grf_maps -- [cities.tsv] [paths.txt] …`.
//!
//! A file that ends in `.tsv` is the sample of places
//! (`crates/tamis-bench/data/geonames-cities.tsv.gz`, unpacked): it gives the cells of the places
//! and their names. The lines of any other file are keys. The other sets are synthetic.
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use tamis_filter::global::{Ahead, Batch, Epochs, MapChoice, Partition, PartitionSpec, QueryMix};
use tamis_filter::{Bloom, BloomScheme, Digest, prefix_end};

/// Keys of a partition.
const KEYS: usize = 1 << 16;
/// One key in this many is held out.
const HELD: u64 = 5;
const SYNTHETIC: u64 = 170_000;
const LAST: Epochs = Epochs { lo: 0, hi: 1 };

type Key = Vec<u8>;

fn random(i: u64, salt: u64) -> u64 {
    Digest::from_u64(i).remix(salt)
}

/// A number in `[0, 1)`.
fn share(i: u64, salt: u64) -> f64 {
    (random(i, salt) >> 11) as f64 / (1u64 << 53) as f64
}

fn gauss(i: u64) -> f64 {
    (-2.0 * (1.0 - share(i, 1)).ln()).sqrt() * (std::f64::consts::TAU * share(i, 2)).cos()
}

fn integers(numbers: impl IntoIterator<Item = u64>) -> Vec<Key> {
    numbers.into_iter().map(|number| number.to_be_bytes().to_vec()).collect()
}

/// Sums of log-normal gaps.
fn books() -> Vec<Key> {
    let mut last = 0u64;
    integers((0..SYNTHETIC).map(|i| {
        last += 1 + (6.0 + 2.5 * gauss(i)).exp() as u64;
        last
    }))
}

/// Dense ids and a few far outliers.
fn fb() -> Vec<Key> {
    integers((0..SYNTHETIC).map(|i| match i {
        0..21 => 1 << 40 | random(i, 3) >> (1 + random(i, 4) % 20),
        _ => random(i, 5) % (SYNTHETIC * 512),
    }))
}

/// A place's key and the Morton code of where it is.
fn place(line: &str) -> Option<(&str, u64)> {
    let key = line.split('\t').next()?;
    let (lat, lon) = key.rsplit_once('@')?.1.split_once(',')?;
    let part = |degrees: &str, span: f64| {
        let degrees: f64 = degrees.parse().ok()?;
        Some(((degrees / span + 0.5) * 2f64.powi(32)) as u32)
    };
    let (lat, lon) = (part(lat, 180.0)?, part(lon, 360.0)?);
    let bit = |of: u32, at: u32| u64::from(of >> at & 1);
    Some((key, (0..32).map(|at| bit(lat, at) << (2 * at + 1) | bit(lon, at) << (2 * at)).sum()))
}

struct Set {
    name: String,
    /// Whether keys are numbers of eight bytes.
    numbers: bool,
    keys: Vec<Key>,
}

fn sets() -> Vec<Set> {
    let set = |name: &str, numbers, keys| Set { name: name.to_owned(), numbers, keys };
    let mut all = vec![
        set("uniform", true, integers((0..SYNTHETIC).map(|i| random(i, 7) >> 14))),
        set("books-like", true, books()),
        set("fb-like", true, fb()),
    ];
    for file in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&file).expect("a readable file of text");
        if file.ends_with(".tsv") {
            let places: Vec<(&str, u64)> = text.lines().filter_map(place).collect();
            all.push(set("cells", true, integers(places.iter().map(|(_, cell)| *cell))));
            all.push(set("places", false, places.iter().map(|(key, _)| key.as_bytes().to_vec()).collect()));
        } else {
            all.push(set(&file, false, text.lines().map(|line| line.as_bytes().to_vec()).collect()));
        }
    }
    for set in &mut all {
        set.keys.sort_unstable();
        set.keys.dedup();
    }
    all
}

/// Empty ranges that begin with a held-out key, narrow and wide: of 64 numbers and half-way to the
/// next key; of all keys that begin with the held-out one, and with as much of it as no key begins
/// with.
fn ranges(numbers: bool, key: &Key, before: &Key, next: &Key) -> [Option<(Key, Key)>; 2] {
    if numbers {
        let number = |key: &Key| u64::from_be_bytes(key[..].try_into().expect("eight bytes"));
        let (at, next) = (number(key), number(next));
        let to = |end: u64| (end <= next).then(|| (key.clone(), end.to_be_bytes().to_vec()));
        return [to(at + 64), to(at + (next - at) / 2 + 1)];
    }
    let shared = |other: &Key| key.iter().zip(other).take_while(|(a, b)| a == b).count();
    let least = (shared(before).max(shared(next)) + 1).min(key.len());
    let of = |prefix: &[u8]| {
        let is_empty = !next.starts_with(prefix) && !before.starts_with(prefix);
        prefix_end(prefix).filter(|_| is_empty).map(|end| (prefix.to_vec(), end))
    };
    [of(key), of(&key[..least])]
}

#[derive(Default)]
struct Figures {
    keys: usize,
    bytes: usize,
    build: f64,
    probe: f64,
    points: (u32, u32),
    bloom: (u32, u32),
    ranges: [(u32, u32); 2],
    chosen: Vec<MapChoice>,
}

/// Measures one partition.
fn measure(set: &Set, members: &[Key], held: &[Key], spec: &PartitionSpec, sum: &mut Figures) {
    let mut batch = Batch::new();
    members.iter().for_each(|key| batch.push(key, Digest::of(key), LAST));
    let start = Instant::now();
    let partition = Partition::build(&batch, 1, spec).expect("a valid specification");
    sum.build += start.elapsed().as_nanos() as f64;
    sum.keys += members.len();
    sum.bytes += partition.memory_bytes();
    sum.chosen.push(partition.reason().chosen);
    let digests: Vec<Digest> = members.iter().map(|key| Digest::of(key)).collect();
    let bloom = Bloom::build(&digests, spec.bits_per_key, BloomScheme::DoubleHashing, 0).ok();
    let held: Vec<&Key> =
        held.iter().filter(|key| **key > members[0] && **key < members[members.len() - 1]).collect();
    let mut ahead = Ahead::default();
    for key in &held {
        let digest = Digest::of(key);
        let mut hits = 0;
        partition.probe(key, digest, |_| hits += 1);
        sum.points = (sum.points.0 + hits.min(1), sum.points.1 + 1);
        if let Some(bloom) = &bloom {
            sum.bloom = (sum.bloom.0 + u32::from(bloom.contains(digest)), sum.bloom.1 + 1);
        }
        let at = members.partition_point(|member| member < *key);
        for (sum, range) in
            sum.ranges.iter_mut().zip(ranges(set.numbers, key, &members[at - 1], &members[at]))
        {
            let Some((from, end)) = range else { continue };
            let is_hit = !partition.ahead(&from, Some(&end), &mut ahead) || !ahead.found.is_empty();
            *sum = (sum.0 + u32::from(is_hit), sum.1 + 1);
        }
    }
    let digests: Vec<(&Key, Digest)> = held.iter().map(|key| (*key, Digest::of(key))).collect();
    let mut best = f64::MAX;
    for _ in 0..9 {
        let start = Instant::now();
        let mut hits = 0;
        digests.iter().for_each(|(key, digest)| partition.probe(key, *digest, |epochs| hits += epochs.hi));
        black_box(hits);
        best = best.min(start.elapsed().as_nanos() as f64 / digests.len() as f64);
    }
    sum.probe += best * members.len() as f64;
}

fn main() {
    for set in sets() {
        let (mut members, mut held) = (Vec::new(), Vec::new());
        for key in &set.keys {
            if Digest::of(key).remix(9).is_multiple_of(HELD) {
                held.push(key.clone())
            } else {
                members.push(key.clone())
            }
        }
        println!("{}: {} keys", set.name, members.len());
        let parts = members.len().div_ceil(KEYS);
        for bits_per_key in [10.0, 14.0] {
            for (map, range_share) in [
                (MapChoice::Learned, 0.5),
                (MapChoice::Mixed, 0.5),
                (MapChoice::Auto, 0.1),
                (MapChoice::Auto, 0.5),
            ] {
                let spec =
                    PartitionSpec { bits_per_key, map, mix: QueryMix { range_share, ..QueryMix::default() } };
                let mut sum = Figures::default();
                for part in 0..parts {
                    let (from, to) = (part * members.len() / parts, (part + 1) * members.len() / parts);
                    measure(&set, &members[from..to], &held, &spec, &mut sum);
                }
                let percent = |(hits, of): (u32, u32)| f64::from(hits) / f64::from(of.max(1)) * 100.0;
                println!(
                    "  {bits_per_key} bits {:<12} {:5.2} b/key: absent {:6.2} % (Bloom {:.2} %), narrow {:6.2} %, wide {:6.2} %; \
                     build {:4.0} ns, probe {:3.0} ns {:?}",
                    format!("{map:?} {range_share}"),
                    sum.bytes as f64 * 8.0 / sum.keys as f64,
                    percent(sum.points),
                    percent(sum.bloom),
                    percent(sum.ranges[0]),
                    percent(sum.ranges[1]),
                    sum.build / sum.keys as f64,
                    sum.probe / sum.keys as f64,
                    sum.chosen,
                );
            }
        }
    }
}
