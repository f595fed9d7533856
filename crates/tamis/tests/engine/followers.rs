//! Followers: whatever a writer does, over crashes and sessions, what they show is compared with a
//! model, and so are their snapshots, iterators and copies of their files.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tamis::ingest::{ExternalTableBuilder, IngestOptions};
use tamis::io::{FileSystem, Usage};
use tamis::{AdminError, Db, KeyspaceOptions, Options, Snapshot, WriteBatch, WriteError};
use tamis_testkit::{CrashMode, FaultyFs, Rng};

type Content = BTreeMap<Vec<u8>, Vec<u8>>;
/// By the keyspaces' names.
type State = BTreeMap<String, Content>;

fn options(fs: &FaultyFs, random: &mut Rng) -> Options {
    let mut options = Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() };
    options.recycled_logs = random.index(3);
    options.max_log_bytes = 64 << 10;
    options.keyspace = keyspace_options(random);
    options
}

fn keyspace_options(random: &mut Rng) -> KeyspaceOptions {
    let filter = random.pick(&["blocked-bloom", "grf", "elastic", "auto", "ribbon", "none"]);
    let compaction = random.pick(&["leveling", "tiering", "lazy-leveling"]);
    KeyspaceOptions {
        memtable_bytes: 4 << 10,
        table_bytes: 4 << 10,
        block_bytes: 256,
        level0_runs: 2,
        size_ratio: 2.into(),
        levels: 4,
        filter: filter.parse().unwrap(),
        compaction: compaction.parse().unwrap(),
        merge_operator: Some("append".into()),
        blob_threshold: random.pick(&[0, 40]),
        ..KeyspaceOptions::default()
    }
}

/// A writer and what its database must hold.
struct Writer {
    fs: FaultyFs,
    options: Options,
    db: Option<Db>,
    state: State,
    ingested: u64,
}

impl Writer {
    fn db(&self) -> &Db {
        self.db.as_ref().expect("open")
    }

    fn step(&mut self, random: &mut Rng) {
        let names: Vec<String> = self.state.keys().cloned().collect();
        let name = random.pick(&names);
        let keyspace = self.db().keyspace(&name).unwrap();
        let key = |random: &mut Rng| format!("{:03}", random.below(150)).into_bytes();
        let content = self.state.get_mut(&name).unwrap();
        match random.index(40) {
            0..14 => {
                let (key, value) = (key(random), vec![random.below(26) as u8 + b'a'; random.index(90)]);
                keyspace.put(&key, &value).unwrap();
                content.insert(key, value);
            }
            14..18 => {
                let key = key(random);
                keyspace.delete(&key).unwrap();
                content.remove(&key);
            }
            18..22 => {
                let key = key(random);
                keyspace.merge(&key, "+").unwrap();
                content.entry(key).or_default().push(b'+');
            }
            22..25 => {
                let (from, to) = (key(random), key(random));
                if from < to {
                    keyspace.delete_range(&from[..]..&to[..]).unwrap();
                    content.retain(|key, _| *key < from || *key >= to);
                }
            }
            25..30 => {
                // One batch for all keyspaces.
                let mut batch = WriteBatch::new();
                let key = key(random);
                for name in &names {
                    batch.put_in(&self.db.as_ref().unwrap().keyspace(name).unwrap(), &key, name);
                    self.state.get_mut(name).unwrap().insert(key.clone(), name.clone().into_bytes());
                }
                self.db().write(batch).unwrap();
            }
            30..33 => keyspace.flush().unwrap(),
            33 => keyspace.compact().unwrap(),
            34 => {
                self.ingested += 1;
                let path = format!("/table-{}", self.ingested);
                let fs: Arc<dyn FileSystem> = Arc::new(self.fs.clone());
                let mut table = ExternalTableBuilder::create_on(fs, &path, &keyspace.options()).unwrap();
                let first = random.below(140);
                for i in first..first + 8 {
                    let (key, value) = (format!("{i:03}").into_bytes(), path.clone().into_bytes());
                    table.put(&key, &value).unwrap();
                    content.insert(key, value);
                }
                table.finish().unwrap();
                keyspace.ingest(&[path], IngestOptions::default()).unwrap();
            }
            35 if names.len() < 4 => {
                let name = format!("keyspace {}", random.below(1000));
                if self.db().create_keyspace(&name, keyspace_options(random)).is_ok() {
                    self.state.insert(name, Content::new());
                }
            }
            36 if name != "default" => {
                self.db().drop_keyspace(&name).unwrap();
                self.state.remove(&name);
            }
            37 if name != "default" => {
                let new = format!("renamed {}", random.below(1000));
                if self.db().rename_keyspace(&name, &new).is_ok() {
                    let content = self.state.remove(&name).unwrap();
                    self.state.insert(new, content);
                }
            }
            38 => self.db().sync().unwrap(),
            _ if random.one_in(3) => {
                // A new session, on the same files.
                let db = self.db.take().unwrap();
                drop(keyspace);
                db.close().unwrap();
                self.db = Some(self.options.clone().open("/db").unwrap());
            }
            _ => {}
        }
    }
}

