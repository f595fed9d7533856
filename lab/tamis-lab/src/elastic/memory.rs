//! The filter memory of a side, counted whole: bits of filters, directories, segments' borders and hotness.
//!
//! All sides are compared at the same true bits per key. A fixed filter has the bits asked, rounded up to whole cache lines,
//! in memory that [`KeyspaceStats::filter_bytes`](tamis::stats::KeyspaceStats::filter_bytes) counts whole. Elastic filters
//! get as much ([`common`]), as their budget, which covers directories and bookkeeping as well as units.

use tamis::Db;
use tamis::stats::Stats;
use tamis_bench::BenchError;

/// Maximum relative difference from the bits asked that is due to rounding.
const ROUNDING: f64 = 0.1;

/// Returns the bytes of `bits` per key.
pub(crate) fn bytes_of(bits: f64, keys: u64) -> u64 {
    (bits * keys as f64 / 8.0) as u64
}

/// Returns the bytes of an open database's filters in memory, with all that is needed to find and manage them.
pub(crate) fn filter_bytes_of(stats: &Stats) -> u64 {
    match &stats.elastic {
        Some(elastic) => elastic.used_bytes,
        None => stats.keyspaces.iter().map(|tree| tree.filter_bytes).sum(),
    }
}

/// Returns these bytes in bits per entry of the database's trees.
pub(crate) fn bits_per_key(stats: &Stats) -> f64 {
    let entries: u64 = stats.keyspaces.iter().map(|tree| tree.entries).sum();
    filter_bytes_of(stats) as f64 * 8.0 / entries.max(1) as f64
}

/// Returns the bytes for elastic filters: those of the first fixed side that has a filter, in memory as they are, if they
/// are about the bytes asked; otherwise the bytes asked.
pub(super) fn common(asked: u64, fixed: impl IntoIterator<Item = u64>) -> u64 {
    let first = fixed.into_iter().find(|&bytes| bytes > 0);
    first.filter(|&bytes| bytes.abs_diff(asked) as f64 <= asked as f64 * ROUNDING).unwrap_or(asked)
}

/// Sets the budget of elastic filters to `bytes` and waits until units are loaded or dropped. Does nothing for other filters.
pub(crate) fn equalize(db: &Db, bytes: u64) -> Result<(), BenchError> {
    db.wait_for_filters()?;
    match db.stats().elastic {
        Some(elastic) if elastic.budget_bytes != bytes => {
            db.set_filter_budget(bytes)?;
            Ok(db.wait_for_filters()?)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elastic_filters_get_what_fixed_ones_take() {
        assert_eq!(bytes_of(4.0, 1000), 500);
        assert_eq!(common(500, [518, 500]), 518, "the first one is the side that is compared");
        assert_eq!(common(500, [0, 518]), 518, "no filter takes nothing");
        assert_eq!(common(500, [1500]), 500, "a filter that ignores the bits asked");
        assert_eq!(common(500, []), 500);
    }
}
