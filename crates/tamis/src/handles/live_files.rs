//! The files that make up a database at one moment, for copying it elsewhere.
//!
//! # Why they are a database
//!
//! With the log and `state` locks held, every write is in the logs and in the memtables, and the
//! manifest's edits describe the tree in memory. So the files are what a crash at that moment
//! leaves behind: the manifest up to its end, the tables, blob files and filter files that it
//! names, and all logs that it needs, up to their ends. The logs have been synced: a copy never
//! contains a write that its database may still lose. A [follower](crate::open::follow) has read
//! the same files from a writer in another process, without syncing anything.
//!
//! # What keeps them
//!
//! Tables and blob files are held open; while they are, they are not removed. Logs are not held.
//! One may be removed, which does not affect a reader that has it open, or overwritten for a later
//! log. Overwriting replaces the header first, so bytes read from a log count only if its header is
//! still there afterwards. The manifest is only appended to, or replaced by one with another name.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tamis_base::ids::LogId;
use tamis_base::key::SeqNo;
use tamis_files::tree::files::{
    blob_path, current_path, filter_path, log_path, manifest_name, manifest_path, name_of, options_path,
    table_path,
};
use tamis_files::wal::is_header_of;

use crate::error::{AdminError, OpenError, StorageError, WriteError};
use crate::handles::handle::{Db, Handle};
use crate::io::{Access, ReadFile, read_file};
use crate::open::follow::{Ends, Follower, catch_up};
use crate::read::View;
use crate::session::Session;
use crate::sync::Mutex;
use crate::tree::garbage::OpenBlob;
use crate::tree::open_table::OpenTable;

/// How many times a follower retries with newer files if some are gone.
const MOST_ATTEMPTS: u32 = 100;

/// What a file is, and so how it may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LiveFileKind {
    /// A table. A table of this name never has other contents.
    Table,
    /// A blob file: values stored apart from their keys. It never has other contents.
    Blob,
    /// Images of a global filter. It never has other contents.
    Filter,
    /// A log of writes: it may grow later, but its beginning stays.
    Log,
    /// The manifest: it may grow later, but its beginning stays.
    Manifest,
    /// `CURRENT`, which names the manifest in force. Copy it last: without it, the copy is not a
    /// database.
    Current,
    /// The options as text, for people to read.
    Options,
}

/// How to read a file.
#[derive(Debug)]
enum FileSource {
    Table(Arc<OpenTable>),
    Blob(Arc<OpenBlob>),
    File(Arc<dyn ReadFile>),
    Log(Arc<dyn ReadFile>, LogId),
    Bytes(Vec<u8>),
}

/// One file of [`LiveFiles`].
#[derive(Debug)]
pub struct LiveFile {
    name: String,
    kind: LiveFileKind,
    len: u64,
    metadata_from: u64,
    source: FileSource,
}

impl LiveFile {
    /// Returns the file's name within the database's directory.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what the file is.
    pub fn kind(&self) -> LiveFileKind {
        self.kind
    }

    /// Returns how many of the file's bytes belong to the database now. The file on disk may be
    /// longer.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Reports whether none of the file's bytes belong to the database.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the offset of the part that opening the database reads: a table's filter, index and
    /// footer; a blob file's footer; all of any other file.
    pub fn metadata_from(&self) -> u64 {
        self.metadata_from
    }

    /// Fills `buf` with the file's bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` beyond [`len`](Self::len); `NotFound` if the log was overwritten meanwhile
    /// because its writes are in tables: get the live files again. Others are those of the file
    /// system.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match &self.source {
            FileSource::Table(table) => table.table.read_stored(buf, offset),
            FileSource::Blob(blob) => blob.file.read_stored(buf, offset),
            FileSource::File(file) => file.read_exact_at(buf, offset),
            FileSource::Log(file, id) => {
                file.read_exact_at(buf, offset)?;
                match is_header_of(&**file, *id)? {
                    true => Ok(()),
                    false => {
                        Err(io::Error::new(io::ErrorKind::NotFound, "the log was overwritten by a later one"))
                    }
                }
            }
            FileSource::Bytes(bytes) => {
                buf.copy_from_slice(&bytes[offset as usize..][..buf.len()]);
                Ok(())
            }
        }
    }
}

