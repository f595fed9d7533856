//! Styles of sides: colours that remain distinguishable with colour-blindness, and marks, dashes and hatches that work
//! in greyscale.

use tamis_bench::picture::{At, Canvas, Colour, PAPER, PEER, SIDES};

/// The style of bars beside the one side that has a colour.
pub(super) const PEERS: usize = usize::MAX;

/// Returns the colour of the n-th side.
pub(super) fn colour(n: usize) -> Colour {
    SIDES[n % SIDES.len()]
}

/// Returns the dash pattern of the n-th theory or model.
pub(super) fn dashes(n: usize) -> &'static [f64] {
    const PATTERNS: [&[f64]; 4] =
        [&[14.0, 8.0], &[4.0, 6.0], &[18.0, 6.0, 4.0, 6.0], &[8.0, 4.0, 2.0, 4.0, 2.0, 4.0]];
    PATTERNS[n % PATTERNS.len()]
}

/// Number of marks. Its greatest common divisor with the number of colours is 4, which gives 24 pairs before one
/// repeats.
const MARKS: usize = 12;
/// Half the size of a mark.
const RADIUS: f64 = 7.5;

/// Draws the mark of the n-th side.
pub(super) fn mark(canvas: &Canvas, n: usize, at: At, colour: Colour) {
    let (x, y) = at;
    let ring = |sides: &[(f64, f64)]| -> Vec<At> {
        sides.iter().map(|(dx, dy)| (x + dx * RADIUS, y + dy * RADIUS)).collect()
    };
    const SQUARE: [(f64, f64); 4] = [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)];
    const UP: [(f64, f64); 3] = [(0.0, -1.2), (1.1, 0.85), (-1.1, 0.85)];
    const DOWN: [(f64, f64); 3] = [(0.0, 1.2), (1.1, -0.85), (-1.1, -0.85)];
    const DIAMOND: [(f64, f64); 4] = [(0.0, -1.25), (1.0, 0.0), (0.0, 1.25), (-1.0, 0.0)];
    let hollow = |sides: &[(f64, f64)]| {
        let mut ring = ring(sides);
        canvas.shape(&ring, PAPER);
        ring.push(ring[0]);
        canvas.line(&ring, colour, 2.5)
    };
    let stroke = |from: (f64, f64), to: (f64, f64)| canvas.line(&ring(&[from, to]), colour, 3.0);
    match n % MARKS {
        0 => canvas.disk(at, RADIUS, colour),
        1 => canvas.shape(&ring(&SQUARE), colour),
        2 => canvas.shape(&ring(&UP), colour),
        3 => hollow(&DIAMOND),
        4 => {
            stroke((-1.0, -1.0), (1.0, 1.0));
            stroke((-1.0, 1.0), (1.0, -1.0))
        }
        5 => hollow(&SQUARE),
        6 => canvas.shape(&ring(&DOWN), colour),
        7 => hollow(&UP),
        8 => {
            canvas.disk(at, RADIUS, colour);
            canvas.disk(at, RADIUS - 3.0, PAPER)
        }
        9 => canvas.shape(&ring(&DIAMOND), colour),
        10 => {
            stroke((-1.2, 0.0), (1.2, 0.0));
            stroke((0.0, -1.2), (0.0, 1.2))
        }
        _ => hollow(&DOWN),
    }
}

/// Draws a bar, or a part of one, in the style of the n-th side: filled, or hatched on a tint of its colour. `from` is
/// the upper left corner, `to` the lower right one.
pub(super) fn fill(canvas: &Canvas, n: usize, from: At, to: At) {
    /// Distance between the lines of a hatch.
    const STEP: f64 = 9.0;
    let colour = colour(n);
    let ((x0, y0), (x1, y1)) = (from, to);
    if n == PEERS {
        return canvas.rectangle([from, to], PEER);
    }
    let outlined = |tint: f64| {
        canvas.rectangle([from, to], PAPER);
        canvas.tinted([from, to], colour, tint);
        canvas.edges([from, to], colour, 1.5);
    };
    // Each hatch is one line that zigzags between the borders: one element, however long the bar.
    let steps = |from: f64, to: f64| {
        (1..).map(move |k| from + STEP * f64::from(k)).take_while(move |&at| at < to).take(1000)
    };
    let snake = |ends: Vec<(At, At)>| {
        let turn = |(at, (a, b)): (usize, (At, At))| if at % 2 == 0 { [a, b] } else { [b, a] };
        let places: Vec<At> = ends.into_iter().enumerate().flat_map(turn).collect();
        if !places.is_empty() {
            canvas.line(&places, colour, 1.5);
        }
    };
    let rising = || {
        steps(x0 + y0, x1 + y1).map(|c| {
            let (a, b) = ((c - y1).max(x0), (c - y0).min(x1));
            ((a, c - a), (b, c - b))
        })
    };
    let falling = || rising().map(|((ax, ay), (bx, by))| ((ax, y0 + y1 - ay), (bx, y0 + y1 - by)));
    match n % 7 {
        0 => canvas.rectangle([from, to], colour),
        1 => {
            outlined(0.25);
            snake(rising().collect())
        }
        2 => outlined(0.25),
        3 => {
            outlined(0.25);
            snake(falling().collect())
        }
        4 => {
            outlined(0.0);
            snake(steps(x0, x1).map(|x| ((x, y0), (x, y1))).collect())
        }
        5 => {
            outlined(0.0);
            snake(rising().collect());
            snake(falling().collect())
        }
        _ => {
            outlined(0.0);
            snake(steps(y0, y1).map(|y| ((x0, y), (x1, y))).collect())
        }
    }
}
