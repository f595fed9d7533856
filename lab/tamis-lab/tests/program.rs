//! The built program, as used by a person or a script: its output and exit codes.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ran {
    #[track_caller]
    fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    #[track_caller]
    fn fails(self, code: i32, part: &str) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.err.contains(part), "{part:?} not in {self:?}");
        assert!(!self.err.contains("panicked"), "{self:?}");
    }
}

fn within(place: &TempDir, name: &str) -> String {
    place.path().join(name).to_str().expect("UTF-8").to_owned()
}

/// Runs `tamis-lab experiment` with results in `out`.
fn experiment(args: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tamis-lab"));
    let output = command.arg("experiment").args(args).output().expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8 output");
    Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

#[test]
fn an_experiment_is_measured_once_and_reported() {
    let place = tempfile::tempdir().unwrap();
    let out = within(&place, "results");
    let small = "--keys 3000 --size-ratio 3 --ops 200 --repeat 1 --value-bytes 64";
    let small = [small.split(' ').collect::<Vec<_>>(), vec!["--scale", "small", "--out", &out]].concat();
    let go = |more: &str| experiment(&[&["run"][..], &more.split(' ').collect::<Vec<_>>(), &small].concat());

    let rows = go("grf-fig10 --filters monkey,snarf --bits 8,12 --key-set normal --json").ok();
    let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| rows.iter().filter(|row| row["kind"] == kind).count();
    assert_eq!((of("load"), of("read")), (4, 4));
    assert!(of("verdict") > 0 && rows.iter().all(|row| row["figure"] == "grf-fig10"), "{rows:?}");
    assert!(rows.iter().all(|row| row["kind"] != "read" || row["digests_per_op"] == 1.0), "{rows:?}");

    let dir = Path::new(&out).join("grf-fig10/small");
    let table = std::fs::read_to_string(dir.join("rows.csv")).unwrap();
    assert_eq!(table.lines().count(), 1 + 8);
    let files: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|file| file.unwrap().file_name()).collect();
    let pictures = files.iter().filter(|name| name.to_string_lossy().ends_with(".svg")).count();
    assert!(pictures > 0, "{files:?}");

    // The same command shows the results: both steps are done, and none is started.
    let again = go("grf-fig10 --filters monkey,snarf --bits 8,12 --key-set normal");
    assert!(again.err.contains("all 2 steps are done"), "{again:?}");
    let text = again.ok();
    assert!(text.contains("paper: ") && text.contains("here: ") && text.contains("rows.csv"), "{text}");
    // The last step is removed except for half a line.
    let path = dir.join("rows.jsonl");
    let lines = std::fs::read_to_string(&path).unwrap();
    let cut = lines.find("\"done\"").unwrap() + 200;
    assert!(cut < lines.len());
    std::fs::write(&path, &lines[..cut]).unwrap();
    let resumed = go("grf-fig10 --filters monkey,snarf --bits 8,12 --key-set normal");
    assert!(
        resumed.err.contains("1 of them already done") && resumed.err.contains("step 2 of 2"),
        "{resumed:?}"
    );
    resumed.ok();
    assert_eq!(std::fs::read_to_string(dir.join("rows.csv")).unwrap().lines().count(), 1 + 8);

    go("grf-fig10 --filters monkey --bits 8,12").fails(2, "--filters: monkey,snarf there, monkey now");
    let page = within(&place, "page.html");
    let text = experiment(&["report", "--out", &out, "--html", &page]).ok();
    assert!(text.contains("page.html: 1 experiment"), "{text}");
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(
        html.contains("<svg") && html.contains("tamis-lab experiment run grf-fig10"),
        "no picture or command"
    );
    std::fs::write(dir.join("setup.json"), "{").unwrap();
    let report = experiment(&["report", "--out", &out, "--html", &page]);
    assert_eq!(report.code, Some(1), "{report:?}");
    assert!(report.err.contains("setup.json is damaged"), "{report:?}");
    go("grf-fig10 --filters monkey --bits 8,12").fails(2, "--restart");
}

#[test]
fn experiments_are_listed_and_shown() {
    let list = experiment(&["list"]).ok();
    assert!((10..=18).all(|figure| list.contains(&format!("grf-fig{figure}"))), "{list}");
    for name in ["fig14-large", "fig16-device", "fig16-size"] {
        assert!(list.contains(&format!("elastic-{name} ")), "{list}");
    }
    assert!([2, 3, 6, 10, 16].iter().all(|figure| list.contains(&format!("elastic-fig{figure}"))), "{list}");
    let grf = experiment(&["list", "--paper", "grf", "--json"]).ok();
    let grf: Vec<Value> = grf.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(grf.len() >= 9 && grf.iter().all(|figure| figure["paper"] == "GRF"), "{grf:?}");
    for figure in &grf {
        let needs = |scale: &str, what: &str| figure["needs"][scale][what].as_u64().unwrap();
        // Computed figures need no disk.
        let grows = |what: &str| needs("small", what) < needs("paper", what);
        assert!(needs("paper", "disk_bytes") == 0 || grows("disk_bytes"), "{figure}");
        assert!(needs("small", "seconds") > 0 && grows("seconds"), "{figure}");
    }
    let shown = experiment(&["show", "grf-fig10"]).ok();
    assert!(shown.contains("The paper: ") && shown.contains("At scale default: "), "{shown}");
}

