//! Synthetic results with everything that a page may contain.

use tamis_lab::figures::results::{Done, Loaded, Setup};
use tamis_lab::figures::{About, Axis, Bar, Kind, Panel, Paper, Point, Scale, Series, Sheet, Verdict, View};
use tamis_lab::machine::Machine;

pub(crate) const HOSTILE: &str = "</text><script>console.error(1)</script>&amp;\"'\u{0}\u{202e}]]>";

const SIDES: [&str; 12] = [
    "rotation",
    "k hashes",
    "double hashing",
    "blocked",
    "ribbon",
    "grf",
    "snarf",
    "rosetta",
    "surf",
    "proteus",
    "elastic",
    "none",
];

/// Creates results whose last steps are missing if `done` is less than `steps`.
fn loaded(about: About, scale: Scale, (done, steps): (usize, usize), view: View) -> Loaded {
    let name = |step: usize| format!("step {step}");
    Loaded {
        setup: Setup {
            format: 1,
            figure: about.name.to_owned(),
            scale,
            commit: String::new(),
            version: "0.1.0".to_owned(),
            build: if scale == Scale::Small { "debug" } else { "release" }.to_owned(),
            seed: 7,
            custom: Vec::new(),
            command: format!(
                "tamis-lab experiment run {} --scale {scale} --seed 7 --bits 6,8,10,12,14 --option block_cache=64MiB",
                about.name
            ),
            setting: "1,000,000 keys of 24 bytes with values of 256 bytes, 7 rounds of 200,000 gets, sides interleaved"
                .to_owned(),
            scaled: vec![
                "22 GB in the paper, 280 MB here.".to_owned(),
                "Levels, size ratio and the share of memory are the paper’s.".to_owned(),
            ],
            steps: (0..steps).map(name).collect(),
            machine: Machine {
                caches: Vec::new(),
                cpu: "Some CPU @ 2.50GHz".to_owned(),
                cores: 2,
                memory_bytes: 8 << 30,
                system: "Linux 6.1.0 x86_64".to_owned(),
                disk: "solid state, ext4".to_owned(),
            },
            began: "2026-11-22T14:55:07Z".to_owned(),
        },
        about,
        scale,
        rows: Vec::new(),
        done: (0..done).map(|step| Done { step: name(step), seconds: 12.5, rows: 3 }).collect(),
        view,
    }
}

fn about(name: &'static str, paper: Paper, place: &'static str, title: &'static str) -> About {
    About {
        name,
        paper,
        place,
        title,
        claim: "Sharing one hash saves up to 23 % of a get; gains grow with the size of the key.",
        differs: "Devices are emulated by a file system that adds their latency.",
    }
}

fn points(side: usize) -> Vec<Point> {
    let point = |bits: f64| {
        let y = 300.0 * 1.4f64.powi(side as i32) * (1.0 + 40.0 * (-0.4 * bits).exp() * side as f64);
        Point { x: bits, y, spread: Some((y * 0.9, y * 1.15)) }
    };
    [6.0, 8.0, 10.0, 12.0, 14.0].map(point).into()
}

/// Returns lines of several sides, with a theory and a model.
pub(crate) fn lines(sides: usize) -> Panel {
    let mut series: Vec<Series> =
        (0..sides).map(|side| Series { name: SIDES[side].to_owned(), points: points(side) }).collect();
    let theory = [Point::new(6.0, 250.0), Point::new(14.0, 240.0)];
    series.push(Series { name: "theory: rotation".to_owned(), points: theory.into() });
    series.push(Series { name: "model of leveling".to_owned(), points: vec![Point::new(10.0, 700.0)] });
    Panel {
        title: format!("Latency of a get of an absent key, {sides} sides"),
        x: Axis::new("filter", "bits/key"),
        y: Axis::new("latency, median", "ns").log(),
        kind: Kind::Lines(series),
    }
}

/// Returns devices with stacked bars.
pub(crate) fn piles() -> Panel {
    let bars = |device: usize| {
        let bar = |name: &str, hashing: f64| Bar {
            name: name.to_owned(),
            parts: vec![20_000.0 / (device + 1) as f64, hashing, 1500.0, 800.0],
            spread: Some((21_000.0 / (device + 1) as f64, 29_000.0 / (device + 1) as f64)),
        };
        vec![bar("k hashes", 6000.0), bar("shared", 1000.0)]
    };
    let devices = ["HDD", "SSD", "PCIe SSD", "NVM", "memory"].into_iter().enumerate();
    Panel {
        title: "Where the time of a get goes".to_owned(),
        x: Axis::new("device", ""),
        y: Axis::new("a get", "ns"),
        kind: Kind::Bars {
            parts: ["data access", "hashing", "probing", "rest"].map(str::to_owned).into(),
            groups: devices.map(|(n, device)| (device.to_owned(), bars(n))).collect(),
        },
    }
}

/// Returns many thin bars.
pub(crate) fn workloads() -> Panel {
    let bars = |workload: usize| {
        let bar = |(side, name): (usize, &&str)| Bar {
            name: (*name).to_owned(),
            parts: vec![((side + 1) * (workload + 1)) as f64 * 7000.0],
            spread: None,
        };
        SIDES.iter().take(7).enumerate().map(bar).collect()
    };
    Panel {
        title: "YCSB".to_owned(),
        x: Axis::new("workload", ""),
        y: Axis::new("throughput", "ops/s"),
        kind: Kind::Bars {
            parts: Vec::new(),
            groups: ["A", "B", "C", "D", "E", "F"]
                .iter()
                .enumerate()
                .map(|(n, w)| (format!("workload {w}"), bars(n)))
                .collect(),
        },
    }
}

