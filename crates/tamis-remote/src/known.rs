//! What is known about a database's files from earlier backups: a small file beside the database.
//!
//! It saves reading files that never change again, and it says which copy of the database this is:
//! a repository belongs to one copy. It is a cache otherwise: without it, or when it cannot be
//! read, files are read once more, and the copy counts as another one.
//!
//! # Copies of the file
//!
//! Who copies the directory copies its identity. So the file also names the latest *runs*: each is
//! drawn, and in the file, before it writes a state, which names it. A state of this writer by a
//! run that is not in the file was written beside a copy of the file, and the two databases may
//! have parted: whoever writes first after the copying keeps the repository, and the other is
//! refused.
//!
//! # Threads and processes
//!
//! Several processes of one database may use the file. It is changed under a lock that is held for
//! as long as that takes, by reading it again and adding to its runs. Hashes and the session are
//! those of the one process that holds the other lock, of which `upload.rs` takes care.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tamis::io::{DirLock, FileSystem, write_file_atomically};

use crate::error::Error;
use crate::hash::ContentHash;
use crate::source::PinnedFile;

/// The version of the file; another is not read.
const FORMAT: u32 = 1;

/// How much of a file's end is compared with what is known: the footer of a table, with the
/// checksums of its parts, and of other files, their last records.
const TAIL: u64 = 4096;

/// So many runs are remembered. The run that wrote the newest state must be among them; those after
/// it have written none.
const RUNS: usize = 256;

