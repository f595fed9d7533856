//! `hash-fig6`: the gain of hash sharing over devices, by the model and by counts.
//!
//! Equation 8 for leveling and for tiering, five levels of ratio ten, 10 bits per key ([`tamis_model::lookup`]). With
//! the paper's constants, where T_P is not published: with none, and with one access to memory; and with a hash and a
//! probe measured here, with the digest of tamis and with the paper's function. Times of devices are the paper's in all
//! cases.
//!
//! The equation derives how many digests, filters and blocks a get needs from the shape of the tree. A replay counts them
//! instead: one sequence of gets runs without and with sharing on trees of that shape, and the counts of both are weighed
//! with the paper's times.

use std::hint::black_box;

use serde::{Deserialize, Serialize};
use tamis_bench::BenchError;
use tamis_bench::progress::Progress;
use tamis_bench::random::{Random, mix64};
use tamis_bench::report::grouped;
use tamis_filter::{Digest, PointFilter, PointSpec, Verify};
use tamis_model::devices::{self, DEVICES};
use tamis_model::lookup::{Costs, Form, Policy, Tree, Workload, gain};

use super::functions::Function;
use super::rates::{random_bytes, refused};
use super::rows::{self, time};
use super::timing::{Side, interleaved, paced};
use crate::figures::{
    About, Axis, Custom, Figure, Kind, Needs, Panel, Plan, Point, Row, Scale, Series, Sheet, Verdict, View,
};
use crate::hashing::replay::{Counted, Replayed};

const TREE: Tree = Tree { levels: 5, size_ratio: 10 };
const BITS: f64 = 10.0;
const KEY_BYTES: usize = 1024;
/// Shares of absent keys.
const EMPTY: [f64; 3] = [0.0, 0.5, 1.0];
const POLICIES: [(Policy, &str); 2] = [(Policy::Leveling, "leveling"), (Policy::Tiering, "tiering")];

/// Names of sets of constants.
const PAPER: &str = "paper, probes free";
const PAPER_PROBES: &str = "paper, a probe is 160 ns";
const HERE: &str = "here, XXH3";
const HERE_MM64: &str = "here, MM64";
/// The paper's times, as in [`PAPER_PROBES`], of what gets were counted to need.
const REPLAYED: &str = "counts of replayed gets, a probe is 160 ns";

/// Figure 6.
pub(super) struct Gain {
    pub(super) about: About,
}

/// One point of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct GainRow {
    constants: String,
    policy: String,
    device: String,
    access_ns: f64,
    hash_ns: f64,
    probe_ns: f64,
    false_positive: f64,
    /// The share of lookups for absent keys.
    empty: f64,
    /// Equation 8 with exact sums, or with the counts of a replay.
    gain: f64,
    /// Equation 8 with the closed forms as printed.
    gain_as_printed: f64,
}

const KIND: &str = "gain";

impl Figure for Gain {
    fn about(&self) -> &About {
        &self.about
    }

    fn needs(&self, scale: Scale) -> Needs {
        // Digests and filters of all keys.
        let keys = KEYS[scale as usize];
        let disk_bytes = Replayed::bytes(replayed_keys(keys));
        Needs { seconds: [2, 12, 60][scale as usize], disk_bytes, memory_bytes: keys * 12 }
    }

    fn plan<'f>(&'f self, scale: Scale, custom: &Custom) -> Result<Box<dyn Plan + 'f>, BenchError> {
        custom.refuse_all_but(self.about.name, &["--keys", "--ops", "--repeat"])?;
        let keys = custom.keys.unwrap_or(KEYS[scale as usize]);
        if !(1000..=1 << 30).contains(&keys) {
            return Err(BenchError::Request("--keys must be from 1000 to a billion here".into()));
        }
        Ok(Box::new(GainPlan {
            scale,
            keys,
            rounds: custom.repeats.unwrap_or([3, 51, 201][scale as usize]).max(1),
            ops: custom.ops.unwrap_or([2_000, 100_000, 100_000][scale as usize]).clamp(16, 1 << 32) as usize,
            seed: custom.seed,
        }))
    }

    fn view(&self, rows: &[Row]) -> View {
        view(&rows::of_kind(rows, KIND))
    }

    #[cfg(test)]
    fn trial(&self) -> crate::figures::trial::Trial {
        tests::trial()
    }
}

