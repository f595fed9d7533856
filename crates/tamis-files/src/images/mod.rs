//! Filter files: partitions of a global filter on disk.
//!
//! A partition is the immutable filter of one key range. Its serialized form is an *image*, whose
//! bytes are opaque here. A filter file holds several images, an index of them, and a footer; like
//! a table file, it is written once. `docs/formats/filter-images.md` describes the bytes:
//!
//! ```text
//! image 0 | image 1 | … | index | footer
//! ```
//!
//! An image records an epoch, `until`: the image holds every key of its range from tables whose
//! epochs are all below `until`. Tables with later epochs act as its log; the loader adds their
//! keys. An image therefore stays valid however the tree changes. An old image costs loading time,
//! never correctness.
//!
//! # Invariants
//!
//! * Every byte of a file is checksummed: the footer holds its own checksum and the index's, and
//!   the index holds those of the images. Each is seeded with its part's offset, so a misplaced
//!   part fails just as a flipped bit does.
//! * Nothing read is trusted. Lengths are checked against the file's before memory is allocated,
//!   and an image is returned only if its checksum matches.
//! * Opening reads the footer and index. Images are read one at a time, on demand.
//! * Of two images, the one made later is [newer](Image::age), even after it is copied into another
//!   file.
//!
//! Threads: a writer belongs to one thread; any thread may read an open file.

mod format;
mod newest;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use format::{Image, ImageKind, is_marked};
#[cfg(test)]
use newest::Newest;
pub use newest::newest;
pub use read::ImageFile;
pub use write::ImageWriter;
