//! Failures of the program, and its exit codes.

use std::fmt;
use std::process::ExitCode;

/// The reason why the program failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A system returned a wrong answer: exit code 1. None of its measurements count.
    WrongAnswer(String),
    /// Bad arguments or input: exit code 2.
    Usage(String),
    /// A system or the machine failed: exit code 3.
    System(String),
}

impl Failure {
    /// Returns the process's exit code.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::WrongAnswer(_) => 1,
            Failure::Usage(_) => 2,
            Failure::System(_) => 3,
        })
    }

    /// Returns the failure of an operation on a file.
    pub(crate) fn file(operation: &str, path: &std::path::Path, error: &std::io::Error) -> Failure {
        Failure::System(format!("could not {operation} {}: {error}", path.display()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::WrongAnswer(text) | Failure::Usage(text) | Failure::System(text) => f.write_str(text),
        }
    }
}
