//! What `tamis top` shows: lines of text, made of two readings.

use serde_json::{Map, Value, json};
use tamis_bench::report::{bytes, counted, grouped};

use crate::text::{excerpt, folded};
use crate::watch::{Labels, Origin, Samples, label};

/// The longest name that is shown.
const NAME: usize = 40;

/// The length of the longest bar in characters.
const BAR: usize = 10;

/// Where texts begin behind the words at the left.
const INDENT: usize = 11;

/// A reading, and what came since the one before.
pub(super) struct Reading {
    name: String,
    origin: Origin,
    now: Samples,
    /// The reading before of the same session, and the seconds between the two.
    since: Option<(Samples, f64)>,
    newer: bool,
}

impl Reading {
    pub(super) fn new(name: &str, origin: Origin, now: Samples, before: Option<&Samples>) -> Reading {
        let uptime = |samples: &Samples| samples.get("tamis_uptime_seconds", &[]);
        let between = before.and_then(|before| Some((before, uptime(&now)? - uptime(before)?)));
        Reading {
            name: name.to_owned(),
            origin,
            // A shorter time than before is that of another session.
            since: between
                .filter(|(_, seconds)| *seconds > 0.0)
                .map(|(before, seconds)| (before.clone(), seconds)),
            newer: between.is_none_or(|(_, seconds)| seconds != 0.0),
            now,
        }
    }

    pub(super) fn now(&self) -> &Samples {
        &self.now
    }

    /// Reports whether it is not the same as the one before.
    pub(super) fn is_newer(&self) -> bool {
        self.newer
    }

    pub(super) fn has_rates(&self) -> bool {
        self.since.is_some()
    }

    /// The seconds after which to expect the next, if the writer publishes.
    pub(super) fn interval(&self) -> Option<f64> {
        match self.origin {
            Origin::Published { interval, .. } => Some(interval),
            Origin::ReadOnly | Origin::Own => None,
        }
    }

    /// Returns the reading for programs. The path stands for the label `database` of all metrics.
    pub(super) fn to_json(&self) -> Value {
        let published = match self.origin {
            Origin::Published { age, interval } => {
                json!({ "age_seconds": age, "interval_seconds": interval })
            }
            Origin::ReadOnly | Origin::Own => Value::Null,
        };
        let metric = |(name, labels, value): (&str, &Labels, f64)| {
            let of: Vec<(&str, &str)> = labels.iter().map(|(name, value)| (&name[..], &value[..])).collect();
            let mut metric = json!({ "name": name, "value": number(value) });
            let own = labels.iter().filter(|(name, _)| name != "database");
            metric["labels"] =
                own.map(|(name, value)| (name.clone(), value[..].into())).collect::<Map<_, Value>>().into();
            if name.ends_with("_total") {
                metric["per_second"] = self.rate(name, &of).into();
            }
            metric
        };
        json!({
            "path": self.name,
            "published": published,
            "since_seconds": self.since.as_ref().map(|(_, seconds)| *seconds),
            "metrics": self.now.iter().map(metric).collect::<Vec<_>>(),
        })
    }

    fn get(&self, name: &str) -> f64 {
        self.now.get(name, &[]).unwrap_or(0.0)
    }

    fn count(&self, name: &str) -> u64 {
        self.get(name) as u64
    }

    /// Returns what a counter with these labels has grown by in a second.
    fn rate(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let (before, seconds) = self.since.as_ref()?;
        let now = self.now.get(name, labels)?;
        Some(((now - before.get(name, labels).unwrap_or(0.0)) / seconds).max(0.0))
    }

    /// The same as text.
    fn per_second(&self, name: &str) -> String {
        self.rate(name, &[]).map_or_else(|| "–".to_owned(), |rate| grouped(rate.round() as u64))
    }

    fn bytes_per_second(&self, name: &str) -> String {
        self.rate(name, &[]).map_or_else(|| "–".to_owned(), |rate| bytes(rate as u64))
    }
}

/// A page.
pub(super) struct Frame(Vec<String>);

