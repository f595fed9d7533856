//! Views of rates: means over sets of keys, compared with theory and the paper's numbers.

use super::functions::Function;
use super::rates::{BITS, FUNCTIONS, RateRow, SEEDS, What, doubled, rotated};
use super::rows::percent;
use super::timing::mean_and_error;
use super::{DOUBLE_FUNCTIONS, UNIT_FUNCTIONS};
use crate::figures::{Axis, Bar, Kind, Panel, Point, Series, Sheet, Verdict, View};

/// The paper's rate of all seven functions together (Table 2).
const PAPER_ALL: f64 = 0.008_99;
/// The paper's mean over the functions with rotation (Table 2).
const PAPER_ONE: f64 = 0.008_48;

/// Tolerated deviation of a mean in standard errors; allows for looking at about ten means.
const ERRORS: f64 = 3.5;
/// Share of the theoretical rate that is irrelevant in practice.
const CLOSE: f64 = 0.05;
/// Below this number of expected false positives, chance dominates.
const ENOUGH: f64 = 1000.0;

/// One series at one number of bits over all sets.
#[derive(Clone, Debug)]
struct Mean {
    hashes: String,
    bits: f64,
    probes: u32,
    theory: f64,
    rate: f64,
    /// Standard error of the rate: by the differences between sets, or by counting for a single one.
    error: f64,
    queries: f64,
    spread: (f64, f64),
}

impl Mean {
    /// Returns means by hashes and bits, in order of first appearance.
    fn all(rows: &[RateRow]) -> Vec<Mean> {
        let mut groups: Vec<(&RateRow, Vec<f64>, f64)> = Vec::new();
        for row in rows.iter().filter(|row| row.queries > 0) {
            let rate = row.positives as f64 / row.queries as f64;
            match groups.iter_mut().find(|(of, ..)| of.hashes == row.hashes && of.bits == row.bits) {
                Some((_, rates, queries)) => {
                    rates.push(rate);
                    *queries += row.queries as f64;
                }
                None => groups.push((row, vec![rate], row.queries as f64)),
            }
        }
        let mean = |(of, rates, queries): (&RateRow, Vec<f64>, f64)| {
            let (rate, error) = mean_and_error(&rates);
            // The error of few sets is itself uncertain, but no smaller than that of counting.
            let counting = (of.theory / queries).sqrt();
            Mean {
                hashes: of.hashes.clone(),
                bits: of.bits,
                probes: of.probes,
                theory: of.theory,
                rate,
                error: error.unwrap_or(counting).max(counting),
                queries,
                spread: rates.iter().fold((f64::INFINITY, 0.0), |(low, high), &r| (low.min(r), high.max(r))),
            }
        };
        groups.into_iter().map(mean).collect()
    }

    /// Reports whether chance or irrelevance explains the deviation from the target.
    fn near(&self, target: f64) -> bool {
        (self.rate - target).abs() <= (ERRORS * self.error).max(CLOSE * target)
    }

    fn text(&self) -> String {
        format!("{} ±{:.3}", percent(self.rate), self.error * 100.0)
    }

    fn is_rotation(&self) -> bool {
        self.hashes.ends_with("+ rotation")
    }
}

/// Returns panels, sheets and verdicts of rows of one of the three figures.
pub(super) fn view(what: What, rows: &[RateRow]) -> View {
    let means = Mean::all(rows);
    match what {
        What::Table2 => table_2(&means),
        What::Figure3 => figure_3(&means),
        What::Table3 => table_3(&means),
    }
}

fn paper_of(hashes: &str, table: &[(String, f64)]) -> Option<f64> {
    table.iter().find(|(name, _)| name == hashes).map(|&(_, rate)| rate)
}

