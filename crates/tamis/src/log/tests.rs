//! The log alone, without a session: after every step, the sizes and numbers that it states are
//! compared with its files.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;

use tamis_files::tree::state::ManifestState;
use tamis_files::wal::{End, LogReader, ReadOptions};
use tamis_testkit::{FaultPlan, FaultyFs, OpClass};

use super::*;
use crate::KeyspaceOptions;
use crate::catalogue::Catalogue;
use crate::catalogue::filter_files::FilterFiles;
use crate::catalogue::filter_upkeep::FilterUpkeep;
use crate::catalogue::log_files::{FIRST_STEP, LEAST_LOGS};
use crate::catalogue::read_debts::ReadDebts;
use crate::catalogue::reshaping::Reshaping;
use crate::catalogue::scheduler::Scheduler;
use crate::catalogue::state::State;
use crate::io::{Access, WriteFile};
use crate::observe::warnings::Warnings;
use crate::tree::garbage::Garbage;

mod choices;
mod kept;
mod making;

const DIR: &str = "/db";

/// The length of a log's header.
const HEADER: u64 = 32;

fn dir() -> &'static Path {
    Path::new(DIR)
}

fn path(id: LogId) -> PathBuf {
    log_path(dir(), id)
}

fn options() -> Options {
    let keyspace = KeyspaceOptions { memtable_bytes: 1 << 20, ..KeyspaceOptions::default() };
    Options { keyspace, max_log_bytes: 64 << 20, recycled_logs: 2, ..Options::default() }
}

/// A log and all that it shares with others.
struct Rig {
    fs: FaultyFs,
    gate: Arc<Gate>,
    room: Arc<Room>,
    counters: Arc<WriteCounters>,
    observer: Arc<Observer>,
    monitor: Arc<Monitor>,
    log: Log,
    /// Where the record of each number ends: the log and the offset.
    ends: Mutex<BTreeMap<SeqNo, (LogId, u64)>>,
}

impl Rig {
    /// A session that has not begun.
    fn new(options: &Options) -> Rig {
        let machine = FaultyFs::new(1);
        Rig::on(machine.clone(), Arc::new(machine), options)
    }

    /// A session that has not begun, and reaches the machine through `fs`.
    fn on(machine: FaultyFs, fs: Arc<dyn FileSystem>, options: &Options) -> Rig {
        machine.create_dir_all(dir()).unwrap();
        machine.sync_dir(Path::new("/")).unwrap();
        let observer = Observer::new(dir(), &[], None);
        let counters = Arc::<WriteCounters>::default();
        let gate = Arc::new(Gate::new(dir(), false, &counters, &observer));
        let (numbers, garbage) = (Arc::new(FileNumbers::from(10)), Arc::<Garbage>::default());
        let warnings = Arc::new(Warnings::new(dir(), &observer));
        let filter_files = Arc::new(FilterFiles::new(dir().to_owned(), &fs, &garbage, &warnings, false));
        let tree = (ManifestState::default(), 1);
        let place = (dir().to_owned(), &fs);
        let state = State {
            catalogue: Catalogue::new(
                place,
                &garbage,
                &numbers,
                &gate,
                &filter_files,
                tree,
                Default::default(),
            ),
            scheduler: Scheduler::default(),
            filters: FilterUpkeep::default(),
            reshaping: Reshaping::default(),
            read_debts: ReadDebts::new(),
            logs: LogFiles::new(options),
        };
        let (monitor, room) = (Arc::new(Monitor::new(state, &gate)), Arc::<Room>::default());
        let parts = LogParts {
            fs: &fs,
            numbers: &numbers,
            monitor: &monitor,
            gate: &gate,
            room: &room,
            counters: &counters,
            observer: &observer,
        };
        let log = Log::new(dir().to_owned(), options, parts);
        Rig { fs: machine, gate, room, counters, observer, monitor, log, ends: Mutex::default() }
    }

    fn begun(options: &Options) -> Rig {
        Rig::new(options).begin()
    }

    /// Begins the session with log number 9, after 100 writes in tables.
    fn begin(self) -> Rig {
        let rig = self;
        let first = rig.log.create_first(9).unwrap();
        rig.log.begin(&mut rig.log.lock(), &mut rig.monitor.lock().logs, first, 100);
        rig.check();
        rig
    }

