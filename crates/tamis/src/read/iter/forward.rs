//! The front of an iteration: the newest visible version of each key comes first.

use tamis_base::key::{Kind, MAX_SEQNO, SeqNo, prefix_of};

use super::{Found, Iter, STEPS, Sampled, counted};
use crate::error::{ReadError, StorageError};
use crate::observe::cost::ReadCost;
use crate::operators::MergeOperator;
use crate::read::blobs::BlobScan;
use crate::read::gaps::Jump;
use crate::read::merge::{Head, MergeCursor};
use crate::read::operands::{Base, Operands, Order};
use crate::slice::Slice;

impl Iter {
    #[inline]
    pub(super) fn forward(&mut self) -> Result<Found, ReadError> {
        if self.front.cursor.is_none() {
            let started = self.context.counters.starts();
            let mut cursor = self.cursor()?;
            self.cost.scans += 1;
            let mut dead = std::mem::take(&mut self.front.dead);
            let start = self.floor.as_ref().unwrap_or(&self.bounds.start);
            let target = self.leap(start, &mut dead);
            let target = target.as_ref().unwrap_or(start);
            counted(&mut cursor, &mut self.cost, |cursor| cursor.seek(target, MAX_SEQNO))?;
            self.positioned(Sampled::Front, started);
            (self.front.cursor, self.front.dead) = (Some(cursor), dead);
        }
        let cursor = self.front.cursor.as_mut().expect("positioned");
        if std::mem::take(&mut self.front.given) {
            cursor.next()?;
        }
        let end = self.back.last.get().or(self.bounds.end.as_deref());
        let end_prefix = end.map_or(u64::MAX, prefix_of);
        let mut stepped = 0;
        while let Some(Head { prefix, key, seq, kind }) = cursor.head() {
            if prefix >= end_prefix && end.is_some_and(|end| key >= end) {
                break;
            }
            let too_new = seq > self.context.snapshot;
            let last = self.front.last.get();
            let returned = last.is_some_and(|last| prefix_of(last) == prefix && last == key);
            if too_new || returned {
                self.cost.versions_skipped += 1;
                stepped += 1;
                if stepped > STEPS {
                    // The newest visible version may be far down, and so may the next key.
                    let target = if too_new { self.context.snapshot } else { 0 };
                    let coming = &mut self.front.coming;
                    coming.clear();
                    coming.extend_from_slice(key);
                    stepped = 0;
                    self.cost.versions_skipped += cursor.pass(coming, target)?.saturating_sub(1);
                } else {
                    cursor.next()?;
                }
                continue;
            }
            stepped = 0;
            // The newest visible version of a key not returned yet.
            let deleted = self.covers.as_mut().map_or(0, |covers| covers.at(key));
            let cover = deleted.max(self.context.horizon);
            let dead = &mut self.front.dead;
            if deleted > seq || kind == Kind::Delete {
                if dead.count == 0 && !dead.jumped {
                    // The first of all is the first behind where the iteration began.
                    let began = self.floor.as_ref().unwrap_or(&self.bounds.start);
                    let first = if self.front.last.get().is_some() { key } else { began };
                    dead.start.clear();
                    dead.start.extend_from_slice(first);
                }
                let ask = dead.add();
                self.cost.tombstones_skipped += 1;
                let gaps = &self.context.view.gaps;
                let at = self.context.standpoint();
                if ask
                    && self.knows_gaps
                    && !gaps.is_empty()
                    && let Some(Jump { start, end: gap_end }) = gaps.jump(key, at)
                {
                    if !dead.jumped && dead.count == 1 && start < dead.start {
                        dead.start = start;
                    }
                    // Those in the gap are known.
                    (dead.jumped, dead.since_jump) = (true, 0);
                    self.front.last.pass(key);
                    let target = gap_end.filter(|gap_end| end.is_none_or(|end| &gap_end[..] < end));
                    let Some(target) = target else {
                        dead.over(gaps, end, at, self.knows_gaps);
                        return Ok(Found::Nothing);
                    };
                    debug_assert!(self.front.last.get() < Some(&target[..]), "a jump leads on");
                    if let Err(error) = cursor.seek(&target, MAX_SEQNO) {
                        cursor.drain_cost(&mut self.cost);
                        self.front.cursor = None;
                        return Err(error.into());
                    }
                    continue;
                }
                if dead.tires() {
                    dead.over(gaps, Some(key), at, self.knows_gaps);
                    return Ok(Found::Nothing);
                }
                self.front.last.pass(key);
                if deleted > seq
                    && self.front.strides.step()
                    && let Some(covers) = &self.covers
                {
                    let passed = counted(cursor, &mut self.cost, |cursor| {
                        let passed = cursor.pass_deleted(covers)?;
                        self.front.strides.asked(passed);
                        dead.jumped |= passed;
                        if passed { Ok(()) } else { cursor.next() }
                    });
                    if let Err(error) = passed {
                        self.front.cursor = None;
                        return Err(error.into());
                    }
                    continue;
                }
                cursor.next()?;
                continue;
            }
            if dead.are_any() {
                dead.over(&self.context.view.gaps, Some(key), self.context.standpoint(), self.knows_gaps);
            }
            let shows = cover <= seq;
            if shows && kind == Kind::Merge && !self.keys_only {
                // An error before the end of the merge leaves the key to the back.
                let coming = &mut self.front.coming;
                coming.clear();
                coming.extend_from_slice(key);
                let operator = self.context.operator.as_deref();
                let (key, value) =
                    merge_forward(cursor, &mut self.blobs, coming, cover, operator, &mut self.cost)?;
                self.front.last.give(coming);
                return Ok(Found::Item(key, value));
            }
            // A value that cannot be read leaves the key to the back, too.
            let separated = match kind {
                Kind::PutBlob if shows && !self.keys_only => {
                    Some(self.blobs.read(cursor.table(), cursor.version().3, &mut self.cost)?)
                }
                _ => None,
            };
            if shows {
                self.front.last.give(key);
                self.front.given = true;
                return Ok(match separated {
                    Some(value) => Found::Item(cursor.pinned_key(), value),
                    None => Found::Here,
                });
            }
            if dead.tires() {
                return Ok(Found::Nothing);
            }
            self.front.last.pass(key);
            self.cost.tombstones_skipped += 1;
            cursor.next()?;
        }
        let at = self.context.standpoint();
        self.front.dead.over(&self.context.view.gaps, end, at, self.knows_gaps);
        Ok(Found::Nothing)
    }
}

