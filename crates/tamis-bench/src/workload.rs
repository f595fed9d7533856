//! Named workloads.

use std::fmt;
use std::str::FromStr;

use crate::mixgraph;

/// A named mix of operations. Names are those of `tamis bench --workload`; their meaning never
/// changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Workload {
    /// Puts every key once, in random order.
    FillRandom,
    /// Puts every key once, ascending.
    FillSeq,
    /// Puts new values under random existing keys.
    Overwrite,
    /// Gets random absent keys.
    GetEmpty,
    /// Gets random existing keys.
    GetExisting,
    /// Gets, half existing and half absent.
    GetMixed,
    /// Gets existing keys, Zipf-distributed (0.99) and scrambled over the key space.
    GetZipf,
    /// `multi_get` of 32 keys, half existing and half absent; one operation is one key.
    MultiGet,
    /// `multi_get` of 32 absent keys; one operation is one key.
    MultiGetEmpty,
    /// `multi_get` of 32 existing keys; one operation is one key.
    MultiGetExisting,
    /// Looks for the first entry of a narrow range that holds no key.
    RangeEmpty,
    /// Looks for the first entry of an empty range at most 64 wide that begins with an absent key.
    RangeAbsent,
    /// A new iterator on a random existing key, and its first entry.
    Seek,
    /// A seek and the next 50 entries.
    SeekNext50,
    /// A seek and the next 20 entries.
    SeekNext20,
    /// A seek and the next 10,000 entries: a long scan.
    SeekNext10000,
    /// A reverse seek to a key, and the 50 entries before it.
    ReverseNext50,
    /// A seek of an existing key, Zipf-distributed as in `GetZipf`.
    SeekZipf,
    /// Half gets of existing keys, half overwrites.
    ReadWrite,
    /// YCSB's A: half gets, half updates, Zipf-distributed.
    YcsbA,
    /// YCSB's B: 95 % gets, 5 % updates, Zipf-distributed.
    YcsbB,
    /// YCSB's C: gets, Zipf-distributed.
    YcsbC,
    /// YCSB's D: 95 % gets, mostly of the latest keys, 5 % inserts.
    YcsbD,
    /// YCSB's E: 95 % scans of 1 to 100 entries from a Zipf-distributed key on, 5 % inserts.
    YcsbE,
    /// YCSB's F: half gets, half read-modify-writes, Zipf-distributed.
    YcsbF,
    /// 90 % gets of existing keys, 10 % overwrites.
    ReadMostly,
    /// 83 % gets, 14 % overwrites and 3 % scans of keys in ranges of different hotness: see
    /// [`mixgraph`].
    Mixgraph,
    /// One full compaction of several overlapping runs, in a database of its own: see
    /// [`compact`](crate::compact).
    Compact,
}

/// Keys in one `multi_get`.
pub const MULTI_GET_KEYS: usize = 32;

/// Entries read after the first one by [`Workload::SeekNext50`].
pub const NEXT_ENTRIES: usize = 50;

/// One in this many operations of `YcsbD` and `YcsbE` is an insert.
pub const INSERT_EVERY: u64 = 20;

/// The most entries that a scan of `YcsbE` reads.
pub const LONGEST_SCAN: usize = 100;

/// The exponent of [`Workload::GetZipf`] and the others that are Zipf-distributed, unless a pattern
/// has another.
pub const ZIPF_EXPONENT: f64 = 0.99;

impl Workload {
    /// All workloads, fills first.
    pub const ALL: [Workload; 28] = [
        Workload::FillRandom,
        Workload::FillSeq,
        Workload::Overwrite,
        Workload::GetEmpty,
        Workload::GetExisting,
        Workload::GetMixed,
        Workload::GetZipf,
        Workload::MultiGet,
        Workload::MultiGetEmpty,
        Workload::MultiGetExisting,
        Workload::RangeEmpty,
        Workload::RangeAbsent,
        Workload::Seek,
        Workload::SeekNext50,
        Workload::SeekNext20,
        Workload::SeekNext10000,
        Workload::ReverseNext50,
        Workload::SeekZipf,
        Workload::ReadWrite,
        Workload::YcsbA,
        Workload::YcsbB,
        Workload::YcsbC,
        Workload::YcsbD,
        Workload::YcsbE,
        Workload::YcsbF,
        Workload::ReadMostly,
        Workload::Mixgraph,
        Workload::Compact,
    ];

