//! Databases of experiments: loaded once a filter, kept and used again, and copied by hard links for every figure.
//!
//! A *base* is a directory `FILTER-HASH` with a database and a card `loaded.json` that says what it was loaded with: number and
//! form of keys, values, and all options of the keyspace, which are what the bytes of its tables follow from. It is used again
//! if the card says the same. The card is written last and its base never changes after that, so a base whose loading was broken
//! off has no card and is loaded anew.
//!
//! Whatever is measured happens on a copy (a checkpoint: its files are second names of the base's), so every point of a figure
//! begins with the same tree and cold heat. Mixes that write cost the disk space of what they write.
//!
//! All sides have the same tree: keys are flushed in equal portions, in the same random order, and compaction has come to its
//! end before the next portion begins. There are 163 portions, or fewer of at least 500 keys, and always 4k + 3, so that level 0
//! holds three runs, one less than start a compaction. Tables are as large as four portions, at most 64 MiB: a database of
//! 100,000 keys has as many levels as one of ten millions, and tables of many segments.
//!
//! One thread at a time makes and copies bases of one directory; two programs must not share one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tamis::{Db, Options};
use tamis_bench::BenchError;
use tamis_bench::keys::KeySet;
use tamis_bench::measure::write_amplification;
use tamis_bench::progress::Progress;
use tamis_bench::random::mix64;
use tamis_bench::run::Fill;
use tamis_bench::value::tag_of;
use tempfile::TempDir;

use crate::filters::load::{self, Loading, Plan};

/// Flushes that load a base, if it is not tiny.
const MOST_FLUSHES: u64 = 163;

/// The fewest keys of a flush.
const FLUSH_KEYS: u64 = 500;

/// The fewest keys: enough for seven flushes.
pub const FEWEST_KEYS: u64 = 5000;

/// Of so many keys one is held back for workloads that insert.
const HELD_BACK: u64 = 50;

/// What a key and its value take in a memtable beside their bytes, at most.
const ENTRY_OVERHEAD: u64 = 64;

/// The sizes that tables have, whatever the keys.
const TABLE_BYTES: std::ops::RangeInclusive<u64> = 32 << 10..=64 << 20;

/// Changes when bases are made in another way.
const LAYOUT: u32 = 2;

const CARD: &str = "loaded.json";

/// A copy within its directory.
const COPY: &str = "db";

/// The data of a base.
pub(crate) struct Data<'a> {
    pub(crate) keys: &'a KeySet,
    pub(crate) value_bytes: usize,
    pub(crate) seed: u64,
    /// In which portions they are flushed, and how many keys are there at first; `None`: as this module has it.
    pub(crate) portions: Option<(Plan, u64)>,
}

impl Data<'_> {
    /// The order of loading, and how many keys are there at first.
    pub(crate) fn fill(&self) -> Fill {
        let mut fill = Fill::random(self.keys, self.seed);
        fill.loaded = self.portions.map_or(loaded_of(self.keys.len()), |(_, loaded)| loaded);
        fill
    }

    fn plan(&self) -> Plan {
        // Of the plan only the portions matter here: the tree's shape is the policy's own.
        let own = || {
            let (keys, flushes) = (loaded_of(self.keys.len()), flushes_of(self.keys.len()));
            Plan { size_ratio: 1, levels: 1, flushes, keys }
        };
        self.portions.map_or_else(own, |(plan, _)| plan)
    }

    /// Sets the sizes that give every base the same levels.
    pub(super) fn apply(&self, options: &mut Options) {
        let entry = self.keys.key_bytes() as u64 + self.value_bytes as u64;
        let portion = loaded_of(self.keys.len()).div_ceil(flushes_of(self.keys.len())) + 1;
        let keyspace = &mut options.keyspace;
        // Just enough that no memtable is full before its flush is asked for.
        keyspace.memtable_bytes = (portion * (entry + ENTRY_OVERHEAD)).max(4 << 10);
        keyspace.table_bytes = (4 * portion * entry).clamp(*TABLE_BYTES.start(), *TABLE_BYTES.end());
        options.memtable_budget_bytes = options.memtable_budget_bytes.max(keyspace.memtable_bytes * 8);
    }
}

