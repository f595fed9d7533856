//! A database with a damaged table is opened again with everything else: `cargo run -p tamis-doctor
//! --example salvage`.
#![allow(clippy::print_stdout, reason = "an example for the terminal")]

use std::fs::OpenOptions;

use tamis::{Db, KeyspaceOptions, OpenError, Options};
use tamis_doctor::TableFate;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("db");
    let db = Db::open(&path)?;
    let orders = db.create_keyspace("orders", KeyspaceOptions::default())?;
    let visits = db.create_keyspace("visits", KeyspaceOptions::default())?;
    for n in 0..1000u32 {
        orders.put(n.to_be_bytes(), "two of each")?;
        visits.put(n.to_be_bytes(), "a visit")?;
    }
    db.flush()?;
    orders.put("the last one", "only in the log")?;
    let table = visits.tables().first().ok_or("no table")?.id;
    db.close()?;
    drop((orders, visits));

    // The only table of `visits` loses its second half.
    let table = format!("{table:06}.tam");
    let file = OpenOptions::new().write(true).open(path.join(&table))?;
    file.set_len(file.metadata()?.len() / 2)?;

    // Such a database is not opened: an answer might be wrong.
    match Db::open(&path) {
        Err(OpenError::Storage(error)) => println!("not opened: {error}"),
        other => return Err(format!("{other:?}").into()),
    }
    // First the options that lose nothing: what is wrong? Is there a backup?
    let found = tamis_doctor::verify(&path, Options::default())?;
    println!("verify: {:#?}", found.problems);
    assert!(found.problems.iter().any(|problem| problem.contains(&table)));

    // A dry run says what a salvage would keep, and changes nothing.
    let plan = tamis_doctor::salvage(&path, Options::default(), true)?;
    assert!(plan.is_needed() && plan.moved.is_empty());
    let report = tamis_doctor::salvage(&path, Options::default(), false)?;
    for table in &report.tables {
        println!("{}: {} entries of {}, {}", table.file, table.entries, table.keyspace, table.fate.name());
    }
    for loss in &report.losses {
        println!("lost: {loss}");
    }
    assert_eq!(report.losses, plan.losses);
    let fate = report.tables.iter().find(|known| known.file == table).ok_or("no such table")?.fate;
    assert_eq!(fate, TableFate::SetAside);

    // Everything else is there, with what was only in the log. No file was removed: the damaged one
    // has another name.
    let db = Db::open(&path)?;
    assert_eq!(db.keyspace("orders")?.iter().count(), 1001);
    assert!(db.keyspace("visits")?.is_empty()?);
    let second = report.moved.iter().find(|(name, _)| *name == table).ok_or("not moved")?;
    assert!(path.join(&second.1).exists());
    Ok(())
}
