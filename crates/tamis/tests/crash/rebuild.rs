//! Salvage where the manifest is damaged, cut short or missing: the tree is rebuilt from the
//! remaining files, no file's contents disappear from the directory, and an interrupted salvage is
//! repeated.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tamis::Db;
use tamis::io::{FileSystem, read_file};
use tamis_doctor::{SalvageReport, TableFate};
use tamis_testkit::{CrashMode, FaultPlan, FaultyFs};

use crate::history::{Session, Step, Write, tour};
use crate::lab::{self, scale};
use crate::ledger::{Content, Ledger, State, read_all};

type Files = BTreeMap<PathBuf, Vec<u8>>;

fn paths(fs: &FaultyFs) -> impl Iterator<Item = PathBuf> {
    fs.files().into_iter().map(|(path, _)| path).filter(|path| path.starts_with(lab::DIR))
}

/// All files of the database with their bytes.
fn bytes(fs: &FaultyFs) -> Files {
    paths(fs).map(|path| (path.clone(), read_file(fs, &path).unwrap())).collect()
}

fn named(fs: &FaultyFs, part: &str) -> Vec<PathBuf> {
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    paths(fs).filter(|path| name(path).contains(part)).collect()
}

fn remove(fs: &FaultyFs, part: &str) {
    named(fs, part).iter().for_each(|path| fs.remove(path).unwrap());
}

fn is_data(path: &Path) -> bool {
    let name = path.file_name().unwrap().to_str().unwrap();
    ["MANIFEST", ".tam", ".blb", ".log"].iter().any(|part| name.contains(part))
}

/// At least the length of a log without records.
const EMPTY_LOG: usize = 64;

/// Fails unless the contents of every table, blob file, log and manifest still exist under some
/// name. A log without records, which is created ahead, has none to lose: its length need not be
/// durable.
fn nothing_is_gone(before: &Files, fs: &FaultyFs, context: &str) {
    let after = bytes(fs);
    let is_empty =
        |path: &Path, bytes: &[u8]| bytes.len() <= EMPTY_LOG && path.extension().is_some_and(|e| e == "log");
    for (path, bytes) in before.iter().filter(|(path, bytes)| is_data(path) && !is_empty(path, bytes)) {
        assert!(
            after.values().any(|other| other == bytes),
            "{context}: {} is gone: {:?}",
            path.display(),
            after.iter().map(|(path, bytes)| (path, bytes.len())).collect::<Vec<_>>()
        );
    }
}

/// Makes a dry run, which must change nothing, and then the salvage, which must do what the dry run
/// reported.
fn salvage(fs: &FaultyFs, context: &str) -> SalvageReport {
    let before = bytes(fs);
    let told =
        tamis_doctor::salvage(lab::DIR, lab::tiny(fs), true).unwrap_or_else(|e| panic!("{context}: {e}"));
    assert_eq!(bytes(fs), before, "{context}: a dry run changed something");
    let done =
        tamis_doctor::salvage(lab::DIR, lab::tiny(fs), false).unwrap_or_else(|e| panic!("{context}: {e}"));
    assert_eq!(told.tables, done.tables, "{context}");
    nothing_is_gone(&before, fs, context);
    done
}

fn contents(fs: &FaultyFs, context: &str) -> BTreeMap<String, Content> {
    let db = lab::tiny(fs).open(lab::DIR).unwrap_or_else(|e| panic!("{context}: opening: {e}"));
    let problems = db.verify().unwrap().problems;
    assert!(problems.is_empty(), "{context}: {problems:#?}");
    read_all(&db).unwrap()
}

/// Reports whether all of `state` is there: keyspaces by name or, where names are lost, by their
/// contents.
fn holds(found: &BTreeMap<String, Content>, ledger: &Ledger, state: &State) -> bool {
    ledger.names.iter().all(|(name, (id, _))| {
        let expected = state.get(id).cloned().unwrap_or_default();
        let made_up = || found.iter().any(|(name, c)| name.starts_with("salvaged") && *c == expected);
        match found.get(name) {
            Some(content) => *content == expected || content.is_empty() && made_up(),
            None => expected.is_empty() || made_up(),
        }
    })
}

/// Fails unless the database holds its state after some number of writes, including all
/// acknowledged ones.
fn judge(fs: &FaultyFs, ledger: &Ledger, report: &SalvageReport, context: &str) {
    let found = contents(fs, context);
    let acknowledged = ledger.order.acknowledged();
    if ledger.order.find(acknowledged, |state| holds(&found, ledger, state)).is_some() {
        return;
    }
    let mut text = String::new();
    for (name, (id, _)) in &ledger.names {
        let empty = Content::new();
        let content = found.get(name).unwrap_or(&empty);
        let differences = crate::ledger::differences(ledger.order.visible().get(id), content, *id);
        text += &format!("{name}: {:?}\n", differences.iter().take(4).collect::<Vec<_>>());
    }
    panic!("{context}: not what was written:\n{text}{report:#?}");
}

