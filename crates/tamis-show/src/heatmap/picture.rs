//! The layout of the picture as SVG.
//!
//! A run is two lanes over the same columns: hotness as colour and, below it, the units in memory
//! as height. Everything lies on whole pixels of a page [`WIDTH`] wide. Adjacent columns that look
//! alike form one shape, which keeps a picture of thousands of segments within a few hundred
//! kilobytes. Fonts are named by family only. All text from a database goes through
//! [`printable`](crate::text::printable).

use crate::numbers::{bytes, grouped, mean, small};
use crate::picture::{self, Anchor, At, Canvas, Colour, FAINT, FINE, Frame, INK};
use tamis::stats::{ElasticStats, SegmentStats};

use super::axis::{Axis, By};
use super::scale::{Scale, Shade};
use super::strip::{self, Column, What};
use crate::text::{excerpt, hex};

/// In pixels. Text of size [`SMALL`] is 12 pixels high on a page 860 pixels wide, and 8 points high
/// in print 20 cm wide.
const WIDTH: i32 = 1500;
const MARGIN: i32 = 20;
/// Where the columns begin, and their number, one pixel each.
const LEFT: i32 = 230;
const COLUMNS: i32 = 1020;
const HEAD: i32 = 96;
const LANE: i32 = 26;
/// The distance from one run to the next of its level, and to the next level.
const RUN: i32 = 2 * LANE + 12;
const LEVEL_GAP: i32 = 14;
/// The heights of a keyspace's name and of the keys below its runs.
const NAME: i32 = 44;
const AXIS: i32 = 84;
const LEGEND: i32 = 112;

/// Runs drawn per level; the rest are counted.
const MOST_RUNS: usize = 12;
/// The number of keys named below the runs, minus one.
const MARKS: usize = 4;
/// The number of characters shown of a key.
const KEY_TEXT: usize = 24;

const SMALL: i32 = 21;
const LARGE: i32 = 29;

/// The heights that show units.
const UNITS: Colour = Colour(0x3c3c3c, 0xc4ccd4);

/// The contents of the picture.
pub struct Picture<'a> {
    /// The database's name, for the title.
    pub name: &'a str,
    /// The totals of elastic filters, for the line below the title.
    pub elastic: Option<&'a ElasticStats>,
    /// Ordered by keyspace, level, run and key.
    pub segments: &'a [SegmentStats],
    /// The scale of the horizontal axis.
    pub by: By,
    /// The quantity shown by colour.
    pub what: What,
    /// Show keys as hexadecimal digits.
    pub hex: bool,
}

/// One keyspace and the part of it that is drawn.
struct Panel<'a> {
    name: &'a str,
    axis: Axis<'a>,
    levels: Vec<Level<'a>>,
}

struct Level<'a> {
    level: usize,
    runs: Vec<&'a [SegmentStats]>,
    left_out: usize,
}