    /// Returns the name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Workload::FillRandom => "fill-random",
            Workload::FillSeq => "fill-seq",
            Workload::Overwrite => "overwrite",
            Workload::GetEmpty => "get-empty",
            Workload::GetExisting => "get-existing",
            Workload::GetMixed => "get-mixed",
            Workload::GetZipf => "get-zipf",
            Workload::MultiGet => "multi-get",
            Workload::MultiGetEmpty => "multi-get-empty",
            Workload::MultiGetExisting => "multi-get-existing",
            Workload::RangeEmpty => "range-empty",
            Workload::RangeAbsent => "range-absent",
            Workload::Seek => "seek",
            Workload::SeekNext50 => "seek-next50",
            Workload::SeekNext20 => "seek-next20",
            Workload::SeekNext10000 => "seek-next10000",
            Workload::ReverseNext50 => "reverse-next50",
            Workload::SeekZipf => "seek-zipf",
            Workload::ReadWrite => "read-write",
            Workload::YcsbA => "ycsb-a",
            Workload::YcsbB => "ycsb-b",
            Workload::YcsbC => "ycsb-c",
            Workload::YcsbD => "ycsb-d",
            Workload::YcsbE => "ycsb-e",
            Workload::YcsbF => "ycsb-f",
            Workload::ReadMostly => "read-mostly",
            Workload::Mixgraph => "mixgraph",
            Workload::Compact => "compact",
        }
    }

    /// Reports whether it loads the key set.
    pub fn is_fill(self) -> bool {
        matches!(self, Workload::FillRandom | Workload::FillSeq)
    }

    /// Reports whether it is a run of operations on the benchmark's database. `compact` has a
    /// database of its own.
    pub fn is_run(self) -> bool {
        self != Workload::Compact
    }

    /// Reports whether it changes the database.
    pub fn writes(self) -> bool {
        self.is_fill() || self.writes_of(1000) > 0
    }

    /// Reports whether its operations are keys of batches of [`MULTI_GET_KEYS`].
    pub fn is_batched(self) -> bool {
        matches!(self, Workload::MultiGet | Workload::MultiGetEmpty | Workload::MultiGetExisting)
    }

    /// Reports whether it puts new keys.
    pub fn inserts(self) -> bool {
        matches!(self, Workload::YcsbD | Workload::YcsbE)
    }

    /// Returns about how many of `ops` operations write; 0 for fills, which write every key.
    pub fn writes_of(self, ops: u64) -> u64 {
        match self {
            Workload::Overwrite => ops,
            Workload::ReadWrite | Workload::YcsbA | Workload::YcsbF => ops / 2,
            Workload::ReadMostly => ops / 10,
            Workload::YcsbB | Workload::YcsbD | Workload::YcsbE => ops / INSERT_EVERY,
            Workload::Mixgraph => (u128::from(ops) * u128::from(mixgraph::PUT_PERCENT) / 100) as u64,
            _ => 0,
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no workload has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no workload is called `{name}`; known are {known}", name = .0, known = Workload::ALL.map(Workload::name).join(", "))]
pub struct UnknownWorkload(pub String);

impl FromStr for Workload {
    type Err = UnknownWorkload;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Workload::ALL.into_iter().find(|w| w.name() == name);
        known.ok_or_else(|| UnknownWorkload(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_others_are_rejected() {
        for workload in Workload::ALL {
            assert_eq!(workload.name().parse(), Ok(workload));
        }
        let refused = "get-nothing".parse::<Workload>().unwrap_err().to_string();
        assert!(refused.contains("`get-nothing`") && refused.contains("seek-next50"), "{refused}");
    }
}