/// Returns rates and the paper's as bars and as a table.
fn table(title: &str, means: &[Mean], paper: &[(String, f64)]) -> (Vec<Panel>, Vec<Sheet>) {
    let mut sheet = Sheet::new(title, &["<hashes", "paper", "here", "theory", "queries"]);
    let mut groups = Vec::new();
    for mean in means {
        let paper = paper_of(&mean.hashes, paper);
        let queries = tamis_bench::report::grouped(mean.queries as u64);
        let text = paper.map_or("–".to_owned(), percent);
        sheet.row([mean.hashes.clone(), text, mean.text(), percent(mean.theory), queries]);
        let bar = |name: &str, rate: f64, spread: Option<(f64, f64)>| {
            let spread = spread.map(|(low, high)| (low * 100.0, high * 100.0));
            Bar { name: name.to_owned(), parts: vec![rate * 100.0], spread }
        };
        let paper = paper.map(|rate| bar("paper", rate, None));
        groups.push((
            mean.hashes.clone(),
            paper.into_iter().chain([bar("here", mean.rate, Some(mean.spread))]).collect(),
        ));
    }
    let panels = (!groups.is_empty()).then(|| Panel {
        title: "false positives at 10 bits per key".into(),
        x: Axis::new("hashes", ""),
        y: Axis::new("false positives", "%"),
        kind: Kind::Bars { parts: vec!["false positives".into()], groups },
    });
    (panels.into_iter().collect(), vec![sheet])
}

fn table_2(means: &[Mean]) -> View {
    let means: Vec<Mean> = means.iter().filter(|mean| mean.bits == BITS).cloned().collect();
    let mut paper: Vec<(String, f64)> =
        Function::SEVEN.iter().filter_map(|&f| Some((rotated(f), f.paper_rate()?))).collect();
    paper.push((FUNCTIONS.into(), PAPER_ALL));
    let (panels, sheets) = table("False positives of one filter, 10 bits per key", &means, &paper);

    let rotations: Vec<&Mean> = means.iter().filter(|mean| mean.is_rotation()).collect();
    let mut near = Verdict::open(
        "One digest and rotation is near theory with every function",
        "0.794–0.921 % with 0.819 % by theory",
    );
    let mut no_worse = Verdict::open(
        "Rotation has no more false positives than seven functions",
        "0.848 % with one on average, 0.899 % with all seven",
    );
    if let Some(first) = rotations.first() {
        let low = rotations.iter().map(|mean| mean.rate).fold(f64::INFINITY, f64::min);
        let high = rotations.iter().map(|mean| mean.rate).fold(0.0, f64::max);
        let one = rotations.iter().map(|mean| mean.rate).sum::<f64>() / rotations.len() as f64;
        let agrees = rotations.iter().all(|mean| mean.near(mean.theory));
        let text = format!("{}–{} with {} by theory", percent(low), percent(high), percent(first.theory));
        near = near.with(text, Some(agrees), None, Some(one / PAPER_ONE));
        if let Some(seven) = means.iter().find(|mean| mean.hashes == FUNCTIONS) {
            let slack = (ERRORS * seven.error).max(CLOSE * seven.theory);
            let text =
                format!("{} with one on average, {} with all seven", percent(one), percent(seven.rate));
            let ratio = one / seven.rate / (PAPER_ONE / PAPER_ALL);
            no_worse = no_worse.with(text, Some(one <= seven.rate + slack), None, Some(ratio));
        }
    }
    View { panels, sheets, verdicts: vec![near, no_worse] }
}

