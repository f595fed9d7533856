//! How often global filters name a run for an absent key, in the engine. With room reserved for future entries, the
//! same bits leave less for each entry than in a full filter. Prints them as a table.
//!
//! ```sh
//! cargo run --release --manifest-path lab/Cargo.toml -p tamis-rivals --example global_rates
//! ```
#![allow(clippy::print_stdout)]

use std::sync::Arc;

use tamis::io::MemFs;
use tamis::{Error, Options};

const KEYS: u64 = 100_000;
const GETS: u64 = 20_000;

/// Key number `i`: pseudo-random, and no two keys are equal.
fn key(i: u64) -> [u8; 8] {
    let mixed = (i ^ (i >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9).to_be_bytes()
}

/// Runs searched in vain by a get of an absent key, with this many runs of similar size.
fn searched(filter: &str, bits: f64, runs: u64) -> Result<f64, Error> {
    let mut options = Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() };
    tamis_rivals::set_filter(&mut options, filter)?;
    options.keyspace.bits_per_key = bits;
    options.keyspace.auto_compaction = false;
    options.keyspace.level0_runs = 8;
    let db = options.open("/rates")?;
    for run in 0..runs {
        for i in KEYS * run / runs..KEYS * (run + 1) / runs {
            db.put(key(i), i.to_le_bytes())?;
        }
        db.flush()?;
    }
    if runs == 1 {
        db.compact()?;
    }
    db.wait_for_filters()?;
    let before = db.stats().read;
    for i in 0..GETS {
        db.get(key(KEYS + i))?;
    }
    let read = db.stats().read - before;
    db.close()?;
    Ok(read.runs_searched as f64 / read.gets as f64)
}

fn main() -> Result<(), Error> {
    println!("| filter | bits | one run | eight runs |\n| --- | ---: | ---: | ---: |");
    for filter in ["grf", "grf-huffman", "chucky"] {
        for bits in [8.0, 10.0, 11.0, 12.0, 13.0, 14.0, 16.0] {
            let (one, eight) = (searched(filter, bits, 1)?, searched(filter, bits, 8)?);
            println!("| `{filter}` | {bits} | {one:.4} | {eight:.4} |");
        }
    }
    Ok(())
}
