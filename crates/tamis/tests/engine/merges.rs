//! Merge operators and compaction filters through the public API.

use std::sync::Arc;

use tamis::explain::ExplainStep;
use tamis::io::MemFs;
use tamis::operators::{CompactionFilter, Decision, MergeError, MergeOperator, Operators};
use tamis::options::ReadMode;
use tamis::{
    AdminError, Db, KeyspaceOptions, OpenError, Options, OptionsError, ReadError, WriteBatch, WriteError,
};
use tamis_testkit::{FaultPlan, FaultyFs, OpClass};

/// Options of an empty in-memory database whose tree changes only on request.
fn options(operator: &str) -> Options {
    let mut options = Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() };
    options.keyspace = keyspace(operator);
    options
}

fn keyspace(operator: &str) -> KeyspaceOptions {
    let merge_operator = (operator != "none").then(|| operator.to_owned());
    KeyspaceOptions {
        merge_operator,
        auto_compaction: false,
        memtable_bytes: 64 << 10,
        ..KeyspaceOptions::default()
    }
}

fn open(options: &Options) -> Db {
    options.clone().open("/db").expect("opening")
}

fn number(n: i64) -> [u8; 8] {
    n.to_le_bytes()
}

fn count_of(db: &Db, key: &str) -> Option<i64> {
    let value = db.get(key).expect("a get")?;
    Some(i64::from_le_bytes(value[..].try_into().expect("eight bytes")))
}

fn entries(db: &Db) -> u64 {
    db.stats().keyspaces[0].entries
}

#[test]
fn a_counter_counts_across_memtables_runs_and_sessions() {
    let options = options("add");
    let db = open(&options);
    for round in 1..=5 {
        db.merge("visits", number(10)).expect("a merge");
        db.merge("visits", number(-3)).expect("a merge");
        assert_eq!(count_of(&db, "visits"), Some(7 * round));
        assert!(db.contains_key("visits").expect("a get"));
        db.flush().expect("a flush");
    }
    assert_eq!((count_of(&db, "visits"), entries(&db)), (Some(35), 5), "a flush folds the operands it can");
    db.merge("visits", number(1)).expect("a merge");
    db.close().expect("closing");
    let db = open(&options);
    assert_eq!(count_of(&db, "visits"), Some(36), "replayed");
    db.compact().expect("a compaction");
    assert_eq!((count_of(&db, "visits"), entries(&db)), (Some(36), 1));
    assert_eq!(db.explain_get("visits").expect("an explanation").cost.merge_operands, 0);
}

#[test]
fn a_put_a_delete_and_a_range_delete_are_bases_of_operands() {
    let db = open(&options("append"));
    let check = |key: &str, expected: &str| {
        let value = db.get(key).expect("a get").expect("there");
        assert_eq!(value, expected, "{key}");
        assert_eq!(db.multi_get(&[key]).expect("a multi_get")[0].as_ref(), Some(&value), "{key}");
        for item in [db.range(key..=key).next(), db.range(key..=key).next_back()] {
            assert_eq!(item.expect("an item").expect("an item"), (key.as_bytes().into(), value.clone()));
        }
    };
    for flush in [false, true] {
        for key in ["deleted", "gone", "put"] {
            db.merge(key, "old").expect("a merge");
        }
        let step = || {
            if flush {
                db.flush().expect("a flush")
            }
        };
        step();
        db.delete("deleted").expect("a delete");
        db.delete_range("go".."h").expect("a delete");
        db.put("put", "base ").expect("a put");
        step();
        let before = db.snapshot();
        for key in ["deleted", "gone", "put"] {
            db.merge(key, "n").expect("a merge");
            step();
            db.merge(key, "ew").expect("a merge");
        }
        let check_all = || {
            check("deleted", "new");
            check("gone", "new");
            check("put", "base new");
            assert_eq!(before.get("put").expect("a get").expect("there"), "base ");
            assert_eq!(before.iter().count(), 1);
        };
        check_all();
        step();
        check_all();
        db.compact().expect("a compaction");
        check_all();
    }
}

