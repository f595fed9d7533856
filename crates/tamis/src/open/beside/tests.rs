//! A writer that acts between any two file operations of a read-only opening.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;

use tamis_testkit::{CrashMode, FaultyFs};

use super::*;
use crate::Db;
use crate::ingest::{ExternalTableBuilder, IngestOptions};
use crate::io::{Access, DirLock, ReadFile, Usage, WriteFile};

pub(crate) type Steps = Box<dyn FnMut() + Send>;

/// The file system of a reader, with other work done before one of its operations.
#[derive(Clone)]
pub(crate) struct Interrupted {
    pub(crate) machine: FaultyFs,
    /// The number of operations until then, and the work.
    pub(crate) due: Arc<Mutex<(u64, Option<Steps>)>>,
    /// Work done after every listing.
    pub(crate) listed: Arc<Mutex<Option<Steps>>>,
}

impl std::fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Interrupted")
    }
}

impl Interrupted {
    fn reading(&self) -> &FaultyFs {
        let steps = {
            let mut due = self.due.lock().unwrap();
            match due.0 {
                0 => due.1.take(),
                _ => {
                    due.0 -= 1;
                    None
                }
            }
        };
        if let Some(mut steps) = steps {
            steps();
        }
        &self.machine
    }
}

#[derive(Debug)]
struct Reading(Interrupted, Arc<dyn ReadFile>);

impl ReadFile for Reading {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.reading();
        self.1.read_exact_at(buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.0.reading();
        self.1.len()
    }
}

fn refuse<T>() -> io::Result<T> {
    Err(io::Error::other("a read-only opening changes nothing"))
}

impl FileSystem for Interrupted {
    fn create(&self, _: &Path, _: Usage) -> io::Result<Box<dyn WriteFile>> {
        refuse()
    }

    fn reuse(&self, _: &Path, _: &Path) -> io::Result<Box<dyn WriteFile>> {
        refuse()
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        Ok(Arc::new(Reading(self.clone(), self.reading().open(path, access)?)))
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        refuse()
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        refuse()
    }

    fn remove_dir_all(&self, _: &Path) -> io::Result<()> {
        refuse()
    }

    fn link_or_copy(&self, _: &Path, _: &Path) -> io::Result<()> {
        refuse()
    }

    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        refuse()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let names = self.reading().list(dir);
        if let Some(steps) = &mut *self.listed.lock().unwrap() {
            steps();
        }
        names
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        refuse()
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.reading().exists(path)
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        self.reading().file_len(path)
    }

    fn lock(&self, _: &Path) -> io::Result<Option<Box<dyn DirLock>>> {
        refuse()
    }

    fn available_space(&self, path: &Path) -> io::Result<Option<u64>> {
        self.machine.available_space(path)
    }
}

pub(crate) type Content = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) fn content(db: &Db) -> Content {
    db.iter().map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
}

pub(crate) fn options(fs: impl FileSystem + 'static) -> Options {
    let mut options = Options { file_system: Some(Arc::new(fs)), recycled_logs: 1, ..Options::default() };
    // Logs reserve as much as memtables.
    options.keyspace.memtable_bytes = 16 << 10;
    options.keyspace.auto_compaction = false;
    options
}

/// An action of a writer: a few changes, with the contents recorded after each.
pub(crate) type Work = fn(&Db, &FaultyFs, &mut dyn FnMut());

pub(crate) fn puts(db: &Db, _: &FaultyFs, done: &mut dyn FnMut()) {
    for value in ["first", "second"] {
        for key in ["a", "b", "c"] {
            db.put(key, value).unwrap();
            done();
        }
    }
}

pub(crate) fn flushes(db: &Db, fs: &FaultyFs, done: &mut dyn FnMut()) {
    for _ in 0..3 {
        puts(db, fs, done);
        db.flush().unwrap();
    }
}

pub(crate) fn compacts(db: &Db, fs: &FaultyFs, done: &mut dyn FnMut()) {
    puts(db, fs, done);
    db.compact().unwrap();
    puts(db, fs, done);
}

pub(crate) fn ingests(db: &Db, fs: &FaultyFs, done: &mut dyn FnMut()) {
    db.put("a", "before").unwrap();
    done();
    let mut table =
        ExternalTableBuilder::create_on(Arc::new(fs.clone()), "/table", &options(fs.clone()).keyspace)
            .unwrap();
    table.put("a", "ingested").unwrap();
    table.put("z", "ingested").unwrap();
    table.finish().unwrap();
    db.default_keyspace().ingest(&["/table"], IngestOptions::default()).unwrap();
    done();
    puts(db, fs, done);
}

pub(crate) fn rolls(db: &Db, fs: &FaultyFs, done: &mut dyn FnMut()) {
    puts(db, fs, done);
    db.checkpoint("/copy").unwrap();
    puts(db, fs, done);
}

/// Builds a database with tables, rolled logs and a log to be overwritten.
pub(crate) fn database() -> FaultyFs {
    let fs = FaultyFs::new(3);
    let db = options(fs.clone()).open("/db").unwrap();
    for round in 0..4 {
        for key in ["a", "b", "c", "d"] {
            db.put(key, format!("round {round}")).unwrap();
        }
        if round < 3 {
            db.flush().unwrap();
        }
    }
    db.checkpoint("/earlier").unwrap();
    db.put("d", "unflushed").unwrap();
    fs.crash(CrashMode::KeepAll)
}

