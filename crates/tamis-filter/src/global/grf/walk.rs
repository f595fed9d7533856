//! Walks over the entries in key order, for iterators.
//!
//! A walk ends with the first segment that has entries to report, or after a few empty ones, and an iterator that
//! continues starts another walk from there. Forwards it may end within a segment, after the requested number of
//! entries ([`Ahead::most`]). In a segment of a learned map it reports the entries whose positions a key of the range
//! may have; in a segment of a mixed map, which has no order, all entries.

use crate::global::{Ahead, Epochs};

use super::map::Kind;
use super::{NO_BOUND, Partition};

/// Segments without entries that a walk passes before it stops.
const EMPTY_SEGMENTS: usize = 8;

/// Numbers of the keys that a walk covers, both included.
#[derive(Clone, Copy)]
struct Numbers {
    first: u64,
    last: u64,
}

impl Partition {
    /// Walks the entries from `from` on (keys >= `from`), up to `end` (excluded): to the end of the segment in which
    /// some are found, to the [`Ahead::most`] entries that suffice, or past a few empty segments. Writes to `out`,
    /// which is overwritten, what was found: each code once, with the lowest number. Every key from `from` up to the
    /// lower key of [`Ahead::until`] is covered, and that lower key is after `from`.
    ///
    /// Returns `false` if the map has no order, being based on digests; `out` is then empty.
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
        for segment in start..=stop {
            let walk = Stretch { segment, numbers, most: out.most, backward: false };
            let cut = self.find(walk, &mut out.found);
            if cut.is_some() {
                out.until = cut;
                break;
            }
            if segment < stop && (!out.found.is_empty() || segment - start + 1 >= EMPTY_SEGMENTS) {
                out.until = map.upper(segment);
                break;
            }
        }
        true
    }

    /// The same backwards: keys below `before` (`None`: all), not below `start`. Each code has the highest number:
    /// all its keys in the range lie below that number's lower key, or anywhere in the range if it is [`NO_BOUND`].
    /// Every key below `before` and not below the lower key of [`Ahead::until`] is covered, and that key is below
    /// `before`.
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
        for segment in (stop..=start).rev() {
            let walk = Stretch { segment, numbers, most: out.most, backward: true };
            let cut = self.find(walk, &mut out.found);
            if cut.is_some() {
                out.until = cut;
                break;
            }
            if segment > stop && (!out.found.is_empty() || start - segment + 1 >= EMPTY_SEGMENTS) {
                out.until = Some(map.lower(segment));
                break;
            }
        }
        true
    }

    /// Returns the largest number that a key below `end` can have; `None` if there is no such key.
    fn last_before(&self, end: Option<&[u8]>) -> Option<u64> {
        let Some(end) = end else { return Some(u64::MAX) };
        let number = self.inner.map.keys.clamped(end);
        let mut lower = Vec::new();
        self.lower_key(number, &mut lower);
        // The lower key is the smallest key with the number of `end`.
        if lower == end { number.checked_sub(1) } else { Some(number) }
    }

    /// Adds to `found` the codes of the entries of a segment that a key with one of these numbers may match, each
    /// once: forwards with the lowest number that such a key can have, backwards with the number after the highest.
    /// Returns the number at which it ended if that is within the segment.
    fn find(&self, walk: Stretch, found: &mut Vec<(Epochs, u64)>) -> Option<u64> {
        let inner = &*self.inner;
        let map = &*inner.map;
        let Stretch { segment, numbers, most, backward } = walk;
        let (lower, upper) = (map.lower(segment), map.upper(segment));
        let known = found.len();
        if map.kind == Kind::Mixed {
            let number = if backward { upper.unwrap_or(NO_BOUND) } else { lower };
            for block in map.blocks_of(segment) {
                inner.blocks.each_from(&inner.layout, &inner.coder, block, 0, |entry| {
                    let epochs = inner.coder.epochs(entry.code);
                    if !found.iter().any(|(met, _)| *met == epochs) {
                        found.push((epochs, number));
                    }
                    true
                });
            }
            return None;
        }
        let line = map.line(segment);
        let first = line.position(numbers.first.saturating_sub(lower));
        let last = line.position(numbers.last.min(upper.map_or(u64::MAX, |upper| upper - 1)) - lower);
        let number_of = |position: u64| lower.saturating_add(line.first_at(position));
        // The first (backwards: last) position of each code; converted to numbers at the end, as that takes a division.
        let mut positions: Vec<(Epochs, u64)> = Vec::new();
        let (mut count, mut cut) = (0, None);
        let block = map.blocks_of(segment).start;
        // Entries ascend by their first position.
        inner.blocks.each_from(&inner.layout, &inner.coder, block, first, |entry| {
            let end = inner.layout.last_of(&entry);
            if end < first {
                return true;
            }
            if entry.position > last {
                return false;
            }
            if !backward && most > 0 && count >= most && entry.position > first {
                let at = number_of(entry.position);
                // All numbers before that one have an earlier position.
                if at > numbers.first && upper.is_none_or(|upper| at < upper) {
                    cut = Some(at);
                    return false;
                }
            }
            count += 1;
            let epochs = inner.coder.epochs(entry.code);
            match positions.iter_mut().find(|(met, _)| *met == epochs) {
                // The last positions of entries do not quite ascend.
                Some((_, known)) if backward => *known = end.max(*known),
                Some(_) => {}
                // Results of an earlier segment are nearer.
                None if found[..known].iter().any(|(met, _)| *met == epochs) => {}
                None => positions.push((epochs, if backward { end } else { entry.position })),
            }
            true
        });
        let bound = |position: u64| match backward {
            false => number_of(position),
            true if position + 1 < map.positions => {
                let behind = number_of(position + 1).min(upper.unwrap_or(NO_BOUND));
                // Numbers above the greatest possible one stand for no key.
                if behind <= map.keys.max() { behind } else { NO_BOUND }
            }
            true => upper.unwrap_or(NO_BOUND),
        };
        found.extend(positions.into_iter().map(|(epochs, position)| (epochs, bound(position))));
        cut
    }
}

/// The part of a segment that a walk needs.
#[derive(Clone, Copy)]
struct Stretch {
    segment: usize,
    numbers: Numbers,
    /// Number of entries after which it may end, if not 0; forwards only.
    most: usize,
    backward: bool,
}
