//! Restoring a state, or a sequence number between states, to a directory.
//!
//! # Order
//!
//! A marker file first; then every file under a temporary name, checked, synced, renamed; `CURRENT` last, after a sync of the directory; then
//! the marker goes. So a directory with the marker is not a database yet, a restore that was interrupted at any point continues, and an
//! engine that opens the directory before the end finds no database there.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use tamis::io::{Access, DiskFs, FileSystem, Usage};
use tamis::operators::Operators;
use tamis::{Db, OpenError, Options, StorageError};

use crate::error::Error;
use crate::hash::Hasher;
use crate::parallel::each;
use crate::repository::Repository;
use crate::state::{FileEntry, Kind, State};
use crate::upload::{Meter, OnProgress};

/// In a directory that is not restored yet.
const MARKER: &str = "RESTORING";

/// At the end of the name of a file that is not whole yet.
const PARTIAL: &str = ".partial";

/// How a restore is made.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct RestoreOptions {
    /// Where the directory is; the operating system's files by default.
    pub file_system: Option<Arc<dyn FileSystem>>,
    /// Is told about the progress.
    pub progress: Option<OnProgress>,
}

impl std::fmt::Debug for RestoreOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RestoreOptions").field("file_system", &self.file_system).finish_non_exhaustive()
    }
}

/// What was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The state's number.
    pub number: u64,
    /// The last sequence number of the restored database.
    pub last_seq: u64,
    /// Its files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that were there from an interrupted restore.
    pub bytes_there: u64,
}

impl Repository {
    /// Restores a state to a directory that is new, empty, or left by an interrupted restore.
    ///
    /// # Errors
    ///
    /// When the directory holds something else, an object is missing or damaged, or a request or the file system fails. The next attempt
    /// continues.
    pub fn restore(&self, state: &State, target: &Path, options: &RestoreOptions) -> Result<Restored, Error> {
        self.restore_files(state, &state.files, target, options)
    }

    /// Restores a database as it was at a sequence number: the newest state that ends at or before it, and logs of later states. For any
    /// number to be within reach, states must have been shipped by a consumer that keeps logs until then (see [`crate::Shipper`]).
    ///
    /// The database is opened once, to cut its logs there. `operators` are those that its keyspaces need, if any.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`] if no state ends before the number, or logs in between are not in the repository: then the directory is not to
    /// be used. Otherwise as [`restore`](Self::restore).
    pub fn restore_to(
        &self,
        seq: u64,
        target: &Path,
        operators: Operators,
        options: &RestoreOptions,
    ) -> Result<Restored, Error> {
        let (state, files) = self.reach(seq)?;
        let mut restored = self.restore_files(&state, &files, target, options)?;
        let mut open =
            Options { operators: operators.with_unknown(), create_if_missing: false, ..Options::default() };
        open.recover_to = Some(seq);
        open.file_system = options.file_system.clone();
        // Every file has the bytes that were written. So what is wrong with a log is that it does not continue what is there.
        let db = Db::open(target, open).map_err(|error| match error {
            OpenError::Storage(StorageError::Corrupt(what)) => Error::Unreachable {
                seq,
                why: format!("the logs in the repository do not lead there: {what}"),
            },
            error => error.into(),
        })?;
        let reached = db.snapshot().seq();
        db.close()?;
        if reached < seq {
            // Within a batch, or of a log that is not there.
            let why = format!(
                "the last write before it that the logs in the repository have as a whole is {reached}"
            );
            return Err(Error::Unreachable { seq, why });
        }
        restored.last_seq = seq;
        Ok(restored)
    }

    /// Finds the state from which a sequence number is reached, and its files with the logs of later states.
    fn reach(&self, seq: u64) -> Result<(State, Vec<FileEntry>), Error> {
        let unreachable = |why: String| Error::Unreachable { seq, why };
        let mut later: Vec<State> = Vec::new();
        let mut base = None;
        for listing in self.states()?.iter().rev() {
            // One that a prune has just removed is older than what is looked for, or there is none.
            let Some(state) = self.state_if_there(listing.number)? else { continue };
            if state.last_seq <= seq {
                base = Some(state);
                break;
            }
            later.push(state);
        }
        let Some(base) = base else {
            return Err(unreachable(match later.last() {
                Some(oldest) => format!("the oldest state, {}, ends at {}", oldest.number, oldest.last_seq),
                None => "the repository has no state".into(),
            }));
        };
        let mut files: BTreeMap<String, FileEntry> =
            base.files.iter().map(|file| (file.name.clone(), file.clone())).collect();
        let mut reached = base.last_seq;
        // After a takeover the same numbers may stand for other writes.
        for state in later.iter().rev().take_while(|state| state.epoch == base.epoch) {
            if reached >= seq {
                break;
            }
            for log in state.files.iter().filter(|file| file.kind == Kind::Log) {
                let longer = files.get(&log.name).is_none_or(|have| have.len < log.len);
                if longer {
                    files.insert(log.name.clone(), log.clone());
                }
            }
            reached = state.last_seq;
        }
        match reached >= seq {
            true => Ok((base, files.into_values().collect())),
            false => {
                Err(unreachable(format!("no state after {} of the same writer reaches it", base.number)))
            }
        }
    }

