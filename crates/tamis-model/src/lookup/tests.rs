//! The model against trees small enough to ask for every key.

use proptest::prelude::*;

use super::equations::*;
use super::*;
use crate::bloom;
use crate::devices::{self, Device};

const POLICIES: [Policy; 3] = [Policy::Leveling, Policy::Tiering, Policy::TieringAtRest];
const SHARINGS: [Sharing; 2] = [Sharing::PerFilter, Sharing::Shared];
const FORMS: [Form; 4] = [Form::Exact, Form::Closed, Form::PaperSum, Form::PaperClosed];

/// Trees of T in 2..=4 and 10, L in 1..=4.
fn small_trees() -> impl Iterator<Item = Tree> {
    [2, 3, 4, 10].into_iter().flat_map(|size_ratio| (1..=4).map(move |levels| Tree { levels, size_ratio }))
}

fn workloads() -> impl Iterator<Item = Workload> {
    [0.0, 0.25, 0.5, 1.0].into_iter().flat_map(|empty| {
        [0.0, 0.008, 0.3, 1.0].into_iter().map(move |false_positive| Workload { empty, false_positive })
    })
}

const COSTS: Costs = Costs { hash_ns: 235.0, probe_ns: 17.0, access_ns: 10_000.0 };

/// A tree in which every entry has its place.
struct Placed {
    /// Keys in each level's runs, newest first.
    levels: Vec<Vec<u64>>,
}

impl Placed {
    /// Level i has runs of T^(i-1) entries each.
    fn new(tree: Tree, runs: u32) -> Self {
        let run = |level: u32| u64::from(tree.size_ratio).pow(level);
        Placed { levels: (0..tree.levels).map(|level| vec![run(level); runs as usize]).collect() }
    }

    /// Walks the lookup of one key that is in run `at` of all runs, or nowhere.
    fn walk(&self, at: Option<usize>, sharing: Sharing, false_positive: f64) -> Counts {
        let mut counts = Counts::default();
        if sharing == Sharing::Shared {
            counts.hashes = 1.0;
        }
        for run in 0..self.levels.iter().map(Vec::len).sum() {
            if sharing == Sharing::PerFilter {
                counts.hashes += 1.0;
            }
            counts.probes += 1.0;
            if at == Some(run) {
                counts.hits += 1.0;
                break;
            }
            counts.false_accesses += false_positive;
        }
        counts
    }

    /// The mean over all lookups: of each entry in turn, and of a key that is nowhere.
    fn mean(&self, sharing: Sharing, workload: Workload) -> Counts {
        let entries = || {
            let runs = self.levels.iter().flatten().enumerate();
            runs.flat_map(|(run, &keys)| (0..keys).map(move |_| run))
        };
        let each = (1.0 - workload.empty) / entries().count() as f64;
        let mut sum = Counts::default();
        let mut add = |counts: Counts, weight: f64| {
            sum.hashes += weight * counts.hashes;
            sum.probes += weight * counts.probes;
            sum.hits += weight * counts.hits;
            sum.false_accesses += weight * counts.false_accesses;
        };
        entries().for_each(|run| add(self.walk(Some(run), sharing, workload.false_positive), each));
        add(self.walk(None, sharing, workload.false_positive), workload.empty);
        sum
    }
}

#[track_caller]
fn same(a: f64, b: f64, what: impl std::fmt::Debug) {
    assert!((a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0), "{a} is not {b}: {what:?}");
}

#[track_caller]
fn same_counts(a: Counts, b: Counts, what: impl std::fmt::Debug + Copy) {
    same(a.hashes, b.hashes, (what, "hashes"));
    same(a.probes, b.probes, (what, "probes"));
    same(a.hits, b.hits, (what, "hits"));
    same(a.false_accesses, b.false_accesses, (what, "false accesses"));
}

#[test]
fn the_exact_form_is_the_mean_over_every_lookup() {
    for tree in small_trees() {
        for policy in POLICIES {
            let placed = Placed::new(tree, policy.runs(tree));
            for workload in workloads() {
                for sharing in SHARINGS {
                    let mean = placed.mean(sharing, workload);
                    let what = (tree, policy, workload, sharing);
                    same_counts(counts(tree, policy, sharing, workload, Form::Exact), mean, what);
                    same_counts(
                        counts_of_runs(&runs_of(tree, policy, workload), sharing, workload.empty),
                        mean,
                        what,
                    );
                }
            }
        }
    }
}

