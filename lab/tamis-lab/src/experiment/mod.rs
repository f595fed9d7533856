//! `tamis-lab experiment`: measures tables and figures of the papers, and compares the results with the papers' claims.
//!
//! * `list`, `show`: the experiments and their costs;
//! * `run`: measures into a directory of results, and continues where an earlier run was interrupted;
//! * `report`: writes all results of a directory as one page;
//! * `keep`: copies results into the form that the repository keeps;
//! * `tables`: makes the parts of the documents again that come from kept results.

mod keep;
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

/// The default directory of results.
const OUT: &str = "./tamis-experiments";

/// Measure tables and figures of the papers again
#[derive(Args)]
pub(crate) struct ExperimentArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// List all experiments with their time and space
    List(list::ListArgs),
    /// Describe an experiment: the paper's claim, its setting and costs
    Show(list::ShowArgs),
    /// Measure experiments, or continue interrupted ones
    Run(Box<run::RunArgs>),
    /// Write all results as one page of HTML
    Report(report::ReportArgs),
    /// Copy complete results into the form that the repository keeps: the setup, and compressed rows
    Keep(keep::KeepArgs),
    /// Make the tables and pictures of the documents below a directory again, from kept results
    Tables(keep::TablesArgs),
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
        What::Keep(args) => keep::run(&args, out),
        What::Tables(args) => keep::tables(&args, out),
        What::Other(words) => {
            let word = words.first().map_or_else(String::new, |word| word.to_string_lossy().into_owned());
            let hint = match select(&figures, &[&word]) {
                Ok(_) => format!("`tamis-lab experiment run {word}` measures it"),
                Err(_) => "known are list, show, run, report, keep and tables".to_owned(),
            };
            Err(Failure::usage(format!("tamis-lab experiment does not know `{word}`: {hint}")))
        }
    }
}

/// Returns the figures that words select, each once, in the order of the words: `all`, a name, or a prefix of names
/// that ends with a dash (`grf-`).
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
        "no experiment is called `{word}`; known are {}, `all`, and prefixes like `grf-`",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_select_figures_once_each() {
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
