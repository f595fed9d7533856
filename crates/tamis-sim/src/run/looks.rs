//! Opening the database, and looking at what is there: after an opening, without one of its logs,
//! once the disk works again, and at the end.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tamis::events::EventListener;
use tamis::options::CompactionChoice;
use tamis::simulation::Scheduler;
use tamis::{AdminError, Db, Keyspace, OpenError, Options};
use tamis_testkit::CrashMode;

use super::{DIR, World};
use crate::client::contents::{everything, name_of};
use crate::client::{BOUND, Known, SECOND, Shared};
use crate::disk::Disk;
use crate::listener::Listener;
use crate::oracle::{FIXED_SPACES, Life};
use crate::plan::{Session, Space};
use crate::settings;

/// The number of checks, every tenth of a second, whether writes have resumed.
const RESUMES: u32 = 300;

/// The most keyspaces that are compacted at the end.
const MOST_COMPACTED: usize = 12;

impl World {
    /// Removes one log from a copy of the files: either the opening fails, or everything must still
    /// be there.
    pub(super) fn look_without_a_log(&self, nth: usize, session: &Session) -> Result<(), String> {
        let copy = self.files.after_crash(CrashMode::KeepAll);
        let is_log = |path: &Path| {
            path.parent() == Some(Path::new(DIR)) && path.extension().is_some_and(|e| e == "log")
        };
        let mut logs = copy.files().into_iter().map(|(path, _)| path).filter(|path| is_log(path));
        let Some(log) = logs.nth(nth) else { return Ok(()) };
        let shared = self.shared(session, Disk::new(self.machine.clone(), copy, &[], session.overlaps));
        tamis::io::FileSystem::remove(&shared.disk, &log).map_err(|error| error.to_string())?;
        let Ok(db) = shared.options.clone().open(DIR) else { return Ok(()) };
        let seen = everything(&db).map_err(|error| format!("without {}: {error}", log.display()))??;
        let checked = shared.oracle().clone().recover(&seen, self.loss, true);
        checked.map(drop).map_err(|what| format!("without {}: {what}", log.display()))
    }

    /// Opens the database with its keyspaces. `None` if a disk fault explains a failed opening.
    pub(super) fn open(
        &self,
        shared: &Shared,
        listener: Option<&Arc<Listener>>,
    ) -> Result<Option<Db>, String> {
        let mut options: Options = shared.options.clone();
        options.listeners.extend(listener.map(|listener| listener.clone() as Arc<dyn EventListener>));
        let open = || options.open(DIR);
        let db = match self.machine.within(BOUND, || "opening".to_owned(), open) {
            Ok(db) => db,
            // The keyspace is deeper than these options allow.
            Err(OpenError::Incompatible { .. }) => return Ok(None),
            Err(error) => return shared.excuse("opening", &error, None).map(|()| None),
        };
        if db.keyspace(SECOND).is_err() {
            let options = settings::keyspace_options(&self.plan.second);
            if let Err(error) = db.create_keyspace(SECOND, options) {
                return shared.excuse("making a keyspace", &error, None).map(|()| None);
            }
        }
        Ok(Some(db))
    }

    /// Checks the contents after an opening, which makes them durable.
    pub(super) fn look(&mut self, shared: &Shared, db: &Db) -> Result<(), String> {
        while !shared.disk.has_crashed() {
            let failures = shared.disk.failures();
            match self.machine.within(BOUND, || "reading everything".to_owned(), || everything(db)) {
                Ok(seen) => {
                    let begun = db.stats().suspended.is_none();
                    let lives = shared.oracle().recover(&seen?, self.loss, begun)?;
                    self.loss = None;
                    return know(shared, db, &lives);
                }
                Err(error) => shared.excuse("reading after opening", &error, Some(failures))?,
            }
        }
        Ok(())
    }