impl Frame {
    /// Returns the page of a reading that failed.
    pub(super) fn failed(name: &str, error: &str) -> Frame {
        Frame(vec![
            format!("tamis top  {}", shown(name)),
            String::new(),
            shown(error),
            String::new(),
            "q quits".into(),
        ])
    }

    pub(super) fn of(reading: &Reading) -> Frame {
        let mut frame = Frame(Vec::new());
        frame.head(reading);
        frame.rates(reading);
        frame.waits(reading);
        frame.latencies(reading);
        for (labels, _) in reading.now.all("tamis_table_bytes") {
            frame.keyspace(reading, label(labels, "keyspace").unwrap_or_default());
        }
        frame.memory(reading);
        frame
    }

    fn line(&mut self, name: &str, text: String) {
        self.0.push(format!("{name:<10} {text}"));
    }

    fn head(&mut self, reading: &Reading) {
        let origin = match reading.origin {
            Origin::Published { age, interval } => format!("published {age:.0} s ago, every {interval:.0} s"),
            Origin::ReadOnly => {
                "no rates: the writer publishes none (`--publish`, or tamis_metrics::Publisher)".to_owned()
            }
            Origin::Own => "own".to_owned(),
        };
        self.0.push(format!("tamis top  {}  {origin}", shown(&reading.name)));
        // A follower does not know.
        if reading.origin != Origin::ReadOnly && reading.get("tamis_writable") < 1.0 {
            self.line("WRITES", "are suspended or have stopped".to_owned());
        }
        let (troubles, damaged) = (reading.count("tamis_troubles"), reading.count("tamis_damaged_tables"));
        if troubles + damaged > 0 {
            self.line(
                "TROUBLES",
                format!("work being retried: {}; damaged: {}", grouped(troubles), counted(damaged, "tables")),
            );
        }
    }

    fn rates(&mut self, reading: &Reading) {
        let per_second = |name: &str| reading.per_second(name);
        let share = |part: &str, whole: &str| match (reading.rate(part, &[]), reading.rate(whole, &[])) {
            (Some(part), Some(whole)) if whole > 0.0 => format!(" ({:.0} %)", part / whole * 100.0),
            _ => String::new(),
        };
        self.line(
            "reads/s",
            format!(
                "gets {}, found {}{}, scans {}, entries {}, blocks {}, read calls {}",
                per_second("tamis_read_gets_total"),
                per_second("tamis_read_found_total"),
                share("tamis_read_found_total", "tamis_read_gets_total"),
                per_second("tamis_read_scans_total"),
                per_second("tamis_read_entries_total"),
                per_second("tamis_read_block_reads_total"),
                per_second("tamis_read_io_reads_total"),
            ),
        );
        self.line(
            "filters/s",
            format!(
                "probes {}, ruled out {}{}, false positives {}; cache hits {}, misses {}",
                per_second("tamis_read_filter_probes_total"),
                per_second("tamis_read_filter_negatives_total"),
                share("tamis_read_filter_negatives_total", "tamis_read_filter_probes_total"),
                per_second("tamis_read_false_positives_total"),
                per_second("tamis_read_cache_hits_total"),
                per_second("tamis_read_cache_misses_total"),
            ),
        );
        self.line(
            "writes/s",
            format!(
                "{} in {} records, {} by callers, {} to logs, {} flushed, {} compacted, {} syncs",
                per_second("tamis_write_writes_total"),
                per_second("tamis_write_groups_total"),
                reading.bytes_per_second("tamis_write_user_bytes_total"),
                reading.bytes_per_second("tamis_write_log_bytes_total"),
                reading.bytes_per_second("tamis_write_flush_bytes_total"),
                reading.bytes_per_second("tamis_write_compaction_write_bytes_total"),
                per_second("tamis_write_log_syncs_total"),
            ),
        );
    }

