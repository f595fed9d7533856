//! Pictures: bars, quantiles, and leads. Positions are percentages of the available width and heights are pixels, so
//! that pictures fit a telephone, a screen and paper with letters of the same size.

use tamis_bench::report::grouped;
use tamis_lab::page::Page;

use crate::report::figure::{Figure, QUANTILES};
use crate::report::summary::{Group, Standing, Suite, is_tamis};
use crate::report::{tables, text};

/// Height of one system in pixels: a line of text, and the drawing below it.
const LANE: usize = 36;
/// The same with the course of a run below the text.
const COURSE_LANE: usize = 84;
const TEXT: usize = 14;
const BAR: usize = 20;
const THICK: usize = 9;

/// Maximum number of characters of a system's name beside a value; tables have the full name.
const NAME: usize = 30;

/// Ratios beyond this, or below its reciprocal, fill half of their picture.
const FARTHEST: f64 = 8.0;

/// Draws a bar for each system from 0, with a line from the smallest to the largest round.
pub(super) fn bars(out: &mut Page, suite: &Suite, group: &Group, label: &str) {
    let figure = suite.headline();
    let best = group.best(figure).map(|(name, _)| name);
    let most =
        suite.systems.iter().filter_map(|s| group.spread(s, figure)).map(|s| s.max).fold(0.0, f64::max);
    let direction = if figure.is_rate() { "longer is better" } else { "shorter is better" };
    let caption = format!("{label} — {}, {direction}", figure.title());
    let said: Vec<String> = systems(suite, group)
        .map(|system| format!("{system}: {}", text::cell(group, system, figure, false)))
        .collect();
    picture(out, LANE, &caption, &said, |out| {
        for (lane, system) in systems(suite, group).enumerate() {
            let is_best = best == Some(system);
            label_at(out, lane * LANE, system, is_best, &text::cell(group, system, figure, false));
            let Some(spread) = group.spread(system, figure) else { continue };
            let percent = |value: f64| format!("{:.2}%", 100.0 * (value / most));
            let y = (lane * LANE + BAR).to_string();
            let height = THICK.to_string();
            let class = class(system, is_best);
            let width = percent(spread.median);
            out.void(
                "rect",
                &[("class", class), ("x", "0"), ("y", &y), ("width", &width), ("height", &height)],
            );
            let middle = (lane * LANE + BAR + THICK / 2).to_string();
            let (from, to) = (percent(spread.min), percent(spread.max));
            out.void(
                "line",
                &[("class", "spread"), ("x1", &from), ("x2", &to), ("y1", &middle), ("y2", &middle)],
            );
        }
    });
}

/// Draws the quantiles of each system on a logarithmic scale.
pub(super) fn quantiles(out: &mut Page, suite: &Suite, group: &Group, label: &str) {
    let values = |system: &str| QUANTILES.map(|q| group.spread(system, q).map(|spread| spread.median));
    let all: Vec<f64> = systems(suite, group).flat_map(values).flatten().collect();
    let (Some(least), Some(most)) =
        (all.iter().copied().reduce(f64::min), all.iter().copied().reduce(f64::max))
    else {
        return;
    };
    // Some space at both ends, so that marks are not clipped.
    let wide = (most / least).ln().max(f64::EPSILON);
    let place = |value: f64| format!("{:.2}%", 2.0 + 96.0 * (value / least).ln() / wide);
    let caption = format!("{label} — p50 / p99 / p99.9, ns, logarithmic, further left is better");
    let said: Vec<String> = systems(suite, group)
        .map(|system| format!("{system}: {}", tables::quantiles(group, system)))
        .collect();
    picture(out, LANE, &caption, &said, |out| {
        for (lane, system) in systems(suite, group).enumerate() {
            label_at(out, lane * LANE, system, false, &tables::quantiles(group, system));
            let y = (lane * LANE + BAR + THICK / 2).to_string();
            let found: Vec<String> = values(system).into_iter().flatten().map(place).collect();
            if let [first, .., last] = found.as_slice() {
                out.void("line", &[("class", "reach"), ("x1", first), ("x2", last), ("y1", &y), ("y2", &y)]);
            }
            for (x, radius) in found.iter().zip(["5", "4", "3"]) {
                out.void("circle", &[("class", class(system, false)), ("cx", x), ("cy", &y), ("r", radius)]);
            }
        }
    });
}

