//! Filters that leave mapped files once memory is scarce.

use std::sync::Arc;

use crate::io::DiskFs;
use crate::options::Compression;
use crate::select::Selector;
use crate::{Db, Options};

/// Statistics said that the filters were copied while readers probed those in the files: they have
/// what the selector has.
#[test]
#[cfg_attr(target_endian = "big", ignore = "filters are not used in place there")]
fn readers_probe_the_copies() {
    let dir = tempfile::tempdir().expect("a directory");
    let fs = Arc::new(DiskFs::new().with_memory(1 << 20));
    let mut options = Options { file_system: Some(fs), ..Options::default() };
    options.keyspace.auto_compaction = false;
    options.keyspace.compression = Compression::None.into();
    let db = options.clone().open(dir.path()).expect("a database");
    let write = |table: u32| {
        for i in 0..4000u32 {
            db.put(format!("{i:08}of{table}"), [7; 80]).expect("a write");
        }
        db.flush().expect("a flush");
    };
    let in_place_of = |db: &Db| match &*db.default_keyspace().inner.view.load().selector {
        Selector::PerTable(filters, _) => filters.in_place_bytes(),
        other => panic!("{other:?}"),
    };
    let in_place = || in_place_of(&db);
    write(0);
    assert!(in_place() > 4000, "a table of less than half of the memory");
    write(1);
    // The flush has ended for those who wait for it; its thread copies after that.
    for _ in 0..10_000 {
        if in_place() == 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(in_place(), 0, "of more, together with the second");
    assert_eq!(db.get(b"00000017of0").expect("a read").expect("a value"), [7; 80]);
    // The table that is opened first does not know of the other.
    db.close().expect("a close");
    for open in [Options::open, Options::open_read_only] {
        let db = open(options.clone(), dir.path()).expect("a database");
        assert_eq!(in_place_of(&db), 0);
        assert_eq!(db.get(b"00000017of0").expect("a read").expect("a value"), [7; 80]);
    }
}
