//! The environment of a storage engine behind replaceable interfaces: files ([`io`]), threads and
//! locks ([`sync`]), and time ([`clock`]). Large memory comes from the system, too ([`memory`]).
//!
//! The engine `tamis` makes system calls, starts threads and reads the clock only through this
//! crate. A test that substitutes another implementation (a file system that crashes on demand, a
//! seeded scheduler, a clock set by hand) therefore controls everything the engine observes. Other
//! engines can be built on this crate as well, and tested with `tamis-testkit`.
//!
//! # Invariants
//!
//! * Nothing here depends on the content of a file or on any type of an engine.
//! * [`io`] states what an engine may assume of a medium; one suite (`tests/file_systems.rs`)
//!   checks every file system against it.
//! * Without the feature `simulation`, [`sync`] adds no cost to the `std` types it wraps.
//!
//! # Threads
//!
//! Every file system, clock and lock may be used from any thread. A file that is being written has
//! one owner at a time.
//!
//! # Features
//!
//! `simulation`: the threads, locks and pauses of [`sync`] call a scheduler, for threads that
//! belong to one. Each call costs a thread-local lookup, so the feature is only for programs that
//! simulate.

#![warn(missing_debug_implementations)]

pub mod clock;
pub mod io;
pub mod memory;
pub mod sync;
