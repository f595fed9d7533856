//! The part of a range that an iterator has read, to validate its transaction.
//!
//! An iterator that ends early has read nothing beyond its last item, so only the part before may
//! conflict with other transactions. Reads are recorded before the item is returned, so the record
//! is complete whenever the transaction commits. Iterators end with the transaction.
//!
//! The iterator writes and the transaction reads, possibly on two threads: a mutex orders them.

use std::sync::{Mutex, PoisonError};

use crate::read::Bounds;
use crate::read::pending::PendingSpan;

/// The part of a range that one iterator has read.
#[derive(Debug)]
pub(crate) struct RangeRead {
    end: Option<Vec<u8>>,
    seen: Mutex<SeenParts>,
}

#[derive(Debug, Default)]
struct SeenParts {
    /// Parts read before a seek moved the front.
    parts: Vec<PendingSpan>,
    /// Where the front started.
    front: Vec<u8>,
    /// The last key that the front returned.
    front_at: Option<Vec<u8>>,
    /// The last key that the back returned.
    back_at: Option<Vec<u8>>,
    /// Whether the front's start to the end of the range was read.
    to_end: bool,
}

/// Sets a buffer to the bytes of `key`.
fn set(buffer: &mut Option<Vec<u8>>, key: &[u8]) {
    let buffer = buffer.get_or_insert_default();
    buffer.clear();
    buffer.extend_from_slice(key);
}

impl RangeRead {
    pub(crate) fn new(bounds: &Bounds) -> RangeRead {
        let seen = SeenParts { front: bounds.start.clone(), ..SeenParts::default() };
        RangeRead { end: bounds.end.clone(), seen: Mutex::new(seen) }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, SeenParts> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the key of an item from the front, or that the front found nothing more.
    pub(crate) fn front(&self, key: Option<&[u8]>) {
        let mut seen = self.seen();
        match key {
            Some(key) => set(&mut seen.front_at, key),
            None => seen.to_end = true,
        }
    }

    /// The same for the back.
    pub(crate) fn back(&self, key: Option<&[u8]>) {
        let mut seen = self.seen();
        match key {
            Some(key) => set(&mut seen.back_at, key),
            None => seen.to_end = true,
        }
    }

    /// Records that the front moved to `key`.
    pub(crate) fn seek(&self, key: &[u8]) {
        let mut seen = self.seen();
        let part = seen.front_part(self.end.as_ref());
        seen.parts.extend(part);
        (seen.front, seen.front_at, seen.to_end) = (key.to_vec(), None, false);
    }

    /// Returns the ranges read.
    pub(crate) fn spans(&self) -> Vec<PendingSpan> {
        let seen = self.seen();
        let back = seen.back_at.clone().map(|from| (from, self.end.clone()));
        let front = seen.front_part(self.end.as_ref());
        let all = seen.parts.iter().cloned().chain(front).chain(back);
        all.filter(|(start, end)| end.as_ref().is_none_or(|end| start < end)).collect()
    }
}

impl SeenParts {
    fn front_part(&self, end: Option<&Vec<u8>>) -> Option<PendingSpan> {
        if self.to_end {
            return Some((self.front.clone(), end.cloned()));
        }
        self.front_at.as_ref().map(|last| (self.front.clone(), Some([&last[..], &[0]].concat())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(what: impl Fn(&RangeRead)) -> Vec<(String, Option<String>)> {
        let watch = RangeRead::new(&Bounds { start: b"b".to_vec(), end: Some(b"y".to_vec()) });
        what(&watch);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        watch.spans().into_iter().map(|(start, end)| (text(start), end.map(text))).collect()
    }

    fn span(start: &str, end: &str) -> (String, Option<String>) {
        (start.into(), Some(end.into()))
    }

    #[test]
    fn only_what_was_returned_and_the_gaps_before_it_were_read() {
        assert_eq!(read(|_| {}), []);
        assert_eq!(read(|r| r.front(Some(b"f"))), [span("b", "f\0")]);
        assert_eq!(read(|r| r.back(Some(b"f"))), [span("f", "y")]);
        assert_eq!(read(|r| r.front(None)), [span("b", "y")]);
        assert_eq!(read(|r| r.back(None)), [span("b", "y")]);
        let seeks = read(|r| {
            r.front(Some(b"c"));
            r.seek(b"m");
            r.front(Some(b"n"));
            r.back(Some(b"x"));
        });
        assert_eq!(seeks, [span("b", "c\0"), span("m", "n\0"), span("x", "y")]);
        assert_eq!(read(|r| r.seek(b"m")), []);
    }
}
