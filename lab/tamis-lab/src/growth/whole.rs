//! What a database costs as a whole: keyspaces by their number (`growth-keyspaces`), openings by the number of keys
//! (`growth-openings`).
//!
//! Each step is one database with the engine's defaults. Keys are dealt out to the keyspaces in turn and flushed. Gets
//! and puts of random keys come first; then the database is closed and opened again, once each round. For an opening
//! after a crash, puts are left in the log and the files are copied while the database is open and idle: the copy has
//! what the death of the process would leave.

use std::fs;
use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tamis::{Db, Keyspace, Options};
use tamis_bench::BenchError;
use tamis_bench::keys::KeySet;
use tamis_bench::progress::Progress;
use tamis_bench::random::Random;
use tamis_bench::report::{bytes, grouped};
use tamis_bench::value;

use super::host::Host;
use super::load;
use super::plan::{KEY_BYTES, VALUE_BYTES, half_decades, request};
use super::verdicts::limited;
use crate::figures::compare::{Measured, median};
use crate::figures::compose::lines;
use crate::figures::rows::{records, row};
use crate::figures::{
    About, Axis, Custom, Figure, Needs, Paper, Plan, Point, Row, Scale, Sheet, Verdict, View,
};

/// Operations that are timed together: their keys and values are prepared before.
const PIECE: u64 = 128;

const CREATE: &str = "create a keyspace";
const PUT: &str = "put";
const GET: &str = "get";
const OPEN: &str = "open after closing";
const FIRST: &str = "first get";
const CRASH: &str = "open after a crash";
const CLOSE: &str = "close";

/// The varied quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Keyspaces,
    Keys,
}

pub(super) struct Whole {
    about: About,
    by: By,
}

pub(super) const KEYSPACES: Whole = Whole {
    about: About {
        name: "growth-keyspaces",
        paper: Paper::Ours,
        place: "",
        title: "The cost of gets, puts and openings by the number of keyspaces",
        claim: "Ten times the keyspaces at most double the time of a get and of a put, and take at most ten times as long to \
                open.",
        differs: "",
    },
    by: By::Keyspaces,
};

pub(super) const OPENINGS: Whole = Whole {
    about: About {
        name: "growth-openings",
        paper: Paper::Ours,
        place: "",
        title: "The time of openings by the number of keys",
        claim: "Ten times the keys at most double the time of an opening.",
        differs: "",
    },
    by: By::Keys,
};

/// One database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    keyspaces: u64,
    keys: u64,
}

struct Job {
    by: By,
    sizes: Vec<Size>,
    ops: u64,
    repeats: u32,
    seed: u64,
    options: Options,
}

/// The time of one operation on one database: the median of the rounds, the least and the most.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct TimeRow {
    /// `time`.
    kind: String,
    keyspaces: u64,
    keys: u64,
    operation: String,
    ns: f64,
    min_ns: f64,
    max_ns: f64,
}

/// One database after loading.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct StateRow {
    /// `state`.
    kind: String,
    keyspaces: u64,
    keys: u64,
    /// Bytes of the table files.
    table_bytes: u64,
    /// Puts that the opening after a crash finds in the log.
    logged: u64,
    /// Memory of the database by its own account; mapped files are not part of it.
    database_bytes: u64,
    /// What the process has grown by since before the database was made, without files.
    anonymous_bytes: u64,
}

impl Figure for Whole {
    fn about(&self) -> &About {
        &self.about
    }

    fn needs(&self, scale: Scale) -> Needs {
        const MIB: u64 = 1 << 20;
        let [seconds, disk, memory] = match (self.by, scale) {
            (_, Scale::Small) => [5, 20, 100],
            (By::Keyspaces, Scale::Default) => [120, 800, 800],
            (By::Keyspaces, Scale::Paper) => [600, 3000, 2000],
            (By::Keys, Scale::Default) => [60, 1200, 300],
            (By::Keys, Scale::Paper) => [900, 12_000, 1200],
        };
        Needs { seconds, disk_bytes: disk * MIB, memory_bytes: memory * MIB }
    }

