//! Directories that no engine wrote: whatever they contain, opening returns a database or an error.

use tamis_files::tree::edit::{Ages, VersionEdit};
use tamis_files::tree::files::table_path;
use tamis_files::tree::manifest::set_current;
use tamis_files::tree::times::Sample;

use tamis_base::key::MAX_SEQNO;
use tamis_testkit::FaultyFs;

use tamis_files::wal::ops::GroupHeader;
use tamis_files::wal::{LogHeader, LogKind, LogWriter};

use super::*;
use crate::batch::WriteBatch;
use crate::catalogue::tests::session;
use crate::clock::ManualClock;
use crate::error::AdminError;
use crate::io::{MemFs, Usage};
use crate::open::follow::tests::by_hand;
use crate::operators::Operators;
use crate::options::{FilterChoice, SelectorName};
use crate::{Db, KeyspaceOptions};

pub(super) fn options(fs: &MemFs) -> Options {
    let mut options = Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() };
    options.keyspace.memtable_bytes = 64 << 10;
    options
}

/// Returns a database whose manifest has exactly this state.
pub(super) fn stored(state: &ManifestState) -> MemFs {
    let (fs, dir) = (MemFs::new(), Path::new("db"));
    fs.create_dir_all(dir).unwrap();
    Manifest::create(&fs, dir, 1, state).unwrap().close().unwrap();
    set_current(&fs, dir, 1).unwrap();
    fs
}

pub(super) fn refusal(opened: Result<Db, OpenError>) -> String {
    match opened.unwrap_err() {
        OpenError::Storage(StorageError::Corrupt(damage)) => damage.to_string(),
        other => panic!("{other}"),
    }
}

/// An intact manifest without the keyspace that "always exists" made opening panic.
#[test]
fn a_manifest_without_the_default_keyspace_is_damage() {
    let fs = stored(&ManifestState::default());
    for opened in [options(&fs).open_read_only("db"), options(&fs).open("db")] {
        let message = refusal(opened);
        assert!(message.contains("default keyspace") && message.contains("MANIFEST-000001"), "{message}");
    }
}

/// A counter at the end of its range was accepted; the database then wrote larger numbers into its
/// next manifest, which it refused to read from then on, or into a memtable, which panics on them.
#[test]
fn counters_with_no_numbers_left_are_damage() {
    let set: [fn(&mut ManifestState); 5] = [
        |state| state.next_file = NUMBER_LIMIT,
        |state| state.next_run = NUMBER_LIMIT,
        |state| Arc::make_mut(state.keyspaces.get_mut(&DEFAULT_KEYSPACE).unwrap()).next_epoch = NUMBER_LIMIT,
        |state| state.next_keyspace = KeyspaceId::MAX,
        |state| state.last_seq = MAX_SEQNO,
    ];
    for (i, set) in set.into_iter().enumerate() {
        let mut state = ManifestState::new(DEFAULT_NAME, "");
        set(&mut state);
        let message = refusal(options(&stored(&state)).open("db"));
        assert!(message.contains("that no database reaches"), "{i}: {message}");
    }
    let mut state = ManifestState::new(DEFAULT_NAME, "");
    (state.next_file, state.last_seq) = (NUMBER_LIMIT / 4, MAX_SEQNO / 4);
    let fs = stored(&state);
    for value in ["one", "two"] {
        let db = options(&fs).open("db").unwrap();
        db.put("key", value).unwrap();
        db.flush().unwrap();
        assert_eq!(db.get("key").unwrap().unwrap(), value);
    }
}

