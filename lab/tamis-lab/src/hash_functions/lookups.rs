//! `hash-fig4`, `hash-fig5`: the time of a lookup of an absent key by key size, including hashing.

use serde::{Deserialize, Serialize};
use tamis_bench::BenchError;
use tamis_bench::progress::Progress;
use tamis_bench::random::Random;
use tamis_bench::report::grouped;
use tamis_filter::{Bloom, BloomScheme, Digest};

use super::DOUBLE_FUNCTIONS;
use super::functions::Function;
use super::rates::{BITS, doubled, random_bytes, refused, rotated};
use super::reference::{Reference, Scheme};
use super::rows::{self, time};
use super::timing::{Side, interleaved, paced};
use crate::figures::compare::{first_memory, memory};
use crate::figures::{
    About, Axis, Bar, Custom, Figure, Kind, Needs, Panel, Plan, Point, Row, Scale, Series, Sheet, Verdict,
    View,
};

/// Key sizes of the figures, in bytes.
const SIZES: [usize; 8] = [8, 16, 32, 64, 128, 256, 512, 1024];
const KEYS: usize = 10_000;
const PROBES: u32 = 7;
/// Size of the queried keys, which should not come from memory.
const QUERY_BYTES: usize = 1 << 20;

const SEVEN: &str = "seven hashes";
const LAZY: &str = "seven hashes, lazily";
const KIND: &str = "lookup";

/// One of the two figures.
pub(super) struct Lookups {
    pub(super) about: About,
    /// Whether the filter is in seven units (Figure 5) or one (Figure 4).
    pub(super) units: bool,
}

/// Time of a lookup with keys of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LookupRow {
    hashes: String,
    units: bool,
    key_bytes: u64,
    /// Filter bits per key in memory; `None` in rows of earlier versions.
    filter_bits_per_key: Option<f64>,
    ns_per_op: f64,
    min_ns: f64,
    max_ns: f64,
    rounds: u32,
    /// Maximum number of lookups in a round.
    most_ops: u64,
}

impl Figure for Lookups {
    fn about(&self) -> &About {
        &self.about
    }

    fn needs(&self, scale: Scale) -> Needs {
        let seconds = [1, 5, 15][scale as usize];
        Needs { seconds, disk_bytes: 0, memory_bytes: 32 << 20 }
    }

    fn plan<'f>(&'f self, scale: Scale, custom: &Custom) -> Result<Box<dyn Plan + 'f>, BenchError> {
        custom.refuse_all_but(self.about.name, &["--key-bytes", "--ops", "--repeat"])?;
        let (rounds, ops) = match scale {
            Scale::Small => (3, 2_000),
            Scale::Default => (51, 100_000),
            Scale::Paper => (201, 100_000),
        };
        let sizes = match &custom.key_bytes[..] {
            [] => SIZES.to_vec(),
            sizes => sizes.to_vec(),
        };
        if sizes.iter().any(|size| !(8..=8192).contains(size)) {
            return Err(BenchError::Request("--key-bytes must be from 8 to 8192 here".into()));
        }
        let rounds = custom.repeats.unwrap_or(rounds).max(1);
        Ok(Box::new(LookupsPlan {
            units: self.units,
            scale,
            rounds,
            ops: custom.ops.unwrap_or(ops).clamp(64, 1 << 32) as usize,
            sizes,
            seed: custom.seed,
        }))
    }

    fn view(&self, rows: &[Row]) -> View {
        view(self.units, &rows::of_kind(rows, KIND))
    }

    #[cfg(test)]
    fn trial(&self) -> crate::figures::trial::Trial {
        tests::trial(self.units)
    }
}

struct LookupsPlan {
    units: bool,
    scale: Scale,
    rounds: u32,
    ops: usize,
    sizes: Vec<usize>,
    seed: u64,
}

impl Plan for LookupsPlan {
    fn setting(&self) -> String {
        let form = if self.units { "seven units of one probe each" } else { "one filter of seven probes" };
        format!(
            "Lookups of absent keys in {form}: 10,000 keys at 10 bits, in the cache; {} interleaved rounds of up to {} lookups \
             or 0.4 ms each.",
            self.rounds,
            grouped(self.ops as u64)
        )
    }