    fn plan<'f>(&'f self, scale: Scale, custom: &Custom) -> Result<Box<dyn Plan + 'f>, BenchError> {
        custom.refuse_all_but(self.about.name, &["--keys", "--ops", "--repeat", "--option"])?;
        let (keys, most_keyspaces, ops, repeats) = match (self.by, scale) {
            (_, Scale::Small) => (2_000, 100, 500, 2),
            (By::Keyspaces, Scale::Default) => (1_000_000, 10_000, 100_000, 5),
            (By::Keyspaces, Scale::Paper) => (10_000_000, 10_000, 200_000, 5),
            (By::Keys, Scale::Default) => (10_000_000, 1, 100_000, 5),
            (By::Keys, Scale::Paper) => (100_000_000, 1, 100_000, 5),
        };
        let keys = custom.keys.unwrap_or(keys);
        let sizes: Vec<Size> = match self.by {
            By::Keyspaces => {
                let counts = (0..=4).map(|n| 10u64.pow(n)).take_while(|&n| n <= most_keyspaces);
                counts.map(|keyspaces| Size { keyspaces, keys }).collect()
            }
            By::Keys => {
                let first = keys.min(if scale == Scale::Small { 200 } else { 10_000 });
                half_decades(first, keys).into_iter().map(|keys| Size { keyspaces: 1, keys }).collect()
            }
        };
        if let Some(Size { keyspaces, .. }) = sizes.iter().find(|size| size.keys < size.keyspaces) {
            return Err(request(format!("{keys} keys are too few for {keyspaces} keyspaces")));
        }
        KeySet::uniform(keys, KEY_BYTES, custom.seed)?;
        let mut options = Options::default();
        // It would change the tree while it is read.
        options.keyspace.read_compaction = false;
        options.set("keyspace.compression", "none")?;
        for (name, value) in &custom.options {
            options.set(name, value)?;
        }
        options.check()?;
        Ok(Box::new(Job {
            by: self.by,
            sizes,
            ops: custom.ops.unwrap_or(ops).max(1),
            repeats: custom.repeats.unwrap_or(repeats).max(1),
            seed: custom.seed,
            options,
        }))
    }

    fn view(&self, rows: &[Row]) -> View {
        let sound = |row: &TimeRow| {
            row.keys > 0 && [row.ns, row.min_ns, row.max_ns].iter().all(|ns| ns.is_finite() && *ns > 0.0)
        };
        let times: Vec<TimeRow> = records(rows, "time").into_iter().filter(sound).collect();
        view(self.by, &times, &records(rows, "state"))
    }

    #[cfg(test)]
    fn trial(&self) -> crate::figures::trial::Trial {
        tests::trial(self.by)
    }
}

impl Plan for Job {
    fn setting(&self) -> String {
        format!(
            "{}; keys of {KEY_BYTES} bytes, uniform, values of {VALUE_BYTES}, in the page cache if they fit; {} rounds of {} \
             gets and puts, one thread",
            self.steps().join(", "),
            self.repeats,
            grouped(self.ops),
        )
    }

    fn scaled(&self) -> Vec<String> {
        Vec::new()
    }

    fn steps(&self) -> Vec<String> {
        let name = |size: &Size| match (self.by, size.keyspaces) {
            (By::Keys, _) => format!("{} keys", grouped(size.keys)),
            (By::Keyspaces, 1) => format!("1 keyspace, {} keys", grouped(size.keys)),
            (By::Keyspaces, n) => format!("{} keyspaces, {} keys", grouped(n), grouped(size.keys)),
        };
        self.sizes.iter().map(name).collect()
    }

    fn run(&mut self, step: usize, progress: &dyn Progress) -> Result<Vec<Row>, BenchError> {
        let size = *self.sizes.get(step).ok_or_else(|| request(format!("there is no step {step}")))?;
        let made = tempfile::Builder::new().prefix("tamis-bench-").tempdir();
        let dir = made.map_err(io("make a directory in", &std::env::temp_dir()))?;
        Stand { job: self, size, keys: KeySet::uniform(size.keys, KEY_BYTES, self.seed)?, times: Vec::new() }
            .measure(dir.path(), progress)
    }
}

