//! Writing states: what is not there yet is sent, then the document that names it all.
//!
//! # Why files are read twice
//!
//! An object's name has its content's hash, so a file is hashed before it is sent, and again while
//! it is sent. The first reading is what makes an interrupted upload resumable by looking, without
//! a journal on this side; the second notices that a file changed in between, or that a disk gives
//! different bytes each time. The second reading usually comes from the page cache.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use tamis::io::{DirLock, FileSystem};

use crate::error::Error;
use crate::hash::{ContentHash, Hasher};
use crate::known::{Known, beside};
use crate::parallel::{each, locked};
use crate::repository::Repository;
use crate::session::Session;
use crate::source::{Pinned, PinnedFile};
use crate::state::{self, FileEntry, Kind, Piece, State, object_name};

/// A new piece of a log or a manifest is at most this long.
const LONGEST_PART: u64 = 8 << 20;

/// So many short pieces of about the same length at the end of a file are replaced by one.
const SAME_LENGTH: usize = 16;

/// A base that has been looked at this long ago may not be the newest state any more, even if the
/// next number is free: see `commit`.
const BASE_IS_OLD: Duration = Duration::from_secs(60);

/// A session that has lasted so long is ended after a state, and another begins: what only a living
/// session keeps from being pruned would otherwise pile up as long as somebody ships.
const SESSION_SPAN: Duration = Duration::from_secs(900);

/// Hashes of new files are saved at most so often while states are written one after the other.
const SAVE_EVERY: Duration = Duration::from_secs(30);

/// How far a backup, a restore or a check is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes that are done, including those that need no transfer.
    pub bytes_done: u64,
    /// Bytes in all.
    pub bytes_total: u64,
    /// Files that are done.
    pub files_done: u64,
    /// Files in all.
    pub files_total: u64,
}

/// A function that is told about the progress, now and then, by any thread.
pub type OnProgress = Arc<dyn Fn(Progress) + Send + Sync>;

/// Counts what is done, and tells.
#[derive(Default)]
pub(crate) struct Meter {
    bytes: AtomicU64,
    files: AtomicU64,
    total: Progress,
    tell: Option<OnProgress>,
}

impl Meter {
    pub(crate) fn new(tell: Option<OnProgress>, bytes: u64, files: usize) -> Meter {
        let total = Progress { bytes_total: bytes, files_total: files as u64, ..Progress::default() };
        Meter { tell, total, ..Meter::default() }
    }

    pub(crate) fn bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
        self.tell();
    }

    pub(crate) fn file(&self) {
        self.files.fetch_add(1, Relaxed);
        self.tell();
    }

    fn tell(&self) {
        if let Some(tell) = &self.tell {
            tell(Progress {
                bytes_done: self.bytes.load(Relaxed),
                files_done: self.files.load(Relaxed),
                ..self.total
            });
        }
    }
}

/// How states are written.
#[derive(Clone, Default)]
pub struct BackupOptions {
    /// Where what is known about the database's files is kept between backups; `None` for nowhere.
    /// Without it every backup reads all files, and each counts as another copy of the database,
    /// which needs a [`takeover`](Self::takeover).
    pub cache: Option<PathBuf>,
    /// Continues a repository that another copy has written: a restored database, say. The other
    /// copy can write no more.
    pub takeover: bool,
    /// Is told about the progress.
    pub progress: Option<OnProgress>,
}

impl std::fmt::Debug for BackupOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackupOptions")
            .field("cache", &self.cache)
            .field("takeover", &self.takeover)
            .field("progress", &self.progress.is_some())
            .finish()
    }
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// The state's number.
    pub number: u64,
    /// The last sequence number in it.
    pub last_seq: u64,
    /// The database's files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects that had to be sent for it.
    pub objects_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
}

/// Writes states of one database, one after the other. Used by one thread at a time.
pub(crate) struct Uploader {
    repo: Repository,
    fs: Arc<dyn FileSystem>,
    options: BackupOptions,
    known: Known,
    /// Named by the states; saved before the first of them.
    run: String,
    session: Session,
    epoch: u64,
    base: Base,
    /// Held by the process that uses the cache file. Another one beside it reads the file, begins a
    /// session of its own, and writes nothing back but its runs: a session that two share would end
    /// with the first.
    lock: Option<Box<dyn DirLock>>,
    /// When the session began, and how long one lasts.
    begun: Instant,
    session_span: Duration,
    /// When what is known was saved, and how often it is.
    saved: Instant,
    save_every: Duration,
    /// Whether hashes have come since.
    unsaved: bool,
}

