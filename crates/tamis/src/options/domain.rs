//! The domain of an option: how its value is parsed, printed and bounded.
//!
//! A [`Domain`] is a set of values with a text form. Invariant: for every accepted value, `parse`
//! reads the output of `print` back as the same value. All are pure functions.

use std::fmt::Write;
use std::time::Duration;

use super::values::{CompactionChoice, Durability, PerLevel};
use crate::options::words::Words;

/// A set of values of type `T` with a text form.
pub(super) trait Domain<T> {
    /// Parses a value, accepted or not; returns `None` if `text` is not the text of one.
    fn parse(&self, text: &str) -> Option<T>;

    /// Returns the value's text.
    fn print(&self, value: &T) -> String;

    /// Reports whether the value lies in the range.
    fn accepts(&self, value: &T) -> bool;

    /// Describes type, unit and range as a human-readable phrase.
    fn expected(&self) -> String;

    /// Explains why `text` is not accepted.
    fn complaint(&self, _text: &str) -> String {
        self.expected()
    }
}

/// `true` or `false`.
pub(super) struct Flag;

impl Domain<bool> for Flag {
    fn parse(&self, text: &str) -> Option<bool> {
        text.parse().ok()
    }

    fn print(&self, value: &bool) -> String {
        value.to_string()
    }

    fn accepts(&self, _value: &bool) -> bool {
        true
    }

    fn expected(&self) -> String {
        "true or false".into()
    }
}

/// The units that sizes are printed in, largest first. All of them are read, too.
const BYTE_UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Units that are only read.
const DECIMAL_UNITS: [(&str, u64); 4] =
    [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)];

/// Splits `12 MiB` or `12MiB` into number and unit; a missing unit is empty.
fn split_unit(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    Some((number.parse().ok()?, unit.trim()))
}

fn parse_bytes(text: &str) -> Option<u64> {
    let (number, unit) = split_unit(text)?;
    if unit.is_empty() {
        return Some(number);
    }
    let mut units = BYTE_UNITS.iter().chain(&DECIMAL_UNITS);
    let (_, factor) = units.find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    number.checked_mul(*factor)
}

fn print_bytes(bytes: u64) -> String {
    let exact = BYTE_UNITS.iter().find(|(_, factor)| bytes != 0 && bytes.is_multiple_of(*factor));
    match exact {
        Some((name, factor)) if *factor > 1 => format!("{} {name}", bytes / factor),
        _ => bytes.to_string(),
    }
}

/// The text of `u64::MAX` bytes.
const UNLIMITED: &str = "unlimited";

/// A number of bytes; `max` of `u64::MAX` means no upper bound.
pub(super) struct Bytes {
    pub(super) min: u64,
    pub(super) max: u64,
}

impl Domain<u64> for Bytes {
    fn parse(&self, text: &str) -> Option<u64> {
        if text == UNLIMITED { Some(u64::MAX) } else { parse_bytes(text) }
    }

    fn print(&self, value: &u64) -> String {
        if *value == u64::MAX { UNLIMITED.into() } else { print_bytes(*value) }
    }

    fn accepts(&self, value: &u64) -> bool {
        (self.min..=self.max).contains(value)
    }

    fn expected(&self) -> String {
        let mut phrase = String::from(
            "a size in bytes, or with KiB, MiB, GiB or TiB (1 KiB is 1,024 bytes), or kB, MB, GB or TB (1 kB is 1,000)",
        );
        if self.max == u64::MAX {
            phrase.push_str(", or unlimited");
        }
        let min = print_bytes(self.min);
        match (self.min, self.max) {
            (0, u64::MAX) => {}
            (_, u64::MAX) => _ = write!(phrase, ", {min} or more"),
            (_, max) => _ = write!(phrase, ", from {min} to {}", print_bytes(max)),
        }
        phrase
    }
}

/// A whole number; `max` of `u64::MAX` means no upper bound.
pub(super) struct Count {
    pub(super) min: u64,
    pub(super) max: u64,
}

impl Domain<u64> for Count {
    fn parse(&self, text: &str) -> Option<u64> {
        // `u64::from_str` takes a leading plus sign; one spelling is enough.
        text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
    }

    fn print(&self, value: &u64) -> String {
        value.to_string()
    }

    fn accepts(&self, value: &u64) -> bool {
        (self.min..=self.max).contains(value)
    }

    fn expected(&self) -> String {
        match self.max {
            u64::MAX => format!("a whole number, {} or more", self.min),
            max => format!("a whole number from {} to {max}", self.min),
        }
    }
}

