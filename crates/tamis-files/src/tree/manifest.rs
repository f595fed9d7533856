//! The manifest: the log of edits that defines which tables make up the database.
//!
//! A manifest is a record log (`docs/formats/logs.md`) named `MANIFEST-<number>`; the number is its
//! log id. Its first record is the whole state at its creation, and each later one is an edit
//! (`docs/formats/manifest.md`). `CURRENT` names the manifest in force.
//!
//! Invariants:
//!
//! * `CURRENT` names a manifest whose first record is durable: [`Manifest::create`] syncs the file
//!   and the directory, and only then may [`set_current`] be called.
//! * An edit is durable when [`Manifest::append`] returns. What it depends on (tables and their
//!   directory entries) must be durable before the call. What it makes obsolete may be removed only
//!   afterwards.
//! * Every opening for writing starts a new manifest; an old one is never appended to.
//!
//! Threads: one owner at a time.

use std::path::Path;

use tamis_env::io::{Access, FileSystem, Usage, read_file};

use crate::error::{FileError, StorageError};
use crate::tree::edit::VersionEdit;
use crate::tree::files::{self, FileKind};
use crate::tree::state::ManifestState;
use crate::wal::{End, LogHeader, LogKind, LogReader, LogWriter, ReadOptions};

/// A manifest shorter than this is never rolled.
const MIN_ROLL_BYTES: u64 = 1 << 20;

/// A manifest is rolled once it exceeds this many times the length of its first record.
const ROLL_FACTOR: u64 = 4;

/// Space reserved ahead for coming edits: this many bytes, or twice the last edit if that is more.
/// It is topped up once half is used. On a full disk, an edit that frees space must still fit; if
/// its append fails, the only remedy is a whole new manifest.
const RESERVED_BYTES: u64 = 64 << 10;

/// The maximum length of a valid `CURRENT`, in bytes.
const MAX_CURRENT_BYTES: u64 = 64;

/// The manifest in force, open for appending.
#[derive(Debug)]
pub struct Manifest {
    log: LogWriter,
    /// The length up to the end of the first record.
    snapshot_end: u64,
    buf: Vec<u8>,
}

/// The contents of a manifest.
#[derive(Clone, Debug)]
pub struct LoadedManifest {
    /// The manifest's number.
    pub number: u64,
    /// The state after all its edits.
    pub state: ManifestState,
    /// How the file ends: [`End::Torn`] if its last edit was incomplete and therefore dropped.
    pub end: End,
}

impl Manifest {
    /// Writes manifest `number` with `state` as its first record, and makes the file and its name
    /// durable. It takes force with [`set_current`].
    pub fn create(
        fs: &dyn FileSystem,
        dir: &Path,
        number: u64,
        state: &ManifestState,
    ) -> Result<Manifest, StorageError> {
        let path = files::manifest_path(dir, number);
        let file = fs.create(&path, Usage::Log).map_err(|e| StorageError::io("create", &path, e))?;
        let header = LogHeader { kind: LogKind::Manifest, id: number, reused: false };
        let mut log = LogWriter::create(file, &path, header)?;
        let mut buf = Vec::new();
        state.snapshot().encode(&mut buf);
        let snapshot_end = log.append(&[&buf])?;
        log.sync()?;
        fs.sync_dir(dir).map_err(|e| StorageError::io("sync", dir, e))?;
        let mut manifest = Manifest { log, snapshot_end, buf };
        manifest.reserve(0);
        Ok(manifest)
    }

    /// Reads the manifest in force. Returns `None` if there is no `CURRENT`, and thus no database.
    ///
    /// A torn last edit is dropped with a warning, since nothing that depends on it was done.
    /// Errors: damage, with file and offset; a newer format; an edit that this library does not
    /// understand or that does not apply.
    pub fn open(fs: &dyn FileSystem, dir: &Path) -> Result<Option<LoadedManifest>, FileError> {
        let Some(ManifestReader { number, log, state }) = ManifestReader::whole(fs, dir)? else {
            return Ok(None);
        };
        let end = log.end().expect("read to its end").clone();
        if let End::Torn { offset } = end {
            let path = log.path().display();
            log::warn!("{path}: the edit at offset {offset} is incomplete and was dropped");
        }
        Ok(Some(LoadedManifest { number, state, end }))
    }

