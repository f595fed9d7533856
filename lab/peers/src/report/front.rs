//! The README's table of engines, and the tables and pictures of docs/performance.md: medians of a few rows.
//!
//! Bold are the best median of a row and those whose rounds overlap with the best one's. Spreads, and what each engine had
//! while it was measured, are in the tables of the same rows in the comparison.

use std::path::{Component, Path};

use tamis_lab::documents::Section;
use tamis_lab::figures::draw::{self, Sides};
use tamis_lab::figures::{Axis, Bar, Kind, Panel};

use super::figure::Figure;
use super::summary::{Group, Spread, Summary};
use super::tables::{Grid, GridRow};
use super::text;

/// A row: its name, and the conditions it was measured under.
struct Pick {
    name: &'static str,
    suite: &'static str,
    workload: &'static str,
    threads: usize,
    value_bytes: u64,
}

/// An engine: the name of the system in rows, and its name in tables.
pub(super) type Engine = (&'static str, &'static str);

/// The engines of the README. RocksDB is what a user of its crate gets.
pub(super) const ENGINES: [Engine; 9] = [
    ("tamis", "tamis"),
    ("rocksdb", "RocksDB"),
    ("fjall", "fjall"),
    ("leveldb", "LevelDB"),
    ("tidesdb", "TidesDB"),
    ("surrealkv", "SurrealKV"),
    ("lmdb", "LMDB"),
    ("mdbx", "MDBX"),
    ("redb", "redb"),
];

/// The engines of docs/performance.md: RocksDB as fast as it can be built, too.
const ALL_ENGINES: [Engine; 10] = [
    ENGINES[0],
    ENGINES[1],
    ("rocksdb-native", "RocksDB, native, mapped"),
    ENGINES[2],
    ENGINES[3],
    ENGINES[4],
    ENGINES[5],
    ENGINES[6],
    ENGINES[7],
    ENGINES[8],
];

/// The names of the others, which no table in the README has that is not made from rows.
#[cfg(test)]
pub(super) const PEERS: [&str; 8] =
    ["RocksDB", "fjall", "LevelDB", "TidesDB", "SurrealKV", "LMDB", "MDBX", "redb"];

/// The rows of the README, in its table and its picture.
static FRONT: [Pick; 6] = [
    pick("absent get", "compacted", "get-empty", 1),
    pick("present get", "compacted", "get-existing", 1),
    pick("seek", "compacted", "seek", 1),
    pick("seek + 50 entries", "compacted", "seek-next50", 1),
    pick("random load", "load", "fill-random", 1),
    large("get of 16 KiB", "get-existing"),
];

/// Times in docs/performance.md, beside those of [`FRONT`].
static TIMES: [Pick; 8] = [
    pick("absent get in a batch", "compacted", "multi-get-empty", 1),
    pick("present get in a batch", "compacted", "multi-get-existing", 1),
    pick("seek + 50 entries backwards", "compacted", "reverse-next50", 1),
    pick("absent get, many runs", "runs", "get-empty", 1),
    pick("seek, many runs", "runs", "seek", 1),
    pick("present get, nothing in memory", "cold", "get-existing", 1),
    pick("load in key order", "load", "fill-seq", 1),
    large("overwrite of 16 KiB", "overwrite"),
];

/// Writes, of whose throughputs docs/performance.md has a table together with [`MIXES`] and [`MIXGRAPH`].
static WRITES: [Pick; 4] = [
    pick("puts in batches of 100", "batch", "fill-random", 1),
    pick("puts, 8 threads", "writers", "fill-random", 8),
    pick("synced puts, 1 thread", "sync", "overwrite", 1),
    pick("synced puts, 32 threads", "sync", "overwrite", 32),
];

/// The mixes of YCSB, in that table and in a picture.
static MIXES: [Pick; 6] = [
    pick("YCSB A", "ycsb", "ycsb-a", 1),
    pick("YCSB B", "ycsb", "ycsb-b", 1),
    pick("YCSB C", "ycsb", "ycsb-c", 1),
    pick("YCSB D", "ycsb", "ycsb-d", 1),
    pick("YCSB E", "ycsb", "ycsb-e", 1),
    pick("YCSB F", "ycsb", "ycsb-f", 1),
];

static MIXGRAPH: [Pick; 1] =
    [Pick { name: "mixgraph", suite: "mixgraph", workload: "mixgraph", threads: 1, value_bytes: 36 }];

