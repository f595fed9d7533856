//! The option `prefix_filter`: the key prefixes that a global filter holds.

use tamis_base::key::prefix_successor;

use super::domain::Domain;

/// The key prefixes that a global filter holds besides the keys: a scan of all keys with such a
/// prefix asks the filter. Each distinct prefix costs as much filter memory as a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum PrefixFilter {
    /// None.
    #[default]
    None,
    /// The first bytes of a key, this many of them, at least one. A shorter key has no such prefix.
    Length(u8),
    /// The prefixes of two lengths, the smaller one first.
    Lengths(u8, u8),
    /// The part of a key up to and including its first byte of this value.
    Delimiter(u8),
}

impl PrefixFilter {
    /// Returns the prefixes of `key` that the filter holds, at most two, shorter ones first. Costs
    /// at most a search for the delimiter.
    pub fn prefixes<'k>(&self, key: &'k [u8]) -> impl Iterator<Item = &'k [u8]> + use<'k> {
        let ends = match *self {
            PrefixFilter::None => [None, None],
            PrefixFilter::Length(len) => [Some(usize::from(len)), None],
            PrefixFilter::Lengths(short, long) => [Some(usize::from(short)), Some(usize::from(long))],
            PrefixFilter::Delimiter(byte) => [key.iter().position(|b| *b == byte).map(|at| at + 1), None],
        };
        ends.into_iter().flatten().filter_map(|end| key.get(..end))
    }

    /// Returns the longest filter prefix common to all keys from `start` up to `end` (excluded;
    /// `None`: no end), or `None` if there is none. A scan of the range finds nothing where no key
    /// has this prefix.
    pub fn covering<'k>(&self, start: &'k [u8], end: Option<&[u8]>) -> Option<&'k [u8]> {
        // Most ranges do not end within a filter prefix.
        let covers = |prefix: &&[u8]| {
            prefix_successor(prefix).is_none_or(|behind| end.is_some_and(|end| end <= &behind[..]))
        };
        self.prefixes(start).filter(covers).last()
    }
}

const DELIMITER: &str = "delimiter";

/// The prefixes: `none`, one or two lengths, or a delimiter.
pub(super) struct Prefixes;

impl Domain<PrefixFilter> for Prefixes {
    fn parse(&self, text: &str) -> Option<PrefixFilter> {
        if text == "none" {
            return Some(PrefixFilter::None);
        }
        if let Some(byte) = text.strip_prefix(DELIMITER) {
            return parse_byte(byte.strip_prefix(char::is_whitespace)?.trim_start())
                .map(PrefixFilter::Delimiter);
        }
        match text.split_once(',') {
            None => parse_length(text).map(PrefixFilter::Length),
            Some((a, b)) => {
                let (a, b) = (parse_length(a)?, parse_length(b)?);
                Some(PrefixFilter::Lengths(a.min(b), a.max(b)))
            }
        }
    }

    fn print(&self, value: &PrefixFilter) -> String {
        match *value {
            PrefixFilter::None => "none".into(),
            PrefixFilter::Length(len) => len.to_string(),
            PrefixFilter::Lengths(short, long) => format!("{short},{long}"),
            // A `#` would start a comment.
            PrefixFilter::Delimiter(byte) if byte.is_ascii_graphic() && byte != b'#' => {
                format!("{DELIMITER} {}", char::from(byte))
            }
            PrefixFilter::Delimiter(byte) => format!("{DELIMITER} 0x{byte:02X}"),
        }
    }

    fn accepts(&self, value: &PrefixFilter) -> bool {
        match *value {
            PrefixFilter::None | PrefixFilter::Delimiter(_) => true,
            PrefixFilter::Length(len) => len > 0,
            PrefixFilter::Lengths(short, long) => 0 < short && short < long,
        }
    }

    fn expected(&self) -> String {
        "none, one or two different lengths in bytes from 1 to 255 (`4` or `4,8`), or delimiter with one character or a \
         byte as 0xNN (`delimiter /`)"
            .into()
    }
}

/// One printable ASCII character, or `0x` and two hexadecimal digits.
fn parse_byte(text: &str) -> Option<u8> {
    match *text.as_bytes() {
        [byte] if byte.is_ascii_graphic() => Some(byte),
        [b'0', b'x', high, low] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
            u8::from_str_radix(&text[2..], 16).ok()
        }
        _ => None,
    }
}

