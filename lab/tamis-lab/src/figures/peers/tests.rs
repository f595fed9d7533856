//! Other engines beside a figure, with a script in place of the comparison program.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::json;
use tamis_bench::progress::NoProgress;
use tamis_bench::workload::Workload;
use tempfile::TempDir;

use super::*;
use crate::figures::{Finding, Kind, Needs, Paper, Sheet};

/// Held while a script is written and run: a file that is still open for writing, even in a child of another thread,
/// cannot be executed.
static SCRIPTS: Mutex<()> = Mutex::new(());

/// A program that answers `list` with `list`, stores its arguments in `arguments`, and produces `rows`.
struct Fake {
    dir: TempDir,
    _alone: MutexGuard<'static, ()>,
}

const ALL: &str = "Suites:\n  rocksdb-like  no system\n\nSystems:\n  tamis     0.1.0\n  tamis-grf 0.1.0\n  rocksdb   11\n  leveldb   1\n";

impl Fake {
    fn new(list: &str, rows: &[u8], ending: &str) -> Fake {
        let alone = SCRIPTS.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().unwrap();
        let script = format!(
            r#"#!/bin/sh
here=$(dirname "$0")
if [ "$1" = list ]; then cat "$here/list"; exit 0; fi
echo "$@" > "$here/arguments"
while [ $# -gt 0 ]; do if [ "$1" = --out ]; then out="$2"; fi; shift; done
mkdir -p "$out" && cp "$here/rows" "$out/rows.jsonl"
echo "last words" >&2
{ending}
"#
        );
        std::fs::write(dir.path().join("list"), list).unwrap();
        std::fs::write(dir.path().join("rows"), rows).unwrap();
        let program = dir.path().join("program");
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        Fake { dir, _alone: alone }
    }

    fn program(&self) -> PathBuf {
        self.dir.path().join("program")
    }

    fn arguments(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("arguments")).unwrap()
    }

    fn custom(&self) -> Custom {
        Custom { peers: Some(self.program()), keys: Some(1000), threads: vec![1], ..Custom::default() }
    }
}

/// A figure with one step of one row, with the name of a figure that has other engines.
struct Plain(About);

impl Plain {
    fn named(name: &'static str) -> Box<dyn Figure> {
        Box::new(Plain(About { name, paper: Paper::Ours, place: "", title: "", claim: "", differs: "" }))
    }
}

struct OneStep;

impl Figure for Plain {
    fn about(&self) -> &About {
        &self.0
    }

    fn needs(&self, _: Scale) -> Needs {
        Needs::default()
    }

    fn plan<'f>(&'f self, _: Scale, custom: &Custom) -> Result<Box<dyn Plan + 'f>, BenchError> {
        custom.refuse_all_but(
            self.0.name,
            &["--keys", "--threads", "--workload", "--bits", "--filters", "--db"],
        )?;
        Ok(Box::new(OneStep))
    }

    fn view(&self, rows: &[Row]) -> View {
        View { sheets: rows.iter().map(|_| Sheet::new("own", &[])).collect(), ..View::default() }
    }
}

impl Plan for OneStep {
    fn setting(&self) -> String {
        "one step".into()
    }

    fn scaled(&self) -> Vec<String> {
        vec!["own".into()]
    }

    fn steps(&self) -> Vec<String> {
        vec!["own".into()]
    }

    fn run(&mut self, step: usize, _: &dyn Progress) -> Result<Vec<Row>, BenchError> {
        assert_eq!(step, 0);
        Ok(vec![json!({"kind": "read"}).as_object().unwrap().clone()])
    }
}

fn line(system: &str, workload: &str, round: u32, per_second: f64) -> String {
    let row = json!({
        "conditions": {"suite": "ycsb", "workload": workload, "threads": 1, "keys": 1000, "unheard_of": 1},
        "system": system, "version": "9", "options": {}, "round": round, "refused": null,
        "figures": {"ops": 10, "ops_per_second": per_second, "ns_per_op": 1e9 / per_second, "p99_ns": 7000},
    });
    format!("{row}\n")
}

