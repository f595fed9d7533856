//! Properties of the machine itself: memory latency, digests, the device.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tamis_filter::Digest;

use super::apply::read_path_of;
use super::calibrate::{Setup, Sizes, key, quiet_ns};
use super::{Machine, ReadPath};
use tamis::Durability;
use tamis::io::{Access, DirectFs, DiskFs, FileSystem, SCRATCH_PREFIX, Usage};
use tamis::{Error, StorageError};

/// Measures T_H.
pub(super) fn digest(machine: &mut Machine, setup: &Setup, sizes: &Sizes) {
    let keys: Vec<Vec<u8>> = (0..sizes.ops * sizes.passes).map(|i| key(setup, 1 << 32, i)).collect();
    machine.digest_ns = quiet_ns(sizes.passes, sizes.ops, |pass| {
        let keys = &keys[pass * sizes.ops..][..sizes.ops];
        black_box(keys.iter().fold(0u64, |sum, key| sum ^ Digest::of(black_box(key)).remix(0)));
    });
}

/// Measures memory latency by a chain of accesses, each of which determines the address of the
/// next.
pub(super) fn memory(machine: &mut Machine, setup: &Setup) {
    let largest: usize = if setup.is_quick() { 8 << 20 } else { 128 << 20 };
    let mut words = vec![0u64; largest / 8];
    // Every line has distinct content, so that no two pages are identical.
    for (at, line) in words.chunks_mut(8).enumerate() {
        line[0] = Digest::from_u64(at as u64).remix(7);
    }
    let steps = if setup.is_quick() { 2_000 } else { 20_000 };
    let mut bytes = 256usize << 10;
    while bytes <= largest {
        let lines = (bytes / 64) as u64;
        let ns = quiet_ns(3, steps, |pass| {
            let mut at = pass as u64;
            for _ in 0..steps {
                let line = (u128::from(at.wrapping_mul(0x9e37_79b9_7f4a_7c15)) * u128::from(lines)) >> 64;
                at = at.wrapping_add(words[line as usize * 8]);
            }
            black_box(at);
        });
        // Larger sets are never faster.
        let ns = ns.max(machine.latency.last().map_or(0.0, |(_, ns)| *ns));
        machine.latency.push((bytes as f64, ns));
        bytes *= 4;
    }
}

/// A file that is removed when dropped.
struct Scratch<'f> {
    fs: &'f dyn FileSystem,
    path: PathBuf,
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        // There is nobody to report a failure to; a file left behind is visible in the directory.
        let _ = self.fs.remove(&self.path);
    }
}

/// Measures T_D: reads of random blocks of a file, with and without the page cache.
pub(super) fn device(machine: &mut Machine, setup: &Setup) -> Result<(), Error> {
    let Some(directory) = &setup.directory else { return Ok(()) };
    let (plain, direct): (Arc<dyn FileSystem>, Arc<dyn FileSystem>) = match &setup.options.file_system {
        Some(fs) => (fs.clone(), fs.clone()),
        None => (Arc::new(DiskFs::new()), Arc::new(DirectFs::new())),
    };
    let failed = |path: &Path, e: std::io::Error| Error::from(StorageError::io("measure with", path, e));
    plain.create_dir_all(directory).map_err(|e| failed(directory, e))?;
    static MEASUREMENTS: AtomicU64 = AtomicU64::new(0);
    let number = MEASUREMENTS.fetch_add(1, Ordering::Relaxed);
    let name = format!("{SCRATCH_PREFIX}{}-{number}.tmp", std::process::id());
    let scratch = Scratch { fs: &*plain, path: directory.join(name) };
    machine.log_ns = logging(&*plain, &scratch.path, setup).map_err(|e| failed(&scratch.path, e))?;
    let path = &scratch.path;
    let blocks: usize = if setup.is_quick() { 256 } else { 4096 };
    const BLOCK: usize = 4096;
    let reads = if setup.is_quick() { 24 } else { 256 };
    let write = || -> std::io::Result<()> {
        let mut file = plain.create(path, Usage::Table)?;
        let mut piece = vec![0u8; 256 * BLOCK];
        for at in 0..blocks / 256 {
            for (i, word) in piece.chunks_exact_mut(8).enumerate() {
                word.copy_from_slice(
                    &Digest::from_u64((at * piece_words() + i) as u64).remix(3).to_le_bytes(),
                );
            }
            file.append(&piece)?;
        }
        file.sync()
    };
    write().map_err(|e| failed(path, e))?;
    let time = |fs: &dyn FileSystem| -> std::io::Result<f64> {
        let file = fs.open(path, Access::Random)?;
        let mut buffer = vec![0u8; BLOCK];
        let mut error = None;
        let ns = quiet_ns(3, reads / 3, |pass| {
            for i in 0..reads / 3 {
                let at = Digest::from_u64((pass * reads + i) as u64).remix(11) as usize % blocks;
                if let Err(e) = file.read_exact_at(&mut buffer, (at * BLOCK) as u64) {
                    error = Some(e);
                }
            }
        });
        black_box(&buffer);
        error.map_or(Ok(ns), Err)
    };
    machine.page_ns = time(&*plain).map_err(|e| failed(path, e))?;
    // Where direct I/O is unavailable the device is a memory.
    machine.device_ns = time(&*direct).unwrap_or(machine.page_ns);
    if read_path_of(&setup.options) == ReadPath::Mapped {
        // A fault that finds its page costs about as much as the copy does, and only once.
        machine.page_ns = 0.0;
    }
    Ok(())
}

/// Measures appending the record of a put to a log, including the sync if the options ask for it.
fn logging(fs: &dyn FileSystem, path: &Path, setup: &Setup) -> std::io::Result<f64> {
    let record = vec![0x61; setup.key_bytes.max(8) + setup.value_bytes + RECORD_BYTES];
    let synced = setup.options.durability == Durability::Sync;
    let records = match (synced, setup.is_quick()) {
        (false, true) => 32,
        (false, false) => 256,
        (true, true) => 1,
        (true, false) => 4,
    };
    let passes = 5;
    let mut file = fs.create(path, Usage::Log)?;
    // A hint, as for a log: without it, appends just take longer.
    let _ = file.preallocate((record.len() * records * passes) as u64);
    let mut error = None;
    let ns = quiet_ns(passes, records, |_| {
        for _ in 0..records {
            let written = file.append(&record).and_then(|()| if synced { file.sync() } else { Ok(()) });
            error = error.take().or(written.err());
        }
    });
    drop(file);
    error.map_or(Ok(ns), Err)
}

/// Bytes of a log record besides key and value.
const RECORD_BYTES: usize = 24;

/// Returns the number of eight-byte words in a piece of the file.
fn piece_words() -> usize {
    256 * 4096 / 8
}

/// Returns half of the machine's memory: the share the page cache can have.
pub(super) fn half_of_memory() -> f64 {
    match tamis::io::memory_bytes() {
        0 => f64::MAX,
        bytes => bytes as f64 / 2.0,
    }
}
