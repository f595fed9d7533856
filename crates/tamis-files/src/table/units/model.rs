//! The replacement and reclamation of pieces under every interleaving and every value that the
//! memory model lets a load return.
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 cargo test -p tamis-files units::model
//! ```
//!
//! [`Generations`] and [`Word`] are the engine's. A piece is a tracked cell: making it is a write,
//! probing it a read, and freeing it a write again. So a probe that may come before the piece is
//! complete, or before, beside or after its freeing, fails the model, whatever value it saw.
//! [`present`] stands for `ArcSwap`, which the model cannot look into.
//!
//! # What it finds
//!
//! Each of these changes to the code fails at least one test: a relaxed load of the word, or one
//! before the pin; a relaxed or only acquiring replacement of it; a replacement after the
//! retirement; a load of the present generation that does not acquire, or a store that does not
//! release; memory freed at once; a generation that does not keep the next one alive; a retirement
//! that begins no new generation, that puts memory into the new one, or that does not take the
//! lock; a drop of a pin that does not release. Two changes are harmless and pass: a replacement
//! that only releases (changes of one word follow one another under a lock), and a new generation
//! that is published before the old one has the memory (`retire` still holds the old one).

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;

use super::reclaim::Generations;
use super::word::Word;

pub(super) mod present;

/// What the cell of a freed piece has.
const FREED: u64 = 0;

/// A piece. Its value is its number, once it is made.
#[repr(align(64))]
struct Piece(UnsafeCell<u64>);

// SAFETY: the model reports a race instead of letting it happen.
unsafe impl Sync for Piece {}

impl Piece {
    fn write(&self, value: u64) {
        // SAFETY: as for `Sync`.
        self.0.with_mut(|cell| unsafe { *cell = value });
    }

    fn read(&self) -> u64 {
        // SAFETY: as for `Sync`.
        self.0.with(|cell| unsafe { *cell })
    }
}

/// A piece that no word leads to any more. Pieces lie in [`Memory`], so that a mistake is not
/// undefined behaviour.
struct Retired(*const Piece);

// SAFETY: a piece is `Sync`.
unsafe impl Send for Retired {}
// SAFETY: a piece is `Sync`.
unsafe impl Sync for Retired {}

impl Drop for Retired {
    fn drop(&mut self) {
        // SAFETY: it points into `Memory`, which outlives the generations.
        unsafe { &*self.0 }.write(FREED);
    }
}

/// Dropped in this order: what is retired last is freed with the generations.
struct Memory {
    generations: Generations<Retired>,
    words: [Word<Piece>; 2],
    pieces: [Piece; 4],
}

impl Memory {
    /// The word of each segment leads to a piece: number 0 and number 1.
    fn new() -> Arc<Memory> {
        let memory = Arc::new(Memory {
            generations: Generations::new(),
            words: [Word::empty(), Word::empty()],
            pieces: std::array::from_fn(|_| Piece(UnsafeCell::new(FREED))),
        });
        for number in 0..2 {
            memory.make(number);
            memory.words[number].replace((memory.address(number), number as u32 + 1));
        }
        memory
    }

    fn address(&self, number: usize) -> *mut Piece {
        std::ptr::from_ref(&self.pieces[number]).cast_mut()
    }

    fn make(&self, number: usize) {
        self.pieces[number].write(number as u64 + 1);
    }

    /// Replaces the piece of a segment, as `ElasticFilter::grow` and its callers do.
    fn change(&self, segment: usize, number: usize) {
        self.make(number);
        let (old, _) = self.words[segment].replace((self.address(number), number as u32 + 1));
        self.generations.retire(vec![Retired(old)]);
    }

    /// Takes all units of a segment out of use.
    fn clear(&self, segment: usize) {
        let (old, _) = self.words[segment].replace((std::ptr::null_mut(), 0));
        self.generations.retire(vec![Retired(old)]);
    }

    /// Probes segments under one pin, as a get does.
    fn get(&self, segments: &[usize]) {
        let _pin = self.generations.pin();
        for &segment in segments {
            let (piece, number) = self.words[segment].load();
            if number > 0 {
                // SAFETY: it points into `Memory`.
                assert_eq!(unsafe { &*piece }.read(), u64::from(number), "number and piece belong together");
            }
        }
    }

    /// The pieces that are not freed, once all other threads have ended.
    fn left(&self) -> Vec<usize> {
        (0..self.pieces.len()).filter(|&number| self.pieces[number].read() != FREED).collect()
    }
}

fn beside(memory: &Arc<Memory>, work: impl Fn(&Memory) + 'static) -> thread::JoinHandle<()> {
    let memory = memory.clone();
    thread::spawn(move || work(&memory))
}

#[test]
fn a_probed_piece_is_complete_and_not_freed() {
    loom::model(|| {
        let memory = Memory::new();
        let changes = beside(&memory, |memory| {
            memory.change(0, 2);
            memory.clear(0);
        });
        let reader = beside(&memory, |memory| memory.get(&[0]));
        // The second probe may follow a word that is newer than the pin by two generations.
        memory.get(&[0, 0]);
        changes.join().unwrap();
        reader.join().unwrap();
        assert_eq!(memory.left(), [1], "what is retired is freed without a further retirement");
    });
}

#[test]
fn two_databases_retire_side_by_side() {
    loom::model(|| {
        let memory = Memory::new();
        let one = beside(&memory, |memory| memory.change(0, 2));
        let other = beside(&memory, |memory| memory.change(1, 3));
        memory.get(&[1, 0]);
        one.join().unwrap();
        other.join().unwrap();
        assert_eq!(memory.left(), [2, 3]);
    });
}
