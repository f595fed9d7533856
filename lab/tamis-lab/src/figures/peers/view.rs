//! Figures made of the rows of other engines.

use std::collections::BTreeSet;

use tamis_bench::report::grouped;

use crate::figures::peers::rows::{NOTE, PeerRow, READ};
use crate::figures::peers::setting::Claim;
use crate::figures::rows::records;
use crate::figures::{Axis, Bar, Kind, Panel, Row, Sheet, Verdict, View};

/// Adds a picture, a table and a verdict.
pub(super) fn add(view: &mut View, rows: &[Row], claim: &Claim) {
    let (notes, read): (Vec<PeerRow>, Vec<PeerRow>) = (records(rows, NOTE), records(rows, READ));
    let notes: Vec<&str> = notes.iter().map(|note| &note.text[..]).collect();
    let measured: Vec<&PeerRow> = read.iter().filter(|row| row.is_sound()).collect();
    if !measured.is_empty() {
        view.panels.push(panel(&measured));
        view.sheets.push(sheet(&measured, &notes));
    }
    view.verdicts.push(verdict(&measured, claim, &notes));
}

/// Returns workloads and numbers of threads in the order of rows.
fn points<'a>(rows: &[&'a PeerRow]) -> Vec<(&'a str, usize)> {
    let mut seen = BTreeSet::new();
    rows.iter().map(|row| (&row.workload[..], row.threads)).filter(|point| seen.insert(*point)).collect()
}

fn at<'a>(rows: &'a [&'a PeerRow], point: (&'a str, usize)) -> impl Iterator<Item = &'a PeerRow> {
    rows.iter().copied().filter(move |row| (&row.workload[..], row.threads) == point)
}

fn panel(rows: &[&PeerRow]) -> Panel {
    let threads: BTreeSet<usize> = rows.iter().map(|row| row.threads).collect();
    let name = |(workload, by): (&str, usize)| match threads.len() {
        1 => workload.to_owned(),
        _ => format!("{workload}, {by} {}", if by == 1 { "thread" } else { "threads" }),
    };
    let bar = |row: &PeerRow| Bar {
        name: row.side.clone(),
        parts: vec![row.ops_per_second],
        spread: Some((row.min_ops_per_second, row.max_ops_per_second)),
    };
    let groups = points(rows).into_iter().map(|point| (name(point), at(rows, point).map(bar).collect()));
    Panel {
        title: "beside other engines".into(),
        x: Axis::new("workload", ""),
        y: Axis::new("throughput", "operations/s"),
        kind: Kind::Bars { parts: vec!["operations/s".into()], groups: groups.collect() },
    }
}

fn sheet(rows: &[&PeerRow], notes: &[&str]) -> Sheet {
    let title = match notes {
        [] => "beside other engines".to_owned(),
        notes => format!("beside other engines ({})", notes.join("; ")),
    };
    let columns = [
        "<workload",
        "threads",
        "<side",
        "<version",
        "bits/key asked",
        "operations/s",
        "× reference",
        "± %",
        "p50 µs",
        "p99 µs",
    ];
    let mut sheet = Sheet::new(&title, &columns);
    for point in points(rows) {
        for row in at(rows, point) {
            let reference = at(rows, point).find(|other| other.side == row.reference);
            let times = reference.map(|other| row.ops_per_second / other.ops_per_second);
            let spread = (row.max_ops_per_second - row.min_ops_per_second) / 2.0 / row.ops_per_second;
            sheet.row([
                row.workload.clone(),
                row.threads.to_string(),
                row.side.clone(),
                row.version.clone(),
                row.filter_bits.to_string(),
                grouped(row.ops_per_second.round() as u64),
                times.map_or(String::new(), |times| format!("{times:.2}")),
                format!("{:.0}", spread * 100.0),
                format!("{:.1}", row.p50_ns as f64 / 1e3),
                format!("{:.1}", row.p99_ns as f64 / 1e3),
            ]);
        }
    }
    sheet
}

