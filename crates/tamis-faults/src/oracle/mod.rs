//! What was written, what was promised, and what must therefore be found.
//!
//! Every write has a number and follows from it: the process that writes and the one that judges generate the same
//! operations and send each other numbers only. A database names the writes that it holds itself (a counter for each
//! thread, or a list of numbers), so that what it should contain is known without a guess.

mod cuts;
mod journal;
mod model;
mod stream;

pub(crate) use cuts::{Cuts, Judged};
pub(crate) use journal::Journal;
pub(crate) use model::{Space, State, shown};
pub(crate) use stream::{Op, Stream, Way, Write, counter_key, done_key, layout};

#[cfg(test)]
mod tests;