fn refusal(system: &str, why: &str) -> String {
    format!(
        "{}\n",
        json!({"conditions": {"workload": "ycsb-c", "threads": 1}, "system": system, "refused": why, "figures": {}})
    )
}

/// Returns three rounds of one mix by four systems; RocksDB has half the throughput of tamis.
fn rows() -> String {
    let mut text = String::new();
    for (system, base) in [("tamis", 1000.0), ("tamis-grf", 2000.0), ("rocksdb", 500.0), ("leveldb", 250.0)] {
        text.extend(
            (0..3).map(|round| line(system, "ycsb-c", round, base * (1.0 + f64::from(round) / 100.0))),
        );
    }
    text
}

/// Returns all rows of all steps.
fn run(figure: &dyn Figure, custom: &Custom) -> Result<Vec<Row>, BenchError> {
    let mut plan = figure.plan(Scale::Small, custom)?;
    let mut rows = Vec::new();
    for step in 0..plan.steps().len() {
        rows.extend(plan.run(step, &NoProgress)?);
    }
    Ok(rows)
}

fn failure(list: &str, rows: &str, ending: &str) -> BenchError {
    let fake = Fake::new(list, rows.as_bytes(), ending);
    run(&*with_peers(Plain::named("ycsb")), &fake.custom()).unwrap_err()
}

#[test]
fn only_figures_with_other_engines_are_wrapped_and_nothing_changes_without_a_program() {
    for name in ["ycsb", "elastic-fig10", "elastic-fig13", "grf-fig13", "hash-fig11"] {
        assert!(Setting::of(name).is_some(), "{name}");
        let figure = with_peers(Plain::named(name));
        let plan = figure.plan(Scale::Small, &Custom::default()).unwrap();
        assert_eq!(
            (plan.steps(), plan.scaled(), &plan.setting()[..]),
            (vec!["own".into()], vec!["own".into()], "one step")
        );
        let rows = run(&*figure, &Custom::default()).unwrap();
        assert_eq!(figure.view(&rows), Plain::named(name).view(&rows));
    }
    let other = with_peers(Plain::named("grf-fig10"));
    let custom = Custom { peers: Some("nowhere".into()), ..Custom::default() };
    let refused = other.plan(Scale::Small, &custom).err().unwrap().to_string();
    assert!(refused.contains("does not take --peers"), "{refused}");
}

#[test]
fn the_program_gets_the_figures_sizes_and_its_rounds_become_one_row() {
    let fake = Fake::new(ALL, rows().as_bytes(), "exit 0");
    let figure = with_peers(Plain::named("ycsb"));
    let rows = run(&*figure, &fake.custom()).unwrap();
    let asked = fake.arguments();
    for words in [
        "run --suites ycsb --systems tamis,tamis-grf,rocksdb,leveldb --keys 1000 --key-bytes 8 --value-bytes 100 --ops 500 ",
        "--rounds 2 --filter-bits 10 --memtable 65536 ",
        "--threads 1 --seed 1 ",
        "--direct",
    ] {
        assert!(asked.contains(words), "{words} in {asked}");
    }
    assert!(!asked.contains("--workloads"), "the suite has them: {asked}");
    let theirs: Vec<&Row> = rows.iter().filter(|row| row.get("from").is_some()).collect();
    assert_eq!((rows.len(), theirs.len()), (5, 4));
    let rocksdb = theirs.iter().find(|row| row["side"] == "rocksdb").unwrap();
    assert_eq!(
        (&rocksdb["kind"], &rocksdb["reference"], &rocksdb["version"]),
        (&json!("read"), &json!("tamis"), &json!("9"))
    );
    assert_eq!((&rocksdb["ops_per_second"], &rocksdb["repeats"]), (&json!(505.0), &json!(3)));
    assert_eq!(
        (&rocksdb["min_ops_per_second"], &rocksdb["max_ops_per_second"]),
        (&json!(500.0), &json!(510.0))
    );

    let view = figure.view(&rows);
    assert_eq!(view.sheets.len(), 2, "the figure sees its own row only");
    let text = view.sheets[1].to_text();
    assert!(text.contains("rocksdb") && text.contains("0.50"), "{text}");
    let Kind::Bars { groups, .. } = &view.panels[0].kind else { panic!("{:?}", view.panels) };
    let bars: Vec<&str> = groups[0].1.iter().map(|bar| &bar.name[..]).collect();
    assert_eq!(
        (groups.len(), &groups[0].0[..], bars),
        (1, "ycsb-c", vec!["tamis", "tamis-grf", "rocksdb", "leveldb"])
    );
    let verdict = view.verdicts.last().unwrap();
    assert_eq!((verdict.finding, &verdict.ours[..]), (Finding::Holds, "4.00×"));
    // An engine that is fast anyway must not look like a good filter.
    assert!(verdict.note.ends_with("By the same measure: tamis 2.00×, leveldb 0.50×."), "{}", verdict.note);
}

