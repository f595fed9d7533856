//! Tests of units that come and go beside readers. Small enough for Miri, which sees races and
//! memory that is probed after it was freed; the model (`units::model`) has all interleavings of
//! the same protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use tamis_base::key::prefix_of;
use tamis_filter::{BloomScheme, Digest, ElasticUnit, Verify};

use super::*;
use crate::table::units::{ElasticBuilder, pin, retire};

const UNITS: u32 = 3;

fn key(i: u64) -> [u8; 8] {
    i.to_be_bytes()
}

/// A filter of `count` keys in segments of 85, none of whose units is in memory, and the units of
/// each segment.
fn filter(count: u64) -> (ElasticFilter, Vec<Vec<ElasticUnit>>) {
    let mut builder = ElasticBuilder::new((UNITS, 3.0, BloomScheme::Rotation), 0, Verify::Yes, Some(7));
    (0..count).for_each(|i| builder.add(&key(i), Digest::of(&key(i))));
    let bytes = builder.finish().unwrap().unwrap();
    let directory = UnitDirectory::open(bytes.len() as u64, &bytes).unwrap();
    let unit = |segment, unit| {
        let (offset, len) = directory.unit_span(segment, unit);
        directory.unit_of(segment, unit, &bytes[offset as usize..(offset + len) as usize]).unwrap().unwrap()
    };
    let units = (0..directory.segments()).map(|s| (0..UNITS).map(|u| unit(s, u)).collect()).collect();
    (ElasticFilter::new(directory), units)
}

/// Whether the units in memory accept key `i`, and how many they are.
fn ask(filter: &ElasticFilter, i: u64) -> (bool, u32) {
    let (pin, digest) = (pin(), Digest::of(&key(i)));
    let found = filter.find(&key(i), prefix_of(&key(i)), Some(digest), &pin);
    (found.units() == 0 || found.contains(digest), found.units())
}

#[test]
fn the_units_in_memory_are_the_first_ones_of_their_segment() {
    let (filter, units) = filter(200);
    let segments = filter.directory().segments();
    assert!(segments > 1);
    let none = filter.memory_bytes();
    assert_eq!(none, filter.fixed_bytes());
    assert_eq!(units.len(), segments);
    for (segment, units) in units.iter().enumerate() {
        assert!(filter.grow(segment, &units[1..]).is_err(), "the first one is missing");
        assert!(filter.grow(segment, &units[..1]).unwrap().is_none());
        assert!(filter.grow(segment, &units[1..]).unwrap().is_some());
        assert_eq!(filter.enabled(segment), UNITS);
    }
    assert!((0..200).all(|i| ask(&filter, i) == (true, UNITS)));
    let accepted = |filter: &ElasticFilter| (200..1200).filter(|&i| ask(filter, i).0).count();
    let mut last = accepted(&filter);
    assert!(last < 100, "{last} of 1000 absent keys");
    for left in (0..UNITS as u8).rev() {
        for segment in 0..segments {
            assert!(filter.keep(segment, left).is_some());
            assert!(filter.keep(segment, left).is_none(), "nothing to drop");
        }
        assert!((0..200).all(|i| ask(&filter, i) == (true, left.into())));
        let now = accepted(&filter);
        assert!(now >= last, "{now} with {left} units, {last} with one more");
        last = now;
    }
    assert_eq!((last, filter.memory_bytes()), (1000, none));
}

/// With the twelve bytes of whoever decides which units are here, 24 a segment.
#[test]
fn a_segment_takes_its_word_and_four_bytes_of_the_directory() {
    let of = |filter: &ElasticFilter| (filter.fixed_bytes(), filter.directory().segments() as u64);
    let (small, large) = (of(&filter(20_000).0), of(&filter(60_000).0));
    let (bytes, segments) = (large.0 - small.0, large.1 - small.1);
    assert!(segments > 400 && bytes <= 12 * segments + 64, "{bytes} bytes more for {segments} segments");
}

#[test]
fn keys_are_found_while_units_come_and_go() {
    const KEYS: u64 = 200;
    let rounds = if cfg!(miri) { 4 } else { 2000 };
    let (filter, units) = filter(KEYS);
    let (waiting, done) = (Arc::new(AtomicU64::new(0)), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (filter, done) = (&filter, &done);
            scope.spawn(move || {
                let mut i = reader;
                while !done.load(Relaxed) || i < 2 * KEYS {
                    assert!(ask(filter, i % KEYS).0, "a key is denied");
                    i += 1;
                }
            });
        }
        for round in 0..rounds {
            let segment = round % units.len();
            let old = match round / units.len() % 3 {
                0 => filter.grow(segment, &units[segment]).unwrap(),
                1 => filter.keep(segment, 1),
                _ => filter.keep(segment, 0),
            };
            retire(Vec::from_iter(old), &waiting);
        }
        retire(filter.clear(), &waiting);
        done.store(true, Relaxed);
    });
    assert_eq!(filter.memory_bytes(), filter.fixed_bytes());
    // Pins of other tests in this process may keep some for a moment.
    while waiting.load(Relaxed) > 0 {
        std::thread::yield_now();
    }
}
