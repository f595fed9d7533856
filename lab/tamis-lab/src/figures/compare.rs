//! Comparisons of sides, and the resulting verdicts.
//!
//! Two times differ if the spreads of their rounds do not overlap; a counter has no spread. If no difference exceeds
//! the spreads, a verdict stays open.

use super::{Finding, Verdict};

/// A number with the minimum and maximum of its rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The median, or the mean.
    pub value: f64,
    /// Minimum of the rounds.
    pub least: f64,
    /// Maximum of the rounds.
    pub most: f64,
}

impl Measured {
    /// Creates a time or a rate.
    pub fn new(value: f64, least: f64, most: f64) -> Measured {
        Measured { value, least: least.min(value), most: most.max(value) }
    }

    /// Creates a counter.
    pub fn exact(value: f64) -> Measured {
        Measured { value, least: value, most: value }
    }

    /// Returns minimum and maximum.
    pub fn spread(self) -> (f64, f64) {
        (self.least, self.most)
    }

    /// Returns the quotient, with the widest spread that the two spreads permit.
    #[must_use]
    pub fn by(self, other: Measured) -> Measured {
        Measured {
            value: self.value / other.value,
            least: self.least / other.most,
            most: self.most / other.least,
        }
    }

    /// Reports whether the two differ by more than their spreads.
    pub fn differs(self, other: Measured) -> bool {
        self.most < other.least || other.most < self.least
    }
}

/// Adds a note to each verdict with figures, saying that these sides had a different amount of memory than configured;
/// does nothing if there are none.
pub fn note_unequal_memory(verdicts: &mut [Verdict], sides: &[&str]) {
    if sides.is_empty() {
        return;
    }
    let note = format!("Not at equal memory at every point: {}; see the table.", sides.join(", "));
    for verdict in verdicts.iter_mut().filter(|verdict| !verdict.ours.is_empty()) {
        let sep = if verdict.note.is_empty() { "" } else { " " };
        verdict.note = format!("{}{sep}{note}", verdict.note);
    }
}

/// The direction of improvement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Less is better: times, reads.
    Less,
    /// More is better: operations per second.
    More,
}

/// The factor by which one side is better than another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    /// 2 is twice as good, 0.5 half as good.
    pub times: f64,
    /// Whether the two differ by more than their spreads.
    pub clear: bool,
}

impl Gain {
    /// Returns our gain over theirs; `None` unless both are above 0.
    pub fn of(ours: Measured, theirs: Measured, better: Better) -> Option<Gain> {
        let times = match better {
            Better::Less => theirs.value / ours.value,
            Better::More => ours.value / theirs.value,
        };
        let sound = ours.value > 0.0 && theirs.value > 0.0 && times.is_finite();
        sound.then(|| Gain { times, clear: ours.differs(theirs) })
    }
}

/// The unit in which a claim states its gains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A factor: 2.08×.
    Times,
    /// A reduction: −55.9 %.
    Less,
    /// An increase: +53 %.
    More,
}

impl Unit {
    fn number(self, times: f64) -> f64 {
        match self {
            Unit::Times => times,
            Unit::Less => 1.0 - 1.0 / times,
            Unit::More => times - 1.0,
        }
    }

    /// Formats a gain in this unit.
    pub fn of(self, times: f64) -> String {
        self.text(self.number(times), self.number(times))
    }

    /// Formats a range with its unit: `1.43–2.08×`, `−55.9 to −89.7 %`.
    fn text(self, from: f64, to: f64) -> String {
        let sign = |number: f64, minus: &str, plus: &str| {
            let tenths = (number.abs() * 1000.0).round() / 10.0;
            format!("{}{tenths}", if number < 0.0 { minus } else { plus })
        };
        let one = |number: f64| match self {
            Unit::Times if number >= 100.0 => format!("{number:.0}"),
            Unit::Times if number >= 10.0 => format!("{number:.1}"),
            Unit::Times => format!("{number:.2}"),
            Unit::Less => sign(number, "+", "−"),
            Unit::More => sign(number, "−", "+"),
        };
        let (one, other) = (one(from), one(to));
        let join = if self == Unit::Times { "–" } else { " to " };
        let span = if one == other { one } else { format!("{one}{join}{other}") };
        format!("{span}{}", if self == Unit::Times { "×" } else { " %" })
    }
}

