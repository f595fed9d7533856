//! Verdicts on the paper's claims.
//!
//! The paper's two sides differ in digests alone. Ours differ in more: without sharing a get takes the general path,
//! one filter after the other; with it, all filters of a step at once. So sizes and orders of gains are judged by the
//! digests' part of the gain, and the total is given as well. That part depends on the cost of a digest, and ours
//! (XXH3) costs a fraction of the paper's MurmurHash64; every verdict on a size states that cost and the prediction of
//! the paper's own equation.

use super::rows::{EACH, GainRow, GetRow, Measured, SHARED, Setting};
use super::view::hash_share;
use crate::figures::Verdict;

/// Derives verdicts from all rows of a figure.
pub(super) type Judge = fn(&Measured) -> Vec<Verdict>;

/// Tolerated inversion of two neighbours in percentage points; beyond it the order is another one.
const TOLERANCE: f64 = 1.5;

/// Time of MurmurHash64 per byte: the paper's 235 ns for 1 KB. Keys of 512 bytes take 118 ns.
const PAPER_NS_PER_BYTE: f64 = 235.0 / 1024.0;

/// Reports whether values ascend, as far as noise permits.
fn ascends(values: &[f64]) -> Option<bool> {
    (values.len() > 1).then(|| values.windows(2).all(|pair| pair[1] > pair[0] - TOLERANCE))
}

/// Reports whether the digests' part ascends, as far as its spreads permit.
fn in_order(rows: &[&GainRow]) -> Option<bool> {
    let stands = |pair: &[&GainRow]| pair[1].digests_max_percent >= pair[0].digests_min_percent;
    (rows.len() > 1).then(|| rows.windows(2).all(stands))
}

/// Reports whether the last is above the first; `None` if the two are within their spreads.
fn rises(rows: &[&GainRow]) -> Option<bool> {
    let (first, last) = (rows.first()?, rows.last()?);
    let apart = first.digests_max_percent < last.digests_min_percent
        || last.digests_max_percent < first.digests_min_percent;
    (rows.len() > 1 && apart).then_some(last.digests_percent > first.digests_percent)
}

/// Reports whether there is a gain; `None` if rounds disagree.
fn gains(row: &GainRow) -> Option<bool> {
    (row.digests_min_percent > 0.0 || row.digests_max_percent < 0.0).then_some(row.digests_percent > 0.0)
}

/// Formats the digests' part and the total.
fn percent(row: &GainRow) -> String {
    format!("{:.1} % ({:.1} % in total)", row.digests_percent, row.gain_percent)
}

fn percents(rows: &[&GainRow], label: impl Fn(&Setting) -> String) -> String {
    let one = |row: &&GainRow| format!("{} {}", label(&row.setting), percent(row));
    rows.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Describes the cost of a digest at a point, and the prediction from it.
fn costs(all: &Measured, row: &GainRow) -> String {
    let digest = all.side(&row.setting, EACH).map_or(0.0, |each| each.digest_ns);
    let paper = PAPER_NS_PER_BYTE * row.setting.key_bytes as f64;
    format!(
        "A digest of {} bytes took {digest:.0} ns, and would take about {paper:.0} ns with the paper's hash function; with the measured times \
         the paper's equation predicts {:.1} %, and {:.1} % with the rest of our get in the cost. The gain beyond digests \
         comes from the difference of our two paths.",
        row.setting.key_bytes, row.model_percent, row.model_with_rest_percent
    )
}

/// What the paper says about the gain at one point, in percent.
#[derive(Clone, Copy)]
enum Paper {
    /// About this.
    About(f64),
    /// More than this.
    Above(f64),
}

/// Judges a claim about the gain at one point; open where the rounds disagree about its sign.
fn at_point(all: &Measured, claim: &str, paper: &str, size: Paper, row: Option<&&GainRow>) -> Verdict {
    let open = Verdict::open(claim, paper);
    let Some(row) = row else { return open };
    let (Paper::About(percents) | Paper::Above(percents)) = size;
    let ratio = row.digests_percent / percents;
    let Some(gains) = gains(row) else { return open.undecided(percent(row), Some(ratio)) };
    let verdict = match size {
        Paper::About(_) => open.with(percent(row), Some(gains), None, Some(ratio)),
        Paper::Above(_) => open.with_size(percent(row), Some(gains), None, Some(ratio > 1.0)),
    };
    Verdict { ratio: Some(ratio), ..verdict.noting(costs(all, row)) }
}

/// Judges a claim that the gain rises along points; open where its first and last one are within their spreads.
fn rising(claim: &str, paper: &str, rows: &[&GainRow], label: impl Fn(&Setting) -> String) -> Verdict {
    let open = Verdict::open(claim, paper);
    match (rows.len(), rises(rows)) {
        (0 | 1, _) => open,
        (_, None) => open.undecided(percents(rows, label), None),
        (_, rises) => open.with(percents(rows, label), rises, in_order(rows), None),
    }
}

fn sorted(mut rows: Vec<&GainRow>, by: fn(&Setting) -> f64) -> Vec<&GainRow> {
    rows.sort_by(|a, b| by(&a.setting).total_cmp(&by(&b.setting)));
    rows
}

fn alpha(setting: &Setting) -> String {
    format!("α {}", setting.absent_percent / 100.0)
}

/// Returns the rows without sharing on a device, in the order of α.
fn each_on<'m>(all: &'m Measured, device: &str, shape: &str) -> Vec<&'m GetRow> {
    let wanted =
        |row: &&GetRow| row.side == EACH && row.setting.device == device && row.setting.shape == shape;
    let mut rows: Vec<&GetRow> = all.gets.iter().filter(wanted).collect();
    rows.sort_by(|a, b| a.setting.absent_percent.total_cmp(&b.setting.absent_percent));
    rows
}

