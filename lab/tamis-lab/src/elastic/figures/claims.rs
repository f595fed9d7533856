//! The paper's claims on each figure, and verdicts on them.
//!
//! Throughput and latency depend on the machine; counters (wasted reads, blocks read, unit loads) do not, and have
//! verdicts of their own where the paper's claim is about I/O. Wasted reads have the spread of the first and the last
//! round, since other gets waste others. Points at which a side keeps no filter in memory are
//! ignored.
//!
//! The paper's hot keys are scattered. Where neighbours are hot together as well, hotness is known better and gains are
//! larger: such points have verdicts of their own, and no verdict pools the two.

use tamis_bench::report::{grouped, mean};

use super::facts::{Facts, blocks, digests, in_vain, probes, rate, time};
use super::sheets::quantile;
use crate::elastic::catalogue::Kind;
use crate::elastic::rounds::TIMED;
use crate::elastic::rows::{ReadRow, TableRow};
use crate::figures::Verdict;
use crate::figures::compare::{
    self, Alike, Better, Claim, Gain, Measured, Place, Unit, first_at_all, grows, median, more, place,
};
use crate::figures::compose::distinct;

/// The paper's "less than 1 %".
const BELOW_1_PERCENT: Alike = Alike::within(0.01);

/// YCSB's skew.
const ZIPF: f64 = 0.99;

/// The locality of hot keys that lie anywhere.
const SCATTERED: u64 = 1;

/// Returns the verdicts of a figure, in the order of the paper's text, those on scattered keys first.
pub(super) fn all(facts: &Facts<'_>) -> Vec<Verdict> {
    let localities = facts.localities();
    match &localities[..] {
        [] | [_] => at_one_locality(facts),
        several => several.iter().flat_map(|&locality| apart(facts, locality)).collect(),
    }
}

/// Returns the verdicts on the points of one locality out of several.
fn apart(facts: &Facts<'_>, locality: u64) -> Vec<Verdict> {
    let mut verdicts = at_one_locality(&facts.at_locality(locality));
    // Parts of the figure that the paper has for scattered keys only.
    verdicts.retain(|verdict| locality == SCATTERED || !verdict.ours.is_empty());
    for verdict in &mut verdicts {
        let which = match locality {
            SCATTERED => "scattered keys".to_owned(),
            _ => format!("{} neighbours hot together, not in the paper", grouped(locality)),
        };
        verdict.claim = format!("{} ({which})", verdict.claim.trim_end_matches('.'));
    }
    verdicts
}

fn at_one_locality(facts: &Facts<'_>) -> Vec<Verdict> {
    let mut verdicts = match facts.experiment.name {
        "elastic-fig2" => levels(facts),
        "elastic-fig3" => parts(facts),
        "elastic-fig6" => by_skew(facts),
        "elastic-fig10" => reads(facts),
        "elastic-fig11" => writes_between(facts),
        "elastic-fig12" => costs(facts),
        "elastic-fig13" => mixes(facts),
        "elastic-fig14" => against_monkey(facts),
        "elastic-fig14-large" => against_monkey_at_large(facts),
        "elastic-fig15" => mixes_against_monkey(facts),
        "elastic-fig16-device" => by_device(facts),
        "elastic-fig16-size" => by_size(facts),
        "elastic-fig16-absent" => by_absent(facts),
        "elastic-fig16-cache" => {
            throughput(facts, "Elastic filters gain with every block cache.", 1.43, 2.08)
        }
        "elastic-fig16-value" => {
            throughput(facts, "Elastic filters gain throughput with every size of values.", 1.99, 2.08)
        }
        "elastic-fig16-unit-size" => by_unit_size(facts),
        "elastic-fig16-life-time" => by_life_time(facts),
        "elastic-fig16-unit-bits" => by_unit_bits(facts),
        "hash-elastic" => sharing(facts),
        _ => Vec::new(),
    };
    let other_memory = |row: &&ReadRow| row.without_filter || facts.spends_otherwise(row);
    let unequal = distinct(facts.reads.iter().filter(other_memory).map(|row| row.side.as_str()));
    compare::note_unequal_memory(&mut verdicts, &unequal);
    let moving = facts.reads.iter().filter(|row| row.warmup_settled == Some(false));
    let moving = distinct(moving.map(|row| row.point.as_str())).len();
    if moving > 0 {
        let note = format!(
            "The placement of filters had not settled at {moving} points; see the picture and the table."
        );
        for verdict in verdicts.iter_mut().filter(|verdict| !verdict.ours.is_empty()) {
            *verdict = verdict.clone().noting(&note);
        }
    }
    for (point, _) in facts.unequal_trees().into_iter().filter(|_| facts.experiment.kind != Kind::Loads) {
        let at = if point.is_empty() { "anywhere" } else { point };
        let note = format!("Not the same runs for all sides ({at}); see the table.");
        for verdict in verdicts.iter_mut().filter(|verdict| !verdict.ours.is_empty()) {
            *verdict = verdict.clone().noting(&note);
        }
    }
    verdicts
}

