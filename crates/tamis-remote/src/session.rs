//! Upload sessions: what is sent while no state names it yet is protected from pruning by a session
//! that lives.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::known::{drawn, is_id};
use crate::repository::Repository;

/// How long a session lives without a sign, by the store's clock.
pub(crate) const SESSION_LIFE: Duration = Duration::from_secs(3600);

/// How often it gives one.
const REFRESH: Duration = Duration::from_secs(600);

/// Without a sign for so long, a session writes no state any more. Less than its life by more than
/// the attempts at a request take.
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
    /// When the last sign was begun, by this machine's clock: unlike a monotonic one, it also
    /// counts the time that a machine is suspended.
    sign: SystemTime,
    /// The same by the monotonic clock, which is never set back.
    sign_instant: Instant,
    /// Objects that an interrupted run of the session has sent, and their lengths.
    present: HashMap<String, u64>,
}

impl Session {
    /// Continues the session `earlier` if it lives, or begins one.
    pub(crate) fn begin(repo: &Repository, writer: &str, earlier: Option<&str>) -> Result<Session, Error> {
        if let Some(id) = earlier.filter(|id| is_id(id))
            && let Some(sign) = repo.store.head(&name_of(id))?
            && is_resumable(sign.modified, repo.now(id)?)
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
        let (sign, sign_instant) = (SystemTime::UNIX_EPOCH, Instant::now());
        Session { id, writer: writer.to_owned(), sign, sign_instant, present: HashMap::new() }
    }

    /// Whether an interrupted run has sent an object.
    pub(crate) fn has(&self, object: &str, len: u64) -> bool {
        self.present.get(object) == Some(&len)
    }

    fn give_sign(&mut self, repo: &Repository) -> Result<(), Error> {
        let (now, instant) = (SystemTime::now(), Instant::now());
        let sign = serde_json::to_vec(&Sign { writer: self.writer.clone() });
        let sign = sign.map_err(|error| Error::damaged(&name_of(&self.id), error))?;
        repo.store.put(&name_of(&self.id), sign.into())?;
        (self.sign, self.sign_instant) = (now, instant);
        Ok(())
    }

    /// Gives a sign if it is time.
    pub(crate) fn refresh(&mut self, repo: &Repository) -> Result<(), Error> {
        self.check()?;
        // After a clock was set back, nobody knows how much of the time it has hidden.
        let due = self.sign.elapsed().is_err() || self.since_sign() >= REFRESH;
        if due { self.give_sign(repo) } else { Ok(()) }
    }

    /// Fails if the session may be taken for dead.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.since_sign() < TOO_LONG { Ok(()) } else { Err(Error::Expired) }
    }

    /// The time since the last sign, by the clock that shows more of it.
    fn since_sign(&self) -> Duration {
        self.sign.elapsed().unwrap_or_default().max(self.sign_instant.elapsed())
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

/// Whether a session may be continued. A prune that takes it for dead may be under way long before
/// its life ends by the time that is seen here: only if it is far from that, as for one that writes
/// a state.
fn is_resumable(sign: SystemTime, now: SystemTime) -> bool {
    now.duration_since(sign).map_or(true, |since| since < TOO_LONG)
}

fn name_of(id: &str) -> String {
    format!("sessions/{id}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;
    use crate::store::Transfer;

    #[test]
    fn a_session_is_continued_only_far_from_its_end() {
        let sign = SystemTime::UNIX_EPOCH + Duration::from_secs(10_000);
        for (age, resumable, alive) in [
            (0, true, true),
            (1799, true, true),
            (1800, false, true),
            (3599, false, true),
            (3600, false, false),
        ] {
            let now = sign + Duration::from_secs(age);
            assert_eq!((is_resumable(sign, now), lives(sign, now)), (resumable, alive), "{age} s");
        }
        let before = sign - Duration::from_secs(5);
        assert!(is_resumable(sign, before) && lives(sign, before));
    }

    #[test]
    fn a_clock_that_is_set_back_makes_a_sign() {
        let repo = Repository::with_store(Arc::new(InMemory::new()), "", Transfer::default());
        let mut session = Session::begin(&repo, "w", None).unwrap();
        let puts = repo.requests().puts;
        session.refresh(&repo).unwrap();
        assert_eq!(repo.requests().puts, puts, "it has just given one");
        session.sign = SystemTime::now() + Duration::from_secs(7200);
        session.check().unwrap();
        session.refresh(&repo).unwrap();
        assert_eq!(repo.requests().puts, puts + 1);
        assert!(session.sign.elapsed().is_ok());
        // One that was set forward, or a machine that slept.
        session.sign = SystemTime::now() - Duration::from_secs(1801);
        assert!(matches!(session.refresh(&repo), Err(Error::Expired)));
        assert!(matches!(session.check(), Err(Error::Expired)));
    }
}