/// The files that make up a database at one moment: see [`Db::live_files`](crate::Db::live_files).
/// They stay readable as long as this value lives, so tables merged meanwhile keep their disk
/// space.
pub struct LiveFiles {
    last_seq: SeqNo,
    files: Vec<LiveFile>,
    _views: Vec<Arc<View>>,
}

debug_as!(LiveFiles, "LiveFiles", files => "last_seq": files.last_seq, "files": files.files.len());

impl LiveFiles {
    /// Returns the sequence number of the last write in the files.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Returns the files, `CURRENT` last.
    pub fn files(&self) -> &[LiveFile] {
        &self.files
    }
}

impl Db {
    /// Returns the files that make up the database now, for copying elsewhere. A directory with
    /// these files, each cut to its length, is the database as a crash at this moment would leave
    /// it, and opens as such. The files can be read as long as the result lives.
    ///
    /// A writer first syncs everything; writes wait for that and for the files to be opened. A
    /// [follower](crate::Options::open_follower) returns the files it has caught up with. If [logs
    /// are kept](crate::changes) for readers of changes, they are included; a follower reads each
    /// of them once.
    ///
    /// # Errors
    ///
    /// Those of [`sync`](Db::sync); [`WriteError::ReadOnly`](crate::WriteError::ReadOnly) for a
    /// database that is open read-only but is not a follower.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let copy = dir.path().join("copy");
    /// # std::fs::create_dir(&copy)?;
    /// # let db = tamis::Db::open(dir.path().join("db"))?;
    /// db.put("key", "value")?;
    /// for file in db.live_files()?.files() {
    ///     let mut bytes = vec![0; file.len() as usize];
    ///     file.read_exact_at(&mut bytes, 0)?;
    ///     std::fs::write(copy.join(file.name()), bytes)?;
    /// }
    /// let copy = tamis::Db::open(copy)?;
    /// assert_eq!(copy.get("key")?.unwrap(), "value");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn live_files(&self) -> Result<LiveFiles, AdminError> {
        self.handle().live_files()
    }
}

impl Handle {
    fn live_files(&self) -> Result<LiveFiles, AdminError> {
        self.inner.gate.check_process()?;
        match &self.follower {
            Some(follower) => self.inner.followed_files(follower),
            None => self.inner.own_files(),
        }
    }
}

impl Session {
    fn own_files(&self) -> Result<LiveFiles, AdminError> {
        if self.gate.is_read_only() {
            return Err(WriteError::ReadOnly.into());
        }
        self.check_ready()?;
        let mut log = self.lock_log();
        self.gate.check_writable()?;
        self.log.sync(&mut log)?;
        let mut state = self.state();
        state.catalogue.settle()?;
        let Some(manifest) = state.catalogue.manifest_len() else { return Err(WriteError::Closed.into()) };
        let mut logs: Vec<(LogId, u64)> = state.logs.closed().collect();
        logs.push((log.id(), log.len()));
        let filters = state.catalogue.tree().keyspaces.values().flat_map(|stored| &stored.filter_files);
        let filters = filters.map(|(&id, &bytes)| (id, bytes)).collect();
        let manifest = (state.catalogue.manifest_number(), manifest);
        // Opened under the locks, so that neither logs nor filter files are removed meanwhile.
        Ok(self.gather(&self.views(), Ends { last_seq: log.last_seq(), manifest, logs, filters })?)
    }

