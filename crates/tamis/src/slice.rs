//! [`Slice`]: bytes returned by the engine.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use tamis_files::table::PinnedValue;

use crate::memtable::PinnedMemValue;

/// The bytes of a key or a value. They are shared with a table block (mapped or cached) or a
/// memtable where that saves a copy; up to 22 bytes are stored inline.
///
/// A slice stays valid whatever happens to the database, and keeps its block, mapping or memtable
/// in memory. Use [`to_vec`](slice::to_vec) for long-lived bytes. Cloning costs at most one
/// reference count update.
///
/// ```
/// let slice = tamis::Slice::from(&b"bytes"[..]);
/// assert_eq!(slice, *b"bytes");
/// assert_eq!(slice.len(), 5);
/// ```
#[derive(Clone)]
pub struct Slice(Repr);

#[derive(Clone)]
enum Repr {
    Inline { len: u8, bytes: [u8; Slice::INLINE] },
    Shared(Arc<[u8]>),
    Block(PinnedValue),
    Memtable(PinnedMemValue),
}

impl Slice {
    /// Up to this many bytes are stored inline.
    pub(crate) const INLINE: usize = 22;

    /// Copies `bytes` into a slice.
    pub fn copy_of(bytes: &[u8]) -> Slice {
        if bytes.len() <= Self::INLINE {
            let mut inline = [0; Self::INLINE];
            inline[..bytes.len()].copy_from_slice(bytes);
            Slice(Repr::Inline { len: bytes.len() as u8, bytes: inline })
        } else {
            Slice(Repr::Shared(bytes.into()))
        }
    }

    pub(crate) fn from_block(value: PinnedValue) -> Slice {
        Slice(Repr::Block(value))
    }

    pub(crate) fn from_memtable(value: PinnedMemValue) -> Slice {
        Slice(Repr::Memtable(value))
    }
}

impl Default for Slice {
    /// Returns the empty slice.
    fn default() -> Slice {
        Slice::copy_of(&[])
    }
}

impl Deref for Slice {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Shared(bytes) => bytes,
            Repr::Block(value) => value,
            Repr::Memtable(value) => value,
        }
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<&[u8]> for Slice {
    fn from(bytes: &[u8]) -> Slice {
        Slice::copy_of(bytes)
    }
}

impl From<Vec<u8>> for Slice {
    /// Copies the bytes: a slice keeps its reference count next to them.
    fn from(bytes: Vec<u8>) -> Slice {
        Slice::copy_of(&bytes)
    }
}

impl From<Slice> for Vec<u8> {
    fn from(slice: Slice) -> Vec<u8> {
        slice.to_vec()
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Slice {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl Eq for Slice {}

impl PartialOrd for Slice {
    fn partial_cmp(&self, other: &Slice) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Slice {
    fn cmp(&self, other: &Slice) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl std::hash::Hash for Slice {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl std::borrow::Borrow<[u8]> for Slice {
    fn borrow(&self) -> &[u8] {
        self
    }
}
