//! The back of an iteration: the versions of each key come oldest first.

use std::sync::Arc;

use tamis_base::key::Kind;

use super::{Found, Iter, STEPS, Sampled, counted};
use crate::error::ReadError;
use crate::read::gaps::Jump;
use crate::read::merge::{Head, MergeCursor};
use crate::read::operands::{Base, Operands, Order};
use crate::slice::Slice;
use crate::tree::open_table::OpenTable;

impl Iter {
    #[inline]
    pub(super) fn backward(&mut self) -> Result<Found, ReadError> {
        if self.back.cursor.is_none() {
            let started = self.context.counters.starts();
            let mut cursor = self.cursor()?;
            self.cost.scans += 1;
            counted(&mut cursor, &mut self.cost, |cursor| {
                match self.back.last.get().or(self.bounds.end.as_deref()) {
                    Some(end) => cursor.seek_before(end),
                    None => cursor.seek_to_last(),
                }
            })?;
            self.positioned(Sampled::Back, started);
            self.back.cursor = Some(cursor);
        }
        let start = self.floor.as_ref().unwrap_or(&self.bounds.start);
        let cursor = self.back.cursor.as_mut().expect("positioned");
        if std::mem::take(&mut self.back.given) {
            cursor.prev()?;
        }
        let passed = self.front.last.get();
        while let Some(Head { key, seq, kind, .. }) = cursor.head() {
            if key < &start[..] || passed.is_some_and(|last| key <= last) {
                break;
            }
            if kind == Kind::Put
                && seq <= self.context.snapshot
                && cursor.is_only_version()
                && self.context.horizon <= seq
                && self.covers.as_mut().is_none_or(|covers| covers.at(key) <= seq)
            {
                let dead = &mut self.back.dead;
                if dead.are_any() {
                    let (gaps, at) = (&self.context.view.gaps, self.context.standpoint());
                    dead.over_backwards(gaps, self.back.last.get(), at);
                }
                self.back.last.give(key);
                self.back.given = true;
                return Ok(Found::Here);
            }
            // An error before the end of the key leaves it to the front.
            let coming = &mut self.back.coming;
            coming.clear();
            coming.extend_from_slice(key);
            let deleted = self.covers.as_mut().map_or(0, |covers| covers.at(coming));
            let cover = deleted.max(self.context.horizon);
            let operator = self.context.operator.as_deref().filter(|_| !self.keys_only);
            // Versions of one key come oldest first: the last visible one counts, and the operands
            // after it.
            let mut newest = Base::Nothing;
            // In place of `newest`, a value that is not read before it is known to be needed.
            let mut separated: Option<(Arc<OpenTable>, Slice)> = None;
            let mut operands = Operands::new(Order::OldestFirst);
            let mut stepped = 0;
            while cursor.valid() && cursor.key() == &coming[..] {
                if stepped == STEPS {
                    let seq = cursor.seq();
                    if seq > self.context.snapshot {
                        stepped += cursor.pass(coming, 0)?;
                        break;
                    }
                    // From the newest visible version down, as forwards: no older one than those
                    // left counts if that is a value.
                    let mut newer = Operands::new(Order::NewestFirst);
                    let climb = cursor.climb(coming, self.context.snapshot)?;
                    while cursor.valid() && cursor.seq() >= seq.max(cover) {
                        stepped += 1;
                        match cursor.kind() {
                            Kind::Merge => newer.push(coming, cursor.pinned_value(), operator),
                            kind => {
                                operands.clear();
                                (newest, separated) = base_at(cursor, kind);
                                break;
                            }
                        }
                        cursor.climb_down(coming)?;
                    }
                    operands.add_newer(newer);
                    cursor.leave(climb, coming)?;
                    break;
                }
                stepped += 1;
                if (cover..=self.context.snapshot).contains(&cursor.seq()) {
                    match cursor.kind() {
                        Kind::Merge => operands.push(coming, cursor.pinned_value(), operator),
                        kind => {
                            operands.clear();
                            (newest, separated) = base_at(cursor, kind);
                        }
                    }
                }
                cursor.prev()?;
            }
            let counts =
                operands.count() + u64::from(separated.is_some() || matches!(newest, Base::Value(_)));
            self.cost.versions_skipped += stepped - counts.max(1).min(stepped);
            if self.keys_only && (separated.is_some() || !operands.is_empty()) {
                newest = Base::Value(Slice::default());
            } else if let Some((table, reference)) = separated {
                newest = Base::Value(self.blobs.read(&table, &reference, &mut self.cost)?);
            }
            if !operands.is_empty() && !self.keys_only {
                newest = Base::Value(operands.resolve(coming, &newest, operator, &mut self.cost)?);
            }
            let dead = &mut self.back.dead;
            let (gaps, at) = (&self.context.view.gaps, self.context.standpoint());
            if let Base::Value(value) = newest {
                dead.over_backwards(gaps, self.back.last.get(), at);
                self.back.last.give(coming);
                return Ok(Found::Item(Slice::copy_of(coming), value));
            }
            self.cost.tombstones_skipped += 1;
            if dead.count == 0 && !dead.jumped {
                let end = self.back.last.get().or(self.bounds.end.as_deref());
                dead.end = end.map(<[u8]>::to_vec);
            }
            self.back.last.pass(coming);
            if dead.tires() {
                break;
            }
            // Where entries expire, this may be one that has.
            let is_dead = self.context.horizon == 0 && self.knows_gaps;
            if deleted > 0
                && self.back.strides.step()
                && let Some(covers) = &self.covers
            {
                let passed = match cursor.pass_deleted(covers) {
                    Ok(passed) => passed,
                    Err(error) => {
                        cursor.drain_cost(&mut self.cost);
                        self.back.cursor = None;
                        return Err(error.into());
                    }
                };
                self.back.strides.asked(passed);
                if passed {
                    // A gap would lead back to where this source was.
                    if is_dead {
                        (dead.jumped, dead.count) = (true, dead.count + 1);
                    }
                    continue;
                }
            }
            if !is_dead {
                continue;
            }
            if dead.add()
                && !gaps.is_empty()
                && let Some(Jump { start: gap_start, .. }) = gaps.jump(coming, at)
            {
                (dead.jumped, dead.since_jump) = (true, 0);
                debug_assert!(gap_start <= *coming, "a jump leads on");
                self.back.last.pass(&gap_start);
                if let Err(error) = cursor.seek_before(&gap_start) {
                    cursor.drain_cost(&mut self.cost);
                    self.back.cursor = None;
                    return Err(error.into());
                }
            }
        }
        let gaps = &self.context.view.gaps;
        self.back.dead.over_backwards(gaps, self.back.last.get(), self.context.standpoint());
        Ok(Found::Nothing)
    }
}

/// Returns what the version at the cursor, which is not an operand, is for newer operands. In place
/// of a value that is not read before it is known to be needed, its table and the reference to it.
#[inline]
fn base_at(cursor: &MergeCursor, kind: Kind) -> (Base, Option<(Arc<OpenTable>, Slice)>) {
    match kind {
        Kind::Put => (Base::Value(cursor.pinned_value()), None),
        Kind::PutBlob => (Base::Nothing, Some((cursor.table().clone(), cursor.pinned_value()))),
        Kind::Delete | Kind::Merge => (Base::Nothing, None),
    }
}
