//! The seam of `tamis-doctor`: an opening with another tree than that of the manifest.
//!
//! The doctor decides what is left of a damaged database, and the engine opens that like any other
//! database: it replays the logs, as far as they can be read, and ends with a new manifest, put in
//! force in one step. Before that, whatever will not be part of the database gets a second name.
//!
//! # Invariants
//!
//! * No file is ever lost from the directory: a file loses its old name only once it has another.
//! * A crash before the new manifest is in force leaves everything as it was, except for second
//!   names.
//! * The directory lock is held from before the doctor looks until the database is closed, unless
//!   it is opened for reading, which changes nothing.

pub use crate::jobs::verify::in_words;
pub use crate::open::DEFAULT_NAME;
pub use crate::open::file_system;
pub use crate::open::locked;
pub use crate::session::repair::Plan;
pub use crate::session::repair::Repair;
pub use crate::session::repair::free_name;
use std::path::Path;

use crate::error::{Error, OpenError, OptionsError};
use crate::handles::handle::Db;
use crate::jobs::verify::VerifyReport;
use crate::open as opening;
use crate::open::beside;
use crate::options::{KeyspaceOptions, Options};

/// Opens the database in `path` as `plan` says, and puts that in force. Starts no background work,
/// which would merge tables before anyone could inspect them. Returns the files that got a second
/// name, each with that name.
///
/// # Errors
///
/// Those of [`Db::open`], and of the plan.
pub fn open(
    path: &Path,
    options: Options,
    plan: &Plan<'_>,
) -> Result<(Db, Vec<(String, String)>), OpenError> {
    let inner = opening::open(path, options, Some(plan))?;
    let mut moved =
        inner.lifecycle.repaired.as_ref().map(|repaired| repaired.moved.lock().clone()).unwrap_or_default();
    moved.sort_unstable();
    moved.dedup();
    Ok((Db::with(inner, None), moved))
}

/// Opens the database in `path` for reading, as `plan` says if there is one, without its lock and
/// without changing anything. Starts no background work, which builds filters of whole trees.
///
/// # Errors
///
/// Those of [`Options::open_read_only`], and of the plan.
pub fn open_to_check(path: &Path, options: &Options, plan: Option<&Plan<'_>>) -> Result<Db, OpenError> {
    Ok(Db::with(beside::open(path, options, plan)?, None))
}

/// The same, with background work.
///
/// # Errors
///
/// The same, and that of a thread that cannot be started.
pub fn open_read_only(path: &Path, options: &Options, plan: &Plan<'_>) -> Result<Db, OpenError> {
    Db::reading(beside::open(path, options, Some(plan))?, None)
}

/// Checks the tables and filter files of all keyspaces.
///
/// # Errors
///
/// As [`Db::verify`].
pub fn check_trees(db: &Db, report: &mut VerifyReport) -> Result<(), Error> {
    Ok(db.inner().check_trees(report)?)
}

/// Parses the options of a keyspace as a database stores them.
///
/// # Errors
///
/// As [`KeyspaceOptions::from_text`].
pub fn keyspace_options(stored: &str) -> Result<KeyspaceOptions, OptionsError> {
    KeyspaceOptions::from_stored(stored)
}