/// A claim about a share of tables: the paper's share, and the least one that has its direction.
struct Share {
    claim: &'static str,
    paper: f64,
    least: f64,
}

impl Share {
    /// Judges the claim at each skewed point. It fails if the share is small, or no larger than that of uniform gets, which
    /// are uneven by chance only.
    fn judge(&self, facts: &Facts<'_>, share: impl Fn(&[&TableRow]) -> Option<f64>) -> Vec<Verdict> {
        let text = format!("{:.0} %", self.paper * 100.0);
        let of = |keep: &dyn Fn(&TableRow) -> bool| {
            share(&facts.tables.iter().filter(|row| keep(row)).collect::<Vec<_>>())
        };
        let skewed = facts.tables.iter().filter(|row| row.skew > 0.0);
        let points = distinct(skewed.map(|row| (row.point.as_str(), row.side.as_str())));
        let verdict = |(point, side): (&str, &str)| {
            let ours = of(&|row| row.point == point && row.side == side)?;
            let uniform = of(&|row| row.skew == 0.0 && row.side == side);
            let at = at_point(facts, point);
            let direction = ours >= self.least && uniform.is_none_or(|uniform| ours > uniform);
            let text = format!("{:.0} %", ours * 100.0);
            let verdict =
                Verdict::open(format!("{}{at}", self.claim), format!("{:.0} %", self.paper * 100.0));
            let verdict = verdict.with(text, Some(direction), None, Some(ours / self.paper));
            Some(match uniform {
                Some(uniform) => verdict.noting(format!("{:.0} % with uniform gets.", uniform * 100.0)),
                None => verdict,
            })
        };
        let verdicts: Vec<Verdict> = points.into_iter().filter_map(verdict).collect();
        if verdicts.is_empty() { vec![Verdict::open(self.claim, text)] } else { verdicts }
    }
}

/// Names a point of tables within a claim, and whether the paper has it.
fn at_point(facts: &Facts<'_>, point: &str) -> String {
    let apart =
        facts.tables.iter().any(|row| row.point == point && row.skew > 0.0 && row.locality > SCATTERED);
    match (point, apart) {
        ("", false) => String::new(),
        (point, false) => format!(" ({point})"),
        (point, true) => format!(" ({point}; not in the paper)"),
    }
}

/// Returns the queries of the tables of each level, ascending, upper levels first.
fn asked_by_level(rows: &[&TableRow]) -> Vec<Vec<f64>> {
    let mut levels = distinct(rows.iter().map(|row| row.level));
    levels.sort_unstable();
    let of = |level: usize| {
        let mut asked: Vec<f64> =
            rows.iter().filter(|row| row.level == level).map(|row| row.asked_per_get).collect();
        asked.sort_by(f64::total_cmp);
        asked
    };
    levels.into_iter().map(of).collect()
}

/// The claim that levels are queried less from top to bottom.
const FALLING: &str = "On average, tables of upper levels are queried more often than those below.";

