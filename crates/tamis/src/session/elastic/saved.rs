//! When the hotness of tables was saved last.

/// The longest time between saves while there are gets, in seconds of the clock. The hotness takes
/// a byte or two per segment.
pub(crate) const SAVE_EVERY: u64 = 30;

/// When the hotness was last saved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Saved {
    /// By the database's clock.
    pub(crate) when: u64,
    /// The gets counted by then; `None` if the edit failed.
    pub(crate) gets: Option<u64>,
}

impl Saved {
    /// The state at opening.
    pub(crate) fn at_opening(now: u64) -> Saved {
        Saved { when: now, gets: Some(0) }
    }

    /// Reports whether the hotness should be saved. A clock change counts as elapsed time.
    pub(crate) fn is_due(&self, now: u64, gets: u64) -> bool {
        self.gets != Some(gets) && now.abs_diff(self.when) >= SAVE_EVERY
    }
}
