//! Shipping: a state whenever the database has changed.
//!
//! A thread of its own looks at the database every so often, and writes a state if something is
//! new. It reads files of the database, and never writes to it but for the acknowledgements of a
//! named consumer. Failures are retried for ever, with growing pauses, except when another writer
//! has taken the repository over.
//!
//! With a *consumer* the database keeps its logs until they are shipped, so that the states
//! together have every log, and any sequence number can be restored ([`Repository::restore_to`]).
//! Acknowledged is what the state says that was written, never what it will say.

use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tamis::Db;
use tamis::io::{DiskFs, FileSystem};

use crate::error::Error;
use crate::parallel::locked;
use crate::repository::Repository;
use crate::source::{Pinned, Source};
use crate::upload::{BackupOptions, Uploader, Written, is_complete};

/// The longest pause after a failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How states are shipped.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShipOptions {
    /// How often the database is looked at: every second.
    pub interval: Duration,
    /// As for a backup.
    pub backup: BackupOptions,
}

impl Default for ShipOptions {
    fn default() -> ShipOptions {
        ShipOptions { interval: Duration::from_secs(1), backup: BackupOptions::default() }
    }
}

/// Where shipping stands.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Shipped {
    /// The last state that was written.
    pub last: Option<Written>,
    /// States that were written.
    pub states: u64,
    /// How long the last one took.
    pub took: Duration,
    /// Failures since the last state.
    pub failures: u64,
    /// The last failure since the last state.
    pub failure: Option<String>,
}

fn changes(error: tamis::changes::ChangesError) -> Error {
    Error::io("the consumer of changes")(std::io::Error::other(error))
}

/// Is called with each state that was written.
type Acknowledge = Box<dyn FnMut(&Written) -> Result<(), Error> + Send>;

/// Ships in the background; dropping it ends that, without a last state.
#[derive(Debug)]
pub struct Shipper {
    shared: Arc<Mutex<Shipped>>,
    wake: SyncSender<Wake>,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

enum Wake {
    /// Look now; answered when a state of that moment, or nothing new, is there.
    Now(SyncSender<Result<(), String>>),
    End,
}

impl Repository {
    /// Begins to ship a database's states. `acknowledge` is called with each one that was written;
    /// it is where a named consumer of changes acknowledges.
    ///
    /// # Errors
    ///
    /// When the repository belongs to another copy of the database, or cannot be reached now.
    pub fn ship(
        &self,
        source: Arc<dyn Source + Send>,
        options: ShipOptions,
        acknowledge: impl FnMut(&Written) -> Result<(), Error> + Send + 'static,
    ) -> Result<Shipper, Error> {
        let fs: Arc<dyn FileSystem> = Arc::new(DiskFs::default());
        self.ship_with(source, options, acknowledge, fs)
    }

    /// Begins to ship an open database's states, with a named consumer of its changes: the database
    /// keeps logs until they are shipped. An acknowledgement is a write, so that each run of writes
    /// ends with one more state. Drop the consumer ([`Db::drop_change_consumer`]) when shipping
    /// ends for good, or logs are kept up to `changes_max_bytes`.
    ///
    /// # Errors
    ///
    /// As [`ship`](Self::ship); also when the database is read-only.
    pub fn ship_changes(&self, db: &Db, consumer: &str, options: ShipOptions) -> Result<Shipper, Error> {
        let fs = db.options().file_system.clone().unwrap_or_else(|| Arc::new(DiskFs::default()));
        let consumer = db.change_consumer(consumer).map_err(changes)?;
        let (of, mut acknowledged) = (db.clone(), 0);
        let acknowledge = move |written: &Written| {
            // Not if all that is new is the last acknowledgement: that would never end.
            if written.last_seq > acknowledged {
                consumer.acknowledge(written.last_seq).map_err(changes)?;
                acknowledged = of.snapshot().seq();
            }
            Ok(())
        };
        self.ship_with(Arc::new(db.clone()), options, acknowledge, fs)
    }

