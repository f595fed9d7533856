//! Options by name and text, as `tamis options` lists them.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use tamis::{Db, Error, Keyspace, KeyspaceOptions, OpenError, Options, OptionsError};
use tamis_metrics::Publisher;

use crate::{Failure, json};

/// How a database is opened: the options of the engine, and what is done beside it, which other languages name like options.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Opening {
    options: Options,
    /// The interval at which the metrics go to the file `STATS`.
    publish_stats: Option<Duration>,
    /// Whether a damaged database is restored first.
    salvage: bool,
}

impl Deref for Opening {
    type Target = Options;

    fn deref(&self) -> &Options {
        &self.options
    }
}

impl DerefMut for Opening {
    fn deref_mut(&mut self) -> &mut Options {
        &mut self.options
    }
}

impl Opening {
    /// Opens the database in `path`. What publishes its metrics is dropped before the database is closed.
    ///
    /// # Errors
    ///
    /// As [`Db::open`].
    pub fn open(self, path: impl AsRef<Path>) -> Result<(Db, Option<Publisher>), Error> {
        let path = path.as_ref();
        if self.salvage {
            match tamis_doctor::salvage(path, self.options.clone(), false) {
                Err(OpenError::NotFound { .. }) => {}
                done => _ = done?,
            }
        }
        let db = self.options.open(path)?;
        let publisher = self.publish_stats.map(|interval| Publisher::start(&db, interval)).transpose()?;
        Ok((db, publisher))
    }

    /// Opens the database in `path` for reading.
    ///
    /// # Errors
    ///
    /// As [`Options::open_read_only`].
    pub fn open_read_only(self, path: impl AsRef<Path>) -> Result<Db, OpenError> {
        if self.salvage {
            tamis_doctor::open_read_only(path, self.options)
        } else {
            self.options.open_read_only(path)
        }
    }

    /// Returns the options of the engine.
    pub fn into_options(self) -> Options {
        self.options
    }

