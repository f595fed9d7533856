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

use crate::error::ReadError;
use crate::operators::MergeOperator;
use crate::read::pending::{Pending, PendingKey};
use crate::read::{Bounds, Iter};
use crate::slice::Slice;

type Item = (Slice, Slice);

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Overlay {
    pending: Arc<Pending>,
    operator: Option<Arc<dyn MergeOperator>>,
    /// The remaining pending keys lie between these.
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    /// Where an end was when it last returned an item, if it has since passed keys without a value,
    /// or with one that failed.
    returned_from: Option<Bound<Vec<u8>>>,
    returned_to: Option<Bound<Vec<u8>>>,
    /// Committed items fetched ahead, from either end.
    ahead_front: Option<Item>,
    ahead_back: Option<Item>,
    /// Whether an error ended the iteration at an end.
    failed_front: bool,
    failed_back: bool,
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
        Overlay {
            pending,
            operator,
            from: Bound::Included(bounds.start.clone()),
            to: bounds.end.clone().map_or(Bound::Unbounded, Bound::Excluded),
            returned_from: None,
            returned_to: None,
            ahead_front: None,
            ahead_back: None,
            failed_front: false,
            failed_back: false,
        }
    }

    /// Called after the committed iterator's front moved to `key`, or failed to.
    pub(crate) fn seek(&mut self, key: &[u8], failed: bool) {
        self.from = Bound::Included(key.to_vec());
        self.returned_from = None;
        // The committed iterator returns it again if it is still ahead.
        self.ahead_front = None;
        self.failed_front = failed;
    }

    /// Called before the first item, with the starting points of the two ends in place of the
    /// bounds.
    pub(crate) fn resume(&mut self, floor: Option<&[u8]>, before: Option<&[u8]>) {
        if let Some(floor) = floor {
            self.from = Bound::Included(floor.to_vec());
        }
        if let Some(before) = before {
            self.to = Bound::Excluded(before.to_vec());
        }
    }

    /// Returns where the ends are, for [`resume`](Self::resume). The committed iterator may be
    /// ahead of them.
    pub(crate) fn ends(&self) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        let from = match self.returned_from.as_ref().unwrap_or(&self.from) {
            Bound::Included(key) => Some(key.clone()),
            Bound::Excluded(key) => Some([&key[..], &[0]].concat()),
            Bound::Unbounded => None,
        };
        let to = match self.returned_to.as_ref().unwrap_or(&self.to) {
            Bound::Excluded(key) | Bound::Included(key) => Some(key.clone()),
            Bound::Unbounded => None,
        };
        (from, to)
    }

    /// Reports whether neither end has passed `key`.
    fn is_within(&self, key: &[u8]) -> bool {
        RangeBounds::<[u8]>::contains(&(borrowed(&self.from), borrowed(&self.to)), key)
    }

    pub(crate) fn next(&mut self, committed: &mut Iter) -> Option<Result<Item, ReadError>> {
        while !self.failed_front {
            if self.ahead_front.is_none() {
                self.ahead_front = match committed.next_committed().transpose() {
                    Ok(item) => item,
                    Err(error) => {
                        self.failed_front = true;
                        return Some(Err(error));
                    }
                };
            }
            // The other end may have fetched the last item. It stays there, since the front may
            // move back.
            let ahead = self.ahead_front.as_ref().or(self.ahead_back.as_ref());
            let ahead = ahead.filter(|(key, _)| self.is_within(key)).cloned();
            let pending = self.pending.first(borrowed(&self.from), borrowed(&self.to));
            let (key, value) = self.chosen(ahead, pending, |ahead, pending| ahead < pending)?;
            self.ahead_front.take_if(|(ahead, _)| *ahead <= key);
            let before = std::mem::replace(&mut self.from, Bound::Excluded(key.to_vec()));
            let failed = match value {
                Ok(Some(value)) => {
                    self.returned_from = None;
                    return Some(Ok((key, value)));
                }
                Ok(None) => None,
                Err(error) => Some(error),
            };
            self.returned_from.get_or_insert(before);
            if let Some(error) = failed {
                self.failed_front = true;
                return Some(Err(error));
            }
        }
        None
    }

    pub(crate) fn next_back(&mut self, committed: &mut Iter) -> Option<Result<Item, ReadError>> {
        while !self.failed_back {
            while self.ahead_back.as_ref().is_none_or(|(key, _)| !self.is_within(key)) {
                match committed.next_back_committed() {
                    Some(Ok(item)) => self.ahead_back = Some(item),
                    Some(Err(error)) => {
                        self.failed_back = true;
                        return Some(Err(error));
                    }
                    None => break,
                }
            }
            let within = |item: &&Item| self.is_within(&item.0);
            let ahead = self.ahead_back.as_ref().filter(within);
            let ahead = ahead.or(self.ahead_front.as_ref().filter(within)).cloned();
            let pending = self.pending.last(borrowed(&self.from), borrowed(&self.to));
            let (key, value) = self.chosen(ahead, pending, |ahead, pending| ahead > pending)?;
            self.ahead_back.take_if(|(ahead, _)| *ahead >= key);
            let before = std::mem::replace(&mut self.to, Bound::Excluded(key.to_vec()));
            let failed = match value {
                Ok(Some(value)) => {
                    self.returned_to = None;
                    return Some(Ok((key, value)));
                }
                Ok(None) => None,
                Err(error) => Some(error),
            };
            self.returned_to.get_or_insert(before);
            if let Some(error) = failed {
                self.failed_back = true;
                return Some(Err(error));
            }
        }
        None
    }

    /// Returns an end's next key and its value: the committed item's value if it comes `first`,
    /// otherwise the pending key's writes applied. A value of `None` means that the key is deleted.
    fn chosen(
        &self,
        ahead: Option<Item>,
        pending: Option<(&[u8], &PendingKey)>,
        first: impl Fn(&[u8], &[u8]) -> bool,
    ) -> Option<(Slice, Result<Option<Slice>, ReadError>)> {
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
