//! Decides the fate of a key's versions in a flush or compaction: which are written, in which form,
//! and which are dropped.
//!
//! [`Versions`] takes the versions of one key at a time, newest first, and passes on those that
//! stay, in the same order. It knows nothing of files.
//!
//! # Invariant
//!
//! Every version still needed by a snapshot, a current reader, an operand above it or an older run
//! outside the merge is kept: a read at any live number gives the same answer before and after the
//! merge.
//!
//! # Stripes
//!
//! Live snapshots divide the order of writes into stripes: stripe `i` holds the numbers that
//! snapshot `i` sees and snapshot `i - 1` does not; the numbers that no snapshot sees form the last
//! stripe. Within a stripe, readers can see only the final state: the newest version or, if that is
//! a merge operand, the operands down to their base. Snapshots taken while the merge runs see
//! everything in it, as do readers without a snapshot.
//!
//! # Rules
//!
//! * A version is dropped if it is older than a put or delete of its stripe, or under a range
//!   tombstone that its stripe sees.
//! * **Operands** of a stripe are folded into one put if their base is known: a put of the same
//!   stripe, or nothing. Nothing means a delete in any stripe, a range tombstone, or the end of the
//!   key if nothing older lies outside the merge. (A base in an older stripe would be written
//!   twice.) Otherwise they are folded into one operand if the operator can do that, and stay
//!   unchanged if it cannot. The result has the newest operand's number: all of the stripe's
//!   readers see it, and no others.
//! * If the operator fails, operands and base stay unchanged: reads report the error, and a later
//!   write heals it.
//! * If every snapshot sees a version and nothing older lies outside, a delete is dropped, and a
//!   put's number is reset to 0. An operand keeps its number: two of them need an order.
//! * **Expiry**: if the newest version of a key in the merge is at or below the horizon and no
//!   snapshot sees it, the key is deleted at that number, so that older versions stay hidden,
//!   wherever they are. Operands above the horizon are not folded with what a snapshot keeps below
//!   it; otherwise current readers would see that again.
//! * A **filter** decides about the put that is a key's newest version, if no snapshot sees it.
//!   What it removes becomes a delete, under the rules for deletes.
//!
//! # Cost
//!
//! A key without operands costs, for each version, one binary search among the snapshots and one
//! among the range tombstones, and no allocation. Operands are copied into reused memory and folded
//! in groups as they come. About [`MAX_BYTES`] of one key are buffered; beyond that, operands are
//! written unchanged.
//!
//! Used by one thread at a time.

#[cfg(test)]
mod tests;

use tamis_base::key::{Kind, MAX_SEQNO, MAX_VALUE_BYTES, SeqNo};
use tamis_files::table::PinnedValue;
use tamis_files::tree::tombstones::Tombstones;

use crate::error::StorageError;
use crate::operators::{CompactionFilter, Decision, MergeOperator, merge, partial_merge};

/// Operands folded into one while their base is unknown.
const GROUP_OPERANDS: usize = 1024;

/// Bytes of operands that make up a group.
const GROUP_BYTES: usize = 1 << 20;

/// Bytes buffered while waiting for a base.
const MAX_BYTES: usize = if cfg!(test) { 2 << 20 } else { 64 << 20 };

/// A keyspace's rules for its versions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rules<'a> {
    /// Folds operands into values.
    pub(crate) operator: Option<&'a dyn MergeOperator>,
    /// Filters values.
    pub(crate) filter: Option<&'a dyn CompactionFilter>,
    /// The horizon: everything up to this write has expired (0: nothing), and current and later
    /// readers do not see it, here or anywhere else. It is dropped without a trace unless a live
    /// snapshot sees it. If there is a horizon, sequence numbers indicate age and are never reset.
    pub(crate) expired: Option<SeqNo>,
}

/// A version that stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept<'v> {
    pub(crate) seq: SeqNo,
    pub(crate) kind: Kind,
    pub(crate) value: &'v [u8],
    /// The snapshot that bounds its stripe, if only snapshots need the version: current readers
    /// need something newer.
    pub(crate) pinned: Option<SeqNo>,
}

/// The context of a merge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings<'a> {
    /// Live snapshots, ascending.
    pub(crate) snapshots: &'a [SeqNo],
    /// The range tombstones of the merge.
    pub(crate) tombstones: &'a Tombstones,
    /// The range tombstones that the merge keeps.
    pub(crate) kept: &'a Tombstones,
    /// The output level.
    pub(crate) level: usize,
    /// The values in blob files.
    pub(crate) values: &'a dyn SeparatedValues,
}

