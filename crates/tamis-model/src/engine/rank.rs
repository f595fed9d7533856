//! All configurations that fit a budget, best first, with reasons.
//!
//! A filter per table and `grf` of equal memory are never both candidates for a shape: the rule of
//! `filter = auto` says which is.
//!
//! Ranks every selector, uniform and by Monkey's rule, over every requested shape, each with the
//! best of a few numbers of bits that fit. Costs one tree per shape and hundreds of predictions,
//! some tens of milliseconds.

use super::between::{between, side};
use super::inputs::{Allocation, Class, Configuration, Data, Machine, ReadPath, Workload};
use super::predict::{Prediction, filter_bytes, predict_tree};
use super::selector::Selector;
use super::shape::{Policy, Shape, Tree, grow};
use crate::tree_filter::TreeFilter;

/// The choices.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Space {
    /// Bytes for filters and block cache together.
    pub budget_bytes: u64,
    /// The candidate shapes.
    pub shapes: Vec<Shape>,
    /// The candidate selectors.
    pub selectors: Vec<Selector>,
    /// Whether a global filter would keep the order of keys (`key_map` is not `digest`).
    pub keeps_order: bool,
    /// The present configuration; ranked with the others whatever its size.
    pub current: Option<Configuration>,
}

impl Space {
    /// The shapes that keep all data: leveling, lazy leveling, tiering and fragments, T = 4 and 10.
    pub fn new(budget_bytes: u64) -> Space {
        let policies = [Policy::Leveling, Policy::LazyLeveling, Policy::Tiering, Policy::Fragmented];
        let shapes =
            policies.into_iter().flat_map(|policy| [10, 4].map(|ratio| Shape::new(policy, ratio))).collect();
        Space { budget_bytes, shapes, selectors: Selector::ALL.to_vec(), keeps_order: true, current: None }
    }

    /// Restricts the choice to trees of one shape.
    pub fn of_shape(budget_bytes: u64, shape: Shape) -> Space {
        Space { shapes: vec![shape], ..Space::new(budget_bytes) }
    }
}

/// One configuration with its expected costs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Ranked {
    /// The configuration.
    pub configuration: Configuration,
    /// Its costs.
    pub prediction: Prediction,
    /// Whether this is the present configuration.
    pub is_current: bool,
    /// Whether the rule of `filter = auto` prefers the other kind of filter ([`between`]): only the
    /// present configuration is ranked nevertheless.
    pub is_rejected: bool,
    /// In words: where most of its time goes, and for the others where they lose to the best one.
    pub reasons: Vec<String>,
}

/// A selector that is not available.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// The selector.
    pub selector: Selector,
    /// The reason.
    pub reason: String,
}

/// All configurations that fit, and the rejected selectors.
#[derive(Clone, Debug, PartialEq, Default)]
#[non_exhaustive]
pub struct Ranking {
    /// Best first. Includes the present configuration if it is known.
    pub ranked: Vec<Ranked>,
    /// In the order of [`Selector::ALL`].
    pub refused: Vec<Refused>,
}

impl Ranking {
    /// Returns the best configuration that fits the budget.
    pub fn best(&self) -> Option<&Ranked> {
        self.ranked.first()
    }

    /// Returns the present configuration.
    pub fn current(&self) -> Option<&Ranked> {
        self.ranked.iter().find(|ranked| ranked.is_current)
    }
}

/// Bits per entry to try; the budget's own number is tried, too, if it is less than the second.
const BITS: [f64; 9] = [4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 20.0, 24.0];
/// Minimum bits that tables use for their filters.
const FEWEST_BITS: f64 = 0.5;
/// Means within a relative step of this size count as equal: the smaller filter goes first.
const ALIKE: f64 = 1e-6;

/// Returns the step that a mean falls on. Comparing means by their distance would not be an order:
/// each of three may equal the next while the ends differ.
fn step(mean_ns: f64) -> i64 {
    (mean_ns.max(1e-9).ln() / ALIKE).round() as i64
}

