//! Where the lines of a filter lie: in memory of its own, or in bytes that it shares, such as a
//! mapped file.
//!
//! A probe must not ask which, so the address is kept beside the owner.

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use super::Line;
use crate::format::SharedBytes;

/// The lines of a filter. Cloning shares them.
#[derive(Clone)]
pub(crate) struct Lines {
    /// The owner's lines.
    lines: NonNull<[Line]>,
    owner: Arc<Owner>,
}

enum Owner {
    Own(Box<[Line]>),
    Shared(SharedBytes),
}

// SAFETY: the lines are only ever read, as by `&[Line]`, which any thread may have and share, and
// so may the owner.
unsafe impl Send for Lines {}
// SAFETY: the same.
unsafe impl Sync for Lines {}

impl Lines {
    pub(crate) fn own(lines: Box<[Line]>) -> Lines {
        let owner = Arc::new(Owner::Own(lines));
        // From where they will stay: to move their box would end what was borrowed before.
        let Owner::Own(lines) = &*owner else { unreachable!("just made") };
        Lines { lines: NonNull::from(&**lines), owner }
    }

    /// Returns the first `count` lines of the bytes, where they are; `None` if they are no lines of
    /// this machine: too few, not on its cache lines, or of the other byte order.
    pub(crate) fn in_place(bytes: SharedBytes, count: usize) -> Option<Lines> {
        if cfg!(target_endian = "big") {
            return None;
        }
        let owner = Arc::new(Owner::Shared(bytes));
        let Owner::Shared(bytes) = &*owner else { return None };
        let bytes = (**bytes).as_ref().get(..count.checked_mul(size_of::<Line>())?)?;
        // SAFETY: a line is 64 bytes of integers, for which any bytes are valid.
        let (before, lines, _) = unsafe { bytes.align_to::<Line>() };
        if !before.is_empty() || lines.len() != count {
            return None;
        }
        let lines = NonNull::from(lines);
        Some(Lines { lines, owner })
    }

    /// Reports whether the lines lie in bytes that the filter shares.
    pub(crate) fn are_in_place(&self) -> bool {
        matches!(*self.owner, Owner::Shared(_))
    }
}

impl Deref for Lines {
    type Target = [Line];

    #[inline(always)]
    fn deref(&self) -> &[Line] {
        // SAFETY: the lines were borrowed from what the owner points at. That stays where it is and
        // is only shared as long as there is an `Arc` of it, and this value keeps one; so they are
        // good for as long as it is borrowed.
        unsafe { self.lines.as_ref() }
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").field("count", &self.len()).field("in_place", &self.are_in_place()).finish()
    }
}
