//! Restoring a state, or a sequence number between states, to a directory.
//!
//! # Order
//!
//! A marker file first; then every file under a temporary name, checked, synced, renamed; `CURRENT`
//! last, after a sync of the directory; then, if logs are to be cut, the engine opens the database
//! and closes it; then the marker goes. So a directory with the marker is not a database yet, and a
//! restore that was interrupted at any point continues: what the engine has changed by then does
//! not have its hash any more.
//!
//! # Processes
//!
//! A restore holds the lock that a database in the directory has, so that there is one at a time,
//! and nobody opens what is not whole. Only the engine that cuts the logs takes it in between.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use tamis::io::{Access, DirLock, DiskFs, FileSystem, Usage};
use tamis::operators::Operators;
use tamis::{OpenError, Options, StorageError};

use crate::error::Error;
use crate::hash::Hasher;
use crate::parallel::each;
use crate::repository::Repository;
use crate::source::kind_of;
use crate::state::{FileEntry, Kind, State, object_name};
use crate::upload::{Meter, OnProgress};

/// In a directory that is not restored yet.
const MARKER: &str = "RESTORING";

/// What is in it. Earlier versions left it empty.
const MARKER_TEXT: &str = "tamis restores a backup to this directory\n";

/// At the end of the name of a file that is not whole yet.
const PARTIAL: &str = ".partial";

/// The lock of a database's directory; an empty file that stays.
const LOCK: &str = "LOCK";

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
    /// Damaged states that a restore to a number passed over, and what is wrong with each.
    pub passed_over: Vec<String>,
}

impl Repository {
    /// Restores a state to a directory that is new, empty, or left by an interrupted restore.
    ///
    /// # Errors
    ///
    /// When the directory holds something else, an object is missing or damaged, or a request or
    /// the file system fails. The next attempt continues.
    pub fn restore(&self, state: &State, target: &Path, options: &RestoreOptions) -> Result<Restored, Error> {
        let target = Target::begin(target, options, state, &state.files)?;
        let restored = self.restore_files(state, &state.files, &target, options)?;
        target.finish()?;
        Ok(restored)
    }

    /// Restores a database as it was at a sequence number: the newest state that ends at or before
    /// it, and logs of later states. For any number to be within reach, states must have been
    /// shipped by a consumer that keeps logs until then (see [`crate::Shipper`]).
    ///
    /// The database is opened once, to cut its logs there. `operators` are those that its keyspaces
    /// need, if any.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`] if no state ends before the number, or logs in between are not in the
    /// repository: then the directory stays marked as one that is being restored. Otherwise as
    /// [`restore`](Self::restore).
    pub fn restore_to(
        &self,
        seq: u64,
        target: &Path,
        operators: Operators,
        options: &RestoreOptions,
    ) -> Result<Restored, Error> {
        let mut passed_over = Vec::new();
        let (state, files) = self.reach(seq, &mut passed_over)?;
        let mut dir = Target::begin(target, options, &state, &files)?;
        let mut restored = self.restore_files(&state, &files, &dir, options)?;
        dir.unlock();
        let mut open =
            Options { operators: operators.with_unknown(), create_if_missing: false, ..Options::default() };
        open.recover_to = Some(seq);
        open.file_system = options.file_system.clone();
        // Every file has the bytes that were written. So what is wrong with a log is that it does
        // not continue what is there.
        let db = open.open(target).map_err(|error| match error {
            OpenError::Storage(StorageError::Corrupt(what)) => Error::Unreachable {
                seq,
                why: format!(
                    "the logs in the repository do not lead there ({}: {})",
                    what.path.display(),
                    what.what
                ),
            },
            error => error.into(),
        })?;
        let reached = db.snapshot().seq();
        db.close()?;
        dir.lock()?;
        if reached < seq {
            // Within a batch, or of a log that is not there.
            let why = format!(
                "the last write before it that the logs in the repository have as a whole is {reached}"
            );
            return Err(Error::Unreachable { seq, why });
        }
        dir.finish()?;
        (restored.last_seq, restored.passed_over) = (seq, passed_over);
        Ok(restored)
    }

