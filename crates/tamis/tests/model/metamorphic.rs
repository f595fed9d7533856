//! One history, many ways to store it: options that must not change an answer do not.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use tamis::io::MemFs;
use tamis::options::ReadMode;
use tamis::{Options, WriteBatch};

use crate::moves::show;
use crate::ops::{Change, KEYS, Op, Universe, change, span, value_of};
use crate::settings::{options, universe};
use crate::support::for_all;

/// All answers to a history, as text.
fn answers(options: &Options, path: &std::path::Path, universe: Universe, history: &[Op]) -> Vec<String> {
    let keys = universe.keys();
    let mut answers = Vec::new();
    let mut db = options.clone().open(path).expect("opening");
    let mut snapshot = db.snapshot();
    let mut written = 0;
    for op in history {
        match op {
            Op::Batch(changes) => {
                let mut batch = WriteBatch::new();
                for (_, change) in changes {
                    match change {
                        Change::Put(key, len) => {
                            written += 1;
                            batch.put(&keys[*key], value_of(written, *len));
                        }
                        Change::Merge(key, len) => {
                            written += 1;
                            batch.merge(&keys[*key], value_of(written, *len));
                        }
                        Change::Delete(key) => _ = batch.delete(&keys[*key]),
                        Change::DeleteRange(span) => _ = batch.delete_range(span.of(&keys)),
                    }
                }
                answers.push(format!("{:?}", db.write(batch).is_ok()));
            }
            Op::Get(_, key) => {
                answers.push(format!("{:?}", db.get(&keys[*key]).expect("a get").as_deref().map(show)))
            }
            Op::Scan(_, span) => {
                let range = span.of(&keys);
                answers.push(listed(db.range(range.clone())));
                answers.push(listed(db.range(range.clone()).rev()));
                answers.push(listed(snapshot.range(range)));
            }
            Op::TakeSnapshot => snapshot = db.snapshot(),
            Op::Flush(_) => db.flush().expect("a flush"),
            Op::Compact(_) => db.compact().expect("a compaction"),
            Op::Reopen { .. } => {
                db.close().expect("closing");
                db = options.clone().open(path).expect("opening");
                snapshot = db.snapshot();
            }
            other => unreachable!("{other:?}"),
        }
    }
    answers.push(listed(db.iter()));
    db.close().expect("closing");
    let db = options.clone().open(path).expect("opening");
    answers.push(listed(db.iter()));
    answers.push(listed(db.iter().rev()));
    for many in db.multi_get(&keys).expect("a multi_get") {
        answers.push(format!("{:?}", many.as_deref().map(show)));
    }
    assert_eq!(db.verify().expect("verifying").problems, Vec::<String>::new());
    answers
}

fn listed(items: impl Iterator<Item = Result<(tamis::Slice, tamis::Slice), tamis::ReadError>>) -> String {
    let items = items.map(|item| item.expect("an item"));
    items.map(|(key, value)| format!("{} = {}\n", show(&key), show(&value))).collect()
}

fn history() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        10 => vec((Just(0), change()), 1..12).prop_map(Op::Batch),
        3 => (0..KEYS).prop_map(|key| Op::Get(0, key)),
        2 => span().prop_map(|span| Op::Scan(0, span)),
        1 => Just(Op::TakeSnapshot),
        3 => Just(Op::Flush(None)),
        1 => Just(Op::Compact(0)),
        1 => Just(Op::Reopen { close: true, settings: 0 }),
    ];
    vec(op, 1..60)
}

/// Option sets that differ in everything, and one that is nearly the default.
fn several(count: usize) -> impl Strategy<Value = Vec<Options>> {
    vec((2..6usize).prop_flat_map(options), count).prop_map(|mut all| {
        let mut roomy = Options::default();
        // Logs are preallocated to the size of a memtable.
        roomy.keyspace.memtable_bytes = 256 << 10;
        all.push(roomy);
        for options in &mut all {
            options.keyspace.merge_operator = Some("append".into());
        }
        all
    })
}

#[test]
fn answers_do_not_depend_on_options() {
    for_all(100, (history(), several(4), universe()), |(history, all, universe)| {
        let in_memory = |options: &Options| {
            let options = Options { file_system: Some(Arc::new(MemFs::new())), ..options.clone() };
            answers(&options, "/db".as_ref(), *universe, history)
        };
        let expected = in_memory(&all[0]);
        for options in &all[1..] {
            assert_eq!(in_memory(options), expected, "with {options:#?}");
        }
    });
}

#[test]
fn answers_do_not_depend_on_the_medium_or_how_it_is_read() {
    for_all(8, (history(), several(1), universe()), |(history, all, universe)| {
        let memory = Options { file_system: Some(Arc::new(MemFs::new())), ..all[0].clone() };
        let expected = answers(&memory, "/db".as_ref(), *universe, history);
        for &read_mode in ReadMode::available() {
            for cache_bytes in [0, 1 << 10, 1 << 20] {
                let dir = tempfile::tempdir().expect("a directory");
                let options =
                    Options { read_mode, cache_bytes, pin_metadata: cache_bytes > 1 << 10, ..all[0].clone() };
                assert_eq!(
                    answers(&options, dir.path(), *universe, history),
                    expected,
                    "{read_mode:?}, {cache_bytes}"
                );
            }
        }
    });
}
