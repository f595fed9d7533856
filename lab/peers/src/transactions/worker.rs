//! The process of one measurement: a task on its standard input, figures on its standard output, one line of JSON each.

use std::io::{self, BufRead, Write};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::measure::{Figures, Task, measure};
use super::side::{Side, SideError};
use super::sides::{Name, Visitor};
use crate::failure::Failure;
use crate::link::{Link, Trouble};

/// How long opening, loading, checking and closing may take.
const OVERHEAD: Duration = Duration::from_secs(120);

/// A worker's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "lowercase")]
pub(crate) enum Answer {
    /// The measured values, of a run whose result was right.
    Measured {
        /// The values.
        figures: Figures,
    },
    /// There are none.
    Failed {
        /// Whether the result was wrong, as opposed to a failure of the engine or the system.
        wrong: bool,
        /// A message for people.
        text: String,
    },
}

impl Answer {
    fn of(result: Result<Figures, SideError>) -> Answer {
        match result {
            Ok(figures) => Answer::Measured { figures },
            Err(error) => {
                Answer::Failed { wrong: matches!(error, SideError::Wrong(_)), text: error.to_string() }
            }
        }
    }

    /// Returns the figures, or the failure of this side.
    pub(crate) fn figures(self, side: Name, task: &Task) -> Result<Figures, Failure> {
        let what = || format!("{side}, {}, {} threads", task.workload, task.threads);
        match self {
            Answer::Measured { figures } => Ok(figures),
            Answer::Failed { wrong: true, text } => Err(Failure::WrongAnswer(format!("{}: {text}", what()))),
            Answer::Failed { wrong: false, text } => Err(Failure::System(format!("{}: {text}", what()))),
        }
    }
}

/// Measures one side in this process.
pub(crate) fn answer<S: Side>(task: &Task) -> Answer {
    Answer::of(measure::<S>(task))
}

/// Runs as a worker of one side: reads one task, and answers it.
pub(crate) fn serve(side: Name) -> Result<(), Failure> {
    struct Serve(Task);

    impl Visitor for Serve {
        type Output = Answer;

        fn visit<S: Side>(self) -> Answer {
            answer::<S>(&self.0)
        }
    }

    let gone = |error: io::Error| Failure::System(format!("the conductor is gone: {error}"));
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(gone)?;
    let task =
        serde_json::from_str(&line).map_err(|error| Failure::Usage(format!("this is no task: {error}")))?;
    let mut line = serde_json::to_string(&side.with(Serve(task)))
        .map_err(|error| Failure::System(format!("an answer cannot be serialised: {error}")))?;
    line.push('\n');
    io::stdout().lock().write_all(line.as_bytes()).map_err(gone)
}

/// Measures one side in a process of its own.
pub(crate) fn measure_apart(side: Name, task: &Task) -> Result<Figures, Failure> {
    let unstarted = |error: io::Error| Failure::System(format!("a worker cannot be started: {error}"));
    let mut command = Command::new(std::env::current_exe().map_err(unstarted)?);
    command.args(["transactions-worker", "--side", side.name()]);
    let limit = OVERHEAD + Duration::from_secs_f64(2.0 * task.seconds);
    let mut link = Link::of_command(command, side.name(), limit).map_err(unstarted)?;
    let answer: Answer = link.exchange(task).map_err(|trouble| match trouble {
        Trouble::WrongAnswer(text) => Failure::WrongAnswer(text),
        Trouble::Failed(text) => Failure::System(text),
    })?;
    answer.figures(side, task)
}
