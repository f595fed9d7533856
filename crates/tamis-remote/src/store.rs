//! Requests to a store, as the rest of the crate makes them: blocking, counted, retried, within a
//! bandwidth.
//!
//! # Threads
//!
//! Every method may be called from any thread, also from a worker of somebody's asynchronous
//! runtime (which it blocks). The requests run on a small runtime of this crate that all
//! repositories of the process share and that lives as long as the process.
//!
//! # What is retried
//!
//! Everything, unless the answer says that it would be the same again (not found, exists already,
//! no permission). So a put may take effect twice, which is harmless: objects are never overwritten
//! with other bytes, except hints that may be stale. A conditional put whose first attempt took
//! effect although it failed finds its own bytes there, and that is success.

use std::future::Future;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{
    Error as StoreError, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutPayload,
};
use tokio::runtime::Runtime;

use crate::error::Error;

/// How requests are made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Transfer {
    /// How many files are transferred at a time, each by a thread of its own: 8. Each holds a piece
    /// of [`piece_bytes`](Self::piece_bytes).
    pub parallel: usize,
    /// Larger files are sent and fetched in pieces of this many bytes: 8 MiB.
    pub piece_bytes: usize,
    /// The bytes a second that are transferred at most, over all threads; `None`, the default, for
    /// as many as go.
    pub bytes_per_second: Option<u64>,
    /// How often a request is tried: 8.
    pub attempts: u32,
    /// The pause before the second attempt, 100 ms; it doubles with each, up to 100 times this.
    pub backoff: Duration,
    /// How long an attempt may take: 60 s. A piece must get through in this time, over a line that
    /// [`parallel`](Self::parallel) pieces share.
    pub timeout: Duration,
}

impl Default for Transfer {
    fn default() -> Transfer {
        Transfer {
            parallel: 8,
            piece_bytes: 8 << 20,
            bytes_per_second: None,
            attempts: 8,
            backoff: Duration::from_millis(100),
            timeout: Duration::from_secs(60),
        }
    }
}

/// An object of a listing.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    /// Below the repository's prefix.
    pub(crate) name: String,
    pub(crate) len: u64,
    /// By the store's clock.
    pub(crate) modified: SystemTime,
}

/// Requests since the repository was opened. Attempts count, and a listing counts once for each
/// 1,000 objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Requests {
    /// Objects, or ranges of them, that were fetched.
    pub gets: u64,
    /// Objects, or parts of them, that were sent.
    pub puts: u64,
    /// Listings.
    pub lists: u64,
    /// Objects that were asked for their size.
    pub heads: u64,
    /// Objects that were removed.
    pub deletes: u64,
    /// Attempts that failed and were repeated.
    pub retries: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes fetched.
    pub bytes_fetched: u64,
}

impl Requests {
    /// Returns the number of all requests.
    pub fn total(&self) -> u64 {
        self.gets + self.puts + self.lists + self.heads + self.deletes
    }

    /// Returns what was counted since an earlier value.
    pub fn since(&self, earlier: &Requests) -> Requests {
        Requests {
            gets: self.gets - earlier.gets,
            puts: self.puts - earlier.puts,
            lists: self.lists - earlier.lists,
            heads: self.heads - earlier.heads,
            deletes: self.deletes - earlier.deletes,
            retries: self.retries - earlier.retries,
            bytes_sent: self.bytes_sent - earlier.bytes_sent,
            bytes_fetched: self.bytes_fetched - earlier.bytes_fetched,
        }
    }
}

#[derive(Debug, Default)]
struct Counters {
    gets: AtomicU64,
    puts: AtomicU64,
    lists: AtomicU64,
    heads: AtomicU64,
    deletes: AtomicU64,
    retries: AtomicU64,
    bytes_sent: AtomicU64,
    bytes_fetched: AtomicU64,
}

/// Fills a buffer from an offset.
pub(crate) type Read<'r> = &'r mut dyn FnMut(&mut [u8], u64) -> Result<(), Error>;

/// A prefix of a store. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Store(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    transfer: Transfer,
    counters: Counters,
    /// When the bandwidth is free again.
    free_at: Mutex<Instant>,
}

/// Objects in one answer to a listing, of all stores that are supported.
const LISTED_AT_ONCE: u64 = 1_000;

/// The most parts of one upload in pieces; S3 allows 10,000.
const MOST_PARTS: u64 = 9_000;