    fn size(&self, id: LogId) -> u64 {
        self.fs.files().into_iter().find(|file| file.0 == path(id)).map_or(0, |file| file.1)
    }

    fn exists(&self, id: LogId) -> bool {
        self.fs.files().iter().any(|file| file.0 == path(id))
    }

    fn operations(&self, work: impl FnOnce()) -> u64 {
        let before = self.fs.operations();
        work();
        self.fs.operations() - before
    }

    fn fail(&self, class: OpClass, error: ErrorKind, sticky: bool) {
        self.fs.plan(FaultPlan { fail_at: Some(0), error, sticky, only: Some(class), partial_append: false });
    }

    /// Appends a record of one write.
    fn try_append(&self, len: usize) -> Result<SeqNo, StorageError> {
        let mut current = self.log.lock();
        let written = vec![7; len];
        let seq = current.last_seq() + 1;
        self.log.append(&mut current, 1, std::iter::once(&written[..]))?;
        self.ends.lock().insert(seq, (current.id(), current.len()));
        assert_eq!(current.assign(1), seq);
        Ok(seq)
    }

    /// Appends a record. The file grows as foretold.
    fn append(&self, len: usize) -> SeqNo {
        let (id, growth) = {
            let current = self.log.lock();
            (current.id(), self.log.growth(&current, len))
        };
        let expected = self.size(id) + growth;
        let seq = self.try_append(len).unwrap();
        assert_eq!(self.size(id), expected, "a growth of {growth}");
        self.check();
        seq
    }

    fn sync(&self) {
        self.log.sync(&mut self.log.lock()).unwrap();
        assert_eq!(self.log.durable(), self.log.lock().last_seq());
        self.check();
    }

    fn roll(&self) -> LogId {
        let mut current = self.log.lock();
        let id = current.id();
        self.log.roll(&mut current).unwrap();
        drop(current);
        self.check();
        id
    }

    fn release(&self, floor: LogId) {
        self.log.release(&mut self.monitor.lock().logs, floor, 0);
        self.check();
    }

    /// Compares what the log states with its files.
    fn check(&self) {
        let current = self.log.lock();
        let state = self.monitor.lock();
        let files = &state.logs;
        let ids = |logs: &[ClosedLog]| logs.iter().map(|log| log.id).collect::<Vec<_>>();
        let sum = |ids: &[LogId]| ids.iter().map(|&id| self.size(id)).sum::<u64>();
        let needed = [ids(&files.rolled), vec![current.id()]].concat();
        assert_eq!(self.log.needed(), sum(&needed), "the size of needed logs");
        let next = self.log.next.lock().as_ref().map(|next| next.id).into_iter().collect::<Vec<_>>();
        let others = [ids(&files.recyclable), ids(&files.obsolete), next].concat();
        assert_eq!(self.log.allocated(files), sum(&needed) + sum(&others), "the size of all logs");
        // There are no other files.
        let retained: Vec<_> = files.retained.logs.iter().map(|(log, _)| log.id).collect();
        let known: BTreeSet<_> = [needed, others, retained].concat().into_iter().map(path).collect();
        let found: BTreeSet<_> = self.fs.files().into_iter().map(|file| file.0).collect();
        assert_eq!(found, known);

        let lens: u64 = files.rolled.iter().map(|log| log.bytes).sum();
        assert_eq!(self.log.bytes(files), current.len() + lens);
        assert_eq!((files.current, files.current_first), (current.id(), current.first_seq));
        let unsynced: Vec<_> = self.log.unsynced.lock().iter().map(|log| log.id).collect();
        assert!(self.log.has_unsynced.load(Acquire) || unsynced.is_empty());
        let reliable = files.rolled.iter().all(|log| !log.abandoned);
        for (at, log) in files.rolled.iter().enumerate().filter(|_| reliable) {
            let file = self.fs.open(&path(log.id), Access::Sequential).unwrap();
            let options = ReadOptions { expect_complete: true, salvage: false };
            let mut reader = LogReader::open(file, &path(log.id), LogKind::Writes, log.id, options).unwrap();
            while reader.next_record().unwrap().is_some() {}
            let successor = Some(files.rolled.get(at + 1).map_or(current.id(), |log| log.id));
            assert_eq!(reader.end(), Some(&End::Closed { offset: log.bytes, successor }));
            assert_eq!(self.is_durable(log.id, log.bytes), !unsynced.contains(&log.id));
        }
        // Everything up to the durable number is on the device, in order.
        for (seq, &(id, end)) in self.ends.lock().range(..=self.log.durable()) {
            assert!(!files.rolled_from(0).any(|log| log == id) || self.is_durable(id, end), "{seq}");
            assert!(current.id() != id || self.is_durable(id, end), "{seq}");
        }
    }

