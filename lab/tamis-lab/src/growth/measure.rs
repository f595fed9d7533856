//! One step: all sides of one point, loaded, warmed and measured in rounds.

use tamis::Db;
use tamis::stats::Stats;
use tamis_bench::BenchError;
use tamis_bench::keys::KeySet;
use tamis_bench::measure::{Labels, Measurement, write_amplification};
use tamis_bench::progress::Progress;
use tamis_bench::run::Fill;
use tamis_bench::workload::Workload;
use tempfile::TempDir;

use super::Over;
use super::host::Host;
use super::load;
use super::pieces::Round;
use super::plan::{Job, KEY_BYTES, Point};
use super::rows::{LOAD, LoadRow, OP, OpRow};
use crate::elastic::memory::filter_bytes_of;
use crate::figures::Row;
use crate::figures::compare::{SAME_MEMORY, median};
use crate::figures::rows::row;
use crate::filters::Side;

/// Operations that leave the tree as it is.
pub(super) const READS: [Workload; 3] = [Workload::GetEmpty, Workload::GetExisting, Workload::Seek];
/// Puts new values under existing keys.
pub(super) const PUT: Workload = Workload::Overwrite;

/// Filter bits per key that the option allows.
const FEWEST_BITS: f64 = 0.5;
const MOST_BITS: f64 = 64.0;

/// One side's database.
struct Stand<'j> {
    side: &'j Side,
    /// Requested filter bits per key.
    bits: f64,
    db: Db,
    /// Rounds of each operation, each with its mean time.
    rounds: Vec<(Workload, Vec<(Measurement, f64)>)>,
    /// Nanoseconds of flush and compaction per put, after each round of puts.
    settled: Vec<f64>,
    /// Dropped after the database.
    _dir: TempDir,
}

/// Measures all sides of a point, and removes their databases.
pub(super) fn point(job: &Job, point: &Point, progress: &dyn Progress) -> Result<Vec<Row>, BenchError> {
    let keys = KeySet::uniform(point.keys, KEY_BYTES, job.seed)?;
    let fill = Fill::numbered(&keys);
    let (mut rows, mut stands) = (Vec::new(), Vec::new());
    for side in &job.sides {
        let (mut stand, mut load) = Stand::load(job, point, side, job.bits, &keys, progress)?;
        let first = stands.first().map_or(0, Stand::filter_bytes);
        if let Some(bits) = bits_for(job.bits, first, stand.filter_bytes()) {
            drop(stand);
            (stand, load) = Stand::load(job, point, side, bits, &keys, progress)?;
        }
        load::read_all(&stand.db, &keys, &fill)?;
        rows.push(row(&load));
        stands.push(stand);
    }
    let once = |stand: &Stand<'_>, workload, part: u64| {
        let round = Round {
            workload,
            keys: &keys,
            value_bytes: job.value_bytes,
            ops: job.ops,
            seed: job.seed.wrapping_mul(1000).wrapping_add(part),
            progress,
        };
        let before = stand.db.stats();
        let (timing, mean_ns) = round.run(&stand.db)?;
        let labels = Labels {
            experiment: "growth".into(),
            workload: workload.name().into(),
            key_set: keys.name().into(),
            keys: keys.len(),
            key_bytes: keys.key_bytes(),
            value_bytes: job.value_bytes as f64,
            threads: 1,
            settled: job.over == Over::Keys,
        };
        Ok::<_, BenchError>((Measurement::new(labels, &timing, &before, &stand.db), mean_ns))
    };
    for stand in &stands {
        for workload in READS {
            once(stand, workload, 0)?;
        }
    }
    let sides = stands.len();
    for round in 0..job.repeats {
        for workload in READS {
            for at in 0..sides {
                let stand = &mut stands[(at + round as usize) % sides];
                let measured = once(stand, workload, 1 + u64::from(round))?;
                stand.add(workload, measured);
            }
        }
    }
    let host = Host::read();
    let trees: Vec<Stats> = stands.iter().map(|stand| stand.db.stats()).collect();
    if job.over == Over::Keys {
        for round in 0..job.repeats {
            for stand in &mut stands {
                let measured = once(stand, PUT, 1 + u64::from(round))?;
                let (flush_ns, compaction_ns) = load::settle(&stand.db)?;
                stand.settled.push((flush_ns + compaction_ns) as f64 / measured.0.ops.max(1) as f64);
                stand.add(PUT, measured);
            }
        }
    }
    for (stand, tree) in stands.into_iter().zip(&trees) {
        // Puts have neither lost nor added a key.
        load::read_all(&stand.db, &keys, &fill)?;
        rows.extend(stand.finish(point, tree, host)?);
    }
    Ok(rows)
}

/// Returns the bits to ask for in place of `bits`, which gave a filter `had` bytes, so that it takes about `wanted`. `None`
/// if it does already, or there is nothing to compare.
fn bits_for(bits: f64, wanted: u64, had: u64) -> Option<f64> {
    let times = wanted as f64 / had as f64;
    let differs = wanted > 0 && had > 0 && (times - 1.0).abs() > SAME_MEMORY / 4.0;
    differs.then_some((bits * times).clamp(FEWEST_BITS, MOST_BITS))
}

