//! The `tamis` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    tamis_cli::program()
}
