//! The code shared by all command-line programs of the project: printing ([`output`]), progress reports ([`progress`]),
//! exit codes ([`failure`], [`end`]), and common arguments ([`values`]).
//!
//! The program `tamis` adds its subcommands; the laboratory's programs (`lab/`) use this library as well.

pub mod failure;
pub mod output;
pub mod progress;
pub mod values;

use std::io::Write;
use std::process::ExitCode;

use crate::failure::{Failure, Outcome};
use crate::output::Out;

/// Ends a program: writes buffered output and reports a failure on standard error, prefixed with the program's name.
pub fn end(program: &str, mut out: Out, result: Result<Outcome, Failure>) -> ExitCode {
    let result = result.and_then(|outcome| {
        out.flush()?;
        Ok(outcome)
    });
    match result {
        Ok(outcome) => outcome.exit_code(),
        // The reader of the output has had enough: not a failure.
        Err(Failure::BrokenPipe) => ExitCode::SUCCESS,
        Err(failure) => {
            // Earlier output goes before the failure's message. There is nowhere left to report a failure of these
            // two writes.
            let _ = out.flush();
            let _ = writeln!(std::io::stderr(), "{program}: {failure}");
            failure.exit_code()
        }
    }
}