fn levels(facts: &Facts<'_>) -> Vec<Verdict> {
    let points = distinct(facts.tables.iter().map(|row| (row.point.as_str(), row.side.as_str())));
    let falling = |(point, side): (&str, &str)| {
        let rows: Vec<_> = facts.tables.iter().filter(|row| row.point == point && row.side == side).collect();
        let means: Vec<f64> = asked_by_level(&rows)
            .into_iter()
            .map(|level| level.iter().sum::<f64>() / level.len() as f64)
            .collect();
        let at = at_point(facts, point);
        let pairs = means.len().checked_sub(1).filter(|&pairs| pairs > 0)?;
        let falls = means.windows(2).filter(|pair| pair[1] <= pair[0]).count();
        let ours = format!("from {falls} of {pairs} levels to the next");
        let verdict = Verdict::open(format!("{FALLING}{at}"), "yes");
        Some(verdict.with(ours, Some(2 * falls > pairs), Some(falls == pairs), None))
    };
    let mut verdicts: Vec<Verdict> = points.into_iter().filter_map(falling).collect();
    if verdicts.is_empty() {
        verdicts.push(Verdict::open(FALLING, "yes"));
    }
    let hotter = Share {
        claim: "Some tables of the last level are hotter than the coldest 11 % of the level above.",
        paper: 0.21,
        // Half of the paper's share.
        least: 0.105,
    };
    verdicts.extend(hotter.judge(facts, |rows| {
        let by_level = asked_by_level(rows);
        let [.., above, last] = &by_level[..] else { return None };
        let limit = quantile(above, 0.11);
        Some(last.iter().filter(|&&asked| asked > limit).count() as f64 / last.len() as f64)
    }));
    verdicts
}

fn parts(facts: &Facts<'_>) -> Vec<Verdict> {
    let uneven = Share {
        claim: "Parts of a table differ by more than ten times their mean in most tables.",
        paper: 0.73,
        least: 0.5,
    };
    uneven.judge(facts, |rows| {
        let uneven = rows.iter().filter(|row| row.spread > 10.0).count();
        (!rows.is_empty()).then(|| uneven as f64 / rows.len() as f64)
    })
}

/// Reports whether gains grow with a number, in every group of points.
fn grow<K: PartialEq>(
    facts: &Facts<'_>,
    keep: impl Fn(&ReadRow) -> bool,
    group: fn(&ReadRow) -> K,
    by: fn(&ReadRow) -> f64,
    gain: impl Fn(&ReadRow, &ReadRow) -> Option<Gain>,
) -> Option<bool> {
    let pairs = facts.pairs(keep);
    let groups = distinct(pairs.iter().map(|(row, _)| group(row)));
    let of = |of_group: K| {
        let here = pairs.iter().filter(|(row, _)| group(row) == of_group);
        let mut gains: Vec<(f64, f64)> =
            here.filter_map(|(row, fixed)| Some((by(row), gain(row, fixed)?.times))).collect();
        gains.sort_by(|a, b| a.0.total_cmp(&b.0));
        grows(&gains.into_iter().map(|(_, times)| times).collect::<Vec<_>>())
    };
    let grown: Vec<bool> = groups.into_iter().filter_map(of).collect();
    (!grown.is_empty()).then(|| grown.iter().all(|&grown| grown))
}

fn fewer_in_vain(row: &ReadRow, fixed: &ReadRow) -> Option<Gain> {
    Gain::of(in_vain(row)?, in_vain(fixed)?, Better::Less)
}

fn faster(row: &ReadRow, fixed: &ReadRow) -> Option<Gain> {
    Gain::of(rate(row)?, rate(fixed)?, Better::More)
}

/// Returns the locality and the side of a row, within which other settings vary.
fn locality(row: &ReadRow) -> (u64, String) {
    (row.locality, row.side.clone())
}

fn by_skew(facts: &Facts<'_>) -> Vec<Verdict> {
    let skewed = |row: &ReadRow| row.skew > 0.0;
    let order = grow(facts, skewed, locality, |row| row.skew, fewer_in_vain);
    vec![
        Claim::range(
            "At equal memory, fewer wasted reads, with a gain that grows with skew (a counter).",
            Unit::Less,
            0.559,
            0.897,
        )
        .judge(&facts.gains(skewed, in_vain, Better::Less), order),
    ]
}

fn reads(facts: &Facts<'_>) -> Vec<Verdict> {
    let one = |row: &ReadRow| row.measurement.threads <= 1;
    let many = |row: &ReadRow| row.measurement.threads >= 16;
    let claim = |text, unit, from, to| Claim::range(text, unit, from, to);
    let loads = facts.pairs(|_| true).into_iter().filter(|(row, _)| row.blocks_per_op > 0.0);
    let loads = median(loads.map(|(row, _)| row.load_reads_per_op / row.blocks_per_op));
    let mut cheap = Verdict::open("Loading units takes 1 % of all reads (a counter).", "about 1 %");
    if let Some(share) = loads {
        // A smaller share is not worse.
        let ratio = (share / 0.01).max(1.0);
        cheap = cheap.with(format!("{:.1} %", share * 100.0), Some(share < 0.1), None, Some(ratio));
        cheap.ratio = Some(share / 0.01);
    }
    vec![
        claim("More throughput with one thread.", Unit::Times, 2.08, 2.17)
            .judge(&facts.gains(one, rate, Better::More), None),
        claim("Less latency.", Unit::Less, 0.519, 0.558).judge(&facts.gains(one, time, Better::Less), None),
        claim("Fewer block reads (a counter).", Unit::Less, 0.591, 0.638)
            .judge(&facts.gains(one, blocks, Better::Less), None),
        cheap,
        claim("Somewhat more with 16 threads.", Unit::Times, 2.34, 2.58)
            .judge(&facts.gains(many, rate, Better::More), None),
    ]
}

