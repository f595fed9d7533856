//! One side of a point: its database and its measurements.

use tamis_bench::BenchError;
use tamis_bench::bench::{Bench, BenchConfig};
use tamis_bench::measure::{Measurement, write_amplification};
use tamis_bench::progress::Progress;
use tamis_bench::run::Fill;
use tamis_bench::workload::Workload;

use super::job::{Job, Point};
use super::load::{self, Loading};
use super::probe_time::{Nothing, Queries};
use super::{LoadRow, Metric, ReadRow, Side};
use crate::elastic::memory::{bits_per_key, filter_bytes_of};
use crate::figures::compare::median;

/// One side's database and its measurements.
pub(super) struct Stand<'a> {
    side: Side,
    key_set: String,
    bench: Bench<'a>,
    loading: Loading,
    load_write_amplification: f64,
    loaded_runs: usize,
    /// Per workload of the job: its queries, if the filters' part of their time is measured, and the times so far.
    filters: Vec<(Option<Queries>, Vec<f64>)>,
    /// By workload and threads, in the order of the job.
    reads: Vec<(usize, usize, Vec<Measurement>)>,
}

impl<'a> Stand<'a> {
    pub(super) fn load(
        job: &Job,
        side: &Side,
        point: &Point,
        progress: &'a dyn Progress,
    ) -> Result<Self, BenchError> {
        let keys = &job.keys(point)?;
        let values = job.settings.value_bytes.into();
        let config = BenchConfig {
            experiment: job.experiment.name.to_owned(),
            workloads: Vec::new(),
            keys: keys.clone(),
            value_bytes: values,
            threads: 1,
            ops: Some(job.ops),
            warmup: None,
            repeats: job.repeats,
            pattern: None,
            seed: job.settings.seed,
            settled: true,
            options: job.options(side, point)?,
            dir: None,
        };
        let mut order = match job.experiment.shift_from {
            Some(_) => Fill::numbered(keys),
            None => Fill::random(keys, job.settings.seed),
        };
        order.loaded = job.plan.keys_after(job.flushes_first());
        let mut bench = Bench::open(config, progress)?;
        progress.begin("load", order.loaded, "keys");
        let advance = |n| progress.advance(n);
        // The shape of a counted tree does not depend on the speed of compactions; that of others must not.
        let in_step = !job.experiment.counted;
        let loading = load::fill(bench.db(), keys, &order, &job.plan, values, in_step, &advance)?;
        progress.end();
        bench.set_fill(order);
        let stats = bench.db().stats();
        let queries = |&workload: &Workload| {
            let asks = side.is_filter().then_some(workload);
            (asks.and_then(|of| Queries::of(of, keys, bench.fill(), job.settings.seed)), Vec::new())
        };
        let filters = job.workloads.iter().map(queries).collect();
        Ok(Stand {
            side: side.clone(),
            key_set: keys.name().to_owned(),
            loading,
            load_write_amplification: write_amplification(&stats),
            loaded_runs: stats.keyspaces.first().map_or(0, |tree| tree.runs),
            bench,
            filters,
            reads: Vec::new(),
        })
    }

    pub(super) fn read(
        &mut self,
        job: &Job,
        workload: Workload,
        at: usize,
        threads: usize,
        round: u32,
    ) -> Result<(), BenchError> {
        self.bench.set_threads(threads);
        let measurement = self.bench.measure_once(workload, u64::from(round))?;
        let mut fill = self.bench.fill().clone();
        fill.loaded = (fill.loaded + Fill::inserts(workload, job.ops)).min(job.plan.keys);
        self.bench.set_fill(fill);
        match self.reads.iter_mut().find(|(of, with, _)| (*of, *with) == (at, threads)) {
            Some((_, _, rounds)) => rounds.push(measurement),
            None => self.reads.push((at, threads, vec![measurement])),
        }
        Ok(())
    }

    /// Times the filters' part of a workload's operations, if it has one.
    pub(super) fn time_filters(&mut self, at: usize, nothing: &Nothing) -> Result<(), BenchError> {
        let (Some(queries), times) = &mut self.filters[at] else { return Ok(()) };
        let (with, without) = (queries.ns(self.bench.db())?, queries.ns(nothing.db())?);
        times.push((with - without).max(0.0));
        Ok(())
    }

    /// Returns the rows, and removes the database.
    pub(super) fn finish(self, job: &Job, point: &Point) -> Result<(LoadRow, Vec<ReadRow>), BenchError> {
        let Stand { side, bench, loading, filters, reads, .. } = self;
        let stats = bench.db().stats();
        let tree = stats.keyspaces.first().cloned().unwrap_or_default();
        let load = LoadRow {
            kind: "load".into(),
            experiment: job.experiment.name.into(),
            filter: side.name().into(),
            key_set: self.key_set,
            point: point.label.clone(),
            bits: point.bits,
            leveling_levels: point.leveling_levels,
            keys: loading.keys,
            runs: self.loaded_runs,
            runs_at_end: tree.runs,
            bits_asked: if side.is_filter() { point.bits.unwrap_or(side.default_bits()) } else { 0.0 },
            filter_bytes: filter_bytes_of(&stats),
            filter_bits_per_key: bits_per_key(&stats),
            load_ns_per_key: loading.ns as f64 / loading.keys.max(1) as f64,
            put_p50_ns: loading.puts.quantile(0.5),
            put_p99_ns: loading.puts.quantile(0.99),
            flush_p50_ns: loading.flushes.quantile(0.5),
            flush_p99_ns: loading.flushes.quantile(0.99),
            load_write_amplification: self.load_write_amplification,
            write_amplification: write_amplification(&stats),
            // Local filters are counted with their tables, global ones only in the bytes of all filters.
            without_filter: side.is_filter() && filter_bytes_of(&stats) == 0,
        };
        let mut rows = Vec::new();
        for (at, threads, rounds) in reads {
            let least = |of: fn(&Measurement) -> f64| rounds.iter().map(of).fold(f64::INFINITY, f64::min);
            let most = |of: fn(&Measurement) -> f64| rounds.iter().map(of).fold(0.0, f64::max);
            let filter_ns = median(filters[at].1.iter().copied()).filter(|_| threads == 1);
            rows.push(ReadRow {
                kind: "read".into(),
                side: side.name().into(),
                point: point.label.clone(),
                bits: point.bits,
                leveling_levels: point.leveling_levels,
                min_ns: least(|m| m.ns_per_op),
                max_ns: most(|m| m.ns_per_op),
                min_ops_per_second: least(|m| m.wall_ops_per_second),
                max_ops_per_second: most(|m| m.wall_ops_per_second),
                filter_ns,
                measurement: match job.experiment.metric {
                    Metric::Time => Measurement::median(rounds),
                    Metric::Throughput => Measurement::median_by(rounds, |m| m.wall_ops_per_second),
                }
                .unwrap_or_default(),
            });
        }
        bench.close()?;
        Ok((load, rows))
    }
}