    fn restore_files(
        &self,
        state: &State,
        files: &[FileEntry],
        target: &Path,
        options: &RestoreOptions,
    ) -> Result<Restored, Error> {
        let fs: Arc<dyn FileSystem> =
            options.file_system.clone().unwrap_or_else(|| Arc::new(DiskFs::default()));
        let fs = &*fs;
        if !files.iter().any(|file| file.kind == Kind::Current && file.len > 0) {
            return Err(Error::damaged(&crate::state::object_name(state.number), "it has no CURRENT"));
        }
        begin(fs, target, files)?;
        let bytes = files.iter().map(|file| file.len).sum();
        let meter = Meter::new(options.progress.clone(), bytes, files.len());
        let (last, first): (Vec<&FileEntry>, Vec<&FileEntry>) =
            files.iter().partition(|file| file.kind == Kind::Current);
        let mut there = each(self.store.transfer().parallel, &first, |file| {
            let there = self.restore_file(fs, target, file, &meter)?;
            meter.file();
            Ok(there)
        })?;
        fs.sync_dir(target).map_err(Error::io(target.display()))?;
        for file in last {
            there.push(self.restore_file(fs, target, file, &meter)?);
            meter.file();
        }
        fs.sync_dir(target).map_err(Error::io(target.display()))?;
        let marker = target.join(MARKER);
        fs.remove(&marker).map_err(Error::io(marker.display()))?;
        fs.sync_dir(target).map_err(Error::io(target.display()))?;
        Ok(Restored {
            number: state.number,
            last_seq: state.last_seq,
            files: files.len() as u64,
            bytes,
            bytes_there: there.into_iter().sum(),
        })
    }

    /// Brings one file to its place unless it is there; returns the bytes that were.
    fn restore_file(
        &self,
        fs: &dyn FileSystem,
        target: &Path,
        file: &FileEntry,
        meter: &Meter,
    ) -> Result<u64, Error> {
        let path = target.join(&file.name);
        let failed = |error| Error::io(path.display())(error);
        if fs.exists(&path).map_err(failed)? {
            if is_whole(fs, &path, file).map_err(failed)? {
                meter.bytes(file.len);
                return Ok(file.len);
            }
            fs.remove(&path).map_err(failed)?;
        }
        let partial = target.join(format!("{}{PARTIAL}", file.name));
        let usage = if file.kind.is_appended() { Usage::Log } else { Usage::Table };
        let mut attempt = 1;
        loop {
            let mut out = fs.create(&partial, usage).map_err(failed)?;
            let mut damaged = None;
            for piece in &file.pieces {
                let mut hasher = Hasher::default();
                self.fetch_pieces(piece, |bytes| {
                    hasher.update(bytes);
                    meter.bytes(if attempt == 1 { bytes.len() as u64 } else { 0 });
                    out.append(bytes).map_err(failed)
                })?;
                if hasher.finish() != piece.hash {
                    damaged = Some(piece);
                    break;
                }
            }
            match damaged {
                // Once more: the bytes may have been damaged on their way.
                Some(_) if attempt == 1 => attempt += 1,
                Some(piece) => {
                    return Err(Error::damaged(&piece.object, "it has other bytes than were written"));
                }
                None => {
                    out.sync().map_err(failed)?;
                    break;
                }
            }
        }
        fs.rename(&partial, &path).map_err(failed)?;
        Ok(0)
    }
}

/// Makes the directory one that is being restored.
fn begin(fs: &dyn FileSystem, target: &Path, files: &[FileEntry]) -> Result<(), Error> {
    let failed = |error| Error::io(target.display())(error);
    fs.create_dir_all(target).map_err(failed)?;
    // The directory's own name; of its parents', the caller may know more.
    match target.parent() {
        Some(parent) if parent.as_os_str().is_empty() => fs.sync_dir(Path::new(".")).map_err(failed)?,
        Some(parent) => fs.sync_dir(parent).map_err(failed)?,
        None => {}
    }
    let there = fs.list(target).map_err(failed)?;
    let marker = target.join(MARKER);
    if there.iter().any(|name| name == MARKER) {
        // An interrupted restore, perhaps of another state. What is of this one is checked before it is used.
        let names: HashSet<&str> = files.iter().map(|file| file.name.as_str()).collect();
        for name in there.iter().filter(|name| *name != MARKER) {
            if !names.contains(name.as_str()) || name == "CURRENT" {
                fs.remove(&target.join(name)).map_err(failed)?;
            }
        }
    } else if !there.is_empty() {
        return Err(Error::NotEmpty { path: target.display().to_string() });
    } else {
        fs.create(&marker, Usage::Log).map_err(failed)?.sync().map_err(failed)?;
    }
    fs.sync_dir(target).map_err(failed)
}

/// Whether a local file has the bytes of an entry.
fn is_whole(fs: &dyn FileSystem, path: &Path, file: &FileEntry) -> std::io::Result<bool> {
    if fs.file_len(path)? != file.len {
        return Ok(false);
    }
    let local = fs.open(path, Access::Sequential)?;
    let mut buf = vec![0; 1 << 20];
    let mut offset = 0;
    for piece in &file.pieces {
        let (mut hasher, end) = (Hasher::default(), offset + piece.len);
        while offset < end {
            let take = (buf.len() as u64).min(end - offset) as usize;
            local.read_exact_at(&mut buf[..take], offset)?;
            hasher.update(&buf[..take]);
            offset += take as u64;
        }
        if hasher.finish() != piece.hash {
            return Ok(false);
        }
    }
    Ok(true)
}