    fn scaled(&self) -> Vec<String> {
        match self.scale {
            Scale::Small => vec!["three rounds instead of 201".into()],
            _ => Vec::new(),
        }
    }

    fn steps(&self) -> Vec<String> {
        self.sizes.iter().map(|size| format!("keys of {size} bytes")).collect()
    }

    fn run(&mut self, step: usize, progress: &dyn Progress) -> Result<Vec<Row>, BenchError> {
        let Some(&size) = self.sizes.get(step) else { return Ok(Vec::new()) };
        let mut random = Random::part(self.seed, size as u64);
        let members = random_bytes(KEYS * size, &mut random);
        // Short keys: enough of them that branch prediction cannot learn the answers.
        let queries = (QUERY_BYTES / size).clamp(1 << 10, 1 << 15).next_power_of_two();
        let others = random_bytes(queries * size, &mut random);
        let most = self.ops;
        let mask = queries - 1;
        let key = |at: usize| &others[at * size..][..size];
        let member_keys = || members.chunks_exact(size);
        let reference = |scheme| Reference::build(member_keys(), BITS, PROBES, scheme, self.units);

        let mut sides: Vec<Side<'_>> = Vec::new();
        let mut names = Vec::new();
        let schemes: Vec<(String, Scheme)> = if self.units {
            let rotations = [Function::Mm64, Function::Xxh3].map(|f| (rotated(f), Scheme::Rotation(f)));
            let doubles = DOUBLE_FUNCTIONS.map(|(f, _)| (doubled(f), Scheme::Double(f, Function::Mm64)));
            rotations.into_iter().chain(doubles).collect()
        } else {
            vec![(SEVEN.into(), Scheme::Seven), (LAZY.into(), Scheme::SevenLazy)]
        };
        for (name, scheme) in schemes {
            let filter = reference(scheme);
            names.push((name, filter.memory_bytes()));
            sides.push(paced(most, mask, move |at| filter.contains(key(at))));
        }
        // The filters of tamis itself.
        let products = if self.units { &[][..] } else { &[Function::Md5, Function::Mm64, Function::Xxh3] };
        for &function in products {
            let digests: Vec<_> = member_keys().map(|key| Digest::from_u64(function.hash(key))).collect();
            let filter = Bloom::build(&digests, BITS, BloomScheme::Rotation, 0).map_err(refused)?;
            names.push((rotated(function), filter.memory_bytes()));
            let contains = move |at| filter.contains(Digest::from_u64(function.hash(key(at))));
            sides.push(paced(most, mask, contains));
        }
        let turns = sides.len() as u64 * (u64::from(self.rounds) + 1);
        progress.begin(&format!("keys of {size} bytes"), turns, "turns");
        let spreads = interleaved(self.rounds, &mut sides, || progress.advance(1));
        progress.end();
        let rows = names.into_iter().zip(spreads).map(|((hashes, bytes), spread)| {
            let found = LookupRow {
                filter_bits_per_key: Some(bytes as f64 * 8.0 / KEYS as f64),
                hashes,
                units: self.units,
                key_bytes: size as u64,
                ns_per_op: spread.median,
                min_ns: spread.min,
                max_ns: spread.max,
                rounds: self.rounds,
                most_ops: most as u64,
            };
            rows::row(KIND, &found)
        });
        Ok(rows.collect())
    }
}

