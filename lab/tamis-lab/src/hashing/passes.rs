//! Pieces of sequences of gets, and the passes timed over them: the gets, their digests alone, their probes alone.

use std::hint::black_box;
use std::time::Instant;

use tamis::Db;
use tamis_bench::BenchError;
use tamis_bench::keys::KeySet;
use tamis_bench::random::{Random, mix64};
use tamis_bench::value;
use tamis_bench::zipf::Ranks;
use tamis_filter::{BlockedBloom, Digest, PointFilter, PointSpec, Verify, probe_selected};

/// Size of the keys of a piece, which stay in the second-level cache.
const PIECE_BYTES: usize = 128 << 10;

/// Maximum number of gets in a piece.
const MOST: usize = 2000;

/// Approximate duration of a piece: short compared with a time slice, so that few pieces are interrupted, and long
/// compared with reading the clock.
const PIECE_NS: f64 = 300_000.0;

/// Number of filters that a get queries together at first and later, as on the read path with sharing.
const FIRST_STEP: usize = 8;
const STEP: usize = 32;

/// A sequence of keys to get.
#[derive(Debug)]
pub(super) struct Sequence<'k> {
    keys: &'k KeySet,
    absent: u64,
    existing_ranks: Ranks,
    absent_ranks: Ranks,
    random: Random,
    left: u64,
    piece: u64,
}

impl<'k> Sequence<'k> {
    /// Creates a sequence of `ops` gets that take about `get_ns` each; `absent` percent of them ask for absent keys.
    /// With a skew, the most frequent keys are the same for all seeds.
    pub(super) fn new(
        keys: &'k KeySet,
        absent: u64,
        skew: f64,
        (ops, get_ns): (u64, f64),
        seed: u64,
    ) -> Sequence<'k> {
        let most = (PIECE_BYTES / keys.key_bytes().ceil().max(1.0) as usize).clamp(1, MOST);
        let absents = if skew > 0.0 { keys.len() } else { keys.absent_len() };
        Sequence {
            keys,
            absent,
            existing_ranks: Ranks::new(keys.len(), skew),
            absent_ranks: Ranks::new(absents.min(keys.absent_len()), skew),
            random: Random::part(seed, 0x6861_7368),
            left: ops,
            piece: ((PIECE_NS / get_ns.max(1.0)) as u64).clamp(1, most as u64),
        }
    }

    /// Fills in the next piece; returns `false` at the end.
    pub(super) fn next(&mut self, piece: &mut Piece) -> bool {
        piece.bytes.clear();
        piece.expected.clear();
        let count = self.left.min(self.piece);
        self.left -= count;
        for _ in 0..count {
            let start = piece.bytes.len();
            if self.random.chance(self.absent) {
                self.keys.absent(self.absent_ranks.draw(&mut self.random), &mut piece.bytes);
                piece.expected.push(None);
            } else {
                self.keys.existing(self.existing_ranks.draw(&mut self.random), &mut piece.bytes);
                piece.expected.push(Some(value::tag_of(&piece.bytes[start..])));
            }
        }
        count > 0
    }
}

/// A batch of gets: concatenated keys, and the tag of the value expected for each.
#[derive(Debug)]
pub(super) struct Piece {
    key_bytes: usize,
    value_bytes: usize,
    bytes: Vec<u8>,
    expected: Vec<Option<u64>>,
}

impl Piece {
    /// Creates an empty piece for keys and values of these sizes.
    pub(super) fn new(key_bytes: usize, value_bytes: usize) -> Piece {
        Piece { key_bytes, value_bytes, bytes: Vec::new(), expected: Vec::new() }
    }

    /// Returns the number of gets.
    pub(super) fn len(&self) -> u64 {
        self.expected.len() as u64
    }

    fn keys(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.key_bytes)
    }

    /// Executes all gets, checking every answer. Returns nanoseconds.
    pub(super) fn get_all(&self, db: &Db) -> Result<u64, BenchError> {
        let begun = Instant::now();
        for (key, expected) in self.keys().zip(&self.expected) {
            let found = db.get(key)?;
            let right = match (&found, expected) {
                (None, None) => true,
                (Some(value), Some(tag)) => value::check(*tag, self.value_bytes, value),
                _ => false,
            };
            if !right {
                return Err(wrong(key, expected.is_some(), found.is_some()));
            }
        }
        Ok(begun.elapsed().as_nanos() as u64)
    }

    /// Computes `digests` digests of the keys in order, spread evenly. Returns nanoseconds.
    pub(super) fn digest_all(&self, digests: u64) -> u64 {
        let begun = Instant::now();
        for (key, count) in self.keys().zip(shares(digests, self.len())) {
            for _ in 0..count {
                black_box(Digest::of(black_box(key)));
            }
        }
        begun.elapsed().as_nanos() as u64
    }

    /// Queries filters for the keys in order, `questions` times in total, spread evenly. Returns nanoseconds.
    pub(super) fn probe_all(&self, probes: &Probes, questions: u64, together: bool) -> u64 {
        let digests: Vec<Digest> = self.keys().map(Digest::of).collect();
        let begun = Instant::now();
        for (&digest, count) in digests.iter().zip(shares(questions, self.len())) {
            probes.ask(digest, count as usize, together);
        }
        begun.elapsed().as_nanos() as u64
    }
}

