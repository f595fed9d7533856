//! What an iterator remembers of the dead keys on its way.

use super::{Gaps, Standpoint, WORTH};

/// The keys without a value that an end has passed since the last one with a value.
#[derive(Debug, Default)]
pub(crate) struct DeadKeys {
    /// How many were stepped over.
    pub(crate) count: u64,
    /// How many since the last jump over a gap.
    pub(crate) since_jump: u64,
    /// Whether some were jumped over.
    pub(crate) jumped: bool,
    /// From here on none has a value: forwards the first of them, the start of the first gap, or
    /// that of the iteration; backwards the key with a value behind them, or the end of the
    /// iteration.
    pub(crate) near: Option<Vec<u8>>,
    /// After so many keys without a value, expired ones too, the iteration ends; 0: it does not.
    pub(crate) limit: u64,
}

impl DeadKeys {
    /// Counts one more, and reports whether it is time to ask for gaps: at the first, and then more
    /// and more rarely.
    #[inline]
    pub(crate) fn add(&mut self) -> bool {
        self.count += 1;
        self.since_jump += 1;
        self.since_jump.is_power_of_two()
    }

    /// Counts a key without a value, and reports whether the iteration ends at it.
    #[inline]
    pub(crate) fn tires(&mut self) -> bool {
        let ends = self.limit == 1;
        self.limit = self.limit.saturating_sub(1);
        ends
    }

    /// Tells the gaps that no key between here and `far` has a value for a reader there, if that is
    /// worth it. Forwards `far` is the first key behind the dead ones, or the end of all; backwards
    /// the last of them.
    pub(crate) fn end<const BACK: bool>(&mut self, gaps: Option<(&Gaps, Standpoint)>, far: Option<&[u8]>) {
        let near = self.near.as_deref();
        let (start, end) = if BACK { (far, near) } else { (near, far) };
        if self.are_worth_it()
            && let (Some((gaps, reader)), Some(start)) = (gaps, start)
        {
            gaps.learn(start, end, reader, self.count);
        }
        (self.count, self.since_jump, self.jumped) = (0, 0, false);
    }

    /// Reports whether there was one.
    #[inline]
    pub(crate) fn are_any(&self) -> bool {
        self.count > 0 || self.jumped
    }

    /// Many are worth a gap, and a few at a gap that they extend.
    #[inline]
    fn are_worth_it(&self) -> bool {
        self.count >= WORTH || (self.jumped && self.count > 0)
    }
}