/// Each source of operands is checked once, with the key's only digest; explain shows the path down
/// to the base.
#[test]
fn operands_are_read_with_one_digest_down_to_their_base() {
    let db = open(&options("append"));
    for value in ["hidden", "base"] {
        db.put("key", value).expect("a put");
        db.flush().expect("a flush");
    }
    for operand in ["1", "2", "3"] {
        db.merge("key", operand).expect("a merge");
        db.put("other", "").expect("a put");
        if operand != "3" {
            db.flush().expect("a flush");
        }
        db.put(format!("beside{operand}"), "").expect("a put");
    }
    let before = db.stats().read;
    assert_eq!(db.get("key").expect("a get").expect("there"), "base123");
    let cost = db.stats().read - before;
    assert_eq!((cost.gets, cost.digests, cost.merge_operands, cost.runs_searched), (1, 1, 3, 3), "{cost:?}");
    let explanation = db.explain_get("key").expect("an explanation");
    let found = explanation.steps.iter().filter(|step| match step {
        ExplainStep::Memtable { found, .. } | ExplainStep::Run { found, .. } => *found,
        other => panic!("{other:?}"),
    });
    assert_eq!((found.count(), explanation.cost.merge_operands), (4, 3), "{explanation:#?}");
    let values = db.multi_get(&["key", "absent", "other", "key"]).expect("a multi_get");
    let values: Vec<_> = values.iter().map(|value| value.as_deref()).collect();
    assert_eq!(values, [Some(&b"base123"[..]), None, Some(b""), Some(b"base123")]);
}

#[test]
fn batches_merge_in_order_and_across_keyspaces() {
    let db = open(&options("append"));
    let counters = db.create_keyspace("counters", keyspace("add")).expect("a keyspace");
    let mut batch = WriteBatch::new();
    batch.merge("log", "a").put("log", "b").merge("log", "c").merge("log", "d");
    batch.merge_in(&counters, "n", number(1)).merge_in(&counters, "n", number(2));
    assert_eq!(batch.len(), 6);
    db.write(batch).expect("a write");
    assert_eq!(db.get("log").expect("a get").expect("there"), "bcd");
    assert_eq!(counters.get("n").expect("a get").expect("there"), number(3));
}

#[test]
fn a_merge_without_an_operator_is_refused_and_changes_nothing() {
    let db = open(&options("none"));
    let counters = db.create_keyspace("counters", keyspace("add")).expect("a keyspace");
    let refused = |result| match result {
        Err(WriteError::NoMergeOperator { name }) => assert_eq!(name, "default"),
        other => panic!("{other:?}"),
    };
    refused(db.merge("key", "1"));
    let mut batch = WriteBatch::new();
    batch.put("key", "value").merge_in(&counters, "n", number(1)).merge("key", "1");
    refused(db.write(batch));
    assert_eq!((db.iter().count(), counters.iter().count()), (0, 0));
    db.put("key", "value").expect("writes continue");
}

