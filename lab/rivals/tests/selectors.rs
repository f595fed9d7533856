//! The engine's tests of filters for the whole tree, with Chucky, REMIX and GRF with run numbers.

#![allow(missing_docs, reason = "tests")]

#[path = "../../../crates/tamis/tests/global_filters/suite.rs"]
mod suite;

use std::sync::Arc;

use tamis::io::MemFs;
use tamis::operators::Operators;
use tamis::options::FilterChoice;
use tamis::{Db, Error, KeyspaceOptions, OpenError, Options};

use suite::{filled, histories, options, spread};

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

#[test]
fn an_iterator_probes_remix_and_leaves_runs_lazy() {
    let mut options = options(named("remix"));
    options.keyspace.auto_compaction = false;
    let db = Db::open("/db", options).unwrap();
    filled(&db, 8000);
    let mut keys: Vec<Vec<u8>> = (0..8000).map(spread).collect();
    keys.sort_unstable();
    let before = db.stats().read;
    for at in (0..8000).step_by(80) {
        assert_eq!(db.range(keys[at].clone()..).next().unwrap().unwrap().0, keys[at]);
    }
    let used = db.stats().read - before;
    assert!(used.range_probes >= 100 && used.seeks < 8 * 100, "{used:?}");
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
        let db = Db::open("/db", with(named("chucky"), operators())).unwrap();
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
    let refused = Db::open("/db", with(named("chucky"), Operators::new())).map(drop).unwrap_err();
    assert!(matches!(&refused, OpenError::Unregistered { option: "filter", name, .. } if name == "chucky"));
    assert!(Error::from(refused).to_string().contains("chucky"));
    let db = Db::open("/db", with(FilterChoice::BlockedBloom, Operators::new())).unwrap();
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
    let db = Db::open("/db", with(named("grf-huffman"), operators())).unwrap();
    assert_eq!(db.keyspace("other").unwrap().get("more").unwrap().unwrap(), "value");
    assert!(db.stats().warnings.is_empty(), "{:?}", db.stats().warnings);
}
