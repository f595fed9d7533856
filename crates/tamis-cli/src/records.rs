//! Records of a text file: lines, tab-separated or comma-separated fields. A bad record is an individual error and does
//! not end the file.

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
                        if input.get_ref().end_is_quoted() {
                            let reason = "the input ends within a quoted field".to_owned();
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

/// The input of the CSV reader, with details that the CSV reader does not report: it accepts the end of the input as the end
/// of any field, and does not count the second byte of CR LF as part of the preceding record.
pub(crate) struct Followed<R> {
    input: R,
    at: Field,
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
        Followed { input, at: Field::Start, ended: false, last: Vec::new(), last_at: 0, failed: None }
    }

    /// Reports whether the input has ended within an open quote: the last record is then truncated.
    fn end_is_quoted(&self) -> bool {
        self.ended && self.at == Field::Quoted
    }

    /// Reports whether position `at`, within or right after the bytes read last, is between CR and LF.
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
        for byte in &buf[..n] {
            self.at = match (self.at, byte) {
                (Field::Quoted, b'"') => Field::Quote,
                (Field::Quoted, _) | (Field::Start | Field::Quote, b'"') => Field::Quoted,
                (_, b',' | b'\r' | b'\n') => Field::Start,
                _ => Field::Plain,
            };
        }
        Ok(n)
    }
}

/// Returns the input, decompressed if it is gzip (recognized by its first two bytes).
pub(crate) fn unpacked<'a, R: Read + 'a>(input: R) -> io::Result<Box<dyn Read + 'a>> {
    let mut input = BufReader::with_capacity(256 << 10, input);
    let packed = input.fill_buf()?.starts_with(&[0x1F, 0x8B]);
    Ok(if packed { Box::new(MultiGzDecoder::new(input)) } else { Box::new(input) })
}

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
        assert_eq!(bad("a,\"x\"y\"z\n"), [false]);
    }

    #[test]
    fn gzip_is_decompressed_and_anything_else_is_left_alone() {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(b"one\ntwo\n").unwrap();
        for input in [packer.finish().unwrap(), b"one\ntwo\n".to_vec()] {
            let mut text = String::new();
            unpacked(&input[..]).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "one\ntwo\n");
        }
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
