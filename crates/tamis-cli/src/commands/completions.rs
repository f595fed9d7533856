//! `tamis completions`: prints a script that completes commands and options in a shell.

use std::io::Write;

use clap::Args;
use clap_complete::Shell;

use crate::args::command;
use crate::failure::{Failure, Outcome};
use crate::output::Out;

/// Print a script that completes commands and options in a shell
#[derive(Args)]
#[command(after_help = "\
Examples:
  tamis completions bash > ~/.local/share/bash-completion/completions/tamis
  tamis completions zsh > ~/.zfunc/_tamis            with ~/.zfunc in fpath
  tamis completions fish > ~/.config/fish/completions/tamis.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs, out: &mut Out) -> Result<Outcome, Failure> {
    // Writing to memory cannot fail; a closed pipe must not be a panic.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command(), "tamis", &mut script);
    out.write_all(&script)?;
    Ok(Outcome::Done)
}
