//! Databases of experiments: loaded once per filter, kept and reused, and copied by hard links for every figure.
//!
//! A *base* is a directory `FILTER-HASH` with a database and a card `loaded.json` that records what determines the
//! bytes of its tables: number and form of keys, values, and all options of the keyspace. It is reused if the card
//! matches. The card is written last and its base never changes afterwards, so a base whose loading was interrupted has
//! no card and is loaded again.
//!
//! All measurements use a copy (a checkpoint made of hard links), so every point of a figure begins with the same tree
//! and no hotness. Mixes that write need disk space for their writes.
//!
//! All sides have the same tree: keys are flushed in equal portions, in the same random order, and compaction has
//! finished before the next portion begins. One thread compacts, because partial merges that run at the same time
//! choose their tables by which of them ends first. There are 163 portions, or fewer of at least 500 keys, and always
//! 4k + 3, so that level 0 holds three runs, one less than start a compaction. Tables are as large as four portions, at
//! most 64 MiB: a database of 100,000 keys has the same number of levels as one of ten million, and tables of many
//! segments.
//!
//! One thread at a time creates and copies bases of one directory; two processes must not share one.

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

use crate::elastic::memory::bits_per_key;
use crate::filters::load::{self, Loading, Plan};

/// Number of flushes that load a base, if it is not tiny.
const MOST_FLUSHES: u64 = 163;

/// Minimum number of keys of a flush.
const FLUSH_KEYS: u64 = 500;

/// Minimum number of keys: enough for seven flushes.
pub const FEWEST_KEYS: u64 = 5000;

/// One in this number of keys is held back for workloads that insert.
const HELD_BACK: u64 = 50;

/// Maximum overhead of an entry in a memtable.
const ENTRY_OVERHEAD: u64 = 64;

/// Limits of table sizes.
const TABLE_BYTES: std::ops::RangeInclusive<u64> = 32 << 10..=64 << 20;

/// Changes when bases are built differently.
const LAYOUT: u32 = 3;

const CARD: &str = "loaded.json";

/// The name of a copy within its directory.
const COPY: &str = "db";

/// The data of a base.
pub(crate) struct Data<'a> {
    pub(crate) keys: &'a KeySet,
    pub(crate) value_bytes: usize,
    pub(crate) seed: u64,
    /// The portions in which keys are flushed, and the number of keys loaded first; `None` for this module's defaults.
    pub(crate) portions: Option<(Plan, u64)>,
}

impl Data<'_> {
    /// Returns the order of loading, and the number of keys loaded first.
    pub(crate) fn fill(&self) -> Fill {
        let mut fill = Fill::random(self.keys, self.seed);
        fill.loaded = self.portions.map_or(loaded_of(self.keys.len()), |(_, loaded)| loaded);
        fill
    }

    fn plan(&self) -> Plan {
        // Only the plan's portions matter here: the tree's shape is the policy's own.
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
        // Just large enough that no memtable is full before its explicit flush.
        keyspace.memtable_bytes = (portion * (entry + ENTRY_OVERHEAD)).max(4 << 10);
        keyspace.table_bytes = (4 * portion * entry).clamp(*TABLE_BYTES.start(), *TABLE_BYTES.end());
        options.memtable_budget_bytes = options.memtable_budget_bytes.max(keyspace.memtable_bytes * 8);
    }
}

/// Returns the number of flushes that load `keys` keys: 4k + 3.
fn flushes_of(keys: u64) -> u64 {
    let most = (keys / FLUSH_KEYS).clamp(7, MOST_FLUSHES);
    (most + 1) / 4 * 4 - 1
}

/// Returns the number of keys loaded before the first measurement, out of `keys` in total.
pub(super) fn loaded_of(keys: u64) -> u64 {
    keys - keys / HELD_BACK
}

/// A loaded base.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadRow {
    /// `load`.
    pub kind: String,
    /// The experiment.
    pub experiment: String,
    /// The filter.
    pub filter: String,
    /// The varied setting of loading; empty if nothing varies.
    pub point: String,
    /// Number of keys.
    pub keys: u64,
    /// Sorted runs of each level: `3/1/1/1`.
    pub runs: String,
    /// Number of tables.
    pub tables: usize,
    /// Bytes of the tables.
    pub table_bytes: u64,
    /// Filter bits in memory per entry after loading, with all that manages them.
    pub filter_bits_per_key: f64,
    /// Median loading time per key, including flushes and waits for compaction.
    pub load_ns_per_key: f64,
    /// Loading time per key of the fastest load.
    pub min_ns_per_key: f64,
    /// Loading time per key of the slowest load.
    pub max_ns_per_key: f64,
    /// 99th percentile of the durations of puts.
    pub put_p99_ns: u64,
    /// Bytes written divided by bytes put, including the log.
    pub write_amplification: f64,
    /// Number of loads.
    pub repeats: u32,
    /// Whether it was loaded by an earlier run, whose figures these are.
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
        self.db.as_ref().expect("present until it is closed")
    }

    /// Returns the directory of its files.
    pub(super) fn path(&self) -> PathBuf {
        self.dir.path().join(COPY)
    }

    /// Closes it, and opens it again.
    pub(super) fn reopened(mut self, options: &Options) -> Result<Copy, BenchError> {
        self.db.take().expect("closed once").close()?;
        Ok(Copy { db: Some(options.clone().open(self.path())?), dir: self.dir })
    }

    /// Opens another copy of the files as they are: what a crash of the process would leave. Nothing may be written meanwhile.
    pub(super) fn after_crash(&self, options: &Options) -> Result<Copy, BenchError> {
        let place = self.dir.path().parent().expect("a directory within another");
        let made = tempfile::Builder::new().prefix("copy-").tempdir_in(place);
        let made = made.map_err(io_error("make a directory in", place))?;
        let (from, to) = (self.path(), made.path().join(COPY));
        fs::create_dir(&to).map_err(io_error("make", &to))?;
        for entry in fs::read_dir(&from).map_err(io_error("look into", &from))? {
            let entry = entry.map_err(io_error("look into", &from))?;
            let (name, path) = (entry.file_name(), entry.path());
            // Tables never change.
            let is_table = path.extension().is_some_and(|extension| extension == "tam");
            if !is_table || fs::hard_link(&path, to.join(&name)).is_err() {
                fs::copy(&path, to.join(&name)).map_err(io_error("copy", &path))?;
            }
        }
        Ok(Copy { db: Some(options.clone().open(&to)?), dir: made })
    }

    pub(crate) fn close(mut self) -> Result<(), BenchError> {
        Ok(self.db.take().expect("closed once").close()?)
    }
}

impl Bases {
    /// Keeps bases in `dir`, or in a temporary directory that is removed on drop.
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

    /// Loads a base unless it exists, and returns its row.
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

    /// Opens a copy of an existing base.
    pub(crate) fn copy(&self, filter: &str, options: &Options, data: &Data<'_>) -> Result<Copy, BenchError> {
        self.copy_in(None, filter, options, data)
    }

    /// Opens a copy in another directory than that of the bases: on another file system the copy duplicates all bytes.
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
        let base = options.clone().open(dir.join("db"))?;
        base.checkpoint(&path)?;
        base.close()?;
        Ok(Copy { db: Some(options.clone().open(&path)?), dir: made })
    }

    /// Returns the directory of the bases.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Loads a temporary database at full speed, with concurrent compactions.
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
    let mut options = options.clone();
    if in_step {
        options.background_threads = 1;
    }
    let db = options.open(path)?;
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
        filter_bits_per_key: bits_per_key(&stats),
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
