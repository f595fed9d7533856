use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::io::MemFs;
use crate::{Db, KeyspaceOptions, Options};

/// The table of the document.
fn table() -> String {
    let rows = Stats::metrics().into_iter().map(|metric| {
        let labels = metric.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        format!(
            "| `{}` | {} | {} | {labels} | {} |\n",
            metric.name,
            metric.kind.name(),
            metric.unit,
            metric.help
        )
    });
    rows.fold(
        "| metric | kind | unit | labels | what it says |\n| --- | --- | --- | --- | --- |\n".into(),
        |a, b| a + &b,
    )
}

/// `UPDATE_DOCS=1` writes the table anew.
#[test]
fn the_document_lists_every_metric() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    // A package has no documents of the repository.
    let Ok(text) = std::fs::read_to_string(&path) else { return };
    let (begin, end) = ("<!-- metrics -->\n", "<!-- end -->");
    let from = text.find(begin).expect("a place for the table") + begin.len();
    let to = text.find(end).expect("an end of the table");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, [&text[..from], &table(), &text[to..]].concat()).unwrap();
        return;
    }
    assert_eq!(&text[from..to], table(), "UPDATE_DOCS=1 writes it");
}

#[test]
fn names_are_valid_and_told_once() {
    let all = Stats::metrics();
    let names: BTreeSet<&str> = all.iter().map(|metric| &*metric.name).collect();
    assert_eq!(names.len(), all.len());
    for metric in &all {
        assert!(metric.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{}", metric.name);
        assert!(metric.name.starts_with("tamis_") && metric.help.ends_with('.'), "{metric:?}");
        assert_eq!(metric.kind == MetricKind::Counter, metric.name.ends_with("_total"), "{}", metric.name);
        if !metric.unit.is_empty() {
            assert!(metric.name.contains(metric.unit), "{metric:?}");
        }
    }
}

/// Reads the text as the format says, and checks each rule on the way: a name, a set of labels, a
/// number; each metric in one piece, after its help and its type; the buckets of a histogram grow
/// up to its count.
#[test]
fn the_text_follows_the_format() {
    let fs = Arc::new(MemFs::new());
    let db = Db::open("/db", Options { file_system: Some(fs), ..Options::default() }).unwrap();
    let odd = db.create_keyspace("a \"quoted\" back\\slash", KeyspaceOptions::default()).unwrap();
    for i in 0..1000u32 {
        db.put(i.to_be_bytes(), "value").unwrap();
        db.get(i.to_be_bytes()).unwrap();
        odd.put(i.to_be_bytes(), "value").unwrap();
    }
    db.flush().unwrap();
    // A flush is timed after it is published.
    while db.stats().latencies.flush.samples() < 2 {
        std::thread::yield_now();
    }
    let text = db.stats().to_prometheus("a\nname");
    let (mut metric, mut seen, mut samples) = (String::new(), BTreeSet::new(), BTreeSet::new());
    let mut last_bucket: Option<(String, u64)> = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            metric = rest.split_once(' ').unwrap().0.to_owned();
            assert!(seen.insert(metric.clone()), "{metric} comes in pieces");
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert_eq!(rest.split_once(' ').unwrap().0, metric);
            continue;
        }
        let (series, number) = line.rsplit_once(' ').unwrap();
        let value: f64 = number.parse().unwrap();
        assert!(series.starts_with(&metric) && samples.insert(series), "{line}");
        let (name, labels) = series.split_once('{').unwrap();
        assert!(labels.starts_with("database=\"a\\nname\"") && labels.ends_with("\"}"), "{line}");
        if name.ends_with("_bucket") {
            let (of, _) = labels.split_once(",le=").unwrap();
            let before = last_bucket.take().filter(|(before, _)| before == of).map_or(0, |(_, count)| count);
            assert!(value as u64 >= before, "{line}");
            last_bucket = Some((of.to_owned(), value as u64));
        } else if name.ends_with("latency_seconds_count") {
            assert_eq!(last_bucket.take().unwrap().1, value as u64, "{line}");
        }
    }
    assert_eq!(seen.len(), Stats::metrics().len());
    for expected in [
        "\ntamis_write_writes_total{database=\"a\\nname\"} 2000\n",
        "\ntamis_read_gets_total{database=\"a\\nname\"} 1000\n",
        "\ntamis_level_runs{database=\"a\\nname\",keyspace=\"a \\\"quoted\\\" back\\\\slash\",level=\"0\"} 1\n",
        "\ntamis_latency_seconds_count{database=\"a\\nname\",operation=\"flush\"} 2\n",
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
}
