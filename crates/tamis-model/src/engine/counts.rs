//! How often each event happens in one operation: filters probed, runs searched in vain, cursors
//! opened. These are the same counters that the engine keeps (`ReadCost`), so that predictions can
//! be checked without a clock.
//!
//! A key's run is drawn by the runs' shares of the entries; filters of different runs err
//! independently (each has its own salt). Costs O(runs) per state; for `elastic`, O(runs · units ·
//! log).

use std::sync::OnceLock;

use super::inputs::{Allocation, Class, Configuration, Data, Workload};
use super::selector::{REMIX_SEGMENT, Rates, Selector, blocked_rate};
use super::shape::{State, Tree};

/// The expected counts of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Digests of keys computed.
    pub digests: f64,
    /// Runs that cover the key or the range.
    pub runs: f64,
    /// Filters probed for a key; a global filter counts once.
    pub filter_probes: f64,
    /// Filters that answered "maybe" for an absent key.
    pub false_positives: f64,
    /// Runs searched by a get.
    pub runs_searched: f64,
    /// Filters probed for a range; a global filter counts once per step of its walk.
    pub range_probes: f64,
    /// Cursors positioned in runs.
    pub cursors: f64,
    /// Cursors of those that are positioned one by one while the iterator advances.
    pub late_cursors: f64,
    /// Blocks touched.
    pub blocks: f64,
    /// Entries read by an iterator.
    pub entries: f64,
}

impl Counts {
    fn add(&mut self, other: &Counts, weight: f64) {
        self.digests += weight * other.digests;
        self.runs += weight * other.runs;
        self.filter_probes += weight * other.filter_probes;
        self.false_positives += weight * other.false_positives;
        self.runs_searched += weight * other.runs_searched;
        self.range_probes += weight * other.range_probes;
        self.cursors += weight * other.cursors;
        self.late_cursors += weight * other.late_cursors;
        self.blocks += weight * other.blocks;
        self.entries += weight * other.entries;
    }
}

/// Returns the counts of one operation of each class in a tree, averaged over its states. In the
/// order of [`Class::ALL`]; a put counts nothing.
pub fn counts(tree: &Tree, data: &Data, workload: &Workload, configuration: &Configuration) -> [Counts; 6] {
    let mut sums = [Counts::default(); 6];
    let weight = 1.0 / tree.states.len().max(1) as f64;
    for state in &tree.states {
        let asked = Asked::new(state, data, workload, configuration);
        for (sum, class) in sums.iter_mut().zip(Class::ALL) {
            sum.add(&asked.counts(class), weight);
        }
    }
    sums
}

/// One state of the tree, with the false-positive rate of each run's filter.
struct Asked<'a> {
    data: &'a Data,
    workload: &'a Workload,
    configuration: &'a Configuration,
    /// Shares of entries, newest run first.
    shares: Vec<f64>,
    coverage: f64,
    /// False-positive rate of each run's filter. Empty for global filters.
    rates: Vec<Rates>,
    /// Whether the run has a filter at all.
    has_filter: Vec<bool>,
}

/// Runs probed in one step, the newest first: as `select::next_step`.
const STEPS: (usize, usize) = (8, 32);

