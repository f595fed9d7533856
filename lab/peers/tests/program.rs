//! The program as used by people: real processes, files, exit codes.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn program(arguments: &str, out: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tamis-peers"));
    command.args(arguments.split_whitespace()).arg("--out").arg(out);
    // Databases are created below `out`, so that a test sees what remains of them.
    command.arg("--dir").arg(out.join("databases"));
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn rows(out: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(out.join("rows.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const TINY: &str = "run --quick --keys 2000 --ops 500 --rounds 1 --cache 1MiB --memtable 64KiB";

#[test]
fn a_quick_run_of_all_suites_ends_with_a_report() {
    let out = tempfile::tempdir().unwrap();
    let arguments = format!("{TINY} --systems tamis,tamis:keyspace.merge=partitioned --verbose");
    let output = program(&arguments, out.path());
    assert!(output.status.success(), "{}", said(&output));
    let mut suites =
        vec!["load", "settled", "runs", "ycsb", "mixgraph", "cold", "direct", "keys", "sync", "hot-gets"];
    // Only with the rights of root is there a limit of memory.
    if !said(&output).contains("are left out: no memory control group") {
        suites.push("beyond-memory");
    }
    for suite in suites {
        let its = |row: &serde_json::Value| row["conditions"]["suite"] == suite && row["refused"].is_null();
        let systems: std::collections::BTreeSet<String> =
            rows(out.path()).iter().filter(|row| its(row)).map(|row| row["system"].to_string()).collect();
        assert_eq!(systems.len(), 2, "{suite}");
        assert!(said(&output).contains(&format!("{suite} ")), "a line per row: {}", said(&output));
    }
    for file in ["report.html", "report.md", "summary.md"] {
        assert!(std::fs::read_to_string(out.path().join(file)).unwrap().contains("partitioned"), "{file}");
    }
    let machine = std::fs::read_to_string(out.path().join("machine.json")).unwrap();
    assert!(machine.contains("tamis-peers run --quick"), "{machine}");
    let left = std::fs::read_dir(out.path().join("databases")).unwrap().count();
    assert_eq!(left, 0, "databases are removed");
}

#[test]
fn rows_are_not_mixed_with_those_of_another_run_unless_it_is_resumed() {
    let out = tempfile::tempdir().unwrap();
    let arguments = format!("{TINY} --systems tamis --suites cold,keys");
    assert!(program(&format!("{TINY} --systems tamis --suites cold"), out.path()).status.success());
    let cold = rows(out.path());
    let refused = program(&arguments, out.path());
    assert_eq!(refused.status.code(), Some(2));
    assert!(said(&refused).contains("--resume"), "{}", said(&refused));
    let resumed = program(&format!("{arguments} --resume"), out.path());
    assert!(resumed.status.success(), "{}", said(&resumed));
    let both = rows(out.path());
    assert_eq!(both[..cold.len()], cold, "measured once");
    assert_eq!(both.len(), cold.len() + 4 * 3, "four lengths of keys, three workloads");
}

#[test]
fn bad_arguments_have_an_exit_code_and_a_text() {
    let out = tempfile::tempdir().unwrap();
    for (arguments, text) in [
        ("run --suites fast", "settled"),
        ("run --systems rockdb", "rockdb"),
        ("run --systems tamis,tamis", "tamis"),
        ("run --systems tamis:no.option=1", "no.option"),
        ("run --memtable 1KiB", "64KiB"),
        ("run --threads 0", "--threads"),
    ] {
        let output = program(arguments, out.path());
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(said(&output).contains(text), "{arguments}: {}", said(&output));
    }
    assert!(!out.path().join("rows.jsonl").exists());
    let report =
        |dir: &Path| Command::new(env!("CARGO_BIN_EXE_tamis-peers")).arg("report").arg(dir).output().unwrap();
    let nothing = report(out.path());
    assert_eq!(nothing.status.code(), Some(2));
    assert!(said(&nothing).contains("rows.jsonl"), "{}", said(&nothing));
}

#[test]
fn a_timeout_has_its_own_exit_code() {
    let out = tempfile::tempdir().unwrap();
    // One second is not enough for this number of keys.
    let arguments = "run --suites load --systems tamis --keys 50000000 --rounds 1 --limit 1";
    let output = program(arguments, out.path());
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("longer than 1 s"), "{}", said(&output));
    assert!(rows(out.path()).iter().all(|row| row["refused"].as_str().unwrap().starts_with("stopped: ")));
    assert_eq!(std::fs::read_dir(out.path().join("databases")).unwrap().count(), 0);
}

#[test]
fn a_system_that_needs_more_memory_than_its_limit_is_excluded() {
    let out = tempfile::tempdir().unwrap();
    let output = program(&format!("{TINY} --suites load --systems tamis --memory 64KiB"), out.path());
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    if said(&output).contains("memory cannot be limited") {
        assert!(!out.path().join("rows.jsonl").exists(), "nothing is measured");
    } else {
        assert!(said(&output).contains("needs more memory than the limit"), "{}", said(&output));
        assert!(rows(out.path()).iter().all(|row| row["conditions"]["memory_bytes"] == 64 << 10));
    }
}

#[test]
fn a_worker_ends_with_its_input_and_the_list_names_everything() {
    let mut worker = Command::new(env!("CARGO_BIN_EXE_tamis-peers"))
        .args(["worker", "--system", "tamis"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut requests = worker.stdin.take().unwrap();
    requests.write_all(b"{\"request\":\"settle\"}\n").unwrap();
    drop(requests);
    let output = worker.wait_with_output().unwrap();
    let answer = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && answer.contains("no database is open"), "{answer}");
    let list = Command::new(env!("CARGO_BIN_EXE_tamis-peers")).arg("list").output().unwrap();
    let text = String::from_utf8(list.stdout).unwrap();
    for name in ["settled", "ycsb-f", "mixgraph", "tamis-grf", "tamis-locking", "modify-hot"] {
        assert!(text.contains(name), "{text}");
    }
}

#[test]
fn transactions_are_compared_in_tables() {
    let out = tempfile::tempdir().unwrap();
    let arguments = "transactions --quick --keys 200 --ops 300 --threads 1,3 --rounds 1 --verbose";
    let output = program(arguments, out.path());
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let page = std::fs::read_to_string(out.path().join("transactions.md")).unwrap();
    let rows = std::fs::read_to_string(out.path().join("transactions.jsonl")).unwrap();
    for workload in ["put", "get-put", "modify", "modify-hot", "transfer", "transfer+scan"] {
        for text in [&text, &page] {
            assert!(text.contains(&format!("{workload}: ")), "{text}");
        }
        for side in ["tamis", "tamis-snapshot", "tamis-locking", "tamis-update"] {
            let expected = if side == "tamis-update" && workload.starts_with("transfer") { 0 } else { 2 };
            let start = format!("{{\"side\":\"{side}\",\"workload\":\"{workload}\",");
            assert_eq!(rows.lines().filter(|line| line.starts_with(&start)).count(), expected, "{start}");
        }
    }
    assert!(said(&output).contains("transfer+scan 3 tamis-locking, round 1: "), "{}", said(&output));
    assert_eq!(std::fs::read_dir(out.path().join("databases")).unwrap().count(), 0, "databases are removed");
    let again = program(arguments, out.path());
    assert_eq!(again.status.code(), Some(2), "rows are not replaced: {}", said(&again));
    for wrong in ["--systems tamis-fast", "--systems tamis,tamis", "--workloads move"] {
        let output = program(&format!("transactions {wrong}"), out.path());
        assert_eq!(output.status.code(), Some(2), "{wrong}: {}", said(&output));
    }
}

/// Regression: recording the command line panicked.
#[test]
fn paths_that_are_not_utf8_are_refused() {
    use std::os::unix::ffi::OsStrExt;

    let out = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tamis-peers"))
        .args(["run", "--quick", "--keys", "100", "--ops", "1", "--rounds", "1", "--suites", "load"])
        .args(["--systems", "tamis", "--out"])
        .arg(out.path())
        .arg("--dir")
        .arg(out.path().join(std::ffi::OsStr::from_bytes(b"\xff")))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("UTF-8"), "{}", said(&output));
}
