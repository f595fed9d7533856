//! Requirements on every side, checked for all that are compiled in, and the checks' own test: a side that loses updates.

use tamis_bench::BenchError;

use super::conduct::{Plan, conduct};
use super::data::{Audit, Data, Key, key, number, set_number};
use super::measure::Task;
use super::side::{Session, Side, SideError};
use super::sides::{Name, Visitor};
use super::worker::answer;
use super::workload::Workload;
use crate::engines::{Compression, Setup};
use crate::failure::Failure;

fn setup(dir: &std::path::Path) -> Setup {
    Setup {
        dir: dir.to_owned(),
        cache_bytes: 8 << 20,
        metadata_bytes: 0,
        memtable_bytes: 1 << 20,
        filter_bits: 10,
        compression: Compression::None,
        sync: false,
        direct_io: false,
        compaction: true,
        separated_bytes: None,
        overrides: Vec::new(),
    }
}

fn plan(sides: Vec<Name>) -> Plan {
    Plan {
        sides,
        workloads: Workload::ALL.to_vec(),
        threads: vec![1, 4],
        rounds: 2,
        keys: 300,
        value_bytes: 100,
        ops: 400,
        seconds: 20.0,
        seed: 3,
        memtable_bytes: 1 << 20,
        cache_bytes: 8 << 20,
    }
}

/// Measures in this process.
struct Here<'a>(&'a Task);

impl Visitor for Here<'_> {
    type Output = super::worker::Answer;

    fn visit<S: Side>(self) -> Self::Output {
        answer::<S>(self.0)
    }
}

#[test]
fn every_side_executes_every_workload_and_is_right() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(Name::compiled_in());
    let here = |side: Name, task: &Task| side.with(Here(task)).figures(side, task);
    let mut told = 0;
    let tell = |_: &_| {
        told += 1;
        Ok(())
    };
    let (rows, troubles) = conduct(&plan, dir.path(), here, tell).unwrap();
    assert!(troubles.is_empty(), "{troubles:?}");
    assert_eq!((rows.len() as u64, told), (plan.len(), plan.len()));
    for row in &rows {
        let (figures, what) = (&row.figures, format!("{row:?}"));
        assert_eq!(figures.ops, 400, "{what}");
        assert!(figures.ns_per_op > 0.0 && figures.p50_ns > 0 && figures.p50_ns <= figures.p99_ns, "{what}");
        assert_eq!(row.workload.scans(), figures.scans + figures.failed_scans > 0, "{what}");
        assert!(row.threads > 1 || row.workload.scans() || figures.retries == 0, "{what}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "databases are removed");
    let tables = super::report::tables(&rows);
    assert_eq!(tables.len(), 7, "one for each workload, and the targets");
    let text = super::report::text(&tables, &plan);
    for name in Name::compiled_in() {
        assert!(text.contains(name.name()), "{text}");
    }
}

/// Reads, writes and failures of a session.
struct Exercise<'a>(&'a Setup, Name);

impl Visitor for Exercise<'_> {
    type Output = ();

    fn visit<S: Side>(self) {
        let Exercise(setup, name) = self;
        let data = Data { keys: 100, value_bytes: 40, initial: 5 };
        let side = S::open(setup).unwrap();
        side.load(data.entries()).unwrap();
        side.settle().unwrap();
        let mut session = side.session();
        let mut value = Vec::new();
        session.get(&key(7), &mut value).unwrap();
        assert_eq!((number(&value), value.len()), (5, 40), "{name}");
        let mut one = Default::default();
        let retries = session.transact([&key(7)], &mut one, |[value]| set_number(value, 11)).unwrap();
        assert_eq!(retries, 0, "{name}: nobody else is there");
        if name.most_keys() > 1 {
            let change = |[a, b]: &mut [Vec<u8>; 2]| {
                let (first, second) = (number(a), number(b));
                set_number(a, second);
                set_number(b, first);
            };
            session.transact([&key(7), &key(8)], &mut Default::default(), change).unwrap();
            session.get(&key(8), &mut value).unwrap();
            assert_eq!(number(&value), 11, "{name}: exchanged");
        }
        set_number(&mut value, 1);
        session.put(&key(8), &super::data::value(&key(8), 40, 1)).unwrap();
        let mut audit = Audit::of(data);
        assert!(session.scan(|key, value| audit.look(key, value)).unwrap(), "{name}");
        audit.finish().unwrap();
        let changed: i128 = if name.most_keys() > 1 { 1 - 5 } else { (11 - 5) + (1 - 5) };
        assert_eq!(audit.sum, 500 + changed, "{name}");

        let other: Key = [0; 8];
        let absent = session.get(&other, &mut value).unwrap_err();
        assert!(matches!(absent, SideError::Wrong(_)), "{name}: {absent}");
        let absent =
            session.transact([&other], &mut one, |_| panic!("there is nothing to change")).unwrap_err();
        assert!(matches!(absent, SideError::Wrong(_)), "{name}: {absent}");
        let mut kept = Audit::of(data);
        assert!(session.scan(|key, value| kept.look(key, value)).unwrap());
        assert_eq!(kept.sum, audit.sum, "{name}");
        drop(session);
        side.close().unwrap();
    }
}

