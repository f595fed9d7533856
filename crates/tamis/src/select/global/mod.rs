//! The global filter of a keyspace: GRF over its whole tree (H. Wang et al., "GRF: A Global Range
//! Filter for LSM-Trees with Shape Encoding", SIGMOD 2024), for any compaction policy.
//!
//! # Structure
//! The key space is divided into ranges of tens of thousands of keys. Each range has a
//! [`Partition`] in a [`Cell`]; a [`CellDirectory`] lists the cells in key order. A partition entry
//! is a position and a *code*, which names epochs (numbers of flushes). A table records the epochs
//! it may hold. The candidates for a key are the tables whose epochs meet a code that the key matches
//! ([`selector`]). Compactions do not touch the filter; only the tables' epochs move.
//!
//! A partition is built from the tables of its range ([`gather`]). After a last-level compaction,
//! codes are mostly collected instead, which reads no key. Opening needs neither where *images* of
//! the partitions are on disk ([`saved`]). A flushed table has a list of its keys, since these must
//! be added. A merged table adds no keys and has no list; if it must be read, its data is.
//!
//! # Updates
//! * **Flush**: publishes its table at once, with a [`missing`](Grf::missing) epoch. A table that
//!   holds one is a candidate for every key until a background thread has added the keys of several
//!   flushes together. The table is [`young`] until then, and has a filter of its own. Readers of
//!   older versions skip entries whose epochs none of their tables has.
//! * **Compaction, move, drop**: change nothing. The new version has the same directory.
//! * **Ingestion**: the same as a flush, but its tables wait for no others.
//! * **Following a writer** in another process: tables arrive that were not flushed or merged here.
//!   A table is [`unseen`](Grf::unseen) if it may have keys of a flush that was not published when
//!   the last version was made. Unseen tables are candidates for every key until they are added
//!   like ingested ones ([`follow`](crate::open::follow)).
//! * **Rebuild** of a key range: builds cells from the keys of one version's tables, then publishes a
//!   version with the new directory. What is flushed meanwhile is young (the paper's waiting buffer;
//!   here the flushed tables themselves). Older versions keep their directory. If one is
//!   still being read, its cell is shrunk to the entries of upper levels, and its last level
//!   becomes a candidate for every key. (The paper probes the new filter instead, which would deny
//!   keys that the compaction dropped but the old version has.)
//! * **Collection** after a last-level compaction: the same, but from the partitions so far. Only the
//!   new version's tables are cuts, so an old reader does not keep versions of a key apart.
//! * **Codes** are shortened whenever a partition is written, as far as the live versions allow
//!   ([`Cuts`]). This is the paper's garbage collection, with "live versions" in place of "the
//!   oldest snapshot".
//!
//! # Images
//! An image is a partition on disk, for one key range, with an epoch *until*
//! ([`images`](tamis_files::images)). It is saved with the `until` of [`Grf::until`], which
//! guarantees: if a current or future table holds a key of the range with only epochs below
//! `until`, the filter has that key. This holds because `until` excludes these epochs:
//! * [`Grf::missing`] epochs that a table holds. They include those of damaged tables: the last
//!   epoch of a damaged table suffices, as the table, and what it is merged into, then ends above
//!   `until`.
//! * [`Grf::unpublished`] epochs, whose tables are still being written.
//! * Epochs not taken yet.
//!
//! The partition is taken under the locks under which `until` is computed, so no addition is half
//! done.
//!
//! *A cell made from an image denies no key.* Let a table of the version at opening hold a key of
//! the range, with the epochs `[lo, hi)` there.
//! * `hi <= until`: the key came from tables that existed when the image was taken, or it would
//!   have a later epoch. Merges only join epochs, so such a table had epochs within `[lo, hi)`. Its
//!   key was thus in the filter, with a code that meets its epochs and therefore `[lo, hi)`.
//!   Compactions in between do not matter, nor that the image's codes are from an older tree: a
//!   code is an interval of epochs, not a place in the tree.
//! * `hi > until`: the table belongs to the image's log, even if `lo < until`. Its keys are added
//!   as by a flush, before the cell is published ([`Grf::load`]). Keys already in the image are
//!   added again; equal entries are one.
//!
//! Entries of tables left unpublished by a crash name epochs at or above `until`, which other
//! flushes may get. They cause false positives, nothing else. The edit that names an image follows
//! the edits of all tables in the image, so recovery never finds a tree with the image but without
//! these tables. The edit also keeps epochs below `until` from being taken again. Cuts miss no
//! table: once a cell is loaded, every table it has entries for is in a live version or gone.
//!
//! A cell serves its image's range, except where a newer image counts, like a cell whose range a
//! rebuild has cut. A partition built under other options still denies no key: it is used until the
//! range is rebuilt, which is due at once. Its prefixes are used only under the same
//! `prefix_filter`.
//!
//! # Threads
//! Readers load a version, its directory and a cell's partition, all immutable, without waiting.
//! Writers:
//! * One thread at a time works on the filter, and images are taken while none does: [`Grf::work`] is
//!   held while cells or the directory change. It is taken before the database's `state` lock.
//! * A flush notes its missing epoch under `state`, before the view that has its table.
//! * The current directory is replaced under `work` and `state` together; it may be read under
//!   either.
//! * A cell's partition is replaced under `work`, and stored (Release) before an epoch stops to be
//!   missing, and so before a view that needs its entries. A reader that has loaded that view
//!   (Acquire) therefore sees them.
//! * [`Grf::alive`], [`Grf::unread`], [`Grf::unpublished`] and [`Grf::young`] are leaf locks, held
//!   briefly; so is [`Grf::missing`], under [`Grf::unseen`].
//!
//! [`Partition`]: tamis_filter::global::Partition
//! [`Cell`]: cell::Cell
//! [`CellDirectory`]: cell::CellDirectory
//! [`Cuts`]: tamis_filter::global::Cuts

mod cell;
mod chosen;
mod collect;
mod due;
mod flushed;
mod gather;
mod grf;
mod mix;
#[cfg(all(test, loom))]
mod model;
mod report;
mod saved;
mod selector;
mod span;
#[cfg(test)]
mod tests;
mod upkeep;
mod young;

pub(crate) use due::{Switch, Task};
pub(crate) use grf::{Grf, TakenEpoch, Work};
pub use report::{GlobalFilterStats, KeyMapStats};
pub(crate) use saved::{Moment, Restored, SavedPart};
pub(crate) use selector::{GlobalSelector, LiveTables};
pub(crate) use span::Span;
pub(crate) use upkeep::Built;
pub(crate) use young::YoungTable;
