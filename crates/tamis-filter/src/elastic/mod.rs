//! A filter in several units, any of which may be in memory: hotter filters load more units.
//!
//! Y. Li et al., "ElasticBF: Elastic Bloom Filter with Hotness Awareness for Boosting Read
//! Performance in Large Key-Value Stores" (ATC 2019), section 3.2: a *group* of `n` Bloom filters
//! of few bits per key over the same keys. Their false positives are independent, so the loaded
//! ones together are as good as one filter of all their bits.
//!
//! # One digest for all units
//! The paper gives every unit its own hash functions. Hash sharing (Zhu et al., DaMoN 2021, section
//! 4.2) derives all from one digest, and so does this module: the digest is remixed once per group,
//! and probe `i` of unit `u`, of `k` each, is number `u * k + i` of one arithmetic sequence. The
//! units' probes are those of one Bloom filter of `n * k` probes, dealt out; measured rates of 1 to
//! 6 units of 4 bits are within 2 % of theory in both schemes and layouts. A salt per unit would be
//! as good but cost a remix per unit probed. The step of [`BloomScheme::Rotation`] is the hash
//! rotated by 33 bits: `x + (x rotated by 32)` keeps only 32 bits of `x`, which is harmless for the
//! position of a single bit but not for unit 1 as a whole where a unit derives all its positions
//! from that one number ([`ElasticLayout::Blocked`]).
//!
//! # Invariants
//! * All units of a group have the same keys, size, probes and salt; the salt identifies the group.
//!   A unit of another group is rejected.
//! * No subset of a group's units ever rejects one of its keys. The empty subset rejects nothing.
//!
//! # Threads
//! Units are immutable and cheap to clone. An [`ElasticSet`] is a value: to change what readers
//! use, clone it, load or unload, and publish the copy.
//!
//! ```
//! use tamis_filter::{
//!     BloomScheme, Digest, ElasticGroup, ElasticLayout, ElasticSet, ElasticSpec, ElasticUnit, Verify,
//! };
//!
//! let keys: Vec<Digest> = (0..1000u32).map(|key| Digest::of(&key.to_le_bytes())).collect();
//! let (scheme, layout) = (BloomScheme::Rotation, ElasticLayout::Blocked);
//! let spec = ElasticSpec { units: 6, bits_per_key: 4.0, scheme, layout };
//! let group = ElasticGroup::build(spec, &keys, 42, Verify::Yes)?;
//! let stored: Vec<Vec<u8>> = group.units().iter().map(ElasticUnit::to_bytes).collect();
//!
//! let mut loaded = ElasticSet::new(42);
//! loaded.load(ElasticUnit::open(&stored[4])?)?;
//! loaded.load(ElasticUnit::open(&stored[1])?)?;
//! assert!(loaded.contains(keys[7]));
//! # Ok::<(), tamis_filter::FilterError>(())
//! ```

mod stack;
mod unit;

use crate::bloom::{BloomScheme, IndependentDigests, units_for};
use crate::digest::Digest;
use crate::error::FilterError;
use crate::format::Verify;
use crate::theory;
use crate::words::{Owned, Words};

pub use stack::{ElasticLine, ElasticProbe, ElasticStack};
use unit::{BLOCK_WORDS, LINE_WORDS, Shape};
pub use unit::{ElasticUnit, ElasticUnitRef};

/// Maximum number of units in a group.
pub const MAX_ELASTIC_UNITS: u32 = 16;

/// Where a unit's bits for one key are. The numbers are part of the format.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum ElasticLayout {
    /// Anywhere in the unit, as in [`Bloom`](crate::Bloom): the textbook rate, one cache miss per
    /// probe.
    Standard = 0,
    /// In one cache line, as in [`BlockedBloom`](crate::BlockedBloom): one cache miss per unit
    /// probed, and a rate that is 1 % higher per unit at 4 bits per key.
    Blocked = 1,
    /// In a block of [`theory::INTERLEAVED_BITS`] that has the same place in every unit, so that
    /// the units in memory can be laid out with a key's blocks side by side ([`ElasticStack`]): one
    /// cache miss for up to two units, and mostly for more, as the second unit is tested only where
    /// the first accepts. The price is in [`theory::interleaved_rates`].
    Interleaved = 2,
}

impl ElasticLayout {
    /// Returns the theoretical false-positive rates of 0, 1, … `units` units of `bits_per_key` with
    /// `probes` each, of a large group.
    pub fn rates(self, bits_per_key: f64, probes: u32, units: u32) -> Vec<f64> {
        let one = match self {
            ElasticLayout::Standard => theory::bloom_rate(bits_per_key, probes),
            ElasticLayout::Blocked => theory::blocked_bloom_rate(bits_per_key, probes),
            ElasticLayout::Interleaved => return theory::interleaved_rates(bits_per_key, probes, units),
        };
        (0..=units).map(|units| one.powi(units as i32)).collect()
    }
}

