//! What a point lookup costs in an LSM-tree whose every run has a Bloom filter.
//!
//! Z. Zhu et al., "Reducing Bloom Filter CPU Overhead in LSM-Trees on Modern Storage Devices" (DAMON 2021), section 3,
//! section 4.3 and the appendix: Equations 2 to 15. [`equations`] has each as it is printed; this module has the sums
//! that they stand for, which are exact, and the closed forms.
//!
//! # The model
//! A tree has L levels, level 1 the smallest and newest, each T times as large as the one above. A share α of the
//! lookups is for keys that are nowhere; the others are for all entries alike. A lookup asks the filters of the runs,
//! newest first, until it finds its key: a hash (T_H) and a probe (T_P) each. Where a filter says yes a page is read
//! (T_D); the filter of a run without the key says yes with f_p. With hash sharing a lookup hashes once.
//!
//! All of it follows from one number, the expected probes P: `L - D` with leveling, where
//! `D = (1-α)/(T-1) · (1 - L(T-1)/(T^L-1))` (Equation 13) is what early ends save, and
//! `R(L - D) - (1-α)(R-1)/2` with R runs a level. The cost is
//!
//! ```text
//! H·T_H + P·T_P + ((1-α) + (P - (1-α))·f_p)·T_D      H = P, or 1 if shared
//! ```
//!
//! as of P probes all but `1-α` ask a run that does not have the key. Hence for both policies
//! `gain = (P-1)T_H / (P(T_H+T_P+f_p T_D) + (1-α)(1-f_p)T_D)`, which grows with P: with levels, with α, with runs. That
//! tiering gains more is no accident of the constants: its P is greater by `(R-1)((L-D) - (1-α)/2)`, never negative.
//!
//! # Where the paper errs or rounds, and what [`Form`] to ask
//! * **Equation 13** drops `L(T-1)/(T^L-1)` "for T > 3 or L > 3". It needs both to be large rather than either: what is
//!   dropped is a share of 1 of D with one level, whatever T is, 0.4 at T = 4, L = 2 and 0.27 at T = 2, L = 4 (5e-4 at
//!   T = 10, L = 5). In probes the closed forms are too low by exactly `R(1-α)L/(T^L-1)`. The line before the last of
//!   Equation 13 reads `L/(T^L-1)` in the text at hand; the last one is right.
//! * **Equation 5** lets a lookup that finds its key in a tiered level read nothing but the key's page. On average it
//!   asks `(R-1)/2` runs of that level before the right one, and their filters err as others do:
//!   `(1-α_i)(R-1)/2·f_p·T_D` is missing, and `(1-α)(R-1)/2·f_p·T_D` in Equations 14, 15 and 6. Section 3 has lookups
//!   go "from the oldest to the newest" run; it is the reverse, as section 2 says. The averages are the same.
//! * **Equation 15**, in the middle, lacks the factor `(T+1)/2` before `T_H+T_P` in the sum from 2 on. Its end has it.
//! * **Equation 6** does not follow from 15 and 13: `T·L - (1-α)·T²/(T-1)` is what does, and `T²/(T-1)` is `T + 1 +
//!   1/(T-1)`. The printed `T + 1` makes it too high by `(1-α)/(T-1)` filters: one at T = 2, 0.11 at T = 10. With
//!   `T-1` runs a level (section 2 names that number, section 3 calculates with T) "runs + 1" would be right.
//! * **Equation 9**'s constant is `T_H + T_P + f_p·T_D`; the text below it leaves T_P out. In section 5 the second
//!   term is printed over `1-α`; it is over `L-1-(1-α)/(T-1)`, as in Equation 9, and the share of hashing grows with
//!   α.
//!
//! [`Form::PaperSum`] and [`Form::PaperClosed`] are the paper's, [`Form::Exact`] and [`Form::Closed`] the corrected.
//! For leveling they are pairwise the same.
//!
//! # What the figures say
//! Figures 1 and 2 are measured, and their T_P is not published. With Table 1's 235 ns for a hash, L = 5, T = 10, 10
//! bits per key and T_P = 0 the model's share of hashing on a 10 µs device goes from 10 % at α = 0 to 74 % at α = 1,
//! where the paper saw "about 15 %" and "more than 75 %"; with the 7 µs of SPDK it goes from 14 % to 80 %. On NVM it
//! reaches 99 %. So the shape is the model's, and the device was a little faster, or the hash slower (370 ns would
//! give both), than Table 1 has it. With T_P as one memory access of 160 ns a filter the share ends at 49 %, so
//! Figure 1's probes were much cheaper than that. Figure 6's gain on NVM "more than 40 %" is 65 to 79 % with T_P = 0,
//! and 42 to 47 % with T_P = 160 ns.
//!
//! # Arguments
//! Nothing here panics or gives NaN: what is out of range is taken as the nearest value in range, as said at each type.
//! Costs: a few operations per level.

