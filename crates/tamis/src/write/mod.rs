//! The way of a batch through the log into the memtables.

pub(crate) mod commit;
pub(crate) mod judge;