/// The newest state, as far as is known, and what a new one may take from it.
struct Base {
    state: Option<State>,
    seen: Instant,
    /// Whether this uploader has written it.
    own: bool,
    immutable: HashMap<(ContentHash, u64), Piece>,
}

impl Base {
    fn new(state: Option<State>, own: bool) -> Base {
        let files = state.iter().flat_map(|state| &state.files).filter(|file| !file.kind.is_appended());
        let pieces = files.flat_map(|file| &file.pieces);
        let immutable = pieces.map(|piece| ((piece.hash, piece.len), piece.clone())).collect();
        Base { state, seen: Instant::now(), own, immutable }
    }

    fn number(&self) -> u64 {
        self.state.as_ref().map_or(0, |state| state.number)
    }
}

/// Counts what one state needed.
#[derive(Default)]
struct Sent {
    objects: AtomicU64,
    bytes: AtomicU64,
}

impl Uploader {
    /// Begins, or continues what was interrupted. `fs` is for the options' cache file.
    pub(crate) fn begin(
        repo: &Repository,
        fs: Arc<dyn FileSystem>,
        options: BackupOptions,
    ) -> Result<Uploader, Error> {
        let mut options = options;
        let lock = match &options.cache {
            Some(cache) => {
                let path = beside(cache, ".lock");
                fs.lock(&path).map_err(Error::io(path.display()))?
            }
            None => None,
        };
        let (mut known, run) = Known::enter(&*fs, options.cache.as_deref())?;
        if lock.is_none() {
            known.session = None;
        }
        let newest = repo.newest()?;
        let epoch = epoch_after(newest.as_ref(), &mut known, &*fs, &mut options)?;
        let session = Session::begin(repo, &known.writer, known.session.take().as_deref())?;
        known.session = Some(session.id.clone());
        let (base, now) = (Base::new(newest, false), Instant::now());
        let mut uploader = Uploader {
            repo: repo.clone(),
            fs,
            options,
            known,
            run,
            session,
            epoch,
            base,
            lock,
            begun: now,
            session_span: SESSION_SPAN,
            saved: now,
            save_every: SAVE_EVERY,
            unsaved: false,
        };
        // Before anything is sent, so that an interrupted run is found again.
        uploader.save()?;
        Ok(uploader)
    }

    /// Begins anew after a failure: looks what the newest state is, and continues the session if it
    /// lives.
    pub(crate) fn renew(&mut self) -> Result<(), Error> {
        let newest = self.repo.newest()?;
        self.epoch = epoch_after(newest.as_ref(), &mut self.known, &*self.fs, &mut self.options)?;
        let earlier = self.known.session.as_deref();
        self.session = Session::begin(&self.repo, &self.known.writer, earlier)?;
        self.known.session = Some(self.session.id.clone());
        self.base = Base::new(newest, false);
        self.save()
    }

    /// Begins another session and run, and ends the session that was: the newest state names what
    /// is still needed of it.
    fn next_session(&mut self) -> Result<(), Error> {
        let run = self.known.begin_run()?;
        let next = Session::begin(&self.repo, &self.known.writer, None)?;
        self.known.session = Some(next.id.clone());
        let ended = std::mem::replace(&mut self.session, next);
        self.begun = Instant::now();
        self.save()?;
        self.run = run;
        ended.end(&self.repo);
        Ok(())
    }

    /// Gives a sign of life if it is time; for sessions that have nothing to write.
    pub(crate) fn keep_alive(&mut self) -> Result<(), Error> {
        self.session.refresh(&self.repo)
    }

