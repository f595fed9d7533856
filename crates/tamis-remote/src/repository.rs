//! A repository: states, and the objects that they name.
//!
//! # Layout
//!
//! ```text
//! URL/
//! ├─ states/00000000000000000042.json      a state: which objects make up the database at one moment. Created once, never replaced
//! ├─ files/SESSION/HASH-LENGTH             a file that never changes
//! ├─ parts/SESSION/NAME-OFFSET-HASH        a stretch of a log or a manifest
//! ├─ lists/SESSION/HASH                    entries that many states have in common
//! ├─ sessions/SESSION                      an upload is under way; refreshed while it lives
//! ├─ latest                                a hint where to look for the newest state
//! └─ clock/…                               written and looked at to learn the store's time
//! ```
//!
//! # Invariants
//!
//! 1. A state is written after everything that it names. Its number is the one after the newest
//!    state's; a conditional put decides between two who want the same number.
//! 2. The newest state is never removed, nor anything that it names. So a new state may name what
//!    the newest names.
//! 3. What else a new state names was sent by its own session, whose objects are not removed while
//!    the session lives: its object in `sessions/` is younger than [`SESSION_LIFE`](crate::backup)
//!    by the store's clock.
//! 4. Two sessions never use one name. So the removal of an object, however late it takes effect,
//!    can never hit what a later session has sent. This is why names have the session beside the
//!    hash: with the hash alone, an object could be found there, counted on, and be gone a moment
//!    later.
//!
//! # Threads
//!
//! Any number of processes may read. A repository belongs to one copy of a database; several
//! processes may write states of that copy (they see each other by invariant 1), and prune at any
//! time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use object_store::ObjectStore;
use object_store::path::Path;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::hash::ContentHash;
use crate::parallel::locked;
use crate::state::{self, FileEntry, Piece, State, number_in, object_name};
use crate::store::{Requests, Store, Transfer};

/// A place for backups. Clones share it.
#[derive(Clone, Debug)]
pub struct Repository {
    pub(crate) store: Store,
    /// Lists that were read or written, by their objects' names.
    lists: Arc<Mutex<HashMap<String, Arc<Vec<FileEntry>>>>>,
}

/// A state in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listing {
    /// Its number.
    pub number: u64,
    /// When it was written, by the store's clock.
    pub written: SystemTime,
}

/// Which state is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Which {
    /// The newest.
    Latest,
    /// That of a number.
    Number(u64),
    /// The newest that was written at or before a time, by the store's clock.
    At(SystemTime),
}

/// A hint is a number.
const LONGEST_HINT: u64 = 1024;

/// More lists than this are not kept in memory.
const LISTS_KEPT: usize = 4096;

#[derive(Serialize, Deserialize)]
struct Latest {
    number: u64,
}

impl Repository {
    /// Opens a repository: a directory's path, `file://`, `memory://`, or, with cargo features,
    /// `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`.
    ///
    /// # Errors
    ///
    /// When the address is not understood, or the store's settings are not complete. Nothing is
    /// asked yet.
    pub fn open(url: &str, transfer: Transfer) -> Result<Repository, Error> {
        let (store, prefix) = crate::location::open(url, transfer.timeout)?;
        Ok(Repository::with_prefix(store, prefix, transfer))
    }

    /// Opens a repository in a store that the program has set up itself.
    pub fn with_store(store: Arc<dyn ObjectStore>, prefix: &str, transfer: Transfer) -> Repository {
        Repository::with_prefix(store, Path::from(prefix), transfer)
    }

    fn with_prefix(store: Arc<dyn ObjectStore>, prefix: Path, transfer: Transfer) -> Repository {
        Repository { store: Store::new(store, prefix, transfer), lists: Arc::default() }
    }

    /// Returns the requests that were made so far.
    pub fn requests(&self) -> Requests {
        self.store.requests()
    }

    /// Lists all states, the oldest first.
    ///
    /// # Errors
    ///
    /// When the store cannot be reached.
    pub fn states(&self) -> Result<Vec<Listing>, Error> {
        self.states_after(0)
    }

    /// Lists states of higher numbers.
    pub(crate) fn states_after(&self, number: u64) -> Result<Vec<Listing>, Error> {
        let after = (number > 0).then(|| object_name(number));
        let objects = self.store.list("states", after.as_deref())?;
        let listing = |object: crate::store::Listed| {
            Some(Listing { number: number_in(&object.name)?, written: object.modified })
        };
        let mut states: Vec<_> = objects.into_iter().filter_map(listing).collect();
        states.sort_unstable_by_key(|state| state.number);
        Ok(states)
    }

    /// Reads a state.
    ///
    /// # Errors
    ///
    /// When there is none of this number, or it is damaged.
    pub fn state(&self, number: u64) -> Result<State, Error> {
        self.state_if_there(number)?.ok_or_else(|| Error::NoState { what: format!("state {number}") })
    }

