//! Manifests, and the databases that they describe.

use std::path::Path;

use crate::reseal;
use tamis::io::{FileSystem, MemFs};
use tamis::{KeyspaceOptions, Options};
use tamis_doctor::inspect::dump_manifest;
use tamis_files::tree::edit::VersionEdit;
use tamis_files::tree::files::manifest_path;
use tamis_files::tree::manifest::{Manifest, read_edits, set_current};
use tamis_files::tree::state::ManifestState;

use crate::{empty_fs, put};

/// Keyspaces named by a hostile manifest may ask for larger memtables, which would be correct, but
/// slow.
const MOST_MEMTABLE_BYTES: u64 = 1 << 20;

/// Checks a manifest, read as opening a database and `tamis dump` read it, and the same bytes as a
/// single edit.
pub fn manifest(bytes: &[u8]) {
    if let Ok(edit) = VersionEdit::decode(bytes) {
        check_edit(&edit);
    }
    check_manifest(bytes);
    let sealed = reseal::log(bytes);
    if sealed != bytes {
        check_manifest(&sealed);
    }
}

fn check_edit(edit: &VersionEdit) {
    let mut bytes = Vec::new();
    edit.encode(&mut bytes);
    assert_eq!(VersionEdit::decode(&bytes).as_ref(), Ok(edit), "an edit changes when written and read");
}

fn check_manifest(bytes: &[u8]) {
    let number = reseal::log_id(bytes);
    let (fs, dir) = (empty_fs(), Path::new("db"));
    put(&fs, &manifest_path(dir, number), bytes);
    let _ = read_edits(&fs, &manifest_path(dir, number), number, |_, edit| {
        check_edit(&edit);
        Ok(())
    });
    let _ = dump_manifest(&fs, &manifest_path(dir, number), &mut std::io::sink());
    if set_current(&fs, dir, number).is_err() || fs.list(dir).is_ok_and(|names| names.len() != 2) {
        return;
    }
    let state = match Manifest::open(&fs, dir) {
        Ok(loaded) => loaded.expect("there is a CURRENT").state,
        Err(_) => {
            // The manifest is unusable; opening only has to return an error.
            assert!(options(&fs).open_read_only(dir).is_err());
            return;
        }
    };
    check_state(&state);
    check_opening(&fs, &state);
}

/// Checks that the state stays the same when written as the first record of the next manifest.
fn check_state(state: &ManifestState) {
    let mut rebuilt = ManifestState::default();
    rebuilt.apply(&state.snapshot()).expect("a snapshot applies to nothing");
    assert_eq!(&rebuilt, state, "a state differs from its snapshot");
    let (fs, dir) = (empty_fs(), Path::new("db"));
    Manifest::create(&fs, dir, 1, state).expect("in-memory write").close().expect("in-memory write");
    set_current(&fs, dir, 1).expect("in-memory write");
    let loaded = Manifest::open(&fs, dir).expect("a manifest just written can be read").expect("it exists");
    assert_eq!(&loaded.state, state, "a rolled manifest has another state");
}

/// The largest counter checked. If a manifest's counters end just below the limit, its database
/// opens only once, which cannot be told from a manifest to refuse.
const MOST_NUMBER: u64 = 1 << 52;

/// Checks that a database that could be opened can be opened again, with what was written in
/// between.
fn check_opening(fs: &MemFs, state: &ManifestState) {
    let small =
        |text: &str| KeyspaceOptions::from_text(text).is_ok_and(|o| o.memtable_bytes <= MOST_MEMTABLE_BYTES);
    if !state.keyspaces.values().all(|keyspace| small(&keyspace.options)) {
        return;
    }
    let numbers = [state.next_file, state.next_run, state.last_seq];
    let epochs = state.keyspaces.values().map(|keyspace| keyspace.next_epoch);
    let left =
        numbers.into_iter().chain(epochs).all(|number| number < MOST_NUMBER) && state.next_keyspace < 1 << 30;
    let dir = Path::new("db");
    if let Ok(db) = options(fs).open_read_only(dir) {
        db.iter().for_each(drop);
        let _ = (db.stats(), db.verify(), db.get("key"));
    }
    let Some(db) = options(fs).open(dir).ok().filter(|_| left) else { return };
    db.put("key", "value").expect("an open database takes a write");
    db.close().expect("in-memory write");
    let db = options(fs).open(dir).expect("a closed database opens again");
    assert_eq!(db.get("key").expect("in-memory read").as_deref(), Some(&b"value"[..]));
}

fn options(fs: &MemFs) -> Options {
    let mut options = Options { cache_bytes: 0, background_threads: 1, ..Options::default() };
    options.keyspace.memtable_bytes = 16 << 10;
    options.keyspace.auto_compaction = false;
    // The maximum number of levels, so that hostile tables are looked for before a level is
    // refused.
    options.keyspace.levels = 16;
    options.file_system = Some(std::sync::Arc::new(fs.clone()));
    options
}
