//! A test kit for storage engines: tools to test whether data survives crashes, failures and
//! damage.
//!
//! * [`FaultyFs`]: an in-memory file system that simulates power cuts, injected failures, a full
//!   disk and bit rot.
//! * [`Ledger`]: the states that a crash may leave.
//! * [`EmulatedFs`]: a file system that emulates the read cost of a given device and times the
//!   reads.
//! * [`Rng`]: seeded random numbers, stable across machines and versions, for repeatable histories.
//! * [`script`]: tests as text files of commands and expected outputs.
//! * [`fuzz`]: decisions from a fuzzer's bytes, and mutations of a corpus for ordinary tests.
//!
//! The file systems implement the trait [`FileSystem`](tamis_env::io::FileSystem) of `tamis-env`:
//! any store that reaches its files through that trait can be tested with them. Operations are
//! counted, so a test can be exhaustive: run a history once, then again for each of its operations,
//! and stop the machine or inject a failure there. The README has such a test of a toy store.
//!
//! # Invariants
//!
//! * Everything random follows from a seed: equal seeds and equal operations give equal faults and
//!   equal crashes.
//! * [`FaultyFs`] loses in a crash only what a real machine may lose, and may lose any of it; its
//!   module documents the model.
//! * Nothing here depends on an engine. Both the unit tests and the integration tests of an engine
//!   can use this crate.
//!
//! # Threads
//!
//! File systems may be used from any thread, and clones share their state. A [`Rng`] belongs to one
//! thread.

#![warn(missing_debug_implementations)]

mod emulated;
mod faulty;
pub mod fuzz;
pub mod isolation;
mod ledger;
mod random;
pub mod script;

pub use emulated::{Device, DeviceTime, EmulatedFs};
pub use faulty::{CrashMode, FaultPlan, FaultyFs, OpClass};
pub use ledger::Ledger;
pub use random::Rng;

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