/// A keyspace with a log floor beyond all files, next to one with floor 0, opened and accepted
/// writes, to logs below the floor: the next opening skipped them, and acknowledged writes were
/// gone.
#[test]
fn a_log_floor_beyond_all_files_is_damage() {
    let mut state = ManifestState::new(DEFAULT_NAME, "");
    let edit =
        VersionEdit { create_keyspaces: vec![(1, "second".into(), String::new())], ..Default::default() };
    state.apply(&edit).unwrap();
    state.apply(&VersionEdit { log_floor: vec![(0, 1000)], ..Default::default() }).unwrap();
    let message = refusal(options(&stored(&state)).open("db"));
    assert!(message.contains("logs that were never created"), "{message}");
    state.next_file = 1000;
    let fs = stored(&state);
    options(&fs).open("db").unwrap().put("key", "value").unwrap();
    assert_eq!(options(&fs).open("db").unwrap().get("key").unwrap().unwrap(), "value");
}

/// The number of the next file is larger than that of every file in the directory. A file with the
/// largest number made it overflow (or, if slightly smaller, exceed what a manifest can hold).
#[test]
fn a_stray_file_with_a_huge_number_is_named_or_ignored() {
    let stray = |name: &str| {
        let fs = stored(&ManifestState::new(DEFAULT_NAME, ""));
        fs.create(&Path::new("db").join(name), Usage::Log).unwrap();
        options(&fs).open("db")
    };
    let first = format!("MANIFEST-{}", NUMBER_LIMIT / 2);
    for name in ["72057594037927935.log", "72057594037927935.tam", "MANIFEST-72057594037927935", &first] {
        let message = refusal(stray(name));
        assert!(message.contains(name), "{message}");
    }
    for name in ["18446744073709551615.log", "MANIFEST-18446744073709551615", "72057594037927936.tam"] {
        stray(name).expect("no file of a database is called that");
    }
    stray(&format!("MANIFEST-{}", NUMBER_LIMIT / 2 - 1)).expect("a larger number is left");
}

/// Ages of writes that were never made were believed: the session's writes expired early, or at
/// once.
#[test]
fn ages_of_future_writes_are_damage() {
    let (expired, since) = (Ages { since: 0, expired: 6 }, Ages { since: 6, expired: 0 });
    let edits = [
        VersionEdit { ages: vec![(0, expired)], last_seq: Some(5), ..Default::default() },
        VersionEdit { ages: vec![(0, since)], last_seq: Some(5), ..Default::default() },
    ];
    for mut edit in edits {
        let mut state = ManifestState::new(DEFAULT_NAME, "");
        state.apply(&edit).unwrap();
        let message = refusal(options(&stored(&state)).open("db"));
        assert!(message.contains("writes that were never made"), "{message}");
        edit.last_seq = Some(6);
        state.apply(&edit).unwrap();
        options(&stored(&state)).open("db").unwrap();
    }
}

/// A power failure takes back writes whose times the manifest has. Their numbers are given again,
/// and the new writes are not as old.
#[test]
fn times_of_lost_writes_are_forgotten() {
    let mut state = ManifestState::new(DEFAULT_NAME, "");
    let times = vec![Sample { time: 1, seq: 2 }, Sample { time: 2, seq: 6 }];
    state.apply(&VersionEdit { times, last_seq: Some(5), ..Default::default() }).unwrap();
    let fs = stored(&state);
    let mut options = options(&fs);
    drop(open(Path::new("db"), options.clone(), None).unwrap());
    let kept = Manifest::open(&fs, Path::new("db")).unwrap().unwrap().state.times;
    assert!(kept.samples().iter().all(|sample| sample.seq <= 5), "{kept:?}");
    options.keyspace.time_to_live = Some(std::time::Duration::from_secs(3600));
    for _ in 0..2 {
        let db = options.clone().open("db").unwrap();
        db.put("key", "value").unwrap();
        assert_eq!(db.get("key").unwrap().unwrap(), "value");
        db.close().unwrap();
    }
}

