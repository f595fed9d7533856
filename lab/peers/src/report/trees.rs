//! Trees compared by what they write and how they read: a table for each set of keys, and a picture of two axes.
//!
//! All is from the suite `steady` with reads among its workloads: they meet the trees that overwrites have left.

use std::path::Path;

use tamis_bench::Workload;
use tamis_lab::documents::Section;
use tamis_lab::figures::draw::{self, Sides};
use tamis_lab::figures::{Axis, Kind, Panel, Point, Series};

use super::figure::Figure;
use super::front;
use super::markdown;
use super::summary::{Group, Spread, Summary};
use super::tables::{Grid, GridRow};
use super::text;
use crate::record::Conditions;

const SUITE: &str = "steady";

/// The columns of reads.
const COLUMNS: [(&str, Workload); 5] = [
    ("absent get", Workload::GetEmpty),
    ("present get", Workload::GetExisting),
    ("empty range", Workload::RangeEmpty),
    ("seek", Workload::Seek),
    ("seek + 50", Workload::SeekNext50),
];

/// The reads of the picture, in equal shares.
const MIXED: [Workload; 4] =
    [Workload::GetEmpty, Workload::GetExisting, Workload::Seek, Workload::SeekNext50];

/// The picture's file, below the directory of pictures.
const FILE: &str = "trees.svg";
const TITLE: &str = "What a tree writes, and how it reads";

/// Returns the name of a system in tables and in the picture.
fn name(system: &str) -> String {
    let Some(options) = system.strip_prefix("tamis") else {
        let known = front::ENGINES.iter().find(|(known, _)| *known == system);
        return known.map_or(system, |(_, name)| name).to_owned();
    };
    if options.is_empty() {
        return "leveling".to_owned();
    }
    let options = options.trim_start_matches(['-', ':']).split(',');
    let values: Vec<&str> = options.map(|option| option.rsplit('=').next().unwrap_or(option)).collect();
    values.join(" + ")
}

/// The data of a table: keys, their number, and whether the page cache was bypassed.
fn data(conditions: &Conditions) -> (&str, u64, bool) {
    (&conditions.key_set, conditions.keys, conditions.direct_io)
}

/// Returns the row of a workload on the same data as another row.
fn find<'s>(summary: &'s Summary, workload: Workload, like: &Conditions) -> Option<&'s Group> {
    let suite = summary.suites.iter().find(|known| known.name == SUITE)?;
    suite.groups.iter().find(|group| {
        let here = &group.conditions;
        here.workload == workload.name() && here.threads == 1 && data(here) == data(like)
    })
}

/// Returns the suite's systems and what its tables are of: random keys and the page cache first.
fn sets(summary: &Summary) -> Result<(&[String], Vec<&Conditions>), String> {
    let suite = summary.suites.iter().find(|suite| suite.name == SUITE);
    let suite = suite.ok_or_else(|| format!("the rows have no suite `{SUITE}`"))?;
    let mut sets: Vec<&Conditions> = Vec::new();
    for Group { conditions, .. } in &suite.groups {
        if conditions.threads == 1 && !sets.iter().any(|known| data(known) == data(conditions)) {
            sets.push(conditions);
        }
    }
    sets.sort_by_key(|set| (set.direct_io, set.key_set != "uniform", set.keys));
    Ok((&suite.systems, sets))
}

/// Returns the tables.
pub(super) fn tables(summary: &Summary) -> Result<String, String> {
    let (systems, sets) = sets(summary)?;
    let mut text = String::new();
    sets.iter().for_each(|set| markdown::titled(&mut text, &table(summary, set, systems)));
    Ok(text)
}

/// Returns the tables after the picture of the first, whose file is in `dir` beside the document.
pub(super) fn trees(summary: &Summary, dir: &str) -> Result<Section, String> {
    front::check_directory(dir)?;
    let (systems, sets) = sets(summary)?;
    let panel = panel(summary, sets.first().ok_or("the rows have nothing to draw")?, systems);
    let svg = draw::svg(&panel, &Sides::of([&panel]));
    let text = format!("![{TITLE}; the table below has the values]({dir}/{FILE})\n\n{}", tables(summary)?);
    Ok(Section { text, files: vec![(Path::new(dir).join(FILE), svg)] })
}