    fn waits(&mut self, reading: &Reading) {
        let mut waits = Vec::new();
        for (labels, count) in reading.now.all("tamis_stalls_total").iter().filter(|(_, count)| *count > 0.0)
        {
            let cause = label(labels, "cause").unwrap_or_default();
            let of = [("cause", cause)];
            let seconds = reading.now.get("tamis_stall_seconds_total", &of).unwrap_or(0.0);
            let now = reading.rate("tamis_stall_seconds_total", &of).filter(|share| *share > 0.0);
            let now =
                now.map_or_else(String::new, |share| format!(", now {:.0} % of the time", share * 100.0));
            waits.push(format!("{} {} ({seconds:.1} s{now})", shown(cause), grouped(*count as u64)));
        }
        let running = reading.count("tamis_running_compactions");
        let waits = if waits.is_empty() { "none".to_owned() } else { waits.join(", ") };
        self.line("stalls", waits);
        self.line("running", counted(running, "compactions"));
    }

    fn latencies(&mut self, reading: &Reading) {
        let head = ["samples", "p50", "p90", "p99", "p99.9"].map(|name| format!("{name:>11}"));
        self.0.push(String::new());
        self.line("latency", format!("{:<12}{}", "", head.concat()));
        for (labels, count) in reading.now.all("tamis_latency_seconds_count").iter().filter(|one| one.1 > 0.0)
        {
            let operation = label(labels, "operation").unwrap_or_default();
            let buckets = buckets(&reading.now, operation);
            let times =
                [0.5, 0.9, 0.99, 0.999].map(|share| format!("{:>11}", time(percentile(&buckets, share))));
            let name = shown(operation);
            self.line("", format!("{name:<12}{:>11}{}", grouped(*count as u64), times.concat()));
        }
    }

    fn keyspace(&mut self, reading: &Reading, name: &str) {
        let of = [("keyspace", name)];
        let number = |metric: &str| reading.now.get(metric, &of).unwrap_or(0.0);
        let size = |metric: &str| bytes(number(metric) as u64);
        self.0.push(String::new());
        self.line(
            "keyspace",
            format!(
                "{}: {} of {}, {} in {} of tables and {} of blob files, filters {} ({:.1} bits per key)",
                shown(name),
                counted(number("tamis_memtables") as u64, "memtables"),
                size("tamis_memtable_bytes"),
                counted(number("tamis_entries") as u64, "entries"),
                size("tamis_table_bytes"),
                size("tamis_blob_bytes"),
                size("tamis_filter_bytes"),
                number("tamis_filter_bits_per_key"),
            ),
        );
        let most = reading.now.with("tamis_level_bytes", &of).map(|(_, bytes)| bytes).fold(1.0, f64::max);
        self.line(
            "",
            format!(
                "{:<6}{:>5}{:>8}{:>14}{:>11}{:>11}",
                "level", "runs", "tables", "entries", "size", "target"
            ),
        );
        for (labels, level_bytes) in reading.now.with("tamis_level_bytes", &of) {
            let level = label(labels, "level").unwrap_or_default();
            let at = [("keyspace", name), ("level", level)];
            let number = |metric: &str| reading.now.get(metric, &at).unwrap_or(0.0);
            let target = number("tamis_level_target_bytes") as u64;
            let target = if target > 0 { bytes(target) } else { "-".to_owned() };
            let bar = "█".repeat((level_bytes / most * BAR as f64).clamp(0.0, BAR as f64).round() as usize);
            let (runs, tables) = (number("tamis_level_runs"), number("tamis_level_tables"));
            let entries = grouped(number("tamis_level_entries") as u64);
            self.line(
                "",
                format!(
                    "{:<6}{runs:>5}{tables:>8}{entries:>14}{:>11}{target:>11}  {bar}",
                    shown(level),
                    bytes(level_bytes as u64)
                ),
            );
        }
    }

