//! Progress on standard error, if it is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar, or nothing.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Creates a bar if `wanted` and standard error is a terminal.
    pub(crate) fn new(wanted: bool) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(4));
        Self { bar: if wanted { bar } else { ProgressBar::hidden() } }
    }

    /// Begins work of unknown length.
    pub(crate) fn phase(&self, name: &str) {
        self.begin(name, 0);
    }

    /// Begins work of `steps` steps.
    pub(crate) fn begin(&self, name: &str, steps: usize) {
        let style = if steps > 0 { "{msg:<40} {wide_bar} {pos}/{len} {eta}" } else { "{msg}" };
        if let Ok(style) = ProgressStyle::with_template(style) {
            self.bar.set_style(style);
        }
        self.bar.reset();
        self.bar.set_length(steps as u64);
        self.bar.set_message(name.to_owned());
    }

    /// Advances by `steps` steps. There is no background timer, which would disturb measurements.
    pub(crate) fn advance(&self, steps: u64) {
        self.bar.inc(steps);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
