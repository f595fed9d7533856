//! Pictures as SVG: shapes and text at whole pixels. All pictures of the project are drawn here,
//! the only user of plotters.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::colors::colormaps::ViridisRGB;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub use plotters::style::RGBColor;
pub use plotters::style::colors::WHITE;

/// The error of plotters.
pub type DrawError = DrawingAreaErrorKind<std::io::Error>;

/// The result of drawing something.
pub type Drawn = Result<(), DrawError>;

/// A position in pixels from the upper left corner.
pub type Pixel = (i32, i32);

/// The factor by which plotters divides font sizes.
const FONT: f64 = 1.24;

/// The part of a text that lies at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// Its left end.
    Start,
    /// Its middle.
    Middle,
    /// Its right end.
    End,
}

/// The style of a text.
#[derive(Clone, Copy, Debug)]
pub struct Lettering<'f> {
    /// One or more font families, separated by commas, best first.
    pub family: &'f str,
    /// The size in pixels of the page.
    pub size: f64,
    /// Whether it is bold.
    pub bold: bool,
    /// The colour.
    pub colour: RGBColor,
    /// The horizontal anchor.
    pub anchor: Anchor,
    /// Whether the upper edge, rather than the middle line, is at its position.
    pub below: bool,
}

/// A picture under construction.
pub struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
}

/// Returns the document that `draw` makes on a white background; `size` is its width and height in
/// pixels.
///
/// # Errors
///
/// Fails if plotters cannot draw the contents.
pub fn svg(size: (u32, u32), draw: impl FnOnce(&Canvas<'_>) -> Drawn) -> Result<String, DrawError> {
    let mut svg = String::new();
    {
        let canvas = Canvas { area: SVGBackend::with_string(&mut svg, size).into_drawing_area() };
        canvas.area.fill(&WHITE)?;
        draw(&canvas)?;
        canvas.area.present()?;
    }
    Ok(svg)
}

/// Returns the viridis colour of a share, 0 (dark) to 1; the lightness changes evenly.
pub fn viridis(share: f64) -> RGBColor {
    ViridisRGB::get_color(share)
}

impl Canvas<'_> {
    /// Draws a line through all positions.
    ///
    /// # Errors
    ///
    /// Fails if plotters cannot draw it.
    pub fn line(&self, places: Vec<Pixel>, colour: RGBColor, width: u32) -> Drawn {
        self.area.draw(&PathElement::new(places, colour.stroke_width(width)))
    }

    /// Draws a filled shape.
    ///
    /// # Errors
    ///
    /// Fails if plotters cannot draw it.
    pub fn shape(&self, places: Vec<Pixel>, colour: RGBColor) -> Drawn {
        self.area.draw(&Polygon::new(places, colour.filled()))
    }

    /// Draws a filled rectangle, from its upper left to its lower right corner.
    ///
    /// # Errors
    ///
    /// Fails if plotters cannot draw it.
    pub fn rectangle(&self, corners: [Pixel; 2], colour: RGBColor) -> Drawn {
        self.area.draw(&Rectangle::new(corners, colour.filled()))
    }

    /// Draws the edges of a rectangle.
    ///
    /// # Errors
    ///
    /// Fails if plotters cannot draw it.
    pub fn frame(&self, corners: [Pixel; 2], colour: RGBColor) -> Drawn {
        self.area.draw(&Rectangle::new(corners, colour))
    }

    /// Draws a disk.
    ///
    /// # Errors
    ///
    /// Fails if plotters cannot draw it.
    pub fn disk(&self, at: Pixel, radius: i32, colour: RGBColor) -> Drawn {
        self.area.draw(&Circle::new(at, radius, colour.filled()))
    }

    /// Draws text. It is escaped, but must not contain characters that XML cannot express.
    ///
    /// # Errors
    ///
    /// Fails if plotters cannot draw it.
    pub fn text(&self, text: &str, at: Pixel, how: Lettering<'_>) -> Drawn {
        let weight = if how.bold { FontStyle::Bold } else { FontStyle::Normal };
        let font = FontDesc::new(FontFamily::from(how.family), how.size * FONT, weight);
        let across = match how.anchor {
            Anchor::Start => HPos::Left,
            Anchor::Middle => HPos::Center,
            Anchor::End => HPos::Right,
        };
        let upwards = if how.below { VPos::Top } else { VPos::Center };
        let style = TextStyle::from(font).color(&how.colour).pos(Pos::new(across, upwards));
        self.area.draw_text(text, &style, at)
    }
}