impl<'a> Asked<'a> {
    fn new(
        state: &State,
        data: &'a Data,
        workload: &'a Workload,
        configuration: &'a Configuration,
    ) -> Asked<'a> {
        let entries = state.entries().max(1.0);
        let shares: Vec<f64> = state.runs.iter().map(|run| run / entries).collect();
        let near = if workload.near.is_finite() { workload.near.clamp(0.0, 1.0) } else { 0.0 };
        let Configuration { selector, allocation, bits_per_key, .. } = *configuration;
        let of_bits = |bits: f64| match bits < FEWEST_BITS {
            true => Rates { point: 1.0, range: 1.0 },
            false => selector.rates(bits, data.keys, near, workload.range_width.max(1.0)),
        };
        let (rates, has_filter) = if selector.is_global() {
            (Vec::new(), Vec::new())
        } else if selector == Selector::Elastic {
            let points = elastic_rates(state, workload, bits_per_key);
            (points.iter().map(|&point| Rates { point, range: 1.0 }).collect(), vec![true; shares.len()])
        } else if allocation == Allocation::Monkey {
            let bits = monkey(&state.runs, bits_per_key);
            (
                bits.iter().map(|&bits| of_bits(bits)).collect(),
                bits.iter().map(|bits| *bits >= FEWEST_BITS).collect(),
            )
        } else {
            let has = selector != Selector::None && bits_per_key >= FEWEST_BITS;
            (vec![of_bits(bits_per_key); shares.len()], vec![has; shares.len()])
        };
        Asked { data, workload, configuration, shares, coverage: state.coverage, rates, has_filter }
    }

    fn counts(&self, class: Class) -> Counts {
        match class {
            Class::EmptyGet => self.empty_get(),
            Class::ExistingGet => self.existing_get(),
            Class::EmptyRange => self.empty_range(),
            Class::Seek => self.iteration(1.0),
            Class::Scan => self.iteration(self.workload.scan_entries.max(1.0)),
            Class::Put => Counts::default(),
        }
    }

    fn runs(&self) -> f64 {
        // The oldest run covers everything that any run covers.
        let runs = self.shares.len() as f64;
        if runs <= 1.0 { runs } else { 1.0 + (runs - 1.0) * self.coverage }
    }

    fn named(&self, near: f64) -> Rates {
        let Configuration { selector, bits_per_key, .. } = *self.configuration;
        let named = selector.named_runs(bits_per_key, self.data.keys, near, &self.shares);
        // Named runs that do not cover the key are not searched.
        Rates { point: named.point.min(self.runs()), range: named.range.min(self.runs()) }
    }

    fn empty_get(&self) -> Counts {
        let runs = self.runs();
        if self.configuration.selector.is_global() {
            let named = self.named(self.workload.near).point;
            return Counts {
                digests: 1.0,
                runs,
                filter_probes: 1.0,
                false_positives: named,
                runs_searched: named,
                blocks: named,
                ..Counts::default()
            };
        }
        let part = runs / (self.shares.len() as f64).max(1.0);
        let asked = part * self.has_filter.iter().filter(|has| **has).count() as f64;
        let searched = part * self.rates.iter().map(|rates| rates.point).sum::<f64>();
        let pairs = || self.rates.iter().zip(&self.has_filter);
        let false_positives =
            part * pairs().filter(|(_, has)| **has).map(|(rates, _)| rates.point).sum::<f64>();
        Counts {
            digests: if self.configuration.hash_sharing { 1.0 } else { asked },
            runs,
            filter_probes: asked,
            false_positives,
            runs_searched: searched,
            blocks: searched,
            ..Counts::default()
        }
    }

    fn existing_get(&self) -> Counts {
        let runs = self.shares.len();
        let mut counts = Counts { digests: 1.0, ..Counts::default() };
        if self.configuration.selector.is_global() {
            let newer_of = |part: &dyn Fn(f64) -> f64| {
                let (mut before, mut sum) = (0.0, 0.0);
                for share in &self.shares {
                    sum += share * before;
                    before += part(*share);
                }
                sum
            };
            // Runs are named falsely in proportion to their entries; a segment names every run that
            // has some there.
            let newer = match self.configuration.selector {
                Selector::Remix => newer_of(&|share| 1.0 - (1.0 - share).max(0.0).powf(REMIX_SEGMENT)),
                _ => self.named(0.0).point * newer_of(&|share| share),
            };
            let newer = (self.coverage * newer).min(self.runs() - 1.0).max(0.0);
            counts.runs = self.runs();
            counts.filter_probes = 1.0;
            counts.false_positives = newer;
            counts.runs_searched = 1.0 + newer;
            counts.blocks = counts.runs_searched;
            return counts;
        }
        let (mut vain, mut false_positives) = (0.0, 0.0);
        let filtered = self.has_filter.iter().filter(|has| **has).count() as f64 / runs.max(1) as f64;
        for (at, share) in self.shares.iter().enumerate() {
            let step = match at {
                _ if !self.configuration.hash_sharing => at + 1,
                at if at < STEPS.0 => STEPS.0,
                at => STEPS.0 + (at - STEPS.0) / STEPS.1 * STEPS.1 + STEPS.1,
            };
            let covered = |runs: f64| 1.0 + (runs - 1.0) * self.coverage;
            let asked = covered(step.min(runs) as f64);
            counts.runs += share * asked;
            counts.filter_probes += share * asked * filtered;
            counts.false_positives += share * false_positives;
            counts.runs_searched += share * (1.0 + vain);
            vain += self.coverage * self.rates[at].point;
            false_positives += if self.has_filter[at] { self.coverage * self.rates[at].point } else { 0.0 };
        }
        if !self.configuration.hash_sharing {
            counts.digests = counts.filter_probes.max(1.0);
        }
        counts.blocks = counts.runs_searched;
        counts
    }

    fn empty_range(&self) -> Counts {
        let selector = self.configuration.selector;
        let runs = self.runs();
        let (probes, cursors) = if selector.is_global() {
            let asks = f64::from(u8::from(selector.answers_ranges()));
            (asks, if asks > 0.0 { self.named(self.workload.near).range } else { runs })
        } else if selector.answers_ranges() {
            let part = runs / (self.shares.len() as f64).max(1.0);
            (runs, part * self.rates.iter().map(|rates| rates.range).sum::<f64>())
        } else {
            (0.0, runs)
        };
        Counts { runs, range_probes: probes, cursors, blocks: cursors, ..Counts::default() }
    }

    /// Counts for an iterator without an end that reads `entries` entries.
    fn iteration(&self, entries: f64) -> Counts {
        let selector = self.configuration.selector;
        let runs = self.runs();
        // The runs that have any of the entries.
        let needed: f64 = self
            .shares
            .iter()
            .map(|share| 1.0 - (1.0 - share).max(0.0).powf(entries))
            .sum::<f64>()
            .max(1.0)
            .min(runs);
        let (probes, cursors, late) = if selector.is_global() && selector.keeps_order() {
            let named = self.named(0.0).range;
            let stretches = 1.0 + (entries / 8.0).max(1.0).ln() / 8f64.ln();
            (stretches, (needed + named).min(runs), 0.0)
        } else if selector.keeps_order() {
            let vain: f64 =
                self.rates.iter().map(|rates| rates.range).sum::<f64>() / (self.shares.len() as f64).max(1.0);
            let cursors = needed + (runs - needed) * vain;
            (runs, cursors, cursors - 1.0)
        } else {
            (0.0, runs, 0.0)
        };
        let further = (entries - 1.0) * self.data.entry_bytes() / self.data.block_bytes.max(1) as f64;
        Counts {
            runs,
            range_probes: probes,
            cursors,
            late_cursors: late,
            blocks: cursors + further,
            entries,
            ..Counts::default()
        }
    }
}

