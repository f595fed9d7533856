//! Simulates a small tree under a skewed workload.

use super::*;

const LOWEST: usize = 2000;
/// The number of segments of each run; each segment of an upper run covers ten or a hundred of the lowest.
const RUNS: [usize; 3] = [LOWEST, 200, 20];
/// Four bits per key.
const RATE: f64 = 0.146;
const UNIT: u64 = 4096;
/// The probability that a requested key is in the lowest run.
const PRESENT: f64 = 0.5;

/// Pseudo-random numbers from 0 to 1: SplitMix64.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

struct Simulation {
    manager: Manager,
    numbers: Numbers,
    /// The fraction of gets that go to ranks up to this one.
    cumulated: Vec<f64>,
    /// The segment of the lowest run with this rank.
    segment: Vec<usize>,
    budget_units: usize,
    interval: u32,
}

impl Simulation {
    fn new() -> Simulation {
        Simulation::of(0.99, RUNS.iter().sum(), 1)
    }

    /// Simulates gets of segments whose frequency falls with their rank to the power of `skew`, with a budget of `budget_units`
    /// units and one get in `interval` counted.
    fn of(skew: f64, budget_units: usize, interval: u32) -> Simulation {
        let config = HotnessConfig { life_time: None, inheritance: true };
        let mut manager = Manager::new(config, budget_units as u64 * UNIT);
        manager.sample(interval);
        for (table, &segments) in RUNS.iter().enumerate() {
            let segment = |i: usize| SegmentSpec {
                start: KeyBytes::from((i as u32).to_be_bytes()),
                keys: 8192,
                unit_bytes: UNIT,
            };
            let spec = TableSpec {
                id: table as u64,
                units: 6,
                rate: RATE,
                segments: (0..segments).map(segment).collect(),
                end: KeyEnd::Unbounded,
            };
            let hotness = manager.inherited(&spec, Origin::Nothing, segments as u64);
            manager.add_table(spec, hotness);
        }
        for load in manager.fill(&[0, 1, 2]) {
            assert!(manager.loaded(&load, Outcome::Done));
        }
        let weights: Vec<f64> = (1..=LOWEST).map(|rank| 1.0 / (rank as f64).powf(skew)).collect();
        let sum: f64 = weights.iter().sum();
        let cumulated = weights.iter().scan(0.0, |at, weight| {
            *at += weight / sum;
            Some(*at)
        });
        let mut numbers = Numbers(42);
        let mut segment: Vec<usize> = (0..LOWEST).collect();
        for i in (1..LOWEST).rev() {
            segment.swap(i, (numbers.next() * (i + 1) as f64) as usize);
        }
        Simulation { manager, cumulated: cumulated.collect(), numbers, segment, budget_units, interval }
    }

    fn gets(&mut self, gets: usize) {
        for _ in 0..gets as u64 / u64::from(self.interval) {
            let at = self.numbers.next();
            let rank = self.cumulated.partition_point(|&to| to < at).min(LOWEST - 1);
            let place = self.segment[rank];
            let present = self.numbers.next() < PRESENT;
            // The others are not observed.
            self.manager.advance(self.interval.into());
            for (table, &segments) in RUNS.iter().enumerate().rev() {
                let id = id(table as u64, (place * segments / LOWEST) as u32);
                if let Some(adjustment) = self.manager.access(id, self.interval, present && table == 0) {
                    assert!(self.manager.loaded(&adjustment.load, Outcome::Done));
                }
            }
        }
    }

    /// The true number of lookups of absent keys per get, for the segments of each run.
    fn frequencies(&self) -> [Vec<f64>; 3] {
        let weight =
            |rank: usize| self.cumulated[rank] - if rank > 0 { self.cumulated[rank - 1] } else { 0.0 };
        let mut frequencies = RUNS.map(|segments| vec![0.0; segments]);
        for (table, frequencies) in frequencies.iter_mut().enumerate() {
            let absent = if table == 0 { 1.0 - PRESENT } else { 1.0 };
            for (rank, &place) in self.segment.iter().enumerate() {
                frequencies[place * RUNS[table] / LOWEST] += weight(rank) * absent;
            }
        }
        frequencies
    }

    /// The true number of wasted block reads per get, with the units that segments have.
    fn reads(&self) -> f64 {
        let frequencies = self.frequencies();
        let of_table = |table: usize| self.manager.segments_of(table as u64).zip(&frequencies[table]);
        (0..RUNS.len()).flat_map(of_table).map(|(segment, f)| f * segment.rate).sum()
    }

    /// The same with one unit per segment, and with the same bytes placed where they save most.
    fn fixed_and_best(&self) -> (f64, f64) {
        let mut reads: Vec<f64> = self.frequencies().concat();
        let fixed = reads.iter().map(|f| f * RATE).sum();
        for _ in 0..self.budget_units {
            *reads.iter_mut().max_by(|a, b| a.total_cmp(b)).expect("there are segments") *= RATE;
        }
        (fixed, reads.iter().sum())
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "measurements, shown with --nocapture")]
fn units_follow_the_hotness() {
    let mut simulation = Simulation::new();
    simulation.gets(200_000);
    let (before, (fixed, best)) = (simulation.reads(), simulation.fixed_and_best());
    let report: Report = simulation.manager.report();
    println!("E {before:.4}, with one unit each {fixed:.4}, optimum {best:.4}; {report:?}");
    assert!(before < 0.6 * fixed, "{before} {fixed}");
    assert!(best <= before && before < 1.25 * best, "{before} {best}");
    assert!((report.expected_reads / before - 1.0).abs() < 0.25, "the manager's estimate is about right");
    assert!(report.used + report.reserved <= report.budget);

    simulation.segment.rotate_left(LOWEST / 2);
    let moved = simulation.reads();
    let mut gets = 0;
    while simulation.reads() > 1.1 * before {
        simulation.gets(2000);
        gets += 2000;
        assert!(gets <= 1_000_000, "never recovered: {:?}", simulation.reads());
    }
    println!("E {moved:.4} after the shift, within 10 % again after {gets} gets");
    assert!(moved > 1.1 * before && gets > 0);
}

/// Regression: segments that are asked equally often took each other's units because their counts differ, at four loads per
/// hundred block reads. And if few gets were counted, nearly all segments were always expired and the one counted last seemed
/// the hottest, which doubled the wasted block reads.
#[test]
#[expect(clippy::print_stdout, reason = "measurements, shown with --nocapture")]
fn loads_are_few_and_units_well_placed_however_few_gets_are_counted() {
    for (skew, budget) in [(0.0, 1100), (0.99, 2220)] {
        for interval in [1, 64] {
            let mut simulation = Simulation::of(skew, budget, interval);
            simulation.gets(200_000 * interval as usize);
            let (before, mut reads) = (simulation.manager.report().loads, 0.0);
            for _ in 0..10 {
                simulation.gets(10_000 * interval as usize);
                reads += 10_000.0 * f64::from(interval) * (PRESENT + simulation.reads());
            }
            let loads = (simulation.manager.report().loads - before) as f64 / reads;
            let (found, (_, best)) = (simulation.reads(), simulation.fixed_and_best());
            println!(
                "skew {skew}, {budget} units, one get in {interval}: {loads:.5} loads per read, E {found:.4}, best {best:.4}"
            );
            assert!(
                loads < 0.01,
                "skew {skew}, {budget} units, one get in {interval}: {loads} loads per read"
            );
            assert!(
                found < 1.15 * best,
                "skew {skew}, {budget} units, one get in {interval}: {found} {best}"
            );
        }
    }
}
