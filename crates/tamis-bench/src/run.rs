//! Runs one workload against an open store of tamis or another engine, and times it.
//!
//! Each thread prepares a chunk of operations (keys, values, expected answers), untimed, then
//! executes and checks it, timed as a whole by the wall clock. Individual operations are timed only
//! at a sampling rate, so that reading the clock does not distort the total. Threads share only the
//! database.

mod chunk;
mod execute;

use std::time::Instant;

use crate::error::BenchError;
use crate::histogram::Histogram;
use crate::keys::KeySet;
use crate::pattern::Pattern;
use crate::progress::Progress;
use crate::random::Permutation;
use crate::store::Store;
use crate::value::ValueSizes;
use crate::workload::{INSERT_EVERY, MULTI_GET_KEYS, Workload};
use chunk::Source;
use execute::Executor;

/// The specification of a run.
#[derive(Clone)]
pub struct RunSpec<'a> {
    /// The operations.
    pub workload: Workload,
    /// The keys of the operations.
    pub keys: &'a KeySet,
    /// The sizes of values in bytes.
    pub value_bytes: ValueSizes,
    /// The number of concurrent threads, at least 1.
    pub threads: usize,
    /// Operations over all threads. A fill ignores it and puts every key of `fill` once;
    /// `multi-get` rounds it up to whole batches per thread.
    pub ops: u64,
    /// The seed of every random choice.
    pub seed: u64,
    /// The keys in the database when the run begins.
    pub fill: Fill,
    /// The distribution of accessed keys, in place of the workload's: see [`Pattern`]. `None` for
    /// the workload's.
    pub pattern: Option<&'a Pattern>,
    /// Notified of every finished chunk.
    pub progress: &'a dyn Progress,
}

/// The keys with which a database was filled, and their order.
#[derive(Clone, Debug)]
pub struct Fill {
    /// The number of keys loaded, counted in fill order.
    pub loaded: u64,
    /// The fill order; `None` is that of the keys' numbers.
    order: Option<Permutation>,
}

impl Fill {
    /// Returns all keys in the order of `fill-random` with this seed.
    pub fn random(keys: &KeySet, seed: u64) -> Fill {
        Fill { loaded: keys.len(), order: Some(Permutation::new(keys.len(), seed)) }
    }

    /// Returns all keys in the order of their numbers.
    pub fn numbered(keys: &KeySet) -> Fill {
        Fill { loaded: keys.len(), order: None }
    }

    /// Returns the number of the key at `place` in fill order.
    #[inline]
    pub fn at(&self, place: u64) -> u64 {
        self.order.as_ref().map_or(place, |order| order.at(place))
    }

    /// Returns the number of a loaded key: `i`, or the nearest before it (wrapping to the last
    /// key).
    #[inline]
    pub fn present(&self, i: u64, keys: u64) -> u64 {
        let mut i = i;
        // At most a few percent are ever held back, so this takes a step or two.
        while self.order.as_ref().map_or(i, |order| order.place_of(i)) >= self.loaded {
            i = if i == 0 { keys - 1 } else { i - 1 };
        }
        i
    }

    /// Returns how many of `ops` operations of a workload insert a key; these are the next keys in
    /// fill order.
    pub fn inserts(workload: Workload, ops: u64) -> u64 {
        if workload.inserts() { ops / INSERT_EVERY } else { 0 }
    }
}

/// The timing of a run.
#[derive(Clone, Debug, Default)]
pub struct Timing {
    /// Operations done.
    pub ops: u64,
    /// Single gets that found a value.
    pub hits: u64,
    /// Nanoseconds spent in them, summed over threads.
    pub busy_ns: u64,
    /// Operations per second, summed over threads.
    pub ops_per_second: f64,
    /// Nanoseconds from the start of the first thread to the end of the last, including the
    /// generation of keys and values.
    pub wall_ns: u64,
    /// Durations of sampled operations; for `multi-get` a batch's duration divided by its keys.
    pub latency: Histogram,
}

impl Timing {
    /// Returns the mean nanoseconds of one operation on its thread.
    pub fn ns_per_op(&self) -> f64 {
        self.busy_ns as f64 / self.ops.max(1) as f64
    }
}

