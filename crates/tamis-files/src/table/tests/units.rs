//! Elastic filters in table files: partial reads, and the effects of damage.

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use tamis_base::key::{Kind, prefix_of};
use tamis_env::io::{DirectFs, DiskFs, FileSystem, Usage};
use tamis_filter::{BloomScheme, Digest, ElasticSet, IndependentDigests, Verify};
use tamis_testkit::{FaultPlan, FaultyFs, OpClass};

use super::support::*;
use crate::error::StorageError;
use crate::table::*;

/// Four blocks per unit, 4 bits per key: 256 keys per segment.
const UNIT_BYTES: u64 = 2 * 64 + 40;
const UNITS: u32 = 3;
const SCHEMES: [BloomScheme; 3] =
    [BloomScheme::Rotation, BloomScheme::DoubleHashing, BloomScheme::Independent];

fn filter_of(keys: &[Vec<u8>], scheme: BloomScheme) -> Vec<u8> {
    let mut builder = ElasticBuilder::new((UNITS, 4.0, scheme), UNIT_BYTES, Verify::Yes, Some(9));
    keys.iter().for_each(|key| builder.add(key, Digest::of(key)));
    builder.finish().unwrap().unwrap()
}

fn table_with(filter: Vec<u8>) -> TestFs {
    let fs = TestFs::default();
    write(&fs, &[put(b"some key", 1, b"value")], &TableOptions::default(), Some(filter), None);
    fs
}

fn short_keys(count: u64) -> Vec<Vec<u8>> {
    (0..count).map(|i| (i * 10).to_be_bytes().to_vec()).collect()
}

/// Keys with a common prefix, some very long, one empty.
fn long_keys(count: u64) -> Vec<Vec<u8>> {
    let tail = |i: u64| if i.is_multiple_of(50) { 5000 } else { i as usize % 7 };
    let keys = (1..count).map(|i| [b"one prefix ", &i.to_be_bytes()[..], &vec![7; tail(i)]].concat());
    [Vec::new()].into_iter().chain(keys).collect()
}

fn holds(set: &ElasticSet, directory: &UnitDirectory, key: &[u8]) -> bool {
    if directory.spec().scheme == BloomScheme::Independent {
        let digests = IndependentDigests::of(key, directory.units() * directory.probes());
        return set.contains_independent(&digests).unwrap();
    }
    set.contains(Digest::of(key))
}

/// All units of a segment, read one by one.
fn group(directory: &UnitDirectory, table: &Table, segment: usize) -> ElasticSet {
    let mut set = ElasticSet::new(directory.salt(segment));
    for unit in 0..directory.units() {
        set.load(directory.read_unit(table, segment, unit).unwrap()).unwrap();
    }
    set
}

fn segment_of(directory: &UnitDirectory, key: &[u8]) -> usize {
    directory.segment_of(key, prefix_of(key))
}

#[test]
fn no_subset_of_units_rejects_a_key() {
    for scheme in SCHEMES {
        for keys in [short_keys(1), short_keys(256), short_keys(257), short_keys(900), long_keys(700)] {
            let fs = table_with(filter_of(&keys, scheme));
            for config in [mapped(), cached(1 << 20)] {
                let table = open(&fs, config).unwrap();
                let directory = UnitDirectory::read(&table).unwrap();
                assert_eq!(directory.total_keys(), keys.len() as u64);
                let groups: Vec<_> =
                    (0..directory.segments()).map(|segment| group(&directory, &table, segment)).collect();
                for subset in 0..1u32 << UNITS {
                    let sets: Vec<_> = groups
                        .iter()
                        .map(|group| {
                            let mut set = group.clone();
                            let without = (0..UNITS).filter(|unit| subset & (1 << unit) == 0);
                            without.for_each(|unit| drop(set.unload(unit).unwrap()));
                            set
                        })
                        .collect();
                    for key in &keys {
                        assert!(holds(&sets[segment_of(&directory, key)], &directory, key), "{key:?}");
                    }
                }
            }
        }
    }
}

