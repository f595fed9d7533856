//! Upload sessions: what is sent while no state names it yet is protected from pruning by a session that lives.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::known::{drawn, is_id};
use crate::repository::Repository;

/// How long a session lives without a sign, by the store's clock.
pub(crate) const SESSION_LIFE: Duration = Duration::from_secs(3600);

/// How often it gives one.
const REFRESH: Duration = Duration::from_secs(600);

/// Without a sign for so long, a session writes no state any more. Less than its life by more than the attempts at a request take.
const TOO_LONG: Duration = Duration::from_secs(1800);

#[derive(Serialize, Deserialize)]
struct Sign {
    writer: String,
}

/// A session of this process. One thread at a time gives signs; any may ask what is there.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    writer: String,
    /// When the last sign was begun, by this machine's clock: unlike a monotonic one, it also counts the time that a machine is suspended.
    sign: SystemTime,
    /// Objects that an interrupted run of the session has sent, and their lengths.
    present: HashMap<String, u64>,
}

impl Session {
    /// Continues the session `earlier` if it lives, or begins one.
    pub(crate) fn begin(repo: &Repository, writer: &str, earlier: Option<&str>) -> Result<Session, Error> {
        if let Some(id) = earlier.filter(|id| is_id(id))
            && let Some(sign) = repo.store.head(&name_of(id))?
            && lives(sign.modified, repo.now(id)?)
        {
            let mut session = Session::new(id.to_owned(), writer);
            // First the sign, then the listing: what is listed stays.
            session.give_sign(repo)?;
            for under in ["files", "parts", "lists"] {
                let objects = repo.store.list(&format!("{under}/{id}"), None)?;
                session.present.extend(objects.into_iter().map(|object| (object.name, object.len)));
            }
            return Ok(session);
        }
        let mut session = Session::new(drawn()?, writer);
        session.give_sign(repo)?;
        Ok(session)
    }

    fn new(id: String, writer: &str) -> Session {
        Session { id, writer: writer.to_owned(), sign: SystemTime::UNIX_EPOCH, present: HashMap::new() }
    }

    /// Whether an interrupted run has sent an object.
    pub(crate) fn has(&self, object: &str, len: u64) -> bool {
        self.present.get(object) == Some(&len)
    }

    fn give_sign(&mut self, repo: &Repository) -> Result<(), Error> {
        let now = SystemTime::now();
        let sign = serde_json::to_vec(&Sign { writer: self.writer.clone() });
        let sign = sign.map_err(|error| Error::damaged(&name_of(&self.id), error))?;
        repo.store.put(&name_of(&self.id), sign.into())?;
        self.sign = now;
        Ok(())
    }

    /// Gives a sign if it is time.
    pub(crate) fn refresh(&mut self, repo: &Repository) -> Result<(), Error> {
        self.check()?;
        // A clock that was set back counts as one that has run on.
        if self.sign.elapsed().is_ok_and(|since| since < REFRESH) { Ok(()) } else { self.give_sign(repo) }
    }

    /// Fails if the session may be taken for dead.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.sign.elapsed() {
            Ok(since) if since < TOO_LONG => Ok(()),
            _ => Err(Error::Expired),
        }
    }

    /// Ends the session: everything that it sent is named by a state, or may go.
    pub(crate) fn end(self, repo: &Repository) {
        let signs = [name_of(&self.id), format!("clock/{}", self.id)];
        if repo.store.delete(&signs) > 0 {
            log::info!("the sign of upload session {} stays until a prune", self.id);
        }
    }
}

/// Whether a session whose last sign is of `sign` lives.
pub(crate) fn lives(sign: SystemTime, now: SystemTime) -> bool {
    // A sign of the future, by the store's own clock, is one that has just been given.
    now.duration_since(sign).map_or(true, |since| since < SESSION_LIFE)
}

fn name_of(id: &str) -> String {
    format!("sessions/{id}")
}
