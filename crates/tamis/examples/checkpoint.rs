//! A copy of a database in use, which opens like any other: `cargo run -p tamis --example checkpoint`.
#![allow(clippy::print_stdout, reason = "an example for the terminal")]

use tamis::{AdminError, Db, Keyspace, KeyspaceOptions, WriteBatch, WriteError};

/// Adds orders, and counts them in the default keyspace. Each batch does both or neither.
fn take_orders(db: &Db, orders: &Keyspace, numbers: std::ops::Range<u64>) -> Result<(), WriteError> {
    for n in numbers {
        let mut batch = WriteBatch::new();
        batch.put_in(orders, n.to_be_bytes(), "two of each").put("orders", (n + 1).to_be_bytes());
        db.write(batch)?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path().join("db"))?;
    let orders = db.create_keyspace("orders", KeyspaceOptions::default())?;
    take_orders(&db, &orders, 0..10_000)?;

    // The writer goes on while the copy is made. Files are linked where the file system can do that,
    // so a large database is copied as quickly as a small one.
    let path = dir.path().join("copy");
    std::thread::scope(|scope| -> Result<(), Box<dyn std::error::Error>> {
        let writer = scope.spawn(|| take_orders(&db, &orders, 10_000..20_000));
        db.checkpoint(&path)?;
        writer.join().expect("no panic")?;
        Ok(())
    })?;

    // The copy has every keyspace, as of one moment: no batch is there in part.
    let copy = Db::open(&path)?;
    let copied = copy.keyspace("orders")?.iter().try_fold(0u64, |count, item| item.map(|_| count + 1))?;
    println!("{copied} orders in the copy, {} in the source", orders.iter().count());
    assert!((10_000..=20_000).contains(&copied));
    assert_eq!(copy.get("orders")?.ok_or("no count")?, copied.to_be_bytes());

    // From here on each of the two goes its own way.
    copy.put("orders", "of the copy")?;
    orders.clear()?;
    assert_eq!(db.get("orders")?.ok_or("no count")?, 20_000u64.to_be_bytes());
    assert_eq!(copy.keyspace("orders")?.iter().count() as u64, copied);

    // A checkpoint never overwrites: it goes to a new directory.
    assert!(matches!(db.checkpoint(&path), Err(AdminError::TargetExists { .. })));
    Ok(())
}