/// The filter rejects most absent keys, at the theoretical rate: a segment is asked about the keys
/// between its own, with the right group.
#[test]
fn absent_keys_are_rejected_at_the_theoretical_rate() {
    let keys: Vec<_> = (0..20_000u64).map(|i| (i * 10).to_be_bytes().to_vec()).collect();
    for scheme in SCHEMES {
        let table = open(&table_with(filter_of(&keys, scheme)), mapped()).unwrap();
        let directory = UnitDirectory::read(&table).unwrap();
        let groups: Vec<_> =
            (0..directory.segments()).map(|segment| group(&directory, &table, segment)).collect();
        let absent = (0..200_000u64).filter(|i| i % 10 != 0).map(u64::to_be_bytes);
        for loaded in 0..=UNITS {
            let expected = directory.rates()[loaded as usize];
            let sets: Vec<_> = groups
                .iter()
                .map(|group| {
                    let mut set = group.clone();
                    (loaded..UNITS).for_each(|unit| drop(set.unload(unit).unwrap()));
                    set
                })
                .collect();
            let passed =
                absent.clone().filter(|key| holds(&sets[segment_of(&directory, key)], &directory, key));
            let rate = passed.count() as f64 / 180_000.0;
            assert!((rate / expected - 1.0).abs() < 0.12, "{scheme:?} {loaded}: {rate} {expected}");
        }
    }
}

#[test]
fn the_segment_of_a_key_is_the_last_that_starts_at_or_before_it() {
    for keys in [short_keys(2000), long_keys(2000)] {
        let table = open(&table_with(filter_of(&keys, BloomScheme::Rotation)), mapped()).unwrap();
        let directory = UnitDirectory::read(&table).unwrap();
        assert!(directory.segments() > 6);
        let linear = |key: &[u8]| {
            (0..directory.segments())
                .rev()
                .find(|segment| directory.first_key(*segment)[..] <= *key)
                .unwrap_or(0)
        };
        let beyond = |key: &Vec<u8>| [&key[..], b"\0"].concat();
        for key in keys.iter().cloned().chain(keys.iter().map(beyond)).chain([vec![], vec![0xFF; 20]]) {
            assert_eq!(segment_of(&directory, &key), linear(&key), "{key:?}");
        }
    }
    let keys = short_keys(600)[300..].to_vec();
    let table = open(&table_with(filter_of(&keys, BloomScheme::Rotation)), mapped()).unwrap();
    let directory = UnitDirectory::read(&table).unwrap();
    assert_eq!(segment_of(&directory, b""), 0, "below all keys");
}

#[test]
fn adjacent_units_take_one_read() {
    let keys = short_keys(256 * 5);
    let fs = table_with(filter_of(&keys, BloomScheme::Rotation));
    let table = open(&fs, cached(1 << 20)).unwrap();
    let reads = || fs.reads.swap(0, Relaxed);
    reads();
    let directory = UnitDirectory::read(&table).unwrap();
    assert_eq!(reads(), 1, "a short directory");
    directory.read_unit(&table, 3, 1).unwrap();
    assert_eq!(reads(), 1);
    for (units, segments, expected) in
        [(0..2, 0..5, 1), (0..3, 0..5, 1), (1..2, 1..4, 1), (0..3, 2..3, 3), (0..3, 1..5, 3), (0..2, 2..2, 0)]
    {
        let read = directory.read_units(&table, units.clone(), segments.clone());
        assert_eq!((reads(), read.reads), (expected, expected), "{units:?} {segments:?}");
        assert_eq!(read.bytes, 168 * (units.len() * segments.len()) as u64);
        let wanted: Vec<_> =
            units.flat_map(|unit| segments.clone().map(move |segment| (segment, unit))).collect();
        let given: Vec<_> = read.units.iter().map(|loaded| (loaded.segment, loaded.unit)).collect();
        assert_eq!(given, wanted);
        for LoadedUnit { segment, unit, result } in read.units {
            let found = result.unwrap();
            assert_eq!((found.index(), found.salt()), (unit, directory.salt(segment)));
        }
    }
    // First keys beyond the first read.
    let keys: Vec<_> = (0..256 * 5u64).map(|i| [&[1; 2000][..], &i.to_be_bytes()].concat()).collect();
    let fs = table_with(filter_of(&keys, BloomScheme::Rotation));
    let table = open(&fs, cached(1 << 20)).unwrap();
    fs.reads.store(0, Relaxed);
    assert_eq!(UnitDirectory::read(&table).unwrap().segments(), 5);
    assert_eq!(fs.reads.load(Relaxed), 2, "a long directory");
}