/// Divides `total` into `parts` shares that differ by at most one.
fn shares(total: u64, parts: u64) -> impl Iterator<Item = u64> {
    let upto = move |i: u64| (u128::from(total) * u128::from(i) / u128::from(parts.max(1))) as u64;
    (0..parts).map(move |i| upto(i + 1) - upto(i))
}

fn wrong(key: &[u8], expected: bool, found: bool) -> BenchError {
    let word = |some: bool, what: &str| if some { what.to_owned() } else { "no value".to_owned() };
    BenchError::WrongAnswer {
        workload: "hash sharing".into(),
        key: key.iter().map(|byte| format!("{byte:02x}")).collect(),
        expected: word(expected, "its value"),
        got: word(found, if expected { "another value" } else { "a value" }),
    }
}

/// Filters with the sizes of those of a tree's runs, over other keys: the cost of a probe does not depend on the keys.
#[derive(Debug)]
pub(super) struct Probes {
    filters: Vec<BlockedBloom>,
    all: Vec<u32>,
}

impl Probes {
    /// Builds one filter per run. Takes 8 bytes per key of the largest run while building.
    pub(super) fn new(runs: &[u64], bits: f64) -> Result<Probes, BenchError> {
        let mut filters = Vec::with_capacity(runs.len());
        let mut digests = Vec::new();
        for (run, &keys) in (0u64..).zip(runs) {
            digests.clear();
            digests.extend((0..keys).map(|key| Digest::from_u64(mix64(key ^ mix64(run)))));
            let built = PointFilter::build(PointSpec::BlockedBloom, &digests, bits, mix64(run), Verify::No);
            match built {
                Ok(PointFilter::BlockedBloom(filter)) => filters.push(filter),
                Ok(_) => return Err(BenchError::Request("a filter of another kind was built".into())),
                Err(why) => return Err(BenchError::Request(format!("a filter could not be built: {why}"))),
            }
        }
        let all = (0..filters.len() as u32).collect();
        Ok(Probes { filters, all })
    }

    /// Queries the first `count` filters, at most all.
    #[inline]
    fn ask(&self, digest: Digest, count: usize, together: bool) {
        let count = count.min(self.filters.len());
        if !together {
            for filter in &self.filters[..count] {
                black_box(filter.contains(digest));
            }
            return;
        }
        let mut begin = 0;
        while begin < count {
            let step = if begin == 0 { FIRST_STEP } else { STEP };
            let end = count.min(begin + step);
            black_box(probe_selected(&self.filters, &self.all[begin..end], digest));
            begin = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_differ_by_one() {
        for (total, parts) in [(10, 4), (0, 3), (7, 7), (3, 10), (1_000_003, 1000)] {
            let shares: Vec<u64> = shares(total, parts).collect();
            assert_eq!(shares.iter().sum::<u64>(), total);
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            assert!(shares.len() as u64 == parts && most - least <= 1, "{shares:?}");
        }
    }

    #[test]
    fn a_sequence_has_the_requested_gets_and_is_reproducible_from_its_seed() {
        let keys = KeySet::uniform(1000, 40, 1).unwrap();
        for (absent, skew) in [(0, 0.0), (100, 0.0), (30, 0.99)] {
            let all = |seed| {
                let mut sequence = Sequence::new(&keys, absent, skew, (5000, 1000.0), seed);
                let mut piece = Piece::new(40, 10);
                let mut all = (Vec::new(), 0u64);
                while sequence.next(&mut piece) {
                    assert_eq!(piece.keys().len(), piece.expected.len());
                    for (key, expected) in piece.keys().zip(&piece.expected) {
                        assert_eq!(keys.contains(key), expected.is_some());
                        all.1 += u64::from(expected.is_none());
                        all.0.push(key.to_vec());
                    }
                }
                all
            };
            let (first, absents) = all(1);
            assert_eq!(first.len(), 5000);
            assert!(absents.abs_diff(50 * absent) < 300, "{absents} of {absent} percent");
            assert_eq!(first, all(1).0);
            assert_ne!(first, all(2).0);
            let mut times = std::collections::HashMap::new();
            first.iter().for_each(|key| *times.entry(key).or_insert(0) += 1);
            let most = times.values().max().unwrap();
            assert_eq!(*most > 100, skew > 0.0, "{most} times the same key");
        }
    }

    #[test]
    fn filters_have_the_sizes_of_the_runs() {
        let probes = Probes::new(&[1, 100, 10_000], 10.0).unwrap();
        let keys: Vec<u64> = probes.filters.iter().map(BlockedBloom::keys).collect();
        assert_eq!(keys, [1, 100, 10_000]);
        assert!((10.0..11.0).contains(&probes.filters[2].bits_per_key()));
        // Requests for more filters than there are query all of them.
        probes.ask(Digest::from_u64(1), 50, true);
        probes.ask(Digest::from_u64(1), 50, false);
    }
}
