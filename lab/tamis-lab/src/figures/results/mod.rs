//! Results on disk: the rows, and the setting and machine they were measured with, so that a run resumes where it was
//! interrupted, and a report can be made later.
//!
//! A figure at a scale has a directory `<out>/<name>/<scale>/`:
//!
//! * `setup.json`: the [`Setup`], written before anything is measured;
//! * `rows.jsonl`: the rows of each step, each followed by a line `{"kind":"done", …}` (`store` has the rules);
//! * `rows.csv`, `verdicts.json`, `*.svg`: derived from the rows when all steps are done, each replaced as a whole.
//!
//! Results that are kept in the repository ([`keep`]) have the setup, and the rows in `rows.jsonl.gz`.
//!
//! The contents of all files are untrusted: damage is an error that names the file and the line.
//!
//! One process at a time runs in a directory: it holds the lock of its file `lock`. Reading takes no lock: rows are
//! only appended or replaced as a whole, and what has no `done` line behind it does not count.

mod setup;
mod store;

use std::path::{Path, PathBuf};

use tamis::io::{DiskFs, FileSystem};
use tamis_bench::BenchError;

use super::{About, Figure, Row, Scale, View, catalogue};

pub use setup::Setup;
pub use store::Done;
#[cfg(test)]
pub(super) use store::keep as store_keep;
pub(super) use store::{Store, Stored, there};

/// The results of one figure at one scale, as stored on disk.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The figure.
    pub about: About,
    /// The scale.
    pub scale: Scale,
    /// The setting and the machine.
    pub setup: Setup,
    /// The rows of all finished steps.
    pub rows: Vec<Row>,
    /// The finished steps, the first ones of [`Setup::steps`].
    pub done: Vec<Done>,
    /// The view of the rows.
    pub view: View,
}

impl Loaded {
    pub(super) fn new(figure: &dyn Figure, scale: Scale, stored: Stored) -> Loaded {
        let Stored { setup, rows, done, .. } = stored;
        let view = figure.view(&rows);
        Loaded { about: figure.about().clone(), scale, setup, rows, done, view }
    }

    /// Reports whether all steps are done.
    pub fn is_complete(&self) -> bool {
        self.done.len() == self.setup.steps.len()
    }

    /// Returns the duration of the finished steps in seconds.
    pub fn seconds(&self) -> f64 {
        self.done.iter().map(|done| done.seconds).sum()
    }
}

/// Writes all complete results of release builds below `from` to `to` in the form that the repository keeps, and returns the names of
/// what was written, and why others were not.
///
/// # Errors
///
/// Some results are damaged or belong to no known figure; a file cannot be read or written.
pub fn keep(from: &Path, to: &Path) -> Result<(Vec<String>, Vec<String>), BenchError> {
    let fs = DiskFs::without_mapping();
    let present = load_all(from)?;
    if let Some(reason) = present.unreadable.first() {
        return Err(BenchError::Request(reason.clone()));
    }
    let (mut kept, mut omitted) = (Vec::new(), Vec::new());
    for loaded in present.loaded {
        let (name, scale) = (loaded.about.name, loaded.scale);
        if loaded.setup.build != "release" {
            omitted.push(format!("{name}/{scale} is of a {} build", loaded.setup.build));
        } else if store::keep(&fs, &directory(from, name, scale), &directory(to, name, scale))? {
            kept.push(format!("{name}/{scale}"));
        } else {
            omitted.push(format!("{name}/{scale} is unfinished"));
        }
    }
    Ok((kept, omitted))
}

/// All results of a directory.
#[derive(Debug, Default)]
pub struct Present {
    /// Readable results, in the order of the catalogue, small scales first.
    pub loaded: Vec<Loaded>,
    /// Why the others cannot be read, one sentence each.
    pub unreadable: Vec<String>,
}

/// Returns the directory of a figure at a scale.
pub fn directory(out: &Path, name: &str, scale: Scale) -> PathBuf {
    out.join(name).join(scale.name())
}

/// Loads the results of one figure at one scale; `None` if it was never begun.
///
/// # Errors
///
/// A file cannot be read, or is damaged.
pub fn load(figure: &dyn Figure, scale: Scale, out: &Path) -> Result<Option<Loaded>, BenchError> {
    load_from(&DiskFs::without_mapping(), figure, scale, out)
}

pub(super) fn load_from(
    fs: &dyn FileSystem,
    figure: &dyn Figure,
    scale: Scale,
    out: &Path,
) -> Result<Option<Loaded>, BenchError> {
    let dir = directory(out, figure.about().name, scale);
    let stored = store::read(fs, &dir)?;
    let Some(stored) = stored else { return Ok(None) };
    let setup = &stored.setup;
    if setup.figure != figure.about().name || setup.scale != scale {
        let text = format!("{} holds {} at scale {}", dir.display(), setup.figure, setup.scale);
        return Err(BenchError::Request(text));
    }
    Ok(Some(Loaded::new(figure, scale, stored)))
}

/// Loads the results of all figures known to this program. Reads everything into memory.
///
/// # Errors
///
/// The directory cannot be read. Unreadable results are in [`Present::unreadable`].
pub fn load_all(out: &Path) -> Result<Present, BenchError> {
    load_all_of(&DiskFs::without_mapping(), &catalogue::all(), out)
}

pub(super) fn load_all_of(
    fs: &dyn FileSystem,
    figures: &[Box<dyn Figure>],
    out: &Path,
) -> Result<Present, BenchError> {
    let failed = |source| BenchError::Io { operation: "read", path: out.to_owned(), source };
    let mut names = fs.list(out).map_err(failed)?;
    names.sort_unstable();
    let mut present = Present::default();
    for figure in figures {
        let name = figure.about().name;
        if names.iter().all(|found| found != name) {
            continue;
        }
        for scale in Scale::ALL {
            match load_from(fs, figure.as_ref(), scale, out) {
                Ok(loaded) => present.loaded.extend(loaded),
                Err(error) => present.unreadable.push(error.to_string()),
            }
        }
    }
    for name in names {
        let known = figures.iter().any(|figure| figure.about().name == name);
        let begun =
            |scale: &Scale| fs.exists(&directory(out, &name, *scale).join(store::SETUP)).unwrap_or(false);
        if !known && Scale::ALL.iter().any(begun) {
            present.unreadable.push(format!("no experiment is called `{name}`: its results are omitted"));
        }
    }
    Ok(present)
}
