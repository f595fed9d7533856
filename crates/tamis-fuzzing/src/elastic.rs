//! Elastic filters: the part of a table file that holds their units.

use tamis_base::key::prefix_of;
use tamis_files::table::{ElasticBuilder, UnitDirectory};
use tamis_filter::{BloomScheme, Digest, ElasticLine, ElasticSet, IndependentDigests, Verify};
use tamis_testkit::fuzz::Input;

use crate::reseal;

/// Units of more segments are not opened.
const MOST_SEGMENTS: usize = 64;

/// Checks the filter part of a table with an elastic filter, as it is and with its checksums
/// corrected, and an elastic filter built from keys encoded in the bytes.
pub fn elastic(bytes: &[u8]) {
    let sound = check(bytes);
    let sealed = reseal::elastic(bytes);
    assert!(!sound || sealed == bytes, "the checksums differ from those in the format description");
    check(&sealed);
    check_building(bytes);
}

/// Checks directory and units, and returns whether they are undamaged.
fn check(bytes: &[u8]) -> bool {
    let part_len = bytes.len() as u64;
    let Ok(directory) = UnitDirectory::open(part_len, bytes) else { return false };
    assert!(directory.memory_bytes() <= 12 * bytes.len() + 512, "a directory larger than its bytes justify");
    let rates = directory.rates();
    assert!(rates.iter().all(|rate| (0.0..=1.0).contains(rate)), "rates of {rates:?}");
    let segments = directory.segments();
    for segment in 0..segments {
        let first = &directory.first_key(segment)[..];
        assert_eq!(directory.segment_of(first, prefix_of(first)), segment, "a first key is in its segment");
        assert!(segment == 0 || &directory.first_key(segment - 1)[..] < first, "segments ascend");
        let behind = [first, &[0]].concat();
        let next = (segment + 1 < segments).then(|| directory.first_key(segment + 1));
        let expected = segment + usize::from(next.is_some_and(|next| next[..] == behind[..]));
        assert_eq!(directory.segment_of(&behind, prefix_of(&behind)), expected);
    }
    let mut end = 0;
    for unit in 0..directory.units() {
        for segment in 0..segments {
            let (offset, len) = directory.unit_span(segment, unit);
            assert!(offset == end && offset + len <= part_len, "units are contiguous");
            end = offset + len;
        }
    }
    let mut sound = segments <= MOST_SEGMENTS;
    for segment in 0..segments.min(MOST_SEGMENTS) {
        let mut set = ElasticSet::new(directory.salt(segment));
        for number in 0..directory.units() {
            let (offset, len) = directory.unit_span(segment, number);
            let unit = directory.unit_of(segment, number, &bytes[offset as usize..(offset + len) as usize]);
            let Ok(Some(unit)) = unit else {
                sound = false;
                continue;
            };
            let (stack, mut lines) = (directory.stack(segment), Vec::new());
            lines.resize(stack.lines(number + 1), ElasticLine::ZERO);
            stack.put(&mut lines, number + 1, &unit).expect("a unit of the segment");
            set.load(unit).expect("units of a segment are of one group");
        }
        for number in 0..20u64 {
            holds(&set, &directory, &number.to_le_bytes());
        }
    }
    sound
}

fn holds(set: &ElasticSet, directory: &UnitDirectory, key: &[u8]) -> bool {
    match directory.spec().scheme {
        BloomScheme::Independent => {
            let digests = IndependentDigests::of(key, directory.units() * directory.probes());
            set.contains_independent(&digests).expect("enough digests for the units of a group")
        }
        BloomScheme::Rotation | BloomScheme::DoubleHashing => set.contains(Digest::of(key)),
    }
}

/// The input encodes units, bits and hashing, then keys.
fn check_building(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let units = 1 + u32::from(input.byte() % 4);
    let bits = f64::from(1 + input.byte() % 32) / 4.0;
    let scheme = match input.byte() % 3 {
        0 => BloomScheme::Rotation,
        1 => BloomScheme::DoubleHashing,
        _ => BloomScheme::Independent,
    };
    let mut keys = Vec::new();
    while !input.is_empty() && keys.len() < 2000 {
        let len = input.byte() % 16;
        keys.push((0..len).map(|_| input.byte()).collect::<Vec<u8>>());
    }
    keys.sort_unstable();
    let mut builder = ElasticBuilder::new((units, bits, scheme), 128, Verify::Yes, None);
    keys.iter().for_each(|key| builder.add(key, Digest::of(key)));
    let part = builder.finish().expect("a filter of any keys can be built");
    assert_eq!(part.is_none(), keys.is_empty());
    let Some(part) = part else { return };
    keys.dedup();
    let directory =
        UnitDirectory::open(part.len() as u64, &part).expect("a reader opens what a builder made");
    assert_eq!(directory.total_keys(), keys.len() as u64);
    assert!(check(&part) || directory.segments() > MOST_SEGMENTS);
    for key in &keys {
        let segment = directory.segment_of(key, prefix_of(key));
        for unit in 0..units {
            let (offset, len) = directory.unit_span(segment, unit);
            let mut set = ElasticSet::new(directory.salt(segment));
            let unit = directory.unit_of(segment, unit, &part[offset as usize..(offset + len) as usize]);
            set.load(unit.expect("a sound unit").expect("the requested one")).expect("the first one");
            assert!(holds(&set, &directory, key), "a unit denies {key:?}");
        }
    }
}
