//! What every program of the project has in common on the command line: how it prints ([`output`]), tells of its progress
//! ([`progress`]) and ends ([`failure`], [`end`]), and the arguments that several of them take ([`values`]).
//!
//! The program `tamis` is made of this and of its subcommands. The laboratory's programs (`lab/`) use it as well.

pub mod failure;
pub mod output;
pub mod progress;
pub mod values;

use std::io::Write;
use std::process::ExitCode;

use crate::failure::{Failure, Outcome};
use crate::output::Out;

/// Ends a program: what is left of the output is written, a failure is told on the standard error after the program's name.
pub fn end(program: &str, mut out: Out, result: Result<Outcome, Failure>) -> ExitCode {
    let result = result.and_then(|outcome| {
        out.flush()?;
        Ok(outcome)
    });
    match result {
        Ok(outcome) => outcome.exit_code(),
        // Whoever read the output has enough: that is no failure.
        Err(Failure::BrokenPipe) => ExitCode::SUCCESS,
        Err(failure) => {
            // What was printed before the failure belongs before its message. Nothing is left to report a
            // failure of these two to.
            let _ = out.flush();
            let _ = writeln!(std::io::stderr(), "{program}: {failure}");
            failure.exit_code()
        }
    }
}
