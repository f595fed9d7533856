//! Our figures beside a paper's claims.

/// How far a claim holds here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Finding {
    /// Same direction, same order where the claim has one, and about the size.
    Holds,
    /// Same direction, another size; or most of an order.
    Partly,
    /// Another direction.
    Fails,
    /// Nothing can be said: rows are missing, or differences are within the spread of rounds.
    Open,
}

impl Finding {
    /// One word for tables.
    pub fn name(self) -> &'static str {
        match self {
            Finding::Holds => "holds",
            Finding::Partly => "partly",
            Finding::Fails => "fails",
            Finding::Open => "open",
        }
    }
}

/// One claim of a paper, and what was measured here.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The claim in a sentence, with the paper's numbers.
    pub claim: String,
    /// The paper's number as text: `> 40 %`, `2.08–2.17×`.
    pub paper: String,
    /// Ours, as text in the same unit; empty if nothing was measured.
    pub ours: String,
    /// Whether the difference points where the paper's does; `None` where the claim has no direction, or nothing was measured.
    pub direction: Option<bool>,
    /// Whether sides, or points, stand in the paper's order.
    pub order: Option<bool>,
    /// Our number by the paper's (the middle of its range), in the unit of the claim.
    pub ratio: Option<f64>,
    /// All in all.
    pub finding: Finding,
    /// Why it is other, where that is known; empty otherwise.
    pub note: String,
}

impl Verdict {
    /// Within this factor of the paper's number a size counts as the same.
    pub const SAME_SIZE: f64 = 1.5;

    /// A claim that nothing was measured for.
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

    /// With what was measured, and the finding that follows: fails if direction is another, holds if nothing speaks against
    /// it, else partly.
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
            // An order is all that such a claim says.
            (None, Some(false)) => Finding::Fails,
            (_, Some(false)) => Finding::Partly,
            _ if ratio.is_none_or(sized) => Finding::Holds,
            _ => Finding::Partly,
        };
        (self.ours, self.direction, self.order, self.ratio) = (ours.into(), direction, order, ratio);
        self
    }

    /// With a reason.
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
