//! A database's directory: whether it is another engine's, removing a database, repairing one.

use std::ffi::c_char;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use tamis::StorageError;
use tamis::io::{DiskFs, FileSystem as _, SCRATCH_PREFIX};

use crate::border::{attempt, object, path};
use crate::failure::{Failure, Kind};
use crate::options::Options;

fn io(operation: &'static str, path: &Path, error: std::io::Error) -> Failure {
    StorageError::io(operation, path, error).into()
}

/// Returns the names in a directory; none if it does not exist.
fn names(dir: &Path) -> Result<Vec<String>, Failure> {
    match DiskFs::new().list(dir) {
        Ok(names) => Ok(names),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(io("list", dir, error)),
    }
}

/// Refuses a directory that holds a database of LevelDB or of an engine that came from it. Reads a few bytes and changes nothing.
///
/// Its names are much the same as those of tamis (`CURRENT`, `LOCK`, `MANIFEST-000001`, `000003.log`), so it is known by its tables
/// or by the first record of its manifest.
pub(crate) fn refuse_foreign(dir: &Path) -> Result<(), Failure> {
    let names = names(dir)?;
    let has_tables = names.iter().any(|name| is_numbered(name, &["ldb", "sst"]));
    let mut manifests = names.iter().filter(|name| name.starts_with("MANIFEST-"));
    if has_tables || manifests.any(|name| is_foreign_manifest(&dir.join(name))) {
        let what = format!(
            "{} holds a database of LevelDB, or of an engine that came from it, which tamis does not read; copy its contents \
             into a new directory with a program that is linked with that engine",
            dir.display()
        );
        return Err(Failure::new(Kind::NotSupported, what));
    }
    Ok(())
}

/// Reports whether a name is a number and one of these extensions.
fn is_numbered(name: &str, extensions: &[&str]) -> bool {
    name.split_once('.').is_some_and(|(stem, extension)| {
        !stem.is_empty() && stem.bytes().all(|byte| byte.is_ascii_digit()) && extensions.contains(&extension)
    })
}

/// Reports whether a file begins as LevelDB's manifests do: a record (four bytes of checksum, two of length, one of kind) that
/// first names the comparator (a tag, a length, a name).
fn is_foreign_manifest(path: &Path) -> bool {
    const FULL: u8 = 1;
    const FIRST: u8 = 2;
    const COMPARATOR: u8 = 1;
    let mut start = [0; 9];
    let Ok(mut file) = File::open(path) else { return false };
    if file.read_exact(&mut start).is_err() {
        return false;
    }
    let [_, _, _, _, low, high, kind, tag, name_len] = start;
    let record_len = u16::from_le_bytes([low, high]);
    let mut name = vec![0; usize::from(name_len & 0x7f)];
    matches!(kind, FULL | FIRST)
        && tag == COMPARATOR
        && u16::from(name_len) + 2 <= record_len
        && file.read_exact(&mut name).is_ok()
        && name.iter().all(|byte| byte.is_ascii_graphic())
}

/// Reports whether the engine makes files of this name in a database's directory, `LOCK` excepted.
fn is_of_database(name: &str) -> bool {
    let kept = name.strip_suffix(".aside").or_else(|| name.strip_suffix(".damaged")).unwrap_or(name);
    let manifest = kept.strip_prefix("MANIFEST-");
    matches!(kept, "CURRENT" | "CURRENT.tmp" | "OPTIONS" | "OPTIONS.tmp" | "RESERVE" | "LOG.tmp")
        || is_numbered(kept, &["tam", "log", "flt", "blb"])
        || manifest.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
        || kept.starts_with(SCRATCH_PREFIX) && kept.ends_with(".tmp")
}

fn destroy(dir: &Path) -> Result<(), Failure> {
    refuse_foreign(dir)?;
    let fs = DiskFs::new();
    if !fs.exists(dir).map_err(|error| io("look for", dir, error))? {
        return Ok(());
    }
    if !names(dir)?.iter().any(|name| name == "LOCK" || is_of_database(name)) {
        return Ok(());
    }
    let lock = dir.join("LOCK");
    let Some(held) = fs.lock(&lock).map_err(|error| io("lock", &lock, error))? else {
        return Err(Failure::new(Kind::Io, format!("{} is locked: the database is open", lock.display())));
    };
    let mut names = names(dir)?;
    names.retain(|name| is_of_database(name));
    // `CURRENT` first: what an interruption leaves is no database, and is not mistaken for a whole one.
    names.sort_by_key(|name| name != "CURRENT");
    for name in names {
        let path = dir.join(name);
        fs.remove(&path).map_err(|error| io("remove", &path, error))?;
    }
    fs.remove(&lock).map_err(|error| io("remove", &lock, error))?;
    drop(held);
    // It may hold files of others.
    _ = std::fs::remove_dir(dir);
    Ok(())
}