    /// Reports whether the first `len` bytes of a log would survive a power failure.
    fn is_durable(&self, id: LogId, len: u64) -> bool {
        let now = crate::io::read_file(&self.fs, &path(id)).unwrap();
        let durable = self.fs.durable_bytes(path(id)).unwrap_or_default();
        durable.len() as u64 >= len && durable[..len as usize] == now[..len as usize]
    }
}

/// A statistic that starts with one byte too many keeps it.
#[test]
fn before_a_session_there_is_no_log() {
    let rig = Rig::new(&options());
    let (log, state) = (&rig.log, rig.monitor.lock());
    assert_eq!((log.needed(), log.allocated(&state.logs), log.bytes(&state.logs)), (0, 0, 0));
    drop(state);
    assert_eq!((log.durable(), log.memory_bytes(), log.was_poisoned()), (0, 0, false));
    let mut current = log.lock();
    assert_eq!((current.id(), current.last_seq(), current.len(), current.is_open()), (0, 0, 0, false));
    assert_eq!(log.growth(&current, 1000), 0);
    log.roll(&mut current).unwrap();
    log.sync(&mut current).unwrap();
    assert!(rig.fs.files().is_empty());
    // A database that follows a writer.
    current.follow(70);
    assert_eq!(current.last_seq(), 70);
    let mut held = None;
    assert!(!log.held(&mut |seq| held = Some(seq)) && held.is_none(), "it is locked");
    drop(current);
    assert!(log.held(&mut |seq| held = Some(seq)));
    assert_eq!(held, Some(70));
    assert!(log.end(&mut log.lock()).unwrap().is_none());
}

#[test]
fn a_session_begins_with_one_log_and_needs_no_earlier_one() {
    let rig = Rig::new(&options());
    {
        let mut state = rig.monitor.lock();
        rig.log.note_found(&mut state.logs, &[(3, 1000), (4, 500)]);
        assert_eq!((rig.log.needed(), rig.log.bytes(&state.logs)), (1500, 1500));
    }
    let first = rig.log.create_first(9).unwrap();
    assert_eq!(first.id(), 9);
    assert!(rig.is_durable(9, HEADER) && rig.size(9) == HEADER, "its name, too");
    rig.log.begin(&mut rig.log.lock(), &mut rig.monitor.lock().logs, first, 100);
    rig.check();
    assert_eq!((rig.log.needed(), rig.log.durable(), rig.log.lock().last_seq()), (HEADER, 100, 100));
    assert_eq!(rig.monitor.lock().logs.rolled().0, 0);
}

#[test]
fn sizes_are_those_on_disk_from_the_first_record_to_the_removal() {
    let rig = Rig::begun(&options());
    for len in [10, 3000, 200_000, 0, 300_000] {
        rig.append(len);
        assert!(rig.size(9) > rig.log.lock().len() + FIRST_STEP / 4, "space is reserved ahead of need");
    }
    assert_eq!(rig.log.memory_bytes(), rig.log.lock().writer().memory_bytes());
    assert!(rig.log.memory_bytes() >= 3000);
    assert_eq!(rig.operations(|| _ = rig.try_append(10).unwrap()), 1, "with space to spare");
    rig.sync();
    assert_eq!(rig.operations(|| rig.log.sync(&mut rig.log.lock()).unwrap()), 0, "that is done");

    assert_eq!(rig.roll(), 9);
    assert!(!rig.is_durable(10, HEADER), "a writer that needs a log does not wait for it");
    let in_first = rig.append(1000) - 1;
    let reserved = rig.size(9);
    rig.log.trim();
    rig.check();
    assert!(rig.size(9) < reserved && rig.size(9) == rig.monitor.lock().logs.rolled().1);
    assert_eq!(rig.operations(|| rig.log.trim()), 0, "that is done");
    rig.log.sync_rolled().unwrap();
    rig.check();
    assert_eq!(rig.log.durable(), in_first);
    assert!(!rig.log.has_unsynced.load(Acquire));

    assert_eq!(rig.roll(), 10);
    rig.append(2000);
    assert_eq!(rig.roll(), 11);
    rig.append(3000);
    rig.sync();
    assert_eq!(rig.monitor.lock().logs.rolled().0, 3);
    assert_eq!(rig.log.unsynced.lock().len(), 0);

    // Obsolete logs count until they are gone.
    rig.release(11);
    assert_eq!(rig.monitor.lock().logs.rolled().0, 1);
    assert!(rig.log.remove_obsolete());
    rig.check();
    assert!(!rig.exists(9) && !rig.exists(10) && rig.exists(11));
    rig.roll();
    let last = rig.append(10);
    // The writes before are in tables: there is nothing left to sync.
    rig.release(13);
    assert_eq!((rig.log.durable(), rig.log.unsynced.lock().len()), (last - 1, 0));
    rig.sync();
}