impl Domain<usize> for Count {
    fn parse(&self, text: &str) -> Option<usize> {
        Domain::<u64>::parse(self, text).and_then(|v| v.try_into().ok())
    }

    fn print(&self, value: &usize) -> String {
        value.to_string()
    }

    fn accepts(&self, value: &usize) -> bool {
        u64::try_from(*value).is_ok_and(|v| Domain::<u64>::accepts(self, &v))
    }

    fn expected(&self) -> String {
        Domain::<u64>::expected(self)
    }
}

/// A number that the engine can choose itself: `auto`, or what [`Count`] takes.
pub(super) struct AutoCount(pub(super) Count);

impl Domain<Option<u64>> for AutoCount {
    fn parse(&self, text: &str) -> Option<Option<u64>> {
        if text == "auto" { Some(None) } else { Domain::<u64>::parse(&self.0, text).map(Some) }
    }

    fn print(&self, value: &Option<u64>) -> String {
        value.map_or_else(|| "auto".into(), |value| value.to_string())
    }

    fn accepts(&self, value: &Option<u64>) -> bool {
        value.is_none_or(|value| Domain::<u64>::accepts(&self.0, &value))
    }

    fn expected(&self) -> String {
        format!("auto, or {}", Domain::<u64>::expected(&self.0))
    }
}

/// A finite decimal number.
pub(super) struct Real {
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) unit: &'static str,
}

impl Domain<f64> for Real {
    fn parse(&self, text: &str) -> Option<f64> {
        text.parse().ok()
    }

    fn print(&self, value: &f64) -> String {
        value.to_string()
    }

    fn accepts(&self, value: &f64) -> bool {
        (self.min..=self.max).contains(value)
    }

    fn expected(&self) -> String {
        format!("a number of {} from {} to {}", self.unit, self.min, self.max)
    }
}

/// One of the words of a type.
pub(super) struct OneOf;

impl<T: Words> Domain<T> for OneOf {
    fn parse(&self, text: &str) -> Option<T> {
        T::from_word(text)
    }

    fn print(&self, value: &T) -> String {
        value.word().into()
    }

    fn accepts(&self, _value: &T) -> bool {
        true
    }

    fn expected(&self) -> String {
        let named = T::WORDS.iter().filter(|(word, value)| value.word() == *word);
        let (here, missing): (Vec<_>, Vec<_>) = named.partition(|(_, value)| value.missing().is_none());
        let words = |list: Vec<&(&str, T)>| list.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
        match missing.is_empty() {
            true => format!("one of {}", words(here)),
            false => format!("one of {} (not in this build: {})", words(here), words(missing)),
        }
    }
}

const TIME_UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = split_unit(text)?;
    let (_, nanos) = TIME_UNITS.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*nanos).map(Duration::from_nanos)
}

fn print_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let (name, factor) =
        TIME_UNITS.iter().find(|(_, f)| nanos.is_multiple_of(u128::from(*f))).unwrap_or(&("ns", 1));
    format!("{} {name}", nanos / u128::from(*factor))
}

/// When an acknowledged write survives a power failure.
pub(super) struct DurabilityDomain;

impl DurabilityDomain {
    const MIN: Duration = Duration::from_millis(1);
    const MAX: Duration = Duration::from_secs(3600);
}

impl Domain<Durability> for DurabilityDomain {
    fn parse(&self, text: &str) -> Option<Durability> {
        match text {
            "buffered" => Some(Durability::Buffered),
            "sync" => Some(Durability::Sync),
            _ => {
                let period = text.strip_prefix("every")?.strip_prefix(char::is_whitespace)?;
                parse_duration(period.trim_start()).map(Durability::Every)
            }
        }
    }

    fn print(&self, value: &Durability) -> String {
        match value {
            Durability::Buffered => "buffered".into(),
            Durability::Sync => "sync".into(),
            Durability::Every(period) => format!("every {}", print_duration(*period)),
        }
    }

    fn accepts(&self, value: &Durability) -> bool {
        match value {
            Durability::Every(period) => (Self::MIN..=Self::MAX).contains(period),
            _ => true,
        }
    }

    fn expected(&self) -> String {
        "buffered, sync, or every with a time from 1 ms to 60 min (for example `every 100 ms`)".into()
    }
}

/// One word per level.
pub(super) struct Levels;

impl<T: Words> Domain<PerLevel<T>> for Levels {
    fn parse(&self, text: &str) -> Option<PerLevel<T>> {
        let words = text.split(',').take(PerLevel::<T>::MAX_LEVELS + 1);
        PerLevel::new(words.map(|word| T::from_word(word.trim())).collect::<Option<Vec<T>>>()?)
    }