fn writes_between(facts: &Facts<'_>) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for (name, mix, latency, io) in [
        ("read-write", "half writes", (0.284, 0.548), (0.491, 0.733)),
        ("read-mostly", "a tenth writes", (0.389, 0.518), (0.467, 0.611)),
    ] {
        let here = |row: &ReadRow| row.measurement.workload == name;
        verdicts.push(
            Claim::range(format!("Reads take less time with {mix}."), Unit::Less, latency.0, latency.1)
                .judge(&facts.gains(here, time, Better::Less), None)
                .noting("The time here is that of all operations, including writes."),
        );
        verdicts.push(
            Claim::range(format!("Gets read fewer blocks with {mix} (a counter)."), Unit::Less, io.0, io.1)
                .judge(&facts.gains(here, blocks, Better::Less), None),
        );
    }
    verdicts
}

fn costs(facts: &Facts<'_>) -> Vec<Verdict> {
    let timed = || facts.loads.iter().filter(|row| row.point == TIMED);
    let measured = |filter: &dyn Fn(&str) -> bool| {
        let row = timed().find(|row| filter(&row.filter))?;
        Some(Measured::new(row.load_ns_per_key, row.min_ns_per_key, row.max_ns_per_key))
    };
    let is_elastic = |name: &str| name.starts_with("elastic");
    let loading = measured(&|name| is_elastic(name))
        .zip(measured(&|name| !is_elastic(name)))
        .and_then(|(ours, fixed)| Gain::of(ours, fixed, Better::More));
    let scans = facts.gains(|row| row.measurement.workload == "seek-next50", time, Better::More);
    vec![
        BELOW_1_PERCENT.judge("Loading takes the same time.", "< 1 %", loading.as_slice()),
        BELOW_1_PERCENT.judge("Scans take the same time.", "< 1 %", &scans),
    ]
}

fn mixes(facts: &Facts<'_>) -> Vec<Verdict> {
    let of =
        |name: &'static str| facts.gains(move |row| row.measurement.workload == name, rate, Better::More);
    let claim = |text, name, unit, (from, to)| {
        let gains = of(name);
        // The paper's range is that of three engines, all of which gain.
        let everywhere = (gains.len() > 1).then(|| gains.iter().all(|gain| gain.times > 1.0));
        Claim::range(text, unit, from, to).judge(&gains, everywhere)
    };
    vec![
        claim("YCSB C, gets only, gains most.", "ycsb-c", Unit::Times, (1.99, 2.11)),
        claim("YCSB A, half updates, gains throughput.", "ycsb-a", Unit::More, (0.07, 0.37)),
        claim("YCSB B, a twentieth updates, gains throughput.", "ycsb-b", Unit::More, (0.53, 0.72)),
        claim("YCSB D, the latest keys, gains throughput.", "ycsb-d", Unit::More, (0.48, 0.93)),
        claim(
            "YCSB F, reads and updates of the same keys, gains throughput.",
            "ycsb-f",
            Unit::More,
            (0.08, 0.47),
        ),
        Alike::UNCHANGED.judge("YCSB E, scans, gains nothing.", "no change", &of("ycsb-e")),
    ]
}

