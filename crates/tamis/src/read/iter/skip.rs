//! The third stage of an iteration: keys without a value are passed, one by one or many at a time.

use tamis_base::key::MAX_SEQNO;

use super::Found;
use super::end::{End, Way};
use super::reader::Reader;
use super::resolve::{Dead, Resolved};
use crate::error::ReadError;
use crate::read::gaps::Jump;

impl End {
    /// Moves to the next key in this direction that has a value.
    ///
    /// Invariant: every round passes a key beyond the last one, or ends. `LastKey` checks it in
    /// debug builds.
    #[inline]
    pub(super) fn find<const BACK: bool>(
        &mut self,
        reader: &mut Reader,
        way: &Way<'_>,
    ) -> Result<Found, ReadError> {
        loop {
            let found = match self.resolve::<BACK>(reader, way)? {
                Some(Resolved::Here) => Found::Here,
                Some(Resolved::Made) => Found::Made,
                Some(Resolved::Dead(dead)) if self.skip::<BACK>(reader, way, dead)? => continue,
                Some(Resolved::Dead(_)) => {
                    self.dead.end::<BACK>(reader.learning(), self.last.get());
                    return Ok(Found::Nothing);
                }
                None => {
                    let far = if BACK { self.last.get() } else { way.to };
                    self.dead.end::<BACK>(reader.learning(), far);
                    return Ok(Found::Nothing);
                }
            };
            self.end_dead_at_key::<BACK>(reader);
            self.last.give::<BACK>(&mut self.coming);
            return Ok(found);
        }
    }

    /// Ends a stretch of dead keys, if there is one, at the key to come, which is not one of them.
    #[inline]
    fn end_dead_at_key<const BACK: bool>(&mut self, reader: &Reader) {
        if self.dead.are_any() {
            let far = if BACK { self.last.get() } else { Some(&self.coming[..]) };
            self.dead.end::<BACK>(reader.learning(), far);
        }
    }

    /// Passes a key without a value, and dead keys behind it that are known. Returns whether the
    /// iteration goes on.
    fn skip<const BACK: bool>(
        &mut self,
        reader: &mut Reader,
        way: &Way<'_>,
        Dead { deleted, covered }: Dead,
    ) -> Result<bool, ReadError> {
        reader.cost.tombstones_skipped += 1;
        let mut asks = false;
        if deleted {
            if !self.dead.are_any() {
                // The first of all is the first behind where the iteration began.
                self.dead.near = match self.last.get() {
                    None => way.from.map(<[u8]>::to_vec),
                    Some(last) if BACK => Some(last.to_vec()),
                    Some(_) => Some(self.coming.clone()),
                };
            }
            asks = self.dead.add();
        } else {
            self.end_dead_at_key::<BACK>(reader);
        }
        self.last.pass::<BACK>(&mut self.coming);
        if asks && let Some(jump) = self.last.get().and_then(|key| reader.gap_at(key)) {
            return self.jump::<BACK>(reader, way, jump).map(|()| true);
        }
        if self.dead.tires() {
            return Ok(false);
        }
        if covered
            && self.strides.step()
            && let Some(covers) = reader.covers.take()
        {
            let passed = self.reposition(reader, |cursor| cursor.pass_deleted(&covers));
            reader.covers = Some(covers);
            let passed = passed?;
            self.strides.asked(passed);
            self.dead.jumped |= passed && deleted;
            self.stands &= !passed;
        }
        Ok(true)
    }

    /// Jumps over a gap that holds the last key.
    #[cold]
    fn jump<const BACK: bool>(
        &mut self,
        reader: &mut Reader,
        way: &Way<'_>,
        Jump { start, end }: Jump,
    ) -> Result<(), ReadError> {
        let is_first = !self.dead.jumped && self.dead.count == 1;
        (self.dead.jumped, self.dead.since_jump) = (true, 0);
        self.stands = false;
        if BACK {
            self.coming.clone_from(&start);
            self.last.pass_to_gap(&mut self.coming);
            return self.reposition(reader, |cursor| cursor.seek_before(&start));
        }
        if is_first && self.dead.near.as_ref().is_some_and(|near| start < *near) {
            self.dead.near = Some(start);
        }
        debug_assert!(end.is_none() || self.last.get() < end.as_deref(), "a jump leads on");
        let target = end.filter(|end| way.to.is_none_or(|to| &end[..] < to));
        self.reposition(reader, |cursor| match target {
            Some(target) => cursor.seek(&target, MAX_SEQNO),
            None => {
                cursor.finish();
                Ok(())
            }
        })
    }
}