    /// Writes the state of these files.
    pub(crate) fn write(&mut self, pinned: &Pinned) -> Result<Written, Error> {
        self.session.refresh(&self.repo)?;
        let sent = Sent::default();
        let bytes = pinned.files.iter().map(|file| file.len).sum();
        let meter = Meter::new(self.options.progress.clone(), bytes, pinned.files.len());
        let threads = self.repo.store.transfer().parallel;
        // Signs of life are given by whichever thread finds that it is time.
        let session = Mutex::new(&mut self.session);
        let (repo, known, base) = (&self.repo, &self.known, &self.base);
        let trusted = base.own && pinned.continues;
        let entries = each(threads, &pinned.files, |file| {
            locked(&session).refresh(repo)?;
            let place = Place { repo, known, base, trusted, session: &session, sent: &sent, meter: &meter };
            let entry = if file.kind.is_appended() { place.appended(file)? } else { place.whole(file)? };
            meter.file();
            Ok(entry)
        })?;
        let hashes = pinned.files.iter().zip(&entries).filter(|(file, _)| file.kind.is_immutable());
        let empty = ContentHash::of(&[]);
        self.unsaved |= self.known.learn(
            hashes.map(|(file, entry)| (file, entry.pieces.first().map_or(empty, |piece| piece.hash))),
        )?;
        let state = self.commit(pinned, entries, &sent)?;
        let written = Written {
            number: state.number,
            last_seq: state.last_seq,
            files: state.files.len() as u64,
            bytes,
            objects_sent: sent.objects.load(Relaxed),
            bytes_sent: sent.bytes.load(Relaxed),
        };
        self.base = Base::new(Some(state), true);
        // Once: who takes over from here later is not taken over again.
        self.options.takeover = false;
        let kept = if self.begun.elapsed() >= self.session_span {
            self.next_session()
        } else if self.unsaved && self.saved.elapsed() >= self.save_every {
            self.save()
        } else {
            Ok(())
        };
        // The state is there all the same, and the next one tries again.
        if let Err(error) = kept {
            log::warn!("after state {}: {error}", written.number);
        }
        Ok(written)
    }

    /// Writes the document.
    fn commit(&mut self, pinned: &Pinned, files: Vec<FileEntry>, sent: &Sent) -> Result<State, Error> {
        // What a source says is what readers will ask for: a state that they would refuse is not
        // written.
        state::check(&files).map_err(|why| Error::damaged("the database", why))?;
        let (groups, inline) = state::grouped(&files);
        let mut lists = Vec::new();
        for group in groups {
            let bytes = state::list_to_bytes(&group)?;
            let (len, hash) = (bytes.len() as u64, ContentHash::of(&bytes));
            let same = |list: &&Piece| list.hash == hash && list.len == len;
            if let Some(list) = self.base.state.iter().flat_map(|state| &state.lists).find(same) {
                lists.push(list.clone());
                continue;
            }
            let object = format!("lists/{}/{hash}", self.session.id);
            if !self.session.has(&object, len) {
                self.repo.store.put(&object, bytes.into())?;
                sent.objects.fetch_add(1, Relaxed);
                sent.bytes.fetch_add(len, Relaxed);
            }
            self.repo.remember(&object, &group);
            lists.push(Piece { object, len, hash });
        }
        let state = State {
            number: self.base.number() + 1,
            created: SystemTime::now(),
            writer: self.known.writer.clone(),
            epoch: self.epoch,
            session: self.session.id.clone(),
            run: self.run.clone(),
            last_seq: pinned.last_seq,
            files,
            lists,
        };
        let bytes = state::to_bytes(&state, &inline)?;
        // After this a prune may take the session for dead only when the document is long there.
        self.session.check()?;
        let name = object_name(state.number);
        // The number may be free because states of this and higher numbers came and were pruned
        // meanwhile. Pruning leaves states that are young, so this takes longer than the age that a
        // base may have.
        let old = !self.base.own || self.base.seen.elapsed() > BASE_IS_OLD;
        if let Some(number) = old.then(|| self.newer_than(state.number)).transpose()?.flatten() {
            return Err(self.lost_to(number));
        }
        if !self.repo.store.put_new(&name, bytes.into())? {
            return Err(self.lost_to(state.number));
        }
        // Once more, for those that came in between. Such a state is not the newest, and may name
        // what has gone: it must not stay.
        if let Some(number) = old.then(|| self.newer_than(state.number)).transpose()?.flatten() {
            self.repo.store.remove(&name)?;
            return Err(self.lost_to(number));
        }
        self.hint(state.number);
        Ok(state)
    }

    /// Returns the number of the newest state if it is higher.
    fn newer_than(&self, number: u64) -> Result<Option<u64>, Error> {
        Ok(self.repo.states_after(number)?.last().map(|newest| newest.number))
    }

