//! What a shell is offered for the value of an argument. The shell asks this program, so it gets
//! what this build accepts and what the database on the same command line has.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap_complete::engine::CompletionCandidate;
use tamis::Options;
use tamis::options::FilterChoice;

use crate::args::{DEFAULT, stored_options};
use crate::values::KEYSPACE_PREFIX;

/// The environment variable by which a shell's script asks for completions.
pub(crate) const ASKED: &str = "TAMIS_COMPLETE";

/// Filters, one for each level, separated by commas.
pub(crate) fn filters(current: &OsStr) -> Vec<CompletionCandidate> {
    listed(current, &FilterChoice::all().map(|filter| filter.to_string()).collect::<Vec<_>>())
}

/// Options of a database and their values, as NAME=VALUE.
pub(crate) fn options(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    let all = Options::describe();
    let Some((name, value)) = current.split_once('=') else {
        let begun = all.iter().filter(|info| info.name.starts_with(current));
        let help = |doc: &str| doc.split_inclusive(". ").next().unwrap_or_default().trim().to_owned();
        return begun
            .map(|info| CompletionCandidate::new(format!("{}=", info.name)).help(Some(help(info.doc).into())))
            .collect();
    };
    let Some(info) = all.iter().find(|info| info.name == name) else { return Vec::new() };
    let words = words(&info.takes);
    let values = match info.name.strip_prefix(KEYSPACE_PREFIX) {
        Some("filter") => filters(OsStr::new(value)),
        _ => listed(OsStr::new(value), &words),
    };
    values.into_iter().map(|value| value.add_prefix(format!("{name}="))).collect()
}

/// Keyspaces of the database that `--db` names on the command line, or only the one that every
/// database has.
pub(crate) fn keyspaces(current: &OsStr) -> Vec<CompletionCandidate> {
    let names = database(std::env::args_os()).and_then(|dir| {
        let options = stored_options(&dir).ok()?;
        Some(options.open_read_only(&dir).ok()?.keyspaces())
    });
    let names = names.unwrap_or_else(|| vec![DEFAULT.to_owned()]);
    let begun = |name: &String| current.to_str().is_some_and(|current| name.starts_with(current));
    names.into_iter().filter(begun).map(CompletionCandidate::new).collect()
}

/// Returns the value of `--db`.
fn database(words: impl Iterator<Item = OsString>) -> Option<PathBuf> {
    let mut words = words.skip_while(|word| word != "--db" && !word.to_string_lossy().starts_with("--db="));
    let word = words.next()?;
    match word.to_str().and_then(|word| word.strip_prefix("--db=")) {
        Some(dir) => Some(dir.into()),
        None => words.next().map(PathBuf::from),
    }
}

/// Returns the words among which the phrase says that an option's value is one.
fn words(takes: &str) -> Vec<String> {
    if takes.starts_with("true") {
        return ["true", "false"].map(str::to_owned).into();
    }
    let Some((_, list)) = takes.split_once("one of ") else { return Vec::new() };
    // What is in brackets is not in this build.
    let list = list.split(" (").next().unwrap_or_default();
    list.split(", ").take_while(|word| !word.contains(' ')).map(str::to_owned).collect()
}

/// Offers the words that continue a list, after its last comma.
fn listed(current: &OsStr, words: &[String]) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    let (before, begun) = current
        .rsplit_once(',')
        .map_or(("", current), |(_, begun)| (&current[..current.len() - begun.len()], begun));
    let begun = words.iter().filter(|word| word.starts_with(begun));
    begun.map(|word| CompletionCandidate::new(format!("{before}{word}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(candidates: Vec<CompletionCandidate>) -> Vec<String> {
        candidates.iter().map(|one| one.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn every_option_with_words_offers_them() {
        assert_eq!(texts(options(OsStr::new("keyspace.bits_"))), ["keyspace.bits_per_key="]);
        assert_eq!(
            texts(options(OsStr::new("read_mode="))),
            ["read_mode=mapped", "read_mode=buffered", "read_mode=direct"]
        );
        assert_eq!(
            texts(options(OsStr::new("keyspace.filter=blocked-bloom,gr"))),
            ["keyspace.filter=blocked-bloom,grafite", "keyspace.filter=blocked-bloom,grf"]
        );
        assert!(
            texts(options(OsStr::new("keyspace.compaction=lazy"))) == ["keyspace.compaction=lazy-leveling"]
        );
        // What is offered is accepted, at least by itself.
        for info in Options::describe() {
            for word in words(&info.takes) {
                Options::default().set(info.name, &word).unwrap_or_else(|error| panic!("{error}"));
            }
        }
    }

    #[test]
    fn the_database_is_the_one_on_the_line() {
        let of = |line: &str| database(line.split(' ').map(OsString::from));
        assert_eq!(of("tamis -- tamis get --db x --keyspace"), Some("x".into()));
        assert_eq!(of("tamis -- tamis get --db=x --keyspace"), Some("x".into()));
        assert_eq!(of("tamis -- tamis get --db"), None);
    }
}
