//! The equations of the hash-sharing paper (DAMON 2021) as printed, by number, for reading
//! alongside it.
//!
//! Costs are in nanoseconds, fractions in `0..=1`; arguments out of range are treated as in the
//! parent module. Errors and approximations are explained there, and here in one line each. For
//! actual use take [`counts`](super::counts) and its siblings.

use super::{Costs, Tree, Workload};
use crate::numbers::{fraction, share, time};

/// Equation 2: a level with one run, where `empty_here` (α_i) of the lookups do not have their key.
/// `T_BF + (1-α_i)T_D + α_i f_p T_D`. `filter_ns` is T_BF, `access_ns` T_D.
pub fn eq2(filter_ns: f64, access_ns: f64, empty_here: f64, false_positive: f64) -> f64 {
    let (empty, rate) = (fraction(empty_here), fraction(false_positive));
    time(filter_ns) + (1.0 - empty) * time(access_ns) + empty * rate * time(access_ns)
}

/// Equation 3: the same with `T_BF = T_H + T_P`. Of `here` the fraction of empty lookups is α_i.
pub fn eq3(here: Workload, costs: Costs) -> f64 {
    let Workload { empty, false_positive } = here.clamped();
    let c = costs.clamped();
    c.hash_ns + c.probe_ns + (1.0 - empty) * c.access_ns + empty * false_positive * c.access_ns
}

/// Equation 5: a level of `runs` runs (T in the paper). Ignores false positives of the runs probed
/// before the right one; [`eq5_complete`] does not.
pub fn eq5(runs: u32, here: Workload, costs: Costs) -> f64 {
    let Workload { empty, false_positive } = here.clamped();
    let c = costs.clamped();
    let runs = f64::from(runs.max(1));
    (1.0 - empty) * (runs + 1.0) / 2.0 * (c.hash_ns + c.probe_ns)
        + (1.0 - empty) * c.access_ns
        + empty * runs * (c.hash_ns + c.probe_ns + false_positive * c.access_ns)
}

/// Equation 5 with the false positives of lookups that find their key in the level: `(1-α_i)(R-1)/2
/// f_p T_D` more. For one run it is Equation 3.
pub fn eq5_complete(runs: u32, here: Workload, costs: Costs) -> f64 {
    let Workload { empty, false_positive } = here.clamped();
    let before = (f64::from(runs.max(1)) - 1.0) / 2.0;
    eq5(runs, here, costs) + (1.0 - empty) * before * false_positive * costs.clamped().access_ns
}

/// β_i of section 3, level 1 first: the fraction of lookups that end in a level because the key is
/// there. Sums to `1 - α`. `empty` is α.
pub fn betas(tree: Tree, empty: f64) -> Vec<f64> {
    let found = 1.0 - fraction(empty);
    tree.level_shares().into_iter().map(|share| found * share).collect()
}

/// `1 - (β_1 + … + β_(i-1))`, level 1 first: the fraction of lookups that reach a level.
pub fn reaching(tree: Tree, empty: f64) -> Vec<f64> {
    let mut reach = betas(tree, empty);
    // Summed from the end, which loses no digits: what reaches a level ends there, further down, or
    // nowhere.
    let mut sum = fraction(empty);
    for level in reach.iter_mut().rev() {
        sum += *level;
        *level = sum.min(1.0);
    }
    reach
}

/// α_i of section 3, level 1 first: of the lookups that reach a level, the fraction whose key is
/// not there.
pub fn alphas(tree: Tree, empty: f64) -> Vec<f64> {
    let ended = betas(tree, empty);
    reaching(tree, empty)
        .iter()
        .zip(ended)
        .map(|(&reach, ended)| fraction(1.0 - share(ended, reach)))
        .collect()
}

/// Equation 10, leveling: the sum of [`eq3`] over levels, each weighted by the lookups that reach
/// it.
pub fn eq10(tree: Tree, workload: Workload, costs: Costs) -> f64 {
    over_levels(tree, workload, |here| eq3(here, costs))
}

/// Equation 14, tiering with T runs: the same sum of [`eq5`].
pub fn eq14(tree: Tree, workload: Workload, costs: Costs) -> f64 {
    over_levels(tree, workload, |here| eq5(tree.clamped().size_ratio, here, costs))
}