/// Puts whose slowest docs/performance.md has a table of.
static TAILS: [Pick; 5] = [
    pick("random load", "load", "fill-random", 1),
    pick("load in key order", "load", "fill-seq", 1),
    pick("batches of 100 puts", "batch", "fill-random", 1),
    pick("8 threads", "writers", "fill-random", 8),
    pick("YCSB A", "ycsb", "ycsb-a", 1),
];

const fn pick(name: &'static str, suite: &'static str, workload: &'static str, threads: usize) -> Pick {
    Pick { name, suite, workload, threads, value_bytes: 256 }
}

const fn large(name: &'static str, workload: &'static str) -> Pick {
    Pick { name, suite: "large", workload, threads: 1, value_bytes: 16 << 10 }
}

impl Pick {
    fn find<'s>(&self, summary: &'s Summary) -> Option<&'s Group> {
        let suite = summary.suites.iter().find(|suite| suite.name == self.suite)?;
        suite.groups.iter().find(|group| {
            let here = &group.conditions;
            here.workload == self.workload
                && here.threads == self.threads
                && here.value_bytes == self.value_bytes
        })
    }
}

/// Returns the README's table.
pub(super) fn front(summary: &Summary) -> Result<Grid, String> {
    grid(summary, FRONT.iter(), &ENGINES, Figure::NsPerOp)
}

/// Returns the times of docs/performance.md.
pub(super) fn times(summary: &Summary) -> Result<Grid, String> {
    grid(summary, FRONT.iter().chain(&TIMES), &ALL_ENGINES, Figure::NsPerOp)
}

/// Returns the times of docs/performance.md with little memory.
pub(super) fn memory(summary: &Summary) -> Result<Grid, String> {
    grid(summary, MEMORY.iter(), &ALL_ENGINES, Figure::NsPerOp)
}

/// Returns the throughputs of docs/performance.md.
pub(super) fn rates(summary: &Summary) -> Result<Grid, String> {
    grid(summary, WRITES.iter().chain(&MIXES).chain(&MIXGRAPH), &ALL_ENGINES, Figure::OpsPerSecond)
}

/// Returns the time that one put in ten thousand exceeds, in docs/performance.md.
pub(super) fn tails(summary: &Summary) -> Result<Grid, String> {
    grid(summary, TAILS.iter(), &ALL_ENGINES, Figure::PutP9999)
}

fn grid(
    summary: &Summary,
    picks: impl Iterator<Item = &'static Pick>,
    engines: &[Engine],
    figure: Figure,
) -> Result<Grid, String> {
    let groups: Vec<(&Pick, &Group)> = picks.filter_map(|pick| Some((pick, pick.find(summary)?))).collect();
    let measured = |system: &str| groups.iter().any(|(_, group)| group.spread(system, figure).is_some());
    let engines: Vec<Engine> = engines.iter().copied().filter(|(system, _)| measured(system)).collect();
    if engines.is_empty() {
        return Err("the rows have none of this table".to_owned());
    }
    let unit = match figure {
        Figure::NsPerOp => "µs per operation",
        Figure::PutP9999 => "p99.99 of puts, µs",
        other => other.title(),
    };
    let mut head = vec![unit.to_owned()];
    head.extend(engines.iter().map(|(_, name)| (*name).to_owned()));
    let rows = groups.iter().map(|(pick, group)| {
        let spreads: Vec<Option<Spread>> =
            engines.iter().map(|(system, _)| group.spread(system, figure)).collect();
        let mut cells = vec![pick.name.to_owned()];
        cells.extend(spreads.iter().map(|spread| cell(figure, spread.as_ref())));
        GridRow { cells, ratio: None, strong: strong(figure, &spreads) }
    });
    Ok(Grid { caption: String::new(), head, rows: rows.collect(), names: 1 })
}

fn cell(figure: Figure, spread: Option<&Spread>) -> String {
    let Some(spread) = spread else { return "—".to_owned() };
    // Times in microseconds, with the digits that nanoseconds have.
    let unit = if figure.is_rate() { 1.0 } else { 1000.0 };
    text::value(figure, spread.median / unit)
}