fn read_all(from: tamis::Iter) -> Content {
    from.map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
}

fn check(follower: &Db, state: &State, random: &mut Rng) {
    let mut names = follower.keyspaces();
    names.sort();
    assert_eq!(names, state.keys().cloned().collect::<Vec<_>>());
    for (name, content) in state {
        let keyspace = follower.keyspace(name).unwrap();
        let shown = read_all(keyspace.iter());
        let differs = shown.keys().chain(content.keys()).find(|key| shown.get(*key) != content.get(*key));
        if let Some(key) = differs {
            let explained = keyspace.explain_get(key);
            panic!("{name}: {:?}: {:?} of {:?}: {explained:?}", key, shown.get(key), content.get(key));
        }
        let mut backwards: Vec<_> = keyspace.iter().rev().map(|item| item.unwrap().0.to_vec()).collect();
        backwards.reverse();
        assert_eq!(backwards, content.keys().cloned().collect::<Vec<_>>(), "{name}");
        for _ in 0..20 {
            let key = format!("{:03}", random.below(150)).into_bytes();
            let found = keyspace.get(&key).unwrap().map(|value| value.to_vec());
            assert_eq!(found.as_ref(), content.get(&key), "{name} {key:?}");
        }
    }
}

/// Opens a copy of the live files, which must hold the same.
fn check_copy(of: &Db, state: &State, options: &Options, random: &mut Rng) {
    let fs = FaultyFs::new(1);
    fs.create_dir_all(Path::new("/copy")).unwrap();
    let live = of.live_files().unwrap();
    assert_eq!(live.files().last().map(|file| file.name()), Some("CURRENT"));
    for file in live.files() {
        let mut bytes = vec![0; file.len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(file.read_exact_at(&mut [0], file.len()).is_err());
        assert!(file.metadata_from() <= file.len());
        fs.create(&Path::new("/copy").join(file.name()), Usage::Table).unwrap().append(&bytes).unwrap();
    }
    let options = Options { file_system: Some(Arc::new(fs)), ..options.clone() };
    let copy = options.open("/copy").unwrap();
    check(&copy, state, random);
    assert_eq!(copy.stats().visible_seq, live.last_seq());
}

fn history(seed: u64) {
    let mut random = Rng::named("followers", seed);
    let fs = FaultyFs::new(seed);
    let options = options(&fs, &mut random);
    let db = options.clone().open("/db").unwrap();
    let state = State::from([("default".into(), Content::new())]);
    let mut writer = Writer { fs, options: options.clone(), db: Some(db), state, ingested: 0 };
    let mut follower = options.clone().open_follower("/db").unwrap();
    let mut snapshots: Vec<(Snapshot, State)> = Vec::new();
    let mut iterators: Vec<(tamis::Iter, Content)> = Vec::new();
    for _ in 0..300 {
        for _ in 0..random.below(8) {
            writer.step(&mut random);
        }
        match random.index(12) {
            0 => {
                // What was there stays.
                snapshots.push((follower.snapshot(), state_of(&follower)));
                iterators.push((follower.iter(), read_all(follower.iter())));
            }
            1 if !snapshots.is_empty() => {
                let (snapshot, state) = snapshots.swap_remove(random.index(snapshots.len()));
                for (name, content) in &state {
                    // A dropped keyspace has no handle any more.
                    if let Ok(keyspace) = follower.keyspace(name) {
                        let of = snapshot.keyspace(&keyspace);
                        let is_same = read_all(of.iter()) == *content;
                        // Another one of the same name is no part of the snapshot.
                        assert!(is_same || name != "default", "{name}");
                    }
                }
                let (iterator, content) = iterators.swap_remove(random.index(iterators.len()));
                assert_eq!(read_all(iterator), content);
            }
            2 => {
                snapshots.clear();
                iterators.clear();
                follower = writer.options.clone().open_follower("/db").unwrap();
                check(&follower, &writer.state, &mut random);
            }
            3 => check_copy(writer.db(), &writer.state, &options, &mut random),
            4 => {
                follower.catch_up().unwrap();
                check_copy(&follower, &writer.state, &options, &mut random);
            }
            5 if random.one_in(4) => {
                // The writer's process dies; what it wrote is there, and may be cut to what was
                // synced later.
                let after = writer.fs.crash(CrashMode::KeepAll);
                writer.db = None;
                let options = Options { file_system: Some(Arc::new(after.clone())), ..options.clone() };
                snapshots.clear();
                iterators.clear();
                follower = options.clone().open_follower("/db").unwrap();
                check(&follower, &writer.state, &mut random);
                writer.fs = after;
                writer.options = options.clone();
                writer.db = Some(options.open("/db").unwrap());
            }
            _ => {
                check(writer.db(), &writer.state, &mut random);
                let shown = follower.catch_up().unwrap();
                check(&follower, &writer.state, &mut random);
                assert_eq!(shown, writer.db().stats().visible_seq);
            }
        }
    }
}

fn state_of(db: &Db) -> State {
    db.keyspaces()
        .into_iter()
        .map(|name| (name.clone(), read_all(db.keyspace(&name).unwrap().iter())))
        .collect()
}

#[test]
fn followers_show_what_the_writer_has_through_any_history() {
    for seed in 0..10 {
        history(seed);
    }
}

/// A follower that catches up by itself, with readers, beside a writer that replaces all keys in
/// one batch: no reader may see two rounds at once, and none goes back.
#[test]
fn readers_of_a_follower_see_whole_batches_and_never_go_back() {
    for filter in ["blocked-bloom", "grf"] {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::default();
        options.keyspace.memtable_bytes = 32 << 10;
        options.keyspace.level0_runs = 2;
        options.keyspace.filter = filter.parse().unwrap();
        let writer = options.clone().open(dir.path()).unwrap();
        let other = writer.create_keyspace("other", options.keyspace.clone()).unwrap();
        let write = |round: u64| {
            let mut batch = WriteBatch::new();
            for key in 0..40u64 {
                batch.put(key.to_be_bytes(), round.to_be_bytes());
                batch.put_in(&other, key.to_be_bytes(), round.to_be_bytes());
            }
            writer.write(batch).unwrap();
        };
        write(1);
        let follower = Options { follow_interval: Some(Duration::from_millis(1)), ..options.clone() }
            .open_follower(dir.path())
            .unwrap();
        let (stop, last) = (AtomicBool::new(false), AtomicU64::new(1));
        std::thread::scope(|scope| {
            for reader in 0..2 {
                let (follower, stop) = (&follower, &stop);
                scope.spawn(move || {
                    let mut before = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let round = |value: &[u8]| u64::from_be_bytes(value.try_into().unwrap());
                        let mut seen: Vec<u64> = Vec::new();
                        match reader {
                            0 => seen.extend(follower.iter().map(|item| round(&item.unwrap().1))),
                            _ => {
                                let snapshot = follower.snapshot();
                                let other = follower.keyspace("other").unwrap();
                                for key in 0..40u64 {
                                    seen.push(round(&snapshot.get(key.to_be_bytes()).unwrap().unwrap()));
                                    let other = snapshot.keyspace(&other);
                                    seen.push(round(&other.get(key.to_be_bytes()).unwrap().unwrap()));
                                }
                            }
                        }
                        assert!(seen.iter().all(|round| *round == seen[0]), "{seen:?}");
                        assert!(seen[0] >= before, "{} after {before}", seen[0]);
                        before = seen[0];
                    }
                });
            }
            for round in 2..600 {
                write(round);
                last.store(round, Ordering::Relaxed);
                if round % 100 == 0 {
                    writer.compact().unwrap();
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        follower.catch_up().unwrap();
        let shown = follower.get(0u64.to_be_bytes()).unwrap().unwrap();
        assert_eq!(shown, last.load(Ordering::Relaxed).to_be_bytes());
        assert!(follower.stats().warnings.is_empty(), "{:?}", follower.stats().warnings);
    }
}

#[test]
fn a_follower_takes_no_writes_and_other_databases_do_not_catch_up() {
    let fs = FaultyFs::new(3);
    let options = Options { file_system: Some(Arc::new(fs)), ..Options::default() };
    let writer = options.clone().open("/db").unwrap();
    assert!(writer.catch_up().is_err());
    let follower = options.clone().open_follower("/db").unwrap();
    assert!(matches!(follower.put("key", "value"), Err(WriteError::ReadOnly)));
    assert!(follower.flush().is_err() && follower.compact().is_err());
    let reader = options.open_read_only("/db").unwrap();
    assert!(reader.catch_up().is_err());
    assert!(matches!(reader.live_files(), Err(AdminError::Write(WriteError::ReadOnly))));
}

/// Logs are replayed up to a write, and what is behind it is gone.
#[test]
fn a_database_is_recovered_to_any_write_that_is_in_no_table() {
    let fs = FaultyFs::new(3);
    let mut options = Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() };
    options.keyspace.auto_compaction = false;
    let db = options.clone().open("/db").unwrap();
    for i in 0..10u64 {
        db.put("key", i.to_be_bytes()).unwrap();
    }
    db.flush().unwrap();
    for i in 10..30u64 {
        db.put("key", i.to_be_bytes()).unwrap();
        // Logs are rolled in between.
        if i % 7 == 0 {
            db.checkpoint(format!("/checkpoint-{i}")).unwrap();
        }
    }
    let machine = fs.after_crash(CrashMode::KeepAll);
    for until in 1..40u64 {
        let fs = machine.after_crash(CrashMode::KeepAll);
        let options = Options { file_system: Some(Arc::new(fs)), ..options.clone() };
        let cut = Options { recover_to: Some(until), ..options.clone() };
        if until < 10 {
            let error = cut.open("/db").unwrap_err();
            assert!(error.to_string().contains("cannot be restored"), "{error}");
            continue;
        }
        let last = until.min(30);
        let expected = (last - 1).to_be_bytes();
        assert_eq!(cut.clone().open_read_only("/db").unwrap().get("key").unwrap().unwrap(), expected);
        let db = cut.open("/db").unwrap();
        assert_eq!(
            (db.get("key").unwrap().unwrap(), db.stats().visible_seq),
            (expected.as_slice().into(), last)
        );
        db.put("more", "writes").unwrap();
        assert_eq!(db.stats().visible_seq, last + 1);
        db.close().unwrap();
        let db = options.open("/db").unwrap();
        assert_eq!(db.get("key").unwrap().unwrap(), expected);
        assert_eq!(db.get("more").unwrap().unwrap(), "writes");
    }
}

/// With fewer files open than there are tables, a reader opened one again that its writer had
/// removed meanwhile: `No such file`.
#[test]
fn a_reader_beside_a_writer_reads_tables_that_the_writer_has_removed() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options {
        read_mode: tamis::options::ReadMode::Buffered,
        max_open_files: 1,
        cache_bytes: 0,
        ..Options::default()
    };
    options.keyspace.auto_compaction = false;
    let writer = options.clone().open(dir.path()).unwrap();
    for round in 0..4 {
        for key in 0..100u64 {
            writer.put(format!("{round} {key}"), "value").unwrap();
        }
        writer.flush().unwrap();
    }
    let reader = options.clone().open_read_only(dir.path()).unwrap();
    let follower = options.open_follower(dir.path()).unwrap();
    writer.compact().unwrap();
    writer.put("more", "value").unwrap();
    for db in [&reader, &follower] {
        assert_eq!(db.iter().filter(|item| item.is_ok()).count(), 400);
        assert_eq!(db.get("3 7").unwrap().unwrap(), "value");
    }
    follower.catch_up().unwrap();
    assert_eq!(follower.iter().filter(|item| item.is_ok()).count(), 401);
}

/// Merges forget the numbers of old entries and drop deletes, so what tables say of their numbers
/// does not show what is reachable.
#[test]
fn a_state_that_tables_have_left_behind_is_refused() {
    for deletes in [false, true] {
        let fs = FaultyFs::new(3);
        let options = Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() };
        let db = options.clone().open("/db").unwrap();
        for i in 0..10u64 {
            db.put("key", i.to_be_bytes()).unwrap();
        }
        if deletes {
            db.delete("key").unwrap();
        }
        db.compact().unwrap();
        db.put("late", "1").unwrap();
        db.put("late", "2").unwrap();
        let last = db.stats().visible_seq;
        let machine = fs.after_crash(CrashMode::KeepAll);
        for until in 1..=last {
            let fs = machine.after_crash(CrashMode::KeepAll);
            let cut = Options { file_system: Some(Arc::new(fs)), recover_to: Some(until), ..options.clone() };
            match cut.open("/db") {
                Ok(db) => {
                    assert!(until >= last - 2, "{until} of {last}");
                    let late = db.get("late").unwrap().map(|value| value.to_vec());
                    assert_eq!(
                        late,
                        [None, Some(b"1".to_vec()), Some(b"2".to_vec())][(until + 2 - last) as usize]
                    );
                    assert_eq!(db.get("key").unwrap().is_none(), deletes);
                }
                Err(error) => {
                    assert!(until < last - 2 && error.to_string().contains("cannot be restored"), "{error}")
                }
            }
        }
    }
}

/// The state ends before a batch that is not whole, numbers go on from there, and readers of
/// changes get none of what is gone. A crash before the new session is in place leaves the old
/// state.
#[test]
fn a_batch_is_restored_whole_or_not_at_all() {
    let fs = FaultyFs::new(3);
    let options = Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() };
    let db = options.clone().open("/db").unwrap();
    drop(db.change_consumer("reader").unwrap());
    db.put("a", "1").unwrap();
    let before = db.stats().visible_seq;
    let mut batch = WriteBatch::new();
    for i in 0..5 {
        batch.put(format!("{i}"), "value");
    }
    db.write(batch).unwrap();
    db.checkpoint("/copy").unwrap();
    db.put("b", "2").unwrap();
    let machine = fs.after_crash(CrashMode::KeepAll);
    for until in [before, before + 3] {
        let cut = |fs: &FaultyFs| Options {
            file_system: Some(Arc::new(fs.clone())),
            recover_to: Some(until),
            ..options.clone()
        };
        let whole = |fs: FaultyFs| Options { file_system: Some(Arc::new(fs)), ..options.clone() };
        let fs = machine.after_crash(CrashMode::KeepAll);
        let db = cut(&fs).open("/db").unwrap();
        assert_eq!((db.stats().visible_seq, db.iter().count()), (before, 1));
        db.put("c", "3").unwrap();
        let changes: Vec<_> = db.changes(before).unwrap().map(|change| change.unwrap().last_seq()).collect();
        assert_eq!(changes, [before + 1]);
        let db = whole(fs.after_crash(CrashMode::KeepAll)).open("/db").unwrap();
        assert_eq!((db.stats().visible_seq, db.iter().count()), (before + 1, 2));
        // Any operation of the restoring opening may be the last.
        for at in 0.. {
            let fs = machine.after_crash(CrashMode::KeepAll);
            fs.plan(tamis_testkit::FaultPlan {
                fail_at: Some(fs.operations() + at),
                sticky: true,
                ..tamis_testkit::FaultPlan::none()
            });
            let opened = cut(&fs).open("/db");
            let done = fs.failures() == 0;
            drop(opened);
            let db = whole(fs.after_crash(CrashMode::KeepAll)).open("/db").unwrap();
            assert!([1, 7].contains(&db.iter().count()), "{at}: {}", db.iter().count());
            if done {
                break;
            }
        }
    }
}

