//! Line charts.

use tamis_bench::picture::Colour;

use super::legend::Legend;
use super::scale::{Scale, shows};
use super::{Anchor, At, Canvas, FAINT, FINE, GRID, INK, LINE, MARGIN, SIZE, WIDTH};
use super::{Head, Sides, caption, style, text};
use crate::figures::{Panel, Point, Series};

/// Height of the plot area.
const HEIGHT: f64 = 350.0;

/// The style of a series.
struct Look {
    /// Index of the colour.
    colour: usize,
    /// Index of the mark, or of the dashes where there are no marks.
    kind: LookKind,
}

enum LookKind {
    Marks(usize),
    Dashes(usize),
}

/// The chart, with everything laid out.
pub(super) struct Plot<'p> {
    panel: &'p Panel,
    series: &'p [Series],
    looks: Vec<Look>,
    x: Scale,
    y: Scale,
    legend: Legend,
    /// The series in the legend. Upright lines are named above the plot area.
    listed: Vec<usize>,
    upright: Vec<(String, f64)>,
    head: Head,
    below: Vec<String>,
    note: Vec<String>,
}

/// Returns the side of a computed series: its name without the leading word and separator. `None` for other series.
pub(super) fn computed(name: &str) -> Option<&str> {
    let rest = name.strip_prefix("theory").or_else(|| name.strip_prefix("model"))?;
    Some(rest.trim_start_matches([' ', ':', ',', '–', '-']).trim_start_matches("of "))
}

/// Returns the name and the place of an upright line: a computed series of two points, one above the other.
fn upright(series: &Series) -> Option<(&str, f64)> {
    let name = computed(&series.name)?;
    match series.points[..] {
        [a, b] if a.x == b.x && a.y != b.y => Some((name, a.x)),
        _ => None,
    }
}

fn looks(series: &[Series], sides: &Sides) -> Vec<Look> {
    let (mut dashes, mut others) = (0, sides.len());
    let look = |series: &Series| match computed(&series.name) {
        None => {
            let side = sides.index(&series.name);
            Look { colour: side, kind: LookKind::Marks(side) }
        }
        Some(of) => {
            dashes += 1;
            // The theoretical line of a side has the side's colour.
            let colour = sides.find(of).unwrap_or_else(|| {
                others += 1;
                others - 1
            });
            Look { colour, kind: LookKind::Dashes(dashes - 1) }
        }
    };
    series.iter().map(look).collect()
}