/// Returns a database that needs log 5, which holds these records, each with the number of its
/// first write, and was closed after write `last_seq`.
pub(super) fn with_log(records: &[(SeqNo, &WriteBatch)], last_seq: SeqNo) -> MemFs {
    let mut state = ManifestState::new(DEFAULT_NAME, "");
    let edit = VersionEdit {
        log_floor: vec![(0, 5)],
        next_file: Some(6),
        last_seq: Some(last_seq),
        ..VersionEdit::default()
    };
    state.apply(&edit).unwrap();
    let fs = stored(&state);
    let path = log_path(Path::new("db"), 5);
    let header = LogHeader { kind: LogKind::Writes, id: 5, reused: false };
    let mut log = LogWriter::create(fs.create(&path, Usage::Log).unwrap(), &path, header).unwrap();
    for &(first_seq, batch) in records {
        let mut head = Vec::new();
        let header = GroupHeader { first_seq, count: batch.len() as u64, older_logs_synced: true };
        header.encode(&mut head);
        log.append(&[&head, batch.bytes()]).unwrap();
    }
    log.close().unwrap();
    fs
}

/// A closed database whose log had lost its last records was opened without them.
#[test]
fn a_log_that_ends_before_the_database_was_closed_is_damage() {
    let mut batch = WriteBatch::new();
    batch.put("a", "1").put("b", "2");
    let records = [(1, &batch), (3, &batch)];
    let both = with_log(&records, 4);
    for opened in [options(&both).open_read_only("db"), options(&both).open("db")] {
        assert_eq!(opened.unwrap().get("a").unwrap().unwrap(), "1");
    }
    let one = with_log(&records[..1], 4);
    for opened in [options(&one).open_read_only("db"), options(&one).open("db")] {
        let message = refusal(opened);
        assert!(
            message.contains("the log ends with write 2, but the database was closed after write 4"),
            "{message}"
        );
    }
    let none = with_log(&[], 4);
    assert_eq!(options(&none).open("db").unwrap().iter().count(), 0, "everything was in tables");
}

pub(super) fn repair(fs: &dyn FileSystem) -> Result<Option<Repair>, OpenError> {
    let manifest = Manifest::open(fs, Path::new("db"))?.unwrap();
    Ok(Some(Repair {
        manifest,
        covered: HashMap::default(),
        unreadable: Default::default(),
        rebuilt: false,
        needed: false,
        warnings: Vec::new(),
        preserve: Box::new(|_| Ok(HashMap::default())),
    }))
}

/// A keyspace is in the manifest before it gets its first write. A repair keeps the rest.
#[test]
fn a_write_to_an_unknown_keyspace_is_damage() {
    let with_write_to = |keyspace| {
        let mut batch = WriteBatch::new();
        batch.put_id(keyspace, b"a", b"1").put("b", "2");
        with_log(&[(1, &batch)], 2)
    };
    for keyspace in [1, 7] {
        let fs = with_write_to(keyspace);
        for opened in [options(&fs).open_read_only("db"), options(&fs).open("db")] {
            let message = refusal(opened);
            let expected = format!("a write to keyspace {keyspace}, which is not in the manifest");
            assert!(message.contains(&expected), "{message}");
        }
    }
    let fs = with_write_to(7);
    let session = open(Path::new("db"), options(&fs), Some(&repair)).unwrap();
    let default = session.keyspaces.directory.load().get(&DEFAULT_KEYSPACE).unwrap().clone();
    assert_eq!(session.visible(), 2);
    assert_eq!(default.view.load().version.tables.iter().map(|table| table.meta.entries).sum::<u64>(), 1);
}

