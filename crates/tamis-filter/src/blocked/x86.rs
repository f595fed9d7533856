//! The x86-64 kernels: eight probes of a line at a time with AVX2.
//!
//! Equal to the portable kernel on every input (a test compares them). `unsafe` here is the
//! intrinsics that take pointers and the calls into code compiled for AVX2, which [`available`]
//! guards.

use core::arch::x86_64::*;

use super::portable::{CacheLine, LANES};
use super::{Batch, Line};

/// Returns whether this machine has AVX2. Cached by the standard library: one load.
#[inline(always)]
pub(crate) fn available() -> bool {
    is_x86_feature_detected!("avx2")
}

/// [`super::portable::line_contains`], eight probes per step.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn line_contains<L: CacheLine>(line: &L, low: u32, probes: u8) -> bool {
    const { assert!(size_of::<L>() == 64) };
    let base = core::ptr::from_ref(line).cast::<__m256i>();
    // SAFETY: a `CacheLine` is 64 bytes of plain integers (size asserted above), so both 32-byte
    // halves lie within the referenced value; `loadu` asks for no alignment.
    let (lower, upper) = unsafe { (_mm256_loadu_si256(base), _mm256_loadu_si256(base.add(1))) };
    let hash = _mm256_set1_epi32(low as i32);
    let wanted = _mm256_set1_epi32(i32::from(probes));
    let lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    let first = all_set(lower, upper, hash, 0, _mm256_cmpgt_epi32(wanted, lane));
    if probes <= 8 {
        return first;
    }
    let lane = _mm256_add_epi32(lane, _mm256_set1_epi32(8));
    first & all_set(lower, upper, hash, 8, _mm256_cmpgt_epi32(wanted, lane))
}

/// Returns whether the bits of probes `from..from + 8` whose lane is `active` are all set in the
/// line.
#[inline]
#[target_feature(enable = "avx2")]
fn all_set(lower: __m256i, upper: __m256i, hash: __m256i, from: usize, active: __m256i) -> bool {
    let lanes: &[u32] = &LANES[from..from + 8];
    // SAFETY: the slice above is eight `u32`, 32 bytes; `loadu` asks for no alignment.
    let lanes = unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) };
    let product = _mm256_mullo_epi32(hash, lanes);
    // Position = top nine bits: one for the half of the line, three for the word in it, five for
    // the bit in the word. The permutation looks only at the three bits of the word number, and the
    // blend at the sign bit, which selects the half.
    let word = _mm256_srli_epi32::<28>(product);
    let in_lower = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(lower, word));
    let in_upper = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(upper, word));
    let words = _mm256_castps_si256(_mm256_blendv_ps(in_lower, in_upper, _mm256_castsi256_ps(product)));
    let bit = _mm256_and_si256(_mm256_srli_epi32::<23>(product), _mm256_set1_epi32(31));
    let bits = _mm256_and_si256(_mm256_sllv_epi32(_mm256_set1_epi32(1), bit), active);
    _mm256_testc_si256(words, bits) == 1
}

/// Bit `j` of the result is set if line `j` of the batch may contain its digest.
#[target_feature(enable = "avx2")]
pub(crate) fn test_batch<const N: usize>(batch: &Batch<'_, N>) -> u64 {
    let mut found = 0;
    for (j, ((line, &low), &probes)) in
        batch.lines.iter().zip(&batch.lows).zip(&batch.probes).take(batch.len).enumerate()
    {
        found |= u64::from(line_contains::<Line>(line, low, probes)) << j;
    }
    found
}

/// [`line_contains`], dispatched: the vector kernel if the machine has it.
#[inline]
pub(crate) fn dispatch<L: CacheLine>(line: &L, low: u32, probes: u8) -> bool {
    if available() {
        // SAFETY: AVX2 was detected on this machine.
        unsafe { line_contains(line, low, probes) }
    } else {
        super::portable::line_contains(line, low, probes)
    }
}

/// [`test_batch`], dispatched once for the batch.
#[inline]
pub(crate) fn dispatch_batch<const N: usize>(batch: &Batch<'_, N>) -> u64 {
    if available() {
        // SAFETY: AVX2 was detected on this machine.
        unsafe { test_batch(batch) }
    } else {
        batch.test_each()
    }
}
