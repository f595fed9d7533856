//! A model of this engine: the cost of a filter selector over a tree shape, for a workload on a
//! machine.
//!
//! | part | content |
//! | --- | --- |
//! | [`Selector`] | the filters, their false-positive rates and sizes |
//! | [`Shape`], [`grow`] | the trees that compaction policies make |
//! | [`Machine`], [`Data`], [`Workload`], [`Configuration`] | the inputs, with units |
//! | [`counts`] | how often each event happens in one operation: the engine's own counters, predicted |
//! | [`predict`] | counts times unit costs, every term with its formula |
//! | [`Operations`] | the workload that counters show |
//! | [`zipf_exponent`] | the skew of reads, from how often two of them are for the same key |
//! | [`between`] | a filter per table or `grf`, by the rule of [`tree_filter`](crate::tree_filter) |
//! | [`rank`] | all configurations within a budget, best first, with reasons |
//!
//! # Assumptions
//! Keys are spread evenly over the runs, so every run covers every key (except for fragments), and
//! runs have keys in proportion to their sizes. Filters of different runs err independently.
//! Operations run sequentially: overlap within the engine (filter lines of several runs, cursors
//! positioned together) is part of the measured unit costs. Flushes and merges cost operations a
//! fixed share of their time. Latency under load, several concurrent readers, and updates that
//! supersede much of the data are not modelled.
//!
//! Sources: hash sharing (Zhu, Mun, Raman, Athanassoulis, DAMON 2021, section 3) for the sum of
//! hashes, probes and accesses; Monkey (SIGMOD 2017) and ElasticBF (ATC 2019) for the division of
//! memory; the rest follows the engine's own documents.
//!
//! Pure arithmetic: no I/O, no threads, no clock. Times are in nanoseconds, memory in bytes, shares
//! from 0 to 1. Every result is finite for finite input.

mod between;
mod counts;
mod far;
mod inputs;
mod observed;
mod predict;
mod rank;
mod selector;
mod shape;
mod skew;
#[cfg(test)]
mod tests;
mod words;

pub use between::between;
pub use counts::{Counts, counts};
pub use inputs::{Allocation, Class, Configuration, Data, Machine, ProbeCost, ReadPath, Workload};
pub use observed::Operations;
pub use predict::{Prediction, Term, filter_bytes, predict, predict_tree};
pub use rank::{Ranked, Ranking, Refused, Space, rank};
pub use selector::{Keys, Selector, blocked_rate, bloom_rate};
pub use shape::{Merge, Policy, Shape, State, Tree, grow, grow_from};
pub use skew::{zipf_collisions, zipf_exponent};
pub use words::UnknownWorkload;