/// Nothing in it shows that it ever was a database, so a repair has no business there.
#[test]
fn a_directory_with_current_alone_is_damage_and_is_not_repaired() {
    let fs = MemFs::new();
    fs.create_dir_all(Path::new("db")).unwrap();
    crate::io::write_file_atomically(&fs, Path::new("db/CURRENT"), b"MANIFEST-000001\n").unwrap();
    for opened in [options(&fs).open_read_only("db"), options(&fs).open("db")] {
        let error = opened.unwrap_err();
        assert!(matches!(error, OpenError::Storage(_)), "{error:?}");
    }
    let plan = |_: &dyn FileSystem| -> Result<Option<Repair>, OpenError> { panic!("it is not looked at") };
    let refused = open(Path::new("db"), options(&fs), Some(&plan)).unwrap_err();
    assert!(matches!(refused, OpenError::Foreign { .. }), "{refused:?}");
    let again = open(Path::new("db"), Options { error_if_exists: true, ..options(&fs) }, None).unwrap_err();
    assert!(matches!(again, OpenError::Exists { .. }), "{again:?}");
}

fn with_second(options: &KeyspaceOptions) -> MemFs {
    let mut state = ManifestState::new(DEFAULT_NAME, "");
    let second = (1, "second".into(), options.to_text());
    state.apply(&VersionEdit { create_keyspaces: vec![second], ..VersionEdit::default() }).unwrap();
    stored(&state)
}

#[test]
fn a_workload_is_declared_for_the_default_keyspace() {
    let declared: Workload = "get 10, put 90".parse().unwrap();
    let stored = "get 50, put 50".parse().unwrap();
    let fs = with_second(&KeyspaceOptions { workload: Some(stored), ..KeyspaceOptions::default() });
    let mut options = options(&fs);
    options.keyspace.workload = Some(declared);
    let session = open(Path::new("db"), options, None).unwrap();
    let directory = session.keyspaces.directory.load();
    let declared_for = |id| directory.get(&id).unwrap().declared;
    assert_eq!((declared_for(DEFAULT_KEYSPACE), declared_for(1)), (Some(declared), None));
}

/// Reads are right without it, but whoever asks for it should get it.
#[test]
fn a_filter_that_is_not_registered_is_done_without_if_the_opener_did_not_ask_for_it() {
    let mine = FilterChoice::External(SelectorName::new("mine").unwrap());
    let asks = KeyspaceOptions { filter: mine.into(), ..KeyspaceOptions::default() };
    let told = |db: &Db, name: &str| {
        let text = format!("keyspace `{name}` is read without a filter");
        db.stats().warnings.iter().filter(|warning| warning.contains(&text)).count()
    };
    let fs = with_second(&asks);
    let db = options(&fs).open("db").unwrap();
    assert_eq!((told(&db, "second"), told(&db, "default")), (1, 0));
    let second = db.keyspace("second").unwrap();
    second.put("key", "value").unwrap();
    assert_eq!(second.get("key").unwrap().unwrap(), "value");
    db.close().unwrap();

    let refused = Options { keyspace: asks.clone(), ..options(&fs) }.open("db").unwrap_err();
    assert!(matches!(refused, OpenError::Unregistered { option: "filter", .. }), "{refused:?}");
    let operators = Operators::new().with_unknown();
    let db = Options { keyspace: asks, operators, ..options(&fs) }.open("db").unwrap();
    assert_eq!((told(&db, "second"), told(&db, "default")), (1, 1));
}

#[test]
fn a_checkpoint_needs_a_path_of_its_own() {
    let fs = MemFs::new();
    let db = options(&fs).open("db").unwrap();
    db.put("key", "value").unwrap();
    let refused = db.checkpoint("").unwrap_err();
    assert!(refused.to_string().contains("the path is empty"), "{refused}");
    let there = db.checkpoint("db").unwrap_err();
    assert!(matches!(there, AdminError::TargetExists { .. }), "{there:?}");
    db.checkpoint("copy").unwrap();
    assert_eq!(options(&fs).open("copy").unwrap().get("key").unwrap().unwrap(), "value");
}

/// The files of a database, by name.
pub(super) fn names(fs: &dyn FileSystem) -> Vec<String> {
    fs.list(Path::new("/db")).unwrap()
}

pub(super) fn fill(fs: &FaultyFs) {
    fs.set_capacity(Some(fs.files().iter().map(|(_, len)| len).sum()));
}