/// A claim about gains: the paper's minimum and maximum, in the unit's numbers (2.08, 0.559, 0.53).
#[derive(Clone, Debug)]
pub struct Claim {
    text: String,
    unit: Unit,
    from: f64,
    to: f64,
    paper: String,
}

impl Claim {
    /// Creates a claim of a range.
    pub fn range(text: impl Into<String>, unit: Unit, from: f64, to: f64) -> Claim {
        Claim { text: text.into(), unit, from, to, paper: unit.text(from, to) }
    }

    /// Creates a claim of a single number.
    pub fn about(text: impl Into<String>, unit: Unit, number: f64) -> Claim {
        let paper = format!("about {}", unit.text(number, number));
        Claim { paper, ..Claim::range(text, unit, number, number) }
    }

    /// Judges the claim by the gains; `order` applies where the claim has one. The size is that of the median gain; it
    /// equals the paper's if it is within the paper's range or close to its nearer end. A claim does not hold that is
    /// clearly turned round at some of the points, and fails if it is at half of them.
    pub fn judge(&self, gains: &[Gain], order: Option<bool>) -> Verdict {
        let open = Verdict::open(&self.text, &self.paper);
        let Some(times) = median(gains.iter().map(|gain| gain.times)) else { return open };
        let least = gains.iter().map(|gain| gain.times).fold(f64::INFINITY, f64::min);
        let most = gains.iter().map(|gain| gain.times).fold(0.0, f64::max);
        let ours = self.unit.text(self.unit.number(least), self.unit.number(most));
        let number = self.unit.number(times);
        let ratio = number / ((self.from + self.to) / 2.0);
        if !gains.iter().any(|gain| gain.clear) {
            let mut verdict =
                open.noting("The differences are within the spread of the rounds, or there are none.");
            (verdict.ours, verdict.ratio) = (ours, Some(ratio).filter(|ratio| ratio.is_finite()));
            return verdict;
        }
        let to_nearest = number / number.clamp(self.from, self.to);
        let worse = gains.iter().filter(|gain| gain.clear && gain.times < 1.0).count();
        let direction = times > 1.0 && 2 * worse < gains.len();
        let mut verdict = open.with(ours, Some(direction), order, Some(to_nearest));
        verdict.ratio = Some(ratio).filter(|ratio| ratio.is_finite());
        if worse > 0 && verdict.finding == Finding::Holds {
            verdict.finding = Finding::Partly;
        }
        match worse {
            0 => verdict,
            _ => verdict.noting(format!("The opposite at {worse} of {} points.", gains.len())),
        }
    }
}

/// Judges a claim of near equality: holds if the median quotient is within [`Verdict::SAME_SIZE`] of 1.
pub fn alike(text: impl Into<String>, paper: &str, gains: &[Gain]) -> Verdict {
    let open = Verdict::open(text, paper);
    let Some(times) = median(gains.iter().map(|gain| gain.times)) else { return open };
    open.with(span(gains), None, None, Some(times))
}

/// Judges a claim that something costs nothing: holds if the median differs by less than `share`, or by less than the
/// spreads; partly up to five times that.
pub fn unchanged(text: impl Into<String>, paper: &str, gains: &[Gain], share: f64) -> Verdict {
    let open = Verdict::open(text, paper);
    let Some(times) = median(gains.iter().map(|gain| gain.times)) else { return open };
    let numbers = || gains.iter().map(|gain| gain.times - 1.0);
    let (least, most) =
        (numbers().fold(f64::INFINITY, f64::min), numbers().fold(f64::NEG_INFINITY, f64::max));
    let mut verdict = open.with(Unit::More.text(least, most), None, None, Some(times));
    let change = (times - 1.0).abs();
    verdict.finding = match gains.iter().any(|gain| gain.clear) {
        false => Finding::Holds,
        true if change < share => Finding::Holds,
        true if change < 5.0 * share => Finding::Partly,
        true => Finding::Fails,
    };
    verdict
}

/// The rank of one side among others at one point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// No other is better.
    First,
    /// Another one is better, but within the spreads.
    Tied,
    /// Another one is better by more than the spreads.
    Behind,
}