fn against_monkey(facts: &Facts<'_>) -> Vec<Verdict> {
    let absent_only = |row: &ReadRow| row.absent_percent == 100;
    let mixed = |row: &ReadRow| row.absent_percent < 100;
    let skew: fn(&ReadRow) -> f64 = |row| row.skew;
    let by_skew = grow(facts, absent_only, locality, skew, faster);
    let by_absent = grow(facts, mixed, locality, |row| row.absent_percent as f64, faster);
    // Monkey's reads at each skew, divided by those at the first.
    let fixed = facts.reads.iter().filter(|row| !row.elastic && absent_only(row) && !row.without_filter);
    let mut first: Vec<(u64, Measured)> = Vec::new();
    let mut flat = Vec::new();
    for row in fixed {
        let Some(now) = in_vain(row) else { continue };
        match first.iter().find(|(locality, _)| *locality == row.locality) {
            Some((_, at_first)) => flat.extend(Gain::of(now, *at_first, Better::More)),
            None => first.push((row.locality, now)),
        }
    }
    vec![
        Claim::range(
            "More throughput than Monkey for absent keys, growing with skew.",
            Unit::Times,
            1.39,
            2.20,
        )
        .judge(&facts.gains(absent_only, rate, Better::More), by_skew),
        Claim::range("Fewer block reads for absent keys (a counter).", Unit::Less, 0.369, 0.809)
            .judge(&facts.gains(absent_only, blocks, Better::Less), None),
        Alike::ABOUT.judge("Monkey's number of reads does not depend on skew (a counter).", "flat", &flat),
        Claim::range(
            "More throughput where some keys exist, growing with the share of absent ones.",
            Unit::Times,
            1.16,
            1.39,
        )
        .judge(&facts.gains(mixed, rate, Better::More), by_absent),
    ]
}

fn against_monkey_at_large(facts: &Facts<'_>) -> Vec<Verdict> {
    let order = grow(facts, |_| true, locality, |row| row.skew, faster);
    let claim = "More throughput than Monkey with four times the keys as well, growing with skew.";
    vec![
        Claim::range(claim, Unit::Times, 1.36, 2.15).judge(&facts.gains(|_| true, rate, Better::More), order),
    ]
}

fn mixes_against_monkey(facts: &Facts<'_>) -> Vec<Verdict> {
    let of = |name: &'static str, skew: f64| {
        facts.gains(move |row| row.measurement.workload == name && row.skew == skew, rate, Better::More)
    };
    let all =
        |name: &'static str| facts.gains(move |row| row.measurement.workload == name, rate, Better::More);
    let mut verdicts = Vec::new();
    for (name, letter, skew, times) in [
        ("ycsb-c", "C", ZIPF, 1.29),
        ("ycsb-d", "D", ZIPF, 1.20),
        ("ycsb-c", "C", 1.2, 1.99),
        ("ycsb-d", "D", 1.2, 1.89),
    ] {
        let claim = format!("YCSB {letter} gains over Monkey at skew {skew}.");
        verdicts.push(Claim::range(claim, Unit::Times, times, times).judge(&of(name, skew), None));
    }
    let little: Vec<Gain> = ["ycsb-a", "ycsb-b", "ycsb-f"].into_iter().flat_map(all).collect();
    verdicts.push(Alike::ABOUT.judge("YCSB A, B and F, which update, gain little.", "little", &little));
    verdicts.push(Alike::UNCHANGED.judge("YCSB E, scans, gains nothing.", "no change", &all("ycsb-e")));
    verdicts
}

fn by_absent(facts: &Facts<'_>) -> Vec<Verdict> {
    let absent: fn(&ReadRow) -> f64 = |row| row.absent_percent as f64;
    let order = grow(facts, |_| true, locality, absent, faster);
    vec![
        Claim::range("More throughput, growing with the share of absent keys.", Unit::Times, 1.65, 3.08)
            .judge(&facts.gains(|_| true, rate, Better::More), order),
    ]
}

/// Returns the gains of elastic rows that satisfy `keep`, divided by those of rows that satisfy `other` and are
/// otherwise equal. Where neither gains anything beyond the spreads there is nothing to compare.
fn gains_by(
    facts: &Facts<'_>,
    keep: impl Fn(&ReadRow) -> bool,
    other: impl Fn(&ReadRow) -> bool,
) -> Vec<Gain> {
    let pairs = facts.pairs(|_| true);
    let against = |ours: &(&ReadRow, &ReadRow)| {
        let alike = |row: &ReadRow| {
            let setting =
                |row: &ReadRow| (row.measurement.threads, row.skew, row.absent_percent, row.locality);
            (&row.side, &row.measurement.workload, setting(row))
                == (&ours.0.side, &ours.0.measurement.workload, setting(ours.0))
        };
        let theirs = pairs.iter().find(|(row, _)| alike(row) && other(row))?;
        let gained = [ours, theirs].into_iter().filter_map(|(row, fixed)| faster(row, fixed));
        let any = gained.into_iter().any(|gain| gain.clear() && gain.times > 1.0);
        let times = |(row, fixed): &(&ReadRow, &ReadRow)| Some(rate(row)?.by(rate(fixed)?));
        Gain::of(times(ours)?, times(theirs)?, Better::More).filter(|_| any)
    };
    pairs.iter().filter(|(row, _)| keep(row)).filter_map(against).collect()
}