/// Returns the item of a key whose newest visible version is the operand at the cursor. Leaves the
/// cursor on the base or behind the key.
#[cold]
fn merge_forward(
    cursor: &mut MergeCursor,
    blobs: &mut BlobScan,
    key: &[u8],
    cover: SeqNo,
    operator: Option<&dyn MergeOperator>,
    cost: &mut ReadCost,
) -> Result<(Slice, Slice), ReadError> {
    let pinned_key = cursor.pinned_key();
    let mut operands = Operands::new(Order::NewestFirst);
    let mut base = Base::Nothing;
    while cursor.valid() && cursor.key() == key && cursor.seq() >= cover {
        match cursor.kind() {
            Kind::Merge => operands.push(key, cursor.pinned_value(), operator),
            Kind::Put | Kind::PutBlob => {
                base = Base::Value(value_at(cursor, blobs, cost)?);
                break;
            }
            Kind::Delete => break,
        }
        cursor.next()?;
    }
    Ok((pinned_key, operands.resolve(key, &base, operator, cost)?))
}

/// Returns the value of the put at the cursor, which is the base of operands.
#[inline]
fn value_at(cursor: &MergeCursor, blobs: &mut BlobScan, cost: &mut ReadCost) -> Result<Slice, StorageError> {
    match cursor.kind() {
        Kind::PutBlob => blobs.read(cursor.table(), cursor.version().3, cost),
        _ => Ok(cursor.pinned_value()),
    }
}
