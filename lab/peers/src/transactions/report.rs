//! Tables of medians over the rounds, as text and Markdown.

use std::collections::BTreeMap;

use tamis_bench::report::{Align, Table, bytes, grouped, mean};
use tamis_lab::documents::{commands, escaped};

use super::conduct::{Plan, Row};
use super::measure::Figures;
use super::sides::Name;
use super::workload::Workload;
use crate::report::{Context, Grid, GridRow, Spread, ended, marks, ratio, titled};

/// The share of plain writes that transactions without contention should reach.
const TARGET: f64 = 0.9;

/// How to read the tables.
const HOW_TO_READ: [&str; 5] = [
    "ns/op is wall time × threads / operations: the time of one operation on its thread, repeated attempts included. Every \
     figure is the median over the rounds; of ns/op minimum and maximum are in brackets. * fewer than 5 rounds. † the rounds \
     differ by more than 20 % of the median.",
    "retries/op: failed attempts of transactions per operation that was acknowledged. p50 and p99: of single operations, with \
     all their attempts.",
    "× get-put: how fast it is compared with a get and a put without a transaction, by the same side with as many threads. \
     Above 1 it is faster.",
    "× others: throughput compared with the best side of any other engine in the same table and with as many threads. Above 1 \
     it is ahead.",
    "scans/s: passes over all accounts by one more thread, each in one read-only transaction and with the right sum; failed: \
     passes that ended with a conflict.",
];

/// The medians of one side.
struct Line {
    side: Name,
    ns_per_op: Spread,
    ops_per_second: f64,
    retries_per_op: f64,
    p50_ns: f64,
    p99_ns: f64,
    scans_per_second: f64,
    failed_scans: u64,
}

impl Line {
    fn of(side: Name, rounds: &[&Figures]) -> Option<Line> {
        let spread =
            |figure: fn(&Figures) -> f64| Spread::of(rounds.iter().map(|figures| figure(figures)).collect());
        let median = |figure| spread(figure).map(|spread| spread.median);
        Some(Line {
            side,
            ns_per_op: spread(|figures| figures.ns_per_op)?,
            ops_per_second: median(|figures| figures.ops_per_second)?,
            retries_per_op: median(|figures| figures.retries_per_op)?,
            p50_ns: median(|figures| figures.p50_ns as f64)?,
            p99_ns: median(|figures| figures.p99_ns as f64)?,
            scans_per_second: median(|figures| figures.scans_per_second)?,
            failed_scans: rounds.iter().map(|figures| figures.failed_scans).sum(),
        })
    }
}

/// The sides under the same workload and number of threads.
type Groups = BTreeMap<(Workload, usize), Vec<Line>>;

fn groups(rows: &[Row]) -> Groups {
    let mut rounds: BTreeMap<(Workload, usize, Name), Vec<&Figures>> = BTreeMap::new();
    for row in rows {
        if let Some(side) = Name::find(&row.side) {
            rounds.entry((row.workload, row.threads, side)).or_default().push(&row.figures);
        }
    }
    let mut groups = Groups::new();
    for ((workload, threads, side), figures) in rounds {
        groups.entry((workload, threads)).or_default().extend(Line::of(side, &figures));
    }
    groups
}

/// Returns the throughput of a side divided by that of the best side of any other engine, and that one's name.
fn against_others(line: &Line, all: &[Line]) -> Option<(f64, Name)> {
    let others = all.iter().filter(|other| other.side.engine() != line.side.engine());
    let best = others.max_by(|a, b| a.ops_per_second.total_cmp(&b.ops_per_second))?;
    Some((line.ops_per_second / best.ops_per_second, best.side))
}

/// Returns the speed of a side compared with that of its own `get-put`.
fn against_plain(line: &Line, threads: usize, groups: &Groups) -> Option<f64> {
    let plain = groups.get(&(Workload::GetPut, threads))?.iter().find(|plain| plain.side == line.side)?;
    Some(plain.ns_per_op.median / line.ns_per_op.median)
}

