//! A copy of a database that follows its changes: `cargo run --example changes`.

#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::time::Duration;

use tamis::changes::OperationKind;
use tamis::{Db, WriteBatch};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path().join("source"))?;
    db.put("before", "the consumer")?;

    // First the consumer, then the snapshot: no change is between them.
    let consumer = db.change_consumer("copy")?;
    let copy = Db::open(dir.path().join("copy"))?;
    let snapshot = db.snapshot();
    for item in snapshot.iter() {
        let (key, value) = item?;
        copy.put(key, value)?;
    }
    consumer.acknowledge(snapshot.seq())?;

    std::thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let writer = scope.spawn(|| -> Result<(), tamis::WriteError> {
            for n in 0..1000u32 {
                let mut batch = WriteBatch::new();
                batch.put(n.to_be_bytes(), "value").delete(n.saturating_sub(10).to_be_bytes());
                db.write(batch)?;
            }
            db.delete_range("a".."c")
        });
        let mut changes = consumer.changes()?;
        while let Some(change) = changes.wait(Duration::from_millis(500))? {
            let mut batch = WriteBatch::new();
            for operation in change.operations() {
                match operation.kind {
                    OperationKind::Put { key, value } => _ = batch.put(key, value),
                    OperationKind::Delete { key } => _ = batch.delete(key),
                    OperationKind::DeleteRange { start, end: Some(end) } => {
                        _ = batch.delete_range(start..end)
                    }
                    OperationKind::DeleteRange { start, end: None } => _ = batch.delete_range(start..),
                    other => return Err(format!("this copy cannot apply {other:?}").into()),
                }
            }
            copy.write(batch)?;
            consumer.acknowledge(change.last_seq())?;
        }
        writer.join().expect("no panic")?;
        Ok(())
    })?;

    println!("{} entries in the source, {} in the copy", db.iter().count(), copy.iter().count());
    println!("the consumer has read everything up to number {}", consumer.position()?);
    Ok(())
}
