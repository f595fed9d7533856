//! Properties for all arguments.

use proptest::prelude::*;

use super::*;

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
    fn the_gain_is_a_fraction_and_grows_as_in_the_paper(
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

    /// Equation 9: as levels grow the gain tends to a constant, and the distance falls as one over
    /// the hashes saved.
    #[test]
    fn the_gain_converges_as_in_equation_9(
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
    fn the_list_of_runs_and_the_closed_sum_agree(
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
    fn no_input_yields_nan(
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
        let equations =
            [eq4, eq6, eq6_corrected, eq6_shared, eq7, eq8, eq9, eq10, eq11, eq12, eq14, eq15, eq15_middle];
        for equation in equations {
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