    /// On a healed disk, writes must resume by themselves and a scrub must find no damage.
    pub(super) fn goes_on(&self, shared: &Shared, db: &Db) -> Result<(), String> {
        shared.disk.heal();
        let mut refused = None;
        for _ in 0..RESUMES {
            if shared.disk.has_crashed() {
                return Ok(());
            }
            let result = self.machine.within(
                BOUND,
                || "flush and sync of all".to_owned(),
                || db.flush().map_err(|e| e.to_string()).and_then(|()| db.sync().map_err(|e| e.to_string())),
            );
            let Err(error) = result else {
                let problems = db.stats().scrub.map(|scrub| scrub.problems).unwrap_or_default();
                // Failed reads are not damage.
                return match problems.iter().find(|what| !what.contains("could not")) {
                    Some(problem) => {
                        Err(format!("the scrub found damage on a disk that does not corrupt data: {problem}"))
                    }
                    None => Ok(()),
                };
            };
            refused = Some(error);
            self.machine.sleep(Duration::from_millis(100));
        }
        match refused.filter(|_| !shared.disk.has_crashed()) {
            Some(error) => Err(format!("writes have not resumed on a healthy disk: {error}")),
            None => Ok(()),
        }
    }

    /// Opens the database once more on a healthy disk: everything must be present and sound.
    pub(super) fn last_look(&mut self) -> Result<(), String> {
        let Some(session) = self.plan.sessions.last().cloned() else { return Ok(()) };
        let shared = self.shared(&session, Disk::new(self.machine.clone(), self.files.clone(), &[], false));
        let Some(db) = self.open(&shared, None)? else { return Ok(()) };
        self.look(&shared, &db)?;
        let check = || db.verify().map_err(|error| format!("verification: {error}"));
        self.machine.within(BOUND, || "verification".to_owned(), check)?;
        let spaces = std::mem::take(&mut *shared.spaces());
        for known in spaces.values().take(MOST_COMPACTED) {
            self.machine.within(BOUND, || "a compaction".to_owned(), || compacted(&known.keyspace))?;
        }
        drop(spaces);
        let close = || db.close().map_err(|error| format!("closing: {error}"));
        self.machine.within(BOUND, || "closing".to_owned(), close)
    }
}

/// Makes the keyspaces known to the clients.
fn know(shared: &Shared, db: &Db, lives: &BTreeMap<Space, Life>) -> Result<(), String> {
    let fixed = (0..FIXED_SPACES).map(|space| (space, Life::fixed(space)));
    for (space, life) in fixed.chain(lives.iter().map(|(space, life)| (*space, *life))) {
        let keyspace = db.keyspace(&name_of(space)).map_err(|error| error.to_string())?;
        shared.spaces().insert(space, Known { keyspace, life });
    }
    Ok(())
}

/// Changes the options of the second keyspace, as far as they fit it.
pub(super) fn change_second(shared: &Shared, db: &Db, session: &Session) -> Result<(), String> {
    for (name, value) in &session.second {
        let changed = db.keyspace(SECOND).and_then(|second| second.set_options(&[(name, value)]));
        match changed {
            Ok(()) | Err(AdminError::Options(_)) => {}
            Err(error) => shared.excuse("a change of options", &error, None)?,
        }
    }
    Ok(())
}

/// Compacts a keyspace, and checks that no more tables are left than its bytes are worth.
fn compacted(keyspace: &Keyspace) -> Result<(), String> {
    // The compaction may put others into effect.
    let options = keyspace.options();
    keyspace.compact().map_err(|error| format!("compaction: {error}"))?;
    let stats = keyspace.stats();
    let tables: usize = stats.levels.iter().flat_map(|level| &level.runs).map(|run| run.tables).sum();
    let most = stats.table_bytes * 2 / options.table_bytes + 1;
    // Fragments end at guards besides.
    if tables as u64 > most && options.compaction != CompactionChoice::Fragmented {
        return Err(format!(
            "a compaction of `{}` leaves {tables} tables of {} bytes: more than {most}",
            stats.name, stats.table_bytes
        ));
    }
    Ok(())
}
