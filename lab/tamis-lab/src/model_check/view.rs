//! Comparison of predictions with measurements.

use super::{CountRow, TimeRow};
use crate::figures::compare::{first_memory, median, memory};
use crate::figures::{Axis, Kind, Panel, Point, Series, Sheet, Verdict, View};
use crate::hash_functions::rows::time;

/// Tolerated relative error of counts.
const COUNTS: f64 = 0.05;
/// Tolerated relative error of times at the median; twice this at the 90th percentile.
const TIMES: f64 = 0.15;
/// Number of events below which nothing can be said within [`COUNTS`].
const ENOUGH: f64 = 1000.0;
/// Standard deviations by which a count may differ by chance.
const CHANCE: f64 = 4.0;

fn error(predicted: f64, measured: f64) -> f64 {
    predicted / measured - 1.0
}

fn signed(error: f64) -> String {
    if error.is_finite() { format!("{:+.1}", error * 100.0) } else { "–".to_owned() }
}

fn sharing(on: bool) -> &'static str {
    if on { "shared" } else { "per filter" }
}

pub(super) fn view(counts: &[CountRow], times: &[TimeRow]) -> View {
    let mut view = View::default();
    view.sheets.push(counts_sheet(counts));
    view.sheets.push(times_sheet(times));
    view.panels.extend(counts_panel(counts));
    let mut devices: Vec<&str> = Vec::new();
    for row in times {
        if !devices.contains(&row.device.as_str()) {
            devices.push(&row.device);
        }
    }
    for device in &devices {
        let rows: Vec<&TimeRow> = times.iter().filter(|row| row.device == *device).collect();
        view.panels.push(times_panel(device, &rows));
    }
    view.verdicts.extend(count_verdicts(counts));
    view.verdicts.extend(time_verdicts(&devices, times));
    view
}

fn counts_sheet(rows: &[CountRow]) -> Sheet {
    let columns = [
        "<shape",
        "<digests",
        "α %",
        "digests, model",
        "digests",
        "error %",
        "probes, model",
        "with steps",
        "probes",
        "error %",
        "with steps %",
        "false positives, model",
        "by run",
        "false positives",
        "error %",
        "blocks, model",
        "blocks",
        "error %",
    ];
    let mut sheet = Sheet::new("Counts of a get: the equations compared with the engine", &columns);
    for row in rows {
        let number = |value: f64| format!("{value:.3}");
        sheet.row([
            row.shape.clone(),
            sharing(row.sharing).to_owned(),
            row.absent_percent.to_string(),
            number(row.digests_model),
            number(row.digests),
            signed(error(row.digests_model, row.digests)),
            number(row.probes_model),
            number(row.probes_in_steps),
            number(row.probes),
            signed(error(row.probes_model, row.probes)),
            signed(error(row.probes_in_steps, row.probes)),
            format!("{:.5}", row.false_positives_model),
            format!("{:.5}", row.false_positives_by_run),
            format!("{:.5}", row.false_positives),
            signed(error(row.false_positives_by_run, row.false_positives)),
            number(row.blocks_model),
            number(row.blocks),
            signed(error(row.blocks_model, row.blocks)),
        ]);
    }
    sheet
}

fn times_sheet(rows: &[TimeRow]) -> Sheet {
    let columns = [
        "<shape",
        "<device",
        "<digests",
        "α %",
        "bits/key",
        "T_H",
        "T_P",
        "T_D",
        "empty get",
        "equations",
        "error %",
        "predicted",
        "measured",
        "least",
        "most",
        "error %",
    ];
    let title = "Times of a get, predicted by the equations with steps and the get of an empty database";
    let mut sheet = Sheet::new(title, &columns);
    for row in rows {
        let here = rows.iter().filter(|other| other.shape == row.shape && other.device == row.device);
        let first = first_memory(here.filter_map(|other| other.filter_bits_per_key));
        sheet.row([
            row.shape.clone(),
            row.device.clone(),
            sharing(row.sharing).to_owned(),
            row.absent_percent.to_string(),
            memory(row.filter_bits_per_key.unwrap_or(0.0), first),
            time(row.hash_ns),
            time(row.probe_ns),
            time(row.access_ns),
            time(row.base_ns),
            time(row.equations_ns),
            signed(error(row.equations_ns, row.ns_per_op)),
            time(row.predicted_ns),
            time(row.ns_per_op),
            time(row.min_ns),
            time(row.max_ns),
            signed(error(row.predicted_ns, row.ns_per_op)),
        ]);
    }
    sheet
}

