//! Random histories against the model.

use std::sync::Mutex;

use proptest::collection::vec;
use proptest::prelude::*;
use tamis::options::ReadMode;
use tamis::stats::ReadCost;

use crate::driver::{Driver, Place};
use crate::ops::{Op, op};
use crate::settings::{Settings, settings};
use crate::support::for_all;

fn history(longest: usize) -> impl Strategy<Value = (Settings, Vec<Op>)> {
    (settings(), vec(op(), 1..longest))
}

#[test]
fn the_engine_agrees_with_the_model_in_memory() {
    let cost = Mutex::new(ReadCost::default());
    for_all(1500, history(60), |(settings, ops)| {
        let more = Driver::run(Place::Memory, settings, ops);
        let mut cost = cost.lock().expect("the costs");
        *cost = *cost + more;
    });
    // The histories reach range filters that reject, that pass present keys, and that pass absent
    // ones.
    let cost = cost.into_inner().expect("the costs");
    let admitted = cost.range_probes - cost.range_negatives;
    assert!(cost.range_negatives > 1000 && admitted > 1000 && cost.range_false_positives > 100, "{cost:?}");
}

#[test]
fn the_engine_agrees_with_the_model_where_processes_die() {
    for_all(500, history(60), |(settings, ops)| _ = Driver::run(Place::Crashable, settings, ops));
}

#[test]
fn long_histories_agree_with_the_model() {
    for_all(60, history(600), |(settings, ops)| _ = Driver::run(Place::Memory, settings, ops));
}

#[test]
fn the_engine_agrees_with_the_model_on_disk_in_every_read_mode() {
    for &mode in ReadMode::available() {
        for_all(20, history(60), |(settings, ops)| _ = Driver::run(Place::Disk(mode), settings, ops));
    }
}