pub mod equations;
mod runs;
#[cfg(test)]
mod tests;

use crate::numbers::{fraction, share, time};

pub use runs::{RunShare, counts_of_runs, runs_of};

/// Most levels of a [`Tree`].
pub const MAX_LEVELS: u32 = 64;
/// Largest ratio of a [`Tree`].
pub const MAX_SIZE_RATIO: u32 = 1 << 14;

/// The shape of a tree whose levels grow by one ratio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tree {
    /// L, without the memtable; taken as 1 to [`MAX_LEVELS`].
    pub levels: u32,
    /// T; taken as 2 to [`MAX_SIZE_RATIO`].
    pub size_ratio: u32,
}

impl Tree {
    /// With its fields in range.
    pub fn clamped(self) -> Tree {
        Tree {
            levels: self.levels.clamp(1, MAX_LEVELS),
            size_ratio: self.size_ratio.clamp(2, MAX_SIZE_RATIO),
        }
    }

    /// L and T as numbers to calculate with, in range.
    pub(crate) fn numbers(self) -> (f64, f64) {
        let Tree { levels, size_ratio } = self.clamped();
        (levels.into(), size_ratio.into())
    }

    /// The share of all entries that each level holds, level 1 first: `T^(i-1)(T-1)/(T^L-1)`. Sums to 1.
    pub fn level_shares(self) -> Vec<f64> {
        let Tree { levels, size_ratio } = self.clamped();
        let t = f64::from(size_ratio);
        // From the last level up, so that no power overflows.
        let last = (1.0 - 1.0 / t) / (1.0 - t.powi(-(levels as i32)));
        (1..=levels).map(|i| last * t.powi(i as i32 - levels as i32)).collect()
    }
}

/// How many runs a level has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Policy {
    /// One run a level.
    Leveling,
    /// T runs a level, as section 3 of the paper calculates: the moment before a level is merged.
    Tiering,
    /// T - 1 runs a level, as section 2 describes tiering: the most that is left when no merge is due.
    TieringAtRest,
}

impl Policy {
    /// Runs in each level of a tree.
    pub fn runs(self, tree: Tree) -> u32 {
        let t = tree.clamped().size_ratio;
        match self {
            Policy::Leveling => 1,
            Policy::Tiering => t,
            Policy::TieringAtRest => t - 1,
        }
    }
}

/// Who hashes the key of a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Sharing {
    /// Every filter that is asked.
    PerFilter,
    /// The lookup, once; all filters take the digest (section 4.3).
    Shared,
}

/// What is asked, and how well the filters answer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Workload {
    /// α, the fraction of lookups for keys that are nowhere. In `0..=1`; beyond as the nearest end, NaN as 0.
    pub empty: f64,
    /// f_p, the rate of false positives of each filter. In `0..=1`; beyond as the nearest end, NaN as 0.
    pub false_positive: f64,
}

impl Workload {
    /// With its fields in range.
    pub fn clamped(self) -> Workload {
        Workload { empty: fraction(self.empty), false_positive: fraction(self.false_positive) }
    }
}

/// The times that a lookup is made of, in nanoseconds. Each in `0..=1e18`; beyond as the nearest end, NaN as 0.
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
    /// With its fields in range.
    pub fn clamped(self) -> Costs {
        Costs { hash_ns: time(self.hash_ns), probe_ns: time(self.probe_ns), access_ns: time(self.access_ns) }
    }
}

