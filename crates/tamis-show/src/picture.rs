//! Pictures as SVG, all in one style: a title and a description for readers who cannot see them,
//! letters of the reader's system, and colours for white and for dark paper.
//!
//! A colour is a class of its element. Rules are for elements below the class `tamis-picture`
//! alone, and a class always has the same colour, so that a page may hold many pictures.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Write;

/// A position from the upper left corner.
pub type At = (f64, f64);

/// A colour, as `0xRRGGBB`: on white paper, and on dark paper. The first determines the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Colour(pub u32, pub u32);

/// The background.
pub const PAPER: Colour = Colour(0xffffff, 0x0d1117);
/// Text and marks.
pub const INK: Colour = Colour(0x1f2328, 0xe6edf3);
/// Axes, their labels, and notes.
pub const FAINT: Colour = Colour(0x59636e, 0x9198a1);
/// Major grid lines.
pub const GRID: Colour = Colour(0xd8dee4, 0x30363d);
/// Minor grid lines, and backgrounds of parts.
pub const FINE: Colour = Colour(0xeff1f3, 0x1c2128);
/// What is drawn beside tamis where only tamis has a colour.
pub const PEER: Colour = Colour(0xb4bcc5, 0x59636f);
/// After Okabe and Ito (2008), for all kinds of colour-blindness; those that are too light or too
/// dark for thin lines on their paper are shifted.
pub const SIDES: [Colour; 8] = [
    Colour(0x0072b2, 0x56b4e9),
    Colour(0xd55e00, 0xf0803c),
    Colour(0x00805d, 0x2bb98f),
    Colour(0xb0558a, 0xde94c3),
    Colour(0x141414, 0xf6f8fa),
    Colour(0x3e9bd6, 0x2f81d0),
    Colour(0xb28200, 0xe6b400),
    Colour(0x767676, 0xa0a0a0),
];

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

/// What a picture is besides its shapes.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'f> {
    /// The beginning of the names in the document, unique in a page: letters, digits and `-`.
    pub id: &'f str,
    /// The title for readers who cannot see the picture.
    pub title: &'f str,
    /// The picture in words.
    pub desc: &'f str,
    /// Width and height.
    pub size: At,
    /// The width in pixels where the page leaves it open.
    pub shown: f64,
    /// The size of letters.
    pub letters: f64,
}

/// A picture under construction.
#[derive(Debug, Default)]
pub struct Canvas {
    body: RefCell<String>,
    colours: RefCell<BTreeSet<Colour>>,
}

/// Returns the document that `draw` makes.
pub fn svg(frame: &Frame<'_>, draw: impl FnOnce(&Canvas)) -> String {
    let canvas = Canvas::default();
    let Frame { id, size: (width, height), shown, .. } = *frame;
    canvas.rectangle([(0.0, 0.0), (width, height)], PAPER);
    draw(&canvas);
    let (body, colours) = (canvas.body.into_inner(), canvas.colours.into_inner());
    let rules = |of: fn(&Colour) -> u32| {
        let rule = |it: &Colour| format!(".tamis-picture .c{:06x}{{color:#{:06x}}}\n", it.0, of(it));
        colours.iter().map(rule).collect::<String>()
    };
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"tamis-picture\" width=\"{}\" height=\"{}\" \
         viewBox=\"0 0 {} {}\" font-size=\"{}\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\">\n\
         <title id=\"{id}-t\">{}</title>\n<desc id=\"{id}-d\">{}</desc>\n<style>\n\
         .tamis-picture text{{font-family:-apple-system,'Segoe UI',Helvetica,Arial,'DejaVu Sans',sans-serif}}\n\
         .tamis-picture *{{fill:currentColor}}\n\
         .tamis-picture polyline{{fill:none;stroke:currentColor}}\n\
         {}@media screen and (prefers-color-scheme: dark){{\n{}}}\n</style>\n{body}</svg>\n",
        short(shown),
        short(shown * height / width),
        short(width),
        short(height),
        short(frame.letters),
        escaped(frame.title),
        escaped(frame.desc),
        rules(|it| it.0),
        rules(|it| it.1),
    )
}

/// Returns the viridis colour of a share, 0 (dark) to 1; the lightness changes evenly.
pub fn viridis(share: f64) -> u32 {
    const STOPS: [u32; 8] = [0x440154, 0x46327f, 0x365c8d, 0x277f8f, 0x1fa288, 0x4ac26e, 0xa0db39, 0xfee825];
    let place = share.clamp(0.0, 1.0) * 7.0;
    let at = (place as usize).min(6);
    let part = |shift: u32| {
        let of = |colour: u32| f64::from(colour >> shift & 0xff);
        let (from, to) = (of(STOPS[at]), of(STOPS[at + 1]));
        ((from + (to - from) * (place - at as f64)).round() as u32) << shift
    };
    part(16) | part(8) | part(0)
}