impl<'p> Plot<'p> {
    pub(super) fn new(panel: &'p Panel, series: &'p [Series], among: &Sides) -> Plot<'p> {
        let drawn = |point: &&Point| shows(&panel.x, point.x) && shows(&panel.y, point.y);
        let points = || series.iter().flat_map(|series| &series.points);
        let x = Scale::of_places(&panel.x, points().filter(drawn).map(|point| point.x));
        let heights = points().filter(drawn).flat_map(|point| {
            let (low, high) = point.spread.unwrap_or((point.y, point.y));
            [point.y, low, high]
        });
        let y = Scale::of_lengths(&panel.y, heights);
        let left_out = points().filter(|point| !drawn(point)).count();
        let listed: Vec<usize> = (0..series.len()).filter(|&n| upright(&series[n]).is_none()).collect();
        let mut uprights: Vec<(String, f64)> = series
            .iter()
            .filter_map(upright)
            .filter(|(_, at)| shows(&panel.x, *at))
            .map(|(name, at)| (text::clean(name), at))
            .collect();
        uprights.sort_by(|a, b| a.1.total_cmp(&b.1));
        Plot {
            panel,
            series,
            looks: looks(series, among),
            legend: Legend::new(listed.iter().map(|&n| series[n].name.as_str())),
            listed,
            upright: uprights,
            head: Head::new(&panel.title, &caption(&panel.y, &y.unit)),
            below: text::wrap(&caption(&panel.x, &x.unit), SIZE, WIDTH - 2.0 * MARGIN, 2),
            note: super::left_out(left_out, panel.y.log || panel.x.log),
            x,
            y,
        }
    }

    /// Returns the y coordinate above the plot area.
    fn top(&self) -> f64 {
        self.head.height() + self.upright.len() as f64 * LINE
    }

    /// Returns the y coordinate of the lower edge of the plot area.
    fn floor(&self) -> f64 {
        self.top() + HEIGHT
    }

    pub(super) fn height(&self) -> f64 {
        let lines = 1 + self.below.len() + self.note.len();
        self.floor() + 10.0 + lines as f64 * LINE + self.legend.height() + MARGIN
    }

    pub(super) fn draw(&self, canvas: &Canvas) {
        self.head.draw(canvas);
        let wide = self.y.ticks.iter().map(|(_, label)| text::width(label, SIZE)).fold(0.0, f64::max);
        let (left, right) = (MARGIN + wide + 12.0, WIDTH - 26.0);
        let (top, floor) = (self.top() + 6.0, self.floor());
        let across = |value: f64| left + self.x.place(value) * (right - left);
        let up = |value: f64| floor - self.y.place(value) * (floor - top);
        self.draw_axes(canvas, (left, right), (top, floor), &across, &up);

        // From left to right each name is a line lower, so that it does not cross the lines before.
        for (n, (name, at)) in self.upright.iter().enumerate() {
            let (x, y) = (across(*at), self.head.height() + (n as f64 + 0.5) * LINE);
            let end = x + 8.0 + text::width(name, SIZE) > WIDTH;
            let (anchor, beside) = if end { (Anchor::End, -8.0) } else { (Anchor::Start, 8.0) };
            let room = if end { x - 8.0 } else { WIDTH - x - 8.0 };
            canvas.line(&[(x, y - LINE * 0.4), (x, floor)], FAINT, 1.5);
            canvas.text(&text::shorten(name, SIZE, room), (x + beside, y), anchor, FAINT);
        }
        for (series, look) in self.series.iter().zip(&self.looks) {
            if upright(series).is_some() {
                continue;
            }
            let colour = style::colour(look.colour);
            // A missing point ends a line.
            for part in series.points.split(|point| !self.shows(point)).filter(|part| !part.is_empty()) {
                let places: Vec<At> = part.iter().map(|point| (across(point.x), up(point.y))).collect();
                match look.kind {
                    LookKind::Marks(_) if places.len() > 1 => canvas.line(&places, colour, 3.0),
                    LookKind::Marks(_) => {}
                    // A single point of a theory is drawn as a horizontal line.
                    LookKind::Dashes(n) => match places[..] {
                        [(x, y)] => {
                            canvas.dashed(&[(x - 30.0, y), (x + 30.0, y)], colour, 3.0, style::dashes(n))
                        }
                        _ => canvas.dashed(&places, colour, 3.0, style::dashes(n)),
                    },
                }
            }
            for point in series.points.iter().filter(|point| self.shows(point)) {
                let whisker = point.spread.filter(|(low, high)| low.is_finite() && high.is_finite());
                if let Some((a, b)) = whisker {
                    let (x, low, high) = (across(point.x), up(a), up(b));
                    canvas.line(&[(x, low), (x, high)], colour, 2.0);
                    for y in [low, high] {
                        canvas.line(&[(x - 6.0, y), (x + 6.0, y)], colour, 2.0);
                    }
                }
            }
        }
        // Marks are drawn over all lines.
        for (series, look) in self.series.iter().zip(&self.looks) {
            if let LookKind::Marks(n) = look.kind {
                for point in series.points.iter().filter(|point| self.shows(point)) {
                    style::mark(canvas, n, (across(point.x), up(point.y)), style::colour(look.colour));
                }
            }
        }
        self.draw_below(canvas, (left, right))
    }

    fn shows(&self, point: &Point) -> bool {
        shows(&self.panel.x, point.x) && shows(&self.panel.y, point.y)
    }

    fn draw_axes(
        &self,
        canvas: &Canvas,
        (left, right): (f64, f64),
        (top, floor): (f64, f64),
        across: &impl Fn(f64) -> f64,
        up: &impl Fn(f64) -> f64,
    ) {
        let level = |y: f64, colour: Colour| canvas.line(&[(left, y), (right, y)], colour, 1.5);
        for &value in &self.y.fine {
            level(up(value), FINE);
        }
        let mut free = f64::INFINITY;
        for (value, label) in &self.y.ticks {
            let y = up(*value);
            level(y, GRID);
            // Values ascend, so each label is placed above the one before.
            if y + SIZE / 2.0 <= free {
                canvas.text(label, (left - 12.0, y), Anchor::End, INK);
                free = y - SIZE / 2.0 - 4.0;
            }
        }
        canvas.line(&[(left, top), (left, floor), (right, floor)], FAINT, 2.0);
        if self.y.place(0.0) > 0.0 && !self.panel.y.log {
            level(up(0.0), FAINT);
        }
        let mut free = f64::NEG_INFINITY;
        for (value, label) in &self.x.ticks {
            let (x, half) = (across(*value), text::width(label, SIZE) / 2.0);
            canvas.line(&[(x, floor), (x, floor + 7.0)], FAINT, 2.0);
            let at = x.clamp(half, WIDTH - half);
            if at - half >= free {
                canvas.text(label, (at, floor + 10.0 + LINE / 2.0), Anchor::Middle, INK);
                free = at + half + 12.0;
            }
        }
    }

    fn draw_below(&self, canvas: &Canvas, (left, right): (f64, f64)) {
        let mut y = self.floor() + 10.0 + LINE;
        for line in &self.below {
            let half = text::width(line, SIZE) / 2.0;
            let middle = f64::midpoint(left, right).min(WIDTH - MARGIN - half);
            canvas.text(line, (middle, y + LINE / 2.0), Anchor::Middle, FAINT);
            y += LINE;
        }
        self.legend.draw(canvas, y, |n, (from, y), (to, _)| {
            let look = &self.looks[self.listed[n]];
            let colour = style::colour(look.colour);
            match look.kind {
                LookKind::Marks(n) => {
                    canvas.line(&[(from, y), (to, y)], colour, 3.0);
                    style::mark(canvas, n, (f64::midpoint(from, to), y), colour)
                }
                LookKind::Dashes(n) => canvas.dashed(&[(from, y), (to, y)], colour, 3.0, style::dashes(n)),
            }
        });
        super::notes(canvas, &self.note, y + self.legend.height())
    }
}
