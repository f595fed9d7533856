//! The outcomes of a subcommand and their exit codes.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use tamis_bench::BenchError;

/// The outcome of a subcommand that ran to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Exit code 0.
    Done,
    /// Something was not found, or a check failed: exit code 1. Already reported.
    Negative,
    /// Some of the input was bad, the rest was used: exit code 2. Already reported.
    BadInput,
}

impl Outcome {
    /// Returns the exit code of the program.
    pub fn exit_code(self) -> ExitCode {
        ExitCode::from(match self {
            Outcome::Done => 0,
            Outcome::Negative => 1,
            Outcome::BadInput => 2,
        })
    }
}

/// The failure of a subcommand that ended early.
#[derive(Debug)]
pub enum Failure {
    /// The reader of the output has closed it: silent, exit code 0.
    BrokenPipe,
    /// Something is wrong with the data: exit code 1.
    Problem(String),
    /// Wrong arguments or input: exit code 2.
    Usage(String),
    /// The database or the system failed: exit code 3.
    Database(String),
}

impl Failure {
    /// Returns the exit code of the program.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::BrokenPipe => 0,
            Failure::Problem(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Database(_) => 3,
        })
    }

    /// Returns the same failure with `more` added on a line of its own.
    pub fn with(self, more: &str) -> Failure {
        let more = |message: String| format!("{message}\n{more}");
        match self {
            Failure::BrokenPipe => Failure::BrokenPipe,
            Failure::Problem(message) => Failure::Problem(more(message)),
            Failure::Usage(message) => Failure::Usage(more(message)),
            Failure::Database(message) => Failure::Database(more(message)),
        }
    }

    /// Returns the failure of a command that reads a database where none is.
    pub fn missing(dir: &Path) -> Failure {
        let has_files = fs::read_dir(dir).is_ok_and(|mut files| files.next().is_some());
        let dir = dir.display();
        Failure::usage(match has_files {
            true => format!("there is no database in {dir}, which has other files"),
            false => format!("there is no database in {dir}; `tamis put`, `load` and `import` create one"),
        })
    }

    /// Returns a failure for wrong arguments or input.
    pub fn usage(message: impl fmt::Display) -> Failure {
        Failure::Usage(message.to_string())
    }

    /// Returns a failure of the database or the system.
    pub fn database(message: impl fmt::Display) -> Failure {
        Failure::Database(message.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::BrokenPipe => f.write_str("the reader of the output has closed it"),
            Failure::Problem(message) | Failure::Usage(message) | Failure::Database(message) => {
                f.write_str(message)
            }
        }
    }
}

/// For writes to standard output; errors of other files are converted where they occur.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
            _ => Failure::Database(format!("could not write the output: {error}")),
        }
    }
}

impl From<tamis::OptionsError> for Failure {
    fn from(error: tamis::OptionsError) -> Failure {
        Failure::usage(error)
    }
}

impl From<tamis::OpenError> for Failure {
    fn from(error: tamis::OpenError) -> Failure {
        match error {
            tamis::OpenError::Options(error) => error.into(),
            // The library speaks of an option; here a command does that.
            tamis::OpenError::NotFound { path } => Failure::missing(&path),
            tamis::OpenError::NotEmpty { path, found } => Failure::usage(format!(
                "there is no database in {}, and none is created among {found}; choose an empty directory, or give \
                 `-o create_among_others=true`",
                path.display()
            )),
            error @ (tamis::OpenError::Exists { .. } | tamis::OpenError::Foreign { .. }) => {
                Failure::usage(error)
            }
            other => Failure::database(other),
        }
    }
}

impl From<tamis::WriteError> for Failure {
    fn from(error: tamis::WriteError) -> Failure {
        use tamis::WriteError::{KeyTooLong, ReversedRange, Unregistered, ValueTooLong};
        match error {
            KeyTooLong { .. } | ValueTooLong { .. } | ReversedRange | Unregistered { .. } => {
                Failure::usage(error)
            }
            other => Failure::database(other),
        }
    }
}

impl From<tamis::ReadError> for Failure {
    fn from(error: tamis::ReadError) -> Failure {
        Failure::database(error)
    }
}

impl From<tamis::AdminError> for Failure {
    fn from(error: tamis::AdminError) -> Failure {
        match error {
            tamis::AdminError::TargetExists { .. }
            | tamis::AdminError::KeyspaceExists { .. }
            | tamis::AdminError::BadName { .. }
            | tamis::AdminError::DefaultKeyspace
            | tamis::AdminError::Unregistered { .. } => Failure::usage(error),
            tamis::AdminError::NoKeyspace { .. } => Failure::usage(format!(
                "{error}; `tamis keyspaces list` shows them, `tamis keyspaces create` makes one"
            )),
            tamis::AdminError::Write(error) => error.into(),
            tamis::AdminError::External(error) => error.into(),
            tamis::AdminError::Options(error) => error.into(),
            other => Failure::database(other),
        }
    }
}

/// An invalid table is wrong input.
impl From<tamis::ExternalTableError> for Failure {
    fn from(error: tamis::ExternalTableError) -> Failure {
        use std::io::ErrorKind::NotFound;
        use tamis::{ExternalTableError::Storage, StorageError::Io};
        match error {
            Storage(Io(failure)) if failure.kind() == NotFound => Failure::usage(failure),
            Storage(error) => Failure::database(error),
            other => Failure::usage(other),
        }
    }
}

impl From<tamis::Error> for Failure {
    fn from(error: tamis::Error) -> Failure {
        match error {
            tamis::Error::Open(error) => error.into(),
            tamis::Error::Write(error) => error.into(),
            tamis::Error::Admin(error) => error.into(),
            tamis::Error::Options(error) => error.into(),
            tamis::Error::External(error) => error.into(),
            other => Failure::database(other),
        }
    }
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Failure {
        match error {
            BenchError::Database(error) => error.into(),
            BenchError::Keys(_) | BenchError::Request(_) => Failure::usage(error),
            BenchError::WrongAnswer { .. } | BenchError::Store { .. } => Failure::Problem(error.to_string()),
            BenchError::Io { .. } => Failure::usage(error),
        }
    }
}
