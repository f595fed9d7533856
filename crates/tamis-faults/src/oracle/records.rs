//! Records by number, for jobs whose process or memory is damaged: everything that such a job
//! writes, in which order, and what must be found after any number of its batches.
//!
//! A record is generated without the heap, which may be hit by a flip: see `worker/flips`. Its
//! value repeats its key and its number, and ends with a checksum, so that a wrong value explains
//! itself.

use std::collections::BTreeMap;

/// Length of the longest value.
const MOST_VALUE_BYTES: usize = 1200;
/// Length of the checksum at the end of a value.
const SUM_BYTES: usize = 8;
/// Of this many records, one deletes its key.
const DELETES: u64 = 12;

/// The keyspaces of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shelf {
    /// Values of different lengths.
    Wide,
    /// Many short values, so that filters are a large part of a table.
    Small,
}

impl Shelf {
    pub(crate) const ALL: [Shelf; 2] = [Shelf::Wide, Shelf::Small];

    pub(crate) fn name(self) -> &'static str {
        ["wide", "small"][self as usize]
    }

    /// Returns the number of different keys that are written.
    pub(crate) const fn keys(self) -> u32 {
        [1800, 7000][self as usize]
    }

    /// Returns the number of records in one batch.
    fn batch(self) -> u32 {
        [10, 50][self as usize]
    }
}

/// One step of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Writes this many batches.
    Write(Shelf, u32),
    Flush(Shelf),
    Compact(Shelf),
}

/// What the engine mainly does in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    Write,
    Flush,
    Compaction,
    /// Flushes and compactions of short records with large filters.
    Filter,
}

impl Phase {
    pub(crate) const ALL: [Phase; 4] = [Phase::Write, Phase::Flush, Phase::Compaction, Phase::Filter];

    pub(crate) fn name(self) -> &'static str {
        ["write", "flush", "compaction", "filter"][self as usize]
    }
}

impl Step {
    pub(crate) fn phase(self) -> Phase {
        match self {
            Step::Write(..) => Phase::Write,
            Step::Flush(Shelf::Wide) => Phase::Flush,
            Step::Compact(Shelf::Wide) => Phase::Compaction,
            Step::Flush(Shelf::Small) | Step::Compact(Shelf::Small) => Phase::Filter,
        }
    }
}

/// The job. It ends with writes that stay in the log and in the memtable.
pub(crate) const STEPS: [Step; 13] = [
    Step::Write(Shelf::Wide, 100),
    Step::Flush(Shelf::Wide),
    Step::Write(Shelf::Wide, 100),
    Step::Flush(Shelf::Wide),
    Step::Write(Shelf::Wide, 50),
    Step::Flush(Shelf::Wide),
    Step::Compact(Shelf::Wide),
    Step::Write(Shelf::Small, 100),
    Step::Flush(Shelf::Small),
    Step::Write(Shelf::Small, 100),
    Step::Flush(Shelf::Small),
    Step::Compact(Shelf::Small),
    Step::Write(Shelf::Wide, 30),
];

/// Returns the number of batches that the job writes.
pub(crate) fn batches() -> u32 {
    STEPS.iter().map(|step| if let Step::Write(_, count) = step { *count } else { 0 }).sum()
}

/// Mixes two numbers.
fn mix(a: u64, b: u64) -> u64 {
    let mut x = a ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A record, in place.
#[derive(Clone)]
pub(crate) struct Record {
    key: [u8; 16],
    key_len: usize,
    value: [u8; MOST_VALUE_BYTES],
    value_len: usize,
    pub(crate) deletes: bool,
}

impl Record {
    pub(crate) fn new() -> Record {
        Record { key: [0; 16], key_len: 0, value: [0; MOST_VALUE_BYTES], value_len: 0, deletes: false }
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.key.get(..self.key_len).unwrap_or_default()
    }

    pub(crate) fn value(&self) -> &[u8] {
        self.value.get(..self.value_len).unwrap_or_default()
    }
}

/// The source of a job's records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Records {
    pub(crate) seed: u64,
}

impl Records {
    /// Returns the index of the key that a record writes.
    pub(crate) fn index(self, shelf: Shelf, number: u32) -> u32 {
        (mix(self.seed ^ shelf as u64, u64::from(number) << 8) % u64::from(shelf.keys())) as u32
    }