/// By scale: number of keys of the probed filters. The paper's tree has 22 GB of entries of 1 KB.
const KEYS: [u64; 3] = [20_000, 4_000_000, 22_000_000];

/// Returns the number of keys of replays, whose counts depend on the shape of the tree only.
fn replayed_keys(keys: u64) -> u64 {
    keys / 20
}

struct GainPlan {
    scale: Scale,
    keys: u64,
    rounds: u32,
    ops: usize,
    seed: u64,
}

impl Plan for GainPlan {
    fn setting(&self) -> String {
        format!(
            "Equation 8 with 5 levels, T = 10 and {BITS} bits per key. Hashes of keys of 1 KB and probes of blocked Bloom filters \
             of {} keys in five runs are measured, {} interleaved rounds. {} gets for each α are replayed on trees of {} keys.",
            grouped(self.keys),
            self.rounds,
            grouped(self.ops as u64),
            grouped(replayed_keys(self.keys))
        )
    }

    fn scaled(&self) -> Vec<String> {
        match self.scale {
            Scale::Paper => Vec::new(),
            _ => vec![format!(
                "probed filters have {} keys, not 22 million, and replayed trees {}",
                grouped(self.keys),
                grouped(replayed_keys(self.keys))
            )],
        }
    }

    fn steps(&self) -> Vec<String> {
        vec!["the paper's constants".into(), "constants measured here".into(), "a replay".into()]
    }

    fn run(&mut self, step: usize, progress: &dyn Progress) -> Result<Vec<Row>, BenchError> {
        let mm64 = devices::MURMUR64.hash_ns;
        if step == 0 {
            let rate = tamis_model::bloom::optimal_rate(BITS);
            let with = points(PAPER_PROBES, mm64, devices::MEMORY.access_ns, rate);
            return Ok([points(PAPER, mm64, 0.0, rate), with].concat());
        }
        if step == 2 {
            return self.replay(progress);
        }
        let Constants { xxh3_ns, mm64_ns, probe_ns, rate } = self.measure(progress)?;
        let ours = points(HERE, xxh3_ns, probe_ns, rate);
        Ok([ours, points(HERE_MM64, mm64_ns, probe_ns, rate)].concat())
    }
}

struct Constants {
    xxh3_ns: f64,
    mm64_ns: f64,
    probe_ns: f64,
    rate: f64,
}

impl GainPlan {
    /// Counts what gets need on a tree of each policy, and weighs it with the paper's times.
    fn replay(&self, progress: &dyn Progress) -> Result<Vec<Row>, BenchError> {
        let (hash_ns, probe_ns) = (devices::MURMUR64.hash_ns, devices::MEMORY.access_ns);
        let mut rows = Vec::new();
        for (policy, name) in POLICIES {
            let tree = Replayed {
                keys: replayed_keys(self.keys),
                levels: TREE.levels as usize,
                size_ratio: TREE.size_ratio.into(),
                bits: BITS,
                tiering: policy == Policy::Tiering,
            };
            let absents = EMPTY.map(|empty| (empty * 100.0) as u64);
            let counts = tree.counts(&absents, self.ops as u64, self.seed, progress)?;
            for device in DEVICES {
                let costs = Costs { hash_ns, probe_ns, access_ns: device.access_ns };
                let replayed = EMPTY.into_iter().zip(&counts);
                rows.extend(replayed.map(|(empty, counts)| {
                    rows::row(KIND, &replayed_row(name, device.name, empty, costs, counts))
                }));
            }
        }
        Ok(rows)
    }

