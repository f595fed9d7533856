//! Writing back at random: the kernel may at any time write parts of files and commit its journal,
//! but within a second it hardly does. A thread asks it to, so that unsynced data reaches the
//! device in many orders.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

/// A thread that writes back until it is dropped.
#[derive(Debug)]
pub(crate) struct Writeback {
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Writeback {
    /// Writes back files below `dir`. To commit the journal, it syncs a file `other` of its own.
    pub(crate) fn start(dir: &Path, other: &Path, mut rng: fastrand::Rng) -> Writeback {
        let (dir, other) = (dir.to_owned(), other.to_owned());
        let done = Arc::new(AtomicBool::new(false));
        let asked = done.clone();
        let thread = std::thread::spawn(move || {
            while !asked.load(SeqCst) {
                std::thread::sleep(Duration::from_micros(rng.u64(300..6000)));
                // Files may be removed meanwhile, and the file system may be shut down.
                let _ = match rng.u32(..5) {
                    0 => sync_other(&other),
                    _ => write_some(&dir, &mut rng),
                };
            }
        });
        Writeback { done, thread: Some(thread) }
    }
}

impl Drop for Writeback {
    fn drop(&mut self) {
        self.done.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Commits the journal, with the metadata of all files.
fn sync_other(path: &Path) -> std::io::Result<()> {
    let mut file = File::options().create(true).append(true).open(path)?;
    file.write_all(&[1])?;
    file.sync_all()
}

/// Writes part of one file, or all of it, without a flush.
fn write_some(dir: &Path, rng: &mut fastrand::Rng) -> std::io::Result<()> {
    let files: Vec<PathBuf> = std::fs::read_dir(dir)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_file())
        .collect();
    let Some(path) = rng.choice(&files) else { return Ok(()) };
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let (from, bytes) = match rng.bool() {
        true => (0, 0),
        false => (rng.u64(..=len), rng.u64(1..=len.max(1))),
    };
    // SAFETY: takes numbers only; the descriptor is open.
    let done = unsafe {
        libc::sync_file_range(file.as_raw_fd(), from as i64, bytes as i64, libc::SYNC_FILE_RANGE_WRITE)
    };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
