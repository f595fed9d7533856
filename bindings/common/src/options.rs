//! Options by name and text, as `tamis options` lists them.

use serde::Serialize;
use tamis::options::OptionInfo;
use tamis::{Keyspace, KeyspaceOptions, Options, OptionsError};

use crate::{Failure, json};

/// Sets one option of a database. Options of the default keyspace may be named with the prefix `keyspace.` or without it: `filter`
/// is `keyspace.filter`.
///
/// # Errors
///
/// [`Code::UnknownOption`](crate::Code::UnknownOption), [`Code::InvalidOption`](crate::Code::InvalidOption); the options are unchanged.
pub fn set(options: &mut Options, name: &str, value: &str) -> Result<(), Failure> {
    match options.set(name, value) {
        Err(unknown @ OptionsError::Unknown { .. }) => match options.keyspace.set(name, value) {
            Err(OptionsError::Unknown { .. }) => Err(unknown.into()),
            other => Ok(other?),
        },
        other => Ok(other?),
    }
}

/// Sets one option of a keyspace. The prefix `keyspace.` is accepted here too.
///
/// # Errors
///
/// As [`set`].
pub fn set_of_keyspace(options: &mut KeyspaceOptions, name: &str, value: &str) -> Result<(), Failure> {
    Ok(options.set(bare(name), value)?)
}

/// Changes options of an open keyspace, by names as in [`set_of_keyspace`].
///
/// # Errors
///
/// As [`Keyspace::set_options`].
pub fn change(keyspace: &Keyspace, changes: &[(&str, &str)]) -> Result<(), Failure> {
    let changes: Vec<(&str, &str)> = changes.iter().map(|&(name, value)| (bare(name), value)).collect();
    Ok(keyspace.set_options(&changes)?)
}

fn bare(name: &str) -> &str {
    name.strip_prefix("keyspace.").unwrap_or(name)
}

#[derive(Serialize)]
struct Described<'a> {
    name: &'a str,
    class: &'a str,
    takes: &'a str,
    default: &'a str,
    doc: &'a str,
}

/// Returns all options of a database, those of its default keyspace with their prefix, as a JSON list of objects `{name, class,
/// takes, default, doc}`, all strings.
pub fn describe() -> String {
    let infos: Vec<OptionInfo> = Options::describe();
    let described = infos.iter().map(|info| Described {
        name: info.name,
        class: info.class.name(),
        takes: &info.takes,
        default: info.default,
        doc: info.doc,
    });
    json::text(&described.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    #[test]
    fn a_bare_name_is_an_option_of_the_default_keyspace() {
        let mut options = Options::default();
        set(&mut options, "cache_bytes", "3 MiB").expect("an option of the database");
        set(&mut options, "filter", "ribbon").expect("one of the default keyspace");
        let mut same = Options::default();
        same.set("cache_bytes", "3145728").expect("the same");
        set(&mut same, "keyspace.filter", "ribbon").expect("by its full name");
        assert_eq!(options, same);
        assert_eq!(set(&mut options, "colour", "red").expect_err("unknown").code, Code::UnknownOption);
        assert_eq!(set(&mut options, "filter", "red").expect_err("no filter").code, Code::InvalidOption);
        assert_eq!(options, same);
    }

    #[test]
    fn the_prefix_is_accepted_wherever_options_of_a_keyspace_are() {
        let dir = tempfile::tempdir().expect("a directory");
        let db = tamis::Db::open(dir.path(), Options::default()).expect("it opens");
        let mut options = KeyspaceOptions::default();
        for name in ["keyspace.filter", "filter"] {
            set_of_keyspace(&mut options, name, "ribbon").expect("an option");
            change(db.default_keyspace(), &[(name, "ribbon")]).expect("an option");
            assert_eq!(db.default_keyspace().options().filter, options.filter);
            set_of_keyspace(&mut options, name, "bloom").expect("an option");
            change(db.default_keyspace(), &[(name, "bloom")]).expect("an option");
            assert_eq!(db.default_keyspace().options().filter, options.filter);
        }
    }

    #[test]
    fn what_only_an_experimenter_sets_is_refused_with_the_reason() {
        for (name, value) in [("hash_sharing", "false"), ("deterministic", "false"), ("keyspace.key_map", "mixed")] {
            let refused = set(&mut Options::default(), name, value).expect_err("no option of this build");
            assert_eq!(refused.code, crate::Code::UnknownOption);
            assert!(refused.text.ends_with("needs a build with the feature `measure`"), "{}", refused.text);
            assert!(!describe().contains(&format!("\"{name}\"")));
        }
        let refused = set_of_keyspace(&mut KeyspaceOptions::default(), "picker", "oldest").expect_err("no option");
        assert!(refused.text.contains("`measure`"), "{}", refused.text);
        let options = Options { hash_sharing: false, ..Options::default() };
        let refused = options.check().expect_err("a value of experiments").to_string();
        assert!(refused.contains("another value than true needs a build with the feature `measure`"), "{refused}");
        // A database of an experiment opens all the same.
        let dir = tempfile::tempdir().expect("a directory");
        drop(tamis::Db::open(dir.path(), Options::default()).expect("it opens"));
        let path = dir.path().join("OPTIONS");
        let text = std::fs::read_to_string(&path).expect("options") + "hash_sharing = false\nkeyspace.picker = oldest\n";
        std::fs::write(&path, text).expect("writing");
        assert_eq!(Options::stored_in(dir.path()).expect("options"), Some(Options::default()));
    }

    #[test]
    fn no_name_means_two_options() {
        let own = Options::describe();
        for option in KeyspaceOptions::describe() {
            assert!(own.iter().all(|other| other.name != option.name), "{}", option.name);
        }
        assert!(describe().contains("\"name\":\"keyspace.filter\""));
    }
}
