//! The tables of the report as plain text in cells, the same for Markdown and HTML.

use super::figure::{COSTS, Figure, QUANTILES};
use super::summary::{Group, Spread, Standing, Suite, Summary};
use super::targets::{self, Verdict};
use super::text::{self, Labels};

/// A table of plain text. Every row has as many cells as the head.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Grid {
    /// What it is of.
    pub(super) caption: String,
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<GridRow>,
    /// So many columns are names; the others are figures.
    pub(super) names: usize,
}

/// A row of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct GridRow {
    pub(super) cells: Vec<String>,
    /// If the row is one comparison: how it ended, above 1 for tamis.
    pub(super) ratio: Option<f64>,
}

/// How one variant of tamis did over all rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) ahead: usize,
    pub(super) even: usize,
    pub(super) behind: usize,
    pub(super) targets_met: usize,
    pub(super) targets_missed: usize,
}

impl Tally {
    /// Of a variant.
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
            match verdict.ratio {
                Some(_) if verdict.target.system != variant => {}
                Some(_) if verdict.is_met() => tally.targets_met += 1,
                Some(_) => tally.targets_missed += 1,
                None => {}
            }
        }
        tally
    }

    /// In a sentence.
    pub(super) fn sentence(&self) -> String {
        let rows = self.ahead + self.even + self.behind;
        let mut text = match rows {
            0 => "nothing to compare with".to_owned(),
            _ => format!(
                "ahead in {}, even in {}, behind in {} of {rows} rows",
                self.ahead, self.even, self.behind
            ),
        };
        if self.targets_met + self.targets_missed > 0 {
            text += &format!("; {} targets met, {} missed", self.targets_met, self.targets_missed);
        }
        text
    }
}

/// Every row against the best of the peers, worst first.
pub(super) fn overview(summary: &Summary) -> Grid {
    let labels: Vec<Labels> = summary.suites.iter().map(Labels::of).collect();
    let rows = summary.overview().into_iter().map(|(suite, group, system, comparison)| {
        let at = summary.suites.iter().position(|other| other.name == suite.name).unwrap_or(0);
        let headline = suite.headline();
        let unit = if headline == Figure::OpsPerSecond { "kops/s" } else { "ns" };
        let side = |spread: &Spread| format!("{} {unit}", text::median(headline, spread));
        let cells = vec![
            suite.name.clone(),
            labels[at].name(group),
            system.to_owned(),
            text::ratio(comparison.ratio) + &text::overlap(&comparison),
            text::standing(Standing::of(comparison.ratio)).to_owned(),
            side(&comparison.ours),
            format!("{} {}", side(&comparison.best.1), comparison.best.0),
        ];
        GridRow { cells, ratio: Some(comparison.ratio) }
    });
    Grid {
        caption: "Every row, tamis against the best of RocksDB, LevelDB and fjall, worst first".to_owned(),
        head: texts(&["suite", "workload", "system", "ratio", "tamis is", "tamis takes", "the best"]),
        rows: rows.collect(),
        names: 3,
    }
}

/// Every target that was missed, farthest first.
pub(super) fn missed(summary: &Summary) -> Grid {
    let labels: Vec<Labels> = summary.suites.iter().map(Labels::of).collect();
    let mut found: Vec<(f64, GridRow)> = Vec::new();
    for (at, group, verdict) in verdicts(summary) {
        if let Some(ratio) = verdict.ratio.filter(|_| !verdict.is_met()) {
            let cells =
                vec![summary.suites[at].name.clone(), labels[at].name(group), text::verdict(&verdict)];
            let share = ratio / verdict.target.at_least;
            found.push((share, GridRow { cells, ratio: Some(share) }));
        }
    }
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    Grid {
        caption: "Targets that were missed, farthest first".to_owned(),
        head: texts(&["suite", "workload", "target"]),
        rows: found.into_iter().map(|(_, row)| row).collect(),
        names: 3,
    }
}

/// All verdicts, with the number of their suite.
fn verdicts(summary: &Summary) -> Vec<(usize, &Group, Verdict<'static>)> {
    let mut all = Vec::new();
    for (at, suite) in summary.suites.iter().enumerate() {
        for group in &suite.groups {
            for costs in [false, true] {
                all.extend(
                    targets::judge(suite, group, costs).into_iter().map(|verdict| (at, group, verdict)),
                );
            }
        }
    }
    all
}

/// What a suite is about, for all its systems. `brief`: one thread only, without spreads and targets.
pub(super) fn main(suite: &Suite, brief: bool) -> Grid {
    let groups = suite.groups.iter().filter(|group| !brief || group.conditions.threads == 1);
    let wanted = |group: &Group| if brief { Vec::new() } else { targets::judge(suite, group, false) };
    compared(suite, suite.headline(), groups.collect(), brief, wanted)
}

/// The tables of what systems cost; figures that nobody has are left out.
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

/// A row for each group, a column for each system, one for each variant against the best, one for targets.
fn compared(
    suite: &Suite,
    figure: Figure,
    groups: Vec<&Group>,
    brief: bool,
    wanted: impl Fn(&Group) -> Vec<Verdict<'static>>,
) -> Grid {
    let labels = Labels::of(suite);
    let variants: Vec<&str> = suite.variants().collect();
    let with_targets = groups.iter().any(|group| !wanted(group).is_empty());
    let mut head = texts(&["workload"]);
    head.extend(suite.systems.iter().cloned());
    head.extend(variants.iter().map(|variant| format!("{variant} against the best")));
    if with_targets {
        head.push("target".to_owned());
    }
    let rows = groups.into_iter().map(|group| {
        let mut cells = vec![labels.name(group)];
        cells.extend(suite.systems.iter().map(|system| text::cell(group, system, figure, brief)));
        cells.extend(variants.iter().map(|variant| text::against(group.compare(variant, figure))));
        if with_targets {
            let verdicts: Vec<String> = wanted(group).iter().map(text::verdict).collect();
            cells.push(verdicts.join("; "));
        }
        GridRow { cells, ratio: None }
    });
    Grid { caption: figure.title().to_owned(), head, rows: rows.collect(), names: 1 }
}

/// The quantiles of single operations. `None` if nobody has any.
pub(super) fn latencies(suite: &Suite) -> Option<Grid> {
    if !QUANTILES.iter().any(|figure| suite.has(*figure)) {
        return None;
    }
    let labels = Labels::of(suite);
    let mut head = texts(&["workload"]);
    head.extend(suite.systems.iter().cloned());
    let rows = suite.groups.iter().map(|group| {
        let cells = suite.systems.iter().map(|system| quantiles(group, system));
        GridRow { cells: std::iter::once(labels.name(group)).chain(cells).collect(), ratio: None }
    });
    let caption = "p50 / p99 / p99.9 of single operations, ns, medians over the rounds".to_owned();
    Some(Grid { caption, head, rows: rows.collect(), names: 1 })
}

/// A system's three quantiles.
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

/// Who was not measured in a suite, and why: `leveldb (get-empty, seek): reason`.
pub(super) fn refusals(suite: &Suite) -> Vec<String> {
    let line = |((system, reason), workloads): ((&str, &str), Vec<&str>)| {
        format!("{system} ({}): {reason}", workloads.join(", "))
    };
    suite.refusals().into_iter().map(line).collect()
}

/// One set of options of one system.
pub(super) fn options(options: &std::collections::BTreeMap<String, String>, suites: &[String]) -> Grid {
    let rows =
        options.iter().map(|(name, value)| GridRow { cells: vec![name.clone(), value.clone()], ratio: None });
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
