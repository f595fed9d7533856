//! Input records of keys and values, from a file or standard input, as used by several subcommands.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, Read};
use std::path::PathBuf;

use clap::Args;
use tamis::MAX_KEY_BYTES;
use tamis::io::DiskFs;
use tamis_doctor::inspect::{self, Contents};

use tamis_show::numbers::counted;

use crate::failure::Failure;
use crate::records::{Format, Record, RecordError, Records, unpacked};
use crate::text::decode_hex;

/// The input file, and which of its fields are keys and values.
#[derive(Args, Clone, Debug)]
pub(crate) struct InputArgs {
    /// The file; `-` is standard input
    #[arg(default_value = "-")]
    file: PathBuf,
    /// The record format [default: by the file's name: .tsv, .csv, otherwise lines]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// The column of the key: a number from 1 or, with --header, a name
    #[arg(long, value_name = "COLUMN", default_value = "1")]
    key_column: String,
    /// The column of the value [default: all columns but the key's, separated by tabs]
    #[arg(long, value_name = "COLUMN")]
    value_column: Option<String>,
    /// The first record names the columns
    #[arg(long)]
    header: bool,
    /// Keys and values are hexadecimal (except values of several columns)
    #[arg(long)]
    hex: bool,
}

impl InputArgs {
    /// Returns the records, starting at the first one with data, and the columns to use.
    pub(crate) fn open(&self) -> Result<(Records<Box<dyn BufRead>>, Columns), Failure> {
        let input: Box<dyn Read> = if self.file.as_os_str() == OsStr::new("-") {
            Box::new(std::io::stdin().lock())
        } else {
            let file = File::open(&self.file).map_err(|e| self.unreadable(e))?;
            self.refuse_database_files()?;
            Box::new(file)
        };
        let input = unpacked(input, self.file.to_str()).map_err(|e| self.unreadable(e))?;
        let named = || Format::of_name(&self.file.to_string_lossy());
        let mut records = Records::new(input, self.format.unwrap_or_else(named));
        let columns = Columns::choose(self, &mut records)?;
        Ok((records, columns))
    }

    /// Rejects database files: any bytes could be read as lines, but these are surely a mistake.
    fn refuse_database_files(&self) -> Result<(), Failure> {
        let what = match inspect::identify(&DiskFs::default(), &self.file) {
            Ok(Contents::ExternalTable) => "an external table; `tamis ingest` takes it".to_owned(),
            Ok(
                held @ (Contents::Table | Contents::FilterImages | Contents::Log(_) | Contents::Manifest(_)),
            ) => {
                format!("{held} of a database, not a file of records")
            }
            _ => return Ok(()),
        };
        Err(Failure::usage(format!("{} is {what}", self.file.display())))
    }

    pub(crate) fn unreadable(&self, error: std::io::Error) -> Failure {
        Failure::usage(format!("could not read {}: {error}", self.file.display()))
    }
}

/// The positions of the key and value fields of a record, from 0, and what every record must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Columns {
    key: usize,
    value: Option<usize>,
    hex: bool,
    /// The number of columns in the header.
    named: Option<usize>,
    /// Whether the first record without a header has a value: all columns but the key's.
    has_values: Option<bool>,
}

impl Columns {
    /// Chooses the columns from the arguments and the header, if there is one, which is read here.
    fn choose<R: Read>(args: &InputArgs, records: &mut Records<R>) -> Result<Columns, Failure> {
        let header = match args.header.then(|| records.next()).flatten() {
            None => None,
            Some(Ok(header)) => Some(header.fields),
            Some(Err(RecordError::Bad { reason, .. })) => {
                return Err(Failure::usage(format!("the header cannot be read: {reason}")));
            }
            Some(Err(RecordError::Io(error))) => return Err(args.unreadable(error)),
        };
        if args.header && header.is_none() {
            return Err(Failure::usage("the input is empty: it has no header"));
        }
        let key = position(&args.key_column, header.as_deref())?;
        let value = args.value_column.as_deref().map(|column| position(column, header.as_deref()));
        let named = header.as_ref().map(Vec::len);
        Ok(Columns { key, value: value.transpose()?, hex: args.hex, named, has_values: None })
    }