/// Returns throughput against latency, for increasing numbers of threads.
pub(crate) fn curve() -> Panel {
    let curve = |side: usize| {
        let at = |threads: u32| {
            let load = f64::from(threads);
            Point::new(
                90_000.0 * load / (1.0 + 0.13 * load * (side + 1) as f64),
                11_000.0 * (1.0 + 0.2 * load),
            )
        };
        [1, 2, 4, 8].map(at).into()
    };
    Panel {
        title: "Throughput and latency, 1 to 8 threads".to_owned(),
        x: Axis::new("throughput", "ops/s"),
        y: Axis::new("p99", "ns"),
        kind: Kind::Lines(
            (0..3).map(|side| Series { name: SIDES[side].to_owned(), points: curve(side) }).collect(),
        ),
    }
}

/// Returns a table that is wider than a telephone.
fn sheet() -> Sheet {
    let mut sheet = Sheet::new(
        "Median of 7 rounds (least – greatest)",
        &[
            "<filter",
            "bits/key",
            "ns/get",
            "hashes/get",
            "probes/get",
            "false positives/get",
            "blocks/get",
            "memory",
        ],
    );
    for (n, side) in SIDES.iter().enumerate() {
        let cells = ["10.02", "1,234 (1,200 – 1,301)", "1.000", "4.021", "0.0312", "0.0312", "12.4 MiB"];
        let number = |cell: &str| format!("{cell}{}", n % 10);
        sheet.row(std::iter::once((*side).to_owned()).chain(cells.map(number)));
    }
    sheet
}

/// Returns results of two papers and of none, complete and unfinished, with and without rows.
pub(crate) fn all() -> Vec<Loaded> {
    let verdicts = vec![
        Verdict::open(
            "Shared hashing is faster than a hash for each run, by up to 23 % at keys of 1 KB",
            "up to 23 %",
        )
        .with("21 %", Some(true), None, Some(0.91)),
        Verdict::open("rotation ≪ double hashing ≪ k hashes", "").with("as there", None, Some(true), None),
        Verdict::open("More gain on faster devices", "10 % to 40 %")
            .with("3 % to 9 %", Some(true), Some(true), Some(0.24))
            .noting("A get here takes more time outside of filters."),
        Verdict::open("Bits do not matter", "1×").with("0.4×", Some(false), None, Some(0.4)),
    ];
    let hash = View { panels: vec![lines(3), lines(12)], sheets: vec![sheet()], verdicts };
    let piles = View {
        panels: vec![piles()],
        sheets: vec![sheet()],
        verdicts: vec![Verdict::open("hashing is 75 % of a get", "> 75 %")],
    };
    let grf = View { panels: vec![workloads(), curve()], sheets: Vec::new(), verdicts: Vec::new() };
    vec![
        loaded(
            about("grf-fig13", Paper::Grf, "Figure 13", "YCSB under all selectors"),
            Scale::Paper,
            (4, 4),
            grf,
        ),
        loaded(
            about("hash-fig8a", Paper::HashSharing, "Figure 8a", "A get of an absent key by size of the key"),
            Scale::Default,
            (5, 5),
            hash,
        ),
        loaded(
            about("hash-fig1", Paper::HashSharing, "Figure 1", "Where the time of a get goes"),
            Scale::Small,
            (2, 8),
            piles,
        ),
        loaded(
            About {
                claim: "",
                differs: "",
                ..about("ours-locality", Paper::Ours, "", "Neighbours that are hot together")
            },
            Scale::Default,
            (0, 3),
            View { panels: vec![Panel { kind: Kind::Lines(Vec::new()), ..curve() }], ..View::default() },
        ),
    ]
}

/// Returns results with hostile texts and invalid numbers.
pub(crate) fn hostile() -> Loaded {
    let mut panel = lines(2);
    panel.title = HOSTILE.to_owned();
    panel.x = Axis::new(HOSTILE, HOSTILE);
    if let Kind::Lines(series) = &mut panel.kind {
        series[0].name = HOSTILE.to_owned();
        series[1].name = "w".repeat(400);
        series[1].points[2].y = f64::NAN;
    }
    let mut sheet = Sheet::new(HOSTILE, &[HOSTILE]);
    sheet.row([HOSTILE.to_owned()]);
    let mut verdict =
        Verdict::open(HOSTILE, HOSTILE).with(HOSTILE, Some(true), None, Some(1.0)).noting("w".repeat(400));
    verdict.ratio = Some(f64::INFINITY);
    let about = About {
        name: "hash-odd",
        paper: Paper::HashSharing,
        place: HOSTILE,
        title: HOSTILE,
        claim: HOSTILE,
        differs: HOSTILE,
    };
    let view = View { panels: vec![panel.clone(), panel], sheets: vec![sheet], verdicts: vec![verdict] };
    let mut loaded = loaded(about, Scale::Small, (1, 1), view);
    loaded.setup.command = HOSTILE.repeat(30);
    loaded.setup.setting = "w".repeat(2000);
    loaded.setup.machine.cpu = HOSTILE.to_owned();
    loaded.setup.began = HOSTILE.to_owned();
    loaded.setup.scaled = vec![HOSTILE.to_owned()];
    loaded
}
