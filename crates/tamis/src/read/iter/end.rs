//! One end of an iteration.

use tamis_base::key::prefix_of;

use super::last::LastKey;
use super::reader::Reader;
use crate::error::{ReadError, StorageError};
use crate::read::covers::Strides;
use crate::read::gaps::DeadKeys;
use crate::read::merge::MergeCursor;

#[derive(Debug, Default)]
pub(super) struct End {
    pub(super) cursor: Option<Box<MergeCursor>>,
    /// On this side, nothing is left at or beyond it.
    pub(super) last: LastKey,
    /// The key after `last`, once it is resolved.
    pub(super) coming: Vec<u8>,
    /// Whether the cursor still stands on a version of the last key. The next call moves it, which
    /// may open a run or fail.
    pub(super) stands: bool,
    pub(super) finished: bool,
    /// Whether it finished because of an error.
    pub(super) failed: bool,
    pub(super) dead: DeadKeys,
    pub(super) strides: Strides,
}

/// The keys between an end and the other one, or the bound.
#[derive(Debug)]
pub(super) struct Way<'i> {
    /// Where the end began, if that is a key.
    pub(super) from: Option<&'i [u8]>,
    /// Forwards the first key that is not on the way, if there is one.
    pub(super) to: Option<&'i [u8]>,
    to_prefix: u64,
    /// Backwards, whether `to` is on the way.
    with_to: bool,
}

impl<'i> Way<'i> {
    /// Forwards, up to `to` or to the last key.
    #[inline]
    pub(super) fn forward(from: &'i [u8], to: Option<&'i [u8]>) -> Way<'i> {
        Way { from: Some(from), to, to_prefix: to.map_or(u64::MAX, prefix_of), with_to: false }
    }

    /// Backwards, down to `start`, or down to the key behind `passed`, if that is one.
    #[inline]
    pub(super) fn backward(from: Option<&'i [u8]>, start: &'i [u8], passed: Option<&'i [u8]>) -> Way<'i> {
        let to = passed.unwrap_or(start);
        Way { from, to: Some(to), to_prefix: prefix_of(to), with_to: passed.is_none() }
    }

    /// Reports whether the way ends before `key`, which has this prefix.
    #[inline]
    pub(super) fn ends_before<const BACK: bool>(&self, prefix: u64, key: &[u8]) -> bool {
        match self.to {
            Some(to) if BACK => prefix <= self.to_prefix && (key < to || (key == to && !self.with_to)),
            Some(to) => prefix >= self.to_prefix && key >= to,
            None => false,
        }
    }
}

impl End {
    #[inline]
    pub(super) fn conclude(&mut self, outcome: Outcome) {
        (self.finished, self.failed) = (outcome != Outcome::Item, outcome == Outcome::Failed);
    }

    /// Returns the cursor on the version of [`Found::Here`](super::Found::Here).
    #[inline]
    pub(super) fn here(&self) -> &MergeCursor {
        self.cursor.as_ref().expect("the end stands on a version")
    }

    /// Moves the cursor by more than a step. After a failure it is not used again, since some
    /// sources may be prepared for a seek that did not happen; its cost so far is counted.
    pub(super) fn reposition<T>(
        &mut self,
        reader: &mut Reader,
        how: impl FnOnce(&mut MergeCursor) -> Result<T, StorageError>,
    ) -> Result<T, ReadError> {
        let cursor = self.cursor.as_mut().expect("positioned");
        let moved = how(cursor);
        if moved.is_err() {
            cursor.drain_cost(&mut reader.cost);
            self.cursor = None;
        }
        Ok(moved?)
    }
}

/// How a move of an end ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Item,
    End,
    Failed,
}
