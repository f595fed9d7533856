//! Execution of the points of a figure.

use std::sync::Arc;

use tamis_bench::BenchError;
use tamis_bench::progress::Progress;
use tamis_bench::random::mix64;
use tamis_bench::report;

use super::design::{Across, Design, Point, request};
use super::passes::{Piece, Probes, Sequence};
use super::rows::{MissingRow, Setting, to_row};
use super::sums::{Round, rows_of};
use super::tree::{Pair, Side, Tree, Trees};
use crate::elastic::memory::bits_per_key;
use crate::figures::{Custom, Plan, Row, Scale};
use crate::medium::{Medium, Way};

/// The options that these figures accept.
const TAKEN: [&str; 11] = [
    "--keys",
    "--key-bytes",
    "--value-bytes",
    "--bits",
    "--size-ratio",
    "--ops",
    "--repeat",
    "--device",
    "--skew",
    "--absent",
    "--db",
];

/// Duration of a get from a cached tree in nanoseconds, for planning.
const GET_NS: f64 = 1500.0;

/// A false positive rate, for planning.
const FALSE_POSITIVES: f64 = 0.01;

/// The amount of measurement at a scale.
#[derive(Clone, Copy, Debug)]
struct Effort {
    rounds: u64,
    /// Duration of one side in a round.
    round_ns: f64,
    fewest_ops: u64,
    most_ops: u64,
}

impl Effort {
    fn of(scale: Scale) -> Effort {
        match scale {
            Scale::Small => Effort { rounds: 3, round_ns: 1e7, fewest_ops: 20, most_ops: 4000 },
            Scale::Default => Effort { rounds: 5, round_ns: 1e8, fewest_ops: 200, most_ops: 50_000 },
            Scale::Paper => Effort { rounds: 5, round_ns: 1e15, fewest_ops: 1_000_000, most_ops: 1_000_000 },
        }
    }

    /// Returns the number of gets of one side in a round.
    fn ops(&self, point: &Point, way: Way) -> u64 {
        ((self.round_ns / expected_ns(point, way)) as u64).clamp(self.fewest_ops, self.most_ops)
    }
}

/// Returns the approximate duration of a get.
fn expected_ns(point: &Point, way: Way) -> f64 {
    let absent = point.absent as f64 / 100.0;
    let runs = point.shape.runs.len() as f64;
    let reads = 1.0 - absent + runs * FALSE_POSITIVES;
    GET_NS + 50.0 * runs + reads * way.expected_ns()
}

/// A figure with all settings resolved, and the tree that was opened last.
#[derive(Debug)]
pub(super) struct HashPlan {
    design: &'static Design,
    scale: Scale,
    points: Vec<Point>,
    ways: Vec<Way>,
    effort: Effort,
    ops: Option<u64>,
    seed: u64,
    dir: Option<std::path::PathBuf>,
    opened: Option<Opened>,
    // Dropped after the databases in it.
    trees: Option<Trees>,
}

/// Both sides of a tree on a medium, with warm caches.
#[derive(Debug)]
struct Opened {
    tree: Arc<Tree>,
    medium: Medium,
    probes: Probes,
    pair: Pair,
}

impl HashPlan {
    pub(super) fn new(
        name: &str,
        design: &'static Design,
        scale: Scale,
        custom: &Custom,
    ) -> Result<HashPlan, BenchError> {
        custom.refuse_all_but(name, &TAKEN)?;
        let points = design.points(scale, custom)?;
        let ways = points.iter().map(|point| Way::of(&point.device)).collect::<Result<Vec<_>, _>>()?;
        let mut names: Vec<_> = points.iter().map(|point| &point.name).collect();
        names.sort();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(request(format!("`{}` is given twice", twice[0])));
        }
        let mut effort = Effort::of(scale);
        if let Some(rounds) = custom.repeats {
            effort.rounds = u64::from(rounds.max(1));
        }
        if custom.ops == Some(0) {
            return Err(request("--ops must be at least 1".into()));
        }
        let (ops, seed, dir) = (custom.ops, custom.seed, custom.dir.clone());
        Ok(HashPlan { design, scale, points, ways, effort, ops, seed, dir, opened: None, trees: None })
    }

    fn ops(&self, step: usize) -> u64 {
        self.ops.unwrap_or_else(|| self.effort.ops(&self.points[step], self.ways[step]))
    }

    /// Opens what a step needs unless it is already open. Returns the reason if the device is not available.
    fn open(&mut self, step: usize, progress: &dyn Progress) -> Result<Result<(), String>, BenchError> {
        let (point, way) = (&self.points[step], self.ways[step]);
        let is_open = |opened: &Opened| opened.tree.shape == point.shape && opened.medium == way.medium;
        if self.opened.as_ref().is_some_and(is_open) {
            return Ok(Ok(()));
        }
        self.opened = None;
        let trees = match &mut self.trees {
            Some(trees) => trees,
            none => none.insert(Trees::in_dir(self.dir.as_deref(), self.seed)?),
        };
        let tree = trees.of(&point.shape, progress)?;
        let pair = match tree.open(way, trees.dir())? {
            Ok(pair) => pair,
            Err(why) => return Ok(Err(why)),
        };
        let probes = Probes::new(&point.shape.runs, point.shape.bits)?;
        let opened = Opened { tree, medium: way.medium, probes, pair };
        opened.warm(self.scale, way, self.seed)?;
        self.opened = Some(opened);
        Ok(Ok(()))
    }
}

