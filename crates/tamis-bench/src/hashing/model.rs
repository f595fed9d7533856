//! What the paper's equations make of measured times.

/// A tree and how it is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// L.
    pub(super) levels: f64,
    /// T: the size ratio, and with tiering the runs of a level.
    pub(super) ratio: f64,
    /// Whether levels are several runs.
    pub(super) tiering: bool,
    /// α: the share of absent keys.
    pub(super) absent: f64,
    /// f_p: how often a filter lets an absent key through.
    pub(super) false_positive: f64,
}

/// Nanoseconds that the parts of a get take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// T_H: a digest.
    pub(super) digest: f64,
    /// T_P: a question to a filter.
    pub(super) probe: f64,
    /// T_D: reading a block.
    pub(super) read: f64,
    /// What a get takes besides, on either side; 0 in the paper.
    pub(super) rest: f64,
}

/// By how many percent of its time a get is shorter with one digest for all filters: Equation 8, which is Equations 4
/// and 7 put together; for tiering the same of Equation 6. 0 where nothing takes any time.
pub(super) fn predicted_gain(asked: Asked, times: Times) -> f64 {
    let Asked { levels, ratio, tiering, absent, false_positive } = asked;
    let found = 1.0 - absent;
    // Filters asked, and those of them that deny or should.
    let (filters, without) = match tiering {
        false => {
            let filters = levels - found / (ratio - 1.0).max(1.0);
            (filters, filters - found)
        }
        true => {
            let without = ratio * levels - found * (ratio + 1.0);
            (without + found * (ratio + 1.0) / 2.0, without)
        }
    };
    let reads = found + without * false_positive;
    let cost = filters * (times.digest + times.probe) + reads * times.read + times.rest;
    if cost > 0.0 { 100.0 * (filters - 1.0) * times.digest / cost } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: Asked =
        Asked { levels: 5.0, ratio: 10.0, tiering: false, absent: 1.0, false_positive: 0.01 };
    const PAPER: Times = Times { digest: 235.0, probe: 0.0, read: 10_000.0, rest: 0.0 };

    #[test]
    fn the_gain_is_that_of_equation_8() {
        // (L − 1)·T_H / (L·T_H + L·f_p·T_D)
        let expected = 100.0 * 4.0 * 235.0 / (5.0 * 235.0 + 0.05 * 10_000.0);
        assert!((predicted_gain(EMPTY, PAPER) - expected).abs() < 1e-9);
        // α = 0: 4 8/9 filters, one block and 3 8/9 chances of a false positive.
        let filters = 5.0 - 1.0 / 9.0;
        let cost = filters * 235.0 + 10_000.0 + (filters - 1.0) * 100.0;
        let gain = predicted_gain(Asked { absent: 0.0, ..EMPTY }, PAPER);
        assert!((gain - 100.0 * (filters - 1.0) * 235.0 / cost).abs() < 1e-9, "{gain}");
    }

    #[test]
    fn tiering_and_fast_devices_gain_more_and_rest_takes_from_it() {
        let leveling = predicted_gain(EMPTY, PAPER);
        assert!(predicted_gain(Asked { tiering: true, ..EMPTY }, PAPER) > leveling);
        assert!(predicted_gain(EMPTY, Times { read: 250.0, ..PAPER }) > leveling);
        assert!(predicted_gain(EMPTY, Times { rest: 500.0, ..PAPER }) < leveling);
        let nothing = Times { digest: 0.0, probe: 0.0, read: 0.0, rest: 0.0 };
        assert_eq!(predicted_gain(EMPTY, nothing), 0.0);
    }
}
