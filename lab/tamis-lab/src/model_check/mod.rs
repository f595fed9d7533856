//! `model-check`: predictions of the hash-sharing equations for a get, compared with the engine.
//!
//! Trees of exact shapes, leveling and tiering; gets with a share α of absent keys; one digest per get, or one per
//! filter. Counts (digests, probes, false positives, blocks) are predicted by [`tamis_model::lookup`] from the shape
//! alone. Times are predicted from them with T_H, T_P and T_D as measured on *other* trees (`constants`), so that
//! nothing is fitted to the predicted values.
//!
//! Properties of the engine that the equations do not have:
//!
//! * With sharing it queries filters in steps, eight runs at first and then up to 32, so that their cache misses
//!   overlap. So a get that finds its key has also queried some filters behind it. Rows have the probes of the equation
//!   and those with steps.
//! * A get takes time without any run: the view, the call, the answer. It is measured as the get of an empty database,
//!   and added; the sum without it is given as well.
//! * Small filters are rounded up to whole lines, and so have fewer false positives. Rows have false positives with
//!   each run's own rate.
//!
//! `tree` builds trees, `passes` queries them, `constants` measures the times, `view` compares.
//!
//! Uses one thread, and memory for the tree, as files in memory, and the reference trees: a few times the size of all
//! keys and values.

mod constants;
mod passes;
mod tree;
mod view;

use serde::{Deserialize, Serialize};
use tamis_bench::BenchError;
use tamis_bench::keys::KeySet;
use tamis_bench::progress::Progress;
use tamis_bench::report::grouped;
use tamis_model::lookup::{Costs, Form, Policy, RunShare, Sharing, Tree, Workload, counts, counts_of_runs};
use tamis_testkit::Device;

use crate::elastic::memory::bits_per_key;
use crate::figures::{About, Custom, Figure, Needs, Paper, Plan, Row, Scale, View};
use crate::hash_functions::rows;

use constants::{Constants, Reference};
use tree::{Built, Place};

const COUNT: &str = "count";
const TIME: &str = "time";

/// Returns the engine's own check of the model.
pub fn figures() -> Vec<Box<dyn Figure>> {
    vec![Box::new(ModelCheck {
        about: About {
            name: "model-check",
            paper: Paper::Ours,
            place: "",
            title: "The equations of hash sharing compared with the engine: counts and times of gets",
            claim: "Digests, probes, false positives and blocks of a get follow from the shape of the tree, and its time from \
                    them with T_H, T_P and T_D.",
            differs: "",
        },
    })]
}

struct ModelCheck {
    about: About,
}

/// A tree whose levels grow by a ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shape {
    policy: Policy,
    tree: Tree,
}

impl Shape {
    const fn new(policy: Policy, levels: u32, size_ratio: u32) -> Shape {
        Shape { policy, tree: Tree { levels, size_ratio } }
    }

    fn policy_name(self) -> &'static str {
        match self.policy {
            Policy::Leveling => "leveling",
            Policy::Tiering | Policy::TieringAtRest => "tiering",
        }
    }

    fn name(self) -> String {
        format!("{} L={} T={}", self.policy_name(), self.tree.levels, self.tree.size_ratio)
    }

    /// Returns the number of keys of each run, newest first; no run is empty.
    fn runs(self, keys: u64) -> Vec<u64> {
        let runs = self.policy.runs(self.tree);
        let size = |share: f64| ((keys as f64 * share / f64::from(runs)).round() as u64).max(1);
        let level = |share: f64| std::iter::repeat_n(size(share), runs as usize);
        self.tree.level_shares().into_iter().flat_map(level).collect()
    }
}

const SMALL: &[Shape] = &[Shape::new(Policy::Leveling, 3, 4), Shape::new(Policy::Tiering, 2, 5)];
const SHAPES: &[Shape] = &[
    Shape::new(Policy::Leveling, 2, 10),
    Shape::new(Policy::Leveling, 3, 4),
    Shape::new(Policy::Leveling, 5, 2),
    Shape::new(Policy::Leveling, 5, 10),
    Shape::new(Policy::Tiering, 2, 10),
    Shape::new(Policy::Tiering, 3, 4),
    Shape::new(Policy::Tiering, 5, 2),
];

