//! Partitions as bytes. `docs/formats/filter-images.md` has the format.
//!
//! All numbers are little-endian. Whoever stores the bytes guards them by a checksum; here each
//! field is only checked as far as memory safety, bounded loops and bounded memory need it.

use std::sync::Arc;

use crate::error::FilterError;

use super::book::Book;
use super::layout::after_cut;
use super::map::Map;
use super::set::Set;
use super::walk::met_by_a_walk;
use super::{Crowd, Inner, MapReason, Partition};
use crate::global::MapChoice;

/// The version of the format.
const VERSION: u32 = 3;

/// Reads fields; `None` at the end of the bytes.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(len)?;
        self.0 = tail;
        Some(head)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn f64(&mut self) -> Option<f64> {
        Some(f64::from_bits(self.u64()?))
    }
}

impl Partition {
    /// Returns the partition as bytes. Linear in its memory.
    pub fn to_bytes(&self) -> Vec<u8> {
        let inner = &*self.inner;
        let mut out = Vec::with_capacity(self.memory_bytes() + 256);
        out.extend(VERSION.to_le_bytes());
        out.extend(u32::from(inner.last_is_unknown).to_le_bytes());
        out.extend(inner.bits_per_key.to_bits().to_le_bytes());
        out.extend(inner.last.to_le_bytes());
        out.extend(inner.built.to_le_bytes());
        out.extend(inner.keys.to_le_bytes());
        out.extend(inner.cut.to_le_bytes());
        out.extend((inner.reason.chosen as u32).to_le_bytes());
        for rate in [inner.reason.holdout_rate.unwrap_or(f64::NAN), inner.reason.ideal_rate] {
            out.extend(rate.to_bits().to_le_bytes());
        }
        for count in [inner.crowd.built_largest, inner.crowd.added, inner.crowd.joined, inner.crowd.strays] {
            out.extend(count.to_le_bytes());
        }
        out.extend(u32::from(inner.crowd.is_blurred).to_le_bytes());
        inner.map.encode(&mut out);
        inner.book.encode(&mut out);
        inner.set.encode(&mut out);
        out
    }

    /// Restores a partition from the bytes of [`Partition::to_bytes`]. Linear in their number.
    ///
    /// # Errors
    /// [`FilterError::Corrupt`] if the bytes are not such an image. Bytes that were changed may
    /// also pass and give a filter that denies keys: callers check a checksum first.
    pub fn from_bytes(bytes: &[u8]) -> Result<Partition, FilterError> {
        Self::read(&mut Reader(bytes)).ok_or(FilterError::Corrupt("not an image of a partition"))
    }

    fn read(from: &mut Reader<'_>) -> Option<Partition> {
        if from.u32()? != VERSION {
            return None;
        }
        let last_is_unknown = from.u32()? == 1;
        let bits_per_key = from.f64().filter(|bits| *bits > 0.0 && *bits <= 64.0)?;
        let (last, built, keys, cut) = (from.u64()?, from.u64()?, from.u64()?, from.u32()?);
        let chosen = match from.u32()? {
            1 => MapChoice::Learned,
            2 => MapChoice::Digest,
            3 => MapChoice::Mixed,
            4 => MapChoice::Local,
            _ => return None,
        };
        let holdout_rate = from.f64().map(|rate| Some(rate).filter(|rate| !rate.is_nan()))?;
        let reason = MapReason { chosen, holdout_rate, ideal_rate: from.f64()? };
        let (built_largest, added, joined, strays) = (from.u64()?, from.u64()?, from.u64()?, from.u64()?);
        let is_blurred = from.u32()? == 1;
        // Far below the largest number, so that sums fit.
        if added.max(joined).max(strays).max(keys).max(built) > 1 << 60 {
            return None;
        }
        let map = Map::read(from)?;
        let book = Book::read(from)?;
        let set = Set::read(from)?;
        // The set has a position for each of the map, cut.
        let fits =
            cut < 64 && set.layout.positions == after_cut(map.positions(), cut) && last <= set.entries();
        if !(from.0.is_empty() && fits) {
            return None;
        }
        // Which entries have symbols of epochs to come is not known.
        let young = if book.grows() { set.entries() } else { 0 };
        let crowd = Crowd { built_largest, largest: set.largest(), added, joined, strays, is_blurred };
        let met_by_a_walk = met_by_a_walk(&map, &set, &book);
        let inner = Inner {
            crowd,
            map: Arc::new(map),
            book: Arc::new(book),
            set,
            cut,
            bits_per_key,
            last,
            built,
            keys,
            young,
            reason,
            last_is_unknown,
            met_by_a_walk,
        };
        Some(Partition { inner: Arc::new(inner) })
    }
}