    /// The same with the cache file in another file system.
    ///
    /// # Errors
    ///
    /// As [`ship`](Self::ship).
    pub fn ship_with(
        &self,
        source: Arc<dyn Source + Send>,
        options: ShipOptions,
        acknowledge: impl FnMut(&Written) -> Result<(), Error> + Send + 'static,
        fs: Arc<dyn FileSystem>,
    ) -> Result<Shipper, Error> {
        let uploader = Uploader::begin(self, fs, options.backup.clone())?;
        let (wake, woken) = mpsc::sync_channel(16);
        let shared = Arc::new(Mutex::new(Shipped::default()));
        let work = Work {
            source,
            options,
            acknowledge: Box::new(acknowledge),
            shared: shared.clone(),
            uploader,
            failed: false,
            last: None,
        };
        let thread = std::thread::Builder::new().name("tamis-ship".into());
        let thread = thread.spawn(move || work.run(&woken)).map_err(Error::io("thread tamis-ship"))?;
        Ok(Shipper { shared, wake, thread: Some(thread) })
    }
}

impl Shipper {
    /// Returns where shipping stands.
    pub fn shipped(&self) -> Shipped {
        locked(&self.shared).clone()
    }

    /// Waits until what the database holds now is in a state.
    ///
    /// # Errors
    ///
    /// When the attempt fails (it will be repeated in the background), or shipping has ended.
    pub fn ship_now(&self) -> Result<(), String> {
        let ended = || "shipping has ended".to_owned();
        let (send, receive) = mpsc::sync_channel(1);
        self.wake.send(Wake::Now(send)).map_err(|_| ended())?;
        receive.recv().map_err(|_| ended())?
    }

    /// Returns whether the thread still runs; it ends by itself when another writer has taken over.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Ends shipping, in order.
    ///
    /// # Errors
    ///
    /// When it had ended by itself: why.
    pub fn close(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        let _ = self.wake.send(Wake::End);
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread
            .join()
            .unwrap_or_else(|_| Err(Error::io("thread tamis-ship")(std::io::Error::other("it panicked"))))
    }
}

impl Drop for Shipper {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            log::warn!("shipping had ended: {error}");
        }
    }
}

struct Work {
    source: Arc<dyn Source + Send>,
    options: ShipOptions,
    acknowledge: Acknowledge,
    shared: Arc<Mutex<Shipped>>,
    uploader: Uploader,
    /// After a failure what the uploader takes for the newest state may not be that.
    failed: bool,
    /// What the last state was made of.
    last: Option<Vec<(String, u64)>>,
}

impl Work {
    fn run(mut self, woken: &mpsc::Receiver<Wake>) -> Result<(), Error> {
        let mut pause = Duration::ZERO;
        loop {
            let answer = match woken.recv_timeout(pause) {
                Ok(Wake::Now(answer)) => Some(answer),
                Err(RecvTimeoutError::Timeout) => None,
                Ok(Wake::End) | Err(RecvTimeoutError::Disconnected) => {
                    return self.uploader.end();
                }
            };
            let result = self.look();
            self.failed = result.is_err();
            if let Some(answer) = answer {
                let _ = answer.send(result.as_ref().map(drop).map_err(ToString::to_string));
            }
            pause = match result {
                Ok(()) => self.options.interval,
                Err(error @ Error::AnotherWriter { .. }) => return Err(error),
                Err(error) => {
                    log::warn!("a state could not be shipped: {error}");
                    let mut shared = locked(&self.shared);
                    shared.failures += 1;
                    shared.failure = Some(error.to_string());
                    let doubled = self.options.interval * 2u32.saturating_pow(shared.failures.min(16) as u32);
                    doubled.min(LONGEST_PAUSE)
                }
            };
        }
    }

    /// Looks at the database, and writes a state if it has changed.
    fn look(&mut self) -> Result<(), Error> {
        let begin = Instant::now();
        if self.failed {
            self.uploader.renew()?;
        }
        let pinned = self.source.pin()?;
        let made_of = made_of(&pinned);
        if self.last.as_ref() == Some(&made_of) || !is_complete(&pinned.files) {
            return self.uploader.keep_alive();
        }
        let written = self.uploader.write(&pinned)?;
        self.last = Some(made_of);
        let mut shared = locked(&self.shared);
        shared.states += 1;
        shared.took = begin.elapsed();
        (shared.failures, shared.failure) = (0, None);
        shared.last = Some(written.clone());
        drop(shared);
        (self.acknowledge)(&written)
    }
}

/// Returns the names and lengths of the files: logs and manifests grow with every change, all else
/// has a new name.
fn made_of(pinned: &Pinned) -> Vec<(String, u64)> {
    let mut files: Vec<_> = pinned.files.iter().map(|file| (file.name.clone(), file.len)).collect();
    files.sort_unstable();
    files
}