/// Judges the claim by the geometric mean over its points; open if rounds overlap everywhere or a side is missing.
/// Engines differ in more than the claim covers, so the note lists all sides by the same measure.
fn verdict(rows: &[&PeerRow], claim: &Claim, notes: &[&str]) -> Verdict {
    let open = Verdict::open(claim.text, claim.paper);
    let pairs = pairs(rows, claim.side, claim);
    if pairs.is_empty() {
        let missing = format!("There are no rows of both {} and {}.", claim.side, claim.against);
        let notes = notes.iter().map(|note| format!(" {note}")).collect::<String>();
        return open.noting(format!("{missing}{notes}"));
    }
    let ratios: Vec<f64> = pairs.iter().map(|(a, b)| a.ops_per_second / b.ops_per_second).collect();
    let mean = mean_of(&pairs);
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    let ours = match ratios.len() {
        1 => format!("{mean:.2}×"),
        _ => format!("{mean:.2}× ({least:.2}–{most:.2}×)"),
    };
    let apart = |(a, b): &(&PeerRow, &PeerRow)| {
        a.max_ops_per_second < b.min_ops_per_second || b.max_ops_per_second < a.min_ops_per_second
    };
    let mut seen = BTreeSet::from([claim.side, claim.against]);
    let others: Vec<String> = rows
        .iter()
        .filter(|row| seen.insert(&row.side))
        .map(|row| (&row.side, self::pairs(rows, &row.side, claim)))
        .filter(|(_, pairs)| !pairs.is_empty())
        .map(|(side, pairs)| format!("{side} {:.2}×", mean_of(&pairs)))
        .collect();
    let note = match others.is_empty() {
        true => claim.note.to_owned(),
        false => format!("{} By the same measure: {}.", claim.note, others.join(", ")),
    };
    let ratio = claim.ratio.map(|paper| mean / paper);
    if !pairs.iter().any(apart) {
        return Verdict { ours, ratio, ..open }.noting(format!("Within the spread of the rounds. {note}"));
    }
    let order = (ratios.len() > 1).then_some(least > 1.0);
    open.with(ours, Some(mean > 1.0), order, ratio).noting(note)
}

/// Returns the rows of a side paired with those it is compared to, at the points of the claim.
fn pairs<'a>(rows: &[&'a PeerRow], side: &str, claim: &Claim) -> Vec<(&'a PeerRow, &'a PeerRow)> {
    let is_claimed =
        |workload: &str| claim.workloads.is_empty() || claim.workloads.iter().any(|of| of.name() == workload);
    let pair = |point: (&'a str, usize)| {
        let rows: Vec<&'a PeerRow> =
            rows.iter().copied().filter(|row| (&row.workload[..], row.threads) == point).collect();
        let find = |side: &str| rows.iter().copied().find(|row| row.side == side);
        find(side).zip(find(claim.against))
    };
    points(rows).into_iter().filter(|(workload, _)| is_claimed(workload)).filter_map(pair).collect()
}

/// Returns the geometric mean of the throughput ratios.
fn mean_of(pairs: &[(&PeerRow, &PeerRow)]) -> f64 {
    let logs = pairs.iter().map(|(a, b)| (a.ops_per_second / b.ops_per_second).ln());
    (logs.sum::<f64>() / pairs.len().max(1) as f64).exp()
}

/// Returns rows of the two sides of a claim, with the paper's ratio, or turned round.
#[cfg(test)]
pub(super) fn trial(claim: &Claim) -> crate::figures::trial::Trial {
    let times = claim.ratio.unwrap_or(2.0);
    let rows = |ours: f64, theirs: f64| {
        let made = |(side, rate): (&str, f64)| {
            let workload = claim.workloads.first().map_or("get-empty", |workload| workload.name());
            crate::figures::rows::row(&PeerRow {
                kind: READ.into(),
                from: crate::figures::peers::FROM.1.into(),
                side: side.into(),
                workload: workload.into(),
                threads: 1,
                ops_per_second: rate,
                min_ops_per_second: rate,
                max_ops_per_second: rate,
                ..PeerRow::default()
            })
        };
        [(claim.side, ours), (claim.against, theirs)].map(made).to_vec()
    };
    crate::figures::trial::Trial { good: rows(times, 1.0), bad: vec![rows(1.0, times)] }
}
