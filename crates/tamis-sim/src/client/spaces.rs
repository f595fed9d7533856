//! Keyspaces that come and go.

use super::contents::{name_of, space_of};
use super::{Client, Failure, Known};
use crate::oracle::FIXED_SPACES;
use crate::plan::{Change, Space};

/// One in so many new keyspaces gets a key at once.
const ONE_IN: Space = 3;

impl Client {
    /// Creates those of some keyspaces that do not exist.
    pub(super) fn create_spaces(&self, from: Space, count: u16) -> Result<(), Failure> {
        for space in from..from + count {
            self.shared.machine.renew();
            let begun = self.shared.oracle().begin_creation(space);
            let Some(life) = begun else { continue };
            let options = self.shared.others[usize::from(space) % self.shared.others.len()].clone();
            let created = self.db.create_keyspace(&name_of(space), options);
            self.shared.oracle().created(life, created.is_ok());
            match created {
                Ok(keyspace) => _ = self.shared.spaces().insert(space, Known { keyspace, life }),
                Err(error) => return self.shared.excuse("creating a keyspace", &error, None),
            }
            if space % ONE_IN == 0 {
                self.write(&[Change::Put { space, key: 0, len: 60 }], false)?;
            }
        }
        Ok(())
    }

    /// Drops those of some keyspaces that exist.
    pub(super) fn drop_spaces(&self, from: Space, count: u16) -> Result<(), Failure> {
        for space in from..from + count {
            self.shared.machine.renew();
            let begun = self.shared.oracle().begin_drop(space);
            let Some(life) = begun else { continue };
            let dropped = self.db.drop_keyspace(&name_of(space));
            // No other client can have created it again before this.
            if dropped.is_ok() {
                self.shared.spaces().remove(&space);
            }
            self.shared.oracle().dropped(life, dropped.is_ok());
            if let Err(error) = dropped {
                return self.shared.excuse("dropping a keyspace", &error, None);
            }
        }
        Ok(())
    }

    /// Lists the keyspaces.
    pub(super) fn list_spaces(&self) -> Result<(), Failure> {
        let began = self.shared.oracle().stamp();
        let names = self.db.keyspaces();
        let ended = self.shared.oracle().stamp();
        let spaces = names.iter().filter_map(|name| space_of(name)).filter(|space| *space >= FIXED_SPACES);
        self.shared.oracle().check_spaces(spaces.collect(), began, ended)
    }
}
