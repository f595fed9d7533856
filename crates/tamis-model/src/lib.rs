//! What filters and lookups in an LSM-tree cost, as arithmetic: the models of the papers that this project follows.
//!
//! | module | of | has |
//! | --- | --- | --- |
//! | [`bloom`] | hash sharing, Equation 1 | rates of standard filters, and bits for rates |
//! | [`devices`] | hash sharing, Table 1 | latencies of devices and hash functions |
//! | [`lookup`] | hash sharing, Equations 2 to 15 | the cost of a point lookup with and without hash sharing, and the gain |
//!
//! # Invariants
//! * Pure functions of numbers: no I/O, no clock, no engine, no dependencies.
//! * Times are nanoseconds, rates and shares fractions in `0..=1`, filters sized in bits per key. Each item says so.
//! * Nothing panics, and NaN never comes out: arguments out of range are taken as the nearest that is in range, as said
//!   at each item.
//! * Where a paper's formula is approximate or wrong, it is here as printed *and* as it should be, the docs say which is
//!   which and by how much they differ, and a test holds both to an exact enumeration of small cases.

#![forbid(unsafe_code)]

pub mod bloom;
pub mod devices;
pub mod lookup;
