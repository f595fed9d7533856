//! Running the points of a figure.

use std::sync::Arc;

use super::design::{Across, Design, Point, request};
use super::medium::{Medium, Way};
use super::model::{Asked, Times, predicted_gain};
use super::passes::{Piece, Probes, Sequence};
use super::rows::{GainRow, GetRow, MissingRow, Setting, to_row};
use super::tree::{Pair, Side, Tree, Trees};
use crate::error::BenchError;
use crate::figures::{Custom, Plan, Row, Scale};
use crate::progress::Progress;
use crate::random::mix64;
use crate::report;

/// The flags that these figures take.
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

/// What a get of a cached tree takes, for planning: nanoseconds.
const GET_NS: f64 = 1500.0;

/// A false positive rate, for planning.
const FALSE_POSITIVES: f64 = 0.01;

/// How much is measured at a scale.
#[derive(Clone, Copy, Debug)]
struct Effort {
    rounds: u64,
    /// Of one side and round.
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

    /// Gets of one side in a round.
    fn ops(&self, point: &Point, way: Way) -> u64 {
        let absent = point.absent as f64 / 100.0;
        let runs = point.shape.runs.len() as f64;
        let reads = 1.0 - absent + runs * FALSE_POSITIVES;
        let ns = GET_NS + 50.0 * runs + reads * way.expected_ns();
        ((self.round_ns / ns) as u64).clamp(self.fewest_ops, self.most_ops)
    }
}

/// A figure with everything decided, and the tree that was opened last.
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
    // After what lies in it.
    trees: Option<Trees>,
}

/// Both sides of a tree on a medium, warm.
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
            return Err(request(format!("`{}` is asked for twice", twice[0])));
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

    /// Opens what a step needs unless it is open. Says what is not here.
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

/// What one side took and counted in one round.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    ns: f64,
    hash_ns: f64,
    probe_ns: f64,
    data_ns: f64,
    digests: u64,
    filters: u64,
    false_positives: u64,
    blocks: u64,
    reads: u64,
    late: u64,
}

