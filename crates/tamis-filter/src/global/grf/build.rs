//! Builds a partition: chooses the number of blocks, positions and knots, and the map.

use std::sync::Arc;

use crate::bits;
use crate::error::FilterError;
use crate::global::{Batch, Cuts, Epoch, MapChoice};
use crate::keys::KeyMap;
use crate::line::MAX_POSITIONS;

use super::blocks::{Entry, Layout, Writer};
use super::code::{Code, Coder};
use super::map::{Guide, Kind, Map, Spot};
use super::{Inner, MapReason, Partition, PartitionSpec};

/// Target number of entries per block when the partition has grown as expected.
const PER_BLOCK: f64 = 128.0;
/// Blocks with fewer keys get positions as if they had this many, as more may come.
const FEWEST: f64 = 64.0;
/// Maximum bits per key that knots and directory are accounted for. Small partitions take more.
const MOST_FIXED: f64 = 2.0;
/// Growth beyond this is not provided for: blocks would be nearly empty for too long.
const MOST_GROWTH: f64 = 32.0;
/// One key in this many is held out to measure the learned map.
const HOLD_OUT: usize = 16;
/// Factor by which the learned map may be worse than an ideal one, and the number of keys by which it may be so by
/// chance.
const TOLERANCE: (f64, f64) = (1.5, 2.0);
/// Maximum number of keys of a new partition.
const MAX_KEYS: usize = 1 << 28;

/// Sizes that depend only on numbers of keys.
struct Plan {
    segments: usize,
    per_block: usize,
    layout: Layout,
    /// Number of positions at the resolution of all entries.
    tops: u64,
}

impl Plan {
    fn new(keys: usize, with_digits: usize, coder: &Coder, spec: &PartitionSpec, knots: bool) -> Self {
        let now = keys.max(1) as f64;
        let growth = spec.growth.min(MOST_GROWTH);
        let grown = now * growth;
        let segments = (grown / PER_BLOCK).ceil();
        // New entries have digits; those of the last level stay there.
        let share = 1.0 - (1.0 - with_digits as f64 / now) / growth;
        let codes = 1.0 - share + share * coder.expected_bits();
        // The directory; knots, and a guide half as long.
        let words = if knots { 2 * u64::BITS + u32::BITS / 2 } else { u64::BITS };
        let fixed = segments * f64::from(words) / grown;
        let bits = spec.bits_per_key - codes - fixed.min(MOST_FIXED);
        let per_block = (grown / segments).max(FEWEST);
        // The most positions that the bits allow: each entry takes one bit and `width`; the rest are buckets.
        let extra = coder.depth();
        let most = MAX_POSITIONS >> extra;
        let shapes = (0..most.ilog2()).filter_map(|width| {
            let buckets = (bits - f64::from(width) - 1.0) * per_block;
            let buckets = (buckets as u64).min(most >> width);
            (buckets > 0).then_some((buckets << width, width, buckets))
        });
        let (tops, width, buckets) = shapes.max().unwrap_or((1, 0, 1));
        Plan {
            segments: segments as usize,
            per_block: (now / segments).ceil().max(1.0) as usize,
            layout: Layout { extra, width, buckets },
            tops,
        }
    }

    /// Returns the false-positive rate if positions are spread evenly.
    fn ideal_rate(&self, keys: usize) -> f64 {
        1.0 - (-(keys as f64) / self.segments as f64 / self.tops as f64).exp()
    }

    fn map(&self, keys: KeyMap, kind: Kind, numbers: &[u64]) -> Map {
        let knots = if kind == Kind::Digest { Vec::new() } else { knots(numbers, self.segments, keys.max()) };
        let mut map = Map {
            keys,
            kind,
            firsts: Vec::new(),
            hashed: self.segments,
            positions: self.tops << self.layout.extra,
            per_block: self.per_block,
            span: span(&knots),
            built: knots.len(),
            guide: Guide::new(&knots),
            knots,
        };
        if kind == Kind::Mixed {
            map.firsts = firsts(&map, numbers);
        }
        map
    }
}

