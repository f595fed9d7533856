//! Predictions beside measurements for some configurations: `cargo run --release -p tamis-advisor
//! --example advise_check [keys]`.
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use tamis::Options;
use tamis::io::MemFs;
use tamis::options::{CompactionChoice, FilterChoice};
use tamis_advisor::{
    Calibration, Class, Configuration, Data, Machine, Policy, Selector, Setup, Shape, State, Tree, Workload,
    predict, predict_tree,
};

fn random(i: u64, salt: u64) -> u64 {
    let mut x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt.wrapping_mul(0xd6e8_feb8_6659_fd93);
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}

/// The lower quartile of the passes: the rest includes noise from other processes.
fn quiet(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 4]
}

fn main() -> Result<(), tamis::Error> {
    let keys: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(200_000);
    let value = [0x61u8; 100];
    let calibration = Calibration::measure(&Setup::new(8, value.len()))?;
    let machine: &Machine = &calibration.machine;
    println!(
        "calibrated in {} ms; search {:.0} ns, {:.1} misses; cursor {:.0} ns, {:.1} misses",
        calibration.took_ns / 1_000_000,
        machine.search_ns,
        machine.search_misses,
        machine.cursor_ns,
        machine.cursor_misses
    );
    let configurations = [
        (FilterChoice::None, CompactionChoice::Tiering, Selector::None, Policy::Tiering),
        (FilterChoice::BlockedBloom, CompactionChoice::Leveling, Selector::BlockedBloom, Policy::Leveling),
        (FilterChoice::BlockedBloom, CompactionChoice::Tiering, Selector::BlockedBloom, Policy::Tiering),
        (FilterChoice::Ribbon, CompactionChoice::Tiering, Selector::Ribbon, Policy::Tiering),
        (FilterChoice::Snarf, CompactionChoice::Tiering, Selector::Snarf, Policy::Tiering),
        (FilterChoice::Grafite, CompactionChoice::Tiering, Selector::Grafite, Policy::Tiering),
        (FilterChoice::Grf, CompactionChoice::Tiering, Selector::Grf, Policy::Tiering),
    ];
    let mut data = Data::new(keys, 8.0, value.len() as f64);
    data.memtable_bytes = 512 << 10;
    println!(
        "{:24} {:>12} {:>9} {:>9} {:>7}",
        "configuration", "operation", "measured", "predicted", "error"
    );
    for (filter, compaction, selector, policy) in configurations {
        let mut options = Options::default().file_system(Some(Arc::new(MemFs::new())));
        options.keyspace.filter = filter.into();
        options.keyspace.bits_per_key = 12.0;
        options.keyspace.compaction = compaction;
        options.keyspace.read_compaction = false;
        options.keyspace.compression = tamis::options::Compression::None.into();
        options.keyspace.memtable_bytes = data.memtable_bytes;
        let db = options.open("/db")?;
        let started = Instant::now();
        for i in 0..keys {
            db.put((random(i, 1) >> 1).to_be_bytes(), value)?;
        }
        let put_ns = started.elapsed().as_nanos() as f64 / keys as f64;
        db.default_keyspace().flush()?;
        db.wait_for_compaction()?;
        db.wait_for_filters()?;
        let stats = db.stats();
        let runs: Vec<f64> =
            stats.keyspaces[0].levels.iter().flat_map(|l| &l.runs).map(|r| r.entries as f64).collect();
        let mut shape = Shape::new(policy, 10);
        shape.read_compaction = false;
        let configuration = Configuration::new(selector, 12.0, shape);
        let workload = Workload { puts: 0.1, range_width: 16.0, ..Workload::default() };
        let grown = predict(machine, &data, &workload, &configuration);
        let tree =
            Tree { states: vec![State::of(runs.clone())], write_amplification: grown.write_amplification };
        let predicted = predict_tree(machine, &data, &workload, &configuration, &tree);
        let ops = 1_000u64;
        let time = |f: &dyn Fn(u64) -> Result<(), tamis::Error>| -> Result<f64, tamis::Error> {
            let mut times = Vec::new();
            for pass in 0..40 {
                let started = Instant::now();
                for i in 0..ops {
                    f(pass * ops + i)?;
                }
                times.push(started.elapsed().as_nanos() as f64 / ops as f64);
            }
            Ok(quiet(times))
        };
        let empty = time(&|i| {
            black_box(db.get((random(i, 2) >> 1).to_be_bytes())?);
            Ok(())
        })?;
        let existing = time(&|i| {
            black_box(db.get((random(random(i, 3) % keys, 1) >> 1).to_be_bytes())?);
            Ok(())
        })?;
        let from = |i| random(i, 4) >> 1;
        let range = time(&|i| {
            black_box(db.range(from(i).to_be_bytes()..(from(i) + 16).to_be_bytes()).next());
            Ok(())
        })?;
        let seek = time(&|i| {
            black_box(db.range(from(i).to_be_bytes()..).next());
            Ok(())
        })?;
        let scan = time(&|i| {
            black_box(db.range(from(i / 8).to_be_bytes()..).take(50).count());
            Ok(())
        })?;
        let name = format!("{} {} {}", selector.word(), compaction, runs.len());
        let wrote = stats.write.flush_bytes + stats.write.compaction_write_bytes;
        println!(
            "{name}: runs {:.1} grown, amplification {:.2} measured {:.2}, bits {:.1}",
            grown.runs,
            grown.write_amplification,
            wrote as f64 / stats.write.flush_bytes as f64,
            stats.keyspaces[0].filter_bits_per_key
        );
        let measured = [empty, existing, range, seek, scan, put_ns];
        for (class, measured) in Class::ALL.into_iter().zip(measured) {
            let ns = predicted.ns(class);
            println!(
                "{name:24} {:>12} {measured:9.0} {ns:9.0} {:6.0}%",
                class.name(),
                100.0 * (ns / measured - 1.0)
            );
        }
    }
    Ok(())
}
