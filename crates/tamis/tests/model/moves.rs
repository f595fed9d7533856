//! An iterator of the engine beside its model.

use tamis::{Iter, Slice};

use crate::oracle::Cursor;

/// A step of an iterator.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Move {
    Next,
    /// The same by `next_ref`.
    Lent,
    Back,
    /// The same by `next_back_ref`.
    LentBack,
    /// Seeks to a key of the universe.
    Seek(usize),
}

/// An iterator and its expected items.
pub(crate) struct Walk {
    pub(crate) iter: Iter,
    pub(crate) model: Cursor,
    /// The keyspace.
    pub(crate) slot: usize,
}

impl Walk {
    pub(crate) fn step(&mut self, step: Move, keys: &[Vec<u8>]) {
        let (found, expected) = match step {
            Move::Seek(key) => {
                self.iter.seek(&keys[key]).expect("a seek");
                self.model.seek(&keys[key]);
                return;
            }
            Move::Next => (self.iter.next(), self.model.next()),
            Move::Lent => {
                let lent = self.iter.next_ref();
                (lent.map(|item| item.map(copied)), self.model.next())
            }
            Move::LentBack => {
                let lent = self.iter.next_back_ref();
                (lent.map(|item| item.map(copied)), self.model.next_back())
            }
            Move::Back => (self.iter.next_back(), self.model.next_back()),
        };
        let found = found.map(|item| item.expect("an item"));
        let found = found.as_ref().map(|(key, value)| (show(key), show(value)));
        let expected = expected.as_ref().map(|(key, value)| (show(key), show(value)));
        assert_eq!(found, expected, "{step:?} (found, then expected)");
    }

    /// Takes the remaining items, alternating between the ends.
    pub(crate) fn finish(mut self, keys: &[Vec<u8>]) {
        while self.model.clone().next().is_some() {
            self.step(Move::Next, keys);
            self.step(Move::Back, keys);
            self.step(Move::Lent, keys);
            self.step(Move::LentBack, keys);
        }
        self.step(Move::Back, keys);
        self.step(Move::Next, keys);
    }
}

fn copied((key, value): (&[u8], &[u8])) -> (Slice, Slice) {
    (Slice::from(key), Slice::from(value))
}

/// A key or value short enough to print; length and checksum distinguish long ones.
pub(crate) fn show(bytes: &[u8]) -> String {
    let sum = bytes.iter().fold(0u32, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    format!("{} ({} bytes, {sum:x})", bytes[..bytes.len().min(24)].escape_ascii(), bytes.len())
}