    /// Reads a state if there is one of this number: one request, and one for each list that was
    /// not read before.
    pub(crate) fn state_if_there(&self, number: u64) -> Result<Option<State>, Error> {
        let Some(bytes) = self.store.get_if_there(&object_name(number), state::LONGEST_DOCUMENT)? else {
            return Ok(None);
        };
        state::from_bytes(number, &bytes, |piece| self.list(piece)).map(Some)
    }

    /// Finds a state. Damaged ones are passed over, with a warning in the log, unless one is asked
    /// for by its number.
    ///
    /// # Errors
    ///
    /// When there is none, or the one of this number is damaged.
    pub fn find(&self, which: Which) -> Result<State, Error> {
        let (state, passed_over) = self.find_readable(which)?;
        passed_over.iter().for_each(|error| log::warn!("a state is passed over: {error}"));
        Ok(state)
    }

    /// Finds a state as [`find`](Self::find) does, and returns what is wrong with each newer one
    /// that was passed over.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    pub fn find_readable(&self, which: Which) -> Result<(State, Vec<Error>), Error> {
        let (latest, what) = match which {
            Which::Number(number) => return Ok((self.state(number)?, Vec::new())),
            Which::Latest => (None, "state"),
            Which::At(time) => (Some(time), "state of that time or before"),
        };
        if latest.is_none() {
            // Without a listing of all, in nearly every case.
            match self.newest() {
                Err(error) if error.is_damage() => {}
                newest => {
                    return newest?
                        .map(|state| (state, Vec::new()))
                        .ok_or(Error::NoState { what: what.into() });
                }
            }
        }
        let mut passed_over = Vec::new();
        for listing in
            self.states()?.iter().rev().filter(|state| latest.is_none_or(|time| state.written <= time))
        {
            match self.state_if_there(listing.number) {
                Ok(Some(state)) => return Ok((state, passed_over)),
                Ok(None) => {}
                Err(error) if error.is_damage() => passed_over.push(error),
                Err(error) => return Err(error),
            }
        }
        Err(passed_over.into_iter().next().unwrap_or(Error::NoState { what: what.into() }))
    }

    /// Reads the newest state.
    pub(crate) fn newest(&self) -> Result<Option<State>, Error> {
        // It may be removed between the listing and the reading, as there is a newer one.
        for _ in 0..10 {
            let Some(number) = self.newest_number()? else { return Ok(None) };
            if let Some(state) = self.state_if_there(number)? {
                return Ok(Some(state));
            }
        }
        Err(Error::NoState { what: "state that stays long enough to be read".into() })
    }

    /// Looks for the newest state where the hint says, or everywhere.
    pub(crate) fn newest_number(&self) -> Result<Option<u64>, Error> {
        let hint = match self.store.get_if_there("latest", LONGEST_HINT) {
            // It is anything but a hint.
            Err(Error::Damaged { .. }) => None,
            hint => hint?,
        };
        let hint = hint.and_then(|bytes| serde_json::from_slice::<Latest>(&bytes).ok());
        if let Some(Latest { number: number @ 1.. }) = hint
            && let Some(newest) = self.states_after(number - 1)?.last()
        {
            return Ok(Some(newest.number));
        }
        Ok(self.states()?.last().map(|state| state.number))
    }

    /// Says where the newest state is to be looked for. Only a hint: one that is older, or wrong,
    /// costs requests.
    pub(crate) fn hint(&self, number: u64) -> Result<(), Error> {
        let bytes =
            serde_json::to_vec(&Latest { number }).map_err(|error| Error::damaged("latest", error))?;
        self.store.put("latest", bytes.into())
    }

    /// Returns the store's time, by a small object of its own for each who asks.
    pub(crate) fn now(&self, who: &str) -> Result<SystemTime, Error> {
        let name = format!("clock/{who}");
        self.store.put(&name, bytes::Bytes::from_static(b"{}"))?;
        let written = self.store.head(&name)?;
        written.map(|object| object.modified).ok_or(Error::Gone { object: name })
    }

    /// Reads a list, or returns it from memory.
    fn list(&self, piece: &Piece) -> Result<Vec<FileEntry>, Error> {
        if let Some(list) = locked(&self.lists).get(&piece.object) {
            return Ok(list.to_vec());
        }
        let bytes = self.store.get(&piece.object, piece.len)?;
        if bytes.len() as u64 != piece.len || ContentHash::of(&bytes) != piece.hash {
            return Err(Error::damaged(&piece.object, "its contents are not those that were written"));
        }
        let list = state::list_from_bytes(&piece.object, &bytes)?;
        self.remember(&piece.object, &list);
        Ok(list)
    }

    pub(crate) fn remember(&self, object: &str, list: &[FileEntry]) {
        let mut lists = locked(&self.lists);
        if lists.len() >= LISTS_KEPT {
            lists.clear();
        }
        lists.insert(object.to_owned(), Arc::new(list.to_vec()));
    }
}