impl Opened {
    /// Touches pages of files and their mappings, filters and indexes, as later gets will.
    fn warm(&self, scale: Scale, way: Way, seed: u64) -> Result<(), BenchError> {
        // A fault maps about 64 KiB, and a block is read from there.
        let most = if way.medium == Medium::Direct { 2000 } else { 400_000 };
        let fewest = if scale == Scale::Small { 500 } else { 2000 };
        let gets = (self.tree.shape.bytes() / (16 << 10)).clamp(fewest, most);
        for side in &self.pair.sides {
            let device = if way.is_emulated() { tamis_testkit::Device::MEMORY } else { way.device };
            side.fs.set_device(device);
            side.fs.set_on(true);
            let mut sequence = Sequence::new(&self.tree.keys, 10, 0.0, (gets, GET_NS), mix64(!seed));
            let mut piece = self.piece();
            while sequence.next(&mut piece) {
                piece.get_all(&side.db)?;
            }
            side.fs.set_on(false);
        }
        Ok(())
    }

    fn piece(&self) -> Piece {
        Piece::new(self.tree.shape.key_bytes, self.tree.shape.value_bytes)
    }

    fn sequence(&self, point: &Point, amount: (u64, f64), seed: u64) -> Sequence<'_> {
        Sequence::new(&self.tree.keys, point.absent, point.skew, amount, seed)
    }

    /// Runs one sequence of gets on both sides piece by piece, then the passes over its digests and probes.
    fn round(
        &self,
        point: &Point,
        amount: (u64, f64),
        (seed, first): (u64, usize),
        progress: &dyn Progress,
    ) -> Result<[Round; 2], BenchError> {
        let sides = &self.pair.sides;
        let before: Vec<_> = sides.iter().map(|side| (side.db.stats().read, side.fs.time())).collect();
        let mut rounds = [Round::default(), Round::default()];
        let mut piece = self.piece();
        let mut sequence = self.sequence(point, amount, seed);
        let mut first = first;
        while sequence.next(&mut piece) {
            for at in [first, 1 - first] {
                let data = sides[at].fs.time().ns;
                rounds[at].ns.gets.push(piece.get_all(&sides[at].db)?);
                rounds[at].ns.data.push(sides[at].fs.time().ns - data);
            }
            // The second side finds the keys in the cache.
            first = 1 - first;
            progress.advance(2 * piece.len());
        }
        for (at, side) in sides.iter().enumerate() {
            let read = side.db.stats().read - before[at].0;
            let device = side.fs.time() - before[at].1;
            let round = &mut rounds[at];
            (round.digests, round.filters) = (read.digests, read.filter_probes);
            (round.false_positives, round.blocks) = (read.false_positives, read.block_reads);
            (round.reads, round.late) = (device.reads, device.late);
            self.parts(point, amount, seed, side, round);
        }
        Ok(rounds)
    }

    /// Times the number of digests and probes that a round counted, over its gets.
    fn parts(&self, point: &Point, amount: (u64, f64), seed: u64, side: &Side, round: &mut Round) {
        let together = side.db.options().hash_sharing;
        let (mut piece, mut done, ops) = (self.piece(), 0u64, amount.0);
        let upto = |total: u64, done: u64| (u128::from(total) * u128::from(done) / u128::from(ops)) as u64;
        let mut sequence = self.sequence(point, amount, seed);
        while sequence.next(&mut piece) {
            let next = done + piece.len();
            let share = |total: u64| upto(total, next) - upto(total, done);
            round.ns.hashing.push(piece.digest_all(share(round.digests)));
            round.ns.probing.push(piece.probe_all(&self.probes, share(round.filters), together));
            done = next;
        }
    }
}