#[test]
fn settings_that_the_program_does_not_support_are_noted() {
    let fake = Fake::new(ALL, b"", "exit 0");
    let figure = with_peers(Plain::named("elastic-fig10"));
    let custom = Custom {
        bits: vec![4.5, 8.0],
        workloads: vec![Workload::GetZipf],
        filters: vec!["bloom".into()],
        dir: Some(fake.dir.path().join("databases")),
        ..fake.custom()
    };
    let mut plan = figure.plan(Scale::Default, &custom).unwrap();
    let said = plan.scaled().join("\n");
    for words in [
        "5 bits per key instead of 4.5",
        "only the first value of --bits",
        "--filters has no effect",
        "trees of their own shape",
    ] {
        assert!(said.contains(words), "{words} in {said}");
    }
    assert!(plan.setting().contains("tamis, tamis elastic, rocksdb, leveldb"), "{}", plan.setting());
    assert_eq!(plan.steps(), ["own", "peers"]);
    // It fails without rows, but the program was called.
    assert!(
        plan.run(1, &NoProgress).unwrap_err().to_string().contains("no rows of tamis:keyspace.filter=bloom")
    );
    let asked = fake.arguments();
    assert!(asked.contains("--workloads get-zipf") && asked.contains("filter_budget_bytes=625"), "{asked}");
    assert!(asked.contains(&format!("--dir {}", custom.dir.as_ref().unwrap().display())), "{asked}");
    let left = std::fs::read_dir(custom.dir.unwrap()).unwrap().count();
    assert_eq!(left, 0, "what the program left is removed");
    let fills = Custom { workloads: vec![Workload::FillSeq], ..fake.custom() };
    assert!(figure.plan(Scale::Small, &fills).err().unwrap().to_string().contains("fill-seq"));
}

#[test]
fn missing_or_refusing_engines_become_notes() {
    let list = ALL.replace("  leveldb   1\n", "");
    let text = rows()
        .lines()
        .filter(|line| !line.contains("\"leveldb\"") && !line.contains("\"rocksdb\""))
        .collect::<Vec<_>>()
        .join("\n")
        + "\n"
        + &refusal("rocksdb", "it has no such option")
        + &refusal("rocksdb", "it has no such option");
    let fake = Fake::new(&list, text.as_bytes(), "exit 0");
    let figure = with_peers(Plain::named("ycsb"));
    let plan = figure.plan(Scale::Small, &fake.custom()).unwrap();
    assert!(plan.scaled().join(" ").contains("leveldb is not compiled into"), "{:?}", plan.scaled());
    drop(plan);
    let rows = run(&*figure, &fake.custom()).unwrap();
    assert!(fake.arguments().contains("--systems tamis,tamis-grf,rocksdb --keys"), "{}", fake.arguments());
    let notes: Vec<&Row> = rows.iter().filter(|row| row["kind"] == "note").collect();
    assert_eq!(notes.len(), 1, "said once: {notes:?}");
    let view = figure.view(&rows);
    assert!(view.sheets[1].title.contains("rocksdb: it has no such option"), "{}", view.sheets[1].title);
    let verdict = view.verdicts.last().unwrap();
    assert_eq!(verdict.finding, Finding::Open);
    assert!(verdict.note.contains("no such option"), "{}", verdict.note);
}

