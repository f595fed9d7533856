//! The text format of Prometheus. It is six rules; a library for it would bring a registry that has
//! to be filled first.

use std::fmt::Write;

use tamis::stats::{LatencyHistogram, Stats};

use crate::rows::{MetricInfo, Value, visit};

/// The bounds of buckets of histograms, as powers of two of nanoseconds: 128 ns to two minutes.
const BOUNDS: std::ops::RangeInclusive<u32> = 7..=37;

/// Returns all metrics in the text format of Prometheus, version 0.0.4, with the label `database`.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tamis::Db::open(dir.path())?;
/// db.put("key", "value")?;
/// let text = tamis_metrics::to_prometheus(&db.stats(), "places");
/// assert!(text.contains("\ntamis_write_writes_total{database=\"places\"} 1\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn to_prometheus(stats: &Stats, database: &str) -> String {
    let mut text = String::new();
    visit(stats, |info, numbers| {
        let help = info.help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {} {help}\n# TYPE {} {}", info.name, info.name, info.kind.name());
        numbers(&mut |values, value| sample(&mut text, &info, database, values, value));
    });
    text
}

fn sample(text: &mut String, info: &MetricInfo, database: &str, values: &[&str], value: Value<'_>) {
    let mut labels = format!("database=\"{}\"", escaped(database));
    for (name, value) in info.labels.iter().zip(values) {
        let _ = write!(labels, ",{name}=\"{}\"", escaped(value));
    }
    let name = &info.name;
    let _ = match value {
        Value::Count(count) => writeln!(text, "{name}{{{labels}}} {count}"),
        Value::Nanos(nanos) => writeln!(text, "{name}{{{labels}}} {}", seconds(nanos)),
        Value::Number(number) => writeln!(text, "{name}{{{labels}}} {number}"),
        Value::Histogram(histogram) => {
            buckets(text, name, &labels, histogram);
            Ok(())
        }
    };
}

fn buckets(text: &mut String, name: &str, labels: &str, histogram: &LatencyHistogram) {
    for log in BOUNDS {
        let (bound, count) = (seconds(1 << log), below(histogram, 1 << log));
        let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}");
    }
    let (samples, sum) = (histogram.samples(), histogram.total().as_secs_f64());
    let _ = writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {samples}");
    let _ = writeln!(text, "{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {samples}");
}

/// Returns how many operations took less than a power of two of nanoseconds, which is the end of a
/// bucket.
fn below(histogram: &LatencyHistogram, nanos: u64) -> u64 {
    histogram.buckets().take_while(|(end, _)| *end <= nanos).map(|(_, count)| count).sum()
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// A label's value. Control characters but the newline need no escape; names of keyspaces are the
/// program's.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
