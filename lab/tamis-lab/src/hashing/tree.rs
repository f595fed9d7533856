//! Trees of an exact shape: built run by run, kept, and opened twice.
//!
//! Every run is written as external tables in one pass over all keys in order, and ingested oldest first, so nothing is
//! ever rewritten: loading costs one write of the data, whatever the shape. A seeded permutation assigns keys to runs,
//! so a key of any run is a random key. The oldest run, nine tenths of the data at ratio 10, consists of tables of 2
//! MiB as in the paper, or larger ones if there would be more than [`MOST_TABLES`]; the others are one table each.
//!
//! A tree is a directory `hash-HASH` with a database and a card, written last, that records its contents: the tree is
//! reused if the card matches, and loaded again if there is none. Measurements use copies whose files are hard links to
//! the tree's.
//!
//! Memory while loading: 8 bytes per key for its place, 8 for its digest, and half a mebibyte per run.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tamis::ingest::{ExternalTableBuilder, IngestOptions};
use tamis::io::FileSystem;
use tamis::options::FilterChoice;
use tamis::{Db, Error, Options};
use tamis_bench::BenchError;
use tamis_bench::keys::KeySet;
use tamis_bench::progress::Progress;
use tamis_bench::random::{Permutation, mix64};
use tamis_bench::value;
use tamis_testkit::EmulatedFs;
use tempfile::TempDir;

use super::design::Shape;
use super::rows::{EACH, SHARED};
use crate::medium::Way;

/// Size of the paper's tables.
const TABLE_BYTES: u64 = 2 << 20;

/// Approximate maximum number of tables of the oldest run.
const MOST_TABLES: u64 = 256;

/// Changes when trees are built differently.
const LAYOUT: u32 = 1;

const CARD: &str = "loaded.txt";

/// Number of keys between reports of progress.
const TELL: u64 = 4096;

/// A tree that can be opened, and the keys in it.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) shape: Shape,
    pub(super) keys: KeySet,
    dir: PathBuf,
}

/// The directory of all trees, and the tree that was requested last.
#[derive(Debug)]
pub(super) struct Trees {
    dir: PathBuf,
    seed: u64,
    /// Temporary trees are not reused later, so only one is kept.
    temporary: Option<TempDir>,
    current: Option<Arc<Tree>>,
}

impl Trees {
    /// Keeps trees in `dir`, or in a temporary directory that is removed on drop.
    pub(super) fn in_dir(dir: Option<&Path>, seed: u64) -> Result<Trees, BenchError> {
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
        Ok(Trees { dir, seed, temporary, current: None })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the tree of this shape: the current one, one on disk, or a new one.
    pub(super) fn of(&mut self, shape: &Shape, progress: &dyn Progress) -> Result<Arc<Tree>, BenchError> {
        if let Some(tree) = self.current.as_ref().filter(|tree| tree.shape == *shape) {
            return Ok(tree.clone());
        }
        if let (Some(old), Some(_)) = (self.current.take(), &self.temporary) {
            // Open copies keep their files. Remains are removed with the directory.
            let _ = fs::remove_dir_all(&old.dir);
        }
        let identity =
            format!("layout {LAYOUT}, seed {}, {shape:?}\n{}", self.seed, options(shape)?.keyspace.to_text());
        let hash = mix64(value::tag_of(identity.as_bytes()));
        let dir = self.dir.join(format!("hash-{hash:016x}"));
        let keys = KeySet::uniform(shape.keys(), shape.key_bytes, self.seed)?;
        let tree = Tree { shape: shape.clone(), keys, dir };
        let card = tree.dir.join(CARD);
        if fs::read_to_string(&card).ok().as_deref() != Some(&identity) {
            if tree.dir.exists() {
                fs::remove_dir_all(&tree.dir).map_err(io_error("remove", &tree.dir))?;
            }
            fs::create_dir_all(&tree.dir).map_err(io_error("make", &tree.dir))?;
            tree.load(self.seed, progress)?;
            fs::write(&card, identity).map_err(io_error("write", &card))?;
        }
        let tree = Arc::new(tree);
        self.current = Some(tree.clone());
        Ok(tree)
    }
}

/// Returns the options of a tree except the file system and sharing.
fn options(shape: &Shape) -> Result<Options, BenchError> {
    let mut options = Options::default();
    options.set("keyspace.compression", "none")?;
    // Without a cache, a get reads every block that it needs.
    options.cache_bytes = 0;
    let keyspace = &mut options.keyspace;
    keyspace.auto_compaction = false;
    keyspace.read_compaction = false;
    keyspace.filter = FilterChoice::BlockedBloom.into();
    keyspace.bits_per_key = shape.bits;
    Ok(options)
}

impl Tree {
    fn db(&self) -> PathBuf {
        self.dir.join("db")
    }

    /// Writes and ingests all runs.
    fn load(&self, seed: u64, progress: &dyn Progress) -> Result<(), BenchError> {
        let options = options(&self.shape)?;
        let staging = self.dir.join("runs");
        fs::create_dir_all(&staging).map_err(io_error("make", &staging))?;
        progress.begin("load", self.keys.len(), "keys");
        let files = self.write_runs(&staging, &options, seed, progress)?;
        let db = options.open(self.db())?;
        for files in files.iter().rev() {
            let ingest = IngestOptions { move_files: true, verify: false };
            db.default_keyspace().ingest(files, ingest)?;
        }
        progress.end();
        let runs = db.stats().keyspaces[0].runs;
        db.close()?;
        let _ = fs::remove_dir_all(&staging);
        match runs == self.shape.runs.len() {
            true => Ok(()),
            false => Err(BenchError::Request(format!(
                "the tree has {runs} runs instead of {}: it does not have the paper's shape",
                self.shape.runs.len()
            ))),
        }
    }

