//! Trees of exact shapes, as files in memory.
//!
//! Every run is put and flushed, oldest first, without compaction: it becomes one table of level 0, which a get treats
//! like any run. A seeded permutation assigns keys to runs, so a key of any run is a random key. Each run also has one
//! key before and one after all others, so that no filter is skipped because its table does not cover a key.

use std::path::Path;
use std::sync::Arc;

use tamis::io::{FileSystem, MemFs};
use tamis::options::FilterChoice;
use tamis::{Db, Options};
use tamis_bench::BenchError;
use tamis_bench::keys::KeySet;
use tamis_bench::progress::Progress;
use tamis_bench::random::{Permutation, mix64};
use tamis_bench::value;
use tamis_filter::{Digest, PointFilter, PointSpec, Verify};
use tamis_testkit::{Device, EmulatedFs};

use super::passes::Asked;

/// The name of mapped files.
pub(super) const MAPPED: &str = "mapped";

const PATH: &str = "/db";
/// Number of keys between reports of progress.
const TELL: u64 = 4096;
/// Maximum overhead of an entry in a memtable.
const ENTRY_OVERHEAD: u64 = 128;
/// All runs are in level 0; writes must never wait for them.
const MANY_RUNS: usize = 100_000;

/// The storage of tables.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Place {
    /// Memory, in place.
    Mapped,
    /// Memory with the latency of a device.
    Emulated(Device),
}

impl Place {
    pub(super) fn name(self) -> &'static str {
        match self {
            Place::Mapped => MAPPED,
            Place::Emulated(device) => device.name,
        }
    }

    pub(super) fn named(name: &str) -> Result<Place, BenchError> {
        if name == MAPPED {
            return Ok(Place::Mapped);
        }
        Device::named(name).map(Place::Emulated).ok_or_else(|| {
            let known: Vec<&str> = Device::EMULATED.iter().map(|device| device.name).collect();
            BenchError::Request(format!(
                "no device is called `{name}` here; known are {MAPPED}, {}",
                known.join(", ")
            ))
        })
    }

    /// Returns the number of gets in a round, at most `most`: reads should not take longer than 50 ms.
    pub(super) fn ops(self, most: u64, levels: u32, absent: u64) -> u64 {
        let Place::Emulated(device) = self else { return most };
        let reads = (100 - absent.min(100)) as f64 / 100.0 + 0.01 * f64::from(levels);
        ((5e7 / (device.read_ns as f64 * reads)) as u64).clamp(20, most.max(20))
    }

    /// Returns the number of keys in a timed piece, whose reads should take less than a time slice.
    pub(super) fn piece(self) -> u64 {
        match self {
            Place::Mapped => u64::MAX,
            Place::Emulated(device) => (300_000 / device.read_ns.max(1)).max(1),
        }
    }
}

/// Properties shared by all trees of a plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    pub(super) keys: u64,
    pub(super) key_bytes: usize,
    pub(super) value_bytes: usize,
    pub(super) bits: f64,
    pub(super) seed: u64,
}

/// A tree, closed.
pub(super) struct Built {
    files: MemFs,
    data: Data,
    set: KeySet,
    filtered: bool,
    /// The nominal rate of each run's filter, newest first; 1 without a filter.
    pub(super) rates: Vec<f64>,
}

/// An open database over a tree's files.
pub(super) struct Side {
    pub(super) db: Db,
}

impl Side {
    pub(super) fn close(self) -> Result<(), BenchError> {
        Ok(self.db.close()?)
    }
}

