//! Synthetic rows for tests.

use std::collections::BTreeMap;

use tamis_lab::machine::Machine;

use super::Context;
use crate::record::{Conditions, Figures, Row};

/// Returns conditions to which targets apply, with one thread.
pub(super) fn conditions(suite: &str, workload: &str) -> Conditions {
    Conditions {
        suite: suite.to_owned(),
        workload: workload.to_owned(),
        keys: 1_000_000,
        key_bytes: 8,
        value_bytes: 256,
        threads: 1,
        cache_bytes: 8 << 20,
        filter_bits: 10,
        settled: suite != "runs",
        compression: "none".to_owned(),
        ..Conditions::default()
    }
}

/// Returns a row of one thread with `ns` per operation, and the other figures derived from it.
pub(super) fn row(suite: &str, workload: &str, system: &str, round: u32, ns: f64) -> Row {
    let figures = Figures {
        ops: 1000,
        ns_per_op: ns,
        ops_per_second: 1e9 / ns,
        p50_ns: ns as u64,
        p99_ns: (2.0 * ns) as u64,
        p999_ns: (5.0 * ns) as u64,
        put_p9999_ns: if suite == "load" { (50.0 * ns) as u64 } else { 0 },
        cpu_ns_per_op: ns,
        space_amplification: 1.25,
        resident_bytes: 64 << 20,
        ..Figures::default()
    };
    Row {
        conditions: conditions(suite, workload),
        system: system.to_owned(),
        version: "1.2.3".to_owned(),
        options: BTreeMap::from([("write_buffer_size".to_owned(), "64 MiB".to_owned())]),
        round,
        refused: None,
        durability: "with the operating system".to_owned(),
        figures,
    }
}

/// Returns rows of several systems, one round for each time.
pub(super) fn rows_of(suite: &str, workload: &str, systems: &[(&str, &[f64])]) -> Vec<Row> {
    let rows = systems.iter().flat_map(|(system, times)| {
        let numbered = (0..).zip(times.iter());
        numbered.map(move |(round, ns)| row(suite, workload, system, round, *ns))
    });
    rows.collect()
}

/// Returns a row of a system that could not be measured.
pub(super) fn refused(suite: &str, workload: &str, system: &str, why: &str) -> Row {
    Row {
        refused: Some(why.to_owned()),
        figures: Figures::default(),
        options: BTreeMap::new(),
        ..row(suite, workload, system, 0, 1.0)
    }
}

/// Returns every suite with targets, with peers, a variant, a refusal, several threads, and writes.
pub(super) fn comparison() -> Vec<Row> {
    let reads: &[(&str, [f64; 6])] = &[
        ("get-empty", [210.0, 190.0, 1059.0, 1043.0, 460.0, 4131.0]),
        ("get-existing", [1307.0, 1420.0, 5645.0, 2543.0, 4788.0, 3905.0]),
        ("get-zipf", [972.0, 1010.0, 4162.0, 2050.0, 3453.0, 2694.0]),
        ("multi-get-empty", [95.0, 99.0, 700.0, 1043.0, 460.0, 4131.0]),
        ("range-empty", [3282.0, 900.0, 17362.0, 2662.0, 10994.0, 4447.0]),
        ("seek", [2765.0, 2100.0, 17454.0, 2850.0, 10131.0, 4487.0]),
        ("seek-next50", [9827.0, 9900.0, 37361.0, 9927.0, 30006.0, 16676.0]),
    ];
    let systems = ["tamis", "tamis-grf", "rocksdb", "leveldb", "fjall", "redb"];
    let writes: &[(&str, &str, [f64; 6])] = &[
        ("load", "fill-random", [2562.0, 3000.0, 4600.0, 3900.0, 4800.0, 11000.0]),
        ("load", "fill-seq", [1500.0, 1600.0, 1900.0, 1700.0, 2500.0, 9000.0]),
        ("ycsb", "ycsb-a", [2300.0, 2500.0, 4329.0, 3676.0, 3759.0, 11765.0]),
        ("ycsb", "ycsb-e", [14_000.0, 13_800.0, 38_461.0, 12_987.0, 34_482.0, 16_129.0]),
    ];
    let mut rows = Vec::new();
    let mut add = |suite: &str, workload: &str, threads: usize, times: &[f64; 6]| {
        for (at, (system, ns)) in systems.iter().zip(times).enumerate() {
            for round in 0..5 {
                let shake = 1.0 + 0.02 * f64::from(round) * (1 + at % 3) as f64;
                let mut row = row(suite, workload, system, round, ns * shake);
                row.conditions.threads = threads;
                row.figures.ops_per_second *= threads as f64 * 0.97;
                row.figures.resident_bytes = ((60 + 9 * at) << 20) as u64;
                row.figures.inside.filter_bytes = (at < 4).then_some(1_250_000);
                if suite == "load" || suite == "ycsb" {
                    row.figures.write_amplification = 4.0 + 0.3 * at as f64;
                }
                rows.push(row);
            }
        }
    };
    for (workload, times) in reads {
        add("settled", workload, 1, times);
        add("settled", workload, 2, times);
        let mut many = times.map(|ns| ns * 3.5);
        many[1] = times[1];
        add("runs", workload, 1, &many);
    }
    for (suite, workload, times) in writes {
        add(suite, workload, 1, times);
    }
    rows.retain(|row| row.conditions.suite != "runs" || !["leveldb", "redb"].contains(&row.system.as_str()));
    for (workload, _) in reads {
        rows.push(refused("runs", workload, "leveldb", "LevelDB cannot hold compaction back"));
        rows.push(refused("runs", workload, "redb", "a B-tree has no runs"));
    }
    rows
}

/// Returns a context.
pub(super) fn context() -> Context {
    Context {
        commands: vec!["tamis-peers run --keys 1000000 --suites settled,runs,load,ycsb".to_owned()],
        commits: vec!["0123456789ab".to_owned()],
        date: "2026-11-21".to_owned(),
        machine: Machine {
            cpu: "AMD EPYC 7B13".to_owned(),
            cores: 2,
            memory_bytes: 24 << 30,
            caches: Vec::new(),
            system: "Linux 6.1.0 x86_64".to_owned(),
            disk: String::new(),
        },
    }
}