fn parse_length(text: &str) -> Option<u8> {
    let digits = text.trim();
    // `u8::from_str` takes a leading plus sign; one spelling is enough.
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_accepted_value_reads_back() {
        let lengths = (0..=255).map(PrefixFilter::Length);
        let pairs = (0..=255).flat_map(|a| [0, 1, 4, 255].map(|b| PrefixFilter::Lengths(a, b)));
        let delimiters = (0..=255).map(PrefixFilter::Delimiter);
        let all = [PrefixFilter::None].into_iter().chain(lengths).chain(pairs).chain(delimiters);
        let accepted: Vec<_> = all.filter(|value| Prefixes.accepts(value)).collect();
        // Only ascending pairs: (1 to 3, 4) and (1 to 254, 255).
        assert_eq!(accepted.len(), 1 + 255 + 3 + 254 + 256);
        for value in accepted {
            assert_eq!(Prefixes.parse(&Prefixes.print(&value)), Some(value), "{}", Prefixes.print(&value));
        }
    }

    #[test]
    fn equivalent_spellings_parse_to_one_value() {
        for (text, value) in [
            ("8 , 4", PrefixFilter::Lengths(4, 8)),
            ("delimiter   #", PrefixFilter::Delimiter(b'#')),
            ("delimiter 0x2f", PrefixFilter::Delimiter(b'/')),
            ("delimiter 0", PrefixFilter::Delimiter(b'0')),
            ("delimiter ,", PrefixFilter::Delimiter(b',')),
        ] {
            assert_eq!(Prefixes.parse(text), Some(value), "{text}");
        }
        assert_eq!(Prefixes.print(&PrefixFilter::Delimiter(b'#')), "delimiter 0x23");
        assert_eq!(Prefixes.print(&PrefixFilter::Delimiter(b' ')), "delimiter 0x20");
        assert_eq!(Prefixes.print(&PrefixFilter::Delimiter(b'/')), "delimiter /");
    }

    #[test]
    fn malformed_prefixes_are_refused() {
        for text in [
            "",
            "-4",
            "+4",
            "256",
            "4,8,12",
            "4,",
            "x",
            "delimiter",
            "delimiter/",
            "delimiter ab",
            "delimiter é",
            "delimiter 0x1",
            "delimiter 0x+1",
        ] {
            assert_eq!(Prefixes.parse(text), None, "{text:?}");
        }
        for text in ["0", "4,4", "0,4"] {
            assert!(!Prefixes.accepts(&Prefixes.parse(text).unwrap()), "{text:?}");
        }
    }

    #[test]
    fn a_scan_uses_the_longest_prefix_its_keys_share() {
        let (two, slash) = (PrefixFilter::Lengths(2, 4), PrefixFilter::Delimiter(b'/'));
        let known = |filter: PrefixFilter, key: &'static str| -> Vec<&[u8]> {
            filter.prefixes(key.as_bytes()).collect()
        };
        assert_eq!(known(two, "abcde"), [&b"ab"[..], b"abcd"]);
        assert_eq!(known(two, "abc"), [b"ab"]);
        assert_eq!(known(PrefixFilter::Length(3), "ab"), [b""; 0]);
        assert_eq!(known(slash, "a/b/c"), [b"a/"]);
        assert_eq!(known(slash, "abc"), [b""; 0]);
        assert_eq!(known(PrefixFilter::None, "abc"), [b""; 0]);
        let scan = |filter: PrefixFilter, prefix: &'static str| -> Option<&[u8]> {
            filter.covering(prefix.as_bytes(), prefix_successor(prefix.as_bytes()).as_deref())
        };
        assert_eq!(scan(two, "abcde"), Some(&b"abcd"[..]));
        assert_eq!(scan(two, "a"), None);
        assert_eq!(scan(slash, "a/b"), Some(&b"a/"[..]));
        // Once a scan has reached a longer key, only the shorter prefix is common to the rest.
        assert_eq!(two.covering(b"abcde", Some(b"ac")), Some(&b"ab"[..]));
        assert_eq!(two.covering(b"abcde", Some(b"ad")), None);
        assert_eq!(two.covering(b"abcde", None), None);
        // Every key with the scanned prefix also has the filter prefix.
        for filter in [two, slash, PrefixFilter::Length(1)] {
            for (prefix, key) in [("a/b", "a/bc/d"), ("ab", "abcdef"), ("abcd", "abcd"), ("/", "//")] {
                let part = scan(filter, prefix);
                assert!(
                    part.is_none_or(|part| known(filter, key).contains(&part)),
                    "{filter:?} {prefix} {key}"
                );
            }
        }
    }
}