/// Returns the cells to stress, of which the first is a name.
fn strong(figure: Figure, spreads: &[Option<Spread>]) -> Vec<usize> {
    let better = |a: &Spread, b: &Spread| figure.better(a.median, b.median);
    let best = spreads.iter().flatten().reduce(|best, next| if better(next, best) { next } else { best });
    let Some(best) = best else { return Vec::new() };
    let overlaps = |its: &Spread| if figure.is_rate() { its.max >= best.min } else { its.min <= best.max };
    (0..spreads.len()).filter(|&at| spreads[at].as_ref().is_some_and(overlaps)).map(|at| at + 1).collect()
}

/// Times with a fifth of the data in memory, and nothing more.
static MEMORY: [Pick; 8] = [
    pick("absent get", "beyond-memory", "get-empty", 1),
    pick("present get", "beyond-memory", "get-existing", 1),
    pick("skewed get", "beyond-memory", "get-zipf", 1),
    pick("seek", "beyond-memory", "seek", 1),
    pick("seek + 50 entries", "beyond-memory", "seek-next50", 1),
    pick("YCSB B", "beyond-memory", "ycsb-b", 1),
    pick("YCSB C", "beyond-memory", "ycsb-c", 1),
    pick("YCSB D", "beyond-memory", "ycsb-d", 1),
];

/// A picture of times: its name, which is that of its file, its title, and its rows.
type Picture = (&'static str, &'static str, &'static [&'static Pick]);

/// Not all rows of the tables: a picture of more than 36 bars is too long.
static PICTURES: [Picture; 3] = [
    ("engines", "Time per operation, by engine", &[&FRONT[0], &FRONT[1], &FRONT[2], &FRONT[4]]),
    (
        "mixes",
        "Time per operation of the mixes of YCSB, by engine",
        &[&MIXES[0], &MIXES[1], &MIXES[2], &MIXES[4]],
    ),
    (
        "memory",
        "Time per operation with five times as much data as memory, by engine",
        &[&MEMORY[0], &MEMORY[1], &MEMORY[2], &MEMORY[4], &MEMORY[5]],
    ),
];

/// Refuses a directory of pictures that is not below its document.
pub(super) fn check_directory(dir: &str) -> Result<(), String> {
    let is_below = Path::new(dir).components().all(|part| matches!(part, Component::Normal(_)));
    if is_below { Ok(()) } else { Err(format!("pictures are below the document, and {dir} is not")) }
}

