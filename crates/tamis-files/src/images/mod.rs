//! Filter files: partitions of a global filter on disk.
//!
//! A partition is the filter of one key range, an immutable value. Serialized it is an *image*,
//! whose bytes are opaque here. A filter file holds several images, an index of them, and a footer;
//! like a table file it is written once. The bytes are described in `docs/filter-images.md`:
//!
//! ```text
//! image 0 | image 1 | … | index | footer
//! ```
//!
//! An image says up to which epoch (`until`) it holds every key of its range that is in a table.
//! The tables with later epochs are its log: who loads it adds their keys. So an image stays true
//! whatever becomes of the tree, and an old one costs time but no answers.
//!
//! # Invariants
//!
//! * No byte of a file is without a checksum: the footer has its own and the index's, the index
//!   those of the images. All are seeded with their place, so that a part that lies elsewhere fails
//!   like one with a flipped bit.
//! * Nothing read is trusted: lengths are checked against the file's before memory is allocated,
//!   and an image is returned only if its checksum is right.
//! * Opening reads footer and index; an image is read when it is asked for, one at a time.
//! * Of two images, the one that was made later is [newer](Image::age), also after it was copied
//!   into another file.
//!
//! A writer belongs to one thread. An opened file is immutable, and any thread may read it.

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
