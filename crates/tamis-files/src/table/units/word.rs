//! A segment's word: how many of its units are in memory, and where.
//!
//! It holds an address that is a multiple of 64 plus the number of units, so both change at once.
//!
//! # Threads
//!
//! Any thread may load a word at any time. Following the address is safe under a
//! [`Pin`](super::Pin) taken before the load; see [`reclaim`](super::reclaim). A replacement
//! releases what its thread wrote before, above all the piece, and a load acquires it.

#[cfg(all(test, loom))]
use loom::sync::atomic::AtomicPtr;
use std::ptr;
#[cfg(not(all(test, loom)))]
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// The bits of a word that hold the number of units; pieces are aligned to 64 bytes.
const COUNT: usize = 63;

/// The address of a piece (null if there is none) and its number of units.
type Piece<T> = (*mut T, u32);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Word<T>(AtomicPtr<T>);

impl<T> Word<T> {
    /// Creates a word that leads to nothing.
    pub(super) fn empty() -> Word<T> {
        Word(AtomicPtr::new(ptr::null_mut()))
    }

    #[inline]
    fn split(word: *mut T) -> Piece<T> {
        (word.map_addr(|address| address & !COUNT), (word.addr() & COUNT) as u32)
    }

    /// Returns the piece and its number of units. Only the one thread that replaces words may call
    /// this without a pin.
    #[inline]
    pub(super) fn load(&self) -> Piece<T> {
        Self::split(self.0.load(Acquire))
    }

    /// Points the word at another piece and returns the previous one, which readers may still be
    /// probing.
    pub(super) fn replace(&self, (piece, units): Piece<T>) -> Piece<T> {
        debug_assert!(
            piece.addr() & COUNT == 0 && units as usize <= COUNT && piece.is_null() == (units == 0)
        );
        Self::split(self.0.swap(piece.map_addr(|address| address | units as usize), AcqRel))
    }

    /// Returns the number of units alone, for statistics.
    pub(super) fn units(&self) -> u32 {
        Self::split(self.0.load(Relaxed)).1
    }
}
