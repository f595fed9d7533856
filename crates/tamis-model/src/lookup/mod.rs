//! The cost of a point lookup in an LSM-tree whose every run has a Bloom filter.
//!
//! Z. Zhu et al., "Reducing Bloom Filter CPU Overhead in LSM-Trees on Modern Storage Devices"
//! (DAMON 2021), section 3, section 4.3 and the appendix: Equations 2 to 15. [`equations`] has each
//! as printed; this module has the exact sums behind them, and the closed forms.
//!
//! # The model
//! A tree has L levels, level 1 the smallest and newest, each T times as large as the one above. A
//! fraction α of the lookups is for absent keys; the others are for all entries equally. A lookup
//! probes the filters of the runs, newest first, until it finds its key: a hash (T_H) and a probe
//! (T_P) each. When a filter says yes, a page is read (T_D); the filter of a run without the key
//! says yes with probability f_p. With hash sharing a lookup hashes once.
//!
//! Everything follows from one number, the expected probes P: `L - D` with leveling, where `D =
//! (1-α)/(T-1) · (1 - L(T-1)/(T^L-1))` (Equation 13) is what early ends save, and `R(L - D) -
//! (1-α)(R-1)/2` with R runs per level. The cost is
//!
//! ```text
//! H·T_H + P·T_P + ((1-α) + (P - (1-α))·f_p)·T_D      H = P, or 1 if shared
//! ```
//!
//! because all but `1-α` of the P probes are in a run that does not have the key. Hence for both
//! policies `gain = (P-1)T_H / (P(T_H+T_P+f_p T_D) + (1-α)(1-f_p)T_D)`, which grows with P: with
//! levels, with α, with runs. That tiering gains more is no accident of the constants: its P is
//! greater by `(R-1)((L-D) - (1-α)/2)`, which is never negative.
//!
//! # Where the paper errs or rounds, and which [`Form`] to use
//! * **Equation 13** drops `L(T-1)/(T^L-1)` "for T > 3 or L > 3". Both would have to be large,
//!   rather than either: the dropped fraction of D is 1 with one level, whatever T is, 0.4 at T =
//!   4, L = 2 and 0.27 at T = 2, L = 4 (5e-4 at T = 10, L = 5). In probes the closed forms are too
//!   low by exactly `R(1-α)L/(T^L-1)`. The second-to-last line of Equation 13 reads `L/(T^L-1)` in
//!   the available text; the last line is right.
//! * **Equation 5** assumes that a lookup that finds its key in a tiered level reads only the key's
//!   page. On average it probes `(R-1)/2` runs of that level before the right one, and their
//!   filters err like the others: `(1-α_i)(R-1)/2·f_p·T_D` is missing, and `(1-α)(R-1)/2·f_p·T_D`
//!   in Equations 14, 15 and 6. Section 3 has lookups go "from the oldest to the newest" run; it is
//!   the reverse, as section 2 says. The averages are the same.
//! * **Equation 15**, in the middle, lacks the factor `(T+1)/2` before `T_H+T_P` in the sum from 2
//!   on. Its end has it.
//! * **Equation 6** does not follow from 15 and 13, which give `T·L - (1-α)·T²/(T-1)`, and
//!   `T²/(T-1)` is `T + 1 + 1/(T-1)`. The printed `T + 1` makes it too high by `(1-α)/(T-1)`
//!   filters: one at T = 2, 0.11 at T = 10. With `T-1` runs per level (section 2 gives that number,
//!   section 3 calculates with T), "runs + 1" would be right.
//! * **Equation 9**'s constant is `T_H + T_P + f_p·T_D`; the text below it omits T_P. In section 5
//!   the second term is printed over `1-α`; it should be over `L-1-(1-α)/(T-1)`, as in Equation 9,
//!   and the share of hashing grows with α.
//!
//! [`Form::PaperSum`] and [`Form::PaperClosed`] are the paper's, [`Form::Exact`] and
//! [`Form::Closed`] the corrected ones. For leveling they are pairwise the same.
//!
//! # Comparison with the figures
//! Figures 1 and 2 are measured, and their T_P is not published. With Table 1's 235 ns for a hash,
//! L = 5, T = 10, 10 bits per key and T_P = 0, the model's share of hashing on a 10 µs device goes
//! from 10 % at α = 0 to 74 % at α = 1, where the paper saw "about 15 %" and "more than 75 %"; with
//! the 7 µs of SPDK it goes from 14 % to 80 %. On NVM it reaches 99 %. So the model reproduces the
//! shape, and the device was a little faster, or the hash slower (370 ns would give both), than in
//! Table 1. With T_P as one memory access of 160 ns per filter the share ends at 49 %, so Figure
//! 1's probes were much cheaper than that. Figure 6's gain on NVM of "more than 40 %" is 65 to 79 %
//! with T_P = 0, and 42 to 47 % with T_P = 160 ns.
//!
//! # Arguments
//! Nothing here panics or returns NaN: arguments out of range are clamped to the nearest valid
//! value, as documented at each type. Costs a few operations per level.

