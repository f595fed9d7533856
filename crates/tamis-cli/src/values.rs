//! Arguments that more than one program takes: options of the database, numbers of threads and of bytes.

use clap::Args;
use tamis::Options;

use crate::failure::Failure;

/// Options of the database by their names.
#[derive(Args, Clone, Debug, Default)]
pub struct OptionArgs {
    /// Set an option of the database by its name, as `tamis options` lists them; may be repeated
    #[arg(short = 'o', long = "option", value_name = "NAME=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
}

impl OptionArgs {
    /// Sets the options in the order they were given.
    ///
    /// # Errors
    ///
    /// There is no such option, or it does not take the value.
    pub fn apply(&self, options: &mut Options) -> Result<(), Failure> {
        for (name, value) in &self.set {
            options.set(name, value)?;
        }
        Ok(())
    }
}

/// A name and a value with `=` between, blanks around them left out.
///
/// # Errors
///
/// There is no `=`, or no name before it.
pub fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("expected NAME=VALUE, for example keyspace.bits_per_key=12".to_owned()),
    }
}

/// How many threads: 1 to 1024.
///
/// # Errors
///
/// It is none of these numbers.
pub fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads @ 1..=1024) => Ok(threads),
        _ => Err("expected a number from 1 to 1024".to_owned()),
    }
}

/// A number of bytes, as the option `cache_bytes` takes it.
///
/// # Errors
///
/// The option refuses it.
pub fn bytes(text: &str) -> Result<u64, String> {
    let mut options = Options::default();
    options.set("cache_bytes", text).map_err(|error| error.to_string())?;
    Ok(options.cache_bytes)
}