    fn memory(&mut self, reading: &Reading) {
        self.0.push(String::new());
        let mut owners: Vec<(&Labels, f64)> = reading.now.with("tamis_memory_bytes", &[]).collect();
        owners.sort_by(|a, b| b.1.total_cmp(&a.1));
        let total: f64 = owners.iter().map(|(_, bytes)| bytes).sum();
        let largest = owners.iter().filter(|(_, bytes)| *bytes > 0.0).take(5);
        let largest = largest.map(|(labels, size)| {
            format!("{} {}", shown(label(labels, "owner").unwrap_or_default()), bytes(*size as u64))
        });
        let largest: Vec<String> = largest.collect();
        self.line("memory", format!("{}: {}", bytes(total as u64), largest.join(", ")));
        let (used, capacity) =
            (reading.count("tamis_cache_used_bytes"), reading.count("tamis_cache_capacity_bytes"));
        self.line("cache", format!("{} of {}", bytes(used), bytes(capacity)));
        self.line(
            "logs",
            format!(
                "{}, {}, {} on disk",
                counted(reading.count("tamis_log_files"), "files"),
                bytes(reading.count("tamis_log_bytes")),
                bytes(reading.count("tamis_log_allocated_bytes"))
            ),
        );
        self.line("snapshots", format!("{}", reading.count("tamis_snapshots")));
    }

    /// Returns the page as lines of exactly `width` characters, at most `height` of them. What is
    /// too long for a line goes on below.
    pub(super) fn lines(&self, width: usize, height: usize) -> Vec<String> {
        let fit = |line: &str| {
            let cut: String = line.chars().take(width).collect();
            format!("{cut:<width$}")
        };
        let folded: Vec<String> = self.0.iter().map(|line| folded(line, width, INDENT)).collect();
        folded.iter().flat_map(|line| line.split('\n')).take(height).map(fit).collect()
    }
}

/// A number as it is, without a fraction if it has none.
fn number(value: f64) -> Value {
    const EXACT: f64 = (1_u64 << 53) as f64;
    match value.fract() == 0.0 && value.abs() < EXACT {
        true => (value as i64).into(),
        false => value.into(),
    }
}

/// A name or an error, without what would move the cursor.
fn shown(text: &str) -> String {
    excerpt(text.as_bytes(), NAME)
}

/// Returns the buckets of an operation, in order: the end of each in seconds, and how many
/// operations took no longer.
fn buckets(samples: &Samples, operation: &str) -> Vec<(f64, f64)> {
    let of = [("operation", operation)];
    let buckets = samples.with("tamis_latency_seconds_bucket", &of);
    let end = |labels: &Labels| match label(labels, "le")? {
        "+Inf" => Some(f64::INFINITY),
        bound => bound.parse().ok(),
    };
    let mut buckets: Vec<(f64, f64)> =
        buckets.filter_map(|(labels, count)| Some((end(labels)?, count))).collect();
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    buckets
}

/// Returns a percentile in seconds: interpolated within its bucket, as if durations were spread
/// evenly over it.
fn percentile(buckets: &[(f64, f64)], share: f64) -> Option<f64> {
    let wanted = buckets.last()?.1 * share;
    let (mut begin, mut before) = (0.0, 0.0);
    for &(end, count) in buckets {
        if count >= wanted && count > before {
            return match end.is_finite() {
                true => Some(begin + (end - begin) * ((wanted - before) / (count - before)).clamp(0.0, 1.0)),
                false => Some(begin),
            };
        }
        (begin, before) = (end, count);
    }
    None
}

