//! Opening read-only beside a writer.
//!
//! A read-only opening takes no lock, and the writer goes on: it appends to the manifest and to logs, replaces both, and removes
//! or overwrites files that the manifest no longer names. So an opening may read a manifest and logs of different moments. It is
//! made as if nobody wrote, and taken only if the manifest is then what it was when it was read: the same file, not longer.
//!
//! # Why that is a state that existed
//!
//! Let the manifest be read at time *m*, then the directory be listed, then the logs be read in order, and the manifest be the
//! same at time *v* behind all that. No edit was published between *m* and *v*. So
//!
//! * the tables that the manifest names were there all the time, since files go only after the edit that drops them, and they
//!   are open now: what becomes of their names is of no importance any more;
//! * no log at or above the floor went or was overwritten, for the same reason;
//! * what was read of the logs is a prefix of all writes: records are appended in order; a log gets its last record before the
//!   next one gets its first, and was read before that; a log that was made after the listing only has later writes. A record
//!   that was being written is the torn end of the last log;
//! * no ingestion falls between the tables and the logs: its edit is published while the log is held, so that no write comes
//!   between its record in the log and its edit.
//!
//! What was read of tables and logs together is a prefix of all writes that ended before *v* and holds all that ended before *m*.
//!
//! Whatever else an opening meets (a file that is gone, a log that was overwritten, a closing record that was not there yet) is an
//! error of that attempt. It is taken for real once the same was met several times with the same manifest. A writer that begins one
//! log after the other without a flush causes another error each time: a log that is named and was not listed yet.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::db::inner::DbInner;
use crate::db::open;
use crate::error::OpenError;
use crate::io::FileSystem;
use crate::options::Options;
use crate::sync;
use crate::tree::manifest::Manifest;
use crate::wal::End;

/// Attempts before an opening gives up on a writer that changes the database all the time.
const ATTEMPTS: u32 = 200;

/// Attempts in a row that must fail alike with the same manifest before their error is taken for real.
const DOUBTS: u32 = 4;

/// Where the manifest in force ends. Equal marks: no edit between.
#[derive(Debug, PartialEq)]
struct Mark(u64, End);

fn mark(fs: &dyn FileSystem, dir: &Path) -> Option<Mark> {
    // It may be replaced while it is read; that is a change, too.
    Manifest::open(fs, dir).ok().flatten().map(|loaded| Mark(loaded.number, loaded.end))
}

/// Opens the database in `dir` as it was at some moment during the call.
pub(super) fn open(dir: &Path, options: &Options) -> Result<Arc<DbInner>, OpenError> {
    options.check()?;
    let fs = open::file_system(options);
    let (mut doubts, mut met) = (0, String::new());
    for attempt in 0..ATTEMPTS {
        let before = mark(&*fs, dir);
        let opened = open::open(dir, options.clone(), true);
        // Salvage needs no manifest that can be read.
        let same = (before.is_some() || options.salvage) && mark(&*fs, dir) == before;
        match opened {
            Ok(db) if same => return Ok(db),
            Ok(_) => {}
            // Nothing that another attempt would change.
            Err(
                error @ (OpenError::Options(_)
                | OpenError::Incompatible { .. }
                | OpenError::Unregistered { .. }
                | OpenError::Format { .. }),
            ) => return Err(error),
            Err(error) => {
                let what = error.to_string();
                doubts = match same || before.is_none() {
                    true if what == met => doubts + 1,
                    true => 1,
                    false => 0,
                };
                if doubts >= DOUBTS {
                    return Err(error);
                }
                met = what;
            }
        }
        sync::thread::sleep(Duration::from_millis(u64::from(attempt / 4).min(20)));
    }
    Err(OpenError::Changing { path: dir.to_owned() })
}

#[cfg(test)]
mod tests;
