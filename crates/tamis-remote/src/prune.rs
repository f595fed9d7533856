//! Removing states, and what no state needs any more.
//!
//! # Order
//!
//! First the living sessions are listed, then the states, then the objects. An object that no
//! listed state names is either of a listed session, and left alone; or of one that had ended
//! before its listing, whose states are listed; or of one that began after it, whose objects are
//! younger than the listing. So what is old, not named, and of no living session goes. States go
//! before the objects that they name: an interruption leaves objects that the next prune removes,
//! never a state without its objects.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use crate::error::Error;
use crate::known::drawn;
use crate::parallel::{each, locked};
use crate::repository::{Listing, Repository};
use crate::session::lives;
use crate::state::object_name;

/// How often a prune begins anew because of another.
const ROUNDS: usize = 20;

/// Which states stay. The newest always does.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Retention {
    /// This many of the newest stay: 1 at least.
    pub keep_last: usize,
    /// So do those that are not older than this.
    pub keep_within: Option<Duration>,
    /// Of those that are older, the last of each day (UTC) stays for this many days that have one.
    pub keep_daily: usize,
    /// What is younger than this stays in any case: an hour. Less than five minutes is for
    /// repositories that nobody writes to or reads from meanwhile.
    pub grace: Duration,
    /// Only reports what would go.
    pub dry_run: bool,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention {
            keep_last: 1,
            keep_within: None,
            keep_daily: 0,
            grace: Duration::from_secs(3600),
            dry_run: false,
        }
    }
}

/// What was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// States that stay.
    pub states_kept: u64,
    /// States that went.
    pub states_removed: u64,
    /// Objects that went.
    pub objects_removed: u64,
    /// Their bytes.
    pub bytes_removed: u64,
    /// Objects that stay.
    pub objects_kept: u64,
    /// Their bytes.
    pub bytes_kept: u64,
    /// Removals that failed; the next prune tries again.
    pub failed: u64,
    /// Damaged states, and what is wrong with each. They stay, count for no rule, and keep no
    /// object.
    pub damaged: Vec<String>,
}

impl Repository {
    /// Removes states that a rule does not keep, and what no state needs any more. May run beside
    /// backups and replicas.
    ///
    /// # Errors
    ///
    /// When the store cannot be listed, or a state that stays cannot be fetched: then no object is
    /// removed.
    pub fn prune(&self, retention: &Retention) -> Result<Pruned, Error> {
        for _ in 0..ROUNDS {
            if let Some(pruned) = self.prune_once(retention)? {
                return Ok(pruned);
            }
        }
        Err(Error::NoState { what: "states that stay long enough to be read, as others prune it".into() })
    }

