//! Filters of the paper's experiments that tamis does not have: with *k* hash functions, and in units.

use tamis_filter::Digest;

use super::functions::Function;

/// The source of the hashes of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scheme {
    /// One of the seven functions per probe, all computed before the first probe.
    Seven,
    /// The same, each computed when needed.
    SevenLazy,
    /// One function, whose digest is rotated.
    Rotation(Function),
    /// Two functions: the first plus multiples of the second.
    Double(Function, Function),
}

/// A standard Bloom filter over one array of bits, or one array ("unit") per probe.
pub(super) struct Reference {
    words: Vec<u64>,
    /// Bits of a unit; all bits without units.
    unit_bits: u64,
    units: bool,
    probes: u32,
    scheme: Scheme,
}

impl Reference {
    /// Returns the bytes of its bits.
    pub(super) fn memory_bytes(&self) -> usize {
        self.words.len() * 8
    }

    /// Builds a filter over `keys`. Each unit has its share of the bits and is probed once. At most seven probes.
    pub(super) fn build<'k>(
        keys: impl ExactSizeIterator<Item = &'k [u8]>,
        bits_per_key: f64,
        probes: u32,
        scheme: Scheme,
        units: bool,
    ) -> Self {
        assert!((1..=7).contains(&probes));
        let bits = keys.len() as f64 * bits_per_key;
        let unit_bits = if units { bits / f64::from(probes) } else { bits }.ceil() as u64;
        let all_bits = if units { unit_bits * u64::from(probes) } else { unit_bits };
        let words = vec![0; all_bits.div_ceil(64) as usize];
        let mut filter = Self { words, unit_bits, units, probes, scheme };
        for key in keys {
            for probe in 0..probes {
                let bit = filter.bit(filter.nth(key, probe), probe);
                filter.words[(bit / 64) as usize] |= 1 << (bit % 64);
            }
        }
        filter
    }

    /// Computes hash number `probe` of the key from scratch.
    fn nth(&self, key: &[u8], probe: u32) -> u64 {
        match self.scheme {
            Scheme::Seven | Scheme::SevenLazy => spread(Function::SEVEN[probe as usize], key),
            Scheme::Rotation(_) | Scheme::Double(..) => {
                let (start, step) = self.start_and_step(key);
                start.wrapping_add(step.wrapping_mul(u64::from(probe)))
            }
        }
    }

    #[inline]
    fn start_and_step(&self, key: &[u8]) -> (u64, u64) {
        match self.scheme {
            Scheme::Rotation(function) => {
                let start = spread(function, key);
                (start, start.rotate_left(32) | 1)
            }
            Scheme::Double(first, second) => (spread(first, key), spread(second, key) | 1),
            Scheme::Seven | Scheme::SevenLazy => (0, 0),
        }
    }

    #[inline]
    fn bit(&self, hash: u64, probe: u32) -> u64 {
        let within = ((u128::from(hash) * u128::from(self.unit_bits)) >> 64) as u64;
        if self.units { within + u64::from(probe) * self.unit_bits } else { within }
    }

    #[inline]
    fn is_set(&self, hash: u64, probe: u32) -> bool {
        let bit = self.bit(hash, probe);
        self.words[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }

    /// Reports whether the filter may contain the key.
    #[inline]
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        match self.scheme {
            Scheme::Seven => {
                let mut hashes = [0; 7];
                for (hash, function) in hashes.iter_mut().zip(Function::SEVEN).take(self.probes as usize) {
                    *hash = spread(function, key);
                }
                (0..self.probes).all(|probe| self.is_set(hashes[probe as usize], probe))
            }
            Scheme::SevenLazy => {
                (0..self.probes).all(|probe| self.is_set(spread(Function::SEVEN[probe as usize], key), probe))
            }
            Scheme::Rotation(_) | Scheme::Double(..) => {
                let (mut hash, step) = self.start_and_step(key);
                (0..self.probes).all(|probe| {
                    let set = self.is_set(hash, probe);
                    hash = hash.wrapping_add(step);
                    set
                })
            }
        }
    }
}

/// Spreads a function's hash over 64 bits, as every filter of tamis does first: positions are chosen by the top bits,
/// which a 32-bit hash does not have.
#[inline]
fn spread(function: Function, key: &[u8]) -> u64 {
    Digest::from_u64(function.hash(key)).remix(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(from: u32, count: u32) -> Vec<[u8; 4]> {
        (from..from + count).map(u32::to_be_bytes).collect()
    }

    #[test]
    fn there_are_no_false_negatives_and_the_rate_is_near_theory() {
        let (members, others) = (keys(0, 5_000), keys(1 << 20, 50_000));
        let schemes = [
            Scheme::Seven,
            Scheme::SevenLazy,
            Scheme::Rotation(Function::Mm64),
            Scheme::Double(Function::City, Function::Mm64),
        ];
        for scheme in schemes {
            for units in [false, true] {
                let filter = Reference::build(members.iter().map(|key| &key[..]), 10.0, 7, scheme, units);
                assert!(members.iter().all(|key| filter.contains(key)), "{scheme:?} {units}");
                let positives = others.iter().filter(|key| filter.contains(&key[..])).count();
                let rate = positives as f64 / others.len() as f64;
                assert!((0.0065..0.0105).contains(&rate), "{scheme:?} {units}: {rate}");
            }
        }
    }

    #[test]
    fn eager_and_lazy_are_the_same_filter() {
        let members = keys(0, 500);
        let build = |scheme| Reference::build(members.iter().map(|key| &key[..]), 8.0, 5, scheme, false);
        let (eager, lazy) = (build(Scheme::Seven), build(Scheme::SevenLazy));
        assert_eq!(eager.words, lazy.words);
        assert!(keys(900, 5_000).iter().all(|key| eager.contains(key) == lazy.contains(key)));
    }
}
