//! The digest of a key: computed once per operation, shared by everything that would otherwise hash
//! again.
//!
//! Hashing is linear in the key's length while a probe is not, and a lookup probes one filter per
//! run: hashing once per filter dominates a lookup's CPU time on fast devices (hash sharing, Zhu et
//! al., DaMoN 2021). So the hash is a value with its own type, and code that needs another hash *of
//! the same key* remixes it.
//!
//! # Invariants
//! `Digest::of` is XXH3-64 with seed 0 and [`Digest::remix`] is the function below, on every
//! platform, forever: filters on disk depend on them.
//!
//! # Threads
//! Plain values. In debug builds a thread-local counter counts the digests computed, so that an
//! engine test can assert "one hash per get".

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// The 64-bit digest of a key.
///
/// | key | digest |
/// | --- | --- |
/// | empty | `2d06800538d394c2` |
/// | `a` | `e6c632b61e964e1f` |
/// | `abc` | `78af5f94892f3950` |
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Digest(u64);

// Odd, with about half of the bits set; the multipliers are those of the "variant 13" 64-bit
// finaliser (Stafford).
const SALT_STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const MIX_A: u64 = 0xbf58_476d_1ce4_e5b9;
const MIX_B: u64 = 0x94d0_49bb_1331_11eb;

impl Digest {
    /// Returns the digest of `key`: XXH3-64 with seed 0. Part of the file format. Linear in the
    /// key's length.
    #[inline]
    pub fn of(key: &[u8]) -> Self {
        count();
        Self(xxh3_64(key))
    }

    /// Returns XXH3-64 of `key` under `seed`, for the scheme that really hashes *k* times.
    /// `seeded(key, 0) == of(key)`.
    #[inline]
    pub fn seeded(key: &[u8], seed: u64) -> Self {
        count();
        Self(xxh3_64_with_seed(key, seed))
    }

    /// Restores a digest that was computed before and stored with [`Digest::get`].
    #[inline]
    pub const fn from_u64(value: u64) -> Self {
        Self(value)
    }

    /// Returns the 64 bits.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns another hash of the same key, chosen by `salt`: about ten cycles, whatever the key's
    /// length.
    ///
    /// For a fixed salt this is a bijection, so it loses nothing of the digest. Results under
    /// different salts behave as if independent: the salt is spread over all bits first
    /// (neighbouring salts, including 0, then differ in about half of them) and enters *before* the
    /// multiplications, so no fixed relation between the results survives.
    #[inline]
    pub const fn remix(self, salt: u64) -> u64 {
        self.mix(SpreadSalt::new(salt))
    }

    /// Same as [`Digest::remix`] with the salt already spread.
    #[inline]
    pub(crate) const fn mix(self, salt: SpreadSalt) -> u64 {
        let mut x = (self.0 ^ salt.0).wrapping_mul(MIX_A);
        // Without this shift the low bits would never see the high ones. The last product needs no
        // further shift, because callers use the top bits of the result and its low 32, and both
        // now depend on the whole input.
        x ^= x >> 32;
        x.wrapping_mul(MIX_B)
    }
}

/// A salt with its bits spread, as [`Digest::remix`] uses it: the part of a remix that is the same
/// for all digests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SpreadSalt(u64);

impl SpreadSalt {
    #[inline]
    pub(crate) const fn new(salt: u64) -> Self {
        let spread = salt.wrapping_add(1).wrapping_mul(SALT_STEP);
        Self((spread ^ (spread >> 32)).wrapping_mul(MIX_B))
    }
}

#[cfg(debug_assertions)]
thread_local! {
    static COMPUTED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[inline]
fn count() {
    #[cfg(debug_assertions)]
    COMPUTED.with(|n| n.set(n.get().wrapping_add(1)));
}

/// Returns the number of digests computed from keys on this thread since it started (remixing does
/// not count). Debug builds only: a test takes the difference across the operation under test.
#[cfg(debug_assertions)]
pub fn computed_on_this_thread() -> u64 {
    COMPUTED.with(std::cell::Cell::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_and_remix_match_the_vectors_of_the_format() {
        assert_eq!(Digest::of(b"").get(), 0x2d06_8005_38d3_94c2);
        assert_eq!(Digest::of(b"a").get(), 0xe6c6_32b6_1e96_4e1f);
        assert_eq!(Digest::of(b"abc").get(), 0x78af_5f94_892f_3950);
        let long: Vec<u8> = (0..=255).cycle().take(1000).collect();
        assert_eq!(Digest::of(&long).get(), LONG);
        assert_eq!(Digest::seeded(b"abc", 42).get(), SEEDED);
        assert_eq!(Digest::from_u64(0).remix(0), REMIX_0_0);
        assert_eq!(Digest::from_u64(0x0123_4567_89ab_cdef).remix(7), REMIX_X_7);
    }

    const LONG: u64 = 0xd33d_d80b_46f6_0e50;
    const SEEDED: u64 = 0xd843_8def_21bb_dcc3;
    const REMIX_0_0: u64 = 0x8a69_c622_1051_4e99;
    const REMIX_X_7: u64 = 0xab94_fd38_bfe8_ff4d;

    #[test]
    fn seed_zero_is_the_plain_digest() {
        assert_eq!(Digest::seeded(b"some key", 0), Digest::of(b"some key"));
        assert_ne!(Digest::seeded(b"some key", 1), Digest::of(b"some key"));
    }

    #[test]
    fn remix_avalanches_from_digest_and_salt_bits() {
        // For both inputs, each input bit flips each output bit about half of the time.
        for from_salt in [false, true] {
            for bit in 0..64 {
                let mut flips = [0u32; 64];
                const ROUNDS: u32 = 2000;
                for i in 0..ROUNDS {
                    let d = Digest::of(&i.to_le_bytes()).get();
                    let salt = u64::from(i % 50);
                    let (d2, s2) = if from_salt { (d, salt ^ (1 << bit)) } else { (d ^ (1 << bit), salt) };
                    let diff = Digest(d).remix(salt) ^ Digest(d2).remix(s2);
                    for (out, n) in flips.iter_mut().enumerate() {
                        *n += (diff >> out & 1) as u32;
                    }
                }
                // The bits used for line choice (top 32) and bit choice (low 32, its top bits after
                // a product).
                let top: u32 = flips[40..].iter().sum();
                let mean = f64::from(top) / f64::from(ROUNDS * 24);
                assert!((0.4..0.6).contains(&mean), "salt {from_salt} bit {bit}: {mean}");
            }
        }
    }

    #[cfg(debug_assertions)]
    #[test]
    fn the_counter_counts_hashing_and_not_remixing() {
        let before = computed_on_this_thread();
        let d = Digest::of(b"x");
        let _ = Digest::seeded(b"x", 3);
        let _ = (d.remix(1), Digest::from_u64(9).remix(2));
        assert_eq!(computed_on_this_thread() - before, 2);
    }
}