/// The parameters of a group of units.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ElasticSpec {
    /// Units in the group, 1 to [`MAX_ELASTIC_UNITS`].
    pub units: u32,
    /// Bits per key of one unit, in `(0, 64]`; 4 in the paper.
    pub bits_per_key: f64,
    /// How probes are derived. [`BloomScheme::Independent`] is for measuring what sharing saves: it
    /// needs [`ElasticGroup::build_independent`] and the standard layout.
    pub scheme: BloomScheme,
    /// Where the bits are.
    pub layout: ElasticLayout,
}

impl ElasticSpec {
    /// Probes per key and unit.
    pub fn probes(&self) -> u32 {
        match self.layout {
            ElasticLayout::Standard => theory::optimal_probes(self.bits_per_key),
            ElasticLayout::Blocked | ElasticLayout::Interleaved => {
                theory::optimal_blocked_probes(self.bits_per_key)
            }
        }
    }

    /// Returns the false-positive rate of `loaded` units of any large group; 1 for none. For
    /// deciding what to load before anything is loaded.
    pub fn expected_rate(&self, loaded: u32) -> f64 {
        self.layout.rates(self.bits_per_key, self.probes(), loaded)[loaded as usize]
    }

    fn shape(&self, keys: u64, salt: u64) -> Result<Shape, FilterError> {
        if !(1..=MAX_ELASTIC_UNITS).contains(&self.units) {
            return Err(FilterError::Parameter("a group has 1 to 16 units"));
        }
        let words = match self.layout {
            ElasticLayout::Standard => units_for(keys, self.bits_per_key, 64.0)?,
            ElasticLayout::Blocked => {
                let lines = units_for(keys, self.bits_per_key, f64::from(theory::LINE_BITS))?;
                lines * LINE_WORDS as u64
            }
            ElasticLayout::Interleaved => {
                let blocks = units_for(keys, self.bits_per_key, f64::from(theory::INTERLEAVED_BITS))?;
                blocks * BLOCK_WORDS as u64
            }
        };
        let probes = self.probes() as u8;
        let shape = Shape {
            salt,
            keys,
            words,
            units: self.units as u8,
            probes,
            scheme: self.scheme,
            layout: self.layout,
        };
        shape.check()?;
        Ok(shape)
    }
}

/// The theoretical rate of this unit and others of its group, `count` in all.
fn joint_rate<W: Words>(unit: &ElasticUnit<W>, count: usize) -> f64 {
    if unit.keys() == 0 && count > 0 {
        return 0.0;
    }
    match unit.layout() {
        layout @ ElasticLayout::Interleaved => {
            layout.rates(unit.bits_per_key(), unit.probes(), count as u32)[count]
        }
        ElasticLayout::Standard | ElasticLayout::Blocked => unit.expected_rate().powi(count as i32),
    }
}

/// All units over one set of keys, as built.
#[derive(Clone, Debug)]
pub struct ElasticGroup {
    units: Vec<ElasticUnit>,
}

impl ElasticGroup {
    /// Builds all units over `digests`, in any order; duplicates are allowed. Each takes
    /// `bits_per_key`, rounded up to whole words (cache lines if blocked). O(units * keys * probes)
    /// random writes, key by key: each key is remixed once, and the units of a group of a few
    /// thousand keys stay in the nearest cache.
    ///
    /// # Errors
    /// [`FilterError::BitsPerKey`], [`FilterError::TooLarge`] and [`FilterError::Parameter`] for
    /// invalid sizes, [`FilterError::WrongScheme`] for independent hashing,
    /// [`FilterError::SelfCheck`].
    pub fn build(
        spec: ElasticSpec,
        digests: &[Digest],
        salt: u64,
        verify: Verify,
    ) -> Result<Self, FilterError> {
        let shape = spec.shape(digests.len() as u64, salt)?;
        if spec.scheme == BloomScheme::Independent {
            return Err(FilterError::WrongScheme(spec.scheme));
        }
        let mut units: Vec<_> = (0..shape.units).map(|index| ElasticUnit::zeroed(shape, index)).collect();
        let mut payloads: Vec<&mut [u64]> = units.iter_mut().map(ElasticUnit::payload_mut).collect();
        for &digest in digests {
            let sequence = shape.sequence(digest);
            for (index, words) in (0..).zip(&mut payloads) {
                shape.set(words, index, sequence);
            }
        }
        let group = Self { units };
        if verify == Verify::Yes {
            let set = group.set(spec.units);
            if !digests.iter().all(|&digest| set.contains(digest)) {
                return Err(FilterError::SelfCheck);
            }
        }
        Ok(group)
    }

    /// Like [`ElasticGroup::build`], for [`BloomScheme::Independent`]: from at least `units *
    /// probes` digests per key, which cannot be more than [`theory::MAX_PROBES`].
    ///
    /// # Errors
    /// Same as [`ElasticGroup::build`], and [`FilterError::TooFewDigests`].
    pub fn build_independent(
        spec: ElasticSpec,
        keys: &[IndependentDigests],
        salt: u64,
    ) -> Result<Self, FilterError> {
        let shape = spec.shape(keys.len() as u64, salt)?;
        keys.iter().try_for_each(|key| shape.check_independent(key))?;
        let units = (0..shape.units)
            .map(|index| {
                let mut unit = ElasticUnit::zeroed(shape, index);
                let words = unit.payload_mut();
                keys.iter().for_each(|key| shape.set_independent(words, index, key));
                unit
            })
            .collect();
        Ok(Self { units })
    }