    fn print(&self, value: &PerLevel<T>) -> String {
        let words: Vec<&str> = value.as_slice().iter().map(|choice| choice.word()).collect();
        words.join(",")
    }

    fn accepts(&self, value: &PerLevel<T>) -> bool {
        value.as_slice().iter().all(|choice| choice.missing().is_none())
    }

    fn expected(&self) -> String {
        format!(
            "up to {} values, separated by commas: the first is for level 0, the last also for all deeper \
             levels. Each is {}",
            PerLevel::<T>::MAX_LEVELS,
            Domain::<T>::expected(&OneOf)
        )
    }

    fn complaint(&self, text: &str) -> String {
        let value = Domain::<PerLevel<T>>::parse(self, text);
        let missing = value.and_then(|value| value.as_slice().iter().find_map(|choice| choice.missing()));
        missing.map_or_else(|| Domain::<PerLevel<T>>::expected(self), str::to_owned)
    }
}

/// The name of an operator, or `none`.
pub(super) struct Name;

impl Name {
    const MAX_BYTES: usize = 64;
}

impl Domain<Option<String>> for Name {
    fn parse(&self, text: &str) -> Option<Option<String>> {
        Some((text != "none").then(|| text.to_owned()))
    }

    fn print(&self, value: &Option<String>) -> String {
        value.clone().unwrap_or_else(|| "none".into())
    }

    fn accepts(&self, value: &Option<String>) -> bool {
        value.as_ref().is_none_or(|name| {
            // A name must fit into a line of the text form and read back unchanged.
            let readable = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:/".contains(&b));
            readable && (1..=Self::MAX_BYTES).contains(&name.len()) && name != "none"
        })
    }

    fn expected(&self) -> String {
        format!("none, or a name of 1 to {} letters, digits, or any of `-_.:/`", Self::MAX_BYTES)
    }
}

/// A time of at least a second, or `none`.
pub(super) struct Age;

impl Age {
    const MAX: Duration = Duration::from_secs(100 * 365 * 86_400);
}

impl Domain<Option<Duration>> for Age {
    fn parse(&self, text: &str) -> Option<Option<Duration>> {
        if text == "none" { Some(None) } else { parse_duration(text).map(Some) }
    }

    fn print(&self, value: &Option<Duration>) -> String {
        value.map_or_else(|| "none".into(), print_duration)
    }

    fn accepts(&self, value: &Option<Duration>) -> bool {
        value.is_none_or(|age| (Duration::from_secs(1)..=Self::MAX).contains(&age))
    }

    fn expected(&self) -> String {
        "none, or a time from 1 s to 36500 d (for example `12 h`)".into()
    }
}

/// A time from a microsecond on, or `none`.
pub(super) struct Threshold;

impl Threshold {
    const MIN: Duration = Duration::from_micros(1);
    const MAX: Duration = Duration::from_secs(3600);
}

impl Domain<Option<Duration>> for Threshold {
    fn parse(&self, text: &str) -> Option<Option<Duration>> {
        Age.parse(text)
    }

    fn print(&self, value: &Option<Duration>) -> String {
        Age.print(value)
    }

    fn accepts(&self, value: &Option<Duration>) -> bool {
        value.is_none_or(|time| (Self::MIN..=Self::MAX).contains(&time))
    }

    fn expected(&self) -> String {
        "none, or a time from 1 us to 1 h (for example `10 ms`)".into()
    }
}

/// One whole number per level.
pub(super) struct Counts {
    pub(super) min: u64,
    pub(super) max: u64,
}

impl Domain<PerLevel<u64>> for Counts {
    fn parse(&self, text: &str) -> Option<PerLevel<u64>> {
        let one = Count { min: self.min, max: self.max };
        let numbers = text.split(',').take(PerLevel::<u64>::MAX_LEVELS + 1);
        PerLevel::new(numbers.map(|number| one.parse(number.trim())).collect::<Option<Vec<u64>>>()?)
    }

    fn print(&self, value: &PerLevel<u64>) -> String {
        let numbers: Vec<String> = value.as_slice().iter().map(u64::to_string).collect();
        numbers.join(",")
    }

    fn accepts(&self, value: &PerLevel<u64>) -> bool {
        value.as_slice().iter().all(|number| (self.min..=self.max).contains(number))
    }

    fn expected(&self) -> String {
        format!(
            "up to {} values, separated by commas: the first is for level 0, the last also for all deeper \
             levels. Each is a whole number from {} to {}",
            PerLevel::<u64>::MAX_LEVELS,
            self.min,
            self.max
        )
    }
}

