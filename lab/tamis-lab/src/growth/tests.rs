//! Both figures as a whole at a tiny scale, and their verdicts over rows made up.

use tamis_bench::measure::Measurement;
use tamis_bench::progress::NoProgress;
use tamis_bench::workload::Workload::{self, GetEmpty, GetExisting, Overwrite, Seek};

use super::rows::{LOAD, LoadRow, OP, OpRow};
use super::*;
use crate::figures::rows::row;
use crate::figures::trial::Trial;
use crate::figures::{Finding, Kind};

fn figure(over: Over) -> Box<dyn Figure> {
    figures().remove(over as usize)
}

fn run_all(over: Over, custom: &Custom) -> (Vec<String>, Vec<Row>) {
    let figure = figure(over);
    let mut plan = figure.plan(Scale::Small, custom).unwrap();
    let steps = plan.steps();
    let rows = (0..steps.len()).flat_map(|step| plan.run(step, &NoProgress).unwrap()).collect();
    (steps, rows)
}

fn refused(over: Over, custom: Custom) -> String {
    match figure(over).plan(Scale::Small, &custom) {
        Err(BenchError::Request(why)) => why,
        Err(other) => panic!("{other:?}"),
        Ok(plan) => panic!("accepted: {}", plan.setting()),
    }
}

/// Returns a row whose counters are as they should be, with rounds 5 % apart from the median.
fn op(side: &str, keys: u64, runs: u64, workload: Workload, ns: f64) -> OpRow {
    let found = f64::from(u8::from(workload != GetEmpty));
    OpRow {
        kind: OP.into(),
        side: side.into(),
        bits_asked: 10.0,
        runs_asked: runs,
        shape: runs.to_string(),
        min_ns: ns * 0.95,
        max_ns: ns * 1.05,
        memory_bits_per_key: 10.0,
        index_bits_per_key: 2.0,
        table_bytes: keys * 30,
        l2_bytes: 1 << 20,
        l3_bytes: 32 << 20,
        measurement: Measurement {
            workload: workload.name().into(),
            keys,
            runs: runs as usize,
            ops: 1000,
            ns_per_op: ns,
            filter_probes_per_op: if side == "grf" { 1.0 } else { runs as f64 },
            block_reads_per_op: found + 0.01 * runs as f64,
            ..Measurement::default()
        },
        ..OpRow::default()
    }
}

fn findings(over: Over, ops: &[OpRow]) -> Vec<Finding> {
    let rows: Vec<Row> = ops.iter().map(row).collect();
    figure(over).view(&rows).verdicts.into_iter().map(|verdict| verdict.finding).collect()
}

const OPS: [Workload; 4] = [GetEmpty, GetExisting, Seek, Overwrite];

/// Three points a decade apart; a run more with each decade, and times that grow by half.
fn by_keys() -> Vec<OpRow> {
    let point = |n: u32| {
        OPS.map(|workload| {
            let ns = 100.0 * 1.5f64.powi(n as i32);
            op("blocked-bloom", 100_000 * 10u64.pow(n), 3 + u64::from(n), workload, ns)
        })
    };
    (0..3).flat_map(point).collect()
}

/// One to forty runs; 20 ns for each with local filters, and 2 with a global one that begins slower.
fn by_runs() -> Vec<OpRow> {
    let point = |runs: u64| {
        let local = move |workload| op("blocked-bloom", 1_000_000, runs, workload, 80.0 + 20.0 * runs as f64);
        let global = move |workload| op("grf", 1_000_000, runs, workload, 200.0 + 2.0 * runs as f64);
        OPS[..3].iter().flat_map(move |&workload| [local(workload), global(workload)])
    };
    [1, 2, 5, 10, 20, 40].into_iter().flat_map(point).collect()
}

