//! Numbers for people: with separators, units, and as many digits as help.

/// Formats a number with thousands separators: 1,234,567.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a number of things: 0 runs, 1 run, 2,000 runs. `things` is their name in the plural.
pub fn counted(number: u64, things: &str) -> String {
    if number != 1 {
        return format!("{} {things}", grouped(number));
    }
    let (stem, end) = match things.strip_suffix("ies") {
        Some(stem) => (stem, "y"),
        None if things.ends_with("shes") || things.ends_with("sses") => (&things[..things.len() - 2], ""),
        None => (things.strip_suffix('s').unwrap_or(things), ""),
    };
    format!("1 {stem}{end}")
}

/// Formats a mean with a sensible number of digits: 12.3, 1.04, 0.0312; exactly 1 is 1.00.
pub fn mean(number: f64) -> String {
    match number {
        0.0 => "0".to_owned(),
        n if n < 0.1 => format!("{n:.4}"),
        n if n < 100.0 => format!("{n:.2}"),
        n => grouped(n.round() as u64),
    }
}

/// Formats a number of bytes in a suitable unit: 17 B, 4.2 KiB, 1.5 GiB.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if number < 1024 {
        return format!("{number} B");
    }
    let mut value = number as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Formats a duration in a suitable unit: 0.4 s, 41 s, 12 min, 3.5 h.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 9.95 => format!("{s:.1} s"),
        s if s < 99.5 => format!("{s:.0} s"),
        s if s < 5970.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// Formats a small number with two significant digits: 0.0012, 3.4e-7. Others are formatted as by
/// [`mean`].
pub fn small(number: f64) -> String {
    if number > 0.0 && number < 0.001 { format!("{number:.1e}") } else { mean(number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_readably() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
        for (number, text) in
            [(0.0, "0"), (0.03124, "0.0312"), (1.0, "1.00"), (18.26, "18.26"), (4213.7, "4,214")]
        {
            assert_eq!(mean(number), text);
        }
        for (number, text) in [(17, "17 B"), (4301, "4.2 KiB"), (1 << 20, "1.0 MiB"), (3 << 29, "1.5 GiB")] {
            assert_eq!(bytes(number), text);
        }
        assert_eq!(bytes((1 << 20) - 1), "1.0 MiB");
    }

    /// A page said "1 memtables".
    #[test]
    fn one_thing_is_singular() {
        for (number, things, text) in [
            (0, "runs", "0 runs"),
            (1, "runs", "1 run"),
            (1, "entries", "1 entry"),
            (2_000, "entries", "2,000 entries"),
            (1, "range deletes", "1 range delete"),
            (1, "flushes", "1 flush"),
            (1, "passes", "1 pass"),
        ] {
            assert_eq!(counted(number, things), text);
        }
    }

    #[test]
    fn small_numbers_do_not_look_like_zero() {
        for (number, text) in
            [(0.0, "0"), (3.44e-7, "3.4e-7"), (0.00096, "9.6e-4"), (0.0012, "0.0012"), (1.5, "1.50")]
        {
            assert_eq!(small(number), text);
        }
    }
}