fn table(summary: &Summary, set: &Conditions, systems: &[String]) -> Grid {
    let writes = find(summary, Workload::Overwrite, set);
    let reads: Vec<(&str, &Group)> =
        COLUMNS.iter().filter_map(|(name, workload)| Some((*name, find(summary, *workload, set)?))).collect();
    let mut head = vec!["reads in µs".to_owned()];
    if writes.is_some() {
        head.extend(["bytes written / put", "puts/s, thousands", "files / live data"].map(str::to_owned));
    }
    head.push("runs".to_owned());
    head.extend(reads.iter().map(|(name, _)| (*name).to_owned()));
    // Each set of keys has its own systems.
    let groups = || writes.into_iter().chain(reads.iter().map(|(_, group)| *group));
    let here = systems.iter().filter(|system| groups().any(|group| group.outcomes.contains_key(*system)));
    let rows = here.map(|system| {
        let mut cells = vec![name(system)];
        if let Some(writes) = writes {
            let figures = [Figure::WriteAmplification, Figure::OpsPerSecond, Figure::UnsettledSpace];
            cells.extend(figures.map(|figure| text::cell(writes, system, figure, true)));
        }
        let runs = reads.first().and_then(|(_, group)| group.spread(system, Figure::Runs));
        cells.push(runs.map_or("—".to_owned(), |runs| text::value(Figure::Runs, runs.median)));
        cells.extend(reads.iter().map(|(_, group)| read(group, system, set.direct_io)));
        GridRow { cells, ratio: None, strong: Vec::new() }
    });
    let rows: Vec<GridRow> = rows.collect();
    let how = if set.direct_io { ", direct I/O: in brackets what the device read per operation" } else { "" };
    Grid {
        caption: format!("{} {} keys{how}", text::value(Figure::Runs, set.keys as f64), set.key_set),
        head,
        rows,
        names: 1,
    }
}

/// Returns the time of a read, and with direct I/O what the device read for it.
fn read(group: &Group, system: &str, direct: bool) -> String {
    let Some(Spread { median, .. }) = group.spread(system, Figure::NsPerOp) else {
        return text::cell(group, system, Figure::NsPerOp, true);
    };
    let time = text::value(Figure::NsPerOp, median / 1000.0);
    match group.spread(system, Figure::DeviceReadBytes).filter(|_| direct) {
        Some(read) => format!("{time} ({})", text::value(Figure::DeviceReadBytes, read.median)),
        None => time,
    }
}

fn panel(summary: &Summary, set: &Conditions, systems: &[String]) -> Panel {
    let median = |workload: Workload, system: &str, figure: Figure| {
        Some(find(summary, workload, set)?.spread(system, figure)?.median)
    };
    let point = |system: &str| {
        let written = median(Workload::Overwrite, system, Figure::WriteAmplification)?;
        let times = MIXED.map(|workload| median(workload, system, Figure::NsPerOp));
        let total: f64 = times.into_iter().sum::<Option<f64>>()?;
        Some(Point::new(written, total / MIXED.len() as f64))
    };
    let series =
        systems.iter().filter_map(|system| Some(Series { name: name(system), points: vec![point(system)?] }));
    Panel {
        title: TITLE.to_owned(),
        x: Axis::new("bytes written per byte put", ""),
        y: Axis::new("mean of an absent and a present get, a seek, a scan of 50", "ns").log(),
        kind: Kind::Lines(series.collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::{row, rows_of};

    const SYSTEMS: [&str; 3] = ["tamis", "tamis:keyspace.compaction=tiering,keyspace.filter=grf", "leveldb"];

    #[test]
    fn a_tree_is_a_point_and_a_row_of_each_set_of_keys() {
        let mut rows = Vec::new();
        for (at, system) in SYSTEMS.iter().enumerate() {
            let factor = (at + 1) as f64;
            for (_, workload) in COLUMNS {
                rows.extend(rows_of(SUITE, workload.name(), &[(system, &[1000.0 * factor])]));
                let mut direct = row(SUITE, workload.name(), system, 0, 90_000.0);
                (direct.conditions.direct_io, direct.figures.device_read_bytes_per_op) = (true, 4300.0);
                rows.push(direct);
            }
            let mut steady = row(SUITE, "overwrite", system, 0, 5000.0);
            steady.figures.write_amplification = 4.0 / factor;
            rows.push(steady);
        }
        let summary = Summary::of(&rows);
        let section = trees(&summary, "pictures").unwrap();
        let tables: Vec<&str> = section.text.split("\n\n").collect();
        assert!(tables[0].ends_with("](pictures/trees.svg)"), "{}", section.text);
        assert!(section.text.contains("| tiering + grf | 2.00"), "{}", section.text);
        assert!(
            section.text.contains("| LevelDB |") && section.text.contains("90.0 (4.2 KiB)"),
            "{}",
            section.text
        );
        let svg = &section.files[0].1;
        assert!(["leveling", "tiering + grf", "LevelDB"].iter().all(|name| svg.contains(name)), "{svg}");
        let without: Vec<_> = rows.into_iter().filter(|row| row.conditions.suite != SUITE).collect();
        assert!(trees(&Summary::of(&without), "pictures").is_err());
        assert!(trees(&summary, "../pictures").is_err());
    }
}