/// What a crash had left behind held the room that the session needed to begin.
#[test]
fn on_a_full_disk_an_opening_removes_what_is_not_needed_first() {
    let fs = by_hand(&[(5, &[1, 2], false)], 0);
    let mut table = fs.create(Path::new("/db/000009.tam"), Usage::Table).unwrap();
    table.append(&[7; 1 << 20]).unwrap();
    table.sync().unwrap();
    drop(table);
    fill(&fs);
    let options = Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() };
    let session = open(Path::new("/db"), options, None).unwrap();
    assert!(!session.gate.is_waiting());
    assert!(!names(&fs).contains(&"000009.tam".to_owned()), "{:?}", names(&fs));
    assert_eq!(session.visible(), 2);
    assert!(names(&fs).contains(&"OPTIONS".to_owned()), "{:?}", names(&fs));
}

/// Of logs that are kept for readers of changes, the one that is torn is the last.
#[test]
fn on_a_full_disk_logs_behind_a_torn_record_are_gone_and_that_one_is_kept() {
    let fs = by_hand(&[(5, &[1, 2], false), (6, &[2], false)], 0);
    let torn = log_path(Path::new("/db"), 5);
    fs.truncate(&torn, fs.file_len(&torn).unwrap() - 1).unwrap();
    fill(&fs);
    let options = || Options {
        file_system: Some(Arc::new(fs.clone())),
        changes_keep_bytes: 1 << 20,
        ..Options::default()
    };
    let session = open(Path::new("/db"), options(), None).unwrap();
    assert!(session.gate.is_waiting(), "{:?}", names(&fs));
    assert_eq!((session.visible(), session.state().logs.rolled().0), (1, 1));
    let (kept, gone) = ("000005.log".to_owned(), "000006.log".to_owned());
    assert!(names(&fs).contains(&kept) && !names(&fs).contains(&gone), "{:?}", names(&fs));
    drop(session);
    fs.set_capacity(None);
    let db = options().open("/db").unwrap();
    db.put("key", "value").unwrap();
    let keys: Vec<_> = db.iter().map(|item| item.unwrap().0.to_vec()).collect();
    assert_eq!(keys, [&b"key"[..], b"key 1"]);
}

/// What a checkpoint knows of the times of writes is what the database knew.
#[test]
fn a_checkpoint_has_the_times_of_all_writes() {
    let fs = MemFs::new();
    let clock = Arc::new(ManualClock::new(1_000_000));
    let mut options = options(&fs);
    options.clock = Some(clock.clone());
    options.keyspace.time_to_live = Some(std::time::Duration::from_secs(10));
    let db = options.open("db").unwrap();
    for second in 0..4 {
        clock.set(1_000_000 + second);
        db.put(second.to_string(), "value").unwrap();
    }
    db.checkpoint("copy").unwrap();
    let copied = Manifest::open(&fs, Path::new("copy")).unwrap().unwrap().state;
    let times: Vec<_> = copied.times.samples().iter().map(|sample| (sample.time, sample.seq)).collect();
    let all: Vec<_> = (0..4).map(|second| (1_000_000 + second, second + 1)).collect();
    assert_eq!(times[times.len() - 4..], all);
}

/// What filters have to tell would be told with the next work on them, or never.
#[test]
fn an_opening_tells_what_its_filters_have_to_tell() {
    let options = KeyspaceOptions { filter: "grf".parse().unwrap(), ..KeyspaceOptions::default() };
    let session = session(1, &options, |_| ());
    let directory = session.keyspaces.directory.load_full();
    let global = directory.get(&DEFAULT_KEYSPACE).unwrap().filter.global().unwrap();
    let why = StorageError::corrupt(Path::new("x"), None, "it is damaged");
    global.grf.notes.note_damaged(7, &why);
    complete(&session, vec!["of the opening".to_owned()]);
    let told = session.observed.warnings.all();
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(told[0], "of the opening");
    assert!(told[1].starts_with("keyspace `default`: table 7"), "{told:?}");
}

