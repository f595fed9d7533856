//! Records of a text file: lines, tab-separated or comma-separated fields. One bad record is an error by itself
//! and does not end the file.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

/// How a file's records look.
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
    /// The format that a file's name suggests, with or without `.gz`.
    pub(crate) fn of_name(name: &str) -> Format {
        let name = name.strip_suffix(".gz").unwrap_or(name).to_ascii_lowercase();
        match name.rsplit('.').next() {
            Some("tsv" | "tab") => Format::Tsv,
            Some("csv") => Format::Csv,
            _ => Format::Lines,
        }
    }
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The line it starts on, from 1; in CSV, empty lines before it count as its own.
    pub(crate) line: u64,
    /// Its fields; at least one.
    pub(crate) fields: Vec<Vec<u8>>,
}

/// Why a record could not be had.
#[derive(Debug)]
pub(crate) enum RecordError {
    /// This record is bad; the next one may be good.
    Bad { line: u64, reason: String },
    /// The file cannot be read any further.
    Io(io::Error),
}

/// Reads records one after the other.
pub(crate) enum Records<R: Read> {
    Text { input: BufReader<R>, line: u64, separator: Option<u8> },
    Csv { input: Box<csv::Reader<BufReader<R>>> },
}

impl<R: Read> Records<R> {
    pub(crate) fn new(input: R, format: Format) -> Self {
        let input = BufReader::with_capacity(256 << 10, input);
        match format {
            Format::Lines => Records::Text { input, line: 0, separator: None },
            Format::Tsv => Records::Text { input, line: 0, separator: Some(b'\t') },
            Format::Csv => {
                let mut builder = csv::ReaderBuilder::new();
                let input = builder.has_headers(false).flexible(true).from_reader(input);
                Records::Csv { input: Box::new(input) }
            }
        }
    }
}

impl<R: Read> Iterator for Records<R> {
    type Item = Result<Record, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Records::Text { input, line, separator } => {
                let mut text = Vec::new();
                match input.read_until(b'\n', &mut text) {
                    Ok(0) => return None,
                    Ok(_) => *line += 1,
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
                Some(Ok(Record { line: *line, fields }))
            }
            Records::Csv { input } => {
                let mut record = csv::ByteRecord::new();
                match input.read_byte_record(&mut record) {
                    Ok(false) => None,
                    Ok(true) => {
                        let line = record.position().map_or(0, csv::Position::line);
                        Some(Ok(Record { line, fields: record.iter().map(<[u8]>::to_vec).collect() }))
                    }
                    Err(error) => {
                        let line = error.position().map_or(0, csv::Position::line);
                        Some(Err(match error.into_kind() {
                            csv::ErrorKind::Io(error) => RecordError::Io(error),
                            other => RecordError::Bad { line, reason: format!("{other:?}") },
                        }))
                    }
                }
            }
        }
    }
}

/// The input, unpacked if it is gzip (known by its first two bytes).
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
    fn gzip_is_unpacked_and_anything_else_left_alone() {
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
