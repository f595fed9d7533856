//! What a merge reads from, and its place in the heap.

use std::ops::Range;

use tamis_base::key::{SeqNo, prefix_of};

use crate::memtable::MemCursor;
use crate::read::run_cursor::RunCursor;

#[derive(Debug)]
pub(crate) enum MergeSource {
    Memtable(MemCursor),
    /// Boxed, so that a lazy run takes only its slot.
    Run(Box<RunCursor>),
    /// A lazy run over these tables that has not needed a cursor yet. Only under a global filter.
    Asleep(Range<usize>),
}

pub(crate) const ASLEEP: &str = "lazy sources without a cursor are not in the heap";

impl MergeSource {
    pub(crate) fn valid(&self) -> bool {
        match self {
            MergeSource::Memtable(cursor) => cursor.valid(),
            MergeSource::Run(run) => run.valid(),
            MergeSource::Asleep(_) => false,
        }
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        match self {
            MergeSource::Memtable(cursor) => cursor.key(),
            MergeSource::Run(run) => run.key(),
            MergeSource::Asleep(_) => unreachable!("{ASLEEP}"),
        }
    }

    #[inline]
    pub(crate) fn seq(&self, backward: bool) -> SeqNo {
        match self {
            MergeSource::Memtable(cursor) => cursor.seq(),
            MergeSource::Run(run) => run.seq(backward),
            MergeSource::Asleep(_) => unreachable!("{ASLEEP}"),
        }
    }
}

/// The rank of a source at `key`.
#[inline]
pub(crate) fn rank_of(key: &[u8], backward: bool) -> u64 {
    let prefix = prefix_of(key);
    if backward { !prefix } else { prefix }
}

/// A valid source in the heap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ranked {
    /// `prefix_of` the source's current key, inverted if the merge moves backwards. The smaller
    /// rank comes first; equal ranks decide nothing.
    pub(crate) rank: u64,
    pub(crate) source: u32,
}
