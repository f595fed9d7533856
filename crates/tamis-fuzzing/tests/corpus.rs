//! The fuzzing corpus as an ordinary test: every input of every target, and thousands of deterministic mutations of each
//! that has a name, go through the same entry points that `fuzz/` feeds. What is asserted is said there (`fuzz/README.md`).
//!
//! `TAMIS_TEST_SCALE=10` makes ten times as many mutations. When an entry point panics, the seed, the number of the
//! mutation and the bytes are printed; to keep a finding, put the bytes (minimised) into `fuzz/corpus/<target>/`
//! under a name that starts with `finding-`.

#![allow(clippy::print_stderr)]

use std::path::PathBuf;

use tamis::fuzzing;

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus");

/// SplitMix64: the same numbers everywhere and for ever.
struct Random(u64);

impl Random {
    fn new(seed: &str, number: u64) -> Random {
        let start =
            seed.bytes().fold(number, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3));
        Random(start)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// Below `limit`, which is not 0.
    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// Numbers on which length fields and counters break, if they do.
const NUMBERS: [u64; 14] = [
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFF,
    0x100,
    0xFFFF,
    0x7FFF_FFFF,
    0xFFFF_FFFF,
    1 << 32,
    (1 << 56) - 1,
    1 << 56,
    u64::MAX,
];

/// One to four changes to a copy of `seed`; `other` is another seed of the target, to splice with.
fn mutated(seed: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len() + 1);
        let number = NUMBERS[random.below(NUMBERS.len())];
        match random.below(10) {
            0 | 1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            2 if at < bytes.len() => bytes[at] = random.next() as u8,
            3 => bytes.truncate(at),
            // A length field of a fixed width.
            4 | 5 => {
                let width = [1, 2, 4, 8][random.below(4)];
                bytes[at..]
                    .iter_mut()
                    .zip(number.to_le_bytes())
                    .take(width)
                    .for_each(|(to, from)| *to = from);
            }
            // A length field that is a varint.
            6 => {
                let (mut varint, mut rest) = (Vec::new(), number);
                while rest >= 0x80 {
                    varint.push(rest as u8 | 0x80);
                    rest >>= 7;
                }
                varint.push(rest as u8);
                let end = bytes.len().min(at + random.below(3));
                bytes.splice(at..end, varint);
            }
            // A piece goes, or comes twice.
            7 => {
                let end = at + random.below((bytes.len() - at).min(32) + 1);
                let piece: Vec<u8> = bytes.drain(at..end).collect();
                if random.below(2) == 0 {
                    let at = random.below(bytes.len() + 1);
                    bytes.splice(at..at, [&piece[..], &piece].concat());
                }
            }
            8 => {
                let from = random.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => {
                let piece: Vec<u8> = (0..random.below(8)).map(|_| random.next() as u8).collect();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}

/// Says what was being tried if the entry point panics.
struct Trying<'a> {
    target: &'a str,
    seed: &'a str,
    mutation: Option<u64>,
    bytes: &'a [u8],
}

impl Drop for Trying<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let hex: String = self.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            eprintln!("{} / {} / mutation {:?}: {hex}", self.target, self.seed, self.mutation);
        }
    }
}

/// Whether the fuzzer named it, and not a person.
fn is_hex_named(name: &str) -> bool {
    name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// The committed inputs of a target in the order of their names.
fn inputs(target: &str) -> Vec<(String, Vec<u8>)> {
    let dir = PathBuf::from(CORPUS).join(target);
    let entries = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut inputs: Vec<(String, Vec<u8>)> = entries
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .map(|(name, path)| (name, std::fs::read(path).unwrap()))
        .collect();
    inputs.sort();
    inputs
}

fn scale() -> u64 {
    std::env::var("TAMIS_TEST_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1)
}

/// Runs a target over its inputs, and over `mutations` of each of its seeds: of those that have names.
fn run(target: &str, entry: fn(&[u8]), mutations: u64) {
    let inputs = inputs(target);
    for (name, input) in &inputs {
        let _trying = Trying { target, seed: name, mutation: None, bytes: input };
        entry(input);
    }
    let seeds: Vec<_> = inputs.into_iter().filter(|(name, _)| !is_hex_named(name)).collect();
    assert!(
        !seeds.is_empty(),
        "{target}: where is the corpus? `cargo run -p tamis --example make_corpus` makes it"
    );
    for (name, seed) in &seeds {
        for number in 0..mutations * scale() {
            let mut random = Random::new(name, number);
            let other = &seeds[random.below(seeds.len())].1;
            let bytes = mutated(seed, other, &mut random);
            let _trying = Trying { target, seed: name, mutation: Some(number), bytes: &bytes };
            entry(&bytes);
        }
    }
}

#[test]
fn mutated_logs_are_read_or_refused() {
    run("log", fuzzing::log, 8000);
}

#[test]
fn mutated_manifests_are_read_or_refused() {
    run("manifest", fuzzing::manifest, 4000);
}

#[test]
fn mutated_tables_are_read_or_refused() {
    run("table", fuzzing::table, 1500);
}

#[test]
fn mutated_external_tables_are_ingested_whole_or_refused() {
    run("external", fuzzing::external, 200);
}

#[test]
fn mutated_data_blocks_are_read_or_refused() {
    run("data_block", fuzzing::data_block, 8000);
}

#[test]
fn mutated_filters_are_read_or_refused() {
    run("filter", fuzzing::filter, 5000);
}

#[test]
fn mutated_key_lists_are_read_or_refused() {
    run("key_list", fuzzing::key_list, 8000);
}

#[test]
fn mutated_elastic_filters_are_read_or_refused() {
    run("elastic", fuzzing::elastic, 2000);
}

#[test]
fn range_filters_of_mutated_keys_agree_with_a_set() {
    run("range_filter", fuzzing::range_filter, 60);
}

#[test]
fn mutated_range_tombstones_are_read_or_refused() {
    run("tombstones", fuzzing::tombstones, 20000);
}

#[test]
fn mutated_batches_are_read_or_refused() {
    run("batch", fuzzing::batch, 10000);
}

#[test]
fn mutated_option_texts_are_read_or_refused() {
    run("options", fuzzing::options, 2000);
}

#[test]
fn a_database_with_damaged_files_gives_right_answers_or_errors() {
    run("database", fuzzing::database, 60);
}

#[test]
fn mutated_histories_of_operations_agree_with_two_maps() {
    run("differential", fuzzing::differential, 150);
}
