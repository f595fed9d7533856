//! One backup.

use std::sync::Arc;

use tamis::io::{DiskFs, FileSystem};

use crate::error::Error;
use crate::repository::Repository;
use crate::source::Source;
use crate::upload::{BackupOptions, Uploader, Written, is_complete};

/// How often a backup is begun anew because another process wrote a state of the same database
/// meanwhile.
const ROUNDS: usize = 5;

impl Repository {
    /// Writes a state of a database as it is now. Only what the newest state does not have is sent;
    /// what an interrupted backup has sent is not sent again.
    ///
    /// # Errors
    ///
    /// When the database cannot be read, a request fails for good, or the repository belongs to
    /// another copy of the database ([`Error::AnotherWriter`]). The next backup continues where
    /// this one stopped.
    pub fn backup(&self, source: &dyn Source, options: BackupOptions) -> Result<Written, Error> {
        self.backup_with(source, options, Arc::new(DiskFs::default()))
    }

    /// The same with the cache file in another file system.
    ///
    /// # Errors
    ///
    /// As [`backup`](Self::backup).
    pub fn backup_with(
        &self,
        source: &dyn Source,
        options: BackupOptions,
        fs: Arc<dyn FileSystem>,
    ) -> Result<Written, Error> {
        let mut round = 1;
        loop {
            let mut uploader = Uploader::begin(self, fs.clone(), options.clone())?;
            let pinned = source.pin()?;
            if !is_complete(&pinned.files) {
                return Err(Error::Io {
                    what: "the database".into(),
                    source: std::io::Error::new(std::io::ErrorKind::NotFound, "it has no manifest"),
                });
            }
            match uploader.write(&pinned) {
                Ok(written) => {
                    uploader.end()?;
                    return Ok(written);
                }
                // What was sent stays: the next round is of the same session.
                Err(Error::Superseded { .. } | Error::Expired) if round < ROUNDS => round += 1,
                // A log was overwritten while it was read, as its writes are in tables by now.
                Err(Error::Io { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound && round < ROUNDS =>
                {
                    round += 1;
                }
                Err(error) => {
                    // What is known of the files is worth keeping; the first failure is the one to
                    // report.
                    let _ = uploader.save();
                    return Err(error);
                }
            }
        }
    }
}
