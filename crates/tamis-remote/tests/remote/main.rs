//! Backups and replicas over stores that fail.

#![allow(clippy::unwrap_used, reason = "tests")]

mod backup;
mod faulty;
mod model;
mod moments;
mod races;
mod replicas;
mod restore;
mod ship;
mod world;
