//! Chooses the map of a partition by what its queries would cost.
//!
//! The cost of a map is the number of runs that it names or opens in vain, averaged over queries:
//! gets of absent keys and ranges, in the proportion of [`QueryMix`]. Queries are those that were
//! sampled, or where there are none, keys of the batch that are held out: gets of a held-out key,
//! seeks to the next key, and ranges that begin with a held-out key: of 64 numbers, or of all keys
//! that it is a prefix of if numbers do not tell keys apart. Matches are counted on the keys that
//! remain; where the digest takes part, its share is computed instead of drawn.
//!
//! What a range finds is counted by keys, not by numbers: all keys that share the number of a
//! string are not in a range that begins with it. A run that has a key of the range is not opened
//! in vain.

use crate::global::{MapChoice, QueryMix};
use crate::keys::{KeyList, KeyMap, prefix_end};

use super::map::{Kind, Map};

/// One key in this many is held out, up to [`MOST_HELD`].
const HOLD_OUT: usize = 16;
const MOST_HELD: usize = 2048;
/// All maps are compared by one query in this many, those that may be the best by all. Odd: every
/// other query may be of a kind.
const SAMPLED: usize = 5;
/// Numbers in a range of which only the start is known.
const RANGE: u64 = 64;
/// Bits of order that a cell is divided by from one candidate to the next.
const STEP: u32 = 2;
/// A map that does not preserve order must be better by this factor.
const PREFERENCE: f64 = 0.8;

/// A range: the numbers from `first` to `last`.
#[derive(Clone, Copy, Debug)]
struct Query {
    first: u64,
    last: u64,
    /// Keys in it.
    held: f64,
    /// Runs that are expected to have none of them.
    most: f64,
    /// Whether it has no end: a walk reaches to the end of the segment, wherever the next key is.
    is_seek: bool,
}

/// The keys and queries by which maps are compared.
pub(super) struct Trial {
    /// Numbers of the keys that are not held out, ascending.
    kept: Vec<u64>,
    points: Vec<u64>,
    ranges: Vec<Query>,
    /// Share of ranges among queries.
    share: f64,
    /// Number of runs that a range can open.
    runs: f64,
}

/// What a map would cost.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Cost {
    /// Runs named in vain by a get of an absent key.
    points: f64,
    /// Runs opened in vain by a range.
    ranges: f64,
}

impl Trial {
    /// `numbers` are those of the different keys of `list`, of which `firsts` are the places; all
    /// ascend.
    pub(super) fn new(
        keys: &KeyMap,
        list: &KeyList,
        firsts: &[usize],
        numbers: &[u64],
        mix: &QueryMix,
        runs: usize,
    ) -> Self {
        let every = HOLD_OUT.max(numbers.len() / MOST_HELD);
        let (mut kept, mut places, mut held) = (Vec::new(), Vec::new(), Vec::new());
        for (at, (&number, &place)) in numbers.iter().zip(firsts).enumerate() {
            if at % every == every / 2 {
                held.push((list.get(place), number));
            } else {
                kept.push(number);
                places.push(place);
            }
        }
        let runs = runs.max(1) as f64;
        let below = |key: &[u8]| places.partition_point(|&place| list.get(place) < key);
        let number_before = |end: &[u8], first: u64| keys.clamped(end).saturating_sub(1).max(first);
        let query = |first: u64, last: u64, held: usize| {
            // Where there is one run now, there will be others.
            let many = runs.max(2.0);
            let most =
                if held == 0 { runs } else { many * (1.0 - 1.0 / many).powi(held.min(1 << 20) as i32) };
            Query { first, last, held: held as f64, most, is_seek: false }
        };
        let seek = |key: &[u8]| {
            let next = kept.get(below(key));
            let first = keys.clamped(key);
            let last = next.map_or(u64::MAX, |&next| next.max(first));
            Query { is_seek: true, ..query(first, last, usize::from(next.is_some())) }
        };
        let between = |start: &[u8], end: &[u8]| {
            let first = keys.clamped(start);
            query(first, number_before(end, first), below(end).saturating_sub(below(start)))
        };
        let ranges = if mix.ranges.is_empty() {
            let range = |(at, &(key, first)): (usize, &(&[u8], u64))| {
                // Every other one is a seek.
                if at % 2 == 1 {
                    return seek(key);
                }
                if keys.is_blind() {
                    return match prefix_end(key) {
                        Some(end) => between(key, &end),
                        None => query(first, u64::MAX, kept.len() - below(key)),
                    };
                }
                let next = kept.get(below(key)).map_or(u64::MAX, |next| next.saturating_sub(1)).max(first);
                query(first, next.min(first.saturating_add(RANGE - 1)), 0)
            };
            held.iter().enumerate().map(range).collect()
        } else {
            let range = |(start, end): &(Vec<u8>, Option<Vec<u8>>)| match end {
                Some(end) => between(start, end),
                None => seek(start),
            };
            mix.ranges.iter().map(range).collect()
        };
        let points = match mix.points.is_empty() {
            true => held.iter().map(|(_, number)| *number).collect(),
            // A key that was put since it was asked for is absent no more.
            false => {
                let is_absent =
                    |key: &&Vec<u8>| places.get(below(key)).is_none_or(|&place| list.get(place) != &key[..]);
                mix.points.iter().filter(is_absent).map(|key| keys.clamped(key)).collect()
            }
        };
        Self { kept, points, ranges, share: mix.range_share.clamp(0.0, 1.0), runs }
    }

