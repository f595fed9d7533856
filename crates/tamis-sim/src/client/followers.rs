//! Followers of the database, as another process would have them.

use std::time::Duration;

use tamis::{Db, OpenError, Options};

use super::contents::everything;
use super::reads::fixed_at;
use super::{Client, Failure};
use crate::oracle::{Stamp, Within};

/// How often some followers catch up by themselves.
const INTERVAL: Duration = Duration::from_millis(20);

/// An open follower.
pub struct Followed {
    db: Db,
    by_itself: bool,
    /// When it began to catch up for the last time.
    since: Stamp,
}

impl Client {
    /// Opens a follower or lets it catch up. Then it shows a state that the writer has had since the
    /// call began.
    pub(super) fn follow(&self, follower: &mut Option<Followed>, by_itself: bool) -> Result<(), Failure> {
        let began = self.shared.oracle().stamp();
        let opened = match follower {
            Some(followed) => followed.db.catch_up().map(drop),
            None => {
                let options =
                    Options { follow_interval: by_itself.then_some(INTERVAL), ..self.shared.options.clone() };
                let opened = options.open_follower(self.db.path());
                opened.map(|db| *follower = Some(Followed { db, by_itself, since: began }))
            }
        };
        let ended = self.shared.oracle().stamp();
        match (opened, follower) {
            (Ok(()), Some(followed)) => {
                followed.since = began;
                self.look_at(followed, ended)
            }
            // A thread that is not scheduled for long misses every state of the files.
            (Err(OpenError::Changing { .. }), _) | (Ok(()), None) => Ok(()),
            (Err(error), _) => self.shared.excuse("a follower", &error, None),
        }
    }

    fn look_at(&self, followed: &Followed, ended: Stamp) -> Result<(), Failure> {
        let checked = if followed.by_itself {
            let snapshot = followed.db.snapshot();
            let ended = self.shared.oracle().stamp();
            match fixed_at(&followed.db, &snapshot, false) {
                Ok(seen) => {
                    let oracle = self.shared.oracle();
                    oracle.check_files_within(&seen?, &Within::FIXED, followed.since, ended)
                }
                Err(error) => return self.shared.excuse("a follower's read", &error, None),
            }
        } else {
            match everything(&followed.db) {
                Ok(contents) => self.shared.oracle().check_files(&contents?, followed.since, ended),
                Err(error) => return self.shared.excuse("a follower's read", &error, None),
            }
        };
        checked.map_err(|what| format!("a follower: {what}"))
    }
}