#[test]
fn the_empty_path_names_no_database() {
    let fs = MemFs::new();
    for opened in [options(&fs).open(""), options(&fs).open_read_only("")] {
        let error = opened.unwrap_err();
        assert!(error.to_string().contains("the path is empty"), "{error}");
    }
}

/// With a mapping reads do not block, and one read at a time overlaps with none.
#[test]
fn block_reads_overlap_if_the_options_allow() {
    let reads = |read_mode, async_reads, read_queue_depth| {
        let options = Options { read_mode, async_reads, read_queue_depth, ..Options::default() };
        let mut warnings = Vec::new();
        let reads = overlapping_reads(&options, &mut warnings);
        (reads.map(|reads| reads.method()), warnings.len())
    };
    for async_reads in [AsyncReads::Threads, AsyncReads::IoUring, AsyncReads::Auto] {
        assert_eq!(reads(ReadMode::Mapped, async_reads, 8), (None, 0));
        assert_eq!(reads(ReadMode::Direct, async_reads, 1), (None, 0));
    }
    for read_mode in [ReadMode::Buffered, ReadMode::Direct] {
        assert_eq!(reads(read_mode, AsyncReads::Off, 8), (None, 0));
        assert_eq!(reads(read_mode, AsyncReads::Threads, 2), (Some("threads"), 0));
        // Whether there are rings depends on the system.
        let best = BatchReader::new(2, true).method();
        assert_eq!(reads(read_mode, AsyncReads::Auto, 2), (Some(best), 0));
        assert_eq!(reads(read_mode, AsyncReads::IoUring, 2), (Some(best), usize::from(best == "threads")));
    }
}

#[test]
fn logs_are_mapped_where_reads_are_unless_the_options_say_otherwise() {
    for read_mode in [ReadMode::Mapped, ReadMode::Buffered, ReadMode::Direct] {
        let of = |log_writes| {
            format!("{:?}", file_system(&Options { read_mode, log_writes, ..Options::default() }))
        };
        let (mapped, system) = (of(LogWrites::Mapped), of(LogWrites::System));
        assert_ne!(mapped, system);
        assert_eq!(of(LogWrites::Auto), if read_mode == ReadMode::Mapped { mapped } else { system });
    }
}

#[test]
fn the_memory_of_one_memtable_is_kept_and_none_of_what_others_share() {
    let mut options = Options { memtable_budget_bytes: 1 << 20, ..Options::default() };
    options.keyspace.memtable_bytes = 5000;
    assert_eq!(kept_chunk_bytes(&options), 5000);
    options.keyspace.memtable_bytes = 1 << 20;
    assert_eq!(kept_chunk_bytes(&options), 1 << 18);
    options.shared_write_memory = Some(crate::options::SharedWriteMemory::new(1 << 20));
    assert_eq!(kept_chunk_bytes(&options), 0);
}

/// An interrupted opening may have created the directory, and its name was lost with the power.
#[test]
fn the_names_of_a_directory_and_of_its_new_parents_are_durable() {
    for existing in ["/", "/a", "/a/b", "/a/b/c"] {
        let fs = FaultyFs::new(1);
        // The last one is there, but its name is not durable.
        for dir in Path::new(existing).ancestors().collect::<Vec<_>>().into_iter().rev().skip(1) {
            fs.create_dir_all(dir).unwrap();
            if dir != Path::new("/a/b/c") {
                fs.sync_dir(dir.parent().unwrap()).unwrap();
            }
        }
        create_dir_durably(&fs, Path::new("/a/b/c")).unwrap();
        let left = fs.after_crash(tamis_testkit::CrashMode::DropUnsynced);
        assert!(left.exists(Path::new("/a/b/c")).unwrap(), "with {existing}");
    }
}

