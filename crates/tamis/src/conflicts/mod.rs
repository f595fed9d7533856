//! What transactions are judged by: what they read and wrote, what was committed meanwhile, and the
//! locks of transactions that lock.
//!
//! Each part has its own mutex, and knows nothing of an open database. `judge` in
//! [`write`](crate::write) brings them together while it holds the log.

pub(crate) mod bugs;
pub(crate) mod condition;
pub(crate) mod footprint;
pub(crate) mod history;
pub(crate) mod locks;
pub(crate) mod prepared_names;