/// The values of a merge's inputs that are in blob files. They are read only if an operator or a
/// filter needs them.
pub(crate) trait SeparatedValues: std::fmt::Debug {
    /// Reads the value that a reference stands for. `None` if it is damaged or missing: then the
    /// reference and the operands on it stay unchanged, so that only reads of this key fail.
    fn read(&self, reference: &[u8]) -> Result<Option<PinnedValue>, StorageError>;
}

/// What the buffered operands apply to.
#[derive(Clone, Copy)]
enum BaseVersion<'v> {
    Value(&'v [u8]),
    Nothing,
    /// The base is elsewhere.
    Unknown,
}

/// Operands of one stripe, newest first.
#[derive(Debug, Default)]
struct WaitingOperands {
    /// The number and length of each.
    operands: Vec<(SeqNo, usize)>,
    bytes: Vec<u8>,
    /// Operands at the front that folding was already tried on; they are not tried again until the
    /// base is reached.
    folded: usize,
    folded_bytes: usize,
    /// Whether the first operand is the newest version of the key.
    newest: bool,
}

impl WaitingOperands {
    fn clear(&mut self) {
        self.operands.clear();
        self.bytes.clear();
        (self.folded, self.folded_bytes, self.newest) = (0, 0, false);
        // One key with many buffered operands must not make all others pay for that memory.
        self.operands.shrink_to(GROUP_OPERANDS);
        self.bytes.shrink_to(GROUP_BYTES);
    }

    fn push(&mut self, seq: SeqNo, operand: &[u8]) {
        self.operands.push((seq, operand.len()));
        self.bytes.extend_from_slice(operand);
    }

    /// Iterates over the number and bytes of each operand, newest first.
    fn iter(&self) -> impl Iterator<Item = (SeqNo, &[u8])> {
        let mut rest = &self.bytes[..];
        self.operands.iter().map(move |&(seq, len)| {
            let (operand, behind) = rest.split_at(len);
            rest = behind;
            (seq, operand)
        })
    }

    fn oldest_first(&self, skip: usize) -> Vec<&[u8]> {
        let mut operands: Vec<&[u8]> = self.iter().skip(skip).map(|(_, operand)| operand).collect();
        operands.reverse();
        operands
    }

    /// Reports whether there is a group to fold.
    fn is_group(&self) -> bool {
        self.operands.len() - self.folded >= GROUP_OPERANDS
            || self.bytes.len() - self.folded_bytes >= GROUP_BYTES
    }

    fn is_full(&self) -> bool {
        self.bytes.len() + self.operands.len() * size_of::<(SeqNo, usize)>() >= MAX_BYTES
    }

