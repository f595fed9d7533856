//! The conformance script over the Rust interface. `../../conformance/README.md` has the grammar.
//!
//! In Rust, `close` takes the handle. [`Database`] is what the bindings have instead, and so has this runner.

mod conformance {
    pub(crate) mod machine;
    pub(crate) mod script;
}

use std::path::{Path, PathBuf};

use conformance::machine::Machine;
use conformance::script::{Line, parse};

fn scripts() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance");
    let files =
        std::fs::read_dir(dir).expect("the script's directory").map(|entry| entry.expect("a file").path());
    let mut scripts: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|e| e == "txt")).collect();
    scripts.sort();
    scripts
}

/// Runs one file and returns its number of tests, and what failed.
fn run(text: &str) -> (usize, Vec<String>) {
    let (mut tests, mut failed) = (0, Vec::new());
    let mut machine: Option<(String, tempfile::TempDir, Machine)> = None;
    for (number, line) in text.lines().enumerate().map(|(i, line)| (i + 1, line)) {
        match parse(line) {
            Line::Blank => {}
            Line::Test(name) => {
                tests += 1;
                drop(machine.take());
                let dir = tempfile::tempdir().expect("a directory");
                machine = Some((name, dir, Machine::default()));
            }
            Line::Command { command, arguments, expected } => {
                let (test, dir, machine) = machine.as_mut().expect("a test before commands");
                let answer = machine.execute(dir.path(), &command, &arguments);
                if !expected.is_met(&answer) {
                    failed.push(format!("{number} ({test}): {line:.120}\n    answered {answer}"));
                }
            }
        }
    }
    (tests, failed)
}

#[test]
fn the_rust_interface_answers_as_the_script_says() {
    let mut tests = 0;
    let mut failed = Vec::new();
    for path in scripts() {
        let text = std::fs::read_to_string(&path).expect("a script");
        let (of_file, wrong) = run(&text);
        tests += of_file;
        failed.extend(wrong.into_iter().map(|wrong| format!("{}:{wrong}", path.display())));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(tests >= 40, "{tests} tests: where are the others?");
}

#[test]
fn wrong_answers_are_noticed() {
    let script = "test wrong\nopen db \"data\"\nput db \"k\" \"v\"\n";
    for wrong in [
        "get db \"k\" => \"w\"",
        "get db \"k\" => none",
        "get db \"k\" => error closed",
        "get db \"l\" => any \"extra\"",
        "contains db \"k\" => false",
        "scan db - - => list",
        "scan db - - => list \"k\" \"v\" \"l\" \"w\"",
        "increment db \"n\" 1 => 2",
        "open db \"data\" colour red => error io",
    ] {
        assert_eq!(run(&format!("{script}{wrong}\n")).1.len(), 1, "{wrong}");
    }
}