/// Ranks ours among the others; `None` without others.
pub fn place(ours: Measured, others: impl IntoIterator<Item = Measured>, better: Better) -> Option<Place> {
    let mut found = None;
    for other in others {
        let ahead = match better {
            Better::Less => other.value < ours.value,
            Better::More => other.value > ours.value,
        };
        let place = match ahead {
            false => Place::First,
            true if ours.differs(other) => Place::Behind,
            true => Place::Tied,
        };
        found = match (found, place) {
            (Some(Place::Behind), _) | (_, Place::Behind) => Some(Place::Behind),
            (Some(Place::Tied), _) | (_, Place::Tied) => Some(Place::Tied),
            _ => Some(Place::First),
        };
    }
    found
}

/// Judges a claim that one side is the first at every point, which is an order. The direction agrees unless the side is
/// behind at most points.
pub fn first_at_all(text: impl Into<String>, places: &[Place]) -> Verdict {
    let count = |of: Place| places.iter().filter(|&&place| place == of).count();
    let (first, tied, behind) = (count(Place::First), count(Place::Tied), count(Place::Behind));
    let open = Verdict::open(text, "first everywhere");
    if places.is_empty() {
        return open;
    }
    let mut ours = format!("first at {first} of {}", places.len());
    if tied > 0 {
        ours += &format!(", within the spread at {tied}");
    }
    match first + behind {
        0 => Verdict { ours, ..open }.noting("All differences are within the spread of the rounds."),
        _ => open.with(ours, Some(first + tied > behind), Some(behind == 0), None),
    }
}

/// Formats the smallest and the largest gain.
pub fn span(gains: &[Gain]) -> String {
    let times = || gains.iter().map(|gain| gain.times);
    match gains.is_empty() {
        true => String::new(),
        false => Unit::Times.text(times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max)),
    }
}

/// Returns the median; the mean of the two in the middle of an even number.
pub fn median(numbers: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut numbers: Vec<f64> = numbers.into_iter().collect();
    numbers.sort_by(f64::total_cmp);
    let upper = numbers.get(numbers.len() / 2)?;
    let lower = &numbers[(numbers.len() - 1) / 2];
    Some(f64::midpoint(*lower, *upper))
}

