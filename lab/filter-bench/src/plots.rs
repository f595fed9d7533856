//! Line plots as SVG.

use std::io;
use std::path::Path;

use tamis_lab::figures::draw::{self, Sides};
use tamis_lab::figures::{Axis, Kind, Panel, Point, Series};

/// Lines over a common x axis; y may be logarithmic.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    /// File name without directory and extension.
    pub(crate) name: String,
    /// Title above the plot.
    pub(crate) title: String,
    /// The x axis.
    pub(crate) x: Axis,
    /// The y axis. Values of 0 are omitted on a logarithmic one.
    pub(crate) y: Axis,
    /// Names and points.
    pub(crate) series: Vec<(String, Vec<(f64, f64)>)>,
}

impl Plot {
    /// Writes `name.svg` into `directory`. A plot without points is not written.
    pub(crate) fn write(&self, directory: &Path) -> io::Result<()> {
        if let Some(svg) = self.to_svg() {
            std::fs::write(directory.join(format!("{}.svg", self.name)), svg)?;
        }
        Ok(())
    }

    fn shows(&self, y: f64) -> bool {
        y.is_finite() && (!self.y.log || y > 0.0)
    }

    fn to_svg(&self) -> Option<String> {
        let shown = |points: &[(f64, f64)]| {
            points.iter().filter(|&&(_, y)| self.shows(y)).map(|&(x, y)| Point::new(x, y)).collect::<Vec<_>>()
        };
        let series: Vec<Series> = self
            .series
            .iter()
            .map(|(name, points)| Series { name: name.clone(), points: shown(points) })
            .filter(|series| !series.points.is_empty())
            .collect();
        if series.is_empty() {
            return None;
        }
        let panel = Panel {
            title: self.title.clone(),
            x: self.x.clone(),
            y: self.y.clone(),
            kind: Kind::Lines(series),
        };
        Some(draw::svg(&panel, &Sides::of([&panel])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(log: bool, points: Vec<(f64, f64)>) -> Plot {
        let y = Axis::new("y", "");
        Plot {
            name: "n".to_owned(),
            title: "a & b".to_owned(),
            x: Axis::new("x", ""),
            y: if log { y.log() } else { y },
            series: vec![("s".to_owned(), points)],
        }
    }

    #[test]
    fn every_valid_point_is_drawn() {
        let svg = plot(true, vec![(8.0, 0.02), (10.0, 0.0), (12.0, 0.003)]).to_svg().unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("a &amp; b"));
        assert_eq!(svg.matches("<circle").count(), 2 + 1, "two points and the legend's mark");
        let svg = plot(false, vec![(1.0, 5.0)]).to_svg().unwrap();
        assert_eq!(svg.matches("<circle").count(), 2);
    }

    #[test]
    fn empty_plots_are_not_written() {
        assert!(plot(true, vec![(1.0, 0.0)]).to_svg().is_none());
        assert!(plot(false, vec![]).to_svg().is_none());
    }
}
