//! Mapping of values to positions: the range of an axis, its ticks, and numbers formatted with a fitting unit.

use crate::figures::Axis;

/// Values beyond this are not drawn, since arithmetic on them could overflow.
const GREATEST: f64 = 1e250;
/// The smallest positive value on a logarithmic axis.
const LEAST: f64 = 1e-250;

/// Reports whether an axis can show a value.
pub(super) fn shows(axis: &Axis, value: f64) -> bool {
    value.is_finite() && value.abs() <= GREATEST && (!axis.log || value >= LEAST)
}

/// The unit of an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Unit {
    /// Multiples in units of the axis, ascending, with their names; empty if numbers have no unit.
    steps: &'static [(f64, &'static str)],
    /// The axis's unit in units of `steps`.
    factor: f64,
    /// Appended to numbers unchanged.
    suffix: &'static str,
}

const TIMES: [(f64, &str); 5] = [(1e-3, " ps"), (1.0, " ns"), (1e3, " µs"), (1e6, " ms"), (1e9, " s")];
const SIZES: [(f64, &str); 5] = [
    (1.0, " B"),
    (1024.0, " KiB"),
    (1_048_576.0, " MiB"),
    (1_073_741_824.0, " GiB"),
    (1_099_511_627_776.0, " TiB"),
];

impl Unit {
    /// Returns the unit that an axis names.
    pub(super) fn of(axis: &Axis) -> Unit {
        let (steps, factor, suffix): (&'static [_], _, _) = match axis.unit.trim() {
            "ns" => (&TIMES, 1.0, ""),
            "µs" | "μs" | "us" => (&TIMES, 1e3, ""),
            "ms" => (&TIMES, 1e6, ""),
            "s" => (&TIMES, 1e9, ""),
            "B" | "bytes" | "byte" => (&SIZES, 1.0, ""),
            "KiB" => (&SIZES, 1024.0, ""),
            "MiB" => (&SIZES, 1_048_576.0, ""),
            "GiB" => (&SIZES, 1_073_741_824.0, ""),
            "%" => (&[], 1.0, " %"),
            "×" => (&[], 1.0, "×"),
            _ => (&[], 1.0, ""),
        };
        Unit { steps, factor, suffix }
    }

    /// Reports whether numbers carry the unit, so that the axis need not.
    pub(super) fn is_in_numbers(&self) -> bool {
        !self.steps.is_empty() || !self.suffix.is_empty()
    }

    /// Returns the best multiple for `value`: factor and name.
    fn multiple(&self, value: f64) -> (f64, &'static str) {
        let base = value.abs() * self.factor;
        // Tolerates rounding: 999.9999 ns are a microsecond.
        let fits = self.steps.iter().rev().find(|(step, _)| base >= step * 0.999_999);
        match fits.or(self.steps.first()) {
            Some((step, name)) => (self.factor / step, name),
            None => (1.0, self.suffix),
        }
    }

    /// Formats a single value with three digits: `12.3 µs`.
    pub(super) fn say(&self, value: f64) -> String {
        if value == 0.0 {
            return "0".to_owned();
        }
        let (by, name) = self.multiple(value);
        format!("{}{name}", number(value * by))
    }

    /// Formats values in the multiple of the largest, as for the ticks of a linear axis.
    fn say_all(&self, values: &[f64]) -> Vec<String> {
        let greatest = values.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
        let (by, name) = self.multiple(greatest);
        let say = |&value: &f64| {
            if value == 0.0 { "0".to_owned() } else { format!("{}{name}", number(value * by)) }
        };
        values.iter().map(say).collect()
    }
}

