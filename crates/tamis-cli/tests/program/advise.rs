//! `tamis advise`: planned data, and costs from a file.

use crate::support::{Place, Ran, run, tamis};

fn advise(args: &[&str]) -> Ran {
    let mut command = tamis();
    command.arg("advise").args(args);
    run(command, b"")
}

const WORK: [&str; 2] = ["--workload", "get 60, empty-get 30, put 10"];

#[test]
fn entries_may_be_given_with_an_exponent() {
    let said = advise(&[&["--keys", "1e9", "--quick", "--top", "1"], &WORK[..]].concat()).ok();
    assert!(said.contains("data      1,000,000,000 entries of 16 + 100 bytes, 115.5 GiB\n"), "{said}");
    for (keys, part) in [
        ("0", "from 1 to"),
        ("0e9", "from 1 to"),
        ("1e14", "from 1 to"),
        ("1e-9", "whole"),
        ("many", "whole"),
    ] {
        advise(&[&["--keys", keys], &WORK[..]].concat()).fails(2, part);
    }
}

/// The same costs give the same advice, whatever the machine does meanwhile.
#[test]
fn costs_are_saved_and_used_again() {
    let place = Place::new();
    let file = place.path("costs.json");
    let plan = [&["--keys", "2e6"], &WORK[..]].concat();
    let with = |more: &[&str]| advise(&[&plan[..], more].concat());
    let table = |said: String| said.lines().skip(1).collect::<Vec<_>>().join("\n");

    let measured = with(&["--quick", "--save-costs", &file]).ok();
    let again = with(&["--costs", &file]).ok();
    assert!(again.lines().next().is_some_and(|line| line.ends_with(&format!("from {file}"))), "{again}");
    assert_eq!(table(measured), table(again.clone()));
    assert_eq!(with(&["--costs", &file]).ok(), again);

    with(&["--costs", &file, "--value-bytes", "50"]).fails(2, "keys of 16 bytes with values of 100");
    with(&["--costs", &file, "--quick"]).fails(2, "--quick");
    with(&["--costs", &place.path("none")]).fails(2, "none: ");
    with(&["--quick", "--save-costs", &place.path("no/such/file")]).fails(2, "no/such/file: ");
}

#[test]
fn a_file_of_costs_is_checked() {
    let place = Place::new();
    let file = place.path("costs.json");
    let plan = [&["--keys", "2e6", "--costs", &file], &WORK[..]].concat();
    advise(&[&["--keys", "2e6", "--quick", "--save-costs", &file], &WORK[..]].concat()).ok();
    let good: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let changed = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut costs = good.clone();
        change(&mut costs);
        std::fs::write(&file, costs.to_string()).unwrap();
        advise(&plan)
    };
    changed(&|_| {}).ok();
    changed(&|costs| costs["machine"]["put_ns"] = (-1).into()).fails(2, "a cost is negative");
    changed(&|costs| costs["machine"]["probes"][0][1]["point_ns"] = (-0.5).into())
        .fails(2, "a cost is negative");
    changed(&|costs| costs["machine"]["put_ns"] = "much".into()).fails(2, "costs.json: ");
    changed(&|costs| costs["machine"]["probes"][0][0] = "sieve".into())
        .fails(2, "no filter is called `sieve`");
    changed(&|costs| drop(costs["machine"].as_object_mut().unwrap().remove("put_ns"))).fails(2, "put_ns");
    changed(&|costs| costs["machine"]["more"] = 1.into()).fails(2, "more");
    for text in ["", "[]", "{", "1e999", &"[".repeat(100_000)] {
        std::fs::write(&file, text).unwrap();
        advise(&plan).fails(2, "costs.json: ");
    }
    // Extreme, but numbers.
    changed(&|costs| costs["machine"]["latency"] = serde_json::json!([])).ok();
    changed(&|costs| costs["machine"]["put_ns"] = 1e308.into()).ok();
}
