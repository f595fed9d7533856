//! `tamis backup` in a build that has no object storage: says which build has it.

use std::ffi::OsString;

use clap::Args;

use crate::failure::{Failure, Outcome};

/// Back up to object storage, and restore (needs a build with the feature object-store)
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct NoBackupArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS", hide = true)]
    _words: Vec<OsString>,
}

pub(crate) fn run(_args: &NoBackupArgs) -> Result<Outcome, Failure> {
    Err(Failure::usage(
        "this build has no object storage, on which backups are; in a checkout of tamis:\n  \
         cargo install --path crates/tamis-cli --features object-store\n\
         `tamis checkpoint` makes a copy on the same machine without it",
    ))
}