impl Plan for HashPlan {
    fn setting(&self) -> String {
        let Some(largest) = self.points.iter().map(|point| &point.shape).max_by_key(|shape| shape.keys())
        else {
            return String::new();
        };
        let mut values: Vec<String> = Vec::new();
        for value in self.points.iter().flat_map(|point| self.varied(point)) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        format!(
            "Up to {} keys of {} bytes in entries of {} bytes ({}), {} levels of size ratio {}, {}, blocked Bloom filters of {} \
             bits per key; {} rounds of up to {} gets per side; varied: {}.",
            report::grouped(largest.keys()),
            largest.key_bytes,
            largest.key_bytes + largest.value_bytes,
            report::bytes(largest.bytes()),
            largest.levels,
            largest.size_ratio,
            largest.policy(),
            largest.bits,
            self.effort.rounds,
            report::grouped((0..self.points.len()).map(|step| self.ops(step)).max().unwrap_or(0)),
            values.join(", ")
        )
    }

    fn scaled(&self) -> Vec<String> {
        let mut scaled = Vec::new();
        let Some(shape) = self.points.iter().map(|point| &point.shape).max_by_key(|shape| shape.keys())
        else {
            return scaled;
        };
        if self.scale != Scale::Paper {
            scaled.push(format!(
                "{} of keys and values instead of 22 GB. Kept: levels, size ratio, bits per key, sizes of keys and entries.",
                report::bytes(shape.bytes())
            ));
            scaled.push(format!(
                "The newest run holds {} keys and the oldest {}: filters of small runs are rounded up to a cache line and pass fewer \
                 absent keys than the paper's.",
                report::grouped(shape.runs.first().copied().unwrap_or(0)),
                report::grouped(shape.runs.last().copied().unwrap_or(0))
            ));
            scaled.push(
                "Fewer gets where the device is slow; the paper has a million per point, five times.".into(),
            );
        }
        if self.ways.iter().any(Way::is_emulated) {
            scaled.push(
                "Devices of the paper that are not available are emulated: see the device column.".into(),
            );
        }
        scaled
    }

    fn steps(&self) -> Vec<String> {
        self.points.iter().map(|point| point.name.clone()).collect()
    }

    fn run(&mut self, step: usize, progress: &dyn Progress) -> Result<Vec<Row>, BenchError> {
        if let Err(why) = self.open(step, progress)? {
            let point = &self.points[step];
            progress.note(&format!("{} is omitted: {why}", point.device));
            let row = MissingRow {
                kind: "missing".into(),
                point: point.name.clone(),
                device: point.device.clone(),
                why,
            };
            return Ok(vec![to_row(&row)]);
        }
        let (point, way, ops) = (&self.points[step], self.ways[step], self.ops(step));
        let Some(opened) = &self.opened else { return Ok(Vec::new()) };
        for side in &opened.pair.sides {
            side.fs.set_device(way.device);
            side.fs.set_on(true);
        }
        progress.begin(&point.name, ops * 2 * self.effort.rounds, "gets");
        let amount = (ops, expected_ns(point, way));
        let rounds = (0..self.effort.rounds)
            .map(|round| opened.round(point, amount, (mix64(self.seed), (round % 2) as usize), progress))
            .collect::<Result<Vec<_>, _>>();
        progress.end();
        opened.pair.sides.iter().for_each(|side| side.fs.set_on(false));
        let memory = [0, 1].map(|at| bits_per_key(&opened.pair.sides[at].db.stats()));
        Ok(rows_of(&self.setting_of(step, opened), memory, &rounds?))
    }
}

impl HashPlan {
    fn setting_of(&self, step: usize, opened: &Opened) -> Setting {
        let (point, way) = (&self.points[step], self.ways[step]);
        let shape = &opened.tree.shape;
        Setting {
            point: point.name.clone(),
            device: point.device.clone(),
            emulated: way.is_emulated(),
            absent_percent: point.absent as f64,
            skew: point.skew,
            key_bytes: shape.key_bytes as u64,
            value_bytes: shape.value_bytes as u64,
            bits_per_key: shape.bits,
            shape: shape.policy().into(),
            levels: shape.levels as u64,
            size_ratio: shape.size_ratio,
            runs: shape.runs.len() as u64,
            keys: shape.keys(),
            ops: self.ops(step),
            rounds: self.effort.rounds,
        }
    }

    /// Returns the device and the value on the horizontal axis.
    fn varied(&self, point: &Point) -> [String; 2] {
        let across = match self.design.across {
            Across::Absent => format!("{} % absent", point.absent),
            Across::KeyBytes | Across::Device => format!("keys of {} bytes", point.shape.key_bytes),
            Across::Levels => format!("{} levels", point.shape.levels),
            Across::Bits => format!("{} bits", point.shape.bits),
        };
        [point.device.clone(), across]
    }
}