    /// Number of queries that tell something about points.
    pub(super) fn points(&self) -> usize {
        self.points.len()
    }

    /// Returns how many of the kept keys have numbers from `first` to `last`.
    fn between(&self, first: u64, last: u64) -> f64 {
        let from = self.kept.partition_point(|&key| key < first);
        let to = self.kept.partition_point(|&key| key <= last);
        to.saturating_sub(from) as f64
    }

    /// Returns the kept keys in the cells of the numbers from `first` to `last`.
    fn in_cells(&self, map: &Map, first: u64, last: u64) -> f64 {
        let (a, b) = (map.segment(first), map.segment(last));
        let mut stretches = Vec::new();
        map.stretches(a, first, last, &mut stretches);
        let from = stretches.first().map_or(0, |stretch| map.first_number(a, *stretch.start()));
        map.stretches(b, first, last, &mut stretches);
        let behind = stretches.last().and_then(|stretch| map.number_behind(b, *stretch.end()));
        self.between(from, behind.map_or(u64::MAX, |behind| behind.saturating_sub(1)))
    }

    /// Returns what a map would cost, by one query in `every`.
    fn cost(&self, map: &Map, every: usize) -> Cost {
        let mean = |sum: f64, count: usize| if count == 0 { 0.0 } else { sum / count as f64 };
        let all = self.kept.len() as f64;
        let per_cell = match map.kind {
            Kind::Ordered { cells } => map.positions() as f64 / map.segments() as f64 / cells as f64,
            Kind::Local { .. } | Kind::Digest => 0.0,
        };
        let segment = |number: u64| {
            let at = map.segment(number);
            self.between(map.lower(at), map.upper(at).map_or(u64::MAX, |upper| upper - 1))
        };
        let positions = map.positions() as f64 / map.segments() as f64;
        let point = |&number: &u64| match map.kind {
            Kind::Digest => all / positions,
            // Keys of the same number match for certain.
            Kind::Local { .. } => (self.between(number, number) + segment(number) / positions).min(self.runs),
            Kind::Ordered { .. } => (self.in_cells(map, number, number) / per_cell).min(self.runs),
        };
        let range = |query: &Query| {
            let Query { first, last, held, most, is_seek } = *query;
            match map.kind {
                Kind::Digest => most,
                Kind::Local { bits } => {
                    let is_short =
                        !is_seek && last - first < 1 << bits && map.segment(first) == map.segment(last);
                    let share = if is_short { ((last - first) as f64 + 1.0) / positions } else { 1.0 };
                    (segment(first) * share).min(most)
                }
                Kind::Ordered { .. } => (self.in_cells(map, first, last) - held).clamp(0.0, most),
            }
        };
        Cost {
            points: mean(
                self.points.iter().step_by(every).map(point).sum(),
                self.points.len().div_ceil(every),
            ),
            ranges: mean(
                self.ranges.iter().step_by(every).map(range).sum(),
                self.ranges.len().div_ceil(every),
            ),
        }
    }