#[test]
fn sides_read_and_write_alike() {
    for name in Name::compiled_in() {
        let dir = tempfile::tempdir().unwrap();
        name.with(Exercise(&setup(&dir.path().join("deep/db")), name));
    }
}

/// A side whose transactions are a get and a put, with time for others in between.
struct LosesUpdates(tamis::Db);

impl Side for LosesUpdates {
    type Session<'s> = LosingSession<'s>;

    fn open(setup: &Setup) -> Result<Self, SideError> {
        std::fs::create_dir_all(&setup.dir).unwrap();
        Ok(LosesUpdates(tamis::Db::open(&setup.dir).map_err(BenchError::from)?))
    }

    fn settle(&self) -> Result<(), SideError> {
        Ok(())
    }

    fn session(&self) -> LosingSession<'_> {
        LosingSession(&self.0)
    }

    fn close(self) -> Result<(), SideError> {
        Ok(self.0.close().map_err(BenchError::from)?)
    }
}

struct LosingSession<'s>(&'s tamis::Db);

impl Session for LosingSession<'_> {
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), SideError> {
        Ok(self.0.put(key, value).map_err(BenchError::from)?)
    }

    fn get(&mut self, key: &Key, value: &mut Vec<u8>) -> Result<(), SideError> {
        super::side::copy(key, self.0.get(key).map_err(BenchError::from)?.as_deref(), value)
    }

    fn transact<const N: usize>(
        &mut self,
        keys: [&Key; N],
        values: &mut [Vec<u8>; N],
        mut change: impl FnMut(&mut [Vec<u8>; N]),
    ) -> Result<u64, SideError> {
        for (key, value) in keys.iter().zip(&mut *values) {
            self.get(key, value)?;
        }
        std::thread::sleep(std::time::Duration::from_micros(50));
        change(values);
        for (key, value) in keys.iter().zip(&*values) {
            self.put(key, value)?;
        }
        Ok(0)
    }

    fn scan(&mut self, mut look: impl FnMut(&[u8], &[u8])) -> Result<bool, SideError> {
        for entry in self.0.snapshot().iter() {
            let (key, value) = entry.map_err(BenchError::from)?;
            look(&key, &value);
        }
        Ok(true)
    }
}

#[test]
fn a_side_that_loses_updates_is_found_by_every_workload_with_contention() {
    for (workload, wrong) in [
        (Workload::ModifyHot, true),
        (Workload::Transfer, true),
        (Workload::TransferScan, true),
        (Workload::GetPut, false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let plan = Plan { workloads: vec![workload], threads: vec![8], ops: 4000, ..plan(vec![Name::Tamis]) };
        let broken = |side, task: &Task| answer::<LosesUpdates>(task).figures(side, task);
        let result = conduct(&plan, dir.path(), broken, |_| Ok(()));
        match wrong {
            true => {
                let failure = result.unwrap_err();
                assert!(matches!(&failure, Failure::WrongAnswer(text) if text.contains("sum")), "{failure}");
                assert_eq!(failure.exit_code(), std::process::ExitCode::from(1));
            }
            // Updates may be lost here, and are counted.
            false => assert_eq!(result.unwrap().0.len(), 2),
        }
    }
}

#[test]
fn a_side_that_fails_is_left_out_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let workloads = vec![Workload::Put, Workload::Modify];
    let plan = Plan { workloads, ops: 40, ..plan(vec![Name::Tamis, Name::TamisUpdate]) };
    let fails = |side: Name, task: &Task| match (side, task.workload) {
        (Name::Tamis, Workload::Modify) => Err(Failure::System("the disk is full".to_owned())),
        _ => side.with(Here(task)).figures(side, task),
    };
    let (rows, troubles) = conduct(&plan, dir.path(), fails, |_| Ok(())).unwrap();
    assert_eq!(troubles, ["the disk is full"], "tried once");
    let modified: Vec<_> = rows.iter().filter(|row| row.workload == Workload::Modify).collect();
    assert!(modified.len() == 4 && modified.iter().all(|row| row.side == "tamis-update"), "{modified:?}");
}