    /// Finds the state from which a sequence number is reached, and its files with the logs of
    /// later states.
    fn reach(&self, seq: u64, passed_over: &mut Vec<String>) -> Result<(State, Vec<FileEntry>), Error> {
        let unreachable = |why: String| Err(Error::Unreachable { seq, why });
        // The first state that ends after the number, and where the one after it stands. States are
        // large: no more of them is kept.
        let mut next: Option<State> = None;
        let mut second = None;
        let mut base = None;
        for listing in self.states()?.iter().rev() {
            // One that a prune has just removed is older than what is looked for, or there is none.
            let state = match self.state_if_there(listing.number) {
                Err(error) if error.is_damage() => {
                    passed_over.push(error.to_string());
                    continue;
                }
                state => state?,
            };
            let Some(state) = state else { continue };
            if state.last_seq <= seq {
                base = Some(state);
                break;
            }
            second = next.map(|state| (state.epoch, state.last_seq));
            next = Some(state);
        }
        let Some(base) = base else {
            return unreachable(match next {
                Some(oldest) => format!("the oldest state, {}, ends at {}", oldest.number, oldest.last_seq),
                None => "the repository has no state".into(),
            });
        };
        if base.last_seq == seq {
            let files = base.files.clone();
            return Ok((base, files));
        }
        // After a takeover the same numbers may stand for other writes.
        let Some(next) = next.filter(|next| next.epoch == base.epoch) else {
            return unreachable(format!("no state after {} of the same writer reaches it", base.number));
        };
        // So they may after a power failure of a writer whose unsynced writes were shipped.
        let lost = |number: u64| {
            format!(
                "the writer had lost writes of state {number} when it wrote the next, so that numbers were used twice"
            )
        };
        if second.is_some_and(|(epoch, last)| epoch == next.epoch && last < next.last_seq) {
            return unreachable(lost(next.number));
        }
        let mut files: BTreeMap<String, FileEntry> =
            base.files.iter().map(|file| (file.name.clone(), file.clone())).collect();
        for log in next.files.iter().filter(|file| file.kind == Kind::Log) {
            match files.insert(log.name.clone(), log.clone()) {
                Some(before) if before.len > log.len => return unreachable(lost(base.number)),
                _ => {}
            }
        }
        Ok((base, files.into_values().collect()))
    }

