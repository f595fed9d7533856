//! Whether what was measured says what the paper says.

use serde::Serialize;

use super::functions::Function;
use super::rates::{BITS, DOUBLE_FUNCTIONS, Mean, Rates, UNIT_FUNCTIONS};
use super::times::{SIZES, Times};
use crate::report::rate;
use crate::stats::{Spread, agreeing_pairs};

/// The paper's rate of all seven functions together (Table 2).
pub const PAPER_ALL: f64 = 0.008_99;

/// A claim of the paper and whether it holds here.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// Where the paper says it.
    pub figure: &'static str,
    /// What it says.
    pub claim: &'static str,
    /// Its numbers.
    pub paper: &'static str,
    /// Ours.
    pub here: String,
    /// Whether they say the same.
    pub verdict: Agreement,
}

/// How far numbers agree with the paper's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Agreement {
    /// The claim holds.
    Same,
    /// The direction is the same, the size is not.
    Weaker,
    /// The claim does not hold here.
    Different,
}

impl Agreement {
    fn if_holds(holds: bool) -> Self {
        if holds { Agreement::Same } else { Agreement::Different }
    }

    /// What tables call it.
    pub fn text(self) -> &'static str {
        match self {
            Agreement::Same => "same",
            Agreement::Weaker => "same direction, weaker",
            Agreement::Different => "DIFFERENT",
        }
    }
}

/// Standard errors that a mean may lie from what it should be, of some ten means that are looked at together.
const ERRORS: f64 = 3.5;
/// Share of the theoretical rate that does not matter in practice.
const CLOSE: f64 = 0.05;

fn near(mean: &Mean, target: f64) -> bool {
    // Of few sets of keys the error is itself uncertain, but no smaller than that of counting.
    let counting = (target / mean.queries as f64).sqrt();
    (mean.rate - target).abs() <= (ERRORS * mean.error.max(counting)).max(CLOSE * target)
}

/// All verdicts.
pub fn all(rates: &Rates, times: &Times) -> Vec<Verdict> {
    let mut verdicts = vec![costs(times), fast_enough(times)];
    verdicts.extend(ten_bits(rates));
    verdicts.push(curve(rates));
    verdicts.push(units(rates));
    verdicts.extend(lookups(times));
    verdicts
}

fn costs(times: &Times) -> Verdict {
    let known = Function::SEVEN.iter().filter_map(|&f| Some((f.paper_ns()?, times.hash[f as usize].median)));
    let (paper, here): (Vec<f64>, Vec<f64>) = known.unzip();
    let (agreeing, pairs) = agreeing_pairs(&paper, &here);
    let mut order: Vec<Function> = Function::SEVEN.into_iter().filter(|f| f.paper_ns().is_some()).collect();
    order.sort_by(|a, b| times.hash[*a as usize].median.total_cmp(&times.hash[*b as usize].median));
    let order: Vec<&str> = order.iter().map(|function| function.name()).collect();
    Verdict {
        figure: "Table 1",
        claim: "order of the functions by cost",
        paper: "CITY < MM64 < CRC < XX < MD5 < SHA-256",
        here: format!("{}: {agreeing} of {pairs} pairs alike", order.join(" < ")),
        verdict: Agreement::if_holds(agreeing == pairs),
    }
}

fn fast_enough(times: &Times) -> Verdict {
    let cost = times.hash[Function::Mm64 as usize].median / times.memory.median;
    Verdict {
        figure: "Table 1",
        claim: "hashing 1 KB costs as much as reading a page of memory, within a factor of ten",
        paper: "MM64 1.47 times 4 KB from memory",
        here: format!("{cost:.2} times"),
        verdict: Agreement::if_holds((0.1..10.0).contains(&cost)),
    }
}

fn ten_bits(rates: &Rates) -> Vec<Verdict> {
    let Some(row) = rates.bits.get(BITS as usize - 1) else { return Vec::new() };
    let low = row.rotation.iter().map(|mean| mean.rate).fold(f64::INFINITY, f64::min);
    let high = row.rotation.iter().map(|mean| mean.rate).fold(0.0, f64::max);
    let mut verdicts = vec![Verdict {
        figure: "Table 2",
        claim: "one digest and rotation is near theory with every function",
        paper: "0.794 to 0.921 % for 0.819 %",
        here: format!("{} to {}", rate(low), rate(high)),
        verdict: Agreement::if_holds(row.rotation.iter().all(|mean| near(mean, row.theory))),
    }];
    if let Some(seven) = row.seven {
        let one = row.rotation.iter().map(|mean| mean.rate).sum::<f64>() / row.rotation.len() as f64;
        verdicts.push(Verdict {
            figure: "Table 2",
            claim: "rotation errs no more than seven functions do",
            paper: "0.899 % with all seven, 0.851 % with one on average",
            here: format!("{} with all seven, {} with one on average", rate(seven.rate), rate(one)),
            verdict: Agreement::if_holds(one <= seven.rate + (ERRORS * seven.error).max(CLOSE * row.theory)),
        });
    }
    verdicts
}