/// Judges claims about the share of hashing over α and over devices.
fn hash_shares(all: &Measured, shape: &str) -> Vec<Verdict> {
    let rising = Verdict::open(
        "On a fast PCIe SSD the share of hashing grows with the share of empty queries",
        "~15 % at α = 0, > 75 % at α = 1",
    );
    let rows = each_on(all, "pcie-ssd", shape);
    let rising = match (rows.first(), rows.last()) {
        (Some(first), Some(last)) if rows.len() > 1 => {
            let shares: Vec<f64> = rows.iter().map(|row| hash_share(row)).collect();
            let (low, high) = (hash_share(first), hash_share(last));
            rising
                .with(
                    format!(
                        "{low:.1} % at α = {}, {high:.1} % at α = {}",
                        first.setting.absent_percent / 100.0,
                        last.setting.absent_percent / 100.0
                    ),
                    Some(high > low),
                    ascends(&shares).map(|ascends| ascends && high > 75.0),
                    None,
                )
                .noting(format!(
                    "A digest took {:.0} ns, and would take about {:.0} ns with the paper's hash function.",
                    last.digest_ns,
                    PAPER_NS_PER_BYTE * last.setting.key_bytes as f64
                ))
        }
        _ => rising,
    };
    let faster = Verdict::open(
        "The faster the device, the larger the share of hashing among empty queries",
        "SSD < PCIe SSD < emulated NVM, almost 100 % there",
    );
    let devices = ["ssd", "pcie-ssd", "nvm"];
    let last: Vec<_> =
        devices.iter().filter_map(|device| Some((device, *each_on(all, device, shape).last()?))).collect();
    let faster = match last.len() {
        0 | 1 => faster,
        _ => {
            let shares: Vec<f64> = last.iter().map(|(_, row)| hash_share(row)).collect();
            let told: Vec<String> = last
                .iter()
                .zip(&shares)
                .map(|((device, _), share)| format!("{device} {share:.1} %"))
                .collect();
            let rises = shares.first() < shares.last();
            faster.with(told.join(", "), Some(rises), ascends(&shares), None)
        }
    };
    vec![rising, faster]
}

pub(super) fn figure_1(all: &Measured) -> Vec<Verdict> {
    hash_shares(all, "leveling")
}

pub(super) fn figure_2(all: &Measured) -> Vec<Verdict> {
    let mut verdicts = hash_shares(all, "tiering");
    let more = Verdict::open("Tiering spends a larger share on hashing than leveling", "larger at every α");
    let (tiering, leveling) = (each_on(all, "pcie-ssd", "tiering"), each_on(all, "pcie-ssd", "leveling"));
    let share = |rows: &[&GetRow]| rows.last().map(|row| hash_share(row));
    verdicts.push(match (share(&tiering), share(&leveling)) {
        (Some(tiered), Some(leveled)) => {
            let mut pairs = tiering.iter().zip(&leveling);
            let all_more = pairs.all(|(a, b)| hash_share(a) > hash_share(b));
            more.with(
                format!("{tiered:.1} % against {leveled:.1} % at the largest α"),
                Some(tiered > leveled),
                Some(all_more),
                None,
            )
        }
        _ => more,
    });
    verdicts
}