fn view(units: bool, rows: &[LookupRow]) -> View {
    let mut names: Vec<&str> = Vec::new();
    let mut sizes: Vec<u64> = Vec::new();
    for row in rows {
        if !names.contains(&row.hashes.as_str()) {
            names.push(&row.hashes);
        }
        if !sizes.contains(&row.key_bytes) {
            sizes.push(row.key_bytes);
        }
    }
    sizes.sort_unstable();
    let at = |name: &str, size: u64| rows.iter().find(|row| row.hashes == name && row.key_bytes == size);
    let headers: Vec<String> = sizes.iter().map(|size| format!("{size} B")).collect();
    let columns: Vec<&str> =
        ["<hashes", "bits/key"].into_iter().chain(headers.iter().map(String::as_str)).collect();
    let mut sheet = Sheet::new("Lookup of an absent key by its size, median", &columns);
    let bits = |name: &str| {
        rows.iter().filter(|row| row.hashes == name).find_map(|row| row.filter_bits_per_key).unwrap_or(0.0)
    };
    let first = first_memory(names.iter().map(|name| bits(name)));
    for &name in &names {
        let cells = sizes.iter().map(|&size| at(name, size).map_or("–".into(), |row| time(row.ns_per_op)));
        sheet.row([name.to_owned(), memory(bits(name), first)].into_iter().chain(cells));
    }
    let mut panels = Vec::new();
    if !sizes.is_empty() {
        // The paper draws bars on a linear axis; lines on logarithmic axes show short keys, too.
        let line = |name: &&str| {
            let point = |&size: &u64| {
                let row = at(name, size)?;
                Some(Point { x: size as f64, y: row.ns_per_op, spread: Some((row.min_ns, row.max_ns)) })
            };
            Series { name: (*name).to_owned(), points: sizes.iter().filter_map(point).collect() }
        };
        panels.push(Panel {
            title: "lookup over key size".into(),
            x: Axis::new("key", "B").log(),
            y: Axis::new("lookup", "ns").log(),
            kind: Kind::Lines(names.iter().map(line).collect()),
        });
        let bars = |&size: &u64| {
            let bar = |name: &&str| {
                let row = at(name, size)?;
                let spread = Some((row.min_ns / 1e3, row.max_ns / 1e3));
                Some(Bar { name: (*name).to_owned(), parts: vec![row.ns_per_op / 1e3], spread })
            };
            (format!("{size} B"), names.iter().filter_map(bar).collect())
        };
        panels.push(Panel {
            title: "lookup as bars".into(),
            x: Axis::new("key", ""),
            y: Axis::new("lookup", "µs"),
            kind: Kind::Bars { parts: vec!["lookup".into()], groups: sizes.iter().map(bars).collect() },
        });
    }
    let verdicts =
        if units { vec![rotation_is_faster(&sizes, &at)] } else { vec![one_is_cheaper(&sizes, &at)] };
    View { panels, sheets: vec![sheet], verdicts }
}

fn one_is_cheaper<'r>(sizes: &[u64], at: &dyn Fn(&str, u64) -> Option<&'r LookupRow>) -> Verdict {
    let verdict = Verdict::open(
        "One hash and rotation is far cheaper than seven hashes, a fast one more so, and lookups grow with the key",
        "seven > MD5 + rotation > MM64 + rotation at all sizes",
    );
    let (md5, mm64) = (rotated(Function::Md5), rotated(Function::Mm64));
    let rows: Option<Vec<[f64; 3]>> = sizes
        .iter()
        .map(|&size| Some([at(SEVEN, size)?, at(&md5, size)?, at(&mm64, size)?].map(|row| row.ns_per_op)))
        .collect();
    let Some((first, last)) = rows.as_ref().and_then(|rows| Some((rows.first()?, rows.last()?))) else {
        return verdict;
    };
    let ordered = rows.iter().flatten().all(|[seven, md5, mm64]| seven > md5 && md5 > mm64);
    // Far cheaper is less than half, at most sizes.
    let far = rows.iter().flatten().filter(|[seven, _, mm64]| *seven > 2.0 * mm64).count();
    let cheaper = 2 * far > sizes.len();
    let grows = sizes.len() < 2 || (last[0] > first[0] && last[2] > first[2]);
    let text = format!(
        "seven cost {:.0}× MM64 + rotation at {} B, {:.0}× at {} B; MD5 {:.0}× and {:.0}×",
        first[0] / first[2],
        sizes[0],
        last[0] / last[2],
        sizes[sizes.len() - 1],
        first[1] / first[2],
        last[1] / last[2]
    );
    verdict.with(text, Some(cheaper && grows), Some(ordered), None)
}