    /// Folds all operands from index `first` on into one, if the operator can do that.
    fn fold(&mut self, first: usize, key: &[u8], operator: &dyn MergeOperator) {
        let newer: usize = self.operands[..first].iter().map(|(_, len)| len).sum();
        if self.operands.len() - first > 1
            && let Some(one) = partial_merge(operator, key, &self.oldest_first(first))
        {
            let seq = self.operands[first].0;
            self.operands.truncate(first);
            self.bytes.truncate(newer);
            self.push(seq, &one);
        }
        (self.folded, self.folded_bytes) = (self.operands.len(), self.bytes.len());
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Versions<'a> {
    rules: Rules<'a>,
    around: Surroundings<'a>,
    /// Whether versions of the key older than the merge's may lie outside it.
    has_older: bool,
    /// Whether a version of the key has been seen.
    begun: bool,
    /// The stripe of the last version.
    stripe: usize,
    /// The newest range tombstone over the key that the stripe sees.
    cover: SeqNo,
    /// Whether later versions of this stripe are hidden.
    decided: bool,
    /// Whether a newer put or delete stays, so that current readers do not need older versions.
    superseded: bool,
    /// Whether operands of this stripe were passed on that still need older versions.
    given: bool,
    waiting: WaitingOperands,
    /// An operator that fails once may fail a million times: only the first failure is logged.
    complained: bool,
}

/// Where versions that stay go.
pub(crate) trait Keep: FnMut(Kept<'_>) -> Result<(), StorageError> {}

impl<K: FnMut(Kept<'_>) -> Result<(), StorageError>> Keep for K {}

impl<'a> Versions<'a> {
    pub(crate) fn new(rules: Rules<'a>, around: Surroundings<'a>) -> Self {
        Versions {
            rules,
            around,
            has_older: true,
            begun: false,
            stripe: 0,
            cover: 0,
            decided: false,
            superseded: false,
            given: false,
            waiting: WaitingOperands::default(),
            complained: false,
        }
    }

    /// Starts the next key. The previous key must have been [ended](Self::end).
    #[inline]
    pub(crate) fn start(&mut self, has_older: bool) {
        debug_assert!(self.waiting.operands.is_empty(), "the last key was not ended");
        self.has_older = has_older;
        (self.begun, self.superseded) = (false, false);
    }

    /// Takes the next older version of `key` and passes to `keep` whatever is now certain to stay.
    #[inline]
    pub(crate) fn version(
        &mut self,
        key: &[u8],
        (seq, kind, value): (SeqNo, Kind, &[u8]),
        keep: &mut impl Keep,
    ) -> Result<(), StorageError> {
        let stripe = self.around.snapshots.partition_point(|&snapshot| snapshot < seq);
        if !self.waiting.operands.is_empty() {
            self.meet(key, seq, kind, stripe, keep)?;
        }
        if !self.begun || stripe != self.stripe {
            let visible_from = self.around.snapshots.get(stripe).copied().unwrap_or(MAX_SEQNO);
            self.stripe = stripe;
            self.cover = self.around.tombstones.cover(key, visible_from);
            (self.decided, self.given) = (false, false);
        }
        let newest = !std::mem::replace(&mut self.begun, true);
        if self.decided || self.cover > seq || (self.has_expired(seq) && self.seen_by_nobody()) {
            self.decided = true;
            return Ok(());
        }
        match kind {
            Kind::Merge => self.operand(key, seq, value, newest, keep),
            kind => {
                if !self.waiting.operands.is_empty() {
                    let read = match kind {
                        Kind::PutBlob => self.around.values.read(value)?,
                        _ => None,
                    };
                    match (kind, &read) {
                        (Kind::PutBlob, None) => self.give_all(key, keep)?,
                        (Kind::PutBlob, Some(value)) => self.settle(key, BaseVersion::Value(value), keep)?,
                        (Kind::Put, _) => self.settle(key, BaseVersion::Value(value), keep)?,
                        _ => self.settle(key, BaseVersion::Nothing, keep)?,
                    }
                    if self.decided {
                        return Ok(());
                    }
                }
                self.last_word(key, (seq, kind, value), newest, keep)
            }
        }
    }

    /// Ends the key.
    #[inline]
    pub(crate) fn end(&mut self, key: &[u8], keep: &mut impl Keep) -> Result<(), StorageError> {
        if self.waiting.operands.is_empty() {
            return Ok(());
        }
        // Anything older outside the merge is also older than the merge's range tombstones.
        let base =
            if self.has_older && self.cover == 0 { BaseVersion::Unknown } else { BaseVersion::Nothing };
        self.settle(key, base, keep)
    }

    /// Reports whether no live snapshot sees the versions of the current stripe.
    fn seen_by_nobody(&self) -> bool {
        self.stripe == self.around.snapshots.len()
    }

    /// Reports whether a version has expired for current readers.
    #[inline]
    fn has_expired(&self, seq: SeqNo) -> bool {
        self.rules.expired.is_some_and(|horizon| horizon > 0 && seq <= horizon)
    }

    /// Handles a version that arrives while operands are buffered and may belong to another stripe:
    /// determines their base from it.
    #[cold]
    fn meet(
        &mut self,
        key: &[u8],
        seq: SeqNo,
        kind: Kind,
        stripe: usize,
        keep: &mut impl Keep,
    ) -> Result<(), StorageError> {
        // Operands are buffered only if all readers have one horizon: see `operand`.
        let expired = stripe == self.stripe && self.has_expired(seq);
        if self.cover > seq || expired || (stripe != self.stripe && kind == Kind::Delete) {
            self.settle(key, BaseVersion::Nothing, keep)
        } else if stripe != self.stripe {
            self.settle(key, BaseVersion::Unknown, keep)
        } else {
            Ok(())
        }
    }

    #[cold]
    fn operand(
        &mut self,
        key: &[u8],
        seq: SeqNo,
        operand: &[u8],
        newest: bool,
        keep: &mut impl Keep,
    ) -> Result<(), StorageError> {
        // Snapshots and current readers may have horizons between an operand and its base. Then
        // they read different values, and both must stay.
        let one_horizon = self.seen_by_nobody() || self.rules.expired.unwrap_or(0) == 0;
        let Some(operator) = self.rules.operator.filter(|_| !self.given && one_horizon) else {
            self.given = true;
            return self.give(key, seq, operand, keep);
        };
        self.waiting.push(seq, operand);
        self.waiting.newest |= newest;
        if self.waiting.is_group() {
            self.waiting.fold(self.waiting.folded, key, operator);
        }
        if self.waiting.is_full() {
            return self.give_all(key, keep);
        }
        Ok(())
    }

    /// Folds the buffered operands onto this base, as far as possible.
    fn settle(
        &mut self,
        key: &[u8],
        base: BaseVersion<'_>,
        keep: &mut impl Keep,
    ) -> Result<(), StorageError> {
        let Some(operator) = self.rules.operator else { return self.give_all(key, keep) };
        let base = match base {
            BaseVersion::Unknown => {
                self.waiting.fold(0, key, operator);
                return self.give_all(key, keep);
            }
            BaseVersion::Value(value) => Some(value),
            BaseVersion::Nothing => None,
        };
        match merge(operator, key, base, &self.waiting.oldest_first(0)) {
            Ok(value) => {
                let (seq, newest) = (self.waiting.operands[0].0, self.waiting.newest);
                self.waiting.clear();
                self.last_word(key, (seq, Kind::Put, &value), newest, keep)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.complained, true) {
                    let (name, key) = (operator.name(), key.escape_ascii());
                    log::warn!("operator `{name}` fails at key `{key}` (and perhaps others): {error}");
                }
                self.give_all(key, keep)
            }
        }
    }

    /// Passes on the buffered operands unchanged; older versions in their stripe must then stay,
    /// too.
    fn give_all(&mut self, key: &[u8], keep: &mut impl Keep) -> Result<(), StorageError> {
        self.given = true;
        let mut waiting = std::mem::take(&mut self.waiting);
        for (seq, operand) in waiting.iter() {
            self.give(key, seq, operand, keep)?;
        }
        waiting.clear();
        self.waiting = waiting;
        Ok(())
    }

    /// Passes on one operand.
    fn give(&self, key: &[u8], seq: SeqNo, operand: &[u8], keep: &mut impl Keep) -> Result<(), StorageError> {
        keep(Kept { seq, kind: Kind::Merge, value: operand, pinned: self.pinned(key, seq) })
    }

    /// Handles a put or delete that hides all older versions in its stripe. `newest`: it is all
    /// that current readers see.
    #[inline]
    fn last_word(
        &mut self,
        key: &[u8],
        (mut seq, mut kind, mut value): (SeqNo, Kind, &[u8]),
        newest: bool,
        keep: &mut impl Keep,
    ) -> Result<(), StorageError> {
        let decision = match self.rules.filter {
            Some(filter) if newest && kind != Kind::Delete && self.seen_by_nobody() => match kind {
                Kind::PutBlob => match self.around.values.read(value)? {
                    Some(value) => filter.filter(self.around.level, key, &value),
                    None => Decision::Keep,
                },
                _ => filter.filter(self.around.level, key, value),
            },
            _ => Decision::Keep,
        };
        match &decision {
            Decision::Remove => (kind, value) = (Kind::Delete, &[]),
            Decision::Replace(other) if other.len() <= MAX_VALUE_BYTES => (kind, value) = (Kind::Put, other),
            Decision::Replace(_) | Decision::Keep => {}
        }
        let pinned = self.pinned(key, seq);
        (self.decided, self.superseded) = (true, true);
        // Every reader sees this version, and nothing older lies outside the merge.
        if self.stripe == 0 && !self.has_older {
            if kind == Kind::Delete {
                return Ok(());
            }
            // Under a range tombstone that stays, only the number shows that this version is newer.
            if self.rules.expired.is_none() && self.around.kept.cover(key, MAX_SEQNO) == 0 {
                seq = 0;
            }
        }
        keep(Kept { seq, kind, value, pinned })
    }

    /// Returns the snapshot that is the only reason to keep a version of the current stripe.
    #[inline]
    fn pinned(&self, key: &[u8], seq: SeqNo) -> Option<SeqNo> {
        let snapshot = *self.around.snapshots.get(self.stripe)?;
        let hidden_now = self.superseded || self.around.tombstones.cover(key, MAX_SEQNO) > seq;
        hidden_now.then_some(snapshot)
    }
}