/// Counts per get, on average.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct CountRow {
    shape: String,
    policy: String,
    levels: u32,
    size_ratio: u32,
    runs: u64,
    keys: u64,
    sharing: bool,
    /// Absent keys in percent.
    absent_percent: u64,
    ops: u64,
    /// By the equations, with exact sums.
    digests_model: f64,
    probes_model: f64,
    false_positives_model: f64,
    blocks_model: f64,
    /// With steps, where digests are shared.
    probes_in_steps: f64,
    /// With each filter's own rate.
    false_positives_by_run: f64,
    /// As counted by the engine.
    digests: f64,
    probes: f64,
    false_positives: f64,
    blocks: f64,
}

/// The time of a get.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct TimeRow {
    shape: String,
    policy: String,
    levels: u32,
    size_ratio: u32,
    device: String,
    sharing: bool,
    absent_percent: u64,
    /// Filter bits per key in memory, with all that the filters keep; `None` in rows of earlier versions.
    filter_bits_per_key: Option<f64>,
    /// T_H, T_P, T_D, and the get of an empty database.
    hash_ns: f64,
    probe_ns: f64,
    access_ns: f64,
    base_ns: f64,
    /// By the equations alone.
    equations_ns: f64,
    /// With steps, each filter's own rate, and the get of an empty database.
    predicted_ns: f64,
    ns_per_op: f64,
    min_ns: f64,
    max_ns: f64,
    rounds: u32,
    ops: u64,
}

impl Figure for ModelCheck {
    fn about(&self) -> &About {
        &self.about
    }

    fn needs(&self, scale: Scale) -> Needs {
        let keys = KEYS[scale as usize];
        let entry = (KEY_BYTES + VALUE_BYTES) as u64;
        Needs { seconds: [3, 90, 600][scale as usize], disk_bytes: 0, memory_bytes: 8 * keys * entry }
    }

    fn plan<'f>(&'f self, scale: Scale, custom: &Custom) -> Result<Box<dyn Plan + 'f>, BenchError> {
        let taken =
            ["--keys", "--key-bytes", "--value-bytes", "--bits", "--ops", "--repeat", "--absent", "--device"];
        custom.refuse_all_but(self.about.name, &taken)?;
        let places = match &custom.devices[..] {
            [] => vec![Place::Mapped, Place::Emulated(Device::NVM), Place::Emulated(Device::PCIE_SSD)],
            names => names.iter().map(|name| Place::named(name)).collect::<Result<_, _>>()?,
        };
        let absents = match &custom.absents[..] {
            [] if scale == Scale::Paper => vec![0, 25, 50, 75, 100],
            [] => vec![0, 50, 100],
            absents => absents.to_vec(),
        };
        let one = |what: &str| BenchError::Request(format!("model-check takes a single {what}"));
        let key_bytes = match custom.key_bytes[..] {
            [] => KEY_BYTES,
            [bytes] => bytes,
            _ => return Err(one("--key-bytes")),
        };
        let bits = match custom.bits[..] {
            [] => 10.0,
            [bits] if (2.0..=30.0).contains(&bits) => bits,
            _ => return Err(one("--bits from 2 to 30")),
        };
        if let Some(absent) = absents.iter().find(|&&absent| absent > 100) {
            return Err(BenchError::Request(format!("--absent {absent} is more than 100 percent")));
        }
        let keys = custom.keys.unwrap_or(KEYS[scale as usize]);
        if !(1000..=1 << 28).contains(&keys) {
            return Err(BenchError::Request("--keys must be from 1000 to 268 million here".into()));
        }
        // Fails if there are too few keys of this size.
        KeySet::uniform(keys * 2, key_bytes, custom.seed)?;
        Ok(Box::new(CheckPlan {
            scale,
            shapes: if scale == Scale::Small { SMALL } else { SHAPES },
            data: tree::Data {
                keys,
                key_bytes,
                value_bytes: custom.value_bytes.unwrap_or(VALUE_BYTES),
                bits,
                seed: custom.seed,
            },
            places,
            absents,
            rounds: custom.repeats.unwrap_or([2, 9, 9][scale as usize]).max(1),
            ops: custom.ops.unwrap_or([4_000, 100_000, 400_000][scale as usize]).max(100),
            reference: None,
        }))
    }

    fn view(&self, rows: &[Row]) -> View {
        view::view(&rows::of_kind(rows, COUNT), &rows::of_kind(rows, TIME))
    }

    #[cfg(test)]
    fn trial(&self) -> crate::figures::trial::Trial {
        tests::trial()
    }
}