/// Returns one table for each workload, and one of the targets.
pub(super) fn tables(rows: &[Row]) -> Vec<Grid> {
    let groups = groups(rows);
    let mut tables: Vec<Grid> = Workload::ALL.into_iter().map(|workload| table(workload, &groups)).collect();
    tables.push(targets(&groups));
    tables.retain(|table| !table.rows.is_empty());
    tables
}

fn table(workload: Workload, groups: &Groups) -> Grid {
    let mut head =
        vec!["threads", "side", "ns/op", "ops/s", "retries/op", "p50 ns", "p99 ns", "× get-put", "× others"];
    if workload.scans() {
        head.extend(["scans/s", "failed"]);
    }
    let mut rows = Vec::new();
    for (&(_, threads), lines) in groups.iter().filter(|((of, _), _)| *of == workload) {
        for line in lines {
            let ns = line.ns_per_op;
            let [median, min, max] = [ns.median, ns.min, ns.max].map(whole);
            let others = against_others(line, lines);
            let mut cells = vec![
                threads.to_string(),
                line.side.to_string(),
                match ns.rounds {
                    1 => format!("{median}{}", marks(&ns)),
                    _ => format!("{median}{} ({min}–{max})", marks(&ns)),
                },
                whole(line.ops_per_second),
                mean(line.retries_per_op),
                whole(line.p50_ns),
                whole(line.p99_ns),
                against_plain(line, threads, groups).map_or_else(none, ratio),
                others.map_or_else(none, |(by, best)| format!("{} {best}", ratio(by))),
            ];
            if workload.scans() {
                cells.extend([whole(line.scans_per_second), grouped(line.failed_scans)]);
            }
            rows.push(GridRow { cells, ratio: others.map(|(by, _)| by), strong: Vec::new() });
        }
    }
    let head = head.into_iter().map(str::to_owned).collect();
    Grid { caption: format!("{workload}: {}", workload.about()), head, rows, names: 2 }
}

/// Returns the targets: ahead of every other engine, and without contention nearly as fast as plain writes.
fn targets(groups: &Groups) -> Grid {
    let mut rows = Vec::new();
    for (&(workload, threads), lines) in groups {
        let ours = lines.iter().filter(|line| line.side.engine() == "tamis");
        if workload == Workload::Modify {
            for line in ours.clone() {
                if let Some(by) = against_plain(line, threads, groups) {
                    let what = format!("at least {} of get-put", ratio(TARGET));
                    rows.push(target(workload, threads, line.side, what, by, by >= TARGET));
                }
            }
        }
        if workload.keys_at_once() > 0 {
            let best = ours.max_by(|a, b| a.ops_per_second.total_cmp(&b.ops_per_second));
            if let Some((line, (by, other))) =
                best.and_then(|line| Some((line, against_others(line, lines)?)))
            {
                let what = format!("the best side ahead of the best other, {other}");
                rows.push(target(workload, threads, line.side, what, by, by > 1.0));
            }
        }
    }
    let head = ["workload", "threads", "side", "target", "reached", "met"].map(str::to_owned).to_vec();
    Grid { caption: "Targets".to_owned(), head, rows, names: 4 }
}

fn target(workload: Workload, threads: usize, side: Name, what: String, by: f64, met: bool) -> GridRow {
    let met = if met { "yes" } else { "no" }.to_owned();
    let cells = vec![workload.to_string(), threads.to_string(), side.to_string(), what, ratio(by), met];
    GridRow { cells, ratio: Some(by), strong: Vec::new() }
}

fn whole(number: f64) -> String {
    grouped(number.round() as u64)
}

fn none() -> String {
    "—".to_owned()
}