/// Draws the puts of each second of the last round, all systems on the same scale from 0.
pub(super) fn courses(out: &mut Page, suite: &Suite, group: &Group, label: &str) {
    let longest = group.seconds.values().map(Vec::len).max().unwrap_or(0);
    let most = group.seconds.values().flatten().copied().max().unwrap_or(0);
    if longest < 3 || most == 0 {
        return;
    }
    let caption = format!(
        "{label} — puts in each of {longest} seconds of the last round, from 0 to {}, higher is better",
        grouped(most.into())
    );
    let of = |figure, system: &str| text::cell(group, system, figure, true);
    let value =
        |system: &str| format!("{} / {}", of(Figure::MedianSecond, system), of(Figure::WorstSecond, system));
    let said: Vec<String> = systems(suite, group)
        .map(|system| format!("{system}: median and worst second, thousands: {}", value(system)))
        .collect();
    picture(out, COURSE_LANE, &caption, &said, |out| {
        for (lane, system) in systems(suite, group).enumerate() {
            let top = lane * COURSE_LANE;
            label_at(out, top, system, false, &value(system));
            let Some(seconds) = group.seconds.get(system) else { continue };
            let points: Vec<String> = seconds
                .iter()
                .enumerate()
                .map(|(at, &puts)| format!("{at},{:.2}", 100.0 - 100.0 * f64::from(puts) / f64::from(most)))
                .collect();
            let (y, height) = ((top + BAR).to_string(), (COURSE_LANE - BAR - 6).to_string());
            let view = format!("0 0 {} 100", longest - 1);
            let attributes = [
                ("x", "0"),
                ("y", &*y),
                ("width", "100%"),
                ("height", &*height),
                ("viewBox", &*view),
                ("preserveAspectRatio", "none"),
            ];
            out.tag("svg", &attributes, |out| {
                out.void(
                    "line",
                    &[("class", "axis"), ("x1", "0"), ("x2", "100%"), ("y1", "100"), ("y2", "100")],
                );
                out.void("polyline", &[("class", class_of_course(system)), ("points", &points.join(" "))]);
            });
        }
    });
}

fn class_of_course(system: &str) -> &'static str {
    if is_tamis(system) { "course own" } else { "course peer" }
}

/// Draws tamis's lead to the right, or its deficit to the left. The number is in the same row of the table.
pub(super) fn lead(out: &mut Page, ratio: f64) {
    let half = 50.0 * (ratio.clamp(1.0 / FARTHEST, FARTHEST).ln() / FARTHEST.ln());
    let (from, width) = (50.0 + half.min(0.0), half.abs());
    let attributes = [("class", "lead"), ("width", "120"), ("height", "12"), ("aria-hidden", "true")];
    out.tag("svg", &attributes, |out| {
        let (from, width) = (format!("{from:.2}%"), format!("{width:.2}%"));
        let class = text::standing(Standing::of(ratio));
        out.void("rect", &[("class", class), ("x", &from), ("y", "1"), ("width", &width), ("height", "10")]);
        out.void("line", &[("class", "axis"), ("x1", "50%"), ("x2", "50%"), ("y1", "0"), ("y2", "12")]);
    });
}

/// Returns the systems that have a row.
fn systems<'a>(suite: &'a Suite, group: &'a Group) -> impl Iterator<Item = &'a str> + Clone {
    suite.systems.iter().map(String::as_str).filter(|system| group.outcomes.contains_key(*system))
}

fn picture(out: &mut Page, lane: usize, caption: &str, said: &[String], draw: impl FnOnce(&mut Page)) {
    let (title, desc) = (out.name(), out.name());
    let by = format!("{title} {desc}");
    let height = (said.len() * lane).to_string();
    out.tag("figure", &[], |out| {
        out.text_tag("figcaption", &[], caption);
        let attributes = [("role", "img"), ("width", "100%"), ("height", &*height), ("aria-labelledby", &by)];
        out.tag("svg", &attributes, |out| {
            out.text_tag("title", &[("id", &title)], caption);
            out.text_tag("desc", &[("id", &desc)], &said.join("; "));
            draw(out);
        });
    });
}

fn label_at(out: &mut Page, top: usize, system: &str, is_best: bool, value: &str) {
    let y = (top + TEXT).to_string();
    let mut name = system.to_owned();
    if name.chars().count() > NAME {
        name = name.chars().take(NAME - 1).chain(['…']).collect();
    }
    if is_best {
        name += " · best";
    }
    let weight = if is_tamis(system) { "own name" } else { "name" };
    out.text_tag("text", &[("class", weight), ("x", "0"), ("y", &y)], &name);
    out.text_tag("text", &[("class", "value"), ("x", "100%"), ("y", &y), ("text-anchor", "end")], value);
}

fn class(system: &str, is_best: bool) -> &'static str {
    match (is_tamis(system), is_best) {
        (true, _) => "own",
        (false, true) => "best",
        (false, false) => "peer",
    }
}
