//! Large values that a flush leaves where they are: in logs.
//!
//! A log whose bytes are mostly large values of one keyspace gets a second name, as a blob file,
//! and the flush refers to the values there. So they are written once. The log is complete and
//! synced by then, and is never overwritten: it is a blob file like others, whose keys and small
//! values count as garbage.

use std::path::Path;

use tamis_base::collections::HashMap;
use tamis_base::ids::{KeyspaceId, LogId};
use tamis_base::key::SeqNo;
use tamis_files::blob::{LoggedValues, Reference};
use tamis_files::tree::files::{blob_path, log_path};

use crate::error::StorageError;
use crate::io::FileSystem;
use crate::options::{Compression, KeyspaceOptions};
use crate::tree::new_tables::NewFiles;

/// Values that need not be written, by sequence number.
#[derive(Debug, Default)]
pub(crate) struct InLogs(HashMap<SeqNo, Reference>);

impl InLogs {
    /// Reports whether values of a keyspace may stay in logs: in a log they are not compressed.
    pub(crate) fn are_possible(options: &KeyspaceOptions) -> bool {
        options.blob_threshold > 0 && options.compression.at(0) == Compression::None
    }

    /// Adds the keyspace's large values in a complete log, if they are most of its bytes: the rest
    /// may be half the [garbage](KeyspaceOptions::blob_garbage) at which values are written again.
    /// Reports whether it did. A log that cannot be read adds nothing: the values are in memory,
    /// too.
    pub(crate) fn add(
        &mut self,
        fs: &dyn FileSystem,
        dir: &Path,
        (log, keyspace): (LogId, KeyspaceId),
        options: &KeyspaceOptions,
    ) -> bool {
        let path = log_path(dir, log);
        let found = match LoggedValues::find(fs, &path, log, keyspace, options.blob_threshold) {
            Ok(found) => found,
            Err(why) => {
                log::warn!("large values in a log are written once more: {why}");
                return false;
            }
        };
        let least = found.log_bytes as f64 * (1.0 - options.blob_garbage / 2.0);
        let is_worth_it = found.value_bytes() as f64 >= least;
        if is_worth_it {
            self.0.extend(found.places);
        }
        is_worth_it
    }

    /// Returns the place of the value with this number.
    #[inline]
    pub(crate) fn find(&self, seq: SeqNo) -> Option<Reference> {
        self.0.get(&seq).copied()
    }
}

/// Gives a log its second name.
pub(crate) fn adopt(
    fs: &dyn FileSystem,
    dir: &Path,
    files: &mut NewFiles,
    log: LogId,
) -> Result<(), StorageError> {
    let path = blob_path(dir, log);
    fs.link_or_copy(&log_path(dir, log), &path).map_err(|e| StorageError::io("link", &path, e))?;
    files.add_blob(log);
    Ok(())
}