/// Flushes that load so many keys: 4k + 3.
fn flushes_of(keys: u64) -> u64 {
    let most = (keys / FLUSH_KEYS).clamp(7, MOST_FLUSHES);
    (most + 1) / 4 * 4 - 1
}

/// Keys that are there before the first measurement, of so many in all.
pub(super) fn loaded_of(keys: u64) -> u64 {
    keys - keys / HELD_BACK
}

/// One base as it was loaded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadRow {
    /// `load`.
    pub kind: String,
    /// The experiment.
    pub experiment: String,
    /// The filter.
    pub filter: String,
    /// What varies in how it is loaded; empty if nothing does.
    pub point: String,
    /// Keys in it.
    pub keys: u64,
    /// Sorted runs of each level: `3/1/1/1`.
    pub runs: String,
    /// Tables.
    pub tables: usize,
    /// Bytes of the tables.
    pub table_bytes: u64,
    /// Median of loading, flushes and waits for compaction included.
    pub load_ns_per_key: f64,
    /// The fastest load.
    pub min_ns_per_key: f64,
    /// The slowest load.
    pub max_ns_per_key: f64,
    /// 99 of 100 puts took at most so long.
    pub put_p99_ns: u64,
    /// Bytes written by bytes given, log included.
    pub write_amplification: f64,
    /// Of how many loads this is the median.
    pub repeats: u32,
    /// Whether it had been loaded before; the figures are those of then.
    pub reused: bool,
}

#[derive(Serialize, Deserialize)]
struct Card {
    identity: String,
    load: LoadRow,
}

/// The directory of all bases.
pub(crate) struct Bases {
    dir: PathBuf,
    _temporary: Option<TempDir>,
}

/// An open copy of a base.
pub(crate) struct Copy {
    db: Option<Db>,
    /// Dropped after the database.
    dir: TempDir,
}

impl Copy {
    pub(crate) fn db(&self) -> &Db {
        self.db.as_ref().expect("there until it is closed")
    }

    /// Where its files are.
    pub(super) fn path(&self) -> PathBuf {
        self.dir.path().join(COPY)
    }

    pub(crate) fn close(mut self) -> Result<(), BenchError> {
        Ok(self.db.take().expect("closed once").close()?)
    }
}

impl Bases {
    /// In `dir`, or in a temporary directory that goes with this value.
    pub(crate) fn in_dir(dir: Option<&Path>) -> Result<Bases, BenchError> {
        let (dir, temporary) = match dir {
            Some(dir) => {
                fs::create_dir_all(dir).map_err(io_error("make", dir))?;
                (dir.to_owned(), None)
            }
            None => {
                let made = tempfile::Builder::new().prefix("tamis-bench-").tempdir();
                let made = made.map_err(io_error("make a directory in", &std::env::temp_dir()))?;
                (made.path().to_owned(), Some(made))
            }
        };
        Ok(Bases { dir, _temporary: temporary })
    }

    /// Makes sure that there is a base, and says how it was loaded.
    pub(crate) fn base(
        &self,
        filter: &str,
        options: &Options,
        data: &Data<'_>,
        progress: &dyn Progress,
    ) -> Result<LoadRow, BenchError> {
        let (identity, dir) = self.place_of(filter, options, data);
        if let Some(card) = read_card(&dir, &identity) {
            return Ok(LoadRow { reused: true, ..card.load });
        }
        if dir.exists() {
            fs::remove_dir_all(&dir).map_err(io_error("remove", &dir))?;
        }
        fs::create_dir_all(&dir).map_err(io_error("make", &dir))?;
        progress.note(&format!("loading a database with filter {filter}"));
        let load = load_at(&dir.join("db"), filter, options, data, true, progress)?;
        let text = serde_json::to_string(&Card { identity, load: load.clone() }).expect("plain fields");
        fs::write(dir.join(CARD), text).map_err(io_error("write", &dir.join(CARD)))?;
        Ok(load)
    }

    /// Opens a copy of a base that is there.
    pub(crate) fn copy(&self, filter: &str, options: &Options, data: &Data<'_>) -> Result<Copy, BenchError> {
        self.copy_in(None, filter, options, data)
    }

