//! Named consumers of the change feed: readers whose position the database stores and whose logs it
//! keeps.
//!
//! A consumer is one entry in a hidden keyspace: its name, and as a varint the sequence number up
//! to which it has acknowledged changes. So an acknowledgement costs a put, and is as durable as
//! one. Opening the database reads the positions before it releases any log
//! ([`retained`](crate::log)).
//!
//! # Locks
//!
//! One mutex serializes changes to the list of consumers, each with its entry. It is taken before
//! every lock of the database.

use tamis_base::key::SeqNo;
use tamis_files::codec::{Decoder, Encode};

use crate::batch::WriteBatch;
use crate::catalogue::keyspace::CONSUMERS_KEYSPACE;
use crate::error::{ChangesError, ReadError, StorageError, WriteError};
use crate::handles::changes::Changes;
use crate::handles::handle::{Db, Keyspace};

/// The maximum length of a consumer's name, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// A named reader of the change feed. The database stores its position and keeps the logs that it
/// has yet to read (up to [`changes_max_bytes`](crate::Options::changes_max_bytes)), across
/// openings. [`Db::change_consumer`] creates it, or finds it if it exists.
///
/// Changes are delivered at least once: after a crash, changes whose acknowledgement was not
/// durable are delivered again.
#[derive(Clone, Debug)]
pub struct Consumer {
    db: Db,
    name: String,
}

impl Consumer {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the last acknowledged sequence number. Before any acknowledgement, that is the
    /// number of the last write before the consumer was created.
    ///
    /// # Errors
    ///
    /// [`ChangesError::NoConsumer`] if it was dropped.
    pub fn position(&self) -> Result<u64, ChangesError> {
        self.db.check_process()?;
        self.db.handle().inner.state().logs.consumer(&self.name).ok_or_else(|| self.gone())
    }

    /// Returns a reader of the changes not yet acknowledged.
    ///
    /// # Errors
    ///
    /// [`ChangesError::NoConsumer`], and those of [`Db::changes`].
    pub fn changes(&self) -> Result<Changes, ChangesError> {
        self.db.changes(self.position()?)
    }

    /// Acknowledges all changes up to the sequence number `seq`: they will not be delivered again,
    /// and their logs need not be kept. Numbers already acknowledged, and numbers that no write has
    /// yet, have no further effect. Costs a put.
    ///
    /// # Errors
    ///
    /// [`ChangesError::NoConsumer`] if it was dropped, and those of [`Db::put`].
    pub fn acknowledge(&self, seq: u64) -> Result<(), ChangesError> {
        let inner = &self.db.handle().inner;
        let _one = inner.log.consumers.lock();
        let seq = seq.min(inner.visible());
        if seq <= self.position()? {
            return Ok(());
        }
        let keyspace = self.db.hidden_keyspace(CONSUMERS_KEYSPACE).ok_or_else(|| self.gone())?;
        self.db.write_position(&keyspace, &self.name, seq, false)?;
        let mut state = inner.state();
        // Only after the write, so that `visible()` is at least the write's number.
        state.logs.acknowledge(&self.name, seq, inner.visible());
        let any = inner.log.expire(&mut state.logs, inner.now());
        drop(state);
        if any {
            inner.log.remove_obsolete();
        }
        Ok(())
    }

    fn gone(&self) -> ChangesError {
        ChangesError::NoConsumer { name: self.name.clone() }
    }
}

