//! A reserve by itself: its length, what it releases and when, and what it accepts.

use super::*;

/// A reserve without a database around it.
fn alone(fs: &Arc<dyn FileSystem>) -> Reserve {
    let observer = crate::observe::Observer::new(Path::new(DIR), &[], None);
    let warnings = Arc::new(Warnings::new(Path::new(DIR), &observer));
    let options = Options { reserve_bytes: 1 << 30, ..Options::default() };
    Reserve::new(DIR.into(), fs, &options, &Arc::default(), &Arc::default(), &warnings)
}

/// The same on a file system of its own, with the database's directory.
fn on_its_own(seed: u64) -> (FaultyFs, Reserve) {
    let fs = FaultyFs::new(seed);
    fs.create_dir_all(Path::new(DIR)).unwrap();
    let reserve = alone(&(Arc::new(fs.clone()) as Arc<dyn FileSystem>));
    (fs, reserve)
}

/// Lets the reserve look at once.
fn follow(reserve: &Reserve, tables: u64) {
    reserve.keeping.lock().looked = None;
    reserve.follow(|| (tables, 0, 0));
}

const MIB: u64 = 1 << 20;

#[test]
fn a_reserve_changes_when_what_it_should_be_has_doubled_or_halved() {
    let (fs, reserve) = on_its_own(10);
    let held = |sixteenth: u64| {
        follow(&reserve, PART_OF_TABLES * sixteenth);
        assert_eq!(fs.file_len(&reserve_path(Path::new(DIR))).unwrap(), reserve.held());
        reserve.held()
    };
    assert_eq!(held(4 * MIB), 4 * MIB);
    assert_eq!(held(2 * MIB + STEP), 4 * MIB);
    assert_eq!(held(8 * MIB - STEP), 4 * MIB);
    assert_eq!(held(2 * MIB), 2 * MIB);
    assert_eq!(held(4 * MIB - STEP), 2 * MIB);
    assert_eq!(held(4 * MIB), 4 * MIB);
    follow(&reserve, 0);
    assert_eq!(reserve.held(), 0);
    assert!(!fs.exists(&reserve_path(Path::new(DIR))).unwrap());
}

/// What is left of a file that could not be made is nobody's, and it may hold the last space.
#[test]
fn a_reserve_that_could_not_be_made_is_gone() {
    let mut failed = 0;
    for at in 0.. {
        let (fs, reserve) = on_its_own(11);
        follow(&reserve, PART_OF_TABLES * MIB);
        assert_eq!(reserve.held(), MIB);
        // The first operation is the question for the free space.
        fs.plan(FaultPlan { fail_at: Some(fs.operations() + 1 + at), ..FaultPlan::none() });
        let failures = fs.failures();
        follow(&reserve, PART_OF_TABLES * 4 * MIB);
        let has_failed = fs.failures() > failures;
        fs.plan(FaultPlan::none());
        let is_there = fs.exists(&reserve_path(Path::new(DIR))).unwrap();
        if !has_failed {
            assert_eq!((reserve.held(), is_there), (4 * MIB, true));
            break;
        }
        failed += 1;
        assert_eq!((reserve.held(), is_there), (0, false), "{at}");
    }
    assert!(failed > 0);
}

/// A file system that reserves no space, and says that it does.
#[derive(Debug)]
struct Unreserved(FaultyFs);

#[derive(Debug)]
struct Growing(Box<dyn crate::io::WriteFile>);

impl crate::io::WriteFile for Growing {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync()
    }

    fn preallocate(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn truncate_to_written(&mut self) -> io::Result<()> {
        self.0.truncate_to_written()
    }
}

impl FileSystem for Unreserved {
    fn create(&self, path: &Path, usage: Usage) -> io::Result<Box<dyn crate::io::WriteFile>> {
        Ok(Box::new(Growing(self.0.create(path, usage)?)))
    }

    fn reuse(&self, old: &Path, new: &Path) -> io::Result<Box<dyn crate::io::WriteFile>> {
        Ok(Box::new(Growing(self.0.reuse(old, new)?)))
    }

    fn open(&self, path: &Path, access: crate::io::Access) -> io::Result<Arc<dyn crate::io::ReadFile>> {
        self.0.open(path, access)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.remove_dir_all(path)
    }

    fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.link_or_copy(from, to)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.sync_dir(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.0.exists(path)
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        self.0.file_len(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn crate::io::DirLock>>> {
        self.0.lock(path)
    }

    fn available_space(&self, path: &Path) -> io::Result<Option<u64>> {
        self.0.available_space(path)
    }
}

#[test]
fn where_no_space_can_be_reserved_no_file_is_left() {
    let fs: Arc<dyn FileSystem> = Arc::new(Unreserved(FaultyFs::new(13)));
    fs.create_dir_all(Path::new(DIR)).unwrap();
    let reserve = alone(&fs);
    for _ in 0..2 {
        follow(&reserve, PART_OF_TABLES * MIB);
        assert_eq!((reserve.held(), fs.list(Path::new(DIR)).unwrap()), (0, vec![]));
        assert!(reserve.keeping.lock().impossible);
    }
}

#[test]
fn a_full_disk_is_told_once_until_there_is_room() {
    let (fs, reserve) = on_its_own(12);
    assert_eq!(reserve.kept(16 * MIB), MIB);
    reserve.refuse().unwrap();
    reserve.fill(MIB, "one file");
    reserve.fill(2 * MIB, "another");
    let trouble = reserve.trouble();
    let told = |reserve: &Reserve| reserve.warnings.all();
    assert_eq!(told(&reserve).len(), 1);
    assert!(told(&reserve)[0].starts_with("one file: no storage space is left"), "{:?}", told(&reserve));
    assert!(trouble.ends_with("3.1 MiB are free"), "{trouble}");
    assert!(matches!(reserve.refuse(), Err(WriteError::Suspended { cause }) if cause == trouble));
    // Too little, and then enough.
    fs.set_capacity(Some(3 * MIB));
    follow(&reserve, 0);
    assert!(reserve.is_full());
    fs.set_capacity(Some(4 * MIB));
    follow(&reserve, 0);
    assert!(!reserve.is_full());
    assert_eq!((reserve.missing.load(Relaxed), told(&reserve).len()), (0, 2));
    reserve.refuse().unwrap();
    // It is told again.
    reserve.fill(3 * MIB, "a third");
    assert_eq!(told(&reserve).len(), 3);
}

#[test]
fn tables_take_an_eighth_more_with_the_file_system() {
    assert_eq!([0, 7, 8, 800].map(for_tables), [0, 7, 9, 900]);
    assert_eq!(for_tables(u64::MAX), u64::MAX);
}

#[test]
fn a_new_reserve_holds_nothing_and_misses_nothing() {
    let (_, reserve) = on_its_own(14);
    assert_eq!((reserve.held(), reserve.needed(), reserve.looked.load(Relaxed)), (0, STEP, 0));
    assert_eq!([0, 16 * MIB - 1, 16 * MIB].map(|bytes| reserve.kept(bytes)), [KEPT_FREE, MIB - 1, MIB]);
    reserve.find();
    assert!(reserve.held() == 0 && !reserve.spend() && !reserve.is_full());
    assert_eq!(reserve.counters.reserves_spent.get(), 0);
}

/// The logs count in full where less than sixteen times their size is free; else up to a quarter of
/// the tables.
#[test]
fn the_length_follows_tables_and_logs() {
    let (_, reserve) = on_its_own(15);
    for (tables, logs, free, target) in [
        (16 * MIB, 0, None, MIB),
        (16 * MIB + 16, 0, None, MIB + STEP),
        (16 * MIB, 8 * MIB, None, 4 * MIB),
        (16 * MIB, 8 * MIB, Some(128 * MIB), 4 * MIB),
        (16 * MIB, 8 * MIB, Some(128 * MIB - 1), 8 * MIB),
        (16 * MIB, 3 * MIB, Some(128 * MIB), 3 * MIB),
        // No more than a quarter, of which whole steps.
        (STEP, 0, None, 0),
        (4 * STEP, 0, None, STEP),
        (1 << 40, 0, None, 1 << 30),
        (0, 1 << 40, Some(0), 1 << 30),
    ] {
        assert_eq!(reserve.target(tables, logs, free), target, "{tables} {logs} {free:?}");
    }
}

#[test]
fn tables_and_manifest_are_remembered_when_the_length_is_checked() {
    let (_, reserve) = on_its_own(16);
    reserve.follow(|| (16 * MIB, 3 * MIB, 0));
    assert_eq!(reserve.kept(16 * MIB), 5 * MIB);
    assert!(reserve.keeping.lock().looked.is_some());
}

/// A file that an earlier session left.
#[test]
fn what_is_found_is_held_if_its_size_is_free() {
    for (free, is_kept) in [(MIB, true), (MIB - 1, false)] {
        let (fs, earlier) = on_its_own(17);
        follow(&earlier, PART_OF_TABLES * MIB);
        fs.set_capacity(Some(used(&fs) + free));
        let reserve = alone(&(Arc::new(fs.clone()) as Arc<dyn FileSystem>));
        reserve.find();
        assert_eq!(reserve.held(), if is_kept { MIB } else { 0 });
        assert_eq!(fs.exists(&reserve_path(Path::new(DIR))).unwrap(), is_kept);
        assert_eq!(
            (reserve.is_full(), reserve.counters.reserves_spent.get()),
            (!is_kept, u64::from(!is_kept))
        );
    }
}

#[test]
fn a_reserve_counts_as_released_if_its_file_is_gone() {
    let (fs, reserve) = on_its_own(18);
    follow(&reserve, PART_OF_TABLES * MIB);
    fs.plan(FaultPlan { fail_at: Some(fs.operations()), ..FaultPlan::none() });
    assert!(!reserve.spend(), "the file could not be removed");
    assert_eq!((reserve.held(), reserve.is_full()), (MIB, false));
    fs.plan(FaultPlan::none());
    fs.remove(&reserve_path(Path::new(DIR))).unwrap();
    assert!(reserve.spend());
    assert_eq!((reserve.held(), reserve.is_full()), (0, true));
    assert!(!reserve.spend(), "there is none any more");
}

#[test]
fn no_reserve_at_all_can_be_made_without_a_file() {
    let (fs, reserve) = on_its_own(19);
    assert_eq!(reserve.make_reserve(0).unwrap(), 0);
    assert_eq!(reserve.make_reserve(MIB).unwrap(), MIB);
    fs.plan(FaultPlan { fail_at: Some(fs.operations()), ..FaultPlan::none() });
    assert!(reserve.make_reserve(0).is_err());
    assert!(fs.exists(&reserve_path(Path::new(DIR))).unwrap());
    fs.plan(FaultPlan::none());
    assert_eq!(reserve.make_reserve(0).unwrap(), 0);
}

#[test]
fn a_reserve_is_spent_for_compactions_once_if_they_want_it() {
    let (_, reserve) = on_its_own(20);
    reserve.want();
    assert!(!reserve.spend_if_wanted(), "there is none");
    follow(&reserve, PART_OF_TABLES * MIB);
    assert!(!reserve.spend_if_wanted(), "that was before");
    assert_eq!(reserve.held(), MIB);
    reserve.want();
    assert!(reserve.spend_if_wanted());
    assert_eq!(reserve.held(), 0);
    assert!(!reserve.spend_if_wanted());
}

/// Compactions are not started by what was free before.
#[test]
fn the_free_space_is_asked_for_again_when_the_file_has_changed() {
    let (fs, reserve) = on_its_own(21);
    fs.set_capacity(Some(used(&fs) + 8 * MIB));
    let free = || {
        reserve.room.refresh(&fs, Path::new(DIR));
        reserve.room.free()
    };
    assert_eq!(free(), Some(8 * MIB));
    follow(&reserve, PART_OF_TABLES * MIB);
    assert_eq!(free(), Some(7 * MIB));
    assert!(reserve.spend());
    assert_eq!(free(), Some(8 * MIB));
}

#[test]
fn a_full_disk_accepts_deletes_and_when_space_is_scarce_only_range_deletes() {
    let (fs, reserve) = on_its_own(22);
    let batch = |add: &dyn Fn(&mut WriteBatch)| {
        let mut batch = WriteBatch::new();
        add(&mut batch);
        batch
    };
    let put = batch(&|batch| _ = batch.put("a", "1"));
    let mixed = batch(&|batch| _ = batch.delete("a").put("b", "1"));
    let delete = batch(&|batch| _ = batch.delete("a").delete_range("b".."c"));
    let range = batch(&|batch| _ = batch.delete_range("b".."c"));
    let admitted = || {
        [&put, &mixed, &delete, &range].map(|batch| match reserve.admit(batch) {
            Ok(()) => true,
            Err(WriteError::Suspended { cause }) => {
                assert_eq!(cause, reserve.trouble());
                false
            }
            Err(other) => panic!("{other}"),
        })
    };
    let grows =
        || [&put, &mixed, &delete, &range].map(|batch| reserve.admit_growth(&[&range, batch]).is_ok());
    assert_eq!((admitted(), grows()), ([true; 4], [true; 4]));
    // One and a half times as much must be free, and a step.
    fs.set_capacity(Some(used(&fs) + 3 * MIB / 2 + STEP - 1));
    reserve.fill(MIB, "a test");
    let deletes = [false, false, true, true];
    assert_eq!((admitted(), grows()), (deletes, deletes));
    reserve.scarce.store(true, Relaxed);
    assert_eq!((admitted(), grows()), (deletes, [false, false, false, true]));
    follow(&reserve, 0);
    assert_eq!((admitted(), grows()), (deletes, [false, false, false, true]));
    fs.set_capacity(Some(used(&fs) + 3 * MIB / 2 + STEP));
    follow(&reserve, 0);
    assert_eq!((admitted(), grows()), ([true; 4], [true; 4]));
    reserve.fill(MIB, "again");
    assert_eq!((admitted(), grows()), (deletes, deletes), "it is not known yet that space is scarce");
}

#[test]
fn a_memtable_needs_at_least_the_space_of_its_entries() {
    let memtable = crate::memtable::Memtable::with_chunks(1 << 20, 0, None);
    let slot = MemtableSlot::new(Arc::new(memtable), 1);
    assert_eq!(bytes_of(&slot), 0);
    let op = BatchOp::Put { keyspace: 0, key: b"key", value: &[7; 1000] };
    slot.memtable.writer().insert_op(&op, op.key().map(tamis_filter::Digest::of), 1, None);
    // What it takes in memory, and 24 bytes for the entry.
    assert_eq!(bytes_of(&slot), slot.memtable.data_bytes() as u64 + 24);
    assert!((1000..2000).contains(&bytes_of(&slot)), "{}", bytes_of(&slot));
}
