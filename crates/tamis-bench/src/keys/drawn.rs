//! Distributions of numbers, modelled on the data sets used to evaluate learned indexes and
//! filters.
//!
//! The data sets of the papers (SOSD) are large downloads. Three of these distributions are
//! stand-ins with the properties that matter to a learned filter; the documentation names them as
//! such.

use crate::keys::KeySetError;
use crate::random::Random;
use crate::sample::Sample;

/// The space of most of them: 50 bits.
const BITS: u32 = 50;

/// Ids of the `fb` set lie this far apart on average.
const ID_GAP: u64 = 512;

/// The number of ids of the `fb` set far beyond the others.
const OUTLIERS: u64 = 21;

/// The scatter of places of the `cells` set, in degrees (standard deviation).
const SCATTER: f64 = 0.05;

/// A distribution of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// Uniform over 50 bits.
    Uniform50,
    /// Normal, mean 100 and standard deviation 20, the range 0 to 200 scaled to 50 bits.
    Normal,
    /// Morton codes of real places: latitude and longitude in 32 bits each, interleaved. Beyond the
    /// sample's number of places, points are scattered around them. Stands in for OpenStreetMap
    /// cells.
    Cells,
    /// Sums of log-normal gaps: ranges of all densities. Stands in for sales ranks of books.
    Books,
    /// Dense near-uniform ids and a few far outliers. Stands in for user ids.
    Fb,
}

impl Distribution {
    /// All distributions.
    pub const ALL: [Distribution; 5] = [
        Distribution::Uniform50,
        Distribution::Normal,
        Distribution::Cells,
        Distribution::Books,
        Distribution::Fb,
    ];

    /// Returns the name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Distribution::Uniform50 => "uniform50",
            Distribution::Normal => "normal",
            Distribution::Cells => "cells",
            Distribution::Books => "books-like",
            Distribution::Fb => "fb-like",
        }
    }

    /// Returns `count` distinct numbers in ascending order. Costs a few draws per number.
    pub(crate) fn draw(self, count: u64, seed: u64) -> Result<Vec<u64>, KeySetError> {
        // Far below the size of every space, so that repeated draws find distinct numbers.
        if count > 1 << 40 {
            return Err(KeySetError::TooNarrow { width: 8, count });
        }
        let mut random = Random::part(seed, self as u64);
        if self == Distribution::Books {
            return Ok(sums(count, &mut random));
        }
        let places = match self {
            Distribution::Cells => places(),
            _ => Vec::new(),
        };
        let mut numbers: Vec<u64> = Vec::new();
        let mut drawn = 0;
        while (numbers.len() as u64) < count {
            for _ in numbers.len() as u64..count {
                numbers.push(self.one(drawn, count, &places, &mut random));
                drawn += 1;
            }
            numbers.sort_unstable();
            numbers.dedup();
        }
        Ok(numbers)
    }

    fn one(self, nth: u64, count: u64, places: &[(f64, f64)], random: &mut Random) -> u64 {
        match self {
            Distribution::Uniform50 => random.next_u64() >> (64 - BITS),
            Distribution::Normal => loop {
                let scaled = (100.0 + 20.0 * random.gauss()) / 200.0;
                if (0.0..1.0).contains(&scaled) {
                    return (scaled * (1u64 << BITS) as f64) as u64;
                }
            },
            Distribution::Cells if count <= places.len() as u64 => {
                let (lat, lon) = places[random.below(places.len() as u64) as usize];
                cell(lat, lon)
            }
            Distribution::Cells => match places.get(nth as usize) {
                Some(&(lat, lon)) => cell(lat, lon),
                None => {
                    let (lat, lon) = places[random.below(places.len() as u64) as usize];
                    cell(lat + SCATTER * random.gauss(), lon + SCATTER * random.gauss())
                }
            },
            Distribution::Fb if nth < OUTLIERS.min(count / 100) => {
                1 << 40 | random.next_u64() >> (1 + random.below(20))
            }
            Distribution::Fb => random.below(count.saturating_mul(ID_GAP)),
            Distribution::Books => unreachable!("made by sums"),
        }
    }
}

/// Returns ascending numbers whose gaps are log-normal and at least one.
fn sums(count: u64, random: &mut Random) -> Vec<u64> {
    let mut last = 0u64;
    let mut next = || {
        let gap = (6.0 + 2.5 * random.gauss()).exp();
        last = last.saturating_add(1 + gap as u64);
        last
    };
    (0..count).map(|_| next()).collect()
}

