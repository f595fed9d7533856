//! The metrics through the facade of the crate `metrics`, to whatever recorder the program has
//! installed.
//!
//! The program says when: a reading takes the `state` lock and visits every table, so a thread of
//! the engine that did it on an interval would do it too often for one program and, for one that is
//! scraped, at the wrong moment. A recorder without a thread, such as a test's, also works only
//! when called.

use std::collections::HashMap;

use ::metrics::{Key, KeyName, Label, Level, Metadata, SharedString, Unit, with_recorder};
use tamis::Db;
use tamis::stats::LatencyHistogram;

use crate::rows::{MetricKind, Value, visit};

const METADATA: Metadata<'static> = Metadata::new("tamis", Level::INFO, Some("tamis"));

/// Records the statistics of one database with the recorder that the crate `metrics` has at the
/// time.
///
/// ```
/// use tamis_metrics::facade::MetricsExporter;
///
/// # let dir = tempfile::tempdir()?;
/// let db = tamis::Db::open(dir.path())?;
/// let mut exporter = MetricsExporter::new(&db, "places");
/// db.put("key", "value")?;
/// // Before each scrape, or every few seconds.
/// exporter.record();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct MetricsExporter {
    db: Db,
    database: SharedString,
    /// What was recorded of each histogram, by its label.
    recorded: HashMap<String, LatencyHistogram>,
}

impl MetricsExporter {
    /// Creates an exporter of `db`, whose metrics get the label `database` with this value, and
    /// describes them to the recorder. It keeps the database open.
    pub fn new(db: &Db, database: &str) -> MetricsExporter {
        with_recorder(|recorder| {
            for metric in crate::metrics() {
                let unit = match metric.unit {
                    "bytes" => Some(Unit::Bytes),
                    "seconds" => Some(Unit::Seconds),
                    _ => Some(Unit::Count),
                };
                let (name, help) = (KeyName::from(metric.name), SharedString::from(metric.help));
                match metric.kind {
                    // As it is recorded.
                    MetricKind::Counter if metric.unit == "seconds" => {
                        recorder.describe_gauge(name, unit, help)
                    }
                    MetricKind::Counter => recorder.describe_counter(name, unit, help),
                    MetricKind::Gauge => recorder.describe_gauge(name, unit, help),
                    MetricKind::Histogram => recorder.describe_histogram(name, unit, help),
                }
            }
        });
        let database = SharedString::from(database.to_owned());
        MetricsExporter { db: db.clone(), database, recorded: HashMap::new() }
    }

    /// Reads the statistics and records all of them: counters as absolute values, and of histograms
    /// what came since the last call, each duration as the end of its bucket. A counter that counts
    /// seconds is a gauge for the recorder, since counters are whole numbers there.
    pub fn record(&mut self) {
        let stats = self.db.stats();
        let (database, recorded) = (&self.database, &mut self.recorded);
        with_recorder(|recorder| {
            visit(&stats, |info, numbers| {
                numbers(&mut |values, value| {
                    let mut labels = vec![Label::new("database", database.clone())];
                    let own = info.labels.iter().zip(values);
                    labels.extend(own.map(|(name, value)| Label::new(*name, (*value).to_owned())));
                    let key = Key::from_parts(info.name.clone(), labels);
                    match value {
                        Value::Histogram(histogram) => {
                            let name = values.first().copied().unwrap_or_default();
                            let before =
                                recorded.insert(name.to_owned(), histogram.clone()).unwrap_or_default();
                            let since = histogram.clone() - &before;
                            let sink = recorder.register_histogram(&key, &METADATA);
                            // The last bucket has no end.
                            let longest = histogram.max().as_secs_f64();
                            for (end, count) in since.buckets() {
                                let count = usize::try_from(count).unwrap_or(usize::MAX);
                                sink.record_many((end as f64 / 1e9).min(longest), count);
                            }
                        }
                        Value::Nanos(nanos) => {
                            recorder.register_gauge(&key, &METADATA).set(nanos as f64 / 1e9);
                        }
                        Value::Count(count) if info.kind == MetricKind::Counter => {
                            recorder.register_counter(&key, &METADATA).absolute(count);
                        }
                        Value::Number(number) if info.kind == MetricKind::Counter => {
                            recorder.register_counter(&key, &METADATA).absolute(number as u64);
                        }
                        Value::Count(count) => recorder.register_gauge(&key, &METADATA).set(count as f64),
                        Value::Number(number) => recorder.register_gauge(&key, &METADATA).set(number),
                    }
                });
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    use ::metrics::{
        Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Recorder, with_local_recorder,
    };

    use super::*;
    use tamis::Options;
    use tamis::io::MemFs;

    type Shared = Arc<Mutex<BTreeMap<String, (f64, usize)>>>;

    /// Keeps the last number of each series, and how often one was recorded.
    #[derive(Default)]
    struct Kept(Shared);

    struct Series(Shared, String);

    impl Series {
        fn add(&self, value: f64, count: usize) {
            let mut kept = self.0.lock().unwrap();
            let known = kept.entry(self.1.clone()).or_default();
            *known = (value, known.1 + count);
        }
    }

    impl CounterFn for Series {
        fn increment(&self, _: u64) {
            unreachable!("counters are absolute");
        }

        fn absolute(&self, value: u64) {
            self.add(value as f64, 1);
        }
    }

    impl GaugeFn for Series {
        fn increment(&self, _: f64) {
            unreachable!("gauges are set");
        }

        fn decrement(&self, _: f64) {
            unreachable!("gauges are set");
        }

        fn set(&self, value: f64) {
            self.add(value, 1);
        }
    }

    impl HistogramFn for Series {
        fn record(&self, value: f64) {
            self.add(value, 1);
        }
    }

    impl Kept {
        fn series(&self, key: &Key) -> Arc<Series> {
            let labels: Vec<String> =
                key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
            Arc::new(Series(self.0.clone(), format!("{} {}", key.name(), labels.join(","))))
        }
    }

    impl Recorder for Kept {
        fn describe_counter(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
            self.0.lock().unwrap().insert(key.as_str().to_owned(), (0.0, 0));
        }

        fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
            self.describe_counter(key, unit, help);
        }

        fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
            self.describe_counter(key, unit, help);
        }

        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(self.series(key))
        }

        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(self.series(key))
        }

        fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::from_arc(self.series(key))
        }
    }

    #[test]
    fn what_came_since_the_last_time_is_recorded_once() {
        let recorder = Kept::default();
        let fs = Arc::new(MemFs::new());
        let db = Options { file_system: Some(fs), ..Options::default() }.open("/db").unwrap();
        let mut exporter = with_local_recorder(&recorder, || MetricsExporter::new(&db, "places"));
        assert_eq!(recorder.0.lock().unwrap().len(), crate::metrics().len(), "each is described");
        let number = |series: &str| recorder.0.lock().unwrap().get(series).copied();
        for round in 1..=3 {
            db.put("key", "value").unwrap();
            db.flush().unwrap();
            // The flush is timed after it is published.
            while db.stats().latencies.flush.samples() < round {
                std::thread::yield_now();
            }
            with_local_recorder(&recorder, || exporter.record());
            let writes = number("tamis_write_writes_total database=places").unwrap();
            assert_eq!(writes, (round as f64, round as usize));
            let flushes = number("tamis_latency_seconds database=places,operation=flush").unwrap();
            assert_eq!(flushes.1, round as usize, "each flush is one duration");
            let runs = number("tamis_level_runs database=places,keyspace=default,level=0");
            assert!(runs.is_some_and(|runs| runs.0 >= 1.0));
        }
    }
}