/// In the bad rows the last point asks more filters than there are runs, reads too many blocks, and is slow on the side that should be fast.
pub(super) fn trial(over: Over) -> Trial {
    let rows = |ops: &[OpRow]| ops.iter().map(row).collect::<Vec<Row>>();
    let good = match over {
        Over::Keys => by_keys(),
        Over::Runs => by_runs(),
    };
    let spoilt = |side: &str| {
        let mut bad = good.clone();
        let last =
            |row: &OpRow| row.side == side && (row.measurement.keys == 10_000_000 || row.runs_asked == 40);
        for row in bad.iter_mut().filter(|row| last(row)) {
            row.measurement.filter_probes_per_op = 50.0;
            row.measurement.block_reads_per_op = 3.0;
            for ns in [&mut row.measurement.ns_per_op, &mut row.min_ns, &mut row.max_ns] {
                *ns *= 60.0;
            }
        }
        rows(&bad)
    };
    Trial { good: rows(&good), bad: vec![spoilt("blocked-bloom"), spoilt("grf")] }
}

#[test]
fn claims_about_keys_hold_and_each_can_fail() {
    use Finding::{Fails, Holds, Open};
    assert_eq!(findings(Over::Keys, &by_keys()), [Holds; 8]);
    assert_eq!(findings(Over::Keys, &[]), [Open; 8]);
    let with = |change: &dyn Fn(&mut OpRow)| {
        let mut rows = by_keys();
        rows.iter_mut().for_each(change);
        findings(Over::Keys, &rows)
    };
    let last = |row: &OpRow| row.measurement.keys == 10_000_000;
    let is = |row: &OpRow, op: Workload| row.measurement.workload == op.name();
    let fails = |at: usize| {
        let mut expected = [Holds; 8];
        expected[at] = Fails;
        expected
    };
    let more_filters = with(&|row| {
        if last(row) && is(row, GetEmpty) {
            (row.measurement.runs, row.measurement.filter_probes_per_op) = (6, 5.1);
        }
    });
    assert_eq!(more_filters, fails(0), "two more filters with the last decade");
    let asked_twice = with(&|row| {
        if is(row, GetEmpty) {
            row.measurement.runs -= 1;
        }
    });
    assert_eq!(asked_twice, fails(1), "more filters than runs");
    let never_asked = with(&|row| row.measurement.filter_probes_per_op = 0.0);
    assert_eq!(never_asked, fails(1));
    let bad_filters = with(&|row| {
        if last(row) && is(row, GetEmpty) {
            row.measurement.block_reads_per_op = 0.2;
        }
    });
    assert_eq!(bad_filters, fails(2));
    for blocks in [0.9, 1.5] {
        let wrong = with(&|row| {
            if last(row) && is(row, GetExisting) {
                row.measurement.block_reads_per_op = blocks;
            }
        });
        assert_eq!(wrong, fails(3), "{blocks}");
    }
    for (at, op) in OPS.into_iter().enumerate() {
        let slow = |times: f64| {
            with(&|row| {
                if last(row) && is(row, op) {
                    for ns in [&mut row.measurement.ns_per_op, &mut row.min_ns, &mut row.max_ns] {
                        *ns *= times;
                    }
                }
            })
        };
        assert_eq!(slow(1.7), fails(4 + at), "{op}");
        // 2.1 times within a decade, but the spreads reach 2.
        assert_eq!(slow(1.4)[4 + at], Open, "{op}");
    }
    // Less than a decade says nothing about one.
    let short: Vec<OpRow> = by_keys().into_iter().filter(|row| row.measurement.keys == 100_000).collect();
    assert_eq!(findings(Over::Keys, &short), [Open, Holds, Holds, Holds, Open, Open, Open, Open]);
}

