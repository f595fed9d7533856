//! The file `STATS`: the metrics of a session, for other processes.
//!
//! One thread of the program writes it, at an interval, as long as its [`Publisher`] lives. The
//! file is replaced by a rename, so that readers find a whole file, and not synced: what a crash
//! leaves of it is removed by the next opening. Readers take it for what it is, a file that anybody
//! may have written.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, thread};

use tamis::clock::{Clock, SystemClock};
use tamis::io::{Access, DiskFs, FileSystem, Usage};
use tamis::{Db, Options, StorageError, WriteBatch, WriteError};
use tamis_files::tree::files::{next_stats_path, stats_path};

use crate::to_prometheus;

/// A larger file is none that a publisher has written.
const MOST_BYTES: u64 = 64 << 20;

/// Publishes the metrics of a database for other processes, until it is dropped: a thread writes
/// them to the file `STATS` in the database's directory, where `tamis top`, `tamis serve` and
/// [`published`] read them.
///
/// It holds the database open, so it is dropped first; then the file goes. The file of a database
/// that was [closed](Db::close) before that stays until the next opening removes it.
///
/// ```
/// use std::time::Duration;
/// use tamis_metrics::Publisher;
///
/// # let dir = tempfile::tempdir()?;
/// let db = tamis::Db::open(dir.path())?;
/// let publisher = Publisher::start(&db, Duration::from_secs(1))?;
/// // … what the program does …
/// drop(publisher);
/// db.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping it ends the publication"]
pub struct Publisher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the publisher shares with its thread.
#[derive(Debug)]
struct Shared {
    db: Db,
    fs: Arc<dyn FileSystem>,
    clock: Arc<dyn Clock>,
    interval: Duration,
    began: Instant,
    ended: Mutex<bool>,
    changed: Condvar,
}

impl Publisher {
    /// Publishes the metrics of `db` now, and once in each `interval` from then on. What cannot be
    /// written later is logged, and tried again.
    ///
    /// # Errors
    ///
    /// [`WriteError::ReadOnly`] or [`WriteError::Closed`]: only a writer publishes. The directory
    /// cannot be opened, or no thread be started.
    pub fn start(db: &Db, interval: Duration) -> Result<Publisher, WriteError> {
        db.check_process()?;
        if let Err(refused @ (WriteError::ReadOnly | WriteError::Closed)) = touch(db) {
            return Err(refused);
        }
        let io = |operation, error| StorageError::io(operation, db.path(), error);
        let plain = file_system(db.options());
        let shared = Arc::new(Shared {
            db: db.clone(),
            fs: plain.hold(db.path()).map_err(|e| io("open", e))?.unwrap_or(plain),
            clock: db.options().clock.clone().unwrap_or_else(|| Arc::new(SystemClock)),
            interval: interval.max(Duration::from_millis(1)),
            began: Instant::now(),
            ended: Mutex::new(false),
            changed: Condvar::new(),
        });
        let thread = thread::Builder::new().name("tamis-stats".into()).spawn({
            let shared = shared.clone();
            move || shared.run()
        });
        Ok(Publisher { shared, thread: Some(thread.map_err(|e| io("start a thread for", e))?) })
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let thread = self.thread.take();
        if self.shared.db.check_process().is_err() {
            // The thread is the parent's, and so is the file.
            std::mem::forget(thread);
            return;
        }
        *self.shared.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.changed.notify_all();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            log::error!("the thread that publishes metrics panicked");
        }
    }
}

/// A write of nothing, which is refused like any other.
fn touch(db: &Db) -> Result<(), WriteError> {
    db.write_with(WriteBatch::new(), tamis::Durability::Buffered)
}

fn file_system(options: &Options) -> Arc<dyn FileSystem> {
    options.file_system.clone().unwrap_or_else(|| Arc::new(DiskFs::new()))
}

impl Shared {
    fn run(&self) {
        let mut failed = false;
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        while !*ended && !self.is_closed() {
            drop(ended);
            let written = self.publish();
            if let Err(error) = &written
                && !failed
            {
                log::warn!("the metrics of {} are not published: {error}", self.db.path().display());
            }
            failed = written.is_err();
            ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self.changed.wait_timeout_while(ended, self.interval, |ended| !*ended);
            ended = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        // Whoever reads it would take it for the state of a session. If it stays, the next opening
        // removes it; that of a closed database may already be another session's.
        if !self.is_closed() {
            let _ = self.fs.remove(&stats_path(self.db.path()));
        }
    }

    fn is_closed(&self) -> bool {
        matches!(touch(&self.db), Err(WriteError::Closed))
    }

    fn publish(&self) -> io::Result<()> {
        // First, for those who do not read everything.
        let mut text = format!(
            "# TYPE tamis_uptime_seconds gauge\ntamis_uptime_seconds {}\n\
             # TYPE tamis_published_timestamp_seconds gauge\ntamis_published_timestamp_seconds {}\n\
             # TYPE tamis_publish_interval_seconds gauge\ntamis_publish_interval_seconds {}\n",
            self.began.elapsed().as_secs_f64(),
            self.clock.now(),
            self.interval.as_secs_f64()
        );
        let dir = self.db.path();
        text.push_str(&to_prometheus(&self.db.stats(), &dir.display().to_string()));
        let beside = next_stats_path(dir);
        let mut file = self.fs.create(&beside, Usage::Log)?;
        file.append(text.as_bytes())?;
        drop(file);
        if self.is_closed() {
            // The directory may be another session's by now.
            return Ok(());
        }
        self.fs.rename(&beside, &stats_path(dir))
    }
}

/// Returns the metrics that the process that has the database in `path` open for writing published
/// last, in the form of [`to_prometheus`], if it has a [`Publisher`]. Besides the others they have
/// `tamis_published_timestamp_seconds`, when that was, `tamis_uptime_seconds`, and
/// `tamis_publish_interval_seconds`, after which to expect the next. After a crash the last ones
/// stay until the next opening. Of the options only the file system counts.
///
/// # Errors
///
/// A failed read, or a file that no publisher has written.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let options = tamis::Options::default();
/// assert_eq!(tamis_metrics::published(dir.path(), &options)?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn published(path: impl AsRef<Path>, options: &Options) -> Result<Option<String>, StorageError> {
    let (fs, path) = (file_system(options), stats_path(path.as_ref()));
    let read = || {
        let file = match fs.open(&path, Access::Sequential) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let len = file.len()?;
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let bytes = usize::try_from(len).ok().filter(|_| len <= MOST_BYTES);
        let mut text = vec![0; bytes.ok_or_else(|| invalid("it is too large for metrics"))?];
        file.read_exact_at(&mut text, 0)?;
        String::from_utf8(text).map(Some).map_err(|_| invalid("it is not text"))
    };
    read().map_err(|error| StorageError::io("read", &path, error))
}
