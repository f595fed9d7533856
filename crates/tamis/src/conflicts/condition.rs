//! The condition under which a batch commits: nobody else has written what its transaction depends
//! on.
//!
//! # Why validation and order are one step
//!
//! A group's leader holds the log lock from before it judges the first member until the group is
//! visible. So only earlier members of the group can come between the judgement of a batch and its
//! place in the order of all writes, and the judgement compares these, too. Any write that got a
//! sequence number earlier is in the memtables by then, or was kept from them
//! ([`history`](crate::conflicts::history)).
//!
//! A refused batch leaves the group as if it had never joined; the others commit.
//!
//! # Costs
//!
//! A plain batch has no condition; its writer tests for that once. A condition costs nothing more
//! if nothing at all was committed since its transaction began; otherwise, for each key, a probe of
//! the memtables' filters.

use std::sync::OnceLock;

use smallvec::SmallVec;
use tamis_base::key::SeqNo;

use crate::conflicts::footprint::KeyspaceFootprint;
use crate::error::{TransactionError, WriteError};

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Condition {
    pub(crate) parts: SmallVec<[KeyspaceFootprint; 1]>,
    /// Set by the leader; valid if the group was committed.
    pub(crate) verdict: OnceLock<Result<SeqNo, Refusal>>,
}

/// Why a batch did not commit.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// Somebody else has written `key`.
    Conflict { keyspace: String, key: Vec<u8> },
    /// What was written since the transaction began is no longer known.
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
    pub(crate) fn new(parts: SmallVec<[KeyspaceFootprint; 1]>) -> Condition {
        Condition { parts, verdict: OnceLock::new() }
    }

    /// Returns the verdict, once the group was committed: the sequence number of the batch's last
    /// write.
    pub(crate) fn verdict(&self) -> Result<SeqNo, Refusal> {
        self.verdict.get().cloned().expect("the leader judges every condition")
    }
}
