//! Decisions of the storage engine tamis, without their execution: what to compact, which filter
//! units to keep in memory, how to divide memory.
//!
//! **No stable interface**: a part of `tamis`, which re-exports what its users may rely on.
//!
//! * [`compaction`]: shapes of trees, plans, and the policies that lead from one to the other, each
//!   with the bounds that it promises and a simulator that holds it to them.
//! * [`hotness`]: which units of elastic filters are worth their memory.
//! * [`memory`]: how much memory the block cache, the filters and each of several databases get.
//!
//! Invariants:
//! * Pure: no file, thread, lock or clock. The time, the room on the device and the counts of
//!   readers are arguments.
//! * Deterministic: equal arguments and equal histories give equal decisions.
//! * Every shape is accepted, whatever its origin, and every chain of plans ends.

#![warn(missing_debug_implementations)]
// Whoever reads these pages works on the crate: `cargo doc --document-private-items`.
#![allow(rustdoc::private_intra_doc_links)]

pub mod compaction;
pub mod hotness;
pub mod memory;
