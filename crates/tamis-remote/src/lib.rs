//! Backups and read replicas of tamis databases on object storage.

#![warn(missing_debug_implementations)]

mod backup;
mod error;
mod hash;
mod known;
mod location;
mod parallel;
mod prune;
mod repository;
mod restore;
mod session;
mod ship;
mod source;
mod state;
mod store;
mod upload;
mod verify;

pub use error::Error;
pub use hash::ContentHash;
pub use prune::{Pruned, Retention};
pub use repository::{Listing, Repository, Which};
pub use restore::{RestoreOptions, Restored};
pub use ship::{ShipOptions, Shipped, Shipper};
pub use source::{Directory, Pinned, PinnedFile, ReadAt, Source};
pub use state::{FileEntry, Kind, Piece, State};
pub use store::{Requests, Transfer};
pub use upload::{BackupOptions, OnProgress, Progress, Written};
pub use verify::Verified;