    fn measure(&self, progress: &dyn Progress) -> Result<Constants, BenchError> {
        let mut random = Random::part(self.seed, 6);
        let keys = random_bytes(16 * KEY_BYTES, &mut random);
        let mut filters = Vec::new();
        let mut at = 0;
        progress.begin("filters", 5, "runs");
        for (level, share) in TREE.level_shares().into_iter().enumerate() {
            let count = (self.keys as f64 * share).ceil() as u64;
            let digests: Vec<Digest> =
                (at..at + count).map(|i| Digest::from_u64(mix64(self.seed ^ i))).collect();
            at += count;
            let salt = level as u64;
            filters.push(
                PointFilter::build(PointSpec::BlockedBloom, &digests, BITS, salt, Verify::No)
                    .map_err(refused)?,
            );
            progress.advance(1);
        }
        progress.end();
        let rate = filters.last().map_or(0.0, PointFilter::expected_rate);
        let count = self.ops;
        let mut sides: Vec<Side<'_>> = Vec::new();
        for function in [Function::Xxh3, Function::Mm64] {
            let keys = &keys;
            let hash = move |at| black_box(function.hash(&keys[at * KEY_BYTES..][..KEY_BYTES])) & 1 == 1;
            sides.push(paced(count, 15, hash));
        }
        let filters = &filters;
        // A lookup of an absent key queries the filters of all runs with one digest.
        let mut digest = random.next_u64();
        sides.push(paced(count, 0, move |_| {
            digest = mix64(digest);
            let digest = Digest::from_u64(digest);
            filters.iter().fold(false, |any, filter| any | filter.contains(digest))
        }));
        progress.begin("hashes and probes", sides.len() as u64 * (u64::from(self.rounds) + 1), "turns");
        let spreads = interleaved(self.rounds, &mut sides, || progress.advance(1));
        progress.end();
        let ns = |at: usize| spreads.get(at).map_or(f64::NAN, |spread| spread.median);
        Ok(Constants { xxh3_ns: ns(0), mm64_ns: ns(1), probe_ns: ns(2) / filters.len() as f64, rate })
    }
}

/// Returns the gain by counts: those of gets without sharing, and with it.
fn replayed_row(
    policy: &str,
    device: &str,
    empty: f64,
    costs: Costs,
    [each, shared]: &[Counted; 2],
) -> GainRow {
    let cost =
        |of: &Counted| of.digests * costs.hash_ns + of.filters * costs.probe_ns + of.blocks * costs.access_ns;
    let gain = 1.0 - cost(shared) / cost(each);
    GainRow {
        constants: REPLAYED.into(),
        policy: policy.into(),
        device: device.into(),
        access_ns: costs.access_ns,
        hash_ns: costs.hash_ns,
        probe_ns: costs.probe_ns,
        // Blocks beyond those of keys that exist.
        false_positive: (each.blocks - (1.0 - empty)).max(0.0) / each.filters,
        empty,
        gain,
        gain_as_printed: gain,
    }
}

fn points(constants: &str, hash_ns: f64, probe_ns: f64, rate: f64) -> Vec<Row> {
    let mut rows = Vec::new();
    for (policy, policy_name) in POLICIES {
        for device in DEVICES {
            for empty in EMPTY {
                let workload = Workload { empty, false_positive: rate };
                let costs = Costs { hash_ns, probe_ns, access_ns: device.access_ns };
                let found = GainRow {
                    constants: constants.into(),
                    policy: policy_name.into(),
                    device: device.name.into(),
                    access_ns: device.access_ns,
                    hash_ns,
                    probe_ns,
                    false_positive: rate,
                    empty,
                    gain: gain(TREE, policy, workload, costs, Form::Exact),
                    gain_as_printed: gain(TREE, policy, workload, costs, Form::PaperClosed),
                };
                rows.push(rows::row(KIND, &found));
            }
        }
    }
    rows
}

