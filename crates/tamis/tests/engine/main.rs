//! The engine through its public API, by subject.
//!
//! Programs of their own are those that need a process to themselves (`descriptors`, `no_alloc`)
//! and the large suites (`crash`, `damage`, `elastic`, `global_filters`, `model`).

#![allow(missing_docs, reason = "tests")]

mod api;
mod basics;
mod blobs;
mod debug;
mod deletes;
mod directories;
mod disk_space;
mod elastic_tables;
mod expiry;
mod followers;
mod ingest;
mod interrupts;
mod log_space;
mod logged_values;
mod many_keys;
mod many_versions;
mod merges;
mod observe;
mod overlap;
#[cfg(target_os = "linux")]
mod protected;
mod quarantine;
mod range_filters;
mod scarce_memory;
mod seams;
mod seek_and_back;
mod shapes;
mod shared_writes;
mod stored_database;
mod verify_at;