    /// Says where the newest state is, not with every one: a reader lists what comes after the
    /// hint.
    fn hint(&self, number: u64) {
        let due = !self.base.own || number.is_multiple_of(100);
        if due && let Err(error) = self.repo.hint(number) {
            log::info!("the hint to the newest state stays as it was: {error}");
        }
    }

    /// Says who has written a state first.
    fn lost_to(&self, number: u64) -> Error {
        match self.repo.state(number) {
            Ok(State { writer, .. }) if writer != self.known.writer => {
                Error::AnotherWriter { number, writer }
            }
            Ok(_) => Error::Superseded { number },
            Err(error) => error,
        }
    }

    /// Saves what is known about the files.
    pub(crate) fn save(&mut self) -> Result<(), Error> {
        let cache = self.options.cache.as_deref();
        match self.lock {
            Some(_) => self.known.save(&*self.fs, cache)?,
            None => self.known.save_runs(&*self.fs, cache)?,
        }
        (self.saved, self.unsaved) = (Instant::now(), false);
        Ok(())
    }

    /// Ends in order: nothing is left to be resumed.
    pub(crate) fn end(mut self) -> Result<(), Error> {
        self.known.session = None;
        self.save()?;
        self.session.end(&self.repo);
        Ok(())
    }
}

/// Returns the epoch of the next state, if this copy may write one.
fn epoch_after(
    newest: Option<&State>,
    known: &mut Known,
    fs: &dyn FileSystem,
    options: &mut BackupOptions,
) -> Result<u64, Error> {
    let Some(state) = newest else { return Ok(0) };
    let same_name = state.writer == known.writer;
    if same_name && known.has_run(&state.run, fs, options.cache.as_deref())? {
        // Of a takeover, if that was asked for, whose answer was lost.
        options.takeover = false;
        return Ok(state.epoch);
    }
    if !options.takeover {
        return Err(Error::AnotherWriter { number: state.number, writer: state.writer.clone() });
    }
    if same_name {
        // The copy that wrote it may be using the session that the file named when it was copied.
        known.session = None;
    }
    Ok(state.epoch.saturating_add(1))
}

/// Brings one file to the store.
struct Place<'u> {
    repo: &'u Repository,
    known: &'u Known,
    base: &'u Base,
    /// Whether the base's pieces of logs are known to be those of the local files.
    trusted: bool,
    session: &'u Mutex<&'u mut Session>,
    sent: &'u Sent,
    meter: &'u Meter,
}