fn view(rows: &[GainRow]) -> View {
    let mut constants: Vec<&str> = Vec::new();
    for row in rows {
        if !constants.contains(&row.constants.as_str()) {
            constants.push(&row.constants);
        }
    }
    let at = |constants: &str, policy: &str, device: &str, empty: f64| {
        rows.iter().find(|row| {
            row.constants == constants && row.policy == policy && row.device == device && row.empty == empty
        })
    };
    let mut panels = Vec::new();
    let mut sheets = Vec::new();
    let mut verdicts = Vec::new();
    for of in constants {
        let mut series = Vec::new();
        let names: Vec<String> = POLICIES
            .iter()
            .flat_map(|(_, policy)| EMPTY.map(|empty| format!("{policy}, α = {empty}")))
            .collect();
        let columns: Vec<&str> =
            ["<device", "T_D"].into_iter().chain(names.iter().map(String::as_str)).collect();
        let of_these = rows.iter().find(|row| row.constants == of);
        let (hash, probe) = of_these.map_or((f64::NAN, f64::NAN), |row| (row.hash_ns, row.probe_ns));
        let by = if of == REPLAYED { "counts" } else { "the model" };
        let title = format!("Gain by {by} in percent ({of}: T_H {}, T_P {})", time(hash), time(probe));
        let mut sheet = Sheet::new(&title, &columns);
        for device in DEVICES {
            let mut cells = vec![device.name.to_owned(), time(device.access_ns)];
            for (_, policy) in POLICIES {
                for empty in EMPTY {
                    let row = at(of, policy, device.name, empty);
                    cells.push(row.map_or("–".into(), |row| format!("{:.2}", row.gain * 100.0)));
                }
            }
            sheet.row(cells);
        }
        for (_, policy) in POLICIES {
            for empty in EMPTY {
                // The fastest device comes last, as in the paper; the axis needs ascending numbers.
                let points = DEVICES.iter().rev().filter_map(|device| {
                    Some(Point::new(device.access_ns, at(of, policy, device.name, empty)?.gain * 100.0))
                });
                series.push(Series {
                    name: if of == REPLAYED {
                        format!("{policy}, α = {empty}")
                    } else {
                        format!("model, {policy}, α = {empty}")
                    },
                    points: points.collect(),
                });
            }
        }
        panels.push(Panel {
            title: format!("gain ({of})"),
            x: Axis::new("access to 4 KiB", "ns").log(),
            y: Axis::new("gain", "%"),
            kind: Kind::Lines(series),
        });
        sheets.push(sheet);
        // The equation with the paper's own constants gives the same gains on any machine: nothing to judge.
        if ![PAPER, PAPER_PROBES].contains(&of) {
            verdicts.extend(claims(of, &at));
        }
    }
    if verdicts.is_empty() {
        verdicts.extend(claims(HERE, &at));
    }
    View { panels, sheets, verdicts }
}