impl Picture<'_> {
    /// Returns the picture as SVG.
    pub fn to_svg(&self) -> String {
        let panels: Vec<Panel<'_>> = self
            .segments
            .chunk_by(|a, b| a.keyspace == b.keyspace)
            .map(|part| Panel::new(part, self.by))
            .collect();
        let names = panels.len() > 1;
        let height = HEAD + panels.iter().map(|panel| panel.height(names)).sum::<i32>() + LEGEND;
        let densities = self.segments.iter().map(|s| self.what.of(s) / s.keys.max(1) as f64);
        let scale = Scale::of(densities);
        let most =
            self.segments.iter().map(|segment| segment.units.max(segment.enabled)).max().unwrap_or(0).max(1);
        let strips = "A strip for each run, newest on top: hotness as colour, filter units as height.";
        let frame = Frame {
            id: "heatmap",
            title: &self.title(),
            desc: &format!("{strips} {}", self.totals().unwrap_or_default()),
            size: place((WIDTH, height)),
            shown: WIDTH.into(),
            letters: SMALL.into(),
        };
        picture::svg(&frame, |area| {
            self.head(area);
            let mut top = HEAD;
            for panel in &panels {
                self.panel(area, panel, top, names, scale, most);
                top += panel.height(names);
            }
            self.legend(area, top, scale, most)
        })
    }

    fn title(&self) -> String {
        format!("Hotness and filter units over the keys of {}", self.name)
    }

    /// Returns the line below the title.
    fn totals(&self) -> Option<String> {
        let elastic = self.elastic?;
        // A database that was just opened has answered nothing yet, but has its stored hotness.
        let gets = match elastic.gets {
            0 => "hotness as stored".to_owned(),
            gets => format!("{} gets", grouped(gets)),
        };
        Some(format!(
            "E = {} expected wasted block reads per get   ·   {} bits per key   ·   {} of a budget of {}   ·   {gets}",
            small(elastic.expected_extra_reads),
            mean(elastic.bits_per_key()),
            bytes(elastic.used_bytes),
            bytes(elastic.budget_bytes)
        ))
    }

    fn head(&self, area: &Canvas) {
        text(area, self.title(), (MARGIN, 18), LARGE, INK, Anchor::Start);
        if let Some(line) = self.totals() {
            text(area, line, (MARGIN, 58), SMALL, INK, Anchor::Start);
        }
    }

    fn panel(
        &self,
        area: &Canvas,
        panel: &Panel<'_>,
        top: i32,
        names: bool,
        scale: Option<Scale>,
        most: u32,
    ) {
        let mut y = top;
        if names {
            text(
                area,
                format!("keyspace {}", label(panel.name.as_bytes(), 80)),
                (MARGIN, y + 8),
                LARGE,
                INK,
                Anchor::Start,
            );
            y += NAME;
        }
        for level in &panel.levels {
            for run in &level.runs {
                self.run(area, &panel.axis, run, y, scale, most);
                y += RUN;
            }
            if level.left_out > 0 {
                let line =
                    format!("level {}: … and {} older runs", level.level, grouped(level.left_out as u64));
                text(area, line, (LEFT, y), SMALL, FAINT, Anchor::Start);
                y += RUN / 2;
            }
            y += LEVEL_GAP;
        }
        self.axis(area, &panel.axis, y - LEVEL_GAP)
    }

    fn run(
        &self,
        area: &Canvas,
        axis: &Axis<'_>,
        run: &[SegmentStats],
        top: i32,
        scale: Option<Scale>,
        most: u32,
    ) {
        let whole = strip::whole(run.iter(), self.what);
        let (middle, below) = (top + LANE / 2, top + LANE + LANE / 2);
        let name = format!("level {}, run {}", run[0].level, run[0].run);
        side(area, name, LEFT - 12, middle, Anchor::End, INK);
        let keys = run.iter().map(|segment| segment.keys).sum();
        side(area, format!("{} keys", grouped(keys)), LEFT - 12, below, Anchor::End, FAINT);
        let right = LEFT + COLUMNS + 12;
        side(area, format!("{} lookups/get", small(whole.lookups)), right, middle, Anchor::Start, INK);
        side(area, format!("{} units", mean(whole.units())), right, below, Anchor::Start, INK);

        let spans = run.iter().map(|segment| (segment, axis.span(segment)));
        let columns = strip::columns(spans, self.what, COLUMNS as usize);
        let shade = |column: &Column| scale.map_or(Shade::nothing(), |scale| scale.shade(column.density()));
        for (from, to, shade) in strip::stretches(&columns, shade) {
            // One extra pixel under the neighbour avoids a seam when the picture is scaled.
            let more = usize::from(columns.get(to).is_some_and(Option::is_some));
            rectangle(area, filled(from, to + more, top, top + LANE), shade.colour());
        }
        let ground = top + 2 * LANE;
        for (from, to, ()) in strip::stretches(&columns, |_| ()) {
            rectangle(area, filled(from, to, top + LANE + 2, ground), FINE);
        }
        let height = |column: &Column| height(column.units(), most);
        for (from, to, some) in strip::stretches(&columns, |column| height(column) > 0) {
            if some {
                let steps = strip::stretches(&columns[from..to], height);
                area.shape(&outline(&steps, from, ground).into_iter().map(place).collect::<Vec<_>>(), UNITS);
            }
        }
    }

    /// Draws some keys below the runs and a line that explains the axis.
    fn axis(&self, area: &Canvas, axis: &Axis<'_>, top: i32) {
        line(area, [(LEFT, top), (LEFT + COLUMNS, top)], INK);
        let marks = axis.marks(MARKS);
        let keys: Vec<&[u8]> = marks.iter().map(|(_, key)| *key).collect();
        for ((place, _), key) in marks.iter().zip(self.labels(&keys)) {
            let x = LEFT + (place * f64::from(COLUMNS)).round() as i32;
            line(area, [(x, top), (x, top + 8)], INK);
            text(area, key, (x, top + 14), SMALL, INK, Anchor::Middle);
        }
        let line = match self.by {
            By::Data => "keys in order: equal widths hold equal numbers of keys".to_owned(),
            By::Key => {
                let prefix = axis.common_prefix();
                let prefix = if self.hex { ellipsis(hex(prefix), KEY_TEXT) } else { label(prefix, KEY_TEXT) };
                let behind =
                    if prefix.is_empty() { String::new() } else { format!(" behind “{prefix}”") };
                format!("keys as numbers: the eight bytes{behind}")
            }
        };
        text(area, line, (LEFT + COLUMNS / 2, top + 42), SMALL, FAINT, Anchor::Middle)
    }

    /// Returns texts for ascending keys of which no two are alike: of a long key, the part by which
    /// it differs from its neighbours.
    fn labels(&self, keys: &[&[u8]]) -> Vec<String> {
        let common = |a: &[u8], b: &[u8]| a.iter().zip(b).take_while(|(a, b)| a == b).count();
        let text = |key: &[u8], limit: usize| match self.hex {
            true => ellipsis(hex(key), limit),
            false => label(key, limit),
        };
        let one = |at: usize| {
            let key = keys[at];
            let neighbours =
                [at.checked_sub(1), Some(at + 1)].into_iter().flatten().filter_map(|at| keys.get(at));
            let alike = neighbours.map(|other| common(key, other)).max().unwrap_or(0);
            let width = |part: &[u8]| text(part, usize::MAX).chars().count();
            if key.is_empty() {
                return "(empty)".to_owned();
            }
            // The first byte that differs, and a little on.
            let needed = &key[..key.len().min(alike + 4)];
            if width(key) <= KEY_TEXT || width(needed) < KEY_TEXT {
                return text(key, KEY_TEXT);
            }
            let starts = (0..alike).filter(|&from| self.hex || key[from] & 0xC0 != 0x80);
            let from =
                starts.into_iter().find(|&from| width(&needed[from..]) < KEY_TEXT - 1).unwrap_or(alike);
            format!("…{}", text(&key[from..], KEY_TEXT - 1))
        };
        (0..keys.len()).map(one).collect()
    }

    fn legend(&self, area: &Canvas, top: i32, scale: Option<Scale>, most: u32) {
        line(area, [(MARGIN, top), (WIDTH - MARGIN, top)], FINE);
        let (bar, below) = (top + 42, top + 42 + LANE + 4);
        let what = match self.what {
            What::Hotness => "hotness: lookups of absent keys, per get and key",
            What::Asked => "lookups, per get and key",
        };
        text(area, what.to_owned(), (MARGIN, top + 12), SMALL, INK, Anchor::Start);
        let swatch = |x: i32, colour: Colour, name: &str| {
            rectangle(area, [(x, bar), (x + 40, bar + LANE)], colour);
            text(area, name.to_owned(), (x, below), SMALL, INK, Anchor::Start)
        };
        swatch(MARGIN, Shade::nothing().colour(), "none");
        if let Some(scale) = scale {
            let (from, step) = (MARGIN + 90, 6);
            let shades = Shade::all();
            let width = shades.len() as i32 * step;
            for (at, shade) in shades.enumerate() {
                let x = from + at as i32 * step;
                let right = (x + step + 1).min(from + width);
                rectangle(area, [(x, bar), (right, bar + LANE)], shade.colour());
            }
            for (place, name) in scale.marks() {
                let x = from + (place * f64::from(width)).round() as i32;
                line(area, [(x, bar + LANE), (x, bar + LANE + 5)], INK);
                text(area, name, (x, below + 3), SMALL, INK, Anchor::Middle);
            }
        }
        let x = 650;
        let line = format!("lower strip: filter units in memory, 0 to {most}");
        text(area, line, (x, top + 12), SMALL, INK, Anchor::Start);
        let step = (300 / (most as i32 + 1)).clamp(8, 44);
        let right = x + step * (most as i32 + 1);
        rectangle(area, [(x, bar + 2), (right, bar + LANE)], FINE);
        for units in 1..=most {
            let (left, high) = (x + step * units as i32, height(units.into(), most));
            rectangle(area, [(left, bar + LANE - high), (left + step, bar + LANE)], UNITS);
        }
        for units in [0, most] {
            let middle = x + step * units as i32 + step / 2;
            text(area, units.to_string(), (middle, below), SMALL, INK, Anchor::Middle);
        }
        area.edges([place((1230, bar)), place((1270, bar + LANE))], FAINT, 1.0);
        text(area, "empty: no keys here".to_owned(), (1230, below), SMALL, INK, Anchor::Start)
    }
}