fn is_damage<T>(result: Result<T, StorageError>) -> bool {
    matches!(result, Err(StorageError::Corrupt(_)))
}

#[test]
fn stretches_lie_within_the_filter() {
    let fs = table_with(b"0123456789".to_vec());
    for config in [mapped(), cached(1 << 20)] {
        let table = open(&fs, config).unwrap();
        assert_eq!(table.filter_len(), 10);
        assert_eq!(&table.filter_stretch(3, 4).unwrap()[..], b"3456");
        assert_eq!(&table.filter_stretch(0, 10).unwrap()[..], b"0123456789");
        assert_eq!(&table.filter_stretch(10, 0).unwrap()[..], b"");
        for (offset, len) in [(0, 11), (10, 1), (11, 0), (u64::MAX, 1), (1, u64::MAX)] {
            assert!(is_damage(table.filter_stretch(offset, len)), "{offset} {len}");
        }
    }
    let fs = TestFs::default();
    write(&fs, &[put(b"some key", 1, b"value")], &TableOptions::default(), None, None);
    let table = open(&fs, mapped()).unwrap();
    assert_eq!(table.filter_len(), 0);
    assert!(is_damage(table.filter_stretch(0, 1)) && is_damage(UnitDirectory::read(&table)));
}

#[test]
fn damage_of_directory_or_trailer_is_an_error() {
    let good = filter_of(&short_keys(700), BloomScheme::Rotation);
    let blocks: usize = [256usize, 256, 188].iter().map(|keys| (keys * 4).div_ceil(256)).sum();
    let directory_at = UNITS as usize * (blocks * 32 + 3 * 40);
    let len = good.len() as u64;
    assert!(UnitDirectory::open(len, &good).is_ok());
    assert!(UnitDirectory::open(len, &good[directory_at..]).is_ok());
    assert!(UnitDirectory::open(len, &good[directory_at + 1..]).is_err(), "not all of the directory");
    assert!(UnitDirectory::open(len - 1, &good).is_err());
    assert!(UnitDirectory::open(len + 168, &good).is_err());
    for at in directory_at..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            assert!(UnitDirectory::open(len, &bad).is_err(), "byte {at}");
        }
    }
    let fs = table_with(good[..good.len() - 1].to_vec());
    assert!(is_damage(UnitDirectory::read(&open(&fs, mapped()).unwrap())));
    for cut in 0..200 {
        assert!(UnitDirectory::open(cut, &good[..cut as usize]).is_err());
    }
}

#[test]
fn a_damaged_unit_affects_no_other() {
    let good = filter_of(&short_keys(700), BloomScheme::Rotation);
    for at in (0..168).step_by(5) {
        let mut bad = good.clone();
        let whole = UnitDirectory::open(good.len() as u64, &good).unwrap();
        let (offset, len) = whole.unit_span(2, 1);
        bad[offset as usize + at % len as usize] ^= 4;
        let table = open(&table_with(bad), mapped()).unwrap();
        let directory = UnitDirectory::read(&table).unwrap();
        let read = directory.read_units(&table, 0..UNITS, 0..3);
        for LoadedUnit { segment, unit, result } in read.units {
            assert_eq!(is_damage(result), (segment, unit) == (2, 1));
            assert_eq!(is_damage(directory.read_unit(&table, segment, unit)), (segment, unit) == (2, 1));
        }
    }
}

