//! Bar charts.
//!
//! Bars are horizontal, so that names of any length fit beside them in letters that are readable on a telephone, with
//! the value behind each bar. With many bars that are not stacked, names go to the legend and values to the tables.

use super::legend::Legend;
use super::scale::{Scale, shows};
use super::{Anchor, Canvas, FAINT, FINE, GRID, INK, LINE, MARGIN, PAPER, SIZE, WIDTH};
use super::{Head, Sides, caption, style, text};
use crate::figures::{Axis, Bar, Panel};

/// Heights of a bar with a name, and of one without.
const ROW: f64 = 34.0;
const THIN: f64 = 15.0;
/// Space between groups.
const GAP: f64 = 14.0;
/// Maximum width of the names.
const NAMES: f64 = 290.0;
/// Above this number of bars, bars have no names of their own.
const MANY: usize = 36;

/// One row of the picture.
enum Row<'p> {
    /// The name of a group.
    Group(String),
    /// A bar: its name, if shown here, and whether that is bold; and the index of its side.
    Bar(Option<(String, bool)>, usize, &'p Bar),
    /// Empty space.
    Gap,
}

/// The chart, with everything laid out.
pub(super) struct Plot<'p> {
    axis: &'p Axis,
    rows: Vec<Row<'p>>,
    /// Whether styles distinguish parts instead of sides.
    piles: bool,
    thin: bool,
    scale: Scale,
    legend: Legend,
    /// The style of each name in the legend.
    legend_styles: Vec<usize>,
    head: Head,
    below: Vec<String>,
    note: Vec<String>,
}

/// Returns the parts that can be drawn, each with its begin and end.
fn ends<'b>(axis: &'b Axis, bar: &'b Bar) -> impl Iterator<Item = (usize, f64, f64)> + 'b {
    let mut sum = 0.0;
    bar.parts.iter().enumerate().filter(|(_, part)| is_length(**part)).filter_map(move |(n, part)| {
        let from = sum;
        sum += part;
        (shows(axis, sum) && *part > 0.0).then_some((n, from, sum))
    })
}

fn is_length(part: f64) -> bool {
    (0.0..=1e250).contains(&part)
}

fn total(bar: &Bar) -> f64 {
    bar.parts.iter().filter(|part| is_length(**part)).sum()
}

impl<'p> Plot<'p> {
    pub(super) fn new(
        panel: &'p Panel,
        parts: &'p [String],
        groups: &'p [(String, Vec<Bar>)],
        among: &Sides,
    ) -> Plot<'p> {
        let axis = &panel.y;
        let bars = || groups.iter().flat_map(|(_, bars)| bars);
        let mut sides: Vec<&str> = Vec::new();
        for bar in bars() {
            if !sides.contains(&bar.name.as_str()) {
                sides.push(&bar.name);
            }
        }
        let deepest = bars().map(|bar| bar.parts.len()).max().unwrap_or(0);
        let piles = deepest > 1;
        let alone = groups.iter().all(|(_, bars)| bars.len() <= 1);
        // A legend does not tell sides of one colour apart.
        let thin = bars().count() > MANY && !alone && !(piles && sides.len() > 1) && among.own.is_none();
        let name = |name: &str| text::shorten(&text::clean(name), SIZE, NAMES);

        let mut rows = Vec::new();
        for (group, bars) in groups {
            if !rows.is_empty() && !alone {
                rows.push(Row::Gap);
            }
            if !alone && !group.trim().is_empty() {
                rows.push(Row::Group(text::shorten(&text::clean(group), SIZE, WIDTH - 2.0 * MARGIN)));
            }
            rows.extend(bars.iter().map(|bar| {
                let label = match alone {
                    true if sides.len() > 1 && *group != bar.name => name(&format!("{group} {}", bar.name)),
                    true => name(group),
                    false => name(&bar.name),
                };
                let strong = among.is_strong(group, &bar.name);
                Row::Bar((!thin).then_some((label, strong)), among.index(&bar.name), bar)
            }));
        }