    /// Writes the tables of each run, newest run first.
    fn write_runs(
        &self,
        staging: &Path,
        options: &Options,
        seed: u64,
        progress: &dyn Progress,
    ) -> Result<Vec<Vec<PathBuf>>, BenchError> {
        let mut ends = Vec::new();
        let mut end = 0;
        for size in &self.shape.runs {
            end += size;
            ends.push(end);
        }
        let oldest = ends.len() - 1;
        let table_bytes = TABLE_BYTES.max(self.shape.bytes() / MOST_TABLES);
        let mut runs: Vec<RunWriter<'_>> = (0..ends.len())
            .map(|run| RunWriter {
                run,
                table_bytes: if run == oldest { table_bytes } else { u64::MAX },
                staging,
                options,
                open: None,
                files: Vec::new(),
            })
            .collect();
        // Sorts below any key, since it is shorter.
        let (mut key, mut bytes) = (vec![0], Vec::new());
        for run in &mut runs {
            run.put(&key, b"")?;
        }
        let order = Permutation::new(self.keys.len(), mix64(seed));
        for (done, number) in (1u64..).zip(self.keys.ascending()) {
            key.clear();
            self.keys.existing(number, &mut key);
            bytes.clear();
            value::fill(value::tag_of(&key), 0, self.shape.value_bytes, &mut bytes);
            let place = order.at(number);
            runs[ends.partition_point(|&end| end <= place)].put(&key, &bytes)?;
            if done.is_multiple_of(TELL) {
                progress.advance(TELL);
            }
        }
        progress.advance(self.keys.len() % TELL);
        key.clear();
        // Sorts above any key, since it is longer.
        key.resize(self.shape.key_bytes + 1, 0xFF);
        runs.iter_mut().try_for_each(|run| run.put(&key, b""))?;
        runs.into_iter().map(RunWriter::finish).collect()
    }

    /// Opens both sides on copies, at full speed. Returns the reason if the device is not available; `dir` is for
    /// copies.
    pub(super) fn open(&self, way: Way, dir: &Path) -> Result<Result<Pair, String>, BenchError> {
        let place = match way.medium.place(dir, self.shape.bytes()) {
            Ok(place) => place,
            Err(why) => return Ok(Err(why)),
        };
        let place = place.as_deref().unwrap_or(dir);
        let made = tempfile::Builder::new().prefix("tamis-copy-").tempdir_in(place);
        let made = made.map_err(io_error("make a directory in", place))?;
        let paths = [EACH, SHARED].map(|side| made.path().join(side));
        let options = options(&self.shape)?;
        // The second copy is made from the first, since the first may have moved the bytes to another file system.
        for (from, to) in [(&self.db(), &paths[0]), (&paths[0], &paths[1])] {
            let db = options.clone().open(from)?;
            db.checkpoint(to)?;
            db.close()?;
        }
        let mut sides = Vec::new();
        for (name, path) in [EACH, SHARED].into_iter().zip(paths) {
            let fs = EmulatedFs::new(way.medium.base(), way.device);
            fs.set_on(false);
            let file_system: Arc<dyn FileSystem> = Arc::new(fs.clone());
            let hash_sharing = name == SHARED;
            let options = Options { hash_sharing, file_system: Some(file_system), ..options.clone() };
            sides.push(Side { db: options.open(path)?, fs });
        }
        Ok(Ok(Pair { sides, _dir: made }))
    }
}

/// One side with a database of its own.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) db: Db,
    pub(super) fs: EmulatedFs,
}

/// Both sides: one digest per filter, and one for all.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) sides: Vec<Side>,
    /// Dropped after the databases.
    _dir: TempDir,
}

/// Distributes the keys of one run, which arrive in order, over tables.
struct RunWriter<'a> {
    run: usize,
    table_bytes: u64,
    staging: &'a Path,
    options: &'a Options,
    open: Option<ExternalTableBuilder>,
    files: Vec<PathBuf>,
}

impl RunWriter<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        if self.open.as_ref().is_some_and(|table| table.estimated_bytes() >= self.table_bytes) {
            self.close()?;
        }
        let table = match &mut self.open {
            Some(table) => table,
            none => {
                let path = self.staging.join(format!("{}-{}.tam", self.run, self.files.len()));
                let table =
                    ExternalTableBuilder::create(&path, &self.options.keyspace).map_err(Error::from)?;
                self.files.push(path);
                none.insert(table)
            }
        };
        Ok(table.put(key, value).map_err(Error::from)?)
    }

    fn close(&mut self) -> Result<(), BenchError> {
        if let Some(table) = self.open.take() {
            table.finish().map_err(Error::from)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<PathBuf>, BenchError> {
        self.close()?;
        Ok(self.files)
    }
}

fn io_error(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> BenchError {
    let path = path.to_owned();
    move |source| BenchError::Io { operation, path, source }
}
