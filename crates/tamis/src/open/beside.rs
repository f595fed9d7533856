//! Opening read-only alongside a writer.
//!
//! A read-only opening takes no lock, and the writer continues: it appends to the manifest and to
//! logs, replaces both, and removes or overwrites files that the manifest no longer names. So an
//! opening may read a manifest and logs of different moments. An attempt proceeds as if there were
//! no writer, and is accepted only if the manifest is afterwards what it was when it was read: the
//! same file, no longer than before.
//!
//! # Why that is a state that existed
//!
//! Suppose the manifest is read at time *m*, then the directory is listed, then the logs are read
//! in order, and afterwards, at time *v*, the manifest is unchanged. No edit was published between
//! *m* and *v*. So
//!
//! * the tables that the manifest names existed throughout, since files are removed only after the
//!   edit that drops them, and they are open now, so that their names no longer matter;
//! * no log at or above the floor was removed or overwritten, for the same reason;
//! * what was read of the logs is a prefix of all writes: records are appended in order, and a log
//!   gets its last record before the next one gets its first. If the next one, which may be there
//!   ahead of that, got records after the end of the log before it was read, the sequence of
//!   numbers breaks, and they are left out or make the attempt fail
//!   ([`replay`](tamis_files::tree::replay)); a log created after the listing holds only later
//!   writes. A record that was being written is the torn end of the last log;
//! * no ingestion falls between the tables and the logs: its edit is published while the log is
//!   held, so that no write comes between its record in the log and its edit.
//!
//! The data read from tables and logs together is a prefix of all writes that ended before *v*, and
//! includes all that ended before *m*.
//!
//! The prefix ends with the last record in the logs, which a crash at *v* might preserve; so it may
//! include a write that is not answered yet. It may also include one that was answered with an
//! error, if the sync of its record failed: its fate is open until writes resume, with an edit that
//! drops the log. An opening cannot tell these records from acknowledged ones, and the writer,
//! whose device just failed, cannot reliably remove them first.
//!
//! Any other problem of an opening (a missing file, an overwritten log, a missing closing record)
//! is an error of that attempt only. It is believed once it occurs several times with the same
//! manifest. A writer that begins one log after another without a flush causes a different error
//! each time: a log that is named but was not listed yet.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tamis_files::tree::manifest::Manifest;
use tamis_files::wal::End;

use crate::error::OpenError;
use crate::io::FileSystem;
use crate::options::Options;
use crate::session::Session;
use crate::session::repair::Plan;
use crate::{open, sync};

/// The number of attempts before an opening gives up on a writer that keeps changing the database.
pub(crate) const ATTEMPTS: u32 = 200;

/// The number of consecutive attempts that must fail alike with the same manifest before their
/// error is believed.
const DOUBTS: u32 = 4;

/// Waits before the attempt after this one.
pub(crate) fn pause(attempt: u32) {
    sync::thread::sleep(Duration::from_millis(u64::from(attempt / 4).min(20)));
}

/// The errors of attempts, of which one alone proves nothing.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    count: u32,
    met: String,
}

impl Doubts {
    /// Returns an error that counts: one that another attempt would not change, or that came
    /// several times in a row with the `same` manifest.
    pub(crate) fn note(&mut self, error: OpenError, same: bool) -> Result<(), OpenError> {
        let is_final = matches!(
            error,
            OpenError::Options(_)
                | OpenError::Incompatible { .. }
                | OpenError::Unregistered { .. }
                | OpenError::Format { .. }
        );
        let what = error.to_string();
        self.count = match same {
            true if what == self.met => self.count + 1,
            true => 1,
            false => 0,
        };
        if is_final || self.count >= DOUBTS {
            return Err(error);
        }
        self.met = what;
        Ok(())
    }
}

/// The end of the manifest in force. Equal marks mean no edit in between.
#[derive(Debug, PartialEq)]
struct Mark(u64, End);

fn mark(fs: &dyn FileSystem, dir: &Path) -> Option<Mark> {
    // It may be replaced while it is read; that is a change, too.
    Manifest::open(fs, dir).ok().flatten().map(|loaded| Mark(loaded.number, loaded.end))
}

/// Opens the database in `dir` as it was at some moment during the call.
pub(crate) fn open(
    dir: &Path,
    options: &Options,
    plan: Option<&Plan<'_>>,
) -> Result<Arc<Session>, OpenError> {
    options.check()?;
    let fs = open::file_system(options);
    let mut doubts = Doubts::default();
    for attempt in 0..ATTEMPTS {
        let before = mark(&*fs, dir);
        let opened = open::open_as(dir, options.clone(), open::Role::Reader, plan);
        // A repair does not need a readable manifest.
        let same = (before.is_some() || plan.is_some()) && mark(&*fs, dir) == before;
        match opened {
            Ok(db) if same => return Ok(db),
            Ok(_) => {}
            Err(error) => doubts.note(error, same || before.is_none())?,
        }
        pause(attempt);
    }
    Err(OpenError::Changing { path: dir.to_owned() })
}

#[cfg(test)]
pub(crate) mod tests;
