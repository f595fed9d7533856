//! Line plots as SVG.

use std::error::Error;
use std::path::Path;

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

/// Lines over a common x axis; y is logarithmic if asked for.
#[derive(Clone, Debug)]
pub struct Plot {
    /// File name without directory and ending.
    pub name: String,
    /// Above the plot.
    pub title: String,
    /// Below the x axis.
    pub x: String,
    /// Beside the y axis.
    pub y: String,
    /// Whether x is logarithmic.
    pub log_x: bool,
    /// Whether y is logarithmic; values of 0 are then left out.
    pub log: bool,
    /// Names and points.
    pub series: Vec<(String, Vec<(f64, f64)>)>,
}

const SIZE: (u32, u32) = (860, 520);

/// Colours that people with colour-blindness can tell apart (Okabe and Ito 2008), then darker shades of them.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
    RGBColor(120, 120, 120),
];

impl Plot {
    /// Writes `name.svg` into `directory`. A plot without points is not written.
    pub fn write(&self, directory: &Path) -> Result<(), Box<dyn Error>> {
        if let Some(svg) = self.to_svg()? {
            std::fs::write(directory.join(format!("{}.svg", self.name)), svg)?;
        }
        Ok(())
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.series.iter().flat_map(|(_, points)| points.iter().copied()).filter(|&(_, y)| self.shows(y))
    }

    fn shows(&self, y: f64) -> bool {
        y.is_finite() && (!self.log || y > 0.0)
    }

    fn to_svg(&self) -> Result<Option<String>, Box<dyn Error>> {
        let Some(first) = self.points().next() else { return Ok(None) };
        let start = (first.0, first.0, first.1, first.1);
        let (left, right, low, high) = self.points().fold(start, |(left, right, low, high), (x, y)| {
            (left.min(x), right.max(x), low.min(y), high.max(y))
        });
        let x = if left < right { left..right } else { left - 1.0..right + 1.0 };
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            root.fill(&WHITE)?;
            let (y, log_y) = (0.0..high * 1.08 + f64::MIN_POSITIVE, (low * 0.7..high * 1.4).log_scale());
            match (self.log_x, self.log) {
                (false, false) => self.draw(&root, x, y)?,
                (false, true) => self.draw(&root, x, log_y)?,
                (true, false) => self.draw(&root, x.log_scale(), y)?,
                (true, true) => self.draw(&root, x.log_scale(), log_y)?,
            }
            root.present()?;
        }
        Ok(Some(svg))
    }

    fn draw<X, Y>(
        &self,
        root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
        x: X,
        y: Y,
    ) -> Result<(), Box<dyn Error>>
    where
        X: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let label = |value: &f64| {
            if (0.001..1e6).contains(value) || *value == 0.0 {
                format!("{value}")
            } else {
                format!("{value:.0e}")
            }
        };
        let mut chart = ChartBuilder::on(root)
            .caption(&self.title, ("sans-serif", 17))
            .margin(12)
            .margin_right(160)
            .x_label_area_size(40)
            .y_label_area_size(68)
            .build_cartesian_2d(x, y)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(&self.x)
            .y_desc(&self.y)
            .x_label_formatter(&label)
            .y_label_formatter(&label)
            .light_line_style(WHITE.mix(0.0))
            .draw()?;
        for (at, (_, points)) in self.series.iter().enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
            let shown: Vec<_> = points.iter().copied().filter(|&(_, y)| self.shows(y)).collect();
            chart.draw_series(LineSeries::new(shown.iter().copied(), colour.stroke_width(2)))?;
            // Beyond the eighth series colours repeat: hollow marks tell those apart.
            let fill = if at < COLOURS.len() { colour.filled() } else { colour.stroke_width(1) };
            chart.draw_series(shown.iter().map(|&point| Circle::new(point, 3, fill)))?;
            let top = 46 + at as i32 * 18;
            let side = SIZE.0 as i32 - 146;
            root.draw(&Circle::new((side, top), 4, fill))?;
            let style = ("sans-serif", 13).into_text_style(root);
            root.draw(&Text::new(self.series[at].0.clone(), (side + 10, top - 6), style))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(log: bool, points: Vec<(f64, f64)>) -> Plot {
        let text = |s: &str| s.to_owned();
        Plot {
            name: text("n"),
            title: text("a & b"),
            x: text("x"),
            y: text("y"),
            log_x: false,
            log,
            series: vec![(text("s"), points)],
        }
    }

    #[test]
    fn every_point_that_can_be_shown_is_drawn() {
        let svg = plot(true, vec![(8.0, 0.02), (10.0, 0.0), (12.0, 0.003)]).to_svg().unwrap().unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("a &amp; b"));
        assert_eq!(svg.matches("<circle").count(), 2 + 1, "two points and the legend's mark");
        let svg = plot(false, vec![(1.0, 5.0)]).to_svg().unwrap().unwrap();
        assert_eq!(svg.matches("<circle").count(), 2);
    }

    #[test]
    fn nothing_to_show_is_no_file() {
        assert!(plot(true, vec![(1.0, 0.0)]).to_svg().unwrap().is_none());
        assert!(plot(false, vec![]).to_svg().unwrap().is_none());
    }
}