    pub(crate) fn deletes(self, shelf: Shelf, number: u32) -> bool {
        mix(self.seed ^ shelf as u64, u64::from(number) << 8 | 1).is_multiple_of(DELETES)
    }

    /// Writes the key with an index into the record. Keys beyond [`Shelf::keys`] are never written.
    pub(crate) fn key_into(self, shelf: Shelf, index: u32, record: &mut Record) {
        let mut at = 0;
        let mut push = |byte| {
            record.key[at] = byte;
            at += 1;
        };
        // In another order than the indexes.
        let hash = mix(self.seed ^ 77, u64::from(index));
        let (hash_digits, name) = if shelf == Shelf::Wide { (4, &b"key"[..]) } else { (2, &b"s"[..]) };
        name.iter().for_each(|byte| push(*byte));
        (0..hash_digits).for_each(|digit| push(hex_digit(hash >> (4 * digit))));
        push(b'-');
        (0..5).rev().for_each(|digit| push(b'0' + (index / 10_u32.pow(digit) % 10) as u8));
        record.key_len = at;
    }

    /// Generates a record.
    pub(crate) fn record_into(self, shelf: Shelf, number: u32, record: &mut Record) {
        self.key_into(shelf, self.index(shelf, number), record);
        record.deletes = self.deletes(shelf, number);
        record.value_len = 0;
        if record.deletes {
            return;
        }
        let mut at = 0;
        let mut push = |byte| {
            record.value[at] = byte;
            at += 1;
        };
        record.key[..record.key_len].iter().for_each(|byte| push(*byte));
        push(b'#');
        (0..6).rev().for_each(|digit| push(b'0' + (number / 10_u32.pow(digit) % 10) as u8));
        push(b'.');
        let mut letters = mix(self.seed, u64::from(number) << 8 | 2);
        let filler = match shelf {
            Shelf::Small => 0,
            Shelf::Wide if letters.is_multiple_of(16) => 600 + letters / 16 % 500,
            Shelf::Wide => letters / 16 % 120,
        };
        for _ in 0..filler {
            letters = letters.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            push(b'a' + (letters >> 59) as u8 % 26);
        }
        let sum = fold(&record.value[..at]);
        record.value[at..at + SUM_BYTES].copy_from_slice(&sum.to_le_bytes());
        record.value_len = at + SUM_BYTES;
    }

    /// Returns a batch's keyspace and the number of its first record and the one after its last.
    pub(crate) fn batch(batch: u32) -> (Shelf, std::ops::Range<u32>) {
        let mut first = [0; 2];
        let mut left = batch;
        for step in STEPS {
            let Step::Write(shelf, count) = step else { continue };
            let start = &mut first[shelf as usize];
            if left < count {
                let start = *start + left * shelf.batch();
                return (shelf, start..start + shelf.batch());
            }
            left -= count;
            *start += count * shelf.batch();
        }
        (Shelf::Wide, 0..0)
    }

    /// Returns the key that a batch number acknowledges itself with.
    pub(crate) fn token(self, batch: u32) -> u64 {
        mix(self.seed ^ 0xac_c0de, u64::from(batch)) | 1
    }

    /// Returns what must be found after the first `batches` batches: values by key.
    pub(crate) fn contents(self, shelf: Shelf, batches: u32) -> Contents {
        let mut last = BTreeMap::new();
        for batch in 0..batches {
            let (of, numbers) = Records::batch(batch);
            if of == shelf {
                last.extend(numbers.map(|number| (self.index(shelf, number), number)));
            }
        }
        let mut record = Record::new();
        let there = last.iter().filter(|(_, number)| !self.deletes(shelf, **number));
        let entries = there.map(|(_, number)| {
            self.record_into(shelf, *number, &mut record);
            (record.key().to_vec(), record.value().to_vec())
        });
        let entries = entries.collect::<BTreeMap<_, _>>();
        let absent = (0..shelf.keys() + shelf.keys() / 4).map(|index| {
            self.key_into(shelf, index, &mut record);
            record.key().to_vec()
        });
        let absent = absent.filter(|key| !entries.contains_key(key)).collect();
        Contents { entries, absent }
    }
}