#[test]
fn files_are_numbered_without_gaps() {
    let fs = MemFs::new();
    drop(open(Path::new("/db"), options(&fs), None).unwrap());
    let mut listed = names(&fs);
    listed.sort_unstable();
    assert_eq!(listed, ["000001.log", "CURRENT", "LOCK", "MANIFEST-000002", "OPTIONS"]);
    // A table that a crash has left behind.
    fs.create(Path::new("/db/000009.tam"), Usage::Table).unwrap();
    let session = open(Path::new("/db"), options(&fs), None).unwrap();
    assert_eq!(session.state().catalogue.manifest_number(), 10, "{:?}", names(&fs));
}

/// What an opening finds wrong and does without is told.
#[test]
fn an_opening_warns_of_what_it_does_without() {
    let dir = Path::new("/db");
    let warnings = |options: Options, plan: Option<&Plan<'_>>| {
        open(dir, options, plan).unwrap().observed.warnings.all().join("\n")
    };

    let torn = FaultyFs::new(1);
    torn.create_dir_all(dir).unwrap();
    let mut manifest = Manifest::create(&torn, dir, 1, &ManifestState::new(DEFAULT_NAME, "")).unwrap();
    manifest.append(&VersionEdit { last_seq: Some(3), ..VersionEdit::default() }).unwrap();
    set_current(&torn, dir, 1).unwrap();
    let (_, end) = beside::mark(&torn, dir).unwrap();
    torn.truncate(manifest_path(dir, 1), end - 1).unwrap();
    let of_torn = Options { file_system: Some(Arc::new(torn)), ..Options::default() };
    let told = warnings(of_torn, None);
    assert!(told.contains("MANIFEST-000001: cut at offset") && told.contains("last edit is torn"), "{told}");

    let fs = MemFs::new();
    let db = options(&fs).open(dir).unwrap();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let table = names(&fs).into_iter().find(|name| name.ends_with(".tam")).unwrap();
    fs.create(&dir.join(&table), Usage::Table).unwrap();
    let lenient = Options { on_damage: OnDamage::Quarantine, ..options(&fs) };
    let told = warnings(lenient, None);
    assert!(told.contains("of keyspace `default` is quarantined: "), "{told}");
}

/// Each opening wrote and synced the file again.
#[cfg(all(unix, not(miri)))]
#[test]
fn the_file_of_options_is_replaced_only_if_it_differs() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("OPTIONS");
    // A file that replaces another is there beside it at first, so it has another number.
    let opened = |options: Options| {
        options.open(dir.path()).unwrap().close().unwrap();
        (std::fs::metadata(&path).unwrap().ino(), std::fs::read(&path).unwrap())
    };
    let first = opened(Options::default());
    assert_eq!(opened(Options::default()), first);
    let others = opened(Options { cache_bytes: 1 << 20, ..Options::default() });
    assert!(others.0 != first.0 && others.1 != first.1);

    let again = opened(Options::default());
    assert_eq!(again.1, first.1);
    let mut damaged = again.1;
    damaged[0] ^= 1;
    std::fs::write(&path, damaged).unwrap();
    assert_eq!(opened(Options::default()).1, first.1);
    // A sparse file of a terabyte: it is not read.
    std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(opened(Options::default()).1, first.1);
}

