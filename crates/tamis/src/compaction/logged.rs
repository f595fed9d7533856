//! Large values that a flush leaves where they are: in logs.
//!
//! A log whose bytes are mostly large values of one keyspace gets a second name, as a blob file,
//! and the flush refers to the values there. So they are written once. The log is complete and
//! synced by then, and is never overwritten: it is a blob file like others, whose keys and small
//! values count as garbage.

use std::path::Path;
use std::sync::Arc;

use tamis_base::collections::{HashMap, HashSet};
use tamis_base::ids::LogId;
use tamis_base::key::{Kind, SeqNo};
use tamis_files::blob::{Reference, find_in_log};
use tamis_files::tree::files::{blob_path, log_path};

use crate::compaction::blobs::small_bytes;
use crate::io::FileSystem;
use crate::memtable::Memtable;
use crate::options::{Compression, KeyspaceOptions};
use crate::tree::new_tables::NewFiles;

/// The large values of a flush, by sequence number.
#[derive(Debug, Default)]
pub(crate) struct InLogs {
    /// Those that the flush keeps, as far as is known before.
    kept: HashSet<SeqNo>,
    /// Their bytes.
    kept_bytes: u64,
    /// Those that were found in logs.
    places: HashMap<SeqNo, Reference>,
}

impl InLogs {
    /// Lists the large values of memtables. There are none if values must not stay in logs, where
    /// they are not compressed. With `all`, older versions of a key are kept, too.
    pub(crate) fn of<'m>(
        options: &KeyspaceOptions,
        memtables: impl Iterator<Item = &'m Arc<Memtable>>,
        all: bool,
    ) -> InLogs {
        let mut large = InLogs::default();
        if options.blob_threshold == 0 || options.compression.at(0) != Compression::None {
            return large;
        }
        for memtable in memtables {
            let mut cursor = memtable.cursor();
            let mut last: Option<Vec<u8>> = None;
            cursor.seek_to_first();
            while cursor.valid() {
                let (key, seq, kind, value) = cursor.version();
                let is_newest = last.as_deref() != Some(key);
                if (is_newest || all) && kind == Kind::Put && value.len() as u64 >= options.blob_threshold {
                    large.kept.insert(seq);
                    large.kept_bytes += value.len() as u64;
                }
                if is_newest {
                    let last = last.get_or_insert_default();
                    last.clear();
                    last.extend_from_slice(key);
                }
                cursor.next();
            }
        }
        large
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Looks for the values in a complete log of `bytes` bytes, if they can be most of it. What
    /// else it has may be half the [garbage](KeyspaceOptions::blob_garbage) at which values are
    /// written again. Small logs are left, since each would be a file of its own. Reports whether
    /// tables may refer to the log. One that cannot be read is left, too: the values are in memory.
    pub(crate) fn look_in(
        &mut self,
        fs: &dyn FileSystem,
        dir: &Path,
        (log, bytes): (LogId, u64),
        options: &KeyspaceOptions,
    ) -> bool {
        let most_else = (bytes as f64 * options.blob_garbage / 2.0) as u64;
        if bytes < small_bytes(options) || self.kept_bytes < bytes - most_else {
            return false;
        }
        let path = log_path(dir, log);
        match find_in_log(fs, &path, log, |seq| self.kept.contains(&seq), most_else) {
            Ok(Some(places)) => {
                self.places.extend(places);
                true
            }
            Ok(None) => false,
            Err(why) => {
                log::warn!("large values in a log are written once more: {why}");
                false
            }
        }
    }

    /// Returns the place of the value with this number.
    #[inline]
    pub(crate) fn find(&self, seq: SeqNo) -> Option<Reference> {
        self.places.get(&seq).copied()
    }
}

/// Gives a log its second name. Reports whether it has it: where the file system has no links, or
/// the name is taken by what a failed flush left, the values are written once more.
pub(crate) fn adopt(fs: &dyn FileSystem, dir: &Path, files: &mut NewFiles, log: LogId) -> bool {
    let path = blob_path(dir, log);
    match fs.link(&log_path(dir, log), &path) {
        Ok(()) => {
            files.add_blob(log);
            true
        }
        Err(e) => {
            log::debug!("{} could not be linked: {e}", path.display());
            false
        }
    }
}
