//! [`Ledger`]: the states that a crash may leave.
//!
//! A store makes exactly one promise about a crash: its state afterwards is the result of a
//! *prefix* of the writes, at least as long as it promised. A ledger records the writes and the
//! promise, and judges the state found.

use std::fmt::Debug;

use crate::CrashMode;

/// The writes made to a store in order, and how many of them must survive each kind of crash.
///
/// `S` is the content of the store (a map, say), `W` one atomic write. States are computed by
/// applying the writes one after the other, so the cost of a judgement is linear in their number.
///
/// One thread writes; threads that share a ledger must lock it, and the order of the lock is the
/// order of the writes.
#[derive(Clone, Debug)]
pub struct Ledger<S, W> {
    base: S,
    apply: fn(&mut S, &W),
    writes: Vec<W>,
    /// The number of acknowledged `writes`. At most one more was attempted and failed.
    acknowledged: usize,
    /// The number of `writes` that must survive a power cut.
    safe: usize,
}

impl<S: Clone, W> Ledger<S, W> {
    /// Creates the ledger of a store that holds `base`, all of it safe. `apply` applies a write to
    /// a state.
    pub fn new(base: S, apply: fn(&mut S, &W)) -> Self {
        Ledger { base, apply, writes: Vec::new(), acknowledged: 0, safe: 0 }
    }

    /// Records that the store acknowledged `write`. An earlier failed write is then gone for good:
    /// a store that brought it back later would have reordered its writes.
    pub fn acknowledge(&mut self, write: W) {
        self.writes.truncate(self.acknowledged);
        self.writes.push(write);
        self.acknowledged += 1;
    }

    /// Records that `write` failed, or that the machine stopped during it: it may or may not be
    /// present after a crash. Replaces an earlier such write.
    pub fn doubt(&mut self, write: W) {
        self.writes.truncate(self.acknowledged);
        self.writes.push(write);
    }

    /// Records that the store promised that all acknowledged writes survive a power cut.
    pub fn all_is_safe(&mut self) {
        self.safe = self.acknowledged;
    }

    /// Returns all writes in order; those beyond [`acknowledged`](Ledger::acknowledged) are in
    /// doubt.
    pub fn writes(&self) -> &[W] {
        &self.writes
    }

    /// Returns the number of acknowledged writes.
    pub fn acknowledged(&self) -> usize {
        self.acknowledged
    }

    /// Returns the number of writes that must survive a power cut.
    pub fn safe(&self) -> usize {
        self.safe
    }

    /// Returns the minimum number of writes that must survive a crash of this kind.
    pub fn promised(&self, mode: CrashMode) -> usize {
        match mode {
            CrashMode::KeepAll => self.acknowledged,
            CrashMode::DropUnsynced | CrashMode::Random => self.safe,
        }
    }

    /// Returns the state after the first `count` writes.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    pub fn state_after(&self, count: usize) -> S {
        let mut state = self.base.clone();
        self.writes[..count].iter().for_each(|write| (self.apply)(&mut state, write));
        state
    }

    /// Returns the state that a reader sees while the store is open.
    pub fn visible(&self) -> S {
        self.state_after(self.acknowledged)
    }

    /// Returns the number of writes of the first state with at least `promised` writes that
    /// `agrees` with the state found; `None` if no valid state does.
    pub fn find(&self, promised: usize, mut agrees: impl FnMut(&S) -> bool) -> Option<usize> {
        let mut state = self.state_after(promised);
        for count in promised..=self.writes.len() {
            if agrees(&state) {
                return Some(count);
            }
            if let Some(write) = self.writes.get(count) {
                (self.apply)(&mut state, write);
            }
        }
        None
    }

    /// Judges the content of a store after a crash: returns how many writes it kept, or an error if
    /// it is not a valid state.
    pub fn judge(&self, mode: CrashMode, found: &S) -> Result<usize, String>
    where
        S: PartialEq + Debug,
    {
        let promised = self.promised(mode);
        self.find(promised, |state| state == found).ok_or_else(|| {
            let Ledger { acknowledged, safe, writes, .. } = self;
            format!(
                "after {mode:?} there is {found:?}, which is no state after {promised} to {} writes ({acknowledged} \
                 acknowledged, {safe} safe); promised was {:?}",
                writes.len(),
                self.state_after(promised)
            )
        })
    }

    /// Restarts from the state found after a crash: all of it counts as safe, and the list of
    /// writes is empty.
    pub fn go_on_from(&mut self, found: S) {
        self.base = found;
        self.writes.clear();
        (self.acknowledged, self.safe) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger<Vec<u8>, u8> {
        let mut ledger = Ledger::new(Vec::new(), |state: &mut Vec<u8>, write: &u8| state.push(*write));
        ledger.acknowledge(1);
        ledger.all_is_safe();
        ledger.acknowledge(2);
        ledger.doubt(3);
        ledger
    }

    #[test]
    fn promised_writes_must_survive_and_failed_ones_may() {
        let ledger = ledger();
        assert_eq!(ledger.visible(), [1, 2]);
        for (mode, good) in [
            (CrashMode::KeepAll, &[vec![1, 2], vec![1, 2, 3]][..]),
            (CrashMode::Random, &[vec![1], vec![1, 2], vec![1, 2, 3]]),
            (CrashMode::DropUnsynced, &[vec![1], vec![1, 2], vec![1, 2, 3]]),
        ] {
            for found in [vec![], vec![1], vec![2], vec![1, 2], vec![1, 3], vec![1, 2, 3], vec![1, 2, 3, 3]] {
                let expected = good.contains(&found).then_some(found.len());
                assert_eq!(ledger.judge(mode, &found).ok(), expected, "{mode:?} {found:?}");
            }
        }
    }

    #[test]
    fn a_failed_write_is_gone_once_another_is_acknowledged() {
        let mut ledger = ledger();
        ledger.doubt(4);
        assert_eq!(ledger.writes(), [1, 2, 4]);
        ledger.acknowledge(5);
        assert_eq!((ledger.visible(), ledger.acknowledged(), ledger.safe()), (vec![1, 2, 5], 3, 1));
        ledger.go_on_from(vec![1, 2]);
        assert_eq!(ledger.judge(CrashMode::Random, &vec![1, 2]), Ok(0));
        assert!(ledger.judge(CrashMode::Random, &vec![1]).is_err());
    }
}