pub mod equations;
mod runs;
#[cfg(test)]
mod tests;

use crate::numbers::{fraction, share, time};

pub use runs::{RunShare, counts_of_runs, runs_of};

/// Maximum number of levels of a [`Tree`].
pub const MAX_LEVELS: u32 = 64;
/// Largest ratio of a [`Tree`].
pub const MAX_SIZE_RATIO: u32 = 1 << 14;

/// The shape of a tree whose levels grow by one ratio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tree {
    /// L, without the memtable; clamped to 1 to [`MAX_LEVELS`].
    pub levels: u32,
    /// T; clamped to 2 to [`MAX_SIZE_RATIO`].
    pub size_ratio: u32,
}

impl Tree {
    /// Returns the tree with its fields clamped.
    pub fn clamped(self) -> Tree {
        Tree {
            levels: self.levels.clamp(1, MAX_LEVELS),
            size_ratio: self.size_ratio.clamp(2, MAX_SIZE_RATIO),
        }
    }

    /// Returns L and T as floats, clamped.
    pub(crate) fn numbers(self) -> (f64, f64) {
        let Tree { levels, size_ratio } = self.clamped();
        (levels.into(), size_ratio.into())
    }

    /// Returns the share of all entries that each level holds, level 1 first:
    /// `T^(i-1)(T-1)/(T^L-1)`. Sums to 1.
    pub fn level_shares(self) -> Vec<f64> {
        let Tree { levels, size_ratio } = self.clamped();
        let t = f64::from(size_ratio);
        // From the last level up, so that no power overflows.
        let last = (1.0 - 1.0 / t) / (1.0 - t.powi(-(levels as i32)));
        (1..=levels).map(|i| last * t.powi(i as i32 - levels as i32)).collect()
    }
}

/// The number of runs per level.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Policy {
    /// One run per level.
    Leveling,
    /// T runs per level, as in section 3 of the paper: the moment before a level is merged.
    Tiering,
    /// T - 1 runs per level, as section 2 describes tiering: the most that remain when no merge is
    /// due.
    TieringAtRest,
}

impl Policy {
    /// Returns the number of runs in each level of a tree.
    pub fn runs(self, tree: Tree) -> u32 {
        let t = tree.clamped().size_ratio;
        match self {
            Policy::Leveling => 1,
            Policy::Tiering => t,
            Policy::TieringAtRest => t - 1,
        }
    }
}

/// Which component hashes the key of a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Sharing {
    /// Every probed filter.
    PerFilter,
    /// The lookup, once; all filters share the digest (section 4.3).
    Shared,
}

/// The lookups, and the accuracy of the filters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Workload {
    /// α, the fraction of lookups for absent keys. Clamped to `0..=1`, NaN to 0.
    pub empty: f64,
    /// f_p, the false-positive rate of each filter. Clamped to `0..=1`, NaN to 0.
    pub false_positive: f64,
}

impl Workload {
    /// Returns the workload with its fields clamped.
    pub fn clamped(self) -> Workload {
        Workload { empty: fraction(self.empty), false_positive: fraction(self.false_positive) }
    }
}

/// The times that a lookup consists of, in nanoseconds. Each is clamped to `0..=1e18`, NaN to 0.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Costs {
    /// T_H: to hash a key.
    pub hash_ns: f64,
    /// T_P: to probe one filter, once the key is hashed.
    pub probe_ns: f64,
    /// T_D: to read a page.
    pub access_ns: f64,
}

impl Costs {
    /// Returns the costs with their fields clamped.
    pub fn clamped(self) -> Costs {
        Costs { hash_ns: time(self.hash_ns), probe_ns: time(self.probe_ns), access_ns: time(self.access_ns) }
    }
}

/// Which sum to compute. See the module documentation for what the paper omits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Form {
    /// The exact expectation: Equation 10, and Equation 14 with the false positives it omits.
    Exact,
    /// Like [`Form::Exact`], with Equation 13's approximation: too low by `R(1-α)L/(T^L-1)` probes.
    /// Meant for two or more levels; with one it may even count fewer probes than lookups that find
    /// their key.
    Closed,
    /// Equations 10 and 14 as they are in the paper.
    PaperSum,
    /// Equations 4, 6 and 7 as they are in the paper. See [`Form::Closed`].
    PaperClosed,
}

