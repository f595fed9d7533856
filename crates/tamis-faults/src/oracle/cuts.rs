//! The oracle of power cuts: the last writes of each thread may be lost, but none that was
//! acknowledged as synced before the cut.
//!
//! # What is checked
//!
//! * A thread's counter is at least the number of its last synced write that was acknowledged
//!   before the cut, and at most one more than its last acknowledged write.
//! * The contents are exactly the result of each thread's writes up to its counter: no write is
//!   partial, and none before the counter is missing.
//! * All threads' writes together are a prefix of one order: a write records which writes of other
//!   threads were acknowledged when it began, and these must be present if it is.

use super::model::{Model, State};
use super::stream::Stream;

/// One thread's account.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// The last write included in the base.
    base: u64,
    acked: u64,
    /// The last write acknowledged as synced.
    synced: u64,
    /// `synced` when the cut began.
    safe: u64,
}

/// The account of one database over many cuts.
#[derive(Clone, Debug)]
pub(crate) struct Cuts {
    /// The writes after the base, of any thread.
    stream: Stream,
    base: Model,
    accounts: Vec<Account>,
}

/// The extent of one judgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Judged {
    /// Synced writes acknowledged before the cut, all of which were found.
    pub(crate) safe: u64,
    /// Acknowledged writes, synced or not, that are gone legitimately.
    pub(crate) lost_buffered: u64,
    /// Synced writes acknowledged after the cut had begun…
    pub(crate) in_flight: u64,
    /// … and those of them that are gone.
    pub(crate) in_flight_lost: u64,
    /// Number of keys compared.
    pub(crate) keys: u64,
}

impl Cuts {
    /// Creates the account of a new database that is written from this stream and from those of the
    /// other threads.
    pub(crate) fn new(stream: Stream, threads: u32) -> Cuts {
        let accounts = vec![Account::default(); threads as usize];
        Cuts { stream, base: Model::default(), accounts }
    }

    pub(crate) fn acknowledged(&mut self, thread: u32, number: u64, synced: bool) -> Result<(), String> {
        let account = self.accounts.get_mut(thread as usize).ok_or("an unknown thread")?;
        account.acked = account.acked.max(number);
        if synced {
            account.synced = account.synced.max(number);
        }
        Ok(())
    }

    /// Marks the imminent beginning of the cut: everything acknowledged so far must survive it.
    pub(crate) fn freeze(&mut self) {
        self.accounts.iter_mut().for_each(|account| account.safe = account.synced);
    }

    /// Judges the contents after a cut, and continues from them with writes of `epoch`.
    pub(crate) fn judge(&mut self, found: &State, epoch: u64) -> Result<Judged, String> {
        let judged = self.look_at(found, None)?;
        for (thread, account) in self.accounts.iter_mut().enumerate() {
            let number = found.number(thread as u32);
            *account = Account { base: number, acked: number, synced: number, safe: number };
        }
        self.base = found.model.clone();
        self.stream.epoch = epoch;
        Ok(judged)
    }

    /// Judges a copy made when at least the writes `seen` were acknowledged, and no later than now.
    pub(crate) fn judge_copy(&self, found: &State, seen: &[u64]) -> Result<Judged, String> {
        self.look_at(found, Some(seen))
    }

    fn look_at(&self, found: &State, seen: Option<&[u64]>) -> Result<Judged, String> {
        let mut judged = Judged { keys: found.model.len() as u64, ..Judged::default() };
        let mut expected = self.base.clone();
        for (thread, account) in self.accounts.iter().enumerate() {
            let number = found.number(thread as u32);
            let least = seen.map_or(account.safe, |seen| seen.get(thread).copied().unwrap_or(0));
            if number < least.max(account.base) {
                return Err(format!(
                    "LOST: thread {thread} is at write {number}, but {least} was promised (base {}, acknowledged {})",
                    account.base, account.acked
                ));
            }
            if number > account.acked + 1 {
                let acked = account.acked;
                return Err(format!(
                    "thread {thread} is at write {number}, but only {acked} was acknowledged"
                ));
            }
            judged.safe += account.safe - account.base;
            judged.lost_buffered += account.acked.saturating_sub(number);
            judged.in_flight += account.synced - account.safe;
            judged.in_flight_lost += account.synced.saturating_sub(number.max(account.safe));
            let stream = self.stream(thread as u32);
            (account.base + 1..=number).for_each(|number| expected.apply(&stream.write(number)));
        }
        self.check_order(found)?;
        match expected.difference(&found.model) {
            Some(difference) => Err(format!("the contents do not match the writes: {difference}")),
            None => Ok(judged),
        }
    }

    fn check_order(&self, found: &State) -> Result<(), String> {
        for (thread, counter) in &found.counters {
            for (other, seen) in counter.iter().skip(1).enumerate() {
                let number = found.number(other as u32);
                if number < *seen {
                    return Err(format!(
                        "no prefix: write {} of thread {thread} is present, which came after write {seen} of thread \
                         {other}, which is gone ({number} is the last)",
                        counter[0]
                    ));
                }
            }
        }
        Ok(())
    }

    fn stream(&self, thread: u32) -> Stream {
        Stream { thread, ..self.stream }
    }
}
