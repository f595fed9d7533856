//! Running the built program on a database of its own.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

pub(crate) fn tamis() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tamis"))
}

/// A database directory that is removed with the test.
pub(crate) struct Place {
    root: TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place { root: tempfile::tempdir().expect("a temporary directory") }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.root.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    pub(crate) fn db(&self) -> String {
        self.path("db")
    }

    /// Runs a subcommand on the database.
    pub(crate) fn run(&self, subcommand: &str, args: &[&str]) -> Ran {
        self.run_with_input(subcommand, args, b"")
    }

    pub(crate) fn run_with_input(&self, subcommand: &str, args: &[&str], input: &[u8]) -> Ran {
        let mut command = tamis();
        command.arg(subcommand).args(["--db", &self.db()]).args(args);
        run(command, input)
    }
}

#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs a command to its end.
pub(crate) fn run(mut command: Command, input: &[u8]) -> Ran {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    // A program that rejects its arguments may have exited without reading anything.
    match child.stdin.take().expect("a pipe").write_all(input) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            panic!("the program takes its input: {error}")
        }
        _ => {}
    }
    let Output { status, stdout, stderr } = child.wait_with_output().expect("the program ends");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8 output");
    Ran { code: status.code(), out: text(stdout), err: text(stderr) }
}

impl Ran {
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    #[track_caller]
    pub(crate) fn fails(self, code: i32, part: &str) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.err.contains(part), "{part:?} not in {self:?}");
        assert!(!self.err.contains("panicked"), "{self:?}");
    }
}
