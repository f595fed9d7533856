//! Runs a figure into a directory of results, continuing where an earlier run was interrupted.
//!
//! Before anything is measured or written, [`check`] and [`room`] refuse settings that the figure does not accept,
//! results of other settings, and a disk without enough space. [`run`] measures the remaining steps, keeps each as it
//! ends, and then derives all output from the rows. A run that ends early, by an error or a kill, loses only its
//! current step.
//!
//! One thread runs a figure; steps may use more.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Value, json};
use tamis::io::{DiskFs, FileSystem};
use tamis_bench::BenchError;
use tamis_bench::progress::Progress;
use tamis_bench::report::{bytes, csv_led_by, duration};

use super::results::{Loaded, Setup, Store, Stored, directory, there};
use super::{Custom, Figure, Plan, Scale, Verdict, draw};
use crate::machine::nearest;

/// The progress of a directory of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Number of finished steps.
    pub done: usize,
    /// Number of all steps.
    pub steps: usize,
}

impl State {
    /// Reports whether all steps are done.
    pub fn is_complete(self) -> bool {
        self.done == self.steps
    }
}

/// The result of a run.
#[derive(Debug)]
pub struct Report {
    /// All results.
    pub loaded: Loaded,
    /// Their directory.
    pub dir: PathBuf,
    /// The files derived from the rows.
    pub files: Vec<PathBuf>,
    /// Number of steps measured by this run; 0 if all were already done.
    pub measured: usize,
}

/// Checks whether a run can proceed, and returns its progress. Writes nothing. With `restart` existing results are
/// ignored.
///
/// # Errors
///
/// [`BenchError::Request`] if the settings do not fit the figure, or if existing results have other settings or are
/// damaged.
pub fn check(
    figure: &dyn Figure,
    scale: Scale,
    custom: &Custom,
    out: &Path,
    restart: bool,
) -> Result<State, BenchError> {
    let plan = figure.plan(scale, custom)?;
    let setup = Setup::of(figure.about().name, scale, custom, plan.as_ref());
    let dir = directory(out, figure.about().name, scale);
    let stored = if restart { None } else { there(&DiskFs::without_mapping(), &dir, &setup)? };
    Ok(State { done: stored.map_or(0, |stored| stored.done.len()), steps: setup.steps.len() })
}

/// Reports whether custom sizes invalidate [`Figure::needs`].
pub fn has_other_sizes(custom: &Custom) -> bool {
    let sizes = ["--keys", "--key-bytes", "--value-bytes", "--filters", "--bits", "--option"];
    custom.given().iter().any(|flag| sizes.contains(flag))
}

/// Checks that the disk of the databases has the space that the figure needs at this scale. Always succeeds with custom
/// sizes, whose needs are unknown.
///
/// # Errors
///
/// [`BenchError::Request`] if it has not; an error if the system does not report the free space.
pub fn room(figure: &dyn Figure, scale: Scale, custom: &Custom) -> Result<(), BenchError> {
    let needed = figure.needs(scale).disk_bytes;
    let place = custom.place();
    let Some(dir) = nearest(&place) else { return Ok(()) };
    let free = DiskFs::without_mapping().available_space(&dir);
    let free = free.map_err(|source| BenchError::Io {
        operation: "determine the free space of",
        path: dir,
        source,
    })?;
    // Files of an earlier run are reused or replaced.
    let had = custom.dir.as_deref().map_or(0, bytes_below);
    match free {
        Some(free) if free.saturating_add(had) < needed && !has_other_sizes(custom) => {
            let instead = match custom.dir {
                Some(_) => "give --db a directory on a larger disk",
                None => {
                    "set TMPDIR to a directory on a larger disk, or give --db where the experiment takes it,"
                }
            };
            Err(BenchError::Request(format!(
                "{} takes {} of disk space at scale {scale}, but {} has {} free: {instead} or choose a smaller --scale",
                figure.about().name,
                bytes(needed),
                place.display(),
                bytes(free),
            )))
        }
        _ => Ok(()),
    }
}

