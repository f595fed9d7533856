//! Durability: crashes at any moment, failing devices, full disks and damaged files.
//!
//! Everything here runs on [`FaultyFs`](tamis_testkit::FaultyFs) and is judged by one oracle: the
//! [`ledger`] of all writes in the order in which they were acknowledged. After a crash the
//! database must hold the state after some prefix of them, and the prefix must include everything
//! promised.
//!
//! `TAMIS_TEST_SCALE=10` runs ten times as many cases.

#![allow(missing_docs, reason = "tests")]

mod changes;
mod closing;
mod crashes;
mod damage;
mod deleted;
mod faults;
mod followers;
mod full_disk;
mod gate;
mod history;
mod ingest;
mod jobs;
mod lab;
mod ledger;
mod logged_values;
mod rebuild;
mod recovery;
mod regressions;
mod rolling;
mod salvage;
mod seams;
mod sub_jobs;
mod transactions;
