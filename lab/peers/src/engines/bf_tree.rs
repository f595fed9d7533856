//! Bf-Tree, pure Rust: a B-tree whose hot records are kept in mini-pages of different sizes, in a circular buffer.
//!
//! Source: the crate's documentation and README, `doc/snapshot-recovery.md`, `src/config.rs`.
//!
//! * The circular buffer takes the memory of the cache, rounded down to a power of two, which it must be. All else is
//!   as by default: leaf pages of 4 KiB, `StorageBackend::Std`, 30 of 100 reads from a leaf page promote the record.
//! * The log is off, as by default. With it, a put waits for the next write of the log, by a timer of 1 ms, and reading
//!   it back ends at the first split of a page (`todo!` in `recovery`). Without it, a put is in memory only.
//! * A tree is opened again from a snapshot only, so `close` takes one, and the next `open` continues in its file. This
//!   needs `use_snapshot`, with which a new mini-page takes one more system call.
//! * There are no empty values: see [`stored`].
//!
//! Threads: all calls may run concurrently. A scan holds a lock of its present leaf.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use ::bf_tree::{Config, ConfigError, LeafInsertResult, LeafReadResult, ScanReturnField};
use tamis_bench::store::{Session, Store};
use tamis_bench::{BenchError, Workload};

use crate::engines::shared::{self, told};
use crate::engines::{Batch, Engine, Inside, Setup};

const NAME: &str = "bf-tree";

/// The longest key, and the longest record (key and value): two of them fit into a leaf page.
const KEY_BYTES: usize = 128;
const RECORD_BYTES: usize = 1536;

/// The smallest circular buffer.
const LEAST_BUFFER: u64 = 64 << 10;

const SNAPSHOT: &str = "snapshot-";

/// An open tree.
pub struct BfTree {
    tree: ::bf_tree::BfTree,
    dir: PathBuf,
    /// The number of the snapshot that it was opened from; 0 for a new tree.
    opened: u64,
}

/// A thread's session.
pub struct BfTreeSession<'s> {
    tree: &'s ::bf_tree::BfTree,
    /// A record that was read.
    record: Box<[u8; RECORD_BYTES]>,
    /// A value to be stored.
    value: Vec<u8>,
}

impl Engine for BfTree {
    const NAME: &'static str = NAME;

    fn version() -> String {
        shared::locked_version(NAME)
    }

    fn refuses(setup: &Setup) -> Option<&'static str> {
        if setup.sync {
            Some("it syncs nothing but snapshots")
        } else if setup.separated_bytes.is_some() {
            Some("records must fit into its pages")
        } else {
            shared::refused_by_b_tree(setup)
        }
    }

    fn lacks(workload: Workload, batch: usize) -> Option<&'static str> {
        if workload == Workload::ReverseNext50 {
            Some("it has no reverse scans")
        } else if batch > 1 {
            Some("it has no batches")
        } else {
            None
        }
    }

    fn durability(_: &Setup) -> &'static str {
        "in the memory of the process: the death of the process loses all puts since the database was opened"
    }

    fn open(setup: &Setup) -> Result<(Self, BTreeMap<String, String>), BenchError> {
        let dir = shared::make_dir(setup)?;
        let largest = setup.cache_bytes.max(LEAST_BUFFER);
        let buffer = shared::size(1 << largest.ilog2());
        let opened = last_snapshot(dir)?;
        let tree = match opened {
            0 => {
                let mut config = Config::new(dir.join("tree"), buffer);
                config.cb_max_key_len(KEY_BYTES).cb_max_record_size(RECORD_BYTES).use_snapshot(true);
                ::bf_tree::BfTree::with_config(config, None)
            }
            number => {
                let path = snapshot(dir, number);
                ::bf_tree::BfTree::new_from_cpr_snapshot(path, true, None, Some(buffer), None)
            }
        };
        let tree = tree.map_err(unusable)?;
        let told = told([
            ("cb_size_byte", buffer.to_string()),
            ("cb_max_key_len", KEY_BYTES.to_string()),
            ("cb_max_record_size", RECORD_BYTES.to_string()),
            ("leaf_page_size", tree.config().get_leaf_page_size().to_string()),
            ("use_snapshot", "true".to_owned()),
            ("write_ahead_log", "none".to_owned()),
            ("storage_backend", "Std".to_owned()),
        ]);
        Ok((BfTree { tree, dir: dir.to_owned(), opened }, told))
    }

    fn write(_: &mut BfTreeSession<'_>, _: &Batch) -> Result<(), BenchError> {
        Err(failed("it has no batches"))
    }

    /// There is nothing to wait for: pages are written when the buffer needs their memory.
    fn settle(&self) -> Result<(), BenchError> {
        Ok(())
    }

    fn inside(&self) -> Result<Inside, BenchError> {
        Ok(Inside { runs: Some(1), ..Inside::default() })
    }

    fn close(self) -> Result<(), BenchError> {
        // Its pages have changed the file of the last snapshot, which can no longer be opened.
        self.tree.cpr_snapshot(snapshot(&self.dir, self.opened + 1));
        drop(self.tree);
        let old = if self.opened == 0 { self.dir.join("tree") } else { snapshot(&self.dir, self.opened) };
        std::fs::remove_file(&old).map_err(|source| BenchError::Io { operation: "remove", path: old, source })
    }
}