impl<'a> Panel<'a> {
    fn new(segments: &'a [SegmentStats], by: By) -> Panel<'a> {
        let levels = segments.chunk_by(|a, b| a.level == b.level).map(|level| {
            let mut runs: Vec<&[SegmentStats]> = level.chunk_by(|a, b| a.run == b.run).collect();
            let left_out = runs.len().saturating_sub(MOST_RUNS);
            runs.truncate(MOST_RUNS);
            Level { level: level[0].level, runs, left_out }
        });
        let name = segments.first().map_or("", |segment| &segment.keyspace);
        Panel { name, levels: levels.collect(), axis: Axis::new(segments, by) }
    }

    fn height(&self, name: bool) -> i32 {
        let level = |level: &Level<'_>| {
            level.runs.len() as i32 * RUN + if level.left_out > 0 { RUN / 2 } else { 0 } + LEVEL_GAP
        };
        self.levels.iter().map(level).sum::<i32>() + AXIS - LEVEL_GAP + if name { NAME } else { 0 }
    }
}

/// Returns the height of a number of units in pixels; at least one pixel unless the number is 0.
fn height(units: f64, most: u32) -> i32 {
    if units <= 0.0 {
        return 0;
    }
    let full = f64::from(LANE - 2);
    (units / f64::from(most) * full).round().clamp(1.0, full) as i32
}