#[test]
fn a_log_that_was_linked_elsewhere_is_not_trimmed() {
    let rig = Rig::begun(&options());
    rig.append(10);
    rig.roll();
    let size = rig.size(9);
    assert_eq!(rig.monitor.lock().logs.share().collect::<Vec<_>>(), [9]);
    rig.log.trim();
    rig.log.sync_rolled().unwrap();
    rig.check();
    assert_eq!(rig.size(9), size);
}

#[test]
fn records_are_counted_and_found_where_the_log_says() {
    let rig = Rig::begun(&options());
    for operation in [&b"first"[..], b"second"] {
        let mut current = rig.log.lock();
        let offset = rig.log.append(&mut current, 1, std::iter::once(operation)).unwrap() as usize;
        current.assign(1);
        let bytes = crate::io::read_file(&rig.fs, &path(9)).unwrap();
        assert_eq!(&bytes[offset..offset + operation.len()], operation);
        assert_eq!(current.len(), (offset + operation.len()) as u64);
        rig.log.sync(&mut current).unwrap();
    }
    let len = rig.log.lock().len();
    let read = || {
        let counters = rig.counters.read();
        let timed = rig.observer.latencies().read().of(Operation::LogSync).samples();
        (counters.groups, counters.log_bytes, counters.log_syncs, timed)
    };
    assert_eq!(read(), (2, len - HEADER, 2, 2));
    rig.roll();
    assert_eq!(rig.monitor.lock().logs.rolled[0].syncs, 2);
    rig.log.sync_rolled().unwrap();
    assert_eq!(read(), (2, len - HEADER, 3, 3));
    rig.append(10);
    rig.roll();
    assert_eq!(rig.monitor.lock().logs.rolled[1].syncs, 0);
}

/// A file whose appends all go through a mapping.
#[derive(Debug)]
struct MappedFile(u64);

impl WriteFile for MappedFile {
    fn append(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0 += bytes.len() as u64;
        Ok(())
    }

    fn mapped(&self) -> u64 {
        self.0
    }

    fn sync(&mut self) -> std::io::Result<()> {
        Ok(())
    }

    fn preallocate(&mut self, _: u64) -> std::io::Result<()> {
        Ok(())
    }

