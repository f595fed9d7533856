//! Claims of our own, which measurements can refute. Those about counters have no spread and hold on any machine; those
//! about times are open where the limit lies within the spreads of the rounds.

use tamis_bench::report::grouped;
use tamis_bench::workload::Workload::{self, GetEmpty, GetExisting, Seek};

use super::measure::{PUT, READS};
use super::plan::SIDES;
use super::rows::OpRow;
use super::view::{name_of, number};
use crate::figures::compare::{Better, Gain, Measured, note_unequal_memory, other_memory};
use crate::figures::{Finding, Verdict};

/// Blocks that a filter of ten bits may cost a get that finds nothing in its run: twice what is expected.
const BLOCKS_PER_RUN: f64 = 0.02;

/// Ten times the keys may cost this many times as much.
const PER_DECADE: f64 = 2.0;

/// Tolerance of counters: keys outside of a run's range skip its filter.
const SLACK: f64 = 0.02;

/// Returns the rows of an operation, in order of points.
fn of<'r>(rows: &'r [OpRow], side: &str, workload: Workload) -> Vec<&'r OpRow> {
    rows.iter().filter(|row| row.side == side && row.measurement.workload == workload.name()).collect()
}

/// Returns the claims about the number of keys.
pub(super) fn keys(rows: &[OpRow]) -> Vec<Verdict> {
    let side = SIDES[0];
    let (empty, existing) = (of(rows, side, GetEmpty), of(rows, side, GetExisting));
    let mut verdicts = vec![
        filters_by_keys(&empty),
        one_filter_per_run(&empty, side),
        blocks(&empty, "A get of an absent key reads at most 0.02 blocks for each run", 0.0),
        blocks(&existing, "A get of an existing key reads one block, and at most 0.02 for each run", 1.0),
    ];
    verdicts.extend(READS.into_iter().chain([PUT]).map(|op| per_decade(op, &of(rows, side, op))));
    verdicts
}

/// Returns the claims about the number of runs.
pub(super) fn runs(rows: &[OpRow]) -> Vec<Verdict> {
    let [local, global] = SIDES;
    let mut verdicts = vec![
        one_filter_per_run(&of(rows, local, GetEmpty), local),
        one_filter_for_all(&of(rows, global, GetEmpty), global),
    ];
    verdicts.extend(SIDES.map(|side| less_than_runs(&of(rows, side, GetEmpty), side)));
    let faster = |op| faster(op, &of(rows, global, op), &of(rows, local, op));
    let mut compared = [GetEmpty, GetExisting, Seek].map(faster);
    let unequal = unequal_memory(rows);
    note_unequal_memory(&mut compared, &unequal);
    verdicts.extend(compared);
    verdicts
}

/// Ten times the keys add at most one filter.
fn filters_by_keys(rows: &[&OpRow]) -> Verdict {
    let open = Verdict::open(
        "Ten times the keys add at most one filter to those that a get of an absent key asks",
        "at most 1 a decade",
    );
    let probes = |row: &OpRow| row.measurement.filter_probes_per_op;
    let pairs = rows.iter().enumerate().flat_map(|(at, a)| rows[at + 1..].iter().map(move |b| (a, b)));
    let mut right = None;
    for (a, b) in pairs {
        let decades = (b.measurement.keys as f64 / a.measurement.keys as f64).log10();
        // Half a decade may add a level as well.
        let allowed = (decades - 1e-6).ceil();
        right = Some(right.unwrap_or(true) && probes(b) - probes(a) <= allowed + SLACK);
    }
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return open };
    let ours = format!(
        "{} at {} keys, {} at {}",
        number(probes(first)),
        grouped(first.measurement.keys),
        number(probes(last)),
        grouped(last.measurement.keys),
    );
    if right.is_some() { open.with(ours, right, None, None) } else { open }
}

fn one_filter_per_run(rows: &[&OpRow], side: &str) -> Verdict {
    let open = Verdict::open(
        format!("A get of an absent key asks at most one filter for each run ({side})"),
        "at most 1 a run",
    );
    let per_run = rows.iter().map(|row| row.measurement.filter_probes_per_op / row.measurement.runs as f64);
    let Some(most) = per_run.reduce(f64::max).filter(|most| most.is_finite()) else { return open };
    // A tree with filters that are never asked is not what is measured here.
    open.with(format!("at most {}", number(most)), Some(most > 0.0 && most <= 1.0), None, None)
}

fn one_filter_for_all(rows: &[&OpRow], side: &str) -> Verdict {
    let open = Verdict::open(
        format!("A get of an absent key asks one filter, however many runs there are ({side})"),
        "1",
    );
    let probes = || rows.iter().map(|row| row.measurement.filter_probes_per_op);
    let (Some(least), Some(most)) = (probes().reduce(f64::min), probes().reduce(f64::max)) else {
        return open;
    };
    let right = (1.0 - SLACK..=1.0 + SLACK).contains(&least) && most <= 1.0 + SLACK;
    open.with(format!("{} to {}", number(least), number(most)), Some(right), None, None)
}

/// Judges the blocks that a get reads: `needed`, and at most [`BLOCKS_PER_RUN`] for each run.
fn blocks(rows: &[&OpRow], claim: &str, needed: f64) -> Verdict {
    let paper = if needed > 0.0 { format!("{needed:.0} + 0.02 a run") } else { "0.02 a run".to_owned() };
    let open = Verdict::open(claim, paper);
    let more = |row: &&OpRow| (row.measurement.block_reads_per_op - needed) / row.measurement.runs as f64;
    let (Some(least), Some(most)) =
        (rows.iter().map(more).reduce(f64::min), rows.iter().map(more).reduce(f64::max))
    else {
        return open;
    };
    // A get that finds its key in a block has read it.
    let right = least >= 0.0 && most <= BLOCKS_PER_RUN;
    let plus = if needed > 0.0 { format!("{needed:.0} + ") } else { String::new() };
    open.with(format!("{plus}{} to {} a run", number(least), number(most)), Some(right), None, None)
}

