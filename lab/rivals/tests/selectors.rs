//! The engine's tests of filters for the whole tree, with Chucky, REMIX and GRF with run numbers.

#![allow(missing_docs, reason = "tests")]

#[path = "../../../crates/tamis/tests/global_filters/suite.rs"]
mod suite;

use std::sync::Arc;

use tamis::io::MemFs;
use tamis::operators::Operators;
use tamis::options::FilterChoice;
use tamis::stats::ReadCost;
use tamis::{Db, Error, KeyspaceOptions, OpenError, Options};

use suite::{histories, options, spread};

fn filters() -> Vec<FilterChoice> {
    vec![named("chucky"), named("remix")]
}

fn operators() -> Operators {
    tamis_rivals::operators(Operators::new())
}

/// REMIX names all runs for groups of about thirty keys, in these tests nearly all there are.
fn names_many_runs(filter: FilterChoice) -> bool {
    filter == named("remix")
}

fn named(name: &str) -> FilterChoice {
    tamis_rivals::Rival::named(name).unwrap().choice()
}

#[test]
fn chucky_never_rejects_a_present_key() {
    histories(named("chucky"), 1_000);
}

#[test]
fn remix_never_rejects_a_present_key() {
    histories(named("remix"), 2_000);
}

#[test]
fn grf_with_run_numbers_never_rejects_a_present_key() {
    histories(named("grf-huffman"), 3_000);
}

/// Opens a database with a run of 8000 keys below seven runs that have of each stretch of 16 sorted keys those of their number, or,
/// `in_stretches`, only keys of every seventh stretch of 400. Returns it with the sorted keys.
fn under_remix(in_stretches: bool) -> (Db, Vec<Vec<u8>>) {
    let mut options = options(named("remix"));
    options.keyspace.auto_compaction = false;
    let db = options.open("/db").unwrap();
    let mut keys: Vec<Vec<u8>> = (0..8000).map(spread).collect();
    keys.sort_unstable();
    for run in 0..8 {
        for (at, key) in keys.iter().enumerate() {
            let in_run = match in_stretches {
                true => at % 4 == 0 && at / 400 % 7 + 1 == run,
                false => at % 16 == run,
            };
            if run == 0 || in_run {
                db.put(key, [run as u8; 20]).unwrap();
            }
        }
        match run {
            0 => db.compact().unwrap(),
            _ => db.flush().unwrap(),
        }
    }
    db.wait_for_compaction().unwrap();
    assert_eq!(db.default_keyspace().stats().runs, 8);
    (db, keys)
}

/// Begins a hundred scans and returns what they cost.
fn scans(db: &Db, keys: &[Vec<u8>]) -> ReadCost {
    let before = db.stats().read;
    for at in (0..8000).step_by(80) {
        assert_eq!(db.range(keys[at].clone()..).next().unwrap().unwrap().0, keys[at]);
    }
    db.stats().read - before
}

#[test]
fn iterators_probe_remix_and_leave_runs_lazy() {
    let (db, keys) = under_remix(true);
    let used = scans(&db, &keys);
    assert!(used.range_probes >= 100 && used.seeks < 3 * 100, "{used:?}");
}

#[test]
fn iterators_stop_asking_remix_where_it_names_nearly_every_run() {
    let (db, keys) = under_remix(false);
    let used = scans(&db, &keys);
    assert!((4..50).contains(&used.range_probes) && used.seeks <= 8 * 100, "{used:?}");
}

/// A filter is not data: a keyspace is read without one that the program does not supply. What the opener asks for itself is
/// another matter.
#[test]
fn a_program_without_the_filter_reads_the_database() {
    let fs = Arc::new(MemFs::new());
    let with = |filter: FilterChoice, operators: Operators| {
        let mut options = Options { file_system: Some(fs.clone()), operators, ..Options::default() };
        options.keyspace.filter = filter.into();
        options
    };
    {
        let db = with(named("chucky"), operators()).open("/db").unwrap();
        let keyspace = KeyspaceOptions { filter: named("remix").into(), ..KeyspaceOptions::default() };
        let other = db.create_keyspace("other", keyspace).unwrap();
        (0..500).for_each(|n| other.put(spread(n), "value").unwrap());
        (0..500).for_each(|n| db.put(spread(n), "value").unwrap());
        db.flush().unwrap();
        assert_eq!(db.stats().keyspaces[0].global_filter.as_ref().unwrap().kind, "chucky");
        assert_eq!(db.stats().keyspaces[1].global_filter.as_ref().unwrap().kind, "remix");
        drop(other);
        db.close().unwrap();
    }
    let refused = with(named("chucky"), Operators::new()).open("/db").map(drop).unwrap_err();
    assert!(matches!(&refused, OpenError::Unregistered { option: "filter", name, .. } if name == "chucky"));
    assert!(Error::from(refused).to_string().contains("chucky"));
    let db = with(FilterChoice::BlockedBloom, Operators::new()).open("/db").unwrap();
    assert!(
        db.stats().warnings.iter().any(|warning| warning.contains("`remix`")),
        "{:?}",
        db.stats().warnings
    );
    let other = db.keyspace("other").unwrap();
    for n in 0..1000 {
        assert_eq!(db.get(spread(n)).unwrap().is_some(), n < 500);
        assert_eq!(other.get(spread(n)).unwrap().is_some(), n < 500);
    }
    other.put("more", "value").unwrap();
    drop(other);
    db.close().unwrap();
    let db = with(named("grf-huffman"), operators()).open("/db").unwrap();
    assert_eq!(db.keyspace("other").unwrap().get("more").unwrap().unwrap(), "value");
    assert!(db.stats().warnings.is_empty(), "{:?}", db.stats().warnings);
}
