//! How a transaction is isolated, and how it commits.

use crate::options::Durability;

/// What a transaction's commit is validated against. `docs/transactions.md` says which anomalies
/// each level admits.
///
/// At both levels, all reads are from one snapshot: a transaction never sees another one's writes
/// in part, or before they are committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isolation {
    /// Snapshot isolation. The commit conflicts if somebody else has written a key that the
    /// transaction *writes*, or a key in a range that it deletes: the first committer wins, and no
    /// update is lost. Reads are not validated, so two transactions that each read what the other
    /// one writes may both commit (write skew).
    Snapshot,
    /// The commit conflicts if somebody else has written what the transaction has *read*: a key,
    /// the absence of a key, or the part of a range that its iterators covered. The outcome is as
    /// if the transactions of this level had run one after another, in the order of their commits.
    /// A key that is only written does not conflict.
    #[default]
    Serializable,
}

/// The options of one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionOptions {
    /// What the commit is validated against.
    pub isolation: Isolation,
    /// When the commit survives a power failure; `None`: the database's option applies.
    pub durability: Option<Durability>,
    /// How many times [`Db::transact`](crate::Db::transact) tries before it returns the last
    /// conflict; at least once.
    pub attempts: u32,
}

impl Default for TransactionOptions {
    /// Serializable, with the database's durability and up to 100 attempts.
    fn default() -> TransactionOptions {
        TransactionOptions { isolation: Isolation::Serializable, durability: None, attempts: 100 }
    }
}
