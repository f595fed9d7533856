//! The oracles: they know what was written and promised, and so what must be found.
//!
//! Every write is a function of its number: the writing process and the judging one generate the
//! same operations and exchange only numbers. A database itself names the writes it holds (a
//! counter per thread, or a list of numbers), so its expected contents are known exactly.

mod cuts;
mod journal;
mod model;
mod records;
mod stream;

pub(crate) use cuts::{Cuts, Judged};
pub(crate) use journal::Journal;
pub(crate) use model::{Space, State, shown};
pub(crate) use records::{Contents, Phase, Record, Records, STEPS, Shelf, Step, batches, difference};
pub(crate) use stream::{Op, Stream, Way, Write, ballast_key, counter_key, done_key, layout};

#[cfg(test)]
mod tests;