    /// Returns the key and value of a record, or a description of what is wrong with it.
    pub(crate) fn entry(&mut self, record: Record) -> Result<(Vec<u8>, Vec<u8>), String> {
        let mut fields = record.fields;
        let found = fields.len();
        let columns = |count: usize| counted(count as u64, "columns");
        let missing =
            |column: usize| format!("there is no column {}: the record has {}", column + 1, columns(found));
        // A value of several columns may have tabs of its own, so there may be more.
        if let Some(named) = self.named.filter(|named| found < *named) {
            return Err(format!("the record has {}, the header {named}", columns(found)));
        }
        // The first record decides whether there are values.
        let has_values = *self.has_values.get_or_insert(found > 1);
        if self.value.is_none() && has_values && found == 1 {
            return Err("the record has no value: only one column, and the first had more".to_owned());
        }
        let value = match self.value {
            Some(column) => self.decoded(fields.get(column).ok_or_else(|| missing(column))?.clone())?,
            None => Vec::new(),
        };
        if self.key >= found {
            return Err(missing(self.key));
        }
        let key = self.decoded(fields.remove(self.key))?;
        if key.len() > MAX_KEY_BYTES {
            return Err(format!("a key of {} bytes is too long: the maximum is {MAX_KEY_BYTES}", key.len()));
        }
        let value = match self.value {
            Some(_) => value,
            None if fields.len() == 1 => self.decoded(fields.remove(0))?,
            None => fields.join(&b'\t'),
        };
        Ok((key, value))
    }

    fn decoded(&self, field: Vec<u8>) -> Result<Vec<u8>, String> {
        if self.hex { decode_hex(&field) } else { Ok(field) }
    }
}

/// Returns a column's position, by its name in the header or its number from 1.
fn position(column: &str, header: Option<&[Vec<u8>]>) -> Result<usize, Failure> {
    let named = header.and_then(|names| names.iter().position(|name| name == column.as_bytes()));
    let numbered = || column.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    named.or_else(numbered).ok_or_else(|| {
        Failure::usage(match header {
            None => format!("`{column}` is not a column: give a number from 1, or use --header for names"),
            Some(names) => {
                let names: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
                format!("there is no column `{column}`; there are {}", names.join(", "))
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(fields: &[&str]) -> Record {
        Record { line: 1, fields: fields.iter().map(|f| f.as_bytes().to_vec()).collect() }
    }

    fn entry(
        key: usize,
        value: Option<usize>,
        hex: bool,
        fields: &[&str],
    ) -> Result<(String, String), String> {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let mut columns = Columns { key, value, hex, named: None, has_values: None };
        columns.entry(record(fields)).map(|(k, v)| (text(k), text(v)))
    }

    #[test]
    fn key_and_value_come_from_their_columns() {
        let pair = |k: &str, v: &str| Ok((k.to_owned(), v.to_owned()));
        assert_eq!(entry(0, None, false, &["a"]), pair("a", ""));
        assert_eq!(entry(0, None, false, &["a", "b", "c"]), pair("a", "b\tc"));
        assert_eq!(entry(1, None, false, &["a", "b", "c"]), pair("b", "a\tc"));
        assert_eq!(entry(1, Some(0), false, &["a", "b", "c"]), pair("b", "a"));
        assert_eq!(entry(0, Some(0), false, &["a"]), pair("a", "a"));
        assert_eq!(entry(0, None, true, &["61", "6263"]), pair("a", "bc"));
    }

    #[test]
    fn bad_records_are_described() {
        assert!(
            entry(2, None, false, &["a", "b"]).unwrap_err().contains("no column 3: the record has 2 columns")
        );
        assert!(entry(0, Some(5), false, &["a"]).unwrap_err().contains("column 6"));
        assert!(entry(0, None, true, &["6x"]).unwrap_err().contains("hexadecimal"));
        let long = "k".repeat(MAX_KEY_BYTES + 1);
        assert!(entry(0, None, false, &[&long]).unwrap_err().contains("too long"));
    }

    /// They were loaded with empty values, and the summary said "0 bad".
    #[test]
    fn a_record_without_one_of_the_columns_is_bad() {
        let named = Columns { key: 0, value: None, hex: false, named: Some(2), has_values: None };
        assert!({ named }.entry(record(&["a"])).unwrap_err().contains("1 column, the header 2"));
        assert!({ named }.entry(record(&["a", "b", "c"])).is_ok());
        let mut unnamed = Columns { named: None, ..named };
        assert!(unnamed.entry(record(&["a", "b"])).is_ok());
        assert!(unnamed.entry(record(&["c"])).unwrap_err().contains("no value"));
        let mut keys = Columns { named: None, ..named };
        assert!(keys.entry(record(&["a"])).is_ok() && keys.entry(record(&["b"])).is_ok());
    }

    #[test]
    fn columns_are_found_by_name_or_number() {
        let header = [b"id".to_vec(), b"2".to_vec(), b"name".to_vec()];
        assert_eq!(position("name", Some(&header)).unwrap(), 2);
        assert_eq!(position("2", Some(&header)).unwrap(), 1);
        assert_eq!(position("3", Some(&header)).unwrap(), 2);
        assert_eq!(position("3", None).unwrap(), 2);
        for (column, header) in [("0", None), ("name", None), ("email", Some(&header[..]))] {
            assert!(matches!(position(column, header), Err(Failure::Usage(_))), "{column}");
        }
    }
}