/// Means of sums may be taken apart only if that is so when filters err in all combinations: here are all.
#[test]
fn the_mean_over_all_outcomes_of_all_filters_is_the_same() {
    for (tree, policy) in [
        (Tree { levels: 3, size_ratio: 2 }, Policy::Leveling),
        (Tree { levels: 3, size_ratio: 2 }, Policy::Tiering),
    ] {
        let workload = Workload { empty: 0.3, false_positive: 0.2 };
        let shares = runs_of(tree, policy, workload);
        let mut time = 0.0;
        for (at, weight) in shares
            .iter()
            .enumerate()
            .map(|(run, share)| (Some(run), 0.7 * share.entries))
            .chain([(None, 0.3)])
        {
            for outcome in 0u32..1 << shares.len() {
                let mut probability = weight;
                let (mut here, mut done) = (0.0, false);
                for run in 0..shares.len() {
                    let errs = outcome >> run & 1 == 1;
                    probability *= if errs { 0.2 } else { 0.8 };
                    if done {
                        continue;
                    }
                    here += COSTS.hash_ns + COSTS.probe_ns;
                    if errs || at == Some(run) {
                        here += COSTS.access_ns;
                    }
                    done = at == Some(run);
                }
                time += probability * here;
            }
        }
        same(cost(tree, policy, Sharing::PerFilter, workload, COSTS, Form::Exact).total_ns(), time, policy);
    }
}

#[test]
fn levels_fractions_and_the_steps_of_the_appendix_agree() {
    for tree in small_trees() {
        for workload in workloads() {
            let what = (tree, workload);
            let alpha = workload.empty;
            same(betas(tree, alpha).iter().sum(), 1.0 - alpha, what);
            let reaching = reaching(tree, alpha);
            assert!(reaching.iter().all(|reach| (0.0..=1.0).contains(reach)), "{reaching:?}");
            for (i, (reach, here)) in reaching.iter().zip(alphas(tree, alpha)).enumerate() {
                let before: f64 = betas(tree, alpha)[..i].iter().sum();
                same(*reach, 1.0 - before, what);
                same(here, 1.0 - betas(tree, alpha)[i] / (1.0 - before), what);
            }
            let exact =
                |policy, form| cost(tree, policy, Sharing::PerFilter, workload, COSTS, form).total_ns();
            // Leveling: 10 = 11 = 12 = the sum itself.
            let sum = exact(Policy::Leveling, Form::Exact);
            same(eq10(tree, workload, COSTS), sum, what);
            same(eq11(tree, workload, COSTS), sum, what);
            same(eq12(tree, workload, COSTS), sum, what);
            same(exact(Policy::Leveling, Form::PaperSum), sum, what);
            same(eq13_sum(tree, alpha), eq13_exact(tree, alpha), what);
            // Tiering: 14 = 15, and the library's form of it.
            same(eq14(tree, workload, COSTS), exact(Policy::Tiering, Form::PaperSum), what);
            same(eq15(tree, workload, COSTS), exact(Policy::Tiering, Form::PaperSum), what);
            // Closed forms.
            same(eq4(tree, workload, COSTS), exact(Policy::Leveling, Form::Closed), what);
            same(eq4(tree, workload, COSTS), exact(Policy::Leveling, Form::PaperClosed), what);
            same(eq6(tree, workload, COSTS), exact(Policy::Tiering, Form::PaperClosed), what);
            let shared =
                |policy| cost(tree, policy, Sharing::Shared, workload, COSTS, Form::PaperClosed).total_ns();
            same(eq7(tree, workload, COSTS), shared(Policy::Leveling), what);
            same(eq6_shared(tree, workload, COSTS), shared(Policy::Tiering), what);
        }
    }
}

#[test]
fn a_level_costs_what_its_lookups_do() {
    for runs in [1u32, 2, 3, 4, 10] {
        for here in workloads() {
            // A level alone is a tree of one level: all its lookups, walked.
            let level = Placed { levels: vec![vec![5; runs as usize]] };
            let walked = level.mean(Sharing::PerFilter, here).cost(COSTS).total_ns();
            same(eq5_complete(runs, here, COSTS), walked, (runs, here));
            let missing =
                (1.0 - here.empty) * f64::from(runs - 1) / 2.0 * here.false_positive * COSTS.access_ns;
            same(eq5(runs, here, COSTS) + missing, walked, (runs, here));
            if runs == 1 {
                same(eq3(here, COSTS), walked, here);
                let (filter, access) = (COSTS.hash_ns + COSTS.probe_ns, COSTS.access_ns);
                same(eq2(filter, access, here.empty, here.false_positive), walked, here);
            }
        }
    }
}