/// Returns the total size of all accessible files below a directory.
fn bytes_below(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_below(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

/// Measures the remaining steps of a figure, and writes `rows.csv`, `verdicts.json`, and a picture of each panel. With
/// `restart` all steps are measured.
///
/// # Errors
///
/// As for [`check`]; a step fails, or a file cannot be written. Finished steps are kept.
pub fn run(
    figure: &dyn Figure,
    scale: Scale,
    custom: &Custom,
    out: &Path,
    restart: bool,
    progress: &dyn Progress,
) -> Result<Report, BenchError> {
    let run = Run { fs: &DiskFs::without_mapping(), figure, scale, custom, out, restart };
    run.run(progress)
}

struct Run<'r> {
    fs: &'r dyn FileSystem,
    figure: &'r dyn Figure,
    scale: Scale,
    custom: &'r Custom,
    out: &'r Path,
    restart: bool,
}

impl Run<'_> {
    fn run(&self, progress: &dyn Progress) -> Result<Report, BenchError> {
        let name = self.figure.about().name;
        let mut plan = self.figure.plan(self.scale, self.custom)?;
        let setup = Setup::of(name, self.scale, self.custom, plan.as_ref());
        let dir = directory(self.out, name, self.scale);
        let (mut store, mut stored) = Store::open(self.fs, &dir, &setup, self.restart)?;
        let before = stored.done.len();
        let measured = self.measure(plan.as_mut(), &mut store, &mut stored, progress);
        if measured.is_err() && !stored.done.is_empty() {
            let (done, steps) = (stored.done.len(), stored.setup.steps.len());
            progress.note(&format!(
                "{name}: {done} of {steps} steps are done and kept; the same command continues there"
            ));
        }
        measured?;
        let measured = stored.done.len() - before;
        let loaded = Loaded::new(self.figure, self.scale, stored);
        let files = write(&store, &loaded)?;
        Ok(Report { loaded, dir, files, measured })
    }

    fn measure(
        &self,
        plan: &mut dyn Plan,
        store: &mut Store<'_>,
        stored: &mut Stored,
        progress: &dyn Progress,
    ) -> Result<(), BenchError> {
        let name = self.figure.about().name;
        let steps = stored.setup.steps.clone();
        let needs = (!has_other_sizes(self.custom)).then(|| self.figure.needs(self.scale).seconds as f64);
        for (number, step) in steps.iter().enumerate().skip(stored.done.len()) {
            let spent: f64 = stored.done.iter().map(|done| done.seconds).sum();
            let left = match stored.done.len() {
                0 => needs,
                // Assumes that steps take the same time.
                done => Some(spent / done as f64 * (steps.len() - done) as f64),
            };
            let left = left.map_or(String::new(), |left| format!(", about {} left", duration(left)));
            progress.note(&format!("{name}: step {} of {}{left}: {step}", number + 1, steps.len()));
            let within = Within { progress, place: format!("[{}/{}]", number + 1, steps.len()) };
            let began = Instant::now();
            let rows = plan.run(number, &within)?;
            let done = store.add(step, &rows, began.elapsed().as_secs_f64())?;
            stored.rows.extend(rows);
            stored.done.push(done);
        }
        Ok(())
    }
}

/// The progress of one step within a run.
struct Within<'p> {
    progress: &'p dyn Progress,
    place: String,
}

impl Progress for Within<'_> {
    fn begin(&self, phase: &str, total: u64, unit: &'static str) {
        self.progress.begin(&format!("{} {phase}", self.place), total, unit);
    }

    fn advance(&self, n: u64) {
        self.progress.advance(n);
    }

    fn end(&self) {
        self.progress.end();
    }

    fn note(&self, text: &str) {
        self.progress.note(text);
    }
}

/// Writes the output derived from the rows, removes obsolete pictures, and returns the files.
fn write(store: &Store<'_>, loaded: &Loaded) -> Result<Vec<PathBuf>, BenchError> {
    let mut files = vec![store.replace("rows.csv", &csv(loaded))?];
    let verdicts = Value::Array(loaded.view.verdicts.iter().map(verdict).collect());
    let text = serde_json::to_string_pretty(&verdicts).expect("a value has a form in JSON") + "\n";
    files.push(store.replace("verdicts.json", &text)?);
    let names: Vec<String> =
        loaded.view.panels.iter().enumerate().map(|(number, panel)| picture(number, &panel.title)).collect();
    let sides = draw::Sides::of(&loaded.view.panels);
    for (name, panel) in names.iter().zip(&loaded.view.panels) {
        files.push(store.replace(name, &draw::svg(panel, &sides))?);
    }
    store.remove(|name| is_picture(name) && !names.iter().any(|kept| kept == name))?;
    Ok(files)
}

/// Returns all rows as comma-separated values: step, kind, then all other fields.
fn csv(loaded: &Loaded) -> String {
    let steps = loaded.done.iter().flat_map(|done| std::iter::repeat_n(&done.step, done.rows));
    let rows = loaded.rows.iter().zip(steps).map(|(row, step)| {
        let mut row = row.clone();
        // A step named by the row itself takes precedence.
        row.entry("step").or_insert_with(|| step.as_str().into());
        Value::Object(row)
    });
    csv_led_by(&["step", "kind"], &rows.collect::<Vec<_>>())
}

/// Returns a verdict as a JSON object.
pub fn verdict(verdict: &Verdict) -> Value {
    let Verdict { claim, paper, ours, direction, order, ratio, finding, note } = verdict;
    json!({
        "finding": finding.name(), "claim": claim, "paper": paper, "ours": ours, "direction": direction, "order": order,
        "ratio": ratio, "note": note,
    })
}

/// Returns a panel's file name; the number distinguishes panels with similar titles.
fn picture(number: usize, title: &str) -> String {
    let words = title.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut name = format!("plot-{:02}", number + 1);
    for word in words.take(8) {
        name = name + "-" + &word.to_ascii_lowercase();
    }
    // The name is ASCII, so any position is a boundary.
    name.truncate(60);
    name + ".svg"
}

fn is_picture(name: &str) -> bool {
    name.starts_with("plot-") && name.ends_with(".svg")
}

#[cfg(test)]
pub(super) mod tests;
