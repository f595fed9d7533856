//! Arguments shared by several programs: database options, numbers of threads and of bytes.

use std::sync::Arc;

use clap::Args;
use tamis::Options;
use tamis_advisor::Advisor;

use crate::failure::Failure;

/// Options of the database by name.
#[derive(Args, Clone, Debug, Default)]
pub struct OptionArgs {
    /// Set a database option by name (see `tamis options`); may be repeated
    #[arg(short = 'o', long = "option", value_name = "NAME=VALUE", value_parser = assignment)]
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

/// The filter of a database that a command may create.
#[derive(Args, Clone, Debug, Default)]
pub struct FilterArgs {
    /// The filter of a new keyspace, or of an existing one's new tables, as `-o keyspace.filter=NAMES`: blocked-bloom, ribbon,
    /// elastic, grf, auto, … (`tamis options filter` describes all); one for all levels or one per level, separated by commas
    #[arg(long, value_name = "NAMES")]
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
