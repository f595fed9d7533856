//! A restart: how many gets pass until filters that follow the reads waste as little as before it.
//!
//! A side is read until its placement has settled, then in [`BEFORE`] windows, whose mean is the *settled* rate. Then half a minute
//! passes on the database's clock, so that it saves what it knows, and [`LOST`] more windows follow. From there it goes on in
//! [ways](WAYS) that share nothing:
//!
//! * *crashed*: a copy of the directory as a crash of the process would leave it, which lacks what the last windows taught;
//! * *closed*: the database itself, closed and opened again;
//! * *cold*: a fresh copy of the same tree, which nobody has read.
//!
//! Each has loaded the units that its hotness calls for before its first get, and has an empty block cache. The ways read the same
//! keys, in windows in turn. The rate is back in the first window that wastes at most a tenth more than the settled rate; the
//! resolution is one window.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tamis::clock::ManualClock;
use tamis_bench::BenchError;
use tamis_bench::pattern::Pattern;
use tamis_bench::progress::Progress;
use tamis_testkit::EmulatedFs;

use crate::elastic::database::Copy;
use crate::elastic::device::paid;
use crate::elastic::memory::equalize;
use crate::elastic::plan::{Job, Opened, request};
use crate::elastic::points::Point;
use crate::elastic::rounds::{Stand, read};
use crate::elastic::rows::{RestartRow, Rows, WindowRow};
use crate::elastic::warmup::warm_up;
use crate::elastic::windows;

/// Number of windows before the restart.
pub(super) const BEFORE: u64 = 5;

/// Number of windows whose lessons a crash loses.
pub(super) const LOST: u64 = 5;

/// Number of windows after the restart.
pub(super) const AFTER: u64 = 20;

/// The ways to go on.
pub(super) const WAYS: [&str; 3] = ["closed", "crashed", "cold"];

/// The number of windows that all ways of a side take together.
pub(super) const WINDOWS: u64 = BEFORE + LOST + WAYS.len() as u64 * AFTER;

/// Factor of the settled rate within which a window is back.
const BACK: f64 = 1.1;

/// Time after which a database that is read has to save its hotness, in seconds of its clock.
const SAVED_AFTER: u64 = 31;

/// The longest wait for that.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A database after the restart.
struct Restarted {
    way: &'static str,
    copy: Copy,
    fs: Option<EmulatedFs>,
    rates: Vec<f64>,
}

/// What all windows of a point have in common.
struct Setting<'a> {
    job: &'a Job,
    point: &'a Point,
    pattern: &'a Pattern,
    filter_bytes: u64,
    progress: &'a dyn Progress,
}

/// Measures one point.
pub(super) fn run(job: &Job, point: &Point, progress: &dyn Progress) -> Result<Rows, BenchError> {
    let mut rows = Rows::default();
    let pattern = job.pattern(point, false)?;
    let clock = Arc::new(ManualClock::new(0));
    let (mut stands, mut options) = (Vec::new(), Vec::new());
    for side in &job.sides {
        let opened = job.open_with(side, &point.variant, Some(clock.clone()), progress)?;
        rows.add_load(opened.load);
        options.push(opened.options);
        let fill = job.data(&point.variant).fill();
        stands.push(Stand::new(side.clone(), opened.copy, opened.fs, fill));
    }
    let sides = stands.iter().map(|stand| (&stand.side, stand.copy.db()));
    let filter_bytes = job.equalize_all(&point.variant, sides)?;
    rows.warmups = warm_up(job, point, &pattern, (&stands, filter_bytes), progress)?.windows;
    let setting = Setting { job, point, pattern: &pattern, filter_bytes, progress };
    for (stand, options) in stands.into_iter().zip(options) {
        let name = stand.side.name().to_owned();
        let mut settled = Vec::new();
        for window in 0..BEFORE {
            let row = setting.window(&stand.copy, stand.fs.as_ref(), &name, window)?;
            settled.push(row.in_vain_per_get);
            rows.windows.push(row);
        }
        if stand.side.is_elastic() {
            let_it_save(&stand.copy.path(), &clock)?;
        }
        for window in BEFORE..BEFORE + LOST {
            rows.windows.push(setting.window(&stand.copy, stand.fs.as_ref(), &name, window)?);
        }
        let crashed = stand.copy.after_crash(&options)?;
        let closed = stand.copy.reopened(&options)?;
        let Opened { copy: cold, fs: cold_fs, .. } = job.open(&stand.side, &point.variant, progress)?;
        let of = |way, copy, fs| Restarted { way, copy, fs, rates: Vec::new() };
        let mut ways = [
            of(WAYS[0], closed, stand.fs.clone()),
            of(WAYS[1], crashed, stand.fs.clone()),
            of(WAYS[2], cold, cold_fs),
        ];
        for way in &ways {
            equalize(way.copy.db(), filter_bytes)?;
        }
        for window in BEFORE + LOST..BEFORE + LOST + AFTER {
            for way in &mut ways {
                let name = format!("{name}, {}", way.way);
                let row = setting.window(&way.copy, way.fs.as_ref(), &name, window)?;
                way.rates.push(row.in_vain_per_get);
                rows.windows.push(WindowRow { moved: true, ..row });
            }
        }
        let before = settled.iter().sum::<f64>() / settled.len() as f64;
        for way in ways {
            rows.restarts.push(setting.row(&name, before, &way));
            way.copy.close()?;
        }
    }
    Ok(rows)
}