/// The tour up to the operation at which the world stops.
fn stopped_at(stop: u64) -> Option<(FaultyFs, Ledger)> {
    let fs = FaultyFs::new(stop);
    fs.plan(FaultPlan { fail_at: Some(stop), sticky: true, partial_append: true, ..FaultPlan::none() });
    let Ok(mut session) = Session::open(&fs) else {
        return Some((fs.after_crash(CrashMode::KeepAll), Ledger::default()));
    };
    // Tables have the name under which they were written: without a manifest, nothing tells of a
    // new one.
    for step in tour().iter().filter(|step| !matches!(step, Step::Rename(_))) {
        // Wrong reads do not matter here.
        let _ = session.run(step, true);
        if fs.failures() > 0 {
            break;
        }
    }
    if fs.failures() == 0 {
        return None;
    }
    let machine = fs.after_crash(CrashMode::KeepAll);
    let _ = fs.crash(CrashMode::KeepAll);
    Some((machine, session.ledger))
}

/// Whatever a session was doing when it was killed, including flushes and merges, its contents are
/// recovered without any manifest.
#[test]
fn a_killed_database_without_a_manifest_is_rebuilt_from_tables_and_logs() {
    let mut stops = 0;
    for shape in [0, 1, 3, 8] {
        lab::set_shape(shape);
        for stop in (shape as u64..).step_by(if shape == 0 { 1 } else { 7 }) {
            let context = format!("shape {shape}, stopped at operation {stop}");
            let Some((fs, ledger)) = stopped_at(stop) else { break };
            if !bytes(&fs).keys().any(|path| is_data(path)) {
                continue;
            }
            remove(&fs, "MANIFEST");
            if stop % 2 == 0 {
                remove(&fs, "CURRENT");
            }
            if named(&fs, ".tam").is_empty() && named(&fs, ".log").is_empty() {
                continue;
            }
            let report = salvage(&fs, &context);
            assert!(report.rebuilt, "{context}");
            judge(&fs, &ledger, &report, &context);
            stops += 1;
        }
    }
    lab::set_shape(0);
    assert!(stops > 300, "{stops} stops");
}

/// A database of two keyspaces with about two dozen tables and logs: deletes of keys and of ranges,
/// flushes and merges.
fn filled(close: bool) -> (FaultyFs, Ledger) {
    let fs = FaultyFs::new(5);
    let mut session = Session::open(&fs).unwrap();
    let mut run = |step: Step| session.run(&step, false).unwrap();
    run(Step::Create(1));
    let put = |space, key, len| Write::Put { space, key, len };
    for round in 0..14u8 {
        for i in 0..6u8 {
            run(Step::Write {
                writes: vec![
                    put(0, (round * 3 + i) % 12, 200),
                    put(1, (round * 5 + i) % 12, 200),
                    Write::Delete { space: usize::from(i % 2), key: (round + 7 * i) % 12 },
                ],
                synced: false,
            });
        }
        if round % 4 == 1 {
            let from = round % 8;
            run(Step::Write {
                writes: vec![Write::DeleteRange { space: 0, from, to: from + 3 }],
                synced: false,
            });
        }
        match round % 5 {
            0 => run(Step::FlushOne(0)),
            1 => run(Step::FlushOne(1)),
            2 => run(Step::Flush),
            3 => run(Step::Settle),
            _ => {}
        }
    }
    run(Step::Write { writes: vec![put(0, 2, 50), put(1, 3, 50)], synced: true });
    if close {
        session.db.take().unwrap().close().unwrap();
    }
    let after = fs.after_crash(CrashMode::KeepAll);
    (after, session.ledger)
}

