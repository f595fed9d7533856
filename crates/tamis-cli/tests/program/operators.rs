//! Databases whose merge operators and compaction filters only their own program has.

use std::sync::Arc;

use serde_json::Value;
use tamis::operators::{CompactionFilter, Decision, MergeError, MergeOperator, Operators};
use tamis::{KeyspaceOptions, Options};

use crate::support::{Place, run, tamis};

#[derive(Debug)]
struct Join;

impl MergeOperator for Join {
    fn name(&self) -> &str {
        "my-join"
    }

    fn merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, MergeError> {
        let parts: Vec<&[u8]> = base.into_iter().chain(operands.iter().copied()).collect();
        Ok(parts.join(&b'+'))
    }
}

#[derive(Debug)]
struct DropEmpty;

impl CompactionFilter for DropEmpty {
    fn name(&self) -> &str {
        "my-filter"
    }

    fn filter(&self, _: usize, _: &[u8], value: &[u8]) -> Decision {
        if value.is_empty() { Decision::Remove } else { Decision::Keep }
    }
}

fn owner() -> Options {
    let operators = Operators::new().with_merge(Arc::new(Join)).with_filter(Arc::new(DropEmpty));
    let mut options = Options { operators, ..Options::default() };
    options.keyspace.merge_operator = Some("my-join".into());
    options
}

/// The program could not even look at such a database.
#[test]
fn databases_with_operators_of_their_own_are_checked_listed_and_copied() {
    let place = Place::new();
    {
        let db = owner().open(place.db()).unwrap();
        db.put("a", "1").unwrap();
        db.merge("b", "2").unwrap();
        db.flush().unwrap();
        db.merge("b", "3").unwrap();
        db.put("c", "4").unwrap();
        let filtered = KeyspaceOptions { compaction_filter: Some("my-filter".into()), ..Default::default() };
        db.create_keyspace("filtered", filtered).unwrap().put("empty", "").unwrap();
        db.close().unwrap();
    }
    assert_eq!(place.run("get", &["a"]).ok(), "1\n");
    place.run("get", &["b"]).fails(3, "operator `my-join`");
    place.run("get", &["x"]).fails(1, "not found");
    place.run("explain", &["c"]).ok();
    let scan = place.run("scan", &[]);
    assert_eq!(scan.out, "a\t1\n");
    scan.fails(3, "operator `my-join`");
    assert_eq!(place.run("scan", &["--start", "c"]).ok(), "c\t4\n");
    assert_eq!(place.run("scan", &["--keys-only"]).ok(), "a\nb\nc\n");
    assert_eq!(place.run("scan", &["--keys-only", "--reverse", "--limit", "2"]).ok(), "c\nb\n");
    assert_eq!(place.run("scan", &["--keys-only", "--prefix", "b"]).ok(), "b\n");
    assert!(place.run("stats", &[]).ok().contains("`merge_operator = my-join`"));
    let verified: Value = serde_json::from_str(&place.run("verify", &["--json"]).ok()).unwrap();
    assert_eq!(verified["problems"], Value::Array(vec![]));
    let mut salvage = tamis();
    salvage.args(["salvage", &place.db()]);
    assert!(run(salvage, b"").ok().contains("nothing to salvage"));

    let refused = |subcommand: &str, args: &[&str]| {
        place
            .run(subcommand, args)
            .fails(2, "can be read but not written: its option `merge_operator = my-join`");
    };
    refused("put", &["d", "5"]);
    refused("del", &["a"]);
    refused("compact", &[]);
    place.run_with_input("load", &["-"], b"line\n").fails(2, "can be read but not written");

    let copy = place.path("copy");
    place.run("checkpoint", &[&copy]).ok();
    // Without its options, too.
    std::fs::remove_file(place.path("db/OPTIONS")).unwrap();
    assert_eq!(place.run("get", &["a"]).ok(), "1\n");
    place.run("verify", &[]).ok();
    for dir in [place.db(), copy] {
        let db = owner().open(dir).unwrap();
        assert_eq!(db.get("b").unwrap().unwrap(), "2+3");
        let filtered = db.keyspace("filtered").unwrap();
        assert_eq!(filtered.get("empty").unwrap().unwrap(), "");
        filtered.compact().unwrap();
        assert!(filtered.get("empty").unwrap().is_none());
    }
}