fn rotation_is_faster<'r>(sizes: &[u64], at: &dyn Fn(&str, u64) -> Option<&'r LookupRow>) -> Verdict {
    let verdict = Verdict::open("Rotation is faster than double hashing", "up to 3×");
    let mut ratios = Vec::new();
    for &size in sizes {
        let Some(one) = at(&rotated(Function::Mm64), size) else { continue };
        let doubles = DOUBLE_FUNCTIONS.iter().filter_map(|&(f, _)| at(&doubled(f), size));
        ratios.extend(doubles.map(|double| (double.ns_per_op / one.ns_per_op, double, size)));
    }
    let by_ratio = |a: &&(f64, &LookupRow, u64), b: &&(f64, &LookupRow, u64)| a.0.total_cmp(&b.0);
    let (Some(low), Some(high)) = (ratios.iter().min_by(by_ratio), ratios.iter().max_by(by_ratio)) else {
        return verdict;
    };
    let text = format!("{:.2}–{:.2}×, most with {} at {} B", low.0, high.0, high.1.hashes, high.2);
    // Differences below 5 % are ignored.
    verdict.with(text, Some(low.0 > 0.95 && high.0 > 1.05), None, Some(high.0 / 3.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Finding;
    use crate::figures::trial::Trial;

    fn row(hashes: &str, key_bytes: u64, ns: f64) -> LookupRow {
        LookupRow {
            hashes: hashes.into(),
            units: false,
            key_bytes,
            filter_bits_per_key: Some(10.0),
            ns_per_op: ns,
            min_ns: ns,
            max_ns: ns,
            rounds: 3,
            most_ops: 100,
        }
    }

    /// Turned round, the cheapest hashes are the most expensive ones.
    pub(super) fn trial(units: bool) -> Trial {
        let mm64 = rotated(Function::Mm64);
        let names: Vec<(String, f64)> = match units {
            true => DOUBLE_FUNCTIONS.iter().map(|&(f, _)| (doubled(f), 2.5)).chain([(mm64, 1.0)]).collect(),
            false => vec![(SEVEN.into(), 20.0), (rotated(Function::Md5), 5.0), (mm64, 1.0)],
        };
        let rows = |turned: bool| {
            let of_size = |size: u64| {
                let times = |times: f64| if turned { 1.0 / times } else { times };
                let row = move |(name, by): &(String, f64)| row(name, size, times(*by) * size as f64);
                names.iter().map(row).map(|row| rows::row(KIND, &row)).collect::<Vec<_>>()
            };
            [8, 64, 512].into_iter().flat_map(of_size).collect()
        };
        Trial { good: rows(false), bad: vec![rows(true)] }
    }

    #[test]
    fn the_order_of_hashes_makes_the_verdict() {
        let names = [SEVEN.to_owned(), rotated(Function::Md5), rotated(Function::Mm64)];
        let rows = |ns: [f64; 3]| -> Vec<LookupRow> {
            [(8, 1.0), (512, 10.0)]
                .into_iter()
                .flat_map(|(size, times)| {
                    names.iter().zip(ns).map(move |(name, ns)| row(name, size, ns * times))
                })
                .collect()
        };
        assert_eq!(view(false, &rows([300.0, 100.0, 20.0])).verdicts[0].finding, Finding::Holds);
        assert_eq!(view(false, &rows([300.0, 10.0, 20.0])).verdicts[0].finding, Finding::Partly);
        assert_eq!(view(false, &rows([30.0, 25.0, 20.0])).verdicts[0].finding, Finding::Fails);
        assert_eq!(view(false, &rows([300.0, 10.0, 20.0])[..2]).verdicts[0].finding, Finding::Open);
    }

    #[test]
    fn doubling_must_cost_more() {
        let rows = |times: f64| {
            let doubles = DOUBLE_FUNCTIONS.iter().map(|&(f, _)| row(&doubled(f), 64, 20.0 * times));
            doubles.chain([row(&rotated(Function::Mm64), 64, 20.0)]).collect::<Vec<_>>()
        };
        let finding = |times| view(true, &rows(times)).verdicts[0].finding;
        assert_eq!(
            (finding(2.5), finding(1.5), finding(0.8)),
            (Finding::Holds, Finding::Partly, Finding::Fails)
        );
    }
}