    fn truncate_to_written(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn bytes_written_through_a_mapping_are_counted() {
    let rig = Rig::begun(&options());
    let header = LogHeader { kind: LogKind::Writes, id: 9, reused: false };
    let writer = LogWriter::create(Box::new(MappedFile(0)), &path(9), header).unwrap();
    let mut current = Current::new(Some(writer), 9, 100);
    for operation in [&b"first"[..], b"second"] {
        rig.log.append(&mut current, 1, std::iter::once(operation)).unwrap();
        let counters = rig.counters.read();
        assert_eq!(
            (counters.log_bytes, counters.log_mapped_bytes),
            (current.len() - HEADER, current.len() - HEADER)
        );
    }
}

/// A log that is cut short is damaged if later records say that it had been synced.
#[test]
fn a_record_says_whether_earlier_logs_were_synced() {
    let rig = Rig::begun(&options());
    rig.append(10);
    rig.roll();
    rig.append(10);
    rig.log.sync_rolled().unwrap();
    rig.append(10);
    let file = rig.fs.open(&path(10), Access::Sequential).unwrap();
    let mut reader = LogReader::open(file, &path(10), LogKind::Writes, 10, ReadOptions::default()).unwrap();
    for (first_seq, older_logs_synced) in [(102, false), (103, true)] {
        let record = reader.next_record().unwrap().unwrap();
        let (header, _) = GroupHeader::decode(record.payload).unwrap();
        assert_eq!(header, GroupHeader { first_seq, count: 1, older_logs_synced });
    }
}

/// Ingested data would outlive earlier writes.
#[test]
fn the_number_of_an_ingestion_is_durable_with_everything_before_it() {
    let rig = Rig::begun(&options());
    rig.append(10);
    rig.roll();
    rig.append(10);
    let seq = rig.log.append_ingestion(&mut rig.log.lock(), 0).unwrap();
    assert_eq!((seq, rig.log.durable(), rig.log.lock().last_seq()), (103, 103, 103));
    rig.check();
    assert!(rig.is_durable(10, rig.log.lock().len()));
}

#[test]
fn unreliable_logs_are_neither_synced_again_nor_overwritten() {
    let rig = Rig::begun(&options());
    rig.append(10);
    rig.sync();
    rig.roll();
    rig.append(10);
    rig.fail(OpClass::Sync, ErrorKind::Other, false);
    rig.log.sync(&mut rig.log.lock()).unwrap_err();
    rig.log.sync(&mut rig.log.lock()).unwrap_err();
    assert!(rig.gate.suspended().is_some());
    let next = rig.log.next().unwrap();
    assert_eq!(rig.log.abandon(&mut rig.log.lock(), &mut rig.monitor.lock().logs, next), 11);
    rig.check();
    let kept: Vec<_> =
        rig.monitor.lock().logs.rolled.iter().map(|log| (log.id, log.keep, log.abandoned)).collect();
    assert_eq!(kept, [(9, false, false), (10, true, true)]);
    assert!(rig.log.unsynced.lock().is_empty() && !rig.log.has_unsynced.load(Acquire));
    assert_eq!(rig.operations(|| rig.log.sync(&mut rig.log.lock()).unwrap()), 0);
    assert_eq!(rig.log.durable(), 101);
    rig.release(11);
    assert_eq!(rig.log.durable(), 102);
    assert!(!rig.monitor.lock().logs.recyclable.iter().any(|log| log.id == 10));
    rig.append(10);
    rig.sync();

    // There may be no log to give up.
    let rig = Rig::new(&options());
    let next = rig.log.next().unwrap();
    assert_eq!(rig.log.abandon(&mut rig.log.lock(), &mut rig.monitor.lock().logs, next), 10);
    rig.check();
    assert_eq!(rig.monitor.lock().logs.rolled().0, 0);
}

#[test]
fn the_last_log_of_a_session_is_synced_and_has_no_successor() {
    let rig = Rig::begun(&options());
    rig.append(10);
    rig.roll();
    let last = rig.append(10);
    rig.log.prepare(true);
    rig.check();
    assert!(rig.exists(11));
    let writer = rig.log.end(&mut rig.log.lock()).unwrap().expect("it holds a record");
    assert_eq!(rig.log.durable(), last);
    assert!(rig.is_durable(9, rig.size(9)) && rig.is_durable(10, writer.len()));
    let stated = rig.log.allocated(&rig.monitor.lock().logs);
    assert_eq!(stated, rig.size(9) + rig.size(10));
    // Not even ahead of need.
    rig.log.prepare(true);
    assert_eq!(rig.fs.files().len(), 2);

    // An empty log is closed at once.
    let rig = Rig::begun(&options());
    assert!(rig.log.end(&mut rig.log.lock()).unwrap().is_none());
    assert!(rig.size(9) > HEADER && rig.is_durable(9, rig.size(9)));
}

#[test]
fn a_panic_under_the_lock_stops_writes() {
    let lock: [fn(&Log); 2] = [|log| drop(log.lock()), |log| drop(log.try_lock())];
    for lock in lock {
        let rig = Rig::begun(&options());
        lock(&rig.log);
        assert!(!rig.log.was_poisoned() && rig.gate.stopped().is_none());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _held = rig.log.lock();
            panic!("while the lock is held");
        }));
        assert!(panicked.is_err() && rig.log.was_poisoned() && rig.gate.stopped().is_none());
        lock(&rig.log);
        assert!(rig.gate.stopped().unwrap().contains("a panic while the log was being written"));
    }
}