    /// Returns the units in order of their numbers.
    pub fn units(&self) -> &[ElasticUnit] {
        &self.units
    }

    /// Returns a set of the first `loaded` units (all, if there are fewer).
    pub fn set(&self, loaded: u32) -> ElasticSet {
        let units: Vec<_> = self.units.iter().take(loaded as usize).cloned().collect();
        ElasticSet { salt: self.units[0].salt(), shape: Some(self.units[0].shape()), units }
    }

    /// Returns the theoretical false-positive rate of `loaded` units; 1 for none, 0 for no keys.
    pub fn expected_rate(&self, loaded: u32) -> f64 {
        joint_rate(&self.units[0], loaded as usize)
    }
}

/// The units of one group that are in memory: any of them, none to all.
#[derive(Clone, Debug)]
pub struct ElasticSet<W: Words = Owned> {
    salt: u64,
    /// The shape of the first unit loaded; all others must match.
    shape: Option<Shape>,
    /// By index.
    units: Vec<ElasticUnit<W>>,
}

impl<W: Words> ElasticSet<W> {
    /// Returns an empty set for the group that was built with `salt`.
    pub fn new(salt: u64) -> Self {
        Self { salt, shape: None, units: Vec::new() }
    }

    /// Adds a unit. Units may come in any order.
    ///
    /// # Errors
    /// [`FilterError::Parameter`] if the unit belongs to another group or is already loaded.
    pub fn load(&mut self, unit: ElasticUnit<W>) -> Result<(), FilterError> {
        if unit.salt() != self.salt || *self.shape.get_or_insert(unit.shape()) != unit.shape() {
            return Err(FilterError::Parameter("the unit belongs to another group"));
        }
        match self.units.binary_search_by_key(&unit.index(), ElasticUnit::index) {
            Ok(_) => Err(FilterError::Parameter("the unit is already loaded")),
            Err(at) => {
                // Sets change rarely and there are many of them, so no capacity is reserved for
                // later units.
                self.units.reserve_exact(1);
                self.units.insert(at, unit);
                Ok(())
            }
        }
    }

    /// Removes unit `index`, if it is loaded.
    pub fn unload(&mut self, index: u32) -> Option<ElasticUnit<W>> {
        let at = self.units.binary_search_by_key(&index, ElasticUnit::index).ok()?;
        Some(self.units.remove(at))
    }

    /// Returns the loaded units in index order.
    pub fn loaded(&self) -> &[ElasticUnit<W>] {
        &self.units
    }

    /// Returns whether the run may hold the key, that is, whether all loaded units accept it.
    /// Remixes the digest once. Stops at the first unit that rejects, which is the very first for
    /// 85 % of absent keys at 4 bits per key. A group of scheme [`BloomScheme::Independent`] cannot
    /// answer from one digest and returns `true`.
    #[inline]
    pub fn contains(&self, digest: Digest) -> bool {
        let Some(shape) = &self.shape else { return true };
        let sequence = shape.sequence(digest);
        match (shape.scheme, shape.layout) {
            (BloomScheme::Independent, _) => true,
            (_, ElasticLayout::Standard) => {
                self.units.iter().all(|unit| unit.holds_anywhere(shape, sequence))
            }
            (_, ElasticLayout::Blocked) => self.units.iter().all(|unit| unit.holds_in_line(shape, sequence)),
            (_, ElasticLayout::Interleaved) => {
                self.units.iter().all(|unit| unit.holds_in_block(shape, sequence))
            }
        }
    }

    /// Same as [`ElasticSet::contains`] for [`BloomScheme::Independent`].
    ///
    /// # Errors
    /// [`FilterError::WrongScheme`] for another scheme, [`FilterError::TooFewDigests`].
    pub fn contains_independent(&self, digests: &IndependentDigests) -> Result<bool, FilterError> {
        let Some(shape) = self.shape else { return Ok(true) };
        shape.check_independent(digests)?;
        Ok(self.units.iter().all(|unit| unit.holds_independent(digests)))
    }

    /// Prefetches what the first unit of a blocked group will read.
    #[inline]
    pub fn prefetch(&self, digest: Digest) {
        if let (Some(shape), Some(unit)) = (self.shape, self.units.first()) {
            unit.prefetch_for(shape.sequence(digest));
        }
    }

    /// Returns the theoretical false-positive rate of the loaded units; 1 for none, 0 for no keys.
    pub fn expected_rate(&self) -> f64 {
        self.units.first().map_or(1.0, |unit| joint_rate(unit, self.units.len()))
    }

    /// Returns the bytes held in memory.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.units.iter().map(ElasticUnit::memory_bytes).sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
