//! Walks along the entries in the order of keys, for iterators.
//!
//! A walk takes whole segments: it ends with the first that had something to tell, or when a few had nothing, so that an
//! iterator that goes on asks again from there. Of a segment of a learned map the entries are told whose positions a key of
//! the stretch may have; of one of a mixed map, in which order ends, all.

use crate::global::{Ahead, Epochs};

use super::blocks::Entry;
use super::map::Kind;
use super::{NO_BOUND, Partition};

/// Segments without entries that a walk passes before it ends.
const EMPTY_SEGMENTS: usize = 8;

/// Numbers of the keys that a walk goes through, both included.
#[derive(Clone, Copy)]
struct Numbers {
    first: u64,
    last: u64,
}

impl Partition {
    /// Walks the entries from `from` on (keys >= `from`), not beyond `end` (excluded), to the end of the segment in which
    /// some are found, or past a few that are empty. Says in `out`, which is overwritten, what was found: each code once,
    /// with the lowest number. Every key from `from` up to the lower key of [`Ahead::until`] was spoken of, and that
    /// number's lower key is behind `from`.
    ///
    /// `false` if the map cannot tell, being of digests; then `out` is empty.
    pub fn ahead(&self, from: &[u8], end: Option<&[u8]>, out: &mut Ahead) -> bool {
        out.found.clear();
        out.until = None;
        let map = &*self.inner.map;
        if map.kind == Kind::Digest {
            return false;
        }
        let first = map.keys.clamped(from);
        let Some(last) = self.last_before(end).filter(|&last| first <= last) else { return true };
        let numbers = Numbers { first, last };
        let (start, stop) = (map.segment(first), map.segment(last));
        let mut entries = Vec::new();
        for segment in start..=stop {
            self.find(segment, numbers, &mut entries, |epochs, lower, _| {
                match out.found.iter_mut().find(|(known, _)| *known == epochs) {
                    Some((_, number)) => *number = lower.min(*number),
                    None => out.found.push((epochs, lower)),
                }
            });
            if segment < stop && (!out.found.is_empty() || segment - start + 1 >= EMPTY_SEGMENTS) {
                out.until = map.upper(segment);
                break;
            }
        }
        true
    }

    /// The same backwards: keys below `before` (`None`: all), not below `start`. Each code has the highest number: all its
    /// keys in the stretch lie below that number's lower key, or anywhere in the stretch if it is [`NO_BOUND`]. Every key
    /// below `before` and not below the lower key of [`Ahead::until`] was spoken of, and that key is below `before`.
    pub fn behind(&self, before: Option<&[u8]>, start: &[u8], out: &mut Ahead) -> bool {
        out.found.clear();
        out.until = None;
        let map = &*self.inner.map;
        if map.kind == Kind::Digest {
            return false;
        }
        let first = map.keys.clamped(start);
        let Some(last) = self.last_before(before).filter(|&last| first <= last) else { return true };
        let numbers = Numbers { first, last };
        let (start, stop) = (map.segment(last), map.segment(first));
        let mut entries = Vec::new();
        for segment in (stop..=start).rev() {
            self.find(segment, numbers, &mut entries, |epochs, _, behind| {
                match out.found.iter_mut().find(|(known, _)| *known == epochs) {
                    Some((_, number)) => *number = behind.max(*number),
                    None => out.found.push((epochs, behind)),
                }
            });
            if segment > stop && (!out.found.is_empty() || start - segment + 1 >= EMPTY_SEGMENTS) {
                out.until = Some(map.lower(segment));
                break;
            }
        }
        true
    }

    /// The largest number that a key below `end` can have; `None` if there is no such key.
    fn last_before(&self, end: Option<&[u8]>) -> Option<u64> {
        let Some(end) = end else { return Some(u64::MAX) };
        let number = self.inner.map.keys.clamped(end);
        let mut lower = Vec::new();
        self.lower_key(number, &mut lower);
        // Of the keys with the number of `end`, none is smaller than the smallest.
        if lower == end { number.checked_sub(1) } else { Some(number) }
    }

    /// Tells of the entries of a segment that a key with one of these numbers may match: their epochs, the lowest number
    /// that such a key can have, and the number behind the highest.
    fn find(
        &self,
        segment: usize,
        numbers: Numbers,
        entries: &mut Vec<Entry>,
        mut found: impl FnMut(Epochs, u64, u64),
    ) {
        let inner = &*self.inner;
        let map = &*inner.map;
        entries.clear();
        for block in map.blocks_of(segment) {
            inner.blocks.decode(&inner.layout, &inner.coder, block, entries);
        }
        let (lower, upper) = (map.lower(segment), map.upper(segment));
        if map.kind == Kind::Mixed {
            let behind = upper.unwrap_or(NO_BOUND);
            return entries.iter().for_each(|entry| found(inner.coder.epochs(entry.code), lower, behind));
        }
        let line = map.line(segment);
        let first = line.position(numbers.first.saturating_sub(lower));
        let last = line.position(numbers.last.min(upper.map_or(u64::MAX, |upper| upper - 1)) - lower);
        for entry in entries.iter() {
            let until = inner.layout.last_of(entry);
            if until < first || entry.position > last {
                continue;
            }
            let begin = lower.saturating_add(line.first_at(entry.position));
            let behind = if until + 1 < map.positions {
                lower.saturating_add(line.first_at(until + 1)).min(upper.unwrap_or(NO_BOUND))
            } else {
                upper.unwrap_or(NO_BOUND)
            };
            found(inner.coder.epochs(entry.code), begin, behind);
        }
    }
}