/// Equations 13 and 4 drop `L/(T^L-1)` probes of each lookup that finds its key; 13's condition "T > 3 or L > 3" is not
/// enough to call that little.
#[test]
fn the_closed_form_is_low_by_what_equation_13_drops() {
    for tree in small_trees() {
        let (l, t) = tree.numbers();
        let dropped = l / (t.powi(tree.levels as i32) - 1.0);
        for policy in POLICIES {
            for workload in workloads() {
                let of = |form| counts(tree, policy, Sharing::PerFilter, workload, form).probes;
                let runs = f64::from(policy.runs(tree));
                same(of(Form::Exact) - of(Form::Closed), runs * (1.0 - workload.empty) * dropped, tree);
            }
        }
    }
    let share = |levels, size_ratio| {
        let tree = Tree { levels, size_ratio };
        1.0 - eq13_exact(tree, 0.0) / eq13(tree, 0.0)
    };
    same(share(1, 10), 1.0, "one level saves nothing, and the closed form 1/(T-1)");
    same(share(2, 4), 0.4, "T > 3 holds");
    same(share(4, 2), 4.0 / 15.0, "L > 3 holds");
    assert!(share(5, 10) < 5e-4);
}

/// Equation 6 has T + 1 where T²/(T-1) follows, so counts 1/(T-1) filters too many of each lookup that finds its key.
#[test]
fn equation_6_does_not_follow_from_15_and_13() {
    for tree in small_trees() {
        let (l, t) = tree.numbers();
        for workload in workloads() {
            let found = 1.0 - workload.empty;
            let filter = COSTS.hash_ns + COSTS.probe_ns + workload.false_positive * COSTS.access_ns;
            let high = found / (t - 1.0) * filter;
            same(eq6(tree, workload, COSTS) - eq6_corrected(tree, workload, COSTS), high, (tree, workload));
            // The corrected one is Equation 15 but for what 13 drops.
            let dropped = t * found * l / (t.powi(tree.levels as i32) - 1.0) * filter;
            let sum = eq15(tree, workload, COSTS);
            same(eq6_corrected(tree, workload, COSTS) + dropped, sum, (tree, workload));
        }
        // With T - 1 runs, "runs + 1" is what follows.
        let workload = Workload { empty: 0.25, false_positive: 0.3 };
        let of = |form| counts(tree, Policy::TieringAtRest, Sharing::PerFilter, workload, form).probes;
        same(of(Form::PaperClosed), of(Form::Closed), tree);
    }
}

/// The runs asked before the right one in its level err like any other; Equations 5, 14, 15 and 6 leave that out.
#[test]
fn the_papers_tiering_misses_false_positives_in_the_level_of_the_key() {
    let mut worst: f64 = 0.0;
    for tree in small_trees() {
        let (_, t) = tree.numbers();
        for workload in workloads() {
            let of = |form| cost(tree, Policy::Tiering, Sharing::PerFilter, workload, COSTS, form).total_ns();
            let missed = (1.0 - workload.empty) * (t - 1.0) / 2.0 * workload.false_positive * COSTS.access_ns;
            same(of(Form::Exact) - of(Form::PaperSum), missed, (tree, workload));
            worst = worst.max(missed / of(Form::Exact));
        }
    }
    assert!(worst > 0.5, "with filters that are of no use it is most of the cost: {worst}");
}

#[test]
fn the_middle_of_equation_15_lacks_a_factor() {
    for tree in small_trees() {
        let (_, t) = tree.numbers();
        for workload in workloads() {
            let below: f64 = betas(tree, workload.empty)[1..].iter().sum();
            let lacking = (t - 1.0) / 2.0 * below * (COSTS.hash_ns + COSTS.probe_ns);
            same(eq15_middle(tree, workload, COSTS) + lacking, eq14(tree, workload, COSTS), (tree, workload));
        }
    }
}

#[test]
fn equation_9_is_equation_8_is_the_gain() {
    for tree in small_trees().filter(|tree| tree.levels > 1) {
        for workload in workloads() {
            let gain = gain(tree, Policy::Leveling, workload, COSTS, Form::PaperClosed);
            same(eq8(tree, workload, COSTS), gain, (tree, workload));
            same(eq9(tree, workload, COSTS), gain, (tree, workload));
            let (apart, shared) = (eq4(tree, workload, COSTS), eq7(tree, workload, COSTS));
            same((apart - shared) / apart, gain, (tree, workload));
        }
    }
}