/// Formats a number with three digits, thousands and more with a letter: `0.819`, `12.3`, `450 k`, `2 M`, `3·10¹⁵`.
pub(in crate::figures) fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".to_owned() } else { "–".to_owned() };
    }
    let size = value.abs();
    let plain = |value: f64, letter: &str| {
        let whole = value.abs().log10().floor() as i32 + 1;
        let text = format!("{value:.*}", (3 - whole).clamp(0, 6) as usize);
        let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
        format!("{}{letter}", text.replace('-', "−"))
    };
    match size {
        _ if !(1e-4..1e15).contains(&size) => {
            let mut exponent = size.log10().floor() as i32;
            let mut digits = format!("{:.1}", value / 10f64.powi(exponent));
            // Division may turn 10 into 9.99.
            if digits.trim_start_matches('-') == "10.0" {
                exponent += 1;
                digits = digits.replace("10.0", "1.0");
            }
            let digits = digits.trim_end_matches(".0").replace('-', "−");
            let power = format!("10{}", raised(exponent));
            match &*digits {
                "1" => power,
                "−1" => format!("−{power}"),
                _ => format!("{digits}·{power}"),
            }
        }
        _ if size < 9_999.5 => plain(value, ""),
        _ if size < 999_500.0 => plain(value / 1e3, " k"),
        _ if size < 999.5e6 => plain(value / 1e6, " M"),
        _ if size < 999.5e9 => plain(value / 1e9, " G"),
        _ => plain(value / 1e12, " T"),
    }
}

fn raised(exponent: i32) -> String {
    let digit = |c: char| match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        c => c.to_digit(10).and_then(|d| char::from_u32('⁰' as u32 + d)).unwrap_or(c),
    };
    exponent.to_string().chars().map(digit).collect()
}

/// An axis with its range and ticks.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    log: bool,
    low: f64,
    high: f64,
    /// Values and labels, ascending.
    pub(super) ticks: Vec<(f64, String)>,
    /// Values of minor lines, which have no labels.
    pub(super) fine: Vec<f64>,
    /// The unit.
    pub(super) unit: Unit,
}

impl Scale {
    /// Returns an axis for lengths: a linear one includes 0. Values that cannot be shown are ignored; without any, the
    /// axis begins at 0 (or 1).
    pub(super) fn of_lengths(axis: &Axis, values: impl Iterator<Item = f64>) -> Scale {
        let (low, high) = extent(axis, values);
        if axis.log {
            let room = if low == high { 2.0 } else { 1.25 };
            return Scale::new(axis, low / room, high * room);
        }
        let (low, high) = (low.min(0.0), high.max(0.0));
        let step = step(high - low);
        Scale::new(axis, (low / step + 1e-9).floor() * step, (high / step - 1e-9).ceil() * step)
    }

    /// Returns an axis for positions: it spans the values only, with ticks at them if they are few and round.
    pub(super) fn of_places(axis: &Axis, values: impl Iterator<Item = f64>) -> Scale {
        let mut values: Vec<f64> = values.filter(|&value| shows(axis, value)).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let (low, high) = extent(axis, values.iter().copied());
        let mut scale = if axis.log {
            let room = if low == high { 2.0 } else { 10f64.powf(0.04 * decades(low, high)).max(1.0 + 1e-9) };
            Scale::new(axis, low / room, high * room)
        } else {
            let room = if low == high { low.abs().max(1.0) / 2.0 } else { (high - low) * 0.04 };
            Scale::new(axis, low - room, high + room)
        };
        let is_round = |value: f64| {
            let digits = 10f64.powf(2.0 - value.abs().max(LEAST).log10().floor());
            value == 0.0
                || (value * digits - (value * digits).round()).abs() < 1e-6
                || value.fract() == 0.0 && value.abs() < 1e4
        };
        if (1..=12).contains(&values.len()) && values.iter().all(|&value| is_round(value)) {
            let said = if axis.log {
                values.iter().map(|&value| scale.unit.say(value)).collect()
            } else {
                scale.unit.say_all(&values)
            };
            scale.ticks = values.into_iter().zip(said).collect();
        }
        scale
    }

