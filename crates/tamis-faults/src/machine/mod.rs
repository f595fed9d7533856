//! What the suites need of the machine: file systems of their own, workers as processes, and whether they may.

mod loops;
mod process;
mod tools;

pub(crate) use loops::{Kind, Mounted, Shutdown};
pub(crate) use process::{Ended, Setup, Worker, collect};
pub(crate) use tools::copy_dir;
