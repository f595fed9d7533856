//! Bytes as text: hexadecimal digits and a lossless printable form.

/// Returns bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Returns bytes as one line: printable text unchanged; backslashes, [hidden](is_hidden) characters
/// and bytes that are not UTF-8 escaped (`\\`, `\t`, `\n`, `\r`, `\x00`). Different bytes give
/// different lines.
pub fn printable(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                '\t' => out.push_str("\\t"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                c if is_hidden(c) => {
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

/// Reports whether a character shows nothing of its own: it controls the terminal or the order of
/// the characters around it (U+202E), has no width (U+200B), is a blank that is not U+0020, or
/// stands for nothing yet.
pub fn is_hidden(c: char) -> bool {
    // The standard library's table of what can be printed. It escapes a combining character at the
    // beginning of a string only.
    let mut pair = [b' '; 5];
    let end = 1 + c.encode_utf8(&mut pair[1..]).len();
    let shown = std::str::from_utf8(&pair[..end])
        .is_ok_and(|pair| pair.escape_debug().nth(1) == Some(c) || matches!(c, '\\' | '"' | '\''));
    // Letters and marks by their category, and yet invisible: joiners, fillers, selectors of
    // variants.
    let ignorable = matches!(c,
        '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{ffa0}' | '\u{e0100}'..='\u{e01ef}');
    !shown || ignorable
}

/// Returns a message for a terminal: its line ends as they are, every other [hidden](is_hidden)
/// character escaped as `\u{202e}`. For text that may quote paths and names of whatever origin.
pub fn harmless(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    for c in message.chars() {
        match c {
            '\n' => out.push(c),
            c if is_hidden(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// Breaks the lines of a text that are longer than `width` characters, between words; what is
/// continued is indented by `indent`. A word that is longer than a line stays whole.
pub fn folded(text: &str, width: usize, indent: usize) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        let mut column = 0;
        let mut rest = line;
        while !rest.is_empty() {
            let blanks = rest.chars().take_while(|c| *c == ' ').count();
            let word = rest[blanks..].split(' ').next().unwrap_or_default();
            let wide = word.chars().count();
            if column > indent && column + blanks + wide > width {
                out.push('\n');
                out.extend(std::iter::repeat_n(' ', indent));
                out.push_str(word);
                column = indent + wide;
            } else {
                out.push_str(&rest[..blanks + word.len()]);
                column += blanks + wide;
            }
            rest = &rest[blanks + word.len()..];
        }
        out.push_str(end);
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
    let text = printable(&bytes[..bytes.len().min(limit.saturating_mul(4))]);
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
            prop_assert!(!printable(&a).contains(is_hidden));
            prop_assert_eq!(printable(&a) == printable(&b), a == b);
        }

        #[test]
        fn folding_changes_blanks_only(text in "[a-zé \n]{0,120}", width in 1usize..40, indent in 0usize..20) {
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            let folded = folded(&text, width, indent);
            prop_assert_eq!(words(&folded), words(&text));
            let longest = words(&text).iter().map(|word| word.chars().count()).max().unwrap_or(0);
            let blanks = text.split(|c| c != ' ').map(str::len).max().unwrap_or(0);
            let most = width.max(indent + blanks + longest);
            prop_assert!(folded.lines().all(|line| line.trim_end().chars().count() <= most), "{folded:?}");
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

    /// U+202E turns round what follows it, and U+200B makes two keys look alike; only control
    /// characters were escaped.
    #[test]
    fn characters_that_do_not_show_are_escaped() {
        for (text, shown) in [
            ("a\u{202e}b", "a\\xe2\\x80\\xaeb"),
            ("a\u{200b}b", "a\\xe2\\x80\\x8bb"),
            ("\u{9b}31m", "\\xc2\\x9b31m"),
            ("\u{feff}", "\\xef\\xbb\\xbf"),
            ("\u{a0}", "\\xc2\\xa0"),
            ("\u{2028}", "\\xe2\\x80\\xa8"),
            ("\u{e0041}", "\\xf3\\xa0\\x81\\x81"),
            ("\u{3164}", "\\xe3\\x85\\xa4"),
        ] {
            assert_eq!(printable(text.as_bytes()), shown);
        }
        assert_eq!(harmless("a\u{1b}[31m\n\u{202e}`é`"), "a\\u{1b}[31m\n\\u{202e}`é`");
    }

    #[test]
    fn long_lines_are_folded_between_words() {
        assert_eq!(folded("name  one two three\nfour\n", 14, 6), "name  one two\n      three\nfour\n");
        assert_eq!(folded("name  onetwothreefour five", 12, 6), "name  onetwothreefour\n      five");
        assert_eq!(folded("  as is", 80, 6), "  as is");
    }

    #[test]
    fn readable_text_is_unchanged() {
        assert_eq!(printable("Zürich/8001".as_bytes()), "Zürich/8001");
        for text in ["e\u{301}", "日本", "שלום", "😀", "\"l'eau\"", "a b"] {
            assert_eq!(printable(text.as_bytes()), text);
        }
        assert_eq!(printable(b"a\tb\\\x00\xff"), "a\\tb\\\\\\x00\\xff");
        assert_eq!(excerpt(b"abcdefgh", 4), "abc…");
        assert_eq!(excerpt(b"abcd", 4), "abcd");
    }
}
