//! The engine against a model of it: random histories, metamorphic histories, concurrent readers
//! and writers, golden scripts, and counts of digests.
//!
//! `TAMIS_TEST_SCALE` multiplies the number of random cases, `TAMIS_TEST_SEED` chooses different
//! ones. A failing history is shrunk and printed; the same seed finds it again.

#![allow(unreachable_pub, reason = "the modules of one test program")]

mod concurrent;
mod digests;
mod driver;
mod golden;

mod histories;
mod metamorphic;
mod moves;
mod ops;
mod oracle;
mod regressions;
mod settings;
mod support;
