//! The file `STATS`: the metrics of a session, for other processes.
//!
//! One thread writes it, and the others of the database do not know of it. It is replaced by a
//! rename, so that readers find a whole file, and not synced: what a crash leaves of it is removed
//! by the next opening. Readers take it for what it is, a file that anybody may have written.

use std::path::Path;
use std::time::Duration;

use tamis_files::tree::files::{next_stats_path, stats_path};

use crate::db::inner::DbInner;
use crate::db::stats::Stats;
use crate::error::StorageError;
use crate::io::{Access, FileSystem, Usage};
use crate::sync;

/// A larger file is none that a database has written.
const MOST_BYTES: u64 = 64 << 20;

pub(crate) fn publish_loop(db: &DbInner) {
    let Some(interval) = db.options.publish_stats else { return };
    let (mut failed, began) = (false, sync::now());
    let mut state = db.state();
    while !db.gate.has_ended() {
        drop(state);
        let written = publish(db, interval, sync::since(began));
        if let Err(error) = &written
            && !failed
        {
            db.warn(format!("the metrics are not published: {error}"));
        }
        failed = written.is_err();
        state = db.state();
        // The condition is shared: sleep out the interval, whatever the signal.
        let started = sync::now();
        while sync::since(started) < interval && !db.gate.has_ended() {
            let left = interval.saturating_sub(sync::since(started)).max(Duration::from_millis(1));
            state = db.monitor.wait_for(state, left);
        }
    }
    drop(state);
    // Whoever reads it would take it for the state of a session. If it stays, the next opening
    // removes it.
    let _ = db.fs.remove(&stats_path(&db.dir));
}

pub(crate) fn publish(db: &DbInner, interval: Duration, uptime: Duration) -> std::io::Result<()> {
    // First, for those who do not read everything.
    let mut text = format!(
        "# TYPE tamis_uptime_seconds gauge\ntamis_uptime_seconds {}\n\
         # TYPE tamis_published_timestamp_seconds gauge\ntamis_published_timestamp_seconds {}\n\
         # TYPE tamis_publish_interval_seconds gauge\ntamis_publish_interval_seconds {}\n",
        uptime.as_secs_f64(),
        db.now(),
        interval.as_secs_f64()
    );
    text.push_str(&Stats::of(db).to_prometheus(&db.dir.display().to_string()));
    let beside = next_stats_path(&db.dir);
    let mut file = db.fs.create(&beside, Usage::Log)?;
    file.append(text.as_bytes())?;
    drop(file);
    db.fs.rename(&beside, &stats_path(&db.dir))
}

/// See [`Db::published_stats`](crate::Db::published_stats).
pub(super) fn published(fs: &dyn FileSystem, dir: &Path) -> Result<Option<String>, StorageError> {
    let path = stats_path(dir);
    let read = || {
        let file = match fs.open(&path, Access::Sequential) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let len = file.len()?;
        let invalid = |what: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, what.to_owned());
        let bytes = usize::try_from(len).ok().filter(|_| len <= MOST_BYTES);
        let mut text = vec![0; bytes.ok_or_else(|| invalid("it is too large for metrics"))?];
        file.read_exact_at(&mut text, 0)?;
        String::from_utf8(text).map(Some).map_err(|_| invalid("it is not text"))
    };
    read().map_err(|error| StorageError::io("read", &path, error))
}
