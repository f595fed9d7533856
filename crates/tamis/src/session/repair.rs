//! What a repair hands to an opening: another tree than that of the manifest, and second names for
//! the files that will not be part of it. See [`doctor`](crate::api::doctor).

use std::path::{Path, PathBuf};

use tamis_base::collections::{HashMap, HashSet};
use tamis_base::ids::{KeyspaceId, LogId};
use tamis_base::key::SeqNo;
use tamis_files::error::FileError;
use tamis_files::tree::files::{FileKind, current_path, manifest_name, manifest_path};
use tamis_files::tree::found::{Base, Files, find_base};
use tamis_files::tree::manifest::{LoadedManifest, is_damage};
use tamis_files::tree::state::ManifestState;

use crate::error::{OpenError, StorageError};
use crate::io::FileSystem;
use crate::sync::Mutex;

/// Gives files of a directory second names, and returns them by their first.
type Preserve = dyn Fn(&dyn FileSystem) -> Result<HashMap<PathBuf, PathBuf>, StorageError> + Send + Sync;

/// What is opened in place of what the manifest says.
#[allow(missing_debug_implementations)]
pub struct Repair {
    /// The tree, and the number of the manifest that it comes from; never 0.
    pub manifest: LoadedManifest,
    /// The write up to which each keyspace is in tables, whatever the logs say.
    pub covered: HashMap<KeyspaceId, SeqNo>,
    /// Logs that cannot be read at all.
    pub unreadable: HashSet<LogId>,
    /// Whether the tree differs from what a manifest says.
    pub rebuilt: bool,
    /// Whether anything is wrong.
    pub needed: bool,
    /// Warnings for whoever opens the database.
    pub warnings: Vec<String>,
    /// Durably gives every file that will not be part of the database a second name, and makes the
    /// files that will be part of it durable.
    pub preserve: Box<Preserve>,
}

/// Examines a directory whose lock is held, and changes nothing. `None`: there is no database.
pub type Plan<'a> = dyn Fn(&dyn FileSystem) -> Result<Option<Repair>, OpenError> + 'a;

/// What a repair did.
#[derive(Debug)]
pub(crate) struct Repaired {
    pub(crate) needed: bool,
    /// The files that got a second name, each with that name.
    pub(crate) moved: Mutex<Vec<(String, String)>>,
}

impl Repaired {
    pub(crate) fn of(repair: &Repair) -> Repaired {
        Repaired { needed: repair.needed, moved: Mutex::default() }
    }
}

/// Extends the error of an opening that found `CURRENT` or its manifest damaged or missing with
/// what else was found.
pub(crate) fn explain(fs: &dyn FileSystem, dir: &Path, error: OpenError) -> OpenError {
    let OpenError::Storage(storage) = &error else { return error };
    if !is_damage(storage) {
        return error;
    }
    let base = Files::list(fs, dir).map_err(FileError::from).and_then(|files| find_base(fs, dir, &files));
    let Ok(Base { manifest, wrong, current: Some(current), .. }) = base else { return error };
    let what = match storage {
        StorageError::Corrupt(damage) if damage.path == current_path(dir) => damage.what.clone(),
        _ => current,
    };
    let more = match manifest.filter(|_| wrong.is_empty()) {
        Some(loaded) => format!("{} is whole, and `salvage` goes on with it", manifest_name(loaded.number)),
        None => "no manifest is whole; `salvage` builds a new one from the existing tables".to_owned(),
    };
    StorageError::corrupt(&current_path(dir), None, format!("{what}; {more}")).into()
}

/// Returns the error of an opening that misses a file named by the manifest, saying whether the
/// manifest probably lost its last edits.
pub(crate) fn explain_missing(
    files: &[(String, FileKind)],
    number: u64,
    tree: &ManifestState,
    dir: &Path,
    error: OpenError,
) -> OpenError {
    let path = match &error {
        OpenError::Storage(StorageError::Io(failure)) if failure.kind() == std::io::ErrorKind::NotFound => {
            failure.path.clone()
        }
        OpenError::Storage(StorageError::Corrupt(damage)) => damage.path.clone(),
        _ => return error,
    };
    let there = |(name, _): &(String, FileKind)| path.file_name().is_some_and(|file| *file == **name);
    let newer =
        |(_, kind): &&(String, FileKind)| matches!(kind, FileKind::Table(id) if *id >= tree.next_file);
    let newer = files.iter().filter(newer).count();
    if newer == 0 || files.iter().any(there) {
        return error;
    }
    let what = format!(
        "it names {}, which does not exist, and {newer} tables are newer than any it knows: it has \
         probably lost its last edits",
        path.display()
    );
    StorageError::corrupt(&manifest_path(dir, number), None, what).into()
}

/// Returns an unused name for a file that is set aside.
///
/// # Errors
///
/// Failed system calls.
pub fn free_name(fs: &dyn FileSystem, path: &Path, suffix: &str) -> std::io::Result<PathBuf> {
    let mut number = 0;
    loop {
        let mut name = path.as_os_str().to_owned();
        name.push(if number == 0 { suffix.to_owned() } else { format!("{suffix}-{number}") });
        let name = PathBuf::from(name);
        if !fs.exists(&name)? {
            return Ok(name);
        }
        number += 1;
    }
}
