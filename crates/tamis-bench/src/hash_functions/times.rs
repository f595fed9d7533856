//! Table 1 and Figures 4 and 5: what hashing and lookups cost.

use std::hint::black_box;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use tamis_filter::{Bloom, BloomScheme, Digest, FilterError};

use super::functions::Function;
use super::rates::{BITS, DOUBLE_FUNCTIONS};
use super::reference::{Reference, Scheme};
use crate::measure::{independent, interleaved, mask};
use crate::progress::Progress;
use crate::stats::Spread;

/// Key sizes of the figures, in bytes.
pub const SIZES: [usize; 8] = [8, 16, 32, 64, 128, 256, 512, 1024];
const KEYS: usize = 10_000;
/// Bytes of keys to ask for: they should not come from memory.
const QUERY_BYTES: usize = 1 << 20;

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Times {
    /// Table 1: ns to hash 1 KB, by [`Function`].
    pub hash: Vec<Spread>,
    /// ns to copy 4 KB from a random place in memory.
    pub memory: Spread,
    /// Figure 4: a lookup that finds nothing, one filter, by variant and size.
    pub single: Vec<(String, Vec<Spread>)>,
    /// Figure 5: the same in seven units.
    pub units: Vec<(String, Vec<Spread>)>,
}

/// Measures everything in `rounds` rounds of `probes` operations.
pub fn measure(rounds: usize, probes: usize, seed: u64, progress: &Progress) -> Result<Times, FilterError> {
    let mut random = StdRng::seed_from_u64(seed);
    let (hash, memory) = hashes(rounds, probes, &mut random, progress);
    let mut single: Vec<(String, Vec<Spread>)> = Vec::new();
    let mut units: Vec<(String, Vec<Spread>)> = Vec::new();
    for size in SIZES {
        let keys = |count: usize, random: &mut StdRng| {
            let mut bytes = vec![0; count * size];
            random.fill(&mut bytes[..]);
            bytes
        };
        let members = keys(KEYS, &mut random);
        // Short keys: so many that branch prediction cannot learn the answers.
        let others = keys((QUERY_BYTES / size).clamp(1 << 10, 1 << 15), &mut random);
        let member_keys = || members.chunks_exact(size);
        // Longer keys take longer: fewer of them will do.
        let count = probes * 64 / (64 + size);
        let mask = mask(others.len() / size).unwrap_or(0);
        let key = |at: usize| &others[at * size..][..size];

        let reference = |scheme, units: bool| Reference::build(member_keys(), BITS, 7, scheme, units);
        let bloom = |function: Function| {
            let digests: Vec<_> = member_keys().map(|key| Digest::from_u64(function.hash(key))).collect();
            Bloom::build(&digests, BITS, BloomScheme::Rotation, 0)
        };
        let mut sides: Vec<Box<dyn FnMut() -> f64 + '_>> = Vec::new();
        let mut names = Vec::new();
        for (name, scheme) in [("seven hashes", Scheme::Seven), ("seven hashes, lazily", Scheme::SevenLazy)] {
            let filter = reference(scheme, false);
            names.push(name.to_owned());
            sides.push(Box::new(move || independent(count, mask, |at| filter.contains(key(at)))));
        }
        for function in [Function::Md5, Function::Mm64, Function::Xxh3] {
            let filter = bloom(function)?;
            names.push(format!("{} + rotation", function.name()));
            sides.push(Box::new(move || {
                independent(count, mask, |at| filter.contains(Digest::from_u64(function.hash(key(at)))))
            }));
        }
        let of_single = sides.len();
        let rotations = [Function::Mm64, Function::Xxh3]
            .map(|function| (format!("{} + rotation", function.name()), Scheme::Rotation(function)));
        let doubles = DOUBLE_FUNCTIONS.map(|(function, _)| {
            (format!("{} + MM64", function.name()), Scheme::Double(function, Function::Mm64))
        });
        for (name, scheme) in rotations.into_iter().chain(doubles) {
            let filter = reference(scheme, true);
            names.push(name);
            sides.push(Box::new(move || independent(count, mask, |at| filter.contains(key(at)))));
        }
        progress.begin(&format!("lookups with keys of {size} bytes"), sides.len() * (rounds + 1));
        let spreads = interleaved(rounds, &mut sides, || progress.advance(1));
        for (at, (name, spread)) in names.into_iter().zip(spreads).enumerate() {
            let (group, at) = if at < of_single { (&mut single, at) } else { (&mut units, at - of_single) };
            if group.len() == at {
                group.push((name, Vec::new()));
            }
            group[at].1.push(spread);
        }
    }
    Ok(Times { hash, memory, single, units })
}

fn hashes(rounds: usize, probes: usize, random: &mut StdRng, progress: &Progress) -> (Vec<Spread>, Spread) {
    const KEY: usize = 1024;
    const PAGE: usize = 4096;
    const PAGES: usize = 1 << 16;
    let mut keys = vec![0u8; 16 * KEY];
    random.fill(&mut keys[..]);
    // Written to, or all pages would be one.
    let memory: Vec<u8> = (0..PAGES * PAGE).map(|at| (at >> 12) as u8).collect();
    let route: Vec<usize> = (0..1 << 12).map(|_| random.random_range(0..PAGES)).collect();
    let mut page = vec![0u8; PAGE];
    let count = (probes / 16).max(16);
    let mut sides: Vec<Box<dyn FnMut() -> f64 + '_>> = Vec::new();
    for function in Function::ALL {
        let keys = &keys;
        sides.push(Box::new(move || {
            independent(count, 15, |at| black_box(function.hash(&keys[at * KEY..][..KEY])) & 1 == 1)
        }));
    }
    let mut turn = 0usize;
    sides.push(Box::new(move || {
        independent(count.min(route.len()), route.len() - 1, |at| {
            turn = turn.wrapping_mul(5).wrapping_add(1) % PAGES;
            let from = (route[at] ^ turn) % PAGES * PAGE;
            page.copy_from_slice(&memory[from..from + PAGE]);
            black_box(&page)[0] == 1
        })
    }));
    progress.begin("hashing 1 KB", sides.len() * (rounds + 1));
    let mut spreads = interleaved(rounds, &mut sides, || progress.advance(1));
    let memory = spreads.pop().unwrap_or(Spread { median: f64::NAN, min: f64::NAN, max: f64::NAN });
    (spreads, memory)
}
