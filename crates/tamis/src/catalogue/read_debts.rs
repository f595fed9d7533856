//! What reads have paid for: the work of gets and seeks in extra runs of a keyspace, as bytes that
//! a merge may cost. See [`for_reads`](crate::jobs::for_reads).

use tamis_base::collections::HashMap;
use tamis_base::ids::KeyspaceId;
use tamis_base::key::SeqNo;

use crate::idle::IdleTimer;
use crate::observe::cost::ReadCost;

/// What runs beyond the first cost a keyspace's reads.
#[derive(Debug, Default)]
pub(crate) struct ReadDebt {
    /// The counters at the last update.
    seen: ReadCost,
    pub(crate) debt: u64,
}

impl ReadDebt {
    /// Adds the losses since the last call. Returns the debt in bytes. `scarce`: the pages of
    /// mapped tables do not all fit into memory.
    pub(crate) fn update(&mut self, now: ReadCost, scarce: bool) -> u64 {
        self.debt = self.debt.saturating_add(loss(now - self.seen, scarce));
        self.seen = now;
        self.debt
    }
}

/// Returns what reads paid, in bytes, for runs beyond the first and for entries that merges would
/// remove.
pub(crate) fn loss(reads: ReadCost, scarce: bool) -> u64 {
    let searches = reads.seeks.saturating_sub(reads.scans) + reads.false_positives;
    let probes = reads.filter_probes.saturating_sub(reads.gets);
    let steps = reads.tombstones_skipped + reads.versions_skipped;
    // How many of the searches read a block. Reads of mapped pages are not counted.
    let read = match scarce {
        true => searches,
        false => {
            let share = reads.io_reads as f64 / reads.block_reads.max(1) as f64;
            (searches as f64 * share.min(1.0)) as u64
        }
    };
    searches
        .saturating_mul(PRICE_OF_SEARCH)
        .saturating_add(read.saturating_mul(PRICE_OF_READ))
        .saturating_add(probes.saturating_mul(PRICE_OF_PROBE))
        .saturating_add(steps.saturating_mul(PRICE_OF_STEP))
}

/// The accounts of all keyspaces.
#[derive(Debug)]
pub(crate) struct ReadDebts {
    accounts: HashMap<KeyspaceId, ReadDebt>,
    /// The time since the last write.
    pub(crate) idle_timer: IdleTimer<SeqNo>,
}

impl ReadDebts {
    pub(crate) fn new() -> ReadDebts {
        ReadDebts { accounts: HashMap::default(), idle_timer: IdleTimer::default() }
    }

    pub(crate) fn of(&mut self, keyspace: KeyspaceId) -> &mut ReadDebt {
        self.accounts.entry(keyspace).or_default()
    }
}

/// The price of a wasted search of a run in memory, in bytes rewritten. A search takes half a
/// microsecond. Beside writers, merges of entries of 264 bytes moved 159 MB/s, 80 bytes in that
/// time; they have a processor for themselves when they run for reads.
pub(crate) const PRICE_OF_SEARCH: u64 = 256;

/// The price of a block that a wasted search reads, about the size of one: a merge reads and writes
/// it once, too, but in order.
pub(crate) const PRICE_OF_READ: u64 = 4 << 10;

/// The price of one more filter probe: a search takes about 32 times as long.
pub(crate) const PRICE_OF_PROBE: u64 = 8;

/// The price of stepping over a deleted key or an obsolete version that a merge would have removed:
/// about a twelfth of a search.
pub(crate) const PRICE_OF_STEP: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// A few blocks are the first that a new database reads.
    #[test]
    fn wasted_searches_cost_as_many_reads_as_other_searches() {
        let reads = |block_reads, io_reads| {
            let reads = ReadCost { seeks: 10, block_reads, io_reads, ..ReadCost::default() };
            (loss(reads, false) - 10 * PRICE_OF_SEARCH) / PRICE_OF_READ
        };
        assert_eq!([reads(0, 0), reads(1, 1), reads(2, 1), reads(4, 1), reads(1, 2)], [0, 10, 5, 2, 10]);
    }
}
