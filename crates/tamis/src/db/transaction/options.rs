//! How a transaction is isolated, and how it commits.

use crate::options::Durability;

/// What a transaction's commit is validated against. `docs/transactions.md` says which anomalies
/// each level admits.
///
/// Under both, all reads are from one snapshot: no transaction ever sees another one's writes in
/// part, or before they are committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isolation {
    /// Snapshot isolation. The commit conflicts if somebody else has written a key, or a key of a
    /// deleted range, that the transaction *writes*: the first committer wins, and no update is
    /// lost. Reads are not validated, so two transactions that each read what the other one writes
    /// may both commit (write skew).
    Snapshot,
    /// The commit conflicts if somebody else has written what the transaction has *read*: a key,
    /// the absence of a key, or a part of a range, up to where its iterators came. Transactions of
    /// this level have the same outcome as one after the other, in the order of their commits. A
    /// key that is only written does not conflict.
    #[default]
    Serializable,
}

/// The options of one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionOptions {
    /// What the commit is validated against.
    pub isolation: Isolation,
    /// When the commit survives a power cut; `None`: as the database's option says.
    pub durability: Option<Durability>,
    /// How often [`Db::transact`](crate::Db::transact) tries before it returns the last conflict;
    /// at least once.
    pub attempts: u32,
}

impl Default for TransactionOptions {
    /// Serializable, with the database's durability and up to 100 attempts.
    fn default() -> TransactionOptions {
        TransactionOptions { isolation: Isolation::Serializable, durability: None, attempts: 100 }
    }
}