/// One database being measured.
struct Stand<'j> {
    job: &'j Job,
    size: Size,
    keys: KeySet,
    /// Nanoseconds of each operation in each round.
    times: Vec<(&'static str, Vec<f64>)>,
}

impl Stand<'_> {
    fn measure(mut self, dir: &Path, progress: &dyn Progress) -> Result<Vec<Row>, BenchError> {
        let (path, copy) = (dir.join("db"), dir.join("copy"));
        let before = Host::read().anonymous_bytes;
        let db = self.job.options.clone().open(&path)?;
        let spaces = self.create(&db)?;
        self.load(&spaces, progress)?;
        load::settle(&db)?;
        let stats = db.stats();
        let state = StateRow {
            kind: "state".into(),
            keyspaces: self.size.keyspaces,
            keys: self.size.keys,
            table_bytes: stats.keyspaces.iter().map(|tree| tree.table_bytes).sum(),
            logged: self.job.ops,
            database_bytes: stats.memory.total(),
            anonymous_bytes: Host::read().anonymous_bytes.saturating_sub(before),
        };
        // Brings everything into memory.
        self.pieces(0, |_, key, tag, space| check(space, key, tag), &spaces)?;
        for round in 1..=self.job.repeats {
            let ns = self.pieces(round, |_, key, tag, space| check(space, key, tag), &spaces)?;
            self.add(GET, ns);
        }
        for round in 1..=self.job.repeats {
            let ns = self.pieces(round, |value, key, _, space| Ok(space.put(key, value)?), &spaces)?;
            self.add(PUT, ns);
            load::settle(&db)?;
        }
        drop(spaces);
        db.close()?;
        for _ in 0..self.job.repeats {
            self.open(&path, OPEN)?.close()?;
        }
        let db = self.open(&path, "")?;
        let spaces: Vec<Keyspace> =
            (0..self.size.keyspaces).map(|n| db.keyspace(&name_of(n))).collect::<Result<_, _>>()?;
        self.pieces(0, |value, key, _, space| Ok(space.put(key, value)?), &spaces)?;
        db.wait_for_compaction()?;
        for _ in 0..self.job.repeats {
            copy_files(&path, &copy)?;
            let opened = self.open(&copy, CRASH)?;
            let begun = Instant::now();
            opened.close()?;
            self.add(CLOSE, ns_since(begun));
            fs::remove_dir_all(&copy).map_err(io("remove", &copy))?;
        }
        drop(spaces);
        db.close()?;
        Ok(self.rows().iter().map(row).chain([row(&state)]).collect())
    }

    /// Creates the keyspaces. Its rounds are fifths of them.
    fn create(&mut self, db: &Db) -> Result<Vec<Keyspace>, BenchError> {
        let mut spaces = Vec::new();
        let part = self.size.keyspaces.div_ceil(5);
        for first in (0..self.size.keyspaces).step_by(part as usize) {
            let last = self.size.keyspaces.min(first + part);
            let begun = Instant::now();
            for number in first..last {
                spaces.push(db.create_keyspace(&name_of(number), self.job.options.keyspace.clone())?);
            }
            self.add(CREATE, ns_since(begun) / (last - first) as f64);
        }
        Ok(spaces)
    }

    fn load(&self, spaces: &[Keyspace], progress: &dyn Progress) -> Result<(), BenchError> {
        progress.begin("load", self.size.keys, "keys");
        let mut bytes = Vec::new();
        for number in 0..self.size.keys {
            self.entry(number, 0, &mut bytes);
            spaces[(number % self.size.keyspaces) as usize].put(&bytes[..KEY_BYTES], &bytes[KEY_BYTES..])?;
            progress.advance(1);
        }
        progress.end();
        Ok(())
    }

    /// Makes `bytes` a key with its value, and returns the key's tag.
    fn entry(&self, number: u64, version: u32, bytes: &mut Vec<u8>) -> u64 {
        bytes.clear();
        self.keys.existing(number, bytes);
        let tag = value::tag_of(bytes);
        value::fill(tag, version, VALUE_BYTES, bytes);
        tag
    }

    /// Does an operation with random keys, given a value, a key, its tag and its keyspace. Returns the nanoseconds of
    /// one, the median of short pieces.
    fn pieces(
        &self,
        round: u32,
        op: impl Fn(&[u8], &[u8], u64, &Keyspace) -> Result<(), BenchError>,
        spaces: &[Keyspace],
    ) -> Result<f64, BenchError> {
        let mut random = Random::new(self.job.seed.wrapping_mul(1000).wrapping_add(u64::from(round)));
        let mut means = Vec::new();
        let mut left = self.job.ops;
        let mut piece: Vec<(Vec<u8>, u64, usize)> = Vec::new();
        while left > 0 {
            let count = PIECE.min(left);
            piece.resize_with(count as usize, Default::default);
            for (bytes, tag, space) in &mut piece {
                let number = random.below(self.size.keys);
                *tag = self.entry(number, round + 1, bytes);
                *space = (number % self.size.keyspaces) as usize;
            }
            let begun = Instant::now();
            for (bytes, tag, space) in &piece {
                op(&bytes[KEY_BYTES..], &bytes[..KEY_BYTES], *tag, &spaces[*space])?;
            }
            means.push(ns_since(begun) / count as f64);
            left -= count;
        }
        Ok(median(means).unwrap_or(0.0))
    }

    /// Opens a database, and checks a key of the last keyspace.
    fn open(&mut self, path: &Path, operation: &'static str) -> Result<Db, BenchError> {
        let options = self.job.options.clone();
        let begun = Instant::now();
        let db = options.open(path)?;
        let opened = ns_since(begun);
        let last = self.size.keyspaces - 1;
        let space = db.keyspace(&name_of(last))?;
        let mut bytes = Vec::new();
        let tag = self.entry(last, 0, &mut bytes);
        let begun = Instant::now();
        check(&space, &bytes[..KEY_BYTES], tag)?;
        if !operation.is_empty() {
            self.add(operation, opened);
        }
        if operation == OPEN {
            self.add(FIRST, ns_since(begun));
        }
        Ok(db)
    }

    fn add(&mut self, operation: &'static str, ns: f64) {
        match self.times.iter_mut().find(|(of, _)| *of == operation) {
            Some((_, rounds)) => rounds.push(ns),
            None => self.times.push((operation, vec![ns])),
        }
    }

    fn rows(&self) -> Vec<TimeRow> {
        let row = |(operation, rounds): &(&str, Vec<f64>)| TimeRow {
            kind: "time".into(),
            keyspaces: self.size.keyspaces,
            keys: self.size.keys,
            operation: (*operation).to_owned(),
            ns: median(rounds.iter().copied()).unwrap_or(0.0),
            min_ns: rounds.iter().copied().fold(f64::INFINITY, f64::min),
            max_ns: rounds.iter().copied().fold(0.0, f64::max),
        };
        self.times.iter().map(row).collect()
    }
}

