//! The suites' interface to the machine: dedicated file systems, workers as processes, and
//! privileges.

mod loops;
mod process;
mod tools;

pub(crate) use loops::{Kind, Mounted, Shutdown};
pub(crate) use process::{Ended, Setup, Worker, collect};
pub(crate) use tools::copy_dir;