/// The operator cannot add to the value that was put: reads return an error, compactions keep it,
/// and writes continue.
#[test]
fn a_failing_merge_is_a_read_error_until_the_key_is_rewritten() {
    let options = options("add");
    let db = open(&options);
    db.put("bad", "three").expect("a put");
    db.merge("bad", number(1)).expect("a merge");
    db.merge("good", number(1)).expect("a merge");
    db.merge("worse", "x").expect("a merge");
    let check = |db: &Db| {
        for key in ["bad", "worse"] {
            let named = |error: ReadError| match &error {
                ReadError::Merge { key: named, what } => {
                    assert_eq!(named, key.as_bytes());
                    assert!(what.contains("operator `add`"), "{what}");
                }
                other => panic!("{other}"),
            };
            named(db.get(key).unwrap_err());
            named(db.contains_key(key).unwrap_err());
            named(db.multi_get(&["good", key]).unwrap_err());
            named(db.explain_get(key).unwrap_err());
            named(db.range(key..=key).next().expect("an item").unwrap_err());
            named(db.range(key..=key).next_back().expect("an item").unwrap_err());
        }
        assert_eq!(count_of(db, "good"), Some(1));
        // Each end stops at the key it cannot read; the items between are left to the other end.
        let mut iter = db.iter();
        assert!(iter.next().expect("an item").is_err() && iter.next().is_none());
        assert!(iter.next_back().expect("an item").is_err() && iter.next_back().is_none());
        assert_eq!(db.range("c".."w").count(), 1);
    };
    check(&db);
    db.flush().expect("a flush");
    check(&db);
    db.compact().expect("a compaction ends");
    db.compact().expect("a second compaction ends");
    check(&db);
    assert_eq!(db.verify().expect("verifying").problems, Vec::<String>::new());
    db.close().expect("closing");
    let db = open(&options);
    check(&db);
    db.put("bad", number(5)).expect("a put");
    db.delete("worse").expect("a delete");
    db.merge("bad", number(1)).expect("a merge");
    assert_eq!((count_of(&db, "bad"), count_of(&db, "worse")), (Some(6), None));
    db.compact().expect("a compaction");
    assert_eq!(entries(&db), 2);
}

