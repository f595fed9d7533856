//! A test kit for storage engines: what one needs to find out whether data survives what machines do to it.
//!
//! * [`FaultyFs`]: a file system in memory that knows what a power cut would leave of it, fails the operations it is told to,
//!   fills up and rots.
//! * [`Ledger`]: which states a crash may leave.
//! * [`EmulatedFs`]: another file system, whose reads cost what they cost on a given device, and are timed.
//! * [`Rng`]: seeded random numbers, the same everywhere and for ever, for histories that can be run again.
//! * [`fuzz`]: decisions out of a fuzzer's bytes, and mutations of a corpus for ordinary tests.
//!
//! They implement, and are used through, the file-system seam of `tamis-env`
//! ([`FileSystem`](tamis_env::io::FileSystem)): a store that reaches its files through that trait can be tested with them,
//! whatever it is. Operations are counted, which makes a test exhaustive: run a history once, then again for each of its
//! operations, and stop the machine or let it fail there. The README has such a test of a toy.
//!
//! # Invariants
//!
//! * Everything random follows from a seed: equal seeds and equal operations give equal faults and equal crashes.
//! * [`FaultyFs`] loses at a crash only what a real machine may lose, and any of it; the module says what that is.
//! * Nothing here depends on an engine. The unit tests of an engine can use this crate as well as its integration tests.
//!
//! # Threads
//!
//! File systems may be used from any thread, and clones of one are the same. A [`Rng`] belongs to one thread.

mod emulated;
mod faulty;
pub mod fuzz;
mod ledger;
mod random;

pub use emulated::{Device, DeviceTime, EmulatedFs};
pub use faulty::{CrashMode, FaultPlan, FaultyFs, OpClass};
pub use ledger::Ledger;
pub use random::Rng;

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
