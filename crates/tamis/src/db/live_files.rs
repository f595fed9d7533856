//! The files that make up a database at one moment, for copies of it elsewhere.
//!
//! # Why they are a database
//!
//! With the log and the `state` locked, every write is in the logs and in the memtables, and the
//! manifest's edits describe the tree in memory. So these are what a crash at that moment leaves
//! behind: the manifest up to its end, the tables, blob files and filter files that it names, and
//! all logs that it needs, up to their ends. The logs were synced: a copy never has what its
//! database may still lose. A [follower](super::follow) has read the same from a writer in another
//! process, without syncing anything.
//!
//! # What keeps them
//!
//! Tables and blob files are held open, and not removed while they are. Logs are not held: they may
//! be removed, which does not matter to whoever has them open, or overwritten for a later log. The
//! header goes first then; so bytes of a log count only if its header is found to be still there
//! after they were read. The manifest is only ever appended to, or replaced by one of another name.

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

use crate::db::Db;
use crate::db::follow::{Ends, Follower, catch_up};
use crate::db::handle::Handle;
use crate::db::inner::DbInner;
use crate::error::{AdminError, OpenError, StorageError, WriteError};
use crate::io::{Access, ReadFile, read_file};
use crate::read::View;
use crate::sync::Mutex;
use crate::tree::garbage::OpenBlob;
use crate::tree::open_table::OpenTable;

/// How often a follower takes newer files if some have gone.
const MOST_ATTEMPTS: u32 = 100;

/// What kind of a file it is, and so how it may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LiveFileKind {
    /// A table. A table of this name never has other contents.
    Table,
    /// A blob file: values apart from their keys. It never has other contents.
    Blob,
    /// Images of a global filter. It never has other contents.
    Filter,
    /// A log of writes: later it may be longer, with the same beginning.
    Log,
    /// The manifest: later it may be longer, with the same beginning.
    Manifest,
    /// `CURRENT`, which names the manifest in force. A copy gets it last: without it, there is no
    /// database.
    Current,
    /// The options as text, for people to read.
    Options,
}

/// How a file is read.
#[derive(Debug)]
enum Source {
    Table(Arc<OpenTable>),
    Blob(Arc<OpenBlob>),
    File(Arc<dyn ReadFile>),
    Log(Arc<dyn ReadFile>, LogId),
    Bytes(Vec<u8>),
}

/// One of the [`LiveFiles`].
#[derive(Debug)]
pub struct LiveFile {
    name: String,
    kind: LiveFileKind,
    len: u64,
    metadata_from: u64,
    source: Source,
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

    /// Returns how many of its bytes belong to the database now. The file on disk may be longer.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Reports whether none of its bytes belongs to the database.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns where the part begins that an opening of the database reads: of a table its filter,
    /// index and footer, of a blob file its footer; of other files everything.
    pub fn metadata_from(&self) -> u64 {
        self.metadata_from
    }

    /// Fills `buf` with the file's bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` beyond [`len`](Self::len); `NotFound` if the log was overwritten meanwhile,
    /// as its writes are in tables: then take the files anew. Others are those of the file system.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match &self.source {
            Source::Table(table) => table.table.read_stored(buf, offset),
            Source::Blob(blob) => blob.file.read_stored(buf, offset),
            Source::File(file) => file.read_exact_at(buf, offset),
            Source::Log(file, id) => {
                file.read_exact_at(buf, offset)?;
                match is_header_of(&**file, *id)? {
                    true => Ok(()),
                    false => {
                        Err(io::Error::new(io::ErrorKind::NotFound, "the log was overwritten by a later one"))
                    }
                }
            }
            Source::Bytes(bytes) => {
                buf.copy_from_slice(&bytes[offset as usize..][..buf.len()]);
                Ok(())
            }
        }
    }
}

/// The files that make up a database at one moment: see [`Db::live_files`](crate::Db::live_files).
/// They stay readable as long as this value lives, which keeps the disk space of tables that were
/// merged meanwhile.
pub struct LiveFiles {
    last_seq: SeqNo,
    files: Vec<LiveFile>,
    _views: Vec<Arc<View>>,
}

