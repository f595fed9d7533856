//! Conversion of bytes to and from text: what is typed, and what is shown.

use std::ffi::OsStr;

use tamis_show::numbers::grouped;

use crate::failure::Failure;

pub(crate) use tamis_show::numbers::small;
pub(crate) use tamis_show::text::{excerpt, folded, harmless, hex, is_hidden, printable};

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

/// A value on a terminal is cut after this many characters; in a list of entries, keys and values
/// are after a tenth.
pub(crate) const MOST_SHOWN: usize = 4000;

/// Returns a value as a terminal can show it, and whether it was cut: lines and tabs are as they
/// are, whatever else does not show is escaped.
pub(crate) fn on_terminal(value: &[u8], most: usize) -> (String, bool) {
    let mut text = String::new();
    let mut left = most;
    for chunk in value.utf8_chunks() {
        let valid = chunk.valid().chars().map(|c| match is_hidden(c) && !matches!(c, '\n' | '\t') {
            true => printable(c.encode_utf8(&mut [0; 4]).as_bytes()),
            false => c.to_string(),
        });
        let invalid = chunk.invalid().iter().map(|byte| printable(&[*byte]));
        for part in valid.chain(invalid) {
            if left == 0 {
                return (text + "…", true);
            }
            text.push_str(&part);
            left -= 1;
        }
    }
    (text, false)
}

/// Returns the beginning of a text that is too long for a line of a list, with the number of bytes
/// that it stands for.
pub(crate) fn cut(text: String, bytes: usize, most: usize) -> (String, bool) {
    match text.char_indices().nth(most) {
        Some((end, _)) => (format!("{}… ({} bytes)", &text[..end], grouped(bytes as u64)), true),
        None => (text, false),
    }
}

/// Returns the first key after all keys that start with `prefix`, if there is one.
pub(crate) fn end_of_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte < 0xFF)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn hex_reads_back(bytes: Vec<u8>) {
            prop_assert_eq!(decode_hex(hex(&bytes).as_bytes()).unwrap(), bytes.clone());
            prop_assert_eq!(decode_hex(hex(&bytes).to_uppercase().as_bytes()).unwrap(), bytes);
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
    fn a_terminal_gets_text_and_no_commands() {
        let (text, was_cut) = on_terminal(b"a\tb\n\x1b[31m\xff\\", 100);
        assert_eq!((&text[..], was_cut), ("a\tb\n\\x1b[31m\\xff\\", false));
        assert_eq!(on_terminal("éé".as_bytes(), 1), ("é…".to_owned(), true));
        assert_eq!(cut("abc".to_owned(), 3000, 2), ("ab… (3,000 bytes)".to_owned(), true));
        assert_eq!(cut("abc".to_owned(), 3, 3), ("abc".to_owned(), false));
    }

    #[test]
    fn bad_hex_is_rejected_with_a_reason() {
        assert!(decode_hex(b"123").unwrap_err().contains("odd"));
        for bad in [&b"zz"[..], b"0x61", b"1 23", "ä".as_bytes()] {
            assert!(decode_hex(bad).is_err(), "{bad:?}");
        }
        assert_eq!(decode_hex(b""), Ok(vec![]));
    }
}
