//! Optimistic transactions: reads from a snapshot, writes kept aside, and a commit that succeeds
//! unless somebody else has meanwhile written what the transaction depends on.
//!
//! # The parts
//!
//! * A transaction reads from its own snapshot, through its pending writes
//!   ([`Pending`](crate::read::pending::Pending)).
//! * What it reads is noted if the commit will validate it ([`reads`]).
//! * Its commit is one batch with a [`condition`], which the leader of its group judges against the
//!   [`footprint`].
//! * [`history`](crate::db::history) keeps what the judgement needs while the transaction is open.
//!
//! # Why serializable transactions are serializable
//!
//! When a transaction's place in the order of all writes is fixed, everything that it read is still
//! as it was in its snapshot. So it could have run as a whole at that place. A transaction without
//! writes could have run as a whole at its snapshot, and is not validated.
//!
//! # Threads
//!
//! A transaction belongs to one thread at a time: it can be sent, not shared. Other threads may use
//! its iterators, which end with it. It holds no lock between calls.

pub(crate) mod bugs;
pub(crate) mod condition;
pub(crate) mod footprint;
pub(crate) mod judge;
mod lock_transaction;
pub(crate) mod locks;
#[cfg(all(test, loom))]
mod model;
pub(crate) mod optimistic;
mod options;
pub(crate) mod prepared;
pub(crate) mod prepared_names;
mod reads;
mod savepoint;
pub(crate) mod transact;
mod view;
mod writes;

pub use lock_transaction::{LockOptions, LockTransaction};
pub use options::{Isolation, TransactionOptions};
pub use prepared::PreparedTransaction;
pub use savepoint::Savepoint;
pub use view::TransactionView;

#[cfg(test)]
mod tests;