impl Db {
    /// Returns the consumer of this name. If there is none, creates it durably; its first change
    /// will be the next write.
    ///
    /// To start from the current contents, create the consumer, then take a snapshot, copy it, and
    /// acknowledge [its number](crate::Snapshot::seq).
    ///
    /// # Errors
    ///
    /// [`ChangesError::BadName`] for a name that is empty, longer than 255 bytes or has control
    /// characters; [`ChangesError::Storage`] if the consumers' positions could not be read when the
    /// database was opened, so that this may be one of them; those of [`Db::put`].
    pub fn change_consumer(&self, name: &str) -> Result<Consumer, ChangesError> {
        self.check_process()?;
        if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
            return Err(ChangesError::BadName { name: name.to_owned() });
        }
        let inner = &self.handle().inner;
        let consumer = Consumer { db: self.clone(), name: name.to_owned() };
        let _one = inner.log.consumers.lock();
        {
            let state = inner.state();
            if state.logs.consumer(name).is_some() {
                return Ok(consumer);
            }
            if let Some(error) = state.logs.unknown_consumers() {
                return Err(error.clone().into());
            }
        }
        inner.check_ready()?;
        let keyspace = self.create_hidden_keyspace(CONSUMERS_KEYSPACE)?;
        // From now on, logs are kept for it.
        let position = {
            let mut state = inner.state();
            let position = inner.visible();
            state.logs.add_consumer(name, position);
            position
        };
        let written = self.write_position(&keyspace, name, position, true);
        written.inspect_err(|_| _ = inner.state().logs.remove_consumer(name))?;
        Ok(consumer)
    }

    /// Forgets the consumer of this name and releases the logs kept only for it; `false` if there
    /// is none.
    ///
    /// # Errors
    ///
    /// Those of [`Db::delete`].
    pub fn drop_change_consumer(&self, name: &str) -> Result<bool, ChangesError> {
        self.check_process()?;
        let inner = &self.handle().inner;
        let _one = inner.log.consumers.lock();
        {
            let state = inner.state();
            if state.logs.consumer(name).is_none() {
                let unknown = state.logs.unknown_consumers().cloned();
                return unknown.map_or(Ok(false), |error| Err(error.into()));
            }
        }
        if let Some(keyspace) = self.hidden_keyspace(CONSUMERS_KEYSPACE) {
            let mut batch = WriteBatch::new();
            batch.delete_in(&keyspace, name);
            inner.write(batch, true)?;
        }
        let mut state = inner.state();
        state.logs.remove_consumer(name);
        inner.log.expire(&mut state.logs, inner.now());
        drop(state);
        inner.log.remove_obsolete();
        Ok(true)
    }

    fn write_position(
        &self,
        keyspace: &Keyspace,
        name: &str,
        position: SeqNo,
        sync: bool,
    ) -> Result<(), WriteError> {
        let mut value = Vec::new();
        value.put_varint(position);
        let mut batch = WriteBatch::new();
        batch.put_in(keyspace, name, value);
        self.handle().inner.write(batch, sync)
    }

    /// Reads the consumers' positions, then releases the logs that nobody needs. If the positions
    /// cannot be read, all logs are kept. Called at opening, before background work begins.
    pub(crate) fn load_consumers(&self) {
        let inner = &self.handle().inner;
        let Some(keyspace) = self.hidden_keyspace(CONSUMERS_KEYSPACE) else { return };
        let (mut found, mut failed) = (Vec::new(), None);
        for item in keyspace.iter() {
            match item.and_then(|(name, value)| self.decode_position(&name, &value)) {
                Ok(consumer) => found.push(consumer),
                Err(error) => {
                    inner.warn(format!(
                        "a consumer of changes cannot be read, and all logs are kept: {error}"
                    ));
                    failed = Some(match error {
                        ReadError::Storage(error) => error,
                        other => StorageError::corrupt(self.path(), None, other.to_string()),
                    });
                }
            }
        }
        let mut state = inner.state();
        for (name, position) in found {
            state.logs.add_consumer(&name, position);
        }
        if let Some(error) = failed {
            state.logs.keep_all(error);
        }
        inner.log.expire(&mut state.logs, inner.now());
        drop(state);
        inner.log.remove_obsolete();
    }

    fn decode_position(&self, name: &[u8], value: &[u8]) -> Result<(String, SeqNo), ReadError> {
        let mut decoder = Decoder::new(value);
        let position = decoder.varint().filter(|_| decoder.is_empty());
        let name = std::str::from_utf8(name).ok().filter(|name| !name.is_empty());
        match (name, position) {
            (Some(name), Some(position)) => Ok((name.to_owned(), position)),
            _ => {
                let what = "the position of a consumer cannot be understood";
                Err(StorageError::corrupt(self.path(), None, what).into())
            }
        }
    }
}