    /// Returns whether a map tells absent keys about as well as if keys were spread evenly, as far
    /// as chance allows to say.
    pub(super) fn is_even(&self, map: &Map) -> bool {
        let ideal = self.kept.len() as f64 / map.positions() as f64;
        let deviation = (ideal / self.points.len().max(1) as f64).sqrt();
        self.cost(map, 1).points <= ideal * 1.2 + 3.0 * deviation
    }

    /// Returns the average cost of a query, less what is preferred and what ranges cost under every
    /// map: where order tells nothing they open all runs, and however many these are, points
    /// decide.
    fn total(&self, map: &Map, cost: Cost, least_ranges: f64) -> f64 {
        let points = cost.points / if map.kind == Kind::Digest { PREFERENCE } else { 1.0 };
        (1.0 - self.share) * points + self.share * (cost.ranges - least_ranges).max(0.0)
    }

    /// Returns the map that costs least, and the share of absent keys that a map by order alone
    /// would name, if one of them is such a map. What comes first preserves more order or takes
    /// less time; a difference that may be chance does not count.
    pub(super) fn best(&self, maps: Vec<Map>) -> (Option<Map>, Option<f64>) {
        let rough: Vec<Cost> = maps.iter().map(|map| self.cost(map, SAMPLED)).collect();
        let by_order = maps.iter().zip(&rough).filter(|(map, _)| map.is_learned());
        let by_order = by_order.min_by(|a, b| a.1.points.total_cmp(&b.1.points));
        // The least of several samples is below what to expect.
        let by_order = by_order.map(|(map, _)| self.cost(map, 1).points);
        let least_ranges = rough.iter().map(|cost| cost.ranges).fold(f64::INFINITY, f64::min);
        let totals: Vec<f64> =
            maps.iter().zip(&rough).map(|(map, &cost)| self.total(map, cost, least_ranges)).collect();
        let least = totals.iter().copied().fold(f64::INFINITY, f64::min);
        let queries = self.points.len().min(self.ranges.len()).div_ceil(SAMPLED).max(1);
        let most = least * 1.3 + 1.0 / queries as f64;
        let few = maps.into_iter().zip(totals).filter(|(_, total)| *total <= most);
        let few: Vec<(Cost, Map)> = few.map(|(map, _)| (self.cost(&map, 1), map)).collect();
        let least_ranges = few.iter().map(|(cost, _)| cost.ranges).fold(f64::INFINITY, f64::min);
        let mut best: Option<(f64, Map)> = None;
        for (cost, map) in few {
            let total = self.total(&map, cost, least_ranges);
            if best.as_ref().is_none_or(|(least, _)| total < least * 0.97 - 1e-6) {
                best = Some((total, map));
            }
        }
        (best.map(|(_, map)| map), by_order)
    }
}

/// Returns the kinds of maps to compare for a choice, for segments of so many positions; the first
/// is preferred among equals.
pub(super) fn candidates(wanted: MapChoice, per_segment: u64) -> Vec<Kind> {
    let bits = per_segment.max(1).ilog2();
    let local = Kind::Local { bits: local_bits(per_segment) };
    match wanted {
        MapChoice::Learned => vec![Kind::Ordered { cells: u64::MAX }],
        MapChoice::Mixed => vec![Kind::Ordered { cells: 1 }],
        MapChoice::Local => vec![local],
        MapChoice::Digest => vec![Kind::Digest],
        MapChoice::Auto => {
            let ordered = (0..=bits).step_by(STEP as usize).map(|cut| match cut {
                0 => Kind::Ordered { cells: u64::MAX },
                cut => Kind::Ordered { cells: (per_segment >> cut).max(1) },
            });
            ordered.chain([Kind::Ordered { cells: 1 }, local, Kind::Digest]).collect()
        }
    }
}

/// Returns by how many bits of their numbers a local map with segments of so many positions keeps
/// keys together.
pub(super) fn local_bits(per_segment: u64) -> u32 {
    per_segment.max(1).ilog2().saturating_sub(2).min(20)
}

/// Returns the name of a kind of map.
pub(super) fn name(kind: Kind) -> MapChoice {
    match kind {
        Kind::Ordered { cells: 1 } => MapChoice::Mixed,
        Kind::Ordered { .. } => MapChoice::Learned,
        Kind::Local { .. } => MapChoice::Local,
        Kind::Digest => MapChoice::Digest,
    }
}