fn over_levels(tree: Tree, workload: Workload, level: impl Fn(Workload) -> f64) -> f64 {
    let Workload { empty, false_positive } = workload.clamped();
    let levels = reaching(tree, empty).into_iter().zip(alphas(tree, empty));
    levels.map(|(reach, empty)| reach * level(Workload { empty, false_positive })).sum()
}

/// `Σ_(i=2..L) Σ_(j<i) β_j`, the probes that early ends save, added up: the left side of Equation
/// 13.
pub fn eq13_sum(tree: Tree, empty: f64) -> f64 {
    let betas = betas(tree, empty);
    (1..betas.len()).map(|i| betas[..i].iter().sum::<f64>()).sum()
}

/// Equation 13 before its last step: `(1-α)/(T-1) · (1 - L(T-1)/(T^L-1))`. The same number as
/// [`eq13_sum`].
pub fn eq13_exact(tree: Tree, empty: f64) -> f64 {
    let (l, t) = tree.numbers();
    let (found, levels) = (1.0 - fraction(empty), tree.clamped().levels);
    // The remainder, L(T-1)/(T^L-1), with the power below 1.
    let power = t.powi(-(levels as i32));
    // One level saves exactly nothing.
    if levels == 1 { 0.0 } else { found / (t - 1.0) * (1.0 - l * (t - 1.0) * power / (1.0 - power)) }
}

/// Equation 13's approximation: `(1-α)/(T-1)`. Too high by `(1-α)L/(T^L-1)`.
pub fn eq13(tree: Tree, empty: f64) -> f64 {
    let (_, t) = tree.numbers();
    (1.0 - fraction(empty)) / (t - 1.0)
}

/// Equation 11: Equation 10 with α_i put in terms of β.
pub fn eq11(tree: Tree, workload: Workload, costs: Costs) -> f64 {
    let Workload { empty, false_positive } = workload.clamped();
    let c = costs.clamped();
    let probes = tree.numbers().0 - eq13_sum(tree, empty);
    let found: f64 = betas(tree, empty).iter().sum();
    probes * (c.hash_ns + c.probe_ns) + found * c.access_ns + (probes - found) * false_positive * c.access_ns
}

/// Equation 12: Equation 11 with `Σ β_i = 1 - α`.
pub fn eq12(tree: Tree, workload: Workload, costs: Costs) -> f64 {
    let saved = eq13_sum(tree, workload.clamped().empty);
    leveling(tree, workload, costs, saved, 1.0)
}

/// Equation 4, leveling: Equation 12 with [`eq13`]'s approximation.
pub fn eq4(tree: Tree, workload: Workload, costs: Costs) -> f64 {
    let saved = eq13(tree, workload.clamped().empty);
    leveling(tree, workload, costs, saved, 1.0)
}

/// Equation 7, leveling with hash sharing: Equation 4 with one hash.
pub fn eq7(tree: Tree, workload: Workload, costs: Costs) -> f64 {
    let c = costs.clamped();
    c.hash_ns + leveling(tree, workload, c, eq13(tree, workload.clamped().empty), 0.0)
}

/// `(L - saved)(hashing T_H + T_P) + (1-α)T_D + (L - saved - 1 + α) f_p T_D`.
fn leveling(tree: Tree, workload: Workload, costs: Costs, saved: f64, hashing: f64) -> f64 {
    let Workload { empty, false_positive } = workload.clamped();
    let c = costs.clamped();
    let probes = tree.numbers().0 - saved;
    probes * (hashing * c.hash_ns + c.probe_ns)
        + (1.0 - empty) * c.access_ns
        + (probes - 1.0 + empty) * false_positive * c.access_ns
}

/// Equation 15, its last form: Equation 14 in terms of β.
pub fn eq15(tree: Tree, workload: Workload, costs: Costs) -> f64 {
    let Workload { empty, false_positive } = workload.clamped();
    let c = costs.clamped();
    let (l, t) = tree.numbers();
    let found: f64 = betas(tree, empty).iter().sum();
    let elsewhere = l - eq13_sum(tree, empty) - found;
    found * (t + 1.0) / 2.0 * (c.hash_ns + c.probe_ns)
        + found * c.access_ns
        + elsewhere * t * (c.hash_ns + c.probe_ns + false_positive * c.access_ns)
}