/// An intact unit in another's place would reject keys that exist.
#[test]
fn swapped_units_are_rejected() {
    let mut bytes = filter_of(&short_keys(512), BloomScheme::Rotation);
    let (first, second) = bytes[..336].split_at_mut(168);
    first.swap_with_slice(second);
    let table = open(&table_with(bytes.clone()), mapped()).unwrap();
    let directory = UnitDirectory::read(&table).unwrap();
    assert!(is_damage(directory.read_unit(&table, 0, 0)) && is_damage(directory.read_unit(&table, 1, 0)));
    assert!(directory.read_unit(&table, 0, 1).is_ok());
    // Of the same segment, with another number.
    let copy = bytes[336..504].to_vec();
    bytes[672..840].copy_from_slice(&copy);
    let table = open(&table_with(bytes), mapped()).unwrap();
    assert!(is_damage(directory.read_unit(&table, 0, 2)));
}

/// Ranges may start and end anywhere: for mapped files, reads through the page cache, and direct
/// reads.
#[test]
fn units_are_the_same_however_the_file_is_read() {
    let filter = filter_of(&short_keys(1000), BloomScheme::Rotation);
    // Use a real device if possible: the temporary directory is often in memory.
    let beside = std::env::current_exe().unwrap();
    let dir = tempfile::tempdir_in(beside.parent().unwrap()).unwrap();
    let systems: [(Box<dyn FileSystem>, bool); 3] = [
        (Box::new(DiskFs::new()), true),
        (Box::new(DiskFs::without_mapping()), false),
        (Box::new(DirectFs::new()), false),
    ];
    for (number, (fs, maps)) in systems.iter().enumerate() {
        let path = dir.path().join(format!("{number}.tam"));
        let file = fs.create(&path, Usage::Table).unwrap();
        let mut builder = TableBuilder::new(file, path.clone(), TableOptions::default());
        builder.add(b"some key", Digest::of(b"some key"), 1, Kind::Put, &[1; 3000]).unwrap();
        builder.finish(Some(filter.clone()), None, ExtraProperties::default()).unwrap();
        let table = Table::open(&**fs, &path, 1, mapped()).unwrap();
        assert_eq!(table.is_mapped(), *maps);
        for offset in 0..filter.len() {
            let stretch = table.filter_stretch(offset as u64, 1 + offset as u64 % 5);
            match filter.get(offset..offset + 1 + offset % 5) {
                Some(expected) => assert_eq!(&stretch.unwrap()[..], expected),
                None => assert!(is_damage(stretch)),
            }
        }
        let directory = UnitDirectory::read(&table).unwrap();
        for unit in directory.read_units(&table, 0..UNITS, 0..directory.segments()).units {
            let (offset, len) = directory.unit_span(unit.segment, unit.unit);
            assert_eq!(unit.result.unwrap().to_bytes(), filter[offset as usize..(offset + len) as usize]);
        }
    }
}

/// A range that cannot be read costs only the units at the position where the device fails.
#[test]
fn a_failed_read_of_many_units_is_retried_one_by_one() {
    let fs = FaultyFs::new(1);
    let (dir, path) = (Path::new("/t"), Path::new("/t/1.tam"));
    fs.create_dir_all(dir).unwrap();
    let file = fs.create(path, Usage::Table).unwrap();
    let mut builder = TableBuilder::new(file, path.to_owned(), TableOptions::default());
    builder.add(b"some key", Digest::of(b"some key"), 1, Kind::Put, b"value").unwrap();
    let filter = filter_of(&short_keys(1000), BloomScheme::Rotation);
    builder.finish(Some(filter), None, ExtraProperties::default()).unwrap();
    let table = Table::open(&fs, path, 1, cached(1 << 20)).unwrap();
    let directory = UnitDirectory::read(&table).unwrap();
    assert_eq!(directory.segments(), 4);
    let read_with = |failing| {
        let from = fs.operations();
        fs.plan(FaultPlan {
            only: Some(OpClass::Read),
            fail_at: Some(from),
            sticky: failing > 1,
            ..FaultPlan::none()
        });
        let read = directory.read_units(&table, 0..1, 0..4);
        fs.plan(FaultPlan::none());
        let failed = read.units.iter().filter(|unit| matches!(unit.result, Err(StorageError::Io(_)))).count();
        (read.reads, failed, read.units.len())
    };
    assert_eq!(read_with(1), (5, 0, 4), "the range, then each unit");
    assert_eq!(read_with(2), (5, 4, 4), "a failed device");
}
