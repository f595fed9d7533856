//! Tests as scripts: files in which commands stand beside the output that is expected of them.
//!
//! A script is a text file that people read who do not read the test's code:
//!
//! ```text
//! # Lines between cases that start with a number sign are comments.
//!
//! put key=a
//! the value, which may
//! take several lines
//! ----
//! ok
//! ```
//!
//! A *case* is a line with a command and its arguments, any number of input lines, a line `----`,
//! and the expected output up to a blank line. An output that has blank lines itself is enclosed in
//! two lines `----` on each side. This is the format of CockroachDB's `datadriven`, in which
//! Pebble's tests are written.
//!
//! [`run`] passes each case to a function and compares the text that it returns. With the
//! environment variable `UPDATE_SCRIPTS` it writes that text into the file instead, to be judged as
//! a change of the file. One function runs all cases of a file in order, so cases may build on
//! those before them.

use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::{env, fs};

/// A case of a script, without its expected output.
#[derive(Clone, Debug)]
pub struct Case<'a> {
    /// The first word of the case.
    pub command: &'a str,
    /// The other words of the first line.
    pub args: Vec<&'a str>,
    /// The lines between the first line and `----`.
    pub input: Vec<&'a str>,
    /// The number of the first line, from 1.
    pub line: usize,
}

/// Runs a script: executes every case and compares the output, in which spaces at the ends of lines
/// do not count. With the environment variable `UPDATE_SCRIPTS` it rewrites the expected outputs
/// instead.
///
/// ```
/// # let path = std::env::temp_dir().join(format!("sum-{}.txt", std::process::id()));
/// # std::fs::write(&path, "# Adds numbers.\n\nsum\n1 2\n3\n----\n6\n")?;
/// use tamis_testkit::script;
///
/// script::run(&path, |case| match case.command {
///     "sum" => {
///         let numbers = case.input.iter().flat_map(|line| line.split_whitespace());
///         numbers.map(|number| number.parse::<u64>().expect("a number")).sum::<u64>().to_string()
///     }
///     other => panic!("no command `{other}`"),
/// });
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Panics
///
/// If an output differs (after the last case, with all differences), if `execute` panics, or if the
/// file is not a script: it cannot be read, a case has no `----`, or there is no case.
pub fn run(path: impl AsRef<Path>, mut execute: impl FnMut(&Case<'_>) -> String) {
    let (path, name) = (path.as_ref(), path.as_ref().display());
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{name}: {error}"));
    let (rewritten, wrong) = compare(&text, &name.to_string(), &mut execute);
    if env::var_os("UPDATE_SCRIPTS").is_some() {
        if rewritten != text {
            fs::write(path, rewritten).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    } else {
        assert!(wrong.is_empty(), "{wrong}UPDATE_SCRIPTS=1 rewrites what is expected");
    }
}

/// Returns the script with the actual outputs, and a description of all differences.
fn compare(text: &str, name: &str, execute: &mut dyn FnMut(&Case<'_>) -> String) -> (String, String) {
    let (mut rewritten, mut wrong, mut cases) = (String::new(), String::new(), 0);
    let mut lines = (1..).zip(text.lines()).peekable();
    while let Some((line, first)) = lines.next() {
        writeln!(rewritten, "{first}").expect("text");
        let mut words = first.split_whitespace();
        let Some(command) = words.next().filter(|word| !word.starts_with('#')) else { continue };
        let mut case = Case { command, args: words.collect(), input: Vec::new(), line };
        loop {
            match lines.next().map(|(_, line)| line) {
                Some("----") => break,
                Some(line) if !line.trim().is_empty() => case.input.push(line),
                _ => panic!("{name}:{line}: no `----` ends the input of `{command}`"),
            }
        }
        let enclosed = lines.next_if(|(_, line)| *line == "----").is_some();
        let mut expected = String::new();
        while let Some((_, line)) = lines.next_if(|(_, line)| enclosed || !line.is_empty()) {
            if enclosed && line == "----" && lines.next_if(|(_, line)| *line == "----").is_some() {
                break;
            }
            expected += line.trim_end();
            expected += "\n";
        }
        cases += 1;
        let output = catch_unwind(AssertUnwindSafe(|| execute(&case))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            match text.or(panic.downcast_ref::<&str>().copied()) {
                Some(text) => panic!("{name}:{line}: `{command}` panicked: {text}"),
                None => resume_unwind(panic),
            }
        });
        let actual: String = output.trim_end().lines().flat_map(|line| [line.trim_end(), "\n"]).collect();
        if actual != expected {
            writeln!(wrong, "{name}:{line}: {first}\nexpected:\n{expected}actual:\n{actual}").expect("text");
        }
        let fence = if actual.lines().any(|line| matches!(line, "" | "----")) { "----\n----\n" } else { "" };
        let opening = if fence.is_empty() { "----\n" } else { fence };
        case.input.iter().for_each(|line| writeln!(rewritten, "{line}").expect("text"));
        rewritten += &[opening, &actual, fence].concat();
    }
    assert!(cases > 0, "{name}: a script without a case tests nothing");
    (rewritten, wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "# What echo does.\n\necho twice\na line\n\n----\n";

    fn echo(case: &Case<'_>) -> String {
        let times = if case.args.contains(&"twice") { 2 } else { 1 };
        vec![case.input.join("\n"); times].join(if case.args.contains(&"apart") { "\n\n" } else { "\n" })
    }

    /// What the script becomes, and whether it was right before.
    fn outcome(text: &str) -> (String, bool) {
        let (rewritten, wrong) = compare(text, "script", &mut echo);
        (rewritten, wrong.is_empty())
    }

    #[test]
    fn a_right_output_passes_and_stays_as_it_is() {
        for text in [
            "# A comment.\n\necho\na\n  b\n----\na\n  b\n\n# Another.\necho twice\nc\n----\nc\nc\n",
            "echo twice apart\na\n----\n----\na\n\na\n----\n----\n\necho\n----\n",
        ] {
            assert_eq!(outcome(text), (text.to_owned(), true));
        }
    }

    #[test]
    fn a_wrong_output_is_found_and_only_that_is_rewritten() {
        let head = "# What echo does.\n\necho twice\na\n----\n";
        for expected in ["", "a\n", "a\na\na\n", "a\nb\n", "----\na\n\na\n----\n----\n"] {
            for rest in ["", "\n# The end.\n"] {
                let right = [head, "a\na\n", rest].concat();
                assert_eq!(outcome(&[head, expected, rest].concat()), (right, false), "{expected:?}");
            }
        }
        let (_, wrong) = compare("\necho\na\n----\nb\n", "script", &mut echo);
        assert_eq!(wrong, "script:2: echo\nexpected:\nb\nactual:\na\n\n");
    }

    #[test]
    #[should_panic(expected = "script:3: no `----` ends the input of `echo`")]
    fn an_input_without_an_end_is_refused() {
        outcome(SCRIPT);
    }

    #[test]
    #[should_panic(expected = "script: a script without a case tests nothing")]
    fn a_script_without_cases_is_refused() {
        outcome("# Nothing.\n");
    }

    #[test]
    #[should_panic(expected = "script:2: `a` panicked: no such command")]
    fn a_panic_names_the_line() {
        compare("\na\n----\n", "script", &mut |_| panic!("no such command"));
    }
}