/// The shape that compaction gives to the tree.
pub(super) struct Compactions;

impl Domain<CompactionChoice> for Compactions {
    fn parse(&self, text: &str) -> Option<CompactionChoice> {
        match text.strip_prefix("hybrid:") {
            Some(levels) => Count { min: 1, max: 16 }.parse(levels).map(CompactionChoice::Hybrid),
            None => CompactionChoice::NAMED.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice),
        }
    }

    fn print(&self, value: &CompactionChoice) -> String {
        value.to_string()
    }

    fn accepts(&self, value: &CompactionChoice) -> bool {
        !matches!(value, CompactionChoice::Hybrid(levels) if !(1..=16).contains(levels))
    }

    fn expected(&self) -> String {
        let names: Vec<&str> = CompactionChoice::NAMED.iter().map(|(name, _)| *name).collect();
        format!("one of {}, or hybrid:N with N from 1 to 16", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::super::values::CompressionPerLevel;
    use super::*;

    const ANY: Bytes = Bytes { min: 0, max: u64::MAX };

    #[test]
    fn sizes_parse_with_and_without_a_unit_and_print_in_the_largest_exact_one() {
        for text in ["64 MiB", "64MiB", "64   mib", "65536 KiB", "67108864", "67108864 B"] {
            assert_eq!(ANY.parse(text), Some(64 << 20), "{text}");
        }
        for (bytes, text) in [
            (0, "0"),
            (1, "1"),
            (1023, "1023"),
            (1 << 10, "1 KiB"),
            (1025, "1025"),
            (1 << 40, "1 TiB"),
            (3 << 29, "1536 MiB"),
        ] {
            assert_eq!(ANY.print(&bytes), text);
        }
        for text in
            ["", " ", "MiB", "-1", "+1", "1.5 MiB", "1 M", "1 MiB 2", "16777216 TiB", "99999999999999999999"]
        {
            assert_eq!(ANY.parse(text), None, "{text:?}");
        }
    }

    /// `1GB` was refused, and nothing said which of the two units was meant.
    #[test]
    fn decimal_units_are_powers_of_a_thousand() {
        for (text, bytes) in
            [("1GB", 1_000_000_000), ("1 gb", 1_000_000_000), ("64 kB", 64_000), ("2MB", 2_000_000)]
        {
            assert_eq!(ANY.parse(text), Some(bytes), "{text}");
            assert_eq!(ANY.parse(&ANY.print(&bytes)), Some(bytes), "{text}");
        }
        let expected = ANY.expected();
        assert!(
            expected.contains("1 KiB is 1,024 bytes") && expected.contains("1 kB is 1,000"),
            "{expected}"
        );
    }

    #[test]
    fn durations_parse_and_print_in_the_largest_exact_unit() {
        for (text, expected) in
            [("every 100 ms", "every 100 ms"), ("every 1000ms", "every 1 s"), ("every  90 s", "every 90 s")]
        {
            let value = DurabilityDomain.parse(text).unwrap();
            assert_eq!(DurabilityDomain.print(&value), expected);
        }
        for text in
            ["every", "every 100", "every100 ms", "every -1 s", "synced", "every 99999999999999999999 ms"]
        {
            assert_eq!(DurabilityDomain.parse(text), None, "{text}");
        }
        assert!(!DurabilityDomain.accepts(&Durability::Every(Duration::ZERO)));
    }

    #[test]
    fn nan_and_infinities_are_out_of_range() {
        let domain = Real { min: 0.5, max: 64.0, unit: "bits" };
        for text in ["NaN", "inf", "-inf", "0.4", "64.1"] {
            assert!(!domain.accepts(&domain.parse(text).unwrap()), "{text}");
        }
    }

    #[test]
    fn an_unsupported_compression_names_the_missing_feature() {
        let levels: &dyn Domain<CompressionPerLevel> = &Levels;
        let complaint = levels.complaint("none,zstd");
        if cfg!(feature = "zstd") {
            assert!(levels.accepts(&levels.parse("none,zstd").unwrap()));
        } else {
            assert!(complaint.contains("feature `zstd`"), "{complaint}");
        }
        let complaint = levels.complaint("lzma");
        let listed = match cfg!(feature = "zstd") {
            true => "one of none, lz4, zstd",
            false => "one of none, lz4 (not in this build: zstd)",
        };
        assert!(complaint.contains(listed), "{complaint}");
        assert_eq!(levels.parse(&"lz4,".repeat(1000)), None);
    }
}
