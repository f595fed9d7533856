//! Made-up rows that test the verdicts of a figure: some at which all of them hold, and others at which they fail.
//!
//! A verdict that no rows make fail says nothing. So every figure with verdicts has a trial ([`Figure::trial`]), and the
//! test of the catalogue refuses one without.

use super::{Figure, Finding, Row};

/// Rows of one figure.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    /// Rows at which every verdict holds.
    pub good: Vec<Row>,
    /// Sets of rows; at each verdict's claim, one of them makes it fail.
    pub bad: Vec<Vec<Row>>,
}

impl Trial {
    /// Checks the verdicts of a figure; returns what is wrong, one sentence each.
    pub fn faults(&self, figure: &dyn Figure) -> Vec<String> {
        let of = |rows: &[Row]| figure.view(rows).verdicts;
        let (good, bare) = (of(&self.good), of(&[]));
        let bad: Vec<_> = self.bad.iter().map(|rows| of(rows)).collect();
        let mut faults = Vec::new();
        if good.len() < bare.len() {
            faults.push(format!("{} verdicts, but {} without rows", good.len(), bare.len()));
        }
        for verdict in &good {
            if verdict.finding != Finding::Holds {
                faults.push(format!("does not hold: {verdict:?}"));
            }
            let same = bad.iter().flatten().filter(|other| other.claim == verdict.claim);
            if !same.clone().any(|other| other.finding == Finding::Fails) {
                faults.push(format!("never fails: {:?}", same.collect::<Vec<_>>()));
            }
        }
        faults
    }
}