    /// The same in another directory than that of the bases: on another file system the copy has all bytes of its own.
    pub(super) fn copy_in(
        &self,
        place: Option<&Path>,
        filter: &str,
        options: &Options,
        data: &Data<'_>,
    ) -> Result<Copy, BenchError> {
        let (_, dir) = self.place_of(filter, options, data);
        let place = place.unwrap_or(&self.dir);
        let made = tempfile::Builder::new().prefix("copy-").tempdir_in(place);
        let made = made.map_err(io_error("make a directory in", place))?;
        let path = made.path().join(COPY);
        let base = Db::open(dir.join("db"), options.clone())?;
        base.checkpoint(&path)?;
        base.close()?;
        Ok(Copy { db: Some(Db::open(&path, options.clone())?), dir: made })
    }

    /// Where the bases are.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Loads a database that is thrown away, as fast as the engine takes it: compactions run beside.
    pub(super) fn load_once(
        &self,
        filter: &str,
        options: &Options,
        data: &Data<'_>,
        progress: &dyn Progress,
    ) -> Result<LoadRow, BenchError> {
        let made = tempfile::Builder::new().prefix("load-").tempdir_in(&self.dir);
        let made = made.map_err(io_error("make a directory in", &self.dir))?;
        load_at(&made.path().join("db"), filter, options, data, false, progress)
    }

    fn place_of(&self, filter: &str, options: &Options, data: &Data<'_>) -> (String, PathBuf) {
        let mut identity = format!(
            "layout {LAYOUT}, filter {filter}, {} {} keys of {} bytes, values of {} bytes, seed {}\n{}",
            data.keys.len(),
            data.keys.name(),
            data.keys.key_bytes(),
            data.value_bytes,
            data.seed,
            options.keyspace.to_text()
        );
        if let Some((plan, loaded)) = data.portions {
            identity += &format!("{loaded} keys loaded in portions of {} flushes\n", plan.flushes);
        }
        let hash = mix64(tag_of(identity.as_bytes()));
        let dir = self.dir.join(format!("{filter}-{hash:016x}"));
        (identity, dir)
    }
}

fn read_card(dir: &Path, identity: &str) -> Option<Card> {
    let text = fs::read_to_string(dir.join(CARD)).ok()?;
    let card: Card = serde_json::from_str(&text).ok()?;
    (card.identity == identity && dir.join("db").exists()).then_some(card)
}

fn load_at(
    path: &Path,
    filter: &str,
    options: &Options,
    data: &Data<'_>,
    in_step: bool,
    progress: &dyn Progress,
) -> Result<LoadRow, BenchError> {
    let fill = data.fill();
    let db = Db::open(path, options.clone())?;
    let plan = data.plan();
    progress.begin(&format!("load {filter}"), fill.loaded, "keys");
    let begun = Instant::now();
    let loading: Loading =
        load::fill(&db, data.keys, &fill, &plan, data.value_bytes.into(), in_step, &|n| progress.advance(n))?;
    progress.end();
    progress.note(&format!("loaded in {:.1} s", begun.elapsed().as_secs_f64()));
    let stats = db.stats();
    let tree = stats.keyspaces.first().cloned().unwrap_or_default();
    let deepest = tree.levels.iter().rposition(|level| !level.runs.is_empty()).map_or(0, |at| at + 1);
    let runs = tree.levels[..deepest].iter().map(|level| level.runs.len().to_string());
    let ns = loading.ns as f64 / loading.keys.max(1) as f64;
    let row = LoadRow {
        kind: "load".into(),
        filter: filter.into(),
        keys: loading.keys,
        runs: runs.collect::<Vec<_>>().join("/"),
        tables: tree.levels.iter().flat_map(|level| &level.runs).map(|run| run.tables).sum(),
        table_bytes: tree.table_bytes,
        load_ns_per_key: ns,
        min_ns_per_key: ns,
        max_ns_per_key: ns,
        put_p99_ns: loading.puts.quantile(0.99),
        write_amplification: write_amplification(&stats),
        repeats: 1,
        ..LoadRow::default()
    };
    db.close()?;
    Ok(row)
}

fn io_error(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> BenchError {
    let path = path.to_owned();
    move |source| BenchError::Io { operation, path, source }
}
