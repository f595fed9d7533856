//! Transactions. Those that lock are in [`lock_transaction`], and prepared ones in [`prepared`];
//! this is about optimistic ones: reads from a snapshot, writes kept aside, and a commit that
//! succeeds unless somebody else has meanwhile written what the transaction depends on.
//!
//! # The parts
//!
//! * A transaction reads from its own snapshot, through its pending writes
//!   ([`Pending`](crate::read::pending::Pending)).
//! * What it reads is noted if the commit will validate it ([`reads`]).
//! * Its commit is one batch with a [`condition`](crate::conflicts::condition), which the leader of
//!   its group judges against the [`footprint`](crate::conflicts::footprint).
//! * [`history`](crate::conflicts::history) keeps what the judgement needs while the transaction is
//!   open.
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

pub(crate) mod lock_transaction;
#[cfg(all(test, loom))]
mod model;
pub(crate) mod optimistic;
pub(crate) mod options;
pub(crate) mod prepared;
pub(crate) mod reads;
pub(crate) mod savepoint;
pub(crate) mod transact;
pub(crate) mod writes;

#[cfg(test)]
mod tests;
