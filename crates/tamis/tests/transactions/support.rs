//! A small database in memory, and texts instead of bytes.

use std::sync::Arc;

use tamis::io::MemFs;
use tamis::transactions::{Isolation, TransactionOptions};
use tamis::{Db, KeyspaceOptions, Options, Readable, Transaction};

pub(crate) fn options() -> Options {
    Options { file_system: Some(Arc::new(MemFs::new())), keyspace: keyspace_options(), ..Options::default() }
}

/// Small memtables, and an operator.
pub(crate) fn keyspace_options() -> KeyspaceOptions {
    KeyspaceOptions {
        merge_operator: Some("append".into()),
        memtable_bytes: 16 << 10,
        ..KeyspaceOptions::default()
    }
}

pub(crate) fn open() -> Db {
    options().open("/db").unwrap()
}

pub(crate) fn begin(db: &Db, isolation: Isolation) -> Transaction {
    db.transaction_with(TransactionOptions { isolation, ..TransactionOptions::default() })
}

pub(crate) fn text(bytes: impl AsRef<[u8]>) -> String {
    String::from_utf8_lossy(bytes.as_ref()).into_owned()
}

pub(crate) fn get(from: &impl Readable, key: &str) -> Option<String> {
    from.get(key).unwrap().map(text)
}

/// All items of an iterator, as `key=value`.
pub(crate) fn items(iter: impl Iterator<Item = <tamis::Iter as Iterator>::Item>) -> Vec<String> {
    iter.map(|item| item.map(|(key, value)| format!("{}={}", text(key), text(value))).unwrap()).collect()
}