impl<'j> Stand<'j> {
    fn load(
        job: &Job,
        point: &Point,
        side: &'j Side,
        bits: f64,
        keys: &KeySet,
        progress: &dyn Progress,
    ) -> Result<(Stand<'j>, LoadRow), BenchError> {
        let made = tempfile::Builder::new().prefix("tamis-bench-").tempdir();
        let dir = made.map_err(|source| BenchError::Io {
            operation: "make a directory in",
            path: std::env::temp_dir(),
            source,
        })?;
        let db = job.options(point, side, bits)?.open(dir.path().join("db"))?;
        let times = load::fill(&db, keys, job.value_bytes, point.flushes, progress)?;
        let stats = db.stats();
        let runs = stats.keyspaces.first().map_or(0, |tree| tree.runs as u64);
        if point.runs > 0 && runs != point.runs {
            return Err(BenchError::Request(format!("the tree has {runs} runs, not {}", point.runs)));
        }
        let per_put = |ns: u64| ns as f64 / keys.len().max(1) as f64;
        let load = LoadRow {
            kind: LOAD.into(),
            side: side.name().into(),
            keys: keys.len(),
            runs_asked: point.runs,
            flushes: point.flushes,
            put_ns: per_put(times.put_ns),
            flush_ns: per_put(times.flush_ns),
            compaction_ns: per_put(times.compaction_ns),
            write_amplification: write_amplification(&stats),
        };
        Ok((Stand { side, bits, db, rounds: Vec::new(), settled: Vec::new(), _dir: dir }, load))
    }

    fn filter_bytes(&self) -> u64 {
        filter_bytes_of(&self.db.stats())
    }

    fn add(&mut self, workload: Workload, measured: (Measurement, f64)) {
        match self.rounds.iter_mut().find(|(of, _)| *of == workload) {
            Some((_, rounds)) => rounds.push(measured),
            None => self.rounds.push((workload, vec![measured])),
        }
    }

    /// Returns the rows, with the tree as it was read, and closes the database.
    fn finish(self, point: &Point, stats: &Stats, host: Host) -> Result<Vec<Row>, BenchError> {
        let tree = stats.keyspaces.first().cloned().unwrap_or_default();
        let deepest = tree.levels.iter().rposition(|level| !level.runs.is_empty()).map_or(0, |at| at + 1);
        let shape: Vec<String> =
            tree.levels[..deepest].iter().map(|level| level.runs.len().to_string()).collect();
        let per_key = |bytes: u64| bytes as f64 * 8.0 / tree.entries.max(1) as f64;
        let settle_ns = median(self.settled.iter().copied()).unwrap_or(0.0);
        let op = |(workload, rounds): (Workload, Vec<(Measurement, f64)>)| {
            let (rounds, means): (Vec<Measurement>, Vec<f64>) = rounds.into_iter().unzip();
            let times = || rounds.iter().map(|m| m.ns_per_op);
            let (min_ns, max_ns) = (times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max));
            let op = OpRow {
                kind: OP.into(),
                side: self.side.name().into(),
                bits_asked: self.bits,
                runs_asked: point.runs,
                shape: shape.join("/"),
                min_ns,
                max_ns,
                mean_ns: median(means).unwrap_or(0.0),
                settle_ns_per_op: if workload == PUT { settle_ns } else { 0.0 },
                memory_bits_per_key: per_key(filter_bytes_of(stats)),
                index_bits_per_key: per_key(tree.index_bytes),
                table_bytes: tree.table_bytes,
                database_bytes: stats.memory.total(),
                resident_bytes: host.resident_bytes,
                anonymous_bytes: host.anonymous_bytes,
                available_bytes: host.available_bytes,
                fits_page_cache: (host.available_bytes > 0)
                    .then_some(tree.table_bytes <= host.available_bytes),
                l2_bytes: host.l2_bytes,
                l3_bytes: host.l3_bytes,
                measurement: Measurement::median(rounds).unwrap_or_default(),
            };
            row(&op)
        };
        let rows = self.rounds.into_iter().map(op).collect();
        self.db.close()?;
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_side_asks_for_the_bits_that_give_it_the_memory_of_the_first() {
        let close = |bits: Option<f64>, expected: f64| (bits.unwrap() - expected).abs() < 1e-9;
        assert!(close(bits_for(10.0, 1000, 970), 10.0 * 1000.0 / 970.0));
        assert!(close(bits_for(10.0, 1000, 1100), 10.0 / 1.1));
        assert_eq!(bits_for(10.0, 1000, 998), None, "the same but for rounding");
        // The first side itself, and one without a filter.
        assert_eq!((bits_for(10.0, 0, 970), bits_for(10.0, 1000, 0)), (None, None));
        assert_eq!(bits_for(10.0, 1_000_000, 1), Some(64.0));
    }
}
