//! Rates and times as tables and plots.

use std::collections::BTreeMap;

use tamis_lab::figures::Axis;

use super::{Options, Rate, Speed};
use crate::keysets::KeySet;
use crate::plots::Plot;
use crate::queries::Class;
use crate::report::{self, Report, Table};
use crate::stats::Spread;

/// Adds the results for one set.
pub(super) fn set(report: &mut Report, set: &KeySet, rates: &[Rate], speeds: &[Speed], options: &Options) {
    report.heading(format!("Key set: {}", set.name));
    report.text(format!(
        "{}. {} keys in a filter, {} held out; {}, {:.1} bytes long on average.",
        set.about,
        set.members.len(),
        set.held_out.len(),
        if set.integers { "integers" } else { "strings" },
        set.mean_bytes()
    ));
    if !rates.is_empty() {
        report.text("False positives by class of query:");
        report.table(rate_table(rates));
        for refused in rates.iter().filter(|rate| rate.refused.is_some()) {
            let why = refused.refused.as_deref().unwrap_or_default();
            report
                .text(format!("{} at {} bits per key: refused ({why}).", refused.filter, refused.bits_asked));
        }
        plot_rates(report, set, rates);
    }
    if !speeds.is_empty() {
        report.text(format!(
            "Times in ns, medians of {} rounds of interleaved filters, with half the distance between the \
             fastest and the slowest round in percent. build: per key. The others: per probe of a filter of {} keys, in the \
             cache. absent: keys held out; chained: each key depends on the preceding answer. ranges: {}, \
             empty.{}",
            options.common.rounds,
            options.hot_keys.min(set.members.len()),
            if set.integers { format!("of {} integers", options.speed_range.max(2)) } else { "prefixes".to_owned() },
            if options.large { " large: the same with enough copies of the filter to exceed all caches." } else { "" },
        ));
        report.table(speed_table(speeds, options.large));
        plot_speeds(report, set, speeds);
    }
}

/// Returns a table with one row per filter, size and width, and one column per class.
fn rate_table(rates: &[Rate]) -> Table {
    let columns =
        ["filter", "asked", "actual", "width", "theory"].into_iter().chain(Class::ALL.map(Class::text));
    let mut table = Table::new(1, columns);
    let mut rows: Vec<(&Rate, BTreeMap<usize, &Rate>)> = Vec::new();
    for rate in rates.iter().filter(|rate| rate.refused.is_none()) {
        let same = |row: &Rate| {
            row.filter == rate.filter && row.bits_asked == rate.bits_asked && row.width == rate.width
        };
        if !rows.last().is_some_and(|(row, _)| same(row)) {
            rows.push((rate, BTreeMap::new()));
        }
        if let Some((_, classes)) = rows.last_mut() {
            classes.insert(rate.class as usize, rate);
        }
    }
    for (row, classes) in rows {
        let class = |class: Class| {
            classes.get(&(class as usize)).map_or("–".to_owned(), |rate| report::rate(rate.rate))
        };
        let cells = [
            row.filter.to_owned(),
            format!("{}", row.bits_asked),
            format!("{:.2}", row.bits),
            row.width.clone(),
            row.theory.map_or("–".to_owned(), report::rate),
        ];
        table.row(cells.into_iter().chain(Class::ALL.map(class)));
    }
    table
}

fn time(spread: Option<Spread>) -> String {
    spread.map_or("–".to_owned(), |spread| {
        format!("{} ±{:.0}%", report::ns(spread.median), spread.percent() / 2.0)
    })
}

fn speed_table(speeds: &[Speed], large: bool) -> Table {
    let mut columns =
        vec!["filter", "asked", "actual", "build", "absent", "absent, chained", "present", "ranges"];
    if large {
        columns.extend(["large: absent", "large: chained", "large: ranges"]);
    }
    let mut table = Table::new(1, columns);
    for speed in speeds.iter().filter(|speed| speed.build.is_some()) {
        let mut row =
            vec![speed.filter.to_owned(), format!("{}", speed.bits_asked), format!("{:.2}", speed.bits)];
        row.extend([speed.build, speed.absent, speed.absent_chained, speed.present, speed.range].map(time));
        if large {
            row.extend([speed.large_absent, speed.large_absent_chained, speed.large_range].map(time));
        }
        table.row(row);
    }
    table
}

