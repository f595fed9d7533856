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

/// Relative difference of filter memory from which a side is not compared at equal memory.
pub const SAME_MEMORY: f64 = 0.02;

/// Returns the filter bits per key of the first side that has a filter, with which the others are compared; 0 if none has.
pub fn first_memory(bits: impl IntoIterator<Item = f64>) -> f64 {
    bits.into_iter().find(|&bits| bits > 0.0).unwrap_or(0.0)
}

/// Reports whether a side's filter bits per key, with all that the filter keeps in memory, are others than the first side's.
pub fn other_memory(bits: f64, first: f64) -> bool {
    let same = 1.0 - SAME_MEMORY..=1.0 + SAME_MEMORY;
    bits > 0.0 && first > 0.0 && !same.contains(&(bits / first))
}

/// Formats a side's filter bits per key beside its times, marked if they are others than the first side's.
pub fn memory(bits: f64, first: f64) -> String {
    match bits {
        bits if bits > 0.0 => format!("{bits:.2}{}", if other_memory(bits, first) { " ≠" } else { "" }),
        _ => "-".to_owned(),
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
        *verdict = verdict.clone().noting(&note);
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

/// The factor by which one side is better than another: 2 is twice as good, 0.5 half as good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    /// By the medians.
    pub times: f64,
    /// The least factor that the spreads permit.
    pub least: f64,
    /// The largest one.
    pub most: f64,
}

impl Gain {
    /// Returns our gain over theirs; `None` unless both are above 0.
    pub fn of(ours: Measured, theirs: Measured, better: Better) -> Option<Gain> {
        let gain = match better {
            Better::Less => theirs.by(ours),
            Better::More => ours.by(theirs),
        };
        let sound = ours.value > 0.0 && theirs.value > 0.0 && gain.value.is_finite();
        sound.then_some(Gain { times: gain.value, least: gain.least, most: gain.most })
    }

    /// Reports whether the two differ by more than their spreads.
    pub fn clear(self) -> bool {
        self.most < 1.0 || self.least > 1.0
    }

    /// Reports whether ours is worse by more than the spreads.
    fn is_worse(self) -> bool {
        self.most < 1.0
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
    tolerance: f64,
    paper: String,
}

impl Claim {
    /// Creates a claim of a range.
    pub fn range(text: impl Into<String>, unit: Unit, from: f64, to: f64) -> Claim {
        let tolerance = Verdict::NEAR_RANGE;
        Claim { text: text.into(), unit, from, to, tolerance, paper: unit.text(from, to) }
    }

    /// Creates a claim of a single number.
    pub fn about(text: impl Into<String>, unit: Unit, number: f64) -> Claim {
        let paper = format!("about {}", unit.text(number, number));
        Claim { paper, tolerance: Verdict::SAME_SIZE, ..Claim::range(text, unit, number, number) }
    }

    /// Reports whether a gain has the paper's size: within its range, or within a factor of the nearer end. What exceeds 1
    /// is compared, so that 1.4 times is not the size of twice.
    fn sizes(&self, times: f64) -> bool {
        let one = if self.unit == Unit::Times { 1.0 } else { 0.0 };
        let (ours, from, to) = (self.unit.number(times) - one, self.from - one, self.to - one);
        (from / self.tolerance..=to * self.tolerance).contains(&ours)
    }

    /// Judges the claim by the gains; `order` applies where the claim has one. The size is that of the median gain. A claim
    /// does not hold that is clearly turned round at some of the points, and fails if it is at half of them.
    pub fn judge(&self, gains: &[Gain], order: Option<bool>) -> Verdict {
        let open = Verdict::open(&self.text, &self.paper);
        let Some(times) = median(gains.iter().map(|gain| gain.times)) else { return open };
        let (least, most) = extremes(gains);
        let ours = self.unit.text(self.unit.number(least), self.unit.number(most));
        let ratio = self.unit.number(times) / ((self.from + self.to) / 2.0);
        let mut verdict = weighed(open, ours, gains, order, Some(self.sizes(times)));
        verdict.ratio = Some(ratio).filter(|ratio| ratio.is_finite());
        verdict
    }
}

/// Judges a claim about a direction without a number, by the rule of [`Claim::judge`].
pub fn more(text: impl Into<String>, gains: &[Gain]) -> Verdict {
    let open = Verdict::open(text, "yes");
    if gains.is_empty() { open } else { weighed(open, span(gains), gains, None, None) }
}

/// Judges that gains are above 1; there is at least one.
fn weighed(open: Verdict, ours: String, gains: &[Gain], order: Option<bool>, sized: Option<bool>) -> Verdict {
    if !gains.iter().any(|gain| gain.clear()) {
        return open.undecided(ours, None);
    }
    let above = median(gains.iter().map(|gain| gain.times)).is_some_and(|times| times > 1.0);
    let worse = gains.iter().filter(|gain| gain.is_worse()).count();
    let within = gains.iter().filter(|gain| !gain.clear()).count();
    let mut verdict = open.with_size(ours, Some(above && 2 * worse < gains.len()), order, sized);
    if verdict.finding == Finding::Holds && (worse > 0 || 2 * within > gains.len()) {
        verdict.finding = Finding::Partly;
    }
    if worse > 0 {
        verdict.note = format!("The opposite at {worse} of {} points.", gains.len());
    } else if 2 * within > gains.len() {
        verdict.note = format!("Within the spreads at {within} of {} points.", gains.len());
    }
    verdict
}

/// The quotients that count as equality.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alike {
    /// The least one.
    pub from: f64,
    /// The largest one.
    pub to: f64,
}

impl Alike {
    /// A paper's "about equal" without a number: what a picture of bars shows as equal.
    pub const ABOUT: Alike = Alike::within(0.1);

    /// A paper's "no change" without a number.
    pub const UNCHANGED: Alike = Alike::within(0.05);

    /// A difference of at most this share in either direction.
    pub const fn within(share: f64) -> Alike {
        Alike { from: 1.0 / (1.0 + share), to: 1.0 + share }
    }

    /// Returns the quotients beyond which sides are clearly not alike: twice as far from 1.
    fn doubled(self) -> Alike {
        Alike { from: self.from * self.from, to: self.to * self.to }
    }

    fn has(self, times: f64) -> bool {
        (self.from..=self.to).contains(&times)
    }

    /// Reports whether the whole spread is outside.
    fn excludes(self, least: f64, most: f64) -> bool {
        most < self.from || least > self.to
    }

    /// Judges a claim of equality by the median quotient: holds within these limits, partly within twice as far, else
    /// fails. It also fails if half of the points are clearly outside twice the limits, in whatever directions, and does not
    /// hold if one is. It is open where the rounds differ so much that they permit another finding.
    pub fn judge(self, text: impl Into<String>, paper: &str, gains: &[Gain]) -> Verdict {
        let open = Verdict::open(text, paper);
        let middle = |of: fn(&Gain) -> f64| median(gains.iter().map(of));
        let (Some(times), Some(least), Some(most)) =
            (middle(|gain| gain.times), middle(|gain| gain.least), middle(|gain| gain.most))
        else {
            return open;
        };
        let far = self.doubled();
        let outside = gains.iter().filter(|gain| far.excludes(gain.least, gain.most)).count();
        let mut verdict = Verdict { ours: span(gains), ratio: Some(times), ..open };
        verdict.finding = match (self.has(times), far.has(times)) {
            _ if 2 * outside >= gains.len() => Finding::Fails,
            (true, _) if !(far.has(least) && far.has(most)) => Finding::Open,
            (true, _) if outside == 0 => Finding::Holds,
            (true, _) => Finding::Partly,
            (false, true) if self.excludes(least, most) => Finding::Partly,
            (false, false) if far.excludes(least, most) => Finding::Fails,
            _ => Finding::Open,
        };
        match (verdict.finding, outside) {
            (Finding::Open, _) => verdict.noting("The rounds differ by more than the claim allows."),
            (_, 0) => verdict,
            (_, outside) => {
                verdict.noting(format!("Clearly not alike at {outside} of {} points.", gains.len()))
            }
        }
    }
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
    let (least, most) = extremes(gains);
    if gains.is_empty() { String::new() } else { Unit::Times.text(least, most) }
}

fn extremes(gains: &[Gain]) -> (f64, f64) {
    let times = || gains.iter().map(|gain| gain.times);
    (times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max))
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
        times.iter().map(|&times| exact(times)).collect()
    }

    fn exact(times: f64) -> Gain {
        Gain { times, least: times, most: times }
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
            (1.85, Finding::Holds),
            (1.5, Finding::Partly),
            (13.0, Finding::Partly),
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
        let unclear = claim.judge(&[Gain { times: 3.0, least: 0.9, most: 9.0 }], None);
        assert_eq!((unclear.finding, &unclear.ours[..]), (Finding::Open, "3.00×"));
        assert!(unclear.note.contains("spread"));
        // Twice as fast is not 1.4 times as fast, although the two are less than a factor of 1.5 apart.
        let narrow = Claim::range("c", Unit::Times, 2.08, 2.17);
        let finding = |times| narrow.judge(&gains(&[times]), None).finding;
        assert_eq!([2.1, 1.9, 1.4].map(finding), [Finding::Holds, Finding::Holds, Finding::Partly]);
        let about = Claim::about("c", Unit::Times, 10.0);
        assert_eq!(about.judge(&gains(&[7.5]), None).finding, Finding::Holds);
        assert_eq!(about.judge(&gains(&[5.0]), None).finding, Finding::Partly);
    }

    #[test]
    fn a_direction_fails_where_half_of_the_points_are_turned_round() {
        let finding = |times: &[f64]| more("c", &gains(times)).finding;
        assert_eq!(finding(&[]), Finding::Open);
        assert_eq!(finding(&[1.0]), Finding::Open, "no difference");
        assert_eq!(finding(&[1.2, 3.0]), Finding::Holds);
        assert_eq!(finding(&[1.2, 3.0, 0.9]), Finding::Partly);
        assert_eq!(finding(&[0.5, 3.0]), Finding::Fails, "a large gain does not outweigh a loss");
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
    fn other_memory_than_the_first_sides_is_marked() {
        let first = first_memory([0.0, 10.0, 14.0]);
        let marked = [10.0, 10.19, 10.21, 9.81, 9.7, 0.0].map(|bits| memory(bits, first));
        assert_eq!(marked, ["10.00", "10.19", "10.21 ≠", "9.81", "9.70 ≠", "-"]);
        assert_eq!((first_memory([]), &memory(9.0, 0.0)[..]), (0.0, "9.00"), "nothing to compare with");
    }

    #[test]
    fn overlapping_spreads_are_no_difference() {
        let (a, b) = (Measured::new(10.0, 9.0, 12.0), Measured::new(11.0, 10.5, 13.0));
        assert!(!a.differs(b) && Measured::exact(1.0).differs(Measured::exact(1.1)));
        assert!(!Gain::of(a, b, Better::Less).unwrap().clear());
        let twice = Gain::of(a, Measured::exact(20.0), Better::Less).unwrap();
        assert_eq!((twice.times, twice.least, twice.most), (2.0, 20.0 / 12.0, 20.0 / 9.0));
        assert!(twice.clear() && !Gain::of(a, a, Better::Less).unwrap().clear());
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
        use Finding::{Fails, Holds, Open, Partly};
        let finding = |gains: &[Gain]| Alike::within(0.05).judge("c", "< 5 %", gains).finding;
        assert_eq!(finding(&[]), Open);
        for (times, found) in
            [(1.01, Holds), (0.96, Holds), (1.09, Partly), (0.92, Partly), (1.2, Fails), (0.3, Fails)]
        {
            assert_eq!(finding(&[exact(times)]), found, "{times}");
        }
        // Rounds that differ so much permit no finding, whatever their median is.
        for times in [1.01, 1.08, 1.3] {
            assert_eq!(finding(&[Gain { times, least: 0.8, most: 1.5 }]), Open, "{times}");
        }
        assert_eq!(finding(&[Gain { times: 1.3, least: 1.2, most: 1.5 }]), Fails);
        // Opposite differences do not cancel out.
        assert_eq!(finding(&gains(&[1.5, 1.5, 1.0, 0.5, 0.5])), Fails);
        assert_eq!(finding(&gains(&[1.5, 1.0, 1.0, 1.0, 0.99])), Partly);
        let narrow = Alike { from: 0.96, to: 1.04 };
        assert_eq!(narrow.judge("c", "0.96–1.04×", &gains(&[1.4])).finding, Fails);
        assert_eq!(
            (grows(&[1.0, 0.97, 2.0]), grows(&[1.0, 0.9, 2.0]), grows(&[1.0])),
            (Some(true), Some(false), None)
        );
        assert_eq!(grows(&[2.0, 2.0]), Some(false));
    }
}
