//! Records of a text file: lines, tab-separated or comma-separated fields. A bad record is an
//! individual error and does not end the file.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

/// The format of a file's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// One field: the whole line
    Lines,
    /// Fields separated by tabs, no quoting
    Tsv,
    /// Fields separated by commas, quoted as in RFC 4180
    Csv,
}

impl Format {
    /// Returns the format that a file's name suggests, with or without `.gz`.
    pub(crate) fn of_name(name: &str) -> Format {
        let name = name.strip_suffix(".gz").unwrap_or(name).to_ascii_lowercase();
        match name.rsplit('.').next() {
            Some("tsv" | "tab") => Format::Tsv,
            Some("csv") => Format::Csv,
            _ => Format::Lines,
        }
    }
}

const START: Place = Place { line: 1, byte: 0 };

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The line it starts on, from 1; in CSV, empty lines before it belong to it.
    pub(crate) line: u64,
    /// The fields; at least one.
    pub(crate) fields: Vec<Vec<u8>>,
}

/// The reason why a record could not be read.
#[derive(Debug)]
pub(crate) enum RecordError {
    /// This record is bad; the next one may be good.
    Bad { line: u64, reason: String },
    /// The file cannot be read any further.
    Io(io::Error),
}

/// A position between two records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The line that begins here, from 1.
    pub(crate) line: u64,
    /// The number of bytes before it, decompressed.
    pub(crate) byte: u64,
}

/// A reader of successive records.
pub(crate) enum Records<R: Read> {
    Text { input: BufReader<R>, next: Place, separator: Option<u8> },
    Csv { input: Box<csv::Reader<Followed<BufReader<R>>>> },
}

impl<R: Read> Records<R> {
    pub(crate) fn new(input: R, format: Format) -> Self {
        let input = BufReader::with_capacity(256 << 10, input);
        match format {
            Format::Lines => Records::Text { input, next: START, separator: None },
            Format::Tsv => Records::Text { input, next: START, separator: Some(b'\t') },
            Format::Csv => {
                let mut builder = csv::ReaderBuilder::new();
                let input = builder.has_headers(false).flexible(true).from_reader(Followed::new(input));
                Records::Csv { input: Box::new(input) }
            }
        }
    }

    /// Returns the position of the next record; meaningless after a failed read of the input.
    pub(crate) fn place(&mut self) -> Place {
        match self {
            Records::Text { next, .. } => *next,
            Records::Csv { input } => {
                let (line, byte) = (input.position().line(), input.position().byte());
                // The reader ends a record at the first byte of CR LF.
                let within = u64::from(input.get_mut().is_within_line_end(byte));
                Place { line: line + within, byte: byte + within }
            }
        }
    }
}

impl<R: Read> Iterator for Records<R> {
    type Item = Result<Record, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = self.place().line;
        match self {
            Records::Text { input, next, separator } => {
                let mut text = Vec::new();
                match input.read_until(b'\n', &mut text) {
                    Ok(0) => return None,
                    Ok(bytes) => *next = Place { line: line + 1, byte: next.byte + bytes as u64 },
                    Err(error) => return Some(Err(RecordError::Io(error))),
                }
                if text.last() == Some(&b'\n') {
                    text.pop();
                    if text.last() == Some(&b'\r') {
                        text.pop();
                    }
                }
                let fields = match separator {
                    None => vec![text],
                    Some(separator) => text.split(|b| b == separator).map(<[u8]>::to_vec).collect(),
                };
                Some(Ok(Record { line, fields }))
            }
            Records::Csv { input } => {
                let mut record = csv::ByteRecord::new();
                match input.read_byte_record(&mut record) {
                    Ok(false) => None,
                    Ok(true) => {
                        let end = input.position().byte();
                        let followed = input.get_mut();
                        let opened = followed.opened;
                        if let Some(opened) = followed.flaw_before(end) {
                            let reason = format!(
                                "the quote opened in line {opened} is not closed, or a quote in that field is not doubled"
                            );
                            return Some(Err(RecordError::Bad { line, reason }));
                        }
                        if followed.end_is_quoted() {
                            let reason = format!(
                                "the input ends within a quoted field: the quote opened in line {opened} is never closed"
                            );
                            return Some(Err(RecordError::Bad { line, reason }));
                        }
                        Some(Ok(Record { line, fields: record.iter().map(<[u8]>::to_vec).collect() }))
                    }
                    Err(error) => Some(Err(match error.into_kind() {
                        csv::ErrorKind::Io(error) => RecordError::Io(error),
                        other => RecordError::Bad { line, reason: format!("{other:?}") },
                    })),
                }
            }
        }
    }
}