impl Place<'_> {
    /// A file that is one object, or none if it is empty.
    fn whole(&self, file: &PinnedFile) -> Result<FileEntry, Error> {
        let hash = match file.kind.is_immutable().then(|| self.known.hash_of(file)).transpose()?.flatten() {
            Some(hash) => hash,
            None => self.hash(file, 0, file.len)?,
        };
        let mut pieces = Vec::new();
        if file.len > 0 {
            let taken = self.base.immutable.get(&(hash, file.len)).cloned();
            pieces.push(match taken {
                Some(piece) => {
                    self.meter.bytes(file.len);
                    piece
                }
                None => self.send(format!("files/{{}}/{hash}-{}", file.len), file, 0, file.len, hash)?,
            });
        }
        Ok(FileEntry {
            name: file.name.clone(),
            len: file.len,
            kind: file.kind,
            metadata_from: file.metadata_from.min(file.len),
            pieces,
        })
    }

    /// A file to which is appended: what the base has of it, and the rest in new pieces.
    fn appended(&self, file: &PinnedFile) -> Result<FileEntry, Error> {
        let mut pieces = self.still_there(file)?;
        let have = pieces.iter().map(|piece| piece.len).sum::<u64>();
        let lens: Vec<u64> = pieces.iter().map(|piece| piece.len).collect();
        if have < file.len {
            pieces.truncate(kept(&lens, file.len - have));
        }
        let mut offset = pieces.iter().map(|piece| piece.len).sum::<u64>();
        self.meter.bytes(offset);
        while offset < file.len {
            let len = LONGEST_PART.min(file.len - offset);
            let hash = self.hash(file, offset, len)?;
            let name = format!("parts/{{}}/{}-{offset}-{hash}", file.name);
            pieces.push(self.send(name, file, offset, len, hash)?);
            offset += len;
        }
        Ok(FileEntry {
            name: file.name.clone(),
            len: file.len,
            kind: file.kind,
            metadata_from: file.len,
            pieces,
        })
    }

    /// Returns the base's pieces of a file that are the beginning of the local one.
    fn still_there(&self, file: &PinnedFile) -> Result<Vec<Piece>, Error> {
        let Some(entry) = self.base.state.as_ref().and_then(|state| state.file(&file.name)) else {
            return Ok(Vec::new());
        };
        let (mut pieces, mut offset) = (Vec::new(), 0);
        for piece in &entry.pieces {
            let fits = entry.kind == file.kind && piece.len <= file.len - offset;
            if !fits || !(self.trusted || self.hash(file, offset, piece.len)? == piece.hash) {
                break;
            }
            offset += piece.len;
            pieces.push(piece.clone());
        }
        Ok(pieces)
    }

    fn hash(&self, file: &PinnedFile, offset: u64, len: u64) -> Result<ContentHash, Error> {
        let mut buf = vec![0; (1 << 20).min(len as usize)];
        let (mut hasher, end, mut at) = (Hasher::default(), offset + len, offset);
        while at < end {
            let take = (buf.len() as u64).min(end - at) as usize;
            file.read(&mut buf[..take], at)?;
            hasher.update(&buf[..take]);
            at += take as u64;
        }
        Ok(hasher.finish())
    }

    /// Sends a stretch of a file unless this session has sent it already. `{}` in the name stands
    /// for the session.
    fn send(
        &self,
        name: String,
        file: &PinnedFile,
        offset: u64,
        len: u64,
        hash: ContentHash,
    ) -> Result<Piece, Error> {
        let (object, there) = {
            let session = locked(self.session);
            let object = name.replace("{}", &session.id);
            let there = session.has(&object, len);
            (object, there)
        };
        let piece = Piece { object, len, hash };
        if there {
            self.meter.bytes(len);
            return Ok(piece);
        }
        let mut hasher = Hasher::default();
        let mut told = 0;
        self.repo.store.put_pieces(&piece.object, len, &mut |buf, at| {
            if at == 0 {
                hasher = Hasher::default();
            }
            file.read(buf, offset + at)?;
            hasher.update(buf);
            let end = at + buf.len() as u64;
            if end == len && hasher.finish() != hash {
                return Err(Error::damaged(&file.name, "two readings gave different bytes"));
            }
            locked(self.session).refresh(self.repo)?;
            // What is sent again is not done again.
            self.meter.bytes(end.saturating_sub(told));
            told = told.max(end);
            Ok(())
        })?;
        self.sent.objects.fetch_add(1, Relaxed);
        self.sent.bytes.fetch_add(len, Relaxed);
        Ok(piece)
    }
}

/// Returns how many of a file's pieces stay when `more` bytes are appended; the bytes of the others
/// are sent again with the new ones. A log that is shipped every second would otherwise end as
/// hundreds of objects. Lengths fall into classes by powers of 16: when [`SAME_LENGTH`] pieces at
/// the end are of one class or below, they become one, of a higher class. So a byte is sent at most
/// once more for each class below [`LONGEST_PART`], and a file has a piece for each MiB, and some
/// dozen shorter ones.
fn kept(lens: &[u64], more: u64) -> usize {
    let class = |len: u64| len.max(1).ilog2() / 4;
    let (mut kept, mut last) = (lens.len(), more);
    for of in class(more)..class(LONGEST_PART) {
        let run = lens[..kept].iter().rev().take_while(|&&len| class(len) <= of);
        let (all, bytes) = run.clone().fold((0, 0), |(all, bytes), len| (all + 1, bytes + len));
        let same = run.filter(|&&len| class(len) == of).count() + usize::from(class(last) >= of);
        if same >= SAME_LENGTH {
            (kept, last) = (kept - all, last + bytes);
        }
    }
    kept
}

/// The kinds of files without which a state cannot be opened.
pub(crate) fn is_complete(files: &[PinnedFile]) -> bool {
    [Kind::Current, Kind::Manifest].iter().all(|kind| files.iter().any(|file| file.kind == *kind))
}

#[cfg(test)]
mod tests;