fn name_of(keyspace: u64) -> String {
    format!("keyspace-{keyspace}")
}

/// Gets a key, and checks its value.
fn check(space: &Keyspace, key: &[u8], tag: u64) -> Result<(), BenchError> {
    let found = space.get(key)?;
    if found.as_ref().is_some_and(|value| value::check_whole(tag, VALUE_BYTES, value)) {
        return Ok(());
    }
    Err(BenchError::WrongAnswer {
        workload: "a get".into(),
        key: key.iter().map(|b| format!("{b:02x}")).collect(),
        expected: "its value".into(),
        got: if found.is_some() { "something else" } else { "no value" }.into(),
    })
}

/// Copies the files of a database.
fn copy_files(from: &Path, to: &Path) -> Result<(), BenchError> {
    fs::create_dir(to).map_err(io("make", to))?;
    for entry in fs::read_dir(from).map_err(io("read", from))? {
        let entry = entry.map_err(io("read", from))?;
        let (file, copy) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().map_err(io("read", &file))?.is_dir() {
            copy_files(&file, &copy)?;
        } else {
            fs::copy(&file, &copy).map_err(io("copy", &file))?;
        }
    }
    Ok(())
}

fn io(operation: &'static str, path: &Path) -> impl Fn(std::io::Error) -> BenchError + use<> {
    let path = path.to_owned();
    move |source| BenchError::Io { operation, path: path.clone(), source }
}

