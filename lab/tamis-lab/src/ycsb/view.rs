//! Views of rows: panels, the table, and verdicts.

use std::collections::BTreeSet;

use tamis_bench::report::grouped;
use tamis_bench::workload::Workload;

use crate::figures::compare::{Alike, Better, Claim, Gain, Unit, first_memory, memory, other_memory};
use crate::figures::{Axis, Finding, Kind, Panel, Point, Row, Series, Sheet, Verdict, View};
use crate::ycsb::plan::MIXES;
use crate::ycsb::rows::{MixRow, mixes};

/// Bits per key in ElasticBF's paper.
const ELASTIC_BITS: f64 = 4.0;

/// A mix, and the range of the throughput gain of elastic over fixed filters in ElasticBF's paper.
const ELASTIC_GAINS: [(Workload, f64, f64); 6] = [
    (Workload::YcsbA, 1.07, 1.37),
    (Workload::YcsbB, 1.53, 1.72),
    (Workload::YcsbC, 1.99, 2.11),
    (Workload::YcsbD, 1.48, 1.93),
    (Workload::YcsbE, 1.0, 1.0),
    (Workload::YcsbF, 1.08, 1.47),
];

pub(super) fn view(rows: &[Row]) -> View {
    let rows = mixes(rows);
    let mut view = View { verdicts: vec![front(&rows)], ..View::default() };
    view.verdicts.extend(ELASTIC_GAINS.map(|(mix, least, most)| elastic_gain(&rows, mix, least, most)));
    for mix in MIXES {
        let of: Vec<&MixRow> = rows.iter().filter(|row| row.measurement.workload == mix.name()).collect();
        if !of.is_empty() {
            view.panels.extend(panels(mix, &of));
        }
    }
    if !rows.is_empty() {
        view.sheets.push(sheet(&rows));
    }
    view
}

/// Returns throughput by threads, and the two latencies by throughput.
fn panels(mix: Workload, rows: &[&MixRow]) -> [Panel; 3] {
    let title = title_of(mix);
    let throughput = || Axis::new("throughput", "operations/s");
    let series = |point: &dyn Fn(&MixRow) -> Point| {
        let mut lines: Vec<Series> = Vec::new();
        for name in sides(rows.iter().copied()) {
            let mut of: Vec<&&MixRow> = rows.iter().filter(|row| row.side == name).collect();
            of.sort_by_key(|row| row.measurement.threads);
            lines.push(Series { name: name.to_owned(), points: of.iter().map(|row| point(row)).collect() });
        }
        Kind::Lines(lines)
    };
    let curve = |name: &str, of: &dyn Fn(&MixRow) -> u64| Panel {
        title: format!("{title}: {name} latency by throughput"),
        x: throughput(),
        y: Axis::new(&format!("{name} latency"), "µs").log(),
        kind: series(&|row| Point::new(row.throughput(), of(row) as f64 / 1e3)),
    };
    [
        Panel {
            title: format!("{title}: throughput by threads"),
            x: Axis::new("threads", ""),
            y: throughput(),
            kind: series(&|row| Point {
                spread: Some((row.min_ops_per_second, row.max_ops_per_second)),
                ..Point::new(row.measurement.threads as f64, row.throughput())
            }),
        },
        curve("p50", &|row| row.measurement.p50_ns),
        curve("p99", &|row| row.measurement.p99_ns),
    ]
}

/// Returns the names of sides in the order of their first row.
fn sides<'a>(rows: impl Iterator<Item = &'a MixRow>) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    rows.map(|row| &row.side[..]).filter(|name| seen.insert(*name)).collect()
}

/// Returns a mix's name: `YCSB A`.
fn title_of(mix: Workload) -> String {
    mix.name().replace('-', " ").to_uppercase()
}