/// Returns a length with one digit after the point at most. Any number is one that SVG can have.
fn short(length: f64) -> f64 {
    let length = if length.is_nan() { 0.0 } else { length.clamp(-1e6, 1e6) };
    // Without the sign of -0.
    (length * 10.0).round() / 10.0 + 0.0
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&apos;")
}

fn places(places: &[At]) -> String {
    let pairs: Vec<String> = places.iter().map(|&(x, y)| format!("{},{}", short(x), short(y))).collect();
    pairs.join(" ")
}

impl Canvas {
    fn element(&self, name: &str, colour: Colour, rest: std::fmt::Arguments<'_>) {
        self.colours.borrow_mut().insert(colour);
        let _ = writeln!(self.body.borrow_mut(), "<{name} class=\"c{:06x}\"{rest}", colour.0);
    }

    /// Draws a line through all positions.
    pub fn line(&self, line: &[At], colour: Colour, width: f64) {
        self.dashed(line, colour, width, &[]);
    }

    /// Draws a dashed line. `pattern` alternates lengths drawn and skipped; of none, it is solid.
    pub fn dashed(&self, line: &[At], colour: Colour, width: f64, pattern: &[f64]) {
        let pattern: Vec<String> = pattern.iter().map(f64::to_string).collect();
        let dashes = match &pattern[..] {
            [] => String::new(),
            pattern => format!(" stroke-dasharray=\"{}\"", pattern.join(" ")),
        };
        let (places, width) = (places(line), short(width));
        let rest = format_args!(" stroke-width=\"{width}\"{dashes} points=\"{places}\"/>");
        self.element("polyline", colour, rest);
    }

    /// Draws a filled shape.
    pub fn shape(&self, shape: &[At], colour: Colour) {
        self.element("polygon", colour, format_args!(" points=\"{}\"/>", places(shape)));
    }

    /// Draws a filled rectangle, from its upper left to its lower right corner.
    pub fn rectangle(&self, corners: [At; 2], colour: Colour) {
        self.tinted(corners, colour, 1.0);
    }

    /// Draws a rectangle that lets through what is below it, except for a share of its colour.
    pub fn tinted(&self, [(x0, y0), (x1, y1)]: [At; 2], colour: Colour, share: f64) {
        let tint = if share < 1.0 { format!(" fill-opacity=\"{share}\"") } else { String::new() };
        let (x, y, width, height) = (short(x0), short(y0), short(x1 - x0), short(y1 - y0));
        let rest = format_args!(" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"{tint}/>");
        self.element("rect", colour, rest);
    }

    /// Draws the edges of a rectangle.
    pub fn edges(&self, [(x0, y0), (x1, y1)]: [At; 2], colour: Colour, width: f64) {
        self.line(&[(x0, y0), (x1, y0), (x1, y1), (x0, y1), (x0, y0)], colour, width);
    }

    /// Draws a disk.
    pub fn disk(&self, (x, y): At, radius: f64, colour: Colour) {
        let rest = format_args!(" cx=\"{}\" cy=\"{}\" r=\"{}\"/>", short(x), short(y), short(radius));
        self.element("circle", colour, rest);
    }

    /// Draws text whose middle line is at `at`. It is escaped, but must not contain characters that
    /// XML cannot express.
    pub fn text(&self, text: &str, at: At, anchor: Anchor, colour: Colour) {
        self.write(text, at, anchor, colour, "");
    }

    /// Draws bold text.
    pub fn bold(&self, text: &str, at: At, anchor: Anchor, colour: Colour) {
        self.write(text, at, anchor, colour, " font-weight=\"600\"");
    }

    /// Draws text of another size.
    pub fn sized(&self, text: &str, at: At, anchor: Anchor, colour: Colour, size: f64) {
        self.write(text, at, anchor, colour, &format!(" font-size=\"{size}\""));
    }

    fn write(&self, text: &str, (x, y): At, anchor: Anchor, colour: Colour, more: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let (x, y, text) = (short(x), short(y), escaped(text));
        let rest = format_args!(" x=\"{x}\" y=\"{y}\" dy=\".35em\"{anchor}{more}>{text}</text>");
        self.element("text", colour, rest);
    }
}
