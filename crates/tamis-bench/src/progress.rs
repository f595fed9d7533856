//! How long work tells a person where it is. Implementations must be cheap and callable from any thread.

/// Receives the progress of one phase after the other.
pub trait Progress: Sync {
    /// A phase begins; `total` is in `unit`s, 0 if unknown.
    fn begin(&self, phase: &str, total: u64, unit: &'static str);
    /// `n` more units are done.
    fn advance(&self, n: u64);
    /// The phase is over.
    fn end(&self);
    /// One sentence for people.
    fn note(&self, text: &str);
}

/// Tells nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn begin(&self, _phase: &str, _total: u64, _unit: &'static str) {}
    fn advance(&self, _n: u64) {}
    fn end(&self) {}
    fn note(&self, _text: &str) {}
}