/// Filters with fewer bits are not built: probing them would cost more than they save.
const FEWEST_BITS: f64 = 0.25;

/// [`blocked_rate`] from a table of quarter bits: Monkey needs it for each run of each state.
pub(crate) fn blocked_rate_of(bits: f64) -> f64 {
    static TABLE: OnceLock<Vec<f64>> = OnceLock::new();
    let table = TABLE.get_or_init(|| (0..=256).map(|i| blocked_rate(f64::from(i) / 4.0)).collect());
    let at = (bits.clamp(0.0, 64.0) * 4.0).min(255.999);
    let (low, part) = (at.floor() as usize, at.fract());
    (table[low].ln() * (1.0 - part) + table[low + 1].ln() * part).exp()
}

/// Returns bits for each of several runs that minimise the total false positives with `bits` each
/// on average: rates are proportional to sizes, runs whose rate would reach 1 get none (Monkey,
/// SIGMOD 2017, section 4), no run more than 64.
pub(crate) fn monkey(runs: &[f64], bits: f64) -> Vec<f64> {
    const LN2_SQUARED: f64 = std::f64::consts::LN_2 * std::f64::consts::LN_2;
    let mut given = vec![0.0; runs.len()];
    let mut order: Vec<usize> = (0..runs.len()).filter(|&run| runs[run] > 0.0).collect();
    order.sort_unstable_by(|&a, &b| runs[a].total_cmp(&runs[b]));
    let mut sum: f64 = order.iter().map(|&run| runs[run]).sum();
    let budget = LN2_SQUARED * bits.max(0.0) * sum;
    let mut weighted: f64 = order.iter().map(|&run| runs[run] * runs[run].ln()).sum();
    while let Some(&largest) = order.last() {
        let n = runs[largest];
        let ln_s = -(budget + weighted) / sum;
        if ln_s + n.ln() < 0.0 {
            for &run in &order {
                given[run] = (-(ln_s + runs[run].ln()) / LN2_SQUARED).min(64.0);
            }
            break;
        }
        order.pop();
        sum -= n;
        weighted -= n * n.ln();
    }
    given
}