#[test]
fn unequal_runs_are_walked_alike() {
    // Sizes and rates of three runs; the walk done by hand.
    let run = |entries, false_positive| RunShare { entries, false_positive };
    let runs = [run(1.0, 0.5), run(3.0, 0.1), run(12.0, 1.0)];
    let counts = counts_of_runs(&runs, Sharing::PerFilter, 0.2);
    let each = 0.8 / 16.0;
    same(counts.probes, each * (1.0 + 3.0 * 2.0 + 12.0 * 3.0) + 0.2 * 3.0, ());
    same(counts.false_accesses, each * (3.0 * 0.5 + 12.0 * 0.6) + 0.2 * 1.6, ());
    same(counts.hits, 0.8, ());
    same(counts.accesses(), counts.hits + counts.false_accesses, ());
    // Nothing to find.
    let none = counts_of_runs(&[run(0.0, 0.5)], Sharing::Shared, 0.2);
    assert_eq!(none, Counts { hashes: 1.0, probes: 1.0, hits: 0.0, false_accesses: 0.5 });
    assert_eq!(counts_of_runs(&[], Sharing::PerFilter, 0.2), Counts::default());
}

/// The tree of sections 1 and 5: 22 GB in five levels of ratio 10, 10 bits per key.
const PAPER: Tree = Tree { levels: 5, size_ratio: 10 };

fn on(device: Device, probe_ns: f64) -> Costs {
    Costs { hash_ns: devices::MURMUR64.hash_ns, probe_ns, access_ns: device.access_ns }
}

fn of(empty: f64) -> Workload {
    Workload { empty, false_positive: bloom::optimal_rate(10.0) }
}

/// Figure 6: nothing on disks, little on SSDs, more than 40 % on NVM, more with tiering.
#[test]
fn figure_6() {
    // Whatever a probe costs between nothing and a memory access.
    for probe_ns in [0.0, devices::MEMORY.access_ns] {
        for tenths in 0..=10 {
            let workload = of(f64::from(tenths) / 10.0);
            for form in FORMS {
                let gain = |policy, device| gain(PAPER, policy, workload, on(device, probe_ns), form);
                for device in devices::DEVICES {
                    let (leveling, tiering) = (gain(Policy::Leveling, device), gain(Policy::Tiering, device));
                    assert!(tiering > leveling, "{} {form:?}: {leveling} {tiering}", device.name);
                    assert!(gain(Policy::TieringAtRest, device) > leveling);
                }
                assert!(gain(Policy::Leveling, devices::HDD) < 0.01);
                assert!(gain(Policy::Leveling, devices::SSD) < 0.17);
                assert!(gain(Policy::Leveling, devices::NVM) > 0.4);
                assert!(gain(Policy::Leveling, devices::MEMORY) > 0.4);
            }
        }
    }
    let gain =
        |device, probe_ns, empty| gain(PAPER, Policy::Leveling, of(empty), on(device, probe_ns), Form::Exact);
    let near = |value: f64, said: f64| assert!((value - said).abs() < 0.005, "{value}, not {said}");
    near(gain(devices::NVM, 0.0, 0.0), 0.65);
    near(gain(devices::NVM, 0.0, 1.0), 0.79);
    near(gain(devices::NVM, 160.0, 0.0), 0.42);
    near(gain(devices::NVM, 160.0, 1.0), 0.47);
    // Figure 13, measured on the SSD: negligible at α = 0, 17 % at α = 1.
    near(gain(devices::SSD, 0.0, 0.0), 0.008);
    near(gain(devices::SSD, 0.0, 1.0), 0.16);
    near(gain(devices::HDD, 0.0, 1.0), 0.005);
}

