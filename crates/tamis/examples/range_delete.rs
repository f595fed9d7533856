//! A day of events deleted with one write: `cargo run -p tamis --example range_delete`.
#![allow(clippy::print_stdout, reason = "an example for the terminal")]

use tamis::{Db, ReadError, Readable, WriteBatch, WriteError};

/// Counts the keys that start with `prefix`.
fn count(from: impl Readable, prefix: &str) -> Result<usize, ReadError> {
    from.prefix(prefix).keys().try_fold(0, |count, key| key.map(|_| count + 1))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path())?;
    for day in 1..=9u8 {
        for n in 0..10_000 {
            db.put(format!("2026-11-0{day}/{n:05}"), [day; 50])?;
        }
    }
    db.flush()?;
    let size = db.approximate_size::<&str>(..)?;

    // One write, whatever the range holds. The keys are gone at once, for every reader but the
    // snapshots that are older.
    let before = db.snapshot();
    db.delete_range("2026-11-01".."2026-11-04")?;
    assert_eq!(db.first()?.ok_or("nothing left")?.0, "2026-11-04/00000");
    assert_eq!((count(&db, "2026-11-0")?, count(&before, "2026-11-0")?), (60_000, 90_000));

    // The end of a prefix is easy to get wrong, so there is a call for it.
    db.delete_prefix("2026-11-09/")?;
    assert_eq!(db.last()?.ok_or("nothing left")?.0, "2026-11-08/09999");

    // In a batch the order counts: a day is replaced, and no reader sees it empty.
    let mut batch = WriteBatch::new();
    batch.delete_prefix("2026-11-08/").put("2026-11-08/summary", "10,000 events");
    db.write(batch)?;
    assert_eq!(count(&db, "2026-11-08/")?, 1);

    // A range that ends before it starts is a mistake, not an empty range.
    assert!(matches!(db.delete_range("b".."a"), Err(WriteError::ReversedRange)));

    // The space comes back as compactions reach it. A snapshot keeps what it sees.
    drop(before);
    db.compact()?;
    let left = db.approximate_size::<&str>(..)?;
    println!("{size} bytes before, {left} after");
    assert!(left < size * 2 / 3);
    assert_eq!(count(&db, "")?, 40_001);
    Ok(())
}