/// Returns knots that cut numbers (ascending) into segments of about as many keys each; the last lies after them all,
/// if possible.
fn knots(numbers: &[u64], segments: usize, max: u64) -> Vec<u64> {
    let Some(&last) = numbers.last() else { return Vec::new() };
    let mut knots: Vec<u64> = (0..segments).map(|at| numbers[at * numbers.len() / segments]).collect();
    knots.push(last.saturating_add(1).min(max));
    knots.dedup();
    knots.shrink_to_fit();
    knots
}

/// Returns the average number of numbers in a segment between knots.
fn span(knots: &[u64]) -> u64 {
    match knots {
        [first, .., last] => ((last - first) / (knots.len() as u64 - 1)).max(1),
        _ => 1,
    }
}

/// Returns the first block of each segment, with blocks allotted by the number of keys; empty if each segment has
/// one.
fn firsts(map: &Map, numbers: &[u64]) -> Vec<u32> {
    let mut firsts = vec![0u32];
    for segment in 0..map.segments() {
        let end = map.upper(segment).map_or(numbers.len(), |end| numbers.partition_point(|&n| n < end));
        let keys = end - numbers.partition_point(|&n| n < map.lower(segment));
        // Rounded: a segment that is one key too large needs no second block.
        let blocks = ((keys + map.per_block / 2) / map.per_block).max(1);
        firsts.push(firsts[segment] + blocks as u32);
    }
    if firsts.last() == Some(&(map.segments() as u32)) { Vec::new() } else { firsts }
}

/// Returns how many of the held-out numbers a learned map without them would not distinguish from the others, and
/// their total.
fn hold_out(plan: &Plan, keys: &KeyMap, numbers: &[u64]) -> (usize, usize) {
    let held = |at: usize| at % HOLD_OUT == HOLD_OUT / 2;
    let kept: Vec<u64> = (0..).zip(numbers).filter(|(at, _)| !held(*at)).map(|(_, &number)| number).collect();
    let map = plan.map(keys.clone(), Kind::Learned, &kept);
    let place = |number: u64| {
        let segment = map.segment(number);
        (segment, map.line(segment).position(number - map.lower(segment)) >> plan.layout.extra)
    };
    let kept: Vec<(usize, u64)> = kept.into_iter().map(place).collect();
    let asked = (0..).zip(numbers).filter(|(at, _)| held(*at));
    asked.fold((0, 0), |(hits, asked), (_, &number)| {
        (hits + usize::from(kept.binary_search(&place(number)).is_ok()), asked + 1)
    })
}

/// Chooses the map for these numbers, which belong to different keys and ascend.
fn choose(plan: &Plan, keys: &KeyMap, numbers: &[u64], wanted: MapChoice) -> MapReason {
    let ideal_rate = plan.ideal_rate(numbers.len());
    let reason = |chosen, holdout_rate| MapReason { chosen, holdout_rate, ideal_rate };
    if wanted != MapChoice::Auto {
        return reason(wanted, None);
    }
    let (hits, asked) = hold_out(plan, keys, numbers);
    let rate = (asked > 0).then(|| hits as f64 / asked as f64);
    // In a small sample chance alone may exceed the tolerance, so three deviations of its number of hits are added.
    let expected = ideal_rate * asked as f64;
    if hits as f64 <= TOLERANCE.0 * expected + 3.0 * expected.sqrt() + TOLERANCE.1 {
        return reason(MapChoice::Learned, rate);
    }
    let segments = knots(numbers, plan.segments, keys.max()).len() - 1;
    let ordered = segments * 4 >= plan.segments;
    reason(if ordered { MapChoice::Mixed } else { MapChoice::Digest }, rate)
}

