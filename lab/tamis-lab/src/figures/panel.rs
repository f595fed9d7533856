//! What a picture or a table shows, as data: who draws it decides how.

/// What one direction of a picture means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Axis {
    /// What it is.
    pub label: String,
    /// Its unit; empty for counts and ratios.
    pub unit: String,
    /// Whether equal distances are equal ratios. Values that are not above 0 are then left out.
    pub log: bool,
}

impl Axis {
    /// A linear axis.
    pub fn new(label: &str, unit: &str) -> Axis {
        Axis { label: label.to_owned(), unit: unit.to_owned(), log: false }
    }

    /// With equal distances for equal ratios.
    #[must_use]
    pub fn log(mut self) -> Axis {
        self.log = true;
        self
    }
}

/// A picture of lines over numbers, or of bars over names.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// Distinguishes panels of a figure: `latency`, `gain at 10 bits`. Also part of a file's name.
    pub title: String,
    /// Across. For bars its label names what the categories are.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// What is drawn.
    pub kind: Kind,
}

/// What a panel draws.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Lines with their points; those whose name begins with `theory` or `model` are dashed and without points.
    Lines(Vec<Series>),
    /// Groups of bars, each bar a pile of parts: (names of parts from the bottom up, groups).
    Bars {
        /// What the parts are, from the bottom up; one for bars without parts.
        parts: Vec<String>,
        /// (name of a group, its bars)
        groups: Vec<(String, Vec<Bar>)>,
    },
}

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Which side of the group.
    pub name: String,
    /// One number for each part, 0 or more.
    pub parts: Vec<f64>,
    /// The spread of the whole, if it was measured.
    pub spread: Option<(f64, f64)>,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The side.
    pub name: String,
    /// In ascending order of x, but for curves (throughput against latency).
    pub points: Vec<Point>,
}

/// One point of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Across.
    pub x: f64,
    /// Upwards: the median.
    pub y: f64,
    /// Least and greatest of the rounds, if measured.
    pub spread: Option<(f64, f64)>,
}

impl Point {
    /// A point without a spread.
    pub fn new(x: f64, y: f64) -> Point {
        Point { x, y, spread: None }
    }
}

/// A table: cells are text, numbers already as people read them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sheet {
    /// What it shows.
    pub title: String,
    /// Headers, with unit; the flag is whether the column is of words, which stand left.
    pub columns: Vec<(String, bool)>,
    /// As many cells as columns.
    pub rows: Vec<Vec<String>>,
}

impl Sheet {
    /// An empty table. A header that begins with `<` is of words, which stand left; the sign is not part of it.
    pub fn new(title: &str, columns: &[&str]) -> Sheet {
        let column = |header: &&str| match header.strip_prefix('<') {
            Some(words) => (words.to_owned(), true),
            None => ((*header).to_owned(), false),
        };
        Sheet { title: title.to_owned(), columns: columns.iter().map(column).collect(), rows: Vec::new() }
    }

    /// Adds a row; missing cells are empty, superfluous ones are dropped.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut row: Vec<String> = cells.into_iter().collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// As aligned text.
    pub fn to_text(&self) -> String {
        use tamis_bench::report::{Align, Table};
        let columns: Vec<(&str, Align)> = self
            .columns
            .iter()
            .map(|(header, words)| (header.as_str(), if *words { Align::Left } else { Align::Right }))
            .collect();
        let mut table = Table::new(&columns);
        self.rows.iter().for_each(|row| table.row(row.iter().cloned()));
        table.render()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sheet_reads_as_aligned_text() {
        let mut sheet = Sheet::new("t", &["<filter", "ns"]);
        sheet.row(["bloom".to_owned(), "12".to_owned(), "dropped".to_owned()]);
        sheet.row(["x".to_owned()]);
        assert_eq!(sheet.to_text(), "filter  ns\n──────  ──\nbloom   12\nx\n");
    }
}