/// A computed experiment, kept in a project of one document.
#[test]
fn results_are_kept_and_tables_made_from_them() {
    let place = tempfile::tempdir().unwrap();
    let (out, root) = (within(&place, "results"), within(&place, "project"));
    let kept = Path::new(&root).join("lab/results/mine");
    let document = Path::new(&root).join("docs/a.md");
    std::fs::create_dir_all(document.parent().unwrap()).unwrap();
    experiment(&["keep", kept.to_str().unwrap(), "--out", &out]).fails(2, "there are no results");
    experiment(&["run", "hash-table2", "--scale", "small", "--keys", "2000", "--repeat", "1", "--out", &out])
        .ok();
    let ran = experiment(&["keep", kept.to_str().unwrap(), "--out", &out]);
    // Those of a debug build are not worth keeping.
    if cfg!(debug_assertions) {
        assert!(ran.err.contains("hash-table2/small is of a debug build") && ran.out.is_empty(), "{ran:?}");
        let setup = Path::new(&out).join("hash-table2/small/setup.json");
        let text = std::fs::read_to_string(&setup).unwrap().replace("\"debug\"", "\"release\"");
        std::fs::write(setup, text).unwrap();
    }
    let ran = experiment(&["keep", kept.to_str().unwrap(), "--out", &out]).ok();
    assert_eq!(ran, "hash-table2/small\n");
    let page = |kind: &str| {
        let text = format!("# A\n\n<!-- figures: lab/results/mine {kind} -->\n<!-- end of figures -->\n");
        std::fs::write(&document, text).unwrap();
    };
    page("claims hash-sharing");
    let check = experiment(&["tables", &root, "--check"]);
    assert!(check.code == Some(1) && check.out.contains("differs from its results"), "{check:?}");
    experiment(&["tables", &root]).ok();
    assert!(std::fs::read_to_string(&document).unwrap().contains("\n| `hash-table2`, small | "));
    assert_eq!(experiment(&["tables", &root, "--check"]).ok(), "");
    page("poem");
    experiment(&["tables", &root]).fails(2, "nothing is made of `poem`");
    page("counts");
    std::fs::write(kept.join("hash-table2/small/rows.jsonl.gz"), "damaged").unwrap();
    experiment(&["tables", &root]).fails(2, "rows.jsonl.gz is damaged");
}

#[test]
fn unknown_names_and_invalid_settings_are_refused() {
    experiment(&["run", "grf-fig9"]).fails(2, "grf-fig10");
    experiment(&["run", "grf"]).fails(2, "`grf`");
    experiment(&["run"]).fails(2, "<NAME>");
    experiment(&["grf-fig10"]).fails(2, "tamis-lab experiment run grf-fig10");
    experiment(&["figures"]).fails(2, "list, show, run, report, keep and tables");
    experiment(&[]).fails(2, "report");
    experiment(&["show", "grf-fig9"]).fails(2, "grf-fig10");
    experiment(&["list", "--paper", "monkey"]).fails(2, "hash-sharing");
    let place = tempfile::tempdir().unwrap();
    let out = within(&place, "results");
    experiment(&["report", "--out", &out]).fails(2, "no results");
    let go = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        experiment(&[&["run", "--scale", "small", "--out", &out][..], &words].concat())
    };
    go("grf-fig10 --filters sieve").fails(2, "rencoder");
    go("grf-fig10 --key-set osm").fails(2, "cells");
    go("grf-fig10 --bits ten").fails(2, "ten");
    go("grf-fig10 --bits 100").fails(2, "bits_per_key");
    go("grf-fig17 --bits 8,10").fails(2, "--bits");
    go("grf-fig17 -o keyspace.levels=1").fails(2, "levels");
    go("grf-fig17 --skew 1").fails(2, "--skew");
    go("elastic-fig6 --skew 9").fails(2, "--skew");
    go("elastic-fig6 --key-set cells").fails(2, "--key-set");
    go("elastic-fig6 --bits 4,8").fails(2, "--bits");
    go("elastic-fig6 --filters grf").fails(2, "whole tree");
    go("elastic-fig6 --device hdd,ssd").fails(2, "elastic-fig16-device");
    go("elastic-fig6 --device nvm --mapped").fails(2, "--device nvm determines how tables are read");
    go("elastic-fig16-device --device tape").fails(2, "pcie-ssd");
    go("elastic-fig16-device --direct").fails(2, "omit --direct");
    go("elastic-fig6 --cache much").fails(2, "much");
    go("elastic-fig16").fails(2, "elastic-fig16-unit-bits");
    assert!(!Path::new(&out).exists(), "what is refused leaves nothing behind");
}

#[test]
fn experiments_compare_elastic_filters_with_fixed_ones() {
    let place = tempfile::tempdir().unwrap();
    let (dir, out) = (within(&place, "bases"), within(&place, "results"));
    let go = |line: &str| {
        let small = "--keys 5000 --ops 300 --value-bytes 64 --mapped --scale small".split(' ');
        let words: Vec<&str> = ["run"].into_iter().chain(line.split(' ')).chain(small).collect();
        experiment(&[&words[..], &["--db", &dir, "--out", &out]].concat())
    };
    let rows = go("elastic-fig6 --skew 0,1.2 --locality 64 --repeat 2 --json").ok();
    let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| rows.iter().filter(|row| row["kind"] == kind).count();
    assert_eq!(of("read"), 4, "{rows:?}");
    assert!(of("load") >= 2, "{rows:?}");
    // The locations of databases and results are private: no input of a report contains them.
    let setup = std::fs::read_to_string(Path::new(&out).join("elastic-fig6/small/setup.json")).unwrap();
    assert!(setup.contains("--db DIR") && !setup.contains(&dir), "{setup}");
    let text = go("elastic-shift --locality 64 --skew 1.2").ok();
    assert!(text.contains("Databases, loaded equally") && text.contains("elastic"), "{text}");
}
