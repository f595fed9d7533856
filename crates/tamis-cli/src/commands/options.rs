//! `tamis options`: describes every option of the library.

use std::io::Write;

use clap::Args;
use serde_json::json;
use tamis::Options;
use tamis::options::OptionInfo;

use crate::failure::{Failure, Outcome};
use crate::output::Out;

/// The width of a line of text.
const WIDTH: usize = 96;

/// Describe every option of a database: default, range, consequence
#[derive(Args)]
#[command(after_help = "Options are set with -o NAME=VALUE on every subcommand that opens a database.\n\n\
                        Examples:\n  tamis options bits_per_key\n  \
                        tamis put --db ./data -o durability=sync -o keyspace.bits_per_key=12 greeting hello")]
pub(crate) struct OptionsArgs {
    /// Only options whose name contains this
    name: Option<String>,
    /// Print one JSON object per option
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: OptionsArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let wanted = |info: &OptionInfo| args.name.as_ref().is_none_or(|part| info.name.contains(part.as_str()));
    let all: Vec<OptionInfo> = Options::describe().into_iter().filter(wanted).collect();
    if all.is_empty() {
        let part = args.name.unwrap_or_default();
        return Err(Failure::usage(format!("no option's name contains `{part}`")));
    }
    let mut class = None;
    for info in all {
        if args.json {
            let object = json!({
                "name": info.name, "default": info.default, "takes": info.takes,
                "class": info.class.name(), "doc": info.doc,
            });
            writeln!(out, "{object}")?;
            continue;
        }
        if class != Some(info.class) {
            writeln!(out, "Options that change {}\n", info.class.name())?;
            class = Some(info.class);
        }
        writeln!(out, "  {} = {}", info.name, info.default)?;
        for line in wrapped(&format!("Takes {}.", info.takes)).chain(wrapped(info.doc)) {
            writeln!(out, "      {line}")?;
        }
        writeln!(out)?;
    }
    Ok(Outcome::Done)
}

/// Wraps text into lines, breaking between words.
fn wrapped(text: &str) -> impl Iterator<Item = String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("never empty");
        if !line.is_empty() && line.chars().count() + word.chars().count() + 7 > WIDTH {
            lines.push(word.to_owned());
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapping_breaks_between_words_and_loses_none() {
        let text = "word ".repeat(100);
        let lines: Vec<String> = wrapped(&text).collect();
        assert!(lines.len() > 4 && lines.iter().all(|line| line.len() + 6 <= WIDTH));
        assert_eq!(lines.join(" "), text.trim());
    }
}