impl Built {
    /// Loads runs of these sizes, newest first.
    pub(super) fn new(
        data: &Data,
        runs: &[u64],
        filtered: bool,
        progress: &dyn Progress,
    ) -> Result<Built, BenchError> {
        let keys: u64 = runs.iter().sum();
        // An empty tree has no keys, but is queried for absent ones.
        let set = KeySet::uniform(keys.max(data.keys), data.key_bytes, data.seed)?;
        let rates = runs.iter().map(|&run| if filtered { rate(run, data.bits) } else { Ok(1.0) });
        let rates = rates.collect::<Result<_, _>>()?;
        let built = Built { files: MemFs::new(), data: *data, set, filtered, rates };
        let db = built.options(Arc::new(built.files.clone()), true)?.open(PATH)?;
        let order = Permutation::new(keys.max(1), mix64(data.seed));
        let (mut key, mut bytes) = (Vec::new(), Vec::new());
        progress.begin("load", keys, "keys");
        let mut end = keys;
        for &run in runs.iter().rev() {
            db.put([0u8], [])?;
            db.put(vec![0xFF; data.key_bytes + 1], [])?;
            for place in end - run..end {
                key.clear();
                built.set.existing(order.at(place), &mut key);
                bytes.clear();
                value::fill(value::tag_of(&key), 0, data.value_bytes, &mut bytes);
                db.put(&key, &bytes)?;
                if place.is_multiple_of(TELL) {
                    progress.advance(TELL);
                }
            }
            end -= run;
            db.flush()?;
        }
        progress.end();
        let made = db.stats().keyspaces.first().map_or(0, |tree| tree.runs);
        db.close()?;
        match made == runs.len() {
            true => Ok(built),
            false => Err(BenchError::Request(format!("the tree has {made} runs, not {}", runs.len()))),
        }
    }

    fn options(&self, files: Arc<dyn FileSystem>, sharing: bool) -> Result<Options, BenchError> {
        let mut options = Options { file_system: Some(files), hash_sharing: sharing, ..Options::default() };
        options.set("keyspace.compression", "none")?;
        // Without a cache, a get reads every block that it needs.
        options.cache_bytes = 0;
        let entry = (self.data.key_bytes + self.data.value_bytes) as u64 + ENTRY_OVERHEAD;
        let keyspace = &mut options.keyspace;
        keyspace.auto_compaction = false;
        keyspace.read_compaction = false;
        keyspace.filter = if self.filtered { FilterChoice::BlockedBloom } else { FilterChoice::None }.into();
        keyspace.bits_per_key = self.data.bits;
        keyspace.memtable_bytes = (self.set.len() + 2) * entry * 2;
        keyspace.table_bytes = keyspace.memtable_bytes;
        keyspace.slowdown_runs = MANY_RUNS;
        keyspace.stop_runs = MANY_RUNS;
        options.memtable_budget_bytes = options.keyspace.memtable_bytes * 4;
        Ok(options)
    }

    /// Opens a copy of the tree, made of hard links, so that several can be open.
    pub(super) fn open(&self, place: Place, sharing: bool) -> Result<Side, BenchError> {
        let copy = format!("/copy-{}-{sharing}", place.name());
        if self.files.exists(Path::new(&copy)).unwrap_or(false) {
            self.files.remove_dir_all(Path::new(&copy)).map_err(|source| BenchError::Io {
                operation: "remove",
                path: copy.clone().into(),
                source,
            })?;
        }
        let base: Arc<dyn FileSystem> = Arc::new(self.files.clone());
        let db = self.options(base.clone(), sharing)?.open(PATH)?;
        db.checkpoint(&copy)?;
        db.close()?;
        let Place::Emulated(device) = place else {
            return Ok(Side { db: self.options(base, sharing)?.open(&copy)? });
        };
        let emulated = EmulatedFs::new(base, device);
        emulated.set_on(false);
        let db = self.options(Arc::new(emulated.clone()), sharing)?.open(&copy)?;
        emulated.set_on(true);
        Ok(Side { db })
    }

    /// Returns a sequence of `ops` keys, `absent` percent of which do not exist.
    pub(super) fn keys(&self, absent: u64, ops: u64, seed: u64) -> Asked<'_> {
        Asked::new(&self.set, self.data.key_bytes, absent, ops, seed)
    }
}

/// Returns the nominal rate of a filter of `keys` keys: small ones are rounded up to whole lines.
fn rate(keys: u64, bits: f64) -> Result<f64, BenchError> {
    // Two more keys mark the ends of the run.
    let digests: Vec<Digest> = (0..keys + 2).map(|key| Digest::from_u64(mix64(key))).collect();
    let filter = PointFilter::build(PointSpec::BlockedBloom, &digests, bits, 0, Verify::No);
    match filter {
        Ok(filter) => Ok(filter.expected_rate()),
        Err(why) => Err(BenchError::Request(format!("a filter could not be built: {why}"))),
    }
}
