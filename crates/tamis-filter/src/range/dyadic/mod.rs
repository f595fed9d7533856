//! Shared parts of the filters over dyadic intervals: the walk that answers a range, its expected
//! rate, and their hash.
//!
//! A *node* of height `h` is an aligned interval of `2^h` numbers; its *prefix* is any of them
//! shifted right by `h`. A filter keeps a hint for nodes of some heights, always including 0; a
//! node that it rejects holds no number.

use crate::bits::mask;

/// Maximum number of nodes probed for one range. A filter that is not full of false positives needs
/// a few dozen; the bound is for wide ranges next to keys, and for hostile words.
const MAX_ASKED: u32 = 1024;

/// Returns whether a number from `first` to `last` may be held, by descending from the topmost of
/// the `kept` heights (bit `h` for height `h`; bit 0 is set). Nodes are probed in ascending order
/// and each at most once; a node is probed only if all its kept ancestors were accepted. Returns
/// `true` when the range touches more than `most_top` nodes of the topmost height, or [`MAX_ASKED`]
/// is reached.
#[inline]
pub(super) fn walk(
    (first, last): (u64, u64),
    kept: u64,
    most_top: u64,
    mut affirmed: impl FnMut(u32, u64) -> bool,
) -> bool {
    debug_assert!(kept & 1 == 1);
    if first > last {
        return false;
    }
    let top = kept.ilog2();
    if (last >> top) - (first >> top) >= most_top {
        return true;
    }
    let (mut at, mut height) = (first, top);
    for _ in 0..MAX_ASKED {
        if affirmed(height, at >> height) {
            if height == 0 {
                return true;
            }
            height = (kept & mask(height)).ilog2();
        } else {
            let end = at | mask(height);
            if end >= last {
                return false;
            }
            at = end + 1;
            // Higher nodes around `at` also hold the number before it, and were accepted on the way
            // there.
            height = (kept & mask(at.trailing_zeros() + 1)).ilog2();
        }
    }
    true
}

/// Returns the false-positive rate of [`walk`] for ranges of `len` numbers at any offset, if each
/// node of height `h` is accepted with probability `rates[h]` (1 where no hint is kept),
/// independently. That holds for ranges so far from all keys that no node they touch holds one. The
/// bound on the work is ignored: where it is reached, a false positive was all but certain.
pub(super) fn expected_rate(rates: &[f64], most_top: u64, len: u64) -> f64 {
    let Some(top) = rates.len().checked_sub(1) else { return 1.0 };
    if len == 0 {
        return 0.0;
    }
    if (len - 1) >> top >= most_top {
        return 1.0;
    }
    let mut whole = Vec::with_capacity(rates.len());
    let mut below = 0.0;
    for (height, rate) in rates.iter().enumerate() {
        below = if height == 0 { *rate } else { rate * either(below, below) };
        whole.push(below);
    }
    // Offsets within the first node, spread evenly by the golden ratio.
    const OFFSETS: u32 = 64;
    let mut sum = 0.0;
    for i in 0..OFFSETS {
        let offset = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(u64::from(i) + 1) & mask(top as u32);
        let mut none = 1.0;
        // Numbers relative to the first node; `u128` because `offset + len` may exceed 64 bits.
        let end = u128::from(offset) + u128::from(len);
        let last = (end - 1) >> top;
        if last >= most_top.into() {
            sum += 1.0;
            continue;
        }
        for node in 0..=last {
            let start = node << top;
            let from = u128::from(offset).saturating_sub(start);
            let to = (end - start).min(1 << top);
            none *= 1.0 - partial(rates, &whole, top, from as u64, (to - 1) as u64);
        }
        sum += 1.0 - none;
    }
    sum / f64::from(OFFSETS)
}

/// Like [`expected_rate`], for ranges of `len` numbers before their `shift` low bits are dropped.
pub(super) fn expected_rate_shifted(rates: &[f64], most_top: u64, len: u64, shift: u32) -> f64 {
    // A number with nonzero low bits is rejected, so a range probes `whole` numbers or one more.
    let (whole, rest) = (len >> shift, len & mask(shift));
    let more = rest as f64 / 2.0f64.powi(shift as i32);
    let longer = if rest == 0 { 0.0 } else { expected_rate(rates, most_top, whole + 1) };
    expected_rate(rates, most_top, whole) * (1.0 - more) + longer * more
}