/// The input of the CSV reader, with details that the CSV reader does not report: it accepts the
/// end of the input as the end of any field, and text after a closing quote as part of the field
/// (so that a quote that is not closed swallows everything up to the next one), and does not count
/// the second byte of CR LF as part of the preceding record.
pub(crate) struct Followed<R> {
    input: R,
    at: Field,
    /// The line of the next byte, from 1.
    line: u64,
    /// The line in which the last quoted field begins.
    opened: u64,
    /// Positions of text that follows a closing quote, each with the line in which the quoted field
    /// begins. The reader is behind: they belong to records that it has not returned yet.
    flaws: VecDeque<(u64, u64)>,
    ended: bool,
    /// The bytes read last, and their position.
    last: Vec<u8>,
    last_at: u64,
    /// An error found while looking ahead.
    failed: Option<io::Error>,
}

/// The state within a field of a CSV input.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Start,
    Plain,
    Quoted,
    /// After a quote within quotes: the closing one, or the first of two.
    Quote,
}

impl<R: BufRead> Followed<R> {
    fn new(input: R) -> Followed<R> {
        Followed {
            input,
            at: Field::Start,
            line: 1,
            opened: 1,
            flaws: VecDeque::new(),
            ended: false,
            last: Vec::new(),
            last_at: 0,
            failed: None,
        }
    }

    /// Forgets the flaws before position `end`; returns the line in which the first field with one
    /// begins.
    fn flaw_before(&mut self, end: u64) -> Option<u64> {
        let count = self.flaws.iter().take_while(|(at, _)| *at < end).count();
        self.flaws.drain(..count).next().map(|(_, opened)| opened)
    }

    /// Reports whether the input has ended within an open quote: the last record is then truncated.
    fn end_is_quoted(&self) -> bool {
        self.ended && self.at == Field::Quoted
    }

    /// Reports whether position `at`, within or right after the bytes read last, is between CR and
    /// LF.
    fn is_within_line_end(&mut self, at: u64) -> bool {
        let Some(at) = at.checked_sub(self.last_at + 1).and_then(|at| usize::try_from(at).ok()) else {
            return false;
        };
        match self.last.get(at..) {
            Some([b'\r', next, ..]) => *next == b'\n',
            Some([b'\r']) if self.failed.is_none() => match self.input.fill_buf() {
                Ok(bytes) => bytes.first() == Some(&b'\n'),
                Err(error) => {
                    self.failed = Some(error);
                    false
                }
            },
            _ => false,
        }
    }
}

impl<R: Read> Read for Followed<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let n = self.input.read(buf)?;
        self.ended = n == 0 && !buf.is_empty();
        self.last_at += self.last.len() as u64;
        self.last.clear();
        self.last.extend_from_slice(&buf[..n]);
        for (byte, at) in buf[..n].iter().zip(self.last_at..) {
            self.at = match (self.at, byte) {
                (Field::Quoted, b'"') => Field::Quote,
                (Field::Start, b'"') => {
                    self.opened = self.line;
                    Field::Quoted
                }
                (Field::Quoted, _) | (Field::Quote, b'"') => Field::Quoted,
                (_, b',' | b'\r' | b'\n') => Field::Start,
                // The reader skips a byte order mark.
                (Field::Start, 0xEF | 0xBB | 0xBF) if at < 3 => Field::Start,
                (Field::Quote, _) => {
                    self.flaws.push_back((at, self.opened));
                    Field::Plain
                }
                _ => Field::Plain,
            };
            self.line += u64::from(*byte == b'\n');
        }
        Ok(n)
    }
}

/// Returns the input, decompressed if it is gzip (recognized by its first bytes). `name` is the
/// file's name, if it has one.
///
/// # Errors
///
/// The input cannot be read, is named `.gz` but is not gzip, or is compressed in a way that is not
/// known here: its bytes would pass for lines.
pub(crate) fn unpacked<'a, R: Read + 'a>(
    mut input: R,
    name: Option<&str>,
) -> io::Result<Box<dyn BufRead + 'a>> {
    let mut head = Vec::new();
    // A pipe may return less than was asked for.
    input.by_ref().take(MARK_BYTES).read_to_end(&mut head)?;
    let wrong = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    let mark = |mark: &[u8]| head.starts_with(mark);
    if !mark(&GZIP_MARK) {
        if name.is_some_and(|name| name.to_ascii_lowercase().ends_with(".gz")) {
            return wrong("its name ends in .gz, but it is not gzip".to_owned());
        }
        if let Some((_, tool)) = OTHER_MARKS.iter().find(|(bytes, _)| mark(bytes)) {
            return wrong(format!("it is compressed by {tool}; decompress it first (`{tool} -dc FILE | …`)"));
        }
    }
    let packed = mark(&GZIP_MARK);
    let input = BufReader::with_capacity(256 << 10, io::Cursor::new(head).chain(input));
    Ok(match packed {
        true => Box::new(BufReader::with_capacity(256 << 10, MultiGzDecoder::new(input))),
        false => Box::new(input),
    })
}