/// Figures 1 and 2, as far as the model goes: see the module for how far that is.
#[test]
fn figures_1_and_2() {
    let share = |policy, device, probe_ns, empty| {
        cost(PAPER, policy, Sharing::PerFilter, of(empty), on(device, probe_ns), Form::Exact).hash_share()
    };
    let near = |value: f64, said: f64| assert!((value - said).abs() < 0.005, "{value}, not {said}");
    near(share(Policy::Leveling, devices::PCIE_SSD, 0.0, 0.0), 0.100);
    near(share(Policy::Leveling, devices::PCIE_SSD, 0.0, 1.0), 0.742);
    near(share(Policy::Leveling, devices::PCIE_SSD_SPDK, 0.0, 0.0), 0.137);
    near(share(Policy::Leveling, devices::PCIE_SSD_SPDK, 0.0, 1.0), 0.804);
    near(share(Policy::Leveling, devices::PCIE_SSD, 160.0, 1.0), 0.493);
    near(share(Policy::Leveling, devices::NVM, 0.0, 1.0), 0.991);
    // With a hash of 370 ns both of the paper's numbers come out.
    let slow = |empty| {
        let costs = Costs { hash_ns: 370.0, probe_ns: 0.0, access_ns: 10_000.0 };
        cost(PAPER, Policy::Leveling, Sharing::PerFilter, of(empty), costs, Form::Exact).hash_share()
    };
    near(slow(0.0), 0.15);
    assert!(slow(1.0) > 0.75);
    for (slower, faster) in devices::DEVICES.iter().zip(&devices::DEVICES[1..]) {
        for policy in POLICIES {
            let mut last = 0.0;
            for tenths in 0..=10 {
                let empty = f64::from(tenths) / 10.0;
                let here = share(policy, *slower, 20.0, empty);
                assert!(here > last, "the share grows with α");
                assert!(share(policy, *faster, 20.0, empty) > here, "and with the speed of the device");
                // Figure 2 beside Figure 1.
                assert!(share(Policy::Tiering, *slower, 20.0, empty) >= here);
                last = here;
            }
        }
    }
}

/// Section 5: the benefit rises with the bits of a key (Figure 12) and with the levels at T = 2 (Figure 8b).
#[test]
fn figures_8_and_12() {
    let costs = on(devices::PCIE_SSD, 20.0);
    for (bits, more) in (8..14).map(|bits| (f64::from(bits), f64::from(bits + 1))) {
        let of = |bits| {
            let workload = Workload { empty: 1.0, false_positive: bloom::optimal_rate(bits) };
            gain(PAPER, Policy::Leveling, workload, costs, Form::Exact)
        };
        assert!(of(more) > of(bits));
    }
    for levels in 8..14 {
        let of = |levels| cost_of(Tree { levels, size_ratio: 2 }, Sharing::Shared, costs);
        let apart = |levels| cost_of(Tree { levels, size_ratio: 2 }, Sharing::PerFilter, costs);
        assert_eq!(of(levels + 1).hash_ns, of(levels).hash_ns, "one hash at any height");
        same(apart(levels + 1).hash_ns, apart(levels).hash_ns + costs.hash_ns, levels);
    }
}

fn cost_of(tree: Tree, sharing: Sharing, costs: Costs) -> Breakdown {
    cost(tree, Policy::Leveling, sharing, of(1.0), costs, Form::Exact)
}

fn any_tree() -> impl Strategy<Value = Tree> {
    (0u32..70, 0u32..40).prop_map(|(levels, size_ratio)| Tree { levels, size_ratio })
}

fn any_workload() -> impl Strategy<Value = Workload> {
    let fraction = || prop_oneof![4 => 0.0..=1.0f64, 1 => Just(0.0), 1 => Just(1.0)];
    (fraction(), fraction()).prop_map(|(empty, false_positive)| Workload { empty, false_positive })
}

fn any_costs() -> impl Strategy<Value = Costs> {
    let time = || prop_oneof![6 => 0.0..1e7f64, 1 => Just(0.0)];
    (time(), time(), time()).prop_map(|(hash_ns, probe_ns, access_ns)| Costs { hash_ns, probe_ns, access_ns })
}

fn wild() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
        Just(f64::MAX),
        -1.0..2.0f64
    ]
}