fn by_key(all: &Measured, zipf: bool) -> Vec<&GainRow> {
    sorted(all.gains_where(|setting| (setting.skew > 0.0) == zipf), |setting| setting.key_bytes as f64)
}

fn key_label(setting: &Setting) -> String {
    format!("{} B", setting.key_bytes)
}

pub(super) fn figure_8a(all: &Measured) -> Vec<Verdict> {
    let rows = by_key(all, false);
    vec![
        rising("The gain rises with the size of keys", "from about nothing to 23 %", &rows, key_label),
        at_point(all, "Keys of 1 KB gain most, on a PCIe SSD", "up to 23 %", Paper::About(23.0), rows.last()),
        hashing_falls(all, &rows),
    ]
}

/// Judges the claim "For 1KB keys, the total hashing cost is reduced to less than half."
fn hashing_falls(all: &Measured, rows: &[&GainRow]) -> Verdict {
    let open = Verdict::open("For the largest keys the hashing of a get falls to less than half", "< 50 %");
    let last =
        rows.last().and_then(|row| Some((all.side(&row.setting, EACH)?, all.side(&row.setting, SHARED)?)));
    match last {
        Some((each, shared)) if each.hash_ns > 0.0 => {
            let left = 100.0 * shared.hash_ns / each.hash_ns;
            let told = format!(
                "{left:.0} % ({:.2} digests per get instead of {:.2})",
                shared.digests_per_op, each.digests_per_op
            );
            open.with(told, Some(left < 50.0), None, None)
        }
        _ => open,
    }
}

pub(super) fn figure_8b(all: &Measured) -> Vec<Verdict> {
    let rows = sorted(all.gains_where(|_| true), |setting| setting.levels as f64);
    let label = |setting: &Setting| format!("{} levels", setting.levels);
    let flat = Verdict::open(
        "Without sharing, hashing grows with the levels; with it, it is one digest whatever their number",
        "1 against 8–14 digests",
    );
    let digests = |side: &str| -> Vec<f64> {
        rows.iter().filter_map(|row| Some(all.side(&row.setting, side)?.digests_per_op)).collect()
    };
    let (each, shared) = (digests(EACH), digests(SHARED));
    let flat = match (each.first(), each.last(), shared.first(), shared.last()) {
        (Some(low), Some(high), Some(first), Some(last)) if each.len() > 1 => {
            let told = format!("{low:.2}–{high:.2} digests without, {first:.2}–{last:.2} with sharing");
            flat.with(told, Some(high > low && shared.iter().all(|n| *n <= 1.0)), ascends(&each), None)
        }
        _ => flat,
    };
    let claim = "The gain rises a little with the levels and approaches a constant";
    let rate = |row: &&GainRow| {
        let each = all.side(&row.setting, EACH)?;
        (each.filters_per_op > 0.0).then(|| 100.0 * each.false_positives_per_op / each.filters_per_op)
    };
    let rising = rising(claim, "small rise", &rows, label);
    let rising = match (rows.first().and_then(rate), rows.last().and_then(rate)) {
        (Some(few), Some(many)) => rising.noting(format!(
            "False positive rates are {few:.2} % with the fewest levels and {many:.2} % with the most: filters of tiny runs \
             have lower ones, so a scaled tree reads more the more levels it has."
        )),
        _ => rising,
    };
    vec![flat, rising]
}

pub(super) fn figure_9(all: &Measured) -> Vec<Verdict> {
    let rows = by_key(all, false);
    let verdict =
        rising("The gain vanishes as keys become small", "about 0 for the smallest", &rows, key_label);
    vec![match rows.first() {
        Some(row) => verdict.noting(costs(all, row)),
        None => verdict,
    }]
}

pub(super) fn figure_10(all: &Measured) -> Vec<Verdict> {
    let (zipf, uniform) = (by_key(all, true), by_key(all, false));
    let more =
        Verdict::open("Skewed queries gain more than uniform ones for keys of 1 KB", "> 60 % against 23 %");
    let more = match (zipf.last(), uniform.last()) {
        (Some(skewed), Some(even)) if skewed.setting.key_bytes == even.setting.key_bytes => {
            let (ours, ratio) =
                (format!("{} against {}", percent(skewed), percent(even)), skewed.digests_percent / 60.0);
            match rises(&[*even, *skewed]) {
                None => more.undecided(ours, Some(ratio)),
                rises => Verdict {
                    ratio: Some(ratio),
                    ..more.with_size(ours, rises, None, Some(ratio > 1.0)).noting(costs(all, skewed))
                },
            }
        }
        _ => more,
    };
    vec![more, rising("The gain rises with the size of keys", "steeply, to > 60 %", &zipf, key_label)]
}

