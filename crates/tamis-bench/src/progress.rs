//! Progress reports of long operations. Implementations must be cheap and callable from any thread.

/// A receiver of the progress of successive phases.
pub trait Progress: Sync {
    /// Called when a phase begins; `total` is in `unit`s, 0 if unknown.
    fn begin(&self, phase: &str, total: u64, unit: &'static str);
    /// Called when `n` more units are done.
    fn advance(&self, n: u64);
    /// Called when the phase is over.
    fn end(&self);
    /// Called with one sentence for the user.
    fn note(&self, text: &str);
}

/// Ignores all reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn begin(&self, _phase: &str, _total: u64, _unit: &'static str) {}
    fn advance(&self, _n: u64) {}
    fn end(&self) {}
    fn note(&self, _text: &str) {}
}
