//! The condition under which a batch commits: nobody else has written what its transaction depends
//! on.
//!
//! # Why validation and order are one step
//!
//! A group's leader holds the log's lock from before it judges the first member until the group is
//! visible. So between the judgement of a batch and its place in the order of all writes there is
//! nothing but the members of the group before it, and these are compared too. Whatever was
//! assigned a sequence number earlier is in the memtables by then, or was kept from them
//! ([`history`](crate::db::history)).
//!
//! A batch that is refused leaves the group as if it had never joined; the others commit.
//!
//! # Costs
//!
//! A plain batch has no condition, and its writer tests for that once. A condition costs nothing
//! more if nothing at all was committed since its transaction began; otherwise a probe of the
//! memtables' filters for each key.

use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;
use tamis_base::key::SeqNo;

use crate::batch::WriteBatch;
use crate::db::inner::DbInner;
use crate::db::transaction::bugs::Bug;
use crate::db::transaction::footprint::{Part, met_by};
use crate::error::{TransactionError, WriteError};

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Condition {
    parts: SmallVec<[Part; 1]>,
    /// Set by the leader; valid if the group was committed.
    verdict: OnceLock<Result<SeqNo, Refusal>>,
}

/// Why a batch did not commit.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// Somebody else has written `key`.
    Conflict { keyspace: String, key: Vec<u8> },
    /// It is not known any more what was written since the transaction began.
    Forgotten { keyspace: String },
    /// The keyspace was dropped.
    Dropped { name: String },
}

impl From<Refusal> for TransactionError {
    fn from(refusal: Refusal) -> TransactionError {
        match refusal {
            Refusal::Conflict { keyspace, key } => TransactionError::Conflict { keyspace, key },
            Refusal::Forgotten { keyspace } => TransactionError::TooOld { keyspace },
            Refusal::Dropped { name } => WriteError::Dropped { name }.into(),
        }
    }
}

impl Condition {
    pub(crate) fn new(parts: SmallVec<[Part; 1]>) -> Condition {
        Condition { parts, verdict: OnceLock::new() }
    }

    /// Returns the verdict of a group that was committed: the sequence number of the batch's last
    /// write.
    pub(crate) fn verdict(&self) -> Result<SeqNo, Refusal> {
        self.verdict.get().cloned().expect("the leader judges every condition")
    }
}

impl DbInner {
    /// Commits a batch if its condition holds. Returns the sequence number of its last write.
    pub(crate) fn write_if(
        &self,
        batch: WriteBatch,
        sync: bool,
        mut condition: Condition,
    ) -> Result<SeqNo, TransactionError> {
        debug_assert!(!batch.is_empty(), "a batch without writes is not judged");
        if condition.parts.iter().any(Part::has_ranges) {
            self.judge_ahead(&mut condition).inspect_err(|_| self.write_counters.conflicts.add(1))?;
        }
        let condition = Arc::new(condition);
        self.commit(batch, sync, Some(&condition))?;
        condition.verdict().map_err(TransactionError::from)
    }

    /// Judges what is committed by now without any lock: ranges may take a while. Only later writes
    /// are left for the leader.
    fn judge_ahead(&self, condition: &mut Condition) -> Result<(), Refusal> {
        // The number before the views: whatever is at or below it is in a memtable that the view
        // has, or had.
        let seen = self.visible();
        for part in condition.parts.iter_mut().filter(|part| part.since < seen) {
            self.judge_part(part)?;
            part.since = seen;
        }
        Ok(())
    }

    /// Reports whether the condition of a member of a group holds, and notes the verdict. `last` is
    /// the last write assigned, `ahead` are the members before it that commit, and `seq` is the
    /// number that its own last write would get. For the holder of the log's lock.
    pub(crate) fn judge(
        &self,
        condition: &Condition,
        last: SeqNo,
        ahead: &[&WriteBatch],
        seq: SeqNo,
    ) -> bool {
        let judged = self.judged(condition, last, ahead);
        let holds = judged.is_ok();
        if !holds {
            self.write_counters.conflicts.add(1);
        }
        let first = condition.verdict.set(judged.map(|()| seq));
        debug_assert!(first.is_ok(), "a condition is judged once");
        holds || self.history.bugs.make(Bug::Refused)
    }

    fn judged(&self, condition: &Condition, last: SeqNo, ahead: &[&WriteBatch]) -> Result<(), Refusal> {
        let dropped =
            condition.parts.iter().map(|part| &part.keyspace).find(|keyspace| keyspace.is_dropped());
        if let Some(keyspace) = dropped {
            return Err(Refusal::Dropped { name: keyspace.name().to_owned() });
        }
        let ahead = if self.history.bugs.make(Bug::Ahead) { &[] } else { ahead };
        let met = ahead.iter().find_map(|batch| met_by(&condition.parts, batch));
        if let Some((part, key)) = met {
            return Err(conflict(part, key));
        }
        condition.parts.iter().filter(|part| part.since < last).try_for_each(|part| self.judge_part(part))
    }

    fn judge_part(&self, part: &Part) -> Result<(), Refusal> {
        if part.is_empty() {
            return Ok(());
        }
        // The view before the history: see there.
        let view = part.keyspace.view.load();
        if part.keyspace.is_dropped() {
            return Err(Refusal::Dropped { name: part.keyspace.name().to_owned() });
        }
        let mut met = view.memtables.iter().find_map(|slot| part.meets_memtable(&slot.memtable));
        if met.is_none() {
            let ingested = |range: &_, seq| {
                if met.is_none() {
                    met = part.meets_ingested(range, seq);
                }
            };
            let kept = self.history.since(part.keyspace.id, part.since, ingested);
            let forgotten = || Refusal::Forgotten { keyspace: part.keyspace.name().to_owned() };
            let kept = kept.ok_or_else(forgotten)?;
            met = met.or_else(|| kept.iter().find_map(|slot| part.meets_memtable(&slot.memtable)));
        }
        met.map_or(Ok(()), |key| Err(conflict(part, key)))
    }
}

fn conflict(part: &Part, key: Vec<u8>) -> Refusal {
    Refusal::Conflict { keyspace: part.keyspace.name().to_owned(), key }
}
