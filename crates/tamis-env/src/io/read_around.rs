//! Which parts of a mapped file are read from the device at a time.
//!
//! A page fault reads around its page as much as the device is set to read ahead, from 128 KiB to
//! many megabytes: a get of one block waits for all of that. So the bytes of a mapping are asked
//! for before they are touched, in pieces of [`PIECE`], each once. What is read in order is asked
//! for further and further ahead. Later faults, of pages that the system reclaimed, are the
//! kernel's.
//!
//! # Threads
//!
//! Any thread may ask at any time. The bits publish nothing (`Relaxed`): the pages are the
//! kernel's, and a piece that two threads ask for is read once.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The bytes that are asked for at once. On a virtual disk, first gets of 8, 16, 32, 64 and 128 KiB
/// took 80, 95, 130, 200 and 260 µs: larger pieces fill memory sooner, and smaller ones answer
/// sooner.
pub(super) const PIECE: usize = 16 << 10;

/// The pieces asked for at once where the ones before were asked for too.
pub(super) const MOST_PIECES: usize = 64;

/// The pieces of one mapping, and which of them were asked for.
#[derive(Debug)]
pub(super) struct ReadAround {
    asked: Box<[AtomicU64]>,
    bytes: usize,
}

impl ReadAround {
    /// For a mapping of this many bytes.
    pub(super) fn new(bytes: usize) -> ReadAround {
        let words = bytes.div_ceil(PIECE).div_ceil(64);
        ReadAround { asked: (0..words).map(|_| AtomicU64::new(0)).collect(), bytes }
    }

    /// Returns what to read from the device before `part` is touched, and takes it for read from
    /// now on; `None` if all of it is, or lies outside the mapping.
    pub(super) fn ask(&self, part: Range<usize>) -> Option<Range<usize>> {
        let pieces = self.bytes.div_ceil(PIECE);
        let end = part.end.div_ceil(PIECE).min(pieces);
        let first = (part.start / PIECE..end).find(|&piece| !self.was_asked(piece))?;
        let before =
            (0..first).rev().take(MOST_PIECES - 1).take_while(|&piece| self.was_asked(piece)).count();
        let end = end.max(first + 1 + before).min(pieces);
        for piece in first..end {
            self.asked[piece / 64].fetch_or(1 << (piece % 64), Relaxed);
        }
        Some(first * PIECE..(end * PIECE).min(self.bytes))
    }

    fn was_asked(&self, piece: usize) -> bool {
        self.asked[piece / 64].load(Relaxed) & (1 << (piece % 64)) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_asked_for_once() {
        let around = ReadAround::new(100 * PIECE + 5);
        assert_eq!(around.ask(50 * PIECE + 7..50 * PIECE + 9), Some(50 * PIECE..51 * PIECE));
        assert_eq!(around.ask(50 * PIECE..51 * PIECE), None);
        assert_eq!(around.ask(100 * PIECE + 1..100 * PIECE + 5), Some(100 * PIECE..100 * PIECE + 5));
    }

    #[test]
    fn a_part_in_two_pieces_asks_for_both() {
        let around = ReadAround::new(10 * PIECE);
        assert_eq!(around.ask(4 * PIECE - 1..4 * PIECE + 1), Some(3 * PIECE..5 * PIECE));
        assert_eq!(around.ask(2 * PIECE..6 * PIECE), Some(2 * PIECE..6 * PIECE));
        assert_eq!(around.ask(0..10 * PIECE), Some(0..10 * PIECE));
    }

    #[test]
    fn reads_in_order_ask_further_and_further_ahead() {
        let around = ReadAround::new(1000 * PIECE);
        let mut lengths = Vec::new();
        for at in (0..1000 * PIECE).step_by(4096) {
            if let Some(asked) = around.ask(at..at + 4096) {
                assert_eq!(asked.start, at, "all before was asked for");
                lengths.push(asked.len() / PIECE);
            }
        }
        assert_eq!(lengths[..7], [1, 2, 4, 8, 16, 32, 64]);
        assert!(lengths[7..lengths.len() - 1].iter().all(|&length| length == MOST_PIECES));
        assert_eq!(lengths.iter().sum::<usize>(), 1000);
    }

    #[test]
    fn nothing_is_asked_of_what_lies_outside() {
        let around = ReadAround::new(PIECE);
        assert_eq!(around.ask(PIECE..2 * PIECE), None);
        assert_eq!(around.ask(usize::MAX - 1..usize::MAX), None);
        assert_eq!(around.ask(7..7), Some(0..PIECE));
        assert_eq!(ReadAround::new(0).ask(0..0), None);
    }
}
