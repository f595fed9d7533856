//! Large values that a flush leaves where they are: in logs.
//!
//! Memtables refer to their large values in logs. If a log's bytes are mostly such values of one
//! keyspace, the log gets a second name, as a blob file, and the tables get the references. So the
//! values are written once. The log is complete and synced by then, and is never overwritten: it is
//! a blob file like others, whose keys and small values count as garbage. Otherwise the flush writes
//! the values to a blob file, as a merge does that collects garbage.

use std::path::Path;
use std::sync::Arc;

use tamis_base::collections::HashMap;
use tamis_base::ids::LogId;
use tamis_base::key::Kind;
use tamis_files::blob::{BlobFile, Reference};
use tamis_files::tree::files::{blob_path, log_path};

use crate::compaction::blobs::small_bytes;
use crate::io::FileSystem;
use crate::options::{Compression, KeyspaceOptions};
use crate::read::MemtableSlot;
use crate::tree::new_tables::NewFiles;

/// Returns the logs that memtables refer to, each once.
pub(crate) fn logs_of(slots: &[Arc<MemtableSlot>]) -> Vec<Arc<BlobFile>> {
    let mut logs: Vec<_> = slots.iter().flat_map(|slot| slot.memtable.logs()).collect();
    logs.sort_by_key(|log| log.id());
    logs.dedup_by_key(|log| log.id());
    logs
}

/// Returns how many bytes of values in each log the memtables' flush keeps, as far as is known
/// before. With `all`, it keeps older versions of a key, too.
pub(crate) fn kept_bytes(slots: &[Arc<MemtableSlot>], all: bool) -> HashMap<LogId, u64> {
    let mut kept = HashMap::default();
    for slot in slots {
        let mut cursor = slot.memtable.cursor();
        let mut last: Option<Vec<u8>> = None;
        cursor.seek_to_first();
        while cursor.valid() {
            let (key, _, kind, value) = cursor.version();
            let is_newest = last.as_deref() != Some(key);
            if (is_newest || all) && kind == Kind::PutBlob {
                let at = Reference::decode(value).expect("the memtable encoded it");
                *kept.entry(at.file).or_default() += at.len;
            }
            if is_newest {
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(key);
            }
            cursor.next();
        }
    }
    kept
}

/// Reports whether values of `kept` bytes can stay in a log of `bytes`. What else it has may be half
/// the [garbage](KeyspaceOptions::blob_garbage) at which values are written again. Small logs are
/// left, since each would be a file of its own.
pub(crate) fn stay(options: &KeyspaceOptions, bytes: u64, kept: u64) -> bool {
    let most_else = (bytes as f64 * options.blob_garbage / 2.0) as u64;
    options.blob_threshold > 0
        && options.compression.at(0) == Compression::None
        && bytes >= small_bytes(options)
        && kept >= bytes - most_else
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
