//! Interactions between parts of the engine: a step of one comes between two steps of another.

use std::path::Path;
use std::sync::Arc;

use tamis::ingest::{ExternalTableBuilder, IngestOptions};
use tamis::io::FileSystem;
use tamis::options::CompactionChoice;
use tamis::{Db, KeyspaceOptions};
use tamis_testkit::FaultyFs;

use crate::gate::Gate;
use crate::lab;

/// The tables of the default keyspace as their runs and smallest keys.
fn runs(db: &Db) -> Vec<(u64, String)> {
    let tables = db.default_keyspace().tables();
    tables.iter().map(|table| (table.run, String::from_utf8_lossy(&table.smallest).into_owned())).collect()
}

fn external(fs: &FaultyFs, path: &str, keyspace: &KeyspaceOptions, keys: &[&str]) {
    fs.create_dir_all(Path::new("/out")).unwrap();
    fs.sync_dir(Path::new("/")).unwrap();
    let mut table = ExternalTableBuilder::create_on(Arc::new(fs.clone()), path, keyspace).unwrap();
    keys.iter().for_each(|key| table.put(key, "ingested").unwrap());
    table.finish().unwrap();
}

/// Regression: a run got its number when its flush began. A file ingested meanwhile got a larger
/// one and was joined with an older run, whose versions then hid newer ones from the flush.
#[test]
fn an_ingestion_during_a_flush_does_not_carry_older_runs_past_it() {
    let fs = FaultyFs::new(1);
    let gate = Gate::new(&fs, "/nowhere");
    let mut options = lab::tiny(&fs);
    options.file_system = Some(Arc::new(gate.clone()));
    options.keyspace.compaction = CompactionChoice::TimeWindow;
    options.keyspace.level0_runs = 2;
    options.keyspace.max_memtables = 4;
    external(&fs, "/out/m.tam", &options.keyspace, &["m"]);
    let db = options.open(lab::DIR).unwrap();
    db.put("k", "old").unwrap();
    db.flush().unwrap();
    db.put("k", "new").unwrap();
    gate.hold_tables(true);
    let flush = {
        let db = db.clone();
        std::thread::spawn(move || db.flush())
    };
    gate.wait_for_a_table();
    let options = IngestOptions { move_files: true, verify: true };
    db.ingest(&[(db.default_keyspace(), &["/out/m.tam"])], options).unwrap();
    // They have no key in common, so they are joined unread, without a new table.
    while runs(&db).first().map(|run| run.0) != runs(&db).last().map(|run| run.0) {
        std::thread::yield_now();
    }
    let pause = db.pause_compaction();
    gate.hold_tables(false);
    flush.join().unwrap().unwrap();
    let check = |when: &str| {
        assert_eq!(db.get("k").unwrap().unwrap(), "new", "{when}: {:?}", runs(&db));
        let items: Vec<_> = db.iter().map(|item| item.unwrap().1).collect();
        assert_eq!(items, ["new", "ingested"], "{when}");
        db.verify().unwrap();
    };
    check("flushed");
    drop(pause);
    db.wait_for_compaction().unwrap();
    check("merged");
}
