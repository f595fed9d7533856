//! The options of reads and of writes.

use std::sync::Weak;

use tamis::Durability;

use crate::border::{change, hand_out, take_back};
use crate::database::{ReadPoint, Snapshot};

/// Options of a read.
#[derive(Debug, Default)]
pub struct ReadOptions {
    /// The snapshot to read from, which may have been released since.
    pub(crate) snapshot: Option<Weak<ReadPoint>>,
}

/// Creates options of reads.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_create() -> *mut ReadOptions {
    hand_out(ReadOptions::default())
}

/// Destroys options of reads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_destroy(options: *mut ReadOptions) {
    // SAFETY: a handle of the caller, which gives it up.
    unsafe { take_back(options) };
}

/// Accepted: tamis verifies a block's checksum at its first read whatever is set here, and at every read under
/// `leveldb_options_set_paranoid_checks`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_set_verify_checksums(options: *mut ReadOptions, on: u8) {
    let _ = (options, on);
}

/// Accepted: the cache of tamis resists scans by itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_set_fill_cache(options: *mut ReadOptions, on: u8) {
    let _ = (options, on);
}

/// Sets the snapshot to read from; NULL stands for the state at the time of the read. Reads from a snapshot that was released
/// fail.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_set_snapshot(
    options: *mut ReadOptions,
    snapshot: *const Snapshot,
) {
    // SAFETY: handles of the caller.
    let point = unsafe { snapshot.as_ref() }.map(Snapshot::point);
    // SAFETY: likewise.
    unsafe { change(options, |options| options.snapshot = point) };
}

/// Options of a write.
#[derive(Debug, Default)]
pub struct WriteOptions {
    sync: bool,
}

impl WriteOptions {
    pub(crate) fn durability(&self) -> Durability {
        if self.sync { Durability::Sync } else { Durability::Buffered }
    }
}

/// Creates options of writes.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writeoptions_create() -> *mut WriteOptions {
    hand_out(WriteOptions::default())
}

/// Destroys options of writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writeoptions_destroy(options: *mut WriteOptions) {
    // SAFETY: a handle of the caller, which gives it up.
    unsafe { take_back(options) };
}

/// Sets whether a write returns only when it would survive a power failure (default: no).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writeoptions_set_sync(options: *mut WriteOptions, on: u8) {
    // SAFETY: a handle of the caller.
    unsafe { change(options, |options| options.sync = on != 0) };
}
