//! Where the files of a backup come from.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tamis::io::{Access, DiskFs, FileSystem, ReadFile};
use tamis::live_files::{LiveFileKind, LiveFiles};
use tamis::{Db, OpenError, Options};

use crate::error::Error;
use crate::state::Kind;

/// What can be backed up.
pub trait Source: Sync {
    /// Returns the files that make up the database now. They can be read as long as the value
    /// lives.
    ///
    /// # Errors
    ///
    /// When the database cannot say, or its files cannot be opened.
    fn pin(&self) -> Result<Pinned, Error>;
}

/// The files of a database at one moment.
#[derive(Debug)]
pub struct Pinned {
    /// The last sequence number in them.
    pub last_seq: u64,
    /// Whether a log or a manifest begins with the bytes that one of its name had in the value that
    /// was pinned before by the same source. That is so for a database, and not for copies of it.
    pub continues: bool,
    /// The files.
    pub files: Vec<PinnedFile>,
}

/// One file of them.
#[derive(Clone, Debug)]
pub struct PinnedFile {
    /// Its name in the database's directory.
    pub name: String,
    /// The bytes that belong to it; more may follow them.
    pub len: u64,
    /// What it is.
    pub kind: Kind,
    /// Where filters, index and footer begin; the length if there are none.
    pub metadata_from: u64,
    /// Its bytes.
    pub bytes: Arc<dyn ReadAt>,
}

/// The bytes of a file.
pub trait ReadAt: Send + Sync + Debug {
    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or ends before.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
}

impl ReadAt for Arc<dyn ReadFile> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read_exact_at(buf, offset)
    }
}

impl PinnedFile {
    /// Fills `buf` from `offset`.
    pub(crate) fn read(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        self.bytes.read_exact_at(buf, offset).map_err(Error::io(&self.name))
    }
}

/// An open database: a writer's, whose files are synced for it, or a follower's
/// ([`Options::open_follower`]), which catches up first: so a process beside the writer can make
/// the backups.
impl Source for Db {
    fn pin(&self) -> Result<Pinned, Error> {
        match self.catch_up() {
            Ok(_) | Err(OpenError::NotFollower { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let live = Arc::new(self.live_files()?);
        let mut files = Vec::new();
        for (at, file) in live.files().iter().enumerate() {
            let kind = match file.kind() {
                LiveFileKind::Table => Kind::Table,
                LiveFileKind::Blob => Kind::Blob,
                LiveFileKind::Filter => Kind::Filter,
                LiveFileKind::Log => Kind::Log,
                LiveFileKind::Manifest => Kind::Manifest,
                LiveFileKind::Current => Kind::Current,
                LiveFileKind::Options => Kind::Options,
                kind => {
                    let why = format!("{} is of a kind that backups do not know: {kind:?}", file.name());
                    return Err(Error::io("the database")(io::Error::other(why)));
                }
            };
            files.push(PinnedFile {
                name: file.name().to_owned(),
                len: file.len(),
                kind,
                metadata_from: file.metadata_from(),
                bytes: Arc::new(OfLive { live: live.clone(), at }),
            });
        }
        Ok(Pinned { last_seq: live.last_seq(), continues: true, files })
    }
}

/// One of the live files, which it keeps.
#[derive(Debug)]
struct OfLive {
    live: Arc<LiveFiles>,
    at: usize,
}

impl ReadAt for OfLive {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.live.files()[self.at].read_exact_at(buf, offset)
    }
}

/// A database that nobody writes to while it is read: a checkpoint, or one that is closed.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    options: Options,
}

impl Directory {
    /// The database in `path`.
    pub fn new(path: impl AsRef<Path>, options: Options) -> Directory {
        Directory { path: path.as_ref().to_owned(), options }
    }
}

impl Source for Directory {
    fn pin(&self) -> Result<Pinned, Error> {
        // Opening checks that it is whole, and says where it stands.
        let db = self.options.clone().open_read_only(&self.path)?;
        let last_seq = db.snapshot().seq();
        drop(db);
        let fs: Arc<dyn FileSystem> =
            self.options.file_system.clone().unwrap_or_else(|| Arc::new(DiskFs::default()));
        let mut files = Vec::new();
        for name in fs.list(&self.path).map_err(Error::io(self.path.display()))? {
            let Some(kind) = kind_of(&name) else { continue };
            let file = fs.open(&self.path.join(&name), Access::Sequential).map_err(Error::io(&name))?;
            let len = file.len().map_err(Error::io(&name))?;
            files.push(PinnedFile { name, len, kind, metadata_from: len, bytes: Arc::new(file) });
        }
        Ok(Pinned { last_seq, continues: false, files })
    }
}

/// Returns what a file is by its name; `None` for what is no part of a database.
pub(crate) fn kind_of(name: &str) -> Option<Kind> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let numbered = |suffix: &str| name.strip_suffix(suffix).is_some_and(is_number);
    match name {
        "CURRENT" => Some(Kind::Current),
        "OPTIONS" => Some(Kind::Options),
        _ if numbered(".tam") => Some(Kind::Table),
        _ if numbered(".blb") => Some(Kind::Blob),
        _ if numbered(".flt") => Some(Kind::Filter),
        _ if numbered(".log") => Some(Kind::Log),
        _ if name.strip_prefix("MANIFEST-").is_some_and(is_number) => Some(Kind::Manifest),
        _ => None,
    }
}