/// Draws points and the line of correct predictions.
fn scatter(title: String, unit: &str, series: Vec<(String, Vec<(f64, f64)>)>) -> Panel {
    let all = || series.iter().flat_map(|(_, points)| points.iter().flat_map(|&(x, y)| [x, y]));
    let (low, high) =
        all().filter(|v| *v > 0.0).fold((f64::INFINITY, 0.0f64), |(l, h), v| (l.min(v), h.max(v)));
    let mut lines = Vec::new();
    if low <= high {
        let points = vec![Point::new(low, low), Point::new(high, high)];
        lines.push(Series { name: "model is right".into(), points });
    }
    lines.extend(series.into_iter().map(|(name, mut points)| {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series { name, points: points.into_iter().map(|(x, y)| Point::new(x, y)).collect() }
    }));
    Panel {
        title,
        x: Axis::new("measured", unit).log(),
        y: Axis::new("predicted", unit).log(),
        kind: Kind::Lines(lines),
    }
}

fn counts_panel(rows: &[CountRow]) -> Option<Panel> {
    let of =
        |name: &str, of: &dyn Fn(&CountRow) -> (f64, f64)| (name.to_owned(), rows.iter().map(of).collect());
    let series = vec![
        of("digests", &|row| (row.digests, row.digests_model)),
        of("probes", &|row| (row.probes, row.probes_in_steps)),
        of("false positives", &|row| (row.false_positives, row.false_positives_by_run)),
        of("blocks", &|row| (row.blocks, row.blocks_model)),
    ];
    (!rows.is_empty()).then(|| scatter("counts, predicted over measured".into(), "", series))
}

fn times_panel(device: &str, rows: &[&TimeRow]) -> Panel {
    let side = |policy: &str, on: bool| {
        let of = rows.iter().filter(|row| row.policy == policy && row.sharing == on);
        let points = of.map(|row| (row.ns_per_op, row.predicted_ns)).collect();
        (format!("{policy}, {}", sharing(on)), points)
    };
    let sides =
        ["leveling", "tiering"].into_iter().flat_map(|policy| [false, true].map(|on| side(policy, on)));
    let series = sides.filter(|(_, points): &(_, Vec<_>)| !points.is_empty()).collect();
    scatter(format!("time, predicted over measured ({device})"), "ns", series)
}

/// Judges the largest of some errors.
fn within(verdict: Verdict, errors: &[(f64, &CountRow)], agrees: bool) -> Verdict {
    match errors.iter().max_by(|a, b| a.0.abs().total_cmp(&b.0.abs())) {
        Some((worst, row)) => {
            let at = format!("{}, {}, α = {} %", row.shape, sharing(row.sharing), row.absent_percent);
            verdict.with(format!("at most {} % ({at})", signed(*worst)), Some(agrees), None, None)
        }
        None => verdict,
    }
}