#[test]
fn claims_about_runs_hold_and_each_can_fail() {
    use Finding::{Fails, Holds, Open};
    assert_eq!(findings(Over::Runs, &by_runs()), [Holds; 7]);
    assert_eq!(findings(Over::Runs, &[]), [Open; 7]);
    let with = |change: &dyn Fn(&mut OpRow)| {
        let mut rows = by_runs();
        rows.iter_mut().for_each(change);
        findings(Over::Runs, &rows)
    };
    let at = |row: &OpRow, side: &str, op: Workload| {
        row.runs_asked == 40 && row.side == side && row.measurement.workload == op.name()
    };
    let fails = |at: &[usize]| {
        let mut expected = [Holds; 7];
        at.iter().for_each(|&at| expected[at] = Fails);
        expected
    };
    let probes = |side: &'static str, probes: f64| {
        with(&move |row| {
            if at(row, side, GetEmpty) {
                row.measurement.filter_probes_per_op = probes;
            }
        })
    };
    assert_eq!(probes("blocked-bloom", 41.0), fails(&[0]));
    assert_eq!(probes("grf", 2.0), fails(&[1]));
    assert_eq!(probes("grf", 0.0), fails(&[1]));
    let slow = |side: &'static str, op: Workload, times: f64| {
        with(&move |row| {
            if at(row, side, op) {
                for ns in [&mut row.measurement.ns_per_op, &mut row.min_ns, &mut row.max_ns] {
                    *ns *= times;
                }
            }
        })
    };
    assert_eq!(slow("blocked-bloom", GetEmpty, 6.0), fails(&[2]));
    assert_eq!(slow("grf", GetEmpty, 50.0), fails(&[3, 4]));
    assert_eq!(slow("grf", GetExisting, 5.0), fails(&[5]));
    assert_eq!(slow("grf", Seek, 5.0), fails(&[6]));
    assert_eq!(slow("grf", Seek, 3.1)[6], Open, "within the spreads");
    let verdicts =
        |rows: &[OpRow]| figure(Over::Runs).view(&rows.iter().map(row).collect::<Vec<_>>()).verdicts;
    assert!(verdicts(&by_runs())[4].note.contains("Faster from 10 runs on."));
    let mut unequal = by_runs();
    unequal.iter_mut().filter(|row| row.side == "grf").for_each(|row| row.memory_bits_per_key = 10.3);
    assert!(verdicts(&unequal)[4].note.contains("Not at equal memory at every point: grf"));
    let view = figure(Over::Runs).view(&unequal.iter().map(row).collect::<Vec<_>>());
    let marked = view.sheets[1].rows.iter().filter(|row| row[5].ends_with('≠')).count();
    assert_eq!(marked, 6);
}

#[test]
fn caches_are_marked_where_filters_and_tables_outgrow_them() {
    let view = figure(Over::Keys).view(&by_keys().iter().map(row).collect::<Vec<_>>());
    let Kind::Lines(series) = &view.panels[0].kind else { panic!("no lines") };
    let names: Vec<&str> = series.iter().map(|line| &line.name[..]).collect();
    assert_eq!(
        names,
        ["get, absent key", "get, existing key", "seek", "put", "model: filters > L2", "model: tables > L3"]
    );
    // 1.5 bytes of filters and indexes a key, and 30 of tables.
    let at = |line: usize| series[line].points[0].x.round() as u64;
    assert_eq!((at(4), at(5)), (699_051, (32 << 20) / 30));
    let caches = view.sheets.last().unwrap();
    assert_eq!(caches.rows[0], ["L2", "1.0 MiB", "699,051", "34,953"]);
    // Unknown caches are left out.
    let mut unknown = by_keys();
    unknown.iter_mut().for_each(|row| (row.l2_bytes, row.l3_bytes) = (0, 0));
    let view = figure(Over::Keys).view(&unknown.iter().map(row).collect::<Vec<_>>());
    let Kind::Lines(series) = &view.panels[0].kind else { panic!("no lines") };
    assert_eq!((series.len(), view.sheets.len()), (4, 2));
}

/// With tiny memtables the tree has several levels, and the counters show it.
#[test]
fn keys_grow_on_trees_that_end_at_the_same_moment() {
    let options = [("keyspace.memtable_bytes", "64 KiB"), ("keyspace.table_bytes", "64 KiB")];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let custom =
        Custom { keys: Some(12_000), ops: Some(400), repeats: Some(3), options, ..Custom::default() };
    let (steps, rows) = run_all(Over::Keys, &custom);
    assert_eq!(steps, ["1,000 keys", "3,162 keys", "10,000 keys", "12,000 keys"]);
    let ops = rows::ops(&rows);
    assert_eq!(ops.len(), 4 * 4);
    for row in &ops {
        let m = &row.measurement;
        assert!(row.shape.starts_with('3'), "level 0 is not full: {row:?}");
        assert!(row.min_ns <= m.ns_per_op && m.ns_per_op <= row.max_ns);
        assert_eq!((m.ops, m.repeats, m.read_mode.as_str()), (400, 3, "mapped"));
        assert!(row.memory_bits_per_key >= 10.0 && row.index_bits_per_key > 0.0 && row.table_bytes > 0);
        assert_eq!(row.settle_ns_per_op > 0.0, m.workload == "overwrite", "{row:?}");
        if m.workload == "get-empty" {
            assert!(m.filter_probes_per_op <= m.runs as f64, "{row:?}");
        }
    }
    let loads = rows::loads(&rows);
    assert_eq!(loads.len(), 4);
    for load in &loads {
        assert!(load.flushes % 4 == 3 && load.put_ns > 0.0 && load.flush_ns > 0.0, "{load:?}");
        let runs = ops.iter().find(|row| row.measurement.keys == load.keys).unwrap().measurement.runs;
        assert_eq!(runs > 3, load.flushes > 3, "{load:?}");
    }
    let view = figure(Over::Keys).view(&rows);
    assert_eq!((view.panels.len(), view.sheets[0].rows.len()), (3, 16));
    // Those about counters hold at any size.
    let counted: Vec<Finding> = view.verdicts[1..4].iter().map(|verdict| verdict.finding).collect();
    assert_eq!(counted, [Finding::Holds; 3], "{:?}", view.verdicts);
}