#[test]
fn truncated_rows_are_counted_and_the_others_kept() {
    let mut text = rows();
    text.truncate(text.len() - 20);
    text.push_str("\n{\"system\": \"rocksdb\"}\nnonsense \u{fffd}\n\n[1, 2]\n");
    text.push_str(&line("rocksdb", "ycsb-c", 9, -1.0));
    let fake = Fake::new(ALL, text.as_bytes(), "exit 0");
    let rows = run(&*with_peers(Plain::named("ycsb")), &fake.custom()).unwrap();
    let note = rows.iter().find(|row| row["kind"] == "note").unwrap();
    assert_eq!(note["text"], "5 of 16 rows could not be read and are omitted.");
    let leveldb = rows.iter().find(|row| row.get("side") == Some(&json!("leveldb"))).unwrap();
    assert_eq!(leveldb["repeats"], 2);
}

#[test]
fn failures_of_the_program_carry_its_messages() {
    let said = |error: BenchError| match &error {
        BenchError::Store { .. } => error.to_string(),
        other => panic!("{other:?}"),
    };
    for (ending, words) in [
        ("exit 1", "wrong answer"),
        ("exit 3", "not everything could be measured"),
        ("exit 9", "ended early"),
        ("kill -9 $$", "ended early"),
    ] {
        let text = said(failure(ALL, &rows(), ending));
        assert!(text.contains(words) && text.contains("last words"), "{ending}: {text}");
    }
    assert!(said(failure(ALL, "", "exit 0")).contains("no rows of tamis"));
    let without_rocksdb: String =
        rows().lines().filter(|l| !l.contains("rocksdb")).map(|l| format!("{l}\n")).collect();
    assert!(said(failure(ALL, &without_rocksdb, "exit 0")).contains("no rows of rocksdb"));
    match failure(ALL, &rows(), "exit 2") {
        BenchError::Request(why) => {
            assert!(why.contains("same version") && why.contains("last words"), "{why}")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn wrong_programs_are_refused_before_anything_is_measured() {
    let figure = with_peers(Plain::named("ycsb"));
    let refused = |custom: &Custom| match figure.plan(Scale::Small, custom) {
        Err(BenchError::Request(why)) => why,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("accepted"),
    };
    let missing = refused(&Custom { peers: Some("/nowhere/tamis-peers".into()), ..Custom::default() });
    assert!(missing.contains("/nowhere/tamis-peers") && missing.contains("cargo build"), "{missing}");
    let fake = Fake::new("usage: something else\n", b"", "exit 0");
    assert!(refused(&fake.custom()).contains("tamis-peers"));
}

#[test]
fn nonsensical_rows_are_viewed_without_a_panic() {
    let figure = with_peers(Plain::named("hash-fig11"));
    for row in [
        json!({"from": "peers"}),
        json!({"from": "peers", "kind": "read", "side": "tamis", "ops_per_second": "many"}),
        json!({"from": "peers", "kind": "read", "side": "rocksdb", "ops_per_second": -1, "threads": 0}),
        json!({"from": "peers", "kind": "read", "side": "tamis", "workload": "get-empty", "ops_per_second": 1e300}),
        json!({"from": "peers", "kind": "note", "text": null}),
    ] {
        let view = figure.view(&[row.as_object().unwrap().clone()]);
        assert_eq!(view.verdicts.last().unwrap().finding, Finding::Open, "{row}");
    }
}