        // On a logarithmic axis even the smallest bar needs a visible length: the axis begins below the end of its
        // first part.
        let lengths = bars().flat_map(|bar| {
            let (low, high) = bar.spread.unwrap_or((f64::NAN, f64::NAN));
            let first = ends(axis, bar).next().map_or(f64::NAN, |(_, _, end)| end);
            [if axis.log { first / 4.0 } else { first }, total(bar), low, high]
        });
        let scale = Scale::of_lengths(axis, lengths);
        let is_missing = |bar: &&Bar| {
            bar.parts.is_empty()
                || ends(axis, bar).count()
                    != bar.parts.iter().filter(|part| **part != 0.0 || axis.log).count()
        };
        let legend_names: Vec<String> = if piles {
            (0..deepest).map(|n| parts.get(n).cloned().unwrap_or_else(|| format!("part {}", n + 1))).collect()
        } else if thin || alone && sides.len() == 1 && !sides[0].is_empty() {
            sides.iter().map(|side| (*side).to_owned()).collect()
        } else {
            Vec::new()
        };
        let legend_styles =
            if piles { (0..deepest).collect() } else { sides.iter().map(|side| among.index(side)).collect() };
        Plot {
            axis,
            legend_styles,
            rows,
            piles,
            thin,
            legend: Legend::new(legend_names.iter().map(String::as_str)),
            head: Head::new(&panel.title, &panel.x.label),
            below: text::wrap(&caption(axis, &scale.unit), SIZE, WIDTH - 2.0 * MARGIN, 2),
            note: super::left_out(bars().filter(is_missing).count(), axis.log),
            scale,
        }
    }

    fn row_height(&self, row: &Row<'_>) -> f64 {
        match row {
            Row::Group(_) => ROW,
            Row::Bar(..) => {
                if self.thin {
                    THIN
                } else {
                    ROW
                }
            }
            Row::Gap => GAP,
        }
    }

    fn floor(&self) -> f64 {
        self.head.height() + self.rows.iter().map(|row| self.row_height(row)).sum::<f64>() + 8.0
    }

    pub(super) fn height(&self) -> f64 {
        let lines = 1 + self.below.len() + self.note.len();
        self.floor() + 10.0 + lines as f64 * LINE + self.legend.height() + MARGIN
    }

    pub(super) fn draw(&self, canvas: &Canvas) {
        self.head.draw(canvas);
        let names = self.rows.iter().map(|row| match row {
            Row::Bar(Some((name, _)), ..) => text::width(name, SIZE) + 10.0,
            _ => 0.0,
        });
        let values = self.rows.iter().map(|row| match row {
            Row::Bar(Some(_), _, bar) => text::width(&self.value(bar), SIZE) + 10.0,
            _ => 16.0,
        });
        let left = MARGIN + names.fold(0.0, f64::max);
        let right = WIDTH - MARGIN - values.fold(16.0, f64::max);
        let across = |value: f64| left + self.scale.place(value) * (right - left);
        self.draw_axis(canvas, (left, right), &across);
        let floor = self.floor();
        canvas.line(&[(left, self.head.height()), (left, floor), (right, floor)], FAINT, 2.0);

        let mut top = self.head.height();
        for row in &self.rows {
            let height = self.row_height(row);
            let middle = top + height / 2.0;
            match row {
                Row::Gap => {}
                Row::Group(name) => {
                    // On its own background: axis and grid lines do not cross it.
                    canvas.rectangle([(0.0, top), (WIDTH, top + height)], PAPER);
                    canvas.bold(name, (MARGIN, middle), Anchor::Start, INK);
                }
                Row::Bar(name, side, bar) => {
                    self.draw_bar(canvas, (name.as_ref(), *side, bar), left, middle, &across);
                }
            }
            top += height;
        }
        self.draw_below(canvas)
    }

    /// Returns the text behind a bar.
    fn value(&self, bar: &Bar) -> String {
        let total = total(bar);
        if bar.parts.iter().any(|part| is_length(*part)) {
            self.scale.unit.say(total)
        } else {
            "–".to_owned()
        }
    }

    fn draw_bar(
        &self,
        canvas: &Canvas,
        (name, side, bar): (Option<&(String, bool)>, usize, &Bar),
        left: f64,
        middle: f64,
        across: &impl Fn(f64) -> f64,
    ) {
        let half = if self.thin { THIN / 2.0 - 1.0 } else { 11.0 };
        let mut end = left;
        for (n, from, to) in ends(self.axis, bar) {
            let from = if from > 0.0 { across(from) } else { left };
            end = across(to);
            let style = if self.piles { n } else { side };
            style::fill(canvas, style, (from, middle - half), (end, middle + half));
        }
        if let Some((a, b)) = bar.spread.filter(|(a, b)| a.is_finite() && b.is_finite()) {
            let (a, b) = (across(a), across(b));
            // An outline, since the whisker lies over the bar.
            canvas.line(&[(a, middle), (b, middle)], PAPER, 5.0);
            canvas.line(&[(a, middle), (b, middle)], INK, 2.0);
            for x in [a, b] {
                canvas.line(&[(x, middle - half * 0.6), (x, middle + half * 0.6)], INK, 2.0);
            }
            end = end.max(a).max(b);
        }
        let Some((name, strong)) = name else { return };
        let write = if *strong { Canvas::bold } else { Canvas::text };
        write(canvas, name, (left - 10.0, middle), Anchor::End, INK);
        write(canvas, &self.value(bar), (end + 8.0, middle), Anchor::Start, INK);
    }

    fn draw_axis(&self, canvas: &Canvas, (left, right): (f64, f64), across: &impl Fn(f64) -> f64) {
        let (top, floor) = (self.head.height(), self.floor());
        for &value in &self.scale.fine {
            canvas.line(&[(across(value), top), (across(value), floor)], FINE, 1.5);
        }
        let mut free = f64::NEG_INFINITY;
        for (value, label) in &self.scale.ticks {
            let (x, half) = (across(*value), text::width(label, SIZE) / 2.0);
            if !(left - 1.0..=right + 1.0).contains(&x) {
                continue;
            }
            canvas.line(&[(x, top), (x, floor)], GRID, 1.5);
            let at = x.clamp(half, WIDTH - half);
            if at - half >= free {
                canvas.text(label, (at, floor + 8.0 + LINE / 2.0), Anchor::Middle, INK);
                free = at + half + 12.0;
            }
        }
    }

    fn draw_below(&self, canvas: &Canvas) {
        let mut y = self.floor() + 10.0 + LINE;
        for line in &self.below {
            canvas.text(line, (WIDTH - MARGIN, y + LINE / 2.0), Anchor::End, FAINT);
            y += LINE;
        }
        self.legend.draw(canvas, y, |n, (from, y), (to, _)| {
            style::fill(canvas, self.legend_styles[n], (from, y - 10.0), (to, y + 10.0))
        });
        super::notes(canvas, &self.note, y + self.legend.height())
    }
}
