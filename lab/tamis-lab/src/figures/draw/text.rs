//! Text without a font: upper bounds of widths, line breaking, and characters allowed in XML.
//!
//! Widths are those of DejaVu Sans, the widest of a page's fallback fonts: any other font leaves more space.

/// Replaces characters that XML forbids and those that change the direction of text, and turns line ends into blanks.
pub(crate) fn clean(text: &str) -> String {
    let keep = |c: char| match c {
        '\n' | '\t' | '\r' => ' ',
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.chars().map(keep).collect()
}

/// Returns the width of a character in units of the font size.
fn advance(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | '\'' | '|' => 0.34,
        ' ' | '.' | ',' | ':' | ';' | '!' | 'I' | 'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '/' | '-'
        | '·' => 0.42,
        'm' | 'M' | 'w' | 'W' | '%' | '@' | '—' | '…' => 1.0,
        'a'..='z' | '0'..='9' | '"' | '*' => 0.64,
        'A'..='Z' => 0.79,
        '\u{0300}'..='\u{036f}' => 0.0,
        c if (c as u32) < 0x1100 => 0.84,
        _ => 1.05,
    }
}

/// Returns the maximum width of `text` at `size`.
pub(crate) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(advance).sum::<f64>() * size
}

/// Truncates `text` to `room`, with an ellipsis if anything was cut.
pub(crate) fn shorten(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let mut left = room - width("…", size);
    let mut short: String = text
        .chars()
        .take_while(|&c| {
            left -= advance(c) * size;
            left >= 0.0
        })
        .collect();
    short.truncate(short.trim_end().len());
    short.push('…');
    short
}

/// Wraps `text` into lines that fit; if there would be more than `lines`, the last one is shortened. Words are broken
/// only where one is wider than a line. Empty text has no lines.
pub(crate) fn wrap(text: &str, size: f64, room: f64, lines: usize) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut wrapped: Vec<String> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        if let Some(line) = wrapped.last_mut()
            && width(line, size) + width(" ", size) + width(word, size) <= room
        {
            line.push(' ');
            line.push_str(word);
            continue;
        }
        if wrapped.len() >= lines {
            if let Some(line) = wrapped.last_mut() {
                *line = shorten(&format!("{line} {}", words[at..].join(" ")), size, room);
            }
            break;
        }
        wrapped.push(shorten(word, size, room));
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_and_omissions_are_visible() {
        let lines = wrap("one two three four five six seven eight nine ten", 10.0, 90.0, 3);
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| width(line, 10.0) <= 90.0), "{lines:?}");
        assert!(lines[2].ends_with('…') && lines[0].starts_with("one two"), "{lines:?}");
        assert_eq!(wrap("one two", 10.0, 900.0, 1), ["one two"]);
        assert_eq!(wrap(" \n ", 10.0, 90.0, 3), Vec::<String>::new());
        let word = wrap(&"w".repeat(1000), 10.0, 90.0, 2);
        assert!(word.len() == 1 && word[0].ends_with('…') && width(&word[0], 10.0) <= 90.0);
    }

    #[test]
    fn characters_invalid_in_xml_are_replaced() {
        assert_eq!(clean("a\u{0}b\nc\u{202e}d\u{ffff}é"), "a\u{fffd}b c\u{fffd}d\u{fffd}é");
    }
}
