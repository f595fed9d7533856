//! The files of a database's directory: their size, and their eviction from the page cache.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Advice, SeekFrom, seek};
use rustix::io::Errno;

/// Unit of `st_blocks` in bytes, independent of the file system's own blocks.
const STAT_BLOCK: u64 = 512;

/// The size of a directory at one moment. Files removed in the meantime are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Directory {
    /// Allocated bytes in blocks of the file system, including space preallocated for a log.
    pub allocated_bytes: u64,
    /// Written bytes, rounded up to pages: neither holes nor preallocated space.
    pub held_bytes: u64,
    /// Number of files.
    pub files: u64,
}

impl Directory {
    /// Measures all files below `dir`.
    pub(crate) fn of(dir: &Path) -> io::Result<Directory> {
        let mut sum = Directory::default();
        for_files(dir, &mut |path| {
            let file = match File::open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                other => other?,
            };
            sum.allocated_bytes += file.metadata()?.blocks() * STAT_BLOCK;
            sum.files += 1;
            sum.held_bytes += data_bytes(&file)?;
            Ok(())
        })?;
        Ok(sum)
    }
}

/// Syncs all files below `dir` and asks the kernel to evict their pages. Mapped pages stay, so the database must be
/// closed.
pub(crate) fn evict(dir: &Path) -> io::Result<()> {
    for_files(dir, &mut |path| {
        let file = File::open(path)?;
        // Dirty pages are not evicted.
        file.sync_all()?;
        Ok(rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?)
    })
}

/// Reads all files below `dir`. Some machines reclaim pages from the cache within seconds; warm measurements must not
/// depend on the time since a system's last turn.
pub(crate) fn warm(dir: &Path) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    for_files(dir, &mut |path| {
        let mut file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        while file.read(&mut buffer)? > 0 {}
        Ok(())
    })
}

/// Returns the number of bytes for which the file system has data; all bytes if it does not report this.
fn data_bytes(file: &File) -> io::Result<u64> {
    let (mut sum, mut at) = (0, 0);
    loop {
        let begin = match seek(file, SeekFrom::Data(at)) {
            // There is no data after `at`.
            Err(Errno::NXIO) => return Ok(sum),
            other => other?,
        };
        at = match seek(file, SeekFrom::Hole(begin)) {
            // The file was truncated in the meantime.
            Err(Errno::NXIO) => return Ok(sum),
            other => other?,
        };
        sum += at.saturating_sub(begin);
    }
}

fn for_files(dir: &Path, act: &mut impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            for_files(&entry.path(), act)?;
        } else {
            act(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_neither_allocated_nor_written() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("below")).unwrap();
        fs::write(dir.path().join("below/full"), vec![1; 100_000]).unwrap();
        let sparse = File::create(dir.path().join("sparse")).unwrap();
        sparse.set_len(1 << 30).unwrap();
        let aside = File::create(dir.path().join("aside")).unwrap();
        let flags = rustix::fs::FallocateFlags::empty();
        // Some file systems do not support this; then there is one file less to measure.
        let _ = rustix::fs::fallocate(&aside, flags, 0, 200_000);
        warm(dir.path()).unwrap();
        evict(dir.path()).unwrap(); // synced, so that blocks are given to what was written
        let size = Directory::of(dir.path()).unwrap();
        assert!(size.allocated_bytes >= 100_000 && size.allocated_bytes < 1 << 20, "{size:?}");
        assert!(size.held_bytes >= 100_000 && size.held_bytes < 110_000, "{size:?}");
        assert_eq!(size.files, 3);
        assert_eq!(fs::read(dir.path().join("below/full")).unwrap(), vec![1; 100_000]);
        assert!(
            evict(&dir.path().join("nowhere")).is_err()
                && Directory::of(&dir.path().join("nowhere")).is_err()
        );
    }
}
