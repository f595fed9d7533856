//! The control: plain files that are appended to and synced, without the engine. Losses here are
//! caused by the test itself.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::wire::{Message, tell};

const RECORD_BYTES: usize = 512;

/// The worker's arguments.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory of the files.
    #[arg(long)]
    dir: PathBuf,
    /// The number of writing threads, each with its own file.
    #[arg(long)]
    threads: u32,
}

/// Returns the file of one thread.
pub(crate) fn path(dir: &Path, thread: u32) -> PathBuf {
    dir.join(format!("control-{thread}"))
}

/// Counts the records of a file: they are consecutive, and each begins with its number.
pub(crate) fn records(path: &Path) -> u64 {
    let bytes = std::fs::read(path).unwrap_or_default();
    let whole = bytes.chunks_exact(RECORD_BYTES).zip(1u64..);
    whole.take_while(|(record, number)| record.starts_with(&number.to_le_bytes())).count() as u64
}

pub(super) fn run(args: &Args) {
    let threads: Vec<_> = (0..args.threads)
        .map(|thread| {
            let path = path(&args.dir, thread);
            std::thread::spawn(move || append(&path, thread))
        })
        .collect();
    threads.into_iter().for_each(|thread| drop(thread.join()));
}

fn append(path: &Path, thread: u32) {
    let append = || -> std::io::Result<()> {
        let there = records(path);
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.set_len(there * RECORD_BYTES as u64)?;
        file.sync_all()?;
        for number in there + 1.. {
            let mut record = [thread as u8; RECORD_BYTES];
            record[..8].copy_from_slice(&number.to_le_bytes());
            file.write_all(&record)?;
            file.sync_data()?;
            tell(&Message::Acked { thread, number, synced: true });
        }
        Ok(())
    };
    if let Err(error) = append() {
        tell(&Message::Failed(format!("append: {error}")));
    }
}
