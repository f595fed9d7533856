//! Arguments shared by several programs: database options, numbers of threads and of bytes.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use tamis::{Db, Options};
use tamis_advisor::Advisor;
use tamis_metrics::Publisher;

use crate::complete;
use crate::failure::Failure;

/// Options of the database by name.
#[derive(Args, Clone, Debug, Default)]
pub struct OptionArgs {
    /// Set a database option by name (see `tamis options`); may be repeated
    #[arg(short = 'o', long = "option", value_name = "NAME=VALUE", value_parser = assignment, add = ArgValueCompleter::new(complete::options))]
    pub set: Vec<(String, String)>,
}

/// The prefix of options of a keyspace.
pub const KEYSPACE_PREFIX: &str = "keyspace.";

impl OptionArgs {
    /// Separates the options of a keyspace, without their prefix, from those of the database.
    pub fn split(&self) -> (OptionArgs, Vec<(String, String)>) {
        let (mut set, mut own) = (Vec::new(), Vec::new());
        for (name, value) in &self.set {
            match name.strip_prefix(KEYSPACE_PREFIX) {
                Some(name) => own.push((name.to_owned(), value.clone())),
                None => set.push((name.clone(), value.clone())),
            }
        }
        (OptionArgs { set }, own)
    }

    /// Sets the options in the order in which they were given.
    ///
    /// # Errors
    ///
    /// Fails if there is no such option or the value is invalid.
    pub fn apply(&self, options: &mut Options) -> Result<(), Failure> {
        for (name, value) in &self.set {
            options.set(name, value)?;
        }
        if options.auto_memory_bytes > 0 {
            options.tuner = Some(Arc::new(Advisor::default()));
        }
        Ok(())
    }
}

/// What a command that writes tells others of its work.
#[derive(Args, Clone, Debug, Default)]
pub struct PublishArgs {
    /// Publish the metrics so often, like `1s`, for `tamis top` and `tamis serve`
    #[arg(long, value_name = "INTERVAL", value_parser = interval)]
    pub publish: Option<Duration>,
}

impl PublishArgs {
    /// Publishes the metrics of a database until the publisher is dropped, if that was asked for.
    ///
    /// # Errors
    ///
    /// As [`Publisher::start`].
    pub fn start(&self, db: &Db) -> Result<Option<Publisher>, Failure> {
        Ok(self.publish.map(|interval| Publisher::start(db, interval)).transpose()?)
    }
}

/// Parses a time in the form of the option `changes_keep_time`.
fn interval(text: &str) -> Result<Duration, String> {
    let mut options = Options::default();
    options.set("changes_keep_time", text).map_err(|error| error.to_string())?;
    options.changes_keep_time.ok_or_else(|| "expected a time, for example 1s".to_owned())
}

/// The filter of a database that a command may create.
#[derive(Args, Clone, Debug, Default)]
pub struct FilterArgs {
    /// The filter of a new keyspace, or of an existing one's new tables, as `-o
    /// keyspace.filter=NAMES`: blocked-bloom, ribbon, elastic, grf, auto, … (`tamis options filter`
    /// describes all); one for all levels or one per level, separated by commas
    #[arg(long, value_name = "NAMES", add = ArgValueCompleter::new(complete::filters))]
    pub filter: Option<String>,
}

impl FilterArgs {
    /// Returns the options with the filter added.
    pub fn among(&self, options: &OptionArgs) -> OptionArgs {
        let mut options = options.clone();
        let filter = self.filter.iter().map(|filter| (format!("{KEYSPACE_PREFIX}filter"), filter.clone()));
        options.set.extend(filter);
        options
    }
}

/// Parses `NAME=VALUE`, trimming blanks around both.
///
/// # Errors
///
/// Fails if there is no `=` or no name before it.
pub fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("expected NAME=VALUE, for example keyspace.bits_per_key=12".to_owned()),
    }
}

/// Parses a number of threads, 1 to 1024.
///
/// # Errors
///
/// Fails for anything else.
pub fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads @ 1..=1024) => Ok(threads),
        _ => Err("expected a number from 1 to 1024".to_owned()),
    }
}

/// Parses a number of bytes in the form of the option `cache_bytes`.
///
/// # Errors
///
/// Fails if the option would reject it.
pub fn bytes(text: &str) -> Result<u64, String> {
    let mut options = Options::default();
    options.set("cache_bytes", text).map_err(|error| error.to_string())?;
    Ok(options.cache_bytes)
}

/// Parses a whole number, written out or with an exponent of ten: `50000000`, `5e7`, `2.5e9`.
///
/// # Errors
///
/// Fails for anything else, and from 2^64 on.
pub fn count(text: &str) -> Result<u64, String> {
    let wrong = || "expected a whole number, for example 50000000, 5e7 or 2.5e9".to_owned();
    let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let has_form = is_digits(whole) && is_digits(part) && is_digits(exponent);
    if !has_form || whole.is_empty() || number.ends_with('.') {
        return Err(wrong());
    }
    // Zeros at its end say nothing: 1.50e1 is 15.
    let part = part.trim_end_matches('0');
    let exponent: u32 = exponent.parse().map_err(|_| wrong())?;
    let zeros = exponent.checked_sub(part.len() as u32).ok_or_else(wrong)?;
    let digits: u64 = format!("{whole}{part}").parse().map_err(|_| wrong())?;
    match digits {
        0 => Ok(0),
        _ => 10_u64.checked_pow(zeros).and_then(|power| digits.checked_mul(power)).ok_or_else(wrong),
    }
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn numbers_are_written_out_or_with_an_exponent() {
        for (text, number) in [
            ("0", 0),
            ("50000000", 50_000_000),
            ("1e9", 1_000_000_000),
            ("1E11", 100_000_000_000),
            ("2.5e9", 2_500_000_000),
            ("1.50e1", 15),
            ("007e0", 7),
            ("0e30", 0),
            ("18446744073709551615", u64::MAX),
            ("1.8446744073709551615e19", u64::MAX),
        ] {
            assert_eq!(count(text), Ok(number), "{text}");
        }
    }

    #[test]
    fn numbers_that_are_not_whole_or_too_large_are_rejected() {
        for text in [
            "",
            "e",
            "e9",
            "1e",
            ".5e1",
            "5.",
            "5.e1",
            "1.5",
            "1.25e1",
            "-1",
            "+1",
            "1e-3",
            "1e+3",
            " 1",
            "1 ",
            "1e9e9",
            "1.2.3",
            "0x10",
            "1_000",
            "inf",
            "NaN",
            "18446744073709551616",
            "1e20",
            "1e99999999999",
            "１",
        ] {
            assert!(count(text).is_err(), "{text}");
        }
    }
}