/// Returns the gain on the fastest of the given devices that were measured.
fn on<'m>(all: &'m Measured, devices: &[&str], wanted: impl Fn(&Setting) -> bool) -> Option<&'m GainRow> {
    devices
        .iter()
        .find_map(|device| all.gains.iter().find(|row| row.setting.device == *device && wanted(&row.setting)))
}

/// The paper's memory: a RAM disk that stands in for NVM.
const MEMORY_LIKE: [&str; 3] = ["nvm", "ram-disk", "memory"];

pub(super) fn figure_11(all: &Measured) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let mut widths: Vec<u64> = all.gains.iter().map(|row| row.setting.key_bytes).collect();
    widths.sort_unstable();
    widths.dedup();
    for width in widths {
        let of_width = |setting: &Setting| setting.key_bytes == width;
        let devices: Vec<&GainRow> =
            ["ssd", "pcie-ssd", "nvm"].iter().filter_map(|device| on(all, &[device], of_width)).collect();
        let claim = format!("The faster the device, the larger the gain; keys of {width} bytes");
        verdicts
            .push(rising(&claim, "SSD 10 % … RAM disk > 40 %", &devices, |setting| setting.device.clone()));
        let claim = format!("On a PCIe SSD; keys of {width} bytes");
        verdicts.push(at_point(
            all,
            &claim,
            "> 10 %",
            Paper::Above(10.0),
            on(all, &["pcie-ssd"], of_width).as_ref(),
        ));
        let claim = format!("On emulated NVM; keys of {width} bytes");
        verdicts.push(at_point(
            all,
            &claim,
            "> 40 %",
            Paper::Above(40.0),
            on(all, &MEMORY_LIKE, of_width).as_ref(),
        ));
    }
    if verdicts.is_empty() {
        verdicts
            .push(Verdict::open("The faster the device, the larger the gain", "SSD 10 % … RAM disk > 40 %"));
    }
    verdicts
}

pub(super) fn figure_12(all: &Measured) -> Vec<Verdict> {
    let label = |setting: &Setting| format!("{} bits", setting.bits_per_key);
    let device = |device: &str| {
        let rows =
            sorted(all.gains_where(|setting| setting.device == device), |setting| setting.bits_per_key);
        rising(&format!("More bits per key, fewer reads, more gain; {device}"), "rises", &rows, label)
    };
    let ten = |setting: &Setting| setting.bits_per_key == 10.0;
    vec![
        device("ssd"),
        device("pcie-ssd"),
        device("nvm"),
        at_point(
            all,
            "On a PCIe SSD at 10 bits per key",
            "> 10 %",
            Paper::Above(10.0),
            on(all, &["pcie-ssd"], ten).as_ref(),
        ),
        at_point(
            all,
            "On emulated NVM at 10 bits per key",
            "> 40 %",
            Paper::Above(40.0),
            on(all, &MEMORY_LIKE, ten).as_ref(),
        ),
    ]
}

fn over_alpha(all: &Measured, device: &str, claim: &str, paper: &str, most: Paper) -> Vec<Verdict> {
    let rows = sorted(all.gains_where(|setting| setting.device == device), |setting| setting.absent_percent);
    let empty = rows.iter().find(|row| row.setting.absent_percent == 100.0);
    let at_most = match most {
        Paper::About(percents) => format!("{percents} %"),
        Paper::Above(percents) => format!("> {percents} %"),
    };
    vec![
        rising(claim, paper, &rows, alpha),
        at_point(all, &format!("At α = 1; {device}"), &at_most, most, empty),
    ]
}

pub(super) fn figure_13(all: &Measured) -> Vec<Verdict> {
    over_alpha(
        all,
        "ssd",
        "On an SSD the gain rises with the share of empty queries",
        "0 % … 17 %",
        Paper::About(17.0),
    )
}

pub(super) fn figure_14(all: &Measured) -> Vec<Verdict> {
    let mut verdicts = over_alpha(
        all,
        "nvm",
        "On emulated NVM the gain rises with the share of empty queries",
        "10 % … > 40 %",
        Paper::Above(40.0),
    );
    verdicts.extend(over_alpha(
        all,
        "ram-disk",
        "On a RAM disk the gain rises with the share of empty queries",
        "10 % … > 40 %",
        Paper::Above(40.0),
    ));
    verdicts
}