/// Returns the number of the last snapshot, 0 if there is none.
fn last_snapshot(dir: &Path) -> Result<u64, BenchError> {
    let unread = |source| BenchError::Io { operation: "read", path: dir.to_owned(), source };
    let mut last = 0;
    for entry in std::fs::read_dir(dir).map_err(unread)? {
        let name = entry.map_err(unread)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(SNAPSHOT)?.parse().ok());
        last = last.max(number.unwrap_or(0));
    }
    Ok(last)
}

fn snapshot(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{SNAPSHOT}{number}"))
}

/// Returns what is stored for a value: itself, but one more 0 if it has only zeros or nothing, so that nothing
/// stored is empty.
#[inline]
fn stored<'v>(value: &'v [u8], buffer: &'v mut Vec<u8>) -> &'v [u8] {
    if value.iter().any(|&byte| byte != 0) {
        return value;
    }
    buffer.clear();
    buffer.resize(value.len() + 1, 0);
    buffer
}

/// Returns the value that was stored.
#[inline]
fn value_of(stored: &[u8]) -> &[u8] {
    if stored.iter().any(|&byte| byte != 0) { stored } else { &stored[..stored.len().saturating_sub(1)] }
}

impl Store for BfTree {
    type Session<'s> = BfTreeSession<'s>;

    fn session(&self) -> Result<BfTreeSession<'_>, BenchError> {
        Ok(BfTreeSession { tree: &self.tree, record: Box::new([0; RECORD_BYTES]), value: Vec::new() })
    }
}

impl Session for BfTreeSession<'_> {
    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        match self.tree.insert(key, stored(value, &mut self.value)) {
            LeafInsertResult::Success => Ok(()),
            LeafInsertResult::InvalidKV(why) => Err(failed(why)),
        }
    }

    #[inline]
    fn get<R>(&mut self, key: &[u8], look: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, BenchError> {
        match self.tree.read(key, &mut self.record[..]) {
            LeafReadResult::Found(length) => Ok(look(Some(value_of(&self.record[..length as usize])))),
            LeafReadResult::NotFound | LeafReadResult::Deleted => Ok(look(None)),
            LeafReadResult::InvalidKey => Err(failed(format!("a key of {} bytes is invalid", key.len()))),
        }
    }

    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        mut look: impl FnMut(usize, Option<&[u8]>) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        for (place, key) in keys.iter().enumerate() {
            if self.get(key, |answer| look(place, answer))?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn scan(
        &mut self,
        low: &[u8],
        high: Option<&[u8]>,
        mut look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        // There are no empty keys.
        let low = if low.is_empty() { &[0][..] } else { low };
        if high.is_some_and(|high| high < low) {
            return Ok(());
        }
        let both = ScanReturnField::KeyAndValue;
        let entries = match high {
            Some(high) => self.tree.scan_with_end_key(low, high, both),
            None => self.tree.scan_with_count(low, usize::MAX, both),
        };
        let mut entries = entries.map_err(|error| failed(format!("a scan failed: {error:?}")))?;
        while let Some((key, value)) = entries.next(&mut self.record[..]) {
            let (key, rest) = self.record.split_at(key);
            if look(key, value_of(&rest[..value])).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn scan_back(
        &mut self,
        _: &[u8],
        _: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        Err(failed("it has no reverse scans"))
    }
}

fn unusable(error: ConfigError) -> BenchError {
    failed(format!("{error:?}"))
}

fn failed(text: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> BenchError {
    BenchError::Store { system: NAME, source: text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_zeros_are_stored_with_one_more_and_read_back() {
        for value in [&b""[..], &[0], &[0, 0], &[0, 7], &[7], &[7, 0]] {
            let mut buffer = Vec::new();
            let stored = stored(value, &mut buffer).to_vec();
            assert!(!stored.is_empty());
            assert_eq!(value_of(&stored), value);
        }
    }
}
