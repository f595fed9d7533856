//! Sorted tables built outside a database, and brought in at once: `cargo run -p tamis --example
//! ingestion`.
#![allow(clippy::print_stdout, reason = "an example for the terminal")]

use std::path::PathBuf;

use tamis::ingest::{ExternalTableBuilder, IngestOptions};
use tamis::{Db, ExternalTableError, KeyspaceOptions};

const BUILDERS: u32 = 4;
const EACH: u32 = 25_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path().join("db"))?;
    let places = db.create_keyspace("places", KeyspaceOptions::default())?;
    places.put(7u32.to_be_bytes(), "of yesterday")?;

    // Tables are built with the keyspace's options, so that their filters and blocks are what it
    // uses. That needs no database: threads, or other machines, each build a range of the keys.
    let options = places.options();
    let build = |part: u32| -> Result<PathBuf, ExternalTableError> {
        let path = dir.path().join(format!("part-{part}.tam"));
        let mut table = ExternalTableBuilder::create(&path, &options)?;
        for n in part * EACH..(part + 1) * EACH {
            table.put(n.to_be_bytes(), format!("place {n}"))?;
        }
        // Keys come in order, each once. A key out of order is refused, and leaves the table as it
        // is.
        let late = table.put(0u32.to_be_bytes(), "too late");
        assert!(matches!(late, Err(ExternalTableError::OutOfOrder { .. })));
        table.finish()?;
        Ok(path)
    };
    let files = std::thread::scope(|scope| {
        let build = &build;
        let builders: Vec<_> = (0..BUILDERS).map(|part| scope.spawn(move || build(part))).collect();
        builders.into_iter().map(|builder| builder.join().expect("no panic")).collect::<Result<Vec<_>, _>>()
    })?;

    // All files or none, with one number among the writes. Nothing is written again: the files
    // become tables of the database.
    let before = db.snapshot();
    let report = places.ingest(&files, IngestOptions { move_files: true, ..IngestOptions::default() })?;
    println!("{} entries, {} bytes, as write {}", report.entries, report.bytes, report.seq);
    assert_eq!((report.tables.len(), report.entries), (4, u64::from(BUILDERS * EACH)));
    assert!(files.iter().all(|file| !file.exists()), "they were moved");
    assert_eq!(places.get(7u32.to_be_bytes())?.ok_or("no place")?, "place 7");
    assert_eq!(before.keyspace(&places).iter().count(), 1);

    // A table that deletes a range replaces what is there: its own entries stay.
    let path = dir.path().join("new.tam");
    let mut table = ExternalTableBuilder::create(&path, &options)?;
    table.delete_range::<&[u8]>(..)?;
    table.put(1u32.to_be_bytes(), "the only place")?;
    table.finish()?;
    places.ingest(&[path], IngestOptions::default())?;
    assert_eq!(places.iter().count(), 1);
    assert_eq!(places.get(1u32.to_be_bytes())?.ok_or("no place")?, "the only place");
    Ok(())
}