/// By scale: the number of all keys.
const KEYS: [u64; 3] = [20_000, 200_000, 4_000_000];
/// One in this number of counted gets is timed in a round.
const TIMED: u64 = 5;
const KEY_BYTES: usize = 128;
const VALUE_BYTES: usize = 64;

struct CheckPlan {
    scale: Scale,
    shapes: &'static [Shape],
    data: tree::Data,
    places: Vec<Place>,
    absents: Vec<u64>,
    rounds: u32,
    /// Number of counted gets; fewer are timed on slow devices.
    ops: u64,
    /// The constants of each place, once measured.
    reference: Option<Vec<Constants>>,
}

impl Plan for CheckPlan {
    fn setting(&self) -> String {
        format!(
            "{} keys of {} bytes with values of {}, {} bits per key, in files in memory; {} gets counted and up to {} timed \
             in each of {} interleaved rounds, on {}.",
            grouped(self.data.keys),
            self.data.key_bytes,
            self.data.value_bytes,
            self.data.bits,
            grouped(self.ops),
            grouped(self.ops / TIMED),
            self.rounds,
            self.places.iter().map(|place| place.name()).collect::<Vec<_>>().join(", ")
        )
    }

    fn scaled(&self) -> Vec<String> {
        match self.scale {
            Scale::Small => vec!["two shapes of small runs: chance dominates false positives".into()],
            _ => Vec::new(),
        }
    }

    fn steps(&self) -> Vec<String> {
        self.shapes.iter().map(|shape| shape.name()).collect()
    }

    fn run(&mut self, step: usize, progress: &dyn Progress) -> Result<Vec<Row>, BenchError> {
        let Some(&shape) = self.shapes.get(step) else { return Ok(Vec::new()) };
        if self.reference.is_none() {
            let reference = Reference::new(&self.data, progress)?;
            let ops = self.ops;
            let constants =
                self.places.iter().map(|&place| reference.measure(place, self.rounds, ops / TIMED, progress));
            self.reference = Some(constants.collect::<Result<_, _>>()?);
        }
        let runs = shape.runs(self.data.keys);
        let built = Built::new(&self.data, &runs, true, progress)?;
        let mut rows = Vec::new();
        for &absent in &self.absents {
            rows.extend(self.count(shape, &runs, &built, absent, progress)?);
        }
        for (place, constants) in self.places.iter().zip(self.reference.iter().flatten()) {
            rows.extend(self.time(shape, &runs, &built, *place, constants, progress)?);
        }
        Ok(rows)
    }
}

/// Predicted counts of a get.
struct Predicted {
    model: tamis_model::lookup::Counts,
    /// With steps and each run's own rate.
    ours: tamis_model::lookup::Counts,
}

impl Predicted {
    fn of(shape: Shape, runs: &[u64], rates: &[f64], sharing: bool, absent: u64) -> Predicted {
        let empty = absent as f64 / 100.0;
        let way = if sharing { Sharing::Shared } else { Sharing::PerFilter };
        // The largest run's rate equals the formula's for the same bits.
        let false_positive = rates.last().copied().unwrap_or(0.0);
        let model = counts(shape.tree, shape.policy, way, Workload { empty, false_positive }, Form::Exact);
        let shares = runs.iter().zip(rates);
        let shares: Vec<RunShare> = shares
            .map(|(&entries, &false_positive)| RunShare { entries: entries as f64, false_positive })
            .collect();
        let mut ours = counts_of_runs(&shares, way, empty);
        if sharing {
            ours.probes = probes_in_steps(runs, empty);
        }
        Predicted { model, ours }
    }
}

/// Returns the end of the step that contains the run at this position.
fn step_end(run: usize, runs: usize) -> usize {
    const FIRST: usize = 8;
    const LATER: usize = 32;
    let end = if run < FIRST { FIRST } else { FIRST + (run - FIRST) / LATER * LATER + LATER };
    end.min(runs)
}

