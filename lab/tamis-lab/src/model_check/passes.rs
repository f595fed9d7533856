//! Gets in pieces: counted, or timed in interleaved rounds.

use std::time::Instant;

use tamis::Db;
use tamis::stats::ReadCost;
use tamis_bench::BenchError;
use tamis_bench::keys::KeySet;
use tamis_bench::progress::Progress;
use tamis_bench::random::Random;

use crate::hash_functions::timing::Spread;

/// Size of the keys of a piece, which stay in the second-level cache.
const PIECE_BYTES: usize = 32 << 10;

/// A sequence of keys, generated piece by piece outside of the timed sections.
pub(super) struct Asked<'k> {
    set: &'k KeySet,
    key_bytes: usize,
    absent: u64,
    ops: u64,
    seed: u64,
    /// Number of keys in a piece.
    piece: u64,
}

/// Concatenated keys, and whether each is present.
pub(super) struct Piece {
    key_bytes: usize,
    bytes: Vec<u8>,
    there: Vec<bool>,
}

impl Piece {
    /// Returns the keys in order.
    pub(super) fn keys(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.key_bytes)
    }
}

impl<'k> Asked<'k> {
    pub(super) fn new(set: &'k KeySet, key_bytes: usize, absent: u64, ops: u64, seed: u64) -> Asked<'k> {
        let piece = (PIECE_BYTES / key_bytes.max(1)).clamp(16, 256) as u64;
        Asked { set, key_bytes, absent, ops, seed, piece }
    }

    /// Limits pieces to `most` keys.
    pub(super) fn in_pieces_of(mut self, most: u64) -> Asked<'k> {
        self.piece = self.piece.min(most.max(1));
        self
    }

    /// Calls `work` with each piece in turn.
    pub(super) fn for_each(
        &self,
        mut work: impl FnMut(&Piece) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let mut random = Random::part(self.seed, 0x6D6F_6465);
        let mut piece = Piece { key_bytes: self.key_bytes, bytes: Vec::new(), there: Vec::new() };
        let mut left = self.ops;
        while left > 0 {
            let count = left.min(self.piece);
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

/// Gets all keys of a piece, checking the presence of each. Returns nanoseconds.
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

/// Returns the counters of all gets of a sequence.
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

/// Returns nanoseconds per get on each database, with the same sequence in every round. Databases are interleaved piece
/// by piece; the first round, which warms up, is not counted.
pub(super) fn time(
    dbs: &[&Db],
    rounds: u32,
    asked: &Asked<'_>,
    progress: &dyn Progress,
) -> Result<Vec<Spread>, BenchError> {
    let mut turn = 0;
    over_rounds(dbs.len(), rounds, asked, progress, &mut |piece, ns| {
        // The second database finds the blocks of the first in the processor's caches.
        turn += 1;
        for at in 0..dbs.len() {
            let at = (at + turn) % dbs.len();
            ns[at] = get_all(dbs[at], piece)?;
        }
        Ok(())
    })
}

/// Work on one piece; returns the nanoseconds of each side.
type Work<'w> = &'w mut dyn FnMut(&Piece, &mut [u64]) -> Result<(), BenchError>;

/// Returns nanoseconds per key of each side, over the same pieces in every round. A piece takes less than a time slice;
/// the median of its rounds counts, and pieces are summed: so other load on the machine has no effect, but rare reads
/// do. Extremes are the fastest rounds of all pieces, and the slowest whole round.
pub(super) fn over_rounds(
    sides: usize,
    rounds: u32,
    asked: &Asked<'_>,
    progress: &dyn Progress,
    work: Work<'_>,
) -> Result<Vec<Spread>, BenchError> {
    // By side, by round, by piece.
    let mut times: Vec<Vec<Vec<u64>>> = vec![Vec::new(); sides];
    for round in 0..=rounds {
        let mut these = vec![Vec::new(); sides];
        asked.for_each(|piece| {
            let mut ns = vec![0; sides];
            work(piece, &mut ns)?;
            these.iter_mut().zip(ns).for_each(|(these, ns)| these.push(ns));
            Ok(())
        })?;
        if round > 0 {
            times.iter_mut().zip(these).for_each(|(times, these)| times.push(these));
        }
        progress.advance(1);
    }
    let a_get = |ns: f64| ns / asked.ops.max(1) as f64;
    let spread = |rounds: &Vec<Vec<u64>>| {
        let pieces = rounds.first().map_or(0, Vec::len);
        let of_piece = |at: usize| Spread::of(rounds.iter().map(|round| round[at] as f64).collect());
        let (median, min) = (0..pieces)
            .map(of_piece)
            .fold((0.0, 0.0), |(median, min), piece| (median + piece.median, min + piece.min));
        let slowest = rounds.iter().map(|round| round.iter().sum::<u64>()).max().unwrap_or(0);
        Spread { median: a_get(median), min: a_get(min), max: a_get(slowest as f64) }
    };
    Ok(times.iter().map(spread).collect())
}

#[cfg(test)]
mod tests {
    use tamis_bench::progress::NoProgress;

    use super::*;

    /// One piece of each round was interrupted, a different one each time; a rare read recurs in every round.
    #[test]
    fn an_interruption_does_not_count_and_a_rare_read_does() {
        let set = KeySet::uniform(1000, 512, 1).unwrap();
        let asked = Asked::new(&set, 512, 50, 640, 1);
        let mut calls = 0u64;
        let spreads = over_rounds(1, 5, &asked, &NoProgress, &mut |piece, ns| {
            assert_eq!(piece.there.len(), 64);
            let (round, at) = (calls / 10, calls % 10);
            calls += 1;
            ns[0] = 64 * 100 + if at == 3 { 64_000 } else { 0 } + if at == round { 1_000_000 } else { 0 };
            Ok(())
        })
        .unwrap();
        assert_eq!(calls, 60);
        assert_eq!((spreads[0].median, spreads[0].min), (200.0, 200.0));
        assert_eq!(spreads[0].max, 200.0 + 1_000_000.0 / 640.0);
    }
}
