//! Other openings of the database's files: checkpoints, and openings beside the writer.

use std::path::Path;

use super::contents::everything;
use super::{Client, Failure};

impl Client {
    /// Makes a checkpoint, and looks at its contents.
    pub(super) fn checkpoint(&self) -> Result<(), Failure> {
        let path = format!("/checkpoint-{}-{}", self.number, self.shared.oracle().stamp());
        let path = Path::new(&path);
        let began = self.shared.oracle().stamp();
        let made = self.db.checkpoint(path);
        let ended = self.shared.oracle().stamp();
        if let Err(error) = made {
            return self.shared.excuse("a checkpoint", &error, None);
        }
        let read = match self.shared.options.clone().open(path) {
            Ok(copy) => everything(&copy),
            Err(error) => return self.shared.excuse("opening a checkpoint", &error, None),
        };
        let checked = match read {
            Ok(contents) => self.shared.oracle().check_copy(&contents?, began, ended),
            Err(error) => return self.shared.excuse("a checkpoint", &error, None),
        };
        // A directory that cannot be removed now does no harm.
        let _ = tamis::io::FileSystem::remove_dir_all(&self.shared.disk, path);
        checked.map_err(|error| format!("a checkpoint: {error}"))
    }

    /// Opens the database beside the writer, and looks at its contents.
    pub(super) fn read_only(&self) -> Result<(), Failure> {
        let began = self.shared.oracle().stamp();
        let opened = self.shared.options.clone().open_read_only(self.db.path());
        let ended = self.shared.oracle().stamp();
        let read = match opened {
            Ok(copy) => everything(&copy),
            Err(error) => return self.shared.excuse("a read-only opening", &error, None),
        };
        match read {
            Ok(contents) => {
                let checked = self.shared.oracle().check_files(&contents?, began, ended);
                checked.map_err(|error| format!("a read-only opening: {error}"))
            }
            Err(error) => self.shared.excuse("a read-only opening", &error, None),
        }
    }
}
