//! The database to be damaged, as files in memory, with every state that it went through.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use tamis::io::{FileSystem, MemFs, Usage, read_file};
use tamis::options::{FilterChoice, PrefixFilter};
use tamis::{Db, Keyspace, KeyspaceOptions, Options};

pub(crate) type Files = BTreeMap<String, Arc<[u8]>>;

/// The contents of the two keyspaces after some write.
pub(crate) type State = [BTreeMap<Vec<u8>, Vec<u8>>; 2];

pub(crate) const DIR: &str = "db";
pub(crate) const SECOND: &str = "second";

pub(crate) struct Specimen {
    pub(crate) filter: FilterChoice,
    pub(crate) files: Files,
    /// The files as they were some writes earlier.
    pub(crate) earlier: Files,
    /// The states after each write, first to last; the last is what an undamaged database shows.
    pub(crate) states: Vec<State>,
    /// The first state that may be shown: everything before it was synced.
    pub(crate) synced: usize,
    /// The byte ranges of the records in the last log written after the last sync. Nothing else
    /// there tells that the records before them were synced.
    pub(crate) unsynced: Vec<Range<usize>>,
}

/// Small blocks, units and tables, so that every part of every format occurs within few bytes.
fn keyspace_options(filter: FilterChoice) -> KeyspaceOptions {
    KeyspaceOptions {
        filter: filter.into(),
        filter_unit_bytes: 128,
        memtable_bytes: 16 << 10,
        block_bytes: 256,
        table_bytes: 4 << 10,
        // Most of the values, but not all.
        blob_threshold: 15,
        // The damaged files must not change meanwhile.
        auto_compaction: false,
        ..KeyspaceOptions::default()
    }
}

pub(crate) fn options(filter: FilterChoice, fs: &MemFs) -> Options {
    Options {
        cache_bytes: 64 << 10,
        background_threads: 1,
        create_if_missing: false,
        keyspace: keyspace_options(filter),
        file_system: Some(Arc::new(fs.clone())),
        ..Options::default()
    }
}

/// Copies the files into a new file system.
pub(crate) fn restored(files: &Files) -> MemFs {
    let fs = MemFs::new();
    fs.create_dir_all(Path::new(DIR)).expect("a directory in memory");
    for (name, bytes) in files {
        let mut file = fs.create(&Path::new(DIR).join(name), Usage::Log).expect("a file in memory");
        file.append(bytes).expect("memory takes it");
    }
    fs
}

fn taken(fs: &MemFs) -> Files {
    let names = fs.list(Path::new(DIR)).expect("it is there");
    // The lock file is always empty, and OPTIONS is read only by people.
    let names = names.into_iter().filter(|name| name != "LOCK" && name != "OPTIONS");
    // Obsolete files are removed in the background, perhaps right now.
    let read = |name: String| {
        let bytes = read_file(fs, &Path::new(DIR).join(&name)).ok()?;
        Some((name, bytes.into()))
    };
    names.filter_map(read).collect()
}

/// A database under construction, and the states it went through.
struct Making {
    fs: MemFs,
    db: Db,
    keyspaces: [Keyspace; 2],
    states: Vec<State>,
}

impl Making {
    fn new(filter: FilterChoice) -> Making {
        let fs = MemFs::new();
        let options = Options { create_if_missing: true, ..options(filter, &fs) };
        let db = options.open(DIR).unwrap();
        // Which a filter for the tree saves an image of, too.
        let with_prefixes =
            KeyspaceOptions { prefix_filter: PrefixFilter::Length(5), ..keyspace_options(filter) };
        let second = db.create_keyspace(SECOND, with_prefixes).unwrap();
        Making { keyspaces: [db.default_keyspace().clone(), second], fs, db, states: vec![State::default()] }
    }

    fn put(&mut self, n: usize, key: u32) {
        let mut state = self.states.last().unwrap().clone();
        let (key, value) = (format!("key {key:03}"), format!("value {} of {key};", self.states.len()));
        self.keyspaces[n].put(&key, &value).unwrap();
        state[n].insert(key.into(), value.into());
        self.states.push(state);
    }

    fn delete_range(&mut self, n: usize, from: &str, to: &str) {
        let mut state = self.states.last().unwrap().clone();
        self.keyspaces[n].delete_range(from..to).unwrap();
        state[n].retain(|key, _| !(from.as_bytes()..to.as_bytes()).contains(&&key[..]));
        self.states.push(state);
    }

    fn delete(&mut self, n: usize, key: &str) {
        let mut state = self.states.last().unwrap().clone();
        self.keyspaces[n].delete(key).unwrap();
        state[n].remove(key.as_bytes());
        self.states.push(state);
    }

    /// Two levels in one keyspace; in the other a table, and writes in two logs.
    fn fill(filter: FilterChoice) -> (Making, Files) {
        let mut made = Making::new(filter);
        (0..24).for_each(|i| made.put(0, i * 7 % 60));
        made.db.flush().unwrap();
        made.db.compact().unwrap();
        let earlier = taken(&made.fs);
        (0..4).for_each(|i| made.put(1, i * 5));
        (0..8).for_each(|i| made.put(0, i * 11 % 60));
        made.delete_range(0, "key 020", "key 027");
        made.delete(0, "key 049");
        made.keyspaces[0].flush().unwrap();
        (0..5).for_each(|i| made.put(i as usize % 2, 61 + i));
        (made, earlier)
    }
}

impl Specimen {
    /// All writes are in the files, and the files record that.
    pub(crate) fn closed(filter: FilterChoice) -> Specimen {
        let (made, earlier) = Making::fill(filter);
        let Making { fs, db, keyspaces, states } = made;
        drop(keyspaces);
        // Of a filter that is not complete, no image is saved.
        db.wait_for_filters().unwrap();
        db.close().unwrap();
        let synced = states.len() - 1;
        let files = taken(&fs);
        let has_images = files.keys().any(|name| name.ends_with(".flt"));
        assert_eq!(has_images, filter == FilterChoice::Grf, "{filter:?}: {:?}", files.keys());
        Specimen { filter, files, earlier, states, synced, unsynced: Vec::new() }
    }

    /// The process was killed in the middle; the last three writes were never synced.
    pub(crate) fn killed(filter: FilterChoice) -> Specimen {
        let (mut made, earlier) = Making::fill(filter);
        made.db.sync().unwrap();
        let synced = made.states.len() - 1;
        let mut files = taken(&made.fs);
        let mut unsynced = Vec::new();
        for i in 0..3 {
            made.put(0, 70 + i);
            let before = std::mem::replace(&mut files, taken(&made.fs));
            unsynced.push(written(&before[last_log(&before)], &files[last_log(&files)]));
        }
        Specimen { filter, files, earlier, states: std::mem::take(&mut made.states), synced, unsynced }
    }

    /// The name of the last log.
    pub(crate) fn last_log(&self) -> &str {
        last_log(&self.files)
    }
}

fn last_log(files: &Files) -> &str {
    files.keys().rfind(|name| name.ends_with(".log")).expect("there is a log")
}

/// The range in which `after` differs from `before`: a log may reuse the file of an earlier one.
fn written(before: &[u8], after: &[u8]) -> Range<usize> {
    let differs = |at: &usize| before.get(*at) != Some(&after[*at]);
    let first = (0..after.len()).find(differs).expect("a record was written");
    let last = (0..after.len()).rev().find(differs).expect("a record was written");
    first..last + 1
}