/// The note where there are no gains to compare.
pub(super) const NOTHING_GAINED: &str = "Neither gains anything beyond the spreads";

fn gains_alike(limits: Alike, text: &str, paper: &str, gains: &[Gain]) -> Verdict {
    let verdict = limits.judge(text, paper, gains);
    if gains.is_empty() {
        verdict.noting(format!("{NOTHING_GAINED}, or one is not measured."))
    } else {
        verdict
    }
}

fn by_device(facts: &Facts<'_>) -> Vec<Verdict> {
    let on_hdd = |row: &ReadRow| row.device == "hdd";
    vec![
        Claim::range("More throughput on an HDD.", Unit::Times, 2.31, 2.38)
            .judge(&facts.gains(on_hdd, rate, Better::More), None),
        gains_alike(
            Alike { from: 1.0 / 1.14, to: 1.14 },
            "The gain on an HDD is about that on an SSD: their ratio.",
            "similar (1.06–1.14×)",
            &gains_by(facts, on_hdd, |other| other.device == "ssd"),
        ),
    ]
}

fn by_size(facts: &Facts<'_>) -> Vec<Verdict> {
    let least = facts.reads.iter().filter_map(|row| row.setting).fold(f64::INFINITY, f64::min);
    let most = facts.reads.iter().filter_map(|row| row.setting).fold(0.0, f64::max);
    let largest = |row: &ReadRow| row.setting.is_some_and(|keys| keys == most && keys > least);
    let mut verdicts = throughput(facts, "Elastic filters gain with every size of the database.", 2.0, 2.08);
    verdicts.push(gains_alike(
        Alike { from: 0.96, to: 1.04 },
        "The gain stays as the database grows: ratio of the largest to the smallest.",
        "0.96–1.04×",
        &gains_by(facts, largest, |other| other.setting == Some(least)),
    ));
    verdicts
}

fn throughput(facts: &Facts<'_>, text: &str, from: f64, to: f64) -> Vec<Verdict> {
    let gains = facts.gains(|_| true, rate, Better::More);
    // The claim applies to each of the settings.
    let everywhere = (gains.len() > 1).then(|| gains.iter().all(|gain| gain.times > 1.0));
    vec![Claim::range(text, Unit::Times, from, to).judge(&gains, everywhere)]
}

/// Returns elastic rows by the varied setting, ascending, with their throughput.
fn by_setting(facts: &Facts<'_>) -> Vec<(f64, Measured)> {
    let pairs = facts.reads.iter().filter(|row| row.elastic && !row.without_filter);
    let mut found: Vec<(f64, Measured)> = pairs.filter_map(|row| Some((row.setting?, rate(row)?))).collect();
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    found
}

/// Ranks one setting among the others by throughput.
fn best_at(found: &[(f64, Measured)], setting: f64) -> Vec<Place> {
    let Some((_, ours)) = found.iter().find(|(of, _)| *of == setting) else { return Vec::new() };
    let others = found.iter().filter(|(of, _)| *of != setting).map(|(_, rate)| *rate);
    place(*ours, others, Better::More).into_iter().collect()
}

fn by_unit_size(facts: &Facts<'_>) -> Vec<Verdict> {
    let found = by_setting(facts);
    // The engine's own size is the third of five: two are smaller, whether or not they leave memory for units. It is
    // unknown in an unfinished run.
    let mut sizes = distinct(facts.reads.iter().filter(|row| row.elastic).filter_map(|row| row.setting));
    sizes.sort_by(f64::total_cmp);
    let own = (sizes.len() == 5).then(|| sizes[2]);
    let coarse = found.last().zip(own).and_then(|((largest, theirs), own)| {
        let (_, ours) = found.iter().find(|(size, _)| *size == own && own < *largest)?;
        Gain::of(*ours, *theirs, Better::More)
    });
    let places = own.map(|own| best_at(&found, own)).unwrap_or_default();
    let mut best = first_at_all("Units of about a block of the device are best.", &places);
    best.paper = "best".into();
    vec![
        Claim::about("Small segments have more throughput than those of a table.", Unit::More, 0.178)
            .judge(coarse.as_slice(), None)
            .noting("The largest segments here are 16 times the engine's own."),
        best,
    ]
}