fn ns_since(begun: Instant) -> f64 {
    begun.elapsed().as_nanos() as f64
}

fn view(by: By, times: &[TimeRow], states: &[StateRow]) -> View {
    let at = |keyspaces: u64, keys: u64| match by {
        By::Keyspaces => keyspaces as f64,
        By::Keys => keys as f64,
    };
    let x = || Axis::new(if by == By::Keys { "keys" } else { "keyspaces" }, "").log();
    let of = |operations: &'static [&'static str]| {
        let rows = times.iter().filter(move |row| operations.contains(&row.operation.as_str()));
        rows.map(move |row| {
            let spread = Some((row.min_ns, row.max_ns));
            (row.operation.clone(), Point { spread, ..Point::new(at(row.keyspaces, row.keys), row.ns) })
        })
    };
    let axis = || Axis::new("time", "ns").log();
    let whole = lines("Openings and closings", x(), axis(), false, of(&[CREATE, OPEN, CRASH, CLOSE]));
    let calls = lines("Calls", x(), axis(), false, of(&[GET, PUT, FIRST]));
    let mut table = Sheet::new("Times", &["keyspaces", "keys", "<operation", "ns", "least", "most"]);
    let ns = |ns: f64| grouped(ns.round() as u64);
    for row in times {
        let counts = [grouped(row.keyspaces), grouped(row.keys), row.operation.clone()];
        table.row(counts.into_iter().chain([row.ns, row.min_ns, row.max_ns].map(ns)));
    }
    let mut memory = Sheet::new(
        "Files and memory",
        &["keyspaces", "keys", "tables", "puts in the log", "database", "process, not files"],
    );
    for row in states {
        let counts = [row.keyspaces, row.keys].map(grouped);
        let sizes = [
            bytes(row.table_bytes),
            grouped(row.logged),
            bytes(row.database_bytes),
            bytes(row.anonymous_bytes),
        ];
        memory.row(counts.into_iter().chain(sizes));
    }
    let verdicts = match by {
        By::Keyspaces => vec![
            growth(by, times, GET, "Ten times the keyspaces at most double the time of a get", 2.0),
            growth(by, times, PUT, "Ten times the keyspaces at most double the time of a put", 2.0),
            growth(by, times, OPEN, "Ten times the keyspaces take at most ten times as long to open", 10.0),
        ],
        By::Keys => vec![
            growth(by, times, OPEN, "Ten times the keys at most double the time of an opening", 2.0),
            growth(
                by,
                times,
                CRASH,
                "Ten times the keys at most double the time of an opening after a crash",
                2.0,
            ),
        ],
    };
    View {
        panels: [whole, calls].into_iter().flatten().collect(),
        sheets: [table, memory].into_iter().filter(|sheet| !sheet.rows.is_empty()).collect(),
        verdicts,
    }
}

/// Judges the growth of an operation's time from each point to the first that has ten times as many.
fn growth(by: By, times: &[TimeRow], operation: &str, claim: &str, limit: f64) -> Verdict {
    let x = |row: &TimeRow| match by {
        By::Keyspaces => row.keyspaces as f64,
        By::Keys => row.keys as f64,
    };
    let rows: Vec<&TimeRow> = times.iter().filter(|row| row.operation == operation).collect();
    let ns = |row: &TimeRow| Measured::new(row.ns, row.min_ns, row.max_ns);
    // Rounded numbers are a hair less than a decade apart.
    let decade_on = |a: &&TimeRow| rows.iter().find(|b| x(b) >= x(a) * 9.99).map(|b| ns(b).by(ns(a)));
    let growths: Vec<Measured> = rows.iter().filter_map(decade_on).collect();
    limited(Verdict::open(claim, format!("≤ {limit:.0}× a decade")), &growths, |_| limit)
}