/// Describes the sizes.
fn sizes(plan: &Plan) -> String {
    format!(
        "{} keys of 8 bytes in put, get-put and modify, values of {} bytes; at most {} operations or {} s for each \
         measurement, rounds: {}, seed {}; memtables of {}, cache {}; logs written but not synced",
        grouped(plan.keys),
        plan.value_bytes,
        grouped(plan.ops),
        plan.seconds,
        plan.rounds,
        plan.seed,
        bytes(plan.memtable_bytes),
        bytes(plan.cache_bytes)
    )
}

/// Returns the tables as text.
pub(super) fn text(tables: &[Grid], plan: &Plan) -> String {
    let mut out = format!("{}.\n\n", sizes(plan));
    for grid in tables {
        let align = |at: usize| if at < grid.names && at > 0 { Align::Left } else { Align::Right };
        let columns: Vec<_> =
            grid.head.iter().enumerate().map(|(at, name)| (name.as_str(), align(at))).collect();
        let mut table = Table::new(&columns);
        grid.rows.iter().for_each(|row| table.row(row.cells.clone()));
        out += &format!("{}\n\n{}\n", grid.caption, table.render());
    }
    HOW_TO_READ.iter().for_each(|line| out += &format!("{line}\n"));
    out
}

/// Returns the tables as a page.
pub(super) fn markdown(tables: &[Grid], plan: &Plan, context: &Context, command: &str) -> String {
    let mut out = String::from("# Transactions compared\n\n");
    let machine = escaped(&context.machine.describe());
    out += &format!("{}, on {machine}. {}.\n\n", escaped(&context.date), escaped(&sizes(plan)));
    out += &commands(&[command.to_owned()]);
    HOW_TO_READ.iter().for_each(|line| out += &format!("* {}\n", escaped(line)));
    out.push('\n');
    plan.sides.iter().for_each(|side| out += &format!("* {}: {}\n", side.name(), side.about()));
    out.push('\n');
    tables.iter().for_each(|table| titled(&mut out, table));
    ended(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns rows of one thread with these ns/op, one for each round.
    fn rows(side: &str, workload: Workload, ns: &[f64]) -> Vec<Row> {
        let row = |(round, &ns_per_op): (usize, &f64)| {
            let figures = Figures { ns_per_op, ops_per_second: 1e9 / ns_per_op, ..Figures::default() };
            let round = round as u32;
            Row { side: side.into(), workload, threads: 1, round, keys: 100, value_bytes: 100, figures }
        };
        ns.iter().enumerate().map(row).collect()
    }

    #[test]
    fn ratios_are_of_medians_and_of_other_engines() {
        let rows = [
            rows("tamis", Workload::GetPut, &[800.0, 900.0, 850.0]),
            rows("tamis", Workload::Modify, &[1000.0, 3000.0, 900.0]),
            rows("tamis-update", Workload::Modify, &[400.0, 500.0, 600.0]),
            rows("rocksdb-locking", Workload::Modify, &[2000.0, 2000.0, 2000.0]),
            rows("redb", Workload::Modify, &[4000.0, 4000.0, 4000.0]),
        ];
        let tables = tables(&rows.concat());
        let lines =
            |table: &Grid| -> Vec<String> { table.rows.iter().map(|row| row.cells.join(" | ")).collect() };
        assert_eq!(tables.len(), 3);
        let modify = lines(&tables[1]);
        assert!(modify[0].starts_with("1 | tamis | 1,000*† (900–3,000) | 1,000,000 | 0 |"), "{modify:?}");
        assert!(modify[0].ends_with("| 0.85× | 2.00× rocksdb-locking"), "{modify:?}");
        // The side itself has no get-put here, and another one of the same engine does not count as another.
        assert!(modify[1].ends_with("| — | 4.00× rocksdb-locking"), "{modify:?}");
        assert!(modify[2].ends_with("| 0.25× tamis-update"), "{modify:?}");
        assert_eq!(
            lines(&tables[2]),
            [
                "modify | 1 | tamis | at least 0.90× of get-put | 0.85× | no",
                "modify | 1 | tamis-update | the best side ahead of the best other, rocksdb-locking | 4.00× | yes",
            ]
        );
    }
}