/// Runs the workload. Every answer is checked; the first wrong one, or the first error, ends the
/// run. Workloads that depend on the key order, `fill-seq` and `mixgraph`, sort the keys first,
/// untimed, and take 8 bytes per key meanwhile.
pub fn run<S: Store>(store: &S, spec: &RunSpec<'_>) -> Result<Timing, BenchError> {
    if !spec.workload.is_run() {
        return Err(BenchError::Request(format!("{} is not a run of operations", spec.workload)));
    }
    let threads = spec.threads.max(1) as u64;
    let ops = if spec.workload.is_fill() { spec.fill.loaded } else { spec.ops };
    let order = match spec.workload {
        Workload::FillSeq => spec.keys.ascending(),
        Workload::Mixgraph if spec.pattern.is_none() && !spec.keys.is_ordered() => spec.keys.ascending(),
        _ => Vec::new(),
    };
    spec.progress.begin(spec.workload.name(), ops, "operations");
    let begun = Instant::now();
    let parts: Vec<Result<Timing, BenchError>> = std::thread::scope(|scope| {
        let order = &order[..];
        let spawn = |thread| scope.spawn(move || run_thread(store, spec, order, thread, threads, ops));
        let handles: Vec<_> = (0..threads).map(spawn).collect();
        let join = |handle: std::thread::ScopedJoinHandle<'_, _>| {
            handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        handles.into_iter().map(join).collect()
    });
    let mut total = Timing { wall_ns: elapsed_ns(begun), ..Timing::default() };
    spec.progress.end();
    for part in parts {
        let part = part?;
        total.ops += part.ops;
        total.busy_ns += part.busy_ns;
        total.hits += part.hits;
        total.ops_per_second += part.ops_per_second;
        total.latency.merge(&part.latency);
    }
    Ok(total)
}

/// Runs the part of one thread: every `threads`-th operation from `thread` on.
fn run_thread<S: Store>(
    store: &S,
    spec: &RunSpec<'_>,
    order: &[u64],
    thread: u64,
    threads: u64,
    ops: u64,
) -> Result<Timing, BenchError> {
    let mut mine = (ops + threads - 1 - thread) / threads;
    if spec.workload.is_batched() {
        mine = mine.next_multiple_of(MULTI_GET_KEYS as u64);
    }
    let mut source = Source::new(spec, order, thread, threads);
    let mut executor = Executor::new(store.session()?, spec, sampling_for(mine));
    let mut done = 0;
    while done < mine {
        let count = source.chunk_ops().min(mine - done);
        let chunk = source.prepare(done, count);
        executor.run(chunk)?;
        done += count;
        spec.progress.advance(count);
    }
    let mut timing = executor.timing();
    timing.ops = done;
    timing.ops_per_second = done as f64 * 1e9 / timing.busy_ns.max(1) as f64;
    Ok(timing)
}

/// Returns the interval between individually timed operations: 1 for few operations, 32 for many.
fn sampling_for(ops: u64) -> u64 {
    (ops / 8192).clamp(1, 32).next_power_of_two()
}

/// Returns the nanoseconds since `start`.
fn elapsed_ns(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tamis::Db;

    use super::*;
    use crate::progress::NoProgress;
    use crate::value;

    /// Inserts of several threads must leave no gap: the next run and its checks assume that the
    /// filled part is complete.
    #[test]
    fn inserts_are_the_next_keys_in_fill_order() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path().join("db")).unwrap();
        let keys = KeySet::uniform(1000, 8, 1).unwrap();
        let mut fill = Fill::random(&keys, 5);
        fill.loaded = 800;
        let key_at = |place| {
            let mut key = Vec::new();
            keys.existing(fill.at(place), &mut key);
            key
        };
        for place in 0..fill.loaded {
            let (key, mut bytes) = (key_at(place), Vec::new());
            value::fill(value::tag_of(&key), 0, 40, &mut bytes);
            db.put(&key, &bytes).unwrap();
        }
        let there = |place| db.contains_key(key_at(place)).unwrap();
        let mut expected = fill.loaded;
        for (workload, ops) in [(Workload::YcsbD, 1010), (Workload::YcsbE, 999), (Workload::YcsbC, 500)] {
            let mut fill = fill.clone();
            fill.loaded = expected;
            let spec = RunSpec {
                workload,
                keys: &keys,
                value_bytes: 40.into(),
                threads: 3,
                ops,
                seed: 9,
                fill,
                pattern: None,
                progress: &NoProgress,
            };
            run(&db, &spec).unwrap();
            expected += Fill::inserts(workload, ops);
            assert!((0..expected).all(there) && !(expected..1000).any(there), "{workload}");
        }
        assert_eq!(expected, 800 + 50 + 49);
    }

    #[test]
    fn a_reverse_scan_over_missing_keys_is_a_wrong_answer() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path().join("db")).unwrap();
        let keys = KeySet::sequential(100, 8).unwrap();
        let spec = |workload| RunSpec {
            workload,
            keys: &keys,
            value_bytes: 20.into(),
            threads: 1,
            ops: 200,
            seed: 1,
            fill: Fill::numbered(&keys),
            pattern: None,
            progress: &NoProgress,
        };
        run(&db, &spec(Workload::FillSeq)).unwrap();
        run(&db, &spec(Workload::ReverseNext50)).unwrap();
        let mut first = Vec::new();
        keys.existing(0, &mut first);
        db.delete(&first).unwrap();
        // Most scans reach the first key and see one entry fewer than expected.
        assert!(run(&db, &spec(Workload::ReverseNext50)).unwrap_err().is_wrong_answer());
    }
}
