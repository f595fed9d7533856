//! The vector registers, in the form in which the kernel shows them: the processor's XSAVE area.
//!
//! The area begins with 512 bytes of old layout, which have the lowest 128 bits of the first
//! sixteen registers. A header follows; it says which other components are in use. A component that
//! is not in use has only zeros.

use std::arch::x86_64::__cpuid_count;
use std::ops::Range;

/// Where the old layout has the 128-bit registers.
const XMM: usize = 160;
/// Where the header says which components are in use.
const IN_USE: usize = 512;
/// The first byte that is no part of the header.
const COMPONENTS: usize = 576;
/// The leaf of CPUID that describes components.
const LEAF: u32 = 0xd;

/// A part of all registers of a kind.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Its bit in the header.
    component: u32,
    /// The bytes of one register.
    width: usize,
    /// The number of the first register.
    first: usize,
    /// The lowest bit of the part within its register.
    low_bit: u32,
}

const PARTS: [Part; 4] = [
    Part { component: 1, width: 16, first: 0, low_bit: 0 },
    Part { component: 2, width: 16, first: 0, low_bit: 128 },
    Part { component: 6, width: 32, first: 0, low_bit: 256 },
    Part { component: 7, width: 64, first: 16, low_bit: 0 },
];
/// The number of registers in a part.
const REGISTERS: usize = 16;

/// Returns the parts that are in use, and the bytes of each.
fn in_use(area: &[u8], offset: impl Fn(u32) -> usize) -> Vec<(Part, Range<usize>)> {
    let Some(used) = area.get(IN_USE..).and_then(|rest| rest.first_chunk()) else { return Vec::new() };
    let used = u64::from_le_bytes(*used);
    let parts = PARTS.into_iter().filter(|part| part.component == 1 || used >> part.component & 1 == 1);
    let ranges = parts.map(|part| {
        let start = if part.component == 1 { XMM } else { offset(part.component) };
        (part, start..start + REGISTERS * part.width)
    });
    ranges
        .filter(|(part, range)| range.end <= area.len() && (part.component == 1 || range.start >= COMPONENTS))
        .collect()
}

/// Flips a random bit of the parts in use, and returns the register's name and the bit in it.
pub(super) fn flip(area: &mut [u8], rng: &mut fastrand::Rng) -> Option<(String, u32)> {
    flip_at(area, rng, |component| __cpuid_count(LEAF, component).ebx as usize)
}

fn flip_at(area: &mut [u8], rng: &mut fastrand::Rng, offset: impl Fn(u32) -> usize) -> Option<(String, u32)> {
    let parts = in_use(area, offset);
    let bits: usize = parts.iter().map(|(_, range)| 8 * range.len()).sum();
    if bits == 0 {
        return None;
    }
    let mut at = rng.usize(..bits);
    for (part, range) in parts {
        if at >= 8 * range.len() {
            at -= 8 * range.len();
            continue;
        }
        area[range.start + at / 8] ^= 1 << (at % 8);
        // The kernel takes the lowest parts only if they are marked as used.
        area[IN_USE] |= 1 << part.component;
        let register = part.first + at / (8 * part.width);
        return Some((format!("zmm{register}"), part.low_bit + (at % (8 * part.width)) as u32));
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const LEN: usize = 2700;

    fn offset(component: u32) -> usize {
        match component {
            2 => 576,
            6 => 1152,
            _ => 1664,
        }
    }

    fn names(used: u8) -> (BTreeSet<String>, u32) {
        let mut rng = fastrand::Rng::with_seed(2);
        let (mut names, mut highest) = (BTreeSet::new(), 0);
        for _ in 0..3000 {
            let mut area = vec![0; LEN];
            area[IN_USE] = used;
            let (name, bit) = flip_at(&mut area, &mut rng, offset).unwrap();
            area[IN_USE] = 0;
            assert_eq!(area.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
            names.insert(name);
            highest = highest.max(bit);
        }
        (names, highest)
    }

    #[test]
    fn only_parts_in_use_are_hit() {
        let (hit, highest) = names(0b10);
        assert_eq!((hit.len(), highest), (16, 127));
        let (hit, highest) = names(0b110);
        assert_eq!((hit.len(), highest), (16, 255));
        let (hit, highest) = names(0b1100_0110);
        assert_eq!((hit.len(), highest), (32, 511));
    }

    #[test]
    fn a_short_area_has_no_bits() {
        assert_eq!(flip_at(&mut [0; 100], &mut fastrand::Rng::with_seed(1), offset), None);
    }
}
