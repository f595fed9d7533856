//! A model of this engine: what a selector over a shape costs for a workload on a machine.
//!
//! | part | what |
//! | --- | --- |
//! | [`Selector`] | the filters, what they let pass and what they take |
//! | [`Shape`], [`grow`] | the trees that compaction policies make |
//! | [`Machine`], [`Data`], [`Workload`], [`Configuration`] | what goes in, with units |
//! | [`counts`] | how often things happen in one operation: the engine's own counters, predicted |
//! | [`predict`] | counts times unit costs, every term with its formula |
//! | [`zipf_exponent`] | how skewed reads are, from how often two of them are for the same key |
//! | [`rank`] | all configurations within a budget, best first, with reasons |
//!
//! # What it rests on
//! Keys are spread evenly over the runs, so every run covers every key (but for fragments), and runs have keys by their sizes.
//! Filters of different runs err independently. Operations do one thing after the other: what overlaps in the engine (lines of
//! filters of several runs, cursors that are positioned together) is in the unit costs as measured. Flushes and merges cost
//! operations a fixed share of their time. Latency under load, several readers at once, and updates that supersede much of the
//! data are not in it.
//!
//! Sources: hash sharing (Zhu, Mun, Raman, Athanassoulis, DAMON 2021, section 3) for the sum of hashes, probes and accesses;
//! Monkey (SIGMOD 2017) and ElasticBF (ATC 2019) for how memory is divided; the rest follows the engine's own documents.
//!
//! Pure arithmetic: no I/O, no threads, no clock. Times are in nanoseconds, memory in bytes, shares from 0 to 1. Every result
//! is finite for finite input.

mod counts;
mod far;
mod inputs;
mod predict;
mod rank;
mod selector;
mod shape;
mod skew;
#[cfg(test)]
mod tests;
mod words;

pub use counts::{Counts, counts};
pub use inputs::{Allocation, Class, Configuration, Data, Machine, ProbeCost, ReadPath, Workload};
pub use predict::{Prediction, Term, filter_bytes, predict, predict_tree};
pub use rank::{Ranked, Ranking, Refused, Space, rank};
pub use selector::{Keys, Selector, blocked_rate, bloom_rate};
pub use shape::{Merge, Policy, Shape, State, Tree, grow, grow_from};
pub use skew::{zipf_collisions, zipf_exponent};
pub use words::UnknownWorkload;
