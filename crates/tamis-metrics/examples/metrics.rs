//! Metrics through the crate `metrics`: a recorder that prints, where a program would install one
//! for its monitoring.
//!
//! Run: `cargo run --release -p tamis-metrics --features metrics --example metrics`

#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use tamis::Db;
use tamis_metrics::facade::MetricsExporter;

/// The last number of each series; of a histogram, the number of durations.
type Numbers = Arc<Mutex<BTreeMap<String, f64>>>;

#[derive(Default)]
struct Printer(Numbers);

struct Series(Numbers, String);

impl Series {
    fn change(&self, change: impl FnOnce(&mut f64)) {
        change(self.0.lock().expect("no panic").entry(self.1.clone()).or_default());
    }
}

impl CounterFn for Series {
    fn increment(&self, by: u64) {
        self.change(|number| *number += by as f64);
    }

    fn absolute(&self, to: u64) {
        self.change(|number| *number = to as f64);
    }
}

impl GaugeFn for Series {
    fn increment(&self, by: f64) {
        self.change(|number| *number += by);
    }

    fn decrement(&self, by: f64) {
        self.change(|number| *number -= by);
    }

    fn set(&self, to: f64) {
        self.change(|number| *number = to);
    }
}

impl HistogramFn for Series {
    fn record(&self, _: f64) {
        self.change(|count| *count += 1.0);
    }
}

impl Printer {
    fn series(&self, key: &Key) -> Arc<Series> {
        Arc::new(Series(self.0.clone(), key.to_string()))
    }
}

impl Recorder for Printer {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let printer = Printer::default();
    let numbers = printer.0.clone();
    metrics::set_global_recorder(printer)?;

    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path())?;
    let mut exporter = MetricsExporter::new(&db, "places");
    for i in 0..10_000u32 {
        db.put(i.to_be_bytes(), "value")?;
        db.get(i.to_be_bytes())?;
    }
    db.flush()?;
    // A program does this before each scrape, or every few seconds.
    exporter.record();
    for (series, number) in numbers.lock().expect("no panic").iter().filter(|(_, number)| **number != 0.0) {
        println!("{series} = {number}");
    }
    Ok(())
}
