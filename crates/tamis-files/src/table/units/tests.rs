//! Tests of the builder: how keys are divided into segments, and its thread.

use tamis_filter::{Digest, ElasticSpec, ElasticUnit, FilterError};

use super::build::{Assembler, Work, Worker};
use super::*;

/// Two cache lines per unit, 4 bits per key.
const UNIT_BYTES: u64 = 2 * 64 + 40;
const FULL: u64 = 256;

fn builder(scheme: BloomScheme, salt: Option<u64>) -> ElasticBuilder {
    ElasticBuilder::new((3, 4.0, scheme), UNIT_BYTES, tamis_filter::Verify::Yes, salt)
}

fn key(i: u64) -> [u8; 8] {
    i.to_be_bytes()
}

fn add(builder: &mut ElasticBuilder, keys: std::ops::Range<u64>) {
    keys.for_each(|i| builder.add(&key(i), Digest::of(&key(i))));
}

fn directory(bytes: &[u8]) -> UnitDirectory {
    UnitDirectory::open(bytes.len() as u64, bytes).unwrap()
}

#[test]
fn a_segment_has_the_most_keys_whose_unit_fits() {
    // The paper's setting: 4 bits, units of about a block of the device.
    let layout = layout_of(BloomScheme::Rotation, VERSION);
    assert_eq!(segment_keys(layout, 4.0, 4096), 126 * 256 / 4);
    for bits in [0.5, 1.1, 3.3, 4.0, 5.7, 10.0, 16.0] {
        for unit_bytes in [0, 128, 167, 168, 1000, 4096, 65536] {
            let keys = segment_keys(layout, bits, unit_bytes);
            let len = |keys: usize| {
                let scheme = BloomScheme::Rotation;
                let spec = ElasticSpec { units: 1, bits_per_key: bits, scheme, layout };
                let digests: Vec<_> = (0..keys as u64).map(Digest::from_u64).collect();
                let group = tamis_filter::ElasticGroup::build(spec, &digests, 1, tamis_filter::Verify::No);
                group.unwrap().units()[0].encoded_len() as u64
            };
            assert!(len(keys) <= unit_bytes.max(72), "{bits} {unit_bytes}");
            assert!(len(keys + 1) > unit_bytes, "{bits} {unit_bytes}: one more would fit");
        }
    }
}

/// A few keys at the end join the segment before them; a thread is used only with two segments or
/// more.
#[test]
fn the_last_segment_is_not_tiny() {
    let quarter = FULL / 4;
    for (count, expected) in [
        (1, vec![1]),
        (FULL - 1, vec![FULL - 1]),
        (FULL, vec![FULL]),
        (FULL + 1, vec![FULL + 1]),
        (FULL + quarter - 1, vec![FULL + quarter - 1]),
        (FULL + quarter, vec![FULL, quarter]),
        (2 * FULL, vec![FULL, FULL]),
        (2 * FULL + 1, vec![FULL, FULL + 1]),
        (5 * FULL + quarter, vec![FULL, FULL, FULL, FULL, FULL, quarter]),
    ] {
        let mut builder = builder(BloomScheme::Rotation, Some(7));
        add(&mut builder, 0..count);
        assert_eq!(matches!(builder.work, Work::There(_)), expected.len() > 1, "{count}");
        let directory = directory(&builder.finish().unwrap().unwrap());
        let keys: Vec<u64> = (0..directory.segments()).map(|segment| directory.keys(segment)).collect();
        assert_eq!(keys, expected);
        assert_eq!(directory.total_keys(), count);
        let starts = expected.iter().scan(0, |start, keys| Some(std::mem::replace(start, *start + keys)));
        for (segment, start) in starts.enumerate() {
            let first = &directory.first_key(segment)[..];
            assert!(
                first <= &key(start)[..] && (start == 0 || first > &key(start - 1)[..]),
                "{first:?} {start}"
            );
        }
    }
}

#[test]
fn no_keys_make_no_filter() {
    assert!(builder(BloomScheme::Rotation, Some(1)).finish().unwrap().is_none());
}

#[test]
fn versions_of_a_key_count_once_even_at_a_segment_boundary() {
    for scheme in [BloomScheme::Rotation, BloomScheme::Independent] {
        let (mut once, mut often) = (builder(scheme, Some(7)), builder(scheme, Some(7)));
        add(&mut once, 0..3 * FULL);
        for i in 0..3 * FULL {
            (0..1 + i % 3).for_each(|_| add(&mut often, i..i + 1));
        }
        assert_eq!(once.finish().unwrap(), often.finish().unwrap());
    }
}

/// The result does not depend on which thread builds it.
#[test]
fn building_without_a_thread_has_the_same_result() {
    let (mut with, mut without) =
        (builder(BloomScheme::Rotation, Some(7)), builder(BloomScheme::Rotation, Some(7)));
    let (scheme, layout) = (BloomScheme::Rotation, layout_of(BloomScheme::Rotation, VERSION));
    let spec = ElasticSpec { units: 3, bits_per_key: 4.0, scheme, layout };
    without.work = Work::Here(Assembler::new(spec, 7, tamis_filter::Verify::Yes));
    add(&mut with, 0..10 * FULL);
    add(&mut without, 0..10 * FULL);
    assert!(matches!(without.work, Work::Here(_)));
    assert_eq!(with.finish().unwrap(), without.finish().unwrap());
}

