//! The tables of the report as cells of plain text, shared by Markdown and HTML.

use super::figure::{COSTS, Figure, QUANTILES};
use super::summary::{EVEN, Group, Outcome, PEERS, Spread, Standing, Suite, Summary};
use super::targets::{self, Verdict};
use super::text::{self, Labels};

/// A table of plain text. Every row has as many cells as the head.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Grid {
    /// Its caption.
    pub(crate) caption: String,
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<GridRow>,
    /// Number of columns with names; the others are figures.
    pub(crate) names: usize,
}

/// A row of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct GridRow {
    pub(crate) cells: Vec<String>,
    /// The ratio if the row is a single comparison: above 1 for tamis.
    pub(crate) ratio: Option<f64>,
    /// The cell to stress.
    pub(crate) strong: Vec<usize>,
}

/// The results of one variant of tamis over all rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) ahead: usize,
    pub(super) even: usize,
    pub(super) behind: usize,
    /// Speed targets: met, missed.
    pub(super) speed: (usize, usize),
    /// Cost targets, one for each figure and suite: met in all rows, missed in some.
    pub(super) costs: (usize, usize),
}

impl Tally {
    /// Counts the results of a variant.
    pub(super) fn of(summary: &Summary, variant: &str) -> Tally {
        let mut tally = Tally::default();
        for (_, _, system, comparison) in summary.overview() {
            if system == variant {
                match Standing::of(comparison.ratio) {
                    Standing::Ahead => tally.ahead += 1,
                    Standing::Even => tally.even += 1,
                    Standing::Behind => tally.behind += 1,
                }
            }
        }
        for (_, _, verdict) in verdicts(summary) {
            if variant != targets::SYSTEM || verdict.ratio.is_none() {
                continue;
            }
            let (met, missed) =
                if verdict.target.suite.is_some() { &mut tally.speed } else { &mut tally.costs };
            *if verdict.is_met() { met } else { missed } += 1;
        }
        tally
    }

    /// Returns a sentence.
    pub(super) fn sentence(&self) -> String {
        let rows = self.ahead + self.even + self.behind;
        let mut text = match rows {
            0 => "nothing to compare with".to_owned(),
            _ => format!(
                "ahead in {}, even in {}, behind in {} of {rows} rows",
                self.ahead, self.even, self.behind
            ),
        };
        for (name, (met, missed)) in [("speed", self.speed), ("costs", self.costs)] {
            if met + missed > 0 {
                text += &format!("; targets of {name}: {met} met, {missed} missed");
            }
        }
        text
    }
}

/// Returns a sentence if no other engine was measured.
pub(super) fn absent(summary: &Summary) -> Option<&'static str> {
    let mut groups = summary.suites.iter().flat_map(|suite| &suite.groups);
    let there = |group: &Group| {
        PEERS.iter().any(|peer| matches!(group.outcomes.get(*peer), Some(Outcome::Measured(_))))
    };
    (!groups.any(there)).then_some("No other engine was measured: there are no ratios.")
}

/// Returns every row compared with the best of the peers, worst first.
pub(super) fn overview(summary: &Summary) -> Grid {
    let labels: Vec<Labels> = summary.suites.iter().map(|suite| Labels::of(&suite.groups)).collect();
    let rows = summary.overview().into_iter().map(|(suite, group, system, comparison)| {
        let at = summary.suites.iter().position(|other| other.name == suite.name).unwrap_or(0);
        let headline = suite.headline();
        let unit = if headline == Figure::OpsPerSecond { "kops/s" } else { "ns" };
        let side = |spread: &Spread| format!("{} {unit}", text::median(headline, spread));
        let cells = vec![
            suite.name.clone(),
            labels[at].name(group) + &text::memory(group, &suite.systems),
            system.to_owned(),
            text::ratio(comparison.ratio) + &text::overlap(&comparison),
            text::standing(Standing::of(comparison.ratio)).to_owned(),
            format!("{}, with {}", side(&comparison.ours), text::had(group, system)),
            format!(
                "{} {}, with {}",
                side(&comparison.best.1),
                comparison.best.0,
                text::had(group, comparison.best.0)
            ),
        ];
        GridRow { cells, ratio: Some(comparison.ratio), strong: Vec::new() }
    });
    Grid {
        caption: "Every row, tamis against the best other engine, worst first".to_owned(),
        head: texts(&["suite", "workload", "system", "ratio", "tamis is", "tamis takes", "the best"]),
        rows: rows.collect(),
        names: 3,
    }
}