impl Setting<'_> {
    /// Reads one window.
    fn window(
        &self,
        copy: &Copy,
        fs: Option<&EmulatedFs>,
        side: &str,
        window: u64,
    ) -> Result<WindowRow, BenchError> {
        let Setting { job, point, pattern, filter_bytes, progress } = *self;
        let (ops, fill) = (job.ops(&point.variant), job.data(&point.variant).fill());
        let reading =
            paid(fs, copy.db(), || read(job, point, pattern, copy.db(), &fill, (ops, window), progress))?;
        equalize(copy.db(), filter_bytes)?;
        Ok(windows::row(job, point, side, (window + 1) * ops, &reading, copy.db()))
    }

    fn row(&self, side: &str, before: f64, way: &Restarted) -> RestartRow {
        let ops = self.job.ops(&self.point.variant);
        let back = windows_until_back(&way.rates, before);
        let until = &way.rates[..back.unwrap_or(way.rates.len())];
        RestartRow {
            kind: "restart".into(),
            experiment: self.job.experiment.name.into(),
            side: side.into(),
            way: way.way.into(),
            point: self.point.label.clone(),
            skew: self.point.spec.skew,
            locality: self.point.spec.locality,
            before,
            first: way.rates.first().copied().unwrap_or(0.0),
            end: windows::steady(&way.rates),
            gets_until_back: back.map(|windows| windows as u64 * ops),
            more_wasted: until.iter().map(|rate| (rate - before) * ops as f64).sum(),
        }
    }
}

/// Returns the number of windows before the first that wastes at most a tenth more than before; `None` if there is none.
fn windows_until_back(after: &[f64], before: f64) -> Option<usize> {
    after.iter().position(|&rate| rate <= before * BACK)
}

/// Lets half a minute pass, and waits until the database has saved its hotness: its manifest has grown, or is another one.
fn let_it_save(dir: &Path, clock: &ManualClock) -> Result<(), BenchError> {
    let written = manifest(dir)?;
    clock.advance(SAVED_AFTER);
    let begun = Instant::now();
    while manifest(dir)? == written {
        if begun.elapsed() > LONGEST_WAIT {
            return Err(request("the database has not saved its hotness: is the device full?"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Returns the names and contents of the manifests. Their lengths do not tell: space is reserved ahead.
fn manifest(dir: &Path) -> Result<Vec<(String, Vec<u8>)>, BenchError> {
    let failed = |source| BenchError::Io { operation: "look into", path: dir.to_owned(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("MANIFEST") {
            match fs::read(entry.path()) {
                Ok(contents) => found.push((name, contents)),
                // It was replaced meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_back_within_a_tenth() {
        assert_eq!(windows_until_back(&[0.21, 0.5], 0.2), Some(0));
        assert_eq!(windows_until_back(&[0.5, 0.3, 0.23, 0.219, 0.3], 0.2), Some(3));
        assert_eq!(windows_until_back(&[0.5, 0.3], 0.2), None);
        assert_eq!(windows_until_back(&[], 0.2), None);
        assert_eq!(windows_until_back(&[0.0], 0.0), Some(0));
    }
}