/// Of 400 openings alongside a writer, 300 failed because of missing files or false damage, and 13
/// returned a state that never existed: writes from after an ingestion without the ingested data.
#[test]
fn an_opening_alongside_a_writer_returns_a_state_that_existed() {
    let base = database();
    let works: [Work; 5] = [puts, flushes, compacts, ingests, rolls];
    let mut openings = 0;
    for work in works {
        for at in 0.. {
            let machine = base.after_crash(CrashMode::KeepAll);
            let writer = options(machine.clone()).open("/db").unwrap();
            let states = Arc::new(Mutex::new(vec![content(&writer)]));
            let (steps, fs) = (writer.clone(), machine.clone());
            let noted = states.clone();
            let steps: Steps = Box::new(move || {
                work(&steps, &fs, &mut || noted.lock().unwrap().push(content(&steps)));
            });
            let interrupted =
                Interrupted { machine, due: Arc::new(Mutex::new((at, Some(steps)))), listed: Arc::default() };
            let reader = options(interrupted.clone()).open_read_only("/db").unwrap();
            let seen = content(&reader);
            assert!(states.lock().unwrap().contains(&seen), "at operation {at}: {seen:?}");
            openings += 1;
            if interrupted.due.lock().unwrap().1.is_some() {
                // The opening ended before.
                break;
            }
            // It keeps showing that state, whatever happens to the files.
            puts(&writer, &interrupted.machine, &mut || ());
            writer.compact().unwrap();
            assert_eq!(content(&reader), seen);
            assert_eq!(reader.get("a").unwrap().map(|value| value.to_vec()), seen.get(&b"a"[..]).cloned());
        }
    }
    assert!(openings > 100, "only {openings} openings");
}

#[test]
fn damage_is_reported_and_not_taken_for_a_writer() {
    let fs = database();
    let manifest =
        fs.files().into_iter().map(|(path, _)| path).find(|path: &PathBuf| path.ends_with("MANIFEST-000003"));
    let table = fs
        .files()
        .into_iter()
        .map(|(path, _)| path)
        .find(|path| path.extension().is_some_and(|e| e == "tam"));
    for path in [manifest, table].into_iter().flatten() {
        let hurt = fs.after_crash(CrashMode::KeepAll);
        hurt.truncate(&path, 40).unwrap();
        let error = options(hurt).open_read_only("/db").unwrap_err();
        assert!(matches!(error, OpenError::Storage(_)), "{error}");
    }
    let missing = options(fs).open_read_only("/nothing").unwrap_err();
    assert!(matches!(missing, OpenError::NotFound { .. }), "{missing}");
}

/// A writer begins a log after every listing, without an edit of the manifest: four attempts in a
/// row failed for lack of a log, a different one each time, and the opening reported damage.
#[test]
fn logs_begun_after_each_listing_are_no_damage() {
    let fs = FaultyFs::new(1);
    let db = options(fs.clone()).open("/db").unwrap();
    let mut logs = 0;
    let mut steps: Steps = Box::new(move || {
        if logs < 20 {
            logs += 1;
            db.put(format!("{logs:02}"), "value").unwrap();
            // Rolls the log.
            db.checkpoint(format!("/checkpoint-{logs}")).unwrap();
            db.put(format!("{logs:02}x"), "value").unwrap();
        }
    });
    steps();
    let beside = Interrupted {
        machine: fs,
        due: Arc::new(Mutex::new((u64::MAX, None))),
        listed: Arc::new(Mutex::new(Some(steps))),
    };
    let db = options(beside).open_read_only("/db").unwrap();
    assert!(content(&db).len() >= 2);
}

/// Four errors in a row count, but not if anything has changed in between.
#[test]
fn an_error_is_believed_once_it_came_four_times_in_a_row_with_the_same_manifest() {
    let fail = |what: &str| match what {
        "format" => OpenError::Format { path: "x".into(), found: 9, supported: 1 },
        what => {
            crate::error::StorageError::io("read", Path::new("x"), io::Error::other(what.to_owned())).into()
        }
    };
    let attempts = |each: &[(u64, &str)]| {
        let mut at = 0;
        let result = repeat(Path::new("db"), || {
            let (mark, what) = each[at];
            at += 1;
            let result = match what {
                "done" => Ok(Some(())),
                "changed" => Ok(None),
                what => Err(fail(what)),
            };
            (Some((mark, 0)), result)
        });
        (at, result.map_err(|error| error.to_string()))
    };
    let a = (1, "a");
    let believed = Err(fail("a").to_string());
    assert_eq!(attempts(&[a, a, a, a]), (4, believed.clone()));
    assert_eq!(attempts(&[a, a, a, (1, "changed"), a, a, a, (1, "done")]), (8, Ok(())));
    assert_eq!(attempts(&[a, a, a, (2, "a"), (2, "a"), (2, "a"), (2, "done")]), (7, Ok(())));
    assert_eq!(attempts(&[a, a, a, (1, "b"), a, a, a, a]), (8, believed));
    assert_eq!(attempts(&[(1, "format")]), (1, Err(fail("format").to_string())), "it will not change");
}

/// A reader wrote tables of what it replayed, into a directory that was another's.
#[test]
fn a_read_only_opening_keeps_logs_of_any_size_in_memory() {
    let fs = FaultyFs::new(1);
    let mut large = options(fs.clone());
    large.keyspace.memtable_bytes = 1 << 20;
    let db = large.open("/db").unwrap();
    (0..2000u32).for_each(|i| db.put(i.to_be_bytes(), [7; 100]).unwrap());
    let fs = fs.after_crash(CrashMode::KeepAll);
    let before = fs.files();
    let reader = options(fs.clone()).open_read_only("/db").unwrap();
    assert_eq!(reader.iter().count(), 2000);
    assert_eq!(reader.default_keyspace().stats().runs, 0);
    drop(reader);
    assert_eq!(fs.files(), before);
}
