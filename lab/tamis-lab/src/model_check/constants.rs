//! T_H, T_P and T_D, measured on trees other than the predicted ones.
//!
//! * T_H: digests of the keys alone, one after the other.
//! * The get of an empty database, which the equations do not have.
//! * T_D: gets of present keys in one run without a filter, less the get of an empty database: finding the block,
//!   reading it, finding the key in it. The run has as many keys as the predicted trees, so that caches hold the same
//!   share of it.
//! * T_P: gets of absent keys in four equal runs, less hashing, the get of an empty database, and blocks read for false
//!   positives, divided by four; with one digest and with one per filter. Both on mapped files.

use std::hint::black_box;
use std::time::Instant;

use tamis_bench::BenchError;
use tamis_bench::progress::Progress;
use tamis_filter::Digest;

use super::passes;
use super::tree::{Built, Data, Place};

/// Number of runs of the tree that measures a probe.
const RUNS: u64 = 4;

/// The times of one place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Constants {
    /// T_H.
    pub(super) hash_ns: f64,
    /// T_P where each filter has a digest of its own, excluding the digest.
    pub(super) probe_ns: f64,
    /// T_P where one digest serves all.
    pub(super) probe_shared_ns: f64,
    /// T_D.
    pub(super) access_ns: f64,
    /// The get of an empty database.
    pub(super) base_ns: f64,
}

/// The trees that are measured.
pub(super) struct Reference {
    empty: Built,
    one: Built,
    four: Built,
    seed: u64,
}

impl Reference {
    pub(super) fn new(data: &Data, progress: &dyn Progress) -> Result<Reference, BenchError> {
        Ok(Reference {
            empty: Built::new(data, &[], true, progress)?,
            one: Built::new(data, &[data.keys], false, progress)?,
            four: Built::new(data, &[data.keys / RUNS; RUNS as usize], true, progress)?,
            seed: data.seed,
        })
    }

    /// Measures the times in one place as medians of the rounds.
    pub(super) fn measure(
        &self,
        place: Place,
        rounds: u32,
        ops: u64,
        progress: &dyn Progress,
    ) -> Result<Constants, BenchError> {
        progress.begin(&format!("constants of {}", place.name()), 4 * (u64::from(rounds) + 1), "rounds");
        let hash_ns = self.hash(rounds, ops, progress)?;
        let base_ns = self.gets(&self.empty, Place::Mapped, &[true], 100, rounds, ops, progress)?[0];
        let few = place.ops(ops, 1, 0);
        let access_ns =
            (self.gets(&self.one, place, &[true], 0, rounds, few, progress)?[0] - base_ns).max(0.0);
        // With one run, block and key are found without a digest except the one of the block's index.
        let access_ns = (access_ns - hash_ns).max(0.0);
        let mapped_ns = match place {
            Place::Mapped => access_ns,
            Place::Emulated(_) => {
                let gets = self.gets(&self.one, Place::Mapped, &[true], 0, rounds, ops, progress)?[0];
                (gets - base_ns - hash_ns).max(0.0)
            }
        };
        let absent = self.gets(&self.four, Place::Mapped, &[false, true], 100, rounds, ops, progress)?;
        let wrong_ns = self.four.rates.iter().sum::<f64>() * mapped_ns;
        let probe =
            |gets: f64, hashes: f64| ((gets - base_ns - hashes * hash_ns - wrong_ns) / RUNS as f64).max(0.0);
        progress.end();
        Ok(Constants {
            hash_ns,
            probe_ns: probe(absent[0], RUNS as f64),
            probe_shared_ns: probe(absent[1], 1.0),
            access_ns,
            base_ns,
        })
    }

    fn hash(&self, rounds: u32, ops: u64, progress: &dyn Progress) -> Result<f64, BenchError> {
        let asked = self.one.keys(0, ops, self.seed);
        let spreads = passes::over_rounds(1, rounds, &asked, progress, &mut |piece, ns| {
            let begun = Instant::now();
            for key in piece.keys() {
                black_box(Digest::of(black_box(key)));
            }
            ns[0] = begun.elapsed().as_nanos() as u64;
            Ok(())
        })?;
        Ok(spreads[0].median)
    }

    /// Returns nanoseconds per get, without and with sharing, as requested.
    #[allow(clippy::too_many_arguments, reason = "what, where, how often: each is named at the call")]
    fn gets(
        &self,
        tree: &Built,
        place: Place,
        sharing: &[bool],
        absent: u64,
        rounds: u32,
        ops: u64,
        progress: &dyn Progress,
    ) -> Result<Vec<f64>, BenchError> {
        let sides =
            sharing.iter().map(|&sharing| tree.open(place, sharing)).collect::<Result<Vec<_>, _>>()?;
        let dbs: Vec<_> = sides.iter().map(|side| &side.db).collect();
        let asked = tree.keys(absent, ops, self.seed ^ 1).in_pieces_of(place.piece());
        let spreads = passes::time(&dbs, rounds, &asked, progress)?;
        sides.into_iter().try_for_each(|side| side.close())?;
        Ok(spreads.iter().map(|spread| spread.median).collect())
    }
}
