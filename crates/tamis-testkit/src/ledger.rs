//! [`Ledger`]: what a crash may leave.
//!
//! A store promises little about a crash, and exactly this: what is there afterwards is the state after *some* number of the
//! writes, in their order, and not fewer of them than it promised. A ledger keeps the writes and the promise, and judges what
//! is found.

use std::fmt::Debug;

use crate::CrashMode;

/// The writes made to a store in their order, and how many of them must survive what.
///
/// `S` is all that the store holds (a map, say), `W` one write: what is done whole or not at all. States are made by applying
/// the writes one after the other, so a judgement takes as long as that.
///
/// One thread writes; a ledger that several share is behind a lock of theirs, and its order is then that of the lock.
#[derive(Clone, Debug)]
pub struct Ledger<S, W> {
    base: S,
    apply: fn(&mut S, &W),
    writes: Vec<W>,
    /// So many of `writes` were acknowledged. At most one more was tried and failed.
    acknowledged: usize,
    /// So many of `writes` must survive a power cut.
    safe: usize,
}

impl<S: Clone, W> Ledger<S, W> {
    /// The ledger of a store that holds `base`, all of it safe. `apply` says what a write does.
    pub fn new(base: S, apply: fn(&mut S, &W)) -> Self {
        Ledger { base, apply, writes: Vec::new(), acknowledged: 0, safe: 0 }
    }

    /// The store said that `write` is done. A write that failed before is gone for good then: a store that would bring it back
    /// later had its writes in another order than it said.
    pub fn acknowledge(&mut self, write: W) {
        self.writes.truncate(self.acknowledged);
        self.writes.push(write);
        self.acknowledged += 1;
    }

    /// `write` was tried and failed, or the machine stopped meanwhile: it may be there after a crash, or not. Takes the place
    /// of another such write.
    pub fn doubt(&mut self, write: W) {
        self.writes.truncate(self.acknowledged);
        self.writes.push(write);
    }

    /// The store said that all acknowledged writes survive a power cut.
    pub fn all_is_safe(&mut self) {
        self.safe = self.acknowledged;
    }

    /// All writes in their order; those behind [`acknowledged`](Ledger::acknowledged) are in doubt.
    pub fn writes(&self) -> &[W] {
        &self.writes
    }

    /// How many writes were acknowledged.
    pub fn acknowledged(&self) -> usize {
        self.acknowledged
    }

    /// How many writes must survive a power cut.
    pub fn safe(&self) -> usize {
        self.safe
    }

    /// How many writes a crash of this kind must leave at least.
    pub fn promised(&self, mode: CrashMode) -> usize {
        match mode {
            CrashMode::KeepAll => self.acknowledged,
            CrashMode::DropUnsynced | CrashMode::Random => self.safe,
        }
    }

    /// The state after the first `count` writes.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    pub fn state_after(&self, count: usize) -> S {
        let mut state = self.base.clone();
        self.writes[..count].iter().for_each(|write| (self.apply)(&mut state, write));
        state
    }

    /// The state that a reader sees while the store is open.
    pub fn visible(&self) -> S {
        self.state_after(self.acknowledged)
    }

    /// The first state of at least `promised` writes that `agrees` with what was found, as its number of writes; `None`: what
    /// was found is none that there may be.
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

    /// Judges what a store holds after a crash: gives how many writes it kept, or says that it is none of the states that there
    /// may be.
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

    /// Goes on from what was found after a crash: all of it counts as safe, and there were no writes yet.
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
    fn what_was_promised_must_be_there_and_what_failed_may_be() {
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
