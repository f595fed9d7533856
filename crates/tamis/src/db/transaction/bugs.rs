//! Mistakes that tests make on purpose, to see that they would be found. A build that is no test
//! has none of them.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Bug {
    /// Keys that were read or written are not validated.
    Points = 1,
    /// Ranges are not validated.
    Ranges,
    /// The batches ahead in the same group are not compared.
    Ahead,
    /// Flushed memtables are forgotten.
    Flushed,
    /// A batch whose condition does not hold becomes visible all the same.
    Refused,
    /// Reads are not from the snapshot.
    Unpinned,
}

/// The mistake that a database makes, if any.
#[derive(Debug, Default)]
pub(crate) struct Bugs {
    #[cfg(test)]
    made: std::sync::atomic::AtomicU8,
}

impl Bugs {
    /// Reports whether a mistake is to be made.
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
