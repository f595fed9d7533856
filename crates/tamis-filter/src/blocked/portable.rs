//! The bit positions of a key within its line, and the portable kernel. This file defines what the
//! vector kernels must compute.

use super::Line;
use crate::theory::MAX_BLOCKED_PROBES;

/// One odd multiplier per probe, drawn at random: the top nine bits of `low * LANES[i]` are the
/// position of probe `i`. Part of the file format.
pub(crate) static LANES: [u32; MAX_BLOCKED_PROBES as usize] = [
    0x9018_775b,
    0x6edd_3a25,
    0x8ce1_4c8b,
    0x8687_b18d,
    0x7dab_7ad3,
    0x1ed4_0c23,
    0x9ba0_5717,
    0x3fe6_e7bf,
    0x9253_f6b7,
    0xcb67_4d99,
    0x3bec_5519,
    0x2d38_de7d,
    0xbda5_13bd,
    0x57b3_9e4d,
    0x20f0_ac5d,
    0xbafc_aba9,
];

/// A 512-bit line as sixteen little-endian 32-bit words: owned memory or borrowed bytes. An
/// implementor is 64 bytes of plain integers in exactly that layout (on a little-endian machine).
pub(crate) trait CacheLine {
    /// Returns word `i < 16`.
    fn word(&self, i: usize) -> u32;
}

impl CacheLine for Line {
    #[inline(always)]
    fn word(&self, i: usize) -> u32 {
        self.0[i]
    }
}

impl CacheLine for [u8; 64] {
    #[inline(always)]
    fn word(&self, i: usize) -> u32 {
        let at = i * 4;
        u32::from_le_bytes([self[at], self[at + 1], self[at + 2], self[at + 3]])
    }
}

/// Returns the position, below 512, of probe `i < 16` for the low hash half `low`.
#[inline(always)]
pub(crate) fn position(low: u32, i: usize) -> usize {
    (low.wrapping_mul(LANES[i]) >> 23) as usize
}

/// Returns whether all `probes <= 16` bits are set. No early exit: a branch per probe costs more in
/// mispredictions than it saves.
#[inline]
pub(crate) fn line_contains<L: CacheLine>(line: &L, low: u32, probes: u8) -> bool {
    let mut all = 1;
    for i in 0..usize::from(probes) {
        let at = position(low, i);
        all &= line.word(at / 32) >> (at % 32);
    }
    all & 1 == 1
}

/// Sets the `probes <= 16` bits.
#[inline]
pub(crate) fn line_insert(line: &mut Line, low: u32, probes: u8) {
    for i in 0..usize::from(probes) {
        let at = position(low, i);
        line.0[at / 32] |= 1 << (at % 32);
    }
}
