//! Backups and read replicas of tamis databases on object storage.
//!
//! A [`Repository`] holds *states*: small documents, each of which names the objects that make up
//! the database at one moment.
//!
//! * [`Repository::backup`] writes a state of a [`Source`]: an open [`tamis::Db`], be it the
//!   writer's or a follower's in another process, or a [`Directory`]. [`Repository::ship`] does so
//!   whenever the database has changed.
//! * [`Repository::restore`], [`restore_to`](Repository::restore_to),
//!   [`verify`](Repository::verify) and [`prune`](Repository::prune) are what operators need.
//! * [`Repository::open_replica`] opens the newest state for reading, without copying its tables,
//!   and follows.
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! use tamis_remote::{BackupOptions, Repository, RestoreOptions, Transfer, Which};
//!
//! let db = tamis::Db::open(dir.path().join("db"))?;
//! db.put("key", "value")?;
//! let repository = Repository::open(dir.path().join("backups").to_str().unwrap(), Transfer::default())?;
//! let cache = Some(dir.path().join("db/backup-cache.json"));
//! repository.backup(&db, BackupOptions { cache, ..BackupOptions::default() })?;
//!
//! let newest = repository.find(Which::Latest)?;
//! let target = dir.path().join("restored");
//! repository.restore(&newest, &target, &RestoreOptions::default())?;
//! let restored = tamis::Db::open(&target)?;
//! assert_eq!(restored.get("key")?.unwrap(), "value");
//!
//! let replica = repository.open_replica(&dir.path().join("cache"), Default::default())?;
//! assert_eq!(replica.db().get("key")?.unwrap(), "value");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Choices
//!
//! * **Objects are named by session and hash**, not by hash alone. An object that is found by its
//!   hash may be removed by a prune before the state that counts on it is written; one that only a
//!   living session uses, or that the newest state names, never is (`repository.rs`).
//! * **Files that change are sent as pieces**, and pieces are joined as they become many
//!   (`upload.rs`). So a log is sent as it grows, in few objects.
//! * **A state's entries are in lists** that many states share (`state.rs`): shipping a large
//!   database every second sends what has changed of its description, too.
//! * **A replica asks for the next number** instead of listing (`replica/mod.rs`): the answer that
//!   there is none costs a twelfth.
//! * **A replica is a file system** under an ordinary follower: filters, indexes, caches and
//!   iterators are those of the engine.
//!
//! # Threads
//!
//! Handles may be shared and cloned. Calls block, also in asynchronous programs, where they belong
//! on threads for blocking calls.

#![warn(missing_debug_implementations)]

mod backup;
mod error;
mod hash;
mod known;
mod location;
mod parallel;
mod prune;
mod replica;
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
#[cfg(feature = "https")]
pub use location::install_tls;
pub use prune::{Pruned, Retention};
pub use replica::{Replica, ReplicaOptions, ReplicaStats, open_replica};
pub use repository::{Listing, Repository, Which};
pub use restore::{RestoreOptions, Restored};
pub use ship::{ShipOptions, Shipped, Shipper};
pub use source::{Directory, Pinned, PinnedFile, ReadAt, Source};
pub use state::{FileEntry, Kind, Piece, State};
pub use store::{Requests, Transfer};
pub use upload::{BackupOptions, OnProgress, Progress, Written};
pub use verify::Verified;