impl Store {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, prefix: Path, transfer: Transfer) -> Store {
        let free_at = Mutex::new(Instant::now());
        Store(Arc::new(Shared { store, prefix, transfer, counters: Counters::default(), free_at }))
    }

    pub(crate) fn transfer(&self) -> &Transfer {
        &self.0.transfer
    }

    pub(crate) fn requests(&self) -> Requests {
        let counters = &self.0.counters;
        Requests {
            gets: counters.gets.load(Relaxed),
            puts: counters.puts.load(Relaxed),
            lists: counters.lists.load(Relaxed),
            heads: counters.heads.load(Relaxed),
            deletes: counters.deletes.load(Relaxed),
            retries: counters.retries.load(Relaxed),
            bytes_sent: counters.bytes_sent.load(Relaxed),
            bytes_fetched: counters.bytes_fetched.load(Relaxed),
        }
    }

    /// Fetches a whole object of at most `most` bytes; a longer one is damage, and its bytes are
    /// not taken.
    pub(crate) fn get(&self, name: &str, most: u64) -> Result<Bytes, Error> {
        self.get_if_there(name, most)?.ok_or_else(|| Error::Gone { object: name.to_owned() })
    }

    /// Fetches a whole object of at most `most` bytes if there is one.
    pub(crate) fn get_if_there(&self, name: &str, most: u64) -> Result<Option<Bytes>, Error> {
        let answer = self.retried(&format!("fetch {name}"), |shared| {
            shared.counters.gets.fetch_add(1, Relaxed);
            let (path, store) = (shared.path(name), shared.store.clone());
            async move {
                let found = store.get_opts(&path, GetOptions::new()).await?;
                let len = found.meta.size;
                if len > most {
                    return Ok(Err(len));
                }
                let bytes = found.bytes().await?;
                whole(bytes, len).map(Ok)
            }
        });
        match answer {
            Ok(Err(len)) => {
                Err(Error::damaged(name, format!("it has {len} bytes, and {most} at most are expected")))
            }
            Ok(Ok(bytes)) => self.fetched(Ok(bytes)),
            Err(error) => self.fetched(Err(error)),
        }
    }

    /// Fetches a range of an object, in one request.
    pub(crate) fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes, Error> {
        self.pace(range.end - range.start);
        let answer = self.retried(&format!("fetch {name}"), |shared| {
            shared.counters.gets.fetch_add(1, Relaxed);
            let (path, store, range) = (shared.path(name), shared.store.clone(), range.clone());
            async move {
                let len = range.end - range.start;
                whole(store.get_range(&path, range).await?, len)
            }
        });
        self.fetched(answer)?.ok_or_else(|| Error::Gone { object: name.to_owned() })
    }

    fn fetched(&self, answer: Result<Bytes, Error>) -> Result<Option<Bytes>, Error> {
        match answer {
            Ok(bytes) => {
                self.0.counters.bytes_fetched.fetch_add(bytes.len() as u64, Relaxed);
                Ok(Some(bytes))
            }
            Err(Error::Request { source: StoreError::NotFound { .. }, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends an object, replacing one of the same name.
    pub(crate) fn put(&self, name: &str, bytes: Bytes) -> Result<(), Error> {
        self.put_as(name, bytes, PutMode::Overwrite)
    }

    fn put_as(&self, name: &str, bytes: Bytes, mode: PutMode) -> Result<(), Error> {
        self.pace(bytes.len() as u64);
        self.retried(&format!("put {name}"), |shared| {
            shared.counters.puts.fetch_add(1, Relaxed);
            shared.counters.bytes_sent.fetch_add(bytes.len() as u64, Relaxed);
            let (path, store) = (shared.path(name), shared.store.clone());
            let (payload, mode) = (PutPayload::from_bytes(bytes.clone()), mode.clone());
            async move { store.put_opts(&path, payload, mode.into()).await.map(drop) }
        })
    }

    /// Sends an object unless there is one of this name with other bytes; then returns `false`.
    pub(crate) fn put_new(&self, name: &str, bytes: Bytes) -> Result<bool, Error> {
        match self.put_as(name, bytes.clone(), PutMode::Create) {
            Ok(()) => Ok(true),
            Err(Error::Request {
                source: StoreError::AlreadyExists { .. } | StoreError::Precondition { .. },
                ..
            }) => match self.get_if_there(name, bytes.len() as u64) {
                Ok(there) => Ok(there.is_some_and(|there| there == bytes)),
                // A longer one.
                Err(Error::Damaged { .. }) => Ok(false),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    /// Sends an object of `len` bytes that `read` gives piece by piece, in order, perhaps more than
    /// once.
    pub(crate) fn put_pieces(&self, name: &str, len: u64, read: Read<'_>) -> Result<(), Error> {
        let piece = (self.0.transfer.piece_bytes as u64).max(len.div_ceil(MOST_PARTS));
        if len <= 2 * piece {
            let mut bytes = vec![0; len as usize];
            read(&mut bytes, 0)?;
            return self.put(name, bytes.into());
        }
        let mut attempt = 1;
        loop {
            match self.put_parts(name, len, piece, read) {
                Err(Error::Request { source, .. })
                    if may_help(&source) && attempt < self.0.transfer.attempts =>
                {
                    self.0.counters.retries.fetch_add(1, Relaxed);
                    log::info!("put {name}, attempt {attempt}: {source}");
                    std::thread::sleep(self.pause(attempt));
                    attempt += 1;
                }
                other => return other,
            }
        }
    }

    /// One attempt at an upload in parts.
    fn put_parts(&self, name: &str, len: u64, piece: u64, read: Read<'_>) -> Result<(), Error> {
        let failed = |source| Error::Request { what: format!("put {name}"), source };
        let (path, store, timeout) = (self.0.path(name), self.0.store.clone(), self.0.transfer.timeout);
        self.0.counters.puts.fetch_add(2, Relaxed);
        let mut upload =
            run(within(timeout, async move { store.put_multipart(&path).await })).map_err(failed)?;
        let mut offset = 0;
        let mut send = || {
            while offset < len {
                let mut bytes = vec![0; piece.min(len - offset) as usize];
                read(&mut bytes, offset)?;
                offset += bytes.len() as u64;
                self.pace(bytes.len() as u64);
                self.0.counters.puts.fetch_add(1, Relaxed);
                self.0.counters.bytes_sent.fetch_add(bytes.len() as u64, Relaxed);
                run(within(timeout, upload.put_part(bytes.into()))).map_err(failed)?;
            }
            Ok(())
        };
        let sent = send();
        let send_all = sent.is_ok();
        let end = run(async move {
            let completed = match send_all {
                true => within(timeout, upload.complete()).await.map(drop),
                false => Ok(()),
            };
            // What was uploaded so far would be stored, and paid for, until somebody removes it.
            // This may fail as well: the rule of the bucket that removes such rests is then what is
            // left, and the operators' guide says so.
            if !send_all || completed.is_err() {
                let _ = within(timeout, upload.abort()).await;
            }
            completed
        });
        sent.and(end.map_err(failed))
    }

    /// Lists objects below `under` whose names come after `after`, in no particular order.
    pub(crate) fn list(&self, under: &str, after: Option<&str>) -> Result<Vec<Listed>, Error> {
        let depth = self.0.prefix.parts().count();
        // Each page of the answer has the time of an attempt: together they may be many.
        let objects: Vec<ObjectMeta> = self.repeated(&format!("list {under}"), |shared| {
            let (under, after) = (shared.path(under), after.map(|name| shared.path(name)));
            let (store, timeout) = (shared.store.clone(), shared.transfer.timeout);
            async move {
                let mut listed = match after {
                    Some(after) => store.list_with_offset(Some(&under), &after),
                    None => store.list(Some(&under)),
                };
                let mut objects = Vec::new();
                while let Some(object) = within(timeout, async { listed.next().await.transpose() }).await? {
                    objects.push(object);
                }
                Ok(objects)
            }
        })?;
        self.0.counters.lists.fetch_add(1 + objects.len() as u64 / LISTED_AT_ONCE, Relaxed);
        Ok(objects.into_iter().map(|meta| listed(&meta, depth)).collect())
    }

    /// Looks for an object without fetching it.
    pub(crate) fn head(&self, name: &str) -> Result<Option<Listed>, Error> {
        let answer = self.retried(&format!("look for {name}"), |shared| {
            shared.counters.heads.fetch_add(1, Relaxed);
            let (path, store) = (shared.path(name), shared.store.clone());
            async move { store.head(&path).await }
        });
        match answer {
            Ok(meta) => Ok(Some(listed(&meta, self.0.prefix.parts().count()))),
            Err(Error::Request { source: StoreError::NotFound { .. }, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes objects, many with one request where the store can; returns how many could not be
    /// removed. Not repeated here: whoever removes will come again.
    pub(crate) fn delete(&self, names: &[String]) -> u64 {
        self.0.counters.deletes.fetch_add(names.len() as u64, Relaxed);
        let failed = |names: &[String]| {
            let paths: Vec<_> = names.iter().map(|name| Ok(self.0.path(name))).collect();
            let store = self.0.store.clone();
            let removed = async move {
                let removals = store.delete_stream(futures_util::stream::iter(paths).boxed());
                let removed = removals.filter(|result| {
                    std::future::ready(matches!(result, Ok(_) | Err(StoreError::NotFound { .. })))
                });
                Ok(removed.count().await)
            };
            names.len().saturating_sub(run(within(self.0.transfer.timeout, removed)).unwrap_or(0)) as u64
        };
        names.chunks(LISTED_AT_ONCE as usize).map(failed).sum()
    }

    /// Removes one object that must not stay; none is there afterwards.
    pub(crate) fn remove(&self, name: &str) -> Result<(), Error> {
        let answer = self.retried(&format!("remove {name}"), |shared| {
            shared.counters.deletes.fetch_add(1, Relaxed);
            let (path, store) = (shared.path(name), shared.store.clone());
            async move { store.delete(&path).await }
        });
        match answer {
            Err(Error::Request { source: StoreError::NotFound { .. }, .. }) => Ok(()),
            answer => answer,
        }
    }

    /// Waits until the bandwidth allows for `bytes` more.
    fn pace(&self, bytes: u64) {
        let Some(rate) = self.0.transfer.bytes_per_second else { return };
        let takes = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        let until = {
            let mut free_at = self.0.free_at.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let begin = (*free_at).max(Instant::now());
            *free_at = begin + takes;
            begin
        };
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }

    fn pause(&self, attempt: u32) -> Duration {
        self.0.transfer.backoff * 2u32.saturating_pow(attempt - 1).min(100)
    }

    /// Makes a request, for as long as an attempt may take, until it succeeds, or another attempt
    /// would not help, or there were too many.
    fn retried<T, F>(&self, what: &str, request: impl Fn(&Shared) -> F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        self.repeated(what, |shared| within(shared.transfer.timeout, request(shared)))
    }

    /// The same for a request that takes care of its time itself.
    fn repeated<T, F>(&self, what: &str, request: impl Fn(&Shared) -> F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let mut attempt = 1;
        loop {
            match run(request(&self.0)) {
                Ok(answer) => return Ok(answer),
                Err(source) if may_help(&source) && attempt < self.0.transfer.attempts => {
                    self.0.counters.retries.fetch_add(1, Relaxed);
                    log::info!("{what}, attempt {attempt}: {source}");
                    std::thread::sleep(self.pause(attempt));
                    attempt += 1;
                }
                Err(source) => return Err(Error::Request { what: what.to_owned(), source }),
            }
        }
    }
}

impl Shared {
    fn path(&self, name: &str) -> Path {
        name.split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }
}

fn listed(meta: &ObjectMeta, depth: usize) -> Listed {
    let parts: Vec<_> = meta.location.parts().skip(depth).collect();
    let name = parts.iter().map(|part| part.as_ref()).collect::<Vec<_>>().join("/");
    Listed { name, len: meta.size, modified: meta.last_modified.into() }
}

/// An answer that broke off must not pass for the whole.
fn whole(bytes: Bytes, len: u64) -> Result<Bytes, StoreError> {
    match bytes.len() as u64 == len {
        true => Ok(bytes),
        false => Err(generic(format!("the answer has {} of {len} bytes", bytes.len()))),
    }
}

fn generic(why: String) -> StoreError {
    StoreError::Generic { store: "tamis-remote", source: why.into() }
}

fn may_help(error: &StoreError) -> bool {
    matches!(error, StoreError::Generic { .. } | StoreError::JoinError { .. })
}

async fn within<T>(
    timeout: Duration,
    request: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(timeout, request).await {
        Ok(result) => result,
        Err(_) => Err(generic(format!("no answer within {timeout:?}"))),
    }
}

/// Runs a future on the crate's runtime, and waits for it.
fn run<T: Send + 'static>(
    future: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2).thread_name("tamis-remote").enable_all().build()
    });
    let runtime = runtime.as_ref().map_err(|error| generic(format!("no threads for requests: {error}")))?;
    let (send, receive) = mpsc::sync_channel(1);
    runtime.spawn(async move {
        let _ = send.send(future.await);
    });
    // The sender is gone without a word if the store's client panicked.
    receive.recv().unwrap_or_else(|_| Err(generic("the store's client failed".into())))
}

#[cfg(test)]
mod tests;
