//! The paper's equations, applied to measured times.

use tamis_model::lookup::{Costs, Form, Policy, Sharing, Tree, Workload, cost};

/// A tree and its queries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// L and T.
    pub(super) tree: Tree,
    /// One run per level, or T.
    pub(super) policy: Policy,
    /// α and f_p.
    pub(super) workload: Workload,
}

/// Durations of the parts of a get in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// T_H: a digest.
    pub(super) digest: f64,
    /// T_P: a query of a filter.
    pub(super) probe: f64,
    /// T_D: reading a block.
    pub(super) read: f64,
    /// The remainder of a get, equal on both sides; 0 in the paper.
    pub(super) rest: f64,
}

/// Returns the percentage by which a get is shorter with one digest for all filters: Equation 8, from Equations 4 and 7
/// as printed in the paper; for tiering from Equation 6. 0 if all times are 0.
pub(super) fn predicted_gain(asked: Asked, times: Times) -> f64 {
    let Asked { tree, policy, workload } = asked;
    let costs = Costs { hash_ns: times.digest, probe_ns: times.probe, access_ns: times.read };
    let of = |sharing| cost(tree, policy, sharing, workload, costs, Form::PaperClosed).total_ns();
    let (anew, shared) = (of(Sharing::PerFilter), of(Sharing::Shared));
    let all = anew + times.rest;
    if all > 0.0 { 100.0 * (anew - shared) / all } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: Asked = Asked {
        tree: Tree { levels: 5, size_ratio: 10 },
        policy: Policy::Leveling,
        workload: Workload { empty: 1.0, false_positive: 0.01 },
    };
    const PAPER: Times = Times { digest: 235.0, probe: 0.0, read: 10_000.0, rest: 0.0 };

    #[test]
    fn the_gain_is_that_of_equation_8() {
        // (L − 1)·T_H / (L·T_H + L·f_p·T_D)
        let expected = 100.0 * 4.0 * 235.0 / (5.0 * 235.0 + 0.05 * 10_000.0);
        assert!((predicted_gain(EMPTY, PAPER) - expected).abs() < 1e-9);
        // α = 0: 4 8/9 filters, one block and 3 8/9 chances of a false positive.
        let filters = 5.0 - 1.0 / 9.0;
        let cost = filters * 235.0 + 10_000.0 + (filters - 1.0) * 100.0;
        let gain =
            predicted_gain(Asked { workload: Workload { empty: 0.0, ..EMPTY.workload }, ..EMPTY }, PAPER);
        assert!((gain - 100.0 * (filters - 1.0) * 235.0 / cost).abs() < 1e-9, "{gain}");
    }

    #[test]
    fn tiering_and_fast_devices_gain_more_and_the_rest_reduces_gains() {
        let leveling = predicted_gain(EMPTY, PAPER);
        assert!(predicted_gain(Asked { policy: Policy::Tiering, ..EMPTY }, PAPER) > leveling);
        assert!(predicted_gain(EMPTY, Times { read: 250.0, ..PAPER }) > leveling);
        assert!(predicted_gain(EMPTY, Times { rest: 500.0, ..PAPER }) < leveling);
        let nothing = Times { digest: 0.0, probe: 0.0, read: 0.0, rest: 0.0 };
        assert_eq!(predicted_gain(EMPTY, nothing), 0.0);
    }
}
