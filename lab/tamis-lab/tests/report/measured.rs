//! Measured results: a figure of its own, and the catalogue's quickest of each paper.

use serde_json::json;
use tamis_bench::{Bench, BenchConfig, BenchError, KeySet, NoProgress, Progress, Workload};
use tamis_lab::figures::results::Loaded;
use tamis_lab::figures::run::run;
use tamis_lab::figures::{
    About, Axis, Bar, Custom, Figure, Kind, Needs, Panel, Paper, Plan, Point, Row, Scale, Series, Sheet,
    Verdict, View, catalogue,
};

/// Maximum estimated duration, at small scale, of the catalogue's figures measured here, in seconds.
const QUICK: u64 = 5;

/// Measures figures now, each in a directory that is removed afterwards.
pub(crate) fn results() -> Vec<Loaded> {
    let out = tempfile::tempdir().unwrap();
    let measure = |figure: &dyn Figure| {
        let report = run(figure, Scale::Small, &Custom::default(), out.path(), false, &NoProgress);
        report.unwrap_or_else(|error| panic!("{}: {error}", figure.about().name)).loaded
    };
    let all = catalogue::all();
    let takes = |figure: &dyn Figure| figure.needs(Scale::Small).seconds;
    let quickest = Paper::ALL.into_iter().filter_map(|paper| {
        let of_paper = all.iter().map(AsRef::as_ref).filter(|figure| figure.about().paper == paper);
        of_paper.min_by_key(|figure| takes(*figure)).filter(|figure| takes(*figure) <= QUICK)
    });
    std::iter::once(measure(&Gets)).chain(quickest.map(measure)).collect()
}

/// Gets of present and absent keys by key size.
struct Gets;

const ABOUT: About = About {
    name: "ours-gets",
    paper: Paper::Ours,
    place: "",
    title: "Gets by key size",
    claim: "A get takes one digest, whatever the key.",
    differs: "",
};

const SIDES: [Workload; 2] = [Workload::GetExisting, Workload::GetEmpty];
const KEY_BYTES: [usize; 3] = [8, 64, 512];

impl Figure for Gets {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn needs(&self, _: Scale) -> Needs {
        Needs::default()
    }

    fn plan<'f>(&'f self, _: Scale, _: &Custom) -> Result<Box<dyn Plan + 'f>, BenchError> {
        Ok(Box::new(GetsPlan))
    }

    fn view(&self, rows: &[Row]) -> View {
        let of = |side: Workload| {
            rows.iter().filter(move |row| row.get("side").is_some_and(|name| *name == side.to_string()))
        };
        let points = |side| {
            of(side)
                .filter_map(|row| Some(Point::new(row.get("key_bytes")?.as_f64()?, row.get("ns")?.as_f64()?)))
        };
        let bars = |side| {
            let bar = |row: &Row| Bar {
                name: row["key_bytes"].to_string(),
                parts: vec![row["ns"].as_f64().unwrap_or(0.0)],
                spread: None,
            };
            of(side).map(bar).collect()
        };
        let lines = SIDES.map(|side| Series { name: side.to_string(), points: points(side).collect() });
        let panel = |title: &str, kind| Panel {
            title: title.to_owned(),
            x: Axis::new("key", "B").log(),
            y: Axis::new("a get", "ns").log(),
            kind,
        };
        let mut sheet = Sheet::new("Gets", &["<side", "key, B", "ns", "digests"]);
        for row in rows {
            sheet.row(["side", "key_bytes", "ns", "digests"].map(|name| row[name].to_string()));
        }
        let once = rows.iter().all(|row| row["digests"] == 1.0);
        View {
            panels: vec![
                panel("lines", Kind::Lines(lines.into())),
                panel(
                    "bars",
                    Kind::Bars {
                        parts: Vec::new(),
                        groups: SIDES.map(|side| (side.to_string(), bars(side))).into(),
                    },
                ),
            ],
            sheets: vec![sheet],
            verdicts: vec![Verdict::open("one digest a get", "1").with("1", None, Some(once), None)],
        }
    }
}

struct GetsPlan;

impl Plan for GetsPlan {
    fn setting(&self) -> String {
        "2,000 keys with values of 40 bytes".to_owned()
    }

    fn scaled(&self) -> Vec<String> {
        Vec::new()
    }

    fn steps(&self) -> Vec<String> {
        KEY_BYTES.map(|bytes| format!("keys of {bytes} B")).into()
    }

    fn run(&mut self, step: usize, progress: &dyn Progress) -> Result<Vec<Row>, BenchError> {
        let config = BenchConfig {
            experiment: ABOUT.name.to_owned(),
            workloads: SIDES.into(),
            keys: KeySet::uniform(2000, KEY_BYTES[step], 1)?,
            value_bytes: 40.into(),
            threads: 1,
            ops: Some(2000),
            warmup: Some(100),
            repeats: 3,
            pattern: None,
            seed: 1,
            settled: true,
            options: tamis::Options::default(),
            dir: None,
        };
        let row = |m: &tamis_bench::Measurement| {
            let row = json!({
                "kind": "gets", "side": m.workload, "key_bytes": KEY_BYTES[step], "ns": m.ns_per_op, "digests": m.digests_per_op,
            });
            row.as_object().cloned().unwrap()
        };
        Ok(Bench::open(config, progress)?.run::<BenchError>(|_| Ok(()))?.iter().map(row).collect())
    }
}