    fn new(axis: &Axis, low: f64, high: f64) -> Scale {
        let unit = Unit::of(axis);
        let (ticks, fine) = if axis.log { log_ticks(low, high) } else { (even_ticks(low, high), Vec::new()) };
        let said =
            if axis.log { ticks.iter().map(|&tick| unit.say(tick)).collect() } else { unit.say_all(&ticks) };
        Scale { log: axis.log, low, high, ticks: ticks.into_iter().zip(said).collect(), fine, unit }
    }

    /// Returns the position of a value: 0 at the low end and 1 at the high one. Values beyond are clamped.
    pub(super) fn place(&self, value: f64) -> f64 {
        let share = if self.log {
            decades(self.low, value.max(self.low)) / decades(self.low, self.high)
        } else {
            (value - self.low) / (self.high - self.low)
        };
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// Returns minimum and maximum; never empty, and on a linear axis always with a length that can be divided.
fn extent(axis: &Axis, values: impl Iterator<Item = f64>) -> (f64, f64) {
    let found = values.filter(|&value| shows(axis, value)).fold(None, |found, value| match found {
        None => Some((value, value)),
        Some((low, high)) => Some((value.min(low), value.max(high))),
    });
    match found {
        None => (if axis.log { 1.0 } else { 0.0 }, 1.0),
        Some((low, high)) if !axis.log && low == 0.0 && high == 0.0 => (0.0, 1.0),
        // Differences below the precision of floats of this size.
        Some((low, high)) if !axis.log && high > low && high - low < high.abs().max(low.abs()) * 1e-9 => {
            (low, low)
        }
        // Subnormal lengths cannot be divided into steps.
        Some((low, high)) if !axis.log && high.abs().max(low.abs()) < LEAST => (0.0, 1.0),
        Some(found) => found,
    }
}

/// Returns the number of decades between two values. Avoids their quotient, which may overflow.
fn decades(low: f64, high: f64) -> f64 {
    high.log10() - low.log10()
}

/// Returns a step that gives a length about five ticks: 1, 2 or 5 times a power of ten.
fn step(length: f64) -> f64 {
    let raw = (length / 5.0).max(LEAST);
    let power = 10f64.powf(raw.log10().floor());
    let nice = [1.0, 2.0, 5.0, 10.0].into_iter().find(|nice| nice * power >= raw * 0.999_999).unwrap_or(10.0);
    nice * power
}

fn even_ticks(low: f64, high: f64) -> Vec<f64> {
    let step = step(high - low);
    let first = (low / step - 1e-6).ceil();
    // Multiples instead of sums, to avoid ticks like 0.30000000000000004.
    let ticks = (0..20).map(|k| first + f64::from(k)).map(|k| if k == 0.0 { 0.0 } else { k * step });
    ticks.take_while(|&tick| tick <= high + step * 1e-6).collect()
}

/// Returns ticks and minor lines: decades where there are three or more, else 1, 2 and 5 of each.
fn log_ticks(low: f64, high: f64) -> (Vec<f64>, Vec<f64>) {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let inside = |value: &f64| (low * 0.999_999..=high * 1.000_001).contains(value);
    let multiples = |of: &'static [f64], every: usize| -> Vec<f64> {
        (first..=last)
            .step_by(every)
            .flat_map(|e| of.iter().map(move |m| m * 10f64.powi(e)))
            .filter(inside)
            .collect()
    };
    let decades = decades(low, high);
    let nine: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
    if decades >= 2.3 {
        let every = (decades / 7.0).ceil().max(1.0) as usize;
        return (multiples(&[1.0], every), if every == 1 { multiples(nine, 1) } else { Vec::new() });
    }
    let ticks = multiples(&[1.0, 2.0, 5.0], 1);
    if ticks.len() >= 2 { (ticks, multiples(nine, 1)) } else { (even_ticks(low, high), Vec::new()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale) -> Vec<&str> {
        scale.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn numbers_are_formatted_for_readers() {
        let said: Vec<String> = [
            0.0, 0.819, 12.34, 9_999.0, 10_000.0, 450_000.0, 2e6, 999.6e6, 1e15, 3.2e-7, -0.5, -1e20, 1.8e300,
        ]
        .map(number)
        .into();
        assert_eq!(
            said,
            [
                "0",
                "0.819",
                "12.3",
                "9999",
                "10 k",
                "450 k",
                "2 M",
                "1 G",
                "10¹⁵",
                "3.2·10⁻⁷",
                "−0.5",
                "−10²⁰",
                "1.8·10³⁰⁰"
            ]
        );
        let time = Unit::of(&Axis::new("", "ns"));
        assert_eq!(
            [250.0, 10_000.0, 4.6e6, 3e9, 0.2, 999.999_999].map(|v| time.say(v)),
            ["250 ns", "10 µs", "4.6 ms", "3 s", "200 ps", "1 µs"]
        );
        assert_eq!(Unit::of(&Axis::new("", "KiB")).say(2048.0), "2 MiB");
        assert_eq!(Unit::of(&Axis::new("", "%")).say(12.0), "12 %");
    }

    #[test]
    fn logarithmic_axes_have_ticks_at_decades_or_one_two_five() {
        let axis = Axis::new("", "ns").log();
        let wide = Scale::of_lengths(&axis, [250.0, 4.6e6].into_iter());
        assert_eq!(labels(&wide), ["1 µs", "10 µs", "100 µs", "1 ms"]);
        assert!(wide.fine.len() > 20);
        let narrow = Scale::of_lengths(&axis, [900.0, 12_000.0].into_iter());
        assert_eq!(labels(&narrow), ["1 µs", "2 µs", "5 µs", "10 µs"]);
        let tiny = Scale::of_lengths(&axis, [1000.0, 1010.0].into_iter());
        assert!(tiny.ticks.len() >= 2, "{tiny:?}");
    }

    #[test]
    fn linear_axes_of_lengths_begin_at_zero_and_those_of_positions_do_not() {
        let axis = Axis::new("", "ns");
        let lengths = Scale::of_lengths(&axis, [30_000.0, 41_000.0].into_iter());
        assert_eq!(labels(&lengths), ["0", "10 µs", "20 µs", "30 µs", "40 µs", "50 µs"]);
        assert_eq!(lengths.place(0.0), 0.0);
        let bits = Axis::new("", "bits");
        let places = Scale::of_places(&bits, [6.0, 8.0, 10.0, 12.0, 14.0].into_iter());
        assert_eq!(labels(&places), ["6", "8", "10", "12", "14"]);
        assert!(places.place(6.0) > 0.0 && places.place(6.0) < 0.1);
        let sizes = Axis::new("", "B").log();
        let powers = Scale::of_places(&sizes, [8.0, 64.0, 512.0, 1024.0].into_iter());
        assert_eq!(labels(&powers), ["8 B", "64 B", "512 B", "1 KiB"]);
    }

    /// For any values, there are ticks, labels are readable, and every position is between 0 and 1.
    #[test]
    fn every_range_has_ticks_and_places() {
        let odd = [
            0.0,
            1.0,
            -1.0,
            1e300,
            -1e300,
            1e-300,
            1e250,
            1e-250,
            1e-310,
            5e-324,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::MAX,
            0.1,
            0.3,
            1e15,
            123_456_789.0,
            1.0 + f64::EPSILON,
        ];
        for log in [false, true] {
            let axis = Axis { log, ..Axis::new("x", "ns") };
            for a in odd {
                for b in odd {
                    for scale in [
                        Scale::of_lengths(&axis, [a, b].into_iter()),
                        Scale::of_places(&axis, [a, b].into_iter()),
                    ] {
                        assert!((1..=20).contains(&scale.ticks.len()), "{a} {b} {log} {scale:?}");
                        assert!(scale.low < scale.high && scale.fine.len() < 100, "{a} {b} {log} {scale:?}");
                        assert!(scale.ticks.is_sorted_by(|a, b| a.0 < b.0), "{a} {b} {log} {scale:?}");
                        assert!([a, b].iter().all(|&v| (0.0..=1.0).contains(&scale.place(v))));
                    }
                }
            }
        }
    }
}
