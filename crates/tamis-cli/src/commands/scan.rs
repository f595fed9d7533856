//! `tamis scan`: prints entries in key order.

use std::ffi::OsString;
use std::io::Write;
use std::ops::Bound;

use clap::{Args, ValueEnum};
use tamis::ReadError;
use tamis_bench::report::counted;

use crate::args::{DbArgs, KEYS_HELP, KeyspaceArgs};
use crate::failure::{Failure, Outcome};
use crate::json;
use crate::output::{Out, note};
use crate::text::{self, end_of_prefix};

/// The format of printed entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// `key TAB value`; control characters, backslashes and bytes that are not UTF-8 are escaped
    /// (\t, \\, \xff)
    Text,
    /// `key TAB value`, both hexadecimal
    Hex,
    /// One JSON object per line: `key` and `value`, or `key_hex` and `value_hex` where they are not
    /// UTF-8
    Jsonl,
}

/// Print keys and values in key order
#[derive(Args)]
#[command(after_help = KEYS_HELP, after_long_help = format!("{KEYS_HELP}\n\nOn a terminal, the formats text and hex cut keys and values of more than 400 characters; a pipe or a file gets all of \
    them.\n\nExamples:\n  \
    tamis scan --db ./tamis-demo --prefix IS/ --limit 10\n  \
    tamis scan --db ./tamis-demo --start FR/ --end GB/ --keys-only | wc -l\n  \
    tamis scan --db ./tamis-demo --reverse --limit 1 --format jsonl"))]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    db: DbArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    /// The first key [default: the first of all]
    #[arg(long, value_name = "KEY")]
    start: Option<OsString>,
    /// The key to stop before [default: none]
    #[arg(long, value_name = "KEY")]
    end: Option<OsString>,
    /// Only keys that start with PREFIX
    #[arg(long, conflicts_with_all = ["start", "end"])]
    prefix: Option<OsString>,
    /// Print at most this many entries
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print from the last key to the first
    #[arg(long)]
    reverse: bool,
    /// Leave the values out
    #[arg(long)]
    keys_only: bool,
    /// Bounds are hexadecimal, and so is everything printed
    #[arg(long)]
    hex: bool,
    /// Print huge keys and values whole on a terminal, too
    #[arg(long)]
    full: bool,
    /// The output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// The same as --format jsonl
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

pub(crate) fn run(args: ScanArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let typed = |key: &Option<OsString>| key.as_deref().map(|key| text::typed(key, args.hex)).transpose();
    let (start, end, prefix) = (typed(&args.start)?, typed(&args.end)?, typed(&args.prefix)?);
    if let (Some(start), Some(end)) = (&start, &end)
        && start > end
    {
        return Err(Failure::usage("the start lies after the end"));
    }
    let keyspace = args.keyspace.open_read_only(&args.db)?;
    let most = if out.is_terminal() && !args.full { text::MOST_SHOWN / 10 } else { usize::MAX };
    let (format, hex, keys_only) = (args.chosen_format(), args.hex, args.keys_only);
    let mut printer = Printer { format, hex, keys_only, most, was_cut: 0 };
    let mut bounds = match prefix {
        Some(prefix) => {
            let end = end_of_prefix(&prefix);
            (Bound::Included(prefix), end.map_or(Bound::Unbounded, Bound::Excluded))
        }
        None => {
            (start.map_or(Bound::Unbounded, Bound::Included), end.map_or(Bound::Unbounded, Bound::Excluded))
        }
    };
    let mut entries = keyspace.range(bounds.clone());
    for _ in 0..args.limit.unwrap_or(u64::MAX) {
        let entry = if args.reverse { entries.next_back() } else { entries.next() };
        match entry {
            None => break,
            Some(Ok((key, value))) => printer.print(&key, &value, out)?,
            // A key is listed even if its value cannot be computed without an operator of the
            // database's program.
            Some(Err(ReadError::Merge { key, .. })) if args.keys_only => {
                printer.print(&key, &[], out)?;
                let passed = Bound::Excluded(key);
                if args.reverse {
                    bounds.1 = passed
                } else {
                    bounds.0 = passed
                }
                entries = keyspace.range(bounds.clone());
            }
            Some(Err(error)) => return Err(error.into()),
        }
    }
    if printer.was_cut > 0 {
        out.flush()?;
        let cut = counted(printer.was_cut, "entries");
        note(&format!("{cut} cut; --full prints all of it, and so does a pipe or a file"));
    }
    Ok(Outcome::Done)
}

impl ScanArgs {
    fn chosen_format(&self) -> Format {
        match (self.json, self.hex, self.format) {
            (true, _, _) => Format::Jsonl,
            (_, true, Format::Text) => Format::Hex,
            (_, _, format) => format,
        }
    }
}

struct Printer {
    format: Format,
    hex: bool,
    keys_only: bool,
    /// The most characters of a key or value.
    most: usize,
    /// Entries of which something is missing.
    was_cut: u64,
}

impl Printer {
    fn print(&mut self, key: &[u8], value: &[u8], out: &mut impl Write) -> std::io::Result<()> {
        match self.format {
            Format::Text => self.line(text::printable, key, value, out),
            Format::Hex => self.line(text::hex, key, value, out),
            Format::Jsonl => {
                let value = Some(value).filter(|_| !self.keys_only);
                writeln!(out, "{}", json::line(&json::entry(key, value, self.hex)))
            }
        }
    }

    fn line(
        &mut self,
        show: fn(&[u8]) -> String,
        key: &[u8],
        value: &[u8],
        out: &mut impl Write,
    ) -> std::io::Result<()> {
        let most = self.most;
        let cut = |bytes: &[u8]| text::cut(show(bytes), bytes.len(), most);
        let (key, key_cut) = cut(key);
        if self.keys_only {
            self.was_cut += u64::from(key_cut);
            return writeln!(out, "{key}");
        }
        let (value, value_cut) = cut(value);
        self.was_cut += u64::from(key_cut || value_cut);
        writeln!(out, "{key}\t{value}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(format: Format, hex: bool, keys_only: bool) -> String {
        let mut out = Vec::new();
        Printer { format, hex, keys_only, most: usize::MAX, was_cut: 0 }
            .print(b"k\t1", b"\xffv", &mut out)
            .unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn entries_print_in_each_format() {
        assert_eq!(printed(Format::Text, false, false), "k\\t1\t\\xffv\n");
        assert_eq!(printed(Format::Text, false, true), "k\\t1\n");
        assert_eq!(printed(Format::Hex, false, false), "6b0931\tff76\n");
        assert_eq!(printed(Format::Jsonl, false, false), "{\"key\":\"k\\t1\",\"value_hex\":\"ff76\"}\n");
        assert_eq!(printed(Format::Jsonl, true, true), "{\"key_hex\":\"6b0931\"}\n");
    }
}