/// Ten times the keys take at most [`PER_DECADE`] times as long: judged from each point to the first that has ten times
/// its keys or more.
fn per_decade(op: Workload, rows: &[&OpRow]) -> Verdict {
    let claim = format!("Ten times the keys at most double the time: {}", name_of(op));
    let open = Verdict::open(claim, format!("≤ {PER_DECADE:.0}× a decade"));
    let decade_on = |a: &OpRow| {
        // Rounded numbers of keys are a hair less than a decade apart.
        let far = |b: &&&OpRow| b.measurement.keys as f64 >= a.measurement.keys as f64 * 9.99;
        rows.iter().find(far).map(|b| b.ns().by(a.ns()))
    };
    let growths: Vec<Measured> = rows.iter().filter_map(|row| decade_on(row)).collect();
    limited(open, &growths, |_| PER_DECADE)
}

/// N runs cost less than N times as much as one.
fn less_than_runs(rows: &[&OpRow], side: &str) -> Verdict {
    let claim = format!("N runs cost a get of an absent key less than N times as much as one ({side})");
    let open = Verdict::open(claim, "less than 1× a run");
    let Some(one) = rows.iter().find(|row| row.runs_asked == 1) else { return open };
    let more: Vec<&&OpRow> = rows.iter().filter(|row| row.runs_asked > 1).collect();
    let growths: Vec<Measured> = more.iter().map(|row| row.ns().by(one.ns())).collect();
    let most = rows.last().map_or(0, |row| row.runs_asked);
    let verdict = limited(open, &growths, |at| more[at].runs_asked as f64);
    match growths.last() {
        Some(last) => {
            let note = format!("{:.2} times as much for {most} runs.", last.value);
            let sep = if verdict.note.is_empty() { "" } else { " " };
            Verdict { note: format!("{note}{sep}{}", verdict.note), ..verdict }
        }
        None => verdict,
    }
}

/// Judges growths by the limit of each: fails if one is above it by more than the spreads, and is open if one is above it
/// within them.
pub(super) fn limited(open: Verdict, growths: &[Measured], limit: impl Fn(usize) -> f64) -> Verdict {
    if growths.is_empty() {
        return open;
    }
    let values = || growths.iter().map(|growth| growth.value);
    let ours = format!(
        "{:.2}–{:.2}×",
        values().fold(f64::INFINITY, f64::min),
        values().fold(f64::NEG_INFINITY, f64::max)
    );
    let over = |least: bool| {
        let over = |(at, growth): &(usize, &Measured)| {
            (if least { growth.least } else { growth.value }) > limit(*at)
        };
        growths.iter().enumerate().filter(over).count()
    };
    match (over(true), over(false)) {
        (0, 0) => open.with(ours, Some(true), None, None),
        (0, _) => Verdict { ours, finding: Finding::Open, ..open }
            .noting("Above the limit within the spread of the rounds."),
        (above, _) => open
            .with(ours, Some(false), None, None)
            .noting(format!("Above the limit at {above} of {}.", growths.len())),
    }
}

/// The filter of the whole tree is the faster one over the most runs.
fn faster(op: Workload, global: &[&OpRow], local: &[&OpRow]) -> Verdict {
    let [named, other] = SIDES;
    let claim = format!("Over the most runs {other} is faster than {named}: {}", name_of(op));
    let open = Verdict::open(claim, "faster");
    let gains: Vec<(u64, Gain)> = global
        .iter()
        .filter_map(|ours| {
            let theirs = local.iter().find(|theirs| theirs.runs_asked == ours.runs_asked)?;
            Some((ours.runs_asked, Gain::of(ours.ns(), theirs.ns(), Better::Less)?))
        })
        .collect();
    let Some((most, last)) = gains.last() else { return open };
    let ours = format!("{:.2}× at {most} runs", last.times);
    let is_faster = |(_, gain): &&(u64, Gain)| gain.clear() && gain.times > 1.0;
    let since = gains.iter().rev().take_while(is_faster).last();
    let note = match since {
        Some((1, _)) => "Faster at every number of runs.".to_owned(),
        Some((runs, _)) => format!("Faster from {runs} runs on."),
        None => String::new(),
    };
    if last.clear() {
        open.with(ours, Some(last.times > 1.0), None, None).noting(note)
    } else {
        Verdict { ours, ..open }.noting("The difference is within the spread of the rounds.")
    }
}

/// Returns the sides whose filters differ in memory from the first side's at the same point.
fn unequal_memory(rows: &[OpRow]) -> Vec<&str> {
    let mut unequal: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| other_memory(row.memory_bits_per_key, memory_of_first(rows, row))) {
        if !unequal.contains(&&row.side[..]) {
            unequal.push(&row.side);
        }
    }
    unequal
}

/// Returns the filter bits per key of the first side at a row's point.
pub(super) fn memory_of_first(rows: &[OpRow], row: &OpRow) -> f64 {
    let at =
        |other: &&OpRow| (other.measurement.keys, other.runs_asked) == (row.measurement.keys, row.runs_asked);
    rows.iter().find(at).map_or(0.0, |first| first.memory_bits_per_key)
}
