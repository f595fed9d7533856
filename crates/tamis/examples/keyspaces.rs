//! Keyspaces: separate sets of keys with options of their own, one log: `cargo run -p tamis
//! --example keyspaces`.
#![allow(clippy::print_stdout, reason = "an example for the terminal")]

use tamis::options::CompactionChoice;
use tamis::{Db, KeyspaceOptions, WriteBatch};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path())?;
    let users = db.get_or_create_keyspace("users", KeyspaceOptions::default())?;
    // Written more than read.
    let events = KeyspaceOptions::default().compaction(CompactionChoice::Tiering);
    let events = db.get_or_create_keyspace("events", events)?;

    // One batch, one record of the log: both or neither.
    let mut batch = WriteBatch::new();
    batch.put_in(&users, "ada", "1815").put_in(&events, "2026-11-25/1", "ada joined");
    db.write(batch)?;

    // The same in a transaction that reads first.
    db.transact(|tx| {
        if tx.keyspace(&users).get("bob")?.is_none() {
            tx.put_in(&users, "bob", "1906")?;
            tx.put_in(&events, "2026-11-25/2", "bob joined")?;
        }
        Ok::<_, tamis::Error>(())
    })?;
    println!("{:?}: first {:?}, last {:?}", db.keyspaces(), users.first()?, users.last()?);
    println!(
        "about {} events in {} bytes",
        events.approximate_len::<&str>(..)?,
        events.approximate_size::<&str>(..)?
    );

    // Handles stay good under a new name.
    db.rename_keyspace("users", "people")?;
    assert_eq!((users.name(), users.get("ada")?.unwrap()), ("people", "1815".as_bytes().into()));
    events.delete_prefix("2026-11-25/")?;
    assert!(events.is_empty()?);
    users.clear()?;
    db.drop_keyspace("people")?;
    assert!(users.get("ada").is_err());
    Ok(())
}
