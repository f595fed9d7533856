//! Key ranges as scripts draw them: each in its own line, under a ruler of one-letter keys.
//!
//! ```text
//! keys    abcdefgh
//! both     [---]     b to f, f included
//! half      [--)     c to f, f excluded
//! open       [--->   from d on
//! one      |         b alone
//! ```

use tamis_base::key::{KeyBytes, KeyEnd};

/// The ruler: the keys, and the column of the first one.
#[derive(Clone, Debug)]
pub(super) struct Ruler {
    pub(super) keys: String,
    column: usize,
}

pub(super) fn key(letters: &str) -> KeyBytes {
    letters.as_bytes().into()
}

/// A key as a script shows it: `c+` is the first key after `c`.
pub(super) fn show(key: &[u8]) -> String {
    match key.strip_suffix(&[0]) {
        Some(key) => format!("{}+", String::from_utf8_lossy(key)),
        None => String::from_utf8_lossy(key).into_owned(),
    }
}

/// The range that `b..f`, `b..=f` or `b..` names.
pub(super) fn range(text: &str) -> (KeyBytes, KeyEnd) {
    let (start, end) = text.split_once("..").unwrap_or_else(|| panic!("no range: {text}"));
    let end = match end.strip_prefix('=') {
        Some(end) => KeyEnd::Included(key(end)),
        None if end.is_empty() => KeyEnd::Unbounded,
        None => KeyEnd::Excluded(key(end)),
    };
    (key(start), end)
}

pub(super) fn show_range(start: &[u8], end: &KeyEnd) -> String {
    let start = show(start);
    match end {
        KeyEnd::Included(end) => format!("{start}..={}", show(end)),
        KeyEnd::Excluded(end) => format!("{start}..{}", show(end)),
        KeyEnd::Unbounded => format!("{start}.."),
    }
}

impl Ruler {
    pub(super) fn of(line: &str) -> Ruler {
        let keys = line.strip_prefix("keys ").unwrap_or_else(|| panic!("no ruler: {line}")).trim();
        Ruler { keys: keys.into(), column: line.len() - keys.len() }
    }

    fn key_at(&self, column: usize) -> KeyBytes {
        let at = column.checked_sub(self.column).expect("below the ruler");
        key(self.keys.get(at..at + 1).expect("below the ruler"))
    }

    /// Returns a line's label and range.
    pub(super) fn read<'l>(&self, line: &'l str) -> (&'l str, KeyBytes, KeyEnd) {
        let start = line.find(['[', '|']).unwrap_or_else(|| panic!("no range: {line}"));
        let last = line.len() - 1;
        let end = match line.as_bytes()[last] {
            b']' | b'|' => KeyEnd::Included(self.key_at(last)),
            b')' => KeyEnd::Excluded(self.key_at(last)),
            b'>' => KeyEnd::Unbounded,
            _ => panic!("no end: {line}"),
        };
        (line[..start].trim(), self.key_at(start), end)
    }

    /// Returns a line with one character for each key.
    pub(super) fn row(&self, label: &str, at: impl Fn(&[u8]) -> char) -> String {
        let cells: String = self.keys.bytes().map(|key| at(&[key])).collect();
        format!("{label:width$}{cells}", width = self.column)
    }

    /// Draws a range whose borders are keys of the ruler.
    pub(super) fn draw(&self, label: &str, start: &[u8], end: &KeyEnd) -> String {
        self.row(label, |key| match end {
            _ if key < start => ' ',
            KeyEnd::Included(end) if key == start && key == &end[..] => '|',
            _ if key == start => '[',
            KeyEnd::Included(end) if key == &end[..] => ']',
            KeyEnd::Excluded(end) if key == &end[..] => ')',
            KeyEnd::Unbounded if self.keys.as_bytes().last() == key.first() => '>',
            end if end.reaches(key) => '-',
            _ => ' ',
        })
    }
}
