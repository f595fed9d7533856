//! The experiments of the ElasticBF paper, and ours, as [figures](crate::figures): a step is a point with interleaved
//! sides.
//!
//! Rows are those of [`rows`](crate::elastic::rows). `Facts` are the readable ones, which `panels`, `sheets` and
//! `claims` query. A plan keeps its databases from step to step; a step that runs alone loads what it needs.

mod claims;
mod facts;
mod panels;
mod sheets;
mod sizes;
#[cfg(test)]
mod trial;

use tamis_bench::BenchError;
use tamis_bench::progress::Progress;

use crate::elastic::ElasticExperiment;
use crate::elastic::plan::{Job, Step};
use crate::figures::{About, Custom, Figure, Needs, Plan, Row, Scale, View};

use facts::Facts;

/// Returns all of them, in the order of the paper.
pub fn figures() -> Vec<Box<dyn Figure>> {
    ElasticExperiment::all()
        .into_iter()
        .map(|experiment| Box::new(ElasticFigure::new(experiment)) as _)
        .collect()
}

/// An experiment as a figure.
struct ElasticFigure {
    about: About,
    experiment: ElasticExperiment,
}

impl ElasticFigure {
    fn new(experiment: ElasticExperiment) -> ElasticFigure {
        let about = About {
            name: experiment.name,
            paper: experiment.source,
            place: experiment.place,
            title: experiment.title,
            claim: experiment.paper,
            differs: experiment.differs,
        };
        ElasticFigure { about, experiment }
    }

    fn job(&self, scale: Scale, custom: &Custom) -> Result<Job, BenchError> {
        let (experiment, settings) = sizes::sized(&self.experiment, scale);
        let settings = sizes::customized(&experiment, settings, custom)?;
        Job::new(&experiment, &settings)
    }
}

impl Figure for ElasticFigure {
    fn about(&self) -> &About {
        &self.about
    }

    fn needs(&self, scale: Scale) -> Needs {
        self.job(scale, &Custom::default()).map(|job| sizes::needs(&job)).unwrap_or_default()
    }

    fn plan<'f>(&'f self, scale: Scale, custom: &Custom) -> Result<Box<dyn Plan + 'f>, BenchError> {
        Ok(Box::new(Steps { job: self.job(scale, custom)? }))
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

/// The points of an experiment, and its loads, as steps.
struct Steps {
    job: Job,
}

impl Plan for Steps {
    fn setting(&self) -> String {
        self.job.describe()
    }

    fn scaled(&self) -> Vec<String> {
        sizes::scaled(&self.job)
    }

    fn steps(&self) -> Vec<String> {
        let name = |step: &Step<'_>| match step {
            Step::Loads => "loading".to_owned(),
            Step::Point(point) => self.job.step_of(point),
        };
        self.job.steps().iter().map(name).collect()
    }

    fn run(&mut self, step: usize, progress: &dyn Progress) -> Result<Vec<Row>, BenchError> {
        Ok(self.job.run(&self.job.steps()[step], progress)?.into_rows())
    }
}

#[cfg(test)]
mod tests;
