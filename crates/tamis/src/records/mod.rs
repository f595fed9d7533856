//! The record cache: values of keys that are read again and again, by digest.
//!
//! A get that no memtable answers asks here before it asks filters. A hit is one probe of a hash
//! table and one copy. The cache is in front of the runs only: memtables are always asked first, so
//! a write needs no invalidation until it is flushed.
//!
//! # The rule of validity
//!
//! An entry says: *in the runs of the keyspace's version number `edition`, `value` of number `seq`
//! is the newest version of the key*. It answers a read whose view has version `e`, and that sees
//! writes up to `s`, if
//!
//! 1. `floor ≤ edition ≤ e`, where `floor` is in the view; and
//! 2. `seq ≤ s`; and
//! 3. no flush between the two versions had the key.
//!
//! Then the runs of version `e` have no newer version of the key: merges keep the newest version of
//! each key ([`RunsChange::Merged`]), and the third condition holds by construction. A flush makes a
//! pass: it removes the entries of its keys before its version is published
//! ([`RunsChange::Flushed`]). Every other version is its own floor, which no older entry reaches:
//! ingestions, a follower's changes, the flush of a beginning session or after a failed write,
//! flushes with range tombstones (a merge may drop them with what they cover), and all versions of
//! a keyspace whose merges drop data by a compaction filter or by policy.
//!
//! What is newer than the runs is in the view's memtables, which the read has asked. Range
//! tombstones and expiry are no part of an entry: the read compares `seq` with its cover, as it
//! does for an entry of a table.
//!
//! An entry is added by a read that saw everything in its version: only then is what it found the
//! newest version there.
//!
//! # Threads
//!
//! Any thread reads and adds; flush threads make passes. A reader that found its value in an old
//! version could add it after the flush has removed the key. So it looks whether a pass has begun
//! since its version, under the lock of the key's shard ([`gate`]). If it adds the entry before the
//! pass comes to the shard, the pass removes it. If after, the pass had begun before the reader
//! took the lock, and the reader sees that.
//!
//! A shard's lock is held for one probe and a copy, for one insertion, or while its memory is
//! changed. It is a leaf. A get does not wait for it: no answer is always right.

mod cache;
mod gate;
mod ring;
mod seen;
mod shard;
#[cfg(test)]
mod tests;

pub(crate) use cache::RecordCache;
pub(crate) use gate::{KeyspaceRecords, Pass, RunsChange};
pub(crate) use shard::Sight;
