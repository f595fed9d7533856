//! Transactions and atomic changes as a program uses them.

#![allow(missing_docs, reason = "tests")]

mod anomalies;
mod atomic;
mod commits;
mod keyspaces;
mod locks;
mod prepared;

mod reads;
mod support;
