//! What a storage engine needs of its surroundings, each behind a seam: files ([`io`]), threads and locks ([`sync`]), and the
//! time ([`clock`]).
//!
//! The engine `tamis` makes no system call, starts no thread and reads no clock but through this crate. So whoever puts
//! another implementation below it (a file system that crashes on demand, a scheduler that a seed drives, a clock that is
//! set by hand) decides all that it meets. Other engines can be built on it as well; `tamis-testkit` is then their test kit.
//!
//! # Invariants
//!
//! * Nothing here knows what is in a file, or of any type of an engine.
//! * What an engine may assume of a medium is written down once, in [`io`]; every file system is held to it by one suite
//!   (`tests/file_systems.rs`).
//! * Without the feature `simulation`, [`sync`] adds nothing to what it wraps of `std`.
//!
//! # Threads
//!
//! Every file system, clock and lock may be used from any thread. A file that is being written has one owner at a time.
//!
//! # Features
//!
//! `simulation`: the threads, locks and pauses of [`sync`] ask a scheduler, for threads that belong to one. It costs a look at
//! a thread-local at each of them, so it is for programs that simulate alone.

pub mod clock;
pub mod io;
pub mod sync;
