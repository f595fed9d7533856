//! The division of memory: between the block cache and the elastic filters of one database, and
//! between databases.

pub mod division;
#[cfg(test)]
mod random;
pub mod rule;

pub use rule::{MARGIN, Reading, STEPS, bounds};

/// What a block cache tells of a larger one. Counts only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ghosts {
    /// Misses that a cache with `step_bytes` more would have answered: an estimate, the number
    /// observed times `sampling`.
    pub ghost_hits: u64,
    /// Bytes evicted for lack of room, scaled alike.
    pub evicted_bytes: u64,
    /// One key in this many is observed, so `ghost_hits / sampling` is the count that has the
    /// noise.
    pub sampling: u64,
    /// How much larger the other cache is assumed to be.
    pub step_bytes: u64,
}
