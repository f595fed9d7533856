//! A timer for what is given back, or begun, once nothing has changed for a while.

use std::time::{Duration, Instant};

/// How long a value has not changed, as far as calls show.
#[derive(Debug, Default)]
pub(crate) struct IdleTimer<T> {
    /// The value seen last, and when it was first seen.
    seen: Option<(T, Instant)>,
}

impl<T: PartialEq> IdleTimer<T> {
    /// Reports whether the value has been this one for at least `period`.
    pub(crate) fn has_lasted(&mut self, value: T, now: Instant, period: Duration) -> bool {
        match &self.seen {
            Some((known, since)) if *known == value => now.saturating_duration_since(*since) >= period,
            _ => {
                self.seen = Some((value, now));
                period.is_zero()
            }
        }
    }

    /// Creates a timer that has seen the value since then.
    #[cfg(test)]
    pub(crate) fn seen(value: T, since: Instant) -> IdleTimer<T> {
        IdleTimer { seen: Some((value, since)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_starts_the_timer_again() {
        let (start, period) = (Instant::now(), Duration::from_secs(5));
        let mut timer = IdleTimer::default();
        assert!(!timer.has_lasted(1, start, period));
        assert!(!timer.has_lasted(1, start + period / 2, period));
        assert!(timer.has_lasted(1, start + period, period));
        assert!(!timer.has_lasted(2, start + period * 2, period));
        assert!(timer.has_lasted(2, start + period * 3, period));
    }
}
