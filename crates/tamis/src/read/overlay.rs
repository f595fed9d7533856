//! Overlays pending writes on an iterator: what a transaction sees of a range.
//!
//! Merges committed items and pending keys from both ends. A committed item fetched ahead at one
//! end is kept until that end needs it or the other end gets there: the committed iterator does not
//! return it twice.
//!
//! An overlay belongs to one iterator. It shares the pending writes. The transaction copies them if
//! it changes them meanwhile, so an iterator sees the state at its creation.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use tamis_files::table::is_beyond;

use crate::error::ReadError;
use crate::operators::MergeOperator;
use crate::read::bounds::Bounds;
use crate::read::pending::{Pending, PendingKey};
use crate::slice::Slice;

type Item = (Slice, Slice);

/// A key and its value; `None` if it is deleted.
type Visible = (Slice, Result<Option<Slice>, ReadError>);

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Overlay {
    pending: Arc<Pending>,
    operator: Option<Arc<dyn MergeOperator>>,
    front: Side,
    back: Side,
}

/// One end of the iteration.
#[derive(Debug)]
struct Side {
    /// The remaining pending keys lie on this side of it.
    at: Bound<Vec<u8>>,
    /// Where it was when it last returned an item, if it has since passed keys without a value, or
    /// with one that failed.
    returned: Option<Bound<Vec<u8>>>,
    /// The committed item fetched ahead.
    ahead: Option<Item>,
    /// Whether an error ended the iteration.
    failed: bool,
}

impl Side {
    fn new(at: Bound<Vec<u8>>) -> Side {
        Side { at, returned: None, ahead: None, failed: false }
    }
}

fn borrowed(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(&key[..]),
        Bound::Excluded(key) => Bound::Excluded(&key[..]),
        Bound::Unbounded => Bound::Unbounded,
    }
}

impl Overlay {
    pub(crate) fn new(
        pending: Arc<Pending>,
        operator: Option<Arc<dyn MergeOperator>>,
        bounds: &Bounds,
    ) -> Overlay {
        let front = Side::new(Bound::Included(bounds.start.clone()));
        let back = Side::new(bounds.end.clone().map_or(Bound::Unbounded, Bound::Excluded));
        Overlay { pending, operator, front, back }
    }

    /// Called after the committed iterator's front moved to `key`, or failed to.
    pub(crate) fn seek(&mut self, key: &[u8], failed: bool) {
        // The committed iterator returns the item fetched ahead again if it is still ahead.
        self.front = Side { failed, ..Side::new(Bound::Included(key.to_vec())) };
    }

    /// Called before the first item, with the starting points of the two ends in place of the
    /// bounds.
    pub(crate) fn resume(&mut self, floor: Option<&[u8]>, before: Option<&[u8]>) {
        if let Some(floor) = floor {
            self.front.at = Bound::Included(floor.to_vec());
        }
        if let Some(before) = before {
            self.back.at = Bound::Excluded(before.to_vec());
        }
    }

    /// Returns where the ends are, for [`resume`](Self::resume). The committed iterator may be
    /// ahead of them.
    pub(crate) fn ends(&self) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        let from = match self.front.returned.as_ref().unwrap_or(&self.front.at) {
            Bound::Included(key) => Some(key.clone()),
            Bound::Excluded(key) => Some([&key[..], &[0]].concat()),
            Bound::Unbounded => None,
        };
        let to = match self.back.returned.as_ref().unwrap_or(&self.back.at) {
            Bound::Excluded(key) | Bound::Included(key) => Some(key.clone()),
            Bound::Unbounded => None,
        };
        (from, to)
    }

    /// Reports whether neither end has passed `key`.
    fn is_within(&self, key: &[u8]) -> bool {
        RangeBounds::<[u8]>::contains(&(borrowed(&self.front.at), borrowed(&self.back.at)), key)
    }

    fn side<const BACK: bool>(&mut self) -> &mut Side {
        if BACK { &mut self.back } else { &mut self.front }
    }

    /// Returns the next item of an end; `committed` returns the next committed one.
    pub(crate) fn next<const BACK: bool>(
        &mut self,
        mut committed: impl FnMut() -> Option<Result<Item, ReadError>>,
    ) -> Option<Result<Item, ReadError>> {
        while !self.side::<BACK>().failed {
            let (key, value) = match self.take_next::<BACK>(&mut committed) {
                Ok(next) => next?,
                Err(error) => {
                    self.side::<BACK>().failed = true;
                    return Some(Err(error));
                }
            };
            let side = self.side::<BACK>();
            let before = std::mem::replace(&mut side.at, Bound::Excluded(key.to_vec()));
            if let Ok(Some(value)) = value {
                side.returned = None;
                return Some(Ok((key, value)));
            }
            side.returned.get_or_insert(before);
            if let Err(error) = value {
                side.failed = true;
                return Some(Err(error));
            }
        }
        None
    }

    /// Returns an end's next key, and its value or that it is deleted. No committed item up to it
    /// is kept for that end.
    fn take_next<const BACK: bool>(
        &mut self,
        committed: &mut impl FnMut() -> Option<Result<Item, ReadError>>,
    ) -> Result<Option<Visible>, ReadError> {
        let (near, far) = if BACK { (&self.back, &self.front) } else { (&self.front, &self.back) };
        let within = |item: &&Item| self.is_within(&item.0);
        let mut fetched = None;
        let mut ahead = near.ahead.as_ref().filter(within).cloned();
        while ahead.is_none()
            && let Some(item) = committed().transpose()?
        {
            fetched = Some(item);
            ahead = fetched.as_ref().filter(within).cloned();
        }
        // The other end may have fetched the last item. It stays there, since the front may move
        // back.
        let ahead = ahead.or_else(|| far.ahead.as_ref().filter(within).cloned());
        let (from, to) = (borrowed(&self.front.at), borrowed(&self.back.at));
        let pending = if BACK { self.pending.last(from, to) } else { self.pending.first(from, to) };
        let next = self.chosen(ahead, pending, |ahead, pending| is_beyond(ahead, pending, BACK));
        let side = self.side::<BACK>();
        side.ahead = fetched.or(side.ahead.take());
        if let Some((key, _)) = &next {
            side.ahead.take_if(|(ahead, _)| !is_beyond(&key[..], &ahead[..], BACK));
        }
        Ok(next)
    }

    /// Returns an end's next key and its value: the committed item's value if it comes `first`,
    /// otherwise the pending key's writes applied. A value of `None` means that the key is deleted.
    fn chosen(
        &self,
        ahead: Option<Item>,
        pending: Option<(&[u8], &PendingKey)>,
        first: impl Fn(&[u8], &[u8]) -> bool,
    ) -> Option<Visible> {
        match (ahead, pending) {
            (None, None) => None,
            (Some((key, value)), pending) if pending.is_none_or(|(other, _)| first(&key, other)) => {
                let hidden = self.pending.hides(&key);
                Some((key, Ok((!hidden).then_some(value))))
            }
            (_, None) => unreachable!("the committed item would come first"),
            (ahead, Some((key, writes))) => {
                let same = ahead.filter(|(other, _)| other[..] == *key).map(|(_, value)| value);
                Some((Slice::copy_of(key), writes.value(key, same, self.operator.as_deref())))
            }
        }
    }
}