/// Returns the outline of steps of heights over a base line; columns are counted from `from`.
fn outline(steps: &[(usize, usize, i32)], from: usize, ground: i32) -> Vec<(i32, i32)> {
    let x = |column: usize| LEFT + (from + column) as i32;
    let mut points = Vec::with_capacity(2 * steps.len() + 2);
    points.extend(steps.first().map(|step| (x(step.0), ground)));
    for &(left, right, height) in steps {
        points.extend([(x(left), ground - height), (x(right), ground - height)]);
    }
    points.extend(steps.last().map(|step| (x(step.1), ground)));
    points
}

fn filled(from: usize, to: usize, top: i32, bottom: i32) -> [(i32, i32); 2] {
    [(LEFT + from as i32, top), (LEFT + to as i32, bottom)]
}

/// Returns a key or a name as text for the picture.
fn label(bytes: &[u8], limit: usize) -> String {
    // XML cannot express these two noncharacters.
    excerpt(bytes, limit).replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}")
}

fn ellipsis(text: String, limit: usize) -> String {
    if text.len() <= limit { text } else { text.chars().take(limit - 1).chain(['…']).collect() }
}

fn place((x, y): (i32, i32)) -> At {
    (x.into(), y.into())
}

fn rectangle(area: &Canvas, corners: [(i32, i32); 2], colour: Colour) {
    area.rectangle(corners.map(place), colour);
}

fn line(area: &Canvas, ends: [(i32, i32); 2], colour: Colour) {
    area.line(&ends.map(place), colour, 1.0);
}

/// Draws text below a point.
fn text(area: &Canvas, text: String, (x, y): (i32, i32), size: i32, colour: Colour, side: Anchor) {
    area.sized(&text, place((x, y + size / 2)), side, colour, size.into());
}

/// Draws text beside a lane.
fn side(area: &Canvas, text: String, x: i32, middle: i32, side: Anchor, colour: Colour) {
    area.text(&text, place((x, middle)), side, colour);
}

#[cfg(test)]
mod tests;