/// Returns a picture, whose file is in `dir` beside the document. `words` are `dir`, and the picture's name unless it is
/// the README's.
pub(super) fn picture(summary: &Summary, words: &str) -> Result<Section, String> {
    let (dir, name) = words.trim().split_once(' ').unwrap_or((words.trim(), "engines"));
    check_directory(dir)?;
    let Some((file, title, picks)) = PICTURES.iter().find(|(known, ..)| *known == name.trim()) else {
        return Err(format!("there is no picture `{name}`"));
    };
    let (mut groups, mut bold) = (Vec::new(), Vec::new());
    for pick in *picks {
        let Some(group) = pick.find(summary) else { continue };
        let spreads = ENGINES.map(|(system, _)| group.spread(system, Figure::NsPerOp));
        let strong = strong(Figure::NsPerOp, &spreads);
        bold.extend(strong.iter().map(|at| (pick.name.to_owned(), ENGINES[at - 1].1.to_owned())));
        let bars = ENGINES.iter().zip(&spreads).filter_map(|((_, engine), spread)| {
            let parts = vec![spread.as_ref()?.median];
            Some(Bar { name: (*engine).to_owned(), parts, spread: None })
        });
        groups.push((pick.name.to_owned(), bars.collect()));
    }
    if groups.is_empty() {
        return Err("the rows have nothing to draw".to_owned());
    }
    let panel = Panel {
        title: (*title).to_owned(),
        x: Axis::new("bold: the fastest, or a tie with it", ""),
        y: Axis::new("time, logarithmic; shorter is better", "ns").log(),
        kind: Kind::Bars { parts: Vec::new(), groups },
    };
    let svg = draw::svg(&panel, &Sides::beside(ENGINES[0].1, bold));
    let path = format!("{dir}/{file}.svg");
    let text = format!("![{title}; the table below has the values]({path})");
    Ok(Section { text, files: vec![(path.into(), svg)] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::{comparison, row, rows_of};

    const TWO: &[(&str, &[f64])] = &[("tamis", &[200.0]), ("rocksdb", &[1000.0])];

    /// The best median alone was bold where the rounds of others overlapped with it.
    #[test]
    fn cells_whose_rounds_overlap_with_the_best_are_bold_too() {
        let systems: &[(&str, &[f64])] = &[
            ("tamis", &[10.0, 20.0, 30.0]),
            ("rocksdb", &[29.0, 40.0, 50.0]),
            ("leveldb", &[31.0, 41.0, 51.0]),
        ];
        let grid = front(&Summary::of(&rows_of("compacted", "get-empty", systems))).unwrap();
        assert_eq!(grid.rows[0].strong, [1, 2], "{:?}", grid.rows[0].cells);
        let systems: &[(&str, &[f64])] = &[("tamis", &[31.0, 41.0, 51.0]), ("rocksdb", &[10.0, 20.0, 30.0])];
        let grid = front(&Summary::of(&rows_of("compacted", "get-empty", systems))).unwrap();
        assert_eq!(grid.rows[0].strong, [2], "a loss");
        // Of throughputs the greatest is the best.
        let grid = rates(&Summary::of(&rows_of("ycsb", "ycsb-a", systems))).unwrap();
        assert_eq!(grid.rows[0].strong, [2]);
        let grid = rates(&Summary::of(&rows_of("ycsb", "ycsb-a", TWO))).unwrap();
        assert_eq!((&*grid.head[0], &*grid.rows[0].cells[1]), ("thousand operations per second", "5,000"));
        assert_eq!(grid.rows[0].strong, [1]);
        let grid = tails(&Summary::of(&rows_of("load", "fill-seq", TWO))).unwrap();
        assert_eq!((&*grid.head[0], grid.rows[0].strong.as_slice()), ("p99.99 of puts, µs", &[1][..]));
    }

    #[test]
    fn rows_are_those_of_their_conditions() {
        let mut rows = rows_of("compacted", "get-empty", TWO);
        rows.extend(rows_of("large", "get-existing", &[("tamis", &[9000.0])]));
        assert_eq!(front(&Summary::of(&rows)).unwrap().rows.len(), 1, "256 bytes are not 16 KiB");
        let mut large = row("large", "get-existing", "tamis", 0, 39_610.0);
        large.conditions.value_bytes = 16 << 10;
        rows.push(large);
        let grid = front(&Summary::of(&rows)).unwrap();
        assert_eq!(grid.head, ["µs per operation", "tamis", "RocksDB"]);
        assert_eq!(grid.rows[0].cells, ["absent get", "0.20", "1.00"]);
        assert_eq!(grid.rows[1].cells, ["get of 16 KiB", "39.6", "—"]);
        assert!(front(&Summary::of(&rows_of("compacted", "poem", TWO))).is_err());
    }

    #[test]
    fn the_picture_has_a_bar_for_every_engine_and_an_axis_that_holds_them() {
        let mut rows = comparison();
        rows.iter_mut().filter(|row| row.conditions.suite == "settled").for_each(|row| {
            row.conditions.suite = "compacted".to_owned();
        });
        let summary = Summary::of(&rows);
        let section = picture(&summary, "docs/pictures").unwrap();
        assert!(section.text.ends_with("](docs/pictures/engines.svg)"), "{}", section.text);
        let (path, svg) = &section.files[0];
        assert_eq!(path, Path::new("docs/pictures/engines.svg"));
        let count = |what: &str| svg.matches(what).count();
        // Three reads and a load, of five engines: tamis in blue, the others in grey.
        assert_eq!((count("<rect class=\"c0072b2\""), count("<rect class=\"cb4bcc5\"")), (4, 16));
        // The title, the names of the four, and bars as bold as the table's cells: tamis in each, LevelDB in one.
        assert_eq!(count("font-weight"), 1 + 4 + (4 + 1) * 2, "{svg}");
        assert!(svg.contains("absent get: tamis 218 ns, RocksDB 1.19 µs"), "{svg}");
        assert!(svg.contains("prefers-color-scheme: dark"));
        assert!(picture(&summary, "../x").unwrap_err().contains("below the document"));
        assert!(picture(&summary, "docs/pictures poem").unwrap_err().contains("no picture `poem`"));
        let mixes = picture(&Summary::of(&rows_of("ycsb", "ycsb-c", TWO)), "x mixes").unwrap();
        assert_eq!(mixes.files[0].0, Path::new("x/mixes.svg"));
        assert!(picture(&Summary::of(&rows_of("runs", "seek", TWO)), "x").unwrap_err().contains("to draw"));
    }
}