    /// Returns `None` if a state that stays has gone meanwhile, by another prune: then there is a
    /// newer one, which may name the same objects, and which was not listed.
    fn prune_once(&self, retention: &Retention) -> Result<Option<Pruned>, Error> {
        let now = self.now(&drawn()?)?;
        let signs = self.store.list("sessions", None)?;
        let alive: HashSet<&str> = signs
            .iter()
            .filter(|sign| lives(sign.modified, now))
            .filter_map(|sign| sign.name.strip_prefix("sessions/"))
            .collect();
        let old = |written: SystemTime| now.duration_since(written).is_ok_and(|age| age >= retention.grace);

        let mut states = self.states()?;
        let threads = self.store.transfer().parallel;
        // One set of names: most states name almost the same objects.
        let named = Mutex::new(HashSet::new());
        let mut read = HashSet::new();
        let mut damaged = Vec::new();
        // Those that stay are read before anything is removed. One that is damaged cannot be
        // restored, so the rules are applied once more without it: it must not take the place of a
        // sound one.
        let (stay, go) = loop {
            let kept = kept(&states, retention, now);
            let (stay, go): (Vec<Listing>, Vec<Listing>) =
                states.iter().partition(|state| kept.contains(&state.number) || !old(state.written));
            let unread: Vec<u64> =
                stay.iter().map(|state| state.number).filter(|number| !read.contains(number)).collect();
            let found = each(threads, &unread, |&number| {
                let state = match self.state_if_there(number) {
                    Err(error) if error.is_damage() => return Ok(Err((number, error.to_string()))),
                    state => state?,
                };
                let Some(state) = state else { return Ok(Ok(false)) };
                let mut named = locked(&named);
                for piece in state.objects() {
                    if !named.contains(&piece.object) {
                        named.insert(piece.object.clone());
                    }
                }
                Ok(Ok(true))
            })?;
            if found.contains(&Ok(false)) {
                return Ok(None);
            }
            read.extend(unread);
            let bad: Vec<(u64, String)> = found.into_iter().filter_map(Result::err).collect();
            if bad.is_empty() {
                break (stay, go);
            }
            states.retain(|state| bad.iter().all(|(number, _)| *number != state.number));
            damaged.extend(bad.into_iter().map(|(_, what)| what));
            if states.is_empty() {
                // What it names may be all that there is.
                return Err(Error::NoState { what: format!("state that can be read: {}", damaged[0]) });
            }
        };
        let mut pruned = Pruned { states_kept: stay.len() as u64, damaged, ..Pruned::default() };
        let named = locked(&named);

        let mut unneeded = Vec::new();
        for under in ["files", "parts", "lists"] {
            for object in self.store.list(under, None)? {
                let session = object.name.split('/').nth(1).unwrap_or_default();
                match named.contains(&object.name) || alive.contains(session) || !old(object.modified) {
                    true => {
                        pruned.objects_kept += 1;
                        pruned.bytes_kept += object.len;
                    }
                    false => unneeded.push(object),
                }
            }
        }
        pruned.states_removed = go.len() as u64;
        pruned.objects_removed = unneeded.len() as u64;
        pruned.bytes_removed = unneeded.iter().map(|object| object.len).sum();
        if retention.dry_run {
            return Ok(Some(pruned));
        }
        let go: Vec<String> = go.into_iter().map(|state| object_name(state.number)).collect();
        let failed = self.store.delete(&go);
        pruned.states_removed -= failed;
        pruned.failed += failed;
        if failed > 0 {
            // A state that is still there needs its objects.
            return Ok(Some(Pruned { objects_removed: 0, bytes_removed: 0, ..pruned }));
        }
        let names: Vec<String> = unneeded.into_iter().map(|object| object.name).collect();
        let failed = self.store.delete(&names);
        pruned.objects_removed -= failed;
        pruned.failed += failed;
        // Signs of the dead, and clocks that nobody looks at any more.
        let dead = signs.iter().filter(|sign| !lives(sign.modified, now) && old(sign.modified));
        let mut rests: Vec<String> = dead.map(|sign| sign.name.clone()).collect();
        let clocks = self.store.list("clock", None)?;
        rests.extend(clocks.into_iter().filter(|clock| !lives(clock.modified, now)).map(|clock| clock.name));
        pruned.failed += self.store.delete(&rests);
        Ok(Some(pruned))
    }
}

/// Returns the numbers of the states that a rule keeps. `states` is in their order.
fn kept(states: &[Listing], retention: &Retention, now: SystemTime) -> HashSet<u64> {
    let day =
        |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() / 86_400;
    let mut kept = HashSet::new();
    let mut days = HashSet::new();
    for (at, state) in states.iter().rev().enumerate() {
        let age = now.duration_since(state.written).unwrap_or_default();
        let last = at < retention.keep_last.max(1);
        let recent = retention.keep_within.is_some_and(|within| age <= within);
        let daily = days.len() < retention.keep_daily && days.insert(day(state.written));
        if last || recent || daily {
            kept.insert(state.number);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_keep_the_union() {
        let hour = |h: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(h * 3600);
        // Every six hours for ten days.
        let states: Vec<_> = (1..=40).map(|n| Listing { number: n, written: hour(n * 6) }).collect();
        let of = |retention: Retention| {
            let mut kept: Vec<_> = kept(&states, &retention, hour(241)).into_iter().collect();
            kept.sort_unstable();
            kept
        };
        let none = Retention { keep_last: 0, ..Retention::default() };
        assert_eq!(of(none.clone()), [40]);
        assert_eq!(of(Retention { keep_last: 3, ..none.clone() }), [38, 39, 40]);
        let within = Some(Duration::from_secs(13 * 3600));
        assert_eq!(of(Retention { keep_within: within, ..none.clone() }), [38, 39, 40]);
        assert_eq!(of(Retention { keep_daily: 3, ..none }), [35, 39, 40]);
    }
}
