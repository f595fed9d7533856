//! Ways to use one iterator for long: items that are lent, and the state of a later time.

use super::end::End;
use super::last::LastKey;
use super::{Bounds, Found, Iter};
use crate::error::ReadError;

impl Iter {
    /// Returns the next item from the front as [`next`](Iterator::next) does, but lends its key and
    /// its value, which stay in the block or the memtable where they are: no reference is counted
    /// and nothing is copied. For loops over many items, the cheapest way.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tamis::Db::open(dir.path())?;
    /// # for key in ["a", "b", "c"] { db.put(key, "value")?; }
    /// let mut bytes = 0;
    /// let mut iter = db.iter();
    /// while let Some(item) = iter.next_ref() {
    ///     let (_, value) = item?;
    ///     bytes += value.len();
    /// }
    /// assert_eq!(bytes, 15);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[expect(clippy::type_complexity, reason = "an iterator's item, lent")]
    pub fn next_ref(&mut self) -> Option<Result<(&[u8], &[u8]), ReadError>> {
        self.lend_next::<false>()
    }

    /// Returns the next item from the back as [`next_back`](DoubleEndedIterator::next_back) does,
    /// and lends it as [`next_ref`](Self::next_ref) does.
    #[inline]
    #[expect(clippy::type_complexity, reason = "an iterator's item, lent")]
    pub fn next_back_ref(&mut self) -> Option<Result<(&[u8], &[u8]), ReadError>> {
        self.lend_next::<true>()
    }

    #[inline]
    #[expect(clippy::type_complexity, reason = "an iterator's item, lent")]
    fn lend_next<const BACK: bool>(&mut self) -> Option<Result<(&[u8], &[u8]), ReadError>> {
        let found = match self.within.is_some() {
            true => self.make_next::<BACK>(),
            false => self.find::<BACK>(),
        };
        match found {
            Ok(Found::Nothing) => None,
            Ok(Found::Here) => Some(Ok(self.end::<BACK>().here().entry())),
            Ok(Found::Made) => Some(Ok(self.reader.lend_made())),
            Err(error) => Some(Err(error)),
        }
    }

    /// Keeps the next item in the reader.
    #[cold]
    fn make_next<const BACK: bool>(&mut self) -> Result<Found, ReadError> {
        let Some((key, value)) = self.next_item::<BACK>().transpose()? else { return Ok(Found::Nothing) };
        self.reader.make(key, value);
        Ok(Found::Made)
    }

    /// Takes the bounds, to make an iterator that this one [goes on as](Self::go_on_as).
    pub(crate) fn take_bounds(&mut self) -> Bounds {
        std::mem::take(&mut self.bounds)
    }

    /// Becomes another iterator within the same bounds, with the ends where they are.
    pub(crate) fn go_on_as(&mut self, mut fresh: Iter) {
        fresh.reader.keys_only = self.reader.keys_only && fresh.within.is_none();
        let before;
        (fresh.floor, before) = match self.within.as_ref().and_then(|within| within.overlay.as_ref()) {
            Some(overlay) => overlay.ends(),
            None => self.take_ends(),
        };
        fresh.back = End { last: LastKey::resumed(before), ..End::default() };
        if let Some(within) = &mut fresh.within {
            within.resume(fresh.floor.as_deref(), fresh.back.last.get());
        }
        *self = fresh;
    }

    /// Returns where the front goes on, and the last key returned from the back.
    fn take_ends(&mut self) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        let behind = self.front.last.take_returned().map(|mut last| {
            last.push(0);
            last
        });
        (behind.or_else(|| self.floor.take()), self.back.last.take_returned())
    }
}