/// Regression: the manifest was cut to 60 %, and of 1,347 keys 93 were left.
#[test]
fn a_manifest_cut_anywhere_loses_no_key() {
    for close in [false, true] {
        let (fs, ledger) = filled(close);
        let path = named(&fs, "MANIFEST").pop().unwrap();
        let len = fs.file_len(&path).unwrap();
        let (mut rebuilt, mut told) = (0, 0);
        for cut in (0..len).step_by((13 / scale()).max(1)) {
            let hurt = fs.after_crash(CrashMode::KeepAll);
            hurt.truncate(&path, cut).unwrap();
            let context = format!("closed {close}, cut to {cut} of {len}");
            let refused = lab::open(&hurt.after_crash(CrashMode::KeepAll)).err().map(|e| e.to_string());
            let report = salvage(&hurt, &context);
            assert!(refused.is_none() || report.rebuilt, "{context}: {refused:?} {report:#?}");
            rebuilt += u32::from(report.rebuilt);
            told += u32::from(refused.is_some_and(|text| text.contains("lost its last edits")));
            judge(&hurt, &ledger, &report, &context);
        }
        assert!(rebuilt > 10 && told > 0, "{rebuilt} rebuilt, {told} reported the loss");
    }
}

/// A `CURRENT` that is damaged, missing, or names a missing file, beside an intact manifest: the
/// error says so and names that manifest, and salvage uses it.
#[test]
fn a_damaged_current_beside_an_intact_manifest_is_reported_and_repaired() {
    let (fs, ledger) = filled(true);
    let manifest = named(&fs, "MANIFEST").pop().unwrap();
    let name = manifest.file_name().unwrap().to_str().unwrap();
    let current = named(&fs, "CURRENT").pop().unwrap();
    let set = |fs: &FaultyFs, bytes: &[u8]| {
        let mut file = fs.create(&current, tamis::io::Usage::Log).unwrap();
        file.append(bytes).unwrap();
        file.sync().unwrap();
    };
    type Hurt<'a> = (&'a str, &'a dyn Fn(&FaultyFs));
    let hurts: [Hurt<'_>; 3] = [
        ("is missing", &|fs| fs.remove(&current).unwrap()),
        ("does not name a manifest", &|fs| set(fs, b"garbage")),
        ("MANIFEST-999999", &|fs| set(fs, b"MANIFEST-999999\n")),
    ];
    for (what, hurt) in hurts {
        let fs = fs.after_crash(CrashMode::KeepAll);
        hurt(&fs);
        let refused = lab::open(&fs).unwrap_err().to_string();
        assert!(refused.contains(what) && refused.contains(name) && refused.contains("CURRENT"), "{refused}");
        let damaged = bytes(&fs).remove(&current);
        let report = salvage(&fs, what);
        assert!(!report.rebuilt && report.losses.is_empty(), "{what}: {report:#?}");
        if let Some(damaged) = damaged.filter(|bytes| bytes == b"garbage") {
            assert!(bytes(&fs).values().any(|other| *other == damaged));
        }
        judge(&fs, &ledger, &report, what);
    }
}

/// An iterator pins the inputs of a merge. Their files do not conflict with the merge's outputs,
/// nor with those of later merges of these outputs, even when the first outputs are gone.
#[test]
fn inputs_of_merges_beside_their_outputs_revive_nothing() {
    for holding in 0..1 << 6 {
        let fs = FaultyFs::new(9);
        let mut options = lab::tiny(&fs);
        options.keyspace.auto_compaction = false;
        let db = options.clone().open(lab::DIR).unwrap();
        let key = |i: usize| format!("key{i:03}");
        let mut held = Vec::new();
        let mut hold = |n: usize| held.extend((holding >> n & 1 == 1).then(|| db.iter()));
        for i in 0..60 {
            db.put(key(i), "old".repeat(40)).unwrap();
        }
        db.flush().unwrap();
        hold(0);
        for i in (0..60).step_by(2) {
            db.delete(key(i)).unwrap();
        }
        db.flush().unwrap();
        hold(1);
        db.delete_range(key(50)..).unwrap();
        db.put(key(1), "new").unwrap();
        db.flush().unwrap();
        for n in 0..3 {
            hold(2 + n);
            db.compact().unwrap();
            db.put(key(3), "newer").unwrap();
            db.flush().unwrap();
        }
        hold(5);
        let expected = read_all(&db).unwrap();
        // Files are removed by a background thread.
        db.wait_for_compaction().unwrap();
        let fs = fs.after_crash(CrashMode::KeepAll);
        remove(&fs, "MANIFEST");
        let context = format!("holding {holding:06b}");
        let report = salvage(&fs, &context);
        assert_eq!(contents(&fs, &context), expected, "{context}: {report:#?}");
        assert!(report.losses.is_empty(), "{context}: {report:#?}");
    }
}