/// Returns the rate for the numbers `from..=to` of one node of height `height`.
fn partial(rates: &[f64], whole: &[f64], height: usize, from: u64, to: u64) -> f64 {
    let last = mask(height as u32);
    if from == 0 && to >= last {
        return whole[height];
    }
    // Not whole, so not a single number.
    let half = 1u64 << (height - 1);
    let left = if from < half { partial(rates, whole, height - 1, from, to.min(half - 1)) } else { 0.0 };
    let right = if to >= half {
        partial(rates, whole, height - 1, from.saturating_sub(half), to - half)
    } else {
        0.0
    };
    rates[height] * either(left, right)
}

fn either(a: f64, b: f64) -> f64 {
    a + b - a * b
}

/// Returns the hash of a node: every bit depends on all of prefix, height and salt (the finaliser
/// is Stafford's variant 13).
#[inline(always)]
pub(super) fn hash(salt: u64, height: u32, prefix: u64) -> u64 {
    let mut x =
        prefix.wrapping_add(salt).wrapping_add(u64::from(height + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// What building a filter needs to know about the keys.
pub(super) struct Nodes {
    /// Low bits that are zero in every key, at most 63. Dropping them loses nothing: `[a, b]` holds
    /// a key iff [`shifted`] does.
    pub(super) shift: u32,
    /// Distinct nodes of each height, over the shifted keys.
    pub(super) counts: [u64; 64],
    /// Numbers in the neighbourhoods of the keys, see [`Nodes::occupied`].
    room: f64,
}

/// Average number of keys in a node for it to count as a neighbourhood.
const NEIGHBOURS: u64 = 32;

impl Nodes {
    /// Computes the statistics of `keys`, which ascend. One pass.
    pub(super) fn of(keys: &[u64]) -> Self {
        let shift = keys.iter().fold(0, |all, key| all | key).trailing_zeros().min(63);
        let mut lengths = [0u64; 65];
        for pair in keys.windows(2) {
            lengths[(64 - (pair[0] >> shift ^ pair[1] >> shift).leading_zeros()) as usize] += 1;
        }
        let mut counts = [0; 64];
        let mut parted = u64::from(!keys.is_empty());
        for height in (0..64).rev() {
            parted += lengths[height + 1];
            counts[height] = parted;
        }
        let span =
            keys.first().zip(keys.last()).map_or(0, |(first, last)| last.wrapping_sub(*first) >> shift);
        let room = (0..64)
            .map(|height| (counts[height], counts[height] as f64 * 2.0f64.powi(height as i32)))
            .find(|(count, _)| *count <= keys.len() as u64 / NEIGHBOURS)
            .map_or(span as f64 + 1.0, |(_, room)| room);
        Self { shift, counts, room }
    }

    /// Returns whether nodes of height `top` are so rare compared to the space between the keys
    /// that [`expected_rate`] holds for uniformly distributed ranges.
    pub(super) fn sparse(&self, keys: usize, top: u32) -> bool {
        let held = self.counts[top as usize] as f64;
        held >= 0.98 * keys as f64 && self.occupied(top) < 0.02
    }

    /// Returns the share of the neighbourhoods of keys that lies in nonempty nodes of height
    /// `height`: the chance that such a node around a number between keys rejects nothing.
    /// Neighbourhoods are the lowest nodes that hold [`NEIGHBOURS`] keys on average, clipped to the
    /// span from the first to the last key: the space between clusters of keys does not make the
    /// nodes within them any emptier.
    pub(super) fn occupied(&self, height: u32) -> f64 {
        (self.counts[height as usize] as f64 * 2.0f64.powi(height as i32) / self.room).min(1.0)
    }
}

/// Returns the bounds of a range after dropping the `shift` low bits of every number; reversed if
/// no number in the range has zeros there.
#[inline]
pub(super) fn shifted(first: u64, last: u64, shift: u32) -> (u64, u64) {
    let up = first >> shift;
    match up.checked_add(u64::from(first & mask(shift) != 0)) {
        Some(first) => (first, last >> shift),
        None => (1, 0),
    }
}

/// Returns a copy of `keys` in ascending order.
pub(super) fn ascending(keys: &[u64]) -> std::borrow::Cow<'_, [u64]> {
    if keys.is_sorted() {
        return std::borrow::Cow::Borrowed(keys);
    }
    let mut sorted = keys.to_vec();
    sorted.sort_unstable();
    std::borrow::Cow::Owned(sorted)
}

#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;