fn figure_3(means: &[Mean]) -> View {
    let mut names: Vec<&str> = Vec::new();
    let mut bits: Vec<f64> = Vec::new();
    for mean in means {
        if !names.contains(&mean.hashes.as_str()) {
            names.push(&mean.hashes);
        }
        if !bits.contains(&mean.bits) {
            bits.push(mean.bits);
        }
    }
    bits.sort_by(f64::total_cmp);
    let at = |name: &str, bits: f64| means.iter().find(|mean| mean.hashes == name && mean.bits == bits);
    let theory_at = |bits: f64| means.iter().find(|mean| mean.bits == bits);

    let columns: Vec<&str> = ["bits", "probes", "theory"].into_iter().chain(names.iter().copied()).collect();
    let mut sheet = Sheet::new("False positives over bits per key", &columns);
    for &bits in &bits {
        let Some(theory) = theory_at(bits) else { continue };
        let cells = [bits.to_string(), theory.probes.to_string(), percent(theory.theory)];
        let rates =
            names.iter().map(|name| at(name, bits).map_or("–".to_owned(), |mean| percent(mean.rate)));
        sheet.row(cells.into_iter().chain(rates));
    }
    let theory = bits.iter().filter_map(|&bits| Some(Point::new(bits, theory_at(bits)?.theory))).collect();
    let mut series = vec![Series { name: "theory".into(), points: theory }];
    series.extend(names.iter().map(|name| {
        let point = |&bits: &f64| {
            let mean = at(name, bits)?;
            Some(Point { x: bits, y: mean.rate, spread: Some(mean.spread) })
        };
        Series { name: (*name).to_owned(), points: bits.iter().filter_map(point).collect() }
    }));
    let panel = Panel {
        title: "false positives over bits per key".into(),
        x: Axis::new("bits per key", ""),
        y: Axis::new("rate of false positives", "").log(),
        kind: Kind::Lines(series),
    };

    let mut follows = Verdict::open(
        "One digest and rotation follows theory at every number of bits",
        "curves coincide, 1–13 bits",
    );
    let mut as_functions = Verdict::open("It has the false positives of k functions", "curves coincide");
    let rotations = || means.iter().filter(|mean| mean.is_rotation());
    let away = |mean: &Mean| mean.rate / mean.theory - 1.0;
    let told = rotations().filter(|mean| mean.theory * mean.queries >= ENOUGH);
    if let (Some(worst), Some(most)) =
        (told.max_by(|a, b| away(a).abs().total_cmp(&away(b).abs())), bits.last())
    {
        let text = format!(
            "{}–{most} bits; furthest {:+.1} % of the rate ({}, {} bits)",
            bits[0],
            away(worst) * 100.0,
            worst.hashes,
            worst.bits
        );
        let agrees = rotations().all(|mean| mean.near(mean.theory));
        follows = follows.with(text, Some(agrees), None, Some(1.0 + away(worst)));
    }
    let pairs: Vec<(f64, &Mean, &Mean)> = rotations()
        .filter_map(|one| Some((one.rate, one, at(FUNCTIONS, one.bits).or_else(|| at(SEEDS, one.bits))?)))
        .filter(|(_, one, many)| one.theory * one.queries.min(many.queries) >= ENOUGH && many.rate > 0.0)
        .collect();
    if !pairs.is_empty() {
        let ratio = pairs.iter().map(|(rate, _, many)| rate / many.rate).sum::<f64>() / pairs.len() as f64;
        let agrees = pairs.iter().all(|(rate, one, many)| {
            let error = one.error.hypot(many.error);
            (rate - many.rate).abs() <= (ERRORS * error).max(CLOSE * one.theory)
        });
        as_functions = as_functions.with(format!("{ratio:.3}× on average"), Some(agrees), None, Some(ratio));
    }
    let panels = if bits.is_empty() { Vec::new() } else { vec![panel] };
    View { panels, sheets: vec![sheet], verdicts: vec![follows, as_functions] }
}

