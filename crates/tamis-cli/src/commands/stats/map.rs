//! A picture of the tree: one line per run, with the key space from left to right.
//!
//! Every column stands for the same share of the bytes of the run with the most tables, usually the
//! last. Adjacent tables alternate between two shades, which makes their borders visible: a
//! partitioned tree shows the same borders in its last two levels, a tree with guards shows
//! fragments, a tree of whole levels full lines.

use std::fmt::Write as _;

use tamis::stats::TableStats;
use tamis_bench::report::{bytes, counted};

/// The width of the picture in columns, where there is room.
const WIDTH: usize = 64;

/// Columns beside the picture.
const BESIDE: usize = 46;

/// Lines drawn per level; the rest are counted.
const MOST_RUNS: usize = 12;

/// Draws the tables on a page of a width; empty if there are none.
pub(super) fn map(tables: &[TableStats], width: usize) -> String {
    let borders = borders(tables, width.saturating_sub(BESIDE).clamp(10, WIDTH));
    let mut out = String::new();
    let (mut level, mut drawn, mut left_out) = (None, 0, 0);
    for run in tables.chunk_by(|a, b| (a.level, a.run) == (b.level, b.run)) {
        if level != Some(run[0].level) {
            note_left_out(&mut out, left_out);
            (level, drawn, left_out) = (Some(run[0].level), 0, 0);
        }
        if drawn == MOST_RUNS {
            left_out += 1;
            continue;
        }
        drawn += 1;
        let name = if drawn == 1 { format!("level {}", run[0].level) } else { String::new() };
        let total = run.iter().map(|table| table.bytes).sum();
        let first = run.iter().map(|table| table.epochs.0).min().unwrap_or(0);
        let last = run.iter().map(|table| table.epochs.1).max().unwrap_or(0);
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{name:<9}▕{}▏ {:>9}, {}, flushes {}",
            line(run, &borders),
            bytes(total),
            counted(run.len() as u64, "tables"),
            // The last level holds everything older than the rest.
            match (first, last.saturating_sub(1)) {
                (0, last) => format!("up to {last}"),
                (first, last) if first == last => first.to_string(),
                (first, last) => format!("{first}–{last}"),
            }
        );
    }
    note_left_out(&mut out, left_out);
    out
}

fn note_left_out(out: &mut String, runs: usize) {
    if runs > 0 {
        let _ = writeln!(out, "{:<9} … and {}", "", counted(runs as u64, "older runs"));
    }
}

/// Returns the first key of each column.
fn borders(tables: &[TableStats], width: usize) -> Vec<&[u8]> {
    let runs = tables.chunk_by(|a, b| (a.level, a.run) == (b.level, b.run));
    let finest = runs.max_by_key(|run| run.len()).unwrap_or_default();
    let starts: Vec<(&[u8], u64)> = finest.iter().map(|t| (&t.smallest[..], t.bytes)).collect();
    let total: u64 = starts.iter().map(|start| start.1).sum();
    let mut borders = Vec::with_capacity(width);
    let mut before = 0u64;
    for (key, bytes) in starts {
        // The bytes up to the end of this table determine the number of columns that begin here.
        let filled = |bytes: u64| (u128::from(bytes) * width as u128 / u128::from(total.max(1))) as usize;
        while borders.len() < filled(before + bytes) {
            borders.push(key);
        }
        before += bytes;
    }
    borders
}

/// Returns one character per column: the shade of the run's table that reaches into it, if any.
fn line(run: &[TableStats], borders: &[&[u8]]) -> String {
    const SHADES: [char; 2] = ['█', '▒'];
    let mut out = String::new();
    for (i, border) in borders.iter().enumerate() {
        // Columns that begin at the same key share one table's range.
        let end = borders[i + 1..].iter().find(|next| *next > border);
        let within = |table: &TableStats| {
            table.covers(border)
                || table.smallest[..] >= **border && end.is_none_or(|end| table.smallest[..] < **end)
        };
        out.push(run.iter().position(within).map_or(' ', |table| SHADES[table % 2]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(level: usize, run: u64, from: &str, to: &str, bytes: u64) -> TableStats {
        filled!(TableStats {
            level,
            run,
            smallest: from.into(),
            largest: Some((to.into(), true)),
            bytes,
            epochs: (run, run + 1),
            ..TableStats::default()
        })
    }

    #[test]
    fn runs_are_lines_and_tables_alternate_in_shade() {
        let tables = [
            table(0, 9, "a", "z", 1 << 10),
            table(6, 1, "a", "f", 32 << 20),
            table(6, 1, "g", "m", 16 << 20),
            table(6, 1, "n", "z", 16 << 20),
        ];
        let map = map(&tables, usize::MAX);
        let lines: Vec<&str> = map.lines().collect();
        assert_eq!(lines.len(), 2, "{map}");
        assert!(lines[0].starts_with("level 0") && lines[0].contains("flushes 9"), "{map}");
        let drawn: String =
            lines[1].chars().skip_while(|c| *c != '▕').skip(1).take_while(|c| *c != '▏').collect();
        assert!((drawn.chars().count() as i64 - WIDTH as i64).abs() <= 1, "{map}");
        let shades: Vec<char> = drawn.chars().collect();
        let changes = shades.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert_eq!(changes, 2, "three tables: {map}");
        assert!(!lines[0].contains("  █"), "a run over all keys has no hole: {map}");
    }

    #[test]
    fn many_runs_are_cut_and_counted() {
        let tables: Vec<_> = (0..40).map(|run| table(0, 100 - run, "a", "z", 100)).collect();
        let map = map(&tables, usize::MAX);
        assert_eq!(map.lines().count(), MOST_RUNS + 1, "{map}");
        assert!(map.contains("and 28 older runs"), "{map}");
        assert_eq!(super::map(&[], usize::MAX), "");
    }
}