/// How often, and after what pauses, the file's lock is tried: for ten seconds. It is held while a
/// small file is read and written.
const TRIES: (u32, Duration) = (1000, Duration::from_millis(10));

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Known {
    format: u32,
    /// Of this copy of the database; drawn once.
    pub(crate) writer: String,
    /// The upload session that was begun last and has not ended.
    pub(crate) session: Option<String>,
    /// The latest last.
    runs: Vec<String>,
    files: HashMap<String, KnownFile>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KnownFile {
    len: u64,
    tail: ContentHash,
    hash: ContentHash,
    /// Whether this process has compared it.
    #[serde(skip)]
    compared: bool,
}

impl Known {
    /// Nothing, of a copy that is new.
    fn new() -> Result<Known, Error> {
        Ok(Known { format: FORMAT, writer: drawn()?, session: None, runs: Vec::new(), files: HashMap::new() })
    }

    /// Reads what is known, or draws who this copy is, and begins a run, which is returned; both
    /// are in the file then.
    pub(crate) fn enter(fs: &dyn FileSystem, path: Option<&Path>) -> Result<(Known, String), Error> {
        let _turn = path.map(|path| turn(fs, path)).transpose()?;
        let mut known = Known::load(fs, path)?;
        let run = known.begin_run()?;
        known.write(fs, path)?;
        Ok((known, run))
    }

    /// Reads what is known, or begins anew.
    fn load(fs: &dyn FileSystem, path: Option<&Path>) -> Result<Known, Error> {
        let Some(path) = path else { return Known::new() };
        if !fs.exists(path).map_err(Error::io(path.display()))? {
            return Known::new();
        }
        let bytes = tamis::io::read_file(fs, path).map_err(Error::io(path.display()))?;
        match serde_json::from_slice::<Known>(&bytes) {
            Ok(known) if known.format == FORMAT && is_id(&known.writer) => Ok(known),
            _ => {
                log::warn!("{} cannot be used, and is replaced", path.display());
                Known::new()
            }
        }
    }

    /// Draws a run; it writes states only when it has been saved.
    pub(crate) fn begin_run(&mut self) -> Result<String, Error> {
        let run = drawn()?;
        self.runs.push(run.clone());
        Ok(run)
    }

    /// Writes what is known, with the runs of others.
    pub(crate) fn save(&mut self, fs: &dyn FileSystem, path: Option<&Path>) -> Result<(), Error> {
        let _turn = path.map(|path| turn(fs, path)).transpose()?;
        self.learn_runs(&Known::load(fs, path)?);
        self.write(fs, path)
    }

    /// Adds the runs to those in the file, and leaves all else there as it is.
    pub(crate) fn save_runs(&mut self, fs: &dyn FileSystem, path: Option<&Path>) -> Result<(), Error> {
        let _turn = path.map(|path| turn(fs, path)).transpose()?;
        let mut there = Known::load(fs, path)?;
        if there.writer != self.writer {
            // The file was replaced; then this process writes as another copy.
            return Ok(());
        }
        self.learn_runs(&there);
        there.runs.clone_from(&self.runs);
        there.write(fs, path)
    }

    /// Whether a run is one of this copy: also one that another process has begun meanwhile.
    pub(crate) fn has_run(
        &mut self,
        run: &str,
        fs: &dyn FileSystem,
        path: Option<&Path>,
    ) -> Result<bool, Error> {
        if !self.runs.iter().any(|known| known == run) {
            self.learn_runs(&Known::load(fs, path)?);
        }
        Ok(self.runs.iter().any(|known| known == run))
    }

    /// Puts runs of the same writer before those that are known only here.
    fn learn_runs(&mut self, there: &Known) {
        if there.writer == self.writer {
            let mut runs = there.runs.clone();
            runs.extend(self.runs.iter().filter(|run| !there.runs.contains(run)).cloned());
            self.runs = runs.split_off(runs.len().saturating_sub(RUNS));
        }
    }

    fn write(&self, fs: &dyn FileSystem, path: Option<&Path>) -> Result<(), Error> {
        let Some(path) = path else { return Ok(()) };
        let bytes = serde_json::to_vec(self).map_err(|error| Error::io(path.display())(error.into()))?;
        write_file_atomically(fs, path, &bytes).map_err(Error::io(path.display()))
    }

    /// Returns the hash of a file that never changes, if it is known.
    pub(crate) fn hash_of(&self, file: &PinnedFile) -> Result<Option<ContentHash>, Error> {
        match self.files.get(&file.name).filter(|known| known.len == file.len) {
            Some(known) if known.compared || known.tail == tail(file)? => Ok(Some(known.hash)),
            _ => Ok(None),
        }
    }

    /// Remembers hashes of files, and forgets files that are no more. Returns whether there were
    /// new ones.
    pub(crate) fn learn<'f>(
        &mut self,
        hashes: impl Iterator<Item = (&'f PinnedFile, ContentHash)>,
    ) -> Result<bool, Error> {
        let (mut live, mut new) = (HashSet::new(), false);
        for (file, hash) in hashes {
            live.insert(&file.name);
            let compared = |known: &KnownFile| known.compared && known.len == file.len && known.hash == hash;
            if !self.files.get(&file.name).is_some_and(compared) {
                let known = KnownFile { len: file.len, tail: tail(file)?, hash, compared: true };
                self.files.insert(file.name.clone(), known);
                new = true;
            }
        }
        self.files.retain(|name, _| live.contains(name));
        Ok(new)
    }
}

/// Returns the name of a file beside the cache file.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.to_owned().into_os_string();
    path.push(suffix);
    path.into()
}

/// Waits for the lock under which the file is changed.
fn turn(fs: &dyn FileSystem, path: &Path) -> Result<Box<dyn DirLock>, Error> {
    let path = beside(path, ".turn");
    let (tries, pause) = TRIES;
    for _ in 0..tries {
        if let Some(lock) = fs.lock(&path).map_err(Error::io(path.display()))? {
            return Ok(lock);
        }
        std::thread::sleep(pause);
    }
    Err(Error::io(path.display())(std::io::ErrorKind::ResourceBusy.into()))
}

fn tail(file: &PinnedFile) -> Result<ContentHash, Error> {
    let len = file.len.min(TAIL);
    let mut bytes = vec![0; len as usize];
    file.read(&mut bytes, file.len - len)?;
    Ok(ContentHash::of(&bytes))
}

/// Draws the name of a writer or a session.
pub(crate) fn drawn() -> Result<String, Error> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::io("random numbers")(std::io::Error::other(error.to_string())))?;
    Ok(format!("{:016x}", u64::from_le_bytes(bytes)))
}

/// Whether a text may be such a name.
pub(crate) fn is_id(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit())
}