/// Which sum is meant. See the module for what the paper leaves out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Form {
    /// The expectation itself: Equation 10, and Equation 14 with the false positives it leaves out.
    Exact,
    /// As [`Form::Exact`], with Equation 13's approximation: too low by `R(1-α)L/(T^L-1)` probes. Meant for two levels
    /// and more; with one it may even count fewer probes than lookups that find their key.
    Closed,
    /// Equations 10 and 14 as they are in the paper.
    PaperSum,
    /// Equations 4, 6 and 7 as they are in the paper. See [`Form::Closed`].
    PaperClosed,
}

/// What one lookup is expected to do.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Counts {
    /// Keys hashed.
    pub hashes: f64,
    /// Filters asked.
    pub probes: f64,
    /// Pages read that have the key.
    pub hits: f64,
    /// Pages read for a filter's error.
    pub false_accesses: f64,
}

impl Counts {
    /// Pages read.
    pub fn accesses(&self) -> f64 {
        self.hits + self.false_accesses
    }

    /// The time it takes.
    pub fn cost(&self, costs: Costs) -> Breakdown {
        let costs = costs.clamped();
        Breakdown {
            hash_ns: self.hashes * costs.hash_ns,
            probe_ns: self.probes * costs.probe_ns,
            data_ns: self.accesses() * costs.access_ns,
        }
    }
}

/// Where the time of a lookup goes, in nanoseconds: what Figures 1 and 2 of the paper show.
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
    /// All of it.
    pub fn total_ns(&self) -> f64 {
        self.hash_ns + self.probe_ns + self.data_ns
    }

    /// The fraction of it that is hashing; 0 of nothing.
    pub fn hash_share(&self) -> f64 {
        share(self.hash_ns, self.total_ns())
    }

    /// The fraction of it that is probing; 0 of nothing.
    pub fn probe_share(&self) -> f64 {
        share(self.probe_ns, self.total_ns())
    }

    /// The fraction of it that is reading; 0 of nothing.
    pub fn data_share(&self) -> f64 {
        share(self.data_ns, self.total_ns())
    }
}

/// What one lookup is expected to do.
pub fn counts(tree: Tree, policy: Policy, sharing: Sharing, workload: Workload, form: Form) -> Counts {
    let (l, t) = tree.numbers();
    let runs = f64::from(policy.runs(tree));
    let Workload { empty, false_positive } = workload.clamped();
    let found = 1.0 - empty;
    let saved = match form {
        Form::Exact | Form::PaperSum => equations::eq13_exact(tree, empty),
        Form::Closed | Form::PaperClosed => equations::eq13(tree, empty),
    };
    // Filters asked in levels that do not have the key, and in the level that has it.
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

/// Where the time of one lookup goes: [`counts`], timed.
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

/// The fraction of a lookup's time that hash sharing saves: the first line of Equation 8, for either policy. 0 if a
/// lookup takes no time.
///
/// [`Form::Exact`] and [`Form::PaperSum`] are within `0..=1`; the closed forms where they hold, and below 0 where they
/// count less than one probe (a single level).
pub fn gain(tree: Tree, policy: Policy, workload: Workload, costs: Costs, form: Form) -> f64 {
    let apart = cost(tree, policy, Sharing::PerFilter, workload, costs, form);
    let shared = cost(tree, policy, Sharing::Shared, workload, costs, form);
    // Subtracting the totals would drown a small gain of a slow device in rounding.
    share(apart.hash_ns - shared.hash_ns, apart.total_ns())
}

/// What the gain tends to as levels (or runs) grow, by Equation 9: `T_H / (T_H + T_P + f_p T_D)`. 0 if all are 0.
pub fn gain_limit(workload: Workload, costs: Costs) -> f64 {
    let Workload { false_positive, .. } = workload.clamped();
    let Costs { hash_ns, probe_ns, access_ns } = costs.clamped();
    share(hash_ns, hash_ns + probe_ns + false_positive * access_ns)
}
