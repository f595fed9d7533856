//! Panels as SVG.
//!
//! A picture is 720 units wide and as high as necessary, and scales to the available width. All text has one size,
//! which is still eleven pixels on a telephone 360 pixels wide. Sides differ by colour and also by mark, dash or hatch,
//! so that a greyscale print is unambiguous; the legend is below the data. Numbers on axes carry their unit: `10 µs`,
//! not `1e4`. Linear axes of lengths include 0. Spreads are whiskers.
//!
//! Any panel yields a well-formed document. A panel without data says so; values that the axis cannot show (not a
//! number, or not above 0 on a logarithmic one) are omitted and counted in a note. All text is escaped. `title` and
//! `desc` describe the picture in words.
//!
//! All functions are pure; a panel takes a few kilobytes of text. Colours and shapes are those of all pictures:
//! [`tamis_bench::picture`].

mod bars;
mod describe;
mod legend;
mod lines;
mod scale;
mod style;
#[cfg(test)]
mod tests;
pub(crate) mod text;

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use tamis_bench::picture::{self, Anchor, At, Canvas, FAINT, FINE, Frame, GRID, INK, PAPER};

use super::{Axis, Kind, Panel};

pub(super) use scale::number;

/// The width of every picture, in units.
const WIDTH: f64 = 720.0;
/// The same in pixels, where the page leaves it open.
const SHOWN: f64 = 480.0;
/// Size of all text: at least eleven pixels on a telephone 360 pixels wide.
const SIZE: f64 = 25.0;
/// Line height.
const LINE: f64 = 33.0;
const MARGIN: f64 = 12.0;

/// Draws a panel as a document of its own. Its sides have the styles that they have `among` all panels of a figure.
/// Names in the document are derived from its content: different panels of a page never share one.
pub fn svg(panel: &Panel, among: &Sides) -> String {
    // The hasher has fixed keys, so that the same panel gives the same bytes.
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(format!("{panel:?}"));
    svg_named(panel, among, &format!("p{hash:016x}"))
}

/// The sides of a figure. Each has the same colour and mark in all panels, even in those that lack others.
#[derive(Clone, Debug, Default)]
pub struct Sides {
    names: Vec<String>,
    /// The only side with a colour: the others are grey.
    own: Option<String>,
    /// The bars in bold letters, each by its group and its side.
    strong: Vec<(String, String)>,
}

impl Sides {
    /// Collects all sides of panels in order of first appearance.
    pub fn of<'p>(panels: impl IntoIterator<Item = &'p Panel>) -> Sides {
        let mut sides = Sides::default();
        for panel in panels {
            let names: Vec<&String> = match &panel.kind {
                Kind::Lines(series) => {
                    let names = series.iter().map(|series| &series.name);
                    names.filter(|name| lines::computed(name).is_none()).collect()
                }
                Kind::Bars { groups, .. } => {
                    groups.iter().flat_map(|(_, bars)| bars).map(|bar| &bar.name).collect()
                }
            };
            for name in names {
                if sides.find(name).is_none() {
                    sides.names.push(name.clone());
                }
            }
        }
        sides
    }

    /// Returns sides of which one is set off from the others, and the bars in bold letters: groups and sides.
    pub fn beside(own: &str, strong: Vec<(String, String)>) -> Sides {
        Sides { own: Some(own.to_owned()), strong, ..Sides::default() }
    }

    fn is_strong(&self, group: &str, side: &str) -> bool {
        self.strong.iter().any(|(a, b)| a == group && b == side)
    }

    fn len(&self) -> usize {
        self.names.len()
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|side| side == name)
    }

    /// Returns the index of a side; that of the next new one if it is unknown.
    fn index(&self, name: &str) -> usize {
        match &self.own {
            Some(own) if own == name => 0,
            Some(_) => style::PEERS,
            None => self.find(name).unwrap_or(self.len()),
        }
    }
}

/// Draws like [`svg`], with names that begin with `id`: a letter, then letters, digits and `-`.
pub fn svg_named(panel: &Panel, among: &Sides, id: &str) -> String {
    let said = describe::panel(panel);
    let title = text::clean(&panel.title);
    let title = if title.trim().is_empty() { "untitled" } else { &title };
    let picture = |height, draw: &dyn Fn(&Canvas)| {
        let said = text::clean(&said);
        let frame = Frame { id, title, desc: &said, size: (WIDTH, height), shown: SHOWN, letters: SIZE };
        picture::svg(&frame, draw)
    };
    match &panel.kind {
        Kind::Lines(series) if series.iter().any(|series| !series.points.is_empty()) => {
            let plot = lines::Plot::new(panel, series, among);
            picture(plot.height(), &|canvas| plot.draw(canvas))
        }
        Kind::Bars { parts, groups } if groups.iter().any(|(_, bars)| !bars.is_empty()) => {
            let plot = bars::Plot::new(panel, parts, groups, among);
            picture(plot.height(), &|canvas| plot.draw(canvas))
        }
        Kind::Lines(_) | Kind::Bars { .. } => {
            let head = Head::new(title, "");
            picture(head.height() + 3.0 * LINE, &|canvas| {
                head.draw(canvas);
                canvas.text(describe::NOTHING, (WIDTH / 2.0, head.height() + LINE), Anchor::Middle, FAINT);
            })
        }
    }
}

/// The part above the data: the title and the label of the vertical axis.
struct Head {
    title: Vec<String>,
    axis: Vec<String>,
}

impl Head {
    fn new(title: &str, axis: &str) -> Head {
        let room = WIDTH - 2.0 * MARGIN;
        // Bold letters are wider than the table of widths says.
        let title = text::wrap(&text::clean(title), SIZE * 1.12, room, 3);
        Head { title, axis: text::wrap(&text::clean(axis), SIZE, room, 2) }
    }

    fn height(&self) -> f64 {
        MARGIN + (self.title.len() + self.axis.len()) as f64 * LINE + 10.0
    }

    fn draw(&self, canvas: &Canvas) {
        let mut y = MARGIN + LINE / 2.0;
        for line in &self.title {
            canvas.bold(line, (MARGIN, y), Anchor::Start, INK);
            y += LINE;
        }
        for line in &self.axis {
            canvas.text(line, (MARGIN, y), Anchor::Start, FAINT);
            y += LINE;
        }
    }
}

/// Returns an axis's label, with its unit if numbers do not carry it.
fn caption(axis: &Axis, unit: &scale::Unit) -> String {
    let (label, name) = (text::clean(&axis.label), text::clean(&axis.unit));
    match (unit.is_in_numbers() || name.is_empty(), label.is_empty()) {
        (true, _) => label,
        (false, true) => name,
        (false, false) => format!("{label}, {name}"),
    }
}

/// Returns a note on the number of missing values and the reason.
fn left_out(count: usize, log: bool) -> Vec<String> {
    let values = if count == 1 { "1 value is".to_owned() } else { format!("{count} values are") };
    let why = if log { "no number, or not above 0" } else { "no number" };
    if count == 0 {
        Vec::new()
    } else {
        text::wrap(&format!("{values} not drawn: {why}"), SIZE, WIDTH - 2.0 * MARGIN, 2)
    }
}

fn notes(canvas: &Canvas, lines: &[String], top: f64) {
    for (n, line) in lines.iter().enumerate() {
        canvas.text(line, (MARGIN, top + (n as f64 + 0.5) * LINE), Anchor::Start, FAINT);
    }
}
