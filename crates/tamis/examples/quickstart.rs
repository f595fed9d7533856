//! The README's example, and what `explain_get` says of it: `cargo run -p tamis --example quickstart`.
#![allow(clippy::print_stdout, reason = "an example for the terminal")]

use tamis::{Db, Durability, WriteBatch};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path().join("my-data"))?;
    db.put("fr/lyon", "45.75,4.85")?;
    let mut batch = WriteBatch::new();
    batch.put("is/vik", "63.42,-19.01").delete("fr/paris");
    db.write_with(batch, Durability::Sync)?;
    assert_eq!(db.get("fr/lyon")?.unwrap(), "45.75,4.85");
    for item in db.prefix("fr/").rev() {
        let (key, value) = item?;
        println!("{key:?} = {value:?}");
    }
    db.flush()?;
    for step in db.explain_get("is/vik")?.steps {
        println!("{step:?}");
    }
    Ok(())
}