fn claims<'r>(of: &str, at: &dyn Fn(&str, &str, &str, f64) -> Option<&'r GainRow>) -> [Verdict; 4] {
    let gains = |device: &str| -> Option<Vec<f64>> {
        let all = POLICIES.iter().flat_map(|(_, policy)| EMPTY.map(|empty| at(of, policy, device, empty)));
        all.map(|row| Some(row?.gain * 100.0)).collect()
    };
    let range = |gains: &[f64]| {
        gains.iter().fold((f64::INFINITY, 0.0f64), |(low, high), &g| (low.min(g), high.max(g)))
    };
    let text = |(low, high): (f64, f64)| format!("{low:.1}–{high:.1} %");

    let mut disk = Verdict::open(format!("The gain on a hard disk is negligible ({of})"), "about 0 %");
    if let Some(gains) = gains(devices::HDD.name) {
        let (_, high) = range(&gains);
        disk = disk.with(format!("at most {high:.2} %"), Some(high < 1.0), None, None);
    }
    let mut grows = Verdict::open(format!("It grows as devices get faster ({of})"), "at every α");
    let by_device: Option<Vec<Vec<f64>>> = DEVICES.iter().map(|device| gains(device.name)).collect();
    if let Some(by_device) = by_device {
        let steps =
            by_device.windows(2).all(|pair| pair[0].iter().zip(&pair[1]).all(|(slow, fast)| slow <= fast));
        let (slowest, fastest) = (range(&by_device[0]), range(&by_device[by_device.len() - 1]));
        grows = grows.with(format!("{} to {}", text(slowest), text(fastest)), None, Some(steps), None);
    }
    let mut nvm = Verdict::open(format!("The gain on NVM without hits ({of})"), "> 40 %");
    if let Some(row) = at(of, "leveling", devices::NVM.name, 1.0) {
        let gain = row.gain * 100.0;
        // The model never loses: less than half of the claim is no such gain.
        nvm = nvm.with(format!("{gain:.1} %"), Some(gain > 20.0), Some(gain > 40.0), None);
        if gain <= 40.0 {
            let (hash, probe) = (time(row.hash_ns), time(row.probe_ns));
            nvm =
                nvm.noting(format!("a hash takes {hash} and a probe {probe}; the paper's hash takes 235 ns"));
        }
    }
    let mut tiering =
        Verdict::open(format!("Tiering gains more than leveling ({of})"), "at every device and α");
    let pairs: Vec<(f64, f64)> = DEVICES
        .iter()
        .flat_map(|device| EMPTY.map(|empty| (device.name, empty)))
        .filter_map(|(device, empty)| {
            Some((at(of, "leveling", device, empty)?.gain, at(of, "tiering", device, empty)?.gain))
        })
        .collect();
    if !pairs.is_empty() {
        let more = pairs.iter().filter(|(leveling, tiering)| leveling < tiering).count();
        let text = format!("{more} of {} points", pairs.len());
        tiering = tiering.with(text, Some(more * 2 > pairs.len()), Some(more == pairs.len()), None);
    }
    [disk, grows, nvm, tiering]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Finding;
    use crate::figures::trial::Trial;

    fn rows_of(hash_ns: f64, probe_ns: f64) -> Vec<GainRow> {
        rows::of_kind(&points("c", hash_ns, probe_ns, 0.0082), KIND)
    }

    /// Turned round, the slowest device has the gains of the fastest, and leveling those of tiering.
    pub(super) fn trial() -> Trial {
        let good: Vec<Row> = [PAPER, PAPER_PROBES, HERE, HERE_MM64, REPLAYED]
            .into_iter()
            .flat_map(|constants| points(constants, 235.0, 20.0, 0.0082))
            .collect();
        let known: Vec<GainRow> = rows::of_kind(&good, KIND);
        let turn = |row: &GainRow| {
            let at = DEVICES.iter().position(|device| device.name == row.device).unwrap();
            let other = |of: &&GainRow| {
                of.constants == row.constants
                    && of.empty == row.empty
                    && of.policy != row.policy
                    && of.device == DEVICES[DEVICES.len() - 1 - at].name
            };
            rows::row(KIND, &GainRow { gain: known.iter().find(other).unwrap().gain, ..row.clone() })
        };
        Trial { bad: vec![known.iter().map(turn).collect()], good }
    }

    #[test]
    fn the_papers_constants_give_the_papers_claims() {
        for probe_ns in [0.0, 160.0] {
            let view = view(&rows_of(235.0, probe_ns));
            assert!(view.verdicts.iter().all(|v| v.finding == Finding::Holds), "{:?}", view.verdicts);
            assert_eq!((view.panels.len(), view.sheets[0].rows.len(), view.verdicts.len()), (1, 6, 4));
        }
    }

    /// Counts of the equation's own tree give the equation's gain.
    #[test]
    fn counts_are_weighed_as_by_the_equation() {
        let rate = 0.0082;
        let costs = Costs { hash_ns: 235.0, probe_ns: 160.0, access_ns: 250.0 };
        // An absent key is asked of five filters.
        let each = Counted { digests: 5.0, filters: 5.0, blocks: 5.0 * rate };
        let row = replayed_row("leveling", "nvm", 1.0, costs, &[each, Counted { digests: 1.0, ..each }]);
        let workload = Workload { empty: 1.0, false_positive: rate };
        let model = gain(TREE, Policy::Leveling, workload, costs, Form::Exact);
        assert!((row.gain - model).abs() < 1e-9, "{} {model}", row.gain);
        assert!((row.false_positive - rate).abs() < 1e-9);
    }

    #[test]
    fn a_free_hash_gains_nothing() {
        let view = view(&rows_of(1.0, 160.0));
        assert_eq!(view.verdicts[2].finding, Finding::Fails, "{:?}", view.verdicts[2]);
        assert!(view.verdicts[2].note.contains("1.0 ns"), "{}", view.verdicts[2].note);
    }
}
