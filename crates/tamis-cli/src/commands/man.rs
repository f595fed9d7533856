//! `tamis man`: prints the program's manual page, or writes the pages of all commands.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use clap_mangen::Man;

use crate::args::command;
use crate::failure::{Failure, Outcome};
use crate::output::Out;

/// Print the program's manual page, or write those of all commands into a directory
#[derive(Args)]
#[command(after_help = "\
Examples:
  tamis man | man -l -
  tamis man --out ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Write tamis.1 and a page for each command into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &ManArgs, out: &mut Out) -> Result<Outcome, Failure> {
    match &args.out {
        None => {
            // Writing to memory cannot fail; a closed pipe is no failure of the page.
            let mut page = Vec::new();
            Man::new(command()).render(&mut page)?;
            out.write_all(&page)?;
        }
        Some(dir) => {
            let written = fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(command(), dir));
            written
                .map_err(|error| Failure::usage(format!("could not write to {}: {error}", dir.display())))?;
        }
    }
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::complete::ASKED;

    /// What a page says, without the marks of its language.
    fn said(page: &str) -> String {
        let line = |line: &str| match line.starts_with('.') {
            true => String::new(),
            false => line.replace("\\fB", "").replace("\\fI", "").replace("\\fR", ""),
        };
        let text: Vec<String> = page.lines().map(line).collect();
        plain(
            &text
                .join("\n")
                .replace("\\-", "-")
                .replace("\\*(Aq", "'")
                .replace("\\(aq", "'")
                .replace("\\\\", "\\"),
        )
    }

    fn plain(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Every command has a page, with its parts, its arguments, their values, and the text below
    /// the help: examples, and for the program its exit codes and its environment.
    #[test]
    fn the_manual_is_complete() {
        fn check(dir: &std::path::Path, name: &str, command: &clap::Command, above: bool) {
            let page = fs::read_to_string(dir.join(format!("{name}.1"))).unwrap_or_else(|_| panic!("{name}"));
            let page = said(&page);
            let has = |text: &str| assert!(page.contains(&plain(text)), "{name}: {text:?} is not in\n{page}");
            let text = |text: Option<&clap::builder::StyledStr>| text.map(ToString::to_string);
            has(&text(command.get_long_about().or(command.get_about())).expect("it says what it does"));
            has(&text(command.get_after_long_help().or(command.get_after_help())).unwrap_or_default());
            // Those of a command with parts are on its own page.
            let is_shown = above || page.contains("Example");
            let is_refused = name == "tamis-backup" && !cfg!(feature = "object-store");
            assert!(is_shown || is_refused, "{name} has no example");
            for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                match arg.get_long() {
                    Some(long) => has(&format!("--{long}")),
                    None => has(&arg.get_value_names().expect("a name")[0]),
                }
                has(&text(arg.get_long_help().or(arg.get_help())).expect("every argument has a text"));
                if arg.get_action().takes_values() && !arg.is_hide_possible_values_set() {
                    arg.get_possible_values().iter().for_each(|value| has(value.get_name()));
                }
            }
            for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
                let below_name = format!("{name}-{}", below.get_name());
                has(&format!("{below_name}(1)"));
                check(dir, &below_name, below, is_shown && name != "tamis");
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let args = ManArgs { out: Some(dir.path().to_owned()) };
        assert_eq!(run(&args, &mut Out::stdout()).unwrap(), Outcome::Done);
        check(dir.path(), "tamis", &command(), false);
        let main = said(&fs::read_to_string(dir.path().join("tamis.1")).unwrap());
        for part in ["Exit codes: 0 ", "; 1 ", "; 2 ", "; 3 ", "Examples:", "Environment:", "TMPDIR", ASKED] {
            assert!(main.contains(part), "{part}");
        }
    }
}
