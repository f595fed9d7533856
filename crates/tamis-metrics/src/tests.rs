use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tamis::io::{FileSystem, MemFs};
use tamis::{KeyspaceOptions, Options, WriteError};

use super::*;

/// The table of the document.
fn table() -> String {
    let rows = metrics().into_iter().map(|metric| {
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
    let all = metrics();
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
    let db = Options { file_system: Some(fs), ..Options::default() }.open("/db").unwrap();
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
    let text = to_prometheus(&db.stats(), "a\nname");
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
    assert_eq!(seen.len(), metrics().len());
    for expected in [
        "\ntamis_write_writes_total{database=\"a\\nname\"} 2000\n",
        "\ntamis_read_gets_total{database=\"a\\nname\"} 1000\n",
        "\ntamis_level_runs{database=\"a\\nname\",keyspace=\"a \\\"quoted\\\" back\\\\slash\",level=\"0\"} 1\n",
        "\ntamis_latency_seconds_count{database=\"a\\nname\",operation=\"flush\"} 2\n",
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
}

#[test]
fn metrics_are_published_while_the_publisher_lives() {
    let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new());
    let options = Options { file_system: Some(fs.clone()), ..Options::default() };
    let db = options.clone().open("/db").unwrap();
    db.put("key", "value").unwrap();
    let published = || published("/db", &options).unwrap();
    let publisher = Publisher::start(&db, Duration::from_secs(1)).unwrap();
    let counted = |text: String| text.contains("\ntamis_write_writes_total{database=\"/db\"} 1\n");
    while !published().is_some_and(counted) {
        std::thread::yield_now();
    }
    assert!(published().unwrap().contains("\ntamis_publish_interval_seconds 1\n"));
    drop(publisher);
    assert_eq!(published(), None);
    db.close().unwrap();
    // What a crash leaves is removed.
    for name in ["STATS", "STATS.tmp"] {
        tamis::io::write_file_atomically(&*fs, &Path::new("/db").join(name), b"left").unwrap();
    }
    assert_eq!(published().as_deref(), Some("left"));
    let db = options.clone().open("/db").unwrap();
    assert_eq!(published(), None);
    db.close().unwrap();
    let names = fs.list(Path::new("/db")).unwrap();
    assert!(!names.iter().any(|name| name.starts_with("STATS")), "{names:?}");
}

/// What lies there then may be another session's.
#[test]
fn nothing_is_published_or_removed_once_the_database_is_closed() {
    let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new());
    let options = Options { file_system: Some(fs.clone()), ..Options::default() };
    let db = options.clone().open("/db").unwrap();
    let publisher = Publisher::start(&db, Duration::from_millis(1)).unwrap();
    db.clone().close().unwrap();
    let db = options.clone().open("/db").unwrap();
    tamis::io::write_file_atomically(&*fs, Path::new("/db/STATS"), b"another's").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    drop(publisher);
    assert_eq!(published("/db", &options).unwrap().as_deref(), Some("another's"));
    db.close().unwrap();
    let reader = options.open_read_only("/db").unwrap();
    assert!(matches!(Publisher::start(&reader, Duration::from_secs(1)), Err(WriteError::ReadOnly)));
}

/// A pipe in the place of the file must not block a reader.
#[cfg(unix)]
#[test]
fn what_is_no_file_of_metrics_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = std::process::Command::new("mkfifo").arg(dir.path().join("STATS")).status().unwrap();
    assert!(fifo.success());
    assert!(published(dir.path(), &Options::default()).is_err());
    std::fs::remove_file(dir.path().join("STATS")).unwrap();
    std::fs::write(dir.path().join("STATS"), b"\xff").unwrap();
    let error = published(dir.path(), &Options::default()).unwrap_err();
    assert!(error.to_string().contains("it is not text"), "{error}");
}