/// Logs of a later copy on the tables of an earlier one: what was ingested in between is in
/// neither, and was left out without a word.
#[test]
fn logs_that_tell_of_tables_ingested_elsewhere_are_refused() {
    let fs = FaultyFs::new(3);
    let options = Options {
        file_system: Some(Arc::new(fs.clone())),
        changes_keep_bytes: 1 << 20,
        ..Options::default()
    };
    let db = options.clone().open("/db").unwrap();
    db.put("a", "1").unwrap();
    let copy = FaultyFs::new(1);
    copy.create_dir_all(Path::new("/copy")).unwrap();
    let write = |of: &Db, only_logs: bool| {
        for file in of.live_files().unwrap().files() {
            if only_logs && file.kind() != tamis::live_files::LiveFileKind::Log {
                continue;
            }
            let mut bytes = vec![0; file.len() as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            copy.create(&Path::new("/copy").join(file.name()), Usage::Table).unwrap().append(&bytes).unwrap();
        }
    };
    write(&db, false);
    db.put("b", "2").unwrap();
    let before = db.stats().visible_seq;
    let mut table =
        ExternalTableBuilder::create_on(Arc::new(fs.clone()), "/table", &options.keyspace).unwrap();
    table.put("c", "ingested").unwrap();
    table.finish().unwrap();
    db.default_keyspace().ingest(&["/table"], IngestOptions::default()).unwrap();
    db.put("d", "4").unwrap();
    write(&db, true);
    let at = |until| Options {
        file_system: Some(Arc::new(copy.after_crash(CrashMode::KeepAll))),
        recover_to: Some(until),
        ..options.clone()
    };
    let restored = at(before).open("/copy").unwrap();
    assert_eq!(restored.iter().count(), 2);
    for until in [before + 1, before + 2] {
        let error = at(until).open("/copy").unwrap_err();
        assert!(error.to_string().contains("ingested tables that are not here"), "{error}");
    }
    // Where they are part of the tree, nothing is missing.
    let own = Options {
        file_system: Some(Arc::new(fs.after_crash(CrashMode::KeepAll))),
        recover_to: Some(before + 1),
        ..options.clone()
    };
    assert_eq!(own.open("/db").unwrap().iter().count(), 3);
}
