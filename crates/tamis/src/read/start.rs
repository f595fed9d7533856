//! Where a merge begins or continues.

use tamis_base::key::SeqNo;

use crate::memtable::MemCursor;

/// The position where a merge begins or continues.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MergeStart<'k> {
    /// Forwards, at this version.
    At(&'k [u8], SeqNo),
    /// Backwards, below this key (`None`: from the end).
    Before(Option<&'k [u8]>),
}

impl MergeStart<'_> {
    pub(crate) fn is_backward(self) -> bool {
        matches!(self, MergeStart::Before(_))
    }

    pub(crate) fn seek_in(self, cursor: &mut MemCursor) {
        match self {
            MergeStart::At(key, seq) => cursor.seek(key, seq),
            MergeStart::Before(Some(key)) => cursor.seek_before(key),
            MergeStart::Before(None) => cursor.seek_to_last(),
        }
    }
}