/// Bits of a unit, units of a segment, keys of a segment: the defaults of `filter_unit_bits`,
/// `filter_units` and `filter_unit_bytes`.
const UNIT: (f64, usize, f64) = (4.0, 6, 8064.0);
/// Memory that a unit takes per bit of its own.
const UNIT_MEMORY: f64 = 1.03;

/// Returns the share of a Zipf law over `items` items that falls on the first `top` of them. Uses
/// the integral of the law.
pub(crate) fn zipf_share(top: f64, items: f64, exponent: f64) -> f64 {
    let (items, exponent) = (items.max(1.0), if exponent.is_finite() { exponent.max(0.0) } else { 0.0 });
    let sum = |x: f64| match (1.0 - exponent).abs() < 1e-6 {
        true => 1.0 + x.max(1.0).ln(),
        false => 1.0 + (x.max(1.0).powf(1.0 - exponent) - 1.0) / (1.0 - exponent),
    };
    if top < 1.0 {
        return (top.max(0.0) / sum(items)).min(1.0);
    }
    (sum(top.min(items)) / sum(items)).min(1.0)
}

/// Returns the rates of elastic filters in each run, as lookups meet them, when units totalling
/// `bits` per key are where they save most: a fractional knapsack over units, ordered by savings
/// per bit (ElasticBF, ATC 2019, section 3.3, in equilibrium). Scattered hot keys leave segments
/// alike; where hot keys are clustered, segments follow Zipf's law.
fn elastic_rates(state: &State, workload: &Workload, bits: f64) -> Vec<f64> {
    let pass = blocked_rate_of(UNIT.0);
    let entries = state.entries().max(1.0);
    let (absent, present) = (workload.share(Class::EmptyGet), workload.share(Class::ExistingGet));
    // Per segment class: run, number of keys, share of the run's lookups, units assigned (finally a
    // fraction).
    let mut classes: Vec<(usize, f64, f64, f64)> = Vec::new();
    let mut weights = Vec::new();
    let mut older = 1.0;
    for (run, &keys) in state.runs.iter().enumerate() {
        older -= keys / entries;
        // Misses of a get: those for absent keys, and for keys in older runs.
        weights.push(absent + present * older.max(0.0));
        let segments = (keys / UNIT.2).max(1.0);
        let mut below = 1.0;
        while workload.clustered && workload.skew > 0.0 && below * segments >= 2.0 && below > 1e-4 {
            let share = |part: f64| zipf_share(part * segments, segments, workload.skew);
            classes.push((run, keys * below / 2.0, share(below) - share(below / 2.0), 0.0));
            below /= 2.0;
        }
        let rest = if below < 1.0 { zipf_share(below * segments, segments, workload.skew) } else { 1.0 };
        classes.push((run, keys * below, rest, 0.0));
    }
    let worth = |class: &(usize, f64, f64, f64), unit: usize| {
        let saved = pass.powi(unit as i32) * (1.0 - pass);
        (weights[class.0] + 1e-9) * class.2 * saved / class.1.max(1e-9)
    };
    let mut steps: Vec<(f64, usize)> = Vec::new();
    for (at, class) in classes.iter().enumerate() {
        steps.extend((0..UNIT.1).map(|unit| (worth(class, unit), at)));
    }
    steps.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
    let mut left = bits.max(0.0) * entries / UNIT_MEMORY;
    for (_, at) in steps {
        let cost = classes[at].1 * UNIT.0;
        let part = (left / cost.max(1e-9)).min(1.0);
        classes[at].3 += part;
        left -= part * cost;
        if left <= 0.0 {
            break;
        }
    }
    let mut rates = vec![0.0; state.runs.len()];
    for (run, _, share, units) in classes {
        let (whole, part) = (units.floor() as i32, units.fract());
        rates[run] += share * pass.powi(whole) * ((1.0 - part) + part * pass);
    }
    rates
}
