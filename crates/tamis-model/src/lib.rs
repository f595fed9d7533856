//! What reads and writes of an LSM-tree cost, as arithmetic: no I/O, no clock, no engine.
//!
//! [`engine`] is the model of this engine: its filters, its shapes, its operations.
#![forbid(unsafe_code)]

pub mod engine;
