//! Conversion of bytes to and from text: hexadecimal digits and a lossless printable form.

use std::ffi::OsStr;

use tamis_bench::report::mean;

use crate::failure::Failure;

/// Returns the bytes of a key or value as typed, decoded if hexadecimal.
pub(crate) fn typed(argument: &OsStr, hex: bool) -> Result<Vec<u8>, Failure> {
    let bytes = raw_bytes(argument)?;
    if hex { decode_hex(&bytes).map_err(Failure::Usage) } else { Ok(bytes) }
}

#[cfg(unix)]
fn raw_bytes(argument: &OsStr) -> Result<Vec<u8>, Failure> {
    Ok(std::os::unix::ffi::OsStrExt::as_bytes(argument).to_vec())
}

#[cfg(not(unix))]
fn raw_bytes(argument: &OsStr) -> Result<Vec<u8>, Failure> {
    match argument.to_str() {
        Some(text) => Ok(text.as_bytes().to_vec()),
        None => Err(Failure::usage("this system passes only text as arguments; give other bytes with --hex")),
    }
}

/// Decodes hexadecimal digits, upper or lower case.
pub(crate) fn decode_hex(digits: &[u8]) -> Result<Vec<u8>, String> {
    let value = |digit: u8| (digit as char).to_digit(16).map(|v| v as u8);
    let shown = || printable(&digits[..digits.len().min(40)]);
    if !digits.len().is_multiple_of(2) {
        return Err(format!("`{}` has an odd number of hexadecimal digits", shown()));
    }
    let bytes = digits.chunks_exact(2).map(|pair| Some(value(pair[0])? << 4 | value(pair[1])?));
    bytes.collect::<Option<_>>().ok_or_else(|| format!("`{}` is not hexadecimal", shown()))
}

/// Returns bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Returns the first key after all keys that start with `prefix`, if there is one.
pub(crate) fn end_of_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte < 0xFF)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// Returns bytes as one line: printable text unchanged; backslashes, control characters and bytes that are not UTF-8
/// escaped (`\\`, `\t`, `\n`, `\r`, `\x00`). Different bytes give different lines.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                '\t' => out.push_str("\\t"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                c if c.is_control() => {
                    let mut utf8 = [0; 4];
                    escape(c.encode_utf8(&mut utf8).as_bytes(), &mut out);
                }
                c => out.push(c),
            }
        }
        escape(chunk.invalid(), &mut out);
    }
    out
}

fn escape(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        out.push_str("\\x");
        out.push_str(&hex(&[*byte]));
    }
}

/// Returns the [`printable`] form, cut to about `limit` characters.
pub(crate) fn excerpt(bytes: &[u8], limit: usize) -> String {
    let text = printable(&bytes[..bytes.len().min(4 * limit)]);
    if text.chars().count() <= limit {
        return text;
    }
    text.chars().take(limit.saturating_sub(1)).chain(['…']).collect()
}

/// Formats a small number with two significant digits: 0.0012, 3.4e-7. Others are formatted as by [`mean`].
pub(crate) fn small(number: f64) -> String {
    if number > 0.0 && number < 0.001 { format!("{number:.1e}") } else { mean(number) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn hex_reads_back(bytes: Vec<u8>) {
            prop_assert_eq!(decode_hex(hex(&bytes).as_bytes()).unwrap(), bytes.clone());
            prop_assert_eq!(decode_hex(hex(&bytes).to_uppercase().as_bytes()).unwrap(), bytes);
        }

        #[test]
        fn printable_text_is_one_line_and_lossless(a: Vec<u8>, b: Vec<u8>) {
            prop_assert!(!printable(&a).contains(|c: char| c.is_control()));
            prop_assert_eq!(printable(&a) == printable(&b), a == b);
        }
    }

    #[test]
    fn a_prefix_ends_before_its_successor() {
        assert_eq!(end_of_prefix(b"FR/"), Some(b"FR0".to_vec()));
        assert_eq!(end_of_prefix(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(end_of_prefix(b"\xff"), None);
        assert_eq!(end_of_prefix(b""), None);
    }

    #[test]
    fn two_bytes_never_print_alike() {
        let mut seen = HashMap::new();
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                let text = printable(&[a, b]);
                assert_eq!(seen.insert(text.clone(), (a, b)), None, "{text}");
            }
        }
    }

    #[test]
    fn bad_hex_is_rejected_with_a_reason() {
        assert!(decode_hex(b"123").unwrap_err().contains("odd"));
        for bad in [&b"zz"[..], b"0x61", b"1 23", "ä".as_bytes()] {
            assert!(decode_hex(bad).is_err(), "{bad:?}");
        }
        assert_eq!(decode_hex(b""), Ok(vec![]));
    }

    #[test]
    fn small_numbers_do_not_look_like_zero() {
        for (number, text) in
            [(0.0, "0"), (3.44e-7, "3.4e-7"), (0.00096, "9.6e-4"), (0.0012, "0.0012"), (1.5, "1.50")]
        {
            assert_eq!(small(number), text);
        }
    }

    #[test]
    fn readable_text_is_unchanged() {
        assert_eq!(printable("Zürich/8001".as_bytes()), "Zürich/8001");
        assert_eq!(printable(b"a\tb\\\x00\xff"), "a\\tb\\\\\\x00\\xff");
        assert_eq!(excerpt(b"abcdefgh", 4), "abc…");
        assert_eq!(excerpt(b"abcd", 4), "abcd");
    }
}
