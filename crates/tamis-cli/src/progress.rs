//! Progress on standard error: bars on a terminal, otherwise a plain line from time to time.

use std::fmt;
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use tamis_bench::Progress;
use tamis_bench::report::{grouped, mean};

use crate::output::note;

/// The minimum interval between plain lines of one phase; a shorter phase has none.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// Reports the progress of the work.
pub struct Reporter {
    bars: bool,
    phase: Mutex<Option<Phase>>,
}

struct Phase {
    name: String,
    total: u64,
    unit: &'static str,
    done: u64,
    started: Instant,
    spoken: Instant,
    /// Whether something was done since the last line.
    untold: bool,
    bar: Option<ProgressBar>,
}

impl Default for Reporter {
    fn default() -> Reporter {
        Reporter::new()
    }
}

impl Reporter {
    /// Creates a reporter with nothing to report yet.
    pub fn new() -> Reporter {
        Reporter { bars: std::io::stderr().is_terminal(), phase: Mutex::new(None) }
    }

    fn with_phase(&self, act: impl FnOnce(&mut Option<Phase>)) {
        // A poisoned lock means that a thread panicked while reporting; its state is still useful.
        act(&mut self.phase.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    }
}

impl Phase {
    fn line(&self) -> String {
        let seconds = self.started.elapsed().as_secs_f64();
        let amount = match (self.total, self.unit) {
            (_, "") => String::new(),
            (0, unit) => format!("{} {unit}, ", grouped(self.done)),
            (total, unit) => format!("{} of {} {unit}, ", grouped(self.done), grouped(total)),
        };
        format!("{}: {amount}{seconds:.1} s", self.name)
    }
}

impl Progress for Reporter {
    fn begin(&self, name: &str, total: u64, unit: &'static str) {
        let bar = self.bars.then(|| match total {
            0 => {
                let bar = ProgressBar::new_spinner();
                bar.enable_steady_tick(Duration::from_millis(200));
                bar.set_style(style("{spinner} {prefix} {human_pos} {msg} {elapsed}"));
                bar
            }
            total => {
                let bar = ProgressBar::new(total);
                bar.set_style(style("{prefix} [{bar:30}] {human_pos}/{human_len} {msg} {rate} {eta}"));
                bar
            }
        });
        if let Some(bar) = &bar {
            bar.set_prefix(name.to_owned());
            bar.set_message(unit);
        }
        let now = Instant::now();
        let phase = Phase {
            name: name.to_owned(),
            total,
            unit,
            done: 0,
            started: now,
            spoken: now,
            untold: true,
            bar,
        };
        self.with_phase(|current| *current = Some(phase));
    }

    fn advance(&self, n: u64) {
        self.with_phase(|current| {
            let Some(phase) = current else { return };
            phase.done += n;
            match &phase.bar {
                Some(bar) => bar.inc(n),
                None if phase.spoken.elapsed() >= LINE_EVERY => {
                    phase.spoken = Instant::now();
                    phase.untold = false;
                    note(&phase.line());
                }
                None => phase.untold = true,
            }
        });
    }

    fn end(&self) {
        self.with_phase(|current| {
            let Some(phase) = current.take() else { return };
            match phase.bar {
                Some(bar) => bar.finish_and_clear(),
                None if phase.started.elapsed() >= LINE_EVERY && phase.untold => note(&phase.line()),
                None => {}
            }
        });
    }

    fn note(&self, text: &str) {
        self.with_phase(|current| match current.as_ref().and_then(|phase| phase.bar.as_ref()) {
            Some(bar) => bar.suspend(|| note(text)),
            None => note(text),
        });
    }
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.with_key("rate", |state: &ProgressState, out: &mut dyn fmt::Write| {
        // The bar is a picture: what it cannot show is missing there.
        let _ = out.write_str(&rate(state.per_sec()));
    })
}

fn rate(per_second: f64) -> String {
    format!("{}/s", mean(per_second))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was "5,359.6125/s".
    #[test]
    fn a_rate_has_as_many_digits_as_help() {
        assert_eq!(rate(5359.6125), "5,360/s");
        assert_eq!(rate(12.345), "12.35/s");
        assert_eq!(rate(0.0), "0/s");
    }

    #[test]
    fn a_line_shows_the_amount_done() {
        let phase = |total, unit, done| {
            let now = Instant::now();
            Phase {
                name: "load".into(),
                total,
                unit,
                done,
                started: now,
                spoken: now,
                untold: true,
                bar: None,
            }
            .line()
        };
        assert!(phase(2000, "records", 1000).starts_with("load: 1,000 of 2,000 records, 0."));
        assert!(phase(0, "records", 1000).starts_with("load: 1,000 records, 0."));
        assert!(phase(0, "", 0).starts_with("load: 0."));
    }
}
