//! Runs a figure into a directory of results, and goes on where an earlier run was interrupted.
//!
//! [`check`] and [`room`] refuse, before anything is measured or written: what the figure does not take, results that
//! were measured otherwise, a disk without room. [`run`] measures the steps that are left, each kept as it ends, and
//! then makes of all rows what people look at. A run that ends early, by an error or from without, loses the step that
//! it was in.
//!
//! One thread runs a figure; what a step does with more is its own.

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

/// How far a directory's results are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Steps that are done.
    pub done: usize,
    /// All steps.
    pub steps: usize,
}

impl State {
    /// Whether nothing is left to measure.
    pub fn is_complete(self) -> bool {
        self.done == self.steps
    }
}

/// What a run gave.
#[derive(Debug)]
pub struct Report {
    /// All that is there now.
    pub loaded: Loaded,
    /// Where.
    pub dir: PathBuf,
    /// The files that were made of the rows.
    pub files: Vec<PathBuf>,
    /// How many steps this run measured; 0 if all were done before.
    pub measured: usize,
}

/// Whether a run can go ahead, and how far it is. Writes nothing. With `restart` whatever lies there is as if it did
/// not.
///
/// # Errors
///
/// [`BenchError::Request`] if the settings do not fit the figure, or if what is there was measured otherwise or is
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

/// Whether the sizes are other than those that [`Figure::needs`] speaks of.
pub fn has_other_sizes(custom: &Custom) -> bool {
    let sizes = ["--keys", "--key-bytes", "--value-bytes", "--filters", "--bits", "--option"];
    custom.given().iter().any(|flag| sizes.contains(flag))
}

/// Whether the disk that databases are made on has room for what the figure needs at this scale. It has where sizes
/// were given: only what the figure's own take is known.
///
/// # Errors
///
/// [`BenchError::Request`] if it has not; the system does not tell.
pub fn room(figure: &dyn Figure, scale: Scale, custom: &Custom) -> Result<(), BenchError> {
    let needed = figure.needs(scale).disk_bytes;
    let place = custom.place();
    let Some(dir) = nearest(&place) else { return Ok(()) };
    let free = DiskFs::without_mapping().available_space(&dir);
    let free =
        free.map_err(|source| BenchError::Io { operation: "ask for the space of", path: dir, source })?;
    // What an earlier run left there is used again, or replaced.
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
                "{} takes {} of disk at scale {scale}, and {} has {} free: {instead} or choose a smaller --scale",
                figure.about().name,
                bytes(needed),
                place.display(),
                bytes(free),
            )))
        }
        _ => Ok(()),
    }
}

/// Bytes of all files below a directory, as far as they can be seen.
fn bytes_below(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_below(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

/// Measures what is left of a figure, and writes what the rows show: `rows.csv`, `verdicts.json`, and a picture of each
/// panel. With `restart` everything is left, whatever lies there.
///
/// # Errors
///
/// As for [`check`]; a step fails, or a file cannot be written. Steps that were done stay done.
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
                "{name}: {done} of {steps} steps are done and kept; the same command goes on there"
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
                // Steps are taken to be alike.
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

/// The progress of one step of many.
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

/// Writes what is made of the rows, and removes pictures that are no longer. Returns the files.
fn write(store: &Store<'_>, loaded: &Loaded) -> Result<Vec<PathBuf>, BenchError> {
    let mut files = vec![store.replace("rows.csv", &csv(loaded))?];
    let verdicts = Value::Array(loaded.view.verdicts.iter().map(verdict).collect());
    let text = serde_json::to_string_pretty(&verdicts).expect("a value has a form in JSON") + "\n";
    files.push(store.replace("verdicts.json", &text)?);
    let names: Vec<String> =
        loaded.view.panels.iter().enumerate().map(|(number, panel)| picture(number, &panel.title)).collect();
    let sides = draw::Sides::of(&loaded.view.panels);
    for (name, panel) in names.iter().zip(&loaded.view.panels) {
        files.push(store.replace(name, &draw::svg(panel, &sides)?)?);
    }
    store.remove(|name| is_picture(name) && !names.iter().any(|kept| kept == name))?;
    Ok(files)
}

/// All rows as comma-separated values: their step first, then their kind, then whatever they have.
fn csv(loaded: &Loaded) -> String {
    let steps = loaded.done.iter().flat_map(|done| std::iter::repeat_n(&done.step, done.rows));
    let rows = loaded.rows.iter().zip(steps).map(|(row, step)| {
        let mut row = row.clone();
        // A row's own word of its step stands.
        row.entry("step").or_insert_with(|| step.as_str().into());
        Value::Object(row)
    });
    csv_led_by(&["step", "kind"], &rows.collect::<Vec<_>>())
}

/// A verdict as a JSON object.
pub fn verdict(verdict: &Verdict) -> Value {
    let Verdict { claim, paper, ours, direction, order, ratio, finding, note } = verdict;
    json!({
        "finding": finding.name(), "claim": claim, "paper": paper, "ours": ours, "direction": direction, "order": order,
        "ratio": ratio, "note": note,
    })
}

/// A panel's file: its number keeps files of like titles apart.
fn picture(number: usize, title: &str) -> String {
    let words = title.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut name = format!("plot-{:02}", number + 1);
    for word in words.take(8) {
        name = name + "-" + &word.to_ascii_lowercase();
    }
    // All of it is ASCII: any place is a boundary.
    name.truncate(60);
    name + ".svg"
}

fn is_picture(name: &str) -> bool {
    name.starts_with("plot-") && name.ends_with(".svg")
}

#[cfg(test)]
pub(super) mod tests;
