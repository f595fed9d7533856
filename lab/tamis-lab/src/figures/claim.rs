//! Comparison of our figures with a paper's claims.

/// The degree to which a claim holds here, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Finding {
    /// Same direction, same order where the claim has one, and similar size.
    Holds,
    /// Same direction, but another size or only part of an order.
    Partly,
    /// Undecided: rows are missing, or differences are within the spread of rounds.
    Open,
    /// Opposite direction.
    Fails,
}

impl Finding {
    /// Returns one word for tables.
    pub fn name(self) -> &'static str {
        match self {
            Finding::Holds => "holds",
            Finding::Partly => "partly",
            Finding::Fails => "fails",
            Finding::Open => "open",
        }
    }
}

/// One claim of a paper, and our measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The claim in a sentence, with the paper's numbers.
    pub claim: String,
    /// The paper's number as text: `> 40 %`, `2.08–2.17×`.
    pub paper: String,
    /// Our number as text in the same unit; empty if nothing was measured.
    pub ours: String,
    /// Whether the direction agrees with the paper; `None` where the claim has none or nothing was measured.
    pub direction: Option<bool>,
    /// Whether the order of sides or points agrees with the paper.
    pub order: Option<bool>,
    /// Our number divided by the paper's (the middle of its range), in the unit of the claim.
    pub ratio: Option<f64>,
    /// The overall finding.
    pub finding: Finding,
    /// The reason for a deviation, if known; otherwise empty.
    pub note: String,
}

impl Verdict {
    /// A size within this factor of a single number of the paper counts as the same.
    pub const SAME_SIZE: f64 = 1.5;

    /// The same for the nearer end of a range, which already has the differences between the paper's own settings, and for what
    /// a formula says.
    pub const NEAR_RANGE: f64 = 1.25;

    /// Creates a verdict without measurements.
    pub fn open(claim: impl Into<String>, paper: impl Into<String>) -> Verdict {
        Verdict {
            claim: claim.into(),
            paper: paper.into(),
            ours: String::new(),
            direction: None,
            order: None,
            ratio: None,
            finding: Finding::Open,
            note: String::new(),
        }
    }

    /// Adds measurements, and derives the finding: fails if the direction is another one, holds if everything agrees,
    /// else partly. A claim that is about a size alone fails if it is another one.
    pub fn with(
        self,
        ours: impl Into<String>,
        direction: Option<bool>,
        order: Option<bool>,
        ratio: Option<f64>,
    ) -> Verdict {
        let ratio = ratio.filter(|ratio| ratio.is_finite());
        let sized = |ratio: f64| (1.0 / Self::SAME_SIZE..=Self::SAME_SIZE).contains(&ratio);
        let mut verdict = self.with_size(ours, direction, order, ratio.map(sized));
        verdict.ratio = ratio;
        verdict
    }

    /// The same for a claim of a formula: the size counts as the same within [`NEAR_RANGE`](Self::NEAR_RANGE).
    pub fn near(self, ours: impl Into<String>, direction: Option<bool>, ratio: f64) -> Verdict {
        let sized = ratio.is_finite().then(|| Self::is_near(ratio));
        Verdict {
            ratio: Some(ratio).filter(|ratio| ratio.is_finite()),
            ..self.with_size(ours, direction, None, sized)
        }
    }

    /// Reports whether a ratio is within [`NEAR_RANGE`](Self::NEAR_RANGE) of 1.
    pub fn is_near(ratio: f64) -> bool {
        (1.0 / Self::NEAR_RANGE..=Self::NEAR_RANGE).contains(&ratio)
    }

    /// The same where the size was compared already; the ratio remains open.
    pub fn with_size(
        mut self,
        ours: impl Into<String>,
        direction: Option<bool>,
        order: Option<bool>,
        sized: Option<bool>,
    ) -> Verdict {
        self.finding = match (direction, order, sized) {
            (None, None, None) => Finding::Open,
            (Some(false), ..) | (None, Some(false), _) | (None, None, Some(false)) => Finding::Fails,
            (_, Some(false), _) | (_, _, Some(false)) => Finding::Partly,
            _ => Finding::Holds,
        };
        (self.ours, self.direction, self.order) = (ours.into(), direction, order);
        self
    }

    /// Adds our number to a verdict that rounds leave undecided.
    #[must_use]
    pub fn undecided(self, ours: impl Into<String>, ratio: Option<f64>) -> Verdict {
        let ratio = ratio.filter(|ratio| ratio.is_finite());
        Verdict { ours: ours.into(), ratio, finding: Finding::Open, ..self }
            .noting("The differences are within the spread of the rounds, or there are none.")
    }

    /// Adds a note to those that it has.
    #[must_use]
    pub fn noting(mut self, note: impl AsRef<str>) -> Verdict {
        let sep = if self.note.is_empty() || note.as_ref().is_empty() { "" } else { " " };
        self.note += sep;
        self.note += note.as_ref();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_follows_from_direction_order_and_size() {
        let find =
            |direction, order, ratio| Verdict::open("c", "2×").with("x", direction, order, ratio).finding;
        assert_eq!(find(None, None, None), Finding::Open);
        assert_eq!(find(None, None, Some(f64::NAN)), Finding::Open);
        assert_eq!(find(Some(true), None, None), Finding::Holds);
        assert_eq!(find(Some(true), Some(true), Some(1.4)), Finding::Holds);
        assert_eq!(find(Some(true), Some(true), Some(3.0)), Finding::Partly);
        assert_eq!(find(Some(true), Some(false), Some(1.0)), Finding::Partly);
        assert_eq!(find(None, Some(false), None), Finding::Fails);
        assert_eq!(find(Some(false), Some(true), Some(1.0)), Finding::Fails);
        assert_eq!(find(None, None, Some(1.4)), Finding::Holds);
        assert_eq!(find(None, None, Some(0.5)), Finding::Fails, "the claim is a size and nothing else");
    }
}
