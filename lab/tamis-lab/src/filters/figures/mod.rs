//! The experiments of the GRF paper, and ours with every filter, as [figures](crate::figures): a step is a point with all sides.
//!
//! Rows are `LoadRow`s and `ReadRow`s. `Facts` are the readable ones, which `panels`, `sheets` and `claims` query.

mod claims;
mod facts;
mod panels;
mod sheets;
mod sizes;
#[cfg(test)]
mod trial;

use tamis_bench::BenchError;
use tamis_bench::progress::Progress;

use crate::figures::rows::row;
use crate::figures::{About, Custom, Figure, Needs, Plan, Row, Scale, View};
use crate::filters::Experiment;
use crate::filters::job::Job;

use facts::Facts;

/// Returns all of them, in the order of the paper, and our own.
pub fn figures() -> Vec<Box<dyn Figure>> {
    Experiment::all().into_iter().map(|experiment| Box::new(GrfFigure::new(experiment)) as _).collect()
}

/// An experiment as a figure.
struct GrfFigure {
    about: About,
    experiment: Experiment,
}

impl GrfFigure {
    fn new(experiment: Experiment) -> GrfFigure {
        let about = About {
            name: experiment.name,
            paper: experiment.of,
            place: experiment.place,
            title: experiment.title,
            claim: experiment.paper,
            differs: experiment.differs,
        };
        GrfFigure { about, experiment }
    }

    fn job(&self, scale: Scale, custom: &Custom) -> Result<Job, BenchError> {
        let (experiment, settings) = sizes::sized(&self.experiment, scale);
        let settings = sizes::customized(&experiment, settings, custom)?;
        Job::new(&experiment, &settings)
    }
}

impl Figure for GrfFigure {
    fn about(&self) -> &About {
        &self.about
    }

    fn needs(&self, scale: Scale) -> Needs {
        self.job(scale, &Custom::default()).map(|job| sizes::needs(&job)).unwrap_or_default()
    }

    fn plan<'f>(&'f self, scale: Scale, custom: &Custom) -> Result<Box<dyn Plan + 'f>, BenchError> {
        Ok(Box::new(Points { job: self.job(scale, custom)? }))
    }

    fn view(&self, rows: &[Row]) -> View {
        let facts = Facts::new(&self.experiment, rows);
        View { panels: panels::all(&facts), sheets: sheets::all(&facts), verdicts: claims::all(&facts) }
    }

    #[cfg(test)]
    fn trial(&self) -> crate::figures::trial::Trial {
        trial::of(self)
    }
}

/// The points of an experiment as steps.
struct Points {
    job: Job,
}

impl Plan for Points {
    fn setting(&self) -> String {
        self.job.describe()
    }

    fn scaled(&self) -> Vec<String> {
        sizes::scaled(&self.job)
    }

    fn steps(&self) -> Vec<String> {
        self.job.points.iter().map(|point| self.job.name_of(point)).collect()
    }

    fn run(&mut self, step: usize, progress: &dyn Progress) -> Result<Vec<Row>, BenchError> {
        let (loads, reads) = self.job.run_point(&self.job.points[step], progress)?;
        Ok(loads.iter().map(row).chain(reads.iter().map(row)).collect())
    }
}

#[cfg(test)]
mod tests;
