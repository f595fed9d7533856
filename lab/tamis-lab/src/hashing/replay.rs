//! One sequence of gets, replayed on both sides of a tree: what a get computes, asks and reads. Counts do not depend on the
//! device, so they stand in for the shares of levels and runs in the paper's equation.

use std::path::Path;

use tamis_bench::BenchError;
use tamis_bench::progress::Progress;
use tamis_bench::random::mix64;

use super::design::{Shape, run_sizes};
use super::passes::{Piece, Sequence};
use super::tree::Trees;
use crate::medium::Way;

/// Sizes of keys and values: small, since only counts matter.
const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 48;

/// Where tables are: reads are counted, not timed.
const DEVICE: &str = "page-cache";

/// What a get does, on average.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counted {
    /// Digests of the key.
    pub(crate) digests: f64,
    /// Filters asked.
    pub(crate) filters: f64,
    /// Blocks read.
    pub(crate) blocks: f64,
}

/// The tree of a replay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replayed {
    pub(crate) keys: u64,
    pub(crate) levels: usize,
    pub(crate) size_ratio: u64,
    pub(crate) bits: f64,
    pub(crate) tiering: bool,
}

impl Replayed {
    /// Returns the bytes on disk.
    pub(crate) fn bytes(keys: u64) -> u64 {
        2 * keys * (KEY_BYTES + VALUE_BYTES) as u64
    }

    /// Runs `ops` gets for each share of absent keys in percent. Returns the counts without and with sharing.
    pub(crate) fn counts(
        self,
        absents: &[u64],
        ops: u64,
        seed: u64,
        progress: &dyn Progress,
    ) -> Result<Vec<[Counted; 2]>, BenchError> {
        let Replayed { keys, levels, size_ratio, bits, tiering } = self;
        let runs = run_sizes(keys, levels, size_ratio, tiering);
        let (key_bytes, value_bytes) = (KEY_BYTES, VALUE_BYTES);
        let shape = Shape { key_bytes, value_bytes, bits, tiering, size_ratio, levels, runs };
        let mut trees = Trees::in_dir(None::<&Path>, seed)?;
        let tree = trees.of(&shape, progress)?;
        let pair = tree.open(Way::of(DEVICE)?, trees.dir())?.map_err(BenchError::Request)?;
        let mut found = Vec::new();
        for &absent in absents {
            let mut counted = [Counted::default(); 2];
            for (side, counted) in pair.sides.iter().zip(&mut counted) {
                let before = side.db.stats().read;
                // The same gets on both sides.
                let mut gets = Sequence::new(&tree.keys, absent, 0.0, (ops, 1000.0), mix64(seed ^ absent));
                let mut piece = Piece::new(key_bytes, value_bytes);
                while gets.next(&mut piece) {
                    piece.get_all(&side.db)?;
                }
                let read = side.db.stats().read - before;
                let per_get = |count: u64| count as f64 / ops as f64;
                *counted = Counted {
                    digests: per_get(read.digests),
                    filters: per_get(read.filter_probes),
                    blocks: per_get(read.block_reads),
                };
            }
            found.push(counted);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use tamis_bench::progress::NoProgress;

    use super::*;

    #[test]
    fn sharing_saves_all_digests_but_one_and_no_read() {
        for tiering in [false, true] {
            let tree = Replayed { keys: 2_000, levels: 3, size_ratio: 4, bits: 10.0, tiering };
            let runs = if tiering { 12.0 } else { 3.0 };
            let counts = tree.counts(&[100, 0], 300, 1, &NoProgress).unwrap();
            for ([each, shared], exist) in counts.into_iter().zip([0.0, 1.0]) {
                assert_eq!((each.digests, shared.digests), (each.filters, 1.0), "{each:?} {shared:?}");
                assert_eq!(each.blocks, shared.blocks);
                assert!(each.blocks >= exist && each.blocks < exist + 0.5, "{each:?}");
                // A key that exists ends the search.
                assert_eq!(each.filters == runs, exist == 0.0, "{each:?}");
            }
        }
    }
}