#[test]
fn a_salt_from_the_contents_differs_between_tables() {
    let build = |keys| {
        let mut builder = builder(BloomScheme::Rotation, None);
        add(&mut builder, keys);
        directory(&builder.finish().unwrap().unwrap())
    };
    let (a, again, b) = (build(0..600), build(0..600), build(0..601));
    assert_eq!(a.salt(0), again.salt(0));
    assert_ne!(a.salt(0), a.salt(1));
    assert_eq!(a.salt(0), b.salt(0), "the first segments have the same keys");
    assert_ne!(a.salt(0), build(1..600).salt(0));
}

#[test]
fn an_error_of_the_thread_is_returned_by_finish() {
    // More digests than there are hash functions: the options reject it, and so does every segment.
    let shape = (16, 4.0, BloomScheme::Independent);
    let mut builder = ElasticBuilder::new(shape, UNIT_BYTES, tamis_filter::Verify::Yes, Some(1));
    add(&mut builder, 0..20 * FULL);
    assert!(matches!(builder.work, Work::There(_)), "nothing was noticed yet");
    assert!(matches!(builder.finish(), Err(FilterBuildError::Filter(FilterError::Parameter(_)))));
}

/// A thread that has ended no longer receives: adding must neither wait for it nor panic.
#[test]
fn a_panic_of_the_thread_is_returned_by_finish() {
    for segments in [0, 1, 5] {
        let mut builder = builder(BloomScheme::Rotation, Some(1));
        let panicking = Worker::start(move |queue| {
            queue.iter().take(segments).for_each(drop);
            panic!("intended by a test");
        });
        builder.work = Work::There(panicking.unwrap());
        add(&mut builder, 0..20 * FULL);
        assert!(matches!(builder.finish(), Err(FilterBuildError::Panicked)));
    }
}

/// An abandoned table leaves no thread behind.
#[test]
fn dropping_the_builder_ends_its_thread() {
    let (done, ended) = std::sync::mpsc::channel();
    let mut builder = builder(BloomScheme::Rotation, Some(1));
    let worker = Worker::start(move |queue| {
        let received = queue.iter().count();
        done.send(received).unwrap();
        Ok(Vec::new())
    });
    builder.work = Work::There(worker.unwrap());
    add(&mut builder, 0..4 * FULL);
    drop(builder);
    assert_eq!(ended.try_recv(), Ok(3), "all but the segment that was open");
}

/// Units are located by position alone; the spans must point at them.
#[test]
fn spans_locate_the_units() {
    let mut builder = builder(BloomScheme::DoubleHashing, Some(5));
    add(&mut builder, 0..3 * FULL + 17);
    let bytes = builder.finish().unwrap().unwrap();
    let directory = directory(&bytes);
    let mut end = 0;
    for unit in 0..3 {
        for segment in 0..3 {
            let (offset, len) = directory.unit_span(segment, unit);
            assert_eq!(offset, end, "adjacent");
            end = offset + len;
            let found = ElasticUnit::open(&bytes[offset as usize..end as usize]).unwrap();
            assert_eq!((found.index(), found.salt()), (unit, directory.salt(segment)));
            assert_eq!((found.group_units(), found.keys()), (3, directory.keys(segment)));
            let stack = directory.stack(segment);
            let mut lines = vec![tamis_filter::ElasticLine::ZERO; stack.lines(unit + 1)];
            stack.put(&mut lines, unit + 1, &found).unwrap();
            assert_eq!(found.probes(), directory.probes());
        }
    }
}

/// Files once written must remain readable. With `TAMIS_WRITE_FIXTURES` set the files of the
/// present version are rewritten: only for a new version of the format, under new names.
#[test]
fn stored_filters_of_all_versions_are_read() {
    let schemes = [BloomScheme::Rotation, BloomScheme::DoubleHashing, BloomScheme::Independent];
    for (version, scheme) in schemes.into_iter().flat_map(|scheme| [(1, scheme), (VERSION, scheme)]) {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
        let path = format!("{fixtures}/elastic-v{version}-{}.units", scheme as u8);
        let mut builder = ElasticBuilder::new((2, 4.0, scheme), 128, tamis_filter::Verify::Yes, Some(7));
        add(&mut builder, 0..300);
        let built = builder.finish().unwrap().unwrap();
        if version == VERSION && std::env::var_os("TAMIS_WRITE_FIXTURES").is_some() {
            std::fs::write(&path, &built).unwrap();
        }
        let stored = std::fs::read(&path).unwrap();
        assert!(version != VERSION || stored == built, "and writing is unchanged");
        let directory = directory(&stored);
        assert_eq!((directory.units(), directory.total_keys()), (2, 300));
        assert!(directory.segments() > 1);
        for i in 0..300 {
            let segment = directory.segment_of(&key(i), tamis_base::key::prefix_of(&key(i)));
            for unit in 0..2 {
                let (offset, len) = directory.unit_span(segment, unit);
                let bytes = &stored[offset as usize..(offset + len) as usize];
                let unit = directory.unit_of(segment, unit, bytes).unwrap().unwrap();
                let mut set = tamis_filter::ElasticSet::new(directory.salt(segment));
                set.load(unit).unwrap();
                let digests = tamis_filter::IndependentDigests::of(&key(i), 2 * directory.probes());
                assert!(match scheme {
                    BloomScheme::Independent => set.contains_independent(&digests).unwrap(),
                    _ => set.contains(Digest::of(&key(i))),
                });
            }
        }
    }
}