#[test]
fn runs_are_equal_and_both_sides_are_measured() {
    let custom = Custom { ops: Some(300), repeats: Some(2), ..Custom::default() };
    let (steps, rows) = run_all(Over::Runs, &custom);
    assert_eq!(steps, ["1 run", "2 runs", "5 runs"]);
    let ops = rows::ops(&rows);
    assert_eq!(ops.len(), 3 * 2 * 3);
    for row in &ops {
        assert_eq!((row.measurement.runs as u64, row.measurement.keys), (row.runs_asked, 5_000), "{row:?}");
        assert_eq!(row.shape, row.runs_asked.to_string());
    }
    assert_eq!(rows::loads(&rows).len(), 3 * 2);
    let view = figure(Over::Runs).view(&rows);
    assert_eq!(view.panels.len(), 4);
    for verdict in &view.verdicts[..2] {
        assert_eq!(verdict.finding, Finding::Holds, "{verdict:?}");
    }
}

#[test]
fn the_later_of_two_rows_counts_and_broken_ones_are_skipped() {
    let (early, late) = (op("grf", 1000, 2, Seek, 50.0), op("grf", 1000, 2, Seek, 60.0));
    let mut rows = vec![row(&early), row(&op("grf", 10, 1, Seek, 7.0)), row(&late)];
    for broken in [
        r#"{"kind": "op"}"#,
        r#"{"kind": "op", "side": "grf", "workload": "seek", "keys": 5, "ns_per_op": -1}"#,
        r#"{"kind": "op", "side": "grf", "workload": "seek", "keys": "many", "ns_per_op": 1}"#,
        r#"{"kind": "load"}"#,
        r#"{}"#,
    ] {
        rows.push(serde_json::from_str(broken).unwrap());
    }
    let ops = rows::ops(&rows);
    assert_eq!(ops.iter().map(|row| row.measurement.ns_per_op).collect::<Vec<_>>(), [7.0, 60.0]);
    assert_eq!(ops[1], late);
    let load = LoadRow { kind: LOAD.into(), side: "grf".into(), keys: 5, put_ns: 1.0, ..LoadRow::default() };
    rows.push(row(&load));
    assert_eq!(rows::loads(&rows), [load]);
}

#[test]
fn invalid_settings_are_refused() {
    let custom = Custom::default;
    assert!(refused(Over::Keys, Custom { keys: Some(10), ..custom() }).contains("10 keys are too few"));
    assert!(
        refused(Over::Keys, Custom { filters: vec!["grf".into()], ..custom() })
            .contains("growth-keys does not take --filters")
    );
    assert!(refused(Over::Runs, Custom { keys: Some(1 << 40), ..custom() }).contains("one memtable"));
    refused(Over::Runs, Custom { filters: vec!["grf".into(), "grf".into()], ..custom() });
    refused(Over::Runs, Custom { bits: vec![8.0, 10.0], ..custom() });
    refused(Over::Runs, Custom { threads: vec![2], ..custom() });
    let options = vec![("keyspace.filter".to_owned(), "grf".to_owned())];
    assert!(refused(Over::Runs, Custom { options, ..custom() }).contains("--filters"));
}