/// Returns every missed target, farthest first.
pub(super) fn missed(summary: &Summary) -> Grid {
    of_targets(summary, "Targets that were missed, farthest first", |verdict| !verdict.is_met())
}

/// Returns every target that could be judged, the one that is farthest from being met first.
pub(super) fn judged(summary: &Summary) -> Grid {
    of_targets(summary, "Targets, farthest from being met first", |_| true)
}

/// Returns the rows in which tamis with its defaults is not clearly ahead, worst first.
pub(super) fn losses(summary: &Summary) -> Grid {
    let mut grid = overview(summary);
    grid.rows.retain(|row| {
        let uncertain = row.cells[3].ends_with(text::OVERLAP);
        row.cells[2] == targets::SYSTEM && (uncertain || row.ratio.is_some_and(|ratio| ratio < 1.0 + EVEN))
    });
    grid.head.remove(2);
    grid.rows.iter_mut().for_each(|row| drop(row.cells.remove(2)));
    grid.names = 2;
    grid
}

fn of_targets(summary: &Summary, caption: &str, wanted: impl Fn(&Verdict<'_>) -> bool) -> Grid {
    let labels: Vec<Labels> = summary.suites.iter().map(|suite| Labels::of(&suite.groups)).collect();
    let mut found: Vec<(f64, GridRow)> = Vec::new();
    for (at, group, verdict) in verdicts(summary) {
        if let Some(ratio) = verdict.ratio.filter(|_| wanted(&verdict)) {
            let cells =
                vec![summary.suites[at].name.clone(), labels[at].name(group), text::verdict(&verdict)];
            let share = ratio / verdict.target.at_least;
            found.push((share, GridRow { cells, ratio: Some(share), strong: Vec::new() }));
        }
    }
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    Grid {
        caption: caption.to_owned(),
        head: texts(&["suite", "workload", "target"]),
        rows: found.into_iter().map(|(_, row)| row).collect(),
        names: 3,
    }
}

/// Returns all verdicts, with the number of their suite and their row. Cost targets apply to every row and have the
/// worst row of the suite.
fn verdicts(summary: &Summary) -> Vec<(usize, &Group, Verdict<'static>)> {
    let mut all = Vec::new();
    for (at, suite) in summary.suites.iter().enumerate() {
        let judged = |costs| {
            let groups = suite.groups.iter();
            groups.flat_map(move |group| {
                targets::judge(suite, group, costs).into_iter().map(move |v| (at, group, v))
            })
        };
        all.extend(judged(false));
        let mut worst: Vec<(usize, &Group, Verdict<'static>)> = Vec::new();
        for found in judged(true).filter(|found| found.2.ratio.is_some()) {
            match worst.iter_mut().find(|known| known.2.target == found.2.target) {
                Some(known) if found.2.ratio < known.2.ratio => *known = found,
                Some(_) => {}
                None => worst.push(found),
            }
        }
        all.extend(worst);
    }
    all
}

/// Returns a suite's main table for all its systems. `brief`: one thread only, without spreads and targets.
pub(super) fn main(suite: &Suite, brief: bool) -> Grid {
    let groups = suite.groups.iter().filter(|group| !brief || group.conditions.threads == 1);
    let wanted = |group: &Group| if brief { Vec::new() } else { targets::judge(suite, group, false) };
    compared(suite, suite.headline(), groups.collect(), brief, wanted)
}

/// Returns the tables of the systems' costs, without figures that no system has.
pub(super) fn costs(suite: &Suite) -> Vec<Grid> {
    let figures = COSTS.into_iter().filter(|figure| suite.has(*figure));
    let tables = figures.map(|figure| {
        let any = |group: &&Group| {
            suite.systems.iter().filter_map(|s| group.spread(s, figure)).any(|spread| spread.max > 0.0)
        };
        let groups = suite.groups.iter().filter(any).collect();
        compared(suite, figure, groups, true, |group: &Group| {
            let all = targets::judge(suite, group, true).into_iter();
            all.filter(|verdict| verdict.target.figure == figure).collect()
        })
    });
    tables.collect()
}

/// Returns a table with a row for each group, a column for each system, one for each variant against the best, and one
/// for targets.
fn compared(
    suite: &Suite,
    figure: Figure,
    groups: Vec<&Group>,
    brief: bool,
    wanted: impl Fn(&Group) -> Vec<Verdict<'static>>,
) -> Grid {
    let labels = Labels::of(groups.iter().copied());
    let variants: Vec<&str> = suite.variants().collect();
    let with_targets = groups.iter().any(|group| !wanted(group).is_empty());
    let mut head = texts(&["workload"]);
    head.extend(suite.systems.iter().cloned());
    head.extend(variants.iter().map(|variant| format!("{variant} against the best")));
    if with_targets {
        head.push("target".to_owned());
    }
    let width = head.len();
    let rows = groups.into_iter().flat_map(|group| {
        let mark =
            if figure == suite.headline() { text::memory(group, &suite.systems) } else { String::new() };
        let mut cells = vec![labels.name(group) + &mark];
        cells.extend(suite.systems.iter().map(|system| text::cell(group, system, figure, brief)));
        cells.extend(variants.iter().map(|variant| text::against(group.compare(variant, figure))));
        if with_targets {
            let verdicts: Vec<String> = wanted(group).iter().map(text::verdict).collect();
            cells.push(verdicts.join("; "));
        }
        let had = (figure == suite.headline()).then(|| had(suite, group, width));
        [Some(GridRow { cells, ratio: None, strong: Vec::new() }), had]
    });
    Grid { caption: figure.title().to_owned(), head, rows: rows.flatten().collect(), names: 1 }
}

/// Returns the row below a time or a throughput: what each system had.
fn had(suite: &Suite, group: &Group, width: usize) -> GridRow {
    let mut cells = vec![text::HAD.to_owned()];
    cells.extend(suite.systems.iter().map(|system| text::had(group, system)));
    cells.resize(width, String::new());
    GridRow { cells, ratio: None, strong: Vec::new() }
}

/// Returns where puts are when they return, a line for each answer with its systems.
pub(super) fn durability(suite: &Suite) -> Vec<String> {
    let line = |(what, systems): &(String, Vec<String>)| format!("{}: {what}", systems.join(", "));
    suite.durability.iter().map(line).collect()
}

/// Returns the quantiles of single operations. `None` if no system has any.
pub(super) fn latencies(suite: &Suite) -> Option<Grid> {
    if !QUANTILES.iter().any(|figure| suite.has(*figure)) {
        return None;
    }
    let labels = Labels::of(&suite.groups);
    let mut head = texts(&["workload"]);
    head.extend(suite.systems.iter().cloned());
    let rows = suite.groups.iter().map(|group| {
        let cells = suite.systems.iter().map(|system| quantiles(group, system));
        GridRow {
            cells: std::iter::once(labels.name(group)).chain(cells).collect(),
            ratio: None,
            strong: Vec::new(),
        }
    });
    let caption = "p50 / p99 / p99.9 of single operations, ns, medians over the rounds".to_owned();
    Some(Grid { caption, head, rows: rows.collect(), names: 1 })
}

/// Returns a system's three quantiles.
pub(super) fn quantiles(group: &Group, system: &str) -> String {
    let cells = QUANTILES.map(|figure| match group.spread(system, figure) {
        Some(spread) => text::value(figure, spread.median),
        None => text::cell(group, system, figure, true),
    });
    if cells.iter().all(|cell| *cell == cells[0]) && group.spread(system, Figure::P50).is_none() {
        return cells[0].clone();
    }
    cells.join(" / ")
}

/// Returns the systems not measured in a suite, with reasons: `leveldb (get-empty, seek): reason`.
pub(super) fn refusals(suite: &Suite) -> Vec<String> {
    let line = |((system, reason), workloads): ((&str, &str), Vec<&str>)| {
        format!("{system} ({}): {reason}", workloads.join(", "))
    };
    suite.refusals().into_iter().map(line).collect()
}

/// Returns one set of options of one system.
pub(super) fn options(options: &std::collections::BTreeMap<String, String>, suites: &[String]) -> Grid {
    let rows = options.iter().map(|(name, value)| GridRow {
        cells: vec![name.clone(), value.clone()],
        ratio: None,
        strong: Vec::new(),
    });
    Grid {
        caption: format!("in {}", suites.join(", ")),
        head: texts(&["option", "value"]),
        rows: rows.collect(),
        names: 2,
    }
}

fn texts(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::{refused, row, rows_of};

    #[test]
    fn rows_and_targets_are_counted() {
        let mut rows = rows_of("settled", "get-empty", &[("tamis", &[10.0]), ("rocksdb", &[30.0])]);
        rows.extend(rows_of("settled", "seek", &[("tamis", &[10.0]), ("rocksdb", &[10.1])]));
        rows.extend(rows_of("settled", "range-empty", &[("tamis", &[10.0]), ("rocksdb", &[9.0])]));
        rows.extend(rows_of(
            "cold",
            "seek",
            &[("tamis", &[10.0]), ("tamis-grf", &[8.0]), ("rocksdb", &[9.0])],
        ));
        // In one of the three rows of the suite tamis takes more space.
        let spoilt = rows.iter_mut().find(|row| row.system == "tamis" && row.conditions.workload == "seek");
        spoilt.unwrap().figures.space_amplification *= 2.0;
        let summary = Summary::of(&rows);
        // Speed: 3 ≥ 2; 1.01 < 1.3; 0.9 < 1.3. Costs: space of the cold suite.
        let tally = Tally { ahead: 1, even: 1, behind: 2, speed: (1, 2), costs: (1, 1) };
        assert_eq!(Tally::of(&summary, "tamis"), tally);
        assert_eq!(Tally::of(&summary, "tamis-grf"), Tally { ahead: 1, ..Tally::default() });
        assert_eq!(
            tally.sentence(),
            "ahead in 1, even in 1, behind in 2 of 4 rows; targets of speed: 1 met, 2 missed; \
             targets of costs: 1 met, 1 missed"
        );
        let ratios: Vec<f64> = overview(&summary).rows.iter().filter_map(|row| row.ratio).collect();
        assert_eq!(ratios, [9.0 / 10.0, 9.0 / 10.0, 10.1 / 10.0, 9.0 / 8.0, 3.0]);
        let missed: Vec<String> = missed(&summary).rows.iter().map(|row| row.cells.join(" ")).collect();
        assert_eq!(missed.len(), 3);
        assert_eq!(missed[0], "settled seek space ≥ 1.00×: 0.50× missed by 50 %");
        assert_eq!(missed[1], "settled range-empty ≥ 1.30×: 0.90× missed by 31 %");
    }

    #[test]
    fn rows_that_are_not_clearly_won_are_losses() {
        let mut rows = rows_of("settled", "seek", &[("tamis", &[10.0]), ("lmdb", &[9.0])]);
        rows.extend(rows_of("settled", "get-empty", &[("tamis", &[10.0]), ("lmdb", &[10.1])]));
        rows.extend(rows_of(
            "settled",
            "get-zipf",
            &[("tamis", &[9.0, 10.0, 13.0]), ("redb", &[12.0, 13.0, 14.0])],
        ));
        rows.extend(rows_of("settled", "get-existing", &[("tamis", &[10.0]), ("mdbx", &[30.0])]));
        rows.extend(rows_of("cold", "seek", &[("tamis-grf", &[10.0]), ("lmdb", &[9.0])]));
        let grid = losses(&Summary::of(&rows));
        let names: Vec<&str> = grid.rows.iter().map(|row| row.cells[1].as_str()).collect();
        assert_eq!(names, ["seek", "get-empty", "get-zipf"]);
        assert!(grid.rows.iter().all(|row| row.cells.len() == grid.head.len()));
    }

    /// A table had `grf` at 14 bits a key beside 10 of the others, and said so nowhere.
    #[test]
    fn no_time_is_without_what_it_was_measured_with() {
        let mut rows =
            rows_of("settled", "get-empty", &[("tamis", &[10.0, 12.0]), ("tamis-grf", &[9.0, 9.0])]);
        rows.extend(rows_of("settled", "seek", &[("tamis", &[10.0, 12.0]), ("tamis-grf", &[9.0, 9.0])]));
        for row in &mut rows {
            let grf = row.system == "tamis-grf" && row.conditions.workload == "get-empty";
            row.figures.inside.filter_bytes = Some(if grf { 1_780_000 } else { 1_250_000 });
            row.figures.inside.index_bytes = Some(125_000);
            row.figures.inside.runs = Some(5 - u64::from(row.round));
        }
        let mut counted = row("settled", "get-empty", "tamis", 2, 0.0);
        counted.figures = crate::record::Figures { instructions_per_op: 1234.4, ..Default::default() };
        rows.push(counted);
        let summary = Summary::of(&rows);
        for brief in [false, true] {
            let grid = main(&summary.suites[0], brief);
            let names: Vec<&str> = grid.rows.iter().map(|row| row.cells[0].as_str()).collect();
            assert_eq!(names, ["get-empty §", "with", "seek", "with"]);
            let had = |row: usize, cell: usize| grid.rows[row].cells[cell].as_str();
            assert_eq!(had(1, 1), "10.00 + 1.00 bits, 4–5 runs, 64.0 MiB, 1,234 instr.");
            assert_eq!(had(1, 2), "14.24 + 1.00 bits, 4–5 runs, 64.0 MiB");
        }
        assert_eq!(durability(&summary.suites[0]), ["tamis, tamis-grf: with the operating system"]);
    }

    #[test]
    fn without_another_engine_there_are_no_ratios() {
        let only = vec![row("load", "fill-seq", "tamis", 0, 1.0), refused("load", "fill-seq", "fjall", "no")];
        assert!(absent(&Summary::of(&only)).is_some());
        assert_eq!(Tally::of(&Summary::of(&only), "tamis").sentence(), "nothing to compare with");
        let two = [row("load", "fill-seq", "tamis", 0, 1.0), row("load", "fill-seq", "mdbx", 0, 1.0)];
        assert_eq!(absent(&Summary::of(&two)), None);
    }

    #[test]
    fn cells_show_refusals_and_missing_values() {
        let mut rows = rows_of("runs", "seek", &[("tamis", &[10.0]), ("fjall", &[20.0])]);
        rows.push(refused("runs", "seek", "leveldb", "cannot"));
        rows.extend(rows_of("runs", "get-empty", &[("tamis", &[10.0])]));
        let summary = Summary::of(&rows);
        let grid = main(&summary.suites[0], false);
        let head = ["workload", "tamis", "leveldb", "fjall", "tamis against the best", "target"];
        assert_eq!(grid.head, head);
        let cells: Vec<String> = grid.rows.iter().map(|row| row.cells.join(" | ")).collect();
        assert_eq!(cells[0], "seek | 10.0* | refused | 20.0* | 2.00× fjall | ");
        assert_eq!(cells[1], "with | 64.0 MiB | — | 64.0 MiB |  | ");
        assert_eq!(cells[2], "get-empty | 10.0* | — | — | — | ≥ 4.00×: nothing to compare with");
        assert_eq!(refusals(&summary.suites[0]), ["leveldb (seek): cannot"]);
        let quantiles = latencies(&summary.suites[0]).unwrap();
        assert_eq!(quantiles.rows[0].cells, ["seek", "10.0 / 20.0 / 50.0", "refused", "20.0 / 40.0 / 100"]);
        assert_eq!(quantiles.rows[1].cells, ["get-empty", "10.0 / 20.0 / 50.0", "—", "—"]);
    }

    #[test]
    fn every_row_is_as_wide_as_its_head() {
        let summary = Summary::of(&crate::report::synthetic::comparison());
        let mut grids = vec![overview(&summary), missed(&summary)];
        for suite in &summary.suites {
            grids.extend([main(suite, false), main(suite, true)]);
            grids.extend(latencies(suite));
            grids.extend(costs(suite));
        }
        for grid in grids {
            assert!(!grid.rows.is_empty(), "{}", grid.caption);
            assert!(grid.rows.iter().all(|row| row.cells.len() == grid.head.len()), "{}", grid.caption);
        }
    }
}
