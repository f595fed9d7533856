//! Times: building, probing a filter that fits the cache, and probing many that do not.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use serde::Serialize;
use tamis_bench::random::Random;
use tamis_filter::Digest;
use tamis_lab::machine::Machine;

use super::{Options, Subject};
use crate::filters::Filter;
use crate::keysets::KeySet;
use crate::measure::{chained, independent, interleaved, mask};
use crate::progress::Progress;
use crate::queries::{Class, Queries, Width};
use crate::stats::Spread;

/// Number of distinct queries: enough that branch prediction cannot learn the answers, few enough that they stream
/// through the second-level cache.
const QUERIES: usize = 1 << 15;

/// Times of one filter over one key set, in ns per key or per probe.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Speed {
    /// The key set's name.
    pub key_set: &'static str,
    /// The filter's name.
    pub filter: &'static str,
    /// Requested bits per key.
    pub bits_asked: f64,
    /// Actual bits per key over all keys.
    pub bits: f64,
    /// Building time per key; point filters from digests, range filters from sorted keys.
    pub build: Option<Spread>,
    /// Absent points in a filter that fits the cache, overlapping.
    pub absent: Option<Spread>,
    /// The same, each query after the answer to the preceding one.
    pub absent_chained: Option<Spread>,
    /// Existing points, overlapping.
    pub present: Option<Spread>,
    /// Empty ranges, overlapping.
    pub range: Option<Spread>,
    /// Absent points in filters far larger than the cache, overlapping.
    pub large_absent: Option<Spread>,
    /// The same, chained.
    pub large_absent_chained: Option<Spread>,
    /// Empty ranges in them, overlapping.
    pub large_range: Option<Spread>,
}

/// Queries of a thinned set, for timing.
struct Asked {
    absent: Queries,
    present: Vec<(Vec<u8>, Digest)>,
    ranges: Queries,
}

/// Measures all subjects over one set. Those of the same size are interleaved.
pub(super) fn measure(
    set: &KeySet,
    subjects: &[Subject],
    options: &Options,
    machine: &Machine,
    progress: &Progress,
) -> Result<Vec<Speed>, Box<dyn Error>> {
    let hot = set.thinned(options.hot_keys);
    let (digests, hot_digests) = (set.digests(), hot.digests());
    let width = if set.integers { Width::Integers(options.speed_range.max(2)) } else { Width::Prefix };
    let draw = |width| Queries::draw(&hot, Class::HeldOut, width, QUERIES, options.common.seed);
    let mut random = Random::new(options.common.seed);
    let present = (0..QUERIES).map(|_| {
        let at = random.index(hot.members.len());
        (hot.members.get(at).to_vec(), hot_digests[at])
    });
    let asked = Asked { present: present.collect(), absent: draw(Width::Point), ranges: draw(width) };

    let mut speeds: Vec<Speed> = subjects
        .iter()
        .map(|subject| Speed {
            key_set: set.name,
            filter: subject.kind.name,
            bits_asked: subject.bits,
            bits: f64::NAN,
            build: None,
            absent: None,
            absent_chained: None,
            present: None,
            range: None,
            large_absent: None,
            large_absent_chained: None,
            large_range: None,
        })
        .collect();
    let rounds = options.common.rounds;
    let seed = options.common.seed;

    // Refused subjects are skipped.
    let full = |subject: &Subject| subject.kind.build(set, &digests, subject.bits, seed);
    let built: Vec<usize> = (0..subjects.len())
        .filter(|&at| {
            let filter = full(&subjects[at]).ok();
            speeds[at].bits = filter.as_ref().map_or(f64::NAN, Filter::bits_per_key);
            filter.is_some()
        })
        .collect();
    progress.begin(&format!("{}: building", set.name), built.len() * (rounds + 1));
    let mut sides: Vec<Box<dyn FnMut() -> f64>> = Vec::new();
    for &at in &built {
        let subject = &subjects[at];
        sides.push(Box::new(move || {
            let start = Instant::now();
            let built = black_box(full(subject));
            let time = start.elapsed().as_nanos() as f64 / set.members.len() as f64;
            drop(built);
            time
        }));
    }
    let times = interleaved(rounds, &mut sides, || progress.advance(1));
    built.iter().zip(times).for_each(|(&at, time)| speeds[at].build = Some(time));

    let mut filters = Vec::new();
    for &at in &built {
        if let Ok(filter) = subjects[at].kind.build(&hot, &hot_digests, subjects[at].bits, seed) {
            filters.push((at, vec![filter]));
        }
    }
    progress.begin(&format!("{}: probing, in the cache", set.name), filters.len() * (rounds + 1) * 4);
    for (at, [absent, chained, present, range]) in probe(&filters, &asked, &[0], options, progress) {
        let speed = &mut speeds[at];
        (speed.absent, speed.absent_chained, speed.present, speed.range) = (absent, chained, present, range);
    }
    drop(filters);

    if options.large {
        let bytes = options.large_mib.map_or(machine.largest_cache() * 8, |mib| mib << 20);
        for &bits in &options.bits {
            let of_size: Vec<usize> = built.iter().copied().filter(|&at| subjects[at].bits == bits).collect();
            progress.phase(&format!("{}: filling memory", set.name));
            let mut filters = Vec::new();
            for at in of_size {
                let filter = subjects[at].kind.build(&hot, &hot_digests, bits, seed)?;
                filters.push((at, filter.copies(bytes)?));
            }
            let route: Vec<u32> = (0..QUERIES * 8).map(|_| random.next_u64() as u32).collect();
            progress
                .begin(&format!("{}: probing, beyond the cache", set.name), filters.len() * (rounds + 1) * 4);
            for (at, [absent, chained, _, range]) in probe(&filters, &asked, &route, options, progress) {
                let speed = &mut speeds[at];
                (speed.large_absent, speed.large_absent_chained, speed.large_range) =
                    (absent, chained, range);
            }
        }
    }
    Ok(speeds)
}