/// Tables whose number is recorded only in the manifest: while it is readable they are unchanged;
/// after that they are set aside, with advice on what to do. Once they are merged nothing is
/// missing.
#[test]
fn an_ingested_table_is_never_given_a_guessed_number() {
    let fs = FaultyFs::new(3);
    fs.create_dir_all(Path::new("/out")).unwrap();
    let of = std::sync::Arc::new(fs.clone());
    let mut table =
        tamis::ingest::ExternalTableBuilder::create_on(of, "/out/x.tam", &lab::tiny_keyspace()).unwrap();
    ["b", "c"].iter().for_each(|key| table.put(key, "ingested").unwrap());
    table.finish().unwrap();
    let mut options = lab::tiny(&fs);
    options.keyspace.auto_compaction = false;
    let db = options.open(lab::DIR).unwrap();
    db.put("a", "old").unwrap();
    db.put("b", "old").unwrap();
    let files = [(db.default_keyspace(), &["/out/x.tam"][..])];
    db.ingest(&files, tamis::ingest::IngestOptions::default()).unwrap();
    db.put("c", "new").unwrap();
    db.flush().unwrap();
    let get = |fs: &FaultyFs, key: &str| {
        let db = lab::tiny(fs).open(lab::DIR).unwrap();
        db.get(key).unwrap().map(|value| String::from_utf8(value.to_vec()).unwrap())
    };
    let all = |fs: &FaultyFs| ["a", "b", "c"].map(|key| get(fs, key).unwrap_or_default());

    // The last edit, that of the flush, is cut off.
    let cut = fs.after_crash(CrashMode::KeepAll);
    let path = named(&cut, "MANIFEST").pop().unwrap();
    cut.truncate(&path, cut.file_len(&path).unwrap() - 1).unwrap();
    assert!(salvage(&cut, "the last edit").losses.is_empty());
    assert_eq!(all(&cut), ["old", "ingested", "new"]);

    let gone = fs.after_crash(CrashMode::KeepAll);
    remove(&gone, "MANIFEST");
    let report = salvage(&gone, "no manifest");
    assert!(report.losses.iter().any(|loss| loss.contains("ingest it again")), "{report:#?}");
    assert_eq!(all(&gone), ["old", "old", "new"]);

    db.compact().unwrap();
    let merged = fs.after_crash(CrashMode::KeepAll);
    remove(&merged, "MANIFEST");
    assert!(salvage(&merged, "merged").losses.is_empty());
    assert_eq!(all(&merged), ["old", "ingested", "new"]);
}

/// A table with damaged bytes and no manifest is left out and reported; all others are there.
#[test]
fn damaged_tables_do_not_prevent_recovery_of_the_others() {
    let (fs, _) = filled(true);
    remove(&fs, "MANIFEST");
    let mut told = 0;
    for path in named(&fs, ".tam") {
        let len = fs.file_len(&path).unwrap();
        for at in (0..len).step_by(37) {
            let hurt = fs.after_crash(CrashMode::KeepAll);
            hurt.corrupt(&path, at, 0x55).unwrap();
            let context = format!("{} at {at}", path.display());
            let report = tamis_doctor::salvage(lab::DIR, lab::tiny(&hurt), true)
                .unwrap_or_else(|e| panic!("{context}: {e}"));
            let name = path.file_name().unwrap().to_str().unwrap();
            let fate = report.tables.iter().find(|t| t.file == name).unwrap().fate;
            told += u32::from(fate == TableFate::SetAside);
            assert!(fate != TableFate::SetAside || !report.losses.is_empty(), "{context}: {report:#?}");
        }
    }
    assert!(told > 10);
    lab::assert_no_huge_allocation();
}

/// A salvage stops at any operation, by a crash or by an error. The next one has the same result.
#[test]
fn an_interrupted_salvage_can_be_repeated() {
    let (fs, ledger) = filled(false);
    let path = named(&fs, "MANIFEST").pop().unwrap();
    let len = fs.file_len(&path).unwrap();
    fs.truncate(&path, len * 6 / 10).unwrap();
    let before = bytes(&fs);
    for sticky in [true, false] {
        let mut stop = 0;
        loop {
            let hurt = fs.after_crash(CrashMode::KeepAll);
            let fail_at = Some(hurt.operations() + stop);
            hurt.plan(FaultPlan { fail_at, sticky, partial_append: true, ..FaultPlan::none() });
            let result = tamis_doctor::salvage(lab::DIR, lab::tiny(&hurt), false);
            let failed = hurt.failures() > 0;
            hurt.plan(FaultPlan::none());
            assert!(failed || result.is_ok(), "{result:?}");
            for mode in lab::MODES {
                let after = hurt.after_crash(mode);
                let context = format!("sticky {sticky}, stopped at operation {stop}, {mode:?}");
                nothing_is_gone(&before, &after, &context);
                let report = tamis_doctor::salvage(lab::DIR, lab::tiny(&after), false);
                let report = report.unwrap_or_else(|e| panic!("{context}: {e}"));
                nothing_is_gone(&before, &after, &context);
                judge(&after, &ledger, &report, &context);
            }
            if !failed {
                break;
            }
            stop += if sticky { 1 } else { 3 };
        }
        assert!(stop > 40, "{stop} operations");
    }
}

