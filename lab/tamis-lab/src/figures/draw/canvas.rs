//! The drawing surface of panels: shapes and text in units of 1/720 of the picture's width, over
//! [`tamis_bench::picture`].
//!
//! That backend counts in whole pixels, so that a unit is two of them, and draws neither dashes nor patterns: both are
//! cut into lines here. The head of its document is replaced, since it supports neither titles nor pictures that scale
//! to the available width.

use tamis_bench::picture::{self, DrawError, Lettering, Pixel, RGBColor};
pub(super) use tamis_bench::picture::{Anchor, Drawn};

/// The width of every picture, in units.
pub(super) const WIDTH: f64 = 720.0;
/// Size of all text except the title: at least eleven pixels on a telephone 360 pixels wide.
pub(super) const SIZE: f64 = 25.0;
/// Line height.
pub(super) const LINE: f64 = 33.0;

/// Pixels per unit.
const PIXELS: f64 = 2.0;
const FAMILY: &str = "Helvetica, Arial, 'DejaVu Sans', sans-serif";

/// Text and axes.
pub(super) const INK: RGBColor = RGBColor(32, 36, 40);
/// Labels of axes, and notes.
pub(super) const FAINT: RGBColor = RGBColor(80, 86, 94);
/// Major grid lines.
pub(super) const GRID: RGBColor = RGBColor(222, 225, 229);
/// Minor grid lines.
pub(super) const FINE: RGBColor = RGBColor(241, 242, 244);

/// A position, in units from the upper left corner.
pub(super) type At = (f64, f64);

/// A picture under construction.
pub(super) struct Canvas<'c, 'a> {
    area: &'c picture::Canvas<'a>,
}

/// Returns the SVG that `draw` produces, with a name and a description for readers who cannot see it. `id` is unique in
/// the page.
pub(super) fn picture(
    id: &str,
    title: &str,
    description: &str,
    height: f64,
    draw: impl FnOnce(&Canvas<'_, '_>) -> Drawn,
) -> Result<String, DrawError> {
    let size = (pixels(WIDTH) as u32, pixels(height).max(1) as u32);
    let body = picture::svg(size, |area| draw(&Canvas { area }))?;
    // Everything except the backend's own head.
    let content = body.find('>').map_or("", |end| &body[end + 1..]);
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\">\n\
         <title id=\"{id}-t\">{}</title>\n<desc id=\"{id}-d\">{}</desc>{content}",
        size.0,
        size.1,
        escaped(title),
        escaped(description),
    ))
}

/// Escapes text for use as the content of an element.
fn escaped(text: &str) -> String {
    super::text::clean(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn pixels(units: f64) -> i32 {
    // A cast saturates, and turns NaN into 0.
    (units * PIXELS).round() as i32
}

fn place((x, y): At) -> Pixel {
    (pixels(x), pixels(y))
}

impl Canvas<'_, '_> {
    /// Draws a line through all positions.
    pub(super) fn line(&self, places: &[At], colour: RGBColor, width: f64) -> Drawn {
        self.area.line(places.iter().copied().map(place).collect(), colour, pixels(width).max(1) as u32)
    }

    /// Draws a dashed line. `pattern` alternates lengths drawn and skipped, and continues around corners.
    pub(super) fn dashed(&self, places: &[At], colour: RGBColor, width: f64, pattern: &[f64]) -> Drawn {
        let (mut at, mut left) = (0, pattern.first().copied().unwrap_or(f64::INFINITY));
        let mut dash: Vec<At> = Vec::new();
        for pair in places.windows(2) {
            let ((mut x, mut y), (to_x, to_y)) = (pair[0], pair[1]);
            loop {
                let rest = (to_x - x).hypot(to_y - y);
                if at % 2 == 0 && dash.is_empty() {
                    dash.push((x, y));
                }
                if rest <= left {
                    left -= rest;
                    if at % 2 == 0 {
                        dash.push((to_x, to_y));
                    }
                    break;
                }
                (x, y) = (x + (to_x - x) * left / rest, y + (to_y - y) * left / rest);
                if at % 2 == 0 {
                    dash.push((x, y));
                    self.line(&std::mem::take(&mut dash), colour, width)?;
                }
                at += 1;
                left = pattern[at % pattern.len()];
            }
        }
        if dash.len() > 1 { self.line(&dash, colour, width) } else { Ok(()) }
    }

    /// Draws a filled polygon.
    pub(super) fn shape(&self, places: &[At], colour: RGBColor) -> Drawn {
        self.area.shape(places.iter().copied().map(place).collect(), colour)
    }

    /// Draws a disk.
    pub(super) fn disk(&self, at: At, radius: f64, colour: RGBColor) -> Drawn {
        self.area.disk(place(at), pixels(radius).max(1), colour)
    }

    /// Draws text vertically centred at `at`. The text must be clean.
    pub(super) fn text(&self, text: &str, at: At, anchor: Anchor, colour: RGBColor) -> Drawn {
        self.write(text, at, anchor, colour, false)
    }

    /// Draws bold text.
    pub(super) fn bold(&self, text: &str, at: At, anchor: Anchor, colour: RGBColor) -> Drawn {
        self.write(text, at, anchor, colour, true)
    }

    fn write(&self, text: &str, at: At, anchor: Anchor, colour: RGBColor, bold: bool) -> Drawn {
        let how = Lettering { family: FAMILY, size: SIZE * PIXELS, bold, colour, anchor, below: false };
        self.area.text(text, place(at), how)
    }
}