fn table_3(means: &[Mean]) -> View {
    let rotated: Vec<(String, f64)> = UNIT_FUNCTIONS.iter().map(|&(f, rate)| (rotated(f), rate)).collect();
    let doubled: Vec<(String, f64)> = DOUBLE_FUNCTIONS.iter().map(|&(f, rate)| (doubled(f), rate)).collect();
    let paper: Vec<(String, f64)> = rotated.iter().chain(&doubled).cloned().collect();
    let (panels, sheets) =
        table("False positives of seven units of one probe, 10 bits per key in all", means, &paper);

    let mean_of = |table: &[(String, f64)]| {
        let found: Vec<f64> = table
            .iter()
            .filter_map(|(name, _)| Some(means.iter().find(|mean| mean.hashes == *name)?.rate))
            .collect();
        (found.len() == table.len()).then(|| found.iter().sum::<f64>() / found.len() as f64)
    };
    let of_paper =
        |table: &[(String, f64)]| table.iter().map(|(_, rate)| rate).sum::<f64>() / table.len() as f64;
    let mut alike = Verdict::open(
        "In seven units, rotation has the false positives of double hashing, and both those of a standard filter",
        "0.850 % and 0.804 % on average",
    );
    if let (Some(rotation), Some(double)) = (mean_of(&rotated), mean_of(&doubled)) {
        let agrees = means.iter().all(|mean| mean.near(mean.theory));
        let text = format!("{} and {} on average", percent(rotation), percent(double));
        let ratio = rotation / double / (of_paper(&rotated) / of_paper(&doubled));
        alike = alike.with(text, Some(agrees), None, Some(ratio));
    }
    View { panels, sheets, verdicts: vec![alike] }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::figures::Finding;
    use crate::figures::trial::Trial;
    use crate::hash_functions::rates::KIND;
    use crate::hash_functions::rows::row;

    fn rows(hashes: &str, bits: f64, rates: &[f64]) -> Vec<RateRow> {
        let theory = tamis_filter::theory::bloom_rate(bits, 7);
        let row = |(set, rate): (usize, &f64)| RateRow {
            hashes: hashes.into(),
            units: false,
            bits,
            probes: 7,
            theory,
            keys: 10_000,
            key_bytes: 512,
            set: set as u64,
            queries: 1_000_000,
            positives: (rate * 1e6) as u64,
        };
        rates.iter().enumerate().map(row).collect()
    }

    /// Turned round, rotation has half as many false positives again.
    pub(in crate::hash_functions) fn trial(what: What) -> Trial {
        let rotations = UNIT_FUNCTIONS.iter().map(|&(f, _)| rotated(f)).collect::<Vec<_>>();
        let others = match what {
            What::Table3 => DOUBLE_FUNCTIONS.iter().map(|&(f, _)| doubled(f)).collect(),
            What::Table2 | What::Figure3 => vec![FUNCTIONS.to_owned()],
        };
        let made = |rotated: [f64; 2]| {
            let ours = rotations.iter().flat_map(|name| rows(name, 10.0, &rotated));
            let theirs = others.iter().flat_map(|name| rows(name, 10.0, &[0.0082, 0.0081]));
            ours.chain(theirs).map(|made| row(KIND, &made)).collect()
        };
        Trial { good: made([0.0082, 0.0083]), bad: vec![made([0.0123, 0.0124])] }
    }

    #[test]
    fn a_mean_is_near_if_chance_or_irrelevance_explains_the_deviation() {
        let mean = |rates: &[f64]| Mean::all(&rows("x", 10.0, rates)).remove(0);
        assert!(mean(&[0.0085, 0.0085]).near(0.0082), "within 5 %");
        assert!(mean(&[0.0090, 0.0100]).near(0.0082), "within the error");
        assert!(!mean(&[0.0095, 0.0095]).near(0.0082));
        assert!(!mean(&[0.0095]).near(0.0082), "one set: the error of counting is small");
    }

    #[test]
    fn verdicts_follow_from_rates() {
        let good = [rows("MM + rotation", 10.0, &[0.0082, 0.0083]), rows(FUNCTIONS, 10.0, &[0.0082, 0.0081])]
            .concat();
        let view = view(What::Table2, &good);
        assert!(view.verdicts.iter().all(|verdict| verdict.finding == Finding::Holds), "{:?}", view.verdicts);
        assert_eq!(view.sheets[0].rows[0][2], "0.825 % ±0.006");
        let bad = [rows("MM + rotation", 10.0, &[0.0120, 0.0121]), rows(FUNCTIONS, 10.0, &[0.0082, 0.0081])]
            .concat();
        for what in [What::Table2, What::Figure3] {
            let view = super::view(what, &bad);
            assert!(
                view.verdicts.iter().all(|verdict| verdict.finding == Finding::Fails),
                "{:?}",
                view.verdicts
            );
        }
    }

    #[test]
    fn units_are_compared_where_none_is_missing() {
        let all: Vec<RateRow> = UNIT_FUNCTIONS
            .iter()
            .map(|&(f, _)| rotated(f))
            .chain(DOUBLE_FUNCTIONS.iter().map(|&(f, _)| doubled(f)))
            .flat_map(|name| rows(&name, 10.0, &[0.0081, 0.0083]))
            .collect();
        assert_eq!(view(What::Table3, &all).verdicts[0].finding, Finding::Holds);
        assert_eq!(view(What::Table3, &all[..6]).verdicts[0].finding, Finding::Open);
    }
}