impl Partition {
    /// Builds the filter of `batch`. Entries of tables that hold epochs before `base` get the code "last". Valid for
    /// readers of the version that the batch was taken from and of later ones.
    ///
    /// Several passes over the keys, and a sort of the positions.
    ///
    /// # Errors
    /// [`FilterError::BitsPerKey`], [`FilterError::Parameter`] and [`FilterError::TooLarge`] for an invalid
    /// specification.
    pub fn build(batch: &Batch, base: Epoch, spec: &PartitionSpec) -> Result<Partition, FilterError> {
        if !(spec.bits_per_key > 0.0 && spec.bits_per_key <= 64.0) {
            return Err(FilterError::BitsPerKey(spec.bits_per_key));
        }
        if !(spec.growth >= 1.0 && spec.growth.is_finite()) {
            return Err(FilterError::Parameter("a partition grows by a factor of 1 or more"));
        }
        if batch.len() > MAX_KEYS {
            return Err(FilterError::TooLarge { keys: batch.len() as u64 });
        }
        let coder = Coder::new(base, &spec.radices)?;
        let codes: Vec<Code> =
            batch.iter().map(|(_, _, epochs)| coder.assign(epochs, &Cuts::default())).collect();
        let with_digits = codes.iter().filter(|&&code| code != Code::LAST).count();
        let plan = |knots| Plan::new(batch.len(), with_digits, &coder, spec, knots);
        let keys = KeyMap::growing(batch.keys());
        let numbers: Vec<u64> = batch.keys().iter().map(|key| keys.clamped(key)).collect();
        let reason = {
            let list = batch.keys();
            let first = |at: &usize| *at == 0 || list.get(*at) != list.get(*at - 1);
            let distinct: Vec<u64> = (0..batch.len()).filter(first).map(|at| numbers[at]).collect();
            choose(&plan(true), &keys, &distinct, spec.map)
        };
        let kind = match reason.chosen {
            MapChoice::Digest => Kind::Digest,
            MapChoice::Mixed => Kind::Mixed,
            MapChoice::Learned | MapChoice::Auto => Kind::Learned,
        };
        let plan = plan(kind != Kind::Digest);
        let map = plan.map(keys, kind, &numbers);
        let places = batch.iter().zip(codes).map(|((key, digest, _), code)| (map.spot(key, digest), code));
        let entries = sorted(places, &plan.layout);
        let mut writer = Writer::new(plan.layout, &coder, map.blocks(), 0);
        let (mut rest, mut block) = (&entries[..], Vec::new());
        for at in 0..map.blocks() {
            block.clear();
            block.extend(take_block(&mut rest, at));
            block.dedup();
            writer.block(&block);
        }
        let (blocks, entries, last) = writer.finish();
        let inner = Inner {
            map: Arc::new(map),
            coder: Arc::new(coder),
            layout: plan.layout,
            blocks,
            entries,
            last,
            built: entries,
            reason,
            last_is_unknown: false,
        };
        Ok(Partition { inner: Arc::new(inner) })
    }
}

/// Returns the entries with their blocks, in order of both. Those of a learned map are already in order.
pub(super) fn sorted(places: impl Iterator<Item = (Spot, Code)>, layout: &Layout) -> Vec<(usize, Entry)> {
    let known = |code: Code| !bits::mask(layout.extra - code.digits());
    let mut entries: Vec<(usize, Entry)> = places
        .map(|(spot, code)| (spot.block, Entry { position: spot.position & known(code), code }))
        .collect();
    entries.sort_unstable();
    entries
}

/// Takes the entries of block `at` from the head of `rest`.
pub(super) fn take_block<'e>(
    rest: &mut &'e [(usize, Entry)],
    at: usize,
) -> impl Iterator<Item = Entry> + use<'e> {
    let count = rest.iter().take_while(|(of, _)| *of == at).count();
    let (head, tail) = rest.split_at(count);
    *rest = tail;
    head.iter().map(|(_, entry)| *entry)
}
