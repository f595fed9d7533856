//! Gets in pieces: counted, or timed by turns.

use std::time::Instant;

use tamis::{Db, ReadCost};

use crate::error::BenchError;
use crate::hash_functions::timing::Spread;
use crate::keys::KeySet;
use crate::progress::Progress;
use crate::random::Random;

/// Bytes of the keys of a piece: they stay in the second-level cache.
const PIECE_BYTES: usize = 128 << 10;

/// A sequence of keys, made piece by piece while no time is taken.
pub(super) struct Asked<'k> {
    set: &'k KeySet,
    key_bytes: usize,
    absent: u64,
    ops: u64,
    seed: u64,
}

/// Keys side by side, and whether each is there.
pub(super) struct Piece {
    key_bytes: usize,
    bytes: Vec<u8>,
    there: Vec<bool>,
}

impl Piece {
    pub(super) fn keys(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.key_bytes)
    }
}

impl<'k> Asked<'k> {
    pub(super) fn new(set: &'k KeySet, key_bytes: usize, absent: u64, ops: u64, seed: u64) -> Asked<'k> {
        Asked { set, key_bytes, absent, ops, seed }
    }

    /// Calls `work` with one piece after the other.
    pub(super) fn for_each(
        &self,
        mut work: impl FnMut(&Piece) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let mut random = Random::part(self.seed, 0x6D6F_6465);
        let most = (PIECE_BYTES / self.key_bytes.max(1)).clamp(16, 4096) as u64;
        let mut piece = Piece { key_bytes: self.key_bytes, bytes: Vec::new(), there: Vec::new() };
        let mut left = self.ops;
        while left > 0 {
            let count = left.min(most);
            left -= count;
            piece.bytes.clear();
            piece.there.clear();
            for _ in 0..count {
                let there = !random.chance(self.absent);
                match there {
                    true => self.set.existing(random.below(self.set.len()), &mut piece.bytes),
                    false => self.set.absent(random.below(self.set.absent_len()), &mut piece.bytes),
                }
                piece.there.push(there);
            }
            work(&piece)?;
        }
        Ok(())
    }
}

/// Asks for all keys of a piece; every answer is checked for being one. Nanoseconds.
fn get_all(db: &Db, piece: &Piece) -> Result<u64, BenchError> {
    let begun = Instant::now();
    for (key, &there) in piece.keys().zip(&piece.there) {
        if db.get(key)?.is_some() != there {
            return Err(wrong(key, there));
        }
    }
    Ok(begun.elapsed().as_nanos() as u64)
}

fn wrong(key: &[u8], there: bool) -> BenchError {
    let word = |there: bool| if there { "a value" } else { "no value" }.to_owned();
    BenchError::WrongAnswer {
        workload: "model-check".into(),
        key: key.iter().map(|byte| format!("{byte:02x}")).collect(),
        expected: word(there),
        got: word(!there),
    }
}

/// What all gets of a sequence did.
pub(super) fn count(db: &Db, asked: &Asked<'_>, progress: &dyn Progress) -> Result<ReadCost, BenchError> {
    let before = db.stats().read;
    progress.begin("count", asked.ops, "gets");
    asked.for_each(|piece| {
        get_all(db, piece)?;
        progress.advance(piece.there.len() as u64);
        Ok(())
    })?;
    progress.end();
    Ok(db.stats().read - before)
}

/// Nanoseconds a get on each database, all with the sequence of the round. Databases take turns piece by piece; the first
/// round, which warms up, is not counted.
pub(super) fn time<'k>(
    dbs: &[&Db],
    rounds: u32,
    asked: &dyn Fn(u32) -> Result<Asked<'k>, BenchError>,
    progress: &dyn Progress,
) -> Result<Vec<Spread>, BenchError> {
    let mut times = vec![Vec::new(); dbs.len()];
    for round in 0..=rounds {
        let asked = asked(round)?;
        let mut sums = vec![0u64; dbs.len()];
        let mut turn = 0;
        asked.for_each(|piece| {
            // Whoever comes second finds the blocks of the first in the caches of the processor.
            for at in 0..dbs.len() {
                let at = (at + turn) % dbs.len();
                sums[at] += get_all(dbs[at], piece)?;
            }
            turn += 1;
            Ok(())
        })?;
        if round > 0 {
            for (times, sum) in times.iter_mut().zip(sums) {
                times.push(sum as f64 / asked.ops.max(1) as f64);
            }
        }
        progress.advance(1);
    }
    Ok(times.into_iter().map(Spread::of).collect())
}
