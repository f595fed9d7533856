//! Bugs that tests inject on purpose, to check that they would be found. A build that is not a test
//! has none of them.

/// An injected bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Bug {
    /// Keys that were read or written are not validated.
    Points = 1,
    /// Ranges are not validated.
    Ranges,
    /// The batches ahead in the same group are not compared.
    Ahead,
    /// Flushed memtables are not kept.
    Flushed,
    /// A batch whose condition fails becomes visible anyway.
    Refused,
    /// Reads do not use the snapshot.
    Unpinned,
}

/// The bug injected into a database, if any.
#[derive(Debug, Default)]
pub(crate) struct Bugs {
    #[cfg(test)]
    made: std::sync::atomic::AtomicU8,
}

impl Bugs {
    /// Reports whether a bug is injected.
    #[cfg(test)]
    pub(crate) fn make(&self, bug: Bug) -> bool {
        self.made.load(std::sync::atomic::Ordering::Relaxed) == bug as u8
    }

    #[cfg(not(test))]
    #[inline(always)]
    pub(crate) fn make(&self, _bug: Bug) -> bool {
        false
    }

    #[cfg(test)]
    pub(crate) fn set(&self, bug: Bug) {
        self.made.store(bug as u8, std::sync::atomic::Ordering::Relaxed);
    }
}
