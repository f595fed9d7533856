//! Tables and figures of papers as experiments that anyone can run again.
//!
//! A [`Figure`] knows what a paper showed and how to measure the same here. Work and its reading are apart:
//!
//! * [`Figure::plan`] decides everything for a [`Scale`] and what was asked for in its stead ([`Custom`]), and refuses what does
//!   not fit before anything is loaded. A [`Plan`] is a list of steps with names; each gives [`Row`]s. A step is what is
//!   measured at once, sides interleaved, and what an interrupted run begins again with.
//! * [`Figure::view`] makes panels, tables and verdicts of rows alone. So a report can be made of rows that were measured
//!   another day, on another machine, and is never kept beside them.
//!
//! Figures are plain data and functions: nothing here is shared between threads.

mod about;
pub mod catalogue;
mod claim;
pub mod compare;
pub mod compose;
mod custom;
pub mod draw;
mod panel;
pub mod peers;
pub mod report;
pub mod results;
pub mod rows;
pub mod run;

use serde_json::{Map, Value};

pub use about::{About, Needs, Paper, Scale};
pub use claim::{Finding, Verdict};
pub use custom::Custom;
pub use panel::{Axis, Bar, Kind, Panel, Point, Series, Sheet};
use tamis_bench::BenchError;
use tamis_bench::progress::Progress;

/// One measured fact: names and values, one line of JSON. Every row has `kind`, which says what its other names mean.
pub type Row = Map<String, Value>;

/// One table or figure of a paper, or one of our own.
pub trait Figure: Sync {
    /// What it is, and what the paper showed.
    fn about(&self) -> &About;

    /// What running it takes at a scale.
    fn needs(&self, scale: Scale) -> Needs;

    /// Everything decided. Fails with [`BenchError::Request`] if what was asked for does not fit.
    fn plan<'f>(&'f self, scale: Scale, custom: &Custom) -> Result<Box<dyn Plan + 'f>, BenchError>;

    /// What rows of this figure show. Rows may be those of an unfinished run, and none at all: what needs missing ones is
    /// left out. Never panics, whatever the rows hold.
    fn view(&self, rows: &[Row]) -> View;
}

/// A figure's work.
pub trait Plan {
    /// What is measured, in a sentence or two with all sizes.
    fn setting(&self) -> String;

    /// What is smaller or other than in the paper at this scale, and what was kept, one sentence each.
    fn scaled(&self) -> Vec<String>;

    /// The steps by name, in the order of running. Names are unique, and depend on nothing but scale and custom settings.
    fn steps(&self) -> Vec<String>;

    /// Runs one step. It may be run alone: what it needs of earlier ones it makes again.
    fn run(&mut self, step: usize, progress: &dyn Progress) -> Result<Vec<Row>, BenchError>;
}

/// What rows show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// Pictures, in the order of the paper.
    pub panels: Vec<Panel>,
    /// Numbers.
    pub sheets: Vec<Sheet>,
    /// Our figures beside the paper's claims.
    pub verdicts: Vec<Verdict>,
}
