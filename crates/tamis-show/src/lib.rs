//! What programs around tamis show to people: numbers with units ([`numbers`]), keys as printable
//! text ([`text`]), pictures as SVG ([`picture`]), and the heat map of elastic filters
//! ([`heatmap`]).

/// Builds a struct of the engine's statistics, which are `#[non_exhaustive]`, for a test: as a
/// literal, with `..base`.
#[cfg(test)]
macro_rules! filled {
    ($type:path { $($field:ident $(: $value:expr)?,)+ ..$base:expr $(,)? }) => {{
        let mut filled: $type = $base;
        $(filled.$field = filled!(@ $field $($value)?);)+
        filled
    }};
    (@ $field:ident $value:expr) => { $value };
    (@ $field:ident) => { $field };
}

pub mod heatmap;
pub mod numbers;
pub mod picture;
pub mod text;