fn time(seconds: Option<f64>) -> String {
    match seconds {
        None => "–".to_owned(),
        Some(s) if s < 1e-6 => format!("{:.0} ns", s * 1e9),
        Some(s) if s < 1e-3 => format!("{:.1} µs", s * 1e6),
        Some(s) if s < 1.0 => format!("{:.1} ms", s * 1e3),
        Some(s) => format!("{s:.1} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(uptime: f64, gets: u64) -> String {
        format!(
            "tamis_uptime_seconds {uptime}\ntamis_writable{{database=\"d\"}} 1\n\
             tamis_read_gets_total{{database=\"d\"}} {gets}\ntamis_read_found_total{{database=\"d\"}} {}\n\
             tamis_stalls_total{{database=\"d\",cause=\"memtables\"}} 3\n\
             tamis_stall_seconds_total{{database=\"d\",cause=\"memtables\"}} {}\n\
             tamis_latency_seconds_bucket{{operation=\"get\",le=\"0.000001024\"}} 50\n\
             tamis_latency_seconds_bucket{{operation=\"get\",le=\"0.000002048\"}} 100\n\
             tamis_latency_seconds_bucket{{operation=\"get\",le=\"+Inf\"}} 100\n\
             tamis_latency_seconds_count{{operation=\"get\"}} 100\n\
             tamis_table_bytes{{keyspace=\"de\\nfault\"}} 3000\n\
             tamis_level_bytes{{keyspace=\"de\\nfault\",level=\"0\"}} 1000\ntamis_level_runs{{keyspace=\"de\\nfault\",level=\"0\"}} 2\n\
             tamis_level_bytes{{keyspace=\"de\\nfault\",level=\"1\"}} 2000\ntamis_level_runs{{keyspace=\"de\\nfault\",level=\"1\"}} 1\n\
             tamis_memory_bytes{{owner=\"memtables\"}} 4096\ntamis_memory_bytes{{owner=\"filters\"}} 8192\n",
            gets / 2,
            uptime / 10.0
        )
    }

    fn reading(now: &str, before: Option<&str>) -> Reading {
        let before = before.map(Samples::parse);
        let origin = Origin::Published { age: 1.0, interval: 1.0 };
        Reading::new("/some/db", origin, Samples::parse(now), before.as_ref())
    }

    #[test]
    fn a_page_shows_rates_between_readings() {
        let reading = reading(&text(12.0, 3000), Some(&text(10.0, 1000)));
        let page = Frame::of(&reading).lines(120, 100).join("\n");
        for expected in [
            "tamis top  /some/db  published 1 s ago, every 1 s",
            "gets 1,000, found 500 (50 %)",
            "memtables 3 (1.2 s, now 10 % of the time)",
            "get                 100     1.0 µs     1.8 µs     2.0 µs     2.0 µs",
            "keyspace   de\\nfault: ",
            "level  runs  tables       entries       size     target",
            "\n           0         2",
        ] {
            assert!(page.contains(expected), "{expected} is not in\n{page}");
        }
        let filters = page.find("filters 8 KiB").or(page.find("filters 8.0 KiB"));
        assert!(filters.is_some(), "the largest owner comes first:\n{page}");
        assert!(page.lines().all(|line| line.chars().count() == 120));
    }

    #[test]
    fn there_are_no_rates_between_sessions_or_without_news() {
        assert!(!reading(&text(3.0, 10), Some(&text(10.0, 1000))).has_rates());
        let same = reading(&text(3.0, 10), Some(&text(3.0, 10)));
        assert!(!same.has_rates() && !same.is_newer());
        let page = Frame::of(&reading(&text(3.0, 10), None)).lines(120, 100).join("\n");
        assert!(page.contains("gets –, found –,"), "{page}");
    }

    #[test]
    fn a_page_fits_any_terminal() {
        let frame = Frame::of(&reading(&text(12.0, 3000), None));
        for (width, height) in [(0, 0), (1, 1), (20, 5), (300, 2)] {
            let lines = frame.lines(width, height);
            assert!(lines.len() <= height && lines.iter().all(|line| line.chars().count() == width));
        }
        let empty = Frame::of(&reading("", None)).lines(80, 50);
        assert!(empty.iter().any(|line| line.contains("WRITES")), "nothing is known of writes");
    }

    #[test]
    fn percentiles_are_interpolated() {
        let buckets = [(1.0, 10.0), (2.0, 10.0), (4.0, 30.0), (f64::INFINITY, 40.0)];
        assert_eq!(percentile(&buckets, 0.125), Some(0.5));
        assert_eq!(percentile(&buckets, 0.5), Some(3.0));
        assert_eq!(percentile(&buckets, 0.99), Some(4.0), "longer than that, nobody knows how long");
        assert_eq!(percentile(&[], 0.5), None);
        assert_eq!(percentile(&[(1.0, 0.0)], 0.5), None);
    }
}