/// Ranks all configurations of `space`. Nothing over budget is recommended; `Ranking::ranked`
/// begins with the configurations that fit.
pub fn rank(machine: &Machine, data: &Data, workload: &Workload, space: &Space) -> Ranking {
    let settled = workload.share(Class::Put) == 0.0;
    let tree_of = |shape: &Shape| grow(shape, data, settled);
    let mut ranked = Vec::new();
    for shape in &space.shapes {
        let tree = tree_of(shape);
        for &selector in &space.selectors {
            let allocations: &[Allocation] = match selector {
                Selector::None | Selector::Elastic => &[Allocation::Uniform],
                selector if selector.is_global() => &[Allocation::Uniform],
                _ => &[Allocation::Uniform, Allocation::Monkey],
            };
            for &allocation in allocations {
                ranked.extend(best_bits(
                    machine,
                    data,
                    workload,
                    space,
                    (selector, allocation, *shape),
                    &tree,
                ));
            }
        }
    }
    let fits = |ranked: &Ranked| ranked.prediction.filter_bytes <= space.budget_bytes as f64;
    ranked.sort_by(|a, b| {
        let order = step(a.prediction.mean_ns).cmp(&step(b.prediction.mean_ns));
        let smaller = || a.prediction.filter_bytes.total_cmp(&b.prediction.filter_bytes);
        order.then_with(smaller).then_with(|| a.configuration.selector.cmp(&b.configuration.selector))
    });
    if let Some(current) = space.current {
        let prediction = predict_tree(machine, data, workload, &current, &tree_of(&current.shape));
        let is_same = |other: &Ranked| other.configuration == current;
        ranked.retain(|other| !is_same(other));
        let is_rejected = is_rejected(machine, data, workload, space, &current, &tree_of(&current.shape));
        let now =
            Ranked { configuration: current, prediction, is_current: true, is_rejected, reasons: Vec::new() };
        let at = ranked.partition_point(|other| other.prediction.mean_ns < now.prediction.mean_ns);
        // Configurations that do not fit are not recommended, however fast it is.
        let at = if fits(&now) { at } else { at.max(1).min(ranked.len()) };
        ranked.insert(at, now);
    }
    explain(&mut ranked, workload);
    let refused = refused(machine, data, space, &ranked);
    Ranking { ranked, refused }
}

/// Returns the best number of bits for a selector, if any fits.
fn best_bits(
    machine: &Machine,
    data: &Data,
    workload: &Workload,
    space: &Space,
    (selector, allocation, shape): (Selector, Allocation, Shape),
    tree: &Tree,
) -> Option<Ranked> {
    if selector != Selector::None && machine.probe(selector).is_none() {
        return None;
    }
    // Rounded to half a bit, so that a tree that grows a little does not need a different filter
    // each time.
    let most = (space.budget_bytes as f64 * 16.0 / (data.entries as f64).max(1.0)).floor() / 2.0;
    let through_cache = data.compressed || data.read_path != ReadPath::Mapped;
    let candidates: Vec<f64> = match selector {
        Selector::None => vec![0.0],
        selector if !selector.is_sized() && selector != Selector::Elastic => {
            vec![selector.spent_bits(0.0, data.keys)]
        }
        _ => {
            let fixed = BITS.into_iter().filter(|bits| *bits <= most);
            let rest = (FEWEST_BITS..BITS[1]).contains(&most).then_some(most);
            fixed.chain(rest).collect()
        }
    };
    let configurations = candidates.into_iter().filter_map(|bits| {
        let mut configuration = Configuration { allocation, ..Configuration::new(selector, bits, shape) };
        let filters = filter_bytes(data, &configuration);
        if filters > space.budget_bytes as f64
            || is_rejected(machine, data, workload, space, &configuration, tree)
        {
            return None;
        }
        configuration.cache_bytes = if through_cache { space.budget_bytes - filters as u64 } else { 0 };
        let prediction = predict_tree(machine, data, workload, &configuration, tree);
        Some(Ranked { configuration, prediction, is_current: false, is_rejected: false, reasons: Vec::new() })
    });
    // Among equals the smallest, which comes first.
    configurations.reduce(|best, next| {
        if next.prediction.mean_ns < best.prediction.mean_ns * (1.0 - ALIKE) { next } else { best }
    })
}

