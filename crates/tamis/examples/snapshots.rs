//! A consistent reader beside a writer, and keyspaces in one batch: `cargo run -p tamis --example
//! snapshots`.
#![allow(clippy::print_stdout, reason = "an example for the terminal")]

use tamis::{Db, KeyspaceOptions, WriteBatch};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path())?;
    let accounts = db.create_keyspace("accounts", KeyspaceOptions::default())?;
    let log = db.create_keyspace("log", KeyspaceOptions::default())?;
    let mut batch = WriteBatch::new();
    batch.put_in(&accounts, "ada", "100").put_in(&accounts, "bob", "0").put_in(&log, "0", "opened");
    db.write(batch)?;

    let before = db.snapshot();
    let mut batch = WriteBatch::new();
    batch.put_in(&accounts, "ada", "60").put_in(&accounts, "bob", "40").put_in(&log, "1", "ada to bob: 40");
    db.write(batch)?;

    for (name, view) in [("before", before.keyspace(&accounts)), ("after", db.snapshot().keyspace(&accounts))]
    {
        let all: Result<Vec<_>, _> = view.iter().collect();
        println!("{name}: {:?}", all?);
    }
    assert_eq!(before.keyspace(&accounts).get("bob")?.unwrap(), "0");
    assert_eq!(accounts.get("bob")?.unwrap(), "40");
    Ok(())
}
