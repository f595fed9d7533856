//! The form as lines of JSON: a head, keyspaces and entries, and an end that counts them.

use std::io::{self, BufRead, Write};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Counts, Item, Part, TransferError};
use crate::json;
use crate::text::decode_hex;

const VERSION: u32 = 1;

pub(crate) struct JsonlWriter<W: Write> {
    out: W,
    counts: Counts,
}

impl<W: Write> JsonlWriter<W> {
    pub(super) fn new(mut out: W) -> io::Result<Self> {
        writeln!(out, "{}", json!({ "tamis_export": VERSION }))?;
        Ok(JsonlWriter { out, counts: Counts::default() })
    }

    pub(super) fn keyspace(&mut self, name: &str) -> io::Result<()> {
        self.counts.keyspaces += 1;
        writeln!(self.out, "{}", json::line(&json!({ "keyspace": name })))
    }

    pub(super) fn entry(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.counts.entries += 1;
        let mut object = serde_json::Map::new();
        json::bytes(&mut object, "key", key, false);
        json::bytes(&mut object, "value", value, false);
        writeln!(self.out, "{}", json::line(&Value::Object(object)))
    }

    pub(super) fn finish(mut self) -> io::Result<W> {
        let Counts { keyspaces, entries } = self.counts;
        writeln!(self.out, "{}", json!({ "end": { "keyspaces": keyspaces, "entries": entries } }))?;
        Ok(self.out)
    }
}

/// A line, whatever it holds. Unknown and repeated fields are refused.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Line {
    tamis_export: Option<u32>,
    keyspace: Option<String>,
    key: Option<String>,
    key_hex: Option<String>,
    value: Option<String>,
    value_hex: Option<String>,
    end: Option<End>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    keyspaces: u64,
    entries: u64,
}

pub(crate) struct JsonlReader<R: BufRead> {
    input: R,
    line: u64,
}

impl<R: BufRead> JsonlReader<R> {
    pub(super) fn new(input: R) -> Result<Self, TransferError> {
        let mut reader = JsonlReader { input, line: 0 };
        match reader.line()? {
            Line {
                tamis_export: Some(VERSION),
                keyspace: None,
                key: None,
                key_hex: None,
                value: None,
                value_hex: None,
                end: None,
            } => Ok(reader),
            Line { tamis_export: Some(other), .. } if other != VERSION => {
                let what = format!("an export of version {other}; this program reads version {VERSION}");
                Err(reader.bad(what))
            }
            _ => Err(reader.bad("this is no export of tamis: it begins with {\"tamis_export\":1}")),
        }
    }

    pub(super) fn place(&self) -> String {
        format!("line {}", self.line)
    }

    fn bad(&self, what: impl Into<String>) -> TransferError {
        TransferError::Bad { place: self.place(), what: what.into() }
    }

    /// Reads the next line.
    fn line(&mut self) -> Result<Line, TransferError> {
        self.line += 1;
        let mut text = Vec::new();
        self.input.read_until(b'\n', &mut text)?;
        if text.pop() != Some(b'\n') {
            // A line without its end may be a part of one.
            return Err(self.bad("it was cut off: the line at the end is missing"));
        }
        // An array would pass for the fields in their order.
        if !text.starts_with(b"{") {
            return Err(self.bad("not a line of an export: an object is expected"));
        }
        serde_json::from_slice(&text).map_err(|error| self.bad(format!("not a line of an export: {error}")))
    }

    pub(super) fn part(&mut self) -> Result<Part, TransferError> {
        match self.line()? {
            Line {
                keyspace: Some(name),
                tamis_export: None,
                key: None,
                key_hex: None,
                value: None,
                value_hex: None,
                end: None,
            } => Ok(Part::Item(Item::Keyspace(name))),
            Line { keyspace: None, tamis_export: None, key, key_hex, value, value_hex, end: None } => {
                let (key, value) = (self.bytes("key", key, key_hex)?, self.bytes("value", value, value_hex)?);
                Ok(Part::Item(Item::Entry(key, value)))
            }
            Line {
                end: Some(End { keyspaces, entries }),
                tamis_export: None,
                keyspace: None,
                key: None,
                key_hex: None,
                value: None,
                value_hex: None,
            } => {
                if !self.input.fill_buf()?.is_empty() {
                    self.line += 1;
                    return Err(self.bad("something follows the end"));
                }
                Ok(Part::End(Counts { keyspaces, entries }))
            }
            _ => Err(self.bad("a line is a keyspace, an entry, or the end")),
        }
    }

    /// Returns the bytes of a field that is given as text or as hexadecimal digits.
    fn bytes(&self, name: &str, text: Option<String>, hex: Option<String>) -> Result<Vec<u8>, TransferError> {
        match (text, hex) {
            (Some(text), None) => Ok(text.into_bytes()),
            (None, Some(digits)) => decode_hex(digits.as_bytes()).map_err(|what| self.bad(what)),
            _ => Err(self.bad(format!("an entry has either `{name}` or `{name}_hex`"))),
        }
    }
}
