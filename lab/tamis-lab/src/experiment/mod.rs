//! `tamis-lab experiment`: tables and figures of the papers, measured here, and what they show beside the papers' claims.
//!
//! * `list`, `show`: what there is, and what it takes;
//! * `run`: measures into a directory of results, and goes on where an earlier run was interrupted;
//! * `report`: all results of a directory as one page.

mod list;
mod report;
mod run;
#[cfg(test)]
mod synthetic;
mod text;

use std::ffi::OsString;

use clap::{Args, Subcommand};
use tamis_cli::failure::{Failure, Outcome};
use tamis_cli::output::Out;
use tamis_lab::figures::{Figure, catalogue};

/// Where results are kept if nothing else is said.
const OUT: &str = "./tamis-experiments";

/// Measure tables and figures of the papers again
#[derive(Args)]
pub(crate) struct ExperimentArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Name all experiments with what each takes in time and space
    List(list::ListArgs),
    /// Say what an experiment does, what the paper showed, and its setting
    Show(list::ShowArgs),
    /// Measure experiments, or go on where they were interrupted
    Run(Box<run::RunArgs>),
    /// Bind all results into one page of HTML
    Report(report::ReportArgs),
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

pub(crate) fn run(args: ExperimentArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let figures = catalogue::all();
    match args.what {
        What::List(args) => list::list(&args, &figures, out),
        What::Show(args) => list::show(&args, &figures, out),
        What::Run(args) => run::run(*args, &figures, out),
        What::Report(args) => report::run(&args, out),
        What::Other(words) => {
            let word = words.first().map_or_else(String::new, |word| word.to_string_lossy().into_owned());
            let hint = match select(&figures, &[&word]) {
                Ok(_) => format!("`tamis-lab experiment run {word}` measures it"),
                Err(_) => "there are list, show, run and report".to_owned(),
            };
            Err(Failure::usage(format!("tamis-lab experiment does not know `{word}`: {hint}")))
        }
    }
}

/// The figures that words name, each once, in the order of the words: `all`, a name, or what names begin with and a
/// dash (`grf-`).
fn select<'f>(
    figures: &'f [Box<dyn Figure>],
    words: &[impl AsRef<str>],
) -> Result<Vec<&'f dyn Figure>, Failure> {
    let mut chosen: Vec<&dyn Figure> = Vec::new();
    for word in words.iter().map(AsRef::as_ref) {
        let named = |name: &str| match word {
            "all" => true,
            _ if word.ends_with('-') => name.starts_with(word),
            _ => name == word,
        };
        let before = figures.iter().map(|figure| figure.as_ref()).filter(|figure| named(figure.about().name));
        let found: Vec<&dyn Figure> = before.collect();
        if found.is_empty() {
            return Err(Failure::usage(unknown(word, figures)));
        }
        for figure in found {
            if chosen.iter().all(|other| other.about().name != figure.about().name) {
                chosen.push(figure);
            }
        }
    }
    Ok(chosen)
}

fn unknown(word: &str, figures: &[Box<dyn Figure>]) -> String {
    let names: Vec<&str> = figures.iter().map(|figure| figure.about().name).collect();
    format!(
        "no experiment is called `{word}`; there are {}, `all`, and beginnings like `grf-`",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_figures_once_each() {
        let figures = synthetic::figures();
        let names = |words: &[&str]| {
            let chosen = select(&figures, words).map_err(|failure| failure.to_string())?;
            Ok::<_, String>(chosen.iter().map(|figure| figure.about().name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["all"]).unwrap(), ["one-a", "one-b", "two-a"]);
        assert_eq!(names(&["one-"]).unwrap(), ["one-a", "one-b"]);
        assert_eq!(names(&["two-a", "one-b", "all"]).unwrap(), ["two-a", "one-b", "one-a"]);
        assert_eq!(names(&["one-a", "one-a"]).unwrap(), ["one-a"]);
        for unknown in ["one", "three-", "", "-", "ALL"] {
            let refused = names(&["one-a", unknown]).unwrap_err();
            assert!(
                refused.contains(&format!("`{unknown}`")) && refused.contains("one-b, two-a"),
                "{refused}"
            );
        }
    }
}