fn count_verdicts(rows: &[CountRow]) -> Vec<Verdict> {
    let limit = format!("within {:.0} %", COUNTS * 100.0);
    let check = |claim: &str, of: &dyn Fn(&CountRow) -> Option<(f64, f64)>| {
        let errors: Vec<(f64, &CountRow)> =
            rows.iter().filter_map(|row| of(row).map(|(model, here)| (error(model, here), row))).collect();
        let agrees = errors.iter().all(|(error, _)| error.abs() <= COUNTS);
        within(Verdict::open(claim, limit.clone()), &errors, agrees)
    };
    let each = |row: &CountRow| (!row.sharing).then_some((row.probes_model, row.probes));
    let shared = |row: &CountRow| row.sharing.then_some((row.probes_in_steps, row.probes));
    let without_steps = rows
        .iter()
        .filter(|row| row.sharing)
        .map(|row| error(row.probes_model, row.probes))
        .fold(0.0f64, |worst, error| if error.abs() > worst.abs() { error } else { worst });
    let mut probes = check("Filters asked where digests are shared, in steps", &shared);
    if rows.iter().any(|row| row.sharing) {
        probes = probes.noting(format!(
            "the equation by itself errs by up to {} %: filters are queried in steps, and some of them are behind the key",
            signed(without_steps)
        ));
    }
    // Chance in few events is no error of the model.
    let told = |row: &&CountRow| row.false_positives_by_run * row.ops as f64 >= ENOUGH;
    let wrong: Vec<(f64, &CountRow)> = rows
        .iter()
        .filter(told)
        .map(|row| (error(row.false_positives_by_run, row.false_positives), row))
        .collect();
    let agrees = wrong.iter().all(|(error, row)| {
        let chance = CHANCE / (row.false_positives_by_run * row.ops as f64).sqrt();
        error.abs() <= COUNTS.max(chance)
    });
    let mut false_positives =
        within(Verdict::open("False positives, with each run's own rate", limit.clone()), &wrong, agrees);
    if let (Some((high, _)), Some((low, _))) =
        (wrong.iter().max_by(|a, b| a.0.total_cmp(&b.0)), wrong.iter().min_by(|a, b| a.0.total_cmp(&b.0)))
    {
        false_positives = false_positives.noting(format!(
            "{} to {} % where {ENOUGH} and more were expected; which keys collide in small filters is chance, too",
            signed(*low),
            signed(*high)
        ));
    }
    vec![
        check("Digests computed", &|row| Some((row.digests_model, row.digests))),
        check("Filters asked where each has a digest of its own", &each),
        probes,
        false_positives,
        check("Blocks read where some are there", &|row| {
            // Without hits all blocks are false positives.
            (row.absent_percent < 100).then_some((row.blocks_model, row.blocks))
        }),
    ]
}

fn time_verdicts(devices: &[&str], rows: &[TimeRow]) -> Vec<Verdict> {
    let limit = format!("within {:.0} % at the median, {:.0} % at nine of ten", TIMES * 100.0, TIMES * 200.0);
    let of_device = |device: &&str| {
        let open = Verdict::open(format!("Time of a get from T_H, T_P and T_D ({device})"), limit.clone());
        let of = || rows.iter().filter(|row| row.device == *device);
        let sorted = |predicted: &dyn Fn(&TimeRow) -> f64| {
            let mut errors: Vec<f64> = of().map(|row| error(predicted(row), row.ns_per_op).abs()).collect();
            errors.sort_by(f64::total_cmp);
            errors
        };
        let (errors, bare) = (sorted(&|row| row.predicted_ns), sorted(&|row| row.equations_ns));
        let middle = |errors: &[f64]| median(errors.iter().copied());
        let (Some(at_median), Some(&most)) = (middle(&errors), errors.get(errors.len() * 9 / 10)) else {
            return open;
        };
        let text = format!("{:.1} % at the median, {:.1} % at nine of ten", at_median * 100.0, most * 100.0);
        let note = format!(
            "{:.1} % at the median by the equations alone, without steps and the get of an empty database",
            middle(&bare).unwrap_or(f64::NAN) * 100.0
        );
        // Twice the stated error is still a useful prediction.
        let agrees = at_median <= TIMES && most <= 2.0 * TIMES;
        open.with(text, Some(at_median <= 2.0 * TIMES), Some(agrees), None).noting(note)
    };
    match devices {
        [] => vec![of_device(&"mapped")],
        devices => devices.iter().map(of_device).collect(),
    }
}
