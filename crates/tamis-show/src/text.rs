//! Bytes as text: hexadecimal digits and a lossless printable form.

/// Returns bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Returns bytes as one line: printable text unchanged; backslashes, control characters and bytes that are not UTF-8
/// escaped (`\\`, `\t`, `\n`, `\r`, `\x00`). Different bytes give different lines.
pub fn printable(bytes: &[u8]) -> String {
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
pub fn excerpt(bytes: &[u8], limit: usize) -> String {
    let text = printable(&bytes[..bytes.len().min(4 * limit)]);
    if text.chars().count() <= limit {
        return text;
    }
    text.chars().take(limit.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn printable_text_is_one_line_and_lossless(a: Vec<u8>, b: Vec<u8>) {
            prop_assert!(!printable(&a).contains(|c: char| c.is_control()));
            prop_assert_eq!(printable(&a) == printable(&b), a == b);
        }
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
    fn readable_text_is_unchanged() {
        assert_eq!(printable("Zürich/8001".as_bytes()), "Zürich/8001");
        assert_eq!(printable(b"a\tb\\\x00\xff"), "a\\tb\\\\\\x00\\xff");
        assert_eq!(excerpt(b"abcdefgh", 4), "abc…");
        assert_eq!(excerpt(b"abcd", 4), "abcd");
    }
}