/// Databases with each kind of filter open on a rebuilt tree, read-only too.
#[test]
fn a_rebuilt_tree_opens_with_every_filter() {
    for filter in lab::FILTERS {
        lab::set_filter(filter);
        let (fs, ledger) = filled(false);
        remove(&fs, "MANIFEST");
        let options = || lab::tiny(&fs);
        let before = bytes(&fs);
        let read = read_all(&tamis_doctor::open_read_only(lab::DIR, options()).unwrap()).unwrap();
        assert_eq!(bytes(&fs), before, "{filter:?}: a reader changed something");
        assert!(holds(&read, &ledger, &ledger.order.visible()), "{filter:?}");
        let db = lab::open_salvaged(options()).unwrap().0;
        db.compact().unwrap();
        db.close().unwrap();
        judge(&fs, &ledger, &SalvageReport::default(), &format!("{filter:?}"));
    }
    lab::set_filter(tamis::options::FilterChoice::BlockedBloom);
}

/// A table is set aside with the blob files that it refers to, also with those that other tables
/// refer to as well. Wherever the salvage stops, an ordinary opening afterwards removes none of
/// their contents, nor do later merges.
#[test]
fn a_table_set_aside_keeps_its_values() {
    let fs = FaultyFs::new(3);
    let options = |fs: &FaultyFs| {
        let mut options = lab::tiny(fs);
        options.keyspace.auto_compaction = false;
        options.max_log_bytes = 1 << 30;
        options.keyspace.memtable_bytes = 1 << 20;
        options.keyspace.table_bytes = 4 << 10;
        options.keyspace.blob_file_bytes = 1 << 20;
        options.keyspace.blob_threshold = 100;
        options
    };
    let fill = |db: &Db, round: u32| {
        for i in 0..1500 {
            db.put(format!("key {i:04}"), format!("{i:04} {round} ").repeat(50)).unwrap();
        }
        db.flush().unwrap();
    };
    let mut large = options(&fs);
    large.keyspace.table_bytes = 1 << 20;
    let db = large.open(lab::DIR).unwrap();
    fill(&db, 1);
    db.close().unwrap();
    let db = options(&fs).open(lab::DIR).unwrap();
    db.put("a", "small").unwrap();
    db.compact().unwrap();
    let mut hurt = db.default_keyspace().tables();
    hurt.retain(|table| table.blob_bytes > 0);
    assert!(hurt.len() > 2, "several tables share a blob file");
    db.put("zzz", "last ".repeat(100)).unwrap();
    db.flush().unwrap();
    // One that shares its blob file, and the only one with the other.
    hurt.truncate(1);
    hurt.extend(db.default_keyspace().tables().into_iter().filter(|table| table.smallest == b"zzz"));
    assert_eq!(hurt.len(), 2);
    db.close().unwrap();
    for table in &hurt {
        let path = Path::new(lab::DIR).join(format!("{:06}.tam", table.id));
        let len = fs.file_len(&path).unwrap();
        fs.corrupt(&path, len - 20, 0x55).unwrap();
    }
    let before: Files =
        bytes(&fs).into_iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "blb")).collect();
    assert_eq!(before.len(), 2);
    let (mut stop, mut opened) = (0, 0);
    loop {
        let hurt = fs.after_crash(CrashMode::KeepAll);
        let fail_at = Some(hurt.operations() + stop);
        hurt.plan(FaultPlan { fail_at, sticky: true, partial_append: true, ..FaultPlan::none() });
        let _ = tamis_doctor::salvage(lab::DIR, options(&hurt), false);
        let failed = hurt.failures() > 0;
        hurt.plan(FaultPlan::none());
        for mode in lab::MODES {
            let after = hurt.after_crash(mode);
            let context = format!("stopped at operation {stop}, {mode:?}");
            // Before the new manifest is in force, the damaged tables are refused.
            if let Ok(db) = options(&after).open(lab::DIR) {
                nothing_is_gone(&before, &after, &context);
                fill(&db, 2);
                db.compact().unwrap();
                db.close().unwrap();
                drop(options(&after).open(lab::DIR).unwrap());
                opened += 1;
            }
            nothing_is_gone(&before, &after, &context);
        }
        if !failed {
            break;
        }
        stop += 1;
    }
    assert!(stop > 20 && opened > 2, "{stop} operations, {opened} openings");
}
