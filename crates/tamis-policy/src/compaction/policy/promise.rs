//! Bounds promised by compaction policies.

/// The bounds that a compaction policy promises for every tree it has shaped, once no compaction is
/// due; `None` where it promises nothing. `docs/compaction.md` has the formulas.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Promise {
    /// Maximum number of runs that a read may have to check, per level from level 0.
    pub runs_per_level: Vec<Option<usize>>,
    /// Maximum number of tables in all levels.
    pub tables: Option<usize>,
    /// Bytes of all tables divided by live bytes.
    pub space_amplification: Option<f64>,
    /// Bytes written by flushes and compactions divided by bytes flushed, over long periods.
    pub write_amplification: Option<f64>,
}

impl Promise {
    /// Returns the total number of runs in all levels; `None` if some level is unbounded.
    pub fn runs(&self) -> Option<usize> {
        self.runs_per_level.iter().copied().sum()
    }
}
