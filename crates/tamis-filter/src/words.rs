//! The payload of a filter as 64-bit words, owned or borrowed; one probe routine serves both.
//!
//! # Invariants
//! A word beyond the end reads as 0. Filters whose contents decide where to look next (a trie, a
//! coded sequence) thus stay within bounds even for hostile bytes, at the price of a comparison
//! that a checked index costs, too.

use std::fmt::Debug;
use std::sync::Arc;

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Owned {}
    impl Sealed for super::Borrowed<'_> {}
}

/// Words in owned memory. Cloning shares them.
pub type Owned = Arc<[u64]>;

/// Words within borrowed bytes, little-endian. Needs no alignment.
#[derive(Clone, Copy)]
pub struct Borrowed<'a>(pub(crate) &'a [[u8; 8]]);

impl Debug for Borrowed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} words", self.0.len())
    }
}

/// Where a filter's words are: [`Owned`] or [`Borrowed`]. The trait is sealed.
pub trait Words: sealed::Sealed + Clone + Debug + Send + Sync {
    /// Returns the number of words.
    fn count(&self) -> usize;

    /// Word `at`; 0 beyond the end.
    fn word(&self, at: usize) -> u64;

    /// Word `at`, an index that the caller has reduced to `..count()`.
    ///
    /// # Panics
    /// If `at` is not below [`Words::count`].
    fn word_within(&self, at: usize) -> u64;

    /// All words as little-endian bytes, for loads of other widths; `None` where memory holds them
    /// otherwise.
    fn bytes(&self) -> Option<&[u8]>;

    /// The four words from `at` on; zeros unless all four exist. One bounds check for the four.
    fn four(&self, at: usize) -> [u64; 4];

    /// Copies the filter into owned memory.
    fn to_owned_words(&self) -> Owned {
        (0..self.count()).map(|at| self.word(at)).collect()
    }

    /// Prefetches word `at`, if it exists. Does nothing where the platform has no stable prefetch.
    fn prefetch(&self, at: usize);
}

impl Words for Owned {
    #[inline(always)]
    fn count(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn word(&self, at: usize) -> u64 {
        self.get(at).copied().unwrap_or(0)
    }

    #[inline(always)]
    fn word_within(&self, at: usize) -> u64 {
        self[at]
    }

    #[inline(always)]
    fn bytes(&self) -> Option<&[u8]> {
        if cfg!(target_endian = "big") {
            return None;
        }
        // SAFETY: the words are initialised memory of that many bytes, borrowed as long as `self`
        // is, and bytes may have any value and any address.
        Some(unsafe { std::slice::from_raw_parts(self.as_ptr().cast(), size_of_val(&**self)) })
    }

    #[inline(always)]
    fn four(&self, at: usize) -> [u64; 4] {
        match self.get(at..).and_then(<[u64]>::first_chunk) {
            Some(&four) => four,
            None => [0; 4],
        }
    }

    #[inline(always)]
    fn prefetch(&self, at: usize) {
        self.get(at).into_iter().for_each(prefetch);
    }
}

impl Words for Borrowed<'_> {
    #[inline(always)]
    fn count(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn word(&self, at: usize) -> u64 {
        self.0.get(at).map_or(0, |word| u64::from_le_bytes(*word))
    }

    #[inline(always)]
    fn word_within(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at])
    }

    #[inline(always)]
    fn bytes(&self) -> Option<&[u8]> {
        Some(self.0.as_flattened())
    }

    #[inline(always)]
    fn four(&self, at: usize) -> [u64; 4] {
        let [a, b, c, d] = match self.0.get(at..).and_then(<[[u8; 8]]>::first_chunk) {
            Some(&four) => four,
            None => [[0; 8]; 4],
        };
        [u64::from_le_bytes(a), u64::from_le_bytes(b), u64::from_le_bytes(c), u64::from_le_bytes(d)]
    }

    #[inline(always)]
    fn prefetch(&self, at: usize) {
        self.0.get(at).into_iter().for_each(prefetch);
    }
}

/// The prefetch of this platform; a no-op where there is none.
#[inline(always)]
pub(crate) fn prefetch<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect that a program can observe, and SSE belongs to every x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
