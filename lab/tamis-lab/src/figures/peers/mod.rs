//! Other engines beside a figure's own sides, where the papers have them: RocksDB and LevelDB.
//!
//! They are measured by the comparison program, `tamis-peers`, as a child process: this program builds without other
//! engines, and a crash of one of them does no harm. [`WithPeers`] wraps a figure: with [`Custom::peers`] its plan has
//! one more step, whose rows say `"from": "peers"`, and its view has one more picture, table and verdict made from
//! them. Without it, and for the figure's own rows, it behaves like the figure.
//!
//! * [`Comparison`] describes the request: the sizes of the figure ([`setting`]), as far as the program supports them.
//!   [`Plan::scaled`] lists the differences: other engines have trees of their own shape, and the program generates its
//!   own keys.
//! * tamis takes part there, too, and ratios refer to tamis in the same run (`view`), never to the figure's own sides,
//!   which were measured at another time on another tree.
//! * An engine that is not compiled in, or does not support the request, becomes a note. A program that is missing,
//!   rejects the arguments, crashes, or finds a wrong answer is an error with the program's own message.
//!
//! One thread waits for the program, and kills it if it stops waiting early.

mod program;
mod rows;
pub mod setting;
mod view;

#[cfg(test)]
mod tests;

use tamis_bench::BenchError;
use tamis_bench::progress::Progress;

use crate::figures::{About, Custom, Figure, Needs, Plan, Row, Scale, View};
pub use program::{Comparison, compiled_in, step};
use setting::Setting;

/// The name of the step.
pub const STEP: &str = "peers";

/// The field of rows that says where they come from, and its value in those of the comparison program.
pub const FROM: (&str, &str) = ("from", "peers");

/// A figure, with other engines beside it if a comparison program was given.
pub struct WithPeers {
    figure: Box<dyn Figure>,
    setting: &'static Setting,
}

/// Wraps the figure if its paper has other engines; otherwise returns it unchanged.
pub fn with_peers(figure: Box<dyn Figure>) -> Box<dyn Figure> {
    match Setting::of(figure.about().name) {
        Some(setting) => Box::new(WithPeers { figure, setting }),
        None => figure,
    }
}

impl Figure for WithPeers {
    fn about(&self) -> &About {
        self.figure.about()
    }

    /// Returns the costs without the comparison, which costs about as much again for each of its systems.
    fn needs(&self, scale: Scale) -> Needs {
        self.figure.needs(scale)
    }

    fn plan<'f>(&'f self, scale: Scale, custom: &Custom) -> Result<Box<dyn Plan + 'f>, BenchError> {
        let own = self.figure.plan(scale, &Custom { peers: None, ..custom.clone() })?;
        let Some(program) = &custom.peers else { return Ok(own) };
        let there = compiled_in(program)?;
        let (comparison, scaled) = self.setting.comparison(scale, custom, program, &there)?;
        Ok(Box::new(PlanWithPeers { own, comparison, scaled }))
    }

    fn view(&self, rows: &[Row]) -> View {
        let is_theirs = |row: &Row| row.get(FROM.0).and_then(|from| from.as_str()) == Some(FROM.1);
        let (theirs, own): (Vec<Row>, Vec<Row>) = rows.iter().cloned().partition(is_theirs);
        if theirs.is_empty() {
            return self.figure.view(rows);
        }
        let mut view = self.figure.view(&own);
        view::add(&mut view, &theirs, &self.setting.claim);
        view
    }

    #[cfg(test)]
    fn trial(&self) -> crate::figures::trial::Trial {
        let (own, theirs) = (self.figure.trial(), view::trial(&self.setting.claim));
        let both = |own: Vec<Row>, theirs: &[Row]| [own, theirs.to_vec()].concat();
        crate::figures::trial::Trial {
            good: both(own.good, &theirs.good),
            bad: own.bad.into_iter().map(|rows| both(rows, &theirs.bad[0])).collect(),
        }
    }
}

struct PlanWithPeers<'f> {
    own: Box<dyn Plan + 'f>,
    comparison: Comparison,
    scaled: Vec<String>,
}

impl Plan for PlanWithPeers<'_> {
    fn setting(&self) -> String {
        format!("{}. Beside them, measured by themselves: {}", self.own.setting(), self.comparison.describe())
    }

    fn scaled(&self) -> Vec<String> {
        let mut scaled = self.own.scaled();
        scaled.extend(self.scaled.iter().cloned());
        scaled
    }

    fn steps(&self) -> Vec<String> {
        let mut steps = self.own.steps();
        steps.push(STEP.to_owned());
        steps
    }

    fn run(&mut self, at: usize, progress: &dyn Progress) -> Result<Vec<Row>, BenchError> {
        if at < self.own.steps().len() {
            self.own.run(at, progress)
        } else {
            step(&self.comparison, progress)
        }
    }
}
