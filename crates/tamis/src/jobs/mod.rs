//! Work on an open database that is neither a read nor a batch. Background threads ([`loops`]) do
//! most of it: flushes, merges, filters, the scrub, upkeep of a full disk. Callers ask for the
//! rest: ingestion, `verify`, keyspaces, manual compactions.

pub(crate) mod begin;
pub(crate) mod compact;
pub(crate) mod control;
pub(crate) mod covered;
pub(crate) mod deletions;
pub(crate) mod filters;
pub(crate) mod flush;
pub(crate) mod for_reads;
pub(crate) mod full_disk;
pub(crate) mod guarded;
pub(crate) mod health;
pub(crate) mod images;
pub(crate) mod ingest;
pub(crate) mod keyspaces;
pub(crate) mod leftovers;
pub(crate) mod loops;
pub(crate) mod maintain;
pub(crate) mod reshape;
pub(crate) mod saving;
pub(crate) mod scrub;
pub(crate) mod tune;
pub(crate) mod verify;