/// The expected counts of one lookup.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Counts {
    /// Hashes computed.
    pub hashes: f64,
    /// Filters probed.
    pub probes: f64,
    /// Pages read that contain the key.
    pub hits: f64,
    /// Pages read because of false positives.
    pub false_accesses: f64,
}

impl Counts {
    /// Returns the total pages read.
    pub fn accesses(&self) -> f64 {
        self.hits + self.false_accesses
    }

    /// Returns the time it takes.
    pub fn cost(&self, costs: Costs) -> Breakdown {
        let costs = costs.clamped();
        Breakdown {
            hash_ns: self.hashes * costs.hash_ns,
            probe_ns: self.probes * costs.probe_ns,
            data_ns: self.accesses() * costs.access_ns,
        }
    }
}

/// Where the time of a lookup goes, in nanoseconds: as in Figures 1 and 2 of the paper.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Breakdown {
    /// Hashing.
    pub hash_ns: f64,
    /// Probing filters.
    pub probe_ns: f64,
    /// Reading pages.
    pub data_ns: f64,
}

impl Breakdown {
    /// Returns the total.
    pub fn total_ns(&self) -> f64 {
        self.hash_ns + self.probe_ns + self.data_ns
    }

    /// Returns the fraction spent on hashing; 0 if the total is 0.
    pub fn hash_share(&self) -> f64 {
        share(self.hash_ns, self.total_ns())
    }

    /// Returns the fraction spent on probing; 0 if the total is 0.
    pub fn probe_share(&self) -> f64 {
        share(self.probe_ns, self.total_ns())
    }

    /// Returns the fraction spent on reading; 0 if the total is 0.
    pub fn data_share(&self) -> f64 {
        share(self.data_ns, self.total_ns())
    }
}

/// Returns the expected counts of one lookup.
pub fn counts(tree: Tree, policy: Policy, sharing: Sharing, workload: Workload, form: Form) -> Counts {
    let (l, t) = tree.numbers();
    let runs = f64::from(policy.runs(tree));
    let Workload { empty, false_positive } = workload.clamped();
    let found = 1.0 - empty;
    let saved = match form {
        Form::Exact | Form::PaperSum => equations::eq13_exact(tree, empty),
        Form::Closed | Form::PaperClosed => equations::eq13(tree, empty),
    };
    // Filters probed in levels that do not have the key, and in the level that has it.
    let elsewhere = match form {
        Form::PaperClosed if policy == Policy::Leveling => l - found / (t - 1.0) - found,
        Form::PaperClosed => runs * l - found * (runs + 1.0),
        _ => runs * (l - saved - found),
    };
    let probes = elsewhere + found * (runs + 1.0) / 2.0;
    let wrong = match form {
        Form::Exact | Form::Closed => probes - found,
        Form::PaperSum | Form::PaperClosed => elsewhere,
    };
    let hashes = match sharing {
        Sharing::PerFilter => probes,
        Sharing::Shared => 1.0,
    };
    Counts { hashes, probes, hits: found, false_accesses: wrong * false_positive }
}

/// Returns where the time of one lookup goes: [`counts`] times the costs.
pub fn cost(
    tree: Tree,
    policy: Policy,
    sharing: Sharing,
    workload: Workload,
    costs: Costs,
    form: Form,
) -> Breakdown {
    counts(tree, policy, sharing, workload, form).cost(costs)
}

/// Returns the fraction of a lookup's time that hash sharing saves: the first line of Equation 8,
/// for either policy. 0 if a lookup takes no time.
///
/// [`Form::Exact`] and [`Form::PaperSum`] are within `0..=1`; so are the closed forms where they
/// hold, but they go below 0 where they count less than one probe (a single level).
pub fn gain(tree: Tree, policy: Policy, workload: Workload, costs: Costs, form: Form) -> f64 {
    let apart = cost(tree, policy, Sharing::PerFilter, workload, costs, form);
    let shared = cost(tree, policy, Sharing::Shared, workload, costs, form);
    // Subtracting the totals would lose a small gain of a slow device to rounding.
    share(apart.hash_ns - shared.hash_ns, apart.total_ns())
}

/// Returns the limit of the gain as levels (or runs) grow, by Equation 9: `T_H / (T_H + T_P + f_p
/// T_D)`. 0 if all are 0.
pub fn gain_limit(workload: Workload, costs: Costs) -> f64 {
    let Workload { false_positive, .. } = workload.clamped();
    let Costs { hash_ns, probe_ns, access_ns } = costs.clamped();
    share(hash_ns, hash_ns + probe_ns + false_positive * access_ns)
}
