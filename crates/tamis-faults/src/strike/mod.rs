//! Flips of one bit in a running process: in a register of the thread that is at work, or in a
//! resident page of the heap. x86-64 only.
//!
//! The process runs untraced except for the moment of the flip, so nothing slows it down or changes
//! its signals. For a register, one thread is stopped; for memory, all are, since the byte is read
//! and written back.

mod frames;
mod memory;
mod place;
mod registers;
mod tracer;
mod vectors;

pub(crate) use frames::{code_start, names};
pub(crate) use place::{Kind, Place};
pub(crate) use tracer::{Missed, Strike, strike};