    fn restore_files(
        &self,
        state: &State,
        files: &[FileEntry],
        target: &Target<'_>,
        options: &RestoreOptions,
    ) -> Result<Restored, Error> {
        let (fs, target) = (&*target.fs, target.path);
        let bytes = files.iter().try_fold(0u64, |sum, file| sum.checked_add(file.len));
        let bytes =
            bytes.ok_or_else(|| Error::damaged(&object_name(state.number), "its files are too long"))?;
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
        Ok(Restored {
            number: state.number,
            last_seq: state.last_seq,
            files: files.len() as u64,
            bytes,
            bytes_there: there.into_iter().sum(),
            passed_over: Vec::new(),
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

/// A directory that is being restored.
struct Target<'p> {
    fs: Arc<dyn FileSystem>,
    path: &'p Path,
    lock: Option<Box<dyn DirLock>>,
}

impl<'p> Target<'p> {
    /// Makes a directory one in which these files are being restored.
    fn begin(
        path: &'p Path,
        options: &RestoreOptions,
        state: &State,
        files: &[FileEntry],
    ) -> Result<Target<'p>, Error> {
        if !files.iter().any(|file| file.kind == Kind::Current && file.len > 0) {
            return Err(Error::damaged(&object_name(state.number), "it has no CURRENT"));
        }
        let fs = options.file_system.clone().unwrap_or_else(|| Arc::new(DiskFs::default()));
        let mut target = Target { fs, path, lock: None };
        let failed = |error| Error::io(path.display())(error);
        target.fs.create_dir_all(path).map_err(failed)?;
        // The directory's own name; of its parents', the caller may know more.
        match path.parent() {
            Some(parent) if parent.as_os_str().is_empty() => {
                target.fs.sync_dir(Path::new(".")).map_err(failed)?;
            }
            Some(parent) => target.fs.sync_dir(parent).map_err(failed)?,
            None => {}
        }
        // First without the lock, which would leave its file in other people's directories.
        target.is_marked()?;
        target.lock()?;
        if target.is_marked()? {
            target.clean(files)?;
        } else {
            let mut marker = target.fs.create(&path.join(MARKER), Usage::Log).map_err(failed)?;
            marker.append(MARKER_TEXT.as_bytes()).and_then(|()| marker.sync()).map_err(failed)?;
        }
        target.fs.sync_dir(path).map_err(failed)?;
        Ok(target)
    }

    /// Whether the directory was being restored. Fails if it was not, and is not empty; and if it
    /// holds anything that no restore makes, whatever else says that it was: a file of somebody's
    /// may be called like the marker.
    fn is_marked(&self) -> Result<bool, Error> {
        let failed = |error| Error::io(self.path.display())(error);
        let there = self.fs.list(self.path).map_err(failed)?;
        let marked = there.iter().any(|name| name == MARKER) && {
            let marker = self.path.join(MARKER);
            match self.fs.file_len(&marker).map_err(failed)? {
                // Begun by an earlier version, or interrupted at once.
                0 => true,
                len if len > MARKER_TEXT.len() as u64 => false,
                _ => {
                    let text = tamis::io::read_file(&*self.fs, &marker).map_err(failed)?;
                    MARKER_TEXT.as_bytes().starts_with(&text) || text.iter().all(|byte| *byte == 0)
                }
            }
        };
        let expected = |name: &String| name == LOCK || marked && is_ours(name);
        match there.iter().all(expected) {
            true => Ok(marked),
            false => Err(Error::NotEmpty { path: self.path.display().to_string() }),
        }
    }

    /// Removes what an interrupted restore, perhaps of another state, has left. Files of these
    /// names are checked before they are used.
    fn clean(&self, files: &[FileEntry]) -> Result<(), Error> {
        let failed = |error| Error::io(self.path.display())(error);
        let names: HashSet<&str> = files.iter().map(|file| file.name.as_str()).collect();
        let unneeded = |name: &String| {
            name == "CURRENT" || !(names.contains(name.as_str()) || name == MARKER || name == LOCK)
        };
        for name in self.fs.list(self.path).map_err(failed)?.into_iter().filter(unneeded) {
            self.fs.remove(&self.path.join(name)).map_err(failed)?;
        }
        Ok(())
    }

    fn lock(&mut self) -> Result<(), Error> {
        let path = self.path.join(LOCK);
        self.lock = self.fs.lock(&path).map_err(Error::io(path.display()))?;
        match self.lock {
            Some(_) => Ok(()),
            None => {
                let used = "another restore, or a database, has it open";
                Err(Error::io(self.path.display())(std::io::Error::new(
                    std::io::ErrorKind::ResourceBusy,
                    used,
                )))
            }
        }
    }

    /// For the engine.
    fn unlock(&mut self) {
        self.lock = None;
    }

    /// From here on it is a database.
    fn finish(self) -> Result<(), Error> {
        let marker = self.path.join(MARKER);
        self.fs.remove(&marker).map_err(Error::io(marker.display()))?;
        self.fs.sync_dir(self.path).map_err(Error::io(self.path.display()))
    }
}

/// Whether a restore makes files of this name, or the engine, which opens what is restored.
fn is_ours(name: &str) -> bool {
    match name {
        MARKER | LOCK | "OPTIONS" | "STATS" | "RESERVE" => true,
        "CURRENT.tmp" | "OPTIONS.tmp" | "STATS.tmp" | "LOG.tmp" => true,
        _ => kind_of(name.strip_suffix(PARTIAL).unwrap_or(name)).is_some(),
    }
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

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use object_store::memory::InMemory;

    use super::*;
    use crate::state::to_bytes;
    use crate::store::Transfer;

    fn repository(states: &[(u64, u64, u64)]) -> Repository {
        let repo = Repository::with_store(Arc::new(InMemory::new()), "", Transfer::default());
        for (at, &(epoch, last_seq, log)) in states.iter().enumerate() {
            let piece = |len| crate::state::Piece {
                object: format!("parts/s/{len}"),
                len,
                hash: crate::hash::ContentHash::of(b""),
            };
            let files = vec![FileEntry {
                name: "000001.log".into(),
                len: log,
                kind: Kind::Log,
                metadata_from: log,
                pieces: vec![piece(log)],
            }];
            let state = State {
                number: at as u64 + 1,
                created: SystemTime::UNIX_EPOCH,
                writer: "w".into(),
                epoch,
                session: "s".into(),
                run: "r".into(),
                last_seq,
                files,
                lists: Vec::new(),
            };
            let bytes = to_bytes(&state, &state.files).unwrap();
            assert!(repo.store.put_new(&object_name(state.number), bytes.into()).unwrap());
        }
        repo
    }

    /// The state that is restored, and the length of the log.
    fn reached(repo: &Repository, seq: u64) -> Option<(u64, u64)> {
        match repo.reach(seq, &mut Vec::new()) {
            Ok((state, files)) => Some((state.number, files[0].len)),
            Err(Error::Unreachable { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn the_log_is_that_of_the_next_state() {
        let repo = repository(&[(0, 10, 100), (0, 20, 200), (0, 30, 300), (1, 40, 400)]);
        let at = |seq| reached(&repo, seq);
        assert_eq!([at(9), at(10), at(11), at(20)], [None, Some((1, 100)), Some((1, 200)), Some((2, 200))]);
        assert_eq!([at(29), at(30)], [Some((2, 300)), Some((3, 300))]);
        // What is after the takeover belongs to another history.
        assert_eq!([at(31), at(40), at(41)], [None, Some((4, 400)), None]);
    }

    #[test]
    fn numbers_that_were_used_twice_are_not_reached() {
        // The second state has writes that were lost: the third ends before it, and goes on.
        let repo = repository(&[(0, 10, 100), (0, 20, 200), (0, 15, 150), (0, 25, 250)]);
        let at = |seq| reached(&repo, seq);
        assert_eq!([at(10), at(12)], [Some((1, 100)), None]);
        assert_eq!([at(15), at(18), at(25)], [Some((3, 150)), Some((3, 250)), Some((4, 250))]);
        // The third has more numbers already, but a shorter log.
        let repo = repository(&[(0, 10, 100), (0, 20, 200), (0, 25, 150)]);
        let at = |seq| reached(&repo, seq);
        assert_eq!([at(12), at(20), at(22), at(25)], [Some((1, 200)), Some((2, 200)), None, Some((3, 150))]);
        // A takeover by an older copy is no such loss.
        let repo = repository(&[(0, 10, 100), (0, 20, 200), (1, 15, 150)]);
        assert_eq!(reached(&repo, 12), Some((1, 200)));
    }
}
