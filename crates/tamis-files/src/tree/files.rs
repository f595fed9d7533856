//! File names in a database directory.
//!
//! A file's name and its kind and number determine each other: [`parse`] accepts only names that
//! these functions produce, so no file has two names.

use std::path::{Path, PathBuf};

use tamis_base::ids::{BlobFileId, FilterFileId, LogId, TableId};
use tamis_env::io::SCRATCH_PREFIX;

use crate::tree::edit::NUMBER_LIMIT;

/// What a file in a database directory is, according to its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// `000012.tam`: a table.
    Table(TableId),
    /// `000013.log`: a write-ahead log.
    Log(LogId),
    /// `000015.blb`: a blob file.
    Blob(BlobFileId),
    /// `000014.flt`: a filter file.
    Filter(FilterFileId),
    /// `MANIFEST-000001`: a manifest.
    Manifest(u64),
    /// `CURRENT`: names the manifest in force.
    Current,
    /// `LOCK`: held by the process that has the database open.
    Lock,
    /// `OPTIONS`: the options of the last opening, for human readers.
    Options,
    /// `RESERVE`: space to release when the disk is full; nothing depends on it.
    Reserve,
    /// `STATS`: the session's metrics, rewritten repeatedly while it lasts; nothing depends on it.
    Stats,
    /// `CURRENT.tmp`, `OPTIONS.tmp`, `STATS.tmp`, `LOG.tmp` or a scratch file: a file being
    /// replaced or created atomically, or left over from a crash.
    Temporary,
}

const CURRENT: &str = "CURRENT";
const NEXT_CURRENT: &str = "CURRENT.tmp";
const LOCK: &str = "LOCK";
const OPTIONS: &str = "OPTIONS";
const RESERVE: &str = "RESERVE";
const STATS: &str = "STATS";
const NEXT_STATS: &str = "STATS.tmp";
const FIRST_LOG: &str = "LOG.tmp";
const MANIFEST_PREFIX: &str = "MANIFEST-";

/// The path of a table.
pub fn table_path(dir: &Path, id: TableId) -> PathBuf {
    dir.join(format!("{id:06}.tam"))
}

/// The path of a blob file.
pub fn blob_path(dir: &Path, id: BlobFileId) -> PathBuf {
    dir.join(format!("{id:06}.blb"))
}

/// The path of a filter file.
pub fn filter_path(dir: &Path, id: FilterFileId) -> PathBuf {
    dir.join(format!("{id:06}.flt"))
}

/// The path of a write-ahead log.
pub fn log_path(dir: &Path, id: LogId) -> PathBuf {
    dir.join(format!("{id:06}.log"))
}

/// The path of a session's first log until its header is durable.
pub fn first_log_path(dir: &Path) -> PathBuf {
    dir.join(FIRST_LOG)
}

/// The name of a manifest, as stored in the file at [`current_path`].
pub fn manifest_name(number: u64) -> String {
    format!("{MANIFEST_PREFIX}{number:06}")
}

/// The path of a manifest.
pub fn manifest_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(manifest_name(number))
}

/// The path of the file that names the manifest in force.
pub fn current_path(dir: &Path) -> PathBuf {
    dir.join(CURRENT)
}

/// The path of the file that will replace the one at [`current_path`].
pub fn temporary_current_path(dir: &Path) -> PathBuf {
    dir.join(NEXT_CURRENT)
}

/// The path of the lock file.
pub fn lock_path(dir: &Path) -> PathBuf {
    dir.join(LOCK)
}

/// The path of the file with the options text.
pub fn options_path(dir: &Path) -> PathBuf {
    dir.join(OPTIONS)
}

/// The path of the file with the session's metrics.
pub fn stats_path(dir: &Path) -> PathBuf {
    dir.join(STATS)
}

/// The path of the file that will replace the one at [`stats_path`].
pub fn next_stats_path(dir: &Path) -> PathBuf {
    dir.join(NEXT_STATS)
}

/// The path of the file that holds space to release when the disk is full.
pub fn reserve_path(dir: &Path) -> PathBuf {
    dir.join(RESERVE)
}

/// Returns the last component of a path, for messages.
pub fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Parses a file name (without directory); `None` for a name that the engine does not create.
pub fn parse(name: &str) -> Option<FileKind> {
    match name {
        CURRENT => Some(FileKind::Current),
        LOCK => Some(FileKind::Lock),
        OPTIONS => Some(FileKind::Options),
        RESERVE => Some(FileKind::Reserve),
        STATS => Some(FileKind::Stats),
        NEXT_CURRENT | "OPTIONS.tmp" | NEXT_STATS | FIRST_LOG => Some(FileKind::Temporary),
        _ if name.starts_with(SCRATCH_PREFIX) && name.ends_with(".tmp") => Some(FileKind::Temporary),
        _ => {
            if let Some(digits) = name.strip_prefix(MANIFEST_PREFIX) {
                return number(digits).map(FileKind::Manifest);
            }
            let (digits, extension) = name.split_once('.')?;
            match extension {
                "tam" => number(digits).map(FileKind::Table),
                "log" => number(digits).map(FileKind::Log),
                "blb" => number(digits).map(FileKind::Blob),
                "flt" => number(digits).map(FileKind::Filter),
                _ => None,
            }
        }
    }
}

fn number(digits: &str) -> Option<u64> {
    let number = digits.parse().ok().filter(|number| *number < NUMBER_LIMIT)?;
    (format!("{number:06}") == digits).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_to_what_it_was_made_from() {
        let dir = Path::new("/db");
        for id in [0, 12, 999_999, 1_000_000, NUMBER_LIMIT - 1] {
            let made = [
                (table_path(dir, id), FileKind::Table(id)),
                (log_path(dir, id), FileKind::Log(id)),
                (filter_path(dir, id), FileKind::Filter(id)),
                (blob_path(dir, id), FileKind::Blob(id)),
                (manifest_path(dir, id), FileKind::Manifest(id)),
                (current_path(dir), FileKind::Current),
                (lock_path(dir), FileKind::Lock),
                (stats_path(dir), FileKind::Stats),
                (next_stats_path(dir), FileKind::Temporary),
            ];
            for (path, kind) in made {
                assert_eq!(parse(path.file_name().unwrap().to_str().unwrap()), Some(kind), "{path:?}");
            }
        }
        assert_eq!(table_path(dir, 12), Path::new("/db/000012.tam"));
        assert_eq!(manifest_path(dir, 1), Path::new("/db/MANIFEST-000001"));
        assert_eq!(parse("CURRENT.tmp"), Some(FileKind::Temporary));
        assert_eq!(parse("calibration-12-0.tmp"), Some(FileKind::Temporary));
        assert_eq!(parse("calibration-12-0.tam"), None);
    }

    #[test]
    fn other_names_are_rejected() {
        let names = [
            "",
            "12.tam",
            "12.flt",
            "0000012.tam",
            "+00012.tam",
            "000012.sst",
            "000012.tam.bak",
            "000012",
            ".tam",
            "MANIFEST-",
            "MANIFEST-1",
            "MANIFEST-000001.log",
            "current",
            "99999999999999999999.log",
            "18446744073709551615.log",
            "72057594037927936.tam",
        ];
        for name in names {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