/// Returns the latitude and longitude of the sample's places.
pub fn places() -> Vec<(f64, f64)> {
    let sample = Sample::load();
    let place = |key: &str| {
        let (lat, lon) = key.rsplit_once('@')?.1.split_once(',')?;
        Some((lat.parse().ok()?, lon.parse().ok()?))
    };
    sample.records().filter_map(|record| place(record.key)).collect()
}

/// Returns the Morton code of a place: the interleaved bits of longitude and latitude, each as a
/// 32-bit share of its range. Places beyond the edges of the map are clamped to them.
pub fn cell(lat: f64, lon: f64) -> u64 {
    // Floating-point casts saturate: points beyond an edge land on it.
    let part = |x: f64, span: f64| ((x / span + 0.5) * 2f64.powi(32)) as u32;
    spread(part(lat, 180.0)) << 1 | spread(part(lon, 360.0))
}

/// Spreads the bits of `x` to the even positions.
fn spread(x: u32) -> u64 {
    let mut x = u64::from(x);
    for (shift, mask) in [
        (16, 0x0000_FFFF_0000_FFFF),
        (8, 0x00FF_00FF_00FF_00FF),
        (4, 0x0F0F_0F0F_0F0F_0F0F),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ] {
        x = (x | x << shift) & mask;
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_distinct_ascending_and_the_same_again() {
        for from in Distribution::ALL {
            let numbers = from.draw(5_000, 3).unwrap();
            assert_eq!(numbers.len(), 5_000, "{from:?}");
            assert!(numbers.is_sorted_by(|a, b| a < b), "{from:?}");
            assert_eq!(numbers, from.draw(5_000, 3).unwrap());
            assert_ne!(numbers, from.draw(5_000, 4).unwrap());
        }
    }

    #[test]
    fn each_has_its_shape() {
        let draw = |from: Distribution| from.draw(20_000, 1).unwrap();
        let below = |numbers: &[u64], limit: u64| numbers.iter().filter(|&&n| n < limit).count();
        let uniform = draw(Distribution::Uniform50);
        assert!((4_500..5_500).contains(&below(&uniform, 1 << 48)));
        // Two standard deviations below the mean: 2.3 %.
        let normal = draw(Distribution::Normal);
        assert!((300..650).contains(&below(&normal, (1u64 << 50) / 200 * 60)));
        let fb = draw(Distribution::Fb);
        assert_eq!(fb.len() - below(&fb, 1 << 40), OUTLIERS as usize);
        // Half of the books lie in a far smaller part of the space than half of it.
        let books = draw(Distribution::Books);
        let mut gaps: Vec<u64> = books.windows(2).map(|pair| pair[1] - pair[0]).collect();
        gaps.sort_unstable();
        let all: u64 = gaps.iter().sum();
        assert!(gaps[..gaps.len() / 2].iter().sum::<u64>() < all / 50);
    }

    #[test]
    fn neighbouring_places_have_neighbouring_cells() {
        assert_eq!((spread(u32::MAX), spread(0b101)), (0x5555_5555_5555_5555, 0b10001));
        let (lyon, villeurbanne, sydney) = (cell(45.749, 4.848), cell(45.766, 4.879), cell(-33.868, 151.207));
        assert!(lyon.abs_diff(villeurbanne) < lyon.abs_diff(sydney) >> 10);
        assert!(cell(-1000.0, -1000.0) == 0 && cell(1000.0, 1000.0) == u64::MAX);
    }

    #[test]
    fn neighbours_share_the_first_bits_of_their_cells() {
        let lyon = cell(45.749, 4.848);
        let villeurbanne = cell(45.766, 4.879);
        let sydney = cell(-33.868, 151.207);
        assert!((lyon ^ villeurbanne).leading_zeros() > (lyon ^ sydney).leading_zeros());
        assert_eq!(cell(-90.0, -180.0), 0);
        assert_eq!(cell(90.0, 180.0), u64::MAX);
    }

    #[test]
    fn bits_are_spread_to_even_positions() {
        assert_eq!(spread(0b1011), 0b100_0101);
        assert_eq!(spread(u32::MAX), 0x5555_5555_5555_5555);
    }
}