    /// Reads as much of manifest `number` as possible. Returns the state before the first edit that
    /// is damaged or does not apply, and the error. A state without keyspaces means that not even
    /// the first edit could be read. Errors: failed reads, except of a missing file; a newer
    /// format.
    pub fn read_what_is_there(
        fs: &dyn FileSystem,
        dir: &Path,
        number: u64,
    ) -> Result<(LoadedManifest, Option<StorageError>), FileError> {
        let path = files::manifest_path(dir, number);
        let mut last = u64::MAX;
        loop {
            let (mut state, mut applied, mut unfit) = (ManifestState::default(), 0, false);
            let mut next_epoch = None;
            let read = read_edits(fs, &path, number, |offset, mut edit| {
                if applied == last {
                    return Err(StorageError::corrupt(&path, offset, "an edit does not apply"));
                }
                next_epoch = next_epoch.max(edit.next_epoch.take());
                state.apply(&edit).map_err(|what| {
                    unfit = true;
                    StorageError::corrupt(&path, offset, format!("an edit does not apply: {what}"))
                })?;
                applied += 1;
                Ok(())
            });
            if unfit {
                // The edit was partly applied: start over without it.
                last = applied;
                continue;
            }
            let epochs = VersionEdit { next_epoch, ..VersionEdit::default() };
            let fits = state.apply(&epochs).map_err(|what| StorageError::corrupt(&path, None, what));
            let (end, wrong) = match (read, fits) {
                (Ok(end), Ok(())) => (end, None),
                (Err(FileError::Storage(error)), _) if is_damage(&error) => {
                    (End::Clean { offset: 0 }, Some(error))
                }
                (Err(error), _) => return Err(error),
                (Ok(end), Err(error)) => (end, Some(error)),
            };
            return Ok((LoadedManifest { state, number, end }, wrong));
        }
    }

    /// Appends an edit and makes it durable. After a failure it is unknown whether the next opening
    /// will find the edit; every later call returns the same error.
    pub fn append(&mut self, edit: &VersionEdit) -> Result<(), StorageError> {
        self.buf.clear();
        edit.encode(&mut self.buf);
        self.log.append(&[&self.buf])?;
        self.log.sync()?;
        self.reserve(2 * self.buf.len() as u64);
        Ok(())
    }

    /// Reserves space ahead, for at least `least` bytes. A failure is retried after the next edit.
    fn reserve(&mut self, least: u64) {
        let bytes = RESERVED_BYTES.max(least);
        if self.log.allocated() < self.log.len() + bytes / 2 {
            self.log.retry_preallocation();
            self.log.preallocate(self.log.len() + bytes);
        }
    }

    /// Returns the length, in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a file of no bytes is none")]
    pub fn len(&self) -> u64 {
        self.log.len()
    }

    /// Reports whether this manifest is mostly history, so that a new one should replace it.
    pub fn should_roll(&self) -> bool {
        let len = self.log.len();
        len > MIN_ROLL_BYTES && len > ROLL_FACTOR * self.snapshot_end
    }

    /// Closes the manifest cleanly, so damage to its last edits cannot pass for a torn end.
    pub fn close(self) -> Result<(), StorageError> {
        self.log.close().map(drop)
    }
}

/// Reads the manifest in force of a database that another process may be writing to, and then
/// follows it. After an error the state may match no point in time: discard the reader and open a
/// new one.
#[derive(Debug)]
pub struct ManifestReader {
    number: u64,
    log: LogReader,
    state: ManifestState,
}

impl ManifestReader {
    /// Reads the manifest in force. Returns `None` if there is no `CURRENT`. Errors: those of
    /// [`Manifest::open`].
    pub fn open(fs: &dyn FileSystem, dir: &Path) -> Result<Option<ManifestReader>, FileError> {
        let mut reader = ManifestReader::whole(fs, dir)?;
        reader.iter_mut().for_each(|reader| reader.log.resume());
        Ok(reader)
    }

    /// Reads the manifest in force to its end.
    fn whole(fs: &dyn FileSystem, dir: &Path) -> Result<Option<ManifestReader>, FileError> {
        let Some(number) = read_current(fs, dir)? else { return Ok(None) };
        let path = files::manifest_path(dir, number);
        let file = fs.open(&path, Access::Sequential).map_err(|e| StorageError::io("open", &path, e))?;
        let log = LogReader::open(file, &path, LogKind::Manifest, number, ReadOptions::default())?;
        let mut reader = ManifestReader { number, log, state: ManifestState::default() };
        // Unlike `poll`, this also examines what follows the last edit: it may be damage.
        if !reader.read(LogReader::next_record)? {
            // A manifest's first record is synced before the manifest takes force.
            return Err(StorageError::corrupt(&path, 0, "its first record is missing").into());
        }
        Ok(Some(reader))
    }

    /// Reads new edits, or the new manifest if `CURRENT` changed. Returns whether there was
    /// anything new.
    pub fn refresh(&mut self, fs: &dyn FileSystem, dir: &Path) -> Result<bool, FileError> {
        let path = files::current_path(dir);
        let number = read_current(fs, dir)?.ok_or_else(|| {
            StorageError::io("read", &path, std::io::Error::from(std::io::ErrorKind::NotFound))
        })?;
        if number == self.number {
            return self.read(LogReader::poll);
        }
        *self = ManifestReader::open(fs, dir)?.ok_or(FileError::NotFound { path: dir.to_owned() })?;
        Ok(true)
    }

