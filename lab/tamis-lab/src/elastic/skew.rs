//! Skew of the queries of tables and of their parts.
//!
//! Every get is explained ([`tamis::Db::explain_get`]): the path names each table whose key range contains the key, up
//! to the one where it is found, whatever the filters answer. These are the queries without filters, counted exactly
//! and independently of the engine's own counts of hotness.
//!
//! The bounds of tables are found with a sweep of explained gets of absent keys over the whole key space, so the parts
//! of a table are exact to a step of the sweep.

use std::collections::BTreeMap;

use tamis::Db;
use tamis::explain::ExplainStep;
use tamis_bench::BenchError;
use tamis_bench::pattern::Pattern;
use tamis_bench::progress::Progress;
use tamis_bench::random::Random;

use crate::elastic::plan::{Job, Opened};
use crate::elastic::points::Point;
use crate::elastic::rows::{Rows, TableRow};

/// Number of parts of a table.
pub(super) const REGIONS: usize = 64;

/// Average number of steps of the sweep per table of a run.
const STEPS: u64 = 256;

/// A table: its position in the tree and in the key space, and the number of its queries.
#[derive(Clone, Debug)]
struct Asked {
    level: usize,
    run: u64,
    first: u64,
    last: u64,
    regions: [u64; REGIONS],
}

impl Asked {
    fn count(&mut self, key: u64) {
        let keys = self.last - self.first + 1;
        let at = key.clamp(self.first, self.last) - self.first;
        self.regions[(u128::from(at) * REGIONS as u128 / u128::from(keys)) as usize] += 1;
    }

    fn total(&self) -> u64 {
        self.regions.iter().sum()
    }

    /// Returns (maximum − minimum) / mean over the parts; 0 without queries.
    fn spread(&self) -> f64 {
        let (most, least) = (self.regions.iter().max(), self.regions.iter().min());
        let mean = self.total() as f64 / REGIONS as f64;
        match (most, least) {
            (Some(most), Some(least)) if mean > 0.0 => (most - least) as f64 / mean,
            _ => 0.0,
        }
    }
}

/// The tables by number.
type Tables = BTreeMap<u64, Asked>;

/// Measures one point.
pub(super) fn run(job: &Job, point: &Point, progress: &dyn Progress) -> Result<Rows, BenchError> {
    let mut rows = Rows::default();
    for side in &job.sides {
        let Opened { copy, load, .. } = job.open(side, &point.variant, progress)?;
        let step = (point.variant.keys / (load.tables.max(1) as u64 * STEPS)).max(1);
        rows.add_load(load);
        let mut tables = sweep(job, point, copy.db(), step, progress)?;
        count(job, point, &job.pattern(point, false)?, copy.db(), (&mut tables, progress))?;
        rows.tables.extend(tables.iter().map(|(&table, asked)| TableRow {
            kind: "table".into(),
            experiment: job.experiment.name.into(),
            side: side.name().into(),
            point: point.label.clone(),
            skew: point.spec.skew,
            locality: point.spec.locality,
            level: asked.level,
            run: asked.run,
            table,
            asked_per_get: asked.total() as f64 / job.base_ops.max(1) as f64,
            gets: job.base_ops,
            spread: asked.spread(),
        }));
        copy.close()?;
    }
    Ok(rows)
}

/// Finds all tables and their bounds.
fn sweep(
    job: &Job,
    point: &Point,
    db: &Db,
    step: u64,
    progress: &dyn Progress,
) -> Result<Tables, BenchError> {
    let mut tables = Tables::new();
    let keys = job.keys(&point.variant);
    progress.begin("find tables", keys.len(), "keys");
    let mut key = Vec::new();
    for i in (0..keys.len()).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
        key.clear();
        keys.absent(i, &mut key);
        for (level, run, table) in path(db, &key)? {
            let asked =
                tables.entry(table).or_insert(Asked { level, run, first: i, last: i, regions: [0; REGIONS] });
            asked.last = i;
        }
        progress.advance(step);
    }
    progress.end();
    Ok(tables)
}

/// Counts the job's gets.
fn count(
    job: &Job,
    point: &Point,
    pattern: &Pattern,
    db: &Db,
    (tables, progress): (&mut Tables, &dyn Progress),
) -> Result<(), BenchError> {
    let fill = job.data(&point.variant).fill();
    let mut random = Random::part(job.settings.seed, 0x736B_6577);
    let mut key = Vec::new();
    let keys = job.keys(&point.variant);
    progress.begin("explain gets", job.base_ops, "gets");
    for _ in 0..job.base_ops {
        let i = fill.present(pattern.draw(&mut random), keys.len());
        key.clear();
        match pattern.gap(&mut random) {
            Some(n) => keys.gap_key(i, n, &mut key),
            None => keys.existing(i, &mut key),
        }
        for (level, run, table) in path(db, &key)? {
            let new = Asked { level, run, first: i, last: i, regions: [0; REGIONS] };
            tables.entry(table).or_insert(new).count(i);
        }
        progress.advance(1);
    }
    progress.end();
    Ok(())
}

/// Returns level, run and number of every table that a get of `key` queries.
fn path(db: &Db, key: &[u8]) -> Result<Vec<(usize, u64, u64)>, BenchError> {
    let steps = db.explain_get(key)?.steps;
    let table = |step: ExplainStep| match step {
        ExplainStep::Run { level, run, table: Some(table), .. } => Some((level, run, table)),
        _ => None,
    };
    Ok(steps.into_iter().filter_map(table).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_that_of_the_parts() {
        let mut asked = Asked { level: 1, run: 1, first: 1000, last: 1000 + 640 - 1, regions: [0; REGIONS] };
        assert_eq!(asked.spread(), 0.0);
        for key in 1000..1640 {
            asked.count(key);
        }
        assert_eq!((asked.spread(), asked.total()), (0.0, 640));
        for _ in 0..640 {
            asked.count(1639);
        }
        // 650 in the last part and 10 in all others: a mean of 20.
        assert_eq!(asked.spread(), 640.0 / 20.0);
        // The sweep may have missed the outermost keys.
        asked.count(999);
        asked.count(1640);
        assert_eq!(asked.regions[0], 11);
    }
}
