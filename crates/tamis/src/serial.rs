//! How statistics and reports are serialized where serde's own form would lose bytes. With the
//! feature `serde` only.
//!
//! Keys and paths become strings: printable text as it is, and everything else escaped as `\\`,
//! `\t`, `\n`, `\r` or, byte by byte, `\xNN`. Different bytes give different strings.

use std::ops::Bound;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

fn escaped(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    let escape = |bytes: &[u8], out: &mut String| {
        bytes.iter().for_each(|byte| *out += &format!("\\x{byte:02x}"));
    };
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' | '\t' | '\n' | '\r' => out.extend(c.escape_default()),
                c if c.is_control() => escape(c.encode_utf8(&mut [0; 4]).as_bytes(), &mut out),
                c => out.push(c),
            }
        }
        escape(chunk.invalid(), &mut out);
    }
    out
}

pub(crate) fn bytes<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&escaped(bytes))
}

pub(crate) fn bytes_or_none<S: Serializer>(bytes: &Option<Vec<u8>>, to: S) -> Result<S::Ok, S::Error> {
    bytes.as_deref().map(escaped).serialize(to)
}

pub(crate) fn path<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&escaped(path.as_os_str().as_encoded_bytes()))
}

pub(crate) fn paths<S: Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(paths.iter().map(|path| escaped(path.as_os_str().as_encoded_bytes())))
}

/// The end of a key range: a key and whether it is included.
pub(crate) fn end<S: Serializer>(end: &Option<(Vec<u8>, bool)>, to: S) -> Result<S::Ok, S::Error> {
    end.as_ref().map(|(key, included)| (escaped(key), included)).serialize(to)
}

/// The same of a bound.
pub(crate) fn bound<S: Serializer>(bound: &Bound<Vec<u8>>, to: S) -> Result<S::Ok, S::Error> {
    let end = match bound {
        Bound::Included(key) => Some((escaped(key), true)),
        Bound::Excluded(key) => Some((escaped(key), false)),
        Bound::Unbounded => None,
    };
    end.serialize(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_bytes_give_different_strings() {
        assert_eq!(escaped("fr/Lyon é".as_bytes()), "fr/Lyon é");
        assert_eq!(escaped(b"\\x00"), r"\\x00");
        assert_eq!(escaped(b"\0\t\n\r\xff\x7f"), r"\x00\t\n\r\xff\x7f");
        assert_eq!(escaped("\u{85}".as_bytes()), r"\xc2\x85");
        let pairs: Vec<[u8; 2]> = (0..=u16::MAX).map(u16::to_be_bytes).collect();
        let strings: std::collections::BTreeSet<String> = pairs.iter().map(|pair| escaped(pair)).collect();
        assert_eq!(strings.len(), pairs.len());
    }
}
