//! The legend, below the data and never over it.

use super::{Anchor, At, Canvas, INK, LINE, MARGIN, SIZE, WIDTH, text};

/// Width of the sample before a name, including margins.
const SAMPLE: f64 = 56.0;
const GAP: f64 = 10.0;

/// Names in rows; each takes the width of its text.
pub(super) struct Legend {
    /// Index, name, left end, row.
    entries: Vec<(usize, String, f64, usize)>,
    rows: usize,
}

impl Legend {
    /// Lays out names, shortening any that is wider than the picture.
    pub(super) fn new<'n>(names: impl Iterator<Item = &'n str>) -> Legend {
        let (mut x, mut row, mut entries) = (MARGIN, 0, Vec::new());
        for (n, name) in names.enumerate() {
            let name = text::shorten(&text::clean(name), SIZE, WIDTH - 2.0 * MARGIN - SAMPLE - GAP);
            let wide = SAMPLE + GAP + text::width(&name, SIZE);
            if x > MARGIN && x + wide > WIDTH - MARGIN {
                (x, row) = (MARGIN, row + 1);
            }
            entries.push((n, name, x, row));
            x += wide + 2.0 * GAP;
        }
        let rows = if entries.is_empty() { 0 } else { row + 1 };
        Legend { entries, rows }
    }

    /// Returns the height.
    pub(super) fn height(&self) -> f64 {
        self.rows as f64 * LINE
    }

    /// Draws the legend downwards from `top`; `sample` draws the sample of the n-th name between two positions.
    pub(super) fn draw(&self, canvas: &Canvas, top: f64, sample: impl Fn(usize, At, At)) {
        for (n, name, x, row) in &self.entries {
            let y = top + (*row as f64 + 0.5) * LINE;
            sample(*n, (*x, y), (x + SAMPLE, y));
            canvas.text(name, (x + SAMPLE + GAP, y), Anchor::Start, INK);
        }
    }
}
