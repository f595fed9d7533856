//! Construction of panels from single points: rows yield a name, a position and a height each.

use super::{Axis, Bar, Kind, Panel, Point, Series};

/// Returns a panel of lines. Lines keep the order of their first points; the points of a line are sorted by x, unless
/// `curve` keeps them in the given order. Numbers that are not finite are ignored. `None` if nothing is left.
pub fn lines(
    title: impl Into<String>,
    x: Axis,
    y: Axis,
    curve: bool,
    points: impl IntoIterator<Item = (String, Point)>,
) -> Option<Panel> {
    let mut series: Vec<Series> = Vec::new();
    for (name, point) in points {
        if !(point.x.is_finite() && point.y.is_finite()) {
            continue;
        }
        match series.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => series.push(Series { name, points: vec![point] }),
        }
    }
    if !curve {
        series.iter_mut().for_each(|line| line.points.sort_by(|a, b| a.x.total_cmp(&b.x)));
    }
    (!series.is_empty()).then(|| Panel { title: title.into(), x, y, kind: Kind::Lines(series) })
}

/// A bar with one part: its group, its name, its height, and the spread of the height.
pub type OneBar = (String, String, f64, Option<(f64, f64)>);

/// Returns a panel of bars without parts; groups and bars keep the order of first appearance. Heights that are negative
/// or not finite are ignored. `None` if nothing is left.
pub fn bars(
    title: impl Into<String>,
    x: Axis,
    y: Axis,
    bars: impl IntoIterator<Item = OneBar>,
) -> Option<Panel> {
    let parts = vec![y.label.clone()];
    let bar = |(group, name, height, spread): OneBar| (group, Bar { name, parts: vec![height], spread });
    stacked(title, x, y, parts, bars.into_iter().map(bar))
}

/// Returns a panel of bars with these parts, from the bottom up: pairs of a group and a bar. Like [`bars`](fn@bars) otherwise.
pub fn stacked(
    title: impl Into<String>,
    x: Axis,
    y: Axis,
    parts: Vec<String>,
    bars: impl IntoIterator<Item = (String, Bar)>,
) -> Option<Panel> {
    let mut groups: Vec<(String, Vec<Bar>)> = Vec::new();
    for (group, bar) in bars {
        if bar.parts.iter().any(|part| !part.is_finite() || *part < 0.0) {
            continue;
        }
        match groups.iter_mut().find(|(name, _)| *name == group) {
            Some((_, bars)) => bars.push(bar),
            None => groups.push((group, vec![bar])),
        }
    }
    (!groups.is_empty()).then(|| Panel { title: title.into(), x, y, kind: Kind::Bars { parts, groups } })
}

/// Returns the distinct values in order of first appearance.
pub fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_of_lines_are_sorted_by_x_and_curves_keep_their_order() {
        let given = [("a", 2.0, 1.0), ("b", 1.0, 5.0), ("a", 1.0, 3.0), ("a", f64::NAN, 1.0)];
        let points = || given.map(|(name, x, y)| (name.to_owned(), Point::new(x, y)));
        let axis = || Axis::new("x", "");
        let of = |curve| match lines("t", axis(), axis(), curve, points()).unwrap().kind {
            Kind::Lines(series) => series
                .into_iter()
                .map(|line| (line.name, line.points.iter().map(|p| p.x).collect::<Vec<_>>()))
                .collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        assert_eq!(of(false), [("a".to_owned(), vec![1.0, 2.0]), ("b".to_owned(), vec![1.0])]);
        assert_eq!(of(true), [("a".to_owned(), vec![2.0, 1.0]), ("b".to_owned(), vec![1.0])]);
        assert_eq!(lines("t", axis(), axis(), false, []), None);
    }

    #[test]
    fn bars_are_grouped() {
        let bar = |group: &str, name: &str, height| (group.to_owned(), name.to_owned(), height, None);
        let given = [bar("g", "a", 1.0), bar("h", "a", 2.0), bar("g", "b", 3.0), bar("g", "c", -1.0)];
        let panel = bars("t", Axis::new("x", ""), Axis::new("time", "ns"), given).unwrap();
        let Kind::Bars { parts, groups } = panel.kind else { panic!() };
        assert_eq!(parts, ["time"]);
        let names: Vec<(&str, usize)> = groups.iter().map(|(name, bars)| (&name[..], bars.len())).collect();
        assert_eq!(names, [("g", 2), ("h", 1)]);
        assert_eq!(bars("t", Axis::default(), Axis::default(), []), None);
    }
}
