//! Tables 2 and 3 and Figure 3: false positives of one digest, rotated, beside *k* hashes and theory.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use tamis_filter::theory::{bloom_rate, optimal_probes};
use tamis_filter::{Bloom, BloomScheme, Digest, FilterError, IndependentDigests};

use super::functions::Function;
use super::reference::{Reference, Scheme};
use crate::progress::Progress;
use crate::stats::mean_and_error;

/// Keys in the paper's filters.
const KEYS: usize = 10_000;
/// Bytes of a key in them.
const KEY_BYTES: usize = 512;
/// Bits per key of the tables.
pub const BITS: f64 = 10.0;

/// A measured rate: its mean over several sets of keys.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Mean {
    /// The mean.
    pub rate: f64,
    /// Its standard error.
    pub error: f64,
    /// Queries behind it.
    pub queries: usize,
}

impl Mean {
    fn of(rates: &[f64], queries: usize) -> Self {
        let (rate, error) = mean_and_error(rates);
        Self { rate, error, queries: queries * rates.len() }
    }
}

/// One number of bits per key of Figure 3.
#[derive(Clone, Debug, Serialize)]
pub struct AtBits {
    /// Bits per key.
    pub bits: u32,
    /// Probes.
    pub probes: u32,
    /// The formula.
    pub theory: f64,
    /// One digest with rotation, by [`Function`].
    pub rotation: Vec<Mean>,
    /// As many of the seven functions as there are probes; only up to seven.
    pub seven: Option<Mean>,
    /// XXH3 under as many seeds as there are probes.
    pub seeds: Mean,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Rates {
    /// Figure 3; its row of 10 bits is Table 2.
    pub bits: Vec<AtBits>,
    /// Table 3, left: one function and rotation, seven units.
    pub units_rotation: Vec<(&'static str, Mean)>,
    /// Table 3, right: two functions, seven units.
    pub units_double: Vec<(String, Mean)>,
}

/// Functions of the left side of Table 3, with the paper's rates; 3 of them are also the right side's first functions.
pub const UNIT_FUNCTIONS: [(Function, f64); 4] = [
    (Function::Mm64, 0.008_29),
    (Function::Xx, 0.008_97),
    (Function::Crc, 0.008_41),
    (Function::City, 0.008_34),
];

/// First functions of the right side, each with MM64 as the second, with the paper's rates.
pub const DOUBLE_FUNCTIONS: [(Function, f64); 3] =
    [(Function::Xx, 0.007_61), (Function::Crc, 0.008_08), (Function::City, 0.008_42)];

/// Keys side by side.
struct Keys {
    bytes: Vec<u8>,
}

impl Keys {
    fn random(count: usize, random: &mut StdRng) -> Self {
        let mut bytes = vec![0; count * KEY_BYTES];
        random.fill(&mut bytes[..]);
        Self { bytes }
    }

    fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        self.bytes.chunks_exact(KEY_BYTES)
    }

    fn hashes(&self, function: Function) -> Vec<Digest> {
        self.iter().map(|key| Digest::from_u64(function.hash(key))).collect()
    }
}

/// Measures with `repeats` sets of keys and `queries` absent ones each.
pub fn measure(
    repeats: usize,
    queries: usize,
    most_bits: u32,
    seed: u64,
    progress: &Progress,
) -> Result<Rates, FilterError> {
    progress.begin("rates of single filters", repeats * (most_bits as usize + 1));
    // By number of bits, then by series: the functions with rotation, the seven, the seeds.
    let mut at_bits = vec![vec![Vec::new(); Function::ALL.len() + 2]; most_bits as usize];
    let mut units = vec![Vec::new(); UNIT_FUNCTIONS.len() + DOUBLE_FUNCTIONS.len()];
    for repeat in 0..repeats {
        let mut random = StdRng::seed_from_u64(seed.wrapping_mul(1 << 16).wrapping_add(repeat as u64));
        // Random keys of 512 bytes are distinct: the queries hold no member.
        let (members, others) = (Keys::random(KEYS, &mut random), Keys::random(queries, &mut random));
        let share = |positives: usize| positives as f64 / queries as f64;

        let hashes: Vec<_> = Function::ALL.iter().map(|&f| (members.hashes(f), others.hashes(f))).collect();
        let most_probes = optimal_probes(f64::from(most_bits));
        let seeds: Vec<_> = members.iter().map(|key| IndependentDigests::of(key, most_probes)).collect();
        let other_seeds: Vec<_> = others.iter().map(|key| IndependentDigests::of(key, most_probes)).collect();
        for (bits, series) in (1u32..).zip(&mut at_bits) {
            let bits_per_key = f64::from(bits);
            for ((members, others), rates) in hashes.iter().zip(series.iter_mut()) {
                let filter = Bloom::build(members, bits_per_key, BloomScheme::Rotation, 0)?;
                rates.push(share(others.iter().filter(|&&digest| filter.contains(digest)).count()));
            }
            let probes = optimal_probes(bits_per_key);
            if probes <= 7 {
                let filter = Reference::build(members.iter(), bits_per_key, probes, Scheme::SevenLazy, false);
                series[8].push(share(others.iter().filter(|key| filter.contains(key)).count()));
            }
            let filter = Bloom::build_independent(seeds.iter().copied(), bits_per_key, 0)?;
            let mut positives = 0;
            for seeds in &other_seeds {
                positives += usize::from(filter.contains_independent(seeds)?);
            }
            series[9].push(share(positives));
            progress.advance(1);
        }

        let rotations = UNIT_FUNCTIONS.iter().map(|&(function, _)| Scheme::Rotation(function));
        let doubles = DOUBLE_FUNCTIONS.iter().map(|&(function, _)| Scheme::Double(function, Function::Mm64));
        for (scheme, rates) in rotations.chain(doubles).zip(&mut units) {
            let filter = Reference::build(members.iter(), BITS, 7, scheme, true);
            rates.push(share(others.iter().filter(|key| filter.contains(key)).count()));
        }
        progress.advance(1);
    }

    let bits = (1u32..).zip(&at_bits).map(|(bits, series)| {
        let probes = optimal_probes(f64::from(bits));
        AtBits {
            bits,
            probes,
            theory: bloom_rate(f64::from(bits), probes),
            rotation: series[..8].iter().map(|rates| Mean::of(rates, queries)).collect(),
            seven: (!series[8].is_empty()).then(|| Mean::of(&series[8], queries)),
            seeds: Mean::of(&series[9], queries),
        }
    });
    let mut means = units.iter().map(|rates| Mean::of(rates, queries));
    Ok(Rates {
        bits: bits.collect(),
        units_rotation: UNIT_FUNCTIONS.iter().map(|(f, _)| f.name()).zip(means.by_ref()).collect(),
        units_double: DOUBLE_FUNCTIONS
            .iter()
            .map(|(f, _)| format!("{} + MM64", f.name()))
            .zip(means)
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_a_small_run_are_near_theory() {
        let rates = measure(2, 5_000, 10, 1, &Progress::new(false)).unwrap();
        assert_eq!(rates.bits.len(), 10);
        let ten = &rates.bits[9];
        assert_eq!((ten.bits, ten.probes), (10, 7));
        for mean in ten.rotation.iter().chain([&ten.seeds]).chain(&ten.seven) {
            assert!((0.005..0.012).contains(&mean.rate), "{mean:?}");
        }
        assert!(rates.units_rotation.len() == 4 && rates.units_double.len() == 3);
        assert!(rates.units_rotation.iter().all(|(_, mean)| (0.005..0.012).contains(&mean.rate)));
    }
}
