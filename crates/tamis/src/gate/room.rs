//! The room available for the outputs of compactions.
//!
//! The file system is asked at most once a second, and again after a compaction ended, with no lock
//! held. [`Room::ask`] asks at once, where space is scarce, and may hold the log's lock. The room
//! is the answer, less what running compactions may still write and what memtables will take as
//! tables. With this estimate, a started compaction can be expected to finish. It need not be
//! exact: a compaction that meets a full disk anyway is undone and backs off.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::io::FileSystem;
use crate::sync::{self, Mutex};

const MAX_AGE: Duration = Duration::from_secs(1);

/// Compactions leave this many bytes free: their own edits need some, and so does a range delete.
pub(crate) const LEFT_FREE: u64 = 32 << 10;

/// The file system's last answer. Any thread may ask; the mutex is held only to copy the answer.
#[derive(Debug, Default)]
pub(crate) struct Room {
    known: Mutex<KnownSpace>,
}

#[derive(Clone, Copy, Debug, Default)]
struct KnownSpace {
    asked: Option<Instant>,
    free: Option<u64>,
}

impl Room {
    /// Asks the file system, if that is due. Must not be called with a lock held, since this may be
    /// slow. On a failure the free space counts as unknown.
    pub(crate) fn refresh(&self, fs: &dyn FileSystem, dir: &Path) {
        if self.known().asked.is_some_and(|at| sync::since(at) < MAX_AGE) {
            return;
        }
        let asked = Some(sync::now());
        let free = fs.available_space(dir).unwrap_or_default();
        *self.known.lock() = KnownSpace { asked, free };
    }

    /// Asks the file system now. The same applies, except that the log's lock may be held.
    pub(crate) fn ask(&self, fs: &dyn FileSystem, dir: &Path) -> Option<u64> {
        self.outdated();
        self.refresh(fs, dir);
        self.free()
    }

    /// Marks the answer as out of date, so that the next [`refresh`](Self::refresh) asks again.
    pub(crate) fn outdated(&self) {
        self.known.lock().asked = None;
    }

    /// Returns the free bytes on the device, if known.
    pub(crate) fn free(&self) -> Option<u64> {
        self.known().free
    }

    fn known(&self) -> KnownSpace {
        *self.known.lock()
    }
}

/// Formats a size for people, in the largest unit that fits.
pub(crate) fn human(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.iter().find(|(_, shift)| bytes >> shift > 0) {
        Some((unit, shift)) => format!("{:.1} {unit}", bytes as f64 / (1u64 << shift) as f64),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use tamis_testkit::FaultyFs;

    use super::*;

    #[test]
    fn the_file_system_is_asked_when_something_changed() {
        let (fs, dir) = (FaultyFs::new(1), Path::new("/"));
        let room = Room::default();
        assert_eq!(room.free(), None);
        fs.set_capacity(Some(1000));
        room.refresh(&fs, dir);
        assert_eq!(room.free(), Some(1000));
        fs.set_capacity(None);
        room.outdated();
        assert_eq!(room.free(), Some(1000), "what was known stays until it is asked again");
        room.refresh(&fs, dir);
        assert_eq!(room.free(), None);
    }

    #[test]
    fn sizes_are_formatted_in_fitting_units() {
        for (bytes, text) in [
            (900, "900 bytes"),
            (1023, "1023 bytes"),
            (1 << 10, "1.0 KiB"),
            (10 << 10, "10.0 KiB"),
            (1 << 20, "1.0 MiB"),
            (1 << 30, "1.0 GiB"),
            (3 << 29, "1.5 GiB"),
            (1 << 40, "1.0 TiB"),
            (5 << 50, "5120.0 TiB"),
        ] {
            assert_eq!(human(bytes), text);
        }
    }
}
