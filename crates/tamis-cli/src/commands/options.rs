//! `tamis options`: describes every option of the library.

use std::io::Write;

use clap::Args;
use serde_json::json;
use tamis::Options;
use tamis::options::OptionInfo;

use crate::failure::{Failure, Outcome};
use crate::output::Out;
use crate::text::folded;

/// Columns before a text.
const INDENT: usize = 6;

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
    let width = out.width().min(80);
    let mut class = None;
    for info in all {
        if args.json {
            let object = json!({
                "name": info.name, "default": info.default, "takes": info.takes,
                "class": info.class.name(), "doc": info.doc,
            });
            out.json(&object)?;
            continue;
        }
        if class != Some(info.class) {
            writeln!(out, "The {} options\n", info.class.name())?;
            class = Some(info.class);
        }
        writeln!(out, "  {} = {}", info.name, info.default)?;
        let text = |text: &str| folded(&format!("{:INDENT$}{text}\n", ""), width, INDENT);
        write!(out, "{}{}", text(&format!("Takes {}.", info.takes)), text(info.doc))?;
        writeln!(out)?;
    }
    Ok(Outcome::Done)
}