fn by_life_time(facts: &Facts<'_>) -> Vec<Verdict> {
    let rates: Vec<Measured> =
        facts.reads.iter().filter(|row| row.elastic && !row.without_filter).filter_map(rate).collect();
    let gains: Vec<Gain> = match rates.split_first() {
        Some((first, others)) => {
            others.iter().filter_map(|other| Gain::of(*other, *first, Better::More)).collect()
        }
        None => Vec::new(),
    };
    let claim = "The life time of segments matters little: throughput relative to the first life time.";
    vec![Alike::ABOUT.judge(claim, "no big difference", &gains)]
}

fn by_unit_bits(facts: &Facts<'_>) -> Vec<Verdict> {
    let mut best = first_at_all("Units of 4 bits per key are best.", &best_at(&by_setting(facts), 4.0));
    best.paper = "best".into();
    vec![best]
}

/// Returns the rows of two sides at each point that has both.
fn side_by_side<'f>(facts: &'f Facts<'_>, ours: &str, theirs: &str) -> Vec<(&'f ReadRow, &'f ReadRow)> {
    let rows_of = |side: &str| -> Vec<&'f ReadRow> {
        facts.reads.iter().filter(|row| row.side == side && !row.without_filter).collect()
    };
    let (ours, theirs) = (rows_of(ours), rows_of(theirs));
    let pair = |row: &&'f ReadRow| {
        let at = |row: &ReadRow| (row.measurement.workload.clone(), row.point.clone());
        Some((*row, *theirs.iter().find(|other| at(other) == at(row))?))
    };
    ours.iter().filter_map(pair).collect()
}

/// Judges a claim that one number follows from counts: holds if the largest relative error is below a hundredth.
fn counted(claim: impl Into<String>, paper: &str, pairs: &[(f64, f64)]) -> Verdict {
    let open = Verdict::open(claim, paper);
    if pairs.is_empty() {
        return open;
    }
    let ours: Vec<String> = distinct(pairs.iter().map(|(ours, _)| mean(*ours)));
    let agrees = pairs.iter().all(|(ours, expected)| (ours / expected - 1.0).abs() < 0.01);
    open.with(ours.join(", "), Some(agrees), None, None)
}

fn sharing(facts: &Facts<'_>) -> Vec<Verdict> {
    let gains = |ours: &str, theirs: &str, of: fn(&ReadRow) -> Option<Measured>| -> Vec<Gain> {
        let pairs = side_by_side(facts, ours, theirs).into_iter();
        pairs.filter_map(|(ours, theirs)| Gain::of(of(ours)?, of(theirs)?, Better::Less)).collect()
    };
    let of_get = |side: &str| {
        let rows = facts.reads.iter().filter(|row| row.side == side);
        rows.map(|row| (row.measurement.digests_per_op, 1.0)).collect::<Vec<_>>()
    };
    let faster = |claim: &str, ours: &str, theirs: &str| more(claim, &gains(ours, theirs, time));
    let fewer = |claim: &str, ours: &str, theirs: &str| more(claim, &gains(ours, theirs, digests));
    vec![
        counted(
            "With sharing, a get of elastic filters computes one digest, whatever the levels.",
            "1",
            &of_get("elastic"),
        ),
        fewer(
            "Sharing across levels saves digests of elastic filters with hash functions of their own.",
            "elastic-independent",
            "elastic-independent-each",
        ),
        fewer("Sharing across units saves digests beyond that.", "elastic", "elastic-independent"),
        Alike::ABOUT.judge(
            "The false positive rate is unharmed: wasted reads with units of their own hash functions, by those of shared ones.",
            "equal",
            &gains("elastic", "elastic-independent", in_vain),
        ),
        Alike::within(0.01).judge(
            "Sharing changes no probe: filters asked without it, by those with it (a counter).",
            "equal",
            &gains("elastic", "elastic-each", probes),
        ),
        faster("Sharing across levels saves time.", "elastic", "elastic-each"),
        faster("Sharing across levels and units saves time.", "elastic", "elastic-independent-each"),
    ]
}
