//! The colours of hotness: a logarithmic scale over whole decades, from pale (cold) to dark (hot);
//! grey is zero.
//!
//! Colours are those of viridis, from its light end. Its lightness changes evenly, so the hottest
//! segments are darkest on white paper and in a grey-scale copy, too. On dark paper they are
//! lightest.

use crate::picture::{Colour, viridis};

/// The number of distinct colours. Columns of one shade are drawn as one rectangle.
const SHADES: u8 = 64;

/// The maximum number of decades; smaller values are shown like the smallest of the scale.
const MOST_DECADES: i32 = 6;

/// The colour of segments that were never looked up.
const NOTHING: Colour = Colour(0xdedede, 0x343a41);

/// The decades from the smallest to the largest of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    /// Exponents of ten at both ends.
    low: i32,
    high: i32,
    /// Whether some values lie below the scale.
    cut: bool,
}

/// A colour: 0 stands for a zero value, 1 for the smallest nonzero shade and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shade(u8);

impl Scale {
    /// Returns the scale for these values; `None` if all of them are zero.
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Option<Scale> {
        let some = values.filter(|value| is_some(*value));
        let (least, most) = some.fold((f64::INFINITY, 0.0f64), |(low, high), v| (low.min(v), high.max(v)));
        if most == 0.0 {
            return None;
        }
        let high = most.log10().ceil() as i32;
        let low = (least.log10().floor() as i32).min(high - 1);
        Some(Scale { low: low.max(high - MOST_DECADES), high, cut: low < high - MOST_DECADES })
    }

    /// Returns the colour of a value.
    pub(super) fn shade(&self, value: f64) -> Shade {
        if !is_some(value) {
            return Shade(0);
        }
        let part = (value.log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        Shade(1 + (part.clamp(0.0, 1.0) * f64::from(SHADES - 1)).round() as u8)
    }

    /// Returns the labelled values of the scale, with their places from 0 to 1.
    pub(super) fn marks(&self) -> Vec<(f64, String)> {
        let decades = f64::from(self.high - self.low);
        let mark = |exponent: i32| {
            let below = if self.cut && exponent == self.low { "≤ " } else { "" };
            (f64::from(exponent - self.low) / decades, format!("{below}{}", power(exponent)))
        };
        (self.low..=self.high).map(mark).collect()
    }
}

impl Shade {
    /// Returns all nonzero shades in ascending order.
    pub(super) fn all() -> impl ExactSizeIterator<Item = Shade> {
        (0..usize::from(SHADES)).map(|i| Shade(1 + i as u8))
    }

    /// Returns the shade of segments that were never looked up.
    pub(super) fn nothing() -> Shade {
        Shade(0)
    }

    pub(super) fn colour(self) -> Colour {
        match self.0.checked_sub(1).map(|shade| f64::from(shade) / f64::from(SHADES - 1)) {
            None => NOTHING,
            Some(share) => Colour(viridis(1.0 - share), viridis(share)),
        }
    }
}

/// Reports whether a value can be shown: hotness decays, and only positive numbers have a shade.
fn is_some(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

/// Returns a power of ten as text.
fn power(exponent: i32) -> String {
    match exponent {
        0 => "1".to_owned(),
        1 => "10".to_owned(),
        -2..=-1 => format!("{}", 10f64.powi(exponent)),
        _ => format!("1e{exponent}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the perceived lightness of a colour: CIE L* of sRGB, 0 to 100.
    fn lightness(colour: u32) -> f64 {
        let linear = |shift: u32| {
            let c = f64::from(colour >> shift & 0xff) / 255.0;
            if c <= 0.040_45 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
        };
        let y = 0.2126 * linear(16) + 0.7152 * linear(8) + 0.0722 * linear(0);
        116.0 * y.cbrt() - 16.0
    }

    #[test]
    fn scales_span_whole_decades() {
        let marks = |values: &[f64]| -> Vec<String> {
            let scale = Scale::of(values.iter().copied()).unwrap();
            scale.marks().into_iter().map(|mark| mark.1).collect()
        };
        assert_eq!(marks(&[3e-5, 2e-3, 0.0]), ["1e-5", "1e-4", "1e-3", "0.01"]);
        assert_eq!(marks(&[0.5, 0.5]), ["0.1", "1"]);
        assert_eq!(marks(&[1.0]), ["0.1", "1"], "a single value has a decade");
        assert_eq!(marks(&[1e-30, 1.0]).first().unwrap(), "≤ 1e-6", "tiny values are not distinguished");
        assert_eq!(Scale::of([0.0, f64::NAN, f64::INFINITY, -1.0].into_iter()), None);
    }

    #[test]
    fn larger_values_are_darker_and_zero_is_grey() {
        let scale = Scale::of([1e-6, 1e-2].into_iter()).unwrap();
        let shades: Vec<Shade> = [0.0, 1e-9, 1e-6, 1e-5, 1e-4, 1e-2, 1.0].map(|v| scale.shade(v)).to_vec();
        assert!(shades.is_sorted() && shades[0] == Shade::nothing(), "{shades:?}");
        assert_eq!(
            (shades[1], shades[5]),
            (shades[2], shades[6]),
            "values beyond the ends look like the ends"
        );
        assert_eq!(scale.shade(f64::NAN), Shade::nothing());
        let lights: Vec<f64> = Shade::all().map(|shade| lightness(shade.colour().0)).collect();
        assert!(lights.windows(2).all(|pair| pair[1] < pair[0]), "{lights:?}");
        assert!(lights[0] - lights[63] > 70.0, "{lights:?}");
        let dark: Vec<f64> = Shade::all().map(|shade| lightness(shade.colour().1)).collect();
        assert!(dark.windows(2).all(|pair| pair[1] > pair[0]), "lighter on dark paper: {dark:?}");
        assert_eq!(Shade::nothing().colour().0, 0xdedede, "grey");
    }

    /// Even steps of the logarithm are even steps of the colour.
    #[test]
    fn all_decades_have_the_same_number_of_shades() {
        let scale = Scale::of([1e-4, 1.0].into_iter()).unwrap();
        let steps: Vec<i32> = (0..=4).map(|i| i32::from(scale.shade(10f64.powi(i - 4)).0)).collect();
        assert!(steps.windows(2).all(|pair| (pair[1] - pair[0] - 16).abs() <= 1), "{steps:?}");
    }
}