impl Opened {
    /// Touches what later gets touch: pages of files and their mappings, filters, indexes.
    fn warm(&self, scale: Scale, way: Way, seed: u64) -> Result<(), BenchError> {
        // A fault maps some 64 KiB, and a block is read from there.
        let most = if way.medium == Medium::Direct { 2000 } else { 400_000 };
        let fewest = if scale == Scale::Small { 500 } else { 2000 };
        let gets = (self.tree.shape.bytes() / (16 << 10)).clamp(fewest, most);
        for side in &self.pair.sides {
            let device = if way.is_emulated() { tamis::io::Device::MEMORY } else { way.device };
            side.fs.set_device(device);
            side.fs.set_on(true);
            let mut sequence = Sequence::new(&self.tree.keys, 10, 0.0, gets, mix64(seed));
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

    fn sequence(&self, point: &Point, ops: u64, seed: u64) -> Sequence<'_> {
        Sequence::new(&self.tree.keys, point.absent, point.skew, ops, seed)
    }

    /// One sequence of gets, asked of both sides piece by piece; then the passes over its digests and probes.
    fn round(
        &self,
        point: &Point,
        ops: u64,
        seed: u64,
        progress: &dyn Progress,
    ) -> Result<[Round; 2], BenchError> {
        let sides = &self.pair.sides;
        let before: Vec<_> = sides.iter().map(|side| (side.db.stats().read, side.fs.time())).collect();
        let mut ns = [0u64; 2];
        let mut piece = self.piece();
        let mut sequence = self.sequence(point, ops, seed);
        let mut first = (seed % 2) as usize;
        while sequence.next(&mut piece) {
            for at in [first, 1 - first] {
                ns[at] += piece.get_all(&sides[at].db)?;
            }
            // Who comes second finds the keys in the cache.
            first = 1 - first;
            progress.advance(2 * piece.len());
        }
        let mut rounds = [Round::default(); 2];
        for (at, side) in sides.iter().enumerate() {
            let read = side.db.stats().read - before[at].0;
            let device = side.fs.time() - before[at].1;
            let (hash_ns, probe_ns) = self.parts(point, ops, seed, side, read.digests, read.filter_probes);
            let per_op = |ns: u64| ns as f64 / ops as f64;
            rounds[at] = Round {
                ns: per_op(ns[at]),
                hash_ns: per_op(hash_ns),
                probe_ns: per_op(probe_ns),
                data_ns: per_op(device.ns),
                digests: read.digests,
                filters: read.filter_probes,
                false_positives: read.false_positives,
                blocks: read.block_reads,
                reads: device.reads,
                late: device.late,
            };
        }
        Ok(rounds)
    }

    /// Nanoseconds of so many digests, and of so many probes, over the gets of a round.
    fn parts(
        &self,
        point: &Point,
        ops: u64,
        seed: u64,
        side: &Side,
        digests: u64,
        probes: u64,
    ) -> (u64, u64) {
        let together = side.db.options().hash_sharing;
        let (mut piece, mut ns, mut done) = (self.piece(), (0, 0), 0u64);
        let upto = |total: u64, done: u64| (u128::from(total) * u128::from(done) / u128::from(ops)) as u64;
        let mut sequence = self.sequence(point, ops, seed);
        while sequence.next(&mut piece) {
            let next = done + piece.len();
            ns.0 += piece.digest_all(upto(digests, next) - upto(digests, done));
            ns.1 += piece.probe_all(&self.probes, upto(probes, next) - upto(probes, done), together);
            done = next;
        }
        ns
    }
}

impl Plan for HashPlan {
    fn setting(&self) -> String {
        let Some(largest) = self.points.iter().map(|point| &point.shape).max_by_key(|shape| shape.keys())
        else {
            return String::new();
        };
        let values: Vec<String> = self.across_values().into_iter().fold(Vec::new(), |mut values, value| {
            if !values.contains(&value) {
                values.push(value);
            }
            values
        });
        format!(
            "Up to {} keys of {} bytes in entries of {} bytes ({}), {} levels of size ratio {}, {}, blocked Bloom filters of {} \
             bits a key; {} rounds of up to {} gets a side; varied: {}.",
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
                "{} of keys and values in place of 22 GB. Kept: levels, size ratio, bits a key, sizes of keys and entries.",
                report::bytes(shape.bytes())
            ));
            scaled.push(format!(
                "The newest run holds {} keys and the oldest {}: filters of small runs are rounded up to a cache line and let fewer \
                 absent keys through than the paper's.",
                report::grouped(shape.runs.first().copied().unwrap_or(0)),
                report::grouped(shape.runs.last().copied().unwrap_or(0))
            ));
            scaled.push(
                "Fewer gets where the device is slow; the paper asks a million a point, five times.".into(),
            );
        }
        if self.ways.iter().any(Way::is_emulated) {
            scaled.push("Devices of the paper that are not here are emulated: see the device column.".into());
        }
        scaled
    }

    fn steps(&self) -> Vec<String> {
        self.points.iter().map(|point| point.name.clone()).collect()
    }

    fn run(&mut self, step: usize, progress: &dyn Progress) -> Result<Vec<Row>, BenchError> {
        if let Err(why) = self.open(step, progress)? {
            let point = &self.points[step];
            progress.note(&format!("{} is left out: {why}", point.device));
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
        let rounds = (0..self.effort.rounds)
            .map(|round| opened.round(point, ops, mix64(self.seed ^ mix64(round)), progress))
            .collect::<Result<Vec<_>, _>>();
        progress.end();
        opened.pair.sides.iter().for_each(|side| side.fs.set_on(false));
        Ok(rows_of(&self.setting_of(step, opened), &rounds?))
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

    fn across_values(&self) -> Vec<String> {
        let value = |point: &Point| match self.design.across {
            Across::Absent => format!("{} % absent on {}", point.absent, point.device),
            Across::KeyBytes => format!("keys of {} bytes", point.shape.key_bytes),
            Across::Levels => format!("{} levels", point.shape.levels),
            Across::Device => point.device.clone(),
            Across::Bits => format!("{} bits on {}", point.shape.bits, point.device),
        };
        self.points.iter().map(value).collect()
    }
}

/// (median, least, greatest); of an even number the later of the two in the middle.
fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |i: usize| values.get(i).copied().unwrap_or(0.0);
    (at(values.len() / 2), at(0), at(values.len().saturating_sub(1)))
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// The rows of a point: each side, and the gain.
fn rows_of(setting: &Setting, rounds: &[[Round; 2]]) -> Vec<Row> {
    let sides = [super::rows::EACH, super::rows::SHARED];
    let gets: Vec<GetRow> =
        (0..2).map(|at| get_row(setting, sides[at], rounds.iter().map(|r| &r[at]))).collect();
    let gains = rounds.iter().map(|[each, shared]| 100.0 * ratio(each.ns - shared.ns, each.ns));
    let (gain_percent, min_percent, max_percent) = spread(gains.collect());
    let each = &gets[0];
    let absent = setting.absent_percent / 100.0;
    // Filters asked about keys that their runs do not hold.
    let denying = each.filters_per_op - (1.0 - absent);
    let asked = Asked {
        levels: setting.levels as f64,
        ratio: setting.size_ratio as f64,
        tiering: setting.shape == "tiering",
        absent,
        false_positive: ratio(each.false_positives_per_op, denying),
    };
    let times = Times { digest: each.digest_ns, probe: each.filter_ns, read: each.read_ns, rest: 0.0 };
    let gain = GainRow {
        kind: "gain".into(),
        setting: setting.clone(),
        gain_percent,
        min_percent,
        max_percent,
        model_percent: predicted_gain(asked, times),
        model_with_rest_percent: predicted_gain(asked, Times { rest: each.rest_ns, ..times }),
    };
    gets.iter().map(to_row).chain([to_row(&gain)]).collect()
}

fn get_row<'r>(setting: &Setting, side: &str, rounds: impl Iterator<Item = &'r Round> + Clone) -> GetRow {
    let median = |part: fn(&Round) -> f64| spread(rounds.clone().map(part).collect()).0;
    let sum = |count: fn(&Round) -> u64| rounds.clone().map(count).sum::<u64>() as f64;
    let gets = (setting.ops * rounds.clone().count() as u64) as f64;
    let (ns_per_op, min_ns, max_ns) = spread(rounds.clone().map(|round| round.ns).collect());
    let (hash_ns, probe_ns) = (median(|round| round.hash_ns), median(|round| round.probe_ns));
    let data_ns = median(|round| round.data_ns);
    let left = ns_per_op - hash_ns - probe_ns - data_ns;
    let per_op = |count: fn(&Round) -> u64| ratio(sum(count), gets);
    let (digests_per_op, filters_per_op) = (per_op(|round| round.digests), per_op(|round| round.filters));
    // Over all rounds: some may have had no read.
    let data_sum: f64 = rounds.clone().map(|round| round.data_ns * setting.ops as f64).sum();
    GetRow {
        kind: "get".into(),
        setting: setting.clone(),
        side: side.into(),
        ns_per_op,
        min_ns,
        max_ns,
        hash_ns,
        probe_ns,
        data_ns,
        rest_ns: left.max(0.0),
        parts_exceed: left < 0.0,
        digests_per_op,
        filters_per_op,
        false_positives_per_op: per_op(|round| round.false_positives),
        blocks_per_op: per_op(|round| round.blocks),
        reads_per_op: per_op(|round| round.reads),
        digest_ns: ratio(hash_ns, digests_per_op),
        filter_ns: ratio(probe_ns, filters_per_op),
        read_ns: ratio(data_sum, sum(|round| round.reads)),
        late_reads: sum(|round| round.late) as u64,
    }
}
