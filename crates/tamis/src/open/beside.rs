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

use tamis_files::tree::manifest::ManifestReader;

use crate::error::OpenError;
use crate::io::FileSystem;
use crate::open::recover::recover;
use crate::options::Options;
use crate::session::Session;
use crate::session::repair::Plan;
use crate::{open, sync};

/// The number of attempts before giving up on a writer that keeps changing the database.
const ATTEMPTS: u32 = 200;

/// The number of consecutive attempts that must fail alike with the same manifest before their
/// error is believed.
const DOUBTS: u32 = 4;

/// The end of a manifest, as far as it was read. Equal marks mean equal states.
pub(super) type Mark = Option<(u64, u64)>;

/// Repeats an attempt until it returns something. Its error counts if another attempt would not
/// change it, or if it came several times in a row, each with the same manifest.
pub(super) fn repeat<T>(
    dir: &Path,
    mut attempt: impl FnMut() -> (Mark, Result<Option<T>, OpenError>),
) -> Result<T, OpenError> {
    let (mut last, mut alike) = (None, 0);
    for number in 0..ATTEMPTS {
        let (mark, result) = attempt();
        match result {
            Ok(Some(done)) => return Ok(done),
            Ok(None) => (last, alike) = (None, 0),
            Err(error) => {
                let met = Some((mark, error.to_string()));
                alike = if met == last { alike + 1 } else { 1 };
                last = met;
                let is_final = matches!(
                    error,
                    OpenError::Options(_)
                        | OpenError::Incompatible { .. }
                        | OpenError::Unregistered { .. }
                        | OpenError::Format { .. }
                );
                if is_final || alike == DOUBTS {
                    return Err(error);
                }
            }
        }
        sync::thread::sleep(Duration::from_millis(u64::from(number / 4).min(20)));
    }
    Err(OpenError::Changing { path: dir.to_owned() })
}

/// Returns where the manifest in force ends. It may be replaced while it is read; that is a change,
/// too.
pub(super) fn mark(fs: &dyn FileSystem, dir: &Path) -> Mark {
    ManifestReader::open(fs, dir).ok().flatten().map(|manifest| manifest.mark())
}

/// Opens the database in `dir` as it was at some moment during the call.
pub(crate) fn open(
    dir: &Path,
    options: &Options,
    plan: Option<&Plan<'_>>,
) -> Result<Arc<Session>, OpenError> {
    let fs = open::file_system(options);
    repeat(dir, || {
        let before = mark(&*fs, dir);
        let opened = open::open_trees(dir, options.clone(), true, plan)
            .and_then(|(session, found)| recover(&session, found).map(|()| Arc::new(session)));
        // A repair does not need a readable manifest.
        let is_certain = || (before.is_some() || plan.is_some()) && mark(&*fs, dir) == before;
        (before, opened.map(|session| is_certain().then_some(session)))
    })
}

#[cfg(test)]
pub(crate) mod tests;