const MARK_BYTES: u64 = 6;

/// The beginning of every gzip file: two bytes of its own, and the only compression method there
/// is.
const GZIP_MARK: [u8; 3] = [0x1F, 0x8B, 8];

/// The beginnings of other compressed files, which no text has, and the programs that decompress
/// them.
const OTHER_MARKS: [(&[u8], &str); 3] =
    [(&[0x28, 0xB5, 0x2F, 0xFD], "zstd"), (&[0xFD, b'7', b'z', b'X', b'Z', 0], "xz"), (b"BZh91A", "bzip2")];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    fn fields(text: &[u8], format: Format) -> Vec<(u64, Vec<String>)> {
        let text_of = |field: Vec<u8>| String::from_utf8(field).unwrap();
        let one = |r: Record| (r.line, r.fields.into_iter().map(text_of).collect());
        Records::new(text, format).map(|r| one(r.unwrap())).collect()
    }

    fn record(line: u64, fields: &[&str]) -> (u64, Vec<String>) {
        (line, fields.iter().map(|f| (*f).to_owned()).collect())
    }

    #[test]
    fn formats_are_guessed_from_names() {
        for (name, format) in [
            ("a.tsv", Format::Tsv),
            ("a.TSV.gz", Format::Tsv),
            ("a.csv", Format::Csv),
            ("a.txt", Format::Lines),
            ("words", Format::Lines),
        ] {
            assert_eq!(Format::of_name(name), format, "{name}");
        }
    }

    #[test]
    fn lines_keep_everything_but_their_ends() {
        let got = fields(b"a\tb,c\r\n\n last", Format::Lines);
        assert_eq!(got, [record(1, &["a\tb,c"]), record(2, &[""]), record(3, &[" last"])]);
    }

    #[test]
    fn tabs_separate_and_quotes_mean_nothing_in_tsv() {
        let got = fields(b"a\t\"b\n\tx\t\n", Format::Tsv);
        assert_eq!(got, [record(1, &["a", "\"b"]), record(2, &["", "x", ""])]);
    }

    #[test]
    fn csv_fields_may_be_quoted_and_span_lines() {
        let got = fields(b"a,\"b,\"\"c\"\"\nd\"\nx\n\ny,z\n", Format::Csv);
        assert_eq!(got, [record(1, &["a", "b,\"c\"\nd"]), record(3, &["x"]), record(4, &["y", "z"])]);
    }

    #[test]
    fn places_are_where_the_next_record_begins() {
        let places = |text: &str, format| {
            let mut records = Records::new(text.as_bytes(), format);
            let mut places = vec![records.place()];
            while let Some(record) = records.next() {
                // `--from-line` relies on this.
                assert_eq!(record.unwrap().line, places.last().unwrap().line, "{text:?}");
                places.push(records.place());
            }
            places.iter().map(|place| (place.line, place.byte)).collect::<Vec<_>>()
        };
        assert_eq!(places("a\n\nbc\r\nd", Format::Lines), [(1, 0), (2, 2), (3, 3), (4, 7), (5, 8)]);
        assert_eq!(places("a\tb\nc\n", Format::Tsv), [(1, 0), (2, 4), (3, 6)]);
        assert_eq!(places("a,b\n\"c\nd\",e\nf\n", Format::Csv), [(1, 0), (2, 4), (4, 12), (5, 14)]);
        assert_eq!(places("a,b\r\nc,d\r\ne\r\n", Format::Csv), [(1, 0), (2, 5), (3, 10), (4, 13)]);
        // However the input is split.
        let many: String = (0..10_000).map(|i| format!("{i},\"\r\n\"\r\n")).collect();
        let wanted = many
            .match_indices("\"\r\n")
            .map(|(at, _)| at as u64 + 3)
            .filter(|&at| many.as_bytes().get(at as usize).is_none_or(u8::is_ascii_digit));
        let found = places(&many, Format::Csv);
        assert!(found.iter().skip(1).map(|place| place.1).eq(wanted));
        assert!(found.iter().zip(0..).all(|(place, i)| place.0 == 1 + 2 * i));
    }

    #[test]
    fn csv_that_ends_within_quotes_has_a_bad_last_record() {
        let bad = |text: &str| {
            let bad = |r| matches!(r, Err(RecordError::Bad { .. }));
            Records::new(text.as_bytes(), Format::Csv).map(bad).collect::<Vec<_>>()
        };
        assert_eq!(bad("a,b\nc,\"d\ne,f\n"), [false, true]);
        assert_eq!(bad("a,\"d\"\""), [true]);
        assert_eq!(bad("a,\"d\"\"\"\nb"), [false, false]);
        assert_eq!(bad("a,5\" disk\nb,\"\""), [false, false]);
    }

    /// A quote that is not closed swallowed lines up to the next quote, without a word.
    #[test]
    fn csv_with_text_after_a_closing_quote_has_a_bad_record() {
        let outcome = |text: &str| -> Vec<Result<u64, (u64, String)>> {
            let of = |record| match record {
                Ok(Record { line, .. }) => Ok(line),
                Err(RecordError::Bad { line, reason }) => Err((line, reason)),
                Err(RecordError::Io(error)) => panic!("{error}"),
            };
            Records::new(text.as_bytes(), Format::Csv).map(of).collect()
        };
        let bad = |line, opened: u64| {
            let reason = format!(
                "the quote opened in line {opened} is not closed, or a quote in that field is not doubled"
            );
            Err((line, reason))
        };
        assert_eq!(outcome("1,a\n2,\"b\n3,\"c\"\n4,d\n"), [Ok(1), bad(2, 2), Ok(4)]);
        assert_eq!(outcome("\"x\ny\",\"b\n3,\"c\n4,d\n"), [bad(1, 2), Ok(4)]);
        assert_eq!(outcome("a,\"x\"y\"z\nb\n"), [bad(1, 1), Ok(2)]);
        assert_eq!(outcome("a,\"x\" \nb\n"), [bad(1, 1), Ok(2)]);
        assert_eq!(outcome("\u{FEFF}\"a\nb\",\"c\"\"\"\nd\n"), [Ok(1), Ok(3)]);
        assert!(
            matches!(&outcome("\u{FEFF}\"a\nb,c\n")[..], [Err((1, reason))] if reason.contains("never closed"))
        );
        // However far the reader is behind its input.
        let many: String =
            (0..50_000).map(|i| if i % 1000 == 7 { "a,\"b\"c\n" } else { "a,\"b\"\n" }).collect();
        let wrong = outcome(&many).into_iter().zip(1u64..).filter(|(outcome, _)| outcome.is_err());
        assert!(
            wrong
                .map(|(outcome, line)| {
                    assert_eq!(outcome, bad(line, line));
                    line
                })
                .eq((0..50).map(|i| 1000 * i + 8))
        );
    }

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(text).unwrap();
        packer.finish().unwrap()
    }

    /// A reader that returns one byte at a time, like a slow pipe.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let n = buf.len().min(1);
            self.0.read(&mut buf[..n])
        }
    }

    #[test]
    fn gzip_is_decompressed_and_anything_else_is_left_alone() {
        let text = |input: &[u8], name| -> io::Result<String> {
            let mut text = String::new();
            unpacked(Slow(input), name)?.read_to_string(&mut text)?;
            Ok(text)
        };
        for input in [packed(b"one\ntwo\n"), b"one\ntwo\n".to_vec()] {
            assert_eq!(text(&input, None).unwrap(), "one\ntwo\n");
        }
        assert_eq!(text(&packed(b"one"), Some("a.gz")).unwrap(), "one");
        assert_eq!(text(b"o", Some("a.txt")).unwrap(), "o");
        assert_eq!(text(b"", None).unwrap(), "");
        // Bytes that would pass for lines.
        for (input, name, what) in [
            (&b"no gzip at all"[..], Some("a.tsv.GZ"), "not gzip"),
            (b"", Some("a.gz"), "not gzip"),
            (b"\x1F\x8B", Some("a.gz"), "not gzip"),
            (b"\xFD7zXZ\0\0\x04", None, "xz"),
            (b"\x28\xB5\x2F\xFD\x04", Some("a.zst"), "zstd"),
            (b"BZh91AY&SY", None, "bzip2"),
        ] {
            let error = text(input, name).unwrap_err();
            assert!(error.to_string().contains(what), "{what}: {error}");
        }
        let mut cut = packed(b"one\ntwo\n");
        cut.truncate(cut.len() - 4);
        assert!(text(&cut, None).is_err());
        let trailing = [packed(b"one\n"), b"two\n".to_vec()].concat();
        assert!(text(&trailing, None).is_err(), "what follows is no gzip");
    }

    proptest! {
        #[test]
        fn tsv_of_any_fields_reads_back(rows in prop::collection::vec(
            prop::collection::vec("[^\t\r\n]{0,8}", 1..5), 0..8)
        ) {
            let text: String = rows.iter().map(|row| row.join("\t") + "\n").collect();
            let got: Vec<Vec<String>> = fields(text.as_bytes(), Format::Tsv).into_iter().map(|r| r.1).collect();
            prop_assert_eq!(got, rows);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            for format in [Format::Lines, Format::Tsv, Format::Csv] {
                prop_assert!(Records::new(&bytes[..], format).count() <= bytes.len() + 1);
            }
        }
    }
}
