//! The oracle of sessions with failing calls or kills: one thread and no power cut, so every
//! acknowledged write must be present, however it was written.
//!
//! A failed write may be present if nothing was acknowledged after it: the error leaves the state
//! of the disk unknown. One that was followed by an acknowledged write, and that no reader saw,
//! must not reappear. unknown. One that was followed by an acknowledged write, and that no reader
//! saw, must not come back.

use std::collections::BTreeSet;

use super::model::{Model, State};
use super::stream::{Op, Stream, Way, Write};

/// The account of one session.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    stream: Stream,
    /// Numbers of the writes that are present.
    held: Vec<u64>,
    /// Writes that failed or were interrupted, after the last acknowledged one.
    doubtful: Vec<(u64, Way)>,
    model: Model,
}

impl Journal {
    pub(crate) fn new(stream: Stream) -> Journal {
        Journal { stream, held: Vec::new(), doubtful: Vec::new(), model: Model::default() }
    }

    /// Returns the write as executed: sessions choose the way themselves, and external tables have
    /// no operands.
    pub(crate) fn write(&self, number: u64, way: Way) -> Write {
        let mut write = self.stream.write(number);
        if way == Way::Ingestion {
            write.ops.retain(|op| !matches!(op, Op::Add(..)));
        }
        Write { way, ..write }
    }

    /// Begins a write, which is in doubt until it is acknowledged.
    pub(crate) fn begin(&mut self, number: u64, way: Way) {
        self.doubtful.push((number, way));
    }

    /// Records that a write was acknowledged, or found after reopening.
    pub(crate) fn acknowledge(&mut self, number: u64) {
        let way =
            self.doubtful.iter().find(|doubtful| doubtful.0 == number).map_or(Way::Batch, |found| found.1);
        self.doubtful.retain(|doubtful| doubtful.0 > number);
        self.hold(number, way);
    }

    fn hold(&mut self, number: u64, way: Way) {
        self.held.push(number);
        let write = self.write(number, way);
        self.model.apply(&write);
    }

    /// Returns the number of acknowledged writes, including those found later.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Returns those after the first `before` of them.
    pub(crate) fn held_since(&self, before: usize) -> Vec<u64> {
        self.held.get(before..).unwrap_or_default().to_vec()
    }

    /// Judges the contents of an open database that was not reopened since the last write.
    pub(crate) fn judge_open(&self, found: &State) -> Result<(), String> {
        let expected: BTreeSet<u64> = self.held.iter().copied().collect();
        if let Some(difference) = numbers(&expected, &found.done) {
            return Err(difference);
        }
        self.model.difference(&found.model).map_or(Ok(()), Err)
    }

    /// Judges the contents after reopening, and resolves doubtful writes.
    pub(crate) fn judge_reopened(&mut self, found: &State) -> Result<(), String> {
        let doubtful = std::mem::take(&mut self.doubtful);
        let there = doubtful.into_iter().filter(|(number, _)| found.done.contains(number));
        there.for_each(|(number, way)| self.hold(number, way));
        self.judge_open(found)
    }
}

fn numbers(expected: &BTreeSet<u64>, found: &BTreeSet<u64>) -> Option<String> {
    let lost: Vec<_> = expected.difference(found).take(5).collect();
    let strange: Vec<_> = found.difference(expected).take(5).collect();
    (!lost.is_empty() || !strange.is_empty()).then(|| {
        format!("acknowledged writes LOST: {lost:?}; writes that should not be present: {strange:?}")
    })
}
