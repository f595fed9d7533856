//! The main job's directory: created, or replaced if an earlier main job created it. Nothing else
//! is ever removed.

use std::fs;
use std::io;
use std::path::Path;

use crate::args::refuse_file;
use crate::failure::Failure;

/// The file by which the main job recognizes its own directories.
const MARKER: &str = "MADE-BY-TAMIS-MAIN-JOB";

const MARKER_TEXT: &str = "\
The main job of tamis (the program without a subcommand) made this directory, and replaces it when it runs
again. Remove this file to keep the directory.
";

/// Creates or clears `dir`, leaving only the marker.
pub(super) fn prepare(dir: &Path) -> Result<(), Failure> {
    let failed = |what: &str, error: io::Error| {
        Failure::database(format!("could not {what} {}: {error}", dir.display()))
    };
    refuse_file(dir)?;
    match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("read", error)),
        Ok(mut entries) => {
            let empty = entries.next().is_none();
            if !empty && !is_ours(dir) {
                return Err(Failure::usage(format!(
                    "{} exists and was not made by the main job, so it is left alone; choose another directory with --db",
                    dir.display()
                )));
            }
            if !empty {
                refuse_if_open(dir)?;
                fs::remove_dir_all(dir).map_err(|e| failed("remove", e))?;
            }
        }
    }
    fs::create_dir_all(dir).map_err(|e| failed("create", e))?;
    fs::write(dir.join(MARKER), MARKER_TEXT).map_err(|e| failed("write to", e))
}

/// Reports whether `dir` is a directory (not a link) that contains the main job's marker and
/// otherwise only files, as a database does.
fn is_ours(dir: &Path) -> bool {
    let is_directory = fs::symlink_metadata(dir).is_ok_and(|meta| meta.is_dir());
    let marked = fs::read(dir.join(MARKER)).is_ok_and(|text| text == MARKER_TEXT.as_bytes());
    let only_files = || {
        let mut entries = fs::read_dir(dir).ok()?;
        Some(entries.all(|entry| entry.and_then(|e| e.file_type()).is_ok_and(|kind| kind.is_file())))
    };
    is_directory && marked && only_files().unwrap_or(false)
}

/// Fails if another process has the database open. One that cannot be opened for any other reason
/// (damage, for example) may be removed.
fn refuse_if_open(dir: &Path) -> Result<(), Failure> {
    let options = tamis::Options { create_if_missing: false, ..tamis::Options::default() };
    match options.open(dir) {
        Ok(db) => Ok(db.close()?),
        Err(locked @ (tamis::OpenError::Locked { .. } | tamis::OpenError::OpenHere { .. })) => {
            Err(locked.into())
        }
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_own_directory_is_replaced_and_any_other_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("demo");
        prepare(&dir).unwrap();
        fs::write(dir.join("000001.log"), "old").unwrap();
        prepare(&dir).unwrap();
        assert!(!dir.join("000001.log").exists());

        fs::create_dir(dir.join("photos")).unwrap();
        assert!(matches!(prepare(&dir), Err(Failure::Usage(_))), "the main job makes no subdirectories");

        let other = root.path().join("other");
        fs::create_dir(&other).unwrap();
        prepare(&other).unwrap();
        fs::remove_file(other.join(MARKER)).unwrap();
        fs::write(other.join("letter.txt"), "dear").unwrap();
        assert!(matches!(prepare(&other), Err(Failure::Usage(_))));
        fs::write(other.join(MARKER), "something else").unwrap();
        assert!(matches!(prepare(&other), Err(Failure::Usage(_))));
        assert!(other.join("letter.txt").exists());
    }
}
