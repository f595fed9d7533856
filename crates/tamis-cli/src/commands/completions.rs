//! `tamis completions`: prints a script that completes commands and options in a shell.

use clap::Args;
use clap_complete::Shell;
use clap_complete::env::Shells;

use crate::complete::ASKED;
use crate::failure::{Failure, Outcome};
use crate::output::Out;

/// Print a script that completes commands and options in a shell
#[derive(Args)]
#[command(after_help = "\
Examples:
  source <(tamis completions bash)      in ~/.bashrc
  source <(tamis completions zsh)       in ~/.zshrc, after compinit
  tamis completions fish | source       in ~/.config/fish/config.fish

The script asks this program for commands, options and their values, the names
of keyspaces among them. Write it to no file: it may change with the program.")]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let shells = Shells::builtins();
    let name = args.shell.to_string();
    let Some(shell) = shells.completer(&name) else {
        return Err(Failure::usage(format!("there are no completions for {name}")));
    };
    shell.write_registration(ASKED, "tamis", "tamis", "tamis", out)?;
    Ok(Outcome::Done)
}
