//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Rates and speeds of tamis's filters, compared with theory and other crates. For tables and figures of papers, see
/// `tamis-lab experiment`.
#[derive(Clone, Debug, Parser)]
#[command(name = "filter-bench", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// The command.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// False-positive rates and times of all filters over real and synthetic keys
    Table(crate::table::Options),
    /// Times compared with filters of other crates
    Peers(crate::peers::Options),
    /// How to get larger real key sets than the included samples
    FetchKeys,
}

/// Options of all measurements.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// Rounds of every timing; sides are interleaved in each
    #[arg(long, default_value_t = 5, value_parser = at_least::<1>)]
    pub rounds: usize,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write all numbers as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the tables as Markdown
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Write plots as SVG
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,
}

/// Parses a number of rounds or repetitions.
pub(crate) fn at_least<const LEAST: usize>(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if n >= LEAST => Ok(n),
        _ => Err(format!("expected a whole number of at least {LEAST}")),
    }
}

/// Parses bits per key.
pub(crate) fn parse_bits(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(bits) if bits > 0.0 && bits <= 64.0 => Ok(bits),
        _ => Err("bits per key must be a number above 0, up to 64".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split(' '))
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn lists_are_split_and_checked() {
        let Command::Table(options) =
            parse("filter-bench table --bits 8,10.5 --ranges 1,64").unwrap().command
        else {
            panic!("not a table");
        };
        assert_eq!(options.bits, [8.0, 10.5]);
        assert_eq!(options.ranges, [1, 64]);
        assert!(parse("filter-bench table --kind blocked-bloom,ranges --key-set cells,words").is_ok());
        for wrong in [
            "--bits 0",
            "--bits 65",
            "--bits x",
            "--kind nothing",
            "--key-set moon",
            "--rounds 0",
            "--only all",
        ] {
            assert!(parse(&format!("filter-bench table {wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_command_has_defaults() {
        for command in ["table", "peers", "fetch-keys"] {
            assert!(parse(&format!("filter-bench {command}")).is_ok(), "{command}");
        }
    }
}
