//! Descriptions of panels in words, for readers who cannot see them.

use std::fmt::Write;

use super::scale::Unit;
use crate::figures::{Axis, Bar, Kind, Panel, Series};

/// The text of an empty panel.
pub(super) const NOTHING: &str = "nothing was measured yet";

/// Maximum number of points of a line that are listed; longer lines are described by their ends.
const READ_OUT: usize = 16;

pub(super) fn panel(panel: &Panel) -> String {
    match &panel.kind {
        Kind::Lines(series) if !series.iter().all(|series| series.points.is_empty()) => lines(panel, series),
        Kind::Bars { parts, groups } if !groups.iter().all(|(_, bars)| bars.is_empty()) => {
            bars(panel, parts, groups)
        }
        Kind::Lines(_) | Kind::Bars { .. } => format!("An empty picture: {NOTHING}."),
    }
}

fn axis(axis: &Axis) -> String {
    let unit = if axis.unit.is_empty() { String::new() } else { format!(" ({})", axis.unit) };
    let log = if axis.log { ", logarithmic" } else { "" };
    format!("{}{unit}{log}", axis.label)
}

fn lines(panel: &Panel, series: &[Series]) -> String {
    let mut said = format!("Lines. Across: {}. Upwards: {}.", axis(&panel.x), axis(&panel.y));
    let (x, y) = (Unit::of(&panel.x), Unit::of(&panel.y));
    for series in series {
        let points: Vec<String> =
            series.points.iter().map(|p| format!("{} at {}", y.say(p.y), x.say(p.x))).collect();
        let points = match &points[..] {
            [] => NOTHING.to_owned(),
            [first, .., last] if points.len() > READ_OUT => {
                format!("{} points from {first} to {last}", points.len())
            }
            _ => points.join(", "),
        };
        let _ = write!(said, " {}: {points}.", series.name);
    }
    said
}

fn bars(panel: &Panel, parts: &[String], groups: &[(String, Vec<Bar>)]) -> String {
    let mut said = format!("Bars. Groups: {}. Length: {}.", axis(&panel.x), axis(&panel.y));
    let unit = Unit::of(&panel.y);
    for (group, bars) in groups {
        let bars: Vec<String> = bars
            .iter()
            .map(|bar| {
                let of = |(n, part): (usize, &f64)| match parts.get(n) {
                    Some(name) if bar.parts.len() > 1 => format!("{name} {}", unit.say(*part)),
                    _ => unit.say(*part),
                };
                format!(
                    "{} {}",
                    bar.name,
                    bar.parts.iter().enumerate().map(of).collect::<Vec<_>>().join(" and ")
                )
            })
            .collect();
        let _ = write!(said, " {group}: {}.", bars.join(", "));
    }
    said
}
