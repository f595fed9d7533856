//! Pictures and tables as data, independent of how they are drawn.

/// An axis of a picture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Axis {
    /// The quantity.
    pub label: String,
    /// Its unit; empty for counts and ratios.
    pub unit: String,
    /// Whether the axis is logarithmic. Values that are not above 0 are then ignored.
    pub log: bool,
}

impl Axis {
    /// Creates a linear axis.
    pub fn new(label: &str, unit: &str) -> Axis {
        Axis { label: label.to_owned(), unit: unit.to_owned(), log: false }
    }

    /// Makes the axis logarithmic.
    #[must_use]
    pub fn log(mut self) -> Axis {
        self.log = true;
        self
    }
}

/// A picture: lines over numbers, or bars over names.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// Distinguishes panels of a figure: `latency`, `gain at 10 bits`. Also part of a file's name.
    pub title: String,
    /// The horizontal axis. For bars its label names the categories.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The contents.
    pub kind: Kind,
}

/// The contents of a panel.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Lines with their points; those whose name begins with `theory` or `model` are dashed and have no marks.
    Lines(Vec<Series>),
    /// Groups of stacked bars.
    Bars {
        /// The names of the parts, from the bottom up; one for bars without parts.
        parts: Vec<String>,
        /// Names and bars of the groups.
        groups: Vec<(String, Vec<Bar>)>,
    },
}

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// The side within the group.
    pub name: String,
    /// One number for each part, 0 or more.
    pub parts: Vec<f64>,
    /// The spread of the total, if measured.
    pub spread: Option<(f64, f64)>,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The side.
    pub name: String,
    /// The points in ascending order of x, except for curves (throughput against latency).
    pub points: Vec<Point>,
}

/// One point of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The x coordinate.
    pub x: f64,
    /// The y coordinate: the median.
    pub y: f64,
    /// Minimum and maximum of the rounds, if measured.
    pub spread: Option<(f64, f64)>,
}

impl Point {
    /// Creates a point without a spread.
    pub fn new(x: f64, y: f64) -> Point {
        Point { x, y, spread: None }
    }
}

/// A table of text cells; numbers are already formatted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sheet {
    /// The title.
    pub title: String,
    /// Headers with units; the flag marks columns of words, which are left-aligned.
    pub columns: Vec<(String, bool)>,
    /// The cells, one per column.
    pub rows: Vec<Vec<String>>,
}

impl Sheet {
    /// Creates an empty table. A header that begins with `<` marks a column of words, which is left-aligned; the sign
    /// is removed.
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

    /// Returns the table as aligned text.
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
