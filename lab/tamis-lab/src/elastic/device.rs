//! Emulated and real devices for reads of tables: `--device`.
//!
//! A *drive* is a device by name. A measured one is read with `O_DIRECT` (`disk`) or through the page cache
//! (`page-cache`, `ram-disk`). For an emulated one ([`EmulatedFs`]) the engine reads as with direct I/O: by system
//! calls ([`ReadMode::Buffered`]), so that every block and every filter unit is read once from the file system and then
//! from the block cache. The bytes below come from the page cache, so that a read takes the device's time without that
//! of the disk: files are read into it before the first measurement ([`Drive::prepare`]). Data that does not fit is
//! late where the disk is slower than the device; such reads are counted.
//!
//! Only measured reads of tables are slowed down. A database is loaded, opened and warmed with the device off.
//!
//! # Threads
//!
//! The thread that measures a side switches its device ([`paid`]) while no read of that side is in progress and no
//! filter unit waits to be loaded.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tamis::Db;
use tamis::options::ReadMode;
use tamis_bench::BenchError;
use tamis_testkit::EmulatedFs;

use crate::medium::{Medium, Way};

/// Read latency from which fewer operations are measured.
const SLOW_NS: f64 = 1e6;

/// On a slow device, one in this number of operations is measured.
const SLOW_PART: u64 = 5;

/// Maximum number of bytes read into the page cache for one database.
const MOST_PREPARED: u64 = 8 << 30;

/// A device by its name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Drive {
    pub(super) name: String,
    way: Way,
}

impl Drive {
    /// Fails with a list of the known devices if the name is unknown.
    pub(super) fn of(name: &str) -> Result<Drive, BenchError> {
        Ok(Drive { name: name.to_owned(), way: Way::of(name)? })
    }

    pub(super) fn is_emulated(&self) -> bool {
        self.way.is_emulated()
    }

    /// Reports whether fewer operations are measured on it.
    pub(super) fn is_slow(&self) -> bool {
        self.way.expected_ns() >= SLOW_NS
    }

    /// Returns the number of operations measured instead of `ops`.
    pub(super) fn part_of(&self, ops: u64) -> u64 {
        if self.is_slow() { (ops / SLOW_PART).max(1) } else { ops }
    }

    /// Returns the approximate duration of a read in nanoseconds, for planning.
    pub(super) fn expected_ns(&self) -> f64 {
        self.way.expected_ns()
    }

    /// Returns name and kind: `hdd (emulated)`.
    pub(super) fn describe(&self) -> String {
        let kind = match self.way.medium {
            _ if self.is_emulated() => "emulated",
            Medium::Direct => "direct I/O",
            Medium::Cached => "read through the page cache",
            Medium::Ram => "a file system in memory",
        };
        format!("{} ({kind})", self.name)
    }

    /// Returns the engine's read mode, which uses the block cache as with direct I/O.
    pub(super) fn read_mode(&self) -> ReadMode {
        match self.way.medium {
            Medium::Direct => ReadMode::Direct,
            Medium::Cached | Medium::Ram => ReadMode::Buffered,
        }
    }

    /// Returns the directory for copies of `bytes` bytes, if they do not go beside the bases in `dir`, or why there is
    /// none.
    pub(super) fn place(&self, dir: &Path, bytes: u64) -> Result<Option<PathBuf>, String> {
        self.way.medium.place(dir, bytes)
    }

    /// Returns the file system of one side, off; `None` if nothing is emulated.
    pub(super) fn file_system(&self) -> Option<EmulatedFs> {
        self.is_emulated().then(|| {
            let fs = EmulatedFs::new(self.way.medium.base(), self.way.device);
            fs.set_on(false);
            fs
        })
    }

    /// Reads the files of a database into the page cache, from which emulated devices read. At most 8 GiB.
    pub(super) fn prepare(&self, database: &Path) -> Result<(), BenchError> {
        match self.is_emulated() {
            true => read_all(database, MOST_PREPARED).map(drop).map_err(|source| BenchError::Io {
                operation: "read",
                path: database.to_owned(),
                source,
            }),
            false => Ok(()),
        }
    }
}

/// Reads the files of a directory, at most `most` bytes. Returns the number of bytes read.
fn read_all(dir: &Path, most: u64) -> io::Result<u64> {
    let mut done = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            done += io::copy(&mut File::open(entry.path())?.take(most - done), &mut io::sink())?;
        }
    }
    Ok(done)
}

/// Executes the measured work with slow reads of tables. The loads of units that are pending at its end are slow, too,
/// but not part of its time: a device would not be idle while the other sides are measured.
pub(super) fn paid<T>(
    fs: Option<&EmulatedFs>,
    db: &Db,
    measure: impl FnOnce() -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    let Some(fs) = fs else { return measure() };
    fs.set_on(true);
    let result = measure().and_then(|measured| Ok(db.wait_for_filters().map(|()| measured)?));
    fs.set_on(false);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_are_read_as_the_direct_figures_are() {
        for (name, mode, emulated, ops) in [
            ("hdd", ReadMode::Buffered, true, 200),
            ("ssd", ReadMode::Buffered, true, 1000),
            ("nvm", ReadMode::Buffered, true, 1000),
            ("disk", ReadMode::Direct, false, 1000),
            ("page-cache", ReadMode::Buffered, false, 1000),
            ("ram-disk", ReadMode::Buffered, false, 1000),
        ] {
            let drive = Drive::of(name).unwrap();
            assert_eq!(
                (drive.read_mode(), drive.is_emulated(), drive.part_of(1000)),
                (mode, emulated, ops),
                "{name}"
            );
            assert_eq!(drive.file_system().is_some(), emulated, "{name}");
            assert!(drive.describe().starts_with(name), "{}", drive.describe());
        }
        assert_eq!(Drive::of("hdd").unwrap().part_of(3), 1);
        assert!(Drive::of("tape").unwrap_err().to_string().contains("pcie-ssd"));
    }

    #[test]
    fn files_are_read_up_to_a_limit() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            fs::write(dir.path().join(name), [7; 1000]).unwrap();
        }
        fs::create_dir(dir.path().join("sub")).unwrap();
        assert_eq!(read_all(dir.path(), 1 << 20).unwrap(), 2000);
        assert_eq!(read_all(dir.path(), 1500).unwrap(), 1500);
    }
}
