//! The 64-bit Arm kernel: all probes of a line at once with NEON, which every such processor has.
//!
//! Equal to the portable kernel on every input (a test compares them). About 40 instructions for
//! any number of probes, where the portable kernel has about 8 for each and 15 besides. Its time
//! has not been measured: no Arm machine was at hand.

use core::arch::aarch64::*;

use super::portable::{CacheLine, LANES};

/// The number of each lane.
static NUMBERS: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// [`super::portable::line_contains`], sixteen probes in one step.
#[inline]
pub(crate) fn line_contains<L: CacheLine>(line: &L, low: u32, probes: u8) -> bool {
    const { assert!(size_of::<L>() == 64 && LANES.len() == 16) };
    // SAFETY: a `CacheLine` is 64 bytes of plain integers (size asserted above), and the load asks
    // for no alignment.
    let table = unsafe { vld1q_u8_x4(core::ptr::from_ref(line).cast()) };
    let lanes = LANES.as_ptr();
    // SAFETY: there are sixteen lanes (asserted above), four at each of these places.
    let lanes = unsafe { [0, 4, 8, 12].map(|at| vld1q_u32(lanes.add(at))) };
    // SAFETY: sixteen numbers.
    let numbers = unsafe { vld1q_u8(NUMBERS.as_ptr()) };
    // SAFETY: every 64-bit Arm processor that Rust has a target for has NEON.
    unsafe { all_set(table, lanes, numbers, low, probes) }
}

#[inline]
#[target_feature(enable = "neon")]
fn all_set(table: uint8x16x4_t, lanes: [uint32x4_t; 4], numbers: uint8x16_t, low: u32, probes: u8) -> bool {
    let hash = vdupq_n_u32(low);
    // Position = top nine bits: six for the byte of the line, three for the bit in it.
    let [a, b, c, d] = lanes.map(|lanes| vmovn_u32(vshrq_n_u32::<23>(vmulq_u32(hash, lanes))));
    let (first, second) = (vcombine_u16(a, b), vcombine_u16(c, d));
    let byte = vcombine_u8(vshrn_n_u16::<3>(first), vshrn_n_u16::<3>(second));
    let bit = vandq_u8(vcombine_u8(vmovn_u16(first), vmovn_u16(second)), vdupq_n_u8(7));
    let wanted = vshlq_u8(vdupq_n_u8(1), vreinterpretq_s8_u8(bit));
    let is_set = vtstq_u8(vqtbl4q_u8(table, byte), wanted);
    let is_idle = vcgeq_u8(numbers, vdupq_n_u8(probes));
    vminvq_u8(vorrq_u8(is_set, is_idle)) == u8::MAX
}