debug_as!(LiveFiles, "LiveFiles", files => "last_seq": files.last_seq, "files": files.files.len());

impl LiveFiles {
    /// Returns the number of the last write that is in them.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Returns the files, `CURRENT` last.
    pub fn files(&self) -> &[LiveFile] {
        &self.files
    }
}

impl Db {
    /// Returns the files that make up the database now, to be copied elsewhere: a directory with
    /// these files, each cut to its length, is the database as a crash at this moment would leave
    /// it, and opens as such. They can be read as long as the result lives.
    ///
    /// Of a writer, everything is synced first, and writes wait for that and while files are
    /// opened. Of a [follower](Db::open_follower) they are what it has caught up with. Where [logs
    /// are kept](crate::changes) for readers of changes, the files have them, too; a follower reads
    /// each of them once.
    ///
    /// # Errors
    ///
    /// Those of [`sync`](Db::sync); [`WriteError::ReadOnly`](crate::WriteError::ReadOnly) for a
    /// database that is open read-only and no follower.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let copy = dir.path().join("copy");
    /// # std::fs::create_dir(&copy)?;
    /// # let db = tamis::Db::open(dir.path().join("db"), tamis::Options::default())?;
    /// db.put("key", "value")?;
    /// for file in db.live_files()?.files() {
    ///     let mut bytes = vec![0; file.len() as usize];
    ///     file.read_exact_at(&mut bytes, 0)?;
    ///     std::fs::write(copy.join(file.name()), bytes)?;
    /// }
    /// let copy = tamis::Db::open(copy, tamis::Options::default())?;
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

impl DbInner {
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
        // Opened under the locks: neither logs nor filter files go meanwhile.
        Ok(self.gather(&self.views(), Ends { last_seq: log.last_seq(), manifest, logs, filters })?)
    }

    /// The files that a follower has read last, or newer ones if the writer has removed some of
    /// these since.
    fn followed_files(&self, follower: &Mutex<Follower>) -> Result<LiveFiles, AdminError> {
        let mut attempts = 0..MOST_ATTEMPTS;
        loop {
            let gathered = {
                let mut follower = follower.lock();
                // Nothing is published meanwhile.
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
        self.directory.load().values().map(|keyspace| keyspace.view.load_full()).collect()
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
                source: Source::Table(table.clone()),
            }));
            files.extend(view.version.blobs.iter().map(|blob| LiveFile {
                name: name_of(&blob_path(&self.dir, blob.file.file.id())),
                kind: LiveFileKind::Blob,
                len: blob.file.file.file_bytes(),
                metadata_from: blob.file.file.data_bytes(),
                source: Source::Blob(blob.file.clone()),
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
                    source: Source::File(file),
                }),
                // A copy builds the filter without it.
                Err(e) => log::warn!("left out {}: {e}", path.display()),
            }
        }
        for (id, len) in ends.logs {
            let path = log_path(&self.dir, id);
            let file = open(&path)?;
            if !is_header_of(&*file, id).map_err(|e| StorageError::io("read", &path, e))? {
                return Err(StorageError::io("open", &path, io::ErrorKind::NotFound.into()));
            }
            files.push(LiveFile {
                name: name_of(&path),
                kind: LiveFileKind::Log,
                len,
                metadata_from: 0,
                source: Source::Log(file, id),
            });
        }
        let bytes = |path: &Path, kind, bytes: Vec<u8>| LiveFile {
            name: name_of(path),
            kind,
            len: bytes.len() as u64,
            metadata_from: 0,
            source: Source::Bytes(bytes),
        };
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
            source: Source::File(open(&path)?),
        });
        let current = format!("{}\n", manifest_name(number)).into_bytes();
        files.push(bytes(&current_path(&self.dir), LiveFileKind::Current, current));
        Ok(LiveFiles { last_seq: ends.last_seq, files, _views: views.to_vec() })
    }
}