fn sheet(rows: &[MixRow]) -> Sheet {
    let mut sheet = Sheet::new(
        "all mixes",
        &[
            "<mix",
            "threads",
            "<side",
            "bits/key",
            "operations/s",
            "± %",
            "p50 µs",
            "p99 µs",
            "runs searched",
            "false positives",
            "block reads",
            "system reads",
            "ahead",
        ],
    );
    let mut sorted: Vec<&MixRow> = rows.iter().collect();
    let place = |row: &MixRow| MIXES.iter().position(|mix| mix.name() == row.measurement.workload);
    let at = |row: &MixRow| (row.measurement.workload.clone(), row.measurement.threads);
    // The sort is stable: sides keep their order.
    sorted.sort_by_key(|row| (place(row), row.measurement.threads));
    for row in sorted {
        let m = &row.measurement;
        let here = rows.iter().filter(|other| at(other) == at(row));
        let first = first_memory(here.map(|other| other.memory_bits_per_key));
        let spread = (row.max_ops_per_second - row.min_ops_per_second) / 2.0 / row.throughput();
        let ahead = peers_of(rows, row).filter(|other| row.is_dominated_by(other)).count();
        sheet.row([
            m.workload.clone(),
            m.threads.to_string(),
            row.side.clone(),
            memory(row.memory_bits_per_key, first),
            grouped(row.throughput().round() as u64),
            format!("{:.0}", spread * 100.0),
            format!("{:.1}", m.p50_ns as f64 / 1e3),
            format!("{:.1}", m.p99_ns as f64 / 1e3),
            format!("{:.3}", m.runs_searched_per_op),
            format!("{:.4}", m.false_positives_per_op),
            format!("{:.3}", m.block_reads_per_op),
            format!("{:.3}", m.io_reads_per_op),
            ahead.to_string(),
        ]);
    }
    sheet
}

/// Returns the other sides with the common memory, in the same mix with the same number of threads.
fn peers_of<'a>(rows: &'a [MixRow], of: &'a MixRow) -> impl Iterator<Item = &'a MixRow> {
    let at = |row: &MixRow| (row.measurement.workload.clone(), row.measurement.threads);
    rows.iter().filter(move |row| row.side != of.side && row.side == row.selector && at(row) == at(of))
}

/// Judges whether GRF is on the Pareto front everywhere.
fn front(rows: &[MixRow]) -> Verdict {
    let verdict = Verdict::open(
        "GRF's curve is on the Pareto front in every mix: no other filter has more throughput at less latency, with any number of \
         threads",
        "everywhere",
    );
    let compared: Vec<&MixRow> =
        rows.iter().filter(|row| row.side == "grf" && peers_of(rows, row).next().is_some()).collect();
    if compared.is_empty() {
        return verdict;
    }
    let behind: Vec<(&MixRow, &MixRow)> = compared
        .iter()
        .filter_map(|row| {
            peers_of(rows, row).find(|other| row.is_dominated_by(other)).map(|other| (*row, other))
        })
        .collect();
    let first = |row: &&&MixRow| peers_of(rows, row).all(|other| other.throughput() < row.throughput());
    let on_front = compared.len() - behind.len();
    let most = compared.iter().filter(first).count();
    let ours = format!("at {on_front} of {} points, with the most throughput at {most}", compared.len());
    let listed: Vec<String> = behind
        .iter()
        .take(4)
        .map(|(row, other)| {
            let m = &row.measurement;
            let times = other.throughput() / row.throughput();
            let at = format!("{} with {}", title_of_name(&m.workload), threads_of(m.threads));
            format!("{at}: {} has {times:.2} times the throughput", other.side)
        })
        .collect();
    let more = behind.len().saturating_sub(listed.len());
    let mut note = match (listed.is_empty(), more) {
        (true, _) => String::new(),
        (false, 0) => format!("Ahead of GRF: {}. ", listed.join("; ")),
        (false, more) => format!("Ahead of GRF: {}; and {more} more. ", listed.join("; ")),
    };
    let memory = compared.iter().map(|row| row.memory_bits_per_key).fold(0.0, f64::max);
    let asked = compared[0].bits_asked;
    if memory > asked && other_memory(memory, asked) {
        note += &format!("GRF takes up to {memory:.1} bits per key here instead of {asked}.");
    }
    let note = note.trim_end();
    let all = behind.is_empty();
    verdict.with(ours, Some(on_front * 2 > compared.len()), Some(all), None).noting(note)
}

