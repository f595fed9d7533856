//! Comparison of our figures with a paper's claims.

/// The degree to which a claim holds here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Finding {
    /// Same direction, same order where the claim has one, and similar size.
    Holds,
    /// Same direction, but another size or only part of an order.
    Partly,
    /// Opposite direction.
    Fails,
    /// Undecided: rows are missing, or differences are within the spread of rounds.
    Open,
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
    /// A size within this factor of the paper's number counts as the same.
    pub const SAME_SIZE: f64 = 1.5;

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
    /// else partly.
    pub fn with(
        mut self,
        ours: impl Into<String>,
        direction: Option<bool>,
        order: Option<bool>,
        ratio: Option<f64>,
    ) -> Verdict {
        let ratio = ratio.filter(|ratio| ratio.is_finite());
        let sized = |ratio: f64| (1.0 / Self::SAME_SIZE..=Self::SAME_SIZE).contains(&ratio);
        self.finding = match (direction, order) {
            (None, None) if ratio.is_none() => Finding::Open,
            (Some(false), _) => Finding::Fails,
            // The claim consists of an order only.
            (None, Some(false)) => Finding::Fails,
            (_, Some(false)) => Finding::Partly,
            _ if ratio.is_none_or(sized) => Finding::Holds,
            _ => Finding::Partly,
        };
        (self.ours, self.direction, self.order, self.ratio) = (ours.into(), direction, order, ratio);
        self
    }

    /// Adds a note.
    #[must_use]
    pub fn noting(mut self, note: impl Into<String>) -> Verdict {
        self.note = note.into();
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
        assert_eq!(find(None, None, Some(0.5)), Finding::Partly);
    }
}