/// Adds one plot per class and width: rate over bits per key.
fn plot_rates(report: &mut Report, set: &KeySet, rates: &[Rate]) {
    let mut widths: Vec<&str> = Vec::new();
    rates.iter().for_each(|rate| {
        if !widths.contains(&rate.width.as_str()) {
            widths.push(&rate.width);
        }
    });
    for width in widths {
        for class in Class::ALL {
            let of_plot =
                rates.iter().filter(|r| r.refused.is_none() && r.width == width && r.class == class);
            let what = match width {
                "1" => "points".to_owned(),
                "prefix" => "prefixes".to_owned(),
                width => format!("ranges of {width}"),
            };
            report.plots.push(Plot {
                name: format!("rate-{}-{}-{}", set.name, class.file_name(), width.replace('^', "")),
                title: format!("False positives: {}, {what}, {} queries", set.name, class.text()),
                x: Axis::new("size of the filter", "bits/key"),
                y: Axis::new("false positives", "%").log(),
                series: by_filter(of_plot.map(|rate| (rate.filter, rate.bits, 100.0 * rate.rate))),
            });
        }
    }
}

fn plot_speeds(report: &mut Report, set: &KeySet, speeds: &[Speed]) {
    type Time = fn(&Speed) -> Option<Spread>;
    let whats: [(&str, &str, Time); 5] = [
        ("build", "Building, per key", |s| s.build),
        ("absent", "Absent points, in the cache", |s| s.absent),
        ("range", "Empty ranges, in the cache", |s| s.range),
        ("large-absent", "Absent points, beyond the cache, chained", |s| s.large_absent_chained),
        ("large-range", "Empty ranges, beyond the cache", |s| s.large_range),
    ];
    for (name, title, time) in whats {
        let points = speeds.iter().filter_map(|s| Some((s.filter, s.bits, time(s)?.median)));
        report.plots.push(Plot {
            name: format!("time-{}-{name}", set.name),
            title: format!("{title}: {}", set.name),
            x: Axis::new("size of the filter", "bits/key"),
            y: Axis::new("time", "ns").log(),
            series: by_filter(points),
        });
    }
}

/// Returns the points of each filter by increasing size; filters in order of appearance.
fn by_filter<'a>(points: impl Iterator<Item = (&'a str, f64, f64)>) -> Vec<(String, Vec<(f64, f64)>)> {
    let mut series: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for (filter, x, y) in points {
        match series.iter_mut().find(|(name, _)| name == filter) {
            Some((_, points)) => points.push((x, y)),
            None => series.push((filter.to_owned(), vec![(x, y)])),
        }
    }
    series.iter_mut().for_each(|(_, points)| points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    series
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(filter: &'static str, class: Class, width: &str, rate: f64) -> Rate {
        Rate {
            key_set: "x",
            filter,
            bits_asked: 10.0,
            bits: 10.1,
            class,
            width: width.to_owned(),
            queries: 1000,
            positives: 1,
            rate,
            interval: (0.0, 1.0),
            theory: None,
            refused: None,
        }
    }

    #[test]
    fn classes_become_columns() {
        let rates = [
            rate("a", Class::Uniform, "1", 0.5),
            rate("a", Class::Gap, "1", 0.25),
            rate("a", Class::Uniform, "2", 0.125),
        ];
        let mut report = Report::new("t");
        report.table(rate_table(&rates));
        let text = report.to_text(&crate::report::this_machine());
        let rows: Vec<&str> = text.lines().rev().take(2).collect();
        assert!(
            rows[1].split_whitespace().eq(["a", "10", "10.10", "1", "–", "50.0", "%", "–", "–", "25.0", "%"])
        );
        assert!(rows[0].split_whitespace().eq(["a", "10", "10.10", "2", "–", "12.5", "%", "–", "–", "–"]));
    }

    #[test]
    fn points_of_a_filter_are_ordered_by_size() {
        let series = by_filter([("a", 2.0, 1.0), ("b", 1.0, 5.0), ("a", 1.0, 3.0)].into_iter());
        assert_eq!(series[0], ("a".to_owned(), vec![(1.0, 3.0), (2.0, 1.0)]));
        assert_eq!(series.len(), 2);
    }
}
