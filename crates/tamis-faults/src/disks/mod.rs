//! Disks after a power cut, rebuilt from a log of what was sent to a device.
//!
//! A device has a cache: what it was sent is safe once a later flush has completed. Until then, of
//! each write any sectors may be on the medium. So a disk after a cut consists of everything before
//! the last flush, and of some sectors of the writes after it.
//!
//! The order of these writes needs no choice of its own: if two of them write the same sector, then
//! any of the three contents is possible, and each is the result of leaving out some.
//!
//! A write that was answered while a flush was on its way counts as flushed, although a real device
//! may lose it. No file system depends on such a write before it is answered.
//!
//! Pure: what is rebuilt follows from the log and a generator.

mod image;
mod log;
mod survival;

pub(crate) use image::Image;
pub(crate) use log::{Entry, Replay, cuts};
pub(crate) use survival::Survival;

/// The bytes that a device writes as a whole or not at all.
pub(crate) const SECTOR: usize = 512;