    /// Sets what is no option of the engine; `false` if it has no such name.
    fn set_beside(&mut self, name: &str, value: &str) -> Result<bool, OptionsError> {
        match name {
            "publish_stats" => self.publish_stats = age("publish_stats", value)?,
            "salvage" => self.salvage = flag("salvage", value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Reads a flag as options of the engine have it.
fn flag(name: &'static str, value: &str) -> Result<bool, OptionsError> {
    let mut options = Options::default();
    options.set("error_if_exists", value).map_err(|error| named(name, error))?;
    Ok(options.error_if_exists)
}

/// Reads a time as options of the engine have it.
fn age(name: &'static str, value: &str) -> Result<Option<Duration>, OptionsError> {
    let mut options = Options::default();
    options.set("changes_keep_time", value).map_err(|error| named(name, error))?;
    Ok(options.changes_keep_time)
}

/// Gives an error the name of the option that was set.
fn named(name: &'static str, error: OptionsError) -> OptionsError {
    match error {
        OptionsError::Value { value, expected, .. } => OptionsError::Value { name, value, expected },
        other => other,
    }
}

/// Sets one option of a database. Options of the default keyspace may be named with the prefix `keyspace.` or without it: `filter`
/// is `keyspace.filter`.
///
/// # Errors
///
/// [`Code::UnknownOption`](crate::Code::UnknownOption), [`Code::InvalidOption`](crate::Code::InvalidOption); the options are unchanged.
pub fn set(options: &mut Opening, name: &str, value: &str) -> Result<(), Failure> {
    if options.set_beside(name, value)? {
        return Ok(());
    }
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

/// An option.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Described<'a> {
    /// The name.
    pub name: &'a str,
    /// Its class.
    pub class: &'a str,
    /// What it takes.
    pub takes: &'a str,
    /// Its default.
    pub default: &'a str,
    /// What it does.
    pub doc: &'a str,
}

/// What an [`Opening`] has besides the options of the engine.
pub const BESIDE: [Described<'static>; 2] = [SALVAGE, PUBLISH_STATS];

const SALVAGE: Described<'static> = Described {
    name: "salvage",
    class: "behaviour",
    takes: "true or false",
    default: "false",
    doc: "Restore a damaged database before it is opened, with what can still be read. A damaged or missing manifest is rebuilt from the \
          tables that are there, damaged log records are skipped, tables that cannot be opened are renamed to `….damaged`, and tables, \
          logs and manifests that are not part of what was saved to `….aside`. Nothing is removed. Writes may be missing, and deleted \
          keys may come back.",
};

const PUBLISH_STATS: Described<'static> = Described {
    name: "publish_stats",
    class: "performance",
    takes: "a time, or none",
    default: "none",
    doc: "Interval at which a background thread writes the metrics to the file `STATS`, where `tamis top`, `tamis serve` and other \
          processes read them; it goes with the session. `none`: not at all.",
};

/// Returns all options of a database, those of its default keyspace with their prefix, as a JSON list of objects `{name, class,
/// takes, default, doc}`, all strings.
pub fn describe() -> String {
    let infos = Options::describe();
    let described = infos.iter().map(|info| Described {
        name: info.name,
        class: info.class.name(),
        takes: &info.takes,
        default: info.default,
        doc: info.doc,
    });
    json::text(&described.chain(BESIDE).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    #[test]
    fn a_bare_name_is_an_option_of_the_default_keyspace() {
        let mut options = Opening::default();
        set(&mut options, "cache_bytes", "3 MiB").expect("an option of the database");
        set(&mut options, "filter", "ribbon").expect("one of the default keyspace");
        let mut same = Opening::default();
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
        let db = tamis::Db::open(dir.path()).expect("it opens");
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
    fn metrics_are_published_by_name_until_the_database_is_closed() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut opening = Opening::default();
        set(&mut opening, "publish_stats", "1 s").expect("a name of an opening");
        let database = crate::Database::open(dir.path(), opening).expect("it opens");
        let published = || tamis_metrics::published(dir.path(), &Options::default()).expect("it can be read");
        while published().is_none() {
            std::thread::yield_now();
        }
        database.close().expect("it closes");
        assert_eq!(published(), None);
        let wrong = set(&mut Opening::default(), "publish_stats", "soon").expect_err("no time");
        assert_eq!(wrong.code, Code::InvalidOption);
        assert!(wrong.text.contains("`publish_stats`"), "{}", wrong.text);
        assert!(describe().contains("\"name\":\"publish_stats\""));
    }

    #[test]
    fn what_only_an_experimenter_sets_is_refused_with_the_reason() {
        for (name, value) in
            [("hash_sharing", "false"), ("deterministic", "false"), ("keyspace.key_map", "mixed")]
        {
            let refused = set(&mut Opening::default(), name, value).expect_err("no option of this build");
            assert_eq!(refused.code, crate::Code::UnknownOption);
            assert!(refused.text.ends_with("needs a build with the feature `measure`"), "{}", refused.text);
            assert!(!describe().contains(&format!("\"{name}\"")));
        }
        let refused =
            set_of_keyspace(&mut KeyspaceOptions::default(), "picker", "oldest").expect_err("no option");
        assert!(refused.text.contains("`measure`"), "{}", refused.text);
        let options = Options { hash_sharing: false, ..Options::default() };
        let refused = options.check().expect_err("a value of experiments").to_string();
        assert!(
            refused.contains("another value than true needs a build with the feature `measure`"),
            "{refused}"
        );
        // A database of an experiment opens all the same.
        let dir = tempfile::tempdir().expect("a directory");
        drop(tamis::Db::open(dir.path()).expect("it opens"));
        let path = dir.path().join("OPTIONS");
        let text = std::fs::read_to_string(&path).expect("options")
            + "hash_sharing = false\nkeyspace.picker = oldest\n";
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