#[derive(Debug)]
struct First(&'static str);

impl MergeOperator for First {
    fn name(&self) -> &str {
        self.0
    }

    fn merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, MergeError> {
        Ok(base.unwrap_or(operands[0]).to_vec())
    }
}

#[test]
fn a_custom_operator_must_be_passed_at_every_opening() {
    let mut options = options("keep-first");
    let unknown = |result: Result<Db, OpenError>, expected: &str| match result.unwrap_err() {
        OpenError::Unregistered { keyspace, option: "merge_operator", name } => {
            assert_eq!((&keyspace[..], &name[..]), (expected, "keep-first"));
        }
        other => panic!("{other}"),
    };
    unknown(options.clone().open("/db"), "default");
    options.operators = Operators::new().with_merge(Arc::new(First("keep-first")));
    {
        let db = open(&options);
        db.merge("key", "first").expect("a merge");
        db.flush().expect("a flush");
        db.merge("key", "second").expect("a merge");
        let other = db.create_keyspace("other", keyspace("keep-first")).expect("a keyspace");
        other.merge("key", "third").expect("a merge");
    }
    let without = Options { operators: Operators::new(), ..options.clone() };
    unknown(without.clone().open("/db"), "default");
    unknown(without.open_read_only("/db"), "default");
    let db = open(&options);
    db.compact().expect("a compaction");
    assert_eq!(db.get("key").expect("a get").expect("there"), "first");
    let other = db.keyspace("other").expect("it was made");
    assert_eq!(other.get("key").expect("a get").expect("there"), "third");
    let refused = db.create_keyspace("third", keyspace("keep-last")).unwrap_err();
    assert!(matches!(refused, AdminError::Unregistered { option: "merge_operator", .. }), "{refused}");
    let filtered = KeyspaceOptions { compaction_filter: Some("sieve".into()), ..keyspace("add") };
    let refused = db.create_keyspace("third", filtered).unwrap_err();
    assert!(matches!(refused, AdminError::Unregistered { option: "compaction_filter", .. }), "{refused}");
    assert_eq!(db.keyspaces(), ["default", "other"]);
}

/// A program's own operator called `add` was left aside without a word, and its operands were added
/// up.
#[test]
fn an_operator_with_a_built_in_name_is_refused() {
    for name in ["add", "append", "max"] {
        let mut options = options(name);
        options.operators = Operators::new().with_merge(Arc::new(First(name)));
        match options.clone().open("/db").unwrap_err() {
            OpenError::Options(OptionsError::Value { name: "operators", value, .. }) => {
                assert_eq!(value, name)
            }
            other => panic!("{other}"),
        }
        options.operators = Operators::new();
        drop(open(&options));
    }
}

/// A compaction filter that removes empty values.
#[derive(Debug)]
struct DropEmpty;

impl CompactionFilter for DropEmpty {
    fn name(&self) -> &str {
        "drop-empty"
    }

    fn filter(&self, _: usize, _: &[u8], value: &[u8]) -> Decision {
        if value.is_empty() { Decision::Remove } else { Decision::Keep }
    }
}

/// Programs that check, list and copy any database could not open one with operators of its own at
/// all.
#[test]
fn without_its_operators_a_database_is_read_and_copied_but_not_written() {
    let mut owner = options("keep-first");
    owner.operators =
        Operators::new().with_merge(Arc::new(First("keep-first"))).with_filter(Arc::new(DropEmpty));
    let sieved = KeyspaceOptions { compaction_filter: Some("drop-empty".into()), ..keyspace("none") };
    {
        let db = open(&owner);
        db.put("a", "a value").expect("a put");
        db.merge("key", "first").expect("a merge");
        db.flush().expect("a flush");
        db.merge("key", "second").expect("a merge");
        db.create_keyspace("sieved", sieved).expect("a keyspace").put("empty", "").expect("a put");
        db.create_keyspace("plain", keyspace("none")).expect("a keyspace").put("p", "1").expect("a put");
        db.close().expect("closing");
    }
    // It does not even know that there is an operator.
    let mut stranger = options("none");
    stranger.file_system = owner.file_system.clone();
    assert!(matches!(stranger.clone().open("/db"), Err(OpenError::Incompatible { .. })));
    stranger.operators = Operators::new().with_unknown();

    let read = |db: &Db| {
        assert_eq!(db.get("a").expect("a get").expect("there"), "a value");
        match db.get("key").unwrap_err() {
            ReadError::Merge { key, what } => {
                assert!(key == b"key" && what.contains("`keep-first`"), "{what}")
            }
            other => panic!("{other}"),
        }
        let scanned: Vec<_> = db.iter().collect();
        assert!(scanned.len() == 2 && scanned[0].is_ok() && scanned[1].is_err(), "{scanned:?}");
        assert!(db.get("absent").expect("a get").is_none());
        assert_eq!(db.keyspace("sieved").expect("made").get("empty").expect("a get").expect("there"), "");
        assert_eq!(db.keyspace("plain").expect("made").get("p").expect("a get").expect("there"), "1");
        assert_eq!(db.verify().expect("a check").problems, Vec::<String>::new());
        let warnings = db.stats().warnings;
        for name in ["`merge_operator = keep-first`", "`compaction_filter = drop-empty`"] {
            assert!(warnings.iter().any(|warning| warning.contains(name)), "{warnings:?}");
        }
    };
    read(&stranger.clone().open_read_only("/db").expect("opening read-only"));
    let db = open(&stranger);
    read(&db);
    let refused = |error: WriteError, lacks: &str| match error {
        WriteError::Unregistered { name, .. } => assert_eq!(name, lacks),
        other => panic!("{other}"),
    };
    let (sieved, plain) = (db.keyspace("sieved").expect("made"), db.keyspace("plain").expect("made"));
    refused(db.put("a", "other").unwrap_err(), "keep-first");
    refused(db.merge("key", "third").unwrap_err(), "keep-first");
    refused(db.delete_range("a"..="z").unwrap_err(), "keep-first");
    refused(sieved.delete("empty").unwrap_err(), "drop-empty");
    let mut batch = WriteBatch::new();
    batch.put_in(&plain, "p", "2").put_in(&sieved, "s", "2");
    refused(db.write(batch).unwrap_err(), "drop-empty");
    for keyspace in [db.default_keyspace(), &sieved] {
        let error = keyspace.compact().unwrap_err();
        assert!(matches!(error, AdminError::Write(WriteError::Unregistered { .. })), "{error}");
    }
    plain.put("p", "3").expect("it lacks nothing");
    plain.compact().expect("it lacks nothing");
    let error = db.create_keyspace("more", keyspace("keep-first")).unwrap_err();
    assert!(matches!(error, AdminError::Unregistered { .. }), "{error}");
    db.wait_for_compaction().expect("nothing is due");
    db.checkpoint("/copy").expect("a checkpoint");
    db.close().expect("closing");

    for place in ["/db", "/copy"] {
        let db = owner.clone().open(place).expect("opening");
        for _ in 0..2 {
            assert_eq!(db.get("key").expect("a get").expect("there"), "first");
            assert_eq!(db.keyspace("plain").expect("made").get("p").expect("a get").expect("there"), "3");
            db.compact().expect("a compaction");
        }
        let sieved = db.keyspace("sieved").expect("made");
        assert_eq!(sieved.get("empty").expect("a get").expect("there"), "");
        sieved.compact().expect("a compaction");
        assert!(sieved.get("empty").expect("a get").is_none(), "the filter runs again");
    }
}

#[test]
fn a_keyspace_may_be_given_an_operator_and_keeps_it() {
    let mut options = options("none");
    open(&options).put("key", number(1)).expect("a put");
    options.keyspace.merge_operator = Some("add".into());
    open(&options).merge("key", number(1)).expect("a merge");
    for other in [None, Some("append".to_owned())] {
        let asked = other.clone().unwrap_or("none".into());
        options.keyspace.merge_operator = other;
        match options.clone().open("/db").unwrap_err() {
            OpenError::Incompatible { name: "merge_operator", stored, asked: told, .. } => {
                assert_eq!((&stored[..], told), ("add", asked));
            }
            other => panic!("{other}"),
        }
    }
    options.keyspace.merge_operator = Some("add".into());
    assert_eq!(count_of(&open(&options), "key"), Some(2));
}

#[test]
fn names_that_the_options_text_cannot_represent_are_refused() {
    let long = "x".repeat(65);
    for name in ["", "none", "a b", "a#b", "a\nlevels = 2", "ä", &long] {
        let options = KeyspaceOptions { merge_operator: Some(name.into()), ..KeyspaceOptions::default() };
        assert!(options.check().is_err(), "{name:?}");
    }
    let named = KeyspaceOptions {
        merge_operator: Some("my.operator:v-2/x_y".into()),
        compaction_filter: Some("f".into()),
        ..KeyspaceOptions::default()
    };
    assert_eq!(KeyspaceOptions::from_text(&named.to_text()), Ok(named));
}

/// Removes values that start with `-`, replaces those that start with `~`, and records the values
/// it was called with.
#[derive(Debug, Default)]
struct Sieve(std::sync::Mutex<Vec<(usize, String)>>);

impl Sieve {
    fn shown(&self) -> Vec<(usize, String)> {
        std::mem::take(&mut self.0.lock().expect("shown"))
    }
}

impl CompactionFilter for Sieve {
    fn name(&self) -> &str {
        "sieve"
    }

    fn filter(&self, level: usize, _key: &[u8], value: &[u8]) -> Decision {
        self.0.lock().expect("shown").push((level, value.escape_ascii().to_string()));
        match value.first() {
            Some(b'-') => Decision::Remove,
            Some(b'~') => Decision::Replace(b"replaced".to_vec()),
            _ => Decision::Keep,
        }
    }
}

#[test]
fn a_filter_removes_and_replaces_and_nothing_older_reappears() {
    let sieve = Arc::new(Sieve::default());
    let mut options = options("append");
    let db = open(&options);
    for key in ["a", "b", "c", "d"] {
        db.put(key, "old").expect("a put");
    }
    db.compact().expect("a compaction");
    db.close().expect("closing");
    options.operators = Operators::new().with_filter(sieve.clone());
    options.keyspace.compaction_filter = Some("sieve".into());
    let db = open(&options);
    let snapshot = {
        db.put("a", "-").expect("a put");
        db.put("b", "~").expect("a put");
        db.put("c", "kept").expect("a put");
        db.snapshot()
    };
    let all = |db: &Db| -> Vec<String> {
        let text = |bytes: tamis::Slice| bytes.escape_ascii().to_string();
        db.iter().map(|item| item.map(|(k, v)| text(k) + &text(v)).expect("an item")).collect()
    };
    db.flush().expect("a flush");
    assert_eq!(sieve.shown(), [], "a snapshot sees all of it");
    assert_eq!(all(&db), ["a-", "b~", "ckept", "dold"]);
    drop(snapshot);
    // Operands are passed to the filter only when their base is met.
    db.merge("d", "er").expect("a merge");
    db.put("e", "-").expect("a put");
    db.flush().expect("a flush");
    assert_eq!(sieve.shown(), [(0, "-".into())]);
    assert_eq!(all(&db), ["a-", "b~", "ckept", "dolder"]);
    let level = db.stats().keyspaces[0].levels.len() - 1;
    db.compact().expect("a compaction");
    let last = ["-", "~", "kept", "older"].map(|value| (level, value.to_owned()));
    assert_eq!(sieve.shown(), last);
    assert_eq!(all(&db), ["breplaced", "ckept", "dolder"]);
    assert_eq!((entries(&db), db.stats().keyspaces[0].deletes), (3, 0));
}

/// The bytes pinned by a snapshot alone are recorded in the manifest, and read back from it.
#[test]
fn a_flush_with_a_snapshot_keeps_the_operands_on_both_sides_of_it() {
    let options = options("add");
    let db = open(&options);
    db.merge("n", number(1)).expect("a merge");
    let before = db.snapshot();
    db.merge("n", number(2)).expect("a merge");
    db.merge("n", number(3)).expect("a merge");
    db.flush().expect("a flush");
    assert_eq!(entries(&db), 2);
    assert_eq!(before.get("n").expect("a get").expect("there"), number(1));
    let from_snapshot: Vec<_> = before.iter().rev().collect::<Result<_, _>>().expect("items");
    assert_eq!(from_snapshot, [("n".as_bytes().into(), number(1)[..].into())]);
    assert_eq!(count_of(&db, "n"), Some(6));
    db.compact().expect("a compaction");
    assert_eq!((entries(&db), count_of(&db, "n")), (2, Some(6)));
    assert_eq!(before.get("n").expect("a get").expect("there"), number(1));
    drop(before);
    db.compact().expect("a compaction");
    assert_eq!((entries(&db), count_of(&db, "n")), (1, Some(6)));
}

/// Regression: the front of an iterator marked a key as returned before all of its operands were
/// read; when a read failed in between, neither end returned the key.
#[test]
fn a_failed_read_of_operands_loses_no_item() {
    let fs = FaultyFs::new(1);
    let mut options = options("append");
    options.file_system = Some(Arc::new(fs.clone()));
    (options.read_mode, options.cache_bytes) = (ReadMode::Buffered, 0);
    options.keyspace.block_bytes = 256;
    let db = open(&options);
    let keys: Vec<_> = (0..50).map(|i| format!("{i:03}").into_bytes()).collect();
    for _ in 0..3 {
        for key in &keys {
            db.merge(key, [b'x'; 40]).expect("a merge");
        }
        db.flush().expect("a flush");
    }
    let mut failures = 0;
    for (at, rev) in (0..60).flat_map(|at| [(at, false), (at, true)]) {
        let mut iter = db.iter();
        let fail_at = Some(fs.operations() + at);
        // What could not be read ahead is read again when it is needed.
        fs.plan(FaultPlan { fail_at, sticky: true, only: Some(OpClass::Read), ..FaultPlan::none() });
        let mut given: Vec<Vec<u8>> = Vec::new();
        while let Some(item) = if rev { iter.next_back() } else { iter.next() } {
            match item {
                Ok((key, value)) => {
                    assert_eq!(value.len(), 120, "a value lacks operands");
                    given.push(key.to_vec());
                }
                Err(_) => failures += 1,
            }
        }
        fs.plan(FaultPlan::none());
        let rest: &mut dyn Iterator<Item = _> = if rev { &mut iter } else { &mut iter.rev() };
        given.extend(rest.map(|item| item.expect("an item").0.to_vec()));
        given.sort();
        assert_eq!(given, keys, "read {at} failed, backwards: {rev}");
    }
    assert!(failures > 8, "{failures} reads failed");
}
