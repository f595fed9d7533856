//! The workload `compact`: the time of one full compaction of a fixed input.
//!
//! The input is [`RUNS`] overlapping runs in a database of its own: an equal share each of the keys
//! in fill order. Compaction is held back until all are there; then one call merges them into a
//! single run. Its rate is given per second and per core: by the time that passed, and by the
//! processor time that the process spent meanwhile, in whichever threads.

use std::time::{Duration, Instant};

use tamis::{Db, Options};

use crate::bench::{MANY_RUNS, temporary_dir};
use crate::error::BenchError;
use crate::measure::{Labels, Measurement};
use crate::progress::{NoProgress, Progress};
use crate::run::{Fill, RunSpec, Timing, run};
use crate::value::{self, ValueSizes};
use crate::workload::Workload;
use crate::{KeySet, histogram::Histogram};

/// The number of overlapping runs of the input, if a share of the keys fits a memtable; otherwise
/// there are more.
pub const RUNS: u64 = 8;

/// Gets that check the result of a compaction.
const CHECKS: u64 = 1000;

/// The processor time that this process has spent, in all its threads, in steps of 10 ms; `None`
/// where the system does not tell.
pub fn processor_time() -> Option<Duration> {
    /// Linux counts in hundredths of a second here, whatever its clock.
    const TICK: Duration = Duration::from_millis(10);
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name, in parentheses, may contain anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut ticks = fields.split_whitespace().skip(11).map(|field| field.parse::<u32>().ok());
    Some(TICK * ticks.next()??.checked_add(ticks.next()??)?)
}

/// Loads the keys, in the order of `fill-random` with this seed, compacts them, and checks the
/// result.
pub(crate) fn measure(
    labels: Labels,
    (keys, values): (&KeySet, ValueSizes),
    options: &Options,
    seed: u64,
    progress: &dyn Progress,
) -> Result<Measurement, BenchError> {
    let dir = temporary_dir()?;
    let mut options = options.clone();
    options.keyspace.auto_compaction = false;
    (options.keyspace.slowdown_runs, options.keyspace.stop_runs) = (MANY_RUNS, MANY_RUNS);
    let db = options.open(dir.path().join("db"))?;
    let fill = Fill::random(keys, seed);
    load(&db, (keys, values), &fill, progress)?;

    let before = db.stats();
    let entries = before.keyspaces.first().map_or(0, |tree| tree.entries);
    progress.begin("compact", 0, "");
    let (start, processor) = (Instant::now(), processor_time());
    db.compact()?;
    let (wall, spent) = (start.elapsed(), processor_time());
    progress.end();

    let wall_ns = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
    let per_second = entries as f64 / wall.as_secs_f64().max(1e-9);
    let mut latency = Histogram::default();
    latency.record(wall_ns / entries.max(1));
    let timing =
        Timing { ops: entries, busy_ns: wall_ns, wall_ns, ops_per_second: per_second, latency, hits: 0 };
    let mut measurement = Measurement::new(labels, &timing, &before, &db);
    let after = db.stats().write;
    measurement.compaction_read_bytes = after.compaction_read_bytes - before.write.compaction_read_bytes;
    measurement.compaction_written_bytes = after.compaction_write_bytes - before.write.compaction_write_bytes;
    let spent = processor.zip(spent).map_or(Duration::ZERO, |(before, after)| after - before);
    measurement.processor_ns = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
    let check = RunSpec {
        workload: Workload::GetExisting,
        keys,
        value_bytes: values,
        threads: 1,
        ops: CHECKS,
        seed,
        fill,
        pattern: None,
        progress: &NoProgress,
    };
    run(&db, &check)?;
    db.close()?;
    Ok(measurement)
}

/// Puts every key once, and ends a run after each share of them.
fn load(
    db: &Db,
    (keys, values): (&KeySet, ValueSizes),
    fill: &Fill,
    progress: &dyn Progress,
) -> Result<(), BenchError> {
    progress.begin("load the input of compact", fill.loaded, "keys");
    let (mut key, mut bytes) = (Vec::new(), Vec::new());
    for share in 0..RUNS {
        let part = fill.loaded * share / RUNS..fill.loaded * (share + 1) / RUNS;
        let count = part.end - part.start;
        for place in part {
            key.clear();
            keys.existing(fill.at(place), &mut key);
            let tag = value::tag_of(&key);
            bytes.clear();
            value::fill(tag, 0, values.of(tag), &mut bytes);
            db.put(&key, &bytes)?;
        }
        db.flush()?;
        progress.advance(count);
    }
    progress.end();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_runs_become_one_and_every_byte_of_them_is_counted() {
        let keys = KeySet::uniform(4000, 8, 1).unwrap();
        let labels = Labels { workload: Workload::Compact.name().to_owned(), ..Labels::default() };
        let m = measure(labels, (&keys, 100.into()), &Options::default(), 3, &NoProgress).unwrap();
        assert_eq!((m.ops, m.runs), (4000, 1));
        let raw = 4000 * 108;
        assert!(m.compaction_read_bytes > raw && m.compaction_written_bytes > raw, "{m:?}");
        assert!(m.compaction_written_bytes < 2 * raw, "one merge wrote everything once: {m:?}");
    }
}
