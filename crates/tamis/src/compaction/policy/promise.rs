//! What policies promise.

/// What a compaction policy promises of every tree that it has shaped, as soon as nothing is due; `None` where it
/// promises nothing. `docs/compaction.md` has the formulas, and what simulations measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Promise {
    /// Runs that a read may have to ask, by level from 0 on.
    pub runs_per_level: Vec<Option<usize>>,
    /// Bytes of all tables by bytes of what is live.
    pub space_amplification: Option<f64>,
    /// Bytes written by flushes and compactions by bytes flushed, over long times.
    pub write_amplification: Option<f64>,
}

impl Promise {
    /// Runs of all levels together; `None` if any level may have any number.
    pub fn runs(&self) -> Option<usize> {
        self.runs_per_level.iter().copied().sum()
    }
}