/// Reports whether numbers grow from first to last, ignoring steps back of at most 5 %; `None` for fewer than two.
pub fn grows(numbers: &[f64]) -> Option<bool> {
    let (first, last) = (numbers.first()?, numbers.last()?);
    (numbers.len() > 1).then(|| last > first && numbers.windows(2).all(|pair| pair[1] >= pair[0] * 0.95))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gains(times: &[f64]) -> Vec<Gain> {
        times.iter().map(|&times| Gain { times, clear: true }).collect()
    }

    #[test]
    fn a_median_leans_to_neither_side() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0]), Some(3.0));
        assert_eq!(median([9.0, 1.0]), Some(5.0), "the upper one was taken");
        assert_eq!(median([9.0, 1.0, 2.0]), Some(2.0));
    }

    #[test]
    fn ranges_match_within_and_near_their_ends() {
        let claim = Claim::range("c", Unit::Times, 2.0, 10.0);
        for (times, finding) in [
            (2.1, Finding::Holds),
            (9.0, Finding::Holds),
            (1.5, Finding::Holds),
            (1.2, Finding::Partly),
            (20.0, Finding::Partly),
            (0.9, Finding::Fails),
        ] {
            assert_eq!(claim.judge(&gains(&[times]), None).finding, finding, "{times}");
        }
        let verdict = claim.judge(&gains(&[1.0, 3.0, 4.0]), Some(true));
        assert_eq!((&verdict.paper[..], &verdict.ours[..]), ("2.00–10.0×", "1.00–4.00×"));
        assert_eq!((verdict.ratio, verdict.direction), (Some(0.5), Some(true)));
        assert_eq!(claim.judge(&gains(&[3.0]), Some(false)).finding, Finding::Partly);
        assert_eq!(claim.judge(&[], None), Verdict::open("c", "2.00–10.0×"));
        let at_one = claim.judge(&gains(&[3.0, 3.0, 0.5]), None);
        assert_eq!((at_one.finding, &at_one.note[..]), (Finding::Partly, "The opposite at 1 of 3 points."));
        // The mean of two is a gain, but one of them is none.
        assert_eq!(claim.judge(&gains(&[0.5, 4.0]), None).finding, Finding::Fails);
        let unclear = claim.judge(&[Gain { times: 3.0, clear: false }], None);
        assert_eq!((unclear.finding, &unclear.ours[..]), (Finding::Open, "3.00×"));
        assert!(unclear.note.contains("spread"));
    }

    #[test]
    fn reductions_are_in_percent() {
        let claim = Claim::range("c", Unit::Less, 0.559, 0.897);
        let verdict = claim.judge(&gains(&[2.0, 4.0, 5.0]), None);
        assert_eq!((&verdict.paper[..], &verdict.ours[..]), ("−55.9 to −89.7 %", "−50 to −80 %"));
        assert_eq!(verdict.finding, Finding::Holds);
        assert_eq!(claim.judge(&gains(&[0.8]), None).finding, Finding::Fails);
        assert_eq!(claim.judge(&gains(&[0.8]), None).ours, "+25 %");
        let more = Claim::about("c", Unit::More, 0.53);
        assert_eq!(more.judge(&gains(&[1.5]), None).finding, Finding::Holds);
        assert_eq!(
            (more.paper, more.unit.text(-0.1, 0.2)),
            ("about +53 %".to_owned(), "−10 to +20 %".into())
        );
    }

    #[test]
    fn overlapping_spreads_are_no_difference() {
        let (a, b) = (Measured::new(10.0, 9.0, 12.0), Measured::new(11.0, 10.5, 13.0));
        assert!(!a.differs(b) && Measured::exact(1.0).differs(Measured::exact(1.1)));
        assert!(!Gain::of(a, b, Better::Less).unwrap().clear);
        assert_eq!(
            Gain::of(a, Measured::exact(20.0), Better::Less).unwrap(),
            Gain { times: 2.0, clear: true }
        );
        assert_eq!(Gain::of(a, Measured::exact(20.0), Better::More).unwrap().times, 0.5);
        assert_eq!(Gain::of(Measured::exact(0.0), a, Better::Less), None);
        assert_eq!(place(a, [b], Better::Less), Some(Place::First));
        assert_eq!(place(b, [a], Better::Less), Some(Place::Tied));
        assert_eq!(place(b, [a, Measured::exact(1.0)], Better::Less), Some(Place::Behind));
        assert_eq!(place(b, [a, Measured::exact(1.0)], Better::More), Some(Place::First));
        assert_eq!(place(b, [], Better::More), None);
    }

    #[test]
    fn the_first_everywhere_is_an_order() {
        use Place::*;
        let finding = |places: &[Place]| first_at_all("c", places).finding;
        assert_eq!(finding(&[]), Finding::Open);
        assert_eq!(finding(&[Tied, Tied]), Finding::Open);
        assert_eq!(finding(&[First, Tied, First]), Finding::Holds);
        assert_eq!(finding(&[First, First, Behind]), Finding::Partly);
        assert_eq!(finding(&[Behind, Behind, First]), Finding::Fails);
        assert_eq!(finding(&[Behind, First]), Finding::Fails, "behind at half of the points is no lead");
        assert_eq!(finding(&[Behind, Tied, First, Behind]), Finding::Fails);
        assert_eq!(first_at_all("c", &[First, Tied]).ours, "first at 1 of 2, within the spread at 1");
    }

    #[test]
    fn no_change_and_growth() {
        let finding = |times| unchanged("c", "< 1 %", &gains(&[times]), 0.05).finding;
        assert_eq!(
            (finding(1.01), finding(0.9), finding(2.0)),
            (Finding::Holds, Finding::Partly, Finding::Fails)
        );
        let noisy = unchanged("c", "< 1 %", &[Gain { times: 1.3, clear: false }], 0.05);
        assert_eq!((noisy.finding, &noisy.ours[..]), (Finding::Holds, "+30 %"));
        assert_eq!(alike("c", "equal", &gains(&[1.2])).finding, Finding::Holds);
        assert_eq!(alike("c", "equal", &gains(&[0.3])).finding, Finding::Partly);
        assert_eq!(
            (grows(&[1.0, 0.97, 2.0]), grows(&[1.0, 0.9, 2.0]), grows(&[1.0])),
            (Some(true), Some(false), None)
        );
        assert_eq!(grows(&[2.0, 2.0]), Some(false));
    }
}