    /// Returns the files that a follower has read last, or newer ones if the writer has removed
    /// some of them since.
    fn followed_files(&self, follower: &Mutex<Follower>) -> Result<LiveFiles, AdminError> {
        let mut attempts = 0..MOST_ATTEMPTS;
        loop {
            let gathered = {
                let mut follower = follower.lock();
                // Under the follower's lock, nothing is published meanwhile.
                let ends = follower.ends_with_kept(self);
                self.gather(&self.views(), ends)
            };
            match gathered {
                Err(StorageError::Io(failure))
                    if failure.kind() == io::ErrorKind::NotFound && attempts.next().is_some() =>
                {
                    catch_up(self, follower).map_err(|error| match error {
                        OpenError::Storage(error) => error,
                        other => StorageError::io(
                            "catch up with the writer of",
                            &self.dir,
                            io::Error::other(other),
                        ),
                    })?;
                }
                gathered => return Ok(gathered?),
            }
        }
    }

    fn views(&self) -> Vec<Arc<View>> {
        self.keyspaces.directory.load().values().map(|keyspace| keyspace.view.load_full()).collect()
    }

    fn gather(&self, views: &[Arc<View>], ends: Ends) -> Result<LiveFiles, StorageError> {
        let open = |path: &Path| {
            self.fs.open(path, Access::Sequential).map_err(|e| StorageError::io("open", path, e))
        };
        let mut files = Vec::new();
        for view in views {
            files.extend(view.version.tables.iter().map(|table| LiveFile {
                name: name_of(&table_path(&self.dir, table.meta.id)),
                kind: LiveFileKind::Table,
                len: table.table.file_bytes(),
                metadata_from: table.table.footer().data_span,
                source: FileSource::Table(table.clone()),
            }));
            files.extend(view.version.blobs.iter().map(|blob| LiveFile {
                name: name_of(&blob_path(&self.dir, blob.file.file.id())),
                kind: LiveFileKind::Blob,
                len: blob.file.file.file_bytes(),
                metadata_from: blob.file.file.data_bytes(),
                source: FileSource::Blob(blob.file.clone()),
            }));
        }
        for (id, len) in ends.filters {
            let path = filter_path(&self.dir, id);
            match self.fs.open(&path, Access::Sequential) {
                Ok(file) => files.push(LiveFile {
                    name: name_of(&path),
                    kind: LiveFileKind::Filter,
                    len,
                    metadata_from: 0,
                    source: FileSource::File(file),
                }),
                // The copy rebuilds the filter without this file.
                Err(e) => log::warn!("left out {}: {e}", path.display()),
            }
        }
        let bytes = |path: &Path, kind, bytes: Vec<u8>| LiveFile {
            name: name_of(path),
            kind,
            len: bytes.len() as u64,
            metadata_from: 0,
            source: FileSource::Bytes(bytes),
        };
        for (id, len) in ends.logs {
            let path = log_path(&self.dir, id);
            if len == 0 {
                // It has no header, and its predecessor names it.
                files.push(bytes(&path, LiveFileKind::Log, Vec::new()));
                continue;
            }
            let file = open(&path)?;
            if !is_header_of(&*file, id).map_err(|e| StorageError::io("read", &path, e))? {
                return Err(StorageError::io("open", &path, io::ErrorKind::NotFound.into()));
            }
            files.push(LiveFile {
                name: name_of(&path),
                kind: LiveFileKind::Log,
                len,
                metadata_from: 0,
                source: FileSource::Log(file, id),
            });
        }
        let options = options_path(&self.dir);
        if let Ok(text) = read_file(&*self.fs, &options) {
            files.push(bytes(&options, LiveFileKind::Options, text));
        }
        let (number, len) = ends.manifest;
        let path = manifest_path(&self.dir, number);
        files.push(LiveFile {
            name: name_of(&path),
            kind: LiveFileKind::Manifest,
            len,
            metadata_from: 0,
            source: FileSource::File(open(&path)?),
        });
        let current = format!("{}\n", manifest_name(number)).into_bytes();
        files.push(bytes(&current_path(&self.dir), LiveFileKind::Current, current));
        Ok(LiveFiles { last_seq: ends.last_seq, files, _views: views.to_vec() })
    }
}