    fn read(
        &mut self,
        mut next: impl FnMut(&mut LogReader) -> Result<Option<crate::wal::Record<'_>>, StorageError>,
    ) -> Result<bool, FileError> {
        // In old manifests every edit sets the epochs of all keyspaces; setting them once is
        // enough.
        let (mut any, mut next_epoch) = (false, None);
        let path = self.log.path().to_owned();
        while let Some(record) = next(&mut self.log)? {
            let damaged = |what: String| StorageError::corrupt(&path, record.offset, what);
            let mut edit = VersionEdit::decode(record.payload).map_err(|e| damaged(e.to_string()))?;
            next_epoch = next_epoch.max(edit.next_epoch.take());
            self.state.apply(&edit).map_err(|what| damaged(format!("an edit does not apply: {what}")))?;
            any = true;
        }
        let epochs = VersionEdit { next_epoch, ..VersionEdit::default() };
        self.state.apply(&epochs).map_err(|what| StorageError::corrupt(&path, None, what))?;
        Ok(any)
    }

    /// The manifest's number and the offset of its next edit. Equal marks mean equal states.
    pub fn mark(&self) -> (u64, u64) {
        (self.number, self.log.pos())
    }

    /// The state after all edits read.
    pub fn state(&self) -> &ManifestState {
        &self.state
    }

    /// Reports whether the database was closed cleanly.
    pub fn is_closed(&self) -> bool {
        matches!(self.log.end(), Some(End::Closed { .. }))
    }
}

/// Puts manifest `number`, made by [`Manifest::create`], in force: replaces `CURRENT` atomically
/// and durably. After an error either manifest may be in force.
pub fn set_current(fs: &dyn FileSystem, dir: &Path, number: u64) -> Result<(), StorageError> {
    prepare_current(fs, dir, number)?;
    switch_current(fs, dir)
}

/// Writes the file that [`switch_current`] makes the new `CURRENT`. An error leaves `CURRENT`
/// unchanged.
pub fn prepare_current(fs: &dyn FileSystem, dir: &Path, number: u64) -> Result<(), StorageError> {
    let line = format!("{}\n", files::manifest_name(number));
    let written = (|| {
        let mut file = fs.create(&files::temporary_current_path(dir), Usage::Log)?;
        file.append(line.as_bytes())?;
        file.sync()
    })();
    written.map_err(|e| StorageError::io("replace", &files::current_path(dir), e))
}

/// Replaces `CURRENT` with the prepared file, durably. After an error either manifest may be in
/// force.
pub fn switch_current(fs: &dyn FileSystem, dir: &Path) -> Result<(), StorageError> {
    let path = files::current_path(dir);
    let renamed = fs.rename(&files::temporary_current_path(dir), &path).and_then(|()| fs.sync_dir(dir));
    renamed.map_err(|e| StorageError::io("replace", &path, e))
}

/// Returns the number of the manifest in force, or `None` if there is no `CURRENT`.
pub fn read_current(fs: &dyn FileSystem, dir: &Path) -> Result<Option<u64>, StorageError> {
    let path = files::current_path(dir);
    let io = |e| StorageError::io("read", &path, e);
    if !fs.exists(&path).map_err(io)? {
        return Ok(None);
    }
    let bytes = match fs.file_len(&path).map_err(io)? {
        0..=MAX_CURRENT_BYTES => read_file(fs, &path).map_err(io)?,
        _ => Vec::new(),
    };
    let name = std::str::from_utf8(&bytes).ok().and_then(|text| text.strip_suffix('\n'));
    match name.and_then(files::parse) {
        Some(FileKind::Manifest(number)) => Ok(Some(number)),
        _ => Err(StorageError::corrupt(&path, None, "it does not name a manifest")),
    }
}

/// Reports whether an error means that a file is damaged or missing, so retrying does not help.
pub fn is_damage(error: &StorageError) -> bool {
    match error {
        StorageError::Corrupt(_) => true,
        StorageError::Io(failure) => failure.kind() == std::io::ErrorKind::NotFound,
        StorageError::Forked { .. } => false,
    }
}

/// Passes the edits of manifest `number` at `path` to `each`, in order, with their offsets, and
/// returns how the file ends. The first edit is the state at the manifest's creation; without one,
/// the file is corrupt.
pub fn read_edits(
    fs: &dyn FileSystem,
    path: &Path,
    number: u64,
    mut each: impl FnMut(u64, VersionEdit) -> Result<(), StorageError>,
) -> Result<End, FileError> {
    let file = fs.open(path, Access::Sequential).map_err(|e| StorageError::io("open", path, e))?;
    let mut log = LogReader::open(file, path, LogKind::Manifest, number, ReadOptions::default())?;
    let mut any = false;
    while let Some(record) = log.next_record()? {
        let edit = VersionEdit::decode(record.payload)
            .map_err(|e| StorageError::corrupt(path, record.offset, e.to_string()))?;
        each(record.offset, edit)?;
        any = true;
    }
    match log.end() {
        Some(end) if any => Ok(end.clone()),
        // A manifest's first record is synced before the manifest takes force.
        _ => Err(StorageError::corrupt(path, 0, "its first record is missing").into()),
    }
}

#[cfg(test)]
mod tests;