#[cfg(test)]
mod tests {
    use tamis::KeyspaceOptions;
    use tamis_bench::progress::NoProgress;

    use super::*;
    use crate::figures::trial::Trial;

    const ALL: [&str; 7] = [CREATE, PUT, GET, OPEN, FIRST, CRASH, CLOSE];

    fn time(by: By, n: u32, operation: &str, ns: f64) -> TimeRow {
        let (keyspaces, keys) = match by {
            By::Keyspaces => (10u64.pow(n), 1_000_000),
            By::Keys => (1, 10_000 * 10u64.pow(n)),
        };
        let (min_ns, max_ns) = (ns * 0.95, ns * 1.05);
        TimeRow { kind: "time".into(), keyspaces, keys, operation: operation.into(), ns, min_ns, max_ns }
    }

    pub(super) fn trial(by: By) -> Trial {
        let rows = |factor: f64| {
            let point = |n: u32| ALL.map(|op| row(&time(by, n, op, 1000.0 * factor.powi(n as i32))));
            (0..3).flat_map(point).collect::<Vec<Row>>()
        };
        Trial { good: rows(1.2), bad: vec![rows(20.0)] }
    }

    fn run_all(figure: &Whole, custom: &Custom) -> Vec<Row> {
        let mut plan = figure.plan(Scale::Small, custom).unwrap();
        (0..plan.steps().len()).flat_map(|step| plan.run(step, &NoProgress).unwrap()).collect()
    }

    #[test]
    fn every_operation_is_measured_at_every_size() {
        let custom = Custom { ops: Some(300), ..Custom::default() };
        for (figure, sizes) in [(&KEYSPACES, 3), (&OPENINGS, 3)] {
            let rows = run_all(figure, &custom);
            let times: Vec<TimeRow> = records(&rows, "time");
            for operation in ALL {
                let of = times.iter().filter(|row| row.operation == operation);
                assert_eq!(of.clone().count(), sizes, "{operation}");
                assert!(
                    of.clone().all(|row| row.min_ns <= row.ns && row.ns <= row.max_ns && row.min_ns > 0.0)
                );
            }
            let states: Vec<StateRow> = records(&rows, "state");
            assert_eq!(states.len(), sizes);
            assert!(
                states.iter().all(|row| row.table_bytes > 0 && row.database_bytes > 0 && row.logged == 300)
            );
            let view = figure.view(&rows);
            assert_eq!((view.panels.len(), view.sheets.len()), (2, 2));
            assert!(view.verdicts.iter().all(|verdict| !verdict.ours.is_empty()), "{:?}", view.verdicts);
        }
    }

    /// The copy has the log's puts, which are nowhere else.
    #[test]
    fn an_opening_after_a_crash_replays_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("db"), dir.path().join("copy"));
        let db = Db::open(&path).unwrap();
        db.put("logged", "value").unwrap();
        copy_files(&path, &copy).unwrap();
        let copied = Db::open(&copy).unwrap();
        assert_eq!(copied.get("logged").unwrap().unwrap(), "value");
        assert!(db.get("logged").unwrap().is_some());
    }

    #[test]
    fn a_missing_or_another_value_is_a_wrong_answer() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path().join("db")).unwrap();
        let space = db.create_keyspace("a", KeyspaceOptions::default()).unwrap();
        assert!(check(&space, b"k", 1).unwrap_err().is_wrong_answer());
        space.put("k", "v").unwrap();
        assert!(check(&space, b"k", 1).unwrap_err().is_wrong_answer());
    }

    #[test]
    fn too_few_keys_and_foreign_flags_are_refused() {
        let refused = |figure: &Whole, custom: Custom| match figure.plan(Scale::Small, &custom) {
            Err(BenchError::Request(why)) => why,
            Err(other) => panic!("{other:?}"),
            Ok(plan) => panic!("accepted: {}", plan.setting()),
        };
        let few = Custom { keys: Some(50), ..Custom::default() };
        assert!(refused(&KEYSPACES, few).contains("50 keys are too few for 100 keyspaces"));
        refused(&OPENINGS, Custom { bits: vec![8.0], ..Custom::default() });
    }
}
