//! Handles of an open database and of its keyspaces, and what they report.

pub(crate) mod approximate;
pub(crate) mod changes;
pub(crate) mod consumers;
pub(crate) mod handle;
pub(crate) mod keyspace;
pub(crate) mod keyspaces;
pub(crate) mod layout;
pub(crate) mod live_files;
pub(crate) mod memory_report;
pub(crate) mod pin;
pub(crate) mod readers;
pub(crate) mod stats;