/// What a keyspace must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) entries: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Keys that must be absent: deleted ones, and ones that were never written.
    pub(crate) absent: Vec<Vec<u8>>,
}

fn hex_digit(number: u64) -> u8 {
    b"0123456789abcdef"[(number & 15) as usize]
}

fn fold(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Describes the difference between a value and the one that was expected.
pub(crate) fn difference(expected: &[u8], found: &[u8]) -> String {
    if expected.len() == found.len() {
        let bits: u32 = expected.iter().zip(found).map(|(a, b)| (a ^ b).count_ones()).sum();
        let first = expected.iter().zip(found).position(|(a, b)| a != b).unwrap_or(0);
        if bits == 1 {
            return format!("one bit differs, in byte {first} of {}", expected.len());
        }
    }
    let sound =
        found.split_last_chunk::<SUM_BYTES>().is_some_and(|(text, sum)| fold(text).to_le_bytes() == *sum);
    let text = |value: &[u8]| {
        value.split(|byte| *byte == b'.').next().unwrap_or_default().escape_ascii().to_string()
    };
    match sound {
        true => format!("another record's value: `{}` instead of `{}`", text(found), text(expected)),
        false => format!(
            "a damaged value of {} bytes, expected {} bytes: `{}` instead of `{}`",
            found.len(),
            expected.len(),
            found.escape_ascii(),
            expected.escape_ascii()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDS: Records = Records { seed: 5 };

    fn record(shelf: Shelf, number: u32) -> Record {
        let mut record = Record::new();
        RECORDS.record_into(shelf, number, &mut record);
        record
    }

    #[test]
    fn batches_number_records_without_gaps() {
        let mut next = [0, 0];
        for batch in 0..batches() {
            let (shelf, numbers) = Records::batch(batch);
            assert_eq!(numbers.start, next[shelf as usize]);
            assert!(!numbers.is_empty());
            next[shelf as usize] = numbers.end;
        }
        assert!(Records::batch(batches()).1.is_empty());
    }

    #[test]
    fn contents_follow_the_batches_and_have_overwrites_and_deletes() {
        assert_eq!(RECORDS.contents(Shelf::Wide, 0).entries.len(), 0);
        let all = RECORDS.contents(Shelf::Wide, batches());
        assert!(
            all.entries.len() > 400 && all.absent.len() > 200,
            "{} {}",
            all.entries.len(),
            all.absent.len()
        );
        assert!(all.absent.iter().all(|key| !all.entries.contains_key(key)));
        let before = RECORDS.contents(Shelf::Wide, 20);
        assert!(before.entries.iter().any(|(key, value)| all.entries.get(key).is_some_and(|v| v != value)));
        assert!(before.entries.keys().any(|key| !all.entries.contains_key(key)));
    }

    #[test]
    fn keys_are_unique_and_values_name_them() {
        for shelf in Shelf::ALL {
            let mut keys = std::collections::BTreeSet::new();
            let mut key = Record::new();
            for index in 0..2 * shelf.keys() {
                RECORDS.key_into(shelf, index, &mut key);
                assert!(keys.insert(key.key().to_vec()));
            }
            for record in (0..500).map(|number| record(shelf, number)).filter(|record| !record.deletes) {
                assert!(record.value().starts_with(record.key()));
            }
        }
    }

    #[test]
    fn differences_tell_a_bit_from_another_record_and_from_damage() {
        let numbers = (0..).filter(|number| !RECORDS.deletes(Shelf::Wide, *number)).take(2);
        let [one, two] =
            <[Record; 2]>::try_from(numbers.map(|number| record(Shelf::Wide, number)).collect::<Vec<_>>())
                .unwrap_or_else(|_| unreachable!());
        let mut hit = one.value().to_vec();
        hit[14] ^= 4;
        assert_eq!(
            difference(one.value(), &hit),
            format!("one bit differs, in byte 14 of {}", one.value().len())
        );
        assert!(difference(one.value(), two.value()).starts_with("another record's value"));
        assert!(difference(one.value(), &one.value()[1..]).starts_with("a damaged value"));
    }
}
