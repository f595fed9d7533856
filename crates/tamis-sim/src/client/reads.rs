//! A client's reads: gets, scans and snapshots.

use std::collections::VecDeque;

use tamis::{Db, Iter, ReadError, Snapshot};

use super::contents::{Entries, collect, name_of};
use super::{Client, Failure, Known, Spaces, Within, found, key};
use crate::oracle::{Candidates, FIXED_SPACES, Life, Seen};
use crate::plan::Space;

/// A snapshot, and what is known of its contents.
pub struct Pinned {
    snapshot: Snapshot,
    known: Candidates,
}

/// The most snapshots that a client keeps.
const MOST_SNAPSHOTS: usize = 60;

/// Entries with the life of their keyspace.
pub fn seen(life: Life, entries: Entries) -> Seen {
    entries.into_iter().map(|(key, value)| ((life, key), value)).collect()
}

impl Client {
    pub(super) fn get(&self, space: Space, client: usize, k: u8) -> Result<(), Failure> {
        let bytes = key(client, k);
        self.observe(space, Some(client), Some(k), |known| {
            let value = known.keyspace.get(&bytes)?;
            Ok(value.map(|value| (bytes.clone(), value.to_vec())).into_iter().collect())
        })
    }

    pub(super) fn multi_get(&self, space: Space, client: usize) -> Result<(), Failure> {
        let keys: Vec<Vec<u8>> = (0..self.shared.keys).map(|k| key(client, k)).collect();
        self.observe(space, Some(client), None, |known| {
            let values = known.keyspace.multi_get(&keys)?;
            Ok(found(keys.iter().zip(values)))
        })
    }

    /// Reads and checks the answer.
    fn observe(
        &self,
        space: Space,
        client: Option<usize>,
        key: Option<u8>,
        read: impl FnOnce(&Known) -> Result<Entries, ReadError>,
    ) -> Result<(), Failure> {
        let Some(known) = self.space(space) else { return Ok(()) };
        let within = Within { spaces: Spaces::One(known.life), client, key };
        let failures = self.shared.disk.failures();
        let began = self.shared.oracle().stamp();
        let entries = match read(&known) {
            Ok(entries) => entries,
            Err(error) => {
                return self.shared.excuse_in([known.life].into_iter(), "a read", &error, Some(failures));
            }
        };
        let mut oracle = self.shared.oracle();
        let ended = oracle.stamp();
        oracle.check(&seen(known.life, entries), &within, began, ended).map(drop)
    }

    /// Checks that an iterator shows the state at its creation.
    pub(super) fn scan(&self, space: Space, client: Option<usize>, reverse: bool) -> Result<(), Failure> {
        let Some(known) = self.space(space) else { return Ok(()) };
        let within = Within { spaces: Spaces::One(known.life), client, key: None };
        let failures = self.shared.disk.failures();
        let began = self.shared.oracle().stamp();
        let iterator: Iter = match client {
            Some(client) => known.keyspace.prefix(&key(client, 0)[..2]),
            None => known.keyspace.iter(),
        };
        let ended = self.shared.oracle().stamp();
        match collect(iterator, reverse) {
            Ok(entries) => {
                let seen = seen(known.life, entries?);
                self.shared.oracle().check(&seen, &within, began, ended).map(drop)
            }
            Err(error) => {
                self.shared.excuse_in([known.life].into_iter(), "an iterator", &error, Some(failures))
            }
        }
    }

    pub(super) fn pin(&self, pinned: &mut VecDeque<Pinned>) {
        if pinned.len() == MOST_SNAPSHOTS {
            pinned.pop_front();
        }
        let began = self.shared.oracle().stamp();
        let snapshot = self.db.snapshot();
        let mut oracle = self.shared.oracle();
        let ended = oracle.stamp();
        pinned.push_back(Pinned { snapshot, known: oracle.window(began, ended) });
    }

    pub(super) fn read_snapshot(&self, pinned: &mut Pinned, reverse: bool) -> Result<(), Failure> {
        let failures = self.shared.disk.failures();
        let all = match fixed_at(&self.db, &pinned.snapshot, reverse) {
            Ok(all) => all?,
            Err(error) => return self.shared.excuse("a snapshot", &error, Some(failures)),
        };
        let checked = self.shared.oracle().check_further(&all, &Within::FIXED, &pinned.known);
        pinned.known = checked.map_err(|what| format!("at the snapshot: {what}"))?;
        Ok(())
    }
}

/// Reads the keyspaces that are never dropped at a snapshot.
pub fn fixed_at(db: &Db, snapshot: &Snapshot, reverse: bool) -> Result<Result<Seen, Failure>, ReadError> {
    let mut all = Seen::new();
    for space in 0..FIXED_SPACES {
        // The second one may not exist yet.
        let Ok(keyspace) = db.keyspace(&name_of(space)) else { continue };
        let keyspace = snapshot.keyspace(&keyspace);
        let entries = match collect(keyspace.iter(), reverse)? {
            Ok(entries) => entries,
            Err(what) => return Ok(Err(what)),
        };
        for (key, value) in &entries {
            if keyspace.get(key)?.as_deref() != Some(value) {
                return Ok(Err(format!("a get and an iterator differ at a snapshot: {key:?}")));
            }
        }
        all.extend(seen(Life::fixed(space), entries));
    }
    Ok(Ok(all))
}