/// Formats a number of threads: `2 threads`.
pub(super) fn threads_of(threads: usize) -> String {
    format!("{threads} {}", if threads == 1 { "thread" } else { "threads" })
}

fn title_of_name(workload: &str) -> String {
    MIXES.iter().find(|mix| mix.name() == workload).map_or_else(|| workload.to_owned(), |mix| title_of(*mix))
}

/// Compares elastic filters with fixed ones of the same kind and memory, with the smallest number of threads measured.
fn elastic_gain(rows: &[MixRow], mix: Workload, least: f64, most: f64) -> Verdict {
    let title = title_of(mix);
    let find = |selector: &str, threads: Option<usize>| {
        rows.iter()
            .filter(|row| row.measurement.workload == mix.name() && row.bits_asked == ELASTIC_BITS)
            .filter(|row| {
                row.selector == selector && threads.is_none_or(|threads| row.measurement.threads == threads)
            })
            .min_by_key(|row| row.measurement.threads)
    };
    let gain = find("elastic", None).and_then(|elastic| {
        let fixed = find("bloom", Some(elastic.measurement.threads))?;
        Gain::of(elastic.rate(), fixed.rate(), Better::More)
    });
    if most == least {
        let claim = format!("{title}: elastic filters change nothing at {ELASTIC_BITS} bits per key");
        return Alike::UNCHANGED.judge(claim, "1×", gain.as_slice());
    }
    let claim = format!(
        "{title}: elastic filters gain {least}–{most}× over fixed ones at {ELASTIC_BITS} bits per key"
    );
    let verdict = Claim::range(claim, Unit::Times, least, most).judge(gain.as_slice(), None);
    match verdict.finding {
        Finding::Open => verdict,
        _ => verdict
            .noting("All queried keys exist; in the paper half of them do not, and filters matter more."),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::figures::rows::row;
    use crate::figures::trial::Trial;
    use crate::ycsb::rows::tests::mix;

    fn verdicts(rows: &[MixRow]) -> Vec<Verdict> {
        view(&rows.iter().map(row).collect::<Vec<_>>()).verdicts
    }

    /// Turned round, the sides have each other's figures, and scans gain as well.
    pub(in crate::ycsb) fn trial() -> Trial {
        let steady = |side: &str, workload: &str, per_second: f64, p99_ns: u64| {
            let made = mix(side, workload, 1, per_second, p99_ns);
            let spread = (per_second * 0.999, per_second * 1.001);
            row(&MixRow { min_ops_per_second: spread.0, max_ops_per_second: spread.1, ..made })
        };
        let rows = |turned: bool| {
            let of_mix = |&(workload, least, most): &(Workload, f64, f64)| {
                let (name, gain) = (workload.name(), f64::midpoint(least, most));
                let gain = if turned && gain == 1.0 { 3.0 } else { gain };
                let mut figures = [(200.0, 500), (100.0, 1000), (100.0 * gain, 10), (100.0, 10)];
                if turned {
                    figures.swap(0, 1);
                    figures.swap(2, 3);
                }
                let sides = ["grf", "fuse", "elastic@4", "bloom@4"];
                let made = sides.into_iter().zip(figures);
                made.map(|(side, (rate, p99))| steady(side, name, rate, p99)).collect::<Vec<_>>()
            };
            ELASTIC_GAINS.iter().flat_map(of_mix).collect()
        };
        Trial { good: rows(false), bad: vec![rows(true)] }
    }

    #[test]
    fn grf_is_on_the_front_unless_another_is_faster_and_steadier() {
        let grf = mix("grf", "ycsb-c", 1, 100.0, 1000);
        let front = |rows: &[MixRow]| verdicts(rows).remove(0);
        assert_eq!(front(std::slice::from_ref(&grf)).finding, Finding::Open, "nothing to compare with");
        let slower = mix("bloom", "ycsb-c", 1, 50.0, 500);
        let held = front(&[grf.clone(), slower.clone()]);
        assert_eq!(
            (held.finding, &held.ours[..]),
            (Finding::Holds, "at 1 of 1 points, with the most throughput at 1")
        );
        assert_eq!(held.note, "");
        let large = MixRow { memory_bits_per_key: 15.8, ..grf.clone() };
        let note = front(&[large, slower.clone()]).note;
        assert_eq!(note, "GRF takes up to 15.8 bits per key here instead of 10.");
        let ahead = mix("fuse", "ycsb-c", 1, 200.0, 500);
        let lost = front(&[grf.clone(), slower, ahead.clone()]);
        assert_eq!(lost.finding, Finding::Fails);
        assert!(lost.note.contains("YCSB C with 1 thread: fuse has 2.00 times"), "{}", lost.note);
        // Other mixes, other numbers of threads and other memory are other comparisons.
        let elsewhere = [
            MixRow { measurement: mix("fuse", "ycsb-a", 1, 1.0, 1).measurement, ..ahead.clone() },
            MixRow { measurement: mix("fuse", "ycsb-c", 2, 1.0, 1).measurement, ..ahead.clone() },
            MixRow { side: "fuse@20".into(), ..ahead },
        ];
        for other in elsewhere {
            assert_eq!(front(&[grf.clone(), other]).finding, Finding::Open);
        }
    }

    #[test]
    fn elastic_filters_are_compared_with_fixed_ones_of_the_same_memory() {
        let gain = |rows: &[MixRow], at: usize| verdicts(rows).remove(1 + at);
        let fixed = mix("bloom@4", "ycsb-c", 1, 100.0, 1000);
        let rows = [mix("elastic", "ycsb-c", 1, 900.0, 10), fixed.clone()];
        assert_eq!(gain(&rows, 2).finding, Finding::Open, "ten bits are not comparable with four");
        for (per_second, finding, ours) in [
            (205.0, Finding::Holds, "2.05×"),
            (400.0, Finding::Partly, "4.00×"),
            (150.0, Finding::Partly, "1.50×"),
            (50.0, Finding::Fails, "0.50×"),
            (105.0, Finding::Open, "1.05×"),
        ] {
            let verdict = gain(&[mix("elastic@4", "ycsb-c", 1, per_second, 10), fixed.clone()], 2);
            assert_eq!((verdict.finding, &verdict.ours[..]), (finding, ours));
        }
        let of_scans = |per_second: f64, spread: f64| {
            let steady = |side: &str, per_second: f64| MixRow {
                min_ops_per_second: per_second / spread,
                max_ops_per_second: per_second * spread,
                ..mix(side, "ycsb-e", 1, per_second, 10)
            };
            gain(&[steady("elastic@4", per_second), steady("bloom@4", 100.0)], 4).finding
        };
        assert_eq!((of_scans(104.0, 1.01), of_scans(104.0, 1.05)), (Finding::Holds, Finding::Open));
        assert_eq!((of_scans(150.0, 1.01), of_scans(60.0, 1.01)), (Finding::Fails, Finding::Fails));
        let noisy = MixRow { max_ops_per_second: 900.0, ..mix("elastic@4", "ycsb-e", 1, 40.0, 10) };
        assert_eq!(gain(&[noisy, mix("bloom@4", "ycsb-e", 1, 100.0, 10)], 4).finding, Finding::Open);
    }

    #[test]
    fn a_mix_has_three_panels_with_a_line_for_each_side() {
        let rows: Vec<Row> = [
            mix("grf", "ycsb-c", 2, 150.0, 900),
            mix("grf", "ycsb-c", 1, 100.0, 500),
            mix("bloom", "ycsb-c", 1, 90.0, 600),
        ]
        .iter()
        .map(row)
        .collect();
        let view = view(&rows);
        assert_eq!(view.panels.len(), 3);
        let Kind::Lines(lines) = &view.panels[2].kind else { panic!("{:?}", view.panels[2]) };
        let names: Vec<&str> = lines.iter().map(|line| &line.name[..]).collect();
        assert_eq!(names, ["grf", "bloom"]);
        let points: Vec<(f64, f64)> = lines[0].points.iter().map(|point| (point.x, point.y)).collect();
        assert_eq!(points, [(100.0, 0.5), (150.0, 0.9)], "in the order of threads");
        assert_eq!(view.sheets[0].rows.len(), 3);
        assert!(view.sheets[0].to_text().contains("ycsb-c"));
    }
}