/// Removes the database in the directory `name`, and the directory if nothing else is in it. Succeeds if there is none. Fails if
/// the database is open, or is LevelDB's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_destroy_db(
    options: *const Options,
    name: *const c_char,
    errptr: *mut *mut c_char,
) {
    let _ = options;
    // SAFETY: a string of the caller, and the interface's rule for `errptr`.
    unsafe { attempt(errptr, (), || destroy(path(name)?)) };
}

/// Restores the database in the directory `name` to what can still be read of it. No file is removed: what is no longer part of
/// the database is renamed to `*.aside` or `*.damaged`. A database without damage is left as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_repair_db(
    options: *const Options,
    name: *const c_char,
    errptr: *mut *mut c_char,
) {
    let repair = || {
        // SAFETY: a handle and a string of the caller.
        let (options, dir) = unsafe { (object(options, "options")?, path(name)?) };
        let options = options.to_engine()?;
        refuse_foreign(dir)?;
        if !names(dir)?.iter().any(|name| is_of_database(name)) {
            return Err(Failure::new(Kind::Io, format!("there is no database in {}", dir.display())));
        }
        tamis_doctor::salvage(dir, options, false)?;
        Ok(())
    };
    // SAFETY: the interface's rule for `errptr`.
    unsafe { attempt(errptr, (), repair) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use tamis::options::FilterPolicy;

    fn options() -> tamis::Options {
        let mut options = tamis::Options::default();
        options.keyspace.memtable_bytes = 64 << 10;
        options.keyspace.filter = FilterPolicy::grf();
        options
    }

    /// Makes a database with tables, logs, filter files and files that were set aside.
    fn make(dir: &Path) {
        let db = options().open(dir).unwrap();
        for i in 0..20_000u32 {
            db.put(i.to_be_bytes(), [7; 50]).unwrap();
        }
        db.wait_for_compaction().unwrap();
        db.wait_for_filters().unwrap();
        db.close().unwrap();
    }

    #[test]
    fn a_destroyed_database_leaves_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("db");
        let assert_has = |kinds: &[&str]| {
            let names = names(&dir).unwrap();
            for kind in kinds {
                let made = names.iter().any(|name| name.ends_with(kind));
                assert!(made, "the test makes no {kind}: {names:?}");
            }
        };
        make(&dir);
        assert_has(&[".tam", ".log", ".flt", "OPTIONS"]);
        std::fs::write(dir.join("CURRENT"), "no manifest").unwrap();
        assert!(tamis_doctor::salvage(&dir, options(), false).unwrap().is_needed());
        options().open(&dir).unwrap().close().unwrap();
        assert_has(&[".tam", ".log", "CURRENT.aside", ".flt.aside", ".log.aside"]);
        // What comes and goes while a database is in use, or is left by a crash.
        for name in
            ["RESERVE", "CURRENT.tmp", "OPTIONS.tmp", "LOG.tmp", "calibration-1.tmp", "000999.tam.damaged"]
        {
            std::fs::write(dir.join(name), "").unwrap();
        }
        destroy(&dir).unwrap();
        assert!(!dir.exists(), "left: {:?}", super::names(&dir));
        destroy(&dir).unwrap();
    }

    #[test]
    fn a_destruction_spares_what_is_open_and_what_is_not_of_the_database() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        for name in ["photo.log", "x1.tam", "MANIFEST-draft", "notes.txt", "1.ldb.txt"] {
            std::fs::write(dir.join(name), name).unwrap();
        }
        destroy(dir).unwrap();
        assert!(!dir.join("LOCK").exists());
        let among = tamis::Options { create_among_others: true, ..options() };
        let db = among.open(dir).unwrap();
        db.put("key", "value").unwrap();
        assert!(destroy(dir).unwrap_err().to_string().contains("locked"));
        assert_eq!(db.get("key").unwrap().unwrap(), "value");
        drop(db);
        destroy(dir).unwrap();
        assert_eq!(names(dir).unwrap().len(), 5);
    }

    #[test]
    fn databases_of_leveldb_are_known() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let manifest = dir.join("MANIFEST-000002");
        let name = b"leveldb.BytewiseComparator";
        let mut record = vec![0xde, 0xad, 0xbe, 0xef, 50, 0, 1, 1, name.len() as u8];
        record.extend(name);
        for len in 0..record.len() {
            std::fs::write(&manifest, &record[..len]).unwrap();
            refuse_foreign(dir).unwrap();
        }
        std::fs::write(&manifest, &record).unwrap();
        assert!(refuse_foreign(dir).unwrap_err().to_string().starts_with("Not implemented: "));
        assert_eq!(names(dir).unwrap().len(), 1);
        std::fs::remove_file(&manifest).unwrap();
        refuse_foreign(dir).unwrap();
        std::fs::write(dir.join("000005.ldb"), "").unwrap();
        assert!(refuse_foreign(dir).is_err());
        assert!(destroy(dir).is_err());
        std::fs::remove_file(dir.join("000005.ldb")).unwrap();

        make(dir);
        std::fs::write(dir.join("notes.ldb"), "").unwrap();
        refuse_foreign(dir).unwrap();
        refuse_foreign(&dir.join("missing")).unwrap();
    }
}
