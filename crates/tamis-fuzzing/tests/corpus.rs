//! The fuzzing corpus as an ordinary test: every input of every target, and thousands of
//! deterministic mutations of each named one, go through the entry points that `fuzz/` uses.
//! `fuzz/README.md` lists what they assert.
//!
//! `TAMIS_TEST_SCALE=10` makes ten times as many mutations. When an entry point panics, the seed,
//! the number of the mutation and the bytes are printed. To keep a finding, put the bytes
//! (minimized) into `fuzz/corpus/<target>/` under a name that starts with `finding-`.

#![allow(clippy::print_stderr)]

use std::path::PathBuf;

use tamis_testkit::Rng;
use tamis_testkit::fuzz::mutated;

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus");

/// Prints the current input if the entry point panics.
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

/// Reports whether the fuzzer named the input, and not a person.
fn is_hex_named(name: &str) -> bool {
    name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Returns the committed inputs of a target in the order of their names.
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

/// Runs a target over its inputs, and over `mutations` mutations of each of its seeds, the inputs
/// with names.
fn run(target: &str, entry: fn(&[u8]), mutations: u64) {
    let inputs = inputs(target);
    for (name, input) in &inputs {
        let _trying = Trying { target, seed: name, mutation: None, bytes: input };
        entry(input);
    }
    let seeds: Vec<_> = inputs.into_iter().filter(|(name, _)| !is_hex_named(name)).collect();
    assert!(
        !seeds.is_empty(),
        "{target}: the corpus is missing; `cargo run -p tamis-fuzzing --example make_corpus` writes it"
    );
    for (name, seed) in &seeds {
        for number in 0..mutations * scale() {
            let mut rng = Rng::named(name, number);
            let other = &seeds[rng.index(seeds.len())].1;
            let bytes = mutated(seed, other, &mut rng);
            let _trying = Trying { target, seed: name, mutation: Some(number), bytes: &bytes };
            entry(&bytes);
        }
    }
}

#[test]
fn mutated_logs_are_read_or_refused() {
    run("log", tamis_fuzzing::log, 8000);
}

#[test]
fn mutated_manifests_are_read_or_refused() {
    run("manifest", tamis_fuzzing::manifest, 4000);
}

#[test]
fn mutated_tables_are_read_or_refused() {
    run("table", tamis_fuzzing::table, 1500);
}

#[test]
fn mutated_external_tables_are_ingested_whole_or_refused() {
    run("external", tamis_fuzzing::external, 200);
}

#[test]
fn mutated_data_blocks_are_read_or_refused() {
    run("data_block", tamis_fuzzing::data_block, 8000);
}

#[test]
fn mutated_filters_are_read_or_refused() {
    run("filter", tamis_fuzzing::filter, 5000);
}

#[test]
fn mutated_key_lists_are_read_or_refused() {
    run("key_list", tamis_fuzzing::key_list, 8000);
}

#[test]
fn mutated_blob_files_are_read_or_refused() {
    run("blobs", tamis_fuzzing::blobs, 8000);
}

#[test]
fn mutated_filter_files_are_read_or_refused() {
    run("filter_images", tamis_fuzzing::filter_images, 8000);
}

#[test]
fn mutated_elastic_filters_are_read_or_refused() {
    run("elastic", tamis_fuzzing::elastic, 2000);
}

#[test]
fn range_filters_of_mutated_keys_agree_with_a_set() {
    run("range_filter", tamis_fuzzing::range_filter, 60);
}

#[test]
fn mutated_range_tombstones_are_read_or_refused() {
    run("tombstones", tamis_fuzzing::tombstones, 20000);
}

#[test]
fn mutated_batches_are_read_or_refused() {
    run("batch", tamis_fuzzing::batch, 10000);
}

#[test]
fn mutated_option_texts_are_read_or_refused() {
    run("options", tamis_fuzzing::options, 2000);
}

#[test]
fn a_database_with_damaged_files_gives_right_answers_or_errors() {
    run("database", tamis_fuzzing::database, 60);
}

#[test]
fn mutated_histories_of_operations_agree_with_two_maps() {
    run("differential", tamis_fuzzing::differential, 150);
}