/// Several threads open the tables, in any order. Errors and warnings still come in the order of
/// the manifest.
#[test]
fn many_tables_are_opened_together_and_reported_in_order() {
    const TABLES: usize = 3 * TABLES_PER_THREAD;
    let (fs, dir) = (MemFs::new(), Path::new("/db"));
    let mut few = options(&fs);
    few.keyspace.auto_compaction = false;
    let db = few.clone().open(dir).unwrap();
    db.create_keyspace("empty", few.keyspace.clone()).unwrap();
    let last = db.create_keyspace("last", few.keyspace.clone()).unwrap();
    for i in 0..TABLES {
        db.put(format!("key {i:02}"), "value").unwrap();
        last.put(format!("key {i:02}"), "another").unwrap();
        db.flush().unwrap();
        last.flush().unwrap();
    }
    db.close().unwrap();

    let db = few.clone().open(dir).unwrap();
    let last = db.keyspace("last").unwrap();
    for i in 0..TABLES {
        assert_eq!(db.get(format!("key {i:02}")).unwrap().unwrap(), "value");
        assert_eq!(last.get(format!("key {i:02}")).unwrap().unwrap(), "another");
    }
    let mut lost: Vec<(&str, TableId)> = Vec::new();
    for (name, tables) in [("default", db.default_keyspace().tables()), ("last", last.tables())] {
        assert_eq!(tables.len(), TABLES);
        lost.extend(tables.iter().rev().step_by(5).map(|table| (name, table.id)));
    }
    drop(last);
    db.close().unwrap();

    for &(_, id) in &lost {
        fs.create(&table_path(dir, id), Usage::Table).unwrap();
    }
    let path = |id| table_path(dir, id).display().to_string();
    for _ in 0..5 {
        let message = refusal(few.clone().open(dir));
        assert!(message.contains(&path(lost[0].1)), "{message}");
    }
    let session = open(dir, Options { on_damage: OnDamage::Quarantine, ..few }, None).unwrap();
    let told = session.observed.warnings.all();
    let told: Vec<_> = told.iter().filter(|told| told.contains("is quarantined: ")).collect();
    assert_eq!(told.len(), lost.len(), "{told:?}");
    for (told, (name, id)) in told.into_iter().zip(lost) {
        assert!(told.starts_with(&format!("table {id} of keyspace `{name}`")), "{told}");
        assert!(told.contains(&path(id)), "{told}");
    }
}

/// Writes in it are in no table. A repair does without them.
#[test]
fn a_log_that_is_missing_is_damage() {
    for floor in [1, 5] {
        let mut state = ManifestState::new(DEFAULT_NAME, "");
        let edit =
            VersionEdit { log_floor: vec![(0, floor)], next_file: Some(floor + 1), ..VersionEdit::default() };
        state.apply(&edit).unwrap();
        let fs = stored(&state);
        let message = refusal(options(&fs).open("db"));
        assert!(message.contains("the log is missing, and writes in it are in no table"), "{message}");
        let session = open(Path::new("db"), options(&fs), Some(&repair)).unwrap();
        let told = session.observed.warnings.all().join("\n");
        assert!(told.contains("the log is missing"), "{told}");
    }
}

#[test]
fn a_keyspace_that_comes_to_a_follower_has_its_ages_and_warnings() {
    let db = session(1, &KeyspaceOptions::default(), |_| ());
    let mine = FilterChoice::External(SelectorName::new("mine").unwrap());
    let hour = Some(std::time::Duration::from_secs(3600));
    let theirs = KeyspaceOptions { filter: mine.into(), time_to_live: hour, ..KeyspaceOptions::default() };
    let state = ManifestState::new("second", &theirs.to_text());
    let newcomer = open_newcomer(&db, 1, &state.keyspaces[&DEFAULT_KEYSPACE], 7).unwrap();
    assert_eq!(newcomer.age.ages(), Some(Ages { since: 7, expired: 0 }));
    let told = db.observed.warnings.all().join("\n");
    assert!(told.contains("keyspace `second` is read without a filter"), "{told}");
}

/// The file that an earlier session has left is accounted for.
#[test]
fn an_opening_finds_the_reserve() {
    let fs = MemFs::new();
    drop(options(&fs).open("/db").unwrap());
    let path = tamis_files::tree::files::reserve_path(Path::new("/db"));
    let mut reserve = fs.create(&path, Usage::Table).unwrap();
    reserve.append(&[0; 1000]).unwrap();
    drop(reserve);
    let session = open(Path::new("/db"), options(&fs), None).unwrap();
    assert_eq!(session.space.reserve.held(), 1000);
}
