//! Entries of prepared transactions that nobody has prepared.

use crate::transaction::options::Isolation::Serializable;
use crate::transaction::prepared::PREPARED_KEYSPACE;
use crate::transaction::tests::begin;
use crate::transaction::tests::open;
use crate::{KeyspaceOptions, ReadError, StorageError, TransactionError, WriteBatch};

#[test]
fn hostile_entries_are_an_error_and_do_not_get_in_the_way_of_others() {
    let mut ingestion = vec![1];
    ingestion.extend_from_slice(WriteBatch::ingestion(0).bytes());
    let mut cut = WriteBatch::new();
    cut.put("key", "value");
    let mut cut = [&[1], cut.bytes()].concat();
    cut.pop();
    let hostile: [&[u8]; 6] = [b"", &[0], &[2, 1, 0, 0, 0], &[1, 255], &ingestion, &cut];
    for entry in hostile {
        let db = open();
        db.inner().create_keyspace(PREPARED_KEYSPACE, KeyspaceOptions::default()).unwrap();
        let directory = db.inner().keyspaces.directory.load_full();
        let id = directory.values().find(|keyspace| keyspace.is_hidden()).unwrap().id;
        let mut batch = WriteBatch::new();
        batch.put_id(id, b"name", entry);
        db.write(batch).unwrap();
        let is_damage = |error: TransactionError| {
            let text = error.to_string();
            assert!(text.contains("prepared transaction `name` cannot be understood"), "{text}");
            matches!(error, TransactionError::Read(ReadError::Storage(StorageError::Corrupt(_))))
        };
        assert!(is_damage(db.lock_transaction().unwrap_err()), "{entry:?}");
        assert!(is_damage(db.prepared_transactions().unwrap_err()), "{entry:?}");
        // Whoever needs no locks goes on.
        let mut tx = begin(&db, Serializable);
        tx.put("a", "").unwrap();
        tx.commit().unwrap();
    }
}

/// The message named the whole entry instead.
#[test]
fn an_entry_that_is_damaged_later_is_named_by_its_commit() {
    let db = open();
    let mut tx = db.lock_transaction().unwrap();
    tx.put("key", "value").unwrap();
    let prepared = tx.prepare("name").unwrap();
    let directory = db.inner().keyspaces.directory.load_full();
    let id = directory.values().find(|keyspace| keyspace.is_hidden()).unwrap().id;
    let mut batch = WriteBatch::new();
    batch.put_id(id, b"name", &[2, 1, 0, 0, 0]);
    db.write(batch).unwrap();
    let text = prepared.commit().unwrap_err().to_string();
    assert!(text.contains("prepared transaction `name` cannot be understood"), "{text}");
}