/// Returns the number of filters that a get queries in steps: all those of the step that contains the key.
fn probes_in_steps(runs: &[u64], empty: f64) -> f64 {
    let keys: u64 = runs.iter().sum();
    let asked = |(at, &of): (usize, &u64)| of as f64 / keys as f64 * step_end(at, runs.len()) as f64;
    empty * runs.len() as f64 + (1.0 - empty) * runs.iter().enumerate().map(asked).sum::<f64>()
}

impl CheckPlan {
    fn count(
        &self,
        shape: Shape,
        runs: &[u64],
        built: &Built,
        absent: u64,
        progress: &dyn Progress,
    ) -> Result<Vec<Row>, BenchError> {
        let mut rows = Vec::new();
        for sharing in [false, true] {
            let side = built.open(Place::Mapped, sharing)?;
            let seed = self.data.seed ^ (absent << 32);
            let counted = passes::count(&side.db, &built.keys(absent, self.ops, seed), progress)?;
            let per_get = |of: u64| of as f64 / self.ops as f64;
            let Predicted { model, ours } = Predicted::of(shape, runs, &built.rates, sharing, absent);
            let found = CountRow {
                shape: shape.name(),
                policy: shape.policy_name().into(),
                levels: shape.tree.levels,
                size_ratio: shape.tree.size_ratio,
                runs: runs.len() as u64,
                keys: runs.iter().sum(),
                sharing,
                absent_percent: absent,
                ops: self.ops,
                digests_model: model.hashes,
                probes_model: model.probes,
                false_positives_model: model.false_accesses,
                blocks_model: model.accesses(),
                probes_in_steps: ours.probes,
                false_positives_by_run: ours.false_accesses,
                digests: per_get(counted.digests),
                probes: per_get(counted.filter_probes),
                false_positives: per_get(counted.false_positives),
                blocks: per_get(counted.block_reads),
            };
            rows.push(rows::row(COUNT, &found));
            side.close()?;
        }
        Ok(rows)
    }

    fn time(
        &self,
        shape: Shape,
        runs: &[u64],
        built: &Built,
        place: Place,
        constants: &Constants,
        progress: &dyn Progress,
    ) -> Result<Vec<Row>, BenchError> {
        let sides = [false, true].map(|sharing| Ok((sharing, built.open(place, sharing)?)));
        let sides = sides.into_iter().collect::<Result<Vec<_>, BenchError>>()?;
        let mut rows = Vec::new();
        for &absent in &self.absents {
            let ops = place.ops(self.ops / TIMED, shape.tree.levels, absent);
            let asked = built.keys(absent, ops, self.data.seed ^ (absent << 40)).in_pieces_of(place.piece());
            let dbs: Vec<_> = sides.iter().map(|(_, side)| &side.db).collect();
            progress.begin(
                &format!("{} on {}", shape.name(), place.name()),
                u64::from(self.rounds) + 1,
                "rounds",
            );
            let spreads = passes::time(&dbs, self.rounds, &asked, progress)?;
            progress.end();
            for ((sharing, side), spread) in sides.iter().zip(spreads) {
                let Predicted { model, ours } = Predicted::of(shape, runs, &built.rates, *sharing, absent);
                let probe_ns = if *sharing { constants.probe_shared_ns } else { constants.probe_ns };
                let costs = Costs { hash_ns: constants.hash_ns, probe_ns, access_ns: constants.access_ns };
                let found = TimeRow {
                    shape: shape.name(),
                    policy: shape.policy_name().into(),
                    levels: shape.tree.levels,
                    size_ratio: shape.tree.size_ratio,
                    device: place.name().into(),
                    sharing: *sharing,
                    absent_percent: absent,
                    filter_bits_per_key: Some(bits_per_key(&side.db.stats())),
                    hash_ns: costs.hash_ns,
                    probe_ns,
                    access_ns: costs.access_ns,
                    base_ns: constants.base_ns,
                    equations_ns: model.cost(costs).total_ns(),
                    predicted_ns: ours.cost(costs).total_ns() + constants.base_ns,
                    ns_per_op: spread.median,
                    min_ns: spread.min,
                    max_ns: spread.max,
                    rounds: self.rounds,
                    ops,
                };
                rows.push(rows::row(TIME, &found));
            }
        }
        sides.into_iter().try_for_each(|(_, side)| side.close())?;
        Ok(rows)
    }
}

#[cfg(test)]
mod tests;