proptest! {
    #[test]
    fn the_gain_is_a_fraction_and_grows_as_the_paper_says(
        tree in any_tree(), workload in any_workload(), costs in any_costs(), by in 0.0..1.0f64,
    ) {
        for policy in POLICIES {
            for form in [Form::Exact, Form::PaperSum] {
                let here = gain(tree, policy, workload, costs, form);
                prop_assert!((0.0..=1.0).contains(&here), "{here}");
                let no_less = |more: f64| more >= here - 1e-12;
                // Faster devices, taller trees, slower hashes, better filters, cheaper probes.
                let faster = Costs { access_ns: costs.access_ns * by, ..costs };
                prop_assert!(no_less(gain(tree, policy, workload, faster, form)));
                if policy == Policy::Leveling || form == Form::Exact {
                    let taller = Tree { levels: tree.levels + 1, ..tree };
                    prop_assert!(no_less(gain(taller, policy, workload, costs, form)));
                    // More empty lookups.
                    let empty = workload.empty + by * (1.0 - workload.empty);
                    let emptier = Workload { empty, ..workload };
                    prop_assert!(no_less(gain(tree, policy, emptier, costs, form)));
                }
                let slower = Costs { hash_ns: costs.hash_ns * (1.0 + by) + by, ..costs };
                prop_assert!(no_less(gain(tree, policy, workload, slower, form)));
                let better = Workload { false_positive: workload.false_positive * by, ..workload };
                prop_assert!(no_less(gain(tree, policy, better, costs, form)));
                let cheaper = Costs { probe_ns: costs.probe_ns * by, ..costs };
                prop_assert!(no_less(gain(tree, policy, workload, cheaper, form)));
            }
            let of = |policy| gain(tree, policy, workload, costs, Form::Exact);
            prop_assert!(of(policy) >= of(Policy::Leveling) - 1e-12, "runs do not lessen the gain");
            prop_assert!(of(policy) <= gain_limit(workload, costs) + 1e-12, "Equation 9's bound");
        }
    }

    /// Equation 9: as levels grow the gain tends to a constant, and the distance falls as one over the hashes saved.
    #[test]
    fn the_gain_converges_as_equation_9_says(
        workload in any_workload(), costs in any_costs(), size_ratio in 2u32..20, levels in 3u32..=64,
    ) {
        let tree = Tree { levels, size_ratio };
        let limit = gain_limit(workload, costs);
        let distance = limit - eq9(tree, workload, costs);
        let each = costs.hash_ns + costs.probe_ns + workload.false_positive * costs.access_ns;
        let once = costs.hash_ns + costs.probe_ns + costs.access_ns;
        prop_assert!(distance >= -1e-12);
        // T_H/each - T_H/(each + once/X) <= limit * once / (each X).
        if each > 0.0 {
            let bound = limit * once / (each * (f64::from(levels) - 2.0));
            prop_assert!(distance <= bound * (1.0 + 1e-9) + 1e-12, "{distance} {bound}");
        }
    }

    #[test]
    fn the_list_of_runs_and_the_closed_sum_are_one(
        tree in any_tree(), workload in any_workload(),
    ) {
        for policy in POLICIES {
            let sum = counts_of_runs(&runs_of(tree, policy, workload), Sharing::PerFilter, workload.empty);
            let exact = counts(tree, policy, Sharing::PerFilter, workload, Form::Exact);
            prop_assert!((sum.probes - exact.probes).abs() < 1e-9 * exact.probes.max(1.0));
            prop_assert!((sum.false_accesses - exact.false_accesses).abs() < 1e-9 * exact.probes.max(1.0));
        }
    }

    #[test]
    fn nothing_in_makes_nan_come_out(
        (levels, size_ratio) in (any::<u32>(), any::<u32>()),
        (empty, false_positive) in (wild(), wild()),
        (hash_ns, probe_ns, access_ns) in (wild(), wild(), wild()),
        runs in prop::collection::vec((wild(), wild()), 0..5),
    ) {
        let tree = Tree { levels, size_ratio };
        let workload = Workload { empty, false_positive };
        let costs = Costs { hash_ns, probe_ns, access_ns };
        for policy in POLICIES {
            for form in FORMS {
                for sharing in SHARINGS {
                    prop_assert!(cost(tree, policy, sharing, workload, costs, form).total_ns().is_finite());
                }
                prop_assert!(gain(tree, policy, workload, costs, form).is_finite());
            }
        }
        for equation in [eq4, eq6, eq6_corrected, eq6_shared, eq7, eq8, eq9, eq10, eq11, eq12, eq14, eq15, eq15_middle] {
            prop_assert!(equation(tree, workload, costs).is_finite());
        }
        let levels = [eq3(workload, costs), eq5(levels, workload, costs), eq5_complete(levels, workload, costs)];
        prop_assert!(levels.iter().all(|cost| cost.is_finite()));
        prop_assert!(eq2(hash_ns, access_ns, empty, false_positive).is_finite());
        prop_assert!(alphas(tree, empty).iter().all(|alpha| (0.0..=1.0).contains(alpha)));
        let runs: Vec<RunShare> =
            runs.into_iter().map(|(entries, false_positive)| RunShare { entries, false_positive }).collect();
        let counts = counts_of_runs(&runs, Sharing::PerFilter, empty);
        prop_assert!(counts.cost(costs).total_ns().is_finite() && counts.probes >= 0.0);
    }
}
