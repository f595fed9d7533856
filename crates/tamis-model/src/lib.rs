//! Costs of filters and lookups in an LSM-tree, as arithmetic: the models of the papers that this
//! project follows.
//!
//! | module | source | content |
//! | --- | --- | --- |
//! | [`bloom`] | hash sharing, Equation 1 | rates of standard filters, and bits for rates |
//! | [`devices`] | hash sharing, Table 1 | latencies of devices and hash functions |
//! | [`lookup`] | hash sharing, Equations 2 to 15 | the cost of a point lookup, and the gain of hash sharing |
//! | [`elastic`] | ElasticBF, section 3, Equations 1 to 3 | reads saved by filter units, and which units to move |
//! | [`monkey`] | Monkey, section 4 | how to divide filter memory among runs |
//! | [`engine`] | none: this engine | the cost of its reads and writes, for every filter and shape; a ranking |
//! | [`tree_filter`] | none: this engine | whether a tree is read faster with a filter per table or with one for all |
//! | [`grf`] | GRF, sections 2, 4 and 5 | rates of a global filter, and sizes of its codes |
//!
//! # Invariants
//! * Pure functions of numbers: no I/O, no clock, no engine, no dependencies.
//! * Times are nanoseconds, rates and shares fractions in `0..=1`, filters sized in bits per key.
//!   Each item states its units.
//! * Nothing panics, and NaN is never returned: arguments out of range are clamped to the nearest
//!   valid value, as documented at each item.
//! * Where a paper's formula is approximate or wrong, both the printed and the corrected form are
//!   here; the docs say which is which and by how much they differ, and a test holds both to an
//!   exact enumeration of small cases.
//!
//! ```
//! use tamis_model::{bloom, devices, lookup::*};
//!
//! let tree = Tree { levels: 5, size_ratio: 10 };
//! let asked = Workload { empty: 1.0, false_positive: bloom::optimal_rate(10.0) };
//! let gain = |device: devices::Device| {
//!     let costs = Costs { hash_ns: devices::MURMUR64.hash_ns, probe_ns: 20.0, access_ns: device.access_ns };
//!     gain(tree, Policy::Leveling, asked, costs, Form::Exact)
//! };
//! assert!(gain(devices::NVM) > 0.4 && gain(devices::HDD) < 0.01);
//! ```

#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

// Runs the README's example as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod bloom;
pub mod devices;
pub mod elastic;
pub mod engine;
pub mod grf;
pub mod lookup;
pub mod monkey;
mod numbers;
pub mod tree_filter;
