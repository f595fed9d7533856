//! Pictures as SVG: shapes and text at whole pixels. Whatever the project draws is drawn with this, the only place that knows
//! plotters.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::colors::colormaps::ViridisRGB;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub use plotters::style::RGBColor;
pub use plotters::style::colors::WHITE;

/// What plotters says if it cannot draw.
pub type DrawError = DrawingAreaErrorKind<std::io::Error>;

/// Something was drawn.
pub type Drawn = Result<(), DrawError>;

/// A place, in pixels from the upper left corner.
pub type Pixel = (i32, i32);

/// plotters divides the size of a font by it.
const FONT: f64 = 1.24;

/// Which part of a text stands at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// Its left end.
    Start,
    /// Its middle.
    Middle,
    /// Its right end.
    End,
}

/// How text is written.
#[derive(Clone, Copy, Debug)]
pub struct Lettering<'f> {
    /// A font, or several with commas between, the best first.
    pub family: &'f str,
    /// Pixels, as the page takes them.
    pub size: f64,
    /// Whether it stands out.
    pub bold: bool,
    /// Its colour.
    pub colour: RGBColor,
    /// Which part of it stands at its place, across.
    pub anchor: Anchor,
    /// Whether its upper edge is at its place; else its middle line is.
    pub below: bool,
}

/// A picture in the making.
pub struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
}

/// The document that `draw` makes on white ground, so many pixels wide and high.
///
/// # Errors
///
/// plotters cannot draw what it is given.
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

/// The colour of a share, 0 to 1, of viridis, whose lightness changes evenly: dark for 0.
pub fn viridis(share: f64) -> RGBColor {
    ViridisRGB::get_color(share)
}

impl Canvas<'_> {
    /// A line through all places.
    ///
    /// # Errors
    ///
    /// As all of these functions: plotters cannot draw it.
    pub fn line(&self, places: Vec<Pixel>, colour: RGBColor, width: u32) -> Drawn {
        self.area.draw(&PathElement::new(places, colour.stroke_width(width)))
    }

    /// A filled shape.
    ///
    /// # Errors
    ///
    /// plotters cannot draw it.
    pub fn shape(&self, places: Vec<Pixel>, colour: RGBColor) -> Drawn {
        self.area.draw(&Polygon::new(places, colour.filled()))
    }

    /// A filled rectangle, from its upper left corner to its lower right one.
    ///
    /// # Errors
    ///
    /// plotters cannot draw it.
    pub fn rectangle(&self, corners: [Pixel; 2], colour: RGBColor) -> Drawn {
        self.area.draw(&Rectangle::new(corners, colour.filled()))
    }

    /// The edges of a rectangle.
    ///
    /// # Errors
    ///
    /// plotters cannot draw it.
    pub fn frame(&self, corners: [Pixel; 2], colour: RGBColor) -> Drawn {
        self.area.draw(&Rectangle::new(corners, colour))
    }

    /// A disk.
    ///
    /// # Errors
    ///
    /// plotters cannot draw it.
    pub fn disk(&self, at: Pixel, radius: i32, colour: RGBColor) -> Drawn {
        self.area.draw(&Circle::new(at, radius, colour.filled()))
    }

    /// Text. It is escaped, but must not have characters that XML lacks.
    ///
    /// # Errors
    ///
    /// plotters cannot draw it.
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