type Times = [Option<Spread>; 4];

/// Times absent points, the same chained, present points and ranges, for every group of filters. `route` contains
/// random numbers that choose among the filters of a group; a single 0 chooses the first.
fn probe(
    groups: &[(usize, Vec<Filter>)],
    asked: &Asked,
    route: &[u32],
    options: &Options,
    progress: &Progress,
) -> Vec<(usize, Times)> {
    let mut times: Vec<(usize, Times)> = groups.iter().map(|(at, _)| (*at, [None; 4])).collect();
    for what in 0..4 {
        let mut sides: Vec<Box<dyn FnMut() -> f64>> = Vec::new();
        let mut measured = Vec::new();
        for (at, (_, filters)) in groups.iter().enumerate() {
            if let Some(side) = side(filters, asked, route, what, options.probes) {
                sides.push(side);
                measured.push(at);
            }
        }
        let spreads = interleaved(options.common.rounds, &mut sides, || progress.advance(1));
        for (at, spread) in measured.into_iter().zip(spreads) {
            times[at].1[what] = Some(spread);
        }
    }
    times
}

/// Returns a round of `probes` probes, or of fewer that take 50 ms: some filters are a hundred times slower than
/// others.
fn limited<'a>(probes: usize, mut round: impl FnMut(usize) -> f64 + 'a) -> Box<dyn FnMut() -> f64 + 'a> {
    const TRIAL: usize = 1_000;
    const MOST_NS: f64 = 50e6;
    let affordable = (MOST_NS / round(TRIAL).max(0.1)) as usize;
    let count = probes.min(affordable).max(TRIAL);
    Box::new(move || round(count))
}

/// Prepares one measurement of one group; `None` where there is nothing to query.
fn side<'a>(
    filters: &'a [Filter],
    asked: &'a Asked,
    route: &'a [u32],
    what: usize,
    count: usize,
) -> Option<Box<dyn FnMut() -> f64 + 'a>> {
    // The choice of the filter costs only a multiplication and a read from an array that streams.
    let queries = match what {
        0 | 1 => asked.absent.len(),
        2 => asked.present.len(),
        _ => asked.ranges.len(),
    };
    let mask = mask(queries)?;
    // Each repetition of a query takes another route, since its line would still be in the cache otherwise.
    let mut turn = 0usize;
    let chosen = move |at: usize| {
        turn = turn.wrapping_add(1);
        let number = route[(turn + at) % route.len()];
        ((u64::from(number) * filters.len() as u64) >> 32) as usize
    };
    macro_rules! timed {
        ($run:ident, $kind:ident, |$filter:ident, $at:ident| $probe:expr) => {{
            let group: Vec<_> = filters
                .iter()
                .filter_map(|f| if let Filter::$kind(f) = f { Some(f) } else { None })
                .collect();
            let first = group[0];
            let mut chosen = chosen;
            Some(if group.len() == 1 {
                limited(count, move |count| {
                    $run(count, mask, |$at| {
                        let $filter = first;
                        $probe
                    })
                })
            } else {
                limited(count, move |count| {
                    $run(count, mask, |$at| {
                        let $filter = group[chosen($at)];
                        $probe
                    })
                })
            })
        }};
    }
    let (absent, present, ranges) = (&asked.absent, &asked.present, &asked.ranges);
    match (filters.first()?, what) {
        (Filter::Point(_), 0) => timed!(independent, Point, |f, at| f.contains(absent.digest(at))),
        (Filter::Point(_), 1) => timed!(chained, Point, |f, at| f.contains(absent.digest(at))),
        (Filter::Point(_), 2) => timed!(independent, Point, |f, at| f.contains(present[at].1)),
        (Filter::Point(_), _) => None,
        (Filter::Range(_), 0) => {
            timed!(independent, Range, |f, at| f.contains_key(absent.start(at), absent.digest(at)))
        }
        (Filter::Range(_), 1) => {
            timed!(chained, Range, |f, at| f.contains_key(absent.start(at), absent.digest(at)))
        }
        (Filter::Range(_), 2) => {
            timed!(independent, Range, |f, at| f.contains_key(&present[at].0, present[at].1))
        }
        (Filter::Range(_), _) => timed!(independent, Range, |f, at| f.contains_range(ranges.range(at))),
    }
}
