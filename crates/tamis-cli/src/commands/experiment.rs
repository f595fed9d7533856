//! `tamis experiment`: points to the program that measures the papers' tables and figures.

use std::ffi::OsString;

use clap::Args;

use crate::failure::{Failure, Outcome};

/// Name the program that measures the papers' tables and figures
#[derive(Args)]
#[command(hide = true, disable_help_flag = true)]
pub(crate) struct ExperimentArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    words: Vec<OsString>,
}

pub(crate) fn run(args: &ExperimentArgs) -> Result<Outcome, Failure> {
    let words = args.words.iter().map(|word| format!(" {}", word.to_string_lossy())).collect::<String>();
    Err(Failure::usage(format!(
        "the papers' experiments are in a separate program, tamis-lab; in a checkout of tamis:\n  \
         cargo run --release --manifest-path lab/Cargo.toml -- experiment{}",
        if words.is_empty() { " list" } else { &words }
    )))
}