/// Reports whether the rule prefers a candidate of the other kind and of equal memory in this tree.
/// Only a candidate can be preferred: one that is measured, requested and within the budget.
fn is_rejected(
    machine: &Machine,
    data: &Data,
    workload: &Workload,
    space: &Space,
    configuration: &Configuration,
    tree: &Tree,
) -> bool {
    let Some(own) = side(configuration) else { return false };
    let rival = match own {
        TreeFilter::PerTable => Selector::Grf,
        TreeFilter::Global => Selector::BlockedBloom,
    };
    let bits = configuration.bits_per_key;
    let of_rival = Configuration::new(rival, bits, configuration.shape);
    // The present one may exceed the budget, and is then left for another reason.
    let is_candidate = space.selectors.contains(&rival)
        && machine.probe(rival).is_some()
        && filter_bytes(data, &of_rival) <= space.budget_bytes as f64;
    let current = space.current.as_ref().and_then(side);
    is_candidate && between(current, tree, data, workload, bits, space.keeps_order).filter != own
}

fn refused(machine: &Machine, data: &Data, space: &Space, ranked: &[Ranked]) -> Vec<Refused> {
    let most = space.budget_bytes as f64 * 8.0 / (data.entries as f64).max(1.0);
    let why = |selector: Selector| {
        if selector == Selector::None {
            return None;
        }
        if machine.probe(selector).is_none() {
            return Some("was not measured on this machine".to_owned());
        }
        let least = selector.spent_bits(FEWEST_BITS, data.keys);
        if least > most {
            return Some(format!("takes {least:.1} bits per key, but the budget allows {most:.1}"));
        }
        let is_ranked = ranked.iter().any(|ranked| ranked.configuration.selector == selector);
        let by_rule = selector == Selector::Grf && !is_ranked && space.selectors.contains(&selector);
        by_rule.then(|| "a filter per table is faster, by the rule of filter = auto".to_owned())
    };
    let all = Selector::ALL.into_iter();
    all.filter_map(|selector| why(selector).map(|reason| Refused { selector, reason })).collect()
}

/// Describes where most of the best one's time goes, and where the others lose to it.
fn explain(ranked: &mut [Ranked], workload: &Workload) {
    let Some((best, others)) = ranked.split_first_mut() else { return };
    best.reasons = best
        .prediction
        .dominant(workload)
        .into_iter()
        .take(3)
        .map(|(term, ns)| {
            let part = 100.0 * ns / best.prediction.mean_ns.max(f64::MIN_POSITIVE);
            format!(
                "{part:.0} % of the time: {}, {} ({ns:.0} ns per operation)",
                term.class.name(),
                term.name
            )
        })
        .collect();
    for other in others {
        let (mine, theirs) = (&other.prediction, &best.prediction);
        let mut reasons = vec![format!("{:.0} against {:.0} ns per operation", mine.mean_ns, theirs.mean_ns)];
        let mut differences: Vec<(f64, Class, &'static str)> = Vec::new();
        for term in &mine.terms {
            let same = theirs.terms.iter().filter(|t| (t.class, t.name) == (term.class, term.name));
            let lost = (term.value_ns - same.map(|t| t.value_ns).sum::<f64>()) * workload.share(term.class);
            differences.push((lost, term.class, term.name));
        }
        differences.sort_by(|a, b| b.0.total_cmp(&a.0));
        let most = differences.into_iter().filter(|(lost, ..)| *lost >= 0.5).take(2);
        reasons.extend(
            most.map(|(lost, class, name)| format!("{lost:.0} ns more for {}, {name}", class.name())),
        );
        other.reasons = reasons;
    }
}