fn curve(rates: &Rates) -> Verdict {
    // Where fewer than a thousand false positives are expected, chance rules.
    let mut worst: (f64, u32, &str) = (0.0, 0, "");
    let mut agrees = true;
    for row in &rates.bits {
        for (mean, function) in row.rotation.iter().zip(Function::ALL) {
            agrees &= near(mean, row.theory);
            let away = mean.rate / row.theory - 1.0;
            if row.theory * mean.queries as f64 >= 1_000.0 && away.abs() > worst.0.abs() {
                worst = (away, row.bits, function.name());
            }
        }
    }
    let (away, bits, name) = worst;
    Verdict {
        figure: "Figure 3",
        claim: "one digest and rotation follows theory at every size",
        paper: "curves that lie on each other, 1 to 13 bits",
        here: format!(
            "1 to {} bits; furthest {:+.1} % ({name}, {bits} bits)",
            rates.bits.len(),
            away * 100.0
        ),
        verdict: Agreement::if_holds(agrees),
    }
}

fn units(rates: &Rates) -> Verdict {
    let theory = rates.bits.get(BITS as usize - 1).map_or(f64::NAN, |row| row.theory);
    let mean = |rates: &mut dyn Iterator<Item = f64>, count: usize| rates.sum::<f64>() / count as f64;
    let rotation = mean(&mut rates.units_rotation.iter().map(|(_, mean)| mean.rate), UNIT_FUNCTIONS.len());
    let double = mean(&mut rates.units_double.iter().map(|(_, mean)| mean.rate), DOUBLE_FUNCTIONS.len());
    let means = rates.units_rotation.iter().map(|(_, m)| m).chain(rates.units_double.iter().map(|(_, m)| m));
    Verdict {
        figure: "Table 3",
        claim: "in seven units rotation errs like double hashing, and both like a standard filter",
        paper: "0.850 % and 0.804 % on average",
        here: format!("{} and {}", rate(rotation), rate(double)),
        verdict: Agreement::if_holds(means.into_iter().all(|mean| near(mean, theory))),
    }
}

fn lookups(times: &Times) -> Vec<Verdict> {
    let series = |group: &[(String, Vec<Spread>)], name: &str| -> Option<Vec<f64>> {
        let (_, spreads) = group.iter().find(|(of, _)| of == name)?;
        Some(spreads.iter().map(|spread| spread.median).collect())
    };
    let mut verdicts = Vec::new();
    let single = |name| series(&times.single, name);
    if let (Some(seven), Some(md5), Some(mm64)) =
        (single("seven hashes"), single("MD5 + rotation"), single("MM64 + rotation"))
    {
        let last = SIZES.len() - 1;
        let ratio = |at: usize| seven[at] / mm64[at];
        verdicts.push(Verdict {
            figure: "Figure 4",
            claim: "one hash is far cheaper than seven, a fast one more so, and a lookup grows with the key",
            paper: "seven > MD5 + rotation > MM64 + rotation at all sizes (bars)",
            here: format!(
                "seven cost {:.0} times MM64 + rotation at 8 B, {:.0} times at 1 KB; MD5 {:.0} and {:.0} times",
                ratio(0),
                ratio(last),
                md5[0] / mm64[0],
                md5[last] / mm64[last]
            ),
            verdict: Agreement::if_holds((0..SIZES.len()).all(|at| seven[at] > md5[at] && md5[at] > mm64[at])
                && seven[last] > seven[0]
                && mm64[last] > mm64[0]),
        });
    }
    let units = |name: &str| series(&times.units, name);
    let doubles: Vec<Vec<f64>> =
        DOUBLE_FUNCTIONS.iter().filter_map(|(f, _)| units(&format!("{} + MM64", f.name()))).collect();
    if let Some(rotation) = units("MM64 + rotation") {
        let ratios =
            doubles.iter().flat_map(|times| times.iter().zip(&rotation).map(|(double, one)| double / one));
        let (low, high) = ratios.fold((f64::INFINITY, 0.0f64), |(low, high), r| (low.min(r), high.max(r)));
        verdicts.push(Verdict {
            figure: "Figure 5",
            claim: "rotation is faster than double hashing",
            paper: "up to 3 times",
            here: format!("{low:.2} to {high:.2} times"),
            verdict: match () {
                () if low > 0.95 && high >= 2.5 => Agreement::Same,
                () if low > 0.95 && high > 1.2 => Agreement::Weaker,
                () => Agreement::Different,
            },
        });
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_is_near_if_chance_or_irrelevance_explains_it() {
        assert!(near(&Mean { rate: 0.0085, error: 0.0001, queries: 1_000_000 }, 0.0082), "within 5 %");
        assert!(near(&Mean { rate: 0.0095, error: 0.0005, queries: 1_000_000 }, 0.0082), "within the error");
        assert!(!near(&Mean { rate: 0.0095, error: 0.0001, queries: 1_000_000 }, 0.0082));
        assert!(
            near(&Mean { rate: 0.0095, error: 0.0, queries: 10_000 }, 0.0082),
            "within what counting can tell"
        );
    }
}
