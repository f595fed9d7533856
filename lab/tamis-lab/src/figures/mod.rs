//! Tables and figures of papers as repeatable experiments.
//!
//! A [`Figure`] knows what a paper showed and how to measure it here. Measuring and viewing are separate:
//!
//! * [`Figure::plan`] resolves all settings for a [`Scale`] and custom values ([`Custom`]), and refuses invalid ones
//!   before anything is loaded. A [`Plan`] is a list of named steps; each yields [`Row`]s. A step is the unit that is
//!   measured together, with interleaved sides, and that an interrupted run repeats.
//! * [`Figure::view`] derives panels, tables and verdicts from rows alone. So a report can be made from rows measured
//!   at another time on another machine, and views are never stored.
//!
//! Figures are plain data and functions: nothing here is shared between threads.

mod about;
pub mod catalogue;
mod claim;
pub mod compare;
pub mod compose;
mod custom;
pub mod draw;
pub mod pages;
mod panel;
pub mod peers;
pub mod report;
pub mod results;
pub mod rows;
pub mod run;
#[cfg(test)]
pub mod trial;

use serde_json::{Map, Value};

pub use about::{About, Needs, Paper, Scale};
pub use claim::{Finding, Verdict};
pub use custom::Custom;
pub use panel::{Axis, Bar, Kind, Panel, Point, Series, Sheet};
use tamis_bench::BenchError;
use tamis_bench::progress::Progress;

/// One measurement: names and values, one line of JSON. Every row has `kind`, which determines the meaning of its other
/// names.
pub type Row = Map<String, Value>;

/// One table or figure of a paper, or one of our own.
pub trait Figure: Sync {
    /// Returns its description and the paper's claim.
    fn about(&self) -> &About;

    /// Returns its costs at a scale.
    fn needs(&self, scale: Scale) -> Needs;

    /// Resolves all settings. Fails with [`BenchError::Request`] if custom settings do not fit.
    fn plan<'f>(&'f self, scale: Scale, custom: &Custom) -> Result<Box<dyn Plan + 'f>, BenchError>;

    /// Returns the view of this figure's rows. Rows may be those of an unfinished run, or none at all: parts that need
    /// missing ones are omitted. Never panics, whatever the rows contain.
    fn view(&self, rows: &[Row]) -> View;

    /// Returns made-up rows at which the verdicts hold and fail: a figure that has verdicts must have some.
    #[cfg(test)]
    #[doc(hidden)]
    fn trial(&self) -> trial::Trial {
        trial::Trial::default()
    }
}

/// The steps of a figure.
pub trait Plan {
    /// Describes the measurement in a sentence or two, with all sizes.
    fn setting(&self) -> String;

    /// Lists differences in size from the paper at this scale, and what was preserved, one sentence each.
    fn scaled(&self) -> Vec<String>;

    /// Returns the names of the steps in execution order. They are unique, and depend only on scale and custom
    /// settings.
    fn steps(&self) -> Vec<String>;

    /// Runs one step. Steps are independent: each prepares what it needs.
    fn run(&mut self, step: usize, progress: &dyn Progress) -> Result<Vec<Row>, BenchError>;
}

/// The view of rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// Pictures, in the order of the paper.
    pub panels: Vec<Panel>,
    /// Tables.
    pub sheets: Vec<Sheet>,
    /// Our figures compared with the paper's claims.
    pub verdicts: Vec<Verdict>,
}
