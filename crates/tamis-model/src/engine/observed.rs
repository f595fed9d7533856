//! The workload that an engine's counters show.

use super::Workload;

/// Iterators that return at most this many entries on average count as seeks.
const SEEK_ENTRIES: f64 = 2.0;

/// Counts of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    /// Point reads.
    pub gets: u64,
    /// Point reads that found a value.
    pub found: u64,
    /// Iterators.
    pub scans: u64,
    /// Iterators that returned nothing.
    pub empty_scans: u64,
    /// Entries returned by iterators.
    pub entries: u64,
    /// Writes.
    pub writes: u64,
}

impl Operations {
    /// Returns the number of reads and writes; an iterator counts as one.
    pub fn total(&self) -> u64 {
        self.gets + self.scans + self.writes
    }
}

impl Workload {
    /// Returns the workload of these operations, and a list of what the counts do not show, with
    /// what was assumed instead. `skew` is the Zipf exponent of reads, if it is known.
    pub fn observed(operations: &Operations, skew: Option<f64>) -> (Workload, Vec<String>) {
        let mut unknown = Vec::new();
        let found = operations.found.min(operations.gets);
        let empty_scans = operations.empty_scans.min(operations.scans);
        let mut workload = Workload {
            empty_gets: (operations.gets - found) as f64,
            existing_gets: found as f64,
            empty_ranges: empty_scans as f64,
            puts: operations.writes as f64,
            ..Workload::default()
        };
        let scans = (operations.scans - empty_scans) as f64;
        let entries = operations.entries as f64 / scans.max(1.0);
        if entries > SEEK_ENTRIES {
            (workload.scans, workload.scan_entries) = (scans, entries);
        } else {
            workload.seeks = scans;
        }
        if empty_scans > 0 {
            unknown.push("the width of empty ranges; assumed to be 64 integers".to_owned());
        }
        match skew {
            Some(skew) => workload.skew = skew,
            None if found > 0 => {
                unknown.push(
                    "the skew of reads (too few gets, or only multi-gets); assumed to be uniform".to_owned(),
                );
            }
            None => {}
        }
        if operations.gets > found || empty_scans > 0 {
            unknown.push(
                "whether absent keys lie right behind present ones; assumed to lie anywhere".to_owned(),
            );
        }
        (workload, unknown)
    }
}
