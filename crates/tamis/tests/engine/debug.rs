//! How handles print themselves: in a line that any log may have.

use std::fmt::Debug;

use tamis::ingest::ExternalTableBuilder;
use tamis::options::{MemoryLimit, SharedReadMemory};
use tamis::{KeyspaceOptions, Options, WriteBatch};

/// A database printed megabytes, and batches, iterators and transactions their keys and values:
/// secrets reached logs by `{:?}`.
#[test]
fn a_handle_prints_a_line_without_what_is_stored() {
    const KEY: &str = "a-secret-key";
    const VALUE: &str = "a-secret-value";
    let dir = tempfile::tempdir().unwrap();
    let limit = MemoryLimit::new(64 << 20);
    let options = Options {
        shared_read_memory: Some(limit.reads()),
        shared_write_memory: Some(limit.writes()),
        changes_keep_bytes: 1 << 20,
        ..Options::default()
    };
    let db = options.open(dir.path().join("db")).unwrap();
    for i in 0..50 {
        db.create_keyspace(&format!("keyspace {i}"), KeyspaceOptions::default()).unwrap();
    }
    let keyspace = db.keyspace("keyspace 7").unwrap();
    for i in 0..100 {
        db.put(format!("{KEY}{i:03}"), VALUE).unwrap();
        keyspace.put(format!("{KEY}{i:03}"), VALUE).unwrap();
    }
    db.flush().unwrap();
    db.put(KEY, VALUE).unwrap();

    let check = |what: &dyn Debug| {
        let (line, pretty) = (format!("{what:?}"), format!("{what:#?}"));
        assert!(line.len() < 400 && !line.contains('\n'), "{} bytes: {line}", line.len());
        assert!(pretty.len() < 1000, "{} bytes: {pretty}", pretty.len());
        for text in [&line, &pretty] {
            let bytes = |text: &str| format!("{:?}", text.as_bytes()).trim_matches(['[', ']']).to_owned();
            assert!(!text.contains("secret") && !text.contains(&bytes("secret")), "{text}");
        }
    };
    check(&db);
    check(&keyspace);
    let snapshot = db.snapshot();
    check(&snapshot);
    check(&snapshot.keyspace(&keyspace));
    let mut iter = db.range(KEY..);
    iter.next().unwrap().unwrap();
    iter.next_back().unwrap().unwrap();
    check(&iter);
    let mut keys = db.range(KEY..).keys();
    keys.next().unwrap().unwrap();
    check(&keys);
    let mut batch = WriteBatch::new();
    batch.put(KEY, VALUE).delete_range(KEY..);
    check(&batch);
    let mut transaction = db.transaction();
    transaction.get(KEY).unwrap();
    transaction.put(KEY, VALUE).unwrap();
    check(&transaction);
    check(&transaction.keyspace(&keyspace));
    check(&transaction.savepoint());
    drop(transaction);
    let mut locking = db.lock_transaction().unwrap();
    locking.get_for_update(KEY).unwrap();
    locking.put(KEY, VALUE).unwrap();
    check(&locking);
    check(&locking.prepare("a name").unwrap());
    let mut changes = db.changes(0).unwrap();
    let change = changes.next().unwrap().unwrap();
    check(&change);
    check(&changes);
    check(&db.change_consumer("a consumer").unwrap());
    check(&db.live_files().unwrap());
    check(&db.pause_compaction());
    let mut builder =
        ExternalTableBuilder::create(dir.path().join("table"), &KeyspaceOptions::default()).unwrap();
    builder.put(KEY, VALUE).unwrap();
    check(&builder);
    check(&limit);
    check(&limit.reads());
    check(&limit.writes());
    check(&SharedReadMemory::new(1 << 20));
}
