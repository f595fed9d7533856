//! The suites' interface to the machine: dedicated file systems, a device whose traffic is
//! recorded, workers as processes, and privileges.

mod device;
mod loops;
mod process;
mod tools;
mod writeback;

pub(crate) use device::{Device, Flushes, Recorder};
pub(crate) use loops::{Kind, Mounted, Shutdown, check_file_system, make_image};
pub(crate) use process::{Ended, Setup, Worker, collect};
pub(crate) use tools::copy_dir;
pub(crate) use writeback::Writeback;