/// Equation 15, its middle form, as printed: without `(T+1)/2` before the `T_H + T_P` of all levels
/// but the first. Too low by `(T-1)/2 · (β_2 + … + β_L) · (T_H + T_P)`; useful only to show that.
pub fn eq15_middle(tree: Tree, workload: Workload, costs: Costs) -> f64 {
    let Workload { empty, false_positive } = workload.clamped();
    let c = costs.clamped();
    let t = tree.numbers().1;
    let filter = c.hash_ns + c.probe_ns;
    let levels = reaching(tree, empty).into_iter().zip(betas(tree, empty));
    let level = |(i, (reach, beta)): (usize, (f64, f64))| {
        let asked = if i == 0 { (t + 1.0) / 2.0 } else { 1.0 };
        beta * asked * filter
            + beta * c.access_ns
            + (reach - beta) * t * (filter + false_positive * c.access_ns)
    };
    levels.enumerate().map(level).sum()
}

/// Equation 6, tiering with T runs. Too high by `(1-α)/(T-1)` filters compared to what follows from
/// 15 and 13 ([`eq6_corrected`]).
pub fn eq6(tree: Tree, workload: Workload, costs: Costs) -> f64 {
    let t = tree.numbers().1;
    tiering(tree, workload, costs, t + 1.0, 1.0)
}

/// What follows from Equations 15 and 13: `T²/(T-1)` in the place of `T + 1`.
pub fn eq6_corrected(tree: Tree, workload: Workload, costs: Costs) -> f64 {
    let t = tree.numbers().1;
    tiering(tree, workload, costs, t * t / (t - 1.0), 1.0)
}

/// Tiering's counterpart of Equation 7, which the paper leaves to the reader: Equation 6 with one
/// hash.
pub fn eq6_shared(tree: Tree, workload: Workload, costs: Costs) -> f64 {
    let c = costs.clamped();
    let t = tree.numbers().1;
    c.hash_ns + tiering(tree, workload, c, t + 1.0, 0.0)
}

/// `(T+1)/2 (1-α)F + (1-α)T_D + (T·L - (1-α)·less)(F + f_p T_D)` with `F = hashing T_H + T_P`.
fn tiering(tree: Tree, workload: Workload, costs: Costs, less: f64, hashing: f64) -> f64 {
    let Workload { empty, false_positive } = workload.clamped();
    let c = costs.clamped();
    let (l, t) = tree.numbers();
    let (found, filter) = (1.0 - empty, hashing * c.hash_ns + c.probe_ns);
    (t + 1.0) / 2.0 * found * filter
        + found * c.access_ns
        + (t * l - found * less) * (filter + false_positive * c.access_ns)
}

/// Equation 8, leveling, second line; a fraction. With one level the closed form counts less than
/// one probe, and the result is negative.
pub fn eq8(tree: Tree, workload: Workload, costs: Costs) -> f64 {
    share(saved_hashes(tree, workload) * costs.clamped().hash_ns, eq4(tree, workload, costs))
}

/// Equation 9, leveling: Equation 8 divided through by the hashes saved. 0 if there are none to
/// save.
pub fn eq9(tree: Tree, workload: Workload, costs: Costs) -> f64 {
    let Workload { empty, false_positive } = workload.clamped();
    let c = costs.clamped();
    let saved = saved_hashes(tree, workload);
    if saved <= 0.0 {
        return 0.0;
    }
    let each = c.hash_ns + c.probe_ns + false_positive * c.access_ns;
    let once = c.hash_ns + c.probe_ns + (1.0 - empty) * c.access_ns + empty * false_positive * c.access_ns;
    share(c.hash_ns, each + once / saved)
}

/// `L - 1 - (1-α)/(T-1)`.
fn saved_hashes(tree: Tree, workload: Workload) -> f64 {
    tree.numbers().0 - 1.0 - eq13(tree, workload.clamped().empty)
}
